/* Chunked bodies. Each is decoded whole, byte by byte and at random splits, out of blocks of
 * exactly its size so that a sanitizer sees any byte read too many. */
#include "http/h1_chunked.h"

#include "tests/support/test.h"

#define RANDOM_SPLITS 16

/* `prefix`, then `count` times `filler`, then `suffix`. */
static size_t build(char *out, const char *prefix, size_t count, const char *suffix)
{
    size_t prefix_size = strlen(prefix);
    memcpy(out, prefix, prefix_size);
    memset(out + prefix_size, 'a', count);
    strcpy(out + prefix_size + count, suffix);
    return prefix_size + count + strlen(suffix);
}

/* What came out of a chunked body. */
struct body {
    char data[2048];
    size_t size; /* of the payload */
    size_t consumed;
    int result; /* 0 finished, -EAGAIN more wanted, or the error. */
    enum rg_h1_error error;
};

static struct body decode(const char *data, size_t size, size_t step_max)
{
    struct body body = {.result = -EAGAIN};
    struct rg_h1_chunked chunked;
    rg_h1_chunked_init(&chunked);
    while (body.consumed < size && !chunked.finished) {
        size_t left = size - body.consumed;
        size_t step = step_max == 0 ? left : 1 + rg_test_random_below(step_max);
        step = RG_MIN(step, left);
        char *copy = malloc(step);
        memcpy(copy, data + body.consumed, step);
        struct rg_h1_slice piece;
        int used = rg_h1_chunked_decode(&chunked, copy, step, &piece);
        if (used < 0) {
            free(copy);
            body.result = used;
            body.error = chunked.error;
            return body;
        }
        RG_CHECK(used > 0);
        RG_CHECK(piece.data >= copy && piece.data + piece.size <= copy + used);
        if (body.size + piece.size <= sizeof(body.data)) {
            memcpy(body.data + body.size, piece.data, piece.size);
        }
        body.size += piece.size;
        body.consumed += (size_t)used;
        free(copy);
    }
    body.result = chunked.finished ? 0 : -EAGAIN;
    return body;
}

static struct body decode_every_way(const char *data, size_t size)
{
    struct body whole = decode(data, size, 0);
    for (size_t way = 0; way <= RANDOM_SPLITS; way++) {
        struct body split = decode(data, size, way == 0 ? 1 : 1 + rg_test_random_below(size));
        RG_CHECK_EQ(split.result, whole.result);
        RG_CHECK_EQ(split.error, whole.error);
        if (whole.result == 0) {
            RG_CHECK_EQ(split.consumed, whole.consumed);
            RG_CHECK_MEM(split.data, RG_MIN(split.size, sizeof(split.data)), whole.data,
                         RG_MIN(whole.size, sizeof(whole.data)));
        }
    }
    return whole;
}

