/* Reading objects: both APIs, ranges, conditions, versions that go away meanwhile. */
#include "emulator/wire/checksum.h"
#include "tests/emulator/driver.h"

static void test_media_by_both_apis_and_all_aliases(void)
{
    static const char *const targets[] = {
        "/bucket/dir%2Ffile.txt",
        "/bucket/dir/file.txt",
        "/b%75cket/%64ir%2Ffile%2Etxt",
        "/storage/v1/b/bucket/o/dir%2Ffile.txt?alt=media",
        "/storage/v1/b/bucket/o/dir/file.txt?alt=media",
        "/download/storage/v1/b/bucket/o/dir%2Ffile.txt?alt=media&neverheard=of",
        "https://h/bucket/dir%2Ffile.txt",
    };
    open_api(NULL, 0);
    put_xml("/bucket/dir%2Ffile.txt", "hello world");
    for (size_t i = 0; i < RG_ARRAY_LEN(targets); i++) {
        get(targets[i]);
        RG_CHECK_EQ(reply.status, 200);
        RG_CHECK_STR(reply.body.data, "hello world");
        check_field("content-length", "11");
        check_field("content-type", "application/octet-stream");
        check_field("x-goog-hash", "crc32c=yZRlqg==,md5=XrY7u+Ae7tCTyyK7j1rNww==");
        check_field("x-goog-metageneration", "1");
        check_field("x-goog-stored-content-length", "11");
        check_field("x-goog-stored-content-encoding", "identity");
        check_field("x-goog-storage-class", "STANDARD");
        check_field("accept-ranges", "bytes");
        check_field("server", "UploadServer");
        RG_CHECK(rg_driver_field(&reply, "x-goog-generation") != NULL);
        RG_CHECK(rg_driver_field(&reply, "x-guploader-uploadid") != NULL);
        RG_CHECK_EQ(strlen(rg_driver_field(&reply, "date")), RG_TEXT_HTTP_DATE_SIZE);
        RG_CHECK_EQ(strlen(rg_driver_field(&reply, "last-modified")), RG_TEXT_HTTP_DATE_SIZE);
        bool is_xml = strstr(targets[i], "/storage/v1/") == NULL;
        RG_CHECK_EQ(rg_driver_field(&reply, "etag")[0] == '"', is_xml);
        rg_driver_send(api, &reply, "HEAD %s HTTP/1.1\r\nHost: h\r\n\r\n", targets[i]);
        RG_CHECK_EQ(reply.status, 200);
        RG_CHECK_EQ(reply.response.body_size, 0);
        check_field("content-length", "11");
    }
    close_api();
}

static void test_ranges(void)
{
    static const struct {
        const char *range, *body, *content_range;
        unsigned status;
    } rows[] = {
        {"bytes=0-3", "0123", "bytes 0-3/10", 206},
        {"bytes=3-", "3456789", "bytes 3-9/10", 206},
        {"bytes=-4", "6789", "bytes 6-9/10", 206},
        {"bytes=-400", "0123456789", "bytes 0-9/10", 206},
        {"bytes=8-100", "89", "bytes 8-9/10", 206},
        {"bytes=9-9", "9", "bytes 9-9/10", 206},
        {"bytes=8-99999999999999999999999", "89", "bytes 8-9/10", 206},
        {"bytes=10-", NULL, "bytes */10", 416},
        {"bytes=99999999999999999999999-", NULL, "bytes */10", 416},
        {"bytes=-0", NULL, "bytes */10", 416},
        {"bytes=5-2", "0123456789", "(none)", 200},
        {"bytes=", "0123456789", "(none)", 200},
        {"bytes=-", "0123456789", "(none)", 200},
        {"bytes=1-2,4-5", "0123456789", "(none)", 200},
        {"bytes=a-b", "0123456789", "(none)", 200},
        {"lines=1-2", "0123456789", "(none)", 200},
    };
    static const char *const targets[] = {"/bucket/o", "/storage/v1/b/bucket/o/o?alt=media"};
    open_api(NULL, 0);
    put_xml("/bucket/o", "0123456789");
    for (size_t i = 0; i < RG_ARRAY_LEN(rows) * 2; i++) {
        size_t row = i / 2;
        rg_driver_send(api, &reply, "GET %s HTTP/1.1\r\nHost: h\r\nRange: %s\r\n\r\n",
                       targets[i % 2], rows[row].range);
        RG_CHECK_EQ(reply.status, rows[row].status);
        check_field("content-range", rows[row].content_range);
        if (rows[row].body != NULL) {
            RG_CHECK_STR(reply.body.data, rows[row].body);
            check_field("x-goog-stored-content-length", "10");
        } else {
            check_body_has(i % 2 ? "requestedRangeNotSatisfiable" : "<Code>InvalidRange</Code>");
        }
    }
    put_xml("/bucket/empty", "");
    rg_driver_send(api, &reply, "GET /bucket/empty HTTP/1.1\r\nHost: h\r\nRange: bytes=0-\r\n\r\n");
    RG_CHECK_EQ(reply.status, 416);
    get("/bucket/empty");
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_EQ(reply.body.size, 0);
    close_api();
}

