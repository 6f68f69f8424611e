/* Addresses that take turns, are passed over, and have all failed: by the clock of the test. */
#include "http/candidates.h"

#include "tests/support/test.h"

#include <arpa/inet.h>

#define START_NS (1000 * RG_NS_PER_S)
#define PENALTY_NS RG_CANDIDATES_PENALTY_NS

static const struct rg_candidate_failure passing = {0}, final = {.final = true},
                                         unreachable = {.unreachable = true};

/* "4.1" is 127.0.0.1, "6.1" is ::1, and so on. */
static struct rg_addresses *addresses_of(const char *text)
{
    struct rg_addresses *addresses = calloc(1, sizeof(*addresses) + 8 * sizeof(struct rg_address));
    atomic_init(&addresses->ref_count, 1);
    for (; *text != '\0'; text += strcspn(text, " "), text += strspn(text, " ")) {
        struct rg_address *address = &addresses->list[addresses->count++];
        char host[32];
        bool is_v4 = *text == '4';
        snprintf(host, sizeof(host), "%s%c", is_v4 ? "127.0.0." : "::", text[2]);
        struct sockaddr_in *v4 = (struct sockaddr_in *)&address->storage;
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->storage;
        address->storage.ss_family = is_v4 ? AF_INET : AF_INET6;
        RG_CHECK_EQ(inet_pton(address->storage.ss_family, host,
                              is_v4 ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr),
                    1);
        address->size = is_v4 ? sizeof(*v4) : sizeof(*v6);
    }
    return addresses;
}

static struct rg_candidates candidates_of(const char *text)
{
    struct rg_candidates candidates = {0};
    RG_CHECK_EQ(rg_candidates_set(&candidates, addresses_of(text), NULL), 0);
    return candidates;
}

static struct rg_candidate_use begin(struct rg_candidates *candidates, uint64_t now_ns)
{
    struct rg_candidate_use use;
    rg_candidates_begin(candidates, rg_candidates_choose(candidates, now_ns), &use);
    return use;
}

static void fail(struct rg_candidates *candidates, struct rg_candidate_use *use,
                 const struct rg_candidate_failure *failure, uint64_t now_ns)
{
    rg_candidates_failed(candidates, use, failure, now_ns);
    rg_candidate_release(use);
}

static void succeed(struct rg_candidates *candidates, struct rg_candidate_use *use)
{
    rg_candidates_succeeded(candidates, use);
    rg_candidate_release(use);
}

static void test_addresses_take_turns(void)
{
    struct rg_candidates candidates = candidates_of("4.1 4.2 4.3");
    for (uint32_t i = 0; i < 7; i++) {
        RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS), i % 3);
    }
    rg_candidates_fini(&candidates);
    rg_candidates_fini(&candidates);
}

static void test_one_that_failed_is_passed_over_for_a_while(void)
{
    struct rg_candidates candidates = candidates_of("4.1 4.2 4.3");
    struct rg_candidate_use use = begin(&candidates, START_NS);
    fail(&candidates, &use, &passing, START_NS);
    for (uint32_t i = 0; i < 4; i++) {
        RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS + PENALTY_NS - 1), 1 + i % 2);
    }
    RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS + PENALTY_NS), 0);
    rg_candidates_fini(&candidates);
}

static void test_where_all_are_passed_over_the_next_to_be_free_is_taken(void)
{
    struct rg_candidates candidates = candidates_of("4.1 4.2");
    for (uint64_t i = 0; i < 2; i++) {
        struct rg_candidate_use use = begin(&candidates, START_NS + i);
        RG_CHECK(rg_candidates_free_ns(&candidates) <= START_NS + i);
        fail(&candidates, &use, &passing, START_NS + i);
    }
    RG_CHECK(rg_candidates_free_ns(&candidates) == START_NS + PENALTY_NS);
    RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS + 2), 0);
    rg_candidates_fini(&candidates);
}

static void test_all_have_failed_when_the_last_attempt_has(void)
{
    struct rg_candidates candidates = candidates_of("4.1 4.2");
    struct rg_candidate_use uses[4];
    for (size_t i = 0; i < 4; i++) {
        uses[i] = begin(&candidates, START_NS);
    }
    for (size_t i = 0; i < 4; i++) {
        RG_CHECK(!rg_candidates_lost(&candidates, START_NS));
        fail(&candidates, &uses[i], &passing, START_NS);
    }
    RG_CHECK(rg_candidates_lost(&candidates, START_NS));
    /* Who waits from now on hears of one more failure, as long as the others are passed over. */
    rg_candidates_round_end(&candidates);
    struct rg_candidate_use use = begin(&candidates, START_NS + 1);
    RG_CHECK(!rg_candidates_lost(&candidates, START_NS + 1));
    fail(&candidates, &use, &passing, START_NS + 1);
    RG_CHECK(rg_candidates_lost(&candidates, START_NS + 1));
    /* And after that each has another chance. */
    rg_candidates_round_end(&candidates);
    use = begin(&candidates, START_NS + 2 * PENALTY_NS);
    fail(&candidates, &use, &passing, START_NS + 2 * PENALTY_NS);
    RG_CHECK(!rg_candidates_lost(&candidates, START_NS + 2 * PENALTY_NS));
    rg_candidates_fini(&candidates);
}

