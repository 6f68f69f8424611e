/* When a loop lingers: a model of loads, and what is decided about them. */
#include "runtime/linger.h"
#include "tests/support/test.h"

#define SOCKETS 8
#define BODY 4096
#define CONNECTIONS_MAX 64
#define QUIET_NS (2 * RG_NS_PER_S)

struct scene {
    struct rg_linger linger;
    struct rg_socket sockets[CONNECTIONS_MAX];
    uint64_t now_ns;
    uint32_t lingered, longer, longest, waits, crowd, answers;
};

static void op_done(struct scene *scene, unsigned socket, enum rg_op_kind kind, int32_t result)
{
    struct rg_op op = {.kind = (uint8_t)kind, .socket = &scene->sockets[socket], .result = result};
    rg_linger_note(&scene->linger, &op);
}

static void wait_for(struct scene *scene, uint64_t ns)
{
    uint64_t sleep_ns = scene->linger.sleep_ns;
    scene->waits++;
    scene->lingered += sleep_ns > 0;
    scene->longer += sleep_ns > RG_LINGER_NS;
    scene->longest += sleep_ns == RG_LINGER_MAX_NS;
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
        bool lingers = scene->linger.sleep_ns > 0;
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
        bool lingers = scene->linger.sleep_ns > 0;
        wait_for(scene, lingers ? 130 * RG_NS_PER_US : 30 * RG_NS_PER_US);
        for (unsigned socket = 0; socket < (lingers ? 2 : 1); socket++) {
            op_done(scene, (i + socket) % 2, RG_OP_RECV, BODY);
            op_done(scene, (i + socket) % 2, RG_OP_SEND, 200);
        }
    }
}

/* So many connections that ask again when they are answered, of a server that answers one after the
 * other. Until so much time has passed. */
static void ask_together(struct scene *scene, unsigned connections, uint64_t each_ns,
                         uint64_t time_ns)
{
    uint64_t answered_ns[CONNECTIONS_MAX];
    uint64_t end_ns = scene->now_ns + time_ns;
    uint64_t idle_ns = scene->now_ns;
    for (unsigned i = 0; i < connections; i++) {
        answered_ns[i] = idle_ns += each_ns;
    }
    for (unsigned next = 0; scene->now_ns < end_ns;) {
        uint64_t woken_ns = scene->now_ns + scene->linger.sleep_ns;
        wait_for(scene, RG_MAX(woken_ns, answered_ns[next]) - scene->now_ns);
        while (answered_ns[next] <= scene->now_ns) {
            op_done(scene, next, RG_OP_RECV, BODY);
            op_done(scene, next, RG_OP_SEND, 200);
            scene->answers++;
            idle_ns = RG_MAX(idle_ns, scene->now_ns) + each_ns;
            answered_ns[next] = idle_ns;
            next = (next + 1) % connections;
        }
    }
}

/* As much comes as there is room for, however long one sleeps: so many receives in so much time, or
 * later. */
static void receive_rooms(struct scene *scene, uint32_t waits, uint64_t each_ns, int32_t bytes,
                          unsigned count)
{
    for (unsigned i = 0; i < waits; i++) {
        wait_for(scene, RG_MAX(scene->linger.sleep_ns, each_ns));
        for (unsigned socket = 0; socket < count; socket++) {
            op_done(scene, (i + socket) % SOCKETS, RG_OP_RECV, bytes);
        }
    }
}

static void forget_counts(struct scene *scene)
{
    scene->waits = scene->lingered = scene->longer = scene->longest = scene->answers = 0;
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
        wait_for(&scene, 2 * RG_LINGER_MAX_NS);
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
    RG_CHECK(scene.linger.sleep_ns > 0);
    ask_in_pairs(&scene, 50000);
    scene.waits = scene.lingered = 0;
    ask_in_pairs(&scene, 200000);
    RG_CHECK(scene.lingered < scene.waits / 100);
}

static void test_what_was_seen_before_a_pause_is_forgotten(void)
{
    struct scene scene = {0};
    receive_stream(&scene, 10000);
    RG_CHECK(scene.linger.sleep_ns > 0);
    wait_for(&scene, QUIET_NS);
    RG_CHECK_EQ(scene.linger.sleep_ns, 0);
    scene.waits = scene.lingered = 0;
    ask_alone(&scene, 10000, 80 * RG_NS_PER_US);
    RG_CHECK_EQ(scene.lingered, 0);
}

