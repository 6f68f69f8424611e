/* Which addresses a pool connects to, and what its exchanges are told when that fails. The server
 * is at 127.0.0.1; nothing listens at the other addresses of the loopback network, or nobody
 * accepts. */
#include "http/pool.h"
#include "tests/support/clock.h"
#include "tests/support/exchange.h"
#include "tests/support/hosts.h"
#include "tests/support/loop.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

#include "runtime/clock.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

struct setting {
    struct rg_test_pool pool;
    struct rg_scripted_server *server;
    bool everywhere;
};

static void setting_open(struct setting *setting, const struct rg_step *script)
{
    static const struct rg_step good[] = {RG_READ, RG_SEND(ANSWER), RG_AGAIN};
    static const struct rg_step *scripts[1];
    scripts[0] = script != NULL ? script : good;
    struct rg_script_options options = {
        .scripts = scripts, .script_count = 1, .everywhere = setting->everywhere};
    setting->server = rg_scripted_server_start(&options);
    setting->pool.options.host = "bucket.example";
    rg_test_hosts_use(&setting->pool.resolver_options);
    rg_test_pool_open(&setting->pool, rg_scripted_server_port(setting->server));
}

static void setting_close(struct setting *setting)
{
    rg_test_pool_close(&setting->pool);
    rg_scripted_server_stop(setting->server);
    memset(&rg_test_hosts, 0, sizeof(rg_test_hosts));
}

static void check_ok(struct setting *setting)
{
    struct rg_test_exchange exchange = {0};
    rg_test_exchange_run(&setting->pool, &exchange);
    if (exchange.status != RG_STATUS_OK) {
        rg_test_fail(__FILE__, __LINE__, "the status is %s, errno %d: %s",
                     rg_status_name(exchange.status), exchange.os_error, exchange.text);
    }
    RG_CHECK_MEM(exchange.body, exchange.body_size, "ok", 2);
    rg_test_exchange_fini(&exchange);
}

static void test_closed_port_of_one_address(void)
{
    rg_test_hosts.hosts[0] = "127.0.0.2";
    rg_test_hosts.hosts[1] = "127.0.0.3";
    rg_test_hosts.hosts[2] = "127.0.0.1";
    rg_test_hosts.count = 3;
    struct setting setting = {0};
    setting_open(&setting, NULL);
    check_ok(&setting);
    check_ok(&setting);
    RG_CHECK_EQ(rg_scripted_server_connections(setting.server), 1);
    setting_close(&setting);
}

static void test_closed_port_of_every_address(void)
{
    rg_test_hosts.hosts[0] = "127.0.0.2";
    rg_test_hosts.hosts[1] = "127.0.0.3";
    rg_test_hosts.count = 2;
    struct setting setting = {0};
    setting_open(&setting, NULL);
    for (unsigned i = 0; i < 2; i++) {
        struct rg_test_exchange exchange = {0};
        rg_test_exchange_run(&setting.pool, &exchange);
        RG_CHECK_EQ(exchange.status, RG_STATUS_CONNECT);
        RG_CHECK_EQ(exchange.os_error, ECONNREFUSED);
        RG_CHECK(!exchange.request_sent);
        RG_CHECK_EQ(exchange.x.started_ns, 0);
    }
    RG_CHECK_EQ(rg_test_pool_connections(&setting.pool), 0);
    setting_close(&setting);
}

/* A listener at another address and the same port, whose queue is full. */
static int black_hole_open(const char *host, uint16_t port, int fillers[static 4])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    RG_CHECK_EQ(inet_pton(AF_INET, host, &address.sin_addr), 1);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK_EQ(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    RG_CHECK_EQ(listen(listener, 0), 0);
    for (unsigned i = 0; i < 4; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(fillers[i], (struct sockaddr *)&address, sizeof(address));
    }
    return listener;
}

