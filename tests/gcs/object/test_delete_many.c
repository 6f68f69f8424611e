/* Removing many objects by one request: answers in any order, some that say no, some that want
 * another try, and servers that know no batches. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/objects.h>

#define MULTIPART "Content-Type: multipart/mixed; boundary=batch_1\r\n"
#define PART(id, status)                                                                           \
    "--batch_1\r\nContent-Type: application/http\r\nContent-ID: <response-ringest+" id ">\r\n\r\n" \
    "HTTP/1.1 " status "\r\nContent-Length: 0\r\n\r\n\r\n"
#define END "--batch_1--\r\n"

static const struct rg_step lost[] = {RG_READ, RG_CUT};
static const struct rg_step gone[] = {RG_READ, RG_SEND("HTTP/1.1 204 No Content\r\n\r\n"),
                                      RG_AGAIN};
static const struct rg_step missing[] = {
    RG_READ, RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), RG_AGAIN};

/* Three, of which the last two may be tried again. */
static const struct rg_delete deletes[] = {
    {.bucket = "bucket", .object = "a b"},
    {.bucket = "bucket", .object = "b", .generation = 7},
    {.bucket = "other", .object = "c", .conditions = {.if_generation_match = 9}},
};

static const char *batch_answer(const char *body)
{
    return rg_test_answer_with("200 OK", "Connection: close\r\n" MULTIPART, body);
}

/* As a program of a later version would, whose items are larger. */
static struct rg_completion many_submit(struct rg_test_client *c, const struct rg_delete *items,
                                        size_t count)
{
    static struct {
        struct rg_delete del;
        uint64_t later[3];
    } larger[RG_DELETES_MAX];
    rg_test_client_open(c);
    for (size_t i = 0; i < count; i++) {
        larger[i].del = items[i];
        larger[i].later[0] = UINT64_MAX;
    }
    struct rg_delete_many many = {.deletes = &larger[0].del, .count = count, .user_data = 3};
    RG_CHECK_EQ(
        rg_submit_delete_many_sized(c->client, c->cq, &many, sizeof(many), sizeof(larger[0])), 0);
    return rg_test_take(c);
}

static void check_results(const struct rg_completion *done, const enum rg_status *statuses,
                          const uint16_t *http_statuses, size_t count)
{
    RG_CHECK_STATUS(done, OK);
    const struct rg_delete_result *results = done->data;
    RG_CHECK_EQ(done->size, count * sizeof(*results));
    for (size_t i = 0; i < count; i++) {
        RG_CHECK_EQ(results[i].status, statuses[i]);
        RG_CHECK_EQ(results[i].http_status, http_statuses[i]);
    }
    rg_lease_release(done->lease);
}

