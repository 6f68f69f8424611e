/* The HTTP/1.1 encoder: its bytes, what it refuses to write, and that the decoder reads back
 * exactly what was put in. */
#include "http/h1_encoder.h"
#include "tests/support/test.h"

static struct rg_h1_slice slice_of(const char *text, size_t size)
{
    return (struct rg_h1_slice){text, (uint32_t)size};
}

static void encode_sample(struct rg_h1_encoder *encoder, char *data, size_t capacity)
{
    rg_h1_encoder_init(encoder, data, capacity);
    rg_h1_encode_request(encoder, "GET", "/b/o%20o?generation=1");
    rg_h1_encode_header(encoder, "Host", "storage.googleapis.com");
    rg_h1_encode_header_slice(encoder, "Range", slice_of("bytes=0-99xyz", 10));
    rg_h1_encode_header_u64(encoder, "Content-Length", 0);
    rg_h1_encode_header_u64(encoder, "x-max", UINT64_MAX);
    rg_h1_encode_header(encoder, "x-empty", "");
    rg_h1_encode_header_slice(encoder, "x-none", slice_of(NULL, 0));
}

static const char sample[] = "GET /b/o%20o?generation=1 HTTP/1.1\r\n"
                             "Host: storage.googleapis.com\r\n"
                             "Range: bytes=0-99\r\n"
                             "Content-Length: 0\r\n"
                             "x-max: 18446744073709551615\r\n"
                             "x-empty: \r\n"
                             "x-none: \r\n\r\n";

static void test_a_request_is_written_as_expected(void)
{
    struct rg_h1_encoder encoder;
    char data[512];
    encode_sample(&encoder, data, sizeof(data));
    int size = rg_h1_encode_end(&encoder);
    RG_CHECK_EQ(size, sizeof(sample) - 1);
    RG_CHECK_MEM(data, (size_t)size, sample, sizeof(sample) - 1);
}

static void test_a_status_line_is_written_as_expected(void)
{
    struct rg_h1_encoder encoder;
    char data[64];
    rg_h1_encoder_init(&encoder, data, sizeof(data));
    rg_h1_encode_status(&encoder, 206, "Partial Content");
    int size = rg_h1_encode_end(&encoder);
    RG_CHECK_MEM(data, (size_t)size, "HTTP/1.1 206 Partial Content\r\n\r\n", 32);
    rg_h1_encoder_init(&encoder, data, sizeof(data));
    rg_h1_encode_status(&encoder, 599, "");
    size = rg_h1_encode_end(&encoder);
    RG_CHECK_MEM(data, (size_t)size, "HTTP/1.1 599 \r\n\r\n", 17);
}

static void test_every_capacity_below_the_size_is_no_space(void)
{
    for (size_t capacity = 0; capacity < sizeof(sample) + 1; capacity++) {
        struct rg_h1_encoder encoder;
        char *data = malloc(capacity == 0 ? 1 : capacity);
        encode_sample(&encoder, data, capacity);
        int result = rg_h1_encode_end(&encoder);
        RG_CHECK(encoder.size <= capacity);
        RG_CHECK_EQ(result, capacity < sizeof(sample) - 1 ? -ENOSPC : (int)sizeof(sample) - 1);
        free(data);
    }
}

/* The result of a head with this one field. */
static int encode_field(const char *name, struct rg_h1_slice value)
{
    struct rg_h1_encoder encoder;
    char data[256];
    rg_h1_encoder_init(&encoder, data, sizeof(data));
    rg_h1_encode_status(&encoder, 200, "OK");
    rg_h1_encode_header_slice(&encoder, name, value);
    return rg_h1_encode_end(&encoder);
}

static int encode_request(const char *method, const char *target)
{
    struct rg_h1_encoder encoder;
    static char data[RG_H1_TARGET_SIZE_MAX + 256];
    rg_h1_encoder_init(&encoder, data, sizeof(data));
    rg_h1_encode_request(&encoder, method, target);
    return rg_h1_encode_end(&encoder);
}

static int encode_status(unsigned status, const char *reason)
{
    struct rg_h1_encoder encoder;
    char data[256];
    rg_h1_encoder_init(&encoder, data, sizeof(data));
    rg_h1_encode_status(&encoder, status, reason);
    return rg_h1_encode_end(&encoder);
}

