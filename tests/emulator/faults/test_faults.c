/* Each instruction over real sockets: what a client gets to see, what becomes of the data, and that
 * the instruction is used up by that and by nothing else. */
#include "emulator/emulator.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#include <time.h>

#define BIG RG_KIB(1000)

static struct rg_emulator *emulator;
static uint16_t port;
static char id[RG_TALK_ID_SIZE];

static struct rg_talk exchange(const char *method, const char *target, const char *fields,
                               size_t body_size)
{
    struct rg_talk talk;
    rg_talk(&talk, port,
            &(struct rg_talk_request){
                .method = method, .target = target, .fields = fields, .body_size = body_size});
    return talk;
}

/* As part of the retry test. */
static struct rg_talk ask_with(const char *method, const char *target, size_t body_size)
{
    char fields[128];
    snprintf(fields, sizeof(fields), "x-retry-test-id: %s\r\n", id);
    return exchange(method, target, fields, body_size);
}

static struct rg_talk ask(const char *method, const char *target)
{
    return ask_with(method, target, 0);
}

static struct rg_talk upload(const char *target, size_t size)
{
    return ask_with("PUT", target, size);
}

static unsigned status_of(const char *method, const char *target)
{
    struct rg_talk talk = exchange(method, target, NULL, 0);
    RG_CHECK(rg_talk_is_whole(&talk));
    return talk.status;
}

static void begin(const char *method, const char *instructions)
{
    rg_talk_retry_test_begin(port, method, instructions, id);
}

static bool is_complete(void)
{
    return rg_talk_retry_test_is_complete(port, id);
}

