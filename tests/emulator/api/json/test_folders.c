/* Folders over the JSON API, and what other calls make of them. */
#include "tests/emulator/driver.h"

#define BUCKET "/storage/v1/b/bucket"

static void send(const char *method, const char *target, const char *body)
{
    rg_driver_send(api, &reply, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
                   method, target, strlen(body), body);
}

static void open_hierarchical(void)
{
    open_api(NULL, 0);
    send("POST", "/storage/v1/b",
         "{\"name\":\"bucket\",\"hierarchicalNamespace\":{\"enabled\":true},"
         "\"iamConfiguration\":{\"uniformBucketLevelAccess\":{\"enabled\":true}}}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"hierarchicalNamespace\":{\"enabled\":true}");
}

static void create(const char *name, unsigned status)
{
    char body[1200];
    snprintf(body, sizeof(body), "{\"name\":\"%s\"}", name);
    send("POST", BUCKET "/folders", body);
    RG_CHECK_EQ(reply.status, status);
}

/* The names of folders, or the prefixes of a listing, in the last answer. */
static const char *names_after(const char *key)
{
    static char names[4096];
    names[0] = '\0';
    for (const char *at = strstr(reply.body.data, key); at != NULL; at = strstr(at, key)) {
        at += strlen(key);
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s ",
                 (int)strcspn(at, "\""), at);
    }
    return names;
}

static void check_folders(const char *query, const char *want)
{
    char target[256];
    snprintf(target, sizeof(target), BUCKET "/folders%s", query);
    get(target);
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_STR(names_after("\"name\":\""), want);
}

/* What an object listing has as prefixes, all of them. */
static void check_prefixes(const char *query, const char *want)
{
    char target[256];
    snprintf(target, sizeof(target), BUCKET "/o?fields=prefixes,nextPageToken&delimiter=%%2F%s",
             query);
    get(target);
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_STR(reply.body.data, want);
}

static void test_a_folder_is_created_and_described(void)
{
    char link[256];
    open_hierarchical();
    create("a/", 200);
    check_body_has("\"kind\":\"storage#folder\"");
    check_body_has("\"id\":\"bucket/a/\"");
    check_body_has("\"bucket\":\"bucket\"");
    check_body_has("\"metageneration\":\"1\"");
    check_body_has("\"createTime\":\"");
    create("a/", 409);
    create("a/b \\\"c", 200); /* The slash at the end may be missing. */
    check_body_has("\"name\":\"a/b \\\"c/\"");
    check_body_has("\"id\":\"bucket/a/b \\\"c/\"");
    json_member("selfLink", link, sizeof(link));
    RG_CHECK_STR(link, "https://h" BUCKET "/folders/a%2Fb%20%22c%2F");
    get(link + 9);
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"name\":\"a/b \\\"c/\"");
    get(BUCKET "/folders/a?ifMetagenerationMatch=1");
    RG_CHECK_EQ(reply.status, 200);
    get(BUCKET "/folders/a?ifMetagenerationMatch=2");
    RG_CHECK_EQ(reply.status, 412);
    get(BUCKET "/folders/a?ifMetagenerationNotMatch=1");
    RG_CHECK_EQ(reply.status, 304);
    get(BUCKET "/folders/none%2F");
    RG_CHECK_EQ(reply.status, 404);
    create("", 400);
    create("x/y/", 412);
    send("POST", BUCKET "/folders?recursive=true", "{\"name\":\"x/y/\"}");
    RG_CHECK_EQ(reply.status, 200);
    check_folders("", "a/ a/b \\ x/ x/y/ ");
    char name[600] = "";
    memset(name, 'n', 512);
    create(name, 400);
    name[511] = '\0';
    create(name, 200);
    close_api();
}

static void test_writing_an_object_makes_its_folders(void)
{
    open_hierarchical();
    put_xml("/bucket/a/b/c.txt", "x");
    put_xml("/bucket/top", "x");
    put_xml("/bucket/d//e", "x");
    put_xml("/bucket/f/", "x");
    check_folders("", "a/ a/b/ d/ d// f/ ");
    rg_driver_send(api, &reply, "DELETE /bucket/a/b/c.txt HTTP/1.1\r\nHost: h\r\n\r\n");
    RG_CHECK_EQ(reply.status, 204);
    check_folders("", "a/ a/b/ d/ d// f/ "); /* They outlive it. */
    char request[1600], name[600] = "";
    memset(name, 'n', 513);
    snprintf(request, sizeof(request),
             "PUT /bucket/%s HTTP/1.1\r\nHost: h\r\n"
             "Content-Length: 0\r\n\r\n",
             name);
    rg_driver_send(api, &reply, "%s", request);
    RG_CHECK_EQ(reply.status, 400);
    name[512] = '/';
    snprintf(request, sizeof(request),
             "PUT /bucket/%sx HTTP/1.1\r\nHost: h\r\n"
             "Content-Length: 0\r\n\r\n",
             name);
    rg_driver_send(api, &reply, "%s", request);
    RG_CHECK_EQ(reply.status, 400);
    check_body_has("at most 512 bytes");
    close_api();
}

