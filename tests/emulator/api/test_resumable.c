/* Uploads over several requests: chunks, questions, overlaps, ends of every kind. */
#include "emulator/api/resumable.h"

#include "tests/emulator/driver.h"

#define UNIT ((size_t)256 * 1024)
#define MD5_OF_UNIT "PNL5mzO6NNqjW30J43B4yA=="

static char session[1024]; /* The path of the session that was started last. */

static void start(const char *target, const char *headers, const char *body)
{
    rg_driver_send(api, &reply, "POST %s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %zu\r\n\r\n%s",
                   target, headers, strlen(body), body);
    const char *location = rg_driver_field(&reply, "location");
    if (location != NULL) {
        RG_CHECK(strncmp(location, "https://h/", 10) == 0);
        snprintf(session, sizeof(session), "%s", location + 9);
    }
}

static void start_json(const char *query, const char *body)
{
    char target[256];
    snprintf(target, sizeof(target), "/upload/storage/v1/b/bucket/o?uploadType=resumable%s", query);
    start(target, "Content-Type: application/json\r\n", body);
}

/* The byte of the object at an offset. */
static uint8_t byte_at(size_t offset)
{
    return (uint8_t)(offset * 7 + offset / 251);
}

/* Sends `size` bytes of the object from `first`, or as many of them as `sent` before the connection
 * is lost. */
static void put_cut(size_t first, size_t size, const char *headers, size_t sent)
{
    char *request = malloc(size + 1024);
    RG_CHECK(request != NULL);
    int head_size =
        snprintf(request, 1024, "PUT %s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %zu\r\n\r\n",
                 session, headers, size);
    for (size_t i = 0; i < size; i++) {
        request[(size_t)head_size + i] = (char)byte_at(first + i);
    }
    rg_driver_reply_fini(&reply);
    if (sent == size) {
        rg_driver_exchange(api, request, (size_t)head_size + size, 60000, &reply);
    } else {
        rg_driver_cut(api, request, (size_t)head_size + sent);
    }
    free(request);
}

static void put(size_t first, size_t size, const char *headers)
{
    put_cut(first, size, headers, size);
}

static void put_range(size_t first, size_t size, const char *total)
{
    char header[128];
    snprintf(header, sizeof(header), "Content-Range: bytes %zu-%zu/%s\r\n", first, first + size - 1,
             total);
    put(first, size, header);
}

static void ask(void)
{
    put(0, 0, "Content-Range: bytes */*\r\n");
}

static void check_object(const char *path, size_t size)
{
    get(path);
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_EQ(reply.body.size, size);
    for (size_t i = 0; i < size; i++) {
        if ((uint8_t)reply.body.data[i] != byte_at(i)) {
            rg_test_fail(__FILE__, __LINE__, "byte %zu differs", i);
        }
    }
}

static void test_chunks_of_a_known_size(void)
{
    open_api(NULL, 0);
    start_json("", "{\"name\":\"a/b\",\"contentType\":\"text/x\"}");
    RG_CHECK_EQ(reply.status, 200);
    ask();
    RG_CHECK_EQ(reply.status, 308);
    check_field("range", "(none)");
    put_range(0, UNIT, "600000");
    RG_CHECK_EQ(reply.status, 308);
    check_field("range", "bytes=0-262143");
    get("/bucket/a/b");
    RG_CHECK_EQ(reply.status, 404);
    put_range(UNIT, UNIT, "600000");
    check_field("range", "bytes=0-524287");
    put_range(2 * UNIT, 600000 - 2 * UNIT, "600000");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"size\":\"600000\"");
    check_body_has("\"contentType\":\"text/x\"");
    check_object("/bucket/a/b", 600000);
    check_field("content-type", "text/x");
    get("/storage/v1/b/bucket/o/a%2Fb");
    check_body_has("\"md5Hash\":\"yHfJCM7khdbCCPd+0LhAig==\"");
    ask(); /* The answer was lost. */
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"size\":\"600000\"");
    close_api();
}

