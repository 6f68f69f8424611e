/* Requests of a client with credentials: that they carry the token, wait for one together, share
 * one refresh, and what becomes of them when the token is refused or cannot be had. */
#include "gcs/request/authorize.h"
#include "runtime/log.h"
#include "tests/gcs/credentials/token_case.h"
#include "tests/support/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/wait.h>

#define OBJECT_SIZE 100
#define MANY 200

#define USER                                                                                       \
    "{\"type\":\"authorized_user\",\"client_id\":\"i\",\"client_secret\":\"hidden-secret\","       \
    "\"refresh_token\":\"hidden-refresh\",\"token_uri\":\"%s/token\",\"account\":\"a@b.example\"," \
    "\"quota_project_id\":\"payer\"}"

/* A storage server, a token server, and a client that uses both. */
struct pair {
    struct token_case tokens;
    struct rg_test_client client;
    char path[RG_TEST_PATH_SIZE];
};

static const struct rg_step *object_script(void)
{
    static struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = OBJECT_SIZE}, RG_AGAIN};
    script[1].text = rg_test_object_fields(OBJECT_SIZE, 7);
    return script;
}

static void pair_open(struct pair *pair, const struct rg_token_route *route,
                      const struct rg_step *const *scripts, uint32_t script_count)
{
    token_case_open(&pair->tokens, route, 1);
    char file[1024];
    snprintf(file, sizeof(file), USER, rg_token_server_url(pair->tokens.server));
    rg_test_file_make(file, pair->path);
    pair->client.scripts = scripts;
    pair->client.script_count = script_count;
    pair->client.options.credentials = pair->path;
    rg_test_client_open(&pair->client);
}

static void pair_close(struct pair *pair)
{
    rg_test_client_close(&pair->client);
    token_case_close(&pair->tokens);
    unlink(pair->path);
}

static uint32_t refreshes(struct pair *pair)
{
    return rg_token_server_count(pair->tokens.server);
}

static void check_get(struct pair *pair)
{
    rg_test_get(&pair->client, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(&pair->client);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 0, OBJECT_SIZE);
    rg_lease_release(done.lease);
}

static void check_described(struct pair *pair, const char *part)
{
    char text[512];
    int size = rg_credentials_describe(pair->client.client, text, sizeof(text));
    RG_CHECK_EQ(size, strlen(text));
    RG_CHECK_CONTAINS(text, part);
    RG_CHECK(strstr(text, "hidden") == NULL);
}

static void test_requests_carry_the_token_and_the_quota_project(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("ya29.#")};
    const struct rg_step *const scripts[] = {object_script()};
    struct pair pair = {0};
    pair_open(&pair, &route, scripts, 1);
    check_described(&pair, "user a@b.example from /tmp/");
    check_described(&pair, "no token asked for yet");
    check_get(&pair);
    check_get(&pair);
    const char *head = rg_scripted_server_head(pair.client.server, 1);
    RG_CHECK_CONTAINS(head, "\r\nAuthorization: Bearer ya29.1\r\n");
    RG_CHECK_CONTAINS(head, "\r\nx-goog-user-project: payer\r\n");
    RG_CHECK_EQ(refreshes(&pair), 1);
    check_described(&pair, "token valid for 35");
    pair_close(&pair);
}

