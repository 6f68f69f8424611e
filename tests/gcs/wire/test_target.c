/* Request targets: what is encoded and what is left out, and every capacity. */
#include "gcs/wire/target.h"

#include "tests/support/test.h"

static const struct rg_conditions all = {.if_generation_match = RG_GENERATION_ABSENT,
                                         .if_generation_not_match = 12,
                                         .if_metageneration_match = 3,
                                         .if_metageneration_not_match = INT64_MAX};

static void build(struct rg_target *target, char *text, size_t capacity)
{
    rg_target_init(target, text, capacity);
    rg_target_add_object(target, "bu.cket", "a/b c?");
    rg_target_query(target, "none", NULL);
    rg_target_query(target, "empty", "");
    rg_target_query_i64(target, "zero", 0);
    rg_target_query(target, "token", "x+/=");
    rg_target_query_i64(target, "generation", 1700000000000001);
    rg_target_query_i64(target, "lowest", INT64_MIN);
    rg_target_conditions(target, &all);
    rg_target_source_conditions(target, &all);
}

static const char want[] =
    "/storage/v1/b/bu.cket/o/a%2Fb%20c%3F?token=x%2B%2F%3D&generation=1700000000000001"
    "&lowest=-9223372036854775808"
    "&ifGenerationMatch=0&ifGenerationNotMatch=12&ifMetagenerationMatch=3"
    "&ifMetagenerationNotMatch=9223372036854775807"
    "&ifSourceGenerationMatch=0&ifSourceGenerationNotMatch=12&ifSourceMetagenerationMatch=3"
    "&ifSourceMetagenerationNotMatch=9223372036854775807";

static void test_everything(void)
{
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    build(&target, text, sizeof(text));
    RG_CHECK_EQ(rg_target_end(&target), sizeof(want) - 1);
    RG_CHECK_STR(text, want);
}

static void test_nothing_is_demanded(void)
{
    char text[64];
    struct rg_target target;
    static const struct rg_conditions none;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add_object(&target, "bucket", NULL);
    rg_target_conditions(&target, &none);
    rg_target_source_conditions(&target, &none);
    rg_target_query(&target, "a", "1");
    RG_CHECK_EQ(rg_target_end(&target), strlen("/storage/v1/b/bucket?a=1"));
    RG_CHECK_STR(text, "/storage/v1/b/bucket?a=1");
}

/* Either all fits or the error says so, and nothing is written behind the end. */
static void test_every_capacity(void)
{
    for (size_t capacity = 1; capacity < sizeof(want) + 2; capacity++) {
        char text[sizeof(want) + 8];
        memset(text, '#', sizeof(text));
        struct rg_target target;
        build(&target, text, capacity);
        int size = rg_target_end(&target);
        RG_CHECK_EQ(size, capacity >= sizeof(want) ? (int)sizeof(want) - 1 : -ENOSPC);
        RG_CHECK(memchr(text, '\0', capacity) != NULL);
        for (size_t i = capacity; i < sizeof(text); i++) {
            RG_CHECK_EQ(text[i], '#');
        }
    }
}

static void test_conditions_that_no_object_can_meet(void)
{
    RG_CHECK(rg_conditions_valid(&all));
    RG_CHECK(rg_conditions_valid(&(struct rg_conditions){0}));
    RG_CHECK(!rg_conditions_valid(&(struct rg_conditions){.if_generation_match = -2}));
    RG_CHECK(!rg_conditions_valid(&(struct rg_conditions){.if_generation_not_match = -2}));
    RG_CHECK(!rg_conditions_valid(&(struct rg_conditions){.if_metageneration_match = -1}));
    RG_CHECK(!rg_conditions_valid(&(struct rg_conditions){.if_metageneration_not_match = -1}));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_everything),
        RG_TEST(test_nothing_is_demanded),
        RG_TEST(test_every_capacity),
        RG_TEST(test_conditions_that_no_object_can_meet),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
