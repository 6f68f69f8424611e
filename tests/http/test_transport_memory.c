/* The memory that connections need to send and to read, and TLS in TLS more of it than others: when
 * it is given back, and what is said where there is none. */
#include "http/pool.h"
#include "tests/support/allocation.h"
#include "tests/support/exchange.h"
#include "tests/support/loop.h"
#include "tests/support/proxy.h"
#include "tests/support/test.h"
#include "tests/support/tls_stream.h"

#include <errno.h>
#include <malloc.h>
#include <openssl/ssl.h>
#include <pthread.h>

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static struct rg_test_pki pki;
static struct rg_tls_context *context;

enum way { WAY_PLAIN, WAY_TLS, WAY_TLS_IN_TLS };

struct setting {
    enum way way;
    struct rg_test_pool pool;
    struct rg_scripted_server *server;
    struct rg_test_proxy *test_proxy;
    struct rg_proxy proxy;
    const struct rg_step *scripts[1];
};

static void setting_open(struct setting *setting, const struct rg_step *script)
{
    setting->scripts[0] = script;
    setting->server = rg_scripted_server_start(&(struct rg_script_options){
        .scripts = setting->scripts,
        .script_count = 1,
        .certificate = setting->way != WAY_PLAIN ? &pki.leaf : NULL,
    });
    setting->pool.options.tls = setting->way != WAY_PLAIN ? context : NULL;
    if (setting->way == WAY_TLS_IN_TLS) {
        char url[64];
        setting->test_proxy =
            rg_test_proxy_start(&(struct rg_test_proxy_options){.certificate = &pki.leaf});
        snprintf(url, sizeof(url), "https://127.0.0.1:%u", rg_test_proxy_port(setting->test_proxy));
        RG_CHECK_EQ(rg_proxy_parse(&setting->proxy, url), 0);
        setting->pool.options.proxy = &setting->proxy;
        setting->pool.options.proxy_tls = context;
    }
    rg_test_pool_open(&setting->pool, rg_scripted_server_port(setting->server));
}

static void setting_close(struct setting *setting)
{
    rg_test_pool_close(&setting->pool);
    rg_scripted_server_stop(setting->server);
    if (setting->test_proxy != NULL) {
        rg_test_proxy_stop(setting->test_proxy);
    }
}

/* What fails on the loop's thread: the borrowing of a send buffer, or the allocation of a large
 * one, of this number. */
static struct {
    pthread_t thread;
    _Atomic int left; /* negative: none */
    _Atomic bool failed;
} fault = {.left = -1};

static bool fault_strikes(void)
{
    if (fault.left < 0 || !pthread_equal(pthread_self(), fault.thread)) {
        return false;
    }
    bool strikes = fault.left-- == 0;
    fault.failed |= strikes;
    return strikes;
}

static bool allocation_fails(void)
{
    return rg_test_allocation_size > RG_SEND_LARGE_SIZE && fault_strikes();
}

struct rg_send_buffer *__real_rg_send_buffer_borrow(struct rg_send_buffers *buffers, bool large);
struct rg_send_buffer *__wrap_rg_send_buffer_borrow(struct rg_send_buffers *buffers, bool large);
struct rg_send_buffer *__wrap_rg_send_buffer_borrow(struct rg_send_buffers *buffers, bool large)
{
    return fault_strikes() ? NULL : __real_rg_send_buffer_borrow(buffers, large);
}

static void fault_set(void *number)
{
    fault.thread = pthread_self();
    fault.failed = false;
    fault.left = *(int *)number;
}

/* Whatever fails, and in the last step of a handshake too, it is told for what it is. Returns how
 * much could fail. */
static int check_lacks_of_memory(enum way way)
{
    static const struct rg_step script[] = {RG_READ, RG_SEND(ANSWER), RG_AGAIN};
    static const uint8_t upload[600000];
    bool failed = true;
    int number = -1;
    while (failed) {
        number++;
        struct setting setting = {.way = way, .pool.options.connections_max = 1};
        struct rg_test_exchange exchange = {.upload = upload, .upload_size = sizeof(upload)};
        setting_open(&setting, script);
        rg_loop_call(setting.pool.loop, fault_set, &number);
        rg_test_exchange_run(&setting.pool, &exchange);
        fault.left = -1;
        failed = fault.failed;
        RG_CHECK_EQ(exchange.status, failed ? RG_STATUS_NO_RESOURCES : RG_STATUS_OK);
        rg_test_exchange_fini(&exchange);
        setting_close(&setting);
    }
    return number;
}

static void test_a_lack_of_memory_is_told_whenever_it_comes(void)
{
    RG_CHECK(check_lacks_of_memory(WAY_PLAIN) >= 1);
    RG_CHECK(check_lacks_of_memory(WAY_TLS) >= 5);
    RG_CHECK(check_lacks_of_memory(WAY_TLS_IN_TLS) >= 10);
}

static void fault_set_next(struct rg_test_stream *stream)
{
    static int next = 0;
    RG_ASSERT(stream->full && rg_transport_sending(&stream->transport));
    fault_set(&next);
}

