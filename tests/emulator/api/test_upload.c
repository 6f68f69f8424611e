/* Uploads in one request: hashes, attributes, multipart bodies, room. */
#include "tests/emulator/driver.h"

static void test_xml_upload_checks_hashes(void)
{
    static const struct {
        const char *headers;
        unsigned status;
    } rows[] = {
        {"x-goog-hash: crc32c=yZRlqg==\r\n", 200},
        {"x-goog-hash: crc32c=yZRlqg==,md5=XrY7u+Ae7tCTyyK7j1rNww==\r\n", 200},
        {"x-goog-hash: crc32c=yZRlqg==\r\nx-goog-hash: md5=XrY7u+Ae7tCTyyK7j1rNww==\r\n", 200},
        {"Content-MD5: XrY7u+Ae7tCTyyK7j1rNww==\r\n", 200},
        {"x-goog-hash: crc32c=yZRlqQ==\r\n", 400},
        {"x-goog-hash: crc32c=yZRlqg==, md5=AAY7u+Ae7tCTyyK7j1rNww==\r\n", 400},
        {"Content-MD5: AAY7u+Ae7tCTyyK7j1rNww==\r\n", 400},
        {"Content-MD5: short\r\n", 400},
        {"x-goog-hash: crc32c=?\r\n", 400},
    };
    open_api(NULL, 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        rg_driver_send(api, &reply,
                       "PUT /bucket/o%zu HTTP/1.1\r\nHost: h\r\n%sContent-Length: 11\r\n\r\n"
                       "hello world",
                       i, rows[i].headers);
        RG_CHECK_EQ(reply.status, rows[i].status);
        char target[32];
        if (rows[i].status != 200) {
            check_body_has("<Code>BadDigest</Code>");
        } else {
            check_field("x-goog-hash", "crc32c=yZRlqg==,md5=XrY7u+Ae7tCTyyK7j1rNww==");
            RG_CHECK(rg_driver_field(&reply, "etag") != NULL);
        }
        snprintf(target, sizeof(target), "/bucket/o%zu", i);
        get(target);
        RG_CHECK_EQ(reply.status, rows[i].status == 200 ? 200 : 404);
    }
    close_api();
}

static void test_uploads_keep_content_type_and_encoding(void)
{
    open_api(NULL, 0);
    rg_driver_send(api, &reply,
                   "POST /upload/storage/v1/b/bucket/o?uploadType=media&name=a%%2Fb"
                   "&contentEncoding=gzip HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
                   "Content-Length: 2\r\n\r\nhi");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"contentType\":\"text/plain\"");
    check_body_has("\"contentEncoding\":\"gzip\"");
    check_body_has("\"name\":\"a/b\"");
    get("/bucket/a/b");
    check_field("content-type", "text/plain");
    check_field("content-encoding", "gzip");
    check_field("x-goog-stored-content-encoding", "gzip");
    close_api();
}

static void test_multipart_upload_in_any_pieces(void)
{
    static const struct {
        const char *eol, *boundary, *data;
        bool quoted;
    } rows[] = {
        {"\r\n", "xyz", "some data", true},
        {"\n", "===============123==", "some\r\n--data\n-\r", true},
        {"\r\n", "b", "", false},
        {"\r\n", "b", "\r\n\r\n--", false},
        {"\n", "b", "\n\n-", false},
        {"\r\n", "aab", "\r\n--aa\r\n--aaa\n--a", false},
    };
    open_api(NULL, 0);
    for (size_t row = 0; row < RG_ARRAY_LEN(rows); row++) {
        const char *n = rows[row].eol, *b = rows[row].boundary, *q = rows[row].quoted ? "\"" : "";
        char body[1024], request[2048];
        int body_size = snprintf(
            body, sizeof(body),
            "--%s%sContent-Type: application/json%s%s{\"name\":\"m%zu\",\"contentType\":\"a/b\"}"
            "%s--%s%scontent-type: text/x%s%s%s%s--%s--%s",
            b, n, n, n, row, n, b, n, n, n, rows[row].data, n, b, n);
        int size = snprintf(request, sizeof(request),
                            "POST /upload/storage/v1/b/bucket/o?uploadType=multipart HTTP/1.1\r\n"
                            "Host: h\r\nContent-Type: multipart/related; boundary=%s%s%s\r\n"
                            "Content-Length: %d\r\n\r\n%s",
                            q, b, q, body_size, body);
        for (size_t piece = 1; piece < (size_t)body_size + 2; piece++) {
            rg_driver_reply_fini(&reply);
            rg_driver_exchange(api, request, (size_t)size, piece, &reply);
            RG_CHECK_EQ(reply.status, 200);
            check_body_has("\"contentType\":\"a/b\"");
            char target[32];
            snprintf(target, sizeof(target), "/bucket/m%zu", row);
            get(target);
            RG_CHECK_STR(reply.body.data, rows[row].data);
        }
    }
    close_api();
}

