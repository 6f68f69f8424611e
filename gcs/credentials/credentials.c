/* Sources of tokens: see credentials.h. Everything that threads share is under the mutex of the
 * source, but for the two numbers that the usual case reads: when something is to be done next, and
 * which token is the newest. */
#include "gcs/credentials/credentials.h"

#include "gcs/credentials/file.h"
#include "gcs/host/region.h"
#include "gcs/wire/digest.h"
#include "http/url.h"
#include "runtime/clock.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Address space; what is not used costs nothing. */
#define CONFIG_ARENA_SIZE RG_MIB(2)
#define RUN_ARENA_SIZE RG_MIB(4)
/* The deepest path is certificate verification. */
#define REFRESH_STACK_SIZE RG_MIB(1)
/* A token counts as expired this long before its end, or a tenth of its life. */
#define EXPIRY_MARGIN_NS (10 * RG_NS_PER_S)

#define BIT(state) (1u << (state))

/* NONE -> STARTED -> ASKING -> MADE -> OVER -> NONE. A source that is being closed asks nobody:
 * STARTED -> MADE. */
enum refresh {
    REFRESH_NONE = 0, /* there is no thread */
    REFRESH_STARTED,
    REFRESH_ASKING, /* `run` has a fetcher that can be cancelled */
    REFRESH_MADE,   /* its result is to be published */
    REFRESH_OVER,   /* it was, and the thread, which is at its end, is to be joined */
};

struct rg_credentials {
    struct rg_list node; /* in the registry */
    uint32_t ref_count;  /* under the registry's mutex */
    struct rg_secret_arena arena;
    struct rg_credentials_config *config; /* only the refresh writes in it */
    const char *origin, *scope;
    const char *proxy; /* NULL: by the environment */
    const char *quota_project;
    const char *host_folder; /* NULL: tokens are not shared with other processes */
    uint64_t sharing_patience_ns;
    uint8_t hash[RG_SHA256_SIZE];
    _Atomic uint64_t version;   /* changes with the token */
    _Atomic uint64_t act_at_ns; /* when a check has more to do than to look at the token */
    pthread_mutex_t mutex;      /* of what follows */
    struct rg_token *token;     /* NULL: none that may be sent */
    struct rg_list waiting;     /* bearers */
    struct rg_credentials_run run;
    pthread_t thread;
    enum refresh refresh; /* changed by refresh_enter_locked alone */
    bool stopping;
    uint32_t failures; /* in a row */
    uint64_t reject_at_ns;
    uint8_t refused[RG_TOKEN_DIGEST_SIZE];  /* what the service refused last; zero: nothing */
    char sharing[RG_SHARING_TEXT_SIZE];     /* how the last refresh went with other processes */
    char failure[RG_CREDENTIALS_TEXT_SIZE]; /* of the last refresh; empty: it succeeded */
};

/* All sources of this process. A child of fork() begins anew: the threads of its parent's are not
 * there. */
static struct {
    pthread_mutex_t mutex;
    struct rg_list sources;
    struct rg_fork_hook fork_hook;
    bool hooked;
} registry = {
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .sources = {&registry.sources, &registry.sources},
};

static void registry_forked(struct rg_fork_hook *hook)
{
    (void)hook;
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    memcpy(&registry.mutex, &fresh, sizeof(fresh));
    rg_list_init(&registry.sources);
    registry.hooked = false;
}

static void token_unref(struct rg_token *token)
{
    if (token != NULL && atomic_fetch_sub(&token->ref_count, 1) == 1) {
        /* The token itself lies in its arena. */
        struct rg_secret_arena arena = token->arena;
        rg_secret_arena_fini(&arena);
    }
}

static struct rg_token *token_ref(struct rg_token *token)
{
    if (token != NULL) {
        atomic_fetch_add(&token->ref_count, 1);
    }
    return token;
}

