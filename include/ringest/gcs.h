/* Google Cloud Storage: reading, listing and writing objects.
 *
 * A client has an endpoint, settings, and connections on every event loop of its runtime. All
 * strings are UTF-8, NUL-terminated, and borrowed for the call unless said otherwise. Submit
 * functions may be called from any thread and never block. */
#ifndef RINGEST_GCS_H
#define RINGEST_GCS_H

#include <ringest/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rg_client;

/* See rg_runtime_options about growing. A zero or NULL field means its default. */
struct rg_client_options {
    size_t struct_size;
    const char *endpoint;   /* "https://host[:port]", "http://...", or "host:port" (plain). NULL:
                             * STORAGE_EMULATOR_HOST, else https://storage.googleapis.com.
                             * private.googleapis.com and restricted.googleapis.com are connected to
                             * and spoken to as storage.googleapis.com, which is what they serve */
    const char *connect_to; /* "host[:port]" to connect to instead; certificates and the Host field
                             * still use the endpoint's name (private endpoints) */
    const char *ca_file;    /* PEM of trusted roots. NULL: SSL_CERT_FILE, SSL_CERT_DIR, else the
                             * platform's bundle */
    const char *token;      /* fixed OAuth 2.0 access token; NULL: what `credentials` says */
    const char *user_project; /* sent as x-goog-user-project */
    const char *headers;      /* extra request fields, one "Name: value" a line. NULL:
                               * RINGEST_HEADERS */
    const char *user_agent;   /* put before the library's own */
    uint32_t connections_max; /* open at once over all loops; 256 */
    uint32_t requests_max;    /* submitted and not completed; 8192. Beyond it submit says -EAGAIN */
    uint32_t attempts_max; /* requests sent for one submit; 8. 1: never retry. A write that has to
                            * ask what became of it has as many again */
    /* Time-outs; RG_FOREVER: none. */
    uint64_t connect_timeout_ns;    /* one attempt to connect, TLS included; 10 s */
    uint64_t first_byte_timeout_ns; /* from the time when the server's system has all of the request
                                     * to the first byte of the answer, at most; 30 s */
    uint64_t stall_timeout_ns;      /* between bytes of an answer, or of an upload that the server's
                                     * system takes, at most; 20 s */
    uint64_t idle_timeout_ns;       /* an unused connection is closed after it; 60 s */
    uint64_t backoff_min_ns;        /* first delay before a retry, before jitter; 100 ms */
    uint64_t backoff_max_ns;        /* 30 s */
    bool no_checksum;               /* do not compute and compare CRC32C */
    uint32_t prewarm_connections;   /* opened at once, staggered, before there are requests; 0 */
    /* Where access tokens come from, unless `token` is given: "anonymous" (none are sent); the path
     * of a credential file of any kind; "default": Application Default Credentials, which are
     * GOOGLE_APPLICATION_CREDENTIALS, else gcloud's file, else the metadata server. NULL or "":
     * "default" for the service itself (no endpoint option, or an https one below googleapis.com or
     * GOOGLE_CLOUD_UNIVERSE_DOMAIN) and "anonymous" for any other endpoint, so that tests and
     * private servers neither see a token nor have one asked for. With STORAGE_EMULATOR_HOST in
     * force, always "anonymous". The endpoint is by default that of the credentials' universe, and
     * user_project by default their quota project. */
    const char *credentials;
    const char *scope; /* of the tokens: OAuth scopes separated by spaces; NULL: by the kind of
                        * credentials, full control of storage */
    /* "http://[USER:PASSWORD@]HOST[:PORT]" or https://: all connections go through this proxy by
     * CONNECT, also to loopback and emulators, and to token servers with https. NULL: what
     * https_proxy or HTTPS_PROXY says, for an https endpoint that is neither an emulator nor this
     * machine nor named by no_proxy or NO_PROXY. "": none. A proxy with https needs an https
     * endpoint. */
    const char *proxy;
    /* PEM of a client certificate with its chain, and of its key, for servers that ask for one
     * (mutual TLS, as https://storage.mtls.googleapis.com). Both or neither. */
    const char *client_cert_file, *client_key_file;
    const char *local_address; /* connect from this address of the machine; NULL: any */
    const char *local_device;  /* connect through this network device ("eth1"); NULL: any. May need
                                * CAP_NET_RAW */
    /* Requests adapt to what each bucket shows. Where it answers 429 or 503, or ever later, fewer
     * are out at once until it is well again; reads are given up and tried again, a body from where
     * it broke off, when they take much longer than like requests (within the two time-outs
     * above). true: none of this. */
    bool no_adapting;
    /* A read whose head is late, compared with like reads, is sent a second time on another
     * connection, and the answer that begins first counts. */
    bool no_hedging;
    uint32_t hedges_per_1000; /* at most so many second requests for 1,000 requests; 20 */
    uint64_t hedge_size_max;  /* bodies that are expected to be larger are never asked for twice;
                               * 1 MiB */
    /* Google's guide for a bucket: at most so many reads and writes begin in a second at first, and
     * twice as many every 20 minutes of use. 0: 5,000 and 1,000 where the endpoint is Cloud Storage
     * itself, no ceiling anywhere else. */
    uint32_t reads_per_s, writes_per_s;
    bool no_rate_ceiling;
};