/* 90 us for each of 64, of which a sleep takes nothing: the server is always busy. */
static void test_a_sleep_gets_longer_where_it_finds_little(void)
{
    struct scene scene = {0};
    ask_together(&scene, 64, 90 * RG_NS_PER_US, RG_NS_PER_S);
    forget_counts(&scene);
    ask_together(&scene, 64, 90 * RG_NS_PER_US, 10 * RG_NS_PER_S);
    RG_CHECK(scene.waits < 10 * RG_NS_PER_S / RG_LINGER_MAX_NS * 12 / 10);
    RG_CHECK(scene.answers > 10 * RG_NS_PER_S / (90 * RG_NS_PER_US) * 99 / 100);
}

static void test_a_sleep_that_finds_enough_gets_no_longer(void)
{
    struct scene scene = {0};
    ask_together(&scene, 64, 15 * RG_NS_PER_US, 10 * RG_NS_PER_S);
    RG_CHECK(scene.lingered > scene.waits * 9 / 10);
    RG_CHECK_EQ(scene.longer, 0);
}

/* Three answers come in 100 us, or in 200. */
static void test_few_connections_have_no_longer_sleep(void)
{
    struct scene scene = {0};
    ask_together(&scene, 3, 33 * RG_NS_PER_US, 10 * RG_NS_PER_S);
    RG_CHECK(scene.lingered > scene.waits * 8 / 10);
    RG_CHECK_EQ(scene.longer, 0);
    RG_CHECK(scene.answers > 10 * RG_NS_PER_S / (34 * RG_NS_PER_US) * 95 / 100);
}

static void test_a_longer_sleep_by_which_one_loses_is_hardly_ever_tried(void)
{
    struct scene scene = {0};
    receive_rooms(&scene, 100000, 95 * RG_NS_PER_US, BODY, 4);
    RG_CHECK(scene.lingered > scene.waits * 8 / 10);
    RG_CHECK(scene.longer > 0);
    RG_CHECK(scene.longer < scene.waits / 20);
}

/* In 200 us comes nine tenths of what comes in 180 and less. */
static void test_a_tenth_less_is_a_loss(void)
{
    struct scene scene = {0};
    receive_rooms(&scene, 100000, 180 * RG_NS_PER_US, BODY, 4);
    RG_CHECK(scene.lingered > scene.waits * 8 / 10);
    RG_CHECK(scene.longer < scene.waits / 20);
}

/* Two of eight answers come in 100 us, four in 200: the server is busy, and would not be for long.
 */
static void test_a_sleep_that_ends_many_exchanges_gets_no_longer(void)
{
    struct scene scene = {0};
    ask_together(&scene, 8, 50 * RG_NS_PER_US, 10 * RG_NS_PER_S);
    RG_CHECK(scene.lingered > scene.waits * 8 / 10);
    RG_CHECK_EQ(scene.longer, 0);
}

/* 200 us are as good as 195, and 400 are not. */
static void test_the_longest_sleep_by_which_one_loses_is_hardly_ever_tried(void)
{
    struct scene scene = {0};
    receive_rooms(&scene, 100000, 195 * RG_NS_PER_US, BODY, 4);
    RG_CHECK(scene.longer > scene.waits * 9 / 10);
    RG_CHECK(scene.longest > 0);
    RG_CHECK(scene.longest < scene.waits / 25);
}

static void test_a_sleep_that_has_lasted_ends_a_row_of_losses(void)
{
    struct scene scene = {0};
    receive_rooms(&scene, 100000, 95 * RG_NS_PER_US, BODY, 4);
    RG_CHECK(scene.linger.longer[0].next > 8);
    ask_together(&scene, 64, 90 * RG_NS_PER_US, 10 * RG_NS_PER_S);
    RG_CHECK_EQ(scene.linger.longer[0].next, 0);
}

static void test_many_bytes_are_enough(void)
{
    struct scene scene = {0};
    receive_rooms(&scene, 100000, 95 * RG_NS_PER_US, 1 << 18, 3);
    RG_CHECK(scene.lingered > scene.waits * 8 / 10);
    RG_CHECK_EQ(scene.longer, 0);
}

/* One receive in each, which a sleep makes no two. */
static void test_a_sleep_that_gains_nothing_ends(void)
{
    struct scene scene = {0};
    receive_rooms(&scene, 100000, 95 * RG_NS_PER_US, 1 << 20, 1);
    RG_CHECK(scene.lingered > 0);
    RG_CHECK(scene.lingered < scene.waits / 20);
}

