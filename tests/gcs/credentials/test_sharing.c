/* Tokens for a host of processes. Most cases are one process that plays several, a refresh at a
 * time. Then real processes, which are this program under the name "--child" and do what they are
 * told by a pipe. */
#include "gcs/credentials/credentials.h"
#include "gcs/host/note.h"
#include "gcs/wire/digest.h"
#include "tests/gcs/credentials/token_case.h"
#include "tests/gcs/host/region_case.h"
#include "tests/support/seccomp.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define USER                                                                                       \
    "{\"type\":\"authorized_user\",\"client_id\":\"i\",\"client_secret\":\"s\",\"refresh_token\":" \
    "\"r\",\"token_uri\":\"$/token\"}"
#define PROCESSES 32
#define LINE_SIZE 512

static const uint8_t hash[RG_SHA256_SIZE] = {1, 2, 3};

struct sharing_case {
    struct token_case tokens;
    struct region_case region;
    struct rg_sharing sharing;
};

static void case_open(struct sharing_case *c, const struct rg_token_route *route, const char *file)
{
    region_case_open(&c->region);
    token_case_open(&c->tokens, route, 1);
    token_case_file(&c->tokens, file);
    c->sharing = (struct rg_sharing){
        .folder = c->region.folder, .hash = hash, .patience_ns = RG_TEST_PATIENCE_NS};
}

static void case_close(struct sharing_case *c)
{
    token_case_close(&c->tokens);
    region_case_close(&c->region);
}

static void run_begin(struct rg_credentials_run *run)
{
    *run = (struct rg_credentials_run){0};
    RG_CHECK_EQ(rg_fetcher_init(&run->fetcher, rg_now_ns() + RG_TEST_PATIENCE_NS), 0);
    run->fetcher.backoff_ns = RG_NS_PER_MS;
    RG_CHECK_EQ(rg_secret_arena_init(&run->arena, RG_MIB(4)), 0);
}

static void run_end(struct rg_credentials_run *run)
{
    rg_secret_arena_fini(&run->arena);
    rg_fetcher_fini(&run->fetcher);
}

/* A refresh as another process would do it. */
static int obtain(struct sharing_case *c)
{
    run_end(&c->tokens.run);
    run_begin(&c->tokens.run);
    return rg_sharing_obtain(&c->sharing, &c->tokens.run, c->tokens.config, &c->tokens.token);
}

static void expect(struct sharing_case *c, const char *token, bool taken)
{
    if (obtain(c) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", c->tokens.run.text);
    }
    RG_CHECK_STR(c->tokens.token.text, token);
    RG_CHECK_EQ(c->sharing.taken, taken);
    RG_CHECK(c->tokens.token.stale_ns > rg_now_ns());
}

static uint32_t asked(const struct sharing_case *c)
{
    return rg_token_server_count(c->tokens.server);
}

static void test_the_second_takes_what_the_first_was_given(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    struct sharing_case c;
    case_open(&c, &route, USER);
    expect(&c, "t1", false);
    uint64_t stale_ns = c.tokens.token.stale_ns, expires_ns = c.tokens.token.expires_ns;
    RG_CHECK_EQ(expires_ns - stale_ns, RG_TOKEN_STALE_NS);
    expect(&c, "t1", true);
    RG_CHECK_EQ(c.tokens.token.stale_ns, stale_ns);
    RG_CHECK_EQ(c.tokens.token.expires_ns, expires_ns);
    RG_CHECK_CONTAINS(c.sharing.text, "shared in /dev/shm/ringest-test-");
    /* Other credentials. */
    static const uint8_t other[RG_SHA256_SIZE] = {9};
    c.sharing.hash = other;
    expect(&c, "t2", false);
    c.sharing.hash = hash;
    expect(&c, "t1", true);
    /* Who does not share. */
    c.sharing.folder = NULL;
    expect(&c, "t3", false);
    RG_CHECK_STR(c.sharing.text, "");
    case_close(&c);
}

