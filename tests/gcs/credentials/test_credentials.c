/* Sources of tokens: who gets them, the registry, the state machine seen by a bearer that the test
 * drives itself, forks, and what a process keeps in memory. */
#include "gcs/credentials/credentials.h"
#include "tests/gcs/credentials/token_case.h"
#include "tests/support/proxy.h"

#include <inttypes.h>
#include <pthread.h>
#include <sys/wait.h>

#define USER                                                                                       \
    "{\"type\":\"authorized_user\",\"client_id\":\"i\",\"client_secret\":\"s\",\"refresh_token\":" \
    "\"%s\",\"token_uri\":\"%s/token\"%s}"

#define EXTERNAL                                                                                   \
    "{\"type\":\"external_account\",\"audience\":\"//iam.googleapis.com/a\","                      \
    "\"subject_token_type\":\"urn:ietf:params:aws:token-type:aws4_request\",\"token_url\":"        \
    "\"https://sts.googleapis.com/v1/token\",\"credential_source\":{\"environment_id\":\"aws1\","  \
    "\"regional_cred_verification_url\":\"https://sts.{region}.amazonaws.com\"}}"

#define BEARER(token) "Authorization: Bearer " token "\r\n"

/* A source with a bearer on a loop that nobody drives: mail is looked at by the test. */
struct source {
    struct token_case tokens;
    char path[RG_TEST_PATH_SIZE];
    struct rg_credentials *credentials;
    struct rg_loop *loop;
    struct rg_bearer bearer;
    unsigned wakes;
};

static void wake(struct rg_bearer *bearer)
{
    RG_CONTAINER_OF(bearer, struct source, bearer)->wakes++;
}

