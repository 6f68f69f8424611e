/* The JSON API: listings and buckets. */
#include "tests/emulator/driver.h"

static void test_listing_by_json(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/a/1", "1");
    put_xml("/bucket/a/2", "22");
    put_xml("/bucket/b", "");
    get("/storage/v1/b/bucket/o?delimiter=/&fields=prefixes,items(name,size),nextPageToken");
    RG_CHECK_STR(reply.body.data,
                 "{\"prefixes\":[\"a/\"],\"items\":[{\"name\":\"b\",\"size\":\"0\"}]}");
    get("/storage/v1/b/bucket/o?maxResults=1&fields=items/name,nextPageToken");
    RG_CHECK_STR(reply.body.data, "{\"nextPageToken\":\"YS8y\",\"items\":[{\"name\":\"a/1\"}]}");
    get("/storage/v1/b/bucket/o?pageToken=YS8y&fields=items/name");
    RG_CHECK_STR(reply.body.data, "{\"items\":[{\"name\":\"a/2\"},{\"name\":\"b\"}]}");
    get("/storage/v1/b/bucket/o?prefix=a/&startOffset=a/2&fields=items/size");
    RG_CHECK_STR(reply.body.data, "{\"items\":[{\"size\":\"2\"}]}");
    get("/storage/v1/b/bucket/o?prefix=zz&versions=true");
    RG_CHECK_STR(reply.body.data, "{\"kind\":\"storage#objects\"}");
    get("/storage/v1/b/bucket/o?pageToken=%25");
    RG_CHECK_EQ(reply.status, 400);
    get("/storage/v1/b/bucket/o?maxResults=-1");
    RG_CHECK_EQ(reply.status, 400);
    close_api();
}

static void test_buckets(void)
{
    open_api(NULL, 0);
    static const char body[] = "{\"name\":\"new-bucket\"}";
    rg_driver_send(api, &reply,
                   "POST /storage/v1/b?project=p HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n"
                   "%s",
                   strlen(body), body);
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"name\":\"new-bucket\"");
    rg_driver_send(api, &reply,
                   "POST /storage/v1/b?project=p HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n"
                   "%s",
                   strlen(body), body);
    RG_CHECK_EQ(reply.status, 409);
    rg_driver_send(api, &reply,
                   "POST /storage/v1/b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}");
    RG_CHECK_EQ(reply.status, 400);
    rg_driver_send(api, &reply, "PUT /other HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    RG_CHECK_EQ(reply.status, 200);
    get("/storage/v1/b?project=p");
    check_body_has("\"name\":\"new-bucket\"");
    check_body_has("\"name\":\"other\"");
    get("/storage/v1/b/other");
    check_body_has("storage#bucket");
    get("/storage/v1/b/other/o");
    RG_CHECK_STR(reply.body.data, "{\"kind\":\"storage#objects\"}");
    get("/storage/v1/b/other/storageLayout");
    check_body_has("\"hierarchicalNamespace\":{\"enabled\":false}");
    get("/storage/v1/b/other/iam/testPermissions?permissions=a.b&permissions=c.d");
    check_body_has("[\"a.b\",\"c.d\"]");
    get("/");
    check_body_has("<Bucket><Name>new-bucket</Name>");
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_listing_by_json),
        RG_TEST(test_buckets),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