static void test_many_requests_and_loops_wait_for_one_refresh(void)
{
    const struct rg_token_route route = {
        .path = "/token", .body = TOKEN_ANSWER("t#"), .delay_ms = 200};
    const struct rg_step *const scripts[] = {object_script()};
    struct pair pair = {.client.threads = 3};
    pair_open(&pair, &route, scripts, 1);
    for (unsigned i = 0; i < MANY; i++) {
        rg_test_get(&pair.client, &(struct rg_get){.user_data = i});
    }
    for (unsigned i = 0; i < MANY; i++) {
        struct rg_completion done = rg_test_take(&pair.client);
        RG_CHECK_STATUS(&done, OK);
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(refreshes(&pair), 1);
    pair_close(&pair);
}

static void test_clients_of_one_file_share_its_token(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    const struct rg_step *const scripts[] = {object_script()};
    struct pair pair = {0};
    pair_open(&pair, &route, scripts, 1);
    struct rg_client *other = NULL, *scoped = NULL;
    RG_CHECK_EQ(rg_client_open(&other, pair.client.runtime, &pair.client.options), 0);
    struct rg_client_options options = pair.client.options;
    options.scope = "another";
    RG_CHECK_EQ(rg_client_open(&scoped, pair.client.runtime, &options), 0);
    check_get(&pair);
    struct rg_client *const clients[] = {other, scoped};
    for (unsigned i = 0; i < 2; i++) {
        struct rg_get get = {.bucket = "bucket", .object = "o"};
        RG_CHECK_EQ(rg_submit_get(clients[i], pair.client.cq, &get), 0);
        struct rg_completion done = rg_test_take(&pair.client);
        RG_CHECK_STATUS(&done, OK);
        rg_lease_release(done.lease);
        /* Another scope is another source. */
        RG_CHECK_EQ(refreshes(&pair), i + 1);
    }
    rg_client_close(other);
    rg_client_close(scoped);
    pair_close(&pair);
}

static void test_an_expired_token_is_replaced_by_one_refresh(void)
{
    const struct rg_token_route route = {.path = "/token",
                                         .body = "{\"access_token\":\"t#\",\"expires_in\":4}"};
    const struct rg_step *const scripts[] = {object_script()};
    struct pair pair = {0};
    pair_open(&pair, &route, scripts, 1);
    check_get(&pair);
    rg_test_clock_skip(NULL, 4 * RG_NS_PER_S);
    for (unsigned i = 0; i < MANY; i++) {
        rg_test_get(&pair.client, &(struct rg_get){.user_data = i});
    }
    for (unsigned i = 0; i < MANY; i++) {
        struct rg_completion done = rg_test_take(&pair.client);
        RG_CHECK_STATUS(&done, OK);
        rg_lease_release(done.lease);
    }
    RG_CHECK_CONTAINS(rg_scripted_server_head(pair.client.server, 1), "Bearer t2\r\n");
    RG_CHECK_EQ(refreshes(&pair), 2);
    pair_close(&pair);
}

static void test_a_storm_of_refusals_gives_one_refresh(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    /* The first connections hold their answers back until all have asked, with the same token. */
    const struct rg_step refuse[] = {
        RG_READ, RG_SLEEP(5000), RG_SEND("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"),
        RG_END};
    const struct rg_step *const scripts[] = {refuse, refuse, refuse, refuse, object_script()};
    struct pair pair = {.client.options = {.connections_max = 4, .prewarm = 4}};
    pair_open(&pair, &route, scripts, RG_ARRAY_LEN(scripts));
    /* All of them are there, or one that comes late would meet a request that asks again. */
    RG_AWAIT(rg_scripted_server_connections(pair.client.server) == 4);
    for (unsigned i = 0; i < 4; i++) {
        rg_test_get(&pair.client, &(struct rg_get){.user_data = i});
    }
    for (unsigned i = 0; i < 4; i++) {
        struct rg_completion done = rg_test_take(&pair.client);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_EQ(done.attempts, 2);
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(refreshes(&pair), 2);
    RG_CHECK_EQ(rg_scripted_server_requests(pair.client.server), 8);
    RG_CHECK_CONTAINS(rg_scripted_server_head(pair.client.server, 7), "Bearer t2\r\n");
    pair_close(&pair);
}

static void test_a_token_that_is_always_refused_is_asked_for_twice(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    const struct rg_step refuse[] = {
        RG_READ,
        RG_SEND("HTTP/1.1 401 Unauthorized\r\nContent-Length: 18\r\n\r\n{\"error\":\"go away\"}"),
        RG_AGAIN};
    const struct rg_step *const scripts[] = {refuse};
    struct pair pair = {0};
    pair_open(&pair, &route, scripts, 1);
    for (unsigned i = 0; i < 5; i++) {
        rg_test_get(&pair.client, &(struct rg_get){0});
        struct rg_completion done = rg_test_take(&pair.client);
        RG_CHECK_STATUS(&done, UNAUTHENTICATED);
        RG_CHECK_EQ(done.attempts, i == 0 ? 2 : 1);
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(refreshes(&pair), 2);
    pair_close(&pair);
}

static void test_a_fixed_token_that_is_refused_is_not_sent_again(void)
{
    const struct rg_step refuse[] = {
        RG_READ, RG_SEND("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"), RG_AGAIN};
    const struct rg_step *const scripts[] = {refuse};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .options = {.token = "fixed"}};
    rg_test_client_open(&c);
    rg_test_get(&c, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, UNAUTHENTICATED);
    RG_CHECK_EQ(done.attempts, 1);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_a_revoked_grant_ends_all_requests_with_its_cause(void)
{
    const struct rg_token_route route = {
        .path = "/token",
        .status = 400,
        .body = "{\"error\":\"invalid_grant\",\"error_description\":\"revoked\"}",
        .delay_ms = 100};
    const struct rg_step *const scripts[] = {object_script()};
    struct pair pair = {0};
    pair_open(&pair, &route, scripts, 1);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < MANY; i++) {
            rg_test_get(&pair.client, &(struct rg_get){.user_data = i});
        }
        for (unsigned i = 0; i < MANY; i++) {
            struct rg_completion done = rg_test_take(&pair.client);
            RG_CHECK_STATUS(&done, CREDENTIALS);
            RG_CHECK_CONTAINS(done.detail, "invalid_grant: revoked; log in again: gcloud auth");
            RG_CHECK(strstr(done.detail, "hidden") == NULL && strchr(done.detail, '\n') == NULL);
            RG_CHECK_EQ(done.attempts, 0);
            rg_lease_release(done.lease);
        }
    }
    RG_CHECK_EQ(refreshes(&pair), 1);
    RG_CHECK_EQ(rg_scripted_server_requests(pair.client.server), 0);
    check_described(&pair, "no token: ");
    pair_close(&pair);
}

static void test_deadlines_and_cancellation_end_the_wait(void)
{
    const struct rg_token_route route = {.path = "/token", .hold = true};
    const struct rg_step *const scripts[] = {object_script()};
    struct pair pair = {0};
    pair_open(&pair, &route, scripts, 1);
    rg_test_get(&pair.client,
                &(struct rg_get){.user_data = 1, .deadline_ns = rg_now_ns() + 50 * RG_NS_PER_MS});
    rg_test_get(&pair.client, &(struct rg_get){.user_data = 2});
    struct rg_completion done = rg_test_take(&pair.client);
    RG_CHECK_EQ(done.user_data, 1);
    RG_CHECK_STATUS(&done, DEADLINE);
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_cancel(pair.client.client, pair.client.cq, 2), 0);
    done = rg_test_take(&pair.client);
    RG_CHECK_EQ(done.user_data, 2);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    pair_close(&pair);
}