static void test_folders_are_listed_by_pages_and_levels(void)
{
    char token[600], query[700];
    open_hierarchical();
    for (char letter = 'a'; letter < 'f'; letter++) {
        char name[] = "?/x/y/o";
        name[0] = letter;
        snprintf(query, sizeof(query), "/bucket/%s", name);
        put_xml(query, "");
    }
    check_folders("?delimiter=%2F", "a/ b/ c/ d/ e/ ");
    check_folders("?delimiter=%2F&prefix=b/", "b/ b/x/ ");
    check_folders("?delimiter=%2F&prefix=b/x", "b/x/ ");
    check_folders("?prefix=b/", "b/ b/x/ b/x/y/ ");
    check_folders("?startOffset=b/x/&endOffset=d/", "b/x/ b/x/y/ c/ c/x/ c/x/y/ ");
    check_folders("?pageSize=2", "a/ a/x/ ");
    json_member("nextPageToken", token, sizeof(token));
    snprintf(query, sizeof(query), "?pageSize=2&pageToken=%s", token);
    check_folders(query, "a/x/y/ b/ ");
    check_folders("?delimiter=%2F&pageSize=4", "a/ b/ c/ d/ ");
    json_member("nextPageToken", token, sizeof(token));
    snprintf(query, sizeof(query), "?delimiter=%%2F&pageToken=%s", token);
    check_folders(query, "e/ ");
    check_body_lacks("nextPageToken");
    get(BUCKET "/folders?delimiter=x");
    RG_CHECK_EQ(reply.status, 400);
    get(BUCKET "/folders?pageToken=!");
    RG_CHECK_EQ(reply.status, 400);
    close_api();
}

static void test_empty_folders_are_prefixes_when_asked_for(void)
{
    open_hierarchical();
    put_xml("/bucket/full/o", "x");
    create("empty/", 200);
    create("empty/inner/", 200);
    check_prefixes("", "{\"prefixes\":[\"full/\"]}");
    check_prefixes("&includeFoldersAsPrefixes=true", "{\"prefixes\":[\"empty/\",\"full/\"]}");
    check_prefixes("&includeFoldersAsPrefixes=true&prefix=empty/",
                   "{\"prefixes\":[\"empty/inner/\"]}");
    check_prefixes("&includeFoldersAsPrefixes=true&prefix=empty/inner/", "{}");
    get(BUCKET "/o?includeFoldersAsPrefixes=true");
    RG_CHECK_EQ(reply.status, 400);
    /* In another bucket there are none. */
    put_xml("/flat/o", "x");
    get("/storage/v1/b/flat/o?delimiter=%2F&includeFoldersAsPrefixes=true&fields=prefixes");
    RG_CHECK_STR(reply.body.data, "{}");
    close_api();
}

static void test_only_an_empty_folder_is_deleted(void)
{
    open_hierarchical();
    put_xml("/bucket/a/b/o", "x");
    send("DELETE", BUCKET "/folders/a%2Fb%2F", "");
    RG_CHECK_EQ(reply.status, 409);
    send("DELETE", BUCKET "/folders/a%2F", "");
    RG_CHECK_EQ(reply.status, 409);
    rg_driver_send(api, &reply, "DELETE /bucket/a/b/o HTTP/1.1\r\nHost: h\r\n\r\n");
    send("DELETE", BUCKET "/folders/a%2F", "");
    RG_CHECK_EQ(reply.status, 409); /* A folder is in it. */
    send("DELETE", BUCKET "/folders/a%2Fb%2F?ifMetagenerationMatch=7", "");
    RG_CHECK_EQ(reply.status, 412);
    send("DELETE", BUCKET "/folders/a%2Fb%2F?ifMetagenerationMatch=1", "");
    RG_CHECK_EQ(reply.status, 204);
    send("DELETE", BUCKET "/folders/a%2Fb%2F", "");
    RG_CHECK_EQ(reply.status, 404);
    send("DELETE", BUCKET, "");
    RG_CHECK_EQ(reply.status, 409); /* Nor is a bucket with folders empty. */
    send("DELETE", BUCKET "/folders/a%2F", "");
    RG_CHECK_EQ(reply.status, 204);
    send("DELETE", BUCKET, "");
    RG_CHECK_EQ(reply.status, 204);
    close_api();
}