static void test_a_refused_token_is_not_given_out_again(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    uint8_t refused[RG_TOKEN_DIGEST_SIZE];
    struct sharing_case c;
    case_open(&c, &route, USER);
    expect(&c, "t1", false);
    rg_token_digest("t1", refused);
    c.sharing.refused = refused;
    expect(&c, "t2", false);
    /* The others that were refused with it, and one that was not. */
    expect(&c, "t2", true);
    c.sharing.refused = NULL;
    expect(&c, "t2", true);
    case_close(&c);
}

/* Metadata servers keep their tokens, and may give the same one again. */
static void test_a_refused_token_is_not_noted_again(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("same")};
    uint8_t refused[RG_TOKEN_DIGEST_SIZE];
    struct sharing_case c;
    case_open(&c, &route, USER);
    expect(&c, "same", false);
    rg_token_digest("same", refused);
    c.sharing.refused = refused;
    expect(&c, "same", false);
    c.sharing.refused = NULL;
    expect(&c, "same", false);
    expect(&c, "same", false);
    RG_CHECK_EQ(asked(&c), 4);
    case_close(&c);
}

/* The key of a note for credentials that are known by their file. */
static void key_make(struct rg_note_key *out_key)
{
    static const char *const paths[] = {"/proc/self/timens_offsets",
                                        "/proc/sys/kernel/random/boot_id"};
    uint8_t secret[RG_SHA256_SIZE];
    memcpy(secret, hash, sizeof(hash));
    for (size_t i = 0; i < RG_ARRAY_LEN(paths); i++) {
        char text[256];
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        ssize_t size = fd >= 0 ? read(fd, text, sizeof(text)) : 0;
        close(fd);
        if (size > 0) {
            rg_hmac_sha256(secret, sizeof(secret), text, (size_t)size, secret);
        }
    }
    rg_note_key_derive(out_key, secret);
}

static void test_notes_that_are_not_taken(void)
{
    static const struct {
        const char *text;
        int64_t made_s, stale_s, expires_s; /* from now on */
        enum rg_note_kind kind;
        bool taken;
    } rows[] = {
        {"n", -1, 100, 200, RG_NOTE_TOKEN, true},
        {"n", -1, -1, 200, RG_NOTE_TOKEN, false},
        {"n", -1, 100, -1, RG_NOTE_TOKEN, false},
        {"n", 10, 100, 200, RG_NOTE_TOKEN, false},   /* of a clock that is ahead of ours */
        {"n", -1, 100, 50000, RG_NOTE_TOKEN, false}, /* for longer than tokens live */
        {"n", -1, 100, 200, RG_NOTE_REFUSED, false}, /* no digest */
        {"n n", -1, 100, 200, RG_NOTE_TOKEN, false}, /* would end the header field */
        {"n\r\nx", -1, 100, 200, RG_NOTE_TOKEN, false},
        {"", -1, 100, 200, RG_NOTE_TOKEN, false},
    };
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t")};
    struct sharing_case c;
    case_open(&c, &route, USER);
    struct rg_host_region region = region_case_get(&c.region);
    struct rg_note_key key;
    key_make(&key);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        static struct rg_note note;
        uint64_t now_ns = rg_now_ns();
        note = (struct rg_note){
            .made_ns = now_ns + (uint64_t)rows[i].made_s * RG_NS_PER_S,
            .stale_ns = now_ns + (uint64_t)rows[i].stale_s * RG_NS_PER_S,
            .expires_ns = now_ns + (uint64_t)rows[i].expires_s * RG_NS_PER_S,
            .kind = rows[i].kind,
            .text_size = (uint32_t)strlen(rows[i].text),
        };
        strcpy(note.text, rows[i].text);
        RG_CHECK_EQ(rg_note_write(&region, &key, &note), 0);
        RG_CHECK_EQ(obtain(&c), 0);
        if (c.sharing.taken != rows[i].taken) {
            rg_test_fail(__FILE__, __LINE__, "row %zu", i);
        }
    }
    rg_host_region_close(&region);
    case_close(&c);
}

