/* The live version and its second name. */
#include "emulator/store/disk/versions.h"

#include "tests/emulator/disk_case.h"

#include <inttypes.h>

/* A process that dies between the two steps of a write leaves the second name of a version that is
 * still the live one. */
static void test_a_second_name_of_the_live_version_does_not_count(void)
{
    char from[512], to[512], name[64];
    make_root();
    int64_t generation = put("a", "one").generation;
    enable_versioning();
    snprintf(name, sizeof(name), "bucket/.ringest/a%%v%" PRId64, generation);
    snprintf(from, sizeof(from), "%s", path_of("bucket/a"));
    snprintf(to, sizeof(to), "%s", path_of(name));
    RG_CHECK_EQ(link(from, to), 0);
    reopen_store();
    RG_CHECK_STR(list_versions(), "a:3 ");
    check("a", "one");
    put("a", "two!");
    RG_CHECK_STR(list_versions(), "a:3! a:4 ");
    remove_root();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_second_name_of_the_live_version_does_not_count),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
