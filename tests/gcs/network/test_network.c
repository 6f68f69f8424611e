/* The settings of the way to the endpoint, end to end: proxies of each kind, client certificates,
 * local addresses, and what is said when one of them is wrong. */
#include "gcs/network/network.h"
#include "tests/support/client.h"
#include "tests/support/proxy.h"
#include "tests/support/test.h"

#include <openssl/x509.h>
#include <unistd.h>

#define SIZE 300000

static const struct rg_step *object_script(void)
{
    static struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = SIZE}, RG_AGAIN};
    script[1].text = rg_test_object_fields(SIZE, 7);
    return script;
}

/* A client that reaches its server through a proxy. */
struct way {
    struct rg_test_client c;
    struct rg_test_proxy_options proxy_options;
    struct rg_test_proxy *proxy;
    struct rg_test_certificate proxy_ca, proxy_certificate;
    const struct rg_step *scripts[1];
    const char *user; /* "user:password@", or NULL */
    bool proxy_tls;
    char proxy_url[128];
};

static void way_open(struct way *way)
{
    static const struct rg_test_certificate_spec authority = {.common_name = "proxy ca",
                                                              .authority = true};
    struct rg_test_certificate_spec leaf = {.common_name = "proxy",
                                            .alt_names = "DNS:localhost,IP:127.0.0.1"};
    way->scripts[0] = object_script();
    way->c.scripts = way->scripts;
    way->c.script_count = 1;
    if (way->proxy_tls) {
        rg_test_certificate_make(&way->proxy_ca, &authority);
        leaf.issuer = &way->proxy_ca;
        rg_test_certificate_make(&way->proxy_certificate, &leaf);
        way->proxy_options.certificate = &way->proxy_certificate;
    }
    way->proxy = rg_test_proxy_start(&way->proxy_options);
    snprintf(way->proxy_url, sizeof(way->proxy_url), "%s://%s127.0.0.1:%u",
             way->proxy_tls ? "https" : "http", way->user != NULL ? way->user : "",
             rg_test_proxy_port(way->proxy));
    way->c.options.proxy = way->proxy_url;
    rg_test_client_open(&way->c);
}

static void way_close(struct way *way)
{
    rg_test_client_close(&way->c);
    rg_test_proxy_stop(way->proxy);
    if (way->proxy_tls) {
        rg_test_certificate_free(&way->proxy_ca);
        rg_test_certificate_free(&way->proxy_certificate);
    }
}

static void check_gets(struct rg_test_client *c, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        rg_test_get(c, &(struct rg_get){0});
    }
    for (unsigned i = 0; i < count; i++) {
        struct rg_completion done = rg_test_take(c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_BYTES(&done, 0, SIZE);
        rg_lease_release(done.lease);
    }
}

