/* The emulator as a whole: a store, its API, certificates, a listening socket, and event loops that
 * serve it. Life: open (it listens when that returns) -> close, which cuts what is running. */
#ifndef RG_EMULATOR_EMULATOR_H
#define RG_EMULATOR_EMULATOR_H

#include "runtime/base.h"

#define RG_EMULATOR_LISTEN_DEFAULT "127.0.0.1:0"
#define RG_EMULATOR_THREADS_MAX 256
#define RG_EMULATOR_CONNECTIONS_MAX 20000 /* for each loop */
#define RG_EMULATOR_IDLE_TIMEOUT_NS (600 * RG_NS_PER_S)

/* Texts as on the command line; NULL, 0 and false are the defaults. All borrowed for the call. */
struct rg_emulator_options {
    const char *listen;           /* HOST:PORT; port 0 is any free one. */
    const char *root;             /* Folder of buckets; NULL: in memory. */
    const char *const *synthetic; /* BUCKET/PREFIX:COUNT:SIZE */
    size_t synthetic_count;
    const char *const *buckets; /* Made at the start, where they are not there yet. */
    size_t bucket_count;
    bool strict_buckets;    /* No object makes its bucket. */
    bool plain;             /* HTTP. */
    const char *tls_dir;    /* NULL: a temporary folder. */
    const char *latency_ms; /* P50[:P99] */
    const char *conn_mbps;  /* Megabits per second that each connection sends. */
    const char *rate_limit; /* Requests per second. */
    uint32_t threads;       /* 0: one for each processor of this process. */
    uint64_t memory_max;    /* for objects in memory */
    uint64_t seed;          /* the latencies are drawn from it */
};

struct rg_emulator;

/* Returns owned; on failure `error` is one line that names the bad value. */
int rg_emulator_open(struct rg_emulator **out_emulator, const struct rg_emulator_options *options,
                     char *error, size_t error_size);
void rg_emulator_close(struct rg_emulator *emulator);

/* "https://localhost:PORT"; valid until close. */
const char *rg_emulator_endpoint(const struct rg_emulator *emulator);
/* What a client has to trust; NULL with plain HTTP. */
const char *rg_emulator_ca_path(const struct rg_emulator *emulator);
/* The line for standard output, without its end:
 * {"endpoint":"https://localhost:PORT","ca":"PATH/ca.pem","pid":N} */
int rg_emulator_format_ready(const struct rg_emulator *emulator, char *out, size_t out_size);

#endif
