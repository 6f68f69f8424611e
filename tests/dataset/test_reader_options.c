/* Options of a reader: defaults, structs of older programs, and what is refused. */
#include "dataset/reader_options.h"
#include "runtime/base.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

static void test_zeros_become_defaults(void)
{
    struct rg_reader_options given, own;
    rg_reader_options_init(&given);
    RG_CHECK_EQ(rg_reader_options_read(&own, &given, NULL, 0), 0);
    RG_CHECK_EQ(own.world_size, 1);
    RG_CHECK_EQ(own.worker_count, 1);
    RG_CHECK_EQ(own.batch_size, 1);
    RG_CHECK_EQ(own.window_requests, RG_WINDOW_REQUESTS_DEFAULT);
    RG_CHECK_EQ(own.window_bytes, RG_WINDOW_BYTES_DEFAULT);
    RG_CHECK_EQ(own.tar_request_bytes, RG_TAR_REQUEST_BYTES_DEFAULT);
}

/* What lies behind the end of a smaller struct is not looked at. */
static void test_a_struct_of_an_older_program_is_read(void)
{
    struct rg_reader_options given, own;
    memset(&given, 0xff, sizeof(given));
    rg_reader_options_init_sized(&given, offsetof(struct rg_reader_options, changed));
    given.seed = 7;
    RG_CHECK_EQ(rg_reader_options_read(&own, &given, NULL, 0), 0);
    RG_CHECK_EQ(own.seed, 7);
    RG_CHECK_EQ(own.changed, RG_CHANGED_ERROR);
    RG_CHECK(own.indices == NULL);
    RG_CHECK_EQ(own.struct_size, sizeof(own));
}

static void check_refused(const struct rg_reader_options *given, const char *text)
{
    struct rg_reader_options own;
    char error[256] = "";
    RG_CHECK_EQ(rg_reader_options_read(&own, given, error, sizeof(error)), -EINVAL);
    RG_CHECK(strstr(error, text) != NULL);
}

static void test_what_contradicts_itself_is_refused(void)
{
    struct rg_reader_options given;
    rg_reader_options_init(&given);
    given.window_requests = RG_WINDOW_REQUESTS_MAX + 1;
    check_refused(&given, "window_requests");
    rg_reader_options_init(&given);
    given.changed = (enum rg_changed)(RG_CHANGED_NEWEST + 1);
    check_refused(&given, "enum rg_changed");
    rg_reader_options_init(&given);
    given.tar_member_count = 1;
    check_refused(&given, "members");
    given.tar = (const struct rg_tar_index *)(const void *)&given;
    given.changed = RG_CHANGED_NEWEST;
    check_refused(&given, "scan the shards again");
}

static void test_indices_name_samples_that_are_there(void)
{
    static const uint64_t indices[] = {0, 2, 2, 1};
    struct rg_reader_options own;
    char error[256] = "";
    rg_reader_options_init(&own);
    own.indices = indices;
    own.index_count = RG_ARRAY_LEN(indices);
    own.object_count = 3;
    RG_CHECK_EQ(rg_reader_options_check_indices(&own, error, sizeof(error)), 0);
    RG_CHECK_EQ(rg_reader_options_assignment(&own).count, RG_ARRAY_LEN(indices));
    own.object_count = 2;
    RG_CHECK_EQ(rg_reader_options_check_indices(&own, error, sizeof(error)), -EINVAL);
    RG_CHECK_STR(error, "indices has 2, and there are 2 samples");
    own.object_count = 3;
    own.state = indices;
    RG_CHECK_EQ(rg_reader_options_check_indices(&own, error, sizeof(error)), -EINVAL);
    RG_CHECK(strstr(error, "cannot be combined with state") != NULL);
}

/* Whatever the sampler refuses has its line. */
static void test_a_share_that_is_refused_is_explained(void)
{
    static const struct {
        uint32_t rank, worker;
        const char *text;
    } rows[] = {
        {2, 0, "rank is 2, and must be below world_size, which is 2"},
        {0, 3, "worker is 3, and must be below worker_count, which is 3"},
        {0, 0, "remainder is 3, not a value of enum rg_remainder"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_reader_options own;
        struct rg_sampler sampler;
        char error[256] = "";
        rg_reader_options_init(&own);
        own.batch_size = 1;
        own.world_size = 2;
        own.worker_count = 3;
        own.rank = rows[i].rank;
        own.worker = rows[i].worker;
        own.remainder = i == 2 ? (enum rg_remainder)(RG_REMAINDER_DROP + 1) : RG_REMAINDER_DROP;
        struct rg_sampler_options assignment = rg_reader_options_assignment(&own);
        RG_CHECK_EQ(rg_sampler_init(&sampler, &assignment), -EINVAL);
        RG_CHECK_EQ(rg_reader_options_refuse_assignment(&own, error, sizeof(error)), -EINVAL);
        RG_CHECK_STR(error, rows[i].text);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_zeros_become_defaults),
        RG_TEST(test_a_struct_of_an_older_program_is_read),
        RG_TEST(test_what_contradicts_itself_is_refused),
        RG_TEST(test_indices_name_samples_that_are_there),
        RG_TEST(test_a_share_that_is_refused_is_explained),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