/* Each takes longer to fail than the penalty of the other one lasts. */
static void test_addresses_that_fail_in_turn_have_all_failed(void)
{
    struct rg_candidates candidates = candidates_of("4.1 4.2");
    uint64_t now_ns = START_NS;
    for (uint32_t i = 0; i < 2; i++, now_ns += 2 * PENALTY_NS) {
        struct rg_candidate_use use = begin(&candidates, now_ns);
        RG_CHECK_EQ(use.index, i);
        fail(&candidates, &use, &passing, now_ns);
    }
    RG_CHECK(rg_candidates_lost(&candidates, now_ns));
    rg_candidates_fini(&candidates);
}

/* One failed while there was a connection, which has been lost since. Of those that are begun now
 * one that fails does not speak for the others. */
static void test_those_begun_together_are_waited_for_whatever_failed_before(void)
{
    for (int way = 0; way < 4; way++) {
        bool good = way % 2 != 0, is_told = way / 2 != 0;
        struct rg_candidates candidates = candidates_of("4.1");
        struct rg_candidate_use open = begin(&candidates, START_NS), uses[3];
        struct rg_candidate_use bad = begin(&candidates, START_NS);
        succeed(&candidates, &open);
        fail(&candidates, &bad, &final, START_NS);
        RG_CHECK(!rg_candidates_fresh(&candidates));
        if (is_told) {
            /* The pool says that the last one was lost. */
            rg_candidates_round_end(&candidates);
            RG_CHECK(rg_candidates_fresh(&candidates));
        }
        for (size_t i = 0; i < 3; i++) {
            uses[i] = begin(&candidates, START_NS);
        }
        for (size_t i = 0; i < 2; i++) {
            fail(&candidates, &uses[i], &final, START_NS);
            RG_CHECK(!rg_candidates_lost(&candidates, START_NS));
        }
        /* What is begun meanwhile is not waited for, or there would be no end. */
        struct rg_candidate_use late = begin(&candidates, START_NS);
        if (good) {
            succeed(&candidates, &uses[2]);
            fail(&candidates, &late, &final, START_NS);
            bad = begin(&candidates, START_NS);
            RG_CHECK(!rg_candidates_lost(&candidates, START_NS));
            fail(&candidates, &bad, &final, START_NS);
            RG_CHECK(rg_candidates_lost(&candidates, START_NS));
        } else {
            fail(&candidates, &uses[2], &final, START_NS);
            RG_CHECK(rg_candidates_lost(&candidates, START_NS));
            rg_candidates_round_end(&candidates);
            fail(&candidates, &late, &final, START_NS);
        }
        rg_candidates_fini(&candidates);
    }
}

static void test_a_success_gives_every_address_another_chance(void)
{
    struct rg_candidates candidates = candidates_of("4.1 4.2");
    struct rg_candidate_use bad = begin(&candidates, START_NS);
    struct rg_candidate_use good = begin(&candidates, START_NS);
    fail(&candidates, &bad, &passing, START_NS);
    succeed(&candidates, &good);
    RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS), 1);
    uint64_t later_ns = START_NS + 2 * PENALTY_NS;
    rg_candidates_begin(&candidates, 1, &bad);
    fail(&candidates, &bad, &passing, later_ns);
    RG_CHECK(!rg_candidates_lost(&candidates, later_ns));
    RG_CHECK_EQ(rg_candidates_choose(&candidates, later_ns), 0);
    rg_candidates_fini(&candidates);
}

static void test_a_slow_address_has_not_failed(void)
{
    struct rg_candidates candidates = candidates_of("4.1");
    struct rg_candidate_use slow = begin(&candidates, START_NS);
    rg_candidates_slow(&candidates, &slow, START_NS);
    RG_CHECK(rg_candidates_free_ns(&candidates) > START_NS);
    RG_CHECK(rg_candidates_hopeful(&candidates));
    RG_CHECK(!rg_candidates_lost(&candidates, START_NS));
    struct rg_candidate_use other = begin(&candidates, START_NS);
    fail(&candidates, &other, &passing, START_NS);
    RG_CHECK(!rg_candidates_hopeful(&candidates));
    RG_CHECK(!rg_candidates_lost(&candidates, START_NS));
    /* Begun after the first failure, it is not waited for. */
    other = begin(&candidates, START_NS);
    fail(&candidates, &slow, &passing, START_NS);
    RG_CHECK(rg_candidates_lost(&candidates, START_NS));
    succeed(&candidates, &other);
    RG_CHECK_EQ(rg_candidates_free_ns(&candidates), 0);
    rg_candidates_fini(&candidates);
}

