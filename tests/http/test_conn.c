/* A connection of the client between answers, and at the end of them. */
#include "tests/http/conn_case.h"
#include "tests/support/loop.h"

/* It is not the answer to a request that was not sent yet. */
static void test_bytes_before_any_request(void)
{
    const struct rg_step eager[] = {RG_SEND("HTTP/1.1 408 Request Timeout\r\n\r\n"), RG_HOLD};
    const struct rg_step good[] = {RG_READ, RG_SEND(ANSWER), RG_AGAIN};
    const struct rg_step *const scripts[] = {eager, good};
    struct setting setting = {0};
    setting_open(&setting, scripts, 2);
    rg_test_pool_prewarm(&setting.pool, 1);
    RG_AWAIT(rg_scripted_server_ended(setting.server) == 1);
    check_body(&setting, "ok");
    setting_close(&setting);
}

static void test_stale_means_reused_and_without_an_answer(void)
{
    const struct rg_step once[] = {RG_READ, RG_SEND(ANSWER), RG_READ, RG_CUT};
    const struct rg_step fresh[] = {RG_READ, RG_CUT};
    const struct rg_step interim[] = {RG_READ, RG_SEND(ANSWER), RG_READ,
                                      RG_SEND("HTTP/1.1 100 Continue\r\n\r\n"), RG_CUT};
    const struct rg_step *const rows[] = {once, fresh, interim};
    static const bool want[] = {true, false, false};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct setting setting = {0};
        setting_open(&setting, &rows[i], 1);
        if (rows[i] != fresh) {
            check_body(&setting, "ok");
        }
        struct rg_test_exchange exchange = {0};
        rg_test_exchange_run(&setting.pool, &exchange);
        RG_CHECK_EQ(exchange.status, RG_STATUS_CONNECTION_LOST);
        RG_CHECK_EQ(exchange.stale, want[i]);
        RG_CHECK(exchange.request_sent);
        setting_close(&setting);
    }
}

static void check_before(struct setting *setting, unsigned status, unsigned good_before)
{
    struct rg_test_exchange exchange = {0};
    rg_test_exchange_run(&setting->pool, &exchange);
    RG_CHECK_EQ(exchange.http_status, status);
    RG_CHECK_EQ(exchange.good_before, good_before);
    rg_test_exchange_fini(&exchange);
}

static void test_an_answer_knows_how_many_good_ones_came_before(void)
{
    const struct rg_step script[] = {
        RG_READ, RG_SEND(ANSWER),
        RG_READ, RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        RG_READ, RG_SEND("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
        RG_READ, RG_SEND("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
        RG_READ, RG_SEND(ANSWER),
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
        RG_END};
    const struct rg_step fresh[] = {RG_READ, RG_SEND(ANSWER), RG_HOLD};
    const struct rg_step *const scripts[] = {script, fresh};
    struct setting setting = {0};
    setting_open(&setting, scripts, 2);
    check_before(&setting, 200, 0);
    check_before(&setting, 404, 1);
    check_before(&setting, 503, 2);
    check_before(&setting, 503, 0);
    check_before(&setting, 200, 0);
    check_before(&setting, 200, 1);
    check_before(&setting, 200, 0);
    setting_close(&setting);
}

/* The kernel may not touch memory of an exchange that is done: the address sanitizer would see it,
 * and so would the bytes that are looked at here. */
static void test_memory_is_the_owners_again_when_it_is_told(void)
{
    enum { SIZE = 4 << 20 };
    const struct rg_step script[] = {RG_READ,
                                     RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n"),
                                     {.kind = RG_STEP_SEND_BYTES, .size = SIZE, .piece = 5000},
                                     RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct setting setting = {0};
    setting_open(&setting, scripts, 1);
    for (unsigned i = 0; i < 30; i++) {
        uint8_t *memory = malloc(SIZE);
        struct rg_test_exchange exchange = {
            .action = RG_BODY_INTO, .into = memory, .into_size = SIZE};
        rg_test_exchange_submit(&setting.pool, &exchange);
        for (uint64_t turns = rg_test_random_below(30); turns > 0; turns--) {
            rg_test_loop_turn(setting.pool.loop);
        }
        rg_test_exchange_cancel(&exchange, RG_STATUS_CANCELLED);
        rg_test_exchange_cancel(&exchange, RG_STATUS_DEADLINE);
        rg_test_exchange_wait(&setting.pool);
        memset(memory, 0xee, SIZE);
        RG_CHECK(exchange.status == RG_STATUS_CANCELLED || exchange.status == RG_STATUS_OK);
        rg_test_loop_turn(setting.pool.loop);
        for (size_t n = 0; n < SIZE; n += 512) {
            RG_CHECK_EQ(memory[n], 0xee);
        }
        rg_test_exchange_fini(&exchange);
        free(memory);
    }
    setting_close(&setting);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_bytes_before_any_request),
        RG_TEST(test_stale_means_reused_and_without_an_answer),
        RG_TEST(test_an_answer_knows_how_many_good_ones_came_before),
        RG_TEST(test_memory_is_the_owners_again_when_it_is_told),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
