/* Google Cloud Storage: a client, and requests that read, list and write objects. Strings are UTF-8
 * and NUL-terminated. Submit functions never block. */
#ifndef RINGEST_GCS_H
#define RINGEST_GCS_H

#include <ringest/runtime.h>

RG_DECLS_BEGIN
struct rg_client;

/* GCS: a job begins 5,000 reads and 1,000 writes a second in each bucket, and at most doubles that
 * in 20 minutes, as Google's guide to request rates asks for. NONE: it follows answers alone. */
enum rg_ramp { RG_RAMP_DEFAULT = 0, RG_RAMP_NONE = 1, RG_RAMP_GCS = 2 };
enum rg_switch { RG_SWITCH_DEFAULT = 0, RG_SWITCH_ON = 1, RG_SWITCH_OFF = 2 };

/* Zero or NULL means RINGEST_<NAME> in the environment (docs/CONFIGURATION.md), else the default,
 * which follows the semicolon. Times are in nanoseconds; RG_FOREVER switches a time-out off. */
struct rg_client_options {
    size_t struct_size;
    /* "https://host[:port]", "http://...", "host:port" (plain HTTP); STORAGE_EMULATOR_HOST, else
     * Cloud Storage. private. and restricted.googleapis.com answer to the name
     * storage.googleapis.com. */
    const char *endpoint;
    const char *connect_to;   /* "host[:port]" to connect to; certificates follow the endpoint */
    const char *ca_file;      /* PEM of trusted roots; SSL_CERT_FILE, SSL_CERT_DIR, else system's */
    const char *token;        /* fixed OAuth 2.0 access token; what `credentials` gives */
    const char *user_project; /* sent as x-goog-user-project; the credentials' quota project */
    const char *headers;      /* extra request fields, one "Name: value" a line; RINGEST_HEADERS */
    const char *user_agent;   /* put before the library's own */
    uint32_t connections_max; /* open at once over all loops; 256 */
    uint32_t requests_max;    /* submitted and not completed; 8192. Beyond it submit says -EAGAIN */
    uint32_t attempts_max;    /* for one submit; 8. 1: no retry. Verifying a write adds as many */
    uint64_t connect_timeout_ns;    /* one attempt to connect, TLS included; 10 s */
    uint64_t first_byte_timeout_ns; /* from all of the request delivered to the first byte; 30 s */
    uint64_t stall_timeout_ns;      /* without a byte of an answer or an upload moving; 20 s */
    uint64_t idle_timeout_ns;       /* an unused connection is closed after it; 60 s */
    uint64_t backoff_min_ns;        /* first delay before a retry, before jitter; 100 ms */
    uint64_t backoff_max_ns;        /* 30 s */
    enum rg_switch checksum;        /* compute CRC32C and compare it; ON */
    uint32_t prewarm;               /* connections opened before there are requests; 0 */
    /* Path of a credential file, "default" (Application Default Credentials), or "anonymous". NULL:
     * "default" for the service itself, else "anonymous", so that nobody else sees a token. */
    const char *credentials;
    const char *scope; /* OAuth scopes, separated by spaces; full control of storage */
    /* Of access tokens, limits and latencies with other processes of this user and host: "true",
     * "false", or the absolute path of a folder in memory; "true", by /dev/shm. */
    const char *sharing;
    /* "http[s]://[USER:PASSWORD@]HOST[:PORT]" for all connections, those to https token servers
     * too, by CONNECT; "": none. NULL: HTTPS_PROXY and NO_PROXY, never for emulators and loopback.
     * An https proxy needs an https endpoint. */
    const char *proxy;
    const char *client_cert_file, *client_key_file; /* PEM, for mutual TLS; both or neither */
    const char *local_address; /* connect from this address of the machine; any */
    const char *local_device;  /* connect through this device ("eth1"; may need CAP_NET_RAW); any */
    /* Adapting: after 429, 503 or rising latency, fewer requests are in flight in that bucket for a
     * time; reads much slower than like ones are tried again, a body from where it broke off. */
    enum rg_switch adapting;  /* ON */
    enum rg_switch hedging;   /* send late reads a second time, on another connection; ON */
    uint32_t hedges_per_1000; /* second requests for 1,000 requests, at most; 20 */
    uint64_t hedge_size_max;  /* bodies expected to be larger are never asked for twice; 1 MiB */
    uint32_t reads_per_s, writes_per_s; /* at most, of this client, for each bucket; no limit */
    enum rg_ramp ramp;                  /* NONE */
    /* Of the job: each has an equal part of its ramp, and if they are more than 64, begins with one
     * of 5,000 reads and 1,000 writes a second, doubled each half second until a 429. WORLD_SIZE,
     * OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_STEP_NUM_TASKS, else 1; times `workers`. */
    uint32_t job_processes;
    /* A folder of this user's where what is read is kept for the next time (docs/CACHE.md); none.
     * Bytes that it may take, of all processes; 0: nine tenths of what is free there. */
    const char *cache;
    uint64_t cache_size;
    uint64_t cache_memory; /* bytes of memory for the same, of all processes of the host; 0: none */
};