/* Answers come every 90 us, then every 450, which is no load to sleep for. */
static void test_a_load_that_gets_slow_is_noticed(void)
{
    struct scene scene = {0};
    ask_together(&scene, 64, 90 * RG_NS_PER_US, RG_NS_PER_S);
    RG_CHECK_EQ(scene.linger.sleep_ns, RG_LINGER_MAX_NS);
    ask_together(&scene, 64, 450 * RG_NS_PER_US, RG_NS_PER_S / 8);
    forget_counts(&scene);
    ask_together(&scene, 64, 450 * RG_NS_PER_US, RG_NS_PER_S);
    RG_CHECK_EQ(scene.lingered, 0);
}

/* One poor window is chance. */
static void test_a_short_pause_is_not_the_end(void)
{
    struct scene scene = {0};
    ask_together(&scene, 64, 90 * RG_NS_PER_US, RG_NS_PER_S);
    scene.now_ns += 30 * RG_NS_PER_MS;
    forget_counts(&scene);
    ask_together(&scene, 64, 90 * RG_NS_PER_US, 100 * RG_NS_PER_MS);
    RG_CHECK(scene.longest > scene.waits * 9 / 10);
}

/* Woken every 250 us, by answers that come whether or not one sleeps. */
static void test_a_loop_that_is_less_busy_lingers(void)
{
    struct scene scene = {0};
    ask_together(&scene, 64, 250 * RG_NS_PER_US, 10 * RG_NS_PER_S);
    RG_CHECK(scene.longer > scene.waits / 2);
    RG_CHECK(scene.answers > 10 * RG_NS_PER_S / (250 * RG_NS_PER_US) * 99 / 100);
}

/* As many answers in the time that each takes: 16 in 2 ms, of which a sleep of 100 us would be a
 * part. */
static void test_few_connections_that_are_less_busy_never_linger(void)
{
    struct scene scene = {0};
    ask_together(&scene, 16, 125 * RG_NS_PER_US, 10 * RG_NS_PER_S);
    RG_CHECK_EQ(scene.lingered, 0);
}

/* Woken every 150 us, by answers that come half a sleep later for each sleep. */
static void test_a_loop_that_is_less_busy_loses_little(void)
{
    struct scene scene = {0};
    for (unsigned i = 0; i < 100000; i++) {
        wait_for(&scene, 150 * RG_NS_PER_US + scene.linger.sleep_ns / 2);
        op_done(&scene, i % CONNECTIONS_MAX, RG_OP_RECV, BODY);
        op_done(&scene, i % CONNECTIONS_MAX, RG_OP_SEND, 200);
    }
    RG_CHECK(scene.lingered > 0);
    RG_CHECK(scene.lingered < scene.waits / 50);
}

/* At 400 us eight connections would be answered at a quarter of the speed. */
static void test_a_long_sleep_ends_with_the_load_that_it_was_for(void)
{
    struct scene scene = {0};
    ask_together(&scene, 64, 90 * RG_NS_PER_US, RG_NS_PER_S);
    RG_CHECK_EQ(scene.linger.sleep_ns, RG_LINGER_MAX_NS);
    forget_counts(&scene);
    ask_together(&scene, 8, 10 * RG_NS_PER_US, RG_NS_PER_S);
    RG_CHECK(scene.longer <= 3 * 64);
    RG_CHECK(scene.answers > RG_NS_PER_S / (14 * RG_NS_PER_US));
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
        RG_TEST(test_a_sleep_gets_longer_where_it_finds_little),
        RG_TEST(test_a_sleep_that_finds_enough_gets_no_longer),
        RG_TEST(test_few_connections_have_no_longer_sleep),
        RG_TEST(test_a_longer_sleep_by_which_one_loses_is_hardly_ever_tried),
        RG_TEST(test_a_tenth_less_is_a_loss),
        RG_TEST(test_a_sleep_that_ends_many_exchanges_gets_no_longer),
        RG_TEST(test_the_longest_sleep_by_which_one_loses_is_hardly_ever_tried),
        RG_TEST(test_a_sleep_that_has_lasted_ends_a_row_of_losses),
        RG_TEST(test_many_bytes_are_enough),
        RG_TEST(test_a_sleep_that_gains_nothing_ends),
        RG_TEST(test_a_load_that_gets_slow_is_noticed),
        RG_TEST(test_a_short_pause_is_not_the_end),
        RG_TEST(test_few_connections_that_are_less_busy_never_linger),
        RG_TEST(test_a_loop_that_is_less_busy_lingers),
        RG_TEST(test_a_loop_that_is_less_busy_loses_little),
        RG_TEST(test_a_long_sleep_ends_with_the_load_that_it_was_for),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
