/* Answers of every form, as a connection of the client takes them: those that RFC 9112 allows, and
 * those that it does not. */
#include "tests/http/conn_case.h"

static void test_forms_of_a_body(void)
{
    static const struct {
        const char *answer;
        bool keeps; /* the connection lives on */
    } rows[] = {
        {ANSWER, true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;a=b\r\nk\r\n0\r\nx: "
         "y\r\n\r\n",
         true},
        {"HTTP/1.1 200 OK\r\n\r\nok", false},
        {"HTTP/1.0 200 OK\r\n\r\nok", false},
        {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", false},
        {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", false},
        {"HTTP/1.1 100 Continue\r\n\r\n" ANSWER, true},
        {"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" ANSWER,
         true},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        for (uint32_t piece = 0; piece < 3; piece++) {
            const struct rg_step keeping[] = {
                RG_READ,
                {.kind = RG_STEP_SEND, .text = rows[i].answer, .piece = piece, .ms = piece % 2},
                RG_AGAIN};
            const struct rg_step ending[] = {
                RG_READ,
                {.kind = RG_STEP_SEND, .text = rows[i].answer, .piece = piece, .ms = piece % 2},
                RG_END};
            const struct rg_step *const scripts[] = {rows[i].keeps ? keeping : ending};
            struct setting setting = {0};
            setting_open(&setting, scripts, 1);
            check_body(&setting, "ok");
            check_body(&setting, "ok");
            RG_CHECK_EQ(rg_scripted_server_connections(setting.server), rows[i].keeps ? 1 : 2);
            setting_close(&setting);
        }
    }
}

static void test_answers_without_a_body(void)
{
    static const struct {
        const char *answer;
        bool head_request;
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", true},
        {"HTTP/1.1 204 No Content\r\n\r\n", false},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n", false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        const struct rg_step script[] = {RG_READ, RG_SEND(rows[i].answer), RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct setting setting = {0};
        setting_open(&setting, scripts, 1);
        for (unsigned n = 0; n < 2; n++) {
            struct rg_test_exchange exchange = {.head_request = rows[i].head_request};
            rg_test_exchange_run(&setting.pool, &exchange);
            RG_CHECK_EQ(exchange.status, RG_STATUS_OK);
            RG_CHECK_EQ(exchange.body_size, 0);
        }
        RG_CHECK_EQ(rg_scripted_server_connections(setting.server), 1);
        setting_close(&setting);
    }
}

/* Bytes that belong to no answer: what came before them counts, and the connection is not used
 * again. Without the pause they may be taken for the beginning of the next answer, as they would be
 * by any client. */
static void test_bytes_behind_an_answer(void)
{
    const struct rg_step together[] = {RG_READ, RG_SEND(ANSWER "extra"), RG_HOLD};
    const struct rg_step later[] = {RG_READ, RG_SEND(ANSWER), RG_SLEEP(30), RG_SEND("extra"),
                                    RG_HOLD};
    const struct rg_step chunked[] = {
        RG_READ,
        RG_SEND("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nextra"),
        RG_HOLD};
    const struct rg_step good[] = {RG_READ, RG_SEND(ANSWER), RG_AGAIN};
    const struct rg_step *const rows[] = {together, later, chunked};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        const struct rg_step *const scripts[] = {rows[i], good};
        struct setting setting = {0};
        setting_open(&setting, scripts, 2);
        check_body(&setting, "ok");
        RG_AWAIT(rg_scripted_server_ended(setting.server) == 1);
        check_body(&setting, "ok");
        RG_CHECK_EQ(rg_scripted_server_connections(setting.server), 2);
        setting_close(&setting);
    }
}

static void check_failure(const struct rg_step *script, enum rg_status want, const char *text)
{
    const struct rg_step *const scripts[] = {script};
    struct setting setting = {0};
    setting_open(&setting, scripts, 1);
    struct rg_test_exchange exchange = {0};
    rg_test_exchange_run(&setting.pool, &exchange);
    if (exchange.status != want) {
        rg_test_fail(__FILE__, __LINE__, "the status is %s, wanted %s: %s",
                     rg_status_name(exchange.status), rg_status_name(want), exchange.text);
    }
    if (text != NULL) {
        RG_CHECK_STR(exchange.text, text);
    }
    rg_test_exchange_fini(&exchange);
    setting_close(&setting);
}

static void test_answers_that_are_not_http(void)
{
    static const char *const answers[] = {
        "SSH-2.0-OpenSSH_9.2\r\n",
        "<html></html>\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokXX",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(answers); i++) {
        const struct rg_step script[] = {RG_READ, RG_SEND(answers[i]), RG_HOLD};
        check_failure(script, RG_STATUS_HTTP_PROTOCOL, NULL);
    }
    const struct rg_step alert[] = {RG_READ, RG_SEND("\x15\x03\x03\x02\x02\x02\x28"), RG_HOLD};
    check_failure(alert, RG_STATUS_TLS_PROTOCOL, "the server speaks TLS on this port");
}

/* A head with one field of this size, and what comes behind it. */
static char *head_make(const char *begin, size_t size, const char *end)
{
    size_t begin_size = strlen(begin);
    char *head = malloc(begin_size + size + strlen(end) + 1);
    RG_ASSERT(head != NULL);
    memcpy(head, begin, begin_size);
    memset(head + begin_size, 'a', size);
    strcpy(head + begin_size + size, end);
    return head;
}

static void test_heads_that_are_too_large(void)
{
    char *head = head_make("HTTP/1.1 200 OK\r\nx: ", RG_MIB(1), "\r\n\r\n");
    const struct rg_step megabyte[] = {RG_READ, RG_SEND(head), RG_HOLD};
    check_failure(megabyte, RG_STATUS_HTTP_PROTOCOL, NULL);
    free(head);
    const struct rg_step one_field[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nx: "), {.kind = RG_STEP_FLOOD, .text = "aaaaaaaaaa"}};
    check_failure(one_field, RG_STATUS_HTTP_PROTOCOL, NULL);
    const struct rg_step fields[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\n"), {.kind = RG_STEP_FLOOD, .text = "x: y\r\n"}};
    check_failure(fields, RG_STATUS_HTTP_PROTOCOL, NULL);
    const struct rg_step blank[] = {RG_READ, {.kind = RG_STEP_FLOOD, .text = "\r\n"}};
    check_failure(blank, RG_STATUS_HTTP_PROTOCOL, NULL);
}

/* A little at a time; the body lies behind it. */
static void test_head_as_large_as_it_may_be(void)
{
    char *head = head_make("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx: ", 60000, "\r\n\r\nok");
    const struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_SEND, .text = head, .piece = 7000, .ms = 1}, RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct setting setting = {0};
    setting_open(&setting, scripts, 1);
    check_body(&setting, "ok");
    check_body(&setting, "ok");
    setting_close(&setting);
    free(head);
}

static void test_interim_answers_without_end(void)
{
    const struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_FLOOD, .text = "HTTP/1.1 100 Continue\r\nx: y\r\n\r\n"}};
    check_failure(script, RG_STATUS_HTTP_PROTOCOL, "too many interim answers");
}