static void test_a_region_that_is_not_used(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    struct sharing_case c;
    case_open(&c, &route, USER);
    expect(&c, "t1", false);
    RG_CHECK_EQ(chmod(c.region.path, 0644), 0);
    expect(&c, "t2", false);
    RG_CHECK_CONTAINS(c.sharing.text, "not shared: ");
    RG_CHECK_CONTAINS(c.sharing.text, "mode 0644");
    RG_CHECK_EQ(chmod(c.region.path, 0600), 0);
    expect(&c, "t1", true);
    RG_CHECK_EQ(unlink(c.region.path), 0);
    expect(&c, "t3", false);
    expect(&c, "t3", true);
    c.sharing.folder = "/nowhere/at/all";
    expect(&c, "t4", false);
    RG_CHECK_CONTAINS(c.sharing.text, "/nowhere/at/all");
    case_close(&c);
}

#define EXTERNAL(source)                                                                           \
    "{\"type\":\"external_account\",\"audience\":\"a\",\"subject_token_type\":"                    \
    "\"urn:ietf:params:oauth:token-type:jwt\",\"token_url\":\"$/token\",\"credential_source\":"    \
    "{" source "}}"
#define IMPERSONATED(source)                                                                       \
    "{\"type\":\"impersonated_service_account\",\"service_account_impersonation_url\":"            \
    "\"$/v1/a@b:generateAccessToken\",\"source_credentials\":" source "}"
#define FROM_FILE EXTERNAL("\"file\":\"%s\"")
#define FROM_URL EXTERNAL("\"url\":\"$/subject\"")
#define FROM_PROGRAM EXTERNAL("\"executable\":{\"command\":\"/bin/true\"}")
#define FROM_AWS                                                                                   \
    EXTERNAL("\"environment_id\":\"aws1\",\"regional_cred_verification_url\":\"$/{region}\"")
#define FROM_CERTIFICATE EXTERNAL("\"certificate\":{\"certificate_config_location\":\"/none\"}")

/* Their files contain no secret: who may have a token is known only by asking for it. */
static void test_external_accounts_are_not_shared(void)
{
    static const char *const files[] = {
        FROM_FILE,
        FROM_URL,
        FROM_PROGRAM,
        FROM_AWS,
        FROM_CERTIFICATE,
        IMPERSONATED(FROM_FILE),
        IMPERSONATED(FROM_URL),
        IMPERSONATED(FROM_PROGRAM),
        IMPERSONATED(FROM_AWS),
        IMPERSONATED(FROM_CERTIFICATE),
    };
    const struct rg_token_route route = {.path = "/subject", .body = "s"};
    char path[RG_TEST_PATH_SIZE], text[1024];
    rg_test_file_make("subject", path);
    for (size_t i = 0; i < RG_ARRAY_LEN(files); i++) {
        const char *at = strstr(files[i], "%s");
        snprintf(text, sizeof(text), at != NULL ? "%.*s%s%s" : "%.*s",
                 at != NULL ? (int)(at - files[i]) : (int)strlen(files[i]), files[i], path,
                 at != NULL ? at + 2 : "");
        struct sharing_case c;
        case_open(&c, &route, text);
        RG_CHECK(obtain(&c) < 0);
        RG_CHECK_CONTAINS(c.sharing.text, "not shared: the file of an external account");
        RG_CHECK(access(c.region.path, F_OK) < 0);
        case_close(&c);
    }
    unlink(path);
}

/* What the file of the account says is read again by each process. */
static void test_a_subject_token_is_ones_own(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    char path[RG_TEST_PATH_SIZE], text[1024];
    rg_test_file_make("subject", path);
    snprintf(text, sizeof(text), EXTERNAL("\"file\":\"%s\""), path);
    struct sharing_case c;
    case_open(&c, &route, text);
    expect(&c, "t1", false);
    expect(&c, "t2", false);
    case_close(&c);
    unlink(path);
}