static void test_address_that_never_answers(void)
{
    rg_test_hosts.hosts[0] = "127.0.0.2";
    rg_test_hosts.hosts[1] = "127.0.0.1";
    rg_test_hosts.count = 2;
    struct setting setting = {0};
    setting_open(&setting, NULL);
    int fillers[4];
    int hole = black_hole_open("127.0.0.2", rg_scripted_server_port(setting.server), fillers);
    uint64_t begin_ns = rg_now_ns(), until_ns = begin_ns + RG_TEST_PATIENCE_NS / 3;
    check_ok(&setting);
    uint64_t took_ns = rg_now_ns() - begin_ns;
    RG_CHECK(took_ns >= 200 * RG_NS_PER_MS);
    /* It is passed over from now on: sooner or later, no more is waited for it. */
    do {
        begin_ns = rg_now_ns();
        RG_CHECK(begin_ns < until_ns);
        check_ok(&setting);
    } while (rg_now_ns() - begin_ns >= 200 * RG_NS_PER_MS);
    setting_close(&setting);
    close(hole);
    for (unsigned i = 0; i < 4; i++) {
        close(fillers[i]);
    }
}

static void test_name_that_cannot_be_resolved(void)
{
    rg_test_hosts.error = EAI_NONAME;
    struct setting setting = {0};
    setting_open(&setting, NULL);
    struct rg_test_exchange exchange = {0}, other = {0};
    rg_test_exchange_submit(&setting.pool, &exchange);
    rg_test_exchange_submit(&setting.pool, &other);
    rg_test_exchange_wait(&setting.pool);
    rg_test_exchange_wait(&setting.pool);
    RG_CHECK_EQ(exchange.status, RG_STATUS_RESOLVE);
    RG_CHECK_EQ(other.status, RG_STATUS_RESOLVE);
    RG_CHECK_STR(exchange.text, rg_resolver_failure(EAI_NONAME, 0).text);
    /* Failures are kept for a moment; then the name is there. */
    rg_test_hosts.hosts[0] = "127.0.0.1";
    rg_test_hosts.count = 1;
    rg_test_hosts.error = 0;
    rg_test_clock_skip(setting.pool.loop, 1100 * RG_NS_PER_MS);
    check_ok(&setting);
    setting_close(&setting);
}

static void test_prewarming_stops_where_there_is_nothing(void)
{
    rg_test_hosts.error = EAI_NONAME;
    struct setting setting = {0};
    setting_open(&setting, NULL);
    rg_test_pool_prewarm(&setting.pool, 4);
    RG_AWAIT(rg_test_hosts.calls == 1);
    for (int i = 0; i < 10; i++) {
        rg_test_clock_skip(setting.pool.loop, RG_NS_PER_S);
    }
    RG_CHECK_EQ(rg_test_hosts.calls, 1);
    setting_close(&setting);
}

static void test_exchanges_wait_for_a_connection_in_order(void)
{
    enum { COUNT = 20 };
    rg_test_hosts.hosts[0] = "127.0.0.1";
    rg_test_hosts.count = 1;
    struct setting setting = {.pool.options.connections_max = 1};
    setting_open(&setting, NULL);
    struct rg_test_exchange exchanges[COUNT] = {0};
    for (unsigned i = 0; i < COUNT; i++) {
        rg_test_exchange_submit(&setting.pool, &exchanges[i]);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        rg_test_exchange_wait(&setting.pool);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        RG_CHECK_EQ(exchanges[i].status, RG_STATUS_OK);
        RG_CHECK_EQ(exchanges[i].done_count, 1);
        RG_CHECK(i == 0 || exchanges[i].done_ns >= exchanges[i - 1].done_ns);
        rg_test_exchange_fini(&exchanges[i]);
    }
    RG_CHECK_EQ(rg_scripted_server_connections(setting.server), 1);
    setting_close(&setting);
}

/* One waits for its answer and one for a connection; each is done once, with what the first said.
 */
struct avoiding {
    struct rg_pool *pool;
    struct rg_test_exchange exchange;
    const struct rg_conn *first;
    bool elsewhere;
};

/* The one that would be used next is to be avoided. */
static void avoid_first(void *context)
{
    struct avoiding *avoiding = context;
    RG_ASSERT(!rg_list_empty(&avoiding->pool->idle));
    avoiding->first = RG_CONTAINER_OF(avoiding->pool->idle.next, struct rg_conn, node);
    avoiding->exchange.x.avoid = avoiding->first;
}

static void see_where(void *context)
{
    struct avoiding *avoiding = context;
    const struct rg_conn *conn = avoiding->exchange.x.conn;
    avoiding->elsewhere = conn != NULL && conn->use.index != avoiding->first->use.index;
}