static void test_partial_failures_out_of_order(void)
{
    const struct rg_step script[] = {RG_READ,
                                     RG_SEND(batch_answer(PART("2", "412 Precondition Failed") PART(
                                         "0", "204 No Content") PART("1", "404 Not Found") END)),
                                     RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    struct rg_completion done = many_submit(&c, deletes, 3);
    static const enum rg_status want[] = {RG_STATUS_OK, RG_STATUS_NOT_FOUND,
                                          RG_STATUS_PRECONDITION};
    static const uint16_t http[] = {204, 404, 412};
    check_results(&done, want, http, 3);
    RG_CHECK_EQ(done.user_data, 3);
    RG_CHECK_EQ(done.attempts, 1);
    const char *head = rg_scripted_server_head(c.server, 0);
    RG_CHECK_CONTAINS(head, "POST /batch/storage/v1 HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(head, "\r\nContent-Type: multipart/mixed; boundary=ringest_part\r\n");
    RG_CHECK_STR(rg_scripted_server_body(c.server, 0),
                 "--ringest_part\r\nContent-Type: application/http\r\nContent-ID: <ringest+0>\r\n"
                 "\r\nDELETE /storage/v1/b/bucket/o/a%20b HTTP/1.1\r\n\r\n\r\n"
                 "--ringest_part\r\nContent-Type: application/http\r\nContent-ID: <ringest+1>\r\n"
                 "\r\nDELETE /storage/v1/b/bucket/o/b?generation=7 HTTP/1.1\r\n\r\n\r\n"
                 "--ringest_part\r\nContent-Type: application/http\r\nContent-ID: <ringest+2>\r\n"
                 "\r\nDELETE /storage/v1/b/other/o/c?ifGenerationMatch=9 HTTP/1.1\r\n\r\n\r\n"
                 "--ringest_part--\r\n");
    rg_test_client_close(&c);
}

/* What the service says of each is told, and what it was not asked about is not. */
static void test_refusals_say_why(void)
{
    char before[1500 + 1];
    memset(before, 0xff, sizeof(before) - 1);
    before[sizeof(before) - 1] = '\0';
    const struct rg_step script[] = {
        RG_READ, RG_SEND(rg_test_answer("200 OK", before)), RG_READ,
        RG_SEND(batch_answer(
            PART("0", "204 No Content") "--batch_1\r\nContent-ID: <response-ringest+1>\r\n\r\n"
                                        "HTTP/1.1 403 Forbidden\r\nContent-Type: a/b\r\n\r\n"
                                        "{\"error\":{\"message\":\"It is under a hold and cannot "
                                        "be deleted.\"}}\r\n" PART("2", "403 Forbidden") END)),
        RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    /* Its memory is used again. */
    rg_test_get(&c, &(struct rg_get){0});
    struct rg_completion read = rg_test_take(&c);
    RG_CHECK_STATUS(&read, OK);
    rg_lease_release(read.lease);
    struct rg_delete_many many = {.deletes = deletes, .count = RG_ARRAY_LEN(deletes)};
    RG_CHECK_EQ(rg_submit_delete_many(c.client, c.cq, &many), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    const struct rg_delete_result *results = done.data;
    for (size_t i = 0; i < RG_ARRAY_LEN(deletes); i++) {
        RG_CHECK(!results[i].found_done);
    }
    RG_CHECK(results[0].detail == NULL);
    RG_CHECK_STR(results[1].detail,
                 "permission denied (HTTP 403): It is under a hold and cannot be deleted.");
    RG_CHECK_CONTAINS(results[2].detail, "permission denied (HTTP 403); it needs");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

/* Only what names a generation is tried again, each by a request of its own. */
static void test_inner_errors_are_tried_again_alone(void)
{
    const struct rg_step script[] = {RG_READ,
                                     RG_SEND(batch_answer(PART("0", "503 Busy") PART(
                                         "1", "429 Slow Down") PART("2", "500 Oh") END)),
                                     RG_END};
    const struct rg_step *const scripts[] = {script, gone};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    struct rg_completion done = many_submit(&c, deletes, 3);
    static const enum rg_status want[] = {RG_STATUS_SERVER, RG_STATUS_OK, RG_STATUS_OK};
    static const uint16_t http[] = {503, 204, 204};
    check_results(&done, want, http, 3);
    RG_CHECK_EQ(done.attempts, 3);
    RG_CHECK_EQ(rg_scripted_server_requests(c.server), 3);
    rg_test_client_close(&c);
    /* What is gone then was removed by the batch, unless the batch was turned away. */
    const struct rg_step *const finds[] = {script, missing};
    struct rg_test_client d = {.scripts = finds, .script_count = 2};
    done = many_submit(&d, deletes, 3);
    static const enum rg_status found[] = {RG_STATUS_SERVER, RG_STATUS_NOT_FOUND, RG_STATUS_OK};
    static const uint16_t found_http[] = {503, 404, 404};
    check_results(&done, found, found_http, 3);
    rg_test_client_close(&d);
    struct rg_test_client never = {
        .scripts = scripts, .script_count = 2, .options = {.attempts_max = 1}};
    done = many_submit(&never, deletes, 3);
    static const enum rg_status as_is[] = {RG_STATUS_SERVER, RG_STATUS_THROTTLED, RG_STATUS_SERVER};
    static const uint16_t as_is_http[] = {503, 429, 500};
    check_results(&done, as_is, as_is_http, 3);
    rg_test_client_close(&never);
}

static void test_items_without_an_answer(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(batch_answer(PART("2", "204 Gone") END)),
                                     RG_END};
    const struct rg_step *const scripts[] = {script, gone};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    struct rg_completion done = many_submit(&c, deletes, 3);
    static const enum rg_status want[] = {RG_STATUS_BAD_RESPONSE, RG_STATUS_OK, RG_STATUS_OK};
    static const uint16_t http[] = {0, 204, 204};
    check_results(&done, want, http, 3);
    rg_test_client_close(&c);
}

static void test_a_lost_batch_is_tried_again_when_all_of_it_may_be(void)
{
    const struct rg_step script[] = {
        RG_READ, RG_SEND(batch_answer(PART("0", "404 Not Found") PART("1", "204 Gone") END)),
        RG_END};
    const struct rg_step *const scripts[] = {lost, script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    struct rg_completion done = many_submit(&c, &deletes[1], 2);
    static const enum rg_status want[] = {RG_STATUS_OK, RG_STATUS_OK};
    static const uint16_t http[] = {404, 204};
    check_results(&done, want, http, 2);
    RG_CHECK_EQ(done.attempts, 2);
    rg_test_client_close(&c);
    struct rg_test_client d = {.scripts = scripts, .script_count = 2};
    done = many_submit(&d, deletes, 3);
    RG_CHECK_STATUS(&done, CONNECTION_LOST);
    RG_CHECK_CONTAINS(done.detail, "delete gs://bucket/... (3 objects) at ");
    rg_lease_release(done.lease);
    rg_test_client_close(&d);
}

/* A condition that fails in the second batch may have been broken by the first: it is asked what is
 * there. */
static void test_a_second_batch_meets_what_the_first_has_done(void)
{
    const struct rg_step again[] = {
        RG_READ,
        RG_SEND(batch_answer(PART("0", "204 Gone") PART("1", "412 Precondition Failed") END)),
        RG_END};
    const struct rg_step asks[] = {RG_READ, RG_SEND(rg_test_answer("412 Precondition Failed", "")),
                                   RG_READ, RG_SEND(rg_test_answer("404 Not Found", "")), RG_END};
    const struct rg_step *const scripts[] = {lost, again, asks};
    struct rg_test_client c = {.scripts = scripts, .script_count = 3};
    struct rg_completion done = many_submit(&c, &deletes[1], 2);
    static const enum rg_status want[] = {RG_STATUS_OK, RG_STATUS_OK};
    static const uint16_t http[] = {204, 404};
    check_results(&done, want, http, 2);
    RG_CHECK_EQ(done.attempts, 4);
    rg_test_client_close(&c);
}

static void test_answers_that_make_no_sense(void)
{
    const char *const answers[] = {
        rg_test_answer("200 OK", "{}"),
        rg_test_answer_with("200 OK", MULTIPART, ""),
        rg_test_answer_with("200 OK", MULTIPART, PART("0", "204 No Content")),
        rg_test_answer_with("200 OK", MULTIPART, PART("7", "204 No Content") END),
        rg_test_answer_with("200 OK", MULTIPART, PART("0", "OK") END),
        rg_test_answer_with("200 OK", "Content-Type: multipart/mixed\r\n",
                            PART("0", "204 No Content") END),
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(answers); i++) {
        const struct rg_step script[] = {RG_READ, RG_SEND(answers[i]), RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        struct rg_completion done = many_submit(&c, deletes, 1);
        RG_CHECK_STATUS(&done, BAD_RESPONSE);
        RG_CHECK_EQ(done.attempts, 1);
        RG_CHECK_CONTAINS(done.detail, "the answer ");
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

/* What may be removed twice is asked for alone; the next batch is none. */
static void test_after_an_answer_that_makes_no_sense(void)
{
    const struct rg_step garbage[] = {
        RG_READ, RG_SEND(batch_answer(PART("7", "204 No Content") END)), RG_END};
    const struct rg_step *const scripts[] = {garbage, missing};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    struct rg_completion done = many_submit(&c, deletes, 3);
    static const enum rg_status want[] = {RG_STATUS_BAD_RESPONSE, RG_STATUS_OK, RG_STATUS_OK};
    static const uint16_t http[] = {0, 404, 404};
    check_results(&done, want, http, 3);
    RG_CHECK_EQ(done.attempts, 3);
    struct rg_delete_many many = {.deletes = deletes, .count = 3};
    RG_CHECK_EQ(rg_submit_delete_many(c.client, c.cq, &many), 0);
    done = rg_test_take(&c);
    static const enum rg_status absent[] = {RG_STATUS_NOT_FOUND, RG_STATUS_NOT_FOUND,
                                            RG_STATUS_NOT_FOUND};
    static const uint16_t absent_http[] = {404, 404, 404};
    check_results(&done, absent, absent_http, 3);
    RG_CHECK_EQ(done.attempts, 3);
    rg_test_client_close(&c);
}

/* As many as there may be, all alone, because the server knows no batches. */
static void test_servers_that_know_no_batches(void)
{
    static const char *const status_lines[] = {"404 Not Found", "405 Method Not Allowed",
                                               "501 Not Implemented"};
    for (size_t i = 0; i < RG_ARRAY_LEN(status_lines); i++) {
        const struct rg_step no[] = {
            RG_READ, RG_SEND(rg_test_answer_with(status_lines[i], "Connection: close\r\n", "")),
            RG_END};
        const struct rg_step *const scripts[] = {no, missing};
        struct rg_delete many[RG_DELETES_MAX];
        enum rg_status want[RG_DELETES_MAX];
        uint16_t http[RG_DELETES_MAX];
        for (unsigned n = 0; n < RG_DELETES_MAX; n++) {
            many[n] = deletes[n % 3];
            want[n] = RG_STATUS_NOT_FOUND;
            http[n] = 404;
        }
        struct rg_test_client c = {.scripts = scripts, .script_count = 2};
        struct rg_completion done = many_submit(&c, many, RG_DELETES_MAX);
        check_results(&done, want, http, RG_DELETES_MAX);
        RG_CHECK_EQ(done.attempts, RG_DELETES_MAX + 1);
        RG_CHECK(rg_scripted_server_connections(c.server) <= 9);
        rg_test_client_close(&c);
    }
}

/* Cancelled, over time, or closed in each of its states: the batch, the pause, the single ones. */
static void test_ends_before_its_end(void)
{
    const struct rg_step held[] = {RG_READ, RG_HOLD};
    const struct rg_step busy[] = {
        RG_READ, RG_SEND(batch_answer(PART("0", "503 Busy") PART("1", "503 Busy") END)), RG_END};
    const struct rg_step *const scripts[] = {held}, *const pauses[] = {busy},
                                *const singles[] = {busy, held};
    static const enum rg_status want[] = {RG_STATUS_CANCELLED, RG_STATUS_DEADLINE,
                                          RG_STATUS_CLOSED};
    for (unsigned i = 0; i < 9; i++) {
        unsigned where = i % 3, how = i / 3;
        struct rg_test_client c = {
            .scripts = where == 0   ? scripts
                       : where == 1 ? pauses
                                    : singles,
            .script_count = where == 2 ? 2 : 1,
            .options = {.backoff_min_ns = where == 1 ? 3600 * RG_NS_PER_S : 0,
                        .backoff_max_ns = where == 1 ? 3600 * RG_NS_PER_S : 0},
        };
        rg_test_client_open(&c);
        struct rg_delete_many many = {
            .deletes = &deletes[1],
            .count = 2,
            .user_data = 3,
            .deadline_ns = how == 1 && where != 1 ? rg_now_ns() + 100 * RG_NS_PER_MS : 0};
        RG_CHECK_EQ(rg_submit_delete_many(c.client, c.cq, &many), 0);
        RG_AWAIT(how == 1 || rg_scripted_server_requests(c.server) >= (where == 2 ? 3 : 1));
        if (how == 0 || (how == 1 && where == 1)) {
            RG_CHECK_EQ(rg_cancel(c.client, c.cq, 3), 0);
        } else if (how == 2) {
            rg_client_close(c.client);
            c.client = NULL;
        }
        struct rg_completion done = rg_test_take(&c);
        rg_test_check_status(__FILE__, __LINE__, &done,
                             how == 1 && where == 1 ? RG_STATUS_CANCELLED : want[how]);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

static void test_what_cannot_be_removed(void)
{
    static const struct rg_delete bad[] = {{.bucket = "bucket", .object = "a"},
                                           {.bucket = "bucket"}},
                                  many[RG_DELETES_MAX + 1];
    static const struct rg_delete_many rows[] = {
        {.count = 1},
        {.deletes = deletes},
        {.deletes = bad, .count = 2},
        {.deletes = many, .count = RG_DELETES_MAX + 1},
    };
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(rg_submit_delete_many(c.client, c.cq, &rows[i]), -EINVAL);
    }
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_partial_failures_out_of_order),
        RG_TEST(test_refusals_say_why),
        RG_TEST(test_inner_errors_are_tried_again_alone),
        RG_TEST(test_items_without_an_answer),
        RG_TEST(test_a_lost_batch_is_tried_again_when_all_of_it_may_be),
        RG_TEST(test_a_second_batch_meets_what_the_first_has_done),
        RG_TEST(test_answers_that_make_no_sense),
        RG_TEST(test_after_an_answer_that_makes_no_sense),
        RG_TEST(test_servers_that_know_no_batches),
        RG_TEST(test_ends_before_its_end),
        RG_TEST(test_what_cannot_be_removed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
