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

static void test_globs_in_listings(void)
{
    open_api(NULL, 0);
    static const char *const names[] = {"/bucket/a/1.txt", "/bucket/a/2.bin", "/bucket/b/c/3.txt",
                                        "/bucket/d.txt"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        put_xml(names[i], "x");
    }
    get("/storage/v1/b/bucket/o?matchGlob=**.txt&fields=items/name");
    RG_CHECK_STR(reply.body.data, "{\"items\":[{\"name\":\"a/1.txt\"},{\"name\":\"b/c/3.txt\"},"
                                  "{\"name\":\"d.txt\"}]}");
    get("/storage/v1/b/bucket/o?matchGlob=a/%7B1,2%7D.*&maxResults=1&fields=items/name,"
        "nextPageToken");
    RG_CHECK_STR(reply.body.data,
                 "{\"nextPageToken\":\"YS8yLmJpbg==\",\"items\":[{\"name\":\"a/1.txt\"}]}");
    get("/storage/v1/b/bucket/o?matchGlob=*/&delimiter=/&fields=items/name,prefixes");
    RG_CHECK_STR(reply.body.data, "{\"prefixes\":[\"a/\",\"b/\"]}");
    get("/storage/v1/b/bucket/o?matchGlob=%5B");
    RG_CHECK_EQ(reply.status, 400);
    close_api();
}

static void test_buckets_are_described_and_deleted(void)
{
    open_api(NULL, 0);
    send_json("POST", "/storage/v1/b?project=p",
              "{\"name\":\"new-bucket\",\"location\":\"EU\",\"versioning\":{\"enabled\":true}}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"location\":\"EU\"");
    check_body_has("\"versioning\":{\"enabled\":true}");
    send_json("PATCH", "/storage/v1/b/new-bucket?ifMetagenerationMatch=9",
              "{\"versioning\":{\"enabled\":false}}");
    RG_CHECK_EQ(reply.status, 412);
    send_json("PATCH", "/storage/v1/b/new-bucket?ifMetagenerationMatch=1",
              "{\"versioning\":{\"enabled\":false},\"storageClass\":\"NEARLINE\"}");
    RG_CHECK_EQ(reply.status, 200);
    get("/storage/v1/b/new-bucket");
    check_body_has("\"metageneration\":\"2\"");
    check_body_has("\"etag\":\"CAI=\"");
    check_body_has("\"storageClass\":\"NEARLINE\"");
    RG_CHECK(strstr(reply.body.data, "versioning") == NULL);
    put_xml("/new-bucket/o", "x");
    send_json("DELETE", "/storage/v1/b/new-bucket", "");
    RG_CHECK_EQ(reply.status, 409);
    send_json("DELETE", "/new-bucket/o", "");
    send_json("DELETE", "/storage/v1/b/new-bucket", "");
    RG_CHECK_EQ(reply.status, 204);
    get("/storage/v1/b/new-bucket");
    RG_CHECK_EQ(reply.status, 404);
    get("/storage/v1/b?project=p");
    RG_CHECK(strstr(reply.body.data, "new-bucket") == NULL);
    send_json("POST", "/storage/v1/b?project=p", "{\"name\":\"new-bucket\"}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"location\":\"US\"");
    close_api();
}

