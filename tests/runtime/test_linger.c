/* When a loop lingers: a model of loads, and what is decided about them. */
#include "runtime/linger.h"
#include "tests/support/test.h"

#define SOCKETS 8
#define BODY 4096
#define QUIET_NS (2 * RG_NS_PER_S)

struct scene {
    struct rg_linger linger;
    struct rg_socket sockets[SOCKETS];
    uint64_t now_ns;
    uint32_t lingered, waits, crowd;
};

static void op_done(struct scene *scene, unsigned socket, enum rg_op_kind kind, int32_t result)
{
    struct rg_op op = {.kind = (uint8_t)kind, .socket = &scene->sockets[socket], .result = result};
    rg_linger_note(&scene->linger, &op);
}

static void wait_for(struct scene *scene, uint64_t ns)
{
    scene->waits++;
    scene->lingered += rg_linger_is_on(&scene->linger);
    scene->now_ns += ns;
    if (rg_linger_waited(&scene->linger, scene->now_ns)) {
        bool asks = rg_linger_asks_for_crowd(&scene->linger, scene->now_ns);
        rg_linger_judge(&scene->linger, scene->now_ns, asks ? scene->crowd : 0);
    }
}

/* One request after the other on one connection, each sent and answered in this time. */
static void ask_alone(struct scene *scene, uint32_t requests, uint64_t each_ns)
{
    for (uint32_t i = 0; i < requests; i++) {
        wait_for(scene, each_ns / 2);
        op_done(scene, 0, RG_OP_SEND, 200);
        wait_for(scene, each_ns / 2);
        op_done(scene, 0, RG_OP_RECV, BODY);
    }
}

/* The bytes come as fast as they come: a sleep finds those of more connections at once. */
static void receive_stream(struct scene *scene, uint32_t waits)
{
    for (uint32_t i = 0; i < waits; i++) {
        bool lingers = rg_linger_is_on(&scene->linger);
        wait_for(scene, lingers ? SOCKETS * 20 * RG_NS_PER_US : 20 * RG_NS_PER_US);
        for (unsigned socket = 0; socket < (lingers ? SOCKETS : 1); socket++) {
            op_done(scene, (i + socket) % SOCKETS, RG_OP_RECV, BODY);
        }
    }
}

/* Each of two connections asks again when it was answered: a sleep finds two answers instead of
 * one, but after more than twice the time. */
static void ask_in_pairs(struct scene *scene, uint32_t waits)
{
    for (uint32_t i = 0; i < waits; i++) {
        bool lingers = rg_linger_is_on(&scene->linger);
        wait_for(scene, lingers ? 130 * RG_NS_PER_US : 30 * RG_NS_PER_US);
        for (unsigned socket = 0; socket < (lingers ? 2 : 1); socket++) {
            op_done(scene, (i + socket) % 2, RG_OP_RECV, BODY);
            op_done(scene, (i + socket) % 2, RG_OP_SEND, 200);
        }
    }
}

static void test_a_request_alone_never_lingers(void)
{
    struct scene scene = {0};
    ask_alone(&scene, 10000, 80 * RG_NS_PER_US);
    RG_CHECK_EQ(scene.lingered, 0);
}

static void test_a_server_of_one_client_never_lingers(void)
{
    struct scene scene = {0};
    for (int i = 0; i < 10000; i++) {
        wait_for(&scene, 80 * RG_NS_PER_US);
        op_done(&scene, 0, RG_OP_RECV, 200);
        op_done(&scene, 0, RG_OP_SEND, BODY);
    }
    RG_CHECK_EQ(scene.lingered, 0);
}

/* Its one op is told from those of others by itself, having no socket. */
static void test_one_file_read_after_the_other_never_lingers(void)
{
    struct scene scene = {0};
    struct rg_op op = {.kind = RG_OP_READ_FILE, .result = BODY};
    for (int i = 0; i < 10000; i++) {
        wait_for(&scene, 20 * RG_NS_PER_US);
        rg_linger_note(&scene.linger, &op);
    }
    RG_CHECK_EQ(scene.lingered, 0);
}