RG_API void rg_client_options_init_sized(struct rg_client_options *options, size_t struct_size);
static inline void rg_client_options_init(struct rg_client_options *options)
{
    rg_client_options_init_sized(options, sizeof(*options));
}

/* Opens a client; no packet is sent before the first request, unless prewarm_connections says so.
 * On failure, where `error` is not NULL, a line of text says which option or file is wrong and why.
 * Errors: -EINVAL (an option, or a credential file), -ENOENT (no trust store), -ENOMEM, and what
 * reading the files gives. Credentials are read, not tried: whether a token can be had shows with
 * the first request, which otherwise completes with RG_STATUS_CREDENTIALS. */
RG_API int rg_client_open_explained(struct rg_client **out_client, struct rg_runtime *runtime,
                                    const struct rg_client_options *options, char *error,
                                    size_t error_size);
static inline int rg_client_open(struct rg_client **out_client, struct rg_runtime *runtime,
                                 const struct rg_client_options *options)
{
    return rg_client_open_explained(out_client, runtime, options, NULL, 0);
}

/* The server's clock, in seconds since 1970, by what its answers to this client have told: to
 * compare with times that it gives, whatever this machine's clock says. -ENODATA: none has told it.
 */
RG_API int rg_client_server_time(struct rg_client *client, int64_t *out_seconds);

/* Closes the client: requests that are still out complete with RG_STATUS_CLOSED (or as they were
 * about to), connections end, after 1 s at most where a peer does not read. Uploads remove first
 * what they left on the server, for which closing waits 10 s at most. Returns when no thread of the
 * library refers to the client any more. NULL is fine. */
RG_API void rg_client_close(struct rg_client *client);

/* One line for people about the client's credentials: kind, account, where they were found, how
 * long the token lasts or why there is none. No secrets. Like snprintf: returns the length that the
 * text has, or -EOWNERDEAD. Any thread. */
RG_API int rg_credentials_describe(struct rg_client *client, char *out, size_t out_size);
/* The same about its proxy: "http://HOST:PORT", without credentials, or "none". */
RG_API int rg_proxy_describe(struct rg_client *client, char *out, size_t out_size);

/* The largest object name the service allows, in bytes. */
#define RG_OBJECT_NAME_SIZE_MAX 1024
/* The largest bucket name (with dots), in bytes. */
#define RG_BUCKET_NAME_SIZE_MAX 222

/* As a condition on a generation: that of no object, so that "match" means that there is no such
 * object yet, and "not match" that there is one. */
#define RG_GENERATION_ABSENT INT64_C(-1)

/* What a request demands of the object as it is now; zeroed demands nothing. A demand that does not
 * hold gives RG_STATUS_PRECONDITION (Cloud Storage, "Request preconditions"). */
struct rg_conditions {
    int64_t if_generation_match;     /* 0: no condition; a generation, or RG_GENERATION_ABSENT */
    int64_t if_generation_not_match; /* the same */
    int64_t if_metageneration_match; /* 0: no condition */
    int64_t if_metageneration_not_match; /* the same */
};

/* length of a get: to the end of the object. */
#define RG_WHOLE UINT64_MAX

/* Reads an object, whole or by range. One request; nothing asks for metadata first.
 *
 * bucket and object are copied. With buf NULL the library leases memory when the first bytes
 * arrive; otherwise bytes go to buf, which is borrowed until the completion, and a body larger than
 * buf_size gives RG_STATUS_TOO_LARGE. A whole read is checked against the object's CRC32C. When the
 * body breaks, the rest is read from the same generation and appended. What is stored compressed
 * comes as it is stored; nothing is decompressed.
 *
 * Completion when OK: data, size, crc32c, generation, object_size, object_crc32c, is_gzip,
 * http_status. */
struct rg_get {
    const char *bucket, *object;
    int64_t generation; /* 0: the newest */
    uint64_t offset;    /* first byte */
    uint64_t length;    /* bytes, or RG_WHOLE. 0 means RG_WHOLE too, so that a zeroed struct reads
                         * everything. A range that ends behind the object is shortened; one that
                         * begins there gives RG_STATUS_RANGE */
    void *buf;
    uint64_t buf_size;
    uint64_t user_data;   /* comes back in the completion */
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    struct rg_conditions conditions;
};

/* Submits one get. Returns 0; -EAGAIN: the queue or the client is full, take completions first;
 * -EINVAL: a name that the service would refuse, or a range that overflows; -EOWNERDEAD: after
 * fork. */
RG_API int rg_submit_gets_sized(struct rg_client *client, struct rg_cq *cq,
                                const struct rg_get *gets, size_t count, size_t struct_size);
static inline int rg_submit_get(struct rg_client *client, struct rg_cq *cq,
                                const struct rg_get *get)
{
    int accepted = rg_submit_gets_sized(client, cq, get, 1, sizeof(*get));
    return accepted < 0 ? accepted : 0;
}
/* Submits an array in one go, which wakes each event loop at most once. Returns how many were
 * accepted, from the first on (at least 1), or what rg_submit_get would return for the first. */
