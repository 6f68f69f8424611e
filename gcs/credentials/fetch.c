/* One request at a time: see fetch.h. The life of one try: pool created -> exchange submitted ->
 * passes of the loop until it is done, cancelled or late -> answer copied out and the original
 * wiped -> pool closed. */
#include "gcs/credentials/fetch.h"

#include "gcs/network/network.h"
#include "gcs/wire/retry_after.h"
#include "http/answer.h"
#include "http/url.h"
#include "runtime/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define USER_AGENT "ringest/" RG_VERSION_STRING
/* Where the pool and its connection, the second of which a slow first one calls for, put bodies. */
#define FETCH_MEMORY RG_MIB(4)
#define FETCH_CONNECTIONS 2

struct target {
    struct rg_url url;
    char host[RG_URL_HOST_SIZE_MAX + 1];
    char authority[RG_URL_HOST_SIZE_MAX + 8 + 1];
    char path[RG_FETCH_URL_SIZE_MAX + 2]; /* with the query */
};

struct fetch {
    struct rg_exchange x;
    const struct rg_fetch_request *request;
    const struct target *target;
    const struct rg_network *network;
    struct rg_fetch_response *response;
    bool done, closed;
    char text[192]; /* of the failure */
};

static int fail(char *error, size_t error_size, int rc, const char *format, ...) RG_PRINTF(4, 5);

static int fail(char *error, size_t error_size, int rc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, error_size, format, args);
    va_end(args);
    return rc;
}

static void wake_run(struct rg_mail *mail)
{
    (void)mail;
}

int rg_fetcher_init(struct rg_fetcher *fetcher, uint64_t deadline_ns)
{
    *fetcher = (struct rg_fetcher){
        .deadline_ns = deadline_ns,
        .backoff_ns = RG_FETCH_BACKOFF_NS,
        .wake.run = wake_run,
    };
    /* epoll, whatever the program uses otherwise: a few requests an hour are not worth a ring. */
    struct rg_loop_options options = {.backend = &rg_epoll_backend, .memory_max = FETCH_MEMORY};
    int rc = rg_loop_create(&fetcher->loop, &options);
    if (rc == 0) {
        rc = rg_loop_attach(fetcher->loop);
    }
    if (rc == 0) {
        /* Twice: below the server's TLS there may be that of a proxy. */
        rc = rg_transport_loop_create(&fetcher->transports, fetcher->loop, 2 * FETCH_CONNECTIONS);
    }
    if (rc == 0) {
        rc = rg_resolver_create(&fetcher->resolver, NULL);
    }
    if (rc < 0) {
        rg_fetcher_fini(fetcher);
    }
    return rc;
}

void rg_fetcher_fini(struct rg_fetcher *fetcher)
{
    rg_resolver_destroy(fetcher->resolver);
    rg_transport_loop_destroy(fetcher->transports);
    rg_loop_destroy(fetcher->loop);
    *fetcher = (struct rg_fetcher){0};
}

void rg_fetcher_cancel(struct rg_fetcher *fetcher)
{
    if (!atomic_exchange(&fetcher->cancelled, true)) {
        rg_loop_post(fetcher->loop, &fetcher->wake);
    }
}

static bool is_cancelled(struct rg_fetcher *fetcher)
{
    return atomic_load(&fetcher->cancelled);
}

static int target_parse(struct target *target, const char *text)
{
    size_t size = strnlen(text, RG_FETCH_URL_SIZE_MAX + 1), base_size = strcspn(text, "?");
    bool has_scheme = strncasecmp(text, "https://", 8) == 0 || strncasecmp(text, "http://", 7) == 0;
    if (size > RG_FETCH_URL_SIZE_MAX || !has_scheme ||
        rg_url_parse(text, base_size, &target->url) < 0) {
        return -EINVAL;
    }
    const struct rg_url *url = &target->url;
    const char *path = url->authority.data + url->authority.size;
    if (rg_h1_target_span(path, strlen(path)) != strlen(path)) {
        return -EINVAL;
    }
    snprintf(target->host, sizeof(target->host), "%.*s", (int)url->host.size, url->host.data);
    snprintf(target->authority, sizeof(target->authority), "%.*s", (int)url->authority.size,
             url->authority.data);
    snprintf(target->path, sizeof(target->path), "%s%s", *path == '/' ? "" : "/", path);
    return 0;
}

static int fetch_encode(struct rg_exchange *x, struct rg_h1_encoder *encoder)
{
    struct fetch *fetch = RG_CONTAINER_OF(x, struct fetch, x);
    const struct rg_fetch_request *request = fetch->request;
    rg_h1_encode_request(encoder, request->method, fetch->target->path);
    rg_h1_encode_header(encoder, "Host", fetch->target->authority);
    rg_h1_encode_header(encoder, "User-Agent", USER_AGENT);
    rg_h1_encode_header(encoder, "Accept", "application/json, */*;q=0.5");
    for (size_t i = 0; i < request->field_count; i++) {
        rg_h1_encode_header(encoder, request->fields[i].name, request->fields[i].value);
    }
    if (request->body != NULL || strcmp(request->method, "GET") != 0) {
        rg_h1_encode_header_u64(encoder, "Content-Length", request->body_size);
    }
    rg_h1_encode_header(encoder, "Connection", "close");
    return rg_h1_encode_end(encoder);
}