static void test_another_address_than_one_to_avoid(void)
{
    static const struct rg_step slow[] = {RG_READ, RG_SLEEP(500), RG_SEND(ANSWER), RG_AGAIN};
    rg_test_hosts.hosts[0] = "127.0.0.1";
    rg_test_hosts.hosts[1] = "127.0.0.2";
    rg_test_hosts.count = 2;
    struct setting setting = {.everywhere = true};
    setting_open(&setting, slow);
    rg_test_pool_prewarm(&setting.pool, 4);
    RG_AWAIT(rg_scripted_server_connections(setting.server) == 4);
    for (unsigned i = 0; i < 4; i++) {
        struct avoiding avoiding = {.pool = setting.pool.pool};
        rg_loop_call(setting.pool.loop, avoid_first, &avoiding);
        rg_test_exchange_submit(&setting.pool, &avoiding.exchange);
        for (unsigned n = 0; n < 50 && !avoiding.elsewhere; n++) {
            rg_loop_call(setting.pool.loop, see_where, &avoiding);
        }
        rg_test_exchange_wait(&setting.pool);
        RG_CHECK_EQ(avoiding.exchange.status, RG_STATUS_OK);
        RG_CHECK(avoiding.elsewhere);
        rg_test_exchange_fini(&avoiding.exchange);
    }
    setting_close(&setting);
}

struct idle {
    struct rg_pool *pool;
    unsigned count;
};

static void idle_look(void *context)
{
    struct idle *idle = context;
    idle->count = 0;
    struct rg_list *node = &idle->pool->idle;
    while ((node = node->next) != &idle->pool->idle) {
        idle->count++;
    }
}

static unsigned idle_count(struct rg_test_pool *pool)
{
    struct idle idle = {.pool = pool->pool};
    rg_loop_call(pool->loop, idle_look, &idle);
    return idle.count;
}

/* Who is ill refuses at once, and would be asked again before all who are well. Here the answers
 * take a while, so that the first has not come when the second is asked for; the refusal comes
 * last, so that its connection is the one that was used last. */