static void check_fails(struct rg_test_client *c, enum rg_status want, const char *text)
{
    rg_test_get(c, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(c);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    RG_CHECK_CONTAINS(done.detail, text);
    rg_lease_release(done.lease);
}

static void test_tunnels_carry_https_and_http(void)
{
    for (unsigned piece = 0; piece < 2; piece++) {
        for (unsigned tls = 0; tls < 2; tls++) {
            struct way way = {.c.tls = tls == 1, .proxy_options.piece = piece * 7};
            way_open(&way);
            check_gets(&way.c, 8);
            char head[512], want[64];
            snprintf(want, sizeof(want), "CONNECT %s:%u HTTP/1.1\r\n",
                     tls == 1 ? "localhost" : "127.0.0.1", rg_scripted_server_port(way.c.server));
            rg_test_proxy_head(way.proxy, head, sizeof(head));
            RG_CHECK_CONTAINS(head, want);
            RG_CHECK(strstr(head, "Authorization") == NULL);
            RG_CHECK_EQ(rg_test_proxy_connections(way.proxy),
                        rg_scripted_server_connections(way.c.server));
            way_close(&way);
        }
    }
}

static void test_credentials_for_the_proxy(void)
{
    /* "us er:p:w" */
    struct way good = {
        .c.tls = true, .user = "us%20er:p:w@", .proxy_options.authorization = "Basic dXMgZXI6cDp3"};
    way_open(&good);
    check_gets(&good.c, 2);
    /* They are for the proxy alone. */
    RG_CHECK(strstr(rg_scripted_server_head(good.c.server, 0), "dXMgZXI6cDp3") == NULL);
    char text[128], want[128];
    snprintf(want, sizeof(want), "http://127.0.0.1:%u", rg_test_proxy_port(good.proxy));
    RG_CHECK_EQ(rg_proxy_describe(good.c.client, text, sizeof(text)), (int)strlen(want));
    RG_CHECK_STR(text, want);
    way_close(&good);
    struct way bad = {
        .c.tls = true, .user = "user:secret@", .proxy_options.authorization = "Basic dXMgZXI6cDp3"};
    way_open(&bad);
    rg_test_get(&bad.c, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(&bad.c);
    RG_CHECK_STATUS(&done, CONNECT);
    RG_CHECK_CONTAINS(done.detail, "with 407 Proxy Authentication Required");
    RG_CHECK_CONTAINS(done.detail, "the proxy http://127.0.0.1:");
    RG_CHECK(strstr(done.detail, "secret") == NULL);
    rg_lease_release(done.lease);
    /* Asking again would not help. */
    RG_CHECK_EQ(rg_test_proxy_connections(bad.proxy), 1);
    way_close(&bad);
}

static void test_proxies_that_fail(void)
{
    static const struct {
        const char *answer, *text;
    } rows[] = {
        {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not answer in HTTP"},
        {"HTTP/1.1 502 Bad Gateway\r\n\r\n", "with 502 Bad Gateway"},
        {"HTTP/1.1 403 Forbidden\r\n\r\n", "with 403 Forbidden"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct way way = {.proxy_options.answer = rows[i].answer, .c.options.attempts_max = 2};
        way_open(&way);
        check_fails(&way.c, RG_STATUS_CONNECT, rows[i].text);
        way_close(&way);
    }
    struct way stalled = {.proxy_options.stall = true,
                          .c.options.attempts_max = 1,
                          .c.options.connect_timeout_ns = 300 * RG_NS_PER_MS};
    way_open(&stalled);
    check_fails(&stalled.c, RG_STATUS_CONNECT, "through the proxy http://127.0.0.1:");
    way_close(&stalled);
}

static void test_a_proxy_that_is_not_there(void)
{
    struct way way = {.c.options.attempts_max = 1};
    way_open(&way);
    rg_test_client_close(&way.c);
    rg_test_proxy_stop(way.proxy);
    struct rg_test_client c = {.no_server = true};
    c.options.endpoint = "https://storage.example";
    c.options.proxy = way.proxy_url;
    c.options.attempts_max = 1;
    rg_test_client_open(&c);
    check_fails(&c, RG_STATUS_CONNECT, way.proxy_url);
    rg_test_client_close(&c);
}

static void test_a_proxy_with_tls(void)
{
    struct way way = {.c.tls = true,
                      .proxy_tls = true,
                      .user = "a:b@",
                      .proxy_options.authorization = "Basic YTpi"};
    way.c.no_server = false;
    way_open(&way);
    /* The authorities of server and proxy are two, and the client trusts only the server's. */
    check_fails(&way.c, RG_STATUS_TLS_CERTIFICATE, "the proxy https://127.0.0.1:");
    RG_CHECK_EQ(rg_scripted_server_connections(way.c.server), 0);
    /* A client that trusts both. */
    char both[20000], path[RG_TEST_PATH_SIZE];
    snprintf(both, sizeof(both), "%s%s", way.c.ca.cert_pem, way.proxy_ca.cert_pem);
    rg_test_file_make(both, path);
    rg_client_close(way.c.client);
    way.c.options.ca_file = path;
    RG_CHECK_EQ(rg_client_open(&way.c.client, way.c.runtime, &way.c.options), 0);
    check_gets(&way.c, 40);
    /* A body of many records in each direction of the cut. */
    struct rg_put put = {.bucket = "bucket", .object = "o", .data = both, .size = sizeof(both)};
    RG_CHECK_EQ(rg_submit_put(way.c.client, way.c.cq, &put), 0);
    struct rg_completion done = rg_test_take(&way.c);
    RG_CHECK(done.status != RG_STATUS_CONNECTION_LOST);
    rg_lease_release(done.lease);
    unlink(path);
    way_close(&way);
}

static void check_refused(const struct rg_client_options *options, int want, const char *text)
{
    struct rg_runtime_options runtime_options;
    rg_runtime_options_init(&runtime_options);
    runtime_options.threads = 1;
    runtime_options.numa_policy = RG_NUMA_NONE;
    struct rg_runtime *runtime;
    int rc = rg_runtime_open(&runtime, &runtime_options);
    if (rc == -EPERM) {
        rg_test_skip("io_uring is not to be had here");
    }
    RG_CHECK_EQ(rc, 0);
    struct rg_client *client;
    char error[256];
    RG_CHECK_EQ(rg_client_open_explained(&client, runtime, options, error, sizeof(error)), want);
    RG_CHECK_CONTAINS(error, text);
    RG_CHECK(strstr(error, "secret") == NULL);
    rg_runtime_close(runtime);
}

static void test_settings_that_are_refused(void)
{
    struct rg_client_options options;
    rg_client_options_init(&options);
    options.endpoint = "http://127.0.0.1:1";
    options.proxy = "socks5://user:secret@h:1";
    check_refused(&options, -EINVAL, "proxy is not valid");
    options.proxy = "https://user:secret@h:1";
    check_refused(&options, -EINVAL, "the proxy https://h:1 needs an https endpoint");
    options.proxy = NULL;
    options.local_address = "eth0";
    check_refused(&options, -EINVAL, "local_address is not valid");
    options.local_address = "192.0.2.77";
    check_refused(&options, -EADDRNOTAVAIL, "cannot connect from 192.0.2.77: ");
    options.local_address = NULL;
    options.local_device = "a-name-that-is-too-long";
    check_refused(&options, -EINVAL, "local_device is not valid");
    options.local_device = "nosuchdev0";
    check_refused(&options, -ENODEV, "cannot connect from nosuchdev0: ");
    options.local_device = NULL;
    options.endpoint = "https://127.0.0.1:1";
    options.client_cert_file = "/dev/null";
    check_refused(&options, -EINVAL, "needs both a certificate and a key");
    options.client_key_file = "/dev/null";
    check_refused(&options, -EINVAL, "no certificate in PEM");
    setenv("HTTPS_PROXY", "x://secret", 1);
    options.endpoint = "https://storage.example";
    check_refused(&options, -EINVAL, "HTTPS_PROXY is not valid");
    unsetenv("HTTPS_PROXY");
}

static void network_check(const char *endpoint_text, const char *proxy_option, const char *want)
{
    struct rg_client_options options;
    rg_client_options_init(&options);
    options.proxy = proxy_option;
    struct rg_endpoint endpoint;
    char error[256];
    RG_CHECK_EQ(rg_endpoint_resolve(&endpoint, endpoint_text, NULL, error, sizeof(error)), 0);
    struct rg_network network = {0};
    endpoint.is_tls = false;
    if (strncmp(endpoint.text, "https", 5) == 0) {
        /* No trust store is needed to decide. */
        endpoint.is_tls = true;
    }
    int rc = rg_network_open(&network, &options, &endpoint, error, sizeof(error));
    RG_CHECK(rc == 0 || rc == -ENOENT);
    RG_CHECK_STR(network.proxy.host, want);
    rg_network_close(&network);
}

static void test_which_proxy_is_taken(void)
{
    setenv("https_proxy", "http://env:1", 1);
    unsetenv("STORAGE_EMULATOR_HOST");
    network_check("https://storage.example", NULL, "env");
    network_check("https://storage.example", "http://own:2", "own");
    network_check("https://storage.example", "", "");
    network_check("http://storage.example", NULL, "");
    network_check("http://storage.example", "http://own:2", "own");
    network_check("https://localhost:4443", NULL, "");
    network_check("https://127.0.0.1:4443", NULL, "");
    network_check("https://localhost:4443", "http://own:2", "own");
    network_check(NULL, NULL, "env");
    setenv("STORAGE_EMULATOR_HOST", "https://emulator.example", 1);
    network_check(NULL, NULL, "");
    unsetenv("STORAGE_EMULATOR_HOST");
    setenv("no_proxy", ".example", 1);
    network_check("https://storage.example", NULL, "");
    unsetenv("no_proxy");
    unsetenv("https_proxy");
}

static void test_client_certificates(void)
{
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .tls = true, .ask_client = true};
    c.options.attempts_max = 1;
    rg_test_client_open(&c);
    rg_test_get(&c, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK(done.status == RG_STATUS_CONNECTION_LOST || done.status == RG_STATUS_TLS_PROTOCOL);
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_scripted_server_requests(c.server), 0);
    struct rg_test_certificate_spec spec = {
        .common_name = "client", .issuer = &c.ca, .for_clients = true};
    struct rg_test_certificate certificate;
    rg_test_certificate_make(&certificate, &spec);
    char cert_path[RG_TEST_PATH_SIZE], key_path[RG_TEST_PATH_SIZE];
    rg_test_file_make(certificate.cert_pem, cert_path);
    rg_test_file_make(certificate.key_pem, key_path);
    rg_client_close(c.client);
    c.options.client_cert_file = cert_path;
    c.options.client_key_file = key_path;
    RG_CHECK_EQ(rg_client_open(&c.client, c.runtime, &c.options), 0);
    check_gets(&c, 8);
    unlink(cert_path);
    unlink(key_path);
    rg_test_certificate_free(&certificate);
    rg_test_client_close(&c);
}

/* As c_rehash leaves it: each certificate in a file that is named by a hash of its subject. */
static void test_directories_of_trusted_certificates(void)
{
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1, .tls = true};
    rg_test_client_open(&c);
    rg_client_close(c.client);
    char directory[] = "/tmp/ringest-certs-XXXXXX", path[64], list[128];
    RG_CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof(path), "%s/%08x.0", directory, X509_subject_name_hash(c.ca.x509));
    RG_CHECK_EQ(symlink(c.ca_path, path), 0);
    snprintf(list, sizeof(list), "/nonexistent:%s", directory);
    setenv("SSL_CERT_DIR", list, 1);
    c.options.ca_file = NULL;
    RG_CHECK_EQ(rg_client_open(&c.client, c.runtime, &c.options), 0);
    check_gets(&c, 4);
    unsetenv("SSL_CERT_DIR");
    unlink(path);
    rmdir(directory);
    rg_test_client_close(&c);
}

static void test_local_addresses(void)
{
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    c.options.local_address = "127.0.0.9";
    rg_test_client_open(&c);
    char proxy[128];
    RG_CHECK_EQ(rg_proxy_describe(c.client, proxy, sizeof(proxy)), 4);
    RG_CHECK_STR(proxy, "none");
    check_gets(&c, 8);
    struct sockaddr_in peer;
    rg_scripted_server_peer(c.server, 0, &peer);
    RG_CHECK_EQ(ntohl(peer.sin_addr.s_addr), 0x7f000009);
    rg_test_client_close(&c);
    struct rg_test_client other = {.scripts = scripts, .script_count = 1};
    other.options.local_address = "::1";
    other.options.attempts_max = 1;
    rg_test_client_open(&other);
    check_fails(&other, RG_STATUS_CONNECT, "no address of the local address's family");
    rg_test_client_close(&other);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_tunnels_carry_https_and_http),
        RG_TEST(test_credentials_for_the_proxy),
        RG_TEST(test_proxies_that_fail),
        RG_TEST(test_a_proxy_that_is_not_there),
        RG_TEST(test_a_proxy_with_tls),
        RG_TEST(test_settings_that_are_refused),
        RG_TEST(test_which_proxy_is_taken),
        RG_TEST(test_client_certificates),
        RG_TEST(test_directories_of_trusted_certificates),
        RG_TEST(test_local_addresses),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