static enum rg_body_action fetch_head(struct rg_exchange *x, const struct rg_h1_head *head)
{
    struct fetch *fetch = RG_CONTAINER_OF(x, struct fetch, x);
    const struct rg_h1_slice *flavor = rg_h1_find(head, "metadata-flavor");
    fetch->response->is_metadata =
        flavor != NULL && flavor->size == 6 && memcmp(flavor->data, "Google", 6) == 0;
    const struct rg_h1_slice *date = rg_h1_find(head, "date");
    if (date == NULL || rg_http_date_parse(*date, &fetch->response->date_s) < 0) {
        fetch->response->date_s = 0;
    }
    x->body_max = RG_FETCH_BODY_SIZE_MAX;
    return RG_BODY_LEASE;
}

static void fetch_done(struct rg_exchange *x)
{
    struct fetch *fetch = RG_CONTAINER_OF(x, struct fetch, x);
    RG_ASSERT(!fetch->done);
    fetch->done = true;
    snprintf(fetch->text, sizeof(fetch->text), "%s%s", x->text != NULL ? ": " : "",
             x->text != NULL ? x->text : "");
}

static const struct rg_exchange_ops fetch_ops = {
    .encode = fetch_encode,
    .head = fetch_head,
    .done = fetch_done,
};

static void pool_closed(void *context)
{
    struct fetch *fetch = context;
    fetch->closed = true;
}

/* Passes until the exchange is done, which it is soon after its time is up. */
static void exchange_drive(struct rg_fetcher *fetcher, struct rg_pool *pool, struct fetch *fetch,
                           uint64_t until_ns)
{
    bool told = false;
    rg_pool_submit(pool, &fetch->x);
    while (!fetch->done) {
        rg_loop_pass(fetcher->loop, told ? UINT64_MAX : until_ns);
        bool late = rg_now_ns() >= until_ns;
        if (!fetch->done && !told && (late || is_cancelled(fetcher))) {
            told = true;
            rg_pool_cancel(pool, &fetch->x, late ? RG_STATUS_STALLED : RG_STATUS_CANCELLED);
        }
    }
}

/* The way to the server. A URL without TLS never takes a proxy, and metadata services have no
 * other. */
static int network_open(struct rg_network *network, const struct rg_fetcher *fetcher,
                        const struct target *target, char *error, size_t error_size)
{
    struct rg_client_options options;
    rg_client_options_init(&options);
    options.client_cert_file = fetcher->cert_file;
    options.client_key_file = fetcher->key_file;
    options.proxy = target->url.is_tls ? fetcher->proxy : NULL;
    struct rg_endpoint endpoint = {
        .is_tls = target->url.is_tls,
        .port = target->url.port,
        .connect_port = target->url.port,
    };
    strcpy(endpoint.host, target->host);
    strcpy(endpoint.connect_host, target->host);
    strcpy(endpoint.text, target->authority);
    return rg_network_open(network, &options, &endpoint, error, error_size);
}

static int pool_open(struct rg_fetcher *fetcher, const struct fetch *fetch, uint64_t timeout_ns,
                     struct rg_pool **out_pool)
{
    struct rg_pool_options options = {
        .host = fetch->target->host,
        .port = fetch->target->url.port,
        .resolver = fetcher->resolver,
        .transports = fetcher->transports,
        .connections_max = FETCH_CONNECTIONS,
        .connect_timeout_ns = timeout_ns,
        .first_byte_timeout_ns = timeout_ns,
        .stall_timeout_ns = timeout_ns,
        .idle_timeout_ns = timeout_ns,
    };
    rg_network_apply(fetch->network, &options);
    return rg_pool_create(out_pool, fetcher->loop, &options);
}

/* Copies the body into the arena and wipes where it lay. */
static int answer_take(struct rg_exchange *x, struct rg_secret_arena *arena,
                       struct rg_fetch_response *response)
{
    response->status = x->http_status;
    response->body_size = x->lease != NULL ? (size_t)x->body_size : 0;
    response->body = rg_secret_copy(arena, x->body, response->body_size);
    if (x->lease != NULL) {
        explicit_bzero(x->lease->data, x->lease->capacity);
    }
    return response->body != NULL ? 0 : -ENOMEM;
}

