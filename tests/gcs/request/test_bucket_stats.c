/* What a client says of its buckets: put together over loops, and into records of another size. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <stdlib.h>

#define SIZE 3000

static void get_one(struct rg_test_client *c, const char *bucket)
{
    rg_test_get(c, &(struct rg_get){.bucket = bucket});
    struct rg_completion done = rg_test_take(c);
    RG_CHECK_STATUS(&done, OK);
    rg_lease_release(done.lease);
}

static void good_open(struct rg_test_client *c)
{
    static struct rg_step good[3];
    static const struct rg_step *scripts[] = {good};
    good[0] = (struct rg_step)RG_READ;
    good[1] = (struct rg_step){
        .kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, 7)};
    good[2] = (struct rg_step)RG_AGAIN;
    c->scripts = scripts;
    c->script_count = 1;
    rg_test_client_open(c);
}

static void test_each_bucket_once_over_all_loops(void)
{
    struct rg_test_client c = {.threads = 3, .options = {.reads_per_s = 5000}};
    struct rg_bucket_stats buckets[4];
    good_open(&c);
    RG_CHECK_EQ(rg_client_buckets(c.client, buckets, 4), 0);
    for (unsigned i = 0; i < 6; i++) {
        get_one(&c, "one");
    }
    get_one(&c, "two");
    RG_CHECK_EQ(rg_client_buckets(c.client, buckets, 1), 1);
    RG_CHECK_EQ(rg_client_buckets(c.client, buckets, 4), 2);
    const struct rg_bucket_stats *one = &buckets[strcmp(buckets[0].name, "one") != 0];
    RG_CHECK_STR(one->name, "one");
    RG_CHECK_EQ(one->reads.limit, 0);
    RG_CHECK_EQ(one->reads.in_flight, 0);
    RG_CHECK_EQ(one->reads.waiting, 0);
    RG_CHECK_EQ(one->reads.backoffs, 0);
    RG_CHECK(one->reads.rate_per_s == 5000 && one->writes.rate_per_s == 0);
    RG_CHECK_EQ(one->processes, 0);
    rg_test_client_close(&c);
}

static void test_records_of_another_size(void)
{
    struct {
        struct rg_bucket_stats stats;
        uint64_t later;
    } newer[2] = {{.later = 7}};
    struct rg_test_client c = {.threads = 2};
    good_open(&c);
    get_one(&c, "one");
    get_one(&c, "one");
    RG_CHECK_EQ(rg_client_buckets_sized(c.client, &newer[0].stats, 2, sizeof(newer[0])), 1);
    RG_CHECK_STR(newer[0].stats.name, "one");
    RG_CHECK_EQ(newer[0].later, 0);
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_bucket_once_over_all_loops),
        RG_TEST(test_records_of_another_size),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
