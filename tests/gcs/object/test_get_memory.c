/* Where the bytes of a get go: the caller's own buffer, and the memory of the loops, which may be
 * too small for an object or used up by others. */
#include "tests/gcs/object/get_case.h"

static void test_own_buffer(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    for (unsigned tls = 0; tls < 2; tls++) {
        struct rg_test_client c = {.scripts = scripts, .script_count = 1, .tls = tls == 1};
        rg_test_client_open(&c);
        uint8_t *buf = malloc(SIZE);
        struct rg_completion exact = get_one(&c, &(struct rg_get){.buf = buf, .buf_size = SIZE});
        RG_CHECK_STATUS(&exact, OK);
        RG_CHECK(exact.data == buf);
        RG_CHECK(exact.lease == NULL);
        RG_CHECK_BYTES(&exact, 0, SIZE);
        struct rg_completion small =
            get_one(&c, &(struct rg_get){.buf = buf, .buf_size = SIZE - 1});
        RG_CHECK_STATUS(&small, TOO_LARGE);
        RG_CHECK_EQ(small.size, 0);
        rg_lease_release(small.lease);
        struct rg_completion part =
            get_one(&c, &(struct rg_get){.buf = buf, .buf_size = 100, .offset = 50, .length = 100});
        RG_CHECK_STATUS(&part, OK);
        RG_CHECK_BYTES(&part, 50, 100);
        rg_test_client_close(&c);
        free(buf);
    }
}