static void open_emulator(void)
{
    static const char *const synthetic[] = {"data/big-:2:1000KiB", "data/small-:2:100"};
    static const char *const buckets[] = {"bucket"};
    char error[256] = "";
    struct rg_emulator_options options = {.threads = 2,
                                          .plain = true,
                                          .synthetic = synthetic,
                                          .synthetic_count = 2,
                                          .buckets = buckets,
                                          .bucket_count = 1,
                                          .strict_buckets = true};
    if (rg_emulator_open(&emulator, &options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    port = rg_talk_port(rg_emulator_endpoint(emulator));
}

static void close_emulator(void)
{
    rg_emulator_close(emulator);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void test_statuses_come_in_their_order(void)
{
    open_emulator();
    begin("storage.objects.get", "\"return-503\",\"return-429\",\"return-401\"");
    RG_CHECK_EQ(ask("GET", "/storage/v1/b/data/o/small-00000000?alt=media").status, 503);
    RG_CHECK_EQ(status_of("GET", "/data/small-00000000"), 200); /* Without the field. */
    RG_CHECK_EQ(ask("GET", "/storage/v1/b/data/o").status, 200);
    RG_CHECK_EQ(ask("GET", "/data/small-00000000").status, 429);
    RG_CHECK(!is_complete());
    struct rg_talk last = ask("GET", "/data/small-00000001");
    RG_CHECK_EQ(last.status, 401);
    RG_CHECK(strstr(last.text, "caused a 401") != NULL);
    RG_CHECK(is_complete());
    RG_CHECK_EQ(ask("GET", "/data/small-00000000").status, 200);
    close_emulator();
}

static void test_reset_instead_of_an_answer(void)
{
    open_emulator();
    begin("storage.objects.insert", "\"return-reset-connection\"");
    struct rg_talk answer = upload("/bucket/o", 10);
    RG_CHECK(answer.error == ECONNRESET || answer.error == EPIPE);
    RG_CHECK_EQ(answer.status, 0);
    RG_CHECK(is_complete());
    RG_CHECK_EQ(status_of("GET", "/bucket/o"), 404);
    RG_CHECK_EQ(upload("/bucket/o", 10).status, 200);
    close_emulator();
}

static void test_broken_streams(void)
{
    open_emulator();
    begin("storage.objects.get", "\"return-broken-stream\"");
    struct rg_talk answer = ask("GET", "/data/big-00000000");
    RG_CHECK_EQ(answer.status, 200);
    RG_CHECK_EQ(answer.content_length, BIG);
    RG_CHECK_EQ(answer.body_size, 4);
    RG_CHECK(is_complete());
    answer = ask("GET", "/data/big-00000000");
    RG_CHECK(rg_talk_is_whole(&answer));
    close_emulator();
}

/* An answer that is too short leaves the instruction where it is. */
static void test_broken_streams_after_so_many_bytes(void)
{
    open_emulator();
    begin("storage.objects.get", "\"return-broken-stream-after-256K\"");
    struct rg_talk answer = ask("GET", "/data/small-00000000");
    RG_CHECK(rg_talk_is_whole(&answer) && !is_complete());
    answer = ask("GET", "/data/big-00000000");
    RG_CHECK_EQ(answer.content_length, BIG);
    RG_CHECK_EQ(answer.body_size, RG_KIB(256));
    RG_CHECK(is_complete());
    close_emulator();
}

/* What was asked for has happened, and only the answer is lost. */
static void test_lost_answers_of_what_was_done(void)
{
    open_emulator();
    begin("storage.objects.insert", "\"return-broken-stream\"");
    struct rg_talk answer = upload("/bucket/o", 10);
    RG_CHECK_EQ(answer.status, 0);
    RG_CHECK_EQ(answer.error, 0);
    RG_CHECK(is_complete());
    RG_CHECK_EQ(status_of("GET", "/bucket/o"), 200);
    begin("storage.objects.delete", "\"return-broken-stream\"");
    RG_CHECK_EQ(ask("DELETE", "/storage/v1/b/bucket/o/o").status, 0);
    RG_CHECK(is_complete());
    RG_CHECK_EQ(status_of("GET", "/bucket/o"), 404);
    close_emulator();
}

static void test_the_last_answer_of_an_upload_is_cut(void)
{
    open_emulator();
    begin("storage.objects.insert", "\"return-broken-stream-final-chunk-after-10B\"");
    struct rg_talk answer =
        ask_with("POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=n", 20);
    RG_CHECK_EQ(answer.status, 200);
    RG_CHECK_EQ(answer.body_size, 10);
    RG_CHECK(answer.content_length > 10);
    RG_CHECK(is_complete());
    RG_CHECK_EQ(status_of("GET", "/bucket/n"), 200);
    close_emulator();
}

static void test_uploads_fail_after_so_many_bytes(void)
{
    open_emulator();
    begin("storage.objects.insert", "\"return-503-after-256K\"");
    RG_CHECK_EQ(upload("/bucket/short", RG_KIB(256) - 1).status, 200);
    RG_CHECK(!is_complete());
    RG_CHECK_EQ(upload("/bucket/long", RG_KIB(256)).status, 503);
    RG_CHECK(is_complete());
    RG_CHECK_EQ(status_of("GET", "/bucket/long"), 404);
    RG_CHECK_EQ(upload("/bucket/long", RG_KIB(256)).status, 200);
    close_emulator();
}

/* A session keeps what came before the failure, and the client finds out by asking. */
static void test_resumable_uploads_fail_after_so_many_bytes(void)
{
    char fields[256], session[256];
    open_emulator();
    begin("storage.objects.insert", "\"return-503-after-256K\"");
    struct rg_talk answer =
        ask("POST", "/upload/storage/v1/b/bucket/o?uploadType=resumable&name=n");
    RG_CHECK_EQ(answer.status, 200);
    RG_CHECK(!is_complete());
    const char *at = strstr(answer.head, "Location: ");
    RG_CHECK(at != NULL);
    at = strstr(at, "/upload/");
    snprintf(session, sizeof(session), "%.*s", (int)strcspn(at, "\r"), at);
    snprintf(fields, sizeof(fields),
             "x-retry-test-id: %s\r\nContent-Range: bytes 0-524287/600000\r\n", id);
    answer = exchange("PUT", session, fields, RG_KIB(512));
    RG_CHECK_EQ(answer.status, 503);
    RG_CHECK(is_complete());
    answer = exchange("PUT", session, "Content-Range: bytes */*\r\n", 0);
    RG_CHECK_EQ(answer.status, 308);
    RG_CHECK(strstr(answer.head, "Range: bytes=0-262143\r\n") != NULL);
    answer =
        exchange("PUT", session, "Content-Range: bytes 262144-599999/600000\r\n", 600000 - 262144);
    RG_CHECK_EQ(answer.status, 200);
    answer = exchange("GET", "/bucket/n", NULL, 0);
    RG_CHECK_EQ(answer.body_size, 600000);
    close_emulator();
}

static void test_stalls(void)
{
    open_emulator();
    begin("storage.objects.get", "\"stall-for-1s-after-256K\"");
    struct rg_talk answer = ask("GET", "/data/small-00000000");
    RG_CHECK(rg_talk_is_whole(&answer) && !is_complete());
    uint64_t start = now_ms();
    answer = ask("GET", "/data/big-00000000");
    RG_CHECK(rg_talk_is_whole(&answer));
    RG_CHECK(now_ms() - start >= 1000);
    RG_CHECK(is_complete());
    begin("storage.objects.insert", "\"stall-for-1s-after-1K\"");
    RG_CHECK_EQ(upload("/bucket/o", 1023).status, 200);
    RG_CHECK(!is_complete());
    start = now_ms();
    RG_CHECK_EQ(upload("/bucket/o", 1024).status, 200);
    RG_CHECK(now_ms() - start >= 1000);
    RG_CHECK(is_complete());
    close_emulator();
}

static void test_faults_of_one_request_by_its_own_field(void)
{
    open_emulator();
    struct rg_talk answer = exchange("GET", "/data/big-00000000",
                                     "x-goog-emulator-instructions: return-503-after-256K\r\n", 0);
    RG_CHECK_EQ(answer.status, 200);
    RG_CHECK(!rg_talk_is_whole(&answer));
    answer = exchange("GET", "/data/big-00000000",
                      "x-goog-emulator-instructions: return-503-after-256K/retry-1\r\n", 0);
    RG_CHECK_EQ(answer.status, 503);
    answer = exchange("GET", "/data/big-00000000",
                      "x-goog-emulator-instructions: return-503-after-256K/retry-2\r\n", 0);
    RG_CHECK(rg_talk_is_whole(&answer));
    answer = exchange("GET", "/data/big-00000000",
                      "x-goog-emulator-instructions: return-broken-stream\r\n", 0);
    RG_CHECK(rg_talk_is_whole(&answer)); /* It is shorter than 1 MiB. */
    answer = exchange("PUT", "/bucket/o", "x-goog-emulator-instructions: return-503-after-256K\r\n",
                      RG_KIB(300));
    RG_CHECK_EQ(answer.status, 503);
    answer = exchange("GET", "/data/small-00000000", "x-goog-emulator-instructions: dance\r\n", 0);
    RG_CHECK(rg_talk_is_whole(&answer));
    close_emulator();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_statuses_come_in_their_order),
        RG_TEST(test_reset_instead_of_an_answer),
        RG_TEST(test_broken_streams),
        RG_TEST(test_broken_streams_after_so_many_bytes),
        RG_TEST(test_lost_answers_of_what_was_done),
        RG_TEST(test_the_last_answer_of_an_upload_is_cut),
        RG_TEST(test_uploads_fail_after_so_many_bytes),
        RG_TEST(test_resumable_uploads_fail_after_so_many_bytes),
        RG_TEST(test_stalls),
        RG_TEST(test_faults_of_one_request_by_its_own_field),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