static void test_a_size_that_is_known_at_the_end(void)
{
    open_api(NULL, 0);
    start_json("&name=o", "");
    put_range(0, UNIT, "*");
    RG_CHECK_EQ(reply.status, 308);
    put(0, 0, "Content-Range: bytes */262144\r\nx-goog-hash: crc32c=AAAAAA==\r\n");
    RG_CHECK_EQ(reply.status, 400);
    ask();
    RG_CHECK_EQ(reply.status, 404); /* That was the end of it. */
    start_json("&name=o", "");
    put_range(0, UNIT, "*");
    put(0, 0, "Content-Range: bytes */262145\r\n"); /* One is missing: a question. */
    RG_CHECK_EQ(reply.status, 308);
    put(0, 0, "Content-Range: bytes */262144\r\nx-goog-hash: md5=1B2M2Y8AsgTpgAmY7PhCfg==\r\n");
    RG_CHECK_EQ(reply.status, 400);
    start_json("&name=o", "");
    put_range(0, UNIT, "*");
    put(0, 0, "Content-Range: bytes */262144\r\nx-goog-hash: md5=" MD5_OF_UNIT "\r\n");
    RG_CHECK_EQ(reply.status, 200);
    check_md5("o", MD5_OF_UNIT);
    check_object("/bucket/o", UNIT);
    /* What was declared at the start counts, whatever is said at the end; a last request may be
     * made again. */
    start_json("&name=p", "{\"crc32c\":\"AAAAAA==\"}");
    put_range(0, UNIT, "*");
    put(0, 0, "Content-Range: bytes */262144\r\nx-goog-hash: md5=" MD5_OF_UNIT "\r\n");
    RG_CHECK_EQ(reply.status, 400);
    check_body_has("doesn't match calculated CRC32C");
    get("/bucket/p");
    RG_CHECK_EQ(reply.status, 404);
    start_json("&name=p", "{\"md5Hash\":\"" MD5_OF_UNIT "\"}");
    put_range(0, UNIT, "*");
    put(0, 0, "Content-Range: bytes */262144\r\nx-goog-hash: md5=" MD5_OF_UNIT ",md5=AAAA\r\n");
    RG_CHECK_EQ(reply.status, 400);
    put(0, 0, "Content-Range: bytes */262144\r\nx-goog-hash: md5=" MD5_OF_UNIT "\r\n");
    RG_CHECK_EQ(reply.status, 200);
    start_json("&name=empty", "");
    put(0, 0, "Content-Range: bytes */0\r\n");
    RG_CHECK_EQ(reply.status, 200);
    check_object("/bucket/empty", 0);
    start_json("&name=whole", "");
    put(0, 1000, "");
    RG_CHECK_EQ(reply.status, 200);
    check_object("/bucket/whole", 1000);
    close_api();
}

static void test_what_came_before_a_cut_is_kept(void)
{
    open_api(NULL, 0);
    start_json("&name=o", "");
    put_cut(0, 700000, "Content-Range: bytes 0-699999/700000\r\n", 600000);
    ask();
    RG_CHECK_EQ(reply.status, 308);
    check_field("range", "bytes=0-524287"); /* In units of 256 KiB. */
    put_range(2 * UNIT, 700000 - 2 * UNIT, "700000");
    RG_CHECK_EQ(reply.status, 200);
    check_object("/bucket/o", 700000);
    close_api();
}

static void test_bytes_that_are_sent_again_are_passed_over(void)
{
    open_api(NULL, 0);
    start_json("&name=o", "");
    put_range(0, 2 * UNIT, "*");
    put_range(UNIT, 2 * UNIT, "*");
    check_field("range", "bytes=0-786431");
    put_range(0, 3 * UNIT + 5, "786437");
    RG_CHECK_EQ(reply.status, 200);
    check_object("/bucket/o", 3 * UNIT + 5);
    close_api();
}

static void test_malformed_chunks_are_refused(void)
{
    static const struct {
        const char *headers;
        size_t size;
        unsigned status;
    } rows[] = {
        {"Content-Range: bytes 0-999/5000\r\n", 1000, 400},
        {"Content-Range: bytes 0-999/*\r\n", 1000, 400},
        {"Content-Range: bytes 0-262143/*\r\n", 1000, 400},
        {"Content-Range: bytes 5-4/10\r\n", 0, 400},
        {"Content-Range: bytes 0-9/10/2\r\n", 10, 400},
        {"Content-Range: bytes 0-9/9\r\n", 10, 400},
        {"Content-Range: bytes -9/10\r\n", 10, 400},
        {"Content-Range: 0-9/10\r\n", 10, 400},
        {"Content-Range: bytes 0-9\r\n", 10, 400},
        {"Content-Range: bytes 0-9/99999999999999999999\r\n", 10, 400},
        {"Content-Range: bytes 262144-262153/262154\r\n", 10, 503}, /* Nothing is there yet. */
        {"Content-Range: bytes 0-9/10\r\nx-goog-hash: crc32c=?\r\n", 10, 400},
    };
    open_api(NULL, 0);
    start_json("&name=o", "");
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        put(0, rows[i].size, rows[i].headers);
        RG_CHECK_EQ(reply.status, rows[i].status);
    }
    put_range(0, 10, "10"); /* None of it did harm. */
    RG_CHECK_EQ(reply.status, 200);
    close_api();
}