static void source_open_through(struct source *source, const struct rg_token_route *route,
                                const char *more, const char *proxy)
{
    *source = (struct source){0};
    token_case_open(&source->tokens, route, 1);
    char file[1024], error[256];
    snprintf(file, sizeof(file), USER, "r", rg_token_server_url(source->tokens.server), more);
    rg_test_file_make(file, source->path);
    if (rg_credentials_open(&source->credentials,
                            &(struct rg_credentials_choice){
                                .credentials = source->path, .proxy = proxy, .sharing = "false"},
                            error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    struct rg_loop_options options = {.backend = &rg_epoll_backend};
    RG_CHECK_EQ(rg_loop_create(&source->loop, &options), 0);
    RG_CHECK_EQ(rg_loop_attach(source->loop), 0);
    rg_bearer_init(&source->bearer, source->credentials, source->loop, wake);
}

static void source_open(struct source *source, const struct rg_token_route *route, const char *more)
{
    source_open_through(source, route, more, NULL);
}

static void source_close(struct source *source)
{
    rg_bearer_fini(&source->bearer);
    rg_loop_pass(source->loop, 0);
    rg_credentials_unref(source->credentials);
    rg_loop_destroy(source->loop);
    token_case_close(&source->tokens);
    unlink(source->path);
}

/* Passes until the bearer is told of news. */
static void await_wake(struct source *source)
{
    uint64_t until_ns = rg_now_ns() + RG_TEST_PATIENCE_NS;
    unsigned before = source->wakes;
    while (source->wakes == before) {
        RG_CHECK(rg_now_ns() < until_ns);
        rg_loop_pass(source->loop, until_ns);
    }
}

static enum rg_bearer_state check_at(struct source *source, uint64_t ahead_ns)
{
    return rg_bearer_check(&source->bearer, rg_now_ns() + ahead_ns);
}

/* Waits until the server was asked so often. */
static void await_count(struct source *source, uint32_t count)
{
    RG_AWAIT(rg_token_server_count(source->tokens.server) >= count);
}

/* Waits for another token; until it comes the one before it is good. */
static void await_token(struct source *source, const char *field)
{
    for (uint64_t begun_ns = 0; strcmp(source->bearer.token->field, field) != 0;) {
        RG_CHECK(rg_test_go_on_waiting(&begun_ns));
        RG_CHECK_EQ(check_at(source, 0), RG_BEARER_READY);
    }
}

/* A source whose first answer is there. */
static void source_open_answered(struct source *source, const struct rg_token_route *route)
{
    source_open(source, route, "");
    RG_CHECK_EQ(check_at(source, 0), RG_BEARER_WAIT);
    await_wake(source);
}

/* The same, and it is a token. */
static void source_open_ready(struct source *source, const struct rg_token_route *route)
{
    source_open_answered(source, route);
    RG_CHECK_EQ(check_at(source, 0), RG_BEARER_READY);
}

static void test_a_token_is_renewed_ahead_of_its_end(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    struct source source;
    source_open_ready(&source, &route);
    RG_CHECK_STR(source.bearer.token->field, BEARER("t1"));
    /* Fresh until 225 s before its end. */
    RG_CHECK_EQ(check_at(&source, 3360 * RG_NS_PER_S), RG_BEARER_READY);
    RG_CHECK_EQ(rg_token_server_count(source.tokens.server), 1);
    /* Stale: sent still, and renewed beside it. */
    RG_CHECK_EQ(check_at(&source, 3400 * RG_NS_PER_S), RG_BEARER_READY);
    RG_CHECK_STR(source.bearer.token->field, BEARER("t1"));
    await_count(&source, 2);
    await_token(&source, BEARER("t2"));
    RG_CHECK_EQ(rg_token_server_count(source.tokens.server), 2);
    source_close(&source);
}

static void test_a_renewal_that_fails_is_tried_again_after_a_pause(void)
{
    /* 400 is answered at once, without the tries that a server in need gets. */
    const struct rg_token_route route = {
        .path = "/token", .body = TOKEN_ANSWER("t#"), .fail_first = 0};
    struct source source;
    source_open_answered(&source, &route);
    rg_token_server_fail(source.tokens.server, 400);
    RG_CHECK_EQ(check_at(&source, 3400 * RG_NS_PER_S), RG_BEARER_READY);
    await_count(&source, 2);
    char text[512] = "";
    /* The pause is by the real clock, so that now it is not yet over: nobody is asked. */
    for (unsigned i = 0; i < 20; i++) {
        RG_CHECK_EQ(check_at(&source, 0), RG_BEARER_READY);
    }
    rg_token_server_fail(source.tokens.server, 0);
    /* A minute after the failure, which is there some time after the server has answered, it is. */
    RG_AWAIT(check_at(&source, 60 * RG_NS_PER_S) == RG_BEARER_READY &&
             rg_token_server_count(source.tokens.server) >= 3);
    await_token(&source, BEARER("t3"));
    RG_CHECK_EQ(rg_token_server_count(source.tokens.server), 3);
    RG_CHECK(rg_credentials_text_write(source.credentials, text, sizeof(text)) > 0);
    RG_CHECK_CONTAINS(text, "token valid for");
    source_close(&source);
}

static void test_a_failure_is_remembered_for_a_while(void)
{
    const struct rg_token_route route = {
        .path = "/token", .status = 400, .body = "{\"error\":\"invalid_grant\"}"};
    struct source source;
    source_open_answered(&source, &route);
    for (unsigned i = 0; i < 10; i++) {
        RG_CHECK_EQ(check_at(&source, 0), RG_BEARER_FAILED);
        RG_CHECK_CONTAINS(source.bearer.failure, "invalid_grant");
    }
    RG_CHECK_EQ(rg_token_server_count(source.tokens.server), 1);
    RG_CHECK_EQ(check_at(&source, 11 * RG_NS_PER_S), RG_BEARER_WAIT);
    await_wake(&source);
    RG_CHECK_EQ(rg_token_server_count(source.tokens.server), 2);
    source_close(&source);
}

static void test_a_refused_token_is_given_up_once(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    struct source source;
    source_open_ready(&source, &route);
    uint64_t version = source.bearer.version;
    RG_CHECK(rg_bearer_reject(&source.bearer, version, rg_now_ns()));
    /* The others that were refused with it find it replaced. */
    RG_CHECK(rg_bearer_reject(&source.bearer, version, rg_now_ns()));
    RG_CHECK_EQ(check_at(&source, 0), RG_BEARER_WAIT);
    await_wake(&source);
    RG_CHECK_EQ(check_at(&source, 0), RG_BEARER_READY);
    RG_CHECK_STR(source.bearer.token->field, BEARER("t2"));
    RG_CHECK(rg_bearer_reject(&source.bearer, version, rg_now_ns()));
    RG_CHECK_STR(source.bearer.token->field, BEARER("t2"));
    /* The new one is refused as well: not for the same reason again so soon. */
    version = source.bearer.version;
    RG_CHECK(!rg_bearer_reject(&source.bearer, version, rg_now_ns()));
    RG_CHECK(rg_bearer_reject(&source.bearer, version, rg_now_ns() + 11 * RG_NS_PER_S));
    RG_CHECK_EQ(rg_token_server_count(source.tokens.server), 2);
    source_close(&source);
}

static void test_a_server_in_need_is_asked_three_times(void)
{
    const struct rg_token_route route = {
        .path = "/token", .body = TOKEN_ANSWER("t#"), .fail_first = 2, .fail_status = 503};
    struct source source;
    source_open_ready(&source, &route);
    RG_CHECK_STR(source.bearer.token->field, BEARER("t3"));
    source_close(&source);
}

static void test_one_source_for_one_file_and_scope(void)
{
    const struct rg_token_route route = {.path = "/token"};
    struct rg_credentials *same = NULL, *scoped = NULL, *payer = NULL;
    char error[256];
    struct source source;
    source_open(&source, &route, "");
    RG_CHECK_EQ(rg_credentials_open(&same,
                                    &(struct rg_credentials_choice){.credentials = source.path,
                                                                    .scope = "",
                                                                    .sharing = "false"},
                                    error, sizeof(error)),
                0);
    RG_CHECK_EQ(rg_credentials_open(&scoped,
                                    &(struct rg_credentials_choice){.credentials = source.path,
                                                                    .scope = "x",
                                                                    .sharing = "false"},
                                    error, sizeof(error)),
                0);
    setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "by-environment", 1);
    RG_CHECK_EQ(rg_credentials_open(
                    &payer,
                    &(struct rg_credentials_choice){.credentials = source.path, .sharing = "false"},
                    error, sizeof(error)),
                0);
    unsetenv("GOOGLE_CLOUD_QUOTA_PROJECT");
    RG_CHECK(same == source.credentials);
    RG_CHECK(scoped != same && payer != same);
    RG_CHECK_STR(rg_credentials_quota_project(payer), "by-environment");
    RG_CHECK(rg_credentials_quota_project(same) == NULL);
    rg_credentials_unref(same);
    rg_credentials_unref(scoped);
    rg_credentials_unref(payer);
    rg_credentials_unref(NULL);
    source_close(&source);
}

/* They are those inside, under impersonation. */
static void test_what_the_environment_says_of_an_account_makes_another_source(void)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN", "AWS_REGION"};
    static const char *const files[] = {
        EXTERNAL,
        "{\"type\":\"impersonated_service_account\",\"source_credentials\":" EXTERNAL
        ",\"service_account_impersonation_url\":\"https://iamcredentials.googleapis.com/"
        "v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com:generateAccessToken\"}"};
    for (size_t i = 0; i < RG_ARRAY_LEN(files) * RG_ARRAY_LEN(names); i++) {
        const char *name = names[i % RG_ARRAY_LEN(names)];
        struct rg_credentials *before = NULL, *after = NULL;
        char path[RG_TEST_PATH_SIZE], error[256];
        rg_test_file_make(files[i / RG_ARRAY_LEN(names)], path);
        struct rg_credentials_choice choice = {.credentials = path};
        RG_CHECK_EQ(rg_credentials_open(&before, &choice, error, sizeof(error)), 0);
        setenv(name, "1", 1);
        RG_CHECK_EQ(rg_credentials_open(&after, &choice, error, sizeof(error)), 0);
        unsetenv(name);
        RG_CHECK(before != after);
        rg_credentials_unref(before);
        rg_credentials_unref(after);
        unlink(path);
    }
}