/* Its tokens are shared where it is known in which container this is. */
static void test_a_metadata_server(void)
{
    const struct rg_token_route route = {.path = "/token"};
    struct statx root;
    struct sharing_case c;
    case_open(&c, &route, USER);
    setenv("GCE_METADATA_HOST", "127.0.0.1:1", 1);
    c.tokens.config = rg_credentials_from_metadata(&c.tokens.reader);
    unsetenv("GCE_METADATA_HOST");
    RG_CHECK(c.tokens.config != NULL);
    RG_CHECK_EQ(statx(AT_FDCWD, "/", 0, STATX_BTIME, &root), 0);
    bool known = (root.stx_mask & STATX_BTIME) != 0 && root.stx_btime.tv_sec != 0;
    RG_CHECK(obtain(&c) < 0);
    RG_CHECK_CONTAINS(c.sharing.text,
                      known ? "shared in " : "not shared: it cannot be told which container");
    case_close(&c);
}

static void test_who_hangs_is_not_waited_for_long(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    struct sharing_case c;
    struct rg_note_key key;
    case_open(&c, &route, USER);
    c.sharing.patience_ns = 20 * RG_NS_PER_MS;
    key_make(&key);
    struct rg_host_region region = region_case_get(&c.region);
    RG_CHECK_EQ(rg_host_region_lock(&region, key.lock), 0);
    expect(&c, "t1", false);
    /* What it noted is there for all. */
    expect(&c, "t1", true);
    rg_host_region_close(&region);
    case_close(&c);
}

/* A process that is stopped while it writes a note: others go without one. */
static void test_a_writer_that_is_stopped_holds_up_nobody(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    uint8_t refused[RG_TOKEN_DIGEST_SIZE];
    struct sharing_case c;
    case_open(&c, &route, USER);
    expect(&c, "t1", false);
    struct rg_host_region region = region_case_get(&c.region);
    RG_CHECK_EQ(rg_host_region_lock(&region, 0), 0);
    expect(&c, "t1", true);
    rg_token_digest("t1", refused);
    c.sharing.refused = refused;
    expect(&c, "t2", false);
    expect(&c, "t3", false);
    rg_host_region_close(&region);
    expect(&c, "t4", false);
    expect(&c, "t4", true);
    case_close(&c);
}

/* A refresh on a thread, as another process. */
struct other {
    struct sharing_case *c;
    struct rg_sharing sharing;
    struct rg_credentials_run run;
    struct rg_token_out token;
    pthread_t thread;
    _Atomic pid_t number;
    int rc;
};

static void *other_main(void *context)
{
    struct other *other = context;
    run_begin(&other->run);
    atomic_store(&other->number, gettid());
    other->rc =
        rg_sharing_obtain(&other->sharing, &other->run, other->c->tokens.config, &other->token);
    return NULL;
}

static void other_start(struct other *other, struct sharing_case *c)
{
    *other = (struct other){.c = c, .sharing = c->sharing};
    RG_CHECK_EQ(pthread_create(&other->thread, NULL, other_main, other), 0);
    RG_AWAIT(atomic_load(&other->number) != 0);
}

static void other_await(struct other *other)
{
    RG_CHECK_EQ(pthread_join(other->thread, NULL), 0);
}

/* It may have another proxy, other certificates, or another network. */
static void test_a_failure_is_ones_own(void)
{
    const struct rg_token_route route = {.path = "/token",
                                         .body = TOKEN_ANSWER("t#"),
                                         .fail_first = 1,
                                         .fail_status = 400,
                                         .hold = true};
    struct sharing_case c;
    struct other first, second;
    case_open(&c, &route, USER);
    other_start(&first, &c);
    RG_AWAIT(asked(&c) == 1);
    other_start(&second, &c);
    rg_test_await_asleep(second.number);
    rg_token_server_release(c.tokens.server);
    other_await(&first);
    other_await(&second);
    RG_CHECK(first.rc < 0);
    RG_CHECK_EQ(second.rc, 0);
    RG_CHECK_STR(second.token.text, "t2");
    expect(&c, "t2", true);
    run_end(&first.run);
    run_end(&second.run);
    case_close(&c);
}