static void test_versions_by_json(void)
{
    char first[32], second[32], target[160];
    open_api(NULL, 0);
    send_json("POST", "/storage/v1/b", "{\"name\":\"bucket\",\"versioning\":{\"enabled\":true}}");
    put_xml("/bucket/o", "one");
    get("/storage/v1/b/bucket/o/o");
    json_member("generation", first, sizeof(first));
    put_xml("/bucket/o", "two");
    get("/storage/v1/b/bucket/o/o");
    json_member("generation", second, sizeof(second));
    snprintf(target, sizeof(target), "/bucket/o?generation=%s", first);
    get(target);
    RG_CHECK_STR(reply.body.data, "one");
    send_json("DELETE", "/storage/v1/b/bucket/o/o", "");
    RG_CHECK_EQ(reply.status, 204);
    get("/bucket/o");
    RG_CHECK_EQ(reply.status, 404);
    get("/storage/v1/b/bucket/o");
    RG_CHECK_STR(reply.body.data, "{\"kind\":\"storage#objects\"}");
    put_xml("/bucket/o", "three");
    put_xml("/bucket/p", "other");
    get("/storage/v1/b/bucket/o?versions=true&fields=items(name,size,timeDeleted)");
    int deleted = 0;
    for (const char *at = reply.body.data; (at = strstr(at, "timeDeleted")) != NULL; at++) {
        deleted++;
    }
    RG_CHECK_EQ(deleted, 2);
    /* Page by page: the oldest version of a name first. */
    static const char *const sizes[] = {"3", "3", "5", "5"};
    char token[128] = "";
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        char size[8];
        snprintf(target, sizeof(target), "/storage/v1/b/bucket/o?versions=true&maxResults=1%s%s",
                 token[0] != '\0' ? "&pageToken=" : "", token);
        get(target);
        json_member("size", size, sizeof(size));
        RG_CHECK_STR(size, sizes[i]);
        if (i + 1 < RG_ARRAY_LEN(sizes)) {
            json_member("nextPageToken", token, sizeof(token));
        }
    }
    RG_CHECK(strstr(reply.body.data, "nextPageToken") == NULL);
    snprintf(target, sizeof(target), "/storage/v1/b/bucket/o/o?generation=%s", first);
    send_json("DELETE", target, "");
    RG_CHECK_EQ(reply.status, 204);
    get(target);
    RG_CHECK_EQ(reply.status, 404);
    snprintf(target, sizeof(target), "/storage/v1/b/bucket/o/o?generation=%s", second);
    send_json("PATCH", target, "{\"metadata\":{\"k\":\"v\"}}");
    RG_CHECK_EQ(reply.status, 200);
    get(target);
    check_body_has("\"metadata\":{\"k\":\"v\"}");
    check_body_has("\"timeDeleted\"");
    snprintf(target, sizeof(target),
             "/storage/v1/b/bucket/o/o/copyTo/b/bucket/o/q?sourceGeneration=%s", second);
    send_json("POST", target, "");
    RG_CHECK_EQ(reply.status, 200);
    get("/bucket/q");
    RG_CHECK_STR(reply.body.data, "two");
    close_api();
}

static void soft_delete_for_a_week(void)
{
    send_json("POST", "/storage/v1/b",
              "{\"name\":\"bucket\",\"softDeletePolicy\":{\"retentionDurationSeconds\":604800}}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"softDeletePolicy\":{\"retentionDurationSeconds\":\"604800\",\"effective");
}

static void test_what_is_soft_deleted_can_be_restored(void)
{
    char first[32], second[32], target[160];
    open_api(NULL, 0);
    soft_delete_for_a_week();
    rg_driver_send(api, &reply,
                   "PUT /bucket/o HTTP/1.1\r\nHost: h\r\nContent-Type: text/x\r\n"
                   "x-goog-meta-k: v\r\nContent-Length: 4\r\n\r\ndata");
    get("/storage/v1/b/bucket/o/o");
    json_member("generation", first, sizeof(first));
    put_xml("/bucket/o", "other"); /* What is replaced is soft-deleted, too. */
    get("/storage/v1/b/bucket/o/o");
    json_member("generation", second, sizeof(second));
    send_json("DELETE", "/storage/v1/b/bucket/o/o", "");
    RG_CHECK_EQ(reply.status, 204);
    static const char *const empty[] = {"/storage/v1/b/bucket/o",
                                        "/storage/v1/b/bucket/o?versions=true"};
    for (size_t i = 0; i < RG_ARRAY_LEN(empty); i++) {
        get(empty[i]);
        RG_CHECK_STR(reply.body.data, "{\"kind\":\"storage#objects\"}");
    }
    snprintf(target, sizeof(target), "/bucket/o?generation=%s", first);
    get(target);
    RG_CHECK_EQ(reply.status, 404);
    get("/storage/v1/b/bucket/o?softDeleted=true&maxResults=1");
    check_body_has(first);
    check_body_has("\"metadata\":{\"k\":\"v\"}");
    check_body_has("\"softDeleteTime\":\"");
    check_body_has("\"hardDeleteTime\":\"");
    check_body_lacks("timeDeleted");
    check_body_has("nextPageToken");
    get("/storage/v1/b/bucket/o?softDeleted=true&fields=items(generation)");
    snprintf(target, sizeof(target),
             "{\"items\":[{\"generation\":\"%s\"},{\"generation\":\"%s\"}]}", first, second);
    RG_CHECK_STR(reply.body.data, target);
    get("/storage/v1/b/bucket/o?softDeleted=true&versions=true");
    RG_CHECK_EQ(reply.status, 400);
    snprintf(target, sizeof(target), "/storage/v1/b/bucket/o/o?softDeleted=true&generation=%s",
             first);
    get(target);
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"contentType\":\"text/x\"");
    get("/storage/v1/b/bucket/o/o?softDeleted=true");
    RG_CHECK_EQ(reply.status, 400);
    snprintf(target, sizeof(target), "/storage/v1/b/bucket/o/o/restore?generation=%s", first);
    send_json("POST", target, "");
    RG_CHECK_EQ(reply.status, 200);
    check_body_lacks("hardDeleteTime");
    check_body_has("\"metageneration\":\"1\"");
    check_md5("o", "jXd/OF09/siBXSD3SWAm3A==");
    RG_CHECK_STR(reply.body.data, "data");
    check_field("content-type", "text/x");
    check_field("x-goog-meta-k", "v");
    RG_CHECK(strcmp(rg_driver_field(&reply, "x-goog-generation"), first) != 0);
    send_json("POST", "/storage/v1/b/bucket/o/o/restore?generation=5", "");
    RG_CHECK_EQ(reply.status, 404);
    send_json("POST", "/storage/v1/b/bucket/o/o/restore", "");
    RG_CHECK_EQ(reply.status, 400);
    strcat(target, "&ifGenerationMatch=0");
    send_json("POST", target, "");
    RG_CHECK_EQ(reply.status, 412);
    close_api();
}