static void test_conditions(void)
{
    char generation[1024], other[32];
    open_api(NULL, 0);
    put_xml("/bucket/o", "1");
    snprintf(generation, sizeof(generation), "%s", rg_driver_field(&reply, "x-goog-generation"));
    snprintf(other, sizeof(other), "%lld", atoll(generation) + 1);
    const struct {
        const char *method, *parameter, *value, *header;
        unsigned status;
    } rows[] = {
        {"GET", "ifGenerationMatch", generation, "", 200},
        {"GET", "ifGenerationMatch", other, "", 412},
        {"GET", "ifGenerationMatch", "0", "", 412},
        {"GET", "ifGenerationNotMatch", generation, "", 304},
        {"GET", "ifGenerationNotMatch", other, "", 200},
        {"GET", "ifMetagenerationMatch", "1", "", 200},
        {"GET", "ifMetagenerationMatch", "2", "", 412},
        {"GET", "ifMetagenerationNotMatch", "1", "", 304},
        {"GET", "generation", generation, "", 200},
        {"GET", "generation", other, "", 404},
        {"GET", "x", "", "If-None-Match: *\r\n", 304},
        {"GET", "x", "", "If-Match: \"no\"\r\n", 412},
        {"DELETE", "ifGenerationMatch", other, "", 412},
        {"DELETE", "ifGenerationNotMatch", generation, "", 412},
        {"DELETE", "generation", other, "", 404},
        {"DELETE", "ifGenerationMatch", generation, "", 204},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        rg_driver_send(api, &reply,
                       "%s /storage/v1/b/bucket/o/o?alt=media&%s=%s HTTP/1.1\r\nHost: h\r\n%s\r\n",
                       rows[i].method, rows[i].parameter, rows[i].value, rows[i].header);
        if (reply.status != rows[i].status) {
            rg_test_fail(__FILE__, __LINE__, "row %zu: %u, %s", i, reply.status, reply.body.data);
        }
    }
    const struct {
        const char *header, *value;
        unsigned status;
    } writes[] = {
        {"x-goog-if-generation-match", "0", 200},
        {"x-goog-if-generation-match", "0", 412},
        {"x-goog-if-generation-match", "5", 412},
        {"x-goog-if-metageneration-match", "1", 200},
        {"If-None-Match", "*", 412},
        {"x-goog-if-generation-match", "x", 400},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(writes); i++) {
        rg_driver_send(api, &reply,
                       "PUT /bucket/o HTTP/1.1\r\nHost: h\r\n%s: %s\r\nContent-Length: 1\r\n\r\nx",
                       writes[i].header, writes[i].value);
        RG_CHECK_EQ(reply.status, writes[i].status);
    }
    rg_driver_send(api, &reply,
                   "POST /upload/storage/v1/b/bucket/o?uploadType=media&name=o&ifGenerationMatch=0 "
                   "HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
    RG_CHECK_EQ(reply.status, 412);
    check_body_has("conditionNotMet");
    close_api();
}

static void test_etags_with_quotes_and_without(void)
{
    static const char *const targets[] = {"/bucket/o", "/storage/v1/b/bucket/o/o?alt=media",
                                          "/storage/v1/b/bucket/o/o"};
    char etag[64];
    open_api(NULL, 0);
    put_xml("/bucket/o", "1");
    get("/storage/v1/b/bucket/o/o");
    json_member("etag", etag, sizeof(etag));
    for (size_t i = 0; i < RG_ARRAY_LEN(targets); i++) {
        static const struct {
            const char *before, *behind;
            bool is_it;
        } forms[] = {
            {"", "", true},    {"\"", "\"", true}, {"W/\"", "\"", true}, {"\"x\", \"", "\"", true},
            {"x,", " ", true}, {"x", "", false},   {"", "x", false},     {"\"x", "\"", false}};
        for (size_t j = 0; j < RG_ARRAY_LEN(forms); j++) {
            static const char *const fields[] = {"If-Match", "If-None-Match"};
            for (size_t k = 0; k < RG_ARRAY_LEN(fields); k++) {
                unsigned wanted =
                    k == 0 ? (forms[j].is_it ? 200 : 412) : (forms[j].is_it ? 304 : 200);
                rg_driver_send(api, &reply, "GET %s HTTP/1.1\r\nHost: h\r\n%s: %s%s%s\r\n\r\n",
                               targets[i], fields[k], forms[j].before, etag, forms[j].behind);
                if (reply.status != wanted) {
                    rg_test_fail(__FILE__, __LINE__, "%s %s row %zu: %u", targets[i], fields[k], j,
                                 reply.status);
                }
            }
        }
    }
    close_api();
}

static void test_delete_by_both_apis(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/a", "1");
    put_xml("/bucket/b", "1");
    rg_driver_send(api, &reply, "DELETE /bucket/a HTTP/1.1\r\nHost: h\r\n\r\n");
    RG_CHECK_EQ(reply.status, 204);
    RG_CHECK(!reply.head.has_content_length);
    rg_driver_send(api, &reply, "DELETE /storage/v1/b/bucket/o/b HTTP/1.1\r\nHost: h\r\n\r\n");
    RG_CHECK_EQ(reply.status, 204);
    get("/bucket/a");
    RG_CHECK_EQ(reply.status, 404);
    get("/bucket/b");
    RG_CHECK_EQ(reply.status, 404);
    close_api();
}

static void test_a_running_response_survives_overwrite_and_delete(void)
{
    static struct rg_driver_call call;
    static const char request[] = "GET /bucket/o HTTP/1.1\r\nHost: h\r\n\r\n";
    open_api(NULL, 0);
    put_xml("/bucket/o", "the old bytes");
    rg_driver_open(&call, api, request, strlen(request), RG_DRIVER_PIECE_WHOLE);
    put_xml("/bucket/o", "new");
    rg_driver_send(api, &reply, "DELETE /bucket/o HTTP/1.1\r\nHost: h\r\n\r\n");
    RG_CHECK_EQ(reply.status, 204);
    rg_driver_reply_fini(&reply);
    rg_driver_close(&call, &reply);
    RG_CHECK_STR(reply.body.data, "the old bytes");
    close_api();
}

static void test_synthetic_objects_over_the_api(void)
{
    static const char *const sets[] = {"data/train/x-:20000:100KiB"};
    open_api(sets, 1);
    get("/data/train/x-00019999");
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_EQ(reply.body.size, 102400);
    uint32_t crc = rg_checksum_extend(0, reply.body.data, reply.body.size);
    char hash[32] = "crc32c=";
    uint8_t bytes[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8),
                        (uint8_t)crc};
    rg_text_format_base64(hash + 7, bytes, 4);
    hash[15] = '\0';
    check_field("x-goog-hash", hash);
    get("/data/train/x-00020000");
    RG_CHECK_EQ(reply.status, 404);
    get("/storage/v1/b/data/o?prefix=train/x-0001999&fields=items/name");
    check_body_has("train/x-00019990");
    check_body_has("train/x-00019999");
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_media_by_both_apis_and_all_aliases),
        RG_TEST(test_ranges),
        RG_TEST(test_conditions),
        RG_TEST(test_etags_with_quotes_and_without),
        RG_TEST(test_delete_by_both_apis),
        RG_TEST(test_a_running_response_survives_overwrite_and_delete),
        RG_TEST(test_synthetic_objects_over_the_api),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
