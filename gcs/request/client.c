/* A client: see client.h. The life of one: options -> endpoint, trust store, resolver -> a client
 * loop on each loop -> submissions -> closing, which cancels what is out and waits until every
 * client loop is gone. */
#include "gcs/request/client.h"

#include "cache/cache.h"
#include "cache/memory.h"
#include "gcs/network/extra_headers.h"
#include "gcs/request/cached_read.h"
#include "gcs/request/hedge.h"
#include "gcs/request/newest.h"
#include "gcs/request/request.h"
#include "http/resolver.h"
#include "runtime/clock.h"
#include "runtime/job.h"
#include "runtime/log.h"
#include "runtime/variable.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define USER_AGENT "ringest/" RG_VERSION_STRING
/* All fields that every request carries; the encoder's buffer must hold them and a target. */
#define COMMON_FIELDS_SIZE_MAX RG_KIB(16)
/* Between looks whether all is removed that a client leaves behind. */
#define CLEAN_LOOK_INTERVAL_NS (2 * RG_NS_PER_MS)

void rg_client_options_init_sized(struct rg_client_options *options, size_t struct_size)
{
    RG_ASSERT(struct_size >= sizeof(size_t));
    memset(options, 0, struct_size);
    options->struct_size = struct_size;
}

int rg_explain(char *error, size_t error_size, int rc, const char *format, ...)
{
    if (error != NULL && error_size > 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(error, error_size, format, args);
        va_end(args);
    }
    return rc;
}

static void default_u32(uint32_t *value, uint32_t standard)
{
    *value = *value != 0 ? *value : standard;
}

static void default_ns(uint64_t *value, uint64_t standard)
{
    *value = *value != 0 ? *value : standard;
}

/* Only a ramp has to know: otherwise a wrong variable says nothing, and is not refused. */
static int job_read(struct rg_client_options *own, uint32_t workers, char *error, size_t error_size)
{
    const char *name = "";
    if (own->job_processes != 0) {
        return 0;
    }
    if (rg_job_processes(&own->job_processes, &name) < 0) {
        if (own->ramp != RG_RAMP_GCS) {
            own->job_processes = 1;
            return 0;
        }
        return rg_explain(
            error, error_size, -EINVAL,
            "%s is \"%s\", not the number of the job's processes; correct it, or give "
            "job_processes",
            name, getenv(name));
    }
    uint64_t processes = (uint64_t)own->job_processes * RG_MAX(workers, 1u);
    own->job_processes = (uint32_t)RG_MIN(processes, UINT32_MAX);
    return 0;
}

/* A warning for each variable that is almost one of ours, once in a process. */
static void variables_check(void)
{
    static _Atomic bool checked;
    if (!rg_log_enabled(RG_LOG_WARN) || atomic_exchange(&checked, true)) {
        return;
    }
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
        char name[2 * RG_VARIABLE_SIZE_MAX], meant[RG_VARIABLE_SIZE_MAX];
        const char *end = strchr(*variable, '=');
        if (end == NULL || (size_t)(end - *variable) >= sizeof(name)) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(end - *variable), *variable);
        if (rg_variable_mistaken(name, meant)) {
            rg_log(RG_LOG_WARN, "%s is set, but there is no such variable; did you mean %s?", name,
                   meant);
        }
    }
}

