/* Copies on the server: their steps, their end, and services that never come to one. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/objects.h>

#define SOURCE                                                                                     \
    "{\"name\":\"from\",\"size\":\"3000000\",\"generation\":\"7\",\"crc32c\":\"xFDWlw==\"}"
#define COPY(crc)                                                                                  \
    "{\"name\":\"to\",\"size\":\"3000000\",\"generation\":\"12\",\"crc32c\":\"" crc "\"}"
#define DONE(crc)                                                                                  \
    "{\"done\":true,\"totalBytesRewritten\":\"3000000\",\"objectSize\":\"3000000\","               \
    "\"resource\":" COPY(crc) "}"
#define STEP(bytes, token)                                                                         \
    "{\"done\":false,\"totalBytesRewritten\":\"" bytes "\",\"objectSize\":\"3000000\","            \
    "\"rewriteToken\":\"" token "\"}"

static const struct rg_step lost[] = {RG_READ, RG_CUT};

static void copy_submit(struct rg_test_client *c, const struct rg_copy *copy)
{
    struct rg_copy own = *copy;
    own.source_bucket = "source-bucket";
    own.source_object = "from here";
    own.bucket = "bucket";
    own.object = "to/there";
    RG_CHECK_EQ(rg_submit_copy(c->client, c->cq, &own), 0);
}

static struct rg_completion try_copy(const struct rg_step *const *scripts, uint32_t script_count,
                                     const struct rg_copy *copy, enum rg_status want,
                                     uint16_t attempts, const char *detail)
{
    struct rg_test_client c = {.scripts = scripts, .script_count = script_count};
    rg_test_client_open(&c);
    copy_submit(&c, copy);
    struct rg_completion done = rg_test_take(&c);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    RG_CHECK_EQ(done.attempts, attempts);
    if (want == RG_STATUS_OK) {
        const struct rg_object_info *info = done.data;
        RG_CHECK_STR(info->object.name, "to");
        RG_CHECK_EQ(done.generation, 12);
        RG_CHECK_EQ(done.object_size, 3000000);
    } else {
        RG_CHECK_CONTAINS(done.detail, "copy to gs://bucket/to/there at ");
        RG_CHECK_CONTAINS(done.detail, detail);
    }
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return done;
}

static void test_copy_in_steps(void)
{
    const struct rg_step script[] = {
        RG_READ, RG_SEND(rg_test_answer("200 OK", SOURCE)),
        RG_READ, RG_SEND(rg_test_answer("200 OK", STEP("1048576", "t/1+"))),
        RG_READ, RG_SEND(rg_test_answer("200 OK", STEP("2097152", "t2"))),
        RG_READ, RG_SEND(rg_test_answer("200 OK", DONE("xFDWlw=="))),
        RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    copy_submit(&c, &(struct rg_copy){.step_max = 1048576,
                                      .conditions = {.if_generation_match = RG_GENERATION_ABSENT},
                                      .source_conditions = {.if_metageneration_match = 2},
                                      .user_data = 9});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.user_data, 9);
    RG_CHECK_EQ(done.attempts, 4);
    RG_CHECK(done.started_ns != 0);
    RG_CHECK_EQ(((const struct rg_object_info *)done.data)->object.generation, 12);
    rg_lease_release(done.lease);
    const char *stat = rg_scripted_server_head(c.server, 0);
    RG_CHECK_CONTAINS(stat, "GET /storage/v1/b/source-bucket/o/from%20here?");
    RG_CHECK_CONTAINS(stat, "&ifMetagenerationMatch=2 HTTP/1.1\r\n");
    const char *first = rg_scripted_server_head(c.server, 1);
    RG_CHECK_CONTAINS(first, "POST /storage/v1/b/source-bucket/o/from%20here/rewriteTo/b/bucket/o/"
                             "to%2Fthere?prettyPrint=false&projection=noAcl&sourceGeneration=7"
                             "&maxBytesRewrittenPerCall=1048576&ifGenerationMatch=0"
                             "&ifSourceMetagenerationMatch=2 HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 2),
                      "&ifSourceMetagenerationMatch=2&rewriteToken=t%2F1%2B HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 3), "&rewriteToken=t2 HTTP/1.1\r\n");
    rg_test_client_close(&c);
}

static void test_wrong_crc(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", SOURCE)), RG_READ,
                                     RG_SEND(rg_test_answer("200 OK", DONE("AAAAAA=="))), RG_END};
    const struct rg_step *const scripts[] = {script};
    try_copy(scripts, 1, &(struct rg_copy){0}, RG_STATUS_CHECKSUM, 2, "delete generation 12");
}

static void test_no_source(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(rg_test_answer("404 Not Found", "")), RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_completion done = try_copy(scripts, 1, &(struct rg_copy){0}, RG_STATUS_NOT_FOUND, 1,
                                         "the source gs://source-bucket/from here");
    RG_CHECK_EQ(done.http_status, 404);
}

/* Endless loops of tokens: nothing is copied, or less than before, or a step too many. */
static void test_copies_that_never_end(void)
{
    const struct rg_step idle[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", STEP("0", "t"))),
                                   RG_AGAIN};
    const struct rg_step source[] = {
        RG_READ, RG_SEND(rg_test_answer_with("200 OK", "Connection: close\r\n", SOURCE)), RG_END};
    const struct rg_step *const idles[] = {source, idle};
    try_copy(idles, 2, &(struct rg_copy){0}, RG_STATUS_BAD_RESPONSE, 18, "does not come to an end");
    const struct rg_step back[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", STEP("1048576", "t"))),
                                   RG_READ, RG_SEND(rg_test_answer("200 OK", STEP("1048575", "t"))),
                                   RG_AGAIN};
    const struct rg_step *const backs[] = {source, back};
    try_copy(backs, 2, &(struct rg_copy){0}, RG_STATUS_BAD_RESPONSE, 3, "does not come to an end");
    const struct rg_step beyond[] = {
        RG_READ, RG_SEND(rg_test_answer("200 OK", STEP("3000001", "t"))), RG_AGAIN};
    const struct rg_step *const beyonds[] = {source, beyond};
    try_copy(beyonds, 2, &(struct rg_copy){0}, RG_STATUS_BAD_RESPONSE, 2,
             "does not come to an end");
    /* A byte at a time. */
    struct rg_step slow[2 * 30 + 1];
    for (unsigned i = 0; i < 30; i++) {
        static char bodies[30][256], answers[30][512];
        snprintf(bodies[i], sizeof(bodies[i]),
                 "{\"done\":false,\"totalBytesRewritten\":\"%u\",\"objectSize\":\"3000000\","
                 "\"rewriteToken\":\"t\"}",
                 i + 1);
        snprintf(answers[i], sizeof(answers[i]), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
                 strlen(bodies[i]), bodies[i]);
        slow[2 * i] = (struct rg_step)RG_READ;
        slow[2 * i + 1] = (struct rg_step)RG_SEND(answers[i]);
    }
    slow[60] = (struct rg_step)RG_END;
    const struct rg_step *const slows[] = {source, slow};
    try_copy(slows, 2, &(struct rg_copy){0}, RG_STATUS_BAD_RESPONSE, 20, "does not come to an end");
}