RG_INIT(rg_client_options)

/* Options by name, as the environment, Python and `ringest --option` have them: without _ns, _max
 * and the like, in seconds where C has nanoseconds ("2.5", "inf"), sizes also as "64MiB". */
enum rg_option_kind {
    RG_OPTION_NONE, /* there is none of this name */
    RG_OPTION_TEXT,
    RG_OPTION_COUNT,
    RG_OPTION_SIZE,
    RG_OPTION_SECONDS,
    RG_OPTION_SWITCH, /* "true" or "false" */
    RG_OPTION_CHOICE,
    RG_OPTION_SWITCH_OR_FOLDER /* or an absolute path */
};
RG_API enum rg_option_kind rg_option_kind(const char *name);
/* The names; NULL behind the last. */
RG_API const char *rg_option_name(size_t index);
/* Sets the option in its struct; `text` is borrowed as long as that. 0, or -EINVAL after storing a
 * line that says what it may be; `error` may be NULL. */
RG_API int rg_option_set(struct rg_runtime_options *runtime, struct rg_client_options *client,
                         const char *name, const char *text, char *error, size_t error_size);
/* Sets what is not set, and RINGEST_<NAME> gives, as opening does; the same errors. Either struct
 * may be NULL. Texts are borrowed from the environment. */
RG_API int rg_options_from_environment(struct rg_runtime_options *runtime,
                                       struct rg_client_options *client, char *error,
                                       size_t error_size);

/* Opens a client. Sends nothing before the first request, except with `prewarm`; if no
 * token can be obtained then, requests complete with RG_STATUS_CREDENTIALS. `error` (may be NULL)
 * gets a line with the option or file and the cause. Errors: -EINVAL (an option or credential
 * file), -ENOENT (no trusted roots), -ENOMEM, and those of reading files. */
RG_API int rg_client_open_explained(struct rg_client **out_client, struct rg_runtime *runtime,
                                    const struct rg_client_options *options, char *error,
                                    size_t error_size);
static inline int rg_client_open(struct rg_client **out_client, struct rg_runtime *runtime,
                                 const struct rg_client_options *options)
{
    return rg_client_open_explained(out_client, runtime, options, NULL, 0);
}
/* The server's clock in seconds since 1970, from its answers to this client. -ENODATA: none yet. */
RG_API int rg_client_server_time(struct rg_client *client, int64_t *out_seconds);
/* Closes the client and waits for its threads. Requests in flight complete with RG_STATUS_CLOSED,
 * or with a result that is already there. Takes up to 1 s for peers that do not read, and 10 s for
 * uploads to remove what they left on the server. */
RG_API void rg_client_close(struct rg_client *client);
/* One line for people: kind, account, source and expiry of the token, without secrets; or why there
 * is no token. Returns the text's length, like snprintf, or -EOWNERDEAD. */
RG_API int rg_credentials_describe(struct rg_client *client, char *out, size_t out_size);
/* The same for the proxy: "http://HOST:PORT", without credentials, or "none". */
RG_API int rg_proxy_describe(struct rg_client *client, char *out, size_t out_size);

/* The largest names that the service allows, in bytes. */
#define RG_OBJECT_NAME_SIZE_MAX 1024
#define RG_BUCKET_NAME_SIZE_MAX 222

/* The reads, or the writes, of a bucket now, over all loops of a client. A loop that was told to
 * slow down (429, 503, latency) or follows others of the host has a rate of its own. */