static inline int rg_submit_gets(struct rg_client *client, struct rg_cq *cq,
                                 const struct rg_get *gets, size_t count)
{
    return rg_submit_gets_sized(client, cq, gets, count, sizeof(*gets));
}

/* The CRC32C (RFC 3720 polynomial) of A followed by `data`, from that of A; 0 where there is no A.
 * Any thread. */
RG_API uint32_t rg_crc32c(uint32_t crc, const void *data, size_t size);
/* The CRC32C (RFC 3720 polynomial) of A followed by B, from those of A and B and the size of B: for
 * comparing an object that was read in ranges with its object_crc32c. Any thread. */
RG_API uint32_t rg_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);

/* The CRC-32 of zlib, gzip and ZIP of A followed by `data`, from that of A; 0 where there is no A.
 * As fast as rg_crc32c. Any thread. */
RG_API uint32_t rg_crc32(uint32_t crc, const void *data, size_t size);

/* One object of a listing. Strings live in the lease of the completion. */
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

/* Reads one page of a listing, in lexicographic order of UTF-8 bytes. Strings are copied. A page
 * may be short, even empty, and still have a next one. Pages of one listing must be asked for with
 * everything but page_token unchanged.
 *
 * Completion when OK: data is a const struct rg_list_page *, in the lease. */
struct rg_list_request {
    const char *bucket;
    const char *prefix;       /* NULL: all */
    const char *delimiter;    /* NULL: none */
    const char *start_offset; /* names >= it; NULL: from the first */
    const char *end_offset;   /* names < it; NULL: to the last */
    const char *page_token;   /* NULL: the first page */
    uint32_t results_max;     /* 0: 1000, which is also the service's limit */
    uint64_t user_data, deadline_ns;
};
RG_API int rg_submit_list_sized(struct rg_client *client, struct rg_cq *cq,
                                const struct rg_list_request *list, size_t struct_size);
static inline int rg_submit_list(struct rg_client *client, struct rg_cq *cq,
                                 const struct rg_list_request *list)
{
    return rg_submit_list_sized(client, cq, list, sizeof(*list));
}

/* The custom metadata by which an `exclusive` write knows its own work again: 32 hexadecimal
 * digits, drawn anew for each write. */
#define RG_NONCE_KEY "ringest-nonce"

/* Writes an object in one request. data is borrowed until the completion. The stored CRC32C is
 * compared with that of data. Without a condition a lost answer is not retried, because the object
 * might be written twice.
 *
 * When an answer is lost and the condition fails on a retry, what is there is looked at. If it has
 * the size and CRC32C of data, that counts as success, and the completion has found_done: it was
 * stored by the try before, or by somebody else who wrote the same bytes. For locks, counters and
 * commits that is not enough: with `exclusive` it counts only if it carries the nonce of this very
 * request in its metadata (RG_NONCE_KEY). Otherwise the completion is RG_STATUS_PRECONDITION, also
 * where ours was stored and has been replaced or removed since, which nobody can tell.
 *
 * Completion when OK: generation, crc32c, object_size, found_done. */
struct rg_put {
    const char *bucket, *object;
    const void *data;
    uint64_t size;
    const char *content_type;    /* NULL: application/octet-stream */
    int64_t if_generation_match; /* 0: no condition; a generation, or RG_GENERATION_ABSENT */
    uint64_t user_data, deadline_ns;
    bool exclusive; /* success means that this request wrote it, and nobody else */
};
RG_API int rg_submit_put_sized(struct rg_client *client, struct rg_cq *cq, const struct rg_put *put,
                               size_t struct_size);
static inline int rg_submit_put(struct rg_client *client, struct rg_cq *cq,
                                const struct rg_put *put)
{
    return rg_submit_put_sized(client, cq, put, sizeof(*put));
}

#define RG_PERMISSIONS_MAX 100
/* Asks which of these permissions, such as "storage.objects.get", the credentials have on a bucket.
 * Completion when OK: data is a const bool *, `size / sizeof` of them in the order of
 * `permissions`, in the lease: whether it is granted. */
struct rg_test_permissions {
    const char *bucket;
    const char *const *permissions;
    size_t count; /* at least 1 */
    uint64_t user_data, deadline_ns;
};
RG_API int rg_submit_test_permissions_sized(struct rg_client *client, struct rg_cq *cq,
                                            const struct rg_test_permissions *test,
                                            size_t struct_size);
static inline int rg_submit_test_permissions(struct rg_client *client, struct rg_cq *cq,
                                             const struct rg_test_permissions *test)
{
    return rg_submit_test_permissions_sized(client, cq, test, sizeof(*test));
}

/* Asks that every request of this client and queue with this user_data end soon. Each still gives
 * its one completion, RG_STATUS_CANCELLED or what it was about to be. */
RG_API int rg_cancel(struct rg_client *client, struct rg_cq *cq, uint64_t user_data);

#ifdef __cplusplus
}
#endif

#endif
