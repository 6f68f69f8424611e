/* Changing what is stored about an object. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/objects.h>

static struct rg_completion try_update(const struct rg_step *const *scripts, uint32_t script_count,
                                       const struct rg_update *update, enum rg_status want,
                                       const char *head, const char *body)
{
    struct rg_update own = *update;
    own.bucket = "bucket";
    own.object = "object";
    struct rg_test_client c = {.scripts = scripts, .script_count = script_count};
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_submit_update(c.client, c.cq, &own), 0);
    struct rg_completion done = rg_test_take(&c);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    if (want == RG_STATUS_OK) {
        RG_CHECK_EQ(((const struct rg_object_info *)done.data)->metageneration, 4);
    }
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 0), head);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 0), "\r\nContent-Type: application/json");
    RG_CHECK_STR(rg_scripted_server_body(c.server, 0), body);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return done;
}

static const struct rg_step lost[] = {RG_READ, RG_CUT};
static const struct rg_step good[] = {RG_READ,
                                      RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 38\r\n\r\n"
                                              "{\"name\":\"object\",\"metageneration\":\"4\"}"),
                                      RG_END};

static void test_update(void)
{
    const struct rg_step *const scripts[] = {good};
    static const struct rg_metadata metadata[] = {{"k", "v"}, {"gone", NULL}};
    struct rg_completion done =
        try_update(scripts, 1,
                   &(struct rg_update){.generation = 7,
                                       .content_type = "text/plain",
                                       .cache_control = "",
                                       .metadata = metadata,
                                       .metadata_count = 2,
                                       .conditions = {.if_metageneration_match = 3}},
                   RG_STATUS_OK, "PATCH /storage/v1/b/bucket/o/object?prettyPrint=false&",
                   "{\"contentType\":\"text/plain\",\"cacheControl\":null,"
                   "\"metadata\":{\"k\":\"v\",\"gone\":null}}");
    RG_CHECK_EQ(done.attempts, 1);
    try_update(scripts, 1, &(struct rg_update){.generation = 7}, RG_STATUS_OK,
               "&generation=7 HTTP/1.1\r\n", "{}");
}

static void test_with_a_metageneration_it_is_tried_again(void)
{
    const struct rg_step *const scripts[] = {lost, good};
    struct rg_completion done =
        try_update(scripts, 2, &(struct rg_update){.conditions = {.if_metageneration_match = 3}},
                   RG_STATUS_OK, "&ifMetagenerationMatch=3 HTTP/1.1\r\n", "{}");
    RG_CHECK_EQ(done.attempts, 2);
}

static void test_without_a_metageneration_it_is_not(void)
{
    const struct rg_step *const scripts[] = {lost, good};
    struct rg_completion done = try_update(
        scripts, 2, &(struct rg_update){.conditions = {.if_generation_match = 3}, .generation = 3},
        RG_STATUS_CONNECTION_LOST, "PATCH", "{}");
    RG_CHECK_EQ(done.attempts, 1);
}

/* The try whose answer was lost had done it, or somebody else something. */
static void test_a_retry_meets_its_own_change(void)
{
    static const struct rg_metadata metadata[] = {{"k", "v"}, {"gone", NULL}};
    static const struct {
        const char *resource;
        enum rg_status want;
    } rows[] = {
        {"{\"name\":\"object\",\"metageneration\":\"4\",\"contentType\":\"text/plain\","
         "\"metadata\":{\"k\":\"v\",\"other\":\"x\"}}",
         RG_STATUS_OK},
        {"{\"name\":\"object\",\"metageneration\":\"5\",\"contentType\":\"text/plain\","
         "\"metadata\":{\"k\":\"v\"}}",
         RG_STATUS_PRECONDITION},
        {"{\"name\":\"object\",\"metageneration\":\"4\",\"contentType\":\"text/html\","
         "\"metadata\":{\"k\":\"v\"}}",
         RG_STATUS_PRECONDITION},
        {"{\"name\":\"object\",\"metageneration\":\"4\",\"contentType\":\"text/plain\","
         "\"metadata\":{\"k\":\"v\",\"gone\":\"\"}}",
         RG_STATUS_PRECONDITION},
        {"{\"name\":\"object\",\"metageneration\":\"4\",\"contentType\":\"text/plain\","
         "\"cacheControl\":\"no-store\",\"metadata\":{\"k\":\"v\"}}",
         RG_STATUS_PRECONDITION},
        {"{}", RG_STATUS_PRECONDITION},
    };
    struct rg_update update = {.content_type = "text/plain",
                               .cache_control = "",
                               .metadata = metadata,
                               .metadata_count = 2,
                               .conditions = {.if_metageneration_match = 3}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        const struct rg_step meets[] = {
            RG_READ, RG_SEND(rg_test_answer("412 Precondition Failed", "")), RG_READ,
            RG_SEND(rg_test_answer("200 OK", rows[i].resource)), RG_END};
        const struct rg_step *const scripts[] = {lost, meets};
        struct rg_completion done =
            try_update(scripts, 2, &update, rows[i].want, "PATCH",
                       "{\"contentType\":\"text/plain\",\"cacheControl\":null,"
                       "\"metadata\":{\"k\":\"v\",\"gone\":null}}");
        RG_CHECK_EQ(done.attempts, 3);
        /* Nothing was lost: it is somebody else's, whatever it is. */
        done = try_update(&scripts[1], 1, &update, RG_STATUS_PRECONDITION, "PATCH",
                          "{\"contentType\":\"text/plain\",\"cacheControl\":null,"
                          "\"metadata\":{\"k\":\"v\",\"gone\":null}}");
        RG_CHECK_EQ(done.attempts, 1);
    }
}

/* It is done then, and doing it again would meet its own condition. */
static void test_answers_that_make_no_sense_are_not_asked_for_again(void)
{
    static const struct rg_step odd[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), RG_AGAIN};
    const struct rg_step *const scripts[] = {odd};
    struct rg_completion done =
        try_update(scripts, 1, &(struct rg_update){.conditions = {.if_metageneration_match = 3}},
                   RG_STATUS_BAD_RESPONSE, "PATCH", "{}");
    RG_CHECK_EQ(done.attempts, 1);
}

static void test_what_cannot_be_sent(void)
{
    static const struct rg_metadata no_key[] = {{NULL, "v"}}, no_text[] = {{"k", "\xff"}};
    static const struct rg_update rows[] = {
        {.bucket = "bucket"},
        {.bucket = "bucket", .object = "o", .metadata_count = 1},
        {.bucket = "bucket", .object = "o", .metadata = no_key, .metadata_count = 1},
        {.bucket = "bucket", .object = "o", .metadata = no_text, .metadata_count = 1},
        {.bucket = "bucket", .object = "o", .content_type = "\xc3("},
        {.bucket = "bucket", .object = "o", .conditions = {.if_metageneration_match = -1}},
    };
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(rg_submit_update(c.client, c.cq, &rows[i]), -EINVAL);
    }
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_update),
        RG_TEST(test_with_a_metageneration_it_is_tried_again),
        RG_TEST(test_without_a_metageneration_it_is_not),
        RG_TEST(test_a_retry_meets_its_own_change),
        RG_TEST(test_answers_that_make_no_sense_are_not_asked_for_again),
        RG_TEST(test_what_cannot_be_sent),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