static void test_a_busy_loop_lingers(void)
{
    struct scene scene = {0};
    receive_stream(&scene, 10000);
    RG_CHECK(scene.lingered > 9000);
}

static void test_rare_wakes_do_not_linger(void)
{
    struct scene scene = {0};
    for (int i = 0; i < 10000; i++) {
        wait_for(&scene, 2 * RG_LINGER_NS);
        op_done(&scene, (unsigned)i % SOCKETS, RG_OP_RECV, BODY);
    }
    RG_CHECK_EQ(scene.lingered, 0);
}

/* Of 3 ms that pass with each wait, 2.7 are waited for a CPU. */
static void test_a_loop_that_waits_for_its_turn_lingers(void)
{
    struct scene scene = {.crowd = 90};
    for (int i = 0; i < 10000; i++) {
        wait_for(&scene, 3 * RG_NS_PER_MS);
        for (unsigned socket = 0; socket < SOCKETS; socket++) {
            op_done(&scene, socket, RG_OP_RECV, BODY);
        }
    }
    RG_CHECK(scene.lingered > 9000);
}

static void test_a_request_alone_does_not_even_where_it_waits_for_its_turn(void)
{
    struct scene scene = {.crowd = 90};
    ask_alone(&scene, 10000, 6 * RG_NS_PER_MS);
    RG_CHECK_EQ(scene.lingered, 0);
}

static void test_who_loses_by_it_is_hardly_ever_tried(void)
{
    struct scene scene = {0};
    ask_in_pairs(&scene, 200000);
    RG_CHECK(scene.lingered > 0);
    RG_CHECK(scene.lingered < scene.waits / 100);
}

static void test_a_load_that_grows_is_tried_again(void)
{
    struct scene scene = {0};
    ask_in_pairs(&scene, 200000);
    receive_stream(&scene, 10000);
    scene.waits = scene.lingered = 0;
    receive_stream(&scene, 10000);
    RG_CHECK(scene.lingered > 9000);
}

static void test_a_load_that_shrinks_is_noticed(void)
{
    struct scene scene = {0};
    receive_stream(&scene, 10000);
    RG_CHECK(rg_linger_is_on(&scene.linger));
    ask_in_pairs(&scene, 50000);
    scene.waits = scene.lingered = 0;
    ask_in_pairs(&scene, 200000);
    RG_CHECK(scene.lingered < scene.waits / 100);
}

static void test_what_was_seen_before_a_pause_is_forgotten(void)
{
    struct scene scene = {0};
    receive_stream(&scene, 10000);
    RG_CHECK(rg_linger_is_on(&scene.linger));
    wait_for(&scene, QUIET_NS);
    RG_CHECK(!rg_linger_is_on(&scene.linger));
    scene.waits = scene.lingered = 0;
    ask_alone(&scene, 10000, 80 * RG_NS_PER_US);
    RG_CHECK_EQ(scene.lingered, 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_request_alone_never_lingers),
        RG_TEST(test_a_server_of_one_client_never_lingers),
        RG_TEST(test_one_file_read_after_the_other_never_lingers),
        RG_TEST(test_a_busy_loop_lingers),
        RG_TEST(test_rare_wakes_do_not_linger),
        RG_TEST(test_a_loop_that_waits_for_its_turn_lingers),
        RG_TEST(test_a_request_alone_does_not_even_where_it_waits_for_its_turn),
        RG_TEST(test_who_loses_by_it_is_hardly_ever_tried),
        RG_TEST(test_a_load_that_grows_is_tried_again),
        RG_TEST(test_a_load_that_shrinks_is_noticed),
        RG_TEST(test_what_was_seen_before_a_pause_is_forgotten),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
