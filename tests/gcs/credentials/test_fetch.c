/* One request at a time: retries, time limits, sizes, servers that misbehave, cancellation. */
#include "gcs/credentials/fetch.h"
#include "tests/support/client.h"
#include "tests/support/proxy.h"
#include "tests/support/test.h"
#include "tests/support/token_server.h"

#include <pthread.h>
#include <unistd.h>

struct fetch_case {
    struct rg_token_server *server;
    struct rg_fetcher fetcher;
    struct rg_secret_arena arena;
    struct rg_fetch_response response;
    char error[256], url[512];
};

static void case_open(struct fetch_case *c, const struct rg_token_route *route)
{
    *c = (struct fetch_case){0};
    struct rg_token_server_options options = {.routes = route, .route_count = 1};
    c->server = rg_token_server_start(&options);
    RG_CHECK_EQ(rg_fetcher_init(&c->fetcher, rg_now_ns() + RG_TEST_PATIENCE_NS), 0);
    c->fetcher.backoff_ns = RG_NS_PER_MS;
    RG_CHECK_EQ(rg_secret_arena_init(&c->arena, RG_MIB(1)), 0);
}

static void case_close(struct fetch_case *c)
{
    rg_fetcher_fini(&c->fetcher);
    rg_secret_arena_fini(&c->arena);
    rg_token_server_stop(c->server);
}

static int get(struct fetch_case *c, const char *path, uint64_t timeout_ms)
{
    snprintf(c->url, sizeof(c->url), "%s%s", rg_token_server_url(c->server), path);
    struct rg_fetch_request request = {
        .method = "GET", .url = c->url, .timeout_ns = timeout_ms * RG_NS_PER_MS};
    return rg_fetch(&c->fetcher, &c->arena, &request, &c->response, c->error, sizeof(c->error));
}

static void test_an_answer_with_its_fields(void)
{
    const struct rg_token_route route = {.path = "/a/",
                                         .body = "hello",
                                         .fields = "Date: Thu, 01 Jan 1970 00:01:40 GMT\r\n"
                                                   "Metadata-Flavor: Google\r\n"};
    struct fetch_case c;
    case_open(&c, &route);
    RG_CHECK_EQ(get(&c, "/a/?q=%20&r=1", 0), 0);
    RG_CHECK_EQ(c.response.status, 200);
    RG_CHECK_STR(c.response.body, "hello");
    RG_CHECK_EQ(c.response.date_s, 100);
    RG_CHECK(c.response.is_metadata);
    const char *asked = rg_token_server_request(c.server, 0);
    RG_CHECK_CONTAINS(asked, "GET /a/?q=%20&r=1 HTTP/1.1\r\nHost: localhost:");
    RG_CHECK_CONTAINS(asked, "\r\nUser-Agent: ringest/");
    /* What one request has left behind is no matter for the next. */
    RG_CHECK_EQ(get(&c, "/absent", 0), 0);
    RG_CHECK_EQ(c.response.status, 404);
    RG_CHECK(!c.response.is_metadata && c.response.date_s == 0);
    case_close(&c);
}

static void test_a_server_that_is_unwell_is_asked_again(void)
{
    static const unsigned statuses[] = {408, 429, 500, 503};
    for (size_t i = 0; i < RG_ARRAY_LEN(statuses); i++) {
        const struct rg_token_route route = {
            .path = "/", .body = "#", .fail_first = 2, .fail_status = statuses[i]};
        struct fetch_case c;
        case_open(&c, &route);
        RG_CHECK_EQ(get(&c, "", 0), 0);
        RG_CHECK_EQ(c.response.status, 200);
        RG_CHECK_STR(c.response.body, "3");
        case_close(&c);
    }
}

static void test_oauth_errors_that_pass(void)
{
    const struct rg_token_route route = {
        .path = "/", .status = 400, .body = "{\"error\":\"temporarily_unavailable\"}"};
    struct fetch_case c;
    case_open(&c, &route);
    RG_CHECK_EQ(get(&c, "", 0), 0);
    RG_CHECK_EQ(c.response.status, 400);
    RG_CHECK_EQ(rg_token_server_count(c.server), RG_FETCH_TRIES);
    case_close(&c);
}

static void test_tries_end(void)
{
    const struct rg_token_route route = {.path = "/", .status = 503};
    struct fetch_case c;
    case_open(&c, &route);
    RG_CHECK_EQ(get(&c, "", 0), 0);
    RG_CHECK_EQ(c.response.status, 503);
    RG_CHECK_EQ(rg_token_server_count(c.server), RG_FETCH_TRIES);
    case_close(&c);
}