/* The proxy that a client is given is for its token server too, and for that client only. */
static void test_the_clients_proxy(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    struct rg_test_proxy *proxy = rg_test_proxy_start(&(struct rg_test_proxy_options){0});
    char url[64], head[512], error[256];
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", rg_test_proxy_port(proxy));
    struct source source;
    source_open_through(&source, &route, "", url);
    RG_CHECK_EQ(check_at(&source, 0), RG_BEARER_WAIT);
    await_wake(&source);
    RG_CHECK_EQ(check_at(&source, 0), RG_BEARER_READY);
    RG_CHECK_EQ(rg_test_proxy_connections(proxy), 1);
    rg_test_proxy_head(proxy, head, sizeof(head));
    RG_CHECK_CONTAINS(head, "CONNECT localhost:");
    struct rg_credentials *direct = NULL;
    struct rg_credentials_choice choice = {.credentials = source.path, .proxy = ""};
    RG_CHECK_EQ(rg_credentials_open(&direct, &choice, error, sizeof(error)), 0);
    RG_CHECK(direct != source.credentials);
    rg_credentials_unref(direct);
    source_close(&source);
    rg_test_proxy_stop(proxy);
}

static void test_files_that_are_refused(void)
{
    struct rg_credentials *credentials = NULL;
    char error[256] = "", path[RG_TEST_PATH_SIZE];
    RG_CHECK_EQ(rg_credentials_open(&credentials,
                                    &(struct rg_credentials_choice){.credentials = "/nowhere"},
                                    error, sizeof(error)),
                -ENOENT);
    RG_CHECK_CONTAINS(error, "/nowhere");
    rg_test_file_make("{}", path);
    RG_CHECK_EQ(rg_credentials_open(&credentials,
                                    &(struct rg_credentials_choice){.credentials = path}, error,
                                    sizeof(error)),
                -EINVAL);
    RG_CHECK_CONTAINS(error, "field \"type\" is missing");
    RG_CHECK(credentials == NULL);
    unlink(path);
}