/* The answer to a key update waits while the buffer is full. Where there is no memory for it when
 * the buffer has gone, the owner is told at once. */
static void test_a_lack_of_memory_for_what_tls_holds_is_told(void)
{
    struct rg_test_stream *stream = calloc(1, sizeof(*stream));
    stream->pki = &pki;
    stream->buffers = RG_KIB(16);
    rg_test_stream_open(stream);
    RG_TEST_TURN_UNTIL(stream, stream->ready && SSL_is_init_finished(stream->raw));
    stream->raw_deaf = true;
    rg_test_stream_send(stream, RG_MIB(1));
    uint64_t before;
    do {
        before = stream->sent;
        rg_test_loop_turn(stream->loop);
    } while (stream->sent != before || !stream->full);
    RG_CHECK_EQ(SSL_key_update(stream->raw, SSL_KEY_UPDATE_REQUESTED), 1);
    rg_test_raw_write(stream, 1000);
    RG_TEST_TURN_UNTIL(stream, stream->received == stream->raw_sent);
    RG_CHECK(!stream->ended);
    rg_test_stream_call(stream, fault_set_next);
    stream->raw_deaf = false;
    RG_TEST_TURN_UNTIL(stream, stream->ended);
    RG_CHECK(fault.failed);
    RG_CHECK_EQ(stream->failure.status, RG_STATUS_NO_RESOURCES);
    RG_CHECK_EQ(stream->failure.os_error, ENOMEM);
    rg_test_stream_close(stream);
    free(stream);
}

struct looking {
    struct rg_transport_loop *transports;
    struct rg_transport_memory memory;
};

static void look_run(void *context_)
{
    struct looking *looking = context_;
    rg_transport_loop_memory(looking->transports, &looking->memory);
}

/* What is allocated now, but for what is kept for whoever sends next. */
static size_t memory_in_use(struct setting *setting)
{
    struct looking looking = {.transports = setting->pool.transports};
    rg_loop_call(setting->pool.loop, look_run, &looking);
    RG_CHECK_EQ(looking.memory.lent_bytes, 0);
    RG_CHECK(looking.memory.shared_bytes <= RG_RECV_SIZE_MAX + RG_TLS_PLAIN_MAX);
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd - looking.memory.kept_bytes - looking.memory.shared_bytes;
}

static void run_on_each(struct setting *setting, uint32_t count,
                        const struct rg_test_exchange *like)
{
    struct rg_test_exchange *exchanges = calloc(count, sizeof(*exchanges));
    for (uint32_t i = 0; i < count; i++) {
        exchanges[i] = *like;
        rg_test_exchange_submit(&setting->pool, &exchanges[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        rg_test_exchange_wait(&setting->pool);
    }
    for (uint32_t i = 0; i < count; i++) {
        RG_CHECK_EQ(exchanges[i].status, RG_STATUS_OK);
        rg_test_exchange_fini(&exchanges[i]);
    }
    free(exchanges);
}

static void test_idle_connections_hold_no_buffers(void)
{
    enum { COUNT = 16, EACH_MAX = RG_SCRIPT_BODY_KEPT_MAX + (32 << 10) };
    /* The answers come late, so that each exchange has a connection of its own. */
    static const struct rg_step script[] = {
        RG_READ,  RG_SLEEP(300), {.kind = RG_STEP_SEND_OBJECT_WHOLE, .size = 2},
        RG_READ,  RG_SLEEP(300), {.kind = RG_STEP_SEND_OBJECT_WHOLE, .size = 2000000},
        RG_AGAIN,
    };
    static const uint8_t upload[600000];
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    rg_test_skip("the sanitizer's allocator does not say what is in use");
#endif
    struct setting setting = {.way = WAY_TLS_IN_TLS,
                              .pool.options.connections_max = COUNT,
                              .pool.memory_max = RG_MIB(64)};
    setting_open(&setting, script);
    run_on_each(&setting, COUNT, &(struct rg_test_exchange){0});
    size_t before = memory_in_use(&setting);
    run_on_each(&setting, COUNT,
                &(struct rg_test_exchange){
                    .action = RG_BODY_DISCARD, .upload = upload, .upload_size = sizeof(upload)});
    RG_CHECK_EQ(rg_scripted_server_connections(setting.server), COUNT);
    size_t after = memory_in_use(&setting);
    printf("  %zu bytes for each of %d connections\n", (after - RG_MIN(before, after)) / COUNT,
           COUNT);
    RG_CHECK(after <= before + COUNT * EACH_MAX);
    setting_close(&setting);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_lack_of_memory_is_told_whenever_it_comes),
        RG_TEST(test_a_lack_of_memory_for_what_tls_holds_is_told),
        RG_TEST(test_idle_connections_hold_no_buffers),
    };
    rg_test_allocation_fails = allocation_fails;
    rg_test_pki_init(&pki);
    context = rg_test_client_context(&pki, false);
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_tls_context_close(context);
    rg_test_pki_fini(&pki);
    return ret;
}