static void test_chunked_bodies_are_joined(void)
{
    static const struct {
        const char *body, *payload, *rest;
    } rows[] = {
        {"0\r\n\r\n", "", ""},
        {"5\r\nhello\r\n0\r\n\r\n", "hello", ""},
        {"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nHTTP/1.1 200", "hello world", "HTTP/1.1 200"},
        {"A\r\n0123456789\r\n00a;x\r\n0123456789\r\n000\r\n\r\n", "01234567890123456789", ""},
        {"2 \t; ext=\"a;b\" ; \xc3\xa9\r\n\r\n\r\n0;last\r\n\r\n", "\r\n", ""},
        {"1\r\nx\r\n0\r\nTrailer: v\r\nx-goog-hash:\r\n\r\n0\r\n", "x", "0\r\n"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct body body = decode_every_way(rows[i].body, strlen(rows[i].body));
        RG_CHECK_EQ(body.result, 0);
        RG_CHECK_MEM(body.data, body.size, rows[i].payload, strlen(rows[i].payload));
        RG_CHECK_STR(rows[i].body + body.consumed, rows[i].rest);
    }
}

static void test_malformed_chunked_bodies_are_refused(void)
{
    static const struct {
        const char *body;
        enum rg_h1_error error;
    } rows[] = {
        {"\r\n", RG_H1_ERROR_CHUNK_SIZE},
        {"-1\r\n", RG_H1_ERROR_CHUNK_SIZE},
        {"+1\r\n", RG_H1_ERROR_CHUNK_SIZE},
        {" 1\r\n", RG_H1_ERROR_CHUNK_SIZE},
        {"0x1\r\n", RG_H1_ERROR_CHUNK_SIZE},
        {"g\r\n", RG_H1_ERROR_CHUNK_SIZE},
        {";x\r\n", RG_H1_ERROR_CHUNK_SIZE},
        {"8000000000000000\r\n", RG_H1_ERROR_CHUNK_SIZE},
        {"10000000000000005\r\n", RG_H1_ERROR_CHUNK_SIZE},
        {"1 \r\nx", RG_H1_ERROR_CHUNK_EXTENSION},
        {"1 2\r\nx", RG_H1_ERROR_CHUNK_EXTENSION},
        {"1;\x01\r\nx", RG_H1_ERROR_CHUNK_EXTENSION},
        {"1;\x7f\r\nx", RG_H1_ERROR_CHUNK_EXTENSION},
        {"1\nx", RG_H1_ERROR_BARE_LF},
        {"\n", RG_H1_ERROR_BARE_LF},
        {"1;a\nx", RG_H1_ERROR_BARE_LF},
        {"1\rx", RG_H1_ERROR_BARE_CR},
        {"1;a\rb", RG_H1_ERROR_BARE_CR},
        {"1\r\nxy", RG_H1_ERROR_CHUNK_END},
        {"1\r\nx\n", RG_H1_ERROR_CHUNK_END},
        {"1\r\nx0\r\n\r\n", RG_H1_ERROR_CHUNK_END},
        {"1\r\nx\ry", RG_H1_ERROR_BARE_CR},
        {"0\r\n\n", RG_H1_ERROR_BARE_LF},
        {"0\r\n\rx", RG_H1_ERROR_BARE_CR},
        {"0\r\n fold\r\n\r\n", RG_H1_ERROR_FOLDED_LINE},
        {"0\r\na : b\r\n\r\n", RG_H1_ERROR_SPACE_BEFORE_COLON},
        {"0\r\n: b\r\n\r\n", RG_H1_ERROR_NAME},
        {"0\r\na@: b\r\n\r\n", RG_H1_ERROR_NAME},
        {"0\r\na\r\n\r\n", RG_H1_ERROR_NO_COLON},
        {"0\r\na\n", RG_H1_ERROR_BARE_LF},
        {"0\r\na: b\n", RG_H1_ERROR_BARE_LF},
        {"0\r\na: b\rc", RG_H1_ERROR_BARE_CR},
        {"0\r\na: \x01\r\n", RG_H1_ERROR_VALUE},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct body body = decode_every_way(rows[i].body, strlen(rows[i].body));
        if (body.result != -EBADMSG || body.error != rows[i].error) {
            rg_test_fail(__FILE__, __LINE__, "%d (%s), wanted (%s) for: %s", body.result,
                         rg_h1_error_text(body.error), rg_h1_error_text(rows[i].error),
                         rows[i].body);
        }
    }
}

static void check_chunked(const char *body, size_t size, int result, enum rg_h1_error error)
{
    struct body got = decode_every_way(body, size);
    RG_CHECK_EQ(got.result, result);
    RG_CHECK_EQ(got.error, error);
}

static void test_chunked_bodies_have_limits(void)
{
    static char body[RG_H1_CHUNK_EXTENSIONS_SIZE_MAX * 2];
    check_chunked("7fffffffffffffff\r\n", 18, -EAGAIN, RG_H1_ERROR_NONE);
    check_chunked("0000000000000000\r\n\r\n", 20, 0, RG_H1_ERROR_NONE);
    check_chunked("00000000000000000\r\n\r\n", 21, -EBADMSG, RG_H1_ERROR_CHUNK_SIZE);

    size_t size = build(body, "0;", RG_H1_CHUNK_LINE_MAX - 2, "\r\n\r\n");
    check_chunked(body, size, 0, RG_H1_ERROR_NONE);
    size = build(body, "0;", RG_H1_CHUNK_LINE_MAX - 1, "\r\n\r\n");
    check_chunked(body, size, -EMSGSIZE, RG_H1_ERROR_CHUNK_LINE_SIZE);

    size = build(body, "0\r\na:", RG_H1_TRAILERS_SIZE_MAX - 4, "\r\n\r\n");
    check_chunked(body, size, 0, RG_H1_ERROR_NONE);
    size = build(body, "0\r\na:", RG_H1_TRAILERS_SIZE_MAX - 3, "\r\n\r\n");
    check_chunked(body, size, -EMSGSIZE, RG_H1_ERROR_TRAILERS_SIZE);

    /* Chunks whose extensions together just fill the limit, then one byte more. */
    size = 0;
    for (size_t left = RG_H1_CHUNK_EXTENSIONS_SIZE_MAX; left > 0; left -= 256) {
        size += build(body + size, "1;", 255, "\r\nx\r\n");
    }
    strcpy(body + size, "0\r\n\r\n");
    check_chunked(body, size + 5, 0, RG_H1_ERROR_NONE);
    strcpy(body + size, "1;\r\nx\r\n");
    check_chunked(body, size + 7, -EMSGSIZE, RG_H1_ERROR_CHUNK_EXTENSIONS_SIZE);
}

static void test_random_payloads_survive_random_chunks(void)
{
    for (int round = 0; round < 200; round++) {
        char payload[1024], body[16384];
        size_t payload_size = rg_test_random_below(sizeof(payload)), size = 0;
        for (size_t i = 0; i < payload_size; i++) {
            payload[i] = (char)rg_test_random();
        }
        for (size_t at = 0; at < payload_size;) {
            size_t chunk = 1 + rg_test_random_below(RG_MIN(payload_size - at, (size_t)200));
            const char *format = rg_test_random_below(2) == 0 ? "%zx\r\n" : "%zX;e=1\r\n";
            size += (size_t)sprintf(body + size, format, chunk);
            memcpy(body + size, payload + at, chunk);
            memcpy(body + size + chunk, "\r\n", 2);
            size += chunk + 2;
            at += chunk;
        }
        size += (size_t)sprintf(body + size, "0\r\nt: v\r\n\r\n");
        struct body got = decode_every_way(body, size);
        RG_CHECK_EQ(got.result, 0);
        RG_CHECK_EQ(got.consumed, size);
        RG_CHECK_MEM(got.data, got.size, payload, payload_size);
    }
}

static void test_a_finished_body_consumes_nothing_more(void)
{
    struct rg_h1_chunked chunked;
    struct rg_h1_slice piece;
    rg_h1_chunked_init(&chunked);
    RG_CHECK_EQ(rg_h1_chunked_decode(&chunked, "", 0, &piece), 0);
    RG_CHECK_EQ(rg_h1_chunked_decode(&chunked, "0\r\n\r\nGET", 8, &piece), 5);
    RG_CHECK(chunked.finished);
    RG_CHECK_EQ(piece.size, 0);
    RG_CHECK_EQ(rg_h1_chunked_decode(&chunked, "GET", 3, &piece), 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_chunked_bodies_are_joined),
        RG_TEST(test_malformed_chunked_bodies_are_refused),
        RG_TEST(test_chunked_bodies_have_limits),
        RG_TEST(test_random_payloads_survive_random_chunks),
        RG_TEST(test_a_finished_body_consumes_nothing_more),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