struct rg_bucket_side {
    uint32_t limit;              /* about how many are out at those rates; 0: none is slowed down */
    uint32_t in_flight, waiting; /* waiting: for the rate */
    double rate_per_s; /* those loops', at most reads_per_s, writes_per_s, ramp; 0: none */
    uint64_t backoffs; /* times a rate was cut */
};
struct rg_bucket_stats {
    char name[RG_BUCKET_NAME_SIZE_MAX + 1];
    struct rg_bucket_side reads, writes;
    uint32_t processes; /* of this host, which share the limits; 0: none but this one */
};
/* Stores up to out_max of the buckets that were used lately. Returns how many, -ENOMEM or
 * -EOWNERDEAD. Waits for a pass of each loop; not on a loop's thread. */
RG_API int rg_client_buckets_sized(struct rg_client *client, struct rg_bucket_stats *out,
                                   uint32_t out_max, size_t struct_size);
static inline int rg_client_buckets(struct rg_client *client, struct rg_bucket_stats *out,
                                    uint32_t out_max)
{
    return rg_client_buckets_sized(client, out, out_max, sizeof(*out));
}

/* In conditions: "match" requires that there is no object, "not match" that there is one. */
#define RG_GENERATION_ABSENT INT64_C(-1)
/* Conditions on the object; 0: none. If one fails: RG_STATUS_PRECONDITION. */
struct rg_conditions {
    int64_t if_generation_match, if_generation_not_match; /* or RG_GENERATION_ABSENT */
    int64_t if_metageneration_match, if_metageneration_not_match;
};

/* In all requests: strings are copied; user_data comes back in the completion; deadline_ns is
 * CLOCK_MONOTONIC, 0: none; generation 0 is the newest. Submit functions return 0; -EAGAIN (queue
 * or client is full: take completions first); -EINVAL (a name that the service would refuse, a
 * number out of range); -EOWNERDEAD. */
#define RG_SUBMIT(name, type)                                                                      \
    RG_API int rg_submit_##name##_sized(struct rg_client *client, struct rg_cq *cq,                \
                                        const struct type *request, size_t struct_size);           \
    static inline int rg_submit_##name(struct rg_client *client, struct rg_cq *cq,                 \
                                       const struct type *request)                                 \
    {                                                                                              \
        return rg_submit_##name##_sized(client, cq, request, sizeof(*request));                    \
    }
#define RG_SUBMIT_ITEMS(name, type, items)                                                         \
    RG_API int rg_submit_##name##_sized(struct rg_client *client, struct rg_cq *cq,                \
                                        const struct type *request, size_t struct_size,            \
                                        size_t item_size);                                         \
    static inline int rg_submit_##name(struct rg_client *client, struct rg_cq *cq,                 \
                                       const struct type *request)                                 \
    {                                                                                              \
        return rg_submit_##name##_sized(client, cq, request, sizeof(*request),                     \
                                        sizeof(*request->items));                                  \
    }

#define RG_OPEN(type)                                                                              \
    RG_API int type##_open_sized(struct type **out, struct rg_client *client,                      \
                                 const struct type##_options *options, size_t struct_size);        \
    static inline int type##_open(struct type **out, struct rg_client *client,                     \
                                  const struct type##_options *options)                            \
    {                                                                                              \
        return type##_open_sized(out, client, options, sizeof(*options));                          \
    }

#define RG_WHOLE UINT64_MAX /* length of a get: to the end of the object */

/* Reads an object, whole or a range, by one request. A whole body is checked against the object's
 * CRC32C. If it breaks off, the rest is read from the same generation. Nothing is decompressed.
 * Completion when OK: data, size, crc32c, generation, object_size, object_crc32c, is_gzip. */
struct rg_get {
    const char *bucket, *object;
    int64_t generation;
    uint64_t offset;   /* of the first byte. Beyond the object: RG_STATUS_RANGE */
    uint64_t length;   /* bytes; 0 or RG_WHOLE: all. A range ends where the object ends */
    void *buf;         /* borrowed until the completion; NULL: the library leases memory */
    uint64_t buf_size; /* a larger body gives RG_STATUS_TOO_LARGE */
    uint64_t user_data, deadline_ns;
    struct rg_conditions conditions;
};
RG_API int rg_submit_gets_sized(struct rg_client *client, struct rg_cq *cq,
                                const struct rg_get *gets, size_t count, size_t struct_size);
