/* What loops tell: who is seen, who is not any more, and what is added up. */
#include "gcs/host/told.h"

#include "tests/gcs/host/region_case.h"
#include "tests/support/test.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct found {
    uint32_t count;
    struct rg_told last;
};

static void note_found(void *context, const struct rg_told *told)
{
    struct found *found = context;
    found->count++;
    found->last = *told;
}

static struct found look(struct region_case *c)
{
    struct found found = {0};
    struct rg_host_region region;
    RG_CHECK_EQ(rg_host_region_find(&region, c->folder, c->why, sizeof(c->why)), 0);
    RG_CHECK_EQ(rg_told_read(&region, note_found, &found), 0);
    rg_host_region_close(&region);
    return found;
}

static struct rg_told told_of(uint64_t groups)
{
    return (struct rg_told){.told_ns = rg_now_ns(), .groups = groups, .pid = 7, .source = "gs://b"};
}

static int64_t blocks_of(const struct region_case *c)
{
    struct stat status;
    RG_CHECK_EQ(stat(c->path, &status), 0);
    return status.st_blocks;
}

static void test_what_is_told_is_seen_until_it_is_closed(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_told_place one = {0}, two = {0};
    struct rg_told told = told_of(1);
    rg_told_write(&one, c.folder, &told);
    int64_t blocks = blocks_of(&c);
    told.groups = 2;
    rg_told_write(&two, c.folder, &told);
    RG_CHECK(two.number != one.number);
    struct found found = look(&c);
    RG_CHECK_EQ(found.count, 2);
    RG_CHECK_EQ(found.last.groups, 2);
    RG_CHECK_STR(found.last.source, "gs://b");
    rg_told_close(&two);
    rg_told_close(&two);
    RG_CHECK_EQ(look(&c).last.groups, 1);
    RG_CHECK(blocks_of(&c) <= blocks);
    rg_told_close(&one);
    RG_CHECK_EQ(look(&c).count, 0);
    region_case_close(&c);
}

static void test_one_that_is_killed_is_gone_and_a_child_tells_nothing(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_told_place place = {0};
    struct rg_told told = told_of(1);
    rg_told_write(&place, c.folder, &told);
    int ready[2];
    char byte;
    RG_CHECK_EQ(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        rg_told_close(&place); /* the parent's goes on */
        rg_told_write(&place, c.folder, &told);
        RG_CHECK_EQ(write(ready[1], "", 1), 1);
        for (;;) {
            pause();
        }
    }
    RG_CHECK_EQ(read(ready[0], &byte, 1), 1);
    RG_CHECK_EQ(look(&c).count, 1); /* it was tried just now */
    kill(child, SIGKILL);
    RG_CHECK_EQ(waitpid(child, NULL, 0), child);
    child = fork();
    if (child == 0) {
        struct rg_told_place own = {0};
        rg_told_write(&own, c.folder, &told);
        RG_CHECK_EQ(write(ready[1], "", 1), 1);
        for (;;) {
            pause();
        }
    }
    RG_CHECK_EQ(read(ready[0], &byte, 1), 1);
    RG_CHECK_EQ(look(&c).count, 2);
    kill(child, SIGKILL);
    RG_CHECK_EQ(waitpid(child, NULL, 0), child);
    RG_CHECK_EQ(look(&c).count, 1);
    rg_told_close(&place);
    close(ready[0]);
    close(ready[1]);
    region_case_close(&c);
}

static void test_what_somebody_else_wrote_is_nothing(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_told_place place = {0};
    struct rg_told told = told_of(1);
    memset(told.source, 'x', sizeof(told.source));
    rg_told_write(&place, c.folder, &told);
    RG_CHECK_EQ(look(&c).count, 0);
    told = told_of(1);
    rg_told_write(&place, c.folder, &told);
    RG_CHECK_EQ(look(&c).count, 1);
    uint64_t damage = 99;
    RG_CHECK_EQ(
        rg_host_region_write(&place.region, RG_HOST_TAKEN_SIZE + 64, &damage, sizeof(damage)), 0);
    RG_CHECK_EQ(look(&c).count, 0);
    rg_told_close(&place);
    region_case_close(&c);
}