static void test_only_guarded_steps_are_tried_again(void)
{
    const struct rg_step source[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", SOURCE)), RG_READ,
                                     RG_CUT};
    const struct rg_step rest[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", DONE("xFDWlw=="))),
                                   RG_END};
    const struct rg_step *const scripts[] = {lost, source, rest};
    try_copy(scripts, 3, &(struct rg_copy){.conditions = {.if_generation_match = 5}}, RG_STATUS_OK,
             4, NULL);
    try_copy(scripts, 3, &(struct rg_copy){.source_conditions = {.if_generation_match = 7}},
             RG_STATUS_CONNECTION_LOST, 3, "");
}

static void test_a_retry_meets_its_own_copy(void)
{
    const struct rg_step source[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", SOURCE)), RG_READ,
                                     RG_CUT};
    const struct rg_step meets[] = {RG_READ, RG_SEND(rg_test_answer("412 Precondition Failed", "")),
                                    RG_READ, RG_SEND(rg_test_answer("200 OK", COPY("xFDWlw=="))),
                                    RG_END};
    const struct rg_step other[] = {RG_READ, RG_SEND(rg_test_answer("412 Precondition Failed", "")),
                                    RG_READ, RG_SEND(rg_test_answer("200 OK", COPY("AAAAAA=="))),
                                    RG_END};
    const struct rg_step *const own[] = {source, meets}, *const others[] = {source, other};
    struct rg_copy copy = {.conditions = {.if_generation_match = RG_GENERATION_ABSENT}};
    try_copy(own, 2, &copy, RG_STATUS_OK, 4, NULL);
    try_copy(others, 2, &copy, RG_STATUS_PRECONDITION, 4, "what is there is not what was sent");
}

