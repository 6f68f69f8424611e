/* The `fields` parameter: what a mask selects. */
#include "emulator/api/fields.h"
#include "emulator/wire/text.h"
#include "tests/support/test.h"

static void test_masks_select(void)
{
    static const struct {
        const char *mask, *outer, *name;
        bool selected;
    } rows[] = {
        {"", NULL, "name", true},
        {"name", NULL, "name", true},
        {"name", NULL, "size", false},
        {"name,size", NULL, "size", true},
        {"*", NULL, "size", true},
        {"items(name,size)", "items", "name", true},
        {"items(name,size)", "items", "md5Hash", false},
        {"items(name,size)", NULL, "items", true},
        {"items(name,size)", NULL, "prefixes", false},
        {"items(name),prefixes,nextPageToken", NULL, "nextPageToken", true},
        {"items/name", "items", "name", true},
        {"items/name", "items", "size", false},
        {"items/*", "items", "size", true},
        {"items", "items", "size", true},
        {"items(metadata/a,name)", "items", "metadata", true},
        {"items(metadata(a,b),name)", "items", "name", true},
        {"items(metadata(a,b),name)", "items", "size", false},
        {"kind,items(acl/x)", "items", "kind", false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_h1_slice mask = rg_text_slice(rows[i].mask);
        RG_CHECK(rg_fields_valid(mask));
        if (rg_fields_select(mask, rows[i].outer, rows[i].name) != rows[i].selected) {
            rg_test_fail(__FILE__, __LINE__, "row %zu", i);
        }
    }
}

static void test_masks_that_are_malformed(void)
{
    static const char *const masks[] = {",",   "a,",    "a(",   "a(b",
                                        "a)",  "a()",   "a//b", "/a",
                                        "a b", "a(b))", "(a)",  "a(((((((((b)))))))))"};
    for (size_t i = 0; i < RG_ARRAY_LEN(masks); i++) {
        if (rg_fields_valid(rg_text_slice(masks[i]))) {
            rg_test_fail(__FILE__, __LINE__, "'%s' is valid", masks[i]);
        }
    }
}

static void test_depth_is_limited(void)
{
    static char mask[16384];
    for (size_t i = 0; i + 2 < sizeof(mask); i += 2) {
        memcpy(mask + i, "a(", 2);
    }
    RG_CHECK(!rg_fields_valid(rg_text_slice(mask)));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_masks_select),
        RG_TEST(test_masks_that_are_malformed),
        RG_TEST(test_depth_is_limited),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
