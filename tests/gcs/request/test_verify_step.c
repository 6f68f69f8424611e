/* Guarded writes that meet what an attempt of their own has written: what counts as done, what is
 * asked, and what stays a failure. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/objects.h>

#define UNAVAILABLE "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
#define UNAVAILABLE_LAST                                                                           \
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
#define THROTTLED "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"
#define REFUSED "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 4\r\n\r\nmine"
#define MISSING "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
#define FORBIDDEN "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nbad"
/* Metadata of an object; that of "abcde" has the CRC32C 0xc450d697. */
#define METADATA(size, crc)                                                                        \
    "HTTP/1.1 200 OK\r\nContent-Length: 66\r\n\r\n"                                                \
    "{\"name\":\"object\",\"size\":\"" size "\",\"generation\":\"12\",\"crc32c\":\"" crc "\"}"
#define SAME METADATA("5", "xFDWlw==")

struct outcome {
    struct rg_completion done;
    char detail[512];
    char last_head[1024];
    uint32_t requests;
};

static struct outcome end(struct rg_test_client *c)
{
    struct outcome outcome = {.done = rg_test_take(c)};
    outcome.requests = rg_scripted_server_requests(c->server);
    const char *head = rg_scripted_server_head(c->server, outcome.requests - 1);
    snprintf(outcome.last_head, sizeof(outcome.last_head), "%s", head != NULL ? head : "");
    if (outcome.done.detail != NULL) {
        snprintf(outcome.detail, sizeof(outcome.detail), "%s", outcome.done.detail);
    }
    rg_lease_release(outcome.done.lease);
    rg_test_client_close(c);
    return outcome;
}

static struct outcome delete_against(const struct rg_step *const *scripts, uint32_t script_count)
{
    struct rg_test_client c = {
        .scripts = scripts, .script_count = script_count, .options.attempts_max = 4};
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_submit_delete(c.client, c.cq,
                                 &(struct rg_delete){.bucket = "bucket",
                                                     .object = "a/b",
                                                     .conditions.if_generation_match = 7}),
                0);
    return end(&c);
}

static struct outcome put_against(const struct rg_step *const *scripts, uint32_t script_count,
                                  int64_t if_generation_match, uint32_t attempts_max)
{
    struct rg_test_client c = {
        .scripts = scripts, .script_count = script_count, .options.attempts_max = attempts_max};
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_submit_put(c.client, c.cq,
                              &(struct rg_put){.bucket = "bucket",
                                               .object = "a/b",
                                               .data = "abcde",
                                               .size = 5,
                                               .if_generation_match = if_generation_match}),
                0);
    return end(&c);
}

static void test_lost_answer_of_what_is_there_is_success(void)
{
    const struct rg_step lost[] = {RG_READ, RG_CUT};
    const struct rg_step reset[] = {RG_READ, RG_RESET};
    const struct rg_step half[] = {RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-"), RG_CUT};
    const struct rg_step cut_body[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 66\r\n\r\n{\"na"), RG_CUT};
    const struct rg_step failed[] = {RG_READ, RG_SEND(UNAVAILABLE_LAST), RG_END};
    const struct rg_step met[] = {RG_READ, RG_SEND(REFUSED), RG_READ, RG_SEND(SAME), RG_END};
    const struct rg_step *const firsts[] = {lost, reset, half, cut_body, failed};
    static const int64_t guards[] = {RG_GENERATION_ABSENT, 7};
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(firsts); i++) {
        const struct rg_step *const scripts[] = {firsts[i / 2], met};
        struct outcome outcome = put_against(scripts, 2, guards[i % 2], 4);
        RG_CHECK_STATUS(&outcome.done, OK);
        RG_CHECK_EQ(outcome.done.attempts, 3);
        RG_CHECK_EQ(outcome.done.generation, 12);
        RG_CHECK_EQ(outcome.done.object_size, 5);
        RG_CHECK_EQ(outcome.done.crc32c, 0xc450d697);
        RG_CHECK_CONTAINS(outcome.last_head, "GET /storage/v1/b/bucket/o/a%2Fb?");
    }
}

/* Nothing of ours can be there: the condition did not hold from the start. */
static void test_first_refusal_is_not_asked_about(void)
{
    const struct rg_step met[] = {RG_READ, RG_SEND(REFUSED), RG_READ, RG_SEND(SAME), RG_END};
    const struct rg_step *const scripts[] = {met};
    struct outcome outcome = put_against(scripts, 1, RG_GENERATION_ABSENT, 4);
    RG_CHECK_STATUS(&outcome.done, PRECONDITION);
    RG_CHECK_EQ(outcome.requests, 1);
}