#define CLASSED(class)                                                                             \
    "{\"name\":\"to\",\"size\":\"3000000\",\"generation\":\"12\",\"crc32c\":\"xFDWlw==\","         \
    "\"storageClass\":\"" class "\"}"

/* Another class for an object at its own place. */
static struct rg_completion own_class_change(struct rg_test_client *c)
{
    RG_CHECK_EQ(rg_submit_copy(c->client, c->cq,
                               &(struct rg_copy){.source_bucket = "bucket",
                                                 .source_object = "to",
                                                 .bucket = "bucket",
                                                 .object = "to",
                                                 .storage_class = "NEARLINE"}),
                0);
    return rg_test_take(c);
}

/* To its own place, where the bytes are the same before and after. */
static void test_a_retry_meets_its_own_storage_class(void)
{
    const struct rg_step source[] = {
        RG_READ,
        RG_SEND(rg_test_answer("200 OK", "{\"name\":\"to\",\"size\":\"3000000\","
                                         "\"generation\":\"7\",\"metageneration\":\"3\","
                                         "\"crc32c\":\"xFDWlw==\",\"contentType\":\"a/b\"}")),
        RG_READ, RG_CUT};
    const struct rg_step own[] = {RG_READ, RG_SEND(rg_test_answer("412 Precondition Failed", "")),
                                  RG_READ, RG_SEND(rg_test_answer("200 OK", CLASSED("NEARLINE"))),
                                  RG_END};
    const struct rg_step other[] = {RG_READ, RG_SEND(rg_test_answer("412 Precondition Failed", "")),
                                    RG_READ, RG_SEND(rg_test_answer("200 OK", CLASSED("STANDARD"))),
                                    RG_END};
    const struct rg_step *const scripts[][2] = {{source, own}, {source, other}};
    for (size_t i = 0; i < RG_ARRAY_LEN(scripts); i++) {
        struct rg_test_client c = {.scripts = scripts[i], .script_count = 2};
        rg_test_client_open(&c);
        struct rg_completion done = own_class_change(&c);
        rg_test_check_status(__FILE__, __LINE__, &done,
                             i == 0 ? RG_STATUS_OK : RG_STATUS_PRECONDITION);
        RG_CHECK_EQ(done.attempts, 4);
        RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 2),
                          "&ifGenerationMatch=7&ifMetagenerationMatch=3");
        if (i == 1) {
            RG_CHECK_CONTAINS(done.detail, "another storage class, ");
        }
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

#define OWN                                                                                        \
    "{\"name\":\"to\",\"size\":\"3000000\",\"generation\":\"7\",\"metageneration\":\"3\","         \
    "\"crc32c\":\"xFDWlw==\",\"contentType\":\"a/b\",\"kmsKeyName\":\"projects/p/cryptoKeys/k/"    \
    "cryptoKeyVersions/1\"}"

/* Who may not see access control lists can change the class all the same. */
static void test_an_object_s_own_place_keeps_its_key(void)
{
    const struct rg_step allowed[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", OWN)), RG_READ,
                                      RG_SEND(rg_test_answer("200 OK", DONE("xFDWlw=="))), RG_END};
    const struct rg_step refused[] = {RG_READ, RG_SEND(rg_test_answer("403 Forbidden", "")),
                                      RG_READ, RG_SEND(rg_test_answer("200 OK", OWN)),
                                      RG_READ, RG_SEND(rg_test_answer("200 OK", DONE("xFDWlw=="))),
                                      RG_END};
    const struct rg_step never[] = {RG_READ, RG_SEND(rg_test_answer("403 Forbidden", "")),
                                    RG_AGAIN};
    const struct rg_step *const scripts[] = {allowed, refused, never};
    for (unsigned i = 0; i < RG_ARRAY_LEN(scripts); i++) {
        struct rg_test_client c = {.scripts = &scripts[i], .script_count = 1};
        rg_test_client_open(&c);
        struct rg_completion done = own_class_change(&c);
        rg_test_check_status(__FILE__, __LINE__, &done,
                             i < 2 ? RG_STATUS_OK : RG_STATUS_PERMISSION);
        RG_CHECK_EQ(done.attempts, i == 1 ? 3 : 2);
        RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 0), "&projection=full HTTP/1.1\r\n");
        if (i < 2) {
            RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, i + 1),
                              "&destinationKmsKeyName=projects%2Fp%2FcryptoKeys%2Fk HTTP/1.1\r\n");
        }
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

