/* One bad server of several that a name leads to: whatever is wrong with it, what can be done by
 * the others is done, and what cannot is told with its cause, at once. The servers are at addresses
 * of the loopback network, all on one port. */
#include "http/pool.h"
#include "tests/support/exchange.h"
#include "tests/support/hosts.h"
#include "tests/support/proxy.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define SERVERS_MAX 4
#define EXCHANGES 50

static const char *const hosts[SERVERS_MAX] = {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"};

static struct rg_test_pki pki;
static struct rg_test_certificate expired, foreign;
static struct rg_tls_context *context;

static const struct rg_step good[] = {RG_READ, RG_SEND(ANSWER), RG_AGAIN};
static const struct rg_step no_tls[] = {RG_CLEAR("HTTP/1.1 400 Bad Request\r\n\r\n"), RG_CUT};
static const struct rg_step internal_error[] = {RG_ALERT(80), RG_CUT};
static const struct rg_step handshake_failure[] = {RG_ALERT(40), RG_CUT};
static const struct rg_step reset[] = {RG_RESET};
static const struct rg_step cut[] = {RG_CUT};
static const struct rg_step deaf[] = {RG_DEAF};
static const struct rg_step reset_later[] = {RG_READ, RG_RESET};

/* What can be wrong, and what is told where nothing else is there. */
static const struct fault {
    const char *name;
    const struct rg_step *script; /* NULL: nobody listens */
    const struct rg_test_certificate *certificate;
    enum rg_status status;
    const char *text;
    bool slow; /* told when connecting has taken too long */
} faults[] = {
    {"internal error", internal_error, &pki.leaf, RG_STATUS_CONNECT, "internal error", false},
    {"handshake failure", handshake_failure, &pki.leaf, RG_STATUS_TLS_PROTOCOL, "handshake failure",
     false},
    {"no TLS", no_tls, &pki.leaf, RG_STATUS_TLS_PROTOCOL, "does not speak TLS", false},
    {"an expired certificate", good, &expired, RG_STATUS_TLS_CERTIFICATE, "expired", false},
    {"a certificate for another", good, &foreign, RG_STATUS_TLS_CERTIFICATE, "is for", false},
    {"RST", reset, &pki.leaf, RG_STATUS_CONNECTION_LOST, "", false},
    {"FIN", cut, &pki.leaf, RG_STATUS_CONNECTION_LOST, "closed the connection", false},
    {"nobody there", NULL, NULL, RG_STATUS_CONNECT, "", false},
    {"no answer", deaf, &pki.leaf, RG_STATUS_CONNECT, "", true},
};

struct setting {
    struct rg_test_pool pool;
    struct rg_scripted_server *servers[SERVERS_MAX];
    const struct rg_step *scripts[SERVERS_MAX][2];
    uint32_t count;
};

/* Port 0: one that is free for all of them. */
static uint16_t server_add(struct setting *setting, uint16_t port, const struct fault *fault,
                           const struct rg_step *first)
{
    uint32_t index = setting->count++;
    rg_test_hosts.hosts[rg_test_hosts.count++] = hosts[index];
    if (fault != NULL && fault->script == NULL) {
        return port;
    }
    const struct rg_step *script = fault != NULL ? fault->script : good;
    setting->scripts[index][0] = first != NULL ? first : script;
    setting->scripts[index][1] = script;
    setting->servers[index] = rg_scripted_server_start(&(struct rg_script_options){
        .scripts = setting->scripts[index],
        .script_count = 2,
        .certificate = fault != NULL ? fault->certificate : &pki.leaf,
        .address = hosts[index],
        .port = port != 0 ? port : rg_test_hosts_port(hosts, SERVERS_MAX),
    });
    return rg_scripted_server_port(setting->servers[index]);
}

static void pool_open(struct setting *setting, uint16_t port)
{
    setting->pool.options.host = "localhost";
    setting->pool.options.tls = context;
    rg_test_hosts_use(&setting->pool.resolver_options);
    rg_test_pool_open(&setting->pool, port);
}

static void setting_close(struct setting *setting)
{
    rg_test_pool_close(&setting->pool);
    for (uint32_t i = 0; i < SERVERS_MAX; i++) {
        if (setting->servers[i] != NULL) {
            rg_scripted_server_stop(setting->servers[i]);
        }
    }
    memset(&rg_test_hosts, 0, sizeof(rg_test_hosts));
}

/* A reset may come as early as connecting is over. */
static bool is_alike(enum rg_status got, enum rg_status want)
{
    return got == want || (want == RG_STATUS_CONNECTION_LOST && got == RG_STATUS_CONNECT);
}

static void run_many(struct setting *setting, enum rg_status want, const char *text)
{
    struct rg_test_exchange exchanges[EXCHANGES] = {0};
    for (unsigned i = 0; i < EXCHANGES; i++) {
        rg_test_exchange_submit(&setting->pool, &exchanges[i]);
    }
    for (unsigned i = 0; i < EXCHANGES; i++) {
        rg_test_exchange_wait(&setting->pool);
    }
    for (unsigned i = 0; i < EXCHANGES; i++) {
        if (!is_alike(exchanges[i].status, want) || strstr(exchanges[i].text, text) == NULL) {
            rg_test_fail(__FILE__, __LINE__, "%u is %s (errno %d): %s; wanted %s: %s", i,
                         rg_status_name(exchanges[i].status), exchanges[i].os_error,
                         exchanges[i].text, rg_status_name(want), text);
        }
        RG_CHECK_EQ(exchanges[i].done_count, 1);
        rg_test_exchange_fini(&exchanges[i]);
    }
}

static void test_one_bad_server_of_several(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(faults); i++) {
        for (uint32_t bad = 0; bad < 3; bad++) {
            for (uint32_t connections = 1; connections <= 16; connections += 15) {
                struct setting setting = {.pool.options.connections_max = connections};
                uint16_t port = 0;
                /* The first to be started finds the port. */
                if (bad == 0 && faults[i].script == NULL) {
                    continue;
                }
                for (uint32_t n = 0; n < 3; n++) {
                    port = server_add(&setting, port, n == bad ? &faults[i] : NULL, NULL);
                }
                pool_open(&setting, port);
                run_many(&setting, RG_STATUS_OK, "");
                setting_close(&setting);
            }
        }
    }
}

