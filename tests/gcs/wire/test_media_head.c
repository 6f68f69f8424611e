/* Heads of answers with an object's bytes: what they tell, and which cannot be right. */
#include "gcs/wire/media_head.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

static struct rg_h1_head head;

static int parse(const char *text, struct rg_media_head *media, const char **problem)
{
    RG_CHECK(rg_h1_parse_response(&head, false, text, strlen(text), 0) > 0);
    return rg_media_head_parse(&head, media, problem);
}

static struct rg_media_head parsed(const char *text)
{
    struct rg_media_head media;
    const char *problem = "none";
    if (parse(text, &media, &problem) < 0) {
        rg_test_fail(__FILE__, __LINE__, "refused: %s", problem);
    }
    return media;
}

static void test_a_whole_object(void)
{
    struct rg_media_head media = parsed("HTTP/1.1 200 OK\r\n"
                                        "Content-Length: 5\r\n"
                                        "x-goog-generation: 1700000000000001\r\n"
                                        "X-Goog-Stored-Content-Length: 5\r\n"
                                        "x-goog-stored-content-encoding: identity\r\n"
                                        "x-goog-hash: crc32c=AAAAAQ==\r\n\r\n");
    RG_CHECK_EQ(media.generation, 1700000000000001);
    RG_CHECK(media.has_total && media.first == 0);
    RG_CHECK_EQ(media.total, 5);
    RG_CHECK(media.hashes.has_crc32c && !media.is_gzip);
    RG_CHECK_EQ(media.hashes.crc32c, 1);
}

static void test_a_part(void)
{
    struct rg_media_head media = parsed("HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n"
                                        "Content-Range: bytes 10-14/100\r\n\r\n");
    RG_CHECK_EQ(media.first, 10);
    RG_CHECK(media.has_total);
    RG_CHECK_EQ(media.total, 100);
    RG_CHECK_EQ(media.generation, 0);
    media = parsed("HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n"
                   "Content-Range: BYTES 18446744073709551614-18446744073709551614/*\r\n\r\n");
    RG_CHECK(!media.has_total && media.first == UINT64_MAX - 1);
    /* The size that is stored is told even where the range does not tell it. */
    media = parsed("HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n"
                   "x-goog-stored-content-length: 77\r\nContent-Range: bytes 0-4/*\r\n\r\n");
    RG_CHECK(media.has_total);
    RG_CHECK_EQ(media.total, 77);
}

static void test_an_answer_that_does_not_tell_its_length(void)
{
    struct rg_media_head media = parsed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    RG_CHECK(!media.has_total);
}

/* A generation that is no number is as good as none. */
static void test_generations(void)
{
    static const char *const none[] = {"x", "", "-1", "9223372036854775808",
                                       "99999999999999999999999"};
    for (size_t i = 0; i < RG_ARRAY_LEN(none); i++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx-goog-generation: %s\r\n\r\n", none[i]);
        RG_CHECK_EQ(parsed(text).generation, 0);
    }
}

static void test_objects_stored_with_gzip(void)
{
    /* As they are stored. */
    struct rg_media_head media = parsed("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n"
                                        "Content-Encoding: gzip\r\n"
                                        "x-goog-stored-content-encoding: gzip\r\n"
                                        "x-goog-stored-content-length: 9\r\n\r\n");
    RG_CHECK(media.is_gzip);
    /* Without the field, but as long as they are stored. */
    media = parsed("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n"
                   "x-goog-stored-content-encoding: gzip\r\n"
                   "x-goog-stored-content-length: 9\r\n\r\n");
    RG_CHECK(media.is_gzip);
}

static void test_answers_that_cannot_be_right(void)
{
    static const struct {
        const char *text, *problem;
    } cases[] = {
        {"HTTP/1.1 204 No Content\r\n\r\n", "neither 200 nor 206"},
        {"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\n",
         "a 206 without Content-Range"},
        {"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n"
         "Content-Range: bytes 10-15/100\r\n\r\n",
         "Content-Range and Content-Length disagree"},
        {"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n"
         "Content-Range: bytes 14-10/100\r\n\r\n",
         "the Content-Range is malformed"},
        {"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n"
         "Content-Range: bytes 10-14/14\r\n\r\n",
         "the Content-Range is malformed"},
        {"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n"
         "Content-Range: lines 10-14/100\r\n\r\n",
         "the Content-Range is malformed"},
        {"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n"
         "Content-Range: bytes 10-14\r\n\r\n",
         "the Content-Range is malformed"},
        {"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n"
         "Content-Range: bytes 10/14-100\r\n\r\n",
         "the Content-Range is malformed"},
        {"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n"
         "Content-Range: bytes 10-18446744073709551616/*\r\n\r\n",
         "the Content-Range is malformed"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-goog-hash: crc32c=?\r\n\r\n",
         "the x-goog-hash fields are malformed"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"
         "x-guploader-response-body-transformations: gunzipped\r\n\r\n",
         "the server decompressed the object, which it was asked not to: it is stored with "
         "Content-Encoding gzip"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
         "x-goog-stored-content-encoding: gzip\r\nx-goog-stored-content-length: 9\r\n\r\n",
         "the server decompressed the object, which it was asked not to: it is stored with "
         "Content-Encoding gzip"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_media_head media;
        const char *problem = "";
        RG_CHECK_EQ(parse(cases[i].text, &media, &problem), -EBADMSG);
        RG_CHECK_STR(problem, cases[i].problem);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_whole_object),
        RG_TEST(test_a_part),
        RG_TEST(test_an_answer_that_does_not_tell_its_length),
        RG_TEST(test_generations),
        RG_TEST(test_objects_stored_with_gzip),
        RG_TEST(test_answers_that_cannot_be_right),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
