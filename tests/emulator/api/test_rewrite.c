/* Copies of every kind. */
#include "emulator/api/rewrite.h"

#include "tests/emulator/driver.h"

static void post(const char *target, const char *json)
{
    rg_driver_send(api, &reply, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
                   target, strlen(json), json);
}

static void put_described(const char *path, const char *data)
{
    rg_driver_send(api, &reply,
                   "PUT %s HTTP/1.1\r\nHost: h\r\nContent-Type: text/x\r\nx-goog-meta-k: v\r\n"
                   "Content-Length: %zu\r\n\r\n%s",
                   path, strlen(data), data);
    RG_CHECK_EQ(reply.status, 200);
}

static void check_object(const char *path, const char *text)
{
    get(path);
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_STR(reply.body.data, text);
}

static void test_a_small_object_is_rewritten_in_one_call(void)
{
    open_api(NULL, 0);
    put_described("/bucket/a%2Fb", "data");
    put_xml("/other/x", "x");
    post("/storage/v1/b/bucket/o/a%2Fb/rewriteTo/b/other/o/c%2Fd", "");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"done\":true");
    check_body_has("\"totalBytesRewritten\":\"4\"");
    check_body_has("\"objectSize\":\"4\"");
    check_body_has("\"bucket\":\"other\"");
    check_object("/other/c/d", "data");
    check_field("content-type", "text/x");
    check_field("x-goog-meta-k", "v");
    post("/storage/v1/b/bucket/o/a%2Fb/rewriteTo/b/bucket/o/e",
         "{\"contentType\":\"text/y\",\"metadata\":{\"n\":\"m\"},\"storageClass\":\"COLDLINE\"}");
    RG_CHECK_EQ(reply.status, 200);
    check_object("/bucket/e", "data");
    check_field("content-type", "text/y");
    check_field("x-goog-meta-k", "(none)");
    check_field("x-goog-meta-n", "m");
    check_field("x-goog-storage-class", "COLDLINE");
    close_api();
}

/* A body that says anything says all; and the class is the bucket's, not the source's. */
static void test_what_a_copy_takes_over(void)
{
    open_api(NULL, 0);
    put_described("/bucket/a", "data");
    post("/storage/v1/b/bucket/o/a/rewriteTo/b/bucket/o/cold", "{\"storageClass\":\"COLDLINE\"}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"storageClass\":\"COLDLINE\"");
    check_body_has("\"contentType\":\"application/octet-stream\"");
    check_body_lacks("\"metadata\"");
    post("/storage/v1/b/bucket/o/cold/rewriteTo/b/bucket/o/b", "{\"name\":\"b\"}");
    check_body_has("\"storageClass\":\"STANDARD\"");
    post("/storage/v1/b/bucket/o/cold/moveTo/o/moved", "");
    check_body_has("\"storageClass\":\"COLDLINE\"");
    post("/storage/v1/b?project=p", "{\"name\":\"slow\",\"storageClass\":\"NEARLINE\"}");
    RG_CHECK_EQ(reply.status, 200);
    post("/storage/v1/b/bucket/o/a/rewriteTo/b/slow/o/a", "{}");
    check_body_has("\"storageClass\":\"NEARLINE\"");
    check_body_has("\"metadata\":{\"k\":\"v\"}");
    post("/storage/v1/b/slow/o/a/copyTo/b/slow/o/c",
         "{\"contentType\":\"text/x\",\"storageClass\":\"STANDARD\"}");
    check_body_has("\"storageClass\":\"STANDARD\"");
    put_xml("/slow/new", "x");
    get("/storage/v1/b/slow/o/new");
    check_body_has("\"storageClass\":\"NEARLINE\"");
    post("/storage/v1/b/bucket/o/a/rewriteTo/b/bucket/o/b", "{\"storageClass\":\"nearline\"}");
    RG_CHECK_EQ(reply.status, 400);
    check_body_has("The storage class is not STANDARD");
    close_api();
}

static void test_a_copy_has_the_md5_of_its_source(void)
{
    static const char data[] = "jXd/OF09/siBXSD3SWAm3A==";
    open_api(NULL, 0);
    put_xml("/bucket/a", "data");
    check_md5("a", data);
    post("/storage/v1/b/bucket/o/a/rewriteTo/b/bucket/o/b", "");
    post("/storage/v1/b/bucket/o/b/copyTo/b/bucket/o/c", "{\"contentType\":\"text/y\"}");
    post("/storage/v1/b/bucket/o/b/moveTo/o/d", "");
    check_md5("c", data);
    check_md5("d", data);
    rg_driver_send(api, &reply,
                   "PUT /bucket/e HTTP/1.1\r\nHost: h\r\nx-goog-copy-source: /bucket/a\r\n"
                   "x-goog-metadata-directive: REPLACE\r\nContent-Length: 0\r\n\r\n");
    RG_CHECK_EQ(reply.status, 200);
    check_md5("e", data);
    close_api();
}