static int options_read(struct rg_client_options *own, const struct rg_client_options *given,
                        uint32_t workers, char *error, size_t error_size)
{
    rg_client_options_init(own);
    if (given != NULL) {
        memcpy(own, given, RG_MIN(given->struct_size, sizeof(*own)));
        own->struct_size = sizeof(*own);
    }
    variables_check();
    int rc = rg_options_from_environment(NULL, own, error, error_size);
    if (rc < 0) {
        return rc;
    }
    default_u32(&own->connections_max, RG_CONNECTIONS_DEFAULT);
    default_u32(&own->requests_max, RG_REQUESTS_DEFAULT);
    default_u32(&own->attempts_max, RG_ATTEMPTS_DEFAULT);
    default_ns(&own->connect_timeout_ns, RG_CONNECT_TIMEOUT_DEFAULT_NS);
    default_ns(&own->first_byte_timeout_ns, RG_FIRST_BYTE_TIMEOUT_DEFAULT_NS);
    default_ns(&own->stall_timeout_ns, RG_STALL_TIMEOUT_DEFAULT_NS);
    default_ns(&own->idle_timeout_ns, RG_IDLE_TIMEOUT_DEFAULT_NS);
    default_ns(&own->backoff_min_ns, RG_BACKOFF_MIN_DEFAULT_NS);
    default_ns(&own->backoff_max_ns, RG_BACKOFF_MAX_DEFAULT_NS);
    default_u32(&own->hedges_per_1000, RG_HEDGE_PER_1000_DEFAULT);
    default_ns(&own->hedge_size_max, RG_HEDGE_SIZE_MAX_DEFAULT);
    if (own->ramp < RG_RAMP_DEFAULT || own->ramp > RG_RAMP_GCS) {
        return rg_explain(error, error_size, -EINVAL, "ramp is %d, none of enum rg_ramp",
                          (int)own->ramp);
    }
    if (own->sharing != NULL) {
        rc = rg_option_set(NULL, own, "sharing", own->sharing, error, error_size);
        if (rc < 0) {
            return rc;
        }
    }
    if (own->hedges_per_1000 > RG_HEDGES_LIMIT) {
        return rg_explain(error, error_size, -EINVAL,
                          "hedges_per_1000 is %u, above the limit of %d", own->hedges_per_1000,
                          RG_HEDGES_LIMIT);
    }
    if (own->connections_max > RG_CONNECTIONS_LIMIT) {
        return rg_explain(error, error_size, -EINVAL,
                          "connections_max is %u, above the limit of %d", own->connections_max,
                          RG_CONNECTIONS_LIMIT);
    }
    if (own->requests_max > RG_REQUESTS_LIMIT) {
        return rg_explain(error, error_size, -EINVAL, "requests_max is %u, above the limit of %d",
                          own->requests_max, RG_REQUESTS_LIMIT);
    }
    if (own->attempts_max > RG_ATTEMPTS_LIMIT) {
        return rg_explain(error, error_size, -EINVAL, "attempts_max is %u, above the limit of %d",
                          own->attempts_max, RG_ATTEMPTS_LIMIT);
    }
    return job_read(own, workers, error, error_size);
}

/* The fields of every request, encoded once. Checked here, so that encoding a request cannot fail
 * on them. */
static int common_fields_encode(struct rg_client *client, const struct rg_client_options *options,
                                const struct rg_extra_headers *extra)
{
    int rc = rg_secret_arena_init(&client->fields_arena, COMMON_FIELDS_SIZE_MAX);
    if (rc < 0) {
        return rc;
    }
    char *data = rg_secret_alloc(&client->fields_arena, COMMON_FIELDS_SIZE_MAX);
    struct rg_h1_encoder encoder;
    rg_h1_encoder_init(&encoder, data, COMMON_FIELDS_SIZE_MAX);
    /* Fields follow a start line; it is taken off again below. */
    rg_h1_encode_request(&encoder, "GET", "/");
    size_t start_line_size = encoder.size;
    rg_h1_encode_header(&encoder, "Host", client->endpoint.authority);
    char text[1024];
    snprintf(text, sizeof(text), "%s%s" USER_AGENT " (gzip)",
             options->user_agent != NULL ? options->user_agent : "",
             options->user_agent != NULL ? " " : "");
    rg_h1_encode_header(&encoder, "User-Agent", text);
    /* An emulator is no party to whom a token may be shown. */
    if (options->token != NULL && !client->endpoint.is_emulator) {
        client->has_token = true;
        char authorization[8192];
        int size = snprintf(authorization, sizeof(authorization), "Bearer %s", options->token);
        if ((size_t)size >= sizeof(authorization)) {
            encoder.error = -EINVAL;
        }
        rg_h1_encode_header(&encoder, "Authorization", authorization);
        explicit_bzero(authorization, sizeof(authorization));
    }
    const char *payer = options->user_project;
    if (payer == NULL && client->credentials != NULL) {
        payer = rg_credentials_quota_project(client->credentials);
    }
    if (payer != NULL) {
        rg_h1_encode_header(&encoder, "x-goog-user-project", payer);
    }
    for (uint32_t i = 0; i < extra->count; i++) {
        rg_h1_encode_header_slice(&encoder, extra->names[i], extra->values[i]);
    }
    client->common_fields = data;
    client->common_fields_size = encoder.size - start_line_size;
    memmove(data, data + start_line_size, client->common_fields_size);
    return encoder.error;
}

