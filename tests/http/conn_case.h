/* One connection of a pool to a scripted server. */
#ifndef RG_TESTS_HTTP_CONN_CASE_H
#define RG_TESTS_HTTP_CONN_CASE_H

#include "tests/support/exchange.h"
#include "tests/support/test.h"

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

struct setting {
    struct rg_test_pool pool;
    struct rg_scripted_server *server;
};

static inline void setting_open(struct setting *setting, const struct rg_step *const *scripts,
                                uint32_t count)
{
    struct rg_script_options options = {.scripts = scripts, .script_count = count};
    setting->server = rg_scripted_server_start(&options);
    setting->pool.options.connections_max = 1;
    rg_test_pool_open(&setting->pool, rg_scripted_server_port(setting->server));
}

static inline void setting_close(struct setting *setting)
{
    rg_test_pool_close(&setting->pool);
    rg_scripted_server_stop(setting->server);
}

/* An exchange must give this body. */
static inline void check_body(struct setting *setting, const char *body)
{
    struct rg_test_exchange exchange = {0};
    rg_test_exchange_run(&setting->pool, &exchange);
    if (exchange.status != RG_STATUS_OK) {
        rg_test_fail(__FILE__, __LINE__, "the status is %s: %s", rg_status_name(exchange.status),
                     exchange.text);
    }
    RG_CHECK_MEM(exchange.body, exchange.body_size, body, strlen(body));
    RG_CHECK_EQ(exchange.told_size, strlen(body));
    rg_test_exchange_fini(&exchange);
}

#endif
