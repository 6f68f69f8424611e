/* The live version and its second name. */
#include "emulator/store/disk/versions.h"

#include "tests/emulator/disk_case.h"

#include <inttypes.h>

static void enable_versioning(void)
{
    struct rg_bucket_info info;
    rg_bucket_get_info(bucket(), &info);
    info.versioning = true;
    RG_CHECK_EQ(rg_bucket_configure(bucket(), &info, 0), 0);
}

/* "name:size" of each version, with "!" where it is noncurrent. */
static const char *list_versions(void)
{
    static char names[4096];
    static struct rg_store_entry entry;
    char from[RG_STORE_NAME_SIZE_MAX + 1];
    uint32_t from_size = 0;
    int64_t after = 0;
    names[0] = '\0';
    while (rg_bucket_seek_version(bucket(), (struct rg_h1_slice){from, from_size}, after, &entry) ==
           0) {
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s:%d%s ",
                 (int)entry.name_size, entry.name, (int)entry.info.size,
                 entry.info.deleted_us != 0 ? "!" : "");
        memcpy(from, entry.name, entry.name_size);
        from_size = entry.name_size;
        after = entry.info.generation;
    }
    return names;
}

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
    restart();
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
