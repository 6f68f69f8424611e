/* The HTTP/1.1 decoder. Every message is parsed whole, byte by byte and at random splits, out of
 * blocks of exactly its size so that a sanitizer sees any byte read too many; however it was split,
 * the result must be the same. */
#include "http/h1_decoder.h"
#include "tests/support/test.h"

#define RANDOM_SPLITS 16
#define OK(...) "HTTP/1.1 200 OK\r\n" __VA_ARGS__ "\r\n"
#define GET(...) "GET / HTTP/1.1\r\nHost: h\r\n" __VA_ARGS__ "\r\n"

enum kind { RESPONSE, RESPONSE_TO_HEAD, REQUEST };

static int parse(enum kind kind, struct rg_h1_head *head, const void *data, size_t size,
                 size_t scanned)
{
    if (kind == REQUEST) {
        return rg_h1_parse_request(head, data, size, scanned);
    }
    return rg_h1_parse_response(head, kind == RESPONSE_TO_HEAD, data, size, scanned);
}

/* Parses what has arrived from a block that ends there. */
static int parse_prefix(enum kind kind, struct rg_h1_head *head, const char *data, size_t size,
                        size_t scanned)
{
    char *copy = malloc(size == 0 ? 1 : size);
    memcpy(copy, data, size);
    int result = parse(kind, head, copy, size, scanned);
    free(copy);
    return result;
}

/* Feeds the message in steps of at most `step_max` bytes, 0 meaning all at once. */
static int feed(enum kind kind, struct rg_h1_head *head, const char *data, size_t size,
                size_t step_max)
{
    size_t arrived = 0, scanned = 0;
    int result = -EAGAIN;
    while (result == -EAGAIN && scanned < size) {
        size_t step = step_max == 0 ? size : step_max == 1 ? 1 : 1 + rg_test_random_below(step_max);
        arrived = RG_MIN(size, arrived + step);
        result = parse_prefix(kind, head, data, arrived, scanned);
        scanned = arrived;
    }
    return result;
}

static void check_same_slice(struct rg_h1_slice a, struct rg_h1_slice b)
{
    RG_CHECK_EQ(a.size, b.size);
}

static void check_same_head(const struct rg_h1_head *a, const struct rg_h1_head *b)
{
    RG_CHECK_EQ(a->status, b->status);
    RG_CHECK_EQ(a->minor_version, b->minor_version);
    RG_CHECK_EQ(a->keep_alive, b->keep_alive);
    RG_CHECK_EQ(a->expect_continue, b->expect_continue);
    RG_CHECK_EQ(a->framing, b->framing);
    RG_CHECK_EQ(a->content_length, b->content_length);
    RG_CHECK_EQ(a->has_content_length, b->has_content_length);
    RG_CHECK_EQ(a->header_count, b->header_count);
    check_same_slice(a->method, b->method);
    check_same_slice(a->target, b->target);
    check_same_slice(a->reason, b->reason);
    for (uint32_t i = 0; i < a->header_count; i++) {
        check_same_slice(a->headers[i].name, b->headers[i].name);
        check_same_slice(a->headers[i].value, b->headers[i].value);
    }
}

/* The result of the whole message, after the same came out of every way to split it. */
static int parse_every_way(enum kind kind, struct rg_h1_head *head, const char *data, size_t size)
{
    static struct rg_h1_head whole, split;
    int result = feed(kind, &whole, data, size, 0);
    for (size_t way = 0; way <= RANDOM_SPLITS; way++) {
        size_t step_max = way == 0 ? 1 : 2 + rg_test_random_below(size + 1);
        if (way == 0 && size > 4096) {
            continue; /* Copies of every prefix would take too long. */
        }
        int split_result = feed(kind, &split, data, size, step_max);
        RG_CHECK_EQ(split_result, result);
        RG_CHECK_EQ(split.error, whole.error);
        if (result > 0) {
            check_same_head(&whole, &split);
        }
    }
    RG_CHECK_EQ(parse(kind, head, data, size, 0), result);
    RG_CHECK_EQ(head->error, whole.error);
    return result;
}

static void check_accepted(enum kind kind, struct rg_h1_head *head, const char *message)
{
    int result = parse_every_way(kind, head, message, strlen(message));
    if (result != (int)strlen(message)) {
        rg_test_fail(__FILE__, __LINE__, "%d (%s) for: %s", result, rg_h1_error_text(head->error),
                     message);
    }
}