static void test_servers_that_send_garbage(void)
{
    static const char *const answers[] = {"nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\n",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"};
    for (size_t i = 0; i < RG_ARRAY_LEN(answers); i++) {
        const struct rg_token_route route = {.path = "/", .raw = answers[i]};
        struct fetch_case c;
        case_open(&c, &route);
        RG_CHECK_EQ(get(&c, "", 0), -EIO);
        RG_CHECK_CONTAINS(c.error, "localhost:");
        case_close(&c);
    }
}

static void test_a_body_that_is_too_large(void)
{
    char *body = malloc(RG_FETCH_BODY_SIZE_MAX + 2);
    RG_CHECK(body != NULL);
    memset(body, 'x', RG_FETCH_BODY_SIZE_MAX + 1);
    body[RG_FETCH_BODY_SIZE_MAX + 1] = '\0';
    for (unsigned over = 0; over < 2; over++) {
        const struct rg_token_route route = {.path = "/", .body = body + 1 - over};
        struct fetch_case c;
        case_open(&c, &route);
        RG_CHECK_EQ(get(&c, "", 0), over ? -EIO : 0);
        RG_CHECK_EQ(rg_token_server_count(c.server), 1);
        case_close(&c);
    }
    free(body);
}

static void test_a_server_that_never_answers(void)
{
    const struct rg_token_route route = {.path = "/", .hold = true};
    struct fetch_case c;
    case_open(&c, &route);
    RG_CHECK_EQ(get(&c, "", 500), -ETIMEDOUT);
    RG_AWAIT(rg_token_server_count(c.server) == RG_FETCH_TRIES);
    /* The fetcher's own deadline comes before that of the request. */
    c.fetcher.deadline_ns = rg_now_ns() + 500 * RG_NS_PER_MS;
    RG_CHECK_EQ(get(&c, "", 30000), -ETIMEDOUT);
    RG_AWAIT(rg_token_server_count(c.server) == RG_FETCH_TRIES + 1);
    case_close(&c);
}

static void *cancel_main(void *context)
{
    struct fetch_case *c = context;
    RG_AWAIT(rg_token_server_count(c->server) != 0);
    rg_fetcher_cancel(&c->fetcher);
    return NULL;
}

static void test_cancelled_from_another_thread(void)
{
    const struct rg_token_route route = {.path = "/", .hold = true};
    struct fetch_case c;
    case_open(&c, &route);
    pthread_t thread;
    RG_CHECK_EQ(pthread_create(&thread, NULL, cancel_main, &c), 0);
    RG_CHECK_EQ(get(&c, "", 15000), -ECANCELED);
    pthread_join(thread, NULL);
    /* Nothing is fetched any more. */
    RG_CHECK_EQ(get(&c, "", 0), -ECANCELED);
    RG_CHECK_EQ(rg_token_server_count(c.server), 1);
    case_close(&c);
}

static void test_a_server_that_is_not_there(void)
{
    const struct rg_token_route route = {.path = "/"};
    struct fetch_case c;
    case_open(&c, &route);
    struct rg_fetch_request request = {.method = "GET", .url = "http://nowhere.invalid/"};
    RG_CHECK_EQ(rg_fetch(&c.fetcher, &c.arena, &request, &c.response, c.error, sizeof(c.error)),
                -EIO);
    RG_CHECK_CONTAINS(c.error, "nowhere.invalid");
    case_close(&c);
}

static void test_urls_that_are_none(void)
{
    static const char *const urls[] = {"",
                                       "localhost/x",
                                       "ftp://x/",
                                       "https://",
                                       "http://u:p@x/",
                                       "http://x/a b",
                                       "http://x/#f\n"};
    const struct rg_token_route route = {.path = "/"};
    struct fetch_case c;
    case_open(&c, &route);
    for (size_t i = 0; i < RG_ARRAY_LEN(urls); i++) {
        struct rg_fetch_request request = {.method = "GET", .url = urls[i]};
        RG_CHECK_EQ(rg_fetch(&c.fetcher, &c.arena, &request, &c.response, c.error, sizeof(c.error)),
                    -EINVAL);
    }
    case_close(&c);
}

/* A token server over TLS that is known by a name which only the proxy can resolve. */
struct proxied_case {
    struct fetch_case fetch;
    struct rg_test_certificate ca, leaf;
    struct rg_test_proxy *proxy;
    char ca_path[RG_TEST_PATH_SIZE], url[64], proxy_url[96];
};

static void proxied_open(struct proxied_case *c, const struct rg_test_proxy_options *proxy)
{
    static const struct rg_token_route route = {.path = "/token", .body = "hello"};
    static const struct rg_test_certificate_spec authority = {.common_name = "ca",
                                                              .authority = true};
    struct rg_test_certificate_spec leaf = {.common_name = "x",
                                            .alt_names = "DNS:token.invalid,DNS:localhost"};
    *c = (struct proxied_case){0};
    case_open(&c->fetch, &route);
    rg_token_server_stop(c->fetch.server);
    rg_test_certificate_make(&c->ca, &authority);
    leaf.issuer = &c->ca;
    rg_test_certificate_make(&c->leaf, &leaf);
    rg_test_file_make(c->ca.cert_pem, c->ca_path);
    struct rg_token_server_options options = {
        .routes = &route, .route_count = 1, .certificate = &c->leaf};
    c->fetch.server = rg_token_server_start(&options);
    c->proxy = rg_test_proxy_start(proxy);
    snprintf(c->url, sizeof(c->url), "https://token.invalid:%u/token",
             rg_token_server_port(c->fetch.server));
    snprintf(c->proxy_url, sizeof(c->proxy_url), "http://user:secret@127.0.0.1:%u",
             rg_test_proxy_port(c->proxy));
    setenv("SSL_CERT_FILE", c->ca_path, 1);
    setenv("HTTPS_PROXY", c->proxy_url, 1);
    setenv("http_proxy", c->proxy_url, 1);
}

static void proxied_close(struct proxied_case *c)
{
    unsetenv("SSL_CERT_FILE");
    unsetenv("HTTPS_PROXY");
    unsetenv("http_proxy");
    unsetenv("NO_PROXY");
    case_close(&c->fetch);
    rg_test_proxy_stop(c->proxy);
    rg_test_certificate_free(&c->ca);
    rg_test_certificate_free(&c->leaf);
    unlink(c->ca_path);
}

static int proxied_get(struct proxied_case *c, const char *url)
{
    struct fetch_case *f = &c->fetch;
    struct rg_fetch_request request = {.method = "GET", .url = url, .tries = 1};
    return rg_fetch(&f->fetcher, &f->arena, &request, &f->response, f->error, sizeof(f->error));
}

static void test_the_proxy_of_the_environment(void)
{
    const struct rg_test_proxy_options options = {.authorization = "Basic dXNlcjpzZWNyZXQ="};
    struct proxied_case c;
    proxied_open(&c, &options);
    RG_CHECK_EQ(proxied_get(&c, c.url), 0);
    RG_CHECK_STR(c.fetch.response.body, "hello");
    RG_CHECK_EQ(rg_test_proxy_connections(c.proxy), 1);
    char head[512];
    rg_test_proxy_head(c.proxy, head, sizeof(head));
    RG_CHECK_CONTAINS(head, "CONNECT token.invalid:");
    /* It is for the proxy alone. */
    RG_CHECK(strstr(rg_token_server_request(c.fetch.server, 0), "dXNlcjpzZWNyZXQ=") == NULL);
    setenv("NO_PROXY", "token.invalid", 1);
    RG_CHECK_EQ(proxied_get(&c, c.url), -EIO);
    RG_CHECK_EQ(rg_test_proxy_connections(c.proxy), 1);
    proxied_close(&c);
}

static void test_this_machine_and_plain_urls_take_no_proxy(void)
{
    static const struct rg_token_route route = {.path = "/", .body = "metadata"};
    struct rg_token_server_options plain_options = {.routes = &route, .route_count = 1};
    struct proxied_case c;
    proxied_open(&c, &(struct rg_test_proxy_options){0});
    char url[64];
    snprintf(url, sizeof(url), "%s/token", rg_token_server_url(c.fetch.server));
    RG_CHECK_EQ(proxied_get(&c, url), 0);
    struct rg_token_server *plain = rg_token_server_start(&plain_options);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/", rg_token_server_port(plain));
    RG_CHECK_EQ(proxied_get(&c, url), 0);
    RG_CHECK_STR(c.fetch.response.body, "metadata");
    /* Only the proxy could say what this is. */
    RG_CHECK_EQ(proxied_get(&c, "http://metadata.invalid/"), -EIO);
    RG_CHECK_EQ(rg_test_proxy_connections(c.proxy), 0);
    rg_token_server_stop(plain);
    proxied_close(&c);
}

static void test_proxies_that_do_not_let_us_through(void)
{
    const struct rg_test_proxy_options options = {.authorization = "Basic other"};
    struct proxied_case c;
    proxied_open(&c, &options);
    RG_CHECK_EQ(proxied_get(&c, c.url), -EIO);
    RG_CHECK_CONTAINS(c.fetch.error, "407");
    RG_CHECK_CONTAINS(c.fetch.error, "the proxy http://127.0.0.1:");
    RG_CHECK(strstr(c.fetch.error, "secret") == NULL);
    setenv("HTTPS_PROXY", "x://user:secret@h", 1);
    RG_CHECK_EQ(proxied_get(&c, c.url), -EINVAL);
    RG_CHECK_CONTAINS(c.fetch.error, "HTTPS_PROXY is not valid");
    RG_CHECK(strstr(c.fetch.error, "secret") == NULL);
    proxied_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_answer_with_its_fields),
        RG_TEST(test_a_server_that_is_unwell_is_asked_again),
        RG_TEST(test_oauth_errors_that_pass),
        RG_TEST(test_tries_end),
        RG_TEST(test_servers_that_send_garbage),
        RG_TEST(test_a_body_that_is_too_large),
        RG_TEST(test_a_server_that_never_answers),
        RG_TEST(test_cancelled_from_another_thread),
        RG_TEST(test_a_server_that_is_not_there),
        RG_TEST(test_urls_that_are_none),
        RG_TEST(test_the_proxy_of_the_environment),
        RG_TEST(test_this_machine_and_plain_urls_take_no_proxy),
        RG_TEST(test_proxies_that_do_not_let_us_through),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