static void test_who_sends_credentials(void)
{
    static const struct {
        struct rg_client_options options;
        const char *emulator, *universe;
        bool want;
    } rows[] = {
        {.want = true},
        {.options.credentials = "", .want = true},
        {.options.credentials = "anonymous", .want = false},
        {.options.token = "t", .want = false},
        {.options.token = "t", .options.credentials = "/f", .want = false},
        {.emulator = "localhost:1", .want = false},
        {.emulator = "localhost:1", .options.credentials = "/f", .want = false},
        {.emulator = "", .want = true},
        {.emulator = "localhost:1",
         .options.endpoint = "https://storage.googleapis.com",
         .want = true},
        {.options.endpoint = "https://storage.us.rep.googleapis.com", .want = true},
        {.options.endpoint = "http://storage.googleapis.com", .want = false},
        {.options.endpoint = "https://evilgoogleapis.com", .want = false},
        {.options.endpoint = "https://localhost:1", .want = false},
        {.options.endpoint = "https://localhost:1", .options.credentials = "/f", .want = true},
        {.options.endpoint = "https://localhost:1", .options.credentials = "default", .want = true},
        {.options.endpoint = "https://storage.cloud.example", .want = false},
        {.options.endpoint = "https://storage.cloud.example",
         .universe = "cloud.example",
         .want = true},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        unsetenv("STORAGE_EMULATOR_HOST");
        unsetenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN");
        if (rows[i].emulator != NULL) {
            setenv("STORAGE_EMULATOR_HOST", rows[i].emulator, 1);
        }
        if (rows[i].universe != NULL) {
            setenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN", rows[i].universe, 1);
        }
        if (rg_credentials_wanted(&rows[i].options) != rows[i].want) {
            rg_test_fail(__FILE__, __LINE__, "row %zu", i);
        }
    }
    unsetenv("STORAGE_EMULATOR_HOST");
    unsetenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN");
}

