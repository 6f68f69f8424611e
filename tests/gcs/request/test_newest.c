/* The hints which generation an object has. */
#include "gcs/request/newest.h"
#include "tests/support/test.h"

#include <stdio.h>

static void test_what_was_noted_last_is_found(void)
{
    struct rg_newest *newest = NULL;
    RG_CHECK_EQ(rg_newest_create(&newest), 0);
    RG_CHECK_EQ(rg_newest_find(newest, "b", "o"), 0);
    rg_newest_note(newest, "b", "o", 5);
    RG_CHECK_EQ(rg_newest_find(newest, "b", "o"), 5);
    rg_newest_note(newest, "b", "o", 7);
    RG_CHECK_EQ(rg_newest_find(newest, "b", "o"), 7);
    RG_CHECK_EQ(rg_newest_find(newest, "bo", ""), 0);
    RG_CHECK_EQ(rg_newest_find(newest, "", "bo"), 0);
    rg_newest_destroy(newest);
}

/* More objects than there are places: what is found is right, and most of the last ones are. */
static void test_others_take_its_place_and_not_its_name(void)
{
    enum { OBJECTS = 200000 };
    struct rg_newest *newest = NULL;
    RG_CHECK_EQ(rg_newest_create(&newest), 0);
    char name[32];
    for (int64_t i = 1; i <= OBJECTS; i++) {
        snprintf(name, sizeof(name), "object-%lld", (long long)i);
        rg_newest_note(newest, "bucket", name, i);
    }
    unsigned found = 0;
    for (int64_t i = 1; i <= OBJECTS; i++) {
        snprintf(name, sizeof(name), "object-%lld", (long long)i);
        int64_t generation = rg_newest_find(newest, "bucket", name);
        RG_CHECK(generation == 0 || generation == i);
        found += generation == i;
    }
    RG_CHECK(found > 40000);
    rg_newest_destroy(newest);
    rg_newest_destroy(NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_was_noted_last_is_found),
        RG_TEST(test_others_take_its_place_and_not_its_name),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