static void check_refused(enum kind kind, const char *message, size_t size, enum rg_h1_error error)
{
    static struct rg_h1_head head;
    int result = parse_every_way(kind, &head, message, size);
    if ((result != -EBADMSG && result != -EMSGSIZE) || head.error != error) {
        rg_test_fail(__FILE__, __LINE__, "%d (%s), wanted (%s) for: %s", result,
                     rg_h1_error_text(head.error), rg_h1_error_text(error), message);
    }
}

static void check_slice(struct rg_h1_slice slice, const char *text)
{
    RG_CHECK_MEM(slice.data, slice.size, text, strlen(text));
}

static void test_a_gcs_response_yields_its_parts(void)
{
    static const char message[] =
        "HTTP/1.1 206 Partial Content\r\n"
        "X-GUploader-UploadID: AHmUCY1xT0b9Vd0f4kTz3n5vQ2cW8yXr7uJpLk6mNbVcXzAsDf\r\n"
        "Expires: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
        "x-goog-hash: crc32c=AAAAAA==\r\n"
        "x-goog-hash: md5=1B2M2Y8AsgTpgAmY7PhCfg==\r\n"
        "X-Goog-Hash:\t other=1 \t\r\n"
        "x-goog-meta-empty:\r\n"
        "x-goog-meta-utf8: \xc3\xa9\ttab\r\n"
        "Content-Length: 102400\r\n\r\nbody";
    struct rg_h1_head head;
    int result = parse_every_way(RESPONSE, &head, message, sizeof(message) - 1);
    RG_CHECK_EQ(result, sizeof(message) - 1 - strlen("body"));
    RG_CHECK_EQ(head.status, 206);
    RG_CHECK_EQ(head.minor_version, 1);
    RG_CHECK(head.keep_alive);
    RG_CHECK_EQ(head.framing, RG_H1_BODY_LENGTH);
    RG_CHECK_EQ(head.content_length, 102400);
    RG_CHECK_EQ(head.header_count, 8);
    check_slice(head.reason, "Partial Content");
    check_slice(head.headers[0].name, "X-GUploader-UploadID");
    check_slice(*rg_h1_find(&head, "expires"), "Thu, 01 Jan 2026 00:00:00 GMT");
    check_slice(*rg_h1_find(&head, "x-goog-meta-empty"), "");
    check_slice(*rg_h1_find(&head, "x-goog-meta-utf8"), "\xc3\xa9\ttab");

    const struct rg_h1_slice *hash = rg_h1_find(&head, "x-goog-hash");
    check_slice(*hash, "crc32c=AAAAAA==");
    hash = rg_h1_find_next(&head, "x-goog-hash", hash);
    check_slice(*hash, "md5=1B2M2Y8AsgTpgAmY7PhCfg==");
    hash = rg_h1_find_next(&head, "x-goog-hash", hash);
    check_slice(*hash, "other=1");
    RG_CHECK(rg_h1_find_next(&head, "x-goog-hash", hash) == NULL);
    RG_CHECK(rg_h1_find(&head, "x-goog-has") == NULL);
}

static void test_a_request_yields_its_parts(void)
{
    struct rg_h1_head head;
    check_accepted(REQUEST, &head,
                   "PUT /upload/storage/v1/b/b/o?name=a%20b HTTP/1.1\r\nHost: localhost:4443\r\n"
                   "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n");
    check_slice(head.method, "PUT");
    check_slice(head.target, "/upload/storage/v1/b/b/o?name=a%20b");
    RG_CHECK_EQ(head.framing, RG_H1_BODY_LENGTH);
    RG_CHECK_EQ(head.content_length, 5);
    RG_CHECK(head.expect_continue);
    RG_CHECK(head.keep_alive);

    check_accepted(REQUEST, &head, "GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n");
    RG_CHECK(!head.expect_continue);
    RG_CHECK_EQ(head.framing, RG_H1_BODY_NONE);
    check_accepted(REQUEST, &head, GET("Transfer-Encoding: CHUNKED\r\n"));
    RG_CHECK_EQ(head.framing, RG_H1_BODY_CHUNKED);
    check_accepted(REQUEST, &head, "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n");
    check_accepted(REQUEST, &head, "GET HTTP://h:80/x HTTP/1.1\r\nHost: [::1]:80\r\n\r\n");
}

