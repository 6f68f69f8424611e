/* Removing objects: what is tried again and what that finds. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/objects.h>

static struct rg_completion try_delete(const struct rg_step *const *scripts, uint32_t script_count,
                                       const struct rg_delete *del, enum rg_status want,
                                       uint16_t attempts, const char *head)
{
    struct rg_delete own = *del;
    own.bucket = "bucket";
    own.object = "a b";
    struct rg_test_client c = {.scripts = scripts, .script_count = script_count};
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_submit_delete(c.client, c.cq, &own), 0);
    struct rg_completion done = rg_test_take(&c);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    RG_CHECK_EQ(done.attempts, attempts);
    RG_CHECK_EQ(rg_scripted_server_requests(c.server), attempts);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 0), head);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return done;
}

static const struct rg_step gone[] = {
    RG_READ, RG_SEND("HTTP/1.1 204 No Content\r\nx-goog-x: y\r\n\r\n"), RG_END};
static const struct rg_step lost[] = {RG_READ, RG_CUT};
static const struct rg_step busy[] = {
    RG_READ, RG_SEND("HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbusy"),
    RG_END};
static const struct rg_step throttled[] = {
    RG_READ, RG_SEND("HTTP/1.1 429 Slow\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
    RG_END};
static const struct rg_step missing[] = {
    RG_READ, RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"), RG_END};

static void test_delete(void)
{
    const struct rg_step *const scripts[] = {gone};
    try_delete(scripts, 1, &(struct rg_delete){0}, RG_STATUS_OK, 1,
               "DELETE /storage/v1/b/bucket/o/a%20b HTTP/1.1\r\n");
    /* Some servers answer like this. */
    static const struct rg_step two_hundred[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), RG_END};
    const struct rg_step *const others[] = {two_hundred};
    try_delete(others, 1, &(struct rg_delete){.generation = 12}, RG_STATUS_OK, 1,
               "DELETE /storage/v1/b/bucket/o/a%20b?generation=12 HTTP/1.1\r\n");
    try_delete(scripts, 1,
               &(struct rg_delete){
                   .conditions = {.if_generation_match = 12, .if_metageneration_match = 1}},
               RG_STATUS_OK, 1, "?ifGenerationMatch=12&ifMetagenerationMatch=1 HTTP/1.1\r\n");
}

static void test_nothing_there(void)
{
    const struct rg_step *const scripts[] = {missing};
    struct rg_completion done = try_delete(scripts, 1, &(struct rg_delete){.generation = 12},
                                           RG_STATUS_NOT_FOUND, 1, "generation=12");
    RG_CHECK_EQ(done.http_status, 404);
}

static void test_named_generations_are_tried_again(void)
{
    const struct rg_step *const scripts[] = {lost, busy, gone};
    try_delete(scripts, 3, &(struct rg_delete){.generation = 12}, RG_STATUS_OK, 3, "DELETE");
    try_delete(scripts, 3, &(struct rg_delete){.conditions = {.if_generation_match = 12}},
               RG_STATUS_OK, 3, "DELETE");
}

static void test_the_newest_is_not_tried_again(void)
{
    const struct rg_step *const losts[] = {lost, gone}, *const busies[] = {busy, gone};
    try_delete(losts, 2, &(struct rg_delete){0}, RG_STATUS_CONNECTION_LOST, 1, "DELETE");
    try_delete(busies, 2, &(struct rg_delete){0}, RG_STATUS_SERVER, 1, "DELETE");
    /* A new object would have the same metageneration. */
    try_delete(losts, 2, &(struct rg_delete){.conditions = {.if_metageneration_match = 1}},
               RG_STATUS_CONNECTION_LOST, 1, "DELETE");
}

/* An object that a retry finds gone was removed by the try before, unless that was turned away. */
static void test_what_a_retry_finds_gone(void)
{
    const struct rg_step *const losts[] = {lost, missing}, *const busies[] = {busy, missing},
                                *const throttles[] = {throttled, missing};
    try_delete(losts, 2, &(struct rg_delete){.generation = 12}, RG_STATUS_OK, 2, "DELETE");
    try_delete(busies, 2, &(struct rg_delete){.generation = 12}, RG_STATUS_OK, 2, "DELETE");
    try_delete(throttles, 2, &(struct rg_delete){.generation = 12}, RG_STATUS_NOT_FOUND, 2,
               "DELETE");
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_delete),
        RG_TEST(test_nothing_there),
        RG_TEST(test_named_generations_are_tried_again),
        RG_TEST(test_the_newest_is_not_tried_again),
        RG_TEST(test_what_a_retry_finds_gone),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