static int network_open(struct rg_client *client, const struct rg_client_options *options,
                        char *error, size_t error_size)
{
    char text[512] = "";
    int rc = rg_network_open(&client->network, options, &client->endpoint, text, sizeof(text));
    return rc < 0 ? rg_explain(error, error_size, rc, "%s", text) : 0;
}

static void loop_emptied(struct rg_client_loop *client_loop)
{
    rg_traffic_close(client_loop->traffic);
    sem_post(&client_loop->closed);
}

static int loop_open(struct rg_client *client, struct rg_client_loop *client_loop,
                     struct rg_loop *loop)
{
    const struct rg_client_options *options = &client->options;
    client_loop->client = client;
    client_loop->loop = loop;
    client_loop->emptied = loop_emptied;
    rg_peers_init(&client_loop->peers, client->share_folder, client->endpoint.authority);
    rg_list_init(&client_loop->active);
    rg_retry_budget_init(&client_loop->retry_budget);
    rg_part_memory_init(&client_loop->part_memory, loop);
    rg_authorizer_open(&client_loop->authorizer, client->credentials, loop, rg_request_token_came);
    uint32_t connections = (options->connections_max + client->loop_count - 1) / client->loop_count;
    int rc = rg_transport_loop_create(&client_loop->transports, loop,
                                      rg_network_transports(&client->network, connections));
    if (rc < 0) {
        return rc;
    }
    struct rg_pool_options pool_options = {
        .host = client->endpoint.host,
        .port = client->endpoint.port,
        .connect_host = client->endpoint.connect_host,
        .connect_port = client->endpoint.connect_port,
        .resolver = client->resolver,
        .transports = client_loop->transports,
        .connections_max = connections,
        .processes = &client_loop->peers.processes,
        .connect_timeout_ns = options->connect_timeout_ns,
        .first_byte_timeout_ns = options->first_byte_timeout_ns,
        .stall_timeout_ns = options->stall_timeout_ns,
        .idle_timeout_ns = options->idle_timeout_ns,
    };
    rg_network_apply(&client->network, &pool_options);
    rc = rg_traffic_create(&client_loop->traffic, client_loop, rg_request_admitted);
    if (rc == 0 && client->newest != NULL) {
        rc = rg_cached_reads_create(&client_loop->cached, client_loop, rg_request_cache_ended);
    }
    if (rc < 0) {
        return rc;
    }
    return rg_pool_create(&client_loop->pool, loop, &pool_options);
}

struct prewarm {
    struct rg_client_loop *client_loop;
    uint32_t connections;
};

static void loop_prewarm(void *context)
{
    struct prewarm *prewarm = context;
    rg_pool_prewarm(prewarm->client_loop->pool, prewarm->connections);
}

/* The ceilings are the client's; of the job's ramp it has an equal part. */
static int rates_open(struct rg_client *client)
{
    const struct rg_client_options *options = &client->options;
    struct rg_rate_options reads = {.ceiling = options->reads_per_s};
    struct rg_rate_options writes = {.ceiling = options->writes_per_s};
    if (options->ramp == RG_RAMP_GCS) {
        reads.ramp = (double)RG_RATE_RAMP_READS_PER_S / options->job_processes;
        writes.ramp = (double)RG_RATE_RAMP_WRITES_PER_S / options->job_processes;
    }
    return rg_rates_create(&client->rates, &reads, &writes);
}