static void test_framing_follows_status_method_and_fields(void)
{
    static const struct {
        const char *message;
        enum kind kind;
        enum rg_h1_framing framing;
        bool keep_alive;
    } rows[] = {
        {OK("Content-Length: 0\r\n"), RESPONSE, RG_H1_BODY_LENGTH, true},
        {OK("Transfer-Encoding: chunked\r\n"), RESPONSE, RG_H1_BODY_CHUNKED, true},
        {OK("TRANSFER-ENCODING: \t Chunked \r\n"), RESPONSE, RG_H1_BODY_CHUNKED, true},
        {OK(""), RESPONSE, RG_H1_BODY_UNTIL_CLOSE, false},
        {OK("Connection: keep-alive\r\n"), RESPONSE, RG_H1_BODY_UNTIL_CLOSE, false},
        {OK("Content-Length: 7\r\n"), RESPONSE_TO_HEAD, RG_H1_BODY_NONE, true},
        {OK("Transfer-Encoding: chunked\r\n"), RESPONSE_TO_HEAD, RG_H1_BODY_NONE, true},
        {OK(""), RESPONSE_TO_HEAD, RG_H1_BODY_NONE, true},
        {"HTTP/1.1 100 Continue\r\n\r\n", RESPONSE, RG_H1_BODY_NONE, true},
        {"HTTP/1.1 101 \r\nUpgrade: x\r\n\r\n", RESPONSE, RG_H1_BODY_NONE, true},
        {"HTTP/1.1 204 \r\nContent-Length: 0\r\n\r\n", RESPONSE, RG_H1_BODY_NONE, true},
        {"HTTP/1.1 304 \r\nContent-Length: 9\r\n\r\n", RESPONSE, RG_H1_BODY_NONE, true},
        {"HTTP/1.1 599 \r\nContent-Length: 9\r\n\r\n", RESPONSE, RG_H1_BODY_LENGTH, true},
        {OK("Content-Length: 1\r\nConnection: close\r\n"), RESPONSE, RG_H1_BODY_LENGTH, false},
        {OK("Content-Length: 1\r\nConnection: x , ,CLOSE\r\n"), RESPONSE, RG_H1_BODY_LENGTH, false},
        {OK("Content-Length: 1\r\nConnection: x\r\nConnection: close\r\n"), RESPONSE,
         RG_H1_BODY_LENGTH, false},
        {OK("Content-Length: 1\r\nConnection: close,x\r\n"), RESPONSE, RG_H1_BODY_LENGTH, false},
        {OK("Content-Length: 1\r\nConnection: closed,\r\n"), RESPONSE, RG_H1_BODY_LENGTH, true},
        {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", RESPONSE, RG_H1_BODY_LENGTH, false},
        {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive\r\n\r\n", RESPONSE,
         RG_H1_BODY_LENGTH, true},
        {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive, close\r\n\r\n", RESPONSE,
         RG_H1_BODY_LENGTH, false},
        {GET("Connection: close\r\n"), REQUEST, RG_H1_BODY_NONE, false},
        {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", REQUEST, RG_H1_BODY_NONE, true},
        {"GET / HTTP/1.0\r\n\r\n", REQUEST, RG_H1_BODY_NONE, false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_h1_head head;
        check_accepted(rows[i].kind, &head, rows[i].message);
        if (head.framing != rows[i].framing || head.keep_alive != rows[i].keep_alive) {
            rg_test_fail(__FILE__, __LINE__, "framing %d, keep alive %d for: %s", head.framing,
                         head.keep_alive, rows[i].message);
        }
    }
}

static void test_a_response_to_head_keeps_the_length(void)
{
    struct rg_h1_head head;
    check_accepted(RESPONSE_TO_HEAD, &head, OK("Content-Length: 12345\r\n"));
    RG_CHECK(head.has_content_length);
    RG_CHECK_EQ(head.content_length, 12345);
    check_accepted(RESPONSE_TO_HEAD, &head, OK(""));
    RG_CHECK(!head.has_content_length);
    RG_CHECK_EQ(head.content_length, 0);
}

static const struct {
    const char *message;
    enum rg_h1_error error;
} malformed_responses[] = {
    {"SSH-2.0-OpenSSH_9.2\r\n", RG_H1_ERROR_STATUS_LINE},
    {"\r\nHTTP/1.1 200 OK\r\n\r\n", RG_H1_ERROR_STATUS_LINE},
    {"http/1.1 200 OK\r\n\r\n", RG_H1_ERROR_STATUS_LINE},
    {"HTTP/2.0 200 OK\r\n\r\n", RG_H1_ERROR_VERSION},
    {"HTTP/1.2 200 OK\r\n\r\n", RG_H1_ERROR_VERSION},
    {"HTTP/1,1 200 OK\r\n\r\n", RG_H1_ERROR_VERSION},
    {"HTTP/1.10 200 OK\r\n\r\n", RG_H1_ERROR_STATUS_LINE},
    {"HTTP/1.1  200 OK\r\n\r\n", RG_H1_ERROR_STATUS_LINE},
    {"HTTP/1.1 200\r\nA: b\r\n\r\n", RG_H1_ERROR_STATUS_LINE},
    {"HTTP/1.1 20 OK\r\n\r\n", RG_H1_ERROR_STATUS_LINE},
    {"HTTP/1.1 2000 OK\r\n\r\n", RG_H1_ERROR_STATUS_LINE},
    {"HTTP/1.1 +20 OK\r\n\r\n", RG_H1_ERROR_STATUS_LINE},
    {"HTTP/1.1 099 OK\r\n\r\n", RG_H1_ERROR_STATUS_CODE},
    {"HTTP/1.1 600 OK\r\n\r\n", RG_H1_ERROR_STATUS_CODE},
    {"HTTP/1.1 200 O\x01K\r\n\r\n", RG_H1_ERROR_REASON},
    {"HTTP/1.1 200 OK\n\r\n", RG_H1_ERROR_BARE_LF},
    {"HTTP/1.1 200 OK\rA: b\r\n\r\n", RG_H1_ERROR_BARE_CR},
    {OK("A: b\n"), RG_H1_ERROR_BARE_LF},
    {OK("A: b\n\n"), RG_H1_ERROR_BARE_LF},
    {OK("\n"), RG_H1_ERROR_BARE_LF},
    {OK("A\n"), RG_H1_ERROR_BARE_LF},
    {OK("A: b\rc\r\n"), RG_H1_ERROR_BARE_CR},
    {OK("A: b\r\r\n"), RG_H1_ERROR_BARE_CR},
    {OK("\rA: b\r\n"), RG_H1_ERROR_BARE_CR},
    {OK("A\rB: b\r\n"), RG_H1_ERROR_BARE_CR},
    {OK("A: b\r\n c\r\n"), RG_H1_ERROR_FOLDED_LINE},
    {OK("A: b\r\n\tc: d\r\n"), RG_H1_ERROR_FOLDED_LINE},
    {OK(" A: b\r\n"), RG_H1_ERROR_FOLDED_LINE},
    {OK("A : b\r\n"), RG_H1_ERROR_SPACE_BEFORE_COLON},
    {OK("A\t: b\r\n"), RG_H1_ERROR_SPACE_BEFORE_COLON},
    {OK("A b: c\r\n"), RG_H1_ERROR_SPACE_BEFORE_COLON},
    {OK("A\r\n"), RG_H1_ERROR_NO_COLON},
    {OK(": b\r\n"), RG_H1_ERROR_NAME},
    {OK("A(: b\r\n"), RG_H1_ERROR_NAME},
    {OK("\xc3\xa9: b\r\n"), RG_H1_ERROR_NAME},
    {OK("A: \x1f\r\n"), RG_H1_ERROR_VALUE},
    {OK("A: \x7f\r\n"), RG_H1_ERROR_VALUE},
    {OK("A: a value long enough for blocks \x0b\r\n"), RG_H1_ERROR_VALUE},
    {OK("Content-Length:\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
    {OK("Content-Length: +5\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
    {OK("Content-Length: -5\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
    {OK("Content-Length: 0x5\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
    {OK("Content-Length: 5, 5\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
    {OK("Content-Length: 5 5\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
    {OK("Content-Length: 1e3\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
    {OK("Content-Length: 9223372036854775808\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
    {OK("Content-Length: 18446744073709551621\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
    {OK("Content-Length: 99999999999999999999999\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
    {OK("Content-Length: 5\r\ncontent-length: 5\r\n"), RG_H1_ERROR_CONTENT_LENGTH_TWICE},
    {OK("Content-Length: 5\r\nA: b\r\nContent-Length: 6\r\n"), RG_H1_ERROR_CONTENT_LENGTH_TWICE},
    {OK("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), RG_H1_ERROR_LENGTH_AND_ENCODING},
    {OK("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), RG_H1_ERROR_LENGTH_AND_ENCODING},
    {OK("Transfer-Encoding: gzip, chunked\r\n"), RG_H1_ERROR_TRANSFER_ENCODING},
    {OK("Transfer-Encoding: chunked, chunked\r\n"), RG_H1_ERROR_TRANSFER_ENCODING},
    {OK("Transfer-Encoding: chunked,\r\n"), RG_H1_ERROR_TRANSFER_ENCODING},
    {OK("Transfer-Encoding: \"chunked\"\r\n"), RG_H1_ERROR_TRANSFER_ENCODING},
    {OK("Transfer-Encoding: xchunked\r\n"), RG_H1_ERROR_TRANSFER_ENCODING},
    {OK("Transfer-Encoding: chunked;q=1\r\n"), RG_H1_ERROR_TRANSFER_ENCODING},
    {OK("Transfer-Encoding: identity\r\n"), RG_H1_ERROR_TRANSFER_ENCODING},
    {OK("Transfer-Encoding:\r\n"), RG_H1_ERROR_TRANSFER_ENCODING},
    {OK("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
     RG_H1_ERROR_TRANSFER_ENCODING_TWICE},
    {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", RG_H1_ERROR_TRANSFER_ENCODING_IN_1_0},
};

static void test_malformed_responses_are_refused(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(malformed_responses); i++) {
        check_refused(RESPONSE, malformed_responses[i].message,
                      strlen(malformed_responses[i].message), malformed_responses[i].error);
    }
    check_refused(RESPONSE, "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", 24, RG_H1_ERROR_VALUE);
    check_refused(RESPONSE, "HTTP/1.1 200 OK\r\nA\0: b\r\n\r\n", 26, RG_H1_ERROR_NAME);
}

static void test_malformed_requests_are_refused(void)
{
    static const struct {
        const char *message;
        enum rg_h1_error error;
    } rows[] = {
        {"\x16\x03\x01\x02", RG_H1_ERROR_METHOD},
        {"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", RG_H1_ERROR_METHOD},
        {" GET / HTTP/1.1\r\n\r\n", RG_H1_ERROR_METHOD},
        {"G(T / HTTP/1.1\r\n\r\n", RG_H1_ERROR_METHOD},
        {"GET\t/ HTTP/1.1\r\n\r\n", RG_H1_ERROR_METHOD},
        {"GET  / HTTP/1.1\r\n\r\n", RG_H1_ERROR_TARGET},
        {"GET x HTTP/1.1\r\n\r\n", RG_H1_ERROR_TARGET},
        {"GET * HTTP/1.1\r\n\r\n", RG_H1_ERROR_TARGET},
        {"GET ftp://h/ HTTP/1.1\r\n\r\n", RG_H1_ERROR_TARGET},
        {"CONNECT h:443 HTTP/1.1\r\n\r\n", RG_H1_ERROR_TARGET},
        {"GET /a#b HTTP/1.1\r\n\r\n", RG_H1_ERROR_TARGET},
        {"GET /a\tb HTTP/1.1\r\n\r\n", RG_H1_ERROR_TARGET},
        {"GET /a\x7f HTTP/1.1\r\n\r\n", RG_H1_ERROR_TARGET},
        {"GET /\xc3\xa9 HTTP/1.1\r\n\r\n", RG_H1_ERROR_TARGET},
        {"GET /a b HTTP/1.1\r\n\r\n", RG_H1_ERROR_REQUEST_LINE},
        {"GET /\r\n\r\n", RG_H1_ERROR_REQUEST_LINE},
        {"GET /  HTTP/1.1\r\n\r\n", RG_H1_ERROR_REQUEST_LINE},
        {"GET / HTTP/1.1 \r\n\r\n", RG_H1_ERROR_REQUEST_LINE},
        {"GET / HTTP/1.1\nHost: h\r\n\r\n", RG_H1_ERROR_BARE_LF},
        {"GET / HTTP/1.1\rHost: h\r\n\r\n", RG_H1_ERROR_BARE_CR},
        {"PRI * HTTP/2.0\r\n\r\n", RG_H1_ERROR_TARGET},
        {"GET / HTTP/2.0\r\n\r\n", RG_H1_ERROR_VERSION},
        {"GET / HTTP/0.9\r\n\r\n", RG_H1_ERROR_VERSION},
        {"GET / HTTP/1.1\r\n\r\n", RG_H1_ERROR_HOST_MISSING},
        {GET("Host: h\r\n"), RG_H1_ERROR_HOST_TWICE},
        {"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", RG_H1_ERROR_HOST_TWICE},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", RG_H1_ERROR_HOST},
        {"GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", RG_H1_ERROR_HOST},
        {"GET / HTTP/1.1\r\nHost: h/x\r\n\r\n", RG_H1_ERROR_HOST},
        {GET("Content-Length: 5\r\nContent-Length: 5\r\n"), RG_H1_ERROR_CONTENT_LENGTH_TWICE},
        {GET("Content-Length: 5, 5\r\n"), RG_H1_ERROR_CONTENT_LENGTH},
        {GET("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
         RG_H1_ERROR_LENGTH_AND_ENCODING},
        {GET("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"),
         RG_H1_ERROR_LENGTH_AND_ENCODING},
        {GET("Transfer-Encoding : chunked\r\n"), RG_H1_ERROR_SPACE_BEFORE_COLON},
        {GET("Transfer-Encoding: \x0b"
             "chunked\r\n"),
         RG_H1_ERROR_VALUE},
        {GET("Transfer-Encoding:\r\n chunked\r\n"), RG_H1_ERROR_TRANSFER_ENCODING},
        {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
         RG_H1_ERROR_TRANSFER_ENCODING_IN_1_0},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        check_refused(REQUEST, rows[i].message, strlen(rows[i].message), rows[i].error);
    }
}

static void test_a_prefix_of_a_head_is_incomplete(void)
{
    static const char response[] = OK("Content-Length: 5\r\nA: b\r\n");
    static const char request[] = GET("Content-Length: 5\r\nA: b\r\n");
    struct rg_h1_head head;
    for (size_t size = 0; size < sizeof(response) - 1; size++) {
        RG_CHECK_EQ(parse_prefix(RESPONSE, &head, response, size, 0), -EAGAIN);
        RG_CHECK_EQ(head.error, RG_H1_ERROR_NONE);
    }
    for (size_t size = 0; size < sizeof(request) - 1; size++) {
        RG_CHECK_EQ(parse_prefix(REQUEST, &head, request, size, 0), -EAGAIN);
    }
}

static void test_a_peer_that_is_not_http_is_noticed_at_the_first_bytes(void)
{
    struct rg_h1_head head;
    RG_CHECK_EQ(rg_h1_parse_response(&head, false, "\x15\x03", 2, 0), -EBADMSG);
    RG_CHECK_EQ(rg_h1_parse_response(&head, false, "HTTX", 4, 3), -EBADMSG);
    RG_CHECK_EQ(rg_h1_parse_request(&head, "\x16\x03\x01", 3, 0), -EBADMSG);
}

/* Which bytes may stand where, for all of them, at the start, inside and behind a block of
 * sixteen. */
static void test_every_byte_is_checked_in_every_place(void)
{
    static const char filler[] = "abcdefghijklmnopqrstuvw";
    struct rg_h1_head head;
    for (int byte = 0; byte < 256; byte++) {
        bool is_alphanumeric = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                               (byte >= 'A' && byte <= 'Z');
        bool is_token = is_alphanumeric || (byte != 0 && strchr("!#$%&'*+-.^_`|~", byte) != NULL);
        bool is_text = byte == '\t' || (byte >= ' ' && byte != 0x7f);
        for (int before = 1; before < 20; before += 6) {
            char message[128];
            int size = snprintf(message, sizeof(message), "HTTP/1.1 200 OK\r\n%.*s%c%s:1\r\n\r\n",
                                before, filler, byte, filler);
            int result = parse_prefix(RESPONSE, &head, message, (size_t)size, 0);
            /* A colon ends the name, and what follows is a value. */
            RG_CHECK_EQ(result, is_token || byte == ':' ? size : -EBADMSG);
            size = snprintf(message, sizeof(message), "HTTP/1.1 200 OK\r\nx:%.*s%c%s\r\n\r\n",
                            before, filler, byte, filler);
            result = parse_prefix(RESPONSE, &head, message, (size_t)size, 0);
            RG_CHECK_EQ(result, is_text ? size : -EBADMSG);
            size = snprintf(message, sizeof(message), "GET /%.*s%c%s HTTP/1.0\r\n\r\n", before,
                            filler, byte, filler);
            result = parse_prefix(REQUEST, &head, message, (size_t)size, 0);
            RG_CHECK_EQ(result, byte > ' ' && byte < 0x7f && byte != '#' ? size : -EBADMSG);
        }
    }
}

static void test_spans_agree_with_a_byte_by_byte_search(void)
{
    for (int round = 0; round < 20000; round++) {
        char data[64];
        size_t size = rg_test_random_below(sizeof(data) + 1);
        for (size_t i = 0; i < size; i++) {
            bool is_odd = rg_test_random_below(24) == 0;
            data[i] = is_odd ? (char)rg_test_random() : (char)('a' + rg_test_random_below(26));
        }
        size_t token = 0, value = 0, target = 0;
        while (token < size && rg_h1_token_span(data + token, 1) == 1) {
            token++;
        }
        while (value < size && rg_h1_value_span(data + value, 1) == 1) {
            value++;
        }
        while (target < size && rg_h1_target_span(data + target, 1) == 1) {
            target++;
        }
        RG_CHECK_EQ(rg_h1_token_span(data, size), token);
        RG_CHECK_EQ(rg_h1_value_span(data, size), value);
        RG_CHECK_EQ(rg_h1_target_span(data, size), target);
    }
}

static void test_damaged_heads_yield_the_same_however_they_are_split(void)
{
    static const char *const messages[] = {
        OK("Content-Length: 5\r\nX-Goog-Hash: md5=abcdefghijklmn\r\nConnection: close\r\n"),
        OK("Transfer-Encoding: chunked\r\nx-goog-generation: 1767222000123456\r\n"),
        GET("Content-Length: 5\r\nExpect: 100-continue\r\n"),
    };
    static const char odd[] = "\r\n\r\n :\t\x01,\xff";
    struct rg_h1_head head;
    for (int round = 0; round < 3000; round++) {
        char message[256];
        size_t which = rg_test_random_below(RG_ARRAY_LEN(messages));
        size_t size = strlen(messages[which]);
        memcpy(message, messages[which], size);
        for (size_t damage = rg_test_random_below(4); damage > 0; damage--) {
            /* The last LF stays, because a fault may be told as late as the end of its line. */
            message[rg_test_random_below(size - 1)] = odd[rg_test_random_below(sizeof(odd) - 1)];
        }
        parse_every_way(which == 2 ? REQUEST : RESPONSE, &head, message, size);
    }
}

/* `prefix`, then `count` times `filler`, then `suffix`. */
static size_t build(char *out, const char *prefix, size_t count, const char *suffix)
{
    size_t prefix_size = strlen(prefix);
    memcpy(out, prefix, prefix_size);
    memset(out + prefix_size, 'a', count);
    strcpy(out + prefix_size + count, suffix);
    return prefix_size + count + strlen(suffix);
}

static void test_a_head_of_the_largest_size_is_accepted_and_one_more_is_not(void)
{
    static char message[RG_H1_HEAD_SIZE_MAX + 64];
    struct rg_h1_head head;
    size_t overhead = strlen(OK("a: \r\n"));
    size_t size =
        build(message, "HTTP/1.1 200 OK\r\na: ", RG_H1_HEAD_SIZE_MAX - overhead, "\r\n\r\n");
    RG_CHECK_EQ(size, RG_H1_HEAD_SIZE_MAX);
    RG_CHECK_EQ(parse_every_way(RESPONSE, &head, message, size), RG_H1_HEAD_SIZE_MAX);
    size = build(message, "HTTP/1.1 200 OK\r\na: ", RG_H1_HEAD_SIZE_MAX - overhead + 1, "\r\n\r\n");
    RG_CHECK_EQ(parse_every_way(RESPONSE, &head, message, size), -EMSGSIZE);
    check_refused(RESPONSE, message, size, RG_H1_ERROR_HEAD_SIZE);
    /* A line that never ends. */
    build(message, "HTTP/1.1 200 OK\r\na: ", RG_H1_HEAD_SIZE_MAX, "");
    check_refused(RESPONSE, message, RG_H1_HEAD_SIZE_MAX, RG_H1_ERROR_HEAD_SIZE);
    RG_CHECK_EQ(parse_every_way(RESPONSE, &head, message, RG_H1_HEAD_SIZE_MAX - 1), -EAGAIN);
}

static void test_a_large_head_byte_by_byte_is_parsed_once_a_line(void)
{
    static char message[RG_H1_HEAD_SIZE_MAX + 64];
    struct rg_h1_head head;
    size_t size = build(message, "HTTP/1.1 200 OK\r\na: ", 60000, "\r\n\r\n");
    for (size_t arrived = 1; arrived < size; arrived++) {
        RG_CHECK_EQ(rg_h1_parse_response(&head, false, message, arrived, arrived - 1), -EAGAIN);
    }
    RG_CHECK_EQ(rg_h1_parse_response(&head, false, message, size, size - 1), size);
    check_slice(head.headers[0].name, "a");
    RG_CHECK_EQ(head.headers[0].value.size, 60000);
}

static void test_one_field_more_than_the_limit_is_refused(void)
{
    char message[1024] = "HTTP/1.1 200 OK\r\n";
    struct rg_h1_head head;
    for (int i = 0; i < RG_H1_HEADERS_MAX; i++) {
        strcat(message, "a:b\r\n");
    }
    size_t size = strlen(message);
    strcpy(message + size, "\r\n");
    check_accepted(RESPONSE, &head, message);
    RG_CHECK_EQ(head.header_count, RG_H1_HEADERS_MAX);
    strcpy(message + size, "a:b\r\n\r\n");
    RG_CHECK_EQ(parse_every_way(RESPONSE, &head, message, strlen(message)), -EMSGSIZE);
    check_refused(RESPONSE, message, strlen(message), RG_H1_ERROR_HEADER_COUNT);
}

static void test_methods_and_targets_have_limits(void)
{
    static char message[RG_H1_TARGET_SIZE_MAX + 128];
    struct rg_h1_head head;
    build(message, "", RG_H1_METHOD_SIZE_MAX, " / HTTP/1.0\r\n\r\n");
    check_accepted(REQUEST, &head, message);
    size_t size = build(message, "", RG_H1_METHOD_SIZE_MAX + 1, " / HTTP/1.0\r\n\r\n");
    check_refused(REQUEST, message, size, RG_H1_ERROR_METHOD_SIZE);
    build(message, "GET /", RG_H1_TARGET_SIZE_MAX - 1, " HTTP/1.0\r\n\r\n");
    check_accepted(REQUEST, &head, message);
    RG_CHECK_EQ(head.target.size, RG_H1_TARGET_SIZE_MAX);
    size = build(message, "GET /", RG_H1_TARGET_SIZE_MAX, " HTTP/1.0\r\n\r\n");
    check_refused(REQUEST, message, size, RG_H1_ERROR_TARGET_SIZE);
}

static void test_the_largest_content_length_is_accepted(void)
{
    struct rg_h1_head head;
    check_accepted(RESPONSE, &head, OK("Content-Length: 9223372036854775807\r\n"));
    RG_CHECK_EQ(head.content_length, INT64_MAX);
    check_accepted(RESPONSE, &head, OK("Content-Length: 00000000000000000000000000007\r\n"));
    RG_CHECK_EQ(head.content_length, 7);
}

static void test_every_error_has_a_text(void)
{
    for (int error = 0; error < RG_H1_ERROR_COUNT; error++) {
        RG_CHECK(strlen(rg_h1_error_text((enum rg_h1_error)error)) > 5);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_gcs_response_yields_its_parts),
        RG_TEST(test_a_request_yields_its_parts),
        RG_TEST(test_framing_follows_status_method_and_fields),
        RG_TEST(test_a_response_to_head_keeps_the_length),
        RG_TEST(test_malformed_responses_are_refused),
        RG_TEST(test_malformed_requests_are_refused),
        RG_TEST(test_a_prefix_of_a_head_is_incomplete),
        RG_TEST(test_a_peer_that_is_not_http_is_noticed_at_the_first_bytes),
        RG_TEST(test_every_byte_is_checked_in_every_place),
        RG_TEST(test_spans_agree_with_a_byte_by_byte_search),
        RG_TEST(test_damaged_heads_yield_the_same_however_they_are_split),
        RG_TEST(test_a_head_of_the_largest_size_is_accepted_and_one_more_is_not),
        RG_TEST(test_a_large_head_byte_by_byte_is_parsed_once_a_line),
        RG_TEST(test_one_field_more_than_the_limit_is_refused),
        RG_TEST(test_methods_and_targets_have_limits),
        RG_TEST(test_the_largest_content_length_is_accepted),
        RG_TEST(test_every_error_has_a_text),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
