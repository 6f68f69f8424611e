/* A pool of connections by virtual time: what happens when penalties and time-outs have passed,
 * which would take too long by a clock. */
#include "http/conn.h"
#include "tests/support/sim.h"
#include "tests/support/test.h"

#include <arpa/inet.h>

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define EXCHANGES_MAX 4
#define TIMEOUT_NS (20 * RG_NS_PER_S)

static struct rg_sim *sim;
static struct rg_loop *loop;
static struct rg_transport_loop *transports;
static struct rg_resolver *resolver;
static struct rg_pool *pool;
static bool pool_closed;

static struct exchange {
    struct rg_exchange x;
    bool is_done;
    enum rg_status status;
    uint64_t done_ns;
} exchanges[EXCHANGES_MAX];

static int exchange_encode(struct rg_exchange *x, struct rg_h1_encoder *encoder)
{
    rg_h1_encode_request(encoder, x->upload_size > 0 ? "PUT" : "GET", "/");
    rg_h1_encode_header_u64(encoder, "Content-Length", x->upload_size);
    return rg_h1_encode_end(encoder);
}

static enum rg_body_action exchange_head(struct rg_exchange *x, const struct rg_h1_head *head)
{
    (void)x, (void)head;
    return RG_BODY_DISCARD;
}

static void exchange_done(struct rg_exchange *x)
{
    struct exchange *exchange = RG_CONTAINER_OF(x, struct exchange, x);
    RG_CHECK(!exchange->is_done);
    exchange->is_done = true;
    exchange->status = x->status;
    exchange->done_ns = rg_sim_now_ns(sim);
}

static const struct rg_exchange_ops exchange_ops = {
    .encode = exchange_encode,
    .head = exchange_head,
    .done = exchange_done,
};

static struct sockaddr_in address = {.sin_family = AF_INET};

static void setup(void)
{
    sim = rg_sim_create(&(struct rg_sim_options){.seed = rg_test_seed()});
    const struct rg_loop_options loop_options = {
        .backend = &rg_sim_backend,
        .backend_context = sim,
        .placement = {.cpu = -1, .node = -1},
        .memory_max = RG_MIB(8),
    };
    RG_CHECK_EQ(rg_loop_create(&loop, &loop_options), 0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
    RG_CHECK_EQ(rg_transport_loop_create(&transports, loop, EXCHANGES_MAX), 0);
    RG_CHECK_EQ(rg_resolver_create(&resolver, NULL), 0);
    const struct rg_pool_options options = {
        .host = "10.0.0.1",
        .port = 80,
        .resolver = resolver,
        .transports = transports,
        .connections_max = EXCHANGES_MAX,
        .connect_timeout_ns = TIMEOUT_NS,
        .first_byte_timeout_ns = TIMEOUT_NS,
        .stall_timeout_ns = TIMEOUT_NS,
        .idle_timeout_ns = TIMEOUT_NS,
    };
    RG_CHECK_EQ(rg_pool_create(&pool, loop, &options), 0);
    address.sin_port = htons(80);
    RG_CHECK_EQ(inet_pton(AF_INET, "10.0.0.1", &address.sin_addr), 1);
    memset(exchanges, 0, sizeof(exchanges));
    pool_closed = false;
}

static void note_closed(void *context)
{
    (void)context;
    pool_closed = true;
}

static bool is_closed(void *context)
{
    (void)context;
    return pool_closed;
}

static void teardown(void)
{
    rg_pool_close(pool, note_closed, NULL);
    RG_CHECK(rg_sim_run(sim, rg_sim_now_ns(sim) + TIMEOUT_NS, is_closed, NULL));
    RG_CHECK_EQ(rg_sim_socket_count(sim), 0);
    rg_resolver_destroy(resolver);
    rg_transport_loop_destroy(transports);
    rg_loop_destroy(loop);
    rg_sim_destroy(sim);
    sim = NULL;
}

static void listen_with(const struct rg_sim_service *service)
{
    rg_sim_listen(sim, (const struct sockaddr *)&address, service, NULL);
}

static void submit(size_t index)
{
    exchanges[index].x.ops = &exchange_ops;
    rg_pool_submit(pool, &exchanges[index].x);
}

static bool is_done(void *context)
{
    const struct exchange *exchange = context;
    return exchange->is_done;
}

/* Until it is done, or for so long. */
static bool run_until_done(size_t index, uint64_t ns)
{
    return rg_sim_run(sim, rg_sim_now_ns(sim) + ns, is_done, &exchanges[index]);
}

static unsigned connected_count;

static void count_connected(struct rg_sim_end *end)
{
    (void)end;
    connected_count++;
}

/* Takes 15 s for the first answer, and none for the others. */
static void answer_first_late(struct rg_sim_end *end, const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    uint64_t delay_ns = connected_count == 1 ? 15 * RG_NS_PER_S : 0;
    rg_sim_write_after(end, delay_ns, ANSWER, strlen(ANSWER));
}

static const struct rg_sim_service late_service = {.connected = count_connected,
                                                   .received = answer_first_late};

static void listen_again(void *context)
{
    (void)context;
    listen_with(&late_service);
}

/* One connection is busy for long, and others were refused: what waits is not left to wait for that
 * one when the address is no longer passed over, though nobody asks for anything meanwhile. */
static void test_connecting_is_tried_again_when_the_penalty_is_over(void)
{
    setup();
    connected_count = 0;
    listen_with(&late_service);
    submit(0);
    RG_CHECK(!run_until_done(0, RG_NS_PER_S));
    RG_CHECK_EQ(connected_count, 1);
    listen_with(NULL);
    submit(1);
    submit(2);
    rg_sim_after(sim, 2 * RG_NS_PER_S, listen_again, NULL);
    RG_CHECK(run_until_done(2, 10 * RG_NS_PER_S));
    RG_CHECK(run_until_done(1, RG_NS_PER_S));
    RG_CHECK_EQ(exchanges[1].status, RG_STATUS_OK);
    RG_CHECK_EQ(exchanges[2].status, RG_STATUS_OK);
    RG_CHECK(!exchanges[0].is_done);
    RG_CHECK(run_until_done(0, TIMEOUT_NS));
    RG_CHECK_EQ(exchanges[0].status, RG_STATUS_OK);
    teardown();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_connecting_is_tried_again_when_the_penalty_is_over),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