/* The options' texts are not kept. */
static int share_open(struct rg_client *client)
{
    const char *folder = rg_host_folder(client->options.sharing);
    client->share_folder = folder != NULL ? strdup(folder) : NULL;
    return folder == NULL || client->share_folder != NULL ? 0 : -ENOMEM;
}

static int loops_open(struct rg_client *client)
{
    struct rg_runtime *runtime = client->runtime;
    client->loop_count = runtime->loop_count;
    client->loops = calloc(client->loop_count, sizeof(*client->loops));
    client->requests = calloc(client->options.requests_max, sizeof(*client->requests));
    if (client->loops == NULL || client->requests == NULL) {
        return -ENOMEM;
    }
    rg_client_fill_requests(client);
    for (uint32_t i = 0; i < client->loop_count; i++) {
        int rc = loop_open(client, &client->loops[i], runtime->loops[i]);
        if (rc < 0) {
            return rc;
        }
    }
    uint32_t prewarm = client->options.prewarm;
    for (uint32_t i = 0; i < client->loop_count && prewarm > 0; i++) {
        struct prewarm one = {&client->loops[i],
                              (prewarm + client->loop_count - 1) / client->loop_count};
        rg_loop_call(client->loops[i].loop, loop_prewarm, &one);
    }
    return 0;
}

static int credentials_open(struct rg_client *client, const struct rg_client_options *options,
                            char *error, size_t error_size)
{
    if (!rg_credentials_wanted(options)) {
        return 0;
    }
    char text[512] = "";
    struct rg_credentials_choice choice = {
        .credentials = options->credentials,
        .scope = options->scope,
        .proxy = options->proxy,
        .sharing = options->sharing,
    };
    int rc = rg_credentials_open(&client->credentials, &choice, text, sizeof(text));
    return rc < 0 ? rg_explain(error, error_size, rc, "%s", text) : 0;
}

int rg_credentials_describe(struct rg_client *client, char *out, size_t out_size)
{
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (client->credentials != NULL) {
        return rg_credentials_text_write(client->credentials, out, out_size);
    }
    return snprintf(out, out_size, "%s",
                    client->has_token ? "a fixed access token" : "anonymous: none are sent");
}

int rg_proxy_describe(struct rg_client *client, char *out, size_t out_size)
{
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    const struct rg_proxy *proxy = &client->network.proxy;
    return snprintf(out, out_size, "%s", proxy->host[0] != '\0' ? proxy->name : "none");
}

static int endpoint_open(struct rg_client *client, const struct rg_client_options *options,
                         char *error, size_t error_size)
{
    char text[512] = "";
    char own[RG_ENDPOINT_SIZE_MAX + 1] = "";
    const char *universe =
        client->credentials != NULL ? rg_credentials_universe(client->credentials) : NULL;
    if (options->endpoint == NULL && universe != NULL) {
        snprintf(own, sizeof(own), "https://storage.%s", universe);
    }
    int rc = rg_endpoint_resolve(&client->endpoint, *own != '\0' ? own : options->endpoint,
                                 options->connect_to, text, sizeof(text));
    return rc < 0 ? rg_explain(error, error_size, rc, "%s", text) : 0;
}

static int fields_open(struct rg_client *client, const struct rg_client_options *options,
                       char *error, size_t error_size)
{
    struct rg_extra_headers *extra;
    char text[512] = "";
    int rc = rg_extra_headers_parse(&extra, options->headers, text, sizeof(text));
    if (rc < 0) {
        return rg_explain(error, error_size, rc, "%s", text);
    }
    rc = common_fields_encode(client, options, extra);
    rg_extra_headers_free(extra);
    if (rc == -ENOSPC || rc == -EINVAL) {
        return rg_explain(error, error_size, -EINVAL,
                          "token, user_agent, user_project or headers cannot be sent in a header "
                          "field");
    }
    return rc;
}