static struct rg_token *token_new(const struct rg_token_out *made, uint64_t now_ns)
{
    struct rg_secret_arena arena;
    if (rg_secret_arena_init(&arena, sizeof(struct rg_token) + strlen(made->text) + 64) < 0) {
        return NULL;
    }
    struct rg_token *token = rg_secret_alloc(&arena, sizeof(*token));
    char *field = rg_secret_printf(&arena, "Authorization: Bearer %s\r\n", made->text);
    RG_ASSERT(token != NULL && field != NULL);
    /* So that requests can be given it as it is. */
    RG_ASSERT(rg_h1_value_span(made->text, strlen(made->text)) == strlen(made->text));
    uint64_t life_ns = made->expires_ns > now_ns ? made->expires_ns - now_ns : 0;
    atomic_init(&token->ref_count, 1);
    rg_token_digest(made->text, token->digest);
    token->field = field;
    token->field_size = strlen(field);
    token->valid_until_ns = now_ns + life_ns - RG_MIN(life_ns / 10, (uint64_t)EXPIRY_MARGIN_NS);
    token->arena = arena;
    return token;
}

static bool is_refreshing_locked(const struct rg_credentials *credentials)
{
    return credentials->refresh >= REFRESH_STARTED && credentials->refresh <= REFRESH_MADE;
}

/* While the mutex is free: who waits, waits for a refresh that runs; nothing else is to be done
 * while one does; and there is a text about the failures since the last success. */
static bool invariants_locked(const struct rg_credentials *credentials)
{
    bool refreshing = is_refreshing_locked(credentials);
    return (refreshing || rg_list_empty(&credentials->waiting)) &&
           (!refreshing || atomic_load(&credentials->act_at_ns) == UINT64_MAX) &&
           (credentials->failures == 0) == (credentials->failure[0] == '\0');
}

static void refresh_enter_locked(struct rg_credentials *credentials, enum refresh refresh)
{
    static const uint8_t states_after[] = {
        [REFRESH_NONE] = BIT(REFRESH_STARTED),
        [REFRESH_STARTED] = BIT(REFRESH_ASKING) | BIT(REFRESH_MADE),
        [REFRESH_ASKING] = BIT(REFRESH_MADE),
        [REFRESH_MADE] = BIT(REFRESH_OVER),
        [REFRESH_OVER] = BIT(REFRESH_NONE),
    };
    RG_ASSERT(states_after[credentials->refresh] & BIT(refresh));
    credentials->refresh = refresh;
}

static void waiting_wake_locked(struct rg_credentials *credentials)
{
    struct rg_list *node;
    while ((node = rg_list_pop_front(&credentials->waiting)) != NULL) {
        struct rg_bearer *bearer = RG_CONTAINER_OF(node, struct rg_bearer, node);
        if (!bearer->mail_out) {
            bearer->mail_out = true;
            rg_loop_post(bearer->loop, &bearer->mail);
        }
    }
}

/* Requests have been tried again already (gcs/credentials/fetch.h). This is how long no request of
 * a user's makes the source ask anew, so that a failure is not asked for by each of them. */
static uint64_t pause_after(uint32_t failures, bool fatal)
{
    if (fatal) {
        return RG_REFRESH_PAUSE_NS_FATAL;
    }
    uint64_t pause_ns = RG_REFRESH_PAUSE_NS_MIN << RG_MIN(failures - 1, 10u);
    return RG_MIN(pause_ns, (uint64_t)RG_REFRESH_PAUSE_NS_MAX);
}

static void publish_failure_locked(struct rg_credentials *credentials, const char *text, bool fatal)
{
    uint64_t now_ns = rg_now_ns();
    bool has_token = credentials->token != NULL && now_ns < credentials->token->valid_until_ns;
    credentials->failures++;
    snprintf(credentials->failure, sizeof(credentials->failure), "%s", text);
    atomic_store(&credentials->act_at_ns, now_ns + pause_after(credentials->failures, fatal));
    rg_log(RG_LOG_WARN, "credentials: %s%s", text,
           has_token ? "; the token at hand is still good" : "");
}