static void test_nothing_can_be_injected(void)
{
    static const char *const names[] = {"",   "a b", "a:",    "a\r\nb",
                                        " a", "a\t", "a\x7f", "\xc3\xa9"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        RG_CHECK_EQ(encode_field(names[i], slice_of("v", 1)), -EINVAL);
    }
    static const char *const values[] = {"v\r\nx: y", "v\nx: y", "v\rx", "\r",  "\x01", "v\x7f",
                                         " v",        "v ",      "\tv",  "v\t", " "};
    for (size_t i = 0; i < RG_ARRAY_LEN(values); i++) {
        RG_CHECK_EQ(encode_field("n", slice_of(values[i], strlen(values[i]))), -EINVAL);
    }
    RG_CHECK_EQ(encode_field("n", slice_of("a\0b", 3)), -EINVAL);
    RG_CHECK(encode_field("n", slice_of("a \t\xc3\xa9", 5)) > 0);

    static const char *const targets[] = {"",       "/a b", "/a\r\nHost: x", "/a\tb",
                                          "/a\x7f", "/#a",  "/\xc3\xa9"};
    for (size_t i = 0; i < RG_ARRAY_LEN(targets); i++) {
        RG_CHECK_EQ(encode_request("GET", targets[i]), -EINVAL);
    }
    RG_CHECK_EQ(encode_request("", "/"), -EINVAL);
    RG_CHECK_EQ(encode_request("GET ", "/"), -EINVAL);
    RG_CHECK_EQ(encode_request("G\r\nT", "/"), -EINVAL);
    RG_CHECK_EQ(encode_status(200, "O\r\nK"), -EINVAL);
    RG_CHECK_EQ(encode_status(99, "x"), -EINVAL);
    RG_CHECK_EQ(encode_status(600, "x"), -EINVAL);
}

static void test_the_decoder_s_limits_hold_for_what_is_sent(void)
{
    static char target[RG_H1_TARGET_SIZE_MAX + 2] = "/", method[RG_H1_METHOD_SIZE_MAX + 2];
    memset(target + 1, 'a', RG_H1_TARGET_SIZE_MAX - 1);
    RG_CHECK(encode_request("GET", target) > 0);
    target[RG_H1_TARGET_SIZE_MAX] = 'a';
    RG_CHECK_EQ(encode_request("GET", target), -EINVAL);
    memset(method, 'M', RG_H1_METHOD_SIZE_MAX);
    RG_CHECK(encode_request(method, "/") > 0);
    method[RG_H1_METHOD_SIZE_MAX] = 'M';
    RG_CHECK_EQ(encode_request(method, "/"), -EINVAL);
}

static void test_the_first_error_sticks(void)
{
    struct rg_h1_encoder encoder;
    char data[64];
    rg_h1_encoder_init(&encoder, data, sizeof(data));
    rg_h1_encode_request(&encoder, "GET", "/");
    size_t size = encoder.size;
    rg_h1_encode_header(&encoder, "bad name", "v");
    rg_h1_encode_header(&encoder, "good", "v");
    rg_h1_encode_header(&encoder, "long", "012345678901234567890123456789012345678901234567890123");
    RG_CHECK_EQ(rg_h1_encode_end(&encoder), -EINVAL);
    RG_CHECK_EQ(encoder.size, size);
}

/* Random fields, with bytes of every kind: what the encoder takes the decoder reads back unchanged,
 * and what it does not take the decoder would not have accepted either. */
static void test_the_decoder_reads_back_what_was_written(void)
{
    static struct rg_h1_head head;
    for (int round = 0; round < 20000; round++) {
        char data[512], value[48];
        size_t value_size = rg_test_random_below(sizeof(value));
        for (size_t i = 0; i < value_size; i++) {
            bool is_odd = rg_test_random_below(40) == 0;
            value[i] = is_odd ? (char)rg_test_random() : (char)('!' + rg_test_random_below(94));
        }
        struct rg_h1_encoder encoder;
        rg_h1_encoder_init(&encoder, data, sizeof(data));
        rg_h1_encode_status(&encoder, 200, "OK");
        rg_h1_encode_header_slice(&encoder, "x-goog-meta-a", slice_of(value, value_size));
        rg_h1_encode_header_u64(&encoder, "Content-Length", (uint64_t)round);
        int size = rg_h1_encode_end(&encoder);
        if (size > 0) {
            RG_CHECK_EQ(rg_h1_parse_response(&head, false, data, (size_t)size, 0), size);
            const struct rg_h1_slice *got = rg_h1_find(&head, "x-goog-meta-a");
            RG_CHECK_MEM(got->data, got->size, value, value_size);
            RG_CHECK_EQ(head.content_length, round);
            continue;
        }
        RG_CHECK_EQ(size, -EINVAL);
        size = snprintf(data, sizeof(data), "HTTP/1.1 200 OK\r\nx-goog-meta-a:");
        memcpy(data + size, value, value_size);
        memcpy(data + size + value_size, "\r\n\r\n", 4);
        int result = rg_h1_parse_response(&head, false, data, (size_t)size + value_size + 4, 0);
        bool is_changed =
            result > 0 && (head.header_count != 1 || head.headers[0].value.size != value_size);
        RG_CHECK(result < 0 || is_changed);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_request_is_written_as_expected),
        RG_TEST(test_a_status_line_is_written_as_expected),
        RG_TEST(test_every_capacity_below_the_size_is_no_space),
        RG_TEST(test_nothing_can_be_injected),
        RG_TEST(test_the_decoder_s_limits_hold_for_what_is_sent),
        RG_TEST(test_the_first_error_sticks),
        RG_TEST(test_the_decoder_reads_back_what_was_written),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