static void test_a_large_object_takes_several_calls(void)
{
    char token[64], target[256];
    char *data = calloc(1, 5 * RG_MIB(1) / 2 + 1);
    memset(data, 'x', 5 * RG_MIB(1) / 2);
    driver_memory_max = RG_MIB(16);
    open_api(NULL, 0);
    put_described("/bucket/a", data);
    post("/storage/v1/b/bucket/o/a/rewriteTo/b/bucket/o/b?maxBytesRewrittenPerCall=1048576", "{}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"done\":false");
    check_body_has("\"totalBytesRewritten\":\"1048576\"");
    check_body_has("\"objectSize\":\"2621440\"");
    json_member("rewriteToken", token, sizeof(token));
    get("/bucket/b");
    RG_CHECK_EQ(reply.status, 404);
    snprintf(target, sizeof(target),
             "/storage/v1/b/bucket/o/a/rewriteTo/b/bucket/o/c?rewriteToken=%s", token);
    post(target, "{}"); /* To another place. */
    RG_CHECK_EQ(reply.status, 400);
    snprintf(target, sizeof(target),
             "/storage/v1/b/bucket/o/a/rewriteTo/b/bucket/o/b?maxBytesRewrittenPerCall=1048576"
             "&rewriteToken=%s",
             token);
    post(target, "{}");
    check_body_has("\"totalBytesRewritten\":\"2097152\"");
    put_xml("/bucket/a", "new"); /* It stays the version that it was. */
    post(target, "{}");
    check_body_has("\"done\":true");
    check_object("/bucket/b", data);
    check_field("x-goog-meta-k", "v");
    post(target, "{}");
    RG_CHECK_EQ(reply.status, 400); /* The token is used up. */
    post("/storage/v1/b/bucket/o/b/rewriteTo/b/bucket/o/c?maxBytesRewrittenPerCall=1000", "{}");
    RG_CHECK_EQ(reply.status, 400);
    free(data);
    close_api();
}

static void test_conditions_of_copies(void)
{
    static const struct {
        const char *query;
        unsigned status;
    } rows[] = {
        {"ifGenerationMatch=0", 200},
        {"ifGenerationMatch=0", 412}, /* Now it is there. */
        {"ifSourceGenerationMatch=1", 412},
        {"ifSourceGenerationNotMatch=1", 200},
        {"ifSourceMetagenerationMatch=1", 200},
        {"ifSourceMetagenerationNotMatch=1", 412},
        {"sourceGeneration=1", 404},
        {"ifSourceGenerationMatch=x", 400},
        {"ifMetagenerationMatch=7", 412},
    };
    open_api(NULL, 0);
    put_described("/bucket/a", "data");
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        char target[256];
        static const char *const names[] = {"rewriteTo", "copyTo"};
        for (size_t k = 0; k < RG_ARRAY_LEN(names); k++) {
            snprintf(target, sizeof(target), "/storage/v1/b/bucket/o/a/%s/b/bucket/o/b%zu?%s",
                     names[k], k, rows[i].query);
            post(target, "");
            RG_CHECK_EQ(reply.status, rows[i].status);
        }
    }
    post("/storage/v1/b/bucket/o/none/rewriteTo/b/bucket/o/b", "");
    RG_CHECK_EQ(reply.status, 404);
    post("/storage/v1/b/bucket/o/a/rewriteTo/b/absent-bucket/o/b", "");
    RG_CHECK_EQ(reply.status, 404);
    post("/storage/v1/b/bucket/o/a/rewriteTo/b/bucket/o/b?rewriteToken=x", "");
    RG_CHECK_EQ(reply.status, 400);
    post("/storage/v1/b/bucket/o/a/copyTo/b/bucket/o/b", "[]");
    RG_CHECK_EQ(reply.status, 400);
    close_api();
}

static void test_a_move_takes_the_source_away(void)
{
    open_api(NULL, 0);
    put_described("/bucket/a", "data");
    post("/storage/v1/b/bucket/o/a/moveTo/o/b%2Fc", "");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"name\":\"b/c\"");
    check_object("/bucket/b/c", "data");
    check_field("x-goog-meta-k", "v");
    get("/bucket/a");
    RG_CHECK_EQ(reply.status, 404);
    post("/storage/v1/b/bucket/o/a/moveTo/o/b", "");
    RG_CHECK_EQ(reply.status, 404);
    close_api();
}

static void test_the_xml_api_copies_with_a_header(void)
{
    open_api(NULL, 0);
    put_described("/bucket/a%2Fb", "data");
    rg_driver_send(api, &reply,
                   "PUT /bucket/c HTTP/1.1\r\nHost: h\r\nx-goog-copy-source: /bucket/a%%2Fb\r\n"
                   "Content-Length: 0\r\n\r\n");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("<CopyObjectResult");
    check_object("/bucket/c", "data");
    check_field("x-goog-meta-k", "v");
    rg_driver_send(api, &reply,
                   "PUT /bucket/d HTTP/1.1\r\nHost: h\r\nx-goog-copy-source: bucket/a/b\r\n"
                   "x-goog-metadata-directive: REPLACE\r\nContent-Type: text/z\r\n"
                   "Content-Length: 0\r\n\r\n");
    RG_CHECK_EQ(reply.status, 200);
    check_object("/bucket/d", "data");
    check_field("x-goog-meta-k", "(none)");
    check_field("content-type", "text/z");
    rg_driver_send(api, &reply,
                   "PUT /bucket/d HTTP/1.1\r\nHost: h\r\nx-goog-copy-source: bucket\r\n"
                   "Content-Length: 0\r\n\r\n");
    RG_CHECK_EQ(reply.status, 400);
    rg_driver_send(api, &reply,
                   "PUT /bucket/d HTTP/1.1\r\nHost: h\r\nx-goog-copy-source: bucket/a/b\r\n"
                   "x-goog-copy-source-if-generation-match: 1\r\nContent-Length: 0\r\n\r\n");
    RG_CHECK_EQ(reply.status, 412);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_small_object_is_rewritten_in_one_call),
        RG_TEST(test_what_a_copy_takes_over),
        RG_TEST(test_a_copy_has_the_md5_of_its_source),
        RG_TEST(test_a_large_object_takes_several_calls),
        RG_TEST(test_conditions_of_copies),
        RG_TEST(test_a_move_takes_the_source_away),
        RG_TEST(test_the_xml_api_copies_with_a_header),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