static void publish_token_locked(struct rg_credentials *credentials, struct rg_token *token,
                                 uint64_t stale_ns)
{
    token_unref(credentials->token);
    credentials->token = token;
    credentials->failures = 0;
    credentials->failure[0] = '\0';
    atomic_store(&credentials->act_at_ns, stale_ns);
    atomic_fetch_add(&credentials->version, 1);
}

/* Ends a run: nobody can cancel it any more, and what it made is wiped but for the token. */
static void run_end(struct rg_credentials *credentials)
{
    pthread_mutex_lock(&credentials->mutex);
    refresh_enter_locked(credentials, REFRESH_MADE);
    pthread_mutex_unlock(&credentials->mutex);
    rg_secret_arena_fini(&credentials->run.arena);
    rg_fetcher_fini(&credentials->run.fetcher);
}

/* Hands out what a run has made, and wakes who waits for it. The last that its thread does, so that
 * whoever starts the next one need not wait for the end of this thread. */
static void run_publish(struct rg_credentials *credentials, struct rg_token *token,
                        uint64_t stale_ns, const struct rg_sharing *sharing)
{
    const struct rg_credentials_run *run = &credentials->run;
    pthread_mutex_lock(&credentials->mutex);
    refresh_enter_locked(credentials, REFRESH_OVER);
    snprintf(credentials->sharing, sizeof(credentials->sharing), "%s", sharing->text);
    if (token != NULL) {
        publish_token_locked(credentials, token, stale_ns);
        const struct rg_credentials_config *config = credentials->config;
        rg_log(RG_LOG_INFO, "credentials: a token for %s %s%s, valid for %" PRIu64 " s",
               config->kind->label, config->account != NULL ? config->account : "",
               sharing->taken ? " from another process of this host" : "",
               rg_time_between(rg_now_ns(), token->valid_until_ns) / RG_NS_PER_S);
    } else {
        publish_failure_locked(credentials, run->text[0] != '\0' ? run->text : "no memory",
                               run->fatal);
    }
    waiting_wake_locked(credentials);
    RG_VERIFY(invariants_locked(credentials));
    pthread_mutex_unlock(&credentials->mutex);
}

/* False: the source is being closed. `out_refused` gets the digest of the token that may not come
 * again. */
static bool run_activate(struct rg_credentials *credentials, uint8_t *out_refused)
{
    pthread_mutex_lock(&credentials->mutex);
    bool asks = !credentials->stopping;
    if (asks) {
        refresh_enter_locked(credentials, REFRESH_ASKING);
    }
    memcpy(out_refused, credentials->refused, RG_TOKEN_DIGEST_SIZE);
    pthread_mutex_unlock(&credentials->mutex);
    return asks;
}

static void *refresh_main(void *context)
{
    struct rg_credentials *credentials = context;
    struct rg_credentials_run *run = &credentials->run;
    struct rg_credentials_config *config = credentials->config;
    struct rg_token_out made = {0};
    uint8_t refused[RG_TOKEN_DIGEST_SIZE];
    struct rg_sharing sharing = {
        .folder = credentials->host_folder,
        .hash = credentials->hash,
        .refused = refused,
        .patience_ns = credentials->sharing_patience_ns,
    };
    *run = (struct rg_credentials_run){.scope = credentials->scope};
    uint64_t program_ms = config->executable.timeout_ms;
    program_ms += config->source != NULL ? config->source->executable.timeout_ms : 0;
    uint64_t deadline_ns = rg_now_ns() + RG_REFRESH_TIME_NS + program_ms * RG_NS_PER_MS;
    int rc = rg_fetcher_init(&run->fetcher, deadline_ns);
    run->fetcher.proxy = credentials->proxy;
    if (rc == 0) {
        rc = rg_secret_arena_init(&run->arena, RUN_ARENA_SIZE);
    }
    if (rc < 0) {
        rg_credentials_fail(run, rc, false, "a refresh could not begin: %s", rg_error_text(-rc));
    } else if (run_activate(credentials, refused)) {
        rc = rg_sharing_obtain(&sharing, run, config, &made);
    } else {
        rc = -ECANCELED;
    }
    struct rg_token *token = rc == 0 ? token_new(&made, rg_now_ns()) : NULL;
    run_end(credentials);
    run_publish(credentials, token, made.stale_ns, &sharing);
    return NULL;
}

