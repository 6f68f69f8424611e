/* Which requests read many ranges: every byte of each range is read by one of them, and has a place
 * of its own. */
#include "gcs/object/range_plan.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 2000
#define RANGES_MAX 40

static struct rg_range_plan plan;

static void plan_make(const struct rg_range *ranges, size_t count, uint64_t gap_max,
                      uint64_t request_size_max)
{
    plan = (struct rg_range_plan){.gap_max = gap_max, .request_size_max = request_size_max};
    RG_CHECK_EQ(rg_range_plan_make(&plan, ranges, count, sizeof(*ranges)), 0);
}

/* The next group is from `begin` to `end` and has so many ranges. */
static void group_check(struct rg_range_cursor *cursor, uint64_t begin, uint64_t end,
                        uint32_t count)
{
    struct rg_range_group group;
    RG_CHECK(rg_range_group_next(&plan, cursor, &group));
    RG_CHECK_EQ(group.begin, begin);
    RG_CHECK_EQ(group.end, end);
    RG_CHECK_EQ(group.count, count);
}

static void end_check(struct rg_range_cursor *cursor)
{
    struct rg_range_group group;
    RG_CHECK(!rg_range_group_next(&plan, cursor, &group));
    rg_range_plan_free(&plan);
}

static void test_neighbours_are_one_group(void)
{
    const struct rg_range ranges[] = {{200, 10, NULL}, {0, 10, NULL}, {20, 10, NULL},
                                      {5, 0, NULL},    {41, 9, NULL}, {25, 15, NULL}};
    struct rg_range_cursor cursor = {0};
    plan_make(ranges, RG_ARRAY_LEN(ranges), 10, 1000);
    RG_CHECK_EQ(plan.order_count, 5);
    group_check(&cursor, 0, 50, 4);
    group_check(&cursor, 200, 210, 1);
    end_check(&cursor);
}

static void test_a_group_is_no_larger_than_a_request(void)
{
    const struct rg_range ranges[] = {{0, 60, NULL}, {60, 40, NULL}, {100, 1, NULL}};
    struct rg_range_cursor cursor = {0};
    plan_make(ranges, RG_ARRAY_LEN(ranges), 10, 100);
    group_check(&cursor, 0, 100, 2);
    group_check(&cursor, 100, 101, 1);
    end_check(&cursor);
}

static void test_a_large_range_is_read_in_pieces(void)
{
    const struct rg_range ranges[] = {{7, 250, NULL}, {257, 5, NULL}};
    struct rg_range_cursor cursor = {0};
    plan_make(ranges, RG_ARRAY_LEN(ranges), 10, 100);
    group_check(&cursor, 7, 107, 1);
    group_check(&cursor, 107, 207, 1);
    group_check(&cursor, 207, 257, 1);
    group_check(&cursor, 257, 262, 1);
    struct rg_range_layout layout;
    rg_range_plan_lay_out(&plan, &layout, NULL);
    RG_CHECK_EQ(layout.group_count, 4);
    end_check(&cursor);
}

static void test_ranges_that_cannot_be(void)
{
    const struct rg_range range = {UINT64_MAX, 2, NULL};
    plan = (struct rg_range_plan){.request_size_max = 1};
    RG_CHECK_EQ(rg_range_plan_make(&plan, &range, 1, sizeof(range)), -EINVAL);
    rg_range_plan_free(&plan);
    const struct rg_range last = {UINT64_MAX - 2, 2, NULL};
    struct rg_range_cursor cursor = {0};
    plan_make(&last, 1, 0, 100);
    group_check(&cursor, UINT64_MAX - 2, UINT64_MAX, 1);
    end_check(&cursor);
}

/* Programs that were built with a smaller struct have no buffers. */
static void test_a_smaller_struct(void)
{
    const uint64_t items[] = {50, 10, 0, 10};
    plan = (struct rg_range_plan){.request_size_max = 100};
    RG_CHECK_EQ(rg_range_plan_make(&plan, items, 2, 2 * sizeof(*items)), 0);
    RG_CHECK_EQ(rg_range_at(&plan, 0)->offset, 0);
    RG_CHECK_EQ(rg_range_at(&plan, 1)->offset, 50);
    RG_CHECK(rg_range_at(&plan, 1)->buf == NULL);
    rg_range_plan_free(&plan);
}