/* Behind one address there may be several servers: the first connection meets a good one. */
static void test_bad_servers_behind_one_address(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(faults); i++) {
        if (faults[i].script == NULL || faults[i].script == good) {
            continue;
        }
        struct setting setting = {.pool.options.connections_max = 8};
        pool_open(&setting, server_add(&setting, 0, &faults[i], good));
        struct rg_test_exchange first = {0};
        rg_test_exchange_run(&setting.pool, &first);
        RG_CHECK_EQ(first.status, RG_STATUS_OK);
        rg_test_exchange_fini(&first);
        run_many(&setting, RG_STATUS_OK, "");
        setting_close(&setting);
    }
}

/* One met a bad server while there was a connection, which is lost later. Of those that are begun
 * then one meets it again, first of all: the others are waited for. */
static void test_bad_servers_behind_one_address_when_all_were_lost(void)
{
    static const struct rg_step twice[] = {
        RG_READ, RG_SEND(ANSWER), RG_READ,
        RG_SEND("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"), RG_END};
    static const struct rg_step *const scripts[] = {twice, no_tls, no_tls, good};
    struct setting setting = {.pool.options.connections_max = 8};
    rg_test_hosts.hosts[rg_test_hosts.count++] = hosts[0];
    setting.servers[0] = rg_scripted_server_start(&(struct rg_script_options){
        .scripts = scripts, .script_count = RG_ARRAY_LEN(scripts), .certificate = &pki.leaf});
    pool_open(&setting, rg_scripted_server_port(setting.servers[0]));
    for (unsigned i = 0; i < 2; i++) {
        struct rg_test_exchange exchange = {0};
        rg_test_exchange_run(&setting.pool, &exchange);
        RG_CHECK_EQ(exchange.status, RG_STATUS_OK);
        rg_test_exchange_fini(&exchange);
        if (i == 0) {
            rg_test_pool_prewarm(&setting.pool, 2);
            RG_AWAIT(rg_metric_load(&setting.pool.loop->metrics.connections_failed) == 1);
        }
    }
    run_many(&setting, RG_STATUS_OK, "");
    RG_CHECK(rg_metric_load(&setting.pool.loop->metrics.connections_failed) == 2);
    setting_close(&setting);
}