static void refresh_start_locked(struct rg_credentials *credentials)
{
    RG_ASSERT(!is_refreshing_locked(credentials));
    if (credentials->refresh == REFRESH_OVER) {
        pthread_join(credentials->thread, NULL);
        refresh_enter_locked(credentials, REFRESH_NONE);
    }
    int rc = rg_thread_start(&credentials->thread, REFRESH_STACK_SIZE, refresh_main, credentials);
    if (rc < 0) {
        publish_failure_locked(credentials, "no thread could be started for a refresh", false);
        return;
    }
    refresh_enter_locked(credentials, REFRESH_STARTED);
    atomic_store(&credentials->act_at_ns, UINT64_MAX);
}

static void bearer_mail_run(struct rg_mail *mail)
{
    struct rg_bearer *bearer = RG_CONTAINER_OF(mail, struct rg_bearer, mail);
    struct rg_credentials *credentials = bearer->credentials;
    if (credentials == NULL) {
        return;
    }
    pthread_mutex_lock(&credentials->mutex);
    bearer->mail_out = false;
    pthread_mutex_unlock(&credentials->mutex);
    bearer->wake(bearer);
}

void rg_bearer_init(struct rg_bearer *bearer, struct rg_credentials *credentials,
                    struct rg_loop *loop, void (*wake)(struct rg_bearer *bearer))
{
    *bearer = (struct rg_bearer){
        .credentials = credentials,
        .loop = loop,
        .wake = wake,
        .mail.run = bearer_mail_run,
    };
}

void rg_bearer_fini(struct rg_bearer *bearer)
{
    struct rg_credentials *credentials = bearer->credentials;
    if (credentials == NULL) {
        return;
    }
    pthread_mutex_lock(&credentials->mutex);
    rg_list_remove(&bearer->node);
    pthread_mutex_unlock(&credentials->mutex);
    token_unref(bearer->token);
    bearer->token = NULL;
    bearer->credentials = NULL;
}

static enum rg_bearer_state check_locked(struct rg_bearer *bearer, uint64_t now_ns)
{
    struct rg_credentials *credentials = bearer->credentials;
    if (!is_refreshing_locked(credentials) && now_ns >= atomic_load(&credentials->act_at_ns)) {
        refresh_start_locked(credentials);
    }
    if (bearer->token != credentials->token) {
        token_unref(bearer->token);
        bearer->token = token_ref(credentials->token);
    }
    bearer->version = atomic_load(&credentials->version);
    if (bearer->token != NULL && now_ns < bearer->token->valid_until_ns) {
        return RG_BEARER_READY;
    }
    if (is_refreshing_locked(credentials)) {
        if (!rg_list_linked(&bearer->node)) {
            rg_list_push_back(&credentials->waiting, &bearer->node);
        }
        return RG_BEARER_WAIT;
    }
    snprintf(bearer->failure, sizeof(bearer->failure), "%s", credentials->failure);
    return RG_BEARER_FAILED;
}

