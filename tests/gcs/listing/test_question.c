/* The options of a listing: which are refused, and that the copy is a listing's own. */
#include "gcs/listing/question.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void test_everything_is_copied(void)
{
    char texts[4][8] = {"bucket", "p/", "/", "**"};
    const struct rg_listing_options options = {
        .bucket = texts[0],
        .prefix = texts[1],
        .delimiter = texts[2],
        .glob = texts[3],
        .versions = true,
        .folders_as_prefixes = true,
        .results_max = 7,
    };
    struct rg_list_question question = {.glob = NULL};
    RG_CHECK_EQ(rg_list_question_copy(&question, &options), 0);
    memset(texts, 'x', sizeof(texts));
    RG_CHECK_STR(question.list.bucket, "bucket");
    RG_CHECK_STR(question.list.prefix, "p/");
    RG_CHECK_STR(question.list.delimiter, "/");
    RG_CHECK_STR(question.glob, "**");
    RG_CHECK(question.versions && question.folders_as_prefixes);
    RG_CHECK_EQ(question.list.results_max, 7);
    rg_list_question_free(&question);
    RG_CHECK(question.list.bucket == NULL);
}

/* Empty text means the same as none; the offsets are for each page. */
static void test_what_is_not_asked_for(void)
{
    const struct rg_listing_options options = {.bucket = "bucket",
                                               .prefix = "",
                                               .delimiter = "",
                                               .glob = "",
                                               .start_offset = "a",
                                               .end_offset = "b"};
    struct rg_list_question question = {.glob = NULL};
    RG_CHECK_EQ(rg_list_question_copy(&question, &options), 0);
    RG_CHECK(question.list.prefix == NULL && question.list.delimiter == NULL);
    RG_CHECK(question.glob == NULL);
    RG_CHECK(question.list.start_offset == NULL && question.list.end_offset == NULL);
    rg_list_question_free(&question);
}

static void test_what_is_refused(void)
{
    char *too_long = malloc(RG_OBJECT_NAME_SIZE_MAX + 2);
    memset(too_long, 'a', RG_OBJECT_NAME_SIZE_MAX + 1);
    too_long[RG_OBJECT_NAME_SIZE_MAX + 1] = '\0';
    const struct rg_listing_options bad[] = {
        {.bucket = NULL},
        {.bucket = too_long},
        {.bucket = "bucket", .results_max = RG_LIST_RESULTS_MAX + 1},
        {.bucket = "bucket", .requests_max = RG_LISTING_REQUESTS_LIMIT + 1},
        {.bucket = "bucket", .prefix = too_long},
        {.bucket = "bucket", .glob = too_long},
        {.bucket = "bucket", .start_offset = too_long},
        {.bucket = "bucket", .end_offset = "\xff"},
        {.bucket = "bucket", .prefix = "\xc3"},
        {.bucket = "bucket", .folders_as_prefixes = true},
        {.bucket = "bucket", .folders_as_prefixes = true, .delimiter = "-"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        struct rg_list_question question = {.glob = NULL};
        RG_CHECK_EQ(rg_list_question_copy(&question, &bad[i]), -EINVAL);
        RG_CHECK(question.list.bucket == NULL);
        rg_list_question_free(&question);
    }
    free(too_long);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_everything_is_copied),
        RG_TEST(test_what_is_not_asked_for),
        RG_TEST(test_what_is_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