static inline int rg_submit_get(struct rg_client *client, struct rg_cq *cq,
                                const struct rg_get *get)
{
    int accepted = rg_submit_gets_sized(client, cq, get, 1, sizeof(*get));
    return accepted < 0 ? accepted : 0;
}
/* Submits an array, which wakes event loops once for many of them. Returns how many were accepted,
 * from the first on (at least 1), or the error of the first. */
static inline int rg_submit_gets(struct rg_client *client, struct rg_cq *cq,
                                 const struct rg_get *gets, size_t count)
{
    return rg_submit_gets_sized(client, cq, gets, count, sizeof(*gets));
}

/* The CRC32C (RFC 3720 polynomial) of A followed by `data`, given `crc` of A; 0: A is empty. */
RG_API uint32_t rg_crc32c(uint32_t crc, const void *data, size_t size);
/* The CRC32C of A followed by B, for comparing ranges that were read with object_crc32c. */
RG_API uint32_t rg_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);
/* Like rg_crc32c, for the CRC-32 of zlib, gzip and ZIP, and as fast. */
RG_API uint32_t rg_crc32(uint32_t crc, const void *data, size_t size);

/* One object of a listing. Strings are in the lease of the completion. */
struct rg_object {
    const char *name;
    uint64_t size; /* bytes */
    int64_t generation;
    uint32_t crc32c;
    bool has_crc32c;
    const char *updated; /* RFC 3339, as the service sent it; NULL where it did not */
};

struct rg_list_page {
    const struct rg_object *objects;
    size_t object_count;
    const char *const *prefixes; /* with a delimiter: names cut behind it */
    size_t prefix_count;
    const char *next_page_token; /* NULL: this was the last page */
};

/* Reads one page of a listing, in the order of the names' UTF-8 bytes. A page may be short, even
 * empty, and have a next one. Only page_token may differ between the requests of one listing.
 * Completion when OK: data is a const struct rg_list_page *, in the lease. */
struct rg_list_request {
    const char *bucket;
    const char *prefix, *delimiter;        /* NULL: all names; none */
    const char *start_offset, *end_offset; /* start <= names < end; NULL: unbounded */
    const char *page_token;                /* NULL: the first page */
    uint32_t results_max;                  /* 0: 1000, which is also the service's limit */
    uint64_t user_data, deadline_ns;
};
RG_SUBMIT(list, rg_list_request)
/* Custom metadata that an `exclusive` write sets: 32 hexadecimal digits, drawn for each write. */
#define RG_NONCE_KEY "ringest-nonce"

/* Writes an object in one request; the stored CRC32C is compared with that of data. If the answer
 * is lost, the request is sent again only with a condition, because it might write twice. If the
 * condition then fails, the stored object is looked at: the same size and CRC32C are a success with
 * found_done. With `exclusive` (for locks, counters, commits) only the nonce of this request is a
 * success, everything else RG_STATUS_PRECONDITION. docs/C.md has the table. Completion when OK:
 * generation, crc32c, object_size, found_done. */
struct rg_put {
    const char *bucket, *object;
    const void *data; /* borrowed until the completion */
    uint64_t size;
    const char *content_type;    /* NULL: application/octet-stream */
    int64_t if_generation_match; /* 0: no condition; a generation, or RG_GENERATION_ABSENT */
    uint64_t user_data, deadline_ns;
    bool exclusive;            /* success means that this request wrote it, and nobody else */
    const char *storage_class; /* such as NEARLINE; NULL: the default of the bucket */
};
RG_SUBMIT(put, rg_put)

#define RG_PERMISSIONS_MAX 100
/* Asks which of these permissions, such as "storage.objects.get", the credentials have on a bucket.
 * Completion when OK: data is a const bool * in the lease, one for each permission, in order. */
struct rg_test_permissions {
    const char *bucket;
    const char *const *permissions;
    size_t count; /* at least 1 */
    uint64_t user_data, deadline_ns;
};
RG_SUBMIT(test_permissions, rg_test_permissions)

/* Cancels every request of this client and queue that has this user_data. Each still gives one
 * completion: RG_STATUS_CANCELLED, or its result if that was there first. */
RG_API int rg_cancel(struct rg_client *client, struct rg_cq *cq, uint64_t user_data);

RG_DECLS_END
#endif