static void test_a_connection_that_was_refused_is_used_last(void)
{
    static const struct rg_step ill[] = {RG_READ, RG_SLEEP(400),
                                         RG_SEND("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
                                         RG_AGAIN};
    static const struct rg_step well[] = {RG_READ, RG_SLEEP(100), RG_SEND(ANSWER), RG_AGAIN};
    static const struct rg_step *scripts[] = {ill, well};
    struct rg_script_options options = {.scripts = scripts, .script_count = 2};
    struct setting setting = {.pool.options.connections_max = 2};
    setting.server = rg_scripted_server_start(&options);
    rg_test_pool_open(&setting.pool, rg_scripted_server_port(setting.server));
    rg_test_pool_prewarm(&setting.pool, 2);
    RG_AWAIT(idle_count(&setting.pool) == 2);
    struct rg_test_exchange both[2] = {0};
    for (unsigned i = 0; i < 2; i++) {
        rg_test_exchange_submit(&setting.pool, &both[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        rg_test_exchange_wait(&setting.pool);
    }
    RG_CHECK_EQ(both[0].x.http_status + both[1].x.http_status, 200 + 503);
    for (unsigned i = 0; i < 2; i++) {
        rg_test_exchange_fini(&both[i]);
        check_ok(&setting);
    }
    setting_close(&setting);
}

static void test_cancelled_while_waiting_and_while_out(void)
{
    static const struct rg_step hold[] = {RG_HOLD};
    rg_test_hosts.hosts[0] = "127.0.0.1";
    rg_test_hosts.count = 1;
    struct setting setting = {.pool.options.connections_max = 1};
    setting_open(&setting, hold);
    struct rg_test_exchange out = {0}, waiting = {0};
    rg_test_exchange_submit(&setting.pool, &out);
    RG_AWAIT(rg_scripted_server_connections(setting.server) == 1);
    rg_test_exchange_submit(&setting.pool, &waiting);
    rg_test_exchange_cancel(&waiting, RG_STATUS_DEADLINE);
    rg_test_exchange_wait(&setting.pool);
    RG_CHECK_EQ(waiting.status, RG_STATUS_DEADLINE);
    RG_CHECK_EQ(waiting.x.started_ns, 0);
    rg_test_exchange_cancel(&out, RG_STATUS_CANCELLED);
    rg_test_exchange_wait(&setting.pool);
    RG_CHECK_EQ(out.status, RG_STATUS_CANCELLED);
    rg_test_exchange_cancel(&out, RG_STATUS_DEADLINE);
    rg_test_loop_turn(setting.pool.loop);
    RG_CHECK_EQ(out.done_count, 1);
    RG_CHECK_EQ(waiting.done_count, 1);
    setting_close(&setting);
}

static void test_closed_with_exchanges_in_every_state(void)
{
    static const struct rg_step hold[] = {RG_HOLD};
    rg_test_hosts.hosts[0] = "127.0.0.1";
    rg_test_hosts.count = 1;
    for (unsigned turns = 0; turns < 20; turns++) {
        struct setting setting = {.pool.options.connections_max = 2};
        setting_open(&setting, hold);
        struct rg_test_exchange exchanges[4] = {0};
        for (unsigned i = 0; i < 4; i++) {
            rg_test_exchange_submit(&setting.pool, &exchanges[i]);
        }
        for (unsigned i = 0; i < turns; i++) {
            rg_test_loop_turn(setting.pool.loop);
        }
        setting_close(&setting);
        rg_test_hosts.hosts[0] = "127.0.0.1";
        rg_test_hosts.count = 1;
        for (unsigned i = 0; i < 4; i++) {
            RG_CHECK_EQ(exchanges[i].status, RG_STATUS_CLOSED);
            RG_CHECK_EQ(exchanges[i].done_count, 1);
        }
    }
}

/* Each of these waits begins when it could have wrapped around to the past. */
static void test_time_outs_that_never_come(void)
{
    static const struct rg_step late[] = {RG_READ,
                                          RG_SLEEP(400),
                                          RG_SEND("HTTP/1.1 200 OK\r\n"),
                                          RG_SLEEP(400),
                                          RG_SEND("Content-Length: 2\r\n\r\no"),
                                          RG_SLEEP(400),
                                          RG_SEND("k"),
                                          RG_AGAIN};
    static const struct rg_step *scripts[] = {late};
    struct rg_test_pki pki;
    rg_test_pki_init(&pki);
    struct rg_tls_context *context = rg_test_client_context(&pki, false);
    struct rg_script_options options = {
        .scripts = scripts,
        .script_count = 1,
        .certificate = &pki.leaf,
        .handshake_delay_ms = 2 * RG_CONN_SLOW_NS / RG_NS_PER_MS,
    };
    struct setting setting = {.pool.options = {
                                  .tls = context,
                                  .connections_max = 1,
                                  .connect_timeout_ns = RG_FOREVER,
                                  .first_byte_timeout_ns = RG_FOREVER,
                                  .stall_timeout_ns = RG_FOREVER,
                                  .idle_timeout_ns = RG_FOREVER,
                              }};
    setting.server = rg_scripted_server_start(&options);
    rg_test_pool_open(&setting.pool, rg_scripted_server_port(setting.server));
    check_ok(&setting);
    check_ok(&setting);
    RG_CHECK_EQ(rg_scripted_server_connections(setting.server), 1);
    setting_close(&setting);
    rg_tls_context_close(context);
    rg_test_pki_fini(&pki);
}

struct tls_setting {
    struct setting setting;
    const struct rg_step *scripts[1];
    struct rg_test_pki pki;
    struct rg_tls_context *context;
};

static void tls_setting_open(struct tls_setting *tls, const struct rg_step *script,
                             uint32_t connections_max, const uint32_t *processes)
{
    tls->scripts[0] = script;
    rg_test_pki_init(&tls->pki);
    tls->context = rg_test_client_context(&tls->pki, false);
    struct rg_script_options options = {
        .scripts = tls->scripts, .script_count = 1, .certificate = &tls->pki.leaf};
    tls->setting = (struct setting){.pool.options = {.tls = tls->context,
                                                     .connections_max = connections_max,
                                                     .processes = processes}};
    tls->setting.server = rg_scripted_server_start(&options);
    rg_test_pool_open(&tls->setting.pool, rg_scripted_server_port(tls->setting.server));
}

static void tls_setting_close(struct tls_setting *tls)
{
    setting_close(&tls->setting);
    rg_tls_context_close(tls->context);
    rg_test_pki_fini(&tls->pki);
}

/* Submits as many, and tells how many connections there were when all were done. */
static uint32_t run_together(struct tls_setting *tls, uint32_t count, uint32_t at_gate)
{
    struct rg_test_exchange exchanges[32] = {0};
    struct setting *setting = &tls->setting;
    RG_ASSERT(count <= RG_ARRAY_LEN(exchanges));
    for (uint32_t i = 0; i < count; i++) {
        rg_test_exchange_submit(&setting->pool, &exchanges[i]);
    }
    RG_AWAIT(rg_scripted_server_requests(setting->server) >= at_gate);
    rg_scripted_server_open(setting->server, 0);
    for (uint32_t i = 0; i < count; i++) {
        rg_test_exchange_wait(&setting->pool);
    }
    for (uint32_t i = 0; i < count; i++) {
        RG_CHECK_EQ(exchanges[i].status, RG_STATUS_OK);
        rg_test_exchange_fini(&exchanges[i]);
    }
    return rg_scripted_server_connections(setting->server);
}

/* Nothing is answered before all have been asked: waiting alone has to open what they need. */
static void test_all_connections_are_opened_to_a_slow_service(void)
{
    enum { COUNT = 3 * RG_GROWTH_FIRST };
    static const struct rg_step slow[] = {RG_READ, RG_GATE(0), RG_SEND(ANSWER), RG_AGAIN};
    struct tls_setting tls;
    tls_setting_open(&tls, slow, COUNT, NULL);
    RG_CHECK_EQ(run_together(&tls, COUNT, COUNT), COUNT);
    tls_setting_close(&tls);
}

/* The share of each is less than the first few, and yet none waits for ever. */
static void test_connections_are_opened_beyond_the_share_when_one_takes_long(void)
{
    enum { COUNT = RG_GROWTH_FIRST + 2 };
    static const struct rg_step slow[] = {RG_READ, RG_GATE(0), RG_SEND(ANSWER), RG_AGAIN};
    static const uint32_t processes = 1000;
    struct tls_setting tls;
    tls_setting_open(&tls, slow, COUNT, &processes);
    RG_CHECK_EQ(run_together(&tls, COUNT, COUNT), COUNT);
    tls_setting_close(&tls);
}

/* Leaves no room in the buffers of both kernels for what closing has to say. */
static void fill_socket(void *context)
{
    struct rg_pool *pool = context;
    RG_ASSERT(!rg_list_empty(&pool->idle));
    struct rg_conn *conn = RG_CONTAINER_OF(pool->idle.next, struct rg_conn, node);
    static const uint8_t filler[RG_KIB(64)];
    int32_t sent;
    do {
        sent = rg_fd_send(conn->transport.socket.fd, filler, sizeof(filler), false);
    } while (sent > 0);
    RG_ASSERT(sent == -EAGAIN);
}

static void test_closing_waits_a_while_for_a_peer_that_does_not_read(void)
{
    static const struct rg_step deaf[] = {RG_READ, RG_SEND(ANSWER), RG_DEAF};
    static const struct rg_step *scripts[] = {deaf};
    struct rg_test_pki pki;
    rg_test_pki_init(&pki);
    struct rg_tls_context *context = rg_test_client_context(&pki, false);
    struct rg_script_options options = {
        .scripts = scripts, .script_count = 1, .certificate = &pki.leaf};
    struct setting setting = {.pool.options.tls = context};
    setting.server = rg_scripted_server_start(&options);
    rg_test_pool_open(&setting.pool, rg_scripted_server_port(setting.server));
    check_ok(&setting);
    rg_loop_call(setting.pool.loop, fill_socket, setting.pool.pool);
    setting_close(&setting);
    rg_tls_context_close(context);
    rg_test_pki_fini(&pki);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_closed_port_of_one_address),
        RG_TEST(test_closed_port_of_every_address),
        RG_TEST(test_address_that_never_answers),
        RG_TEST(test_name_that_cannot_be_resolved),
        RG_TEST(test_prewarming_stops_where_there_is_nothing),
        RG_TEST(test_exchanges_wait_for_a_connection_in_order),
        RG_TEST(test_another_address_than_one_to_avoid),
        RG_TEST(test_a_connection_that_was_refused_is_used_last),
        RG_TEST(test_cancelled_while_waiting_and_while_out),
        RG_TEST(test_closed_with_exchanges_in_every_state),
        RG_TEST(test_time_outs_that_never_come),
        RG_TEST(test_closing_waits_a_while_for_a_peer_that_does_not_read),
        RG_TEST(test_all_connections_are_opened_to_a_slow_service),
        RG_TEST(test_connections_are_opened_beyond_the_share_when_one_takes_long),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
