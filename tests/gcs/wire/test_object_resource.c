/* The resource of an object, the answer to a step of a copy, and permissions. */
#include "gcs/wire/object_resource.h"

#include "tests/support/test.h"

static const char resource[] =
    "{\"kind\":\"storage#object\",\"id\":\"b/o/1\",\"bucket\":\"b\",\"name\":\"a/\\u00e9\","
    "\"size\":\"5\",\"generation\":\"1700000000000001\",\"metageneration\":\"3\","
    "\"crc32c\":\"xFDWlw==\",\"md5Hash\":\"q1sM\",\"contentType\":\"text/plain\","
    "\"contentEncoding\":\"gzip\",\"cacheControl\":\"no-store\",\"storageClass\":\"STANDARD\","
    "\"etag\":\"CAE=\",\"timeCreated\":\"2026-01-02T03:04:05Z\",\"updated\":\"2026-02-03T04:05:"
    "06Z\","
    "\"componentCount\":4,\"temporaryHold\":false,\"owner\":{\"entity\":\"x\"},"
    "\"metadata\":{\"k\":\"v\",\"empty\":\"\"}}";

static int info_parse(const char *body, size_t size, struct rg_object_info **out_info, void **block)
{
    size_t room = rg_object_info_size_bound(size);
    const char *problem = "";
    *block = malloc(room);
    int rc = rg_object_info_parse(body, size, *block, room, out_info, &problem);
    RG_CHECK((rc == 0) == (*problem == '\0'));
    return rc;
}

static void test_resource(void)
{
    struct rg_object_info *info;
    void *block;
    RG_CHECK_EQ(info_parse(resource, sizeof(resource) - 1, &info, &block), 0);
    RG_CHECK_STR(info->bucket, "b");
    RG_CHECK_STR(info->object.name, "a/\xc3\xa9");
    RG_CHECK_EQ(info->object.size, 5);
    RG_CHECK_EQ(info->object.generation, 1700000000000001);
    RG_CHECK_EQ(info->metageneration, 3);
    RG_CHECK(info->object.has_crc32c);
    RG_CHECK_EQ(info->object.crc32c, 0xc450d697);
    RG_CHECK_STR(info->md5, "q1sM");
    RG_CHECK_STR(info->content_type, "text/plain");
    RG_CHECK_STR(info->content_encoding, "gzip");
    RG_CHECK_STR(info->cache_control, "no-store");
    RG_CHECK_STR(info->storage_class, "STANDARD");
    RG_CHECK_STR(info->etag, "CAE=");
    RG_CHECK_STR(info->time_created, "2026-01-02T03:04:05Z");
    RG_CHECK_STR(info->object.updated, "2026-02-03T04:05:06Z");
    RG_CHECK_EQ(info->component_count, 4);
    RG_CHECK_EQ(info->metadata_count, 2);
    RG_CHECK_STR(info->metadata[0].key, "k");
    RG_CHECK_STR(info->metadata[0].value, "v");
    RG_CHECK_STR(info->metadata[1].value, "");
    free(block);
}

/* An empty object of some emulators has no size. */
static void test_least_resource(void)
{
    static const char body[] = "{\"name\":\"x\",\"metadata\":null,\"crc32c\":null}";
    struct rg_object_info *info;
    void *block;
    RG_CHECK_EQ(info_parse(body, sizeof(body) - 1, &info, &block), 0);
    RG_CHECK_EQ(info->object.size, 0);
    RG_CHECK(!info->object.has_crc32c && info->metadata_count == 0 && info->bucket == NULL);
    free(block);
}

static void test_bodies_that_are_no_resource(void)
{
    static const char *const bodies[] = {
        "",
        "x",
        "[]",
        "{}",
        "{\"name\":\"\"}",
        "{\"name\":5}",
        "{\"name\":\"a\\u0000\"}",
        "{\"name\":\"x\",\"size\":\"-1\"}",
        "{\"name\":\"x\",\"generation\":{}}",
        "{\"name\":\"x\",\"metageneration\":\"9223372036854775808\"}",
        "{\"name\":\"x\",\"componentCount\":4294967296}",
        "{\"name\":\"x\",\"crc32c\":\"AAAA\"}",
        "{\"name\":\"x\",\"contentType\":5}",
        "{\"name\":\"x\",\"metadata\":[]}",
        "{\"name\":\"x\",\"metadata\":{\"k\":5}}",
        "{\"name\":\"x\",\"metadata\":{\"k\\u0000\":\"\"}}",
        "{\"name\":\"x\"",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bodies); i++) {
        struct rg_object_info *info;
        void *block;
        RG_CHECK_EQ(info_parse(bodies[i], strlen(bodies[i]), &info, &block), -EBADMSG);
        free(block);
    }
}

/* As many pairs of metadata as a body can hold find room. */
static void test_much_metadata(void)
{
    size_t size = 0;
    char *body = malloc(RG_RESOURCE_BODY_SIZE_MAX);
    size += (size_t)sprintf(body, "{\"name\":\"x\",\"metadata\":{\"\":\"\"");
    size_t pairs = 1;
    while (size + 10 < RG_RESOURCE_BODY_SIZE_MAX) {
        size += (size_t)sprintf(body + size, ",\"\":\"\"");
        pairs++;
    }
    size += (size_t)sprintf(body + size, "}}");
    struct rg_object_info *info;
    void *block;
    RG_CHECK_EQ(info_parse(body, size, &info, &block), 0);
    RG_CHECK_EQ(info->metadata_count, pairs);
    free(block);
    free(body);
}