static void test_refusal_after_being_throttled_is_not_asked_about(void)
{
    const struct rg_step met[] = {RG_READ, RG_SEND(THROTTLED), RG_READ, RG_SEND(REFUSED),
                                  RG_READ, RG_SEND(SAME),      RG_END};
    const struct rg_step *const scripts[] = {met};
    struct outcome outcome = put_against(scripts, 1, RG_GENERATION_ABSENT, 4);
    RG_CHECK_STATUS(&outcome.done, PRECONDITION);
    RG_CHECK_EQ(outcome.requests, 2);
}

static void test_what_another_has_written_stays_a_refusal(void)
{
    static const char *const others[] = {
        METADATA("4", "xFDWlw=="), METADATA("5", "AAAAAA=="),
        "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"size\":\"5\"}", /* no CRC32C */
    };
    const struct rg_step lost[] = {RG_READ, RG_CUT};
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        const struct rg_step met[] = {RG_READ, RG_SEND(REFUSED), RG_READ, RG_SEND(others[i]),
                                      RG_END};
        const struct rg_step *const scripts[] = {lost, met};
        struct outcome outcome = put_against(scripts, 2, RG_GENERATION_ABSENT, 4);
        RG_CHECK_STATUS(&outcome.done, PRECONDITION);
        RG_CHECK_EQ(outcome.done.http_status, 412);
        RG_CHECK_EQ(outcome.requests, 3);
        RG_CHECK_CONTAINS(outcome.detail, "what is there is not what was sent");
    }
}

static void test_question_without_an_answer_leaves_the_refusal(void)
{
    static const char *const answers[] = {
        FORBIDDEN, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", UNAVAILABLE};
    const struct rg_step lost[] = {RG_READ, RG_CUT};
    for (size_t i = 0; i < RG_ARRAY_LEN(answers); i++) {
        const struct rg_step met[] = {RG_READ, RG_SEND(REFUSED),    RG_READ, RG_SEND(answers[i]),
                                      RG_READ, RG_SEND(answers[i]), RG_END};
        const struct rg_step *const scripts[] = {lost, met};
        struct outcome outcome = put_against(scripts, 2, RG_GENERATION_ABSENT, 2);
        RG_CHECK_STATUS(&outcome.done, PRECONDITION);
        RG_CHECK_EQ(outcome.done.http_status, 412);
        RG_CHECK_CONTAINS(outcome.detail, "an earlier try may have done it, and what is there");
    }
    const struct rg_step gone[] = {RG_READ, RG_SEND(REFUSED), RG_READ, RG_SEND(MISSING), RG_END};
    const struct rg_step *const scripts[] = {lost, gone};
    struct outcome outcome = put_against(scripts, 2, 7, 2);
    RG_CHECK_STATUS(&outcome.done, PRECONDITION);
    RG_CHECK_CONTAINS(outcome.detail,
                      "an earlier try may have done it, and now there is no such object");
}

/* The question has attempts of its own, however many the write has used up. */
static void test_question_is_tried_again(void)
{
    const struct rg_step lost[] = {RG_READ, RG_CUT};
    const struct rg_step met[] = {RG_READ, RG_SEND(REFUSED), RG_READ, RG_SEND(UNAVAILABLE_LAST),
                                  RG_END};
    const struct rg_step good[] = {RG_READ, RG_SEND(SAME), RG_END};
    const struct rg_step *const scripts[] = {lost, met, good};
    struct outcome outcome = put_against(scripts, 3, RG_GENERATION_ABSENT, 2);
    RG_CHECK_STATUS(&outcome.done, OK);
    RG_CHECK_EQ(outcome.requests, 4);
}

static void test_question_can_be_cancelled(void)
{
    const struct rg_step lost[] = {RG_READ, RG_CUT};
    const struct rg_step met[] = {RG_READ, RG_SEND(REFUSED), RG_READ, RG_HOLD};
    const struct rg_step *const scripts[] = {lost, met};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_submit_put(c.client, c.cq,
                              &(struct rg_put){.bucket = "bucket",
                                               .object = "o",
                                               .data = "abcde",
                                               .size = 5,
                                               .user_data = 3,
                                               .if_generation_match = RG_GENERATION_ABSENT}),
                0);
    RG_AWAIT(rg_scripted_server_requests(c.server) >= 3);
    rg_cancel(c.client, c.cq, 3);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_removal_that_finds_it_gone_is_success(void)
{
    const struct rg_step lost[] = {RG_READ, RG_CUT};
    const struct rg_step gone[] = {RG_READ, RG_SEND(MISSING), RG_END};
    const struct rg_step met[] = {RG_READ, RG_SEND(REFUSED), RG_READ, RG_SEND(MISSING), RG_END};
    const struct rg_step *const seconds[] = {gone, met};
    for (size_t i = 0; i < RG_ARRAY_LEN(seconds); i++) {
        const struct rg_step *const scripts[] = {lost, seconds[i]};
        struct outcome outcome = delete_against(scripts, 2);
        RG_CHECK_STATUS(&outcome.done, OK);
        RG_CHECK_EQ(outcome.requests, 2 + i);
    }
    /* At the first try it is what it looks like. */
    const struct rg_step *const first[] = {gone};
    struct outcome outcome = delete_against(first, 1);
    RG_CHECK_STATUS(&outcome.done, NOT_FOUND);
}

/* An empty one, too, which has the size and the CRC32C of nothing. */
static void test_removal_that_finds_another_object_is_refused(void)
{
    static const char *const others[] = {SAME, METADATA("0", "AAAAAA==")};
    const struct rg_step lost[] = {RG_READ, RG_CUT};
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        const struct rg_step met[] = {RG_READ, RG_SEND(REFUSED), RG_READ, RG_SEND(others[i]),
                                      RG_END};
        const struct rg_step *const scripts[] = {lost, met};
        struct outcome outcome = delete_against(scripts, 2);
        RG_CHECK_STATUS(&outcome.done, PRECONDITION);
        RG_CHECK_CONTAINS(outcome.detail, "there is another object of that name");
    }
}