/* A refresh by the child, of the file that its parent has open. What it exits with. */
static int child_refresh(const struct source *parent)
{
    struct source mine = {0};
    char error[256];
    struct rg_loop_options options = {.backend = &rg_epoll_backend};
    if (rg_credentials_open(&mine.credentials,
                            &(struct rg_credentials_choice){.credentials = parent->path}, error,
                            sizeof(error)) < 0 ||
        mine.credentials == parent->credentials) {
        return 1;
    }
    if (rg_loop_create(&mine.loop, &options) < 0 || rg_loop_attach(mine.loop) < 0) {
        return 2;
    }
    rg_bearer_init(&mine.bearer, mine.credentials, mine.loop, wake);
    if (check_at(&mine, 0) != RG_BEARER_WAIT) {
        return 3;
    }
    uint64_t until_ns = rg_now_ns() + RG_TEST_PATIENCE_NS;
    while (mine.wakes == 0 && rg_now_ns() < until_ns) {
        rg_loop_pass(mine.loop, until_ns);
    }
    int rc = check_at(&mine, 0) == RG_BEARER_READY ? 0 : 4;
    rg_bearer_fini(&mine.bearer);
    rg_credentials_unref(mine.credentials);
    rg_loop_destroy(mine.loop);
    return rc;
}

static void test_a_forked_child_begins_anew(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    struct source source;
#ifdef __SANITIZE_THREAD__
    rg_test_skip("ThreadSanitizer allows a forked child no threads");
#endif
    source_open(&source, &route, "");
    pid_t child = fork();
    if (child == 0) {
        _exit(child_refresh(&source));
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK(WIFEXITED(status));
    RG_CHECK_EQ(WEXITSTATUS(status), 0);
    /* The parent has nothing of it. */
    RG_CHECK_EQ(check_at(&source, 0), RG_BEARER_WAIT);
    await_wake(&source);
    RG_CHECK_EQ(check_at(&source, 0), RG_BEARER_READY);
    RG_CHECK_STR(source.bearer.token->field, BEARER("t2"));
    source_close(&source);
}

static void test_closing_during_a_refresh(void)
{
    const struct rg_token_route route = {.path = "/token", .hold = true};
    struct source source;
    source_open(&source, &route, "");
    RG_CHECK_EQ(check_at(&source, 0), RG_BEARER_WAIT);
    await_count(&source, 1);
    uint64_t begin_ns = rg_now_ns();
    source_close(&source);
    RG_CHECK(rg_now_ns() - begin_ns < 10 * RG_NS_PER_S);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_token_is_renewed_ahead_of_its_end),
        RG_TEST(test_a_renewal_that_fails_is_tried_again_after_a_pause),
        RG_TEST(test_a_failure_is_remembered_for_a_while),
        RG_TEST(test_a_refused_token_is_given_up_once),
        RG_TEST(test_a_server_in_need_is_asked_three_times),
        RG_TEST(test_one_source_for_one_file_and_scope),
        RG_TEST(test_what_the_environment_says_of_an_account_makes_another_source),
        RG_TEST(test_the_clients_proxy),
        RG_TEST(test_files_that_are_refused),
        RG_TEST(test_who_sends_credentials),
        RG_TEST(test_a_forked_child_begins_anew),
        RG_TEST(test_closing_during_a_refresh),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
