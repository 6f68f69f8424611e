/* How many requests a listing may have out: from one on, with the time that pages take. */
#include "gcs/listing/pace.h"
#include "tests/support/test.h"

static void pages_come(struct rg_pace *pace, unsigned count, uint64_t waited_ns, uint64_t took_ns)
{
    for (unsigned i = 0; i < count; i++) {
        rg_pace_page_came(pace, waited_ns);
        rg_pace_page_took(pace, took_ns);
    }
}

static void test_it_begins_with_one(void)
{
    struct rg_pace pace = {0};
    RG_CHECK_EQ(rg_pace_requests(&pace), 1);
    /* The only page there is says nothing of the next. */
    rg_pace_page_came(&pace, RG_NS_PER_MS);
    RG_CHECK_EQ(rg_pace_requests(&pace), 1);
}

/* Ten pages of 100 us from a server to which a connection takes 300 us. */
static void test_a_near_server_gets_one(void)
{
    struct rg_pace pace = {0};
    pages_come(&pace, 10, 300 * RG_NS_PER_US, 100 * RG_NS_PER_US);
    RG_CHECK_EQ(rg_pace_requests(&pace), 1);
    /* A very long listing gets more in time. */
    pages_come(&pace, 990, 0, 100 * RG_NS_PER_US);
    RG_CHECK_EQ(rg_pace_requests(&pace), 1 + 100 / 16);
}

static void test_a_far_server_gets_more_with_each_page(void)
{
    struct rg_pace pace = {0};
    pages_come(&pace, 1, 100 * RG_NS_PER_MS, 50 * RG_NS_PER_MS);
    RG_CHECK_EQ(rg_pace_requests(&pace), 1);
    pages_come(&pace, 3, 0, 50 * RG_NS_PER_MS);
    RG_CHECK_EQ(rg_pace_requests(&pace), 1 + 3 * 4);
}

/* A page that had to wait, in the server or on the way, does not count for the others. */
static void test_the_fastest_page_counts(void)
{
    struct rg_pace pace = {0};
    pages_come(&pace, 1, 0, 20 * RG_NS_PER_MS);
    pages_come(&pace, 1, 0, 10 * RG_NS_PER_S);
    RG_CHECK_EQ(pace.page_ns, 20 * RG_NS_PER_MS);
    RG_CHECK_EQ(rg_pace_requests(&pace), 1 + 2);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_it_begins_with_one),
        RG_TEST(test_a_near_server_gets_one),
        RG_TEST(test_a_far_server_gets_more_with_each_page),
        RG_TEST(test_the_fastest_page_counts),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