/* Not one after another, each of which might fail slowly. */
static void test_all_that_waited_for_nothing_ask_at_once(void)
{
    const struct rg_token_route route = {
        .path = "/token", .body = TOKEN_ANSWER("t#"), .hold = true};
    struct sharing_case c;
    struct other others[3];
    struct rg_note_key key;
    case_open(&c, &route, USER);
    c.sharing.patience_ns = 10 * RG_TEST_PATIENCE_NS;
    key_make(&key);
    struct rg_host_region region = region_case_get(&c.region);
    RG_CHECK_EQ(rg_host_region_lock(&region, key.lock), 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        other_start(&others[i], &c);
        rg_test_await_asleep(others[i].number);
    }
    rg_host_region_close(&region);
    RG_AWAIT(asked(&c) == RG_ARRAY_LEN(others));
    rg_token_server_release(c.tokens.server);
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        other_await(&others[i]);
        RG_CHECK_EQ(others[i].rc, 0);
        run_end(&others[i].run);
    }
    case_close(&c);
}

static void *lockless_main(void *context)
{
    return rg_test_forbid_locks(EINVAL) < 0 ? NULL : other_main(context);
}

/* As in a sandbox whose kernel does not know them. */
static void test_without_locks_each_asks_at_once(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    struct sharing_case c;
    struct other other;
    case_open(&c, &route, USER);
    other = (struct other){.c = &c, .sharing = c.sharing};
    RG_CHECK_EQ(pthread_create(&other.thread, NULL, lockless_main, &other), 0);
    other_await(&other);
    if (atomic_load(&other.number) == 0) {
        case_close(&c);
        rg_test_skip("there is no seccomp");
    }
    RG_CHECK_EQ(other.rc, 0);
    RG_CHECK_STR(other.token.text, "t1");
    RG_CHECK_CONTAINS(other.sharing.text, "not shared: ");
    RG_CHECK_CONTAINS(other.sharing.text, "cannot be locked: Invalid argument");
    run_end(&other.run);
    case_close(&c);
}

static void test_waiting_can_be_cancelled(void)
{
    const struct rg_token_route route = {
        .path = "/token", .body = TOKEN_ANSWER("t#"), .hold = true};
    struct sharing_case c;
    struct other first, second;
    case_open(&c, &route, USER);
    other_start(&first, &c);
    RG_AWAIT(asked(&c) == 1);
    other_start(&second, &c);
    rg_fetcher_cancel(&second.run.fetcher);
    other_await(&second);
    RG_CHECK(second.rc < 0);
    RG_CHECK_CONTAINS(second.run.text, "cancelled");
    run_end(&second.run);
    /* And asking; others are not told. */
    other_start(&second, &c);
    rg_fetcher_cancel(&first.run.fetcher);
    other_await(&first);
    RG_CHECK(first.rc < 0);
    RG_AWAIT(asked(&c) == 2);
    rg_token_server_release(c.tokens.server);
    other_await(&second);
    RG_CHECK_EQ(second.rc, 0);
    RG_CHECK_STR(second.token.text, "t2");
    run_end(&first.run);
    run_end(&second.run);
    case_close(&c);
}

/* What a child is: a source with one bearer. */
struct source {
    struct rg_credentials *credentials;
    struct rg_loop *loop;
    struct rg_bearer bearer;
};

static void nothing(struct rg_bearer *bearer)
{
    (void)bearer;
}