/* An expired token is looked at even before it is time to renew it: some live very short. */
enum rg_bearer_state rg_bearer_check(struct rg_bearer *bearer, uint64_t now_ns)
{
    struct rg_credentials *credentials = bearer->credentials;
    RG_ASSERT(credentials != NULL);
    bool valid =
        bearer->token != NULL && now_ns < bearer->token->valid_until_ns &&
        bearer->version == atomic_load_explicit(&credentials->version, memory_order_acquire);
    if (valid && now_ns < atomic_load_explicit(&credentials->act_at_ns, memory_order_relaxed)) {
        return RG_BEARER_READY;
    }
    pthread_mutex_lock(&credentials->mutex);
    struct rg_token *token = credentials->token;
    if (token != NULL && now_ns >= token->valid_until_ns && !is_refreshing_locked(credentials) &&
        credentials->failures == 0) {
        atomic_store(&credentials->act_at_ns, 0);
    }
    enum rg_bearer_state state = check_locked(bearer, now_ns);
    RG_VERIFY(invariants_locked(credentials));
    pthread_mutex_unlock(&credentials->mutex);
    return state;
}

void rg_bearer_wake_soon(struct rg_bearer *bearer)
{
    struct rg_credentials *credentials = bearer->credentials;
    pthread_mutex_lock(&credentials->mutex);
    if (!bearer->mail_out) {
        bearer->mail_out = true;
        rg_loop_post(bearer->loop, &bearer->mail);
    }
    pthread_mutex_unlock(&credentials->mutex);
}

bool rg_bearer_reject(struct rg_bearer *bearer, uint64_t version, uint64_t now_ns)
{
    struct rg_credentials *credentials = bearer->credentials;
    pthread_mutex_lock(&credentials->mutex);
    bool is_newest = atomic_load(&credentials->version) == version;
    bool may_ask = now_ns >= credentials->reject_at_ns;
    if (is_newest && may_ask) {
        if (credentials->token != NULL) {
            memcpy(credentials->refused, credentials->token->digest, RG_TOKEN_DIGEST_SIZE);
        }
        token_unref(credentials->token);
        credentials->token = NULL;
        credentials->reject_at_ns = now_ns + RG_REJECT_INTERVAL_NS;
        atomic_fetch_add(&credentials->version, 1);
        if (!is_refreshing_locked(credentials)) {
            atomic_store(&credentials->act_at_ns, 0);
        }
    }
    RG_VERIFY(invariants_locked(credentials));
    pthread_mutex_unlock(&credentials->mutex);
    return !is_newest || may_ask;
}

/* Requests to an endpoint of the user's own carry credentials only if he says so: a test's server
 * or an emulator is no party to whom a token may be shown, and no reason to ask for one. */