/* And here the first one meets a server that never answers: another is tried beside it. */
static void test_a_server_that_never_answers_behind_one_address(void)
{
    struct setting setting = {.pool.options.connections_max = 4};
    pool_open(&setting, server_add(&setting, 0, NULL, deaf));
    struct rg_test_exchange exchange = {0};
    rg_test_exchange_run(&setting.pool, &exchange);
    RG_CHECK_EQ(exchange.status, RG_STATUS_OK);
    rg_test_exchange_fini(&exchange);
    RG_CHECK_EQ(rg_scripted_server_connections(setting.servers[0]), 2);
    RG_CHECK_EQ(rg_test_pool_connections(&setting.pool), 2);
    setting_close(&setting);
}

static void test_all_servers_bad_alike(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(faults); i++) {
        for (uint32_t count = 1; count <= 3; count += 2) {
            struct setting setting = {.pool.options.connections_max = 8};
            if (faults[i].slow) {
                setting.pool.options.connect_timeout_ns = 600 * RG_NS_PER_MS;
            }
            uint16_t port =
                server_add(&setting, 0, faults[i].script != NULL ? &faults[i] : NULL, NULL);
            for (uint32_t n = 1; n < count; n++) {
                server_add(&setting, port, &faults[i], NULL);
            }
            if (faults[i].script == NULL) {
                rg_scripted_server_stop(setting.servers[0]);
                setting.servers[0] = NULL;
            }
            pool_open(&setting, port);
            run_many(&setting, faults[i].status, faults[i].text);
            run_many(&setting, faults[i].status, count == 1 ? "" : ", one of 3 addresses");
            setting_close(&setting);
        }
    }
}

/* A failure that is final is told only where no server may be well at the next attempt. */
static void test_servers_bad_in_different_ways(void)
{
    for (uint32_t order = 0; order < 2; order++) {
        struct setting setting = {.pool.options.connections_max = 8};
        uint16_t port = server_add(&setting, 0, &faults[order == 0 ? 3 : 0], NULL);
        server_add(&setting, port, &faults[order == 0 ? 0 : 3], NULL);
        pool_open(&setting, port);
        run_many(&setting, RG_STATUS_CONNECT, "internal error");
        setting_close(&setting);
    }
}

/* Servers that come back are found again, the first time they are asked. */
static void test_a_server_that_recovers(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(faults); i++) {
        if (faults[i].script == NULL || faults[i].script == good || faults[i].slow) {
            continue;
        }
        struct setting setting = {.pool.options.connections_max = 1};
        pool_open(&setting, server_add(&setting, 0, NULL, faults[i].script));
        struct rg_test_exchange exchange = {0};
        rg_test_exchange_run(&setting.pool, &exchange);
        RG_CHECK(is_alike(exchange.status, faults[i].status));
        run_many(&setting, RG_STATUS_OK, "");
        setting_close(&setting);
    }
}

/* It shakes hands, and loses every connection at the first request: others are asked meanwhile. The
 * good one closes its connections too, behind the answer, so that each request needs a new one. */
static void test_a_server_that_loses_its_connections(void)
{
    static const struct rg_step once[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
        RG_END};
    static const struct fault loses = {.script = reset_later, .certificate = &pki.leaf},
                              closes = {.script = once, .certificate = &pki.leaf};
    struct setting setting = {.pool.options.connections_max = 4};
    uint16_t port = server_add(&setting, 0, &loses, NULL);
    server_add(&setting, port, &closes, NULL);
    pool_open(&setting, port);
    for (unsigned i = 0; i < 10; i++) {
        struct rg_test_exchange exchange = {0};
        rg_test_exchange_run(&setting.pool, &exchange);
        RG_CHECK_EQ(exchange.status, i == 0 ? RG_STATUS_CONNECTION_LOST : RG_STATUS_OK);
        rg_test_exchange_fini(&exchange);
    }
    RG_CHECK_EQ(rg_scripted_server_connections(setting.servers[0]), 1);
    setting_close(&setting);
}

