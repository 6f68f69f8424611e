/* Puts: what is sent, what is tried again and what must not be, and what an answer may say. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#define SIZE 300000
#define UNAVAILABLE "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"

static struct rg_completion put_one(struct rg_test_client *c, const struct rg_put *put)
{
    struct rg_put own = *put;
    own.bucket = own.bucket != NULL ? own.bucket : "bucket";
    own.object = own.object != NULL ? own.object : "object";
    RG_CHECK_EQ(rg_submit_put(c->client, c->cq, &own), 0);
    return rg_test_take(c);
}

/* An answer for "abcde", whose CRC32C is 0xc450d697. */
#define METADATA_(size, crc)                                                                       \
    "{\"name\":\"object\",\"size\":\"" size "\",\"generation\":\"12\",\"crc32c\":\"" crc "\"}"
#define STORED "HTTP/1.1 200 OK\r\nContent-Length: 66\r\n\r\n" METADATA_("5", "xFDWlw==")

static struct rg_completion try_put(const struct rg_step *const *scripts, uint32_t script_count,
                                    int64_t if_generation_match, enum rg_status want)
{
    struct rg_test_client c = {
        .scripts = scripts, .script_count = script_count, .options = {.attempts_max = 4}};
    rg_test_client_open(&c);
    struct rg_completion done = put_one(
        &c,
        &(struct rg_put){.data = "abcde", .size = 5, .if_generation_match = if_generation_match});
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    RG_CHECK_EQ(rg_scripted_server_requests(c.server), done.attempts);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return done;
}

static void test_put(void)
{
    static_assert(sizeof(METADATA_("5", "xFDWlw==")) - 1 == 66, "its Content-Length");
    const struct rg_step script[] = {RG_READ, RG_SEND(STORED), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    for (unsigned tls = 0; tls < 2; tls++) {
        struct rg_test_client c = {.scripts = scripts, .script_count = 1, .tls = tls == 1};
        rg_test_client_open(&c);
        for (unsigned i = 0; i < 2; i++) {
            struct rg_completion done = put_one(&c, &(struct rg_put){.data = "abcde",
                                                                     .size = 5,
                                                                     .object = "a b",
                                                                     .content_type = "text/plain",
                                                                     .if_generation_match = 9,
                                                                     .user_data = i});
            RG_CHECK_STATUS(&done, OK);
            RG_CHECK_EQ(done.user_data, i);
            RG_CHECK_EQ(done.generation, 12);
            RG_CHECK_EQ(done.crc32c, 0xc450d697);
            RG_CHECK_EQ(done.object_size, 5);
            RG_CHECK_EQ(done.attempts, 1);
            rg_lease_release(done.lease);
        }
        RG_CHECK_EQ(rg_scripted_server_connections(c.server), 1);
        const char *head = rg_scripted_server_head(c.server, 0);
        RG_CHECK_CONTAINS(head, "POST /upload/storage/v1/b/bucket/o?uploadType=media&name=a%20b"
                                "&ifGenerationMatch=9 HTTP/1.1\r\n");
        RG_CHECK_CONTAINS(head, "\r\nContent-Length: 5\r\n");
        RG_CHECK_CONTAINS(head, "\r\nContent-Type: text/plain\r\n");
        rg_test_client_close(&c);
    }
}

/* Sizes around what is sent straight from the caller's memory, and nothing at all. */
static void test_put_sizes(void)
{
    static const uint64_t sizes[] = {0, 1, 16383, 16384, 20000, SIZE, 3000000};
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(sizes); i++) {
        uint64_t size = sizes[i / 2];
        char body[256], answer[512];
        snprintf(body, sizeof(body), "{\"name\":\"o\",\"size\":\"%llu\",\"generation\":\"12\"}",
                 (unsigned long long)size);
        snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
                 strlen(body), body);
        const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct rg_test_client c = {.scripts = scripts, .script_count = 1, .tls = i % 2 == 1};
        rg_test_client_open(&c);
        uint8_t *data = calloc(1, size + 1);
        for (unsigned n = 0; n < 2; n++) {
            struct rg_completion done = put_one(&c, &(struct rg_put){.data = data, .size = size});
            RG_CHECK_STATUS(&done, OK);
            RG_CHECK_EQ(done.size, size);
            rg_lease_release(done.lease);
        }
        RG_CHECK_EQ(rg_scripted_server_connections(c.server), 1);
        rg_test_client_close(&c);
        free(data);
    }
}

static void test_put_with_a_condition_is_tried_again(void)
{
    const struct rg_step lost[] = {RG_READ, RG_CUT};
    const struct rg_step busy[] = {RG_READ, RG_SEND(UNAVAILABLE), RG_READ, RG_SEND(STORED), RG_END};
    const struct rg_step *const scripts[] = {lost, busy};
    struct rg_completion done = try_put(scripts, 2, RG_GENERATION_ABSENT, RG_STATUS_OK);
    RG_CHECK_EQ(done.attempts, 3);
}

