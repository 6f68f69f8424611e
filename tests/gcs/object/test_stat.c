/* What is stored about an object: what is asked, and what comes of the answers. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/objects.h>

static struct rg_completion stat_one(struct rg_test_client *c, const struct rg_stat *stat)
{
    struct rg_stat own = *stat;
    own.bucket = own.bucket != NULL ? own.bucket : "bucket";
    own.object = own.object != NULL ? own.object : "object";
    RG_CHECK_EQ(rg_submit_stat(c->client, c->cq, &own), 0);
    return rg_test_take(c);
}

static void test_stat(void)
{
    const struct rg_step script[] = {
        RG_READ,
        RG_SEND(rg_test_answer("200 OK", "{\"name\":\"a/b c\",\"bucket\":\"bucket\",\"size\":\"5\","
                                         "\"generation\":\"7\",\"metageneration\":\"2\","
                                         "\"crc32c\":\"xFDWlw==\",\"metadata\":{\"k\":\"v\"}}")),
        RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_completion done =
        stat_one(&c, &(struct rg_stat){.object = "a/b c",
                                       .generation = 7,
                                       .conditions = {.if_metageneration_match = 2},
                                       .user_data = 5});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.user_data, 5);
    RG_CHECK_EQ(done.generation, 7);
    RG_CHECK_EQ(done.object_size, 5);
    RG_CHECK(done.has_object_crc32c);
    RG_CHECK_EQ(done.object_crc32c, 0xc450d697);
    const struct rg_object_info *info = done.data;
    RG_CHECK_EQ(done.size, sizeof(*info));
    RG_CHECK_STR(info->object.name, "a/b c");
    RG_CHECK_EQ(info->metageneration, 2);
    RG_CHECK_STR(info->metadata[0].value, "v");
    rg_lease_release(done.lease);
    const char *head = rg_scripted_server_head(c.server, 0);
    RG_CHECK_CONTAINS(head, "GET /storage/v1/b/bucket/o/a%2Fb%20c?prettyPrint=false&fields=bucket");
    RG_CHECK_CONTAINS(head, "&generation=7&ifMetagenerationMatch=2 HTTP/1.1\r\n");
    rg_test_client_close(&c);
}

static void test_refusals(void)
{
    static const struct {
        const char *status_line;
        enum rg_status want;
        uint32_t attempts;
    } rows[] = {
        {"304 Not Modified", RG_STATUS_PRECONDITION, 1},
        {"404 Not Found", RG_STATUS_NOT_FOUND, 2}, /* the second asks what is there */
        {"412 Precondition Failed", RG_STATUS_PRECONDITION, 1},
        {"403 Forbidden", RG_STATUS_PERMISSION, 1},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        const struct rg_step script[] = {RG_READ, RG_SEND(rg_test_answer(rows[i].status_line, "")),
                                         RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        rg_test_client_open(&c);
        struct rg_completion done = stat_one(&c, &(struct rg_stat){.generation = 7});
        rg_test_check_status(__FILE__, __LINE__, &done, rows[i].want);
        RG_CHECK_EQ(done.attempts, rows[i].attempts);
        RG_CHECK_CONTAINS(done.detail, "stat gs://bucket/object at ");
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

static void test_a_generation_that_was_replaced(void)
{
    const struct rg_step script[] = {
        RG_READ, RG_SEND(rg_test_answer("404 Not Found", "")), RG_READ,
        RG_SEND(
            rg_test_answer("200 OK", "{\"name\":\"object\",\"size\":\"5\",\"generation\":\"9\"}")),
        RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_completion done = stat_one(&c, &(struct rg_stat){.generation = 7});
    RG_CHECK_STATUS(&done, NOT_FOUND);
    RG_CHECK_CONTAINS(done.detail, "it was replaced by generation 9");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

/* It only reads, so that whatever failed is tried again, without a condition too. */
static void test_lost_answers_are_asked_for_again(void)
{
    const char *good = rg_test_answer("200 OK", "{\"name\":\"object\",\"size\":\"5\"}");
    const struct rg_step lost[] = {RG_READ, RG_CUT};
    const struct rg_step half[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{\"name\":"), RG_CUT};
    const struct rg_step busy[] = {RG_READ, RG_SEND(rg_test_answer("503 Busy", "")), RG_READ,
                                   RG_SEND(good), RG_END};
    const struct rg_step *const scripts[] = {lost, half, busy};
    struct rg_test_client c = {.scripts = scripts, .script_count = 3};
    rg_test_client_open(&c);
    struct rg_completion done = stat_one(&c, &(struct rg_stat){0});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.attempts, 4);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_answers_that_are_no_resource(void)
{
    static const char *const bodies[] = {"", "{}", "<html>", "{\"name\":\"x\",\"size\":\"x\"}"};
    for (size_t i = 0; i < RG_ARRAY_LEN(bodies); i++) {
        const struct rg_step script[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", bodies[i])),
                                         RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        rg_test_client_open(&c);
        struct rg_completion done = stat_one(&c, &(struct rg_stat){0});
        RG_CHECK_STATUS(&done, BAD_RESPONSE);
        RG_CHECK_CONTAINS(done.detail, "the answer ");
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

static void test_what_cannot_be_asked(void)
{
    static const struct rg_stat rows[] = {
        {.object = "object"},
        {.bucket = "bucket"},
        {.bucket = "Bucket", .object = "object"},
        {.bucket = "bucket", .object = "a\nb"},
        {.bucket = "bucket", .object = "object", .generation = -1},
        {.bucket = "bucket", .object = "object", .conditions = {.if_generation_match = -2}},
    };
    struct rg_test_client c = {.capacity = 1};
    rg_test_client_open(&c);
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
            RG_CHECK_EQ(rg_submit_stat(c.client, c.cq, &rows[i]), -EINVAL);
        }
    }
    struct rg_stat good = {.bucket = "bucket", .object = "object", .user_data = 1};
    RG_CHECK_EQ(rg_submit_stat(c.client, c.cq, &good), 0);
    RG_CHECK_EQ(rg_submit_stat(c.client, c.cq, &good), -EAGAIN);
    RG_CHECK_EQ(rg_cancel(c.client, c.cq, 1), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_stat),
        RG_TEST(test_refusals),
        RG_TEST(test_a_generation_that_was_replaced),
        RG_TEST(test_lost_answers_are_asked_for_again),
        RG_TEST(test_answers_that_are_no_resource),
        RG_TEST(test_what_cannot_be_asked),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
