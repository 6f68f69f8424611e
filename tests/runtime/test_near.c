/* Which loops are near a CPU. */
#include "runtime/near.h"

#include "tests/support/test.h"

#define COUNT_MAX 16
static struct rg_placement places[COUNT_MAX];
static struct rg_topology *topology;

static void machine_open(const char *synthetic, const char *cpus, const char *nic_nodes)
{
    struct rg_topology_model model = {.synthetic = synthetic, .cpus = cpus, .nic_nodes = nic_nodes};
    RG_CHECK_EQ(rg_topology_open(&topology, NULL, &model), 0);
}

static struct rg_near *plan(enum rg_numa_policy policy, uint32_t count)
{
    struct rg_near *near;
    RG_CHECK_EQ(rg_topology_plan(topology, policy, count, places, COUNT_MAX), count);
    rg_near_sort(places, count);
    RG_CHECK_EQ(rg_near_create(&near, topology, places, count), 0);
    return near;
}

static void test_loops_of_one_node_are_equally_near(void)
{
    machine_open("package:2 numa:1 core:8 pu:1", NULL, NULL);
    RG_CHECK(plan(RG_NUMA_COMPACT, 8) == NULL);
    RG_CHECK(plan(RG_NUMA_NONE, 8) == NULL);
    rg_topology_close(topology);
}

static void test_places_are_sorted_by_node_in_the_order_they_had(void)
{
    static const struct rg_placement mixed[] = {{-1, -1}, {9, 1}, {0, 0}, {10, 1}, {1, 0}, {11, 1}};
    static const int cpus[] = {9, 10, 11, 0, 1, -1};
    memcpy(places, mixed, sizeof(mixed));
    rg_near_sort(places, RG_ARRAY_LEN(mixed));
    for (size_t i = 0; i < RG_ARRAY_LEN(cpus); i++) {
        RG_CHECK_EQ(places[i].cpu, cpus[i]);
    }
    rg_near_sort(places, 0);
}

static void test_each_cpu_has_the_loops_of_its_node(void)
{
    machine_open("package:2 numa:1 core:8 pu:1", NULL, NULL);
    struct rg_near *near = plan(RG_NUMA_SPREAD, 5);
    RG_CHECK(near != NULL);
    for (int cpu = 0; cpu < 16; cpu++) {
        struct rg_near_loops loops = rg_near_cpu(near, cpu);
        RG_CHECK_EQ(loops.own.first, cpu < 8 ? 0 : 3);
        RG_CHECK_EQ(rg_near_count(&loops), cpu < 8 ? 3 : 2);
        for (uint32_t turn = 0; turn < 9; turn++) {
            RG_CHECK_EQ(places[rg_near_turn(&loops, turn)].node, cpu / 8);
        }
    }
    free(near);
    rg_topology_close(topology);
}

/* More loops than CPUs: those that are left have no place. */
static void test_loops_of_one_node_and_of_none_are_equally_near(void)
{
    machine_open("package:1 numa:1 core:2 pu:1", NULL, NULL);
    RG_CHECK(plan(RG_NUMA_AUTO, 8) == NULL);
    RG_CHECK_EQ(places[0].node, 0);
    RG_CHECK_EQ(places[7].node, -1);
    rg_topology_close(topology);
}

static void test_loops_without_a_node_are_near_to_every_caller(void)
{
    machine_open("package:2 numa:1 core:2 pu:1", NULL, NULL);
    struct rg_near *near = plan(RG_NUMA_AUTO, 7);
    RG_CHECK(near != NULL);
    for (int cpu = -1; cpu <= 4; cpu++) {
        struct rg_near_loops loops = rg_near_cpu(near, cpu);
        bool is_known = cpu >= 0 && cpu < 4;
        uint32_t count = is_known ? 2 + 3 : 7, seen = 0;
        RG_CHECK_EQ(rg_near_count(&loops), count);
        for (uint32_t turn = 0; turn < count; turn++) {
            uint32_t place = rg_near_turn(&loops, turn);
            RG_CHECK(!is_known || places[place].node == -1 || places[place].node == cpu / 2);
            seen |= 1u << place;
        }
        RG_CHECK_EQ(__builtin_popcount(seen), count);
    }
    free(near);
    rg_topology_close(topology);
}

static void test_who_is_near_to_none_may_take_all(void)
{
    machine_open("package:3 numa:1 core:4 pu:1", NULL, NULL);
    struct rg_near *near = plan(RG_NUMA_SPREAD, 2);
    static const int nowhere[] = {-1, 8, 11, 12, 100000};
    for (size_t i = 0; i < RG_ARRAY_LEN(nowhere); i++) {
        struct rg_near_loops loops = rg_near_cpu(near, nowhere[i]);
        RG_CHECK_EQ(loops.own.first, 0);
        RG_CHECK_EQ(rg_near_count(&loops), 2);
    }
    struct rg_near_loops mine = rg_near_caller(near);
    RG_CHECK(mine.own.count > 0 && mine.own.first + mine.own.count <= 2);
    free(near);
    rg_topology_close(topology);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_loops_of_one_node_are_equally_near),
        RG_TEST(test_places_are_sorted_by_node_in_the_order_they_had),
        RG_TEST(test_each_cpu_has_the_loops_of_its_node),
        RG_TEST(test_loops_of_one_node_and_of_none_are_equally_near),
        RG_TEST(test_loops_without_a_node_are_near_to_every_caller),
        RG_TEST(test_who_is_near_to_none_may_take_all),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
