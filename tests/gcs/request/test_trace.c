/* What the log tells of requests and their connections: each kind of line, at its level, and that
 * nothing secret is in any. Lines come by a sink, so that each has its level and place. */
#include "gcs/request/trace.h"

#include "runtime/log.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <ringest/listing.h>

#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-goog-generation: 7\r\n\r\nok"
#define BUSY_ANSWER "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 9\r\n\r\nslow down"
/* Tried again, and no reason to ask less often. */
#define FAULT_ANSWER "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops"
#define SIZE 3000
#define FAST 120

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char lines[1 << 20];
static size_t lines_size;

static void sink(enum rg_log_level level, const char *place, const char *text)
{
    pthread_mutex_lock(&mutex);
    size_t room = sizeof(lines) - lines_size;
    int size = snprintf(lines + lines_size, room, "%d %s: %s\n", level, place, text);
    lines_size += RG_MIN((size_t)size, room - 1);
    pthread_mutex_unlock(&mutex);
}

static void log_begin(enum rg_log_level level)
{
    pthread_mutex_lock(&mutex);
    lines_size = 0;
    lines[0] = '\0';
    pthread_mutex_unlock(&mutex);
    RG_CHECK_EQ(rg_log_to(level, sink), 0);
}

static const char *log_end(void)
{
    rg_log_to(RG_LOG_OFF, NULL);
    return lines;
}

static void open_with(struct rg_test_client *c, const struct rg_step *const *scripts,
                      uint32_t count)
{
    c->scripts = scripts;
    c->script_count = count;
    rg_test_client_open(c);
}

static void get_one(struct rg_test_client *c, enum rg_status want)
{
    rg_test_get(c, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(c);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    rg_lease_release(done.lease);
}

static void test_a_retry_tells_its_cause_and_delay(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(BUSY_ANSWER), RG_READ, RG_SEND(OK_ANSWER),
                                     RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {0};
    log_begin(RG_LOG_INFO);
    open_with(&c, scripts, 1);
    get_one(&c, RG_STATUS_OK);
    rg_test_client_close(&c);
    const char *text = log_end();
    RG_CHECK_CONTAINS(text, "3 gcs/request/trace: get gs://bucket/object: attempt 1 of 8 failed, "
                            "the next in 0.0");
    RG_CHECK_CONTAINS(text, "(HTTP 429)");
    RG_CHECK_CONTAINS(text, "get gs://bucket/object: done after 2 attempts");
    RG_CHECK_CONTAINS(text, "2 gcs/request/traffic: gs://bucket: reads of loop 0 are slowed down");
    RG_CHECK(strstr(text, "->") == NULL);
}

static void test_the_end_of_all_attempts_is_told(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(BUSY_ANSWER), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.options.attempts_max = 2};
    log_begin(RG_LOG_INFO);
    open_with(&c, scripts, 1);
    get_one(&c, RG_STATUS_THROTTLED);
    rg_test_client_close(&c);
    RG_CHECK_CONTAINS(log_end(), "get gs://bucket/object: failed after 2 attempts: ");
}

static void test_states_are_told_at_debug(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(FAULT_ANSWER), RG_READ, RG_SEND(OK_ANSWER),
                                     RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {0};
    log_begin(RG_LOG_DEBUG);
    open_with(&c, scripts, 1);
    get_one(&c, RG_STATUS_OK);
    rg_test_client_close(&c);
    const char *text = log_end();
    static const char *const changes[] = {"queued -> pool", "pool -> out", "out -> back-off",
                                          "back-off -> pool", "out -> done"};
    for (size_t i = 0; i < RG_ARRAY_LEN(changes); i++) {
        RG_CHECK_CONTAINS(text, changes[i]);
    }
    RG_CHECK_CONTAINS(text, "4 gcs/request/trace: get gs://bucket/object: ");
    RG_CHECK_CONTAINS(text, "connection 0 closed after 2 requests");
}

static void test_connections_tell_of_tls(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(OK_ANSWER), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.tls = true};
    log_begin(RG_LOG_INFO);
    open_with(&c, scripts, 1);
    get_one(&c, RG_STATUS_OK);
    rg_test_client_close(&c);
    const char *text = log_end();
    RG_CHECK_CONTAINS(text, "3 http/pool: localhost: connection 0 to ");
    RG_CHECK_CONTAINS(text, ": TLSv1.3, TLS_");
    RG_CHECK_CONTAINS(text, "3 runtime/runtime: ringest ");
    RG_CHECK_CONTAINS(text, "1 event loops by ");
    RG_CHECK_CONTAINS(text, "3 gcs/request/client: client of https://localhost:");
    RG_CHECK_CONTAINS(text, "credentials: anonymous");
}