static int cache_open(struct rg_client *client, const struct rg_client_options *options,
                      char *error, size_t error_size)
{
    if (options->cache == NULL || *options->cache == '\0') {
        return 0;
    }
    char text[512] = "";
    const struct rg_cache_options own = {
        .folder = options->cache,
        .size = options->cache_size,
        .share = client->share_folder,
    };
    int rc = rg_cache_open(&client->cache, &own, text, sizeof(text));
    return rc < 0 ? rg_explain(error, error_size, rc, "%s", text) : 0;
}

static int memory_open(struct rg_client *client, const struct rg_client_options *options,
                       char *error, size_t error_size)
{
    if (options->cache_memory == 0) {
        return 0;
    }
    char text[512] = "";
    const struct rg_memory_options own = {
        .size = options->cache_memory,
        .share = client->share_folder,
    };
    int rc = rg_memory_open(&client->memory, &own, text, sizeof(text));
    return rc < 0 ? rg_explain(error, error_size, rc, "%s", text) : 0;
}

static int caches_open(struct rg_client *client, const struct rg_client_options *options,
                       char *error, size_t error_size)
{
    int rc = cache_open(client, options, error, error_size);
    rc = rc == 0 ? memory_open(client, options, error, error_size) : rc;
    bool has_any = client->cache != NULL || client->memory != NULL;
    return rc == 0 && has_any ? rg_newest_create(&client->newest) : rc;
}

static int client_setup(struct rg_client *client, const struct rg_client_options *options,
                        char *error, size_t error_size)
{
    int rc = credentials_open(client, options, error, error_size);
    if (rc == 0) {
        rc = endpoint_open(client, options, error, error_size);
    }
    if (rc == 0) {
        rc = fields_open(client, options, error, error_size);
    }
    if (rc == 0) {
        rc = network_open(client, options, error, error_size);
    }
    if (rc == 0 && getrandom(client->write_seed, sizeof(client->write_seed), 0) !=
                       (ssize_t)sizeof(client->write_seed)) {
        rc = rg_explain(error, error_size, -EIO, "no random numbers: %s", rg_error_text(errno));
    }
    if (rc == 0) {
        rc = rg_resolver_create(&client->resolver, NULL);
    }
    if (rc == 0) {
        rc = rates_open(client);
    }
    if (rc == 0) {
        rc = share_open(client);
    }
    if (rc == 0) {
        rc = caches_open(client, options, error, error_size);
    }
    return rc == 0 ? loops_open(client) : rc;
}

/* What the cache was good for, when the client closes. */
static void cache_tell(const struct rg_cache *cache)
{
    struct rg_cache_stats stats;
    rg_cache_stats(cache, &stats);
    rg_log(RG_LOG_INFO,
           "cache: %" PRIu64 " blocks read, %" PRIu64 " not there, %" PRIu64 " written, %" PRIu64
           " not admitted, %" PRIu64 " dropped, %" PRIu64 " damaged, %" PRIu64
           " files removed, %" PRIu64 " errors",
           stats.hits, stats.misses, stats.written, stats.not_admitted, stats.dropped,
           stats.bad_records, stats.evicted, stats.errors);
}

static void memory_tell(struct rg_memory *memory)
{
    struct rg_memory_stats stats;
    rg_memory_stats(memory, &stats);
    rg_log(RG_LOG_INFO,
           "cache in memory: %" PRIu64 " blocks read, %" PRIu64 " not there, %" PRIu64
           " written, %" PRIu64 " not admitted, %" PRIu64 " damaged, %" PRIu64
           " segments evicted, %" PRIu64 " errors",
           stats.hits, stats.misses, stats.written, stats.not_admitted, stats.bad_records,
           stats.evicted, stats.errors);
}