static void test_what_is_moved_is_not_soft_deleted(void)
{
    open_api(NULL, 0);
    soft_delete_for_a_week();
    put_xml("/bucket/o", "data");
    send_json("POST", "/storage/v1/b/bucket/o/o/moveTo/o/p", "");
    RG_CHECK_EQ(reply.status, 200);
    get("/storage/v1/b/bucket/o?softDeleted=true");
    RG_CHECK_STR(reply.body.data, "{\"kind\":\"storage#objects\"}");
    close_api();
}

static void test_versions_that_are_deleted_for_good_are_soft_deleted(void)
{
    char first[32], target[160];
    open_api(NULL, 0);
    soft_delete_for_a_week();
    send_json("PATCH", "/storage/v1/b/bucket", "{\"versioning\":{\"enabled\":true}}");
    put_xml("/bucket/o", "one");
    get("/storage/v1/b/bucket/o/o");
    json_member("generation", first, sizeof(first));
    put_xml("/bucket/o", "two");
    get("/storage/v1/b/bucket/o?softDeleted=true");
    RG_CHECK_STR(reply.body.data, "{\"kind\":\"storage#objects\"}");
    snprintf(target, sizeof(target), "/storage/v1/b/bucket/o/o?generation=%s", first);
    send_json("DELETE", target, "");
    RG_CHECK_EQ(reply.status, 204);
    send_json("DELETE", target, "");
    RG_CHECK_EQ(reply.status, 404);
    get("/storage/v1/b/bucket/o?softDeleted=true");
    check_body_has(first);
    check_body_has("\"timeDeleted\":\"");
    get("/storage/v1/b/bucket/o?versions=true");
    check_body_lacks(first);
    close_api();
}

static void test_soft_delete_policies(void)
{
    static const char *const wrong[] = {"60", "\"604799\"", "7776001", "\"x\"", "true", "-1"};
    open_api(NULL, 0);
    soft_delete_for_a_week();
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        char body[128];
        snprintf(body, sizeof(body), "{\"softDeletePolicy\":{\"retentionDurationSeconds\":%s}}",
                 wrong[i]);
        send_json("PATCH", "/storage/v1/b/bucket", body);
        RG_CHECK_EQ(reply.status, 400);
    }
    send_json("PATCH", "/storage/v1/b/bucket",
              "{\"softDeletePolicy\":{\"retentionDurationSeconds\":\"0\"}}");
    check_body_has("\"retentionDurationSeconds\":\"0\"");
    put_xml("/bucket/o", "one");
    send_json("DELETE", "/storage/v1/b/bucket/o/o", "");
    get("/storage/v1/b/bucket/o?softDeleted=true");
    RG_CHECK_STR(reply.body.data, "{\"kind\":\"storage#objects\"}");
    /* Soft-deleted objects do not keep a bucket. */
    send_json("PATCH", "/storage/v1/b/bucket",
              "{\"softDeletePolicy\":{\"retentionDurationSeconds\":\"604800\"}}");
    put_xml("/bucket/o", "one");
    send_json("DELETE", "/storage/v1/b/bucket/o/o", "");
    send_json("DELETE", "/storage/v1/b/bucket", "");
    RG_CHECK_EQ(reply.status, 204);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_listing_by_json),
        RG_TEST(test_buckets),
        RG_TEST(test_globs_in_listings),
        RG_TEST(test_buckets_are_described_and_deleted),
        RG_TEST(test_versions_by_json),
        RG_TEST(test_what_is_soft_deleted_can_be_restored),
        RG_TEST(test_what_is_moved_is_not_soft_deleted),
        RG_TEST(test_versions_that_are_deleted_for_good_are_soft_deleted),
        RG_TEST(test_soft_delete_policies),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