static void test_closing_while_requests_wait_for_a_token(void)
{
    const struct rg_token_route route = {.path = "/token", .hold = true};
    const struct rg_step *const scripts[] = {object_script()};
    struct pair pair = {.client.threads = 2};
    pair_open(&pair, &route, scripts, 1);
    for (unsigned i = 0; i < 10; i++) {
        rg_test_get(&pair.client, &(struct rg_get){0});
    }
    uint64_t begin_ns = rg_now_ns();
    rg_client_close(pair.client.client);
    RG_CHECK(rg_now_ns() - begin_ns < 10 * RG_NS_PER_S);
    pair.client.client = NULL;
    for (unsigned i = 0; i < 10; i++) {
        struct rg_completion done = rg_test_take(&pair.client);
        RG_CHECK_STATUS(&done, CLOSED);
        rg_lease_release(done.lease);
    }
    pair_close(&pair);
}

/* What was printed while a case ran, with everything logged. */
struct capture {
    char path[RG_TEST_PATH_SIZE];
    int kept_stderr;
};

static void capture_begin(struct capture *capture)
{
    rg_test_file_make("", capture->path);
    fflush(stderr);
    capture->kept_stderr = dup(STDERR_FILENO);
    int fd = open(capture->path, O_WRONLY | O_CLOEXEC);
    RG_CHECK(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    rg_log_configure(RG_LOG_DEBUG);
}

static size_t capture_end(struct capture *capture, char *out, size_t capacity)
{
    rg_log_configure(RG_LOG_OFF);
    RG_CHECK(dup2(capture->kept_stderr, STDERR_FILENO) >= 0);
    close(capture->kept_stderr);
    FILE *file = fopen(capture->path, "re");
    size_t size = fread(out, 1, capacity - 1, file);
    fclose(file);
    unlink(capture->path);
    out[size] = '\0';
    return size;
}

static void test_no_secret_is_logged(void)
{
    const struct rg_token_route routes[] = {
        {.path = "/token", .body = TOKEN_ANSWER("hidden-token")},
        {.path = "/token", .status = 400, .body = "{\"error\":\"invalid_grant\"}"},
        {.path = "/token", .body = "{\"access_token\":\"hidden token\"}"}};
    const struct rg_step *const scripts[] = {object_script()};
    static char printed[65536];
    struct capture capture;
    capture_begin(&capture);
    for (size_t i = 0; i < RG_ARRAY_LEN(routes); i++) {
        struct pair pair = {0};
        pair_open(&pair, &routes[i], scripts, 1);
        rg_log_configure(RG_LOG_DEBUG);
        rg_test_get(&pair.client, &(struct rg_get){0});
        struct rg_completion done = rg_test_take(&pair.client);
        rg_lease_release(done.lease);
        pair_close(&pair);
    }
    RG_CHECK(capture_end(&capture, printed, sizeof(printed)) > 0);
    RG_CHECK_CONTAINS(printed, "credentials: ");
    RG_CHECK_CONTAINS(printed, "invalid_grant");
    RG_CHECK(strstr(printed, "hidden") == NULL);
}

static void test_the_endpoint_is_that_of_the_universe(void)
{
    static char file[4096];
    const struct rg_token_route route = {.path = "/token"};
    struct token_case tokens;
    char path[RG_TEST_PATH_SIZE];
    token_case_open(&tokens, &route, 1);
    snprintf(file, sizeof(file),
             "{\"type\":\"authorized_user\",\"client_id\":\"i\",\"client_secret\":\"s\","
             "\"refresh_token\":\"r\",\"token_uri\":\"%s/absent\",\"universe_domain\":"
             "\"cloud.invalid\"}",
             rg_token_server_url(tokens.server));
    rg_test_file_make(file, path);
    struct rg_test_client c = {.no_server = true, .options.credentials = path};
    rg_test_client_open(&c);
    rg_test_get(&c, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, CREDENTIALS);
    RG_CHECK_CONTAINS(done.detail, "get gs://bucket/object at https://storage.cloud.invalid: ");
    RG_CHECK_CONTAINS(done.detail, "/absent answered 404");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    unlink(path);
    token_case_close(&tokens);
}

/* What a core dump would hold is searched for the secrets, by a child that has never seen them but
 * through the client. The
 * search has them masked, so that it does not find itself. */
struct hunt {
    struct rg_scripted_server *storage;
    char ca_path[RG_TEST_PATH_SIZE], path[RG_TEST_PATH_SIZE], endpoint[128];
    int ready[2];
};

#define SECRETS_MASK 0x15
#define MAPPING_SIZE_MAX RG_MIB(512)

static bool memory_holds(const char *start, size_t size, const char *masked)
{
    size_t length = strlen(masked);
    for (const char *at = start; size >= length && at + length <= start + size; at++) {
        at = memchr(at, masked[0] ^ SECRETS_MASK, (size_t)(start + size - length + 1 - at));
        if (at == NULL) {
            return false;
        }
        size_t same = 0;
        while (same < length && at[same] == (masked[same] ^ SECRETS_MASK)) {
            same++;
        }
        if (same == length) {
            return true;
        }
    }
    return false;
}

struct mapping {
    const char *start;
    size_t size;
    bool dumped;
};

/* Mappings that the process may write in, and whether they would be dumped. */
static size_t mappings_read(struct mapping *mappings, size_t capacity)
{
    char line[512], access[8] = "";
    uintptr_t first, last;
    size_t count = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s ", &first, &last, access) == 3) {
            bool fits = access[0] == 'r' && access[1] == 'w' && last - first <= MAPPING_SIZE_MAX;
            if (fits && count < capacity) {
                mappings[count++] =
                    (struct mapping){.start = (const char *)first, .size = last - first};
            } else {
                access[0] = '-';
            }
        } else if (strncmp(line, "VmFlags:", 8) == 0 && access[0] == 'r' && count > 0) {
            mappings[count - 1].dumped = strstr(line, " dd") == NULL;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

/* 0: no dumped memory holds it, and some other does, so that the search is one. */
static int memory_search(const char *masked, bool expected)
{
    static struct mapping mappings[4096];
    size_t count = mappings_read(mappings, RG_ARRAY_LEN(mappings));
    bool elsewhere = false;
    for (size_t i = 0; i < count; i++) {
        bool holds = memory_holds(mappings[i].start, mappings[i].size, masked);
        if (holds && mappings[i].dumped) {
            return 10;
        }
        elsewhere = elsewhere || holds;
    }
    return expected && !elsewhere ? 11 : 0;
}

static int hunt_child(struct hunt *hunt, const char *token_masked, const char *refresh_masked)
{
    char byte;
    if (read(hunt->ready[0], &byte, 1) != 1) {
        return 1;
    }
    struct rg_test_client c = {.no_server = true,
                               .options = {.endpoint = hunt->endpoint,
                                           .ca_file = hunt->ca_path,
                                           .credentials = hunt->path}};
    rg_test_client_open(&c);
    for (unsigned i = 0; i < 3; i++) {
        rg_test_get(&c, &(struct rg_get){0});
        struct rg_completion done = rg_test_take(&c);
        if (done.status != RG_STATUS_OK) {
            printf("  %s\n", done.detail);
            return 2;
        }
        rg_lease_release(done.lease);
    }
    int rc = memory_search(token_masked, true);
    rc = rc != 0 ? rc : memory_search(refresh_masked, true);
    rg_test_client_close(&c);
    return rc != 0 ? rc : memory_search(token_masked, false);
}

static void storage_start(struct hunt *hunt, const struct token_case *tokens)
{
    static const struct rg_step *scripts[1];
    scripts[0] = object_script();
    struct rg_script_options options = {
        .scripts = scripts, .script_count = 1, .certificate = &tokens->leaf};
    hunt->storage = rg_scripted_server_start(&options);
    snprintf(hunt->endpoint, sizeof(hunt->endpoint), "https://localhost:%u",
             rg_scripted_server_port(hunt->storage));
}

static void test_what_a_core_dump_holds_has_no_secret(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("needle-token-#")};
    struct token_case tokens;
    struct hunt hunt = {0};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    rg_test_skip("a sanitizer keeps memory of its own, which cannot be searched");
#endif
    token_case_open(&tokens, &route, 1);
    storage_start(&hunt, &tokens);
    strcpy(hunt.ca_path, tokens.ca_path);
    rg_test_file_make("", hunt.path);
    RG_CHECK_EQ(pipe(hunt.ready), 0);
    pid_t child = fork();
    if (child == 0) {
        /* "needle-token-1" and "needle-refresh". */
        _exit(hunt_child(&hunt, "{ppqyp8az~p{8$", "{ppqyp8gpsgpf}"));
    }
    FILE *file = fopen(hunt.path, "we");
    fprintf(file,
            "{\"type\":\"authorized_user\",\"client_id\":\"i\",\"client_secret\":\"s\","
            "\"refresh_token\":\"needle-refresh\",\"token_uri\":\"%s/token\"}",
            rg_token_server_url(tokens.server));
    fclose(file);
    RG_CHECK_EQ(write(hunt.ready[1], "x", 1), 1);
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK(WIFEXITED(status));
    RG_CHECK_EQ(WEXITSTATUS(status), 0);
    close(hunt.ready[0]);
    close(hunt.ready[1]);
    unlink(hunt.path);
    rg_scripted_server_stop(hunt.storage);
    token_case_close(&tokens);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_requests_carry_the_token_and_the_quota_project),
        RG_TEST(test_many_requests_and_loops_wait_for_one_refresh),
        RG_TEST(test_clients_of_one_file_share_its_token),
        RG_TEST(test_an_expired_token_is_replaced_by_one_refresh),
        RG_TEST(test_a_storm_of_refusals_gives_one_refresh),
        RG_TEST(test_a_token_that_is_always_refused_is_asked_for_twice),
        RG_TEST(test_a_fixed_token_that_is_refused_is_not_sent_again),
        RG_TEST(test_a_revoked_grant_ends_all_requests_with_its_cause),
        RG_TEST(test_deadlines_and_cancellation_end_the_wait),
        RG_TEST(test_closing_while_requests_wait_for_a_token),
        RG_TEST(test_no_secret_is_logged),
        RG_TEST(test_the_endpoint_is_that_of_the_universe),
        RG_TEST(test_what_a_core_dump_holds_has_no_secret),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