/* Says the token, or why there is none. */
static void source_say(struct source *source)
{
    enum rg_bearer_state state;
    while ((state = rg_bearer_check(&source->bearer, rg_now_ns())) == RG_BEARER_WAIT) {
        rg_loop_pass(source->loop, UINT64_MAX);
    }
    if (state == RG_BEARER_READY) {
        printf("%s", source->bearer.token->field + strlen("Authorization: "));
    } else {
        printf("failed: %s\n", source->bearer.failure);
    }
    fflush(stdout);
}

static void source_describe(struct source *source)
{
    char text[LINE_SIZE];
    rg_credentials_text_write(source->credentials, text, sizeof(text));
    printf("%s\n", strstr(text, " s, ") != NULL ? strstr(text, " s, ") + 4 : text);
    fflush(stdout);
}

/* Opens the file, and does what standard input says until that ends. */
static int child_main(const char *path)
{
    struct source source = {0};
    char line[LINE_SIZE];
    struct rg_loop_options options = {.backend = &rg_epoll_backend};
    struct rg_credentials_choice choice = {.credentials = path,
                                           .sharing = getenv("RINGEST_SHARING"),
                                           .sharing_patience_ns = RG_TEST_PATIENCE_NS};
    if (rg_credentials_open(&source.credentials, &choice, line, sizeof(line)) < 0 ||
        rg_loop_create(&source.loop, &options) < 0 || rg_loop_attach(source.loop) < 0) {
        return 1;
    }
    rg_bearer_init(&source.bearer, source.credentials, source.loop, nothing);
    printf("open\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strcmp(line, "reject\n") == 0) {
            rg_bearer_reject(&source.bearer, source.bearer.version, rg_now_ns());
        }
        if (strcmp(line, "describe\n") == 0) {
            source_describe(&source);
        } else {
            source_say(&source);
        }
    }
    rg_bearer_fini(&source.bearer);
    rg_loop_pass(source.loop, 0);
    rg_credentials_unref(source.credentials);
    rg_loop_destroy(source.loop);
    return 0;
}

struct child {
    pid_t pid;
    FILE *to, *from;
};

/* The processes of one case, and what they share. */
struct host {
    struct token_case tokens;
    struct region_case region;
    char path[RG_TEST_PATH_SIZE];
};

static void host_open(struct host *host, const struct rg_token_route *route)
{
    *host = (struct host){0};
    region_case_open(&host->region);
    token_case_open(&host->tokens, route, 1);
    token_case_file(&host->tokens, USER);
    rg_test_file_make(host->tokens.file, host->path);
    setenv("RINGEST_SHARING", host->region.folder, 1);
}

static void host_close(struct host *host)
{
    setenv("RINGEST_SHARING", "0", 1);
    unlink(host->path);
    token_case_close(&host->tokens);
    region_case_close(&host->region);
}

static uint32_t requests(const struct host *host)
{
    return rg_token_server_count(host->tokens.server);
}