static void test_a_removed_file_is_made_again(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_told_place place = {0};
    struct rg_told told = told_of(1);
    rg_told_write(&place, c.folder, &told);
    RG_CHECK_EQ(unlink(c.path), 0);
    rg_told_write(&place, c.folder, &told);
    RG_CHECK_EQ(look(&c).count, 1);
    rg_told_close(&place);
    region_case_close(&c);
}

static void test_where_all_places_are_taken_nobody_is_harmed(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region region = region_case_get(&c);
    for (uint32_t i = 0; i < RG_HOST_TOLD_PLACES; i++) {
        RG_CHECK_EQ(rg_host_region_lock(&region, RG_HOST_TOLD_LOCKS + i), 0);
    }
    struct rg_told_place place = {0};
    struct rg_told told = told_of(1);
    rg_told_write(&place, c.folder, &told);
    RG_CHECK(!place.is_open);
    RG_CHECK_EQ(look(&c).count, 0);
    rg_host_region_unlock(&region, RG_HOST_TOLD_LOCKS + 3);
    rg_told_write(&place, c.folder, &told);
    RG_CHECK(!place.is_open); /* not every time */
    told.told_ns += 60 * RG_NS_PER_S;
    rg_told_write(&place, c.folder, &told);
    RG_CHECK_EQ(place.number, 3);
    rg_told_close(&place);
    rg_host_region_close(&region);
    region_case_close(&c);
}

static void test_sums_are_of_the_last_steps_or_of_a_time(void)
{
    static struct rg_told told = {.groups = RG_TOLD_GROUPS + 10, .began_ns = 1};
    for (uint64_t i = 0; i < told.groups; i++) {
        told.ring[i % RG_TOLD_GROUPS] = (struct rg_told_step){
            .ended_ns = 1000 * i, .count = 2, .away_ns = i, .inside_ns = 10, .slept_ns = {1}};
    }
    uint64_t last = told.groups - 1;
    RG_CHECK_EQ(rg_told_sum(&told, 1, 0).count, 2);
    RG_CHECK_EQ(rg_told_sum(&told, 1, 0).away_ns, last);
    RG_CHECK_EQ(rg_told_sum(&told, 3, 0).count, 4);
    RG_CHECK_EQ(rg_told_sum(&told, 3, 0).away_ns, 2 * last - 1);
    RG_CHECK_EQ(rg_told_sum(&told, UINT64_MAX, 0).count, 2 * RG_TOLD_GROUPS);
    RG_CHECK_EQ(rg_told_sum(&told, UINT64_MAX, 1000 * last - 1500).count, 4);
    RG_CHECK_EQ(rg_told_sum(&told, UINT64_MAX, 1000 * last + 1).count, 0);
    told.open = (struct rg_told_step){.ended_ns = 1000 * last + 5, .inside_ns = 7};
    RG_CHECK_EQ(rg_told_sum(&told, 1, 0).inside_ns, 17);
    RG_CHECK_EQ(rg_told_sum(&told, UINT64_MAX, 1000 * last + 1).inside_ns, 7);
}

static void test_cpu_is_of_each_loop(void)
{
    struct rg_told told = {.began_ns = 100, .cpu_at_ns = 300, .cpu_ns = 100, .loops = 2};
    RG_CHECK(rg_told_busy(&told) == 0.25);
    told.cpu_at_ns = 0;
    RG_CHECK(rg_told_busy(&told) == 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_is_told_is_seen_until_it_is_closed),
        RG_TEST(test_one_that_is_killed_is_gone_and_a_child_tells_nothing),
        RG_TEST(test_what_somebody_else_wrote_is_nothing),
        RG_TEST(test_a_removed_file_is_made_again),
        RG_TEST(test_where_all_places_are_taken_nobody_is_harmed),
        RG_TEST(test_sums_are_of_the_last_steps_or_of_a_time),
        RG_TEST(test_cpu_is_of_each_loop),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