static bool endpoint_is_google(const char *endpoint)
{
    struct rg_url url;
    if (rg_url_parse(endpoint, strlen(endpoint), &url) < 0 || !url.is_tls) {
        return false;
    }
    const char *universe = getenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN");
    const char *const domains[] = {RG_UNIVERSE_DEFAULT, universe != NULL ? universe : ""};
    for (size_t i = 0; i < RG_ARRAY_LEN(domains); i++) {
        size_t size = strlen(domains[i]);
        if (size > 0 && url.host.size > size && url.host.data[url.host.size - size - 1] == '.' &&
            strncasecmp(url.host.data + url.host.size - size, domains[i], size) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_set(const char *text)
{
    return text != NULL && *text != '\0';
}

bool rg_credentials_wanted(const struct rg_client_options *options)
{
    const char *option = options->credentials;
    bool emulator = options->endpoint == NULL && is_set(getenv("STORAGE_EMULATOR_HOST"));
    if (options->token != NULL || emulator ||
        (option != NULL && strcmp(option, "anonymous") == 0)) {
        return false;
    }
    return is_set(option) || options->endpoint == NULL || endpoint_is_google(options->endpoint);
}

static void credentials_free(struct rg_credentials *credentials)
{
    token_unref(credentials->token);
    rg_secret_arena_fini(&credentials->arena);
    pthread_mutex_destroy(&credentials->mutex);
    free(credentials);
}

/* The folder is an arena's, since the option's text is not kept. */
static const char *host_folder_choose(struct rg_credentials_reader *reader, const char *sharing)
{
    const char *folder = rg_host_folder(sharing);
    return folder != NULL ? rg_secret_copy(reader->arena, folder, strlen(folder)) : NULL;
}

static const char *quota_project_choose(struct rg_credentials_reader *reader,
                                        const struct rg_credentials_config *config)
{
    const char *project = rg_credentials_environment(reader, "GOOGLE_CLOUD_QUOTA_PROJECT");
    return project != NULL ? project : config->quota_project;
}

/* Two files may say the same and yet mean other things to us: where they look for their source. */
static void hash_complete(struct rg_credentials *credentials)
{
    const struct rg_credentials_config *source = rg_credentials_source(credentials->config);
    const char *const parts[] = {credentials->scope,
                                 credentials->origin,
                                 source->aws.access_key,
                                 source->aws.secret_key,
                                 source->aws.session_token,
                                 source->aws.region,
                                 source->certificate.location,
                                 source->executable.allowed ? "1" : "0",
                                 credentials->quota_project,
                                 credentials->host_folder,
                                 credentials->proxy != NULL ? "1" : "0",
                                 credentials->proxy};
    for (size_t i = 0; i < RG_ARRAY_LEN(parts); i++) {
        const char *part = parts[i] != NULL ? parts[i] : "";
        rg_hmac_sha256(credentials->hash, RG_SHA256_SIZE, part, strlen(part), credentials->hash);
    }
}

/* An object of its own, not yet in the registry. */
static int credentials_new(struct rg_credentials **out_credentials,
                           const struct rg_credentials_choice *choice, char *error,
                           size_t error_size)
{
    const char *option = choice->credentials, *scope = choice->scope, *proxy = choice->proxy;
    bool by_default = !is_set(option) || strcmp(option, "default") == 0;
    struct rg_credentials *credentials = calloc(1, sizeof(*credentials));
    if (credentials == NULL) {
        snprintf(error, error_size, "no memory");
        return -ENOMEM;
    }
    credentials->ref_count = 1;
    pthread_mutex_init(&credentials->mutex, NULL);
    rg_list_init(&credentials->waiting);
    struct rg_credentials_reader reader = {.arena = &credentials->arena, .path = "credentials"};
    reader.rc = rg_secret_arena_init(&credentials->arena, CONFIG_ARENA_SIZE);
    if (reader.rc == 0) {
        credentials->config = rg_credentials_find(&reader, by_default ? NULL : option,
                                                  &credentials->origin, credentials->hash);
    }
    if (reader.rc == 0) {
        credentials->quota_project = quota_project_choose(&reader, credentials->config);
        credentials->sharing_patience_ns = choice->sharing_patience_ns != 0
                                               ? choice->sharing_patience_ns
                                               : (uint64_t)RG_SHARING_PATIENCE_NS;
        credentials->host_folder = host_folder_choose(&reader, choice->sharing);
        credentials->scope =
            is_set(scope) ? rg_secret_copy(&credentials->arena, scope, strlen(scope)) : NULL;
        credentials->proxy =
            proxy != NULL ? rg_secret_copy(&credentials->arena, proxy, strlen(proxy)) : NULL;
        hash_complete(credentials);
        *out_credentials = credentials;
        return 0;
    }
    snprintf(error, error_size, "%s", reader.text[0] != '\0' ? reader.text : "no memory");
    credentials_free(credentials);
    return reader.rc;
}

/* The same source where the process has it already; otherwise this one is entered. */
static struct rg_credentials *registry_enter_locked(struct rg_credentials *credentials)
{
    for (struct rg_list *node = registry.sources.next; node != &registry.sources;
         node = node->next) {
        struct rg_credentials *other = RG_CONTAINER_OF(node, struct rg_credentials, node);
        if (memcmp(other->hash, credentials->hash, sizeof(other->hash)) == 0) {
            other->ref_count++;
            return other;
        }
    }
    rg_list_push_back(&registry.sources, &credentials->node);
    return credentials;
}

int rg_credentials_open(struct rg_credentials **out_credentials,
                        const struct rg_credentials_choice *choice, char *error, size_t error_size)
{
    struct rg_credentials *mine;
    int rc = credentials_new(&mine, choice, error, error_size);
    if (rc < 0) {
        return rc;
    }
    pthread_mutex_lock(&registry.mutex);
    if (!registry.hooked) {
        registry.fork_hook.child = registry_forked;
        rc = rg_fork_hook_add(&registry.fork_hook);
        registry.hooked = rc == 0;
    }
    struct rg_credentials *entered = rc == 0 ? registry_enter_locked(mine) : NULL;
    pthread_mutex_unlock(&registry.mutex);
    if (entered != mine) {
        credentials_free(mine);
    }
    if (rc < 0) {
        snprintf(error, error_size, "no memory");
        return rc;
    }
    *out_credentials = entered;
    return 0;
}

static void refresh_stop(struct rg_credentials *credentials)
{
    pthread_mutex_lock(&credentials->mutex);
    credentials->stopping = true;
    if (credentials->refresh == REFRESH_ASKING) {
        rg_fetcher_cancel(&credentials->run.fetcher);
    }
    bool has_thread = credentials->refresh != REFRESH_NONE;
    pthread_mutex_unlock(&credentials->mutex);
    if (has_thread) {
        pthread_join(credentials->thread, NULL);
    }
}

void rg_credentials_unref(struct rg_credentials *credentials)
{
    if (credentials == NULL) {
        return;
    }
    pthread_mutex_lock(&registry.mutex);
    RG_ASSERT(credentials->ref_count > 0);
    bool last = --credentials->ref_count == 0;
    if (last) {
        rg_list_remove(&credentials->node);
    }
    pthread_mutex_unlock(&registry.mutex);
    if (last) {
        refresh_stop(credentials);
        RG_ASSERT(rg_list_empty(&credentials->waiting));
        credentials_free(credentials);
    }
}

const char *rg_credentials_universe(const struct rg_credentials *credentials)
{
    return credentials->config->universe;
}

const char *rg_credentials_quota_project(const struct rg_credentials *credentials)
{
    return credentials->quota_project;
}

int rg_credentials_principal_write(const struct rg_credentials *credentials, char *out, size_t size)
{
    const struct rg_credentials_config *config = credentials->config;
    return snprintf(out, size, "%s%s%s", config->kind->label, config->account != NULL ? " " : "",
                    config->account != NULL ? config->account : "");
}

int rg_credentials_text_write(struct rg_credentials *credentials, char *out, size_t size)
{
    const struct rg_credentials_config *config = credentials->config;
    bool is_guess = config->kind == &rg_credentials_metadata && !config->metadata_is_certain;
    char state[RG_CREDENTIALS_TEXT_SIZE + RG_SHARING_TEXT_SIZE + 32];
    snprintf(state, sizeof(state), "%s",
             is_guess ? "no credential file was found; the first request will show whether this "
                        "machine has such a server"
                      : "no token asked for yet");
    uint64_t now_ns = rg_now_ns();
    pthread_mutex_lock(&credentials->mutex);
    const struct rg_token *token = credentials->token;
    if (token != NULL && now_ns < token->valid_until_ns) {
        snprintf(state, sizeof(state), "token valid for %" PRIu64 " s%s%s",
                 (token->valid_until_ns - now_ns) / RG_NS_PER_S,
                 credentials->sharing[0] != '\0' ? ", " : "", credentials->sharing);
    } else if (is_refreshing_locked(credentials)) {
        snprintf(state, sizeof(state), "a token is being asked for");
    } else if (credentials->failure[0] != '\0') {
        snprintf(state, sizeof(state), "no token: %s", credentials->failure);
    }
    pthread_mutex_unlock(&credentials->mutex);
    return snprintf(out, size, "%s%s%s from %s; %s", config->kind->label,
                    config->account != NULL ? " " : "",
                    config->account != NULL ? config->account : "", credentials->origin, state);
}