static void test_a_useless_connection_passes_its_address_over_where_there_is_another(void)
{
    for (int count = 1; count <= 2; count++) {
        struct rg_candidates candidates = candidates_of(count == 1 ? "4.1" : "4.1 4.2");
        struct rg_candidate_use use = begin(&candidates, START_NS);
        rg_candidates_succeeded(&candidates, &use);
        rg_candidates_useless(&candidates, &use, START_NS);
        rg_candidate_release(&use);
        candidates.next = 0;
        RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS), count == 1 ? 0 : 1);
        RG_CHECK_EQ(rg_candidates_free_ns(&candidates), 0);
        if (count == 2) {
            /* It did not fail, so who waits is not told before it has been tried. */
            rg_candidates_begin(&candidates, 1, &use);
            fail(&candidates, &use, &final, START_NS);
            RG_CHECK(!rg_candidates_lost(&candidates, START_NS));
            RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS), 0);
        }
        rg_candidates_fini(&candidates);
    }
}

static void test_which_failures_are_final_together(void)
{
    static const struct {
        const char *addresses;
        const struct rg_candidate_failure *failures[4];
        bool final;
    } rows[] = {
        {"4.1", {&final}, true},
        {"4.1", {&passing}, false},
        {"4.1 4.2", {&final, &final}, true},
        {"4.1 4.2", {&final, &passing}, false},
        {"4.1 4.2", {&unreachable, &final}, false},
        {"4.1 6.1", {&final, &unreachable}, true},
        {"6.1 4.1", {&unreachable, &final}, true},
        {"6.1 4.1", {&passing, &final}, false},
        {"6.1 4.1 6.2", {&unreachable, &final, &final}, false},
        {"6.1 4.1", {&unreachable, &unreachable}, false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_candidates candidates = candidates_of(rows[i].addresses);
        for (size_t n = 0; n < candidates.addresses->count; n++) {
            struct rg_candidate_use use = begin(&candidates, START_NS);
            fail(&candidates, &use, rows[i].failures[n], START_NS);
        }
        RG_CHECK(rg_candidates_lost(&candidates, START_NS));
        if (rg_candidates_final(&candidates) != rows[i].final) {
            rg_test_fail(__FILE__, __LINE__, "row %zu", i);
        }
        rg_candidates_fini(&candidates);
    }
}

static void test_what_is_known_survives_a_new_look_up(void)
{
    struct rg_candidates candidates = candidates_of("4.1 4.2");
    struct rg_candidate_use bad = begin(&candidates, START_NS), out = begin(&candidates, START_NS);
    fail(&candidates, &bad, &passing, START_NS);
    RG_CHECK_EQ(rg_candidates_set(&candidates, addresses_of("4.3 4.2 4.1"), NULL), 0);
    RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS), 0);
    RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS), 1);
    RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS), 0);
    /* A connection that was begun to the old list counts in the new one. */
    fail(&candidates, &out, &passing, START_NS);
    RG_CHECK(candidates.list[1].failed);
    /* And one whose address is gone, or was, does not matter. */
    out = begin(&candidates, START_NS);
    RG_CHECK_EQ(out.index, 0);
    RG_CHECK_EQ(rg_candidates_set(&candidates, addresses_of("4.5"), NULL), 0);
    rg_candidates_slow(&candidates, &out, START_NS);
    rg_candidates_useless(&candidates, &out, START_NS);
    RG_CHECK_EQ(rg_candidates_set(&candidates, addresses_of("4.3"), NULL), 0);
    fail(&candidates, &out, &passing, START_NS);
    RG_CHECK(rg_candidates_lost(&candidates, START_NS));
    rg_candidates_fini(&candidates);
}

static void test_addresses_of_another_family_than_the_local_one_are_left_out(void)
{
    struct rg_candidates candidates = {0};
    struct rg_local local = {.address_size = sizeof(struct sockaddr_in),
                             .address.ss_family = AF_INET};
    RG_CHECK_EQ(rg_candidates_set(&candidates, addresses_of("6.1 4.1"), &local), 0);
    for (int i = 0; i < 3; i++) {
        RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS), 1);
    }
    struct rg_candidate_use use;
    rg_candidates_begin(&candidates, 1, &use);
    fail(&candidates, &use, &final, START_NS);
    RG_CHECK_EQ(rg_candidates_choose(&candidates, START_NS), 1);
    RG_CHECK(rg_candidates_lost(&candidates, START_NS));
    RG_CHECK(rg_candidates_final(&candidates));
    RG_CHECK(!rg_candidates_hopeful(&candidates));
    rg_candidates_fini(&candidates);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_addresses_take_turns),
        RG_TEST(test_one_that_failed_is_passed_over_for_a_while),
        RG_TEST(test_where_all_are_passed_over_the_next_to_be_free_is_taken),
        RG_TEST(test_all_have_failed_when_the_last_attempt_has),
        RG_TEST(test_addresses_that_fail_in_turn_have_all_failed),
        RG_TEST(test_those_begun_together_are_waited_for_whatever_failed_before),
        RG_TEST(test_a_success_gives_every_address_another_chance),
        RG_TEST(test_a_slow_address_has_not_failed),
        RG_TEST(test_a_useless_connection_passes_its_address_over_where_there_is_another),
        RG_TEST(test_which_failures_are_final_together),
        RG_TEST(test_what_is_known_survives_a_new_look_up),
        RG_TEST(test_addresses_of_another_family_than_the_local_one_are_left_out),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
