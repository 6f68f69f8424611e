/* The division of a host among its ranks. */
#include "runtime/share.h"

#include "tests/support/test.h"

#define RANKS_MAX 64
#define NODES_MAX 8

static struct rg_share shares[RANKS_MAX];

static void divide(uint32_t node_count, const uint32_t *cores, uint32_t rank_count,
                   const uint32_t *wishes)
{
    uint32_t none[RANKS_MAX];
    for (uint32_t i = 0; i < RANKS_MAX; i++) {
        none[i] = RG_SHARE_NO_NODE;
    }
    struct rg_share_host host = {node_count, cores, rank_count, wishes != NULL ? wishes : none};
    RG_CHECK_EQ(rg_share_divide(&host, shares), 0);
}

static void check_share(uint32_t rank, uint32_t node, uint32_t first, uint32_t count)
{
    RG_CHECK_EQ(shares[rank].node, node);
    RG_CHECK_EQ(shares[rank].first, first);
    RG_CHECK_EQ(shares[rank].count, count);
}

static void test_neighbours_come_to_one_node(void)
{
    static const uint32_t cores[] = {52, 52};
    divide(2, cores, 8, NULL);
    for (uint32_t i = 0; i < 8; i++) {
        check_share(i, i / 4, i % 4 * 13, 13);
    }
}

static void test_a_rank_is_on_the_node_of_its_gpu(void)
{
    static const uint32_t cores[] = {8, 8}, wishes[] = {1, 0, 1, 0};
    divide(2, cores, 4, wishes);
    check_share(0, 1, 0, 4);
    check_share(1, 0, 0, 4);
    check_share(2, 1, 4, 4);
    check_share(3, 0, 4, 4);
}

static void test_the_others_go_where_there_is_room(void)
{
    static const uint32_t cores[] = {4, 12}, wishes[] = {RG_SHARE_NO_NODE, 1, RG_SHARE_NO_NODE, 7};
    divide(2, cores, 4, wishes);
    check_share(0, 0, 0, 4);
    check_share(1, 1, 0, 4);
    check_share(2, 1, 4, 4);
    check_share(3, 1, 8, 4);
}

static void test_more_ranks_than_cores_of_the_wished_node_spill_over(void)
{
    static const uint32_t cores[] = {2, 3}, wishes[] = {0, 0, 0, 0, 0};
    divide(2, cores, 5, wishes);
    check_share(0, 0, 0, 1);
    check_share(1, 0, 1, 1);
    check_share(2, 1, 0, 1);
    check_share(4, 1, 2, 1);
}

static void test_more_ranks_than_cores_share_them(void)
{
    static const uint32_t cores[] = {1, 1};
    divide(2, cores, 5, NULL);
    for (uint32_t i = 0; i < 5; i++) {
        check_share(i, i < 3 ? 0 : 1, 0, 1);
    }
}

static bool overlap(const struct rg_share *a, const struct rg_share *b)
{
    return a->node == b->node && a->first < b->first + b->count && b->first < a->first + a->count;
}

static void check_random_host(void)
{
    uint32_t cores[NODES_MAX], wishes[RANKS_MAX], total = 0, used = 0;
    uint32_t node_count = 1 + (uint32_t)rg_test_random_below(NODES_MAX);
    uint32_t rank_count = 1 + (uint32_t)rg_test_random_below(RANKS_MAX);
    for (uint32_t i = 0; i < node_count; i++) {
        cores[i] = (uint32_t)rg_test_random_below(20);
        total += cores[i];
    }
    cores[0] += total == 0;
    total += total == 0;
    for (uint32_t i = 0; i < rank_count; i++) {
        wishes[i] = rg_test_random_below(2) == 0 ? RG_SHARE_NO_NODE
                                                 : (uint32_t)rg_test_random_below(node_count + 1);
    }
    divide(node_count, cores, rank_count, wishes);
    for (uint32_t i = 0; i < rank_count; i++) {
        RG_CHECK(shares[i].count > 0);
        RG_CHECK(shares[i].first + shares[i].count <= cores[shares[i].node]);
        used += shares[i].count;
        for (uint32_t j = 0; total >= rank_count && j < i; j++) {
            RG_CHECK(!overlap(&shares[i], &shares[j]));
        }
    }
    RG_CHECK(total < rank_count || used <= total);
}

static void test_random_hosts_are_divided_without_overlap(void)
{
    for (int i = 0; i < 20000; i++) {
        check_random_host();
    }
}

static void test_a_set_is_the_rank_s_own_when_all_would_fit(void)
{
    RG_CHECK(rg_share_is_own(26, 208, 8));
    RG_CHECK(rg_share_is_own(104, 208, 2));
    RG_CHECK(rg_share_is_own(30, 208, 8));   /* 26 each, unequal */
    RG_CHECK(!rg_share_is_own(208, 208, 8)); /* nobody divided them */
    RG_CHECK(!rg_share_is_own(104, 208, 8)); /* a node, with three others */
    RG_CHECK(!rg_share_is_own(208, 208, 1));
    RG_CHECK(!rg_share_is_own(1, 1, 2));
}

static void test_loops_of_all_are_within_bounds(void)
{
    static const uint32_t cases[][4] = {
        /* cores, ranks, workers, loops */
        {104, 1, 0, 8}, {104, 1, 4, 2}, {104, 1, 12, 1}, {13, 8, 0, 2},
        {13, 8, 12, 1}, {6, 16, 0, 1},  {1, 8, 0, 1},    {1, 8, 12, 1},
        {26, 4, 0, 4},  {26, 4, 2, 2},  {4, 1000, 0, 1},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        RG_CHECK_EQ(rg_share_loop_count(cases[i][0], cases[i][1], cases[i][2]), cases[i][3]);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_neighbours_come_to_one_node),
        RG_TEST(test_a_rank_is_on_the_node_of_its_gpu),
        RG_TEST(test_the_others_go_where_there_is_room),
        RG_TEST(test_more_ranks_than_cores_of_the_wished_node_spill_over),
        RG_TEST(test_more_ranks_than_cores_share_them),
        RG_TEST(test_random_hosts_are_divided_without_overlap),
        RG_TEST(test_a_set_is_the_rank_s_own_when_all_would_fit),
        RG_TEST(test_loops_of_all_are_within_bounds),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
