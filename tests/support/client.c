/* Clients against scripted servers: see client.h. */
#include "tests/support/client.h"

#include "tests/support/test.h"

#include <inttypes.h>
#include <time.h>
#include <unistd.h>

/* Longer than a busy machine holds anything up. */
#define TIMEOUT_NS (60 * RG_NS_PER_S)
#define FIELDS_KEPT 16
#define FIELDS_SIZE 256

static const char *host_of(const struct rg_test_client *c)
{
    return c->host != NULL ? c->host : c->tls ? "localhost" : "127.0.0.1";
}

static void certificates_open(struct rg_test_client *c)
{
    static const struct rg_test_certificate_spec authority = {.common_name = "ca",
                                                              .authority = true};
    static const struct rg_test_certificate_spec usual = {.common_name = "leaf",
                                                          .alt_names = "DNS:localhost"};
    rg_test_certificate_make(&c->ca, &authority);
    struct rg_test_certificate_spec spec = c->leaf != NULL ? *c->leaf : usual;
    spec.issuer = c->self_signed ? NULL : &c->ca;
    rg_test_certificate_make(&c->certificate, &spec);
    if (c->trust_other) {
        static const struct rg_test_certificate_spec stranger = {.common_name = "another ca",
                                                                 .authority = true};
        struct rg_test_certificate other;
        rg_test_certificate_make(&other, &stranger);
        rg_test_file_make(other.cert_pem, c->ca_path);
        rg_test_certificate_free(&other);
    } else {
        rg_test_file_make(c->ca.cert_pem, c->ca_path);
    }
    c->options.ca_file = c->ca_path;
}

static void server_open(struct rg_test_client *c)
{
    static const struct rg_step hold[] = {RG_HOLD, RG_END};
    static const struct rg_step *const holds[] = {hold};
    struct rg_script_options options = {
        .scripts = c->script_count > 0 ? c->scripts : holds,
        .script_count = RG_MAX(c->script_count, 1u),
        .certificate = c->tls ? &c->certificate : NULL,
        .tls_version_max = c->tls_version_max,
        .handshake_delay_ms = c->handshake_delay_ms,
        .client_ca = c->ask_client ? &c->ca : NULL,
    };
    c->server = rg_scripted_server_start(&options);
    if (c->options.endpoint == NULL) {
        snprintf(c->endpoint, sizeof(c->endpoint), "%s://%s:%u",
                 c->tls || c->shake_never ? "https" : "http", host_of(c),
                 rg_scripted_server_port(c->server));
        c->options.endpoint = c->endpoint;
    }
}

static void default_ns(uint64_t *value, uint64_t standard)
{
    *value = *value != 0 ? *value : standard;
}

static void options_complete(struct rg_client_options *options)
{
    options->struct_size = sizeof(*options);
    options->connections_max = options->connections_max != 0 ? options->connections_max : 4;
    default_ns(&options->connect_timeout_ns, TIMEOUT_NS);
    default_ns(&options->first_byte_timeout_ns, TIMEOUT_NS);
    default_ns(&options->stall_timeout_ns, TIMEOUT_NS);
    default_ns(&options->backoff_min_ns, RG_NS_PER_MS);
    default_ns(&options->backoff_max_ns, 5 * RG_NS_PER_MS);
}

void rg_test_client_open(struct rg_test_client *c)
{
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = c->threads != 0 ? c->threads : 1;
    options.workers = c->workers;
    options.memory_max = c->memory_max != 0 ? c->memory_max : RG_MIB(64);
    options.numa_policy = RG_NUMA_NONE;
    int rc = rg_runtime_open(&c->runtime, &options);
    if (rc == -EPERM) {
        rg_test_skip("io_uring is not to be had here");
    }
    RG_CHECK_EQ(rc, 0);
    if (c->tls || c->shake_never) {
        certificates_open(c);
    }
    if (!c->no_server) {
        server_open(c);
    }
    options_complete(&c->options);
    if (!c->hedges) {
        c->options.hedging = RG_SWITCH_OFF;
    }
    char error[256];
    rc = rg_client_open_explained(&c->client, c->runtime, &c->options, error, sizeof(error));
    if (rc < 0) {
        rg_test_fail(__FILE__, __LINE__, "rg_client_open says %d: %s", rc, error);
    }
    RG_CHECK_EQ(rg_cq_open(&c->cq, c->runtime, c->capacity != 0 ? c->capacity : 4096), 0);
}

void rg_test_client_close(struct rg_test_client *c)
{
    rg_client_close(c->client);
    struct rg_completion left;
    RG_CHECK_EQ(rg_cq_poll(c->cq, &left, 1), 0);
    struct rg_stats stats = rg_test_stats(c);
    RG_CHECK_EQ(stats.leased_bytes, 0);
    RG_CHECK_EQ(stats.connections, 0);
    rg_cq_close(c->cq);
    rg_runtime_close(c->runtime);
    if (c->server != NULL) {
        rg_scripted_server_stop(c->server);
    }
    if (c->tls || c->shake_never) {
        rg_test_certificate_free(&c->ca);
        rg_test_certificate_free(&c->certificate);
        unlink(c->ca_path);
    }
}