static void client_free(struct rg_client *client)
{
    for (uint32_t i = 0; client->loops != NULL && i < client->loop_count; i++) {
        rg_transport_loop_destroy(client->loops[i].transports);
        rg_traffic_destroy(client->loops[i].traffic);
        rg_part_memory_fini(&client->loops[i].part_memory);
        rg_cached_reads_destroy(client->loops[i].cached);
    }
    if (client->cache != NULL && rg_log_enabled(RG_LOG_INFO)) {
        cache_tell(client->cache);
    }
    if (client->memory != NULL && rg_log_enabled(RG_LOG_INFO)) {
        memory_tell(client->memory);
    }
    rg_cache_close(client->cache);
    rg_memory_close(client->memory);
    rg_newest_destroy(client->newest);
    rg_rates_destroy(client->rates);
    rg_resolver_destroy(client->resolver);
    rg_network_close(&client->network);
    rg_secret_arena_fini(&client->fields_arena);
    rg_credentials_unref(client->credentials);
    free(client->share_folder);
    free(client->requests);
    free(client->loops);
    pthread_mutex_destroy(&client->users_lock);
    free(client);
}

static void client_tell(struct rg_client *client)
{
    char credentials[512], proxy[256];
    (void)rg_credentials_describe(client, credentials, sizeof(credentials));
    (void)rg_proxy_describe(client, proxy, sizeof(proxy));
    rg_log(RG_LOG_INFO, "client of %s%s; credentials: %s; proxy: %s", client->endpoint.text,
           client->endpoint.is_emulator ? " (STORAGE_EMULATOR_HOST)" : "", credentials, proxy);
}

int rg_client_open_explained(struct rg_client **out_client, struct rg_runtime *runtime,
                             const struct rg_client_options *options, char *error,
                             size_t error_size)
{
    if (rg_runtime_check(runtime) < 0) {
        return rg_explain(error, error_size, -EOWNERDEAD,
                          "the runtime was opened by the parent of this process");
    }
    struct rg_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return rg_explain(error, error_size, -ENOMEM, "no memory");
    }
    client->runtime = runtime;
    pthread_mutex_init(&client->users_lock, NULL);
    rg_list_init(&client->users);
    if (error != NULL && error_size > 0) {
        *error = '\0';
    }
    int rc = options_read(&client->options, options, runtime->workers, error, error_size);
    if (rc == 0) {
        rc = client_setup(client, &client->options, error, error_size);
    }
    if (rc < 0) {
        if (error != NULL && error_size > 0 && *error == '\0') {
            rg_explain(error, error_size, rc, "%s", rg_error_text(-rc));
        }
        rg_client_close(client);
        return rc;
    }
    if (rg_log_enabled(RG_LOG_INFO)) {
        client_tell(client);
    }
    *out_client = client;
    return 0;
}

/* An operation may outlast the pool, while a file is being read for it. */
static void loop_closed(void *context)
{
    struct rg_client_loop *client_loop = context;
    rg_client_loop_become(client_loop, RG_CLIENT_LOOP_POOL_CLOSED);
    rg_client_check_closed(client_loop);
}

/* Ends what `wanted` names. Ending one request may end others, wherever they are in the list. So
 * those that are to end get a list of their own first, while nothing ends, and are then taken from
 * its head until it is empty: who was ended by another has left it. */
static void loop_cancel(struct rg_client_loop *client_loop, enum rg_status status,
                        bool (*wanted)(const struct rg_request *request, const void *context),
                        const void *context)
{
    struct rg_list named, *active = &client_loop->active, *node, *next;
    rg_list_init(&named);
    for (node = active->next; node != active; node = next) {
        next = node->next;
        if (wanted(RG_CONTAINER_OF(node, struct rg_request, node), context)) {
            rg_list_remove(node);
            rg_list_push_back(&named, node);
        }
    }
    /* Until then the client loop is not empty, though its list may be. */
    RG_ASSERT(client_loop->state < RG_CLIENT_LOOP_POOL_CLOSED);
    while ((node = rg_list_pop_front(&named)) != NULL) {
        rg_list_push_back(active, node);
        rg_request_cancel(RG_CONTAINER_OF(node, struct rg_request, node), status);
    }
}

