/* Calls: what is read out of an answer's head, by way of resumable uploads that meet it. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/upload.h>

#define SESSION "HTTP/1.1 200 OK\r\nLocation: /session?upload_id=1\r\nContent-Length: 0\r\n\r\n"
#define METADATA "{\"name\":\"o\",\"size\":\"5\",\"generation\":\"12\",\"crc32c\":\"xFDWlw==\"}"
#define STORED "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" METADATA

static struct rg_completion upload(const struct rg_step *script, enum rg_status want)
{
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .options = {.attempts_max = 2}};
    rg_test_client_open(&c);
    const struct rg_upload own = {.bucket = "bucket",
                                  .object = "o",
                                  .method = RG_UPLOAD_RESUMABLE,
                                  .data = "abcde",
                                  .size = 5};
    RG_CHECK_EQ(rg_submit_upload(c.client, c.cq, &own), 0);
    struct rg_completion done = rg_test_take(&c);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    if (want != RG_STATUS_OK) {
        RG_CHECK(done.detail != NULL);
    }
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return done;
}

static void test_sessions(void)
{
    static const char *const locations[] = {
        "/session?upload_id=1",
        "https://storage.googleapis.com/upload/storage/v1/b/b/o?upload_id=1",
        "http://127.0.0.1:1/x?url=http://a/b",
    };
    static const char *const bad[] = {"https://storage.googleapis.com", "session",
                                      "http://a b/c d"};
    char text[256];
    for (size_t i = 0; i < RG_ARRAY_LEN(locations); i++) {
        snprintf(text, sizeof(text),
                 "HTTP/1.1 201 Created\r\nLocation: %s\r\nContent-Length: 0\r\n"
                 "\r\n",
                 locations[i]);
        const struct rg_step script[] = {RG_READ, RG_SEND(text), RG_READ, RG_SEND(STORED), RG_END};
        struct rg_completion done = upload(script, RG_STATUS_OK);
        RG_CHECK_EQ(done.generation, 12);
        RG_CHECK_EQ(done.attempts, 2);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n",
                 bad[i]);
        const struct rg_step script[] = {RG_READ, RG_SEND(text), RG_AGAIN};
        upload(script, RG_STATUS_BAD_RESPONSE);
    }
}

static void test_ranges(void)
{
    static const char *const good[] = {"Range: bytes=0-1\r\n", "Range: bytes 0-1\r\n", ""};
    static const char *const bad[] = {"Range: bytes=0-5\r\n", "Range: bytes=1-2\r\n",
                                      "Range: bytes=0-\r\n",
                                      "Range: bytes=0-18446744073709551615\r\n", "Range: x\r\n"};
    char text[256];
    for (size_t i = 0; i < RG_ARRAY_LEN(good) + RG_ARRAY_LEN(bad); i++) {
        bool is_good = i < RG_ARRAY_LEN(good);
        snprintf(text, sizeof(text),
                 "HTTP/1.1 308 Resume Incomplete\r\n%sContent-Length: 0\r\n"
                 "\r\n",
                 is_good ? good[i] : bad[i - RG_ARRAY_LEN(good)]);
        const struct rg_step script[] = {RG_READ, RG_SEND(SESSION), RG_READ, RG_SEND(text),
                                         RG_READ, RG_SEND(STORED),  RG_END};
        upload(script, is_good ? RG_STATUS_OK : RG_STATUS_BAD_RESPONSE);
    }
}

/* Some servers say 308 by another field, for clients that take it for a redirection. */
static void test_status_by_another_field(void)
{
    const struct rg_step script[] = {
        RG_READ,
        RG_SEND(SESSION),
        RG_READ,
        RG_SEND("HTTP/1.1 200 OK\r\nX-HTTP-Status-Code-Override: 308\r\nRange: bytes=0-2\r\n"
                "Content-Length: 0\r\n\r\n"),
        RG_READ,
        RG_SEND(STORED),
        RG_END};
    upload(script, RG_STATUS_OK);
}

static void test_answers_that_are_too_long(void)
{
    const struct rg_step known[] = {RG_READ,
                                    RG_SEND(SESSION),
                                    RG_READ,
                                    RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n"),
                                    {.kind = RG_STEP_FLOOD, .text = METADATA}};
    upload(known, RG_STATUS_TOO_LARGE);
    const struct rg_step unknown[] = {RG_READ,
                                      RG_SEND(SESSION),
                                      RG_READ,
                                      RG_SEND("HTTP/1.1 200 OK\r\n\r\n"),
                                      {.kind = RG_STEP_FLOOD, .text = METADATA}};
    upload(unknown, RG_STATUS_TOO_LARGE);
}

static void test_a_refusal_is_explained(void)
{
    const struct rg_step script[] = {RG_READ,
                                     RG_SEND("HTTP/1.1 403 Forbidden\r\nContent-Length: 39\r\n\r\n"
                                             "{\"error\":{\"message\":\"the moon is full\"}}"),
                                     RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    const struct rg_upload own = {.bucket = "bucket", .object = "o", .data = "abcde", .size = 5};
    RG_CHECK_EQ(rg_submit_upload(c.client, c.cq, &own), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, PERMISSION);
    RG_CHECK_EQ(done.http_status, 403);
    RG_CHECK_CONTAINS(done.detail, "upload gs://bucket/o");
    RG_CHECK_CONTAINS(done.detail, "the moon is full");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_sessions),
        RG_TEST(test_ranges),
        RG_TEST(test_status_by_another_field),
        RG_TEST(test_answers_that_are_too_long),
        RG_TEST(test_a_refusal_is_explained),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
