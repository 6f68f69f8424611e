/* What a client says of its buckets: put together over loops, and into records of another size. */
#include "gcs/request/client.h"
#include "gcs/request/traffic.h"
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

static void check_sum(struct rg_test_client *c, double sum)
{
    struct rg_bucket_stats one;
    RG_CHECK_EQ(rg_client_buckets(c->client, &one, 1), 1);
    RG_CHECK_EQ(one.reads.limit, 2);
    RG_CHECK_EQ(one.reads.backoffs, 2);
    RG_CHECK_EQ(one.reads.in_flight, 2);
    double ceiling = (double)c->options.reads_per_s;
    RG_CHECK(one.reads.rate_per_s == (ceiling > 0 ? RG_MIN(ceiling, sum) : sum));
    RG_CHECK(one.writes.rate_per_s == 0 && one.writes.limit == 0);
}

struct paced {
    struct rg_traffic *traffic;
    double rate;
};

static void paced_ask(void *context)
{
    struct paced *paced = context;
    struct rg_traffic_bucket_stats found[RG_TRAFFIC_BUCKETS_MAX];
    RG_ASSERT(rg_traffic_buckets(paced->traffic, found) == 1);
    paced->rate = found[0].stats.reads.rate_per_s;
}

/* A loop that was refused has a rate of its own, and what the client may begin is their sum. */
static void test_rates_of_loops_are_added(void)
{
    static const char busy[] = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";
    const struct rg_step refuses[] = {RG_READ, RG_SEND(busy), RG_READ, RG_HOLD, RG_END};
    const struct rg_step holds[] = {RG_READ, RG_HOLD, RG_END};
    const struct rg_step *scripts[] = {refuses, refuses, holds};
    for (unsigned has_ceiling = 0; has_ceiling < 2; has_ceiling++) {
        struct rg_test_client c = {.threads = 2, .scripts = scripts, .script_count = 3};
        c.options.reads_per_s = 4 * has_ceiling;
        rg_test_client_open(&c);
        rg_test_get(&c, &(struct rg_get){.user_data = 1});
        rg_test_get(&c, &(struct rg_get){.user_data = 2});
        RG_AWAIT(rg_test_stats(&c).backoffs == 2);
        RG_AWAIT(rg_scripted_server_requests(c.server) == 4);
        double sum = 0;
        for (unsigned i = 0; i < 2; i++) {
            struct paced paced = {.traffic = c.client->loops[i].traffic};
            rg_loop_call(c.client->loops[i].loop, paced_ask, &paced);
            RG_CHECK(paced.rate > 0);
            sum += paced.rate;
        }
        check_sum(&c, sum);
        for (unsigned i = 1; i <= 2; i++) {
            RG_CHECK_EQ(rg_cancel(c.client, c.cq, i), 0);
            struct rg_completion done = rg_test_take(&c);
            RG_CHECK_STATUS(&done, CANCELLED);
            rg_lease_release(done.lease);
        }
        rg_test_client_close(&c);
    }
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
        RG_TEST(test_rates_of_loops_are_added),
        RG_TEST(test_records_of_another_size),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