/* Requests that wait for their next attempt and operations are ended here, the others by the pool.
 */
static bool ends_at_close(const struct rg_request *request, const void *context)
{
    (void)context;
    return rg_request_is_waiting(request) || request->ops->cancel != NULL;
}

static void loop_close(void *context)
{
    struct rg_client_loop *client_loop = context;
    rg_client_loop_become(client_loop, RG_CLIENT_LOOP_CLOSING);
    loop_cancel(client_loop, RG_STATUS_CLOSED, ends_at_close, NULL);
    rg_authorizer_close(&client_loop->authorizer);
    rg_pool_close(client_loop->pool, loop_closed, client_loop);
}

/* Whether a request is out that removes what it leaves on the server. */
static bool has_leavings(const struct rg_client_loop *client_loop)
{
    const struct rg_list *active = &client_loop->active;
    for (const struct rg_list *node = active->next; node != active; node = node->next) {
        if (RG_CONTAINER_OF(node, struct rg_request, node)->ops->leaves_things) {
            return true;
        }
    }
    return false;
}

/* Children are ended by their operation. */
static bool is_no_child(const struct rg_request *request, const void *context)
{
    (void)context;
    return request->parent == NULL;
}

/* What removes nothing ends, too: it may hold all connections, and never be answered. */
static void loop_clean(void *context)
{
    struct rg_client_loop *client_loop = context;
    if (has_leavings(client_loop)) {
        loop_cancel(client_loop, RG_STATUS_CLOSED, is_no_child, NULL);
    }
}

/* Whether anything of a loop's is still being cleaned up. */
struct cleaning {
    struct rg_client_loop *client_loop;
    bool goes_on;
};

static void loop_look(void *context)
{
    struct cleaning *cleaning = context;
    cleaning->goes_on = has_leavings(cleaning->client_loop);
}

/* Ends what has left something on the server while there are connections to remove it by. */
static void client_clean(struct rg_client *client)
{
    uint64_t until_ns = rg_now_ns() + RG_CLIENT_CLEAN_TIME_NS;
    for (uint32_t i = 0; client->loops != NULL && i < client->loop_count; i++) {
        if (client->loops[i].pool != NULL) {
            rg_loop_call(client->loops[i].loop, loop_clean, &client->loops[i]);
        }
    }
    for (uint32_t i = 0; client->loops != NULL && i < client->loop_count; i++) {
        struct cleaning cleaning = {.client_loop = &client->loops[i],
                                    .goes_on = client->loops[i].pool != NULL};
        while (cleaning.goes_on && rg_now_ns() < until_ns) {
            rg_loop_call(cleaning.client_loop->loop, loop_look, &cleaning);
            if (cleaning.goes_on) {
                nanosleep(&(struct timespec){.tv_nsec = CLEAN_LOOK_INTERVAL_NS}, NULL);
            }
        }
    }
}

void rg_client_close_begin(struct rg_client *client)
{
    for (uint32_t i = 0; client->loops != NULL && i < client->loop_count; i++) {
        struct rg_client_loop *client_loop = &client->loops[i];
        if (client_loop->pool != NULL) {
            sem_init(&client_loop->closed, 0, 0);
            rg_loop_call(client_loop->loop, loop_close, client_loop);
        }
    }
}

static void nothing(void *context)
{
    (void)context;
}

/* Completions are published at the end of the pass that made them. A call may still be run in that
 * pass; one that is made after it has returned is not. */
void rg_client_await_completions(struct rg_client_loop *client_loop)
{
    rg_loop_call(client_loop->loop, nothing, NULL);
    rg_loop_call(client_loop->loop, nothing, NULL);
}

static void loop_close_await(struct rg_client_loop *client_loop)
{
    while (sem_wait(&client_loop->closed) < 0) {
        RG_ASSERT(errno == EINTR);
    }
    rg_client_await_completions(client_loop);
    sem_destroy(&client_loop->closed);
}