/* The token of a head, "" if it has none. */
static void token_of(const char *head, char out_token[64])
{
    const char *field = strstr(head, "\r\nx-goog-gcs-idempotency-token: ");
    *out_token = '\0';
    if (field != NULL) {
        RG_CHECK_EQ(sscanf(field + 2, "%*[^:]: %63[^\r]", out_token), 1);
    }
}

/* It takes a body in parts, with a nonce only where who wrote it counts. */
static void test_put_with_a_storage_class(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(STORED), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_put put = {.data = "abcde", .size = 5, .storage_class = "NEARLINE"};
    for (unsigned i = 0; i < 2; i++) {
        put.exclusive = i == 1;
        put.if_generation_match = i == 1 ? 9 : 0;
        struct rg_completion done = put_one(&c, &put);
        RG_CHECK_STATUS(&done, OK);
        rg_lease_release(done.lease);
        RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, i), "uploadType=multipart");
    }
    put.bucket = "bucket";
    put.object = "o";
    put.storage_class = "";
    RG_CHECK_EQ(rg_submit_put(c.client, c.cq, &put), -EINVAL);
    put.storage_class = "NEAR\nLINE";
    RG_CHECK_EQ(rg_submit_put(c.client, c.cq, &put), -EINVAL);
    rg_test_client_close(&c);
}

static void test_tries_of_a_put_have_one_token(void)
{
    const struct rg_step busy[] = {RG_READ, RG_SEND(UNAVAILABLE), RG_READ, RG_SEND(STORED),
                                   RG_READ, RG_SEND(STORED),      RG_END};
    const struct rg_step *const scripts[] = {busy};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    char tokens[3][64];
    rg_test_client_open(&c);
    struct rg_put put = {.data = "abcde", .size = 5, .if_generation_match = RG_GENERATION_ABSENT};
    for (unsigned i = 0; i < 2; i++) {
        struct rg_completion done = put_one(&c, &put);
        RG_CHECK_STATUS(&done, OK);
        rg_lease_release(done.lease);
    }
    for (unsigned i = 0; i < 3; i++) {
        token_of(rg_scripted_server_head(c.server, i), tokens[i]);
        /* A UUID of version 4 in its form. */
        RG_CHECK_EQ(strlen(tokens[i]), 36);
        RG_CHECK_EQ(strspn(tokens[i], "0123456789abcdef-"), 36);
        RG_CHECK(tokens[i][8] == '-' && tokens[i][14] == '4' && strchr("89ab", tokens[i][19]));
    }
    RG_CHECK(strcmp(tokens[0], tokens[1]) == 0);
    RG_CHECK(strcmp(tokens[1], tokens[2]) != 0);
    rg_test_client_close(&c);
}

static void test_put_without_a_condition_is_not_tried_again(void)
{
    const struct rg_step lost[] = {RG_READ, RG_CUT};
    const struct rg_step half[] = {RG_READ, RG_SEND("HTTP/1.1 200 OK\r\n"), RG_CUT};
    const struct rg_step busy[] = {RG_READ, RG_SEND(UNAVAILABLE), RG_AGAIN};
    const struct rg_step *const rows[] = {lost, half, busy};
    static const enum rg_status want[] = {RG_STATUS_CONNECTION_LOST, RG_STATUS_CONNECTION_LOST,
                                          RG_STATUS_SERVER};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_completion done = try_put(&rows[i], 1, 0, want[i]);
        RG_CHECK_EQ(done.attempts, 1);
    }
}

/* As long as nothing of it was sent, it may be tried again. */
static void test_put_without_a_condition_waits_for_a_connection(void)
{
    const struct rg_step refused[] = {RG_RESET};
    const struct rg_step good[] = {RG_READ, RG_SEND(STORED), RG_AGAIN};
    const struct rg_step *const scripts[] = {refused, refused, good};
    struct rg_test_client c = {.scripts = scripts, .script_count = 3, .tls = true};
    rg_test_client_open(&c);
    struct rg_completion done = put_one(&c, &(struct rg_put){.data = "abcde", .size = 5});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.attempts, 1);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_condition_that_does_not_hold(void)
{
    const struct rg_step script[] = {
        RG_READ, RG_SEND("HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n"),
        RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_completion done = try_put(scripts, 1, 5, RG_STATUS_PRECONDITION);
    RG_CHECK_EQ(done.attempts, 1);
    RG_CHECK_EQ(done.http_status, 412);
}

/* It is stored, wrongly: another attempt would only meet its own condition. */
static void test_stored_bytes_differ(void)
{
    static const char *const bodies[] = {METADATA_("5", "AAAAAA=="), METADATA_("4", "xFDWlw==")};
    for (size_t i = 0; i < RG_ARRAY_LEN(bodies); i++) {
        char answer[256];
        snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Length: 66\r\n\r\n%s",
                 bodies[i]);
        const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct rg_completion done = try_put(scripts, 1, RG_GENERATION_ABSENT, RG_STATUS_CHECKSUM);
        RG_CHECK_EQ(done.attempts, 1);
    }
}