static void test_the_announced_size_counts(void)
{
    open_api(NULL, 0);
    start("/upload/storage/v1/b/bucket/o?uploadType=resumable&name=o",
          "X-Upload-Content-Length: 11\r\nX-Upload-Content-Type: a/b\r\n", "");
    RG_CHECK_EQ(reply.status, 200);
    put_range(0, 10, "10");
    RG_CHECK_EQ(reply.status, 400);
    put_range(0, 11, "11");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"contentType\":\"a/b\"");
    start("/upload/storage/v1/b/bucket/o?uploadType=resumable&name=o",
          "X-Upload-Content-Length: x\r\n", "");
    RG_CHECK_EQ(reply.status, 400);
    start("/upload/storage/v1/b/bucket/o?uploadType=resumable", "", "{}");
    RG_CHECK_EQ(reply.status, 400);
    start("/upload/storage/v1/b/bucket/o?uploadType=resumable&name=o", "", "[]");
    RG_CHECK_EQ(reply.status, 400);
    close_api();
}

static void test_conditions_hold_at_the_start_and_at_the_end(void)
{
    open_api(NULL, 0);
    start_json("&name=o&ifGenerationMatch=0", "");
    RG_CHECK_EQ(reply.status, 200);
    put_xml("/bucket/o", "first");
    put_range(0, 10, "10");
    RG_CHECK_EQ(reply.status, 412);
    start_json("&name=o&ifGenerationMatch=0", "");
    RG_CHECK_EQ(reply.status, 412);
    get("/bucket/o");
    RG_CHECK_STR(reply.body.data, "first");
    close_api();
}

static void test_a_session_can_be_cancelled(void)
{
    open_api(NULL, 0);
    start_json("&name=o", "");
    put_range(0, UNIT, "*");
    rg_driver_send(api, &reply, "DELETE %s HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
                   session);
    RG_CHECK_EQ(reply.status, 499);
    put_range(UNIT, 10, "262154");
    RG_CHECK_EQ(reply.status, 404);
    ask();
    RG_CHECK_EQ(reply.status, 404);
    close_api();
}

static void test_308_may_be_hidden(void)
{
    open_api(NULL, 0);
    start_json("&name=o", "");
    put(0, UNIT, "Content-Range: bytes 0-262143/*\r\nX-GUploader-No-308: yes\r\n");
    RG_CHECK_EQ(reply.status, 200);
    check_field("x-http-status-code-override", "308");
    check_field("range", "bytes=0-262143");
    put(0, 0, "Content-Range: bytes */*\r\nX-GUploader-No-308: yes\r\n");
    RG_CHECK_EQ(reply.status, 200);
    check_field("x-http-status-code-override", "308");
    close_api();
}

static void test_the_xml_api_has_sessions_too(void)
{
    open_api(NULL, 0);
    start("/bucket/a%20b/c", "x-goog-resumable: start\r\nContent-Type: text/y\r\n", "");
    RG_CHECK_EQ(reply.status, 201);
    put_range(0, UNIT, "*");
    RG_CHECK_EQ(reply.status, 308);
    put_range(UNIT, 1, "262145");
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK(rg_driver_field(&reply, "etag") != NULL);
    check_object("/bucket/a%20b/c", UNIT + 1);
    check_field("content-type", "text/y");
    close_api();
}

static void test_sessions_are_bound_by_the_memory_budget(void)
{
    open_api(NULL, 0);
    start_json("&name=o", "");
    put_range(0, 20 * UNIT, "*");
    RG_CHECK_EQ(reply.status, 413);
    ask();
    RG_CHECK_EQ(reply.status, 404);
    start_json("&name=o", ""); /* Everything was given back. */
    put_range(0, 14 * UNIT, "*");
    RG_CHECK_EQ(reply.status, 308);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_chunks_of_a_known_size),
        RG_TEST(test_a_size_that_is_known_at_the_end),
        RG_TEST(test_what_came_before_a_cut_is_kept),
        RG_TEST(test_bytes_that_are_sent_again_are_passed_over),
        RG_TEST(test_malformed_chunks_are_refused),
        RG_TEST(test_the_announced_size_counts),
        RG_TEST(test_conditions_hold_at_the_start_and_at_the_end),
        RG_TEST(test_a_session_can_be_cancelled),
        RG_TEST(test_308_may_be_hidden),
        RG_TEST(test_the_xml_api_has_sessions_too),
        RG_TEST(test_sessions_are_bound_by_the_memory_budget),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