static void test_length_that_is_wrong(void)
{
    const struct rg_step longer[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok"), RG_CUT};
    check_failure(longer, RG_STATUS_TRUNCATED, NULL);
    const struct rg_step waiting[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok"), RG_HOLD};
    const struct rg_step *const scripts[] = {waiting};
    struct setting setting = {.pool.options.stall_timeout_ns = 500 * RG_NS_PER_MS};
    setting_open(&setting, scripts, 1);
    struct rg_test_exchange exchange = {0};
    rg_test_exchange_run(&setting.pool, &exchange);
    RG_CHECK_EQ(exchange.status, RG_STATUS_STALLED);
    RG_CHECK_EQ(exchange.os_error, ETIMEDOUT);
    RG_CHECK_MEM(exchange.body, exchange.body_size, "ok", 2);
    rg_test_exchange_fini(&exchange);
    setting_close(&setting);
}

static void test_discarded_bodies(void)
{
    const struct rg_step script[] = {RG_READ,
                                     RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
                                     {.kind = RG_STEP_SEND_BYTES, .size = 100000},
                                     RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct setting setting = {0};
    setting_open(&setting, scripts, 1);
    for (unsigned i = 0; i < 2; i++) {
        struct rg_test_exchange exchange = {.action = RG_BODY_DISCARD};
        rg_test_exchange_run(&setting.pool, &exchange);
        RG_CHECK_EQ(exchange.status, RG_STATUS_OK);
        RG_CHECK_EQ(exchange.told_size, 0);
        RG_CHECK_EQ(exchange.body_size, 100000);
    }
    RG_CHECK_EQ(rg_scripted_server_connections(setting.server), 1);
    /* More than is worth reading only to keep the connection. */
    struct rg_test_exchange large = {.action = RG_BODY_DISCARD, .body_max = 1000};
    rg_test_exchange_run(&setting.pool, &large);
    RG_CHECK_EQ(large.status, RG_STATUS_TOO_LARGE);
    setting_close(&setting);
    const struct rg_step endless[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\n\r\n"), {.kind = RG_STEP_FLOOD, .text = "abcdefgh"}};
    const struct rg_step *const others[] = {endless};
    struct setting other = {0};
    setting_open(&other, others, 1);
    struct rg_test_exchange flood = {.action = RG_BODY_DISCARD, .body_max = 100000};
    rg_test_exchange_run(&other.pool, &flood);
    RG_CHECK_EQ(flood.status, RG_STATUS_TOO_LARGE);
    setting_close(&other);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_forms_of_a_body),
        RG_TEST(test_answers_without_a_body),
        RG_TEST(test_bytes_behind_an_answer),
        RG_TEST(test_answers_that_are_not_http),
        RG_TEST(test_heads_that_are_too_large),
        RG_TEST(test_head_as_large_as_it_may_be),
        RG_TEST(test_interim_answers_without_end),
        RG_TEST(test_length_that_is_wrong),
        RG_TEST(test_discarded_bodies),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
