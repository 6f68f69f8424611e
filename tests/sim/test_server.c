/* A server of ours by virtual time: how long it bears with clients that read slowly, or no more. */
#include "http/server.h"
#include "http/server_conn.h"
#include "tests/support/sim.h"
#include "tests/support/test.h"

#include <arpa/inet.h>

#define BODY_SIZE 2000000

static struct rg_sim *sim;
static struct rg_loop *loop;
static struct rg_server *server;
static bool destroyed;
static const uint8_t body[BODY_SIZE];

/* The server wants a copy of the listening descriptor, which is made up. */
int __wrap_rg_fd_copy(int fd);
int __wrap_rg_fd_copy(int fd)
{
    return fd;
}

static int call_begin(struct rg_server_call *call)
{
    (void)call;
    return 0;
}

static int call_body(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    (void)call, (void)data, (void)size;
    return 0;
}

static void call_end(struct rg_server_call *call)
{
    struct rg_h1_encoder *encoder = rg_server_head(call);
    rg_h1_encode_status(encoder, 200, "OK");
    rg_h1_encode_header_u64(encoder, "Content-Length", BODY_SIZE);
    RG_CHECK(rg_h1_encode_end(encoder) > 0);
    rg_server_respond(call, &(struct rg_server_response){.body_size = BODY_SIZE,
                                                         .cut_after = UINT64_MAX,
                                                         .stall_after = UINT64_MAX});
}

static size_t call_produce(struct rg_server_call *call, uint64_t offset, const uint8_t **out_data)
{
    (void)call;
    *out_data = body + offset;
    return (size_t)(BODY_SIZE - offset);
}

static void call_release(struct rg_server_call *call)
{
    (void)call;
}

static const struct rg_server_handler handler = {
    .begin = call_begin,
    .body = call_body,
    .end = call_end,
    .produce = call_produce,
    .release = call_release,
};

/* A client that takes a little of what has come, and a little more after a while. */
static struct client {
    struct rg_socket socket;
    struct rg_op reading, writing;
    struct sockaddr_in address;
    uint8_t place[1000];
    uint64_t got, stop_after;
    bool ended;
    uint64_t ended_ns;
} client;

static void client_read(void *context)
{
    (void)context;
    rg_op_recv_into(loop, &client.reading, &client.socket, client.place, sizeof(client.place));
}

static void client_got(struct rg_op *op)
{
    if (op->result <= 0) {
        client.ended = true;
        client.ended_ns = rg_sim_now_ns(sim);
        return;
    }
    client.got += (uint64_t)op->result;
    if (client.stop_after == 0 || client.got < client.stop_after) {
        rg_sim_after(sim, RG_NS_PER_S, client_read, NULL);
    }
}

static void client_sent(struct rg_op *op)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    RG_CHECK(op->result >= 0);
    if (op->kind == RG_OP_CONNECT) {
        rg_op_send(loop, &client.writing, &client.socket, request, sizeof(request) - 1);
    } else {
        client_read(NULL);
    }
}

static void setup(void)
{
    sim = rg_sim_create(&(struct rg_sim_options){.seed = rg_test_seed(), .window = 300000});
    const struct rg_loop_options loop_options = {
        .backend = &rg_sim_backend,
        .backend_context = sim,
        .placement = {.cpu = -1, .node = -1},
    };
    RG_CHECK_EQ(rg_loop_create(&loop, &loop_options), 0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
    client = (struct client){
        .address = {.sin_family = AF_INET, .sin_port = htons(80), .sin_addr.s_addr = 1}};
    const struct rg_server_options options = {
        .handler = &handler,
        .connections_max = 1,
        .idle_timeout_ns = 60 * RG_NS_PER_S,
        .listen_fd = rg_sim_listen_fd(sim, (const struct sockaddr *)&client.address),
    };
    RG_CHECK_EQ(rg_server_create(&server, loop, &options), 0);
    rg_op_init(&client.reading, client_got);
    rg_op_init(&client.writing, client_sent);
    RG_CHECK_EQ(rg_socket_open(loop, &client.socket, AF_INET), 0);
    rg_op_connect(loop, &client.writing, &client.socket, (const struct sockaddr *)&client.address,
                  sizeof(client.address));
    destroyed = false;
}

static void note_destroyed(void *context)
{
    (void)context;
    destroyed = true;
}

static bool is_over(void *context)
{
    return *(const bool *)context;
}

static bool body_came(void *context)
{
    return ((const struct client *)context)->got > BODY_SIZE;
}

static void teardown(void)
{
    rg_server_destroy(server, note_destroyed, NULL);
    RG_CHECK(rg_sim_run(sim, rg_sim_now_ns(sim) + 60 * RG_NS_PER_S, is_over, &destroyed));
    rg_op_cancel(loop, &client.reading);
    (void)rg_sim_run(sim, rg_sim_now_ns(sim) + RG_NS_PER_S, NULL, NULL);
    rg_socket_close(loop, &client.socket, true);
    rg_loop_destroy(loop);
    rg_sim_destroy(sim);
    sim = NULL;
}

/* A quarter of a megabyte is given to the system at once: at 1 KB a second, four minutes' worth. */
static void test_a_slow_reader_is_not_cut(void)
{
    setup();
    RG_CHECK(rg_sim_run(sim, rg_sim_now_ns(sim) + 3600 * RG_NS_PER_S, body_came, &client));
    struct rg_server_stats stats;
    rg_server_stats(server, &stats);
    RG_CHECK_EQ(stats.timeout_count, 0);
    teardown();
}

static void test_a_reader_that_stops_is_cut(void)
{
    setup();
    client.stop_after = 100000;
    struct rg_server_stats stats = {0};
    uint64_t stopped_ns = rg_sim_now_ns(sim) + 100 * RG_NS_PER_S;
    (void)rg_sim_run(sim, stopped_ns, NULL, NULL);
    rg_server_stats(server, &stats);
    RG_CHECK_EQ(stats.timeout_count, 0);
    (void)rg_sim_run(sim, stopped_ns + 2 * RG_SERVER_STALL_NS + RG_NS_PER_S, NULL, NULL);
    rg_server_stats(server, &stats);
    RG_CHECK_EQ(stats.timeout_count, 1);
    teardown();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_slow_reader_is_not_cut),
        RG_TEST(test_a_reader_that_stops_is_cut),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
