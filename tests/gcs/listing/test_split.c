/* Keys to cut at: that they are right ones, and good ones. */
#include "gcs/listing/split.h"
#include "gcs/wire/utf8.h"
#include "tests/support/names.h"
#include "tests/support/test.h"

static struct rg_split_model model;
static char keys[RG_SPLIT_KEYS_MAX][RG_SPLIT_KEY_SIZE];

static void learn(const char *const *names, size_t count)
{
    memset(&model, 0, sizeof(model));
    for (size_t i = 0; i < count; i++) {
        rg_split_learn(&model, names[i]);
    }
}

static void check_keys(const struct rg_split_range *range, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        RG_CHECK(strcmp(keys[i], i > 0 ? keys[i - 1] : range->last) > 0);
        RG_CHECK(range->end[0] == '\0' || strcmp(keys[i], range->end) < 0);
        RG_CHECK(strncmp(keys[i], range->prefix, strlen(range->prefix)) == 0);
        uint32_t code;
        size_t size = strlen(keys[i]);
        RG_CHECK(size < RG_SPLIT_KEY_SIZE);
        for (size_t at = 0; at < size;) {
            int used = rg_utf8_decode(keys[i] + at, size - at, &code);
            RG_CHECK(used > 0);
            at += (size_t)used;
        }
    }
}

/* What is left behind a full page. */
static struct rg_split_range range_of(const char *first, const char *last)
{
    return (struct rg_split_range){
        .prefix = "",
        .delimiter = "",
        .first = first,
        .last = last,
        .end = "",
        .count = 1000,
        .page_size = 1000,
    };
}

static void test_hashes_are_cut_evenly(void)
{
    const char *const names[] = {"00a1", "01f7", "0293", "0fff"};
    learn(names, RG_ARRAY_LEN(names));
    const struct rg_split_range range = range_of("0000", "0fff");
    double pages = rg_split_pages(&model, &range);
    RG_CHECK(pages > 8 && pages < 16);
    RG_CHECK_EQ(rg_split_choose(&model, &range, 3, keys), 3);
    check_keys(&range, 3);
    RG_CHECK(keys[0][0] >= '2' && keys[0][0] <= '4');
    RG_CHECK(keys[1][0] >= '4' && keys[1][0] <= '8');
}

/* A counter with leading zeros fills a tiny part of what it could: cuts at every scale. */
static void test_counters_are_cut_at_every_scale(void)
{
    const char *const names[] = {"train-000000000000", "train-000000000123", "train-000000000999"};
    learn(names, RG_ARRAY_LEN(names));
    const struct rg_split_range range = range_of(names[0], names[2]);
    RG_CHECK(rg_split_pages(&model, &range) >= RG_SPLIT_PAGES_UNKNOWN);
    uint32_t count = rg_split_choose(&model, &range, 15, keys);
    RG_CHECK(count >= 12);
    check_keys(&range, count);
    RG_CHECK(strcmp(keys[0], "train-000000010") < 0);
    RG_CHECK(strcmp(keys[count - 1], "train-01") > 0);
}

static void test_near_pieces_are_a_page_each(void)
{
    const char *const names[] = {"train-00000000", "train-00000123", "train-00000999"};
    learn(names, RG_ARRAY_LEN(names));
    const struct rg_split_range range = range_of(names[0], names[2]);
    RG_CHECK_EQ(rg_split_choose_near(&model, &range, 15, keys), 15);
    check_keys(&range, 15);
    RG_CHECK(strcmp(keys[0], "train-000017") > 0 && strcmp(keys[0], "train-00002") < 0);
    RG_CHECK(strcmp(keys[14], "train-00013") > 0 && strcmp(keys[14], "train-00015") < 0);
}

static void test_groups_are_not_cut(void)
{
    const char *const names[] = {"p/aa/xx", "p/ab/yy", "p/mz/zz"};
    learn(names, RG_ARRAY_LEN(names));
    const struct rg_split_range range = {.prefix = "p/",
                                         .delimiter = "/",
                                         .first = "p/aa/",
                                         .last = "p/ab/",
                                         .end = "",
                                         .count = 2,
                                         .page_size = 2};
    uint32_t count = rg_split_choose(&model, &range, 40, keys);
    RG_CHECK(count > 0);
    check_keys(&range, count);
    for (uint32_t i = 0; i < count; i++) {
        const char *slash = strchr(keys[i] + 2, '/');
        RG_CHECK(slash == NULL || slash[1] == '\0');
    }
}

/* Whatever was learned, between any two names. */
static void test_keys_are_always_right(void)
{
    for (unsigned run = 0; run < 2000; run++) {
        enum rg_test_name_kind kind = (enum rg_test_name_kind)(run % RG_TEST_NAMES_KIND_COUNT);
        struct rg_test_names set = rg_test_names_make(kind, 3 + rg_test_random_below(40));
        memset(&model, 0, sizeof(model));
        for (size_t i = 0; i < set.count; i += 1 + rg_test_random_below(3)) {
            rg_split_learn(&model, set.names[i]);
        }
        size_t last = rg_test_random_below(set.count);
        size_t end = last + 1 + rg_test_random_below(set.count);
        const struct rg_split_range range = {
            .prefix = "",
            .delimiter = run % 3 == 0 ? "/" : "",
            .first = set.names[rg_test_random_below(last + 1)],
            .last = set.names[last],
            .end = end < set.count ? set.names[end] : "",
            .count = 1 + (uint32_t)rg_test_random_below(1000),
            .page_size = 1000,
        };
        RG_CHECK(rg_split_pages(&model, &range) >= 0);
        uint32_t wanted = (uint32_t)rg_test_random_below(RG_SPLIT_KEYS_MAX + 1);
        uint32_t count = rg_split_choose(&model, &range, wanted, keys);
        RG_CHECK(count <= wanted);
        check_keys(&range, count);
        count = rg_split_choose_near(&model, &range, wanted, keys);
        RG_CHECK(count <= wanted);
        check_keys(&range, count);
        rg_test_names_free(&set);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_hashes_are_cut_evenly),       RG_TEST(test_counters_are_cut_at_every_scale),
        RG_TEST(test_near_pieces_are_a_page_each), RG_TEST(test_groups_are_not_cut),
        RG_TEST(test_keys_are_always_right),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