static int rewrite_parse(const char *body, struct rg_rewrite_answer *answer, void **block)
{
    size_t room = rg_object_info_size_bound(strlen(body));
    const char *problem;
    *block = malloc(room);
    return rg_rewrite_answer_parse(body, strlen(body), *block, room, answer, &problem);
}

static void test_steps_of_a_copy(void)
{
    struct rg_rewrite_answer answer;
    void *block;
    RG_CHECK_EQ(rewrite_parse("{\"kind\":\"storage#rewriteResponse\",\"done\":false,"
                              "\"totalBytesRewritten\":\"1048576\",\"objectSize\":\"3000000\","
                              "\"rewriteToken\":\"t/1\"}",
                              &answer, &block),
                0);
    RG_CHECK(!answer.done && answer.info == NULL);
    RG_CHECK_EQ(answer.rewritten, 1048576);
    RG_CHECK_EQ(answer.object_size, 3000000);
    RG_CHECK_STR(answer.token, "t/1");
    free(block);
    RG_CHECK_EQ(rewrite_parse("{\"done\":true,\"totalBytesRewritten\":\"5\",\"objectSize\":5,"
                              "\"resource\":{\"name\":\"x\",\"size\":\"5\"}}",
                              &answer, &block),
                0);
    RG_CHECK(answer.done);
    RG_CHECK_EQ(answer.info->object.size, 5);
    free(block);
    static const char *const bodies[] = {
        "{}",
        "{\"done\":1,\"totalBytesRewritten\":\"5\",\"objectSize\":5}",
        "{\"done\":false,\"totalBytesRewritten\":\"5\",\"objectSize\":5}",
        "{\"done\":false,\"totalBytesRewritten\":\"5\",\"objectSize\":5,\"rewriteToken\":\"\"}",
        "{\"done\":false,\"objectSize\":5,\"rewriteToken\":\"t\"}",
        "{\"done\":true,\"totalBytesRewritten\":\"5\",\"objectSize\":5}",
        "{\"done\":true,\"totalBytesRewritten\":\"5\",\"objectSize\":5,\"resource\":{}}",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bodies); i++) {
        RG_CHECK_EQ(rewrite_parse(bodies[i], &answer, &block), -EBADMSG);
        free(block);
    }
}

static void test_permissions(void)
{
    static const char names[] = "storage.objects.get\0storage.objects.list\0storage.objects.create";
    static const struct {
        const char *body;
        int rc;
        bool granted[3];
    } rows[] = {
        {"{}", 0, {false, false, false}},
        {"{\"permissions\":null}", 0, {false, false, false}},
        {"{\"permissions\":[\"storage.objects.create\",\"storage.objects.get\",5]}",
         0,
         {true, false, true}},
        {"{\"permissions\":{}}", -EBADMSG, {false, false, false}},
        {"[]", -EBADMSG, {false, false, false}},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        size_t size = strlen(rows[i].body), room = rg_object_info_size_bound(size);
        char *block = malloc(room);
        bool granted[3] = {false};
        const char *problem;
        RG_CHECK_EQ(
            rg_permissions_parse(rows[i].body, size, block, room, names, 3, granted, &problem),
            rows[i].rc);
        RG_CHECK_MEM(granted, sizeof(granted), rows[i].granted, sizeof(granted));
        free(block);
    }
}

static void check_rewrite(const char *text, size_t text_size, const char *class, bool is_own_place,
                          const char *body, const char *kms_key)
{
    struct rg_rewrite_said said = {0};
    RG_CHECK_EQ(rg_rewrite_say(text, text_size, class, is_own_place, &said), 0);
    RG_CHECK_STR(said.body, body);
    RG_CHECK_EQ(said.body_size, strlen(body));
    RG_CHECK_STR(said.kms_key != NULL ? said.kms_key : "none", kms_key);
    rg_rewrite_said_fini(&said);
}

static void test_what_a_rewrite_says(void)
{
    check_rewrite(resource, sizeof(resource) - 1, "NEARLINE", false,
                  "{\"storageClass\":\"NEARLINE\",\"contentType\":\"text/plain\","
                  "\"contentEncoding\":\"gzip\",\"cacheControl\":\"no-store\","
                  "\"metadata\":{\"k\":\"v\",\"empty\":\"\"}}",
                  "none");
    static const char kept[] =
        "{\"contexts\":{},\"acl\":[{\"kind\":\"x\",\"entity\":\"allUsers\",\"role\":\"READER\","
        "\"etag\":\"CAE=\"},{\"entity\":\"user-a@b.c\",\"role\":\"OWNER\"}],"
        "\"kmsKeyName\":\"projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/3\"}";
    check_rewrite(kept, sizeof(kept) - 1, "ARCHIVE", false,
                  "{\"storageClass\":\"ARCHIVE\","
                  "\"contentType\":\"application/octet-stream\",\"contexts\":{}}",
                  "none");
    check_rewrite(kept, sizeof(kept) - 1, "ARCHIVE", true,
                  "{\"storageClass\":\"ARCHIVE\","
                  "\"contentType\":\"application/octet-stream\",\"contexts\":{},"
                  "\"acl\":[{\"entity\":\"allUsers\",\"role\":\"READER\"},"
                  "{\"entity\":\"user-a@b.c\",\"role\":\"OWNER\"}]}",
                  "projects/p/locations/l/keyRings/r/cryptoKeys/k");
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_resource),
        RG_TEST(test_least_resource),
        RG_TEST(test_bodies_that_are_no_resource),
        RG_TEST(test_much_metadata),
        RG_TEST(test_steps_of_a_copy),
        RG_TEST(test_permissions),
        RG_TEST(test_what_a_rewrite_says),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