/* Proxies behind one name, of which one is bad in a way that alone would be final. */
static void check_proxies(bool with_tls, const struct rg_test_proxy_options *bad,
                          uint32_t good_count, enum rg_status want, const char *text)
{
    struct setting setting = {.pool.options.connections_max = 8};
    uint16_t port = server_add(&setting, 0, NULL, NULL);
    struct rg_test_proxy *proxies[3];
    struct rg_proxy proxy;
    char url[64];
    uint16_t proxy_port = rg_test_hosts_port(hosts, 3);
    memset(&rg_test_hosts, 0, sizeof(rg_test_hosts));
    for (uint32_t i = 0; i < 3; i++) {
        struct rg_test_proxy_options options = {.certificate = with_tls ? &pki.leaf : NULL};
        options = i >= good_count ? *bad : options;
        options.address = hosts[i];
        options.port = proxy_port;
        proxies[i] = rg_test_proxy_start(&options);
        rg_test_hosts.hosts[i] = hosts[2 - i]; /* the bad ones first */
    }
    rg_test_hosts.count = 3;
    snprintf(url, sizeof(url), "%s://localhost:%u", with_tls ? "https" : "http", proxy_port);
    RG_CHECK_EQ(rg_proxy_parse(&proxy, url), 0);
    setting.pool.options.proxy = &proxy;
    setting.pool.options.proxy_tls = with_tls ? context : NULL;
    pool_open(&setting, port);
    run_many(&setting, want, text);
    setting_close(&setting);
    for (uint32_t i = 0; i < 3; i++) {
        rg_test_proxy_stop(proxies[i]);
    }
}

static void test_bad_proxies(void)
{
    static const struct {
        struct rg_test_proxy_options options;
        bool with_tls;
        enum rg_status status;
        const char *text;
    } rows[] = {
        {{.answer = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"},
         false,
         RG_STATUS_CONNECT,
         "with 407"},
        {{.answer = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"},
         false,
         RG_STATUS_CONNECT,
         "with 503"},
        {{.answer = "SSH-2.0\r\n\r\n"}, false, RG_STATUS_CONNECT, "does not answer in HTTP"},
        {{.certificate = &expired}, true, RG_STATUS_TLS_CERTIFICATE, "expired"},
        {{0}, true, RG_STATUS_CONNECT, ""},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        check_proxies(rows[i].with_tls, &rows[i].options, 1, RG_STATUS_OK, "");
        if (rows[i].text[0] != '\0') {
            check_proxies(rows[i].with_tls, &rows[i].options, 0, rows[i].status, rows[i].text);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_one_bad_server_of_several),
        RG_TEST(test_bad_servers_behind_one_address),
        RG_TEST(test_bad_servers_behind_one_address_when_all_were_lost),
        RG_TEST(test_a_server_that_never_answers_behind_one_address),
        RG_TEST(test_all_servers_bad_alike),
        RG_TEST(test_servers_bad_in_different_ways),
        RG_TEST(test_a_server_that_recovers),
        RG_TEST(test_a_server_that_loses_its_connections),
        RG_TEST(test_bad_proxies),
    };
    rg_test_pki_init(&pki);
    rg_test_certificate_make(&expired, &(struct rg_test_certificate_spec){
                                           .common_name = "x",
                                           .alt_names = "DNS:localhost",
                                           .issuer = &pki.ca,
                                           .not_before = -7200,
                                           .not_after = -3600,
                                       });
    rg_test_certificate_make(
        &foreign, &(struct rg_test_certificate_spec){
                      .common_name = "x", .alt_names = "DNS:other.example", .issuer = &pki.ca});
    context = rg_test_client_context(&pki, false);
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_tls_context_close(context);
    rg_test_certificate_free(&expired);
    rg_test_certificate_free(&foreign);
    rg_test_pki_fini(&pki);
    return ret;
}