void rg_test_get(struct rg_test_client *c, const struct rg_get *get)
{
    struct rg_get own = *get;
    own.bucket = own.bucket != NULL ? own.bucket : "bucket";
    own.object = own.object != NULL ? own.object : "object";
    RG_CHECK_EQ(rg_submit_get(c->client, c->cq, &own), 0);
}

struct rg_completion rg_test_take(struct rg_test_client *c)
{
    struct rg_completion completion;
    int got = rg_cq_wait(c->cq, &completion, 1, 1, rg_now_ns() + RG_TEST_PATIENCE_NS);
    RG_CHECK_EQ(got, 1);
    return completion;
}

bool rg_test_is_quiet(struct rg_test_client *c, uint32_t ms)
{
    struct rg_completion completion;
    int got = rg_cq_wait(c->cq, &completion, 1, 1, rg_now_ns() + ms * RG_NS_PER_MS);
    if (got == 1) {
        printf("  a completion came: %s, %s\n", rg_status_name(completion.status),
               completion.detail);
        rg_lease_release(completion.lease);
    }
    return got == -ETIME;
}

struct rg_stats rg_test_stats(struct rg_test_client *c)
{
    struct rg_stats stats;
    RG_CHECK_EQ(rg_runtime_stats(c->runtime, &stats), 0);
    return stats;
}

void rg_test_client_turn(struct rg_test_client *c)
{
    /* Each loop has its part in the opening and the closing of a client. */
    struct rg_client_options options = c->options;
    options.prewarm = 0;
    for (unsigned i = 0; i < 3; i++) {
        struct rg_client *other = NULL;
        RG_CHECK_EQ(rg_client_open(&other, c->runtime, &options), 0);
        rg_client_close(other);
    }
}

void rg_test_check_status(const char *file, int line, const struct rg_completion *completion,
                          enum rg_status want)
{
    if (completion->status != want) {
        rg_test_fail(file, line, "the status is %s, wanted %s: %s",
                     rg_status_name(completion->status), rg_status_name(want),
                     completion->detail != NULL ? completion->detail : "");
    }
}

void rg_test_check_bytes(const char *file, int line, const struct rg_completion *completion,
                         uint64_t offset, uint64_t size)
{
    if (completion->size != size) {
        rg_test_fail(file, line, "got %" PRIu64 " bytes, wanted %" PRIu64, completion->size, size);
    }
    uint64_t wrong = rg_script_differs(completion->data, offset, size);
    if (wrong < size) {
        rg_test_fail(file, line, "byte %" PRIu64 " of %" PRIu64 " is wrong", wrong, size);
    }
}

void rg_test_check_contains(const char *file, int line, const char *text, const char *part)
{
    if (text == NULL || strstr(text, part) == NULL) {
        rg_test_fail(file, line, "\"%s\" is not in \"%s\"", part, text != NULL ? text : "(null)");
    }
}

/* Bit by bit: nothing is shared with the code under test. */
static uint32_t crc_of_object(uint64_t size)
{
    uint32_t crc = UINT32_MAX;
    for (uint64_t i = 0; i < size; i++) {
        crc ^= rg_script_byte(i);
        for (unsigned bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (UINT32_C(0x82f63b78) & -(crc & 1));
        }
    }
    return ~crc;
}

const char *rg_test_object_fields(uint64_t size, int64_t generation)
{
    static char kept[FIELDS_KEPT][FIELDS_SIZE];
    static unsigned next;
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t crc = crc_of_object(size);
    uint64_t bits = (uint64_t)crc << 4; /* 36 bits: six digits */
    char base64[9] = "======";
    for (unsigned i = 0; i < 6; i++) {
        base64[i] = digits[(bits >> (30 - 6 * i)) & 63];
    }
    base64[6] = base64[7] = '=';
    char *fields = kept[next++ % FIELDS_KEPT];
    snprintf(fields, FIELDS_SIZE,
             "x-goog-generation: %" PRId64 "\r\nx-goog-hash: crc32c=%s\r\n"
             "x-goog-stored-content-length: %" PRIu64 "\r\n",
             generation, base64, size);
    return fields;
}

const char *rg_test_answer_with(const char *status_line, const char *field, const char *body)
{
    static char *kept[FIELDS_KEPT];
    static unsigned next;
    char **answer = &kept[next++ % FIELDS_KEPT];
    free(*answer);
    RG_CHECK(asprintf(answer, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n%s", status_line, field,
                      strlen(body), body) > 0);
    return *answer;
}

const char *rg_test_answer(const char *status_line, const char *body)
{
    return rg_test_answer_with(status_line, "", body);
}