void rg_client_close_finish(struct rg_client *client)
{
    for (uint32_t i = 0; client->loops != NULL && i < client->loop_count; i++) {
        if (rg_client_loop_is_closing(&client->loops[i])) {
            loop_close_await(&client->loops[i]);
        }
    }
    client_free(client);
}

int rg_client_server_time(struct rg_client *client, int64_t *out_seconds)
{
    int64_t clock_ns = atomic_load_explicit(&client->shared.server_clock_ns, memory_order_relaxed);
    if (clock_ns == 0) {
        return -ENODATA;
    }
    *out_seconds = (clock_ns + (int64_t)rg_now_ns()) / (int64_t)RG_NS_PER_S;
    return 0;
}

void rg_client_join(struct rg_client *client, struct rg_client_user *user)
{
    pthread_mutex_lock(&client->users_lock);
    rg_list_push_back(&client->users, &user->node);
    pthread_mutex_unlock(&client->users_lock);
}

void rg_client_leave(struct rg_client *client, struct rg_client_user *user)
{
    pthread_mutex_lock(&client->users_lock);
    rg_list_remove(&user->node);
    pthread_mutex_unlock(&client->users_lock);
}

static void users_stop(struct rg_client *client)
{
    struct rg_list *node;
    pthread_mutex_lock(&client->users_lock);
    while ((node = rg_list_pop_front(&client->users)) != NULL) {
        struct rg_client_user *user = RG_CONTAINER_OF(node, struct rg_client_user, node);
        user->stop(user);
    }
    pthread_mutex_unlock(&client->users_lock);
}

void rg_client_close(struct rg_client *client)
{
    if (client == NULL || rg_runtime_check(client->runtime) < 0) {
        return;
    }
    users_stop(client);
    client_clean(client);
    rg_client_close_begin(client);
    rg_client_close_finish(client);
}

struct cancel {
    struct rg_mail mail;
    struct rg_client_loop *client_loop;
    struct rg_cq *cq;
    uint64_t user_data;
    bool all; /* whatever its user_data */
};

static bool is_named(const struct rg_request *request, const void *context)
{
    const struct cancel *cancel = context;
    return request->cq == cancel->cq && (cancel->all || request->user_data == cancel->user_data);
}

static void cancel_run(struct rg_mail *mail)
{
    struct cancel *cancel = RG_CONTAINER_OF(mail, struct cancel, mail);
    loop_cancel(cancel->client_loop, RG_STATUS_CANCELLED, is_named, cancel);
    free(cancel);
}

static int cancel_post(struct rg_client *client, struct rg_cq *cq, uint64_t user_data, bool all)
{
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    for (uint32_t i = 0; i < client->loop_count; i++) {
        struct cancel *cancel = malloc(sizeof(*cancel));
        if (cancel == NULL) {
            return -ENOMEM;
        }
        *cancel = (struct cancel){
            .mail.run = cancel_run,
            .client_loop = &client->loops[i],
            .cq = cq,
            .user_data = user_data,
            .all = all,
        };
        rg_loop_post(client->loops[i].loop, &cancel->mail);
    }
    return 0;
}

int rg_cancel(struct rg_client *client, struct rg_cq *cq, uint64_t user_data)
{
    return cancel_post(client, cq, user_data, false);
}

struct ending {
    struct rg_client_loop *client_loop;
    enum rg_status status;
    bool (*wanted)(const struct rg_request *request, const void *context);
    const void *context;
};

static void end_run(void *context)
{
    const struct ending *ending = context;
    loop_cancel(ending->client_loop, ending->status, ending->wanted, ending->context);
}

void rg_client_end(struct rg_client *client, enum rg_status status,
                   bool (*wanted)(const struct rg_request *request, const void *context),
                   const void *context)
{
    for (uint32_t i = 0; i < client->loop_count; i++) {
        struct ending ending = {&client->loops[i], status, wanted, context};
        rg_loop_call(client->loops[i].loop, end_run, &ending);
    }
}

int rg_client_cancel_all(struct rg_client *client, struct rg_cq *cq)
{
    return cancel_post(client, cq, 0, true);
}
