/* A client of ours and a scripted server that it talks to, on the backend that RINGEST_BACKEND
 * names.
 *
 *     struct rg_test_client c = {.scripts = scripts, .script_count = 1};
 *     rg_test_client_open(&c);
 *     rg_test_get(&c, &(struct rg_get){.object = "o"});
 *     struct rg_completion done = rg_test_take(&c);
 *     rg_test_client_close(&c);      checks that no completion is left
 *
 * Back-off is 1 to 5 ms and time-outs a minute, unless `options` says otherwise. */
#ifndef RG_TESTS_SUPPORT_CLIENT_H
#define RG_TESTS_SUPPORT_CLIENT_H

#include "tests/support/scripted_server.h"
#include "tests/support/test.h"

#include <ringest/gcs.h>

struct rg_test_client {
    /* Set by the test; zero means as usual. */
    const struct rg_step *const *scripts;
    uint32_t script_count;
    bool tls; /* with a certificate for localhost, which the client trusts */
    uint16_t tls_version_max;
    uint32_t handshake_delay_ms;
    const struct rg_test_certificate_spec
        *leaf;                     /* issuer is set to the authority, unless self_signed */
    bool self_signed, trust_other; /* no authority, or another than the client trusts */
    bool shake_never;              /* the client speaks TLS and the server does not */
    bool no_server;                /* options.endpoint is set by the test */
    bool ask_client;               /* the server wants a certificate that its authority issued */
    const char *host;              /* "localhost" with TLS, else "127.0.0.1" */
    uint32_t threads;              /* 1 */
    uint32_t workers;              /* of the process's rank, of which it is the first; none */
    uint64_t memory_max;           /* 64 MiB */
    uint32_t capacity;             /* of the queue; 4096 */
    bool hedges; /* the client does, as it usually would: counts of requests then depend on time */
    struct rg_client_options options;
    /* Set by open. */
    struct rg_scripted_server *server;
    struct rg_runtime *runtime;
    struct rg_client *client;
    struct rg_cq *cq;
    struct rg_test_certificate ca, certificate;
    char endpoint[128];
    char ca_path[RG_TEST_PATH_SIZE];
};

/* Skips the case where the backend that was asked for is not to be had. */
void rg_test_client_open(struct rg_test_client *c);
void rg_test_client_close(struct rg_test_client *c);

/* Submits, to bucket "bucket" unless the get names another; checks that it was accepted. */
void rg_test_get(struct rg_test_client *c, const struct rg_get *get);
/* The next completion; the case fails when none comes. */
struct rg_completion rg_test_take(struct rg_test_client *c);
/* True when none comes for that time. */
bool rg_test_is_quiet(struct rg_test_client *c, uint32_t ms);
struct rg_stats rg_test_stats(struct rg_test_client *c);
/* What was there for the client's event loops when this is called has been seen to when it returns.
 */
void rg_test_client_turn(struct rg_test_client *c);

/* The completion's status, printed with its detail when it is not the one that was expected. */
void rg_test_check_status(const char *file, int line, const struct rg_completion *completion,
                          enum rg_status want);
#define RG_CHECK_STATUS(completion, want)                                                          \
    rg_test_check_status(__FILE__, __LINE__, (completion), RG_STATUS_##want)
/* The data are `size` bytes of rg_script_byte from `offset` on. */
void rg_test_check_bytes(const char *file, int line, const struct rg_completion *completion,
                         uint64_t offset, uint64_t size);
#define RG_CHECK_BYTES(completion, offset, size)                                                   \
    rg_test_check_bytes(__FILE__, __LINE__, (completion), (offset), (size))
/* The text contains the part. */
void rg_test_check_contains(const char *file, int line, const char *text, const char *part);
#define RG_CHECK_CONTAINS(text, part) rg_test_check_contains(__FILE__, __LINE__, (text), (part))

/* "x-goog-generation: G\r\nx-goog-hash: crc32c=...\r\n..." of an object of rg_script_byte; static
 * storage, for a few at a time. */
const char *rg_test_object_fields(uint64_t size, int64_t generation);

/* "HTTP/1.1 200 OK\r\n...", with the body behind it; static storage, for a few at a time. */
const char *rg_test_answer(const char *status_line, const char *body);
/* The same with a field of its own. */
const char *rg_test_answer_with(const char *status_line, const char *field, const char *body);

#endif
