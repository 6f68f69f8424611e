/* Metadata of objects: with uploads of every kind, and changed by PATCH and PUT. */
#include "emulator/api/description.h"

#include "tests/emulator/driver.h"

static void test_metadata_of_a_put_is_in_every_answer(void)
{
    open_api(NULL, 0);
    put_with_metadata();
    get("/bucket/o");
    check_field("x-goog-meta-one", "1");
    check_field("x-goog-meta-two", "2");
    check_field("cache-control", "no-store");
    check_field("x-goog-storage-class", "NEARLINE");
    static const char *const targets[] = {"/storage/v1/b/bucket/o/o", "/storage/v1/b/bucket/o"};
    for (size_t i = 0; i < RG_ARRAY_LEN(targets); i++) {
        get(targets[i]);
        check_body_has("\"metadata\":{\"one\":\"1\",\"two\":\"2\"}");
        check_body_has("\"cacheControl\":\"no-store\"");
        check_body_has("\"storageClass\":\"NEARLINE\"");
        check_body_has("\"metageneration\":\"1\"");
    }
    put_xml("/bucket/plain", "x");
    get("/storage/v1/b/bucket/o/plain");
    check_body_lacks("metadata\":");
    check_body_lacks("cacheControl");
    check_body_has("\"storageClass\":\"STANDARD\"");
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_metadata_of_a_put_is_in_every_answer),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
