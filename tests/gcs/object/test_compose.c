/* Joining objects: what is sent, the CRC32C, and what a retry meets. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/objects.h>

#define RESOURCE                                                                                   \
    "{\"name\":\"object\",\"size\":\"5\",\"generation\":\"12\",\"crc32c\":\"xFDWlw==\","           \
    "\"componentCount\":2}"
#define CRC 0xc450d697

static const struct rg_compose_source sources[] = {{"p 0", 0}, {"p1", 7}};

static struct rg_completion try_compose(const struct rg_step *const *scripts, uint32_t script_count,
                                        const struct rg_compose *compose, enum rg_status want,
                                        uint16_t attempts)
{
    struct rg_compose own = *compose;
    own.bucket = "bucket";
    own.object = "object";
    own.sources = sources;
    own.source_count = 2;
    struct rg_test_client c = {.scripts = scripts, .script_count = script_count};
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_submit_compose(c.client, c.cq, &own), 0);
    struct rg_completion done = rg_test_take(&c);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    RG_CHECK_EQ(done.attempts, attempts);
    if (want == RG_STATUS_OK) {
        const struct rg_object_info *info = done.data;
        RG_CHECK_EQ(info->component_count, 2);
        RG_CHECK_EQ(done.generation, 12);
        RG_CHECK_EQ(done.object_crc32c, CRC);
    } else if (want == RG_STATUS_CHECKSUM) {
        RG_CHECK_CONTAINS(done.detail, "delete generation 12");
    }
    const char *head = rg_scripted_server_head(c.server, 0);
    RG_CHECK_CONTAINS(head, "POST /storage/v1/b/bucket/o/object/compose?prettyPrint=false&");
    if (own.conditions.if_generation_match == RG_GENERATION_ABSENT) {
        RG_CHECK_CONTAINS(head, "&ifGenerationMatch=0 HTTP/1.1\r\n");
    }
    RG_CHECK_STR(rg_scripted_server_body(c.server, 0),
                 "{\"sourceObjects\":[{\"name\":\"p 0\"},{\"name\":\"p1\",\"generation\":\"7\"}],"
                 "\"destination\":{\"contentType\":\"application/octet-stream\"}}");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return done;
}

static const struct rg_step lost[] = {RG_READ, RG_CUT};

static void test_compose(void)
{
    const struct rg_step good[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", RESOURCE)), RG_END};
    const struct rg_step *const scripts[] = {good};
    try_compose(scripts, 1, &(struct rg_compose){0}, RG_STATUS_OK, 1);
    try_compose(scripts, 1, &(struct rg_compose){.crc32c = CRC, .has_crc32c = true}, RG_STATUS_OK,
                1);
}

static void test_wrong_crc(void)
{
    const struct rg_step good[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", RESOURCE)), RG_AGAIN};
    const struct rg_step bare[] = {
        RG_READ, RG_SEND(rg_test_answer("200 OK", "{\"name\":\"object\",\"generation\":\"12\"}")),
        RG_AGAIN};
    const struct rg_step *const wrong[] = {good}, *const none[] = {bare};
    struct rg_compose compose = {.crc32c = CRC + 1,
                                 .has_crc32c = true,
                                 .conditions = {.if_generation_match = RG_GENERATION_ABSENT}};
    try_compose(wrong, 1, &compose, RG_STATUS_CHECKSUM, 1);
    try_compose(none, 1, &compose, RG_STATUS_CHECKSUM, 1);
}

static void test_only_guarded_ones_are_tried_again(void)
{
    const struct rg_step good[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", RESOURCE)), RG_END};
    const struct rg_step *const scripts[] = {lost, good};
    try_compose(scripts, 2, &(struct rg_compose){0}, RG_STATUS_CONNECTION_LOST, 1);
    try_compose(scripts, 2,
                &(struct rg_compose){.conditions = {.if_generation_match = RG_GENERATION_ABSENT}},
                RG_STATUS_OK, 2);
}

/* The try whose answer was lost had done it: what is there has the CRC32C that was asked for. */
static void test_a_retry_meets_its_own_object(void)
{
    const struct rg_step meets[] = {RG_READ, RG_SEND(rg_test_answer("412 Precondition Failed", "")),
                                    RG_READ, RG_SEND(rg_test_answer("200 OK", RESOURCE)), RG_END};
    const struct rg_step *const scripts[] = {lost, meets};
    struct rg_compose compose = {.crc32c = CRC,
                                 .has_crc32c = true,
                                 .conditions = {.if_generation_match = RG_GENERATION_ABSENT}};
    try_compose(scripts, 2, &compose, RG_STATUS_OK, 3);
    compose.crc32c++;
    try_compose(scripts, 2, &compose, RG_STATUS_PRECONDITION, 3);
    /* Nothing was lost: it is somebody else's, whatever it holds. */
    compose.crc32c--;
    try_compose(&scripts[1], 1, &compose, RG_STATUS_PRECONDITION, 1);
}

static void test_what_cannot_be_sent(void)
{
    static const struct rg_compose_source many[RG_COMPOSE_SOURCES_MAX + 1],
        nameless[] = {{NULL, 0}}, odd[] = {{"a\nb", 0}}, negative[] = {{"a", -1}};
    static const struct rg_compose rows[] = {
        {.bucket = "bucket", .object = "o"},
        {.bucket = "bucket", .object = "o", .sources = many},
        {.bucket = "bucket", .object = "o", .sources = many, .source_count = 33},
        {.bucket = "bucket", .object = "o", .sources = nameless, .source_count = 1},
        {.bucket = "bucket", .object = "o", .sources = odd, .source_count = 1},
        {.bucket = "bucket", .object = "o", .sources = negative, .source_count = 1},
        {.bucket = "bucket", .sources = sources, .source_count = 2},
        {.bucket = "bucket",
         .object = "o",
         .sources = sources,
         .source_count = 2,
         .conditions = {.if_generation_not_match = 5}},
    };
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(rg_submit_compose(c.client, c.cq, &rows[i]), -EINVAL);
    }
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_compose),
        RG_TEST(test_wrong_crc),
        RG_TEST(test_only_guarded_ones_are_tried_again),
        RG_TEST(test_a_retry_meets_its_own_object),
        RG_TEST(test_what_cannot_be_sent),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