static void test_a_lost_connection_is_told(void)
{
    const struct rg_step lost[] = {RG_READ, RG_RESET};
    const struct rg_step good[] = {RG_READ, RG_SEND(OK_ANSWER), RG_AGAIN};
    const struct rg_step *const scripts[] = {lost, good};
    struct rg_test_client c = {0};
    log_begin(RG_LOG_INFO);
    open_with(&c, scripts, 2);
    get_one(&c, RG_STATUS_OK);
    rg_test_client_close(&c);
    RG_CHECK_CONTAINS(log_end(), "3 http/pool: 127.0.0.1: connection 0 lost in its request 1: ");
}

static void test_a_hedge_is_told(void)
{
    const struct rg_step object = {
        .kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, 7)};
    const struct rg_step read = RG_READ, hold = RG_HOLD, again = RG_AGAIN;
    struct rg_step silent[2 * FAST + 2], good[] = {read, object, again};
    for (unsigned i = 0; i < FAST; i++) {
        silent[2 * i] = read;
        silent[2 * i + 1] = object;
    }
    silent[2 * FAST] = read;
    silent[2 * FAST + 1] = hold;
    const struct rg_step *const scripts[] = {silent, good};
    struct rg_test_client c = {
        .hedges = true,
        .options = {.first_byte_timeout_ns = 100 * RG_NS_PER_S, .adapting = RG_SWITCH_OFF}};
    log_begin(RG_LOG_DEBUG);
    open_with(&c, scripts, 2);
    for (unsigned i = 0; i < FAST + 1; i++) {
        get_one(&c, RG_STATUS_OK);
    }
    rg_test_client_close(&c);
    const char *text = log_end();
    RG_CHECK_CONTAINS(text, "4 gcs/request/traffic: get gs://bucket/object: no answer for ");
    RG_CHECK_CONTAINS(text, ": the hedge answered first");
}

static void test_a_listing_tells_how_far_it_came(void)
{
    static const char body[] = "{\"items\":[{\"name\":\"a\",\"size\":\"1\",\"generation\":\"1\"}]}";
    const struct rg_step script[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", body)), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {0};
    log_begin(RG_LOG_INFO);
    open_with(&c, scripts, 1);
    struct rg_listing *listing;
    RG_CHECK_EQ(rg_listing_open(&listing, c.client,
                                &(struct rg_listing_options){.bucket = "bucket", .prefix = "a"}),
                0);
    for (int page = 0; page < 2; page++) {
        RG_CHECK_EQ(rg_listing_next(listing, c.cq, 1), 0);
        struct rg_completion done = rg_test_take(&c);
        RG_CHECK_STATUS(&done, OK);
        rg_lease_release(done.lease);
    }
    rg_listing_close(listing);
    rg_test_client_close(&c);
    RG_CHECK_CONTAINS(log_end(), "3 gcs/listing/listing: list gs://bucket/a: 1 names in 1 pages");
}

/* A fixed token, an extra field, and a server that repeats what it was sent in its message. */
static void test_no_secret_is_in_any_line(void)
{
    static const char body[] = "{\"error\":{\"code\":503,\"message\":\"come back\"}}";
    const struct rg_step script[] = {
        RG_READ, RG_SEND(rg_test_answer("503 Service Unavailable", body)),
        RG_READ, RG_SEND(OK_ANSWER),
        RG_READ, RG_RESET};
    const struct rg_step lost[] = {RG_READ, RG_RESET};
    const struct rg_step *const scripts[] = {script, lost};
    struct rg_test_client c = {.tls = true,
                               .options = {.token = "ya29.hidden-token",
                                           .headers = "X-Key: hidden-key",
                                           .attempts_max = 3}};
    log_begin(RG_LOG_DEBUG);
    open_with(&c, scripts, 2);
    get_one(&c, RG_STATUS_OK);
    get_one(&c, RG_STATUS_CONNECTION_LOST);
    rg_test_client_close(&c);
    const char *text = log_end();
    RG_CHECK_CONTAINS(text, "credentials: a fixed access token");
    RG_CHECK_CONTAINS(text, "come back");
    RG_CHECK(strstr(text, "hidden") == NULL);
    RG_CHECK(strstr(text, "earer") == NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_retry_tells_its_cause_and_delay),
        RG_TEST(test_the_end_of_all_attempts_is_told),
        RG_TEST(test_states_are_told_at_debug),
        RG_TEST(test_connections_tell_of_tls),
        RG_TEST(test_a_lost_connection_is_told),
        RG_TEST(test_a_hedge_is_told),
        RG_TEST(test_a_listing_tells_how_far_it_came),
        RG_TEST(test_no_secret_is_in_any_line),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