static void test_answers_that_are_no_metadata(void)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(answers); i++) {
        const struct rg_step script[] = {RG_READ, RG_SEND(answers[i]), RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct rg_completion done = try_put(scripts, 1, 5, RG_STATUS_BAD_RESPONSE);
        RG_CHECK_EQ(done.attempts, 1);
    }
}

/* The server does not wait for the body, and says so before it ends the connection. */
static void test_refused_before_the_body_is_sent(void)
{
    const struct rg_step script[] = {
        RG_READ_HEAD,
        RG_SEND("HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 4\r\n\r\nnope"),
        RG_END};
    const struct rg_step *const scripts[] = {script};
    const uint64_t size = RG_MIB(16);
    for (unsigned tls = 0; tls < 2; tls++) {
        struct rg_test_client c = {.scripts = scripts, .script_count = 1, .tls = tls == 1};
        rg_test_client_open(&c);
        uint8_t *data = calloc(1, size);
        struct rg_completion done = put_one(&c, &(struct rg_put){.data = data, .size = size});
        /* From here on the data are ours again. */
        free(data);
        RG_CHECK_STATUS(&done, PERMISSION);
        RG_CHECK_CONTAINS(done.detail, "nope");
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

static void check_ended_while_sending(bool tls, bool by_deadline)
{
    const struct rg_step script[] = {RG_READ_HEAD, RG_SLEEP(60000), RG_END};
    const struct rg_step *const scripts[] = {script};
    const uint64_t size = RG_MIB(16);
    struct rg_test_client c = {.scripts = scripts, .script_count = 1, .tls = tls};
    rg_test_client_open(&c);
    uint8_t *data = calloc(1, size);
    struct rg_put put = {.bucket = "bucket", .object = "object", .data = data, .size = size};
    put.deadline_ns = by_deadline ? rg_now_ns() + 100 * RG_NS_PER_MS : 0;
    RG_CHECK_EQ(rg_submit_put(c.client, c.cq, &put), 0);
    if (!by_deadline) { /* Which may come before anything is sent where the machine is busy. */
        RG_AWAIT(rg_scripted_server_requests(c.server) == 1);
        RG_CHECK_EQ(rg_cancel(c.client, c.cq, 0), 0);
    }
    struct rg_completion done = rg_test_take(&c);
    free(data);
    rg_test_check_status(__FILE__, __LINE__, &done,
                         by_deadline ? RG_STATUS_DEADLINE : RG_STATUS_CANCELLED);
    rg_lease_release(done.lease);
    RG_CHECK(rg_test_is_quiet(&c, 20));
    rg_test_client_close(&c);
}

static void test_put_ended_while_it_is_sent(void)
{
    for (unsigned i = 0; i < 4; i++) {
        check_ended_while_sending(i % 2 == 1, i / 2 == 1);
    }
}

/* Nobody takes the bytes. */
static void test_server_that_does_not_read(void)
{
    const struct rg_step script[] = {RG_SLEEP(60000), RG_END};
    const struct rg_step *const scripts[] = {script};
    const uint64_t size = RG_MIB(16);
    struct rg_test_client c = {
        .scripts = scripts,
        .script_count = 1,
        .options = {.stall_timeout_ns = 100 * RG_NS_PER_MS, .attempts_max = 3},
    };
    rg_test_client_open(&c);
    uint8_t *data = calloc(1, size);
    struct rg_completion done = put_one(&c, &(struct rg_put){.data = data, .size = size});
    free(data);
    RG_CHECK_STATUS(&done, STALLED);
    RG_CHECK_EQ(done.attempts, 1);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_puts_that_are_refused_at_once(void)
{
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    const struct rg_put bad[] = {
        {.object = "o", .data = "a", .size = 1},
        {.bucket = "bucket", .data = "a", .size = 1},
        {.bucket = "bucket", .object = "o", .size = 1},
        {.bucket = "bucket", .object = "o\r", .data = "a", .size = 1},
        {.bucket = "bucket", .object = "o", .data = "a", .size = 1, .content_type = "a\r\nb: c"},
        {.bucket = "bucket", .object = "o", .data = "a", .size = 1, .if_generation_match = -2},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(rg_submit_put(c.client, c.cq, &bad[i]), -EINVAL);
    }
    RG_CHECK(rg_test_is_quiet(&c, 20));
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_put),
        RG_TEST(test_put_sizes),
        RG_TEST(test_put_with_a_condition_is_tried_again),
        RG_TEST(test_put_with_a_storage_class),
        RG_TEST(test_tries_of_a_put_have_one_token),
        RG_TEST(test_put_without_a_condition_is_not_tried_again),
        RG_TEST(test_put_without_a_condition_waits_for_a_connection),
        RG_TEST(test_condition_that_does_not_hold),
        RG_TEST(test_stored_bytes_differ),
        RG_TEST(test_answers_that_are_no_metadata),
        RG_TEST(test_refused_before_the_body_is_sent),
        RG_TEST(test_put_ended_while_it_is_sent),
        RG_TEST(test_server_that_does_not_read),
        RG_TEST(test_puts_that_are_refused_at_once),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