static void test_own_buffer_and_a_body_of_unknown_length(void)
{
    const struct rg_step script[] = {RG_READ,
                                     RG_SEND("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                             "5\r\nabcde\r\n0\r\n\r\n"),
                                     RG_AGAIN};
    char buf[5];
    struct rg_completion done =
        try_script(script, &(struct rg_get){.buf = buf, .buf_size = sizeof(buf)}, RG_STATUS_OK, 1);
    RG_CHECK_MEM(buf, done.size, "abcde", 5);
    (void)try_script(script, &(struct rg_get){.buf = buf, .buf_size = 4}, RG_STATUS_TOO_LARGE, 8);
}

static void test_object_larger_than_all_memory(void)
{
    const struct rg_step script[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\nabc"), RG_HOLD};
    const struct rg_step endless[] = {RG_READ,
                                      RG_SEND("HTTP/1.1 200 OK\r\n\r\n"),
                                      {.kind = RG_STEP_FLOOD, .text = "0123456789abcdef"}};
    const struct rg_step *const scripts[] = {script, endless};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 2, .memory_max = RG_LOOP_MEMORY_MIN};
    rg_test_client_open(&c);
    for (unsigned i = 0; i < 2; i++) {
        struct rg_completion done = get_one(&c, &(struct rg_get){0});
        RG_CHECK_STATUS(&done, TOO_LARGE);
        RG_CHECK_EQ(done.attempts, 1);
        rg_lease_release(done.lease);
    }
    rg_test_client_close(&c);
}

/* As large as it may be: the head must not lie in its way. */
static void test_object_as_large_as_all_memory(void)
{
    const uint64_t size = RG_LOOP_MEMORY_MIN - 4096;
    const struct rg_step script[] = {RG_READ, OBJECT(size), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    for (unsigned tls = 0; tls < 2; tls++) {
        struct rg_test_client c = {.scripts = scripts,
                                   .script_count = 1,
                                   .memory_max = RG_LOOP_MEMORY_MIN,
                                   .tls = tls == 1};
        rg_test_client_open(&c);
        for (unsigned i = 0; i < 3; i++) {
            struct rg_completion done = get_one(&c, &(struct rg_get){0});
            RG_CHECK_STATUS(&done, OK);
            RG_CHECK_BYTES(&done, 0, size);
            RG_CHECK_EQ(done.attempts, 1);
            rg_lease_release(done.lease);
        }
        rg_test_client_close(&c);
    }
}

/* The memory of all who wait is worth more than one body: those who are served release, and the
 * others go on. */
static void test_memory_used_up_by_leases(void)
{
    const uint64_t size = RG_LOOP_MEMORY_MIN / 4 - 4096;
    enum { COUNT = 24, CONNECTIONS = 8 };
    const uint64_t stall_ns = 4 * RG_NS_PER_S;
    const struct rg_step script[] = {RG_READ, OBJECT(size), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    for (unsigned tls = 0; tls < 2; tls++) {
        struct rg_test_client c = {
            .scripts = scripts,
            .script_count = 1,
            .memory_max = RG_LOOP_MEMORY_MIN,
            .tls = tls == 1,
            .options = {.connections_max = CONNECTIONS, .stall_timeout_ns = stall_ns},
        };
        rg_test_client_open(&c);
        for (unsigned i = 0; i < COUNT; i++) {
            rg_test_get(&c, &(struct rg_get){.user_data = i});
        }
        struct rg_completion done[COUNT];
        unsigned held = 0, seen = 0;
        /* Until there has been nothing for longer than the stall time-out: that nobody takes the
         * bytes is not the server's fault. */
        while (rg_cq_wait(c.cq, &done[held], 1, 1, rg_now_ns() + stall_ns + RG_NS_PER_S) == 1) {
            held++;
        }
        RG_CHECK(held > 0 && held < COUNT);
        for (unsigned i = 0; i < COUNT; i++) {
            done[i] = i < held ? done[i] : rg_test_take(&c);
            RG_CHECK_STATUS(&done[i], OK);
            RG_CHECK_EQ(done[i].attempts, 1);
            RG_CHECK_BYTES(&done[i], 0, size);
            seen |= 1u << done[i].user_data;
            rg_lease_release(done[i].lease);
        }
        RG_CHECK_EQ(seen, (1u << COUNT) - 1);
        RG_CHECK(rg_test_stats(&c).lease_waits > 0);
        rg_test_client_close(&c);
    }
}

/* Four bodies fill the memory, and all of them break off. The rest of each needs a head to be read
 * first. The first get only lets the client know how large the bodies are. */
static void test_memory_used_up_by_broken_bodies(void)
{
    enum { COUNT = 4, PART = 500000 };
    const uint64_t size = RG_LOOP_MEMORY_MIN / COUNT - RG_KIB(64);
    const char *fields = rg_test_object_fields(size, GENERATION);
    const struct rg_step whole = {.kind = RG_STEP_SEND_OBJECT, .size = size, .text = fields};
    struct rg_step part = whole;
    part.body_max = PART + 1;
    const struct rg_step first[] = {RG_READ, whole, RG_READ, part, RG_SLEEP(100), RG_CUT};
    const struct rg_step broken[] = {RG_READ, part, RG_SLEEP(100), RG_CUT};
    const struct rg_step good[] = {RG_READ, whole, RG_AGAIN};
    const struct rg_step *const scripts[] = {first, broken, broken, broken, good};
    struct rg_test_client c = {.scripts = scripts,
                               .script_count = RG_ARRAY_LEN(scripts),
                               .memory_max = RG_LOOP_MEMORY_MIN,
                               .options = {.connections_max = COUNT}};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, &(struct rg_get){0});
    rg_lease_release(done.lease);
    for (unsigned i = 0; i < COUNT; i++) {
        rg_test_get(&c, &(struct rg_get){.user_data = i});
    }
    unsigned seen = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        done = rg_test_take(&c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_BYTES(&done, 0, size);
        RG_CHECK_EQ(done.attempts, 2);
        seen |= 1u << done.user_data;
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(seen, (1u << COUNT) - 1);
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_own_buffer),
        RG_TEST(test_own_buffer_and_a_body_of_unknown_length),
        RG_TEST(test_object_larger_than_all_memory),
        RG_TEST(test_object_as_large_as_all_memory),
        RG_TEST(test_memory_used_up_by_leases),
        RG_TEST(test_memory_used_up_by_broken_bodies),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
