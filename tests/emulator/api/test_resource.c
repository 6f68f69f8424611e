/* An object as a JSON resource. */
#include "tests/emulator/driver.h"

static void test_metadata_is_a_resource_with_integers_as_strings(void)
{
    char generation[32], link[512];
    open_api(NULL, 0);
    put_xml("/bucket/a%22b%2Fc", "hello world");
    get("/storage/v1/b/bucket/o/a%22b%2Fc");
    RG_CHECK_EQ(reply.status, 200);
    check_field("content-type", "application/json; charset=UTF-8");
    check_body_has("\"kind\":\"storage#object\"");
    check_body_has("\"name\":\"a\\\"b/c\"");
    check_body_has("\"bucket\":\"bucket\"");
    check_body_has("\"size\":\"11\"");
    check_body_has("\"metageneration\":\"1\"");
    check_body_has("\"crc32c\":\"yZRlqg==\"");
    json_member("generation", generation, sizeof(generation));
    json_member("mediaLink", link, sizeof(link));
    char want[512];
    snprintf(want, sizeof(want),
             "https://h/download/storage/v1/b/bucket/o/a%%22b%%2Fc?generation=%s&alt=media",
             generation);
    RG_CHECK_STR(link, want);
    get(link);
    RG_CHECK_STR(reply.body.data, "hello world");
    get("/storage/v1/b/bucket/o/a%22b%2Fc?fields=name,size");
    RG_CHECK_STR(reply.body.data, "{\"name\":\"a\\\"b/c\",\"size\":\"11\"}");
    get("/storage/v1/b/bucket/o/a%22b%2Fc?fields=name(");
    RG_CHECK_EQ(reply.status, 400);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_metadata_is_a_resource_with_integers_as_strings),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