/* One try. 0: there is an answer. *out_again: it failed in a way that another try may mend. */
static int try_once(struct rg_fetcher *fetcher, struct rg_secret_arena *arena, struct fetch *fetch,
                    bool *out_again, char *error, size_t error_size)
{
    struct rg_pool *pool;
    uint64_t timeout_ns = fetch->request->timeout_ns != 0 ? fetch->request->timeout_ns
                                                          : (uint64_t)RG_FETCH_TIMEOUT_NS;
    const struct target *target = fetch->target;
    *out_again = false;
    int rc = pool_open(fetcher, fetch, timeout_ns, &pool);
    if (rc < 0) {
        return fail(error, error_size, rc, "%s: %s", target->authority, rg_error_text(-rc));
    }
    struct rg_exchange *x = &fetch->x;
    *x = (struct rg_exchange){
        .ops = &fetch_ops,
        .upload = (const uint8_t *)fetch->request->body,
        .upload_size = fetch->request->body_size,
    };
    fetch->done = fetch->closed = false;
    fetch->response->started_ns = rg_now_ns();
    exchange_drive(
        fetcher, pool, fetch,
        RG_MIN(rg_time_after(fetch->response->started_ns, timeout_ns), fetcher->deadline_ns));
    if (x->status == RG_STATUS_OK) {
        rc = answer_take(x, arena, fetch->response);
    } else {
        const char *system_text = x->os_error != 0 ? rg_error_text(x->os_error) : NULL;
        *out_again = rg_exchange_may_mend(x);
        rc = fail(error, error_size, x->status == RG_STATUS_STALLED ? -ETIMEDOUT : -EIO,
                  "%s: %s%s%s%s", target->authority, rg_status_text(x->status), fetch->text,
                  system_text != NULL ? ": " : "", system_text != NULL ? system_text : "");
    }
    rg_lease_release(x->lease);
    rg_pool_close(pool, pool_closed, fetch);
    while (!fetch->closed) {
        rg_loop_pass(fetcher->loop, UINT64_MAX);
    }
    return rc;
}

/* An answer that asks for another try: by its status, or by an error that RFC 6749 section 4.1.2.1
 * names and Google's servers send with 400, which as a status says the opposite. */
static bool is_unwell(const struct rg_fetch_response *response)
{
    static const char *const causes[] = {"\"internal_failure\"", "\"server_error\"",
                                         "\"temporarily_unavailable\""};
    bool unwell = rg_answer_may_mend(response->status);
    for (size_t i = 0; i < RG_ARRAY_LEN(causes) && response->status == 400; i++) {
        unwell = unwell || strstr(response->body, causes[i]) != NULL;
    }
    return unwell;
}

bool rg_fetcher_wait(struct rg_fetcher *fetcher, uint64_t until_ns)
{
    if (until_ns >= fetcher->deadline_ns) {
        return false;
    }
    while (rg_now_ns() < until_ns && !is_cancelled(fetcher)) {
        rg_loop_pass(fetcher->loop, until_ns);
    }
    return !is_cancelled(fetcher);
}

/* Waits before the next try; false when there is no time for one, or no wish. */
static bool pause_before(struct rg_fetcher *fetcher, uint32_t failed_tries)
{
    uint64_t pause_ns = RG_MIN(fetcher->backoff_ns << RG_MIN(failed_tries - 1, 16u),
                               (uint64_t)RG_FETCH_BACKOFF_NS_MAX);
    uint64_t now_ns = rg_now_ns();
    /* A tenth more or less, by the clock's own noise. */
    return rg_fetcher_wait(fetcher,
                           now_ns + pause_ns - pause_ns / 10 + now_ns % (pause_ns / 5 + 1));
}

int rg_fetch(struct rg_fetcher *fetcher, struct rg_secret_arena *arena,
             const struct rg_fetch_request *request, struct rg_fetch_response *out_response,
             char *error, size_t error_size)
{
    struct target target;
    if (target_parse(&target, request->url) < 0) {
        return fail(error, error_size, -EINVAL, "not a URL that can be asked: %.100s",
                    request->url);
    }
    struct rg_network network = {0};
    int rc = network_open(&network, fetcher, &target, error, error_size);
    if (rc < 0) {
        rg_network_close(&network);
        return rc;
    }
    struct rg_fetch_response response = {0};
    struct fetch fetch = {
        .request = request, .target = &target, .network = &network, .response = &response};
    uint32_t tries = request->tries != 0 ? request->tries : RG_FETCH_TRIES;
    for (uint32_t i = 1;; i++) {
        bool again = false;
        rc = is_cancelled(fetcher) ? -ECANCELED
                                   : try_once(fetcher, arena, &fetch, &again, error, error_size);
        again = again || (rc == 0 && is_unwell(&response));
        if (!again || i >= tries || !pause_before(fetcher, i)) {
            break;
        }
    }
    rg_network_close(&network);
    if (is_cancelled(fetcher)) {
        return fail(error, error_size, -ECANCELED, "cancelled");
    }
    if (rc == 0) {
        *out_response = response;
    }
    return rc;
}