/* What it sends, and what it makes of an object without a nonce or with another: a refusal, also at
 * the first try. */
static void test_an_exclusive_put_wants_its_own_nonce(void)
{
    static const char *const others[] = {
        SAME,
        "HTTP/1.1 200 OK\r\nContent-Length: 114\r\n\r\n"
        "{\"size\":\"5\",\"generation\":\"12\",\"crc32c\":\"xFDWlw==\","
        "\"metadata\":{\"ringest-nonce\":\"00112233445566778899aabbccddeeff\"}}",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        const struct rg_step met[] = {RG_READ, RG_SEND(REFUSED), RG_READ, RG_SEND(others[i]),
                                      RG_END};
        const struct rg_step *const scripts[] = {met};
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        rg_test_client_open(&c);
        struct rg_put put = {.bucket = "bucket",
                             .object = "a/b",
                             .data = "abcde",
                             .size = 5,
                             .content_type = "text/x",
                             .exclusive = true,
                             .if_generation_match = RG_GENERATION_ABSENT};
        RG_CHECK_EQ(rg_submit_put(c.client, c.cq, &put), 0);
        struct rg_completion done = rg_test_take(&c);
        RG_CHECK_STATUS(&done, PRECONDITION);
        RG_CHECK_CONTAINS(done.detail, "somebody else wrote what is there");
        RG_CHECK(strstr(done.detail, "earlier try") == NULL);
        RG_CHECK_EQ(rg_scripted_server_requests(c.server), 2);
        const char *head = rg_scripted_server_head(c.server, 0);
        RG_CHECK_CONTAINS(head, "uploadType=multipart");
        RG_CHECK_CONTAINS(head, "Content-Type: multipart/related; boundary=");
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_exclusive_put_wants_its_own_nonce),
        RG_TEST(test_lost_answer_of_what_is_there_is_success),
        RG_TEST(test_first_refusal_is_not_asked_about),
        RG_TEST(test_refusal_after_being_throttled_is_not_asked_about),
        RG_TEST(test_what_another_has_written_stays_a_refusal),
        RG_TEST(test_question_without_an_answer_leaves_the_refusal),
        RG_TEST(test_question_is_tried_again),
        RG_TEST(test_question_can_be_cancelled),
        RG_TEST(test_removal_that_finds_it_gone_is_success),
        RG_TEST(test_removal_that_finds_another_object_is_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