static void test_multipart_upload_that_is_wrong(void)
{
    static const struct {
        const char *type, *body, *message;
    } rows[] = {
        {"multipart/related", "", "boundary"},
        {"multipart/related; boundary=b", "--b\r\n\r\n{\"name\":\"o\"}\r\n--b\r\n\r\ndata",
         "closing"},
        {"multipart/related; boundary=b", "nothing of the kind", "closing"},
        {"multipart/related; boundary=b", "--b\r\n\r\n[]\r\n--b\r\n\r\ndata\r\n--b--", "JSON"},
        {"multipart/related; boundary=b", "--b\r\n\r\n{}\r\n--b\r\n\r\ndata\r\n--b--", "name"},
        {"multipart/related; boundary=b",
         "--b\r\n\r\n{\"name\":\"o\",\"crc32c\":\"AAAAAA==\"}\r\n--b\r\n\r\ndata\r\n--b--",
         "CRC32C"},
        {"multipart/related; boundary=b",
         "--b\r\n\r\n{\"name\":\"o\",\"md5Hash\":\"XrY7u+Ae7tCTyyK7j1rNww==\"}\r\n--b\r\n\r\ndata"
         "\r\n--b--",
         "MD5"},
        {"multipart/related; boundary=b",
         "--b\r\n\r\n{\"name\":\"o\",\"contentType\":\"a\\nb\"}\r\n--b\r\n\r\ndata\r\n--b--",
         "content type"},
    };
    open_api(NULL, 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        rg_driver_send(api, &reply,
                       "POST /upload/storage/v1/b/bucket/o?uploadType=multipart HTTP/1.1\r\n"
                       "Host: h\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
                       rows[i].type, strlen(rows[i].body), rows[i].body);
        RG_CHECK_EQ(reply.status, 400);
        check_body_has(rows[i].message);
    }
    rg_driver_send(api, &reply, "GET /bucket/o HTTP/1.1\r\nHost: h\r\n\r\n");
    RG_CHECK_EQ(reply.status, 404);
    close_api();
}

static void test_upload_beyond_the_memory_budget_is_413(void)
{
    open_api(NULL, 0);
    rg_driver_send(api, &reply,
                   "PUT /bucket/o HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\n\r\n");
    RG_CHECK_EQ(reply.status, 413);
    check_body_has("<Code>EntityTooLarge</Code>");
    check_field("connection", "close");
    RG_CHECK(reply.response.close);
    /* Nothing of it is kept, so that the whole budget is there again. */
    char *body = calloc(1, RG_MIB(4) + 1);
    memset(body, 'x', RG_MIB(4));
    for (int i = 0; i < 3; i++) {
        rg_driver_send(api, &reply,
                       "PUT /bucket/o HTTP/1.1\r\nHost: h\r\nContent-Length: 4194304\r\n\r\n%s",
                       body);
        RG_CHECK_EQ(reply.status, 200);
        rg_driver_send(api, &reply, "DELETE /bucket/o HTTP/1.1\r\nHost: h\r\n\r\n");
        RG_CHECK_EQ(reply.status, 204);
    }
    free(body);
    close_api();
}

static void test_what_was_uploaded_has_an_md5(void)
{
    static const char hello[] = "XrY7u+Ae7tCTyyK7j1rNww==";
    open_api(NULL, 0);
    put_xml("/bucket/xml", "hello world");
    check_md5("xml", hello);
    rg_driver_send(api, &reply,
                   "POST /upload/storage/v1/b/bucket/o?uploadType=media&name=media HTTP/1.1\r\n"
                   "Host: h\r\nContent-Length: 11\r\n\r\nhello world");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"md5Hash\":\"XrY7u+Ae7tCTyyK7j1rNww==\"");
    check_md5("media", hello);
    put_xml("/bucket/empty", "");
    check_md5("empty", "1B2M2Y8AsgTpgAmY7PhCfg==");
    /* A new description is of the same bytes, and other bytes have another. */
    rg_driver_send(api, &reply,
                   "PATCH /storage/v1/b/bucket/o/xml HTTP/1.1\r\nHost: h\r\n"
                   "Content-Length: 25\r\n\r\n{\"contentType\":\"text/xyz\"}");
    check_md5("xml", hello);
    put_xml("/bucket/xml", "");
    check_md5("xml", "1B2M2Y8AsgTpgAmY7PhCfg==");
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_xml_upload_checks_hashes),
        RG_TEST(test_uploads_keep_content_type_and_encoding),
        RG_TEST(test_multipart_upload_in_any_pieces),
        RG_TEST(test_multipart_upload_that_is_wrong),
        RG_TEST(test_what_was_uploaded_has_an_md5),
        RG_TEST(test_upload_beyond_the_memory_budget_is_413),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