static void child_start(struct child *child, const struct host *host)
{
    int in[2], out[2];
    const char *arguments[] = {"/proc/self/exe", "--child", host->path, NULL};
    posix_spawn_file_actions_t actions;
    RG_CHECK_EQ(pipe2(in, O_CLOEXEC), 0);
    RG_CHECK_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    RG_CHECK_EQ(
        posix_spawn(&child->pid, arguments[0], &actions, NULL, (char *const *)arguments, environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    child->to = fdopen(in[1], "w");
    child->from = fdopen(out[0], "r");
}

static void child_tell(struct child *child, const char *what)
{
    fprintf(child->to, "%s\n", what);
    fflush(child->to);
}

static void child_expect(struct child *child, const char *want)
{
    char line[LINE_SIZE] = "";
    RG_CHECK(fgets(line, sizeof(line), child->from) != NULL);
    line[strcspn(line, "\r\n")] = '\0';
    RG_CHECK_STR(line, want);
}

/* One that is there. */
static void child_open(struct child *child, const struct host *host)
{
    child_start(child, host);
    child_expect(child, "open");
}

static void child_end(struct child *child, int want)
{
    int status = 0;
    fclose(child->to);
    RG_CHECK_EQ(waitpid(child->pid, &status, 0), child->pid);
    fclose(child->from);
    RG_CHECK_EQ(status, want);
}

static void test_of_32_processes_one_asks(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    struct host host;
    struct child children[PROCESSES];
    host_open(&host, &route);
    for (unsigned i = 0; i < PROCESSES; i++) {
        child_start(&children[i], &host);
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        child_expect(&children[i], "open");
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        child_tell(&children[i], "token");
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        child_expect(&children[i], "Bearer t1");
    }
    RG_CHECK_EQ(requests(&host), 1);
    /* All are refused with it: one asks again. */
    for (unsigned i = 0; i < PROCESSES; i++) {
        child_tell(&children[i], "reject");
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        child_expect(&children[i], "Bearer t2");
    }
    RG_CHECK_EQ(requests(&host), 2);
    for (unsigned i = 0; i < PROCESSES; i++) {
        child_end(&children[i], 0);
    }
    /* It outlives them all. */
    child_open(&children[0], &host);
    child_tell(&children[0], "token");
    child_expect(&children[0], "Bearer t2");
    char want[LINE_SIZE];
    snprintf(want, sizeof(want), "shared in %s", host.region.path);
    child_tell(&children[0], "describe");
    child_expect(&children[0], want);
    child_end(&children[0], 0);
    RG_CHECK_EQ(requests(&host), 2);
    host_close(&host);
}

static void test_when_the_one_that_asks_is_killed_another_asks(void)
{
    const struct rg_token_route route = {
        .path = "/token", .body = TOKEN_ANSWER("t#"), .hold = true};
    struct host host;
    struct child first, other;
    host_open(&host, &route);
    child_open(&first, &host);
    child_tell(&first, "token");
    RG_AWAIT(requests(&host) == 1);
    child_open(&other, &host);
    child_tell(&other, "token");
    RG_CHECK_EQ(kill(first.pid, SIGKILL), 0);
    child_end(&first, SIGKILL);
    RG_AWAIT(requests(&host) == 2);
    rg_token_server_release(host.tokens.server);
    child_expect(&other, "Bearer t2");
    child_end(&other, 0);
    RG_CHECK_EQ(requests(&host), 2);
    host_close(&host);
}

static void test_who_opts_out_asks_for_himself(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t#")};
    struct host host;
    struct child children[2];
    host_open(&host, &route);
    child_open(&children[0], &host);
    setenv("RINGEST_SHARING", "0", 1);
    child_open(&children[1], &host);
    for (unsigned i = 0; i < 2; i++) {
        child_tell(&children[i], "token");
        child_expect(&children[i], i == 0 ? "Bearer t1" : "Bearer t2");
        child_end(&children[i], 0);
    }
    host_close(&host);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_second_takes_what_the_first_was_given),
        RG_TEST(test_a_refused_token_is_not_given_out_again),
        RG_TEST(test_a_refused_token_is_not_noted_again),
        RG_TEST(test_notes_that_are_not_taken),
        RG_TEST(test_a_region_that_is_not_used),
        RG_TEST(test_external_accounts_are_not_shared),
        RG_TEST(test_a_subject_token_is_ones_own),
        RG_TEST(test_a_metadata_server),
        RG_TEST(test_who_hangs_is_not_waited_for_long),
        RG_TEST(test_a_writer_that_is_stopped_holds_up_nobody),
        RG_TEST(test_a_failure_is_ones_own),
        RG_TEST(test_all_that_waited_for_nothing_ask_at_once),
        RG_TEST(test_without_locks_each_asks_at_once),
        RG_TEST(test_waiting_can_be_cancelled),
        RG_TEST(test_of_32_processes_one_asks),
        RG_TEST(test_when_the_one_that_asks_is_killed_another_asks),
        RG_TEST(test_who_opts_out_asks_for_himself),
    };
    if (argc == 3 && strcmp(argv[1], "--child") == 0) {
        return child_main(argv[2]);
    }
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