static void test_steps_that_make_no_sense(void)
{
    static const char *const bodies[] = {"", "{}", "{\"done\":false}", DONE("A"),
                                         "{\"done\":true,\"resource\":null}"};
    char *huge = malloc(20000);
    strcpy(huge, "{\"done\":false,\"totalBytesRewritten\":\"5\",\"objectSize\":\"5\","
                 "\"rewriteToken\":\"");
    size_t size = strlen(huge);
    memset(huge + size, '+', 17000);
    strcpy(huge + size + 17000, "\"}");
    for (size_t i = 0; i <= RG_ARRAY_LEN(bodies); i++) {
        const char *body = i < RG_ARRAY_LEN(bodies) ? bodies[i] : huge;
        const struct rg_step script[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", SOURCE)),
                                         RG_READ, RG_SEND(rg_test_answer("200 OK", body)), RG_END};
        const struct rg_step *const scripts[] = {script};
        try_copy(scripts, 1, &(struct rg_copy){.conditions = {.if_generation_match = 5}},
                 RG_STATUS_BAD_RESPONSE, 2, "the ");
    }
    free(huge);
}

/* Cancelled, over time, or closed while the source is asked for, or a step. */
static void test_ends_before_its_end(void)
{
    const struct rg_step at_source[] = {RG_READ, RG_HOLD};
    const struct rg_step at_step[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", SOURCE)), RG_READ,
                                      RG_HOLD};
    const struct rg_step *const scripts[] = {at_source, at_step};
    for (unsigned i = 0; i < 6; i++) {
        struct rg_test_client c = {.scripts = &scripts[i % 2], .script_count = 1};
        rg_test_client_open(&c);
        copy_submit(
            &c, &(struct rg_copy){.user_data = 3,
                                  .deadline_ns = i / 2 == 1 ? rg_now_ns() + 50 * RG_NS_PER_MS : 0});
        RG_AWAIT(i / 2 == 1 || rg_scripted_server_requests(c.server) >= 1 + i % 2);
        static const enum rg_status want[] = {RG_STATUS_CANCELLED, RG_STATUS_DEADLINE,
                                              RG_STATUS_CLOSED};
        if (i / 2 == 0) {
            RG_CHECK_EQ(rg_cancel(c.client, c.cq, 3), 0);
        } else if (i / 2 == 2) {
            rg_client_close(c.client);
            c.client = NULL;
        }
        struct rg_completion done = rg_test_take(&c);
        rg_test_check_status(__FILE__, __LINE__, &done, want[i / 2]);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

static void test_what_cannot_be_copied(void)
{
    static const struct rg_copy rows[] = {
        {.source_bucket = "bucket", .source_object = "o", .bucket = "bucket"},
        {.source_bucket = "bucket", .bucket = "bucket", .object = "o"},
        {.source_bucket = "B", .source_object = "o", .bucket = "bucket", .object = "o"},
        {.source_bucket = "bucket",
         .source_object = "o",
         .bucket = "bucket",
         .object = "o",
         .step_max = 1000},
        {.source_bucket = "bucket",
         .source_object = "o",
         .bucket = "bucket",
         .object = "o",
         .source_generation = -1},
        {.source_bucket = "bucket",
         .source_object = "o",
         .bucket = "bucket",
         .object = "o",
         .storage_class = ""},
        {.source_bucket = "bucket",
         .source_object = "o",
         .bucket = "bucket",
         .object = "o",
         .storage_class = "NEAR\nLINE"},
    };
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(rg_submit_copy(c.client, c.cq, &rows[i]), -EINVAL);
    }
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_copy_in_steps),
        RG_TEST(test_wrong_crc),
        RG_TEST(test_no_source),
        RG_TEST(test_copies_that_never_end),
        RG_TEST(test_only_guarded_steps_are_tried_again),
        RG_TEST(test_a_retry_meets_its_own_copy),
        RG_TEST(test_a_retry_meets_its_own_storage_class),
        RG_TEST(test_an_object_s_own_place_keeps_its_key),
        RG_TEST(test_steps_that_make_no_sense),
        RG_TEST(test_ends_before_its_end),
        RG_TEST(test_what_cannot_be_copied),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
