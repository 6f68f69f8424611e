/* What requests about objects share: memory that is short, answers that are too large, and ends
 * before their end. */
#include "gcs/request/object_request.h"

#include "runtime/runtime.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#define KEPT_SIZE (RG_LOOP_MEMORY_MIN - RG_MIB(5))

static const struct rg_stat one = {.bucket = "bucket", .object = "object", .user_data = 1};

/* An answer that finds no memory for what it says is asked for again, where asking does no harm. A
 * body that the program keeps takes most of what there is. */
static void test_memory_that_is_short(void)
{
    static char body[RG_KIB(200)];
    strcpy(body, "{\"name\":\"object\"");
    memset(body + strlen(body), ' ', sizeof(body) - strlen(body) - 1);
    body[sizeof(body) - 2] = '}';
    const struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = KEPT_SIZE, .text = ""},
        RG_READ, RG_SEND(rg_test_answer("200 OK", body)),
        RG_READ, RG_SEND(rg_test_answer("200 OK", body)),
        RG_READ, RG_SEND(rg_test_answer("200 OK", body)),
        RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts,
                               .script_count = 1,
                               .memory_max = RG_LOOP_MEMORY_MIN,
                               .options = {.attempts_max = 2}};
    rg_test_client_open(&c);
    rg_test_get(&c, &(struct rg_get){0});
    struct rg_completion kept = rg_test_take(&c);
    RG_CHECK_STATUS(&kept, OK);
    RG_CHECK_EQ(rg_submit_stat(c.client, c.cq, &one), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, NO_RESOURCES);
    RG_CHECK_EQ(done.attempts, 2);
    rg_lease_release(done.lease);
    struct rg_update update = {
        .bucket = "bucket", .object = "object", .conditions = {.if_metageneration_match = 1}};
    RG_CHECK_EQ(rg_submit_update(c.client, c.cq, &update), 0);
    done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, NO_RESOURCES);
    RG_CHECK_EQ(done.attempts, 1);
    rg_lease_release(done.lease);
    rg_lease_release(kept.lease);
    rg_test_client_close(&c);
}

static void test_answers_that_are_too_large(void)
{
    const struct rg_step script[] = {RG_READ,
                                     RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 262145\r\n\r\n"),
                                     {.kind = RG_STEP_SEND_BYTES, .size = 262145},
                                     RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_submit_stat(c.client, c.cq, &one), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, TOO_LARGE);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_ends_before_its_end(void)
{
    const struct rg_step held[] = {RG_READ, RG_HOLD};
    const struct rg_step *const scripts[] = {held};
    for (unsigned i = 0; i < 2; i++) {
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        rg_test_client_open(&c);
        RG_CHECK_EQ(rg_submit_stat(c.client, c.cq, &one), 0);
        RG_AWAIT(rg_scripted_server_requests(c.server) != 0);
        if (i == 0) {
            RG_CHECK_EQ(rg_cancel(c.client, c.cq, 1), 0);
        } else {
            rg_client_close(c.client);
            c.client = NULL;
        }
        struct rg_completion done = rg_test_take(&c);
        rg_test_check_status(__FILE__, __LINE__, &done,
                             i == 0 ? RG_STATUS_CANCELLED : RG_STATUS_CLOSED);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

/* The longest names fit, in what asks whether a lost try had worked too. */
static void test_longest_names(void)
{
    static char object[RG_OBJECT_NAME_SIZE_MAX + 1];
    memset(object, '%', RG_OBJECT_NAME_SIZE_MAX);
    const struct rg_step script[] = {
        RG_READ, RG_SEND(rg_test_answer("404 Not Found", "")),
        RG_READ, RG_SEND(rg_test_answer("404 Not Found", "")),
        RG_READ, RG_SEND(rg_test_answer("503 Busy", "")),
        RG_READ, RG_SEND(rg_test_answer("412 Precondition Failed", "")),
        RG_READ, RG_SEND(rg_test_answer("404 Not Found", "")),
        RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .options = {.connections_max = 1}};
    rg_test_client_open(&c);
    struct rg_stat stat = {.bucket = "bucket", .object = object};
    struct rg_copy copy = {
        .source_bucket = "bucket", .source_object = object, .bucket = "bucket", .object = object};
    struct rg_put put = {
        .bucket = "bucket", .object = object, .if_generation_match = RG_GENERATION_ABSENT};
    for (unsigned i = 0; i < 3; i++) {
        RG_CHECK_EQ(i == 0   ? rg_submit_stat(c.client, c.cq, &stat)
                    : i == 1 ? rg_submit_copy(c.client, c.cq, &copy)
                             : rg_submit_put(c.client, c.cq, &put),
                    0);
        struct rg_completion done = rg_test_take(&c);
        rg_test_check_status(__FILE__, __LINE__, &done,
                             i < 2 ? RG_STATUS_NOT_FOUND : RG_STATUS_PRECONDITION);
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(rg_scripted_server_requests(c.server), 5);
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_memory_that_is_short),
        RG_TEST(test_answers_that_are_too_large),
        RG_TEST(test_ends_before_its_end),
        RG_TEST(test_longest_names),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