/* More memory than there can be is a size that no arena has, and does not wrap around. */
static void test_a_layout_that_is_too_large(void)
{
    const struct rg_range ranges[] = {{0, UINT64_MAX, NULL}, {1, UINT64_MAX - 1, NULL}};
    struct rg_range_layout layout;
    plan_make(ranges, RG_ARRAY_LEN(ranges), 0, RG_MIB(8));
    rg_range_plan_lay_out(&plan, &layout, NULL);
    RG_CHECK(layout.size > UINT64_MAX / 2);
    RG_CHECK_EQ(layout.group_count, 2 * (UINT64_C(1) + UINT32_MAX));
    rg_range_plan_free(&plan);
}

static char buffer[1];

static void ranges_make(struct rg_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ranges[i].offset = rg_test_random_below(2000);
        ranges[i].length =
            rg_test_random_below(4) == 0 ? rg_test_random_below(500) : rg_test_random_below(20);
        ranges[i].buf = rg_test_random_below(3) == 0 ? buffer : NULL;
    }
}

/* Each byte of each range belongs to one group only of those that have the range. */
static void groups_check(void)
{
    uint64_t read[RANGES_MAX] = {0};
    struct rg_range_cursor cursor = {0};
    struct rg_range_group group;
    while (rg_range_group_next(&plan, &cursor, &group)) {
        uint64_t end = 0;
        for (uint32_t i = 0; i < group.count; i++) {
            const struct rg_range *range = rg_range_at(&plan, group.first + i);
            uint64_t from = RG_MAX(range->offset, group.begin);
            uint64_t to = RG_MIN(rg_range_end(range), group.end);
            RG_CHECK(from < to && (end == 0 || from <= end + plan.gap_max));
            read[plan.order[group.first + i]] += to - from;
            end = RG_MAX(end, to);
        }
        RG_CHECK_EQ(end, group.end);
    }
    for (uint32_t i = 0; i < plan.count; i++) {
        RG_CHECK_EQ(read[i], plan.ranges[i].length);
    }
}

/* What is leased lies in the lease behind the results, and shares bytes only with ranges that
 * overlap in the object, too. */
static void layout_check(void)
{
    struct rg_range_layout sized, placed;
    rg_range_plan_lay_out(&plan, &sized, NULL);
    struct rg_range_result *results = calloc(1, (size_t)sized.size);
    RG_CHECK(results != NULL);
    rg_range_plan_lay_out(&plan, &placed, results);
    RG_CHECK(sized.size == placed.size && sized.group_count == placed.group_count);
    const uint8_t *begin = (const uint8_t *)(results + plan.count);
    const uint8_t *end = (const uint8_t *)results + sized.size;
    for (uint32_t i = 0; i < plan.order_count; i++) {
        const struct rg_range *range = rg_range_at(&plan, i);
        const uint8_t *data = results[plan.order[i]].data;
        RG_CHECK((data == NULL) == (range->buf != NULL));
        if (data == NULL) {
            continue;
        }
        RG_CHECK(data >= begin && data + range->length <= end);
        for (uint32_t j = 0; j < i; j++) {
            const struct rg_range *other = rg_range_at(&plan, j);
            const uint8_t *other_data = results[plan.order[j]].data;
            bool overlap = other_data != NULL && data < other_data + other->length &&
                           other_data < data + range->length;
            RG_CHECK(!overlap || (uint64_t)(data - other_data) == range->offset - other->offset);
        }
    }
    free(results);
}

static void test_any_ranges(void)
{
    for (unsigned run = 0; run < RUNS; run++) {
        struct rg_range ranges[RANGES_MAX];
        size_t count = 1 + rg_test_random_below(RANGES_MAX);
        ranges_make(ranges, count);
        plan_make(ranges, count, rg_test_random_below(40), 1 + rg_test_random_below(300));
        groups_check();
        layout_check();
        rg_range_plan_free(&plan);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_neighbours_are_one_group),
        RG_TEST(test_a_group_is_no_larger_than_a_request),
        RG_TEST(test_a_large_range_is_read_in_pieces),
        RG_TEST(test_ranges_that_cannot_be),
        RG_TEST(test_a_smaller_struct),
        RG_TEST(test_a_layout_that_is_too_large),
        RG_TEST(test_any_ranges),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