static void test_a_rename_takes_everything_along(void)
{
    char generation[32], moved[32], operation[256];
    open_hierarchical();
    put_xml("/bucket/a/b/one", "1");
    put_xml("/bucket/a/two", "2");
    put_xml("/bucket/a0", "beside");
    create("a/empty/", 200);
    create("z/", 200);
    get(BUCKET "/o/a%2Fb%2Fone");
    json_member("generation", generation, sizeof(generation));
    send("POST", BUCKET "/folders/a%2F/renameTo/folders/z%2Fn%2F", "");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"kind\":\"storage#operation\"");
    check_body_has("\"done\":true");
    check_body_has("\"sourceFolderId\":\"a/\",\"destinationFolderId\":\"z/n/\"");
    check_body_has("\"name\":\"z/n/\"");
    check_body_has("\"metageneration\":\"2\"");
    json_member("selfLink", operation, sizeof(operation));
    struct rg_text first = {0};
    rg_text_append(&first, reply.body.data, reply.body.size);
    get(operation + 9);
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_MEM(reply.body.data, reply.body.size, first.data, first.size);
    rg_text_fini(&first);
    get(BUCKET "/operations");
    check_body_has("{\"kind\":\"storage#operations\",\"operations\":[{\"kind\":");
    get(BUCKET "/operations/none");
    RG_CHECK_EQ(reply.status, 404);
    check_folders("", "z/ z/n/ z/n/b/ z/n/empty/ ");
    get(BUCKET "/o?fields=items(name)");
    RG_CHECK_STR(names_after("\"name\":\""), "a0 z/n/b/one z/n/two ");
    get(BUCKET "/o/z%2Fn%2Fb%2Fone");
    json_member("generation", moved, sizeof(moved));
    RG_CHECK_STR(moved, generation);
    get("/bucket/z/n/two");
    RG_CHECK_STR(reply.body.data, "2");
    close_api();
}

static void test_a_rename_that_cannot_be(void)
{
    static const struct {
        const char *path;
        unsigned status;
    } rows[] = {
        {"none%2F/renameTo/folders/x%2F", 404},
        {"a%2F/renameTo/folders/z%2F", 409},
        {"a%2F/renameTo/folders/a%2F", 409},
        {"a%2F/renameTo/folders/a%2Fb%2F", 400},
        {"a%2F/renameTo/folders/x%2Fy%2F", 412},
        {"a%2F/renameTo/folders/", 400},
        {"a%2F/renameTo/folders/x%2F?ifSourceMetagenerationMatch=9", 412},
        {"a%2F/renameTo/folders/x%2F?ifMetagenerationMatch=9", 412},
    };
    open_hierarchical();
    put_xml("/bucket/a/o", "x");
    create("z/", 200);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        char target[256];
        snprintf(target, sizeof(target), BUCKET "/folders/%s", rows[i].path);
        send("POST", target, "");
        RG_CHECK_EQ(reply.status, rows[i].status);
    }
    check_folders("", "a/ z/ ");
    get("/bucket/a/o");
    RG_CHECK_EQ(reply.status, 200);
    /* What lies deep becomes too long. */
    char name[700] = "", target[1400];
    memset(name, 'n', 500);
    snprintf(target, sizeof(target), "{\"name\":\"a/%s/\"}", name);
    send("POST", BUCKET "/folders", target);
    RG_CHECK_EQ(reply.status, 200);
    send("POST", BUCKET "/folders/a%2F/renameTo/folders/longer-than-before%2F", "");
    RG_CHECK_EQ(reply.status, 400);
    get("/bucket/a/o");
    RG_CHECK_EQ(reply.status, 200);
    close_api();
}

static void test_what_a_hierarchical_bucket_is_made_of(void)
{
    open_hierarchical();
    get(BUCKET "/storageLayout");
    check_body_has("\"hierarchicalNamespace\":{\"enabled\":true}");
    get(BUCKET);
    check_body_has("\"hierarchicalNamespace\":{\"enabled\":true}");
    check_body_has("\"uniformBucketLevelAccess\":{\"enabled\":true}");
    send("PATCH", BUCKET, "{\"hierarchicalNamespace\":{\"enabled\":false}}");
    RG_CHECK_EQ(reply.status, 400);
    send("PATCH", BUCKET, "{\"versioning\":{\"enabled\":true}}");
    RG_CHECK_EQ(reply.status, 400);
    send("PATCH", BUCKET, "{\"storageClass\":\"NEARLINE\"}");
    RG_CHECK_EQ(reply.status, 200);
    send("POST", "/storage/v1/b",
         "{\"name\":\"other\",\"hierarchicalNamespace\":{\"enabled\":true}}");
    RG_CHECK_EQ(reply.status, 400);
    get("/storage/v1/b/other");
    RG_CHECK_EQ(reply.status, 404);
    put_xml("/flat/o", "x");
    get("/storage/v1/b/flat/folders");
    RG_CHECK_EQ(reply.status, 400);
    get("/storage/v1/b/absent-bucket/folders");
    RG_CHECK_EQ(reply.status, 404);
    send("PATCH", "/storage/v1/b/flat",
         "{\"hierarchicalNamespace\":{\"enabled\":true},"
         "\"iamConfiguration\":{\"uniformBucketLevelAccess\":{\"enabled\":true}}}");
    RG_CHECK_EQ(reply.status, 400);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_folder_is_created_and_described),
        RG_TEST(test_writing_an_object_makes_its_folders),
        RG_TEST(test_folders_are_listed_by_pages_and_levels),
        RG_TEST(test_empty_folders_are_prefixes_when_asked_for),
        RG_TEST(test_only_an_empty_folder_is_deleted),
        RG_TEST(test_a_rename_takes_everything_along),
        RG_TEST(test_a_rename_that_cannot_be),
        RG_TEST(test_what_a_hierarchical_bucket_is_made_of),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
