/* Event loops, completion queues and leases: what every part of ringest shares.
 *
 * A runtime owns threads with an event loop each. Any thread submits requests, and takes their
 * results off a completion queue; there are no callbacks. A submit function that fails gives no
 * completion. One that succeeds gives exactly one, also after a cancellation, a deadline, or
 * closing the client. Submit reserves the slot in the queue; when the queue is full, it returns
 * -EAGAIN.
 *
 * Any thread may call any function, unless its comment says otherwise; nobody may use an object
 * while it is being closed. Close and release functions accept NULL. In a child of fork(), calls on
 * what the parent opened return -EOWNERDEAD, and closing frees the child's copy only.
 *
 * The library installs no signal handler, raises no SIGPIPE, and prints nothing unless asked. */
#ifndef RINGEST_RUNTIME_H
#define RINGEST_RUNTIME_H

#include <ringest/error.h>

#include <stddef.h>
#include <stdint.h>

RG_DECLS_BEGIN
/* AUTO: io_uring where the system allows it, else epoll. */
enum rg_backend { RG_BACKEND_AUTO = 0, RG_BACKEND_URING = 1, RG_BACKEND_EPOLL = 2 };

/* Where event loops and their memory go on a machine of several NUMA nodes. */
enum rg_numa_policy {
    RG_NUMA_AUTO = 0,    /* nodes of network devices, then those nearest to them */
    RG_NUMA_COMPACT = 1, /* node after node */
    RG_NUMA_SPREAD = 2,  /* round robin over the nodes */
    RG_NUMA_NONE = 3     /* nothing is pinned or bound */
};

enum rg_log_level {
    RG_LOG_DEFAULT = 0, /* what RINGEST_LOG says, otherwise nothing */
    RG_LOG_ERROR = 1,
    RG_LOG_WARN = 2,
    RG_LOG_INFO = 3,
    RG_LOG_DEBUG = 4,
    RG_LOG_OFF = 5
};

/* Gives lines of the log up to `level` (OFF: none) to `sink` too, from any thread; it must not
 * block. `place` is where in the library: "http/pool". Of the process; 0 or -EINVAL. */
typedef void (*rg_log_sink)(enum rg_log_level level, const char *place, const char *text);
RG_API int rg_log_to(enum rg_log_level level, rg_log_sink sink);

/* Option structs may grow: call the init function first, TYPE_init(&options). It stores the size
 * that the program was compiled with; fields behind that size keep their defaults. So do requests:
 * functions that end in "_sized" are called through the inline ones of these macros. */
#define RG_INIT(type)                                                                              \
    RG_API void type##_init_sized(struct type *options, size_t struct_size);                       \
    static inline void type##_init(struct type *options)                                           \
    {                                                                                              \
        type##_init_sized(options, sizeof(*options));                                              \
    }
/* Zero, or AUTO, means RINGEST_<NAME> in the environment, else the default. */
struct rg_runtime_options {
    size_t struct_size;
    uint32_t threads; /* event loops; 0: by the machine */
    enum rg_backend backend;
    enum rg_numa_policy numa_policy;
    enum rg_log_level log_level; /* DEFAULT */
    uint64_t memory_max; /* bytes of leased bodies; 0: the less of 1 GiB and a quarter of RAM */
    /* Ranks of a job on this host divide its CPUs, each near its GPU. Size 0: what torchrun, MPI or
     * Slurm say in the environment, else one rank, which has all. */
    uint32_t local_rank, local_world_size;
    /* Processes of one rank that divide its loops: which of how many; 0 of 0: not divided. */
    uint32_t worker, workers;
    /* Bytes of memory_max that CUDA knows when they are used, so that devices copy from them at
     * once. 0, or less than 2 MiB: none. Without CUDA: none, and a warning in the log. */
    uint64_t pinned_max;
};

struct rg_runtime;
struct rg_cq;
struct rg_lease;

RG_INIT(rg_runtime_options)

/* Starts the event loops; `options` may be NULL. The caller closes *out_runtime. Errors: -EINVAL
 * (an option is out of range), -EPERM (the system forbids the RG_BACKEND_URING that was asked for),
 * -ENOMEM, -EMFILE, -EAGAIN (no more threads). */
RG_API int rg_runtime_open(struct rg_runtime **out_runtime,
                           const struct rg_runtime_options *options);
/* Stops the loops and frees everything. Close clients and queues, and release leases, before. */
RG_API void rg_runtime_close(struct rg_runtime *runtime);
/* The backend in use, never AUTO, and why it is not io_uring (static text, may be empty). EPOLL
 * also when only one of the loops had to give up its ring. */
RG_API enum rg_backend rg_runtime_backend(const struct rg_runtime *runtime,
                                          const char **out_reason);
RG_API uint32_t rg_runtime_threads(const struct rg_runtime *runtime);
/* For people: where the loops are, and why; lines "WHAT<tab>TEXT". The length, as snprintf. */
RG_API int rg_runtime_describe(const struct rg_runtime *runtime, char *out, size_t out_size);
/* Makes `size` bytes (memory_max at most) of the memory for bodies resident; otherwise loops do so
 * at first use, 0.35 ms (some virtual machines: 9 ms) for each 2 MiB. Blocks. 0 or -EOWNERDEAD. */
RG_API int rg_runtime_fault_in(struct rg_runtime *runtime, uint64_t size);

/* Durations over all loops since the runtime was opened. Quantiles are exact to 1/16. */
struct rg_latency {
    uint64_t count, p50_ns, p99_ns, p999_ns, max_ns;
};

/* A snapshot; loops go on meanwhile. NULL: of all runtimes of this process, closed ones too. */
struct rg_stats {
    uint64_t requests;               /* attempts sent, retries included */
    uint64_t retries;                /* attempts after the first */
    uint64_t recv_bytes, sent_bytes; /* from and to sockets, TLS included */
    uint64_t connections;            /* open now */
    uint64_t connections_opened, connections_failed, tls_resumed;
    uint64_t timeouts;     /* deadlines of any kind that passed */
    uint64_t lease_waits;  /* times a connection waited for leased memory to come back */
    uint64_t leased_bytes; /* leased now */
    uint64_t wakeups;      /* returns of a loop from waiting */
    struct rg_latency queue, dns, connect, tls, first_byte, body, total;
    uint64_t hedges, hedge_wins; /* second attempts beside a slow first; how many answered first */
    uint64_t in_flight;          /* attempts that are sent, or wait for a connection, now */
    uint64_t limited;            /* times an attempt had to wait for the rate of its bucket */
    uint64_t backoffs;           /* times such a rate was cut: 429, 503, rising latency */
    uint64_t concurrency_limit;  /* about how many are out at the lowest of these now; 0: none */
    uint64_t memory_max;         /* bytes that may be leased at once; each loop has an equal part */
    uint64_t starved_loops;      /* loops with requests that wait for leased memory now */
    /* Reads that the cache answered, their bytes, and reads that it was asked for in vain; blocks
     * of 1 MiB that were found damaged, were handed to it, and were not taken (full, or busy). */
    uint64_t cache_hits, cache_hit_bytes, cache_misses, cache_bad, cache_writes, cache_drops;
    uint64_t cache_memory_hits; /* blocks that cache_memory gave */
    /* Samples that readers of datasets may have ahead, and of these: asked for, and here. */
    uint64_t window_room, window_out, window_filled;
};

RG_API int rg_runtime_stats_sized(const struct rg_runtime *runtime, struct rg_stats *out_stats,
                                  size_t struct_size);
static inline int rg_runtime_stats(const struct rg_runtime *runtime, struct rg_stats *out_stats)
{
    return rg_runtime_stats_sized(runtime, out_stats, sizeof(*out_stats));
}

/* One finished request. Always valid: user_data, status, attempts, lease (may be NULL), started_ns,
 * finished_ns. With OK: data, size, and what the submit function names. Otherwise: os_error and
 * http_status (0 where none applies), detail; a failed get into the caller's buffer stored `size`
 * good bytes there. */
struct rg_completion {
    uint64_t user_data;
    enum rg_status status;
    int32_t os_error;     /* errno of the system call that failed, positive */
    uint16_t http_status; /* of the last answer */
    uint16_t attempts;    /* requests sent for it */
    uint32_t crc32c;      /* of data, where the library computed it (RFC 3720 polynomial) */
    const void *data;     /* in the lease, or the caller's own buffer */
    uint64_t size;        /* bytes at data */
    uint64_t object_size; /* of the whole stored object, where the answer told it */
    int64_t generation;   /* of the object, where the answer told it */
    const char *detail;   /* what failed, for people; NUL-terminated; lives as long as the lease */
    struct rg_lease *lease; /* the caller's: release it when data and detail are not needed */
    uint64_t started_ns, finished_ns; /* CLOCK_MONOTONIC; started: got a connection, 0: never */
    uint32_t object_crc32c;           /* of the whole stored object, valid if has_object_crc32c */
    bool has_object_crc32c;
    bool is_gzip; /* the object is stored with Content-Encoding gzip, and data is as it is stored */
    /* The answer to a write or delete was lost, and its result was found on the server. This
     * request or another writer made it. Never set with `exclusive`. */
    bool found_done;
    /* Of a reader's sample (rg_reader_start), as in struct rg_sample; otherwise 0. */
    uint64_t sample_index, sample_number;
};

/* Opens a queue for `capacity` completions, 1 to 1,048,576, rounded up to a power of two, in the
 * order in which requests finish. Several threads may take from it. Errors: -EINVAL, -ENOMEM. */
RG_API int rg_cq_open(struct rg_cq **out_cq, struct rg_runtime *runtime, uint32_t capacity);
/* Take off the completions of all requests that were submitted to the queue before. */
RG_API void rg_cq_close(struct rg_cq *cq);
/* Takes off up to out_max completions without waiting. Returns how many, possibly 0. */
RG_API int rg_cq_poll(struct rg_cq *cq, struct rg_completion *out, uint32_t out_max);

#define RG_FOREVER UINT64_MAX /* a deadline that never passes */
/* Takes off up to out_max completions. Waits until there are `min` of them, or until deadline_ns
 * (CLOCK_MONOTONIC). Returns how many: fewer than `min`, but at least one, if the deadline passed,
 * or if readers deliver or delivered into the queue, none can give more before something is taken
 * off, and no request is out. With none: -ETIME (the deadline passed) or -EINTR (a signal handler
 * ran, or rg_cq_interrupt). -EINVAL: min is 0, or above out_max or the capacity. */
RG_API int rg_cq_wait(struct rg_cq *cq, struct rg_completion *out, uint32_t out_max, uint32_t min,
                      uint64_t deadline_ns);
/* Ends a wait that a thread is in, or else the next one that would sleep, with -EINTR. One call
 * ends one wait, also where several are made before a thread runs (a million are remembered). */
RG_API void rg_cq_interrupt(struct rg_cq *cq);
/* An eventfd, the queue's own, that is readable when there are completions; for poll, epoll,
 * asyncio. Read it to reset it, then call rg_cq_poll until it returns 0. Errors: -EMFILE. */
RG_API int rg_cq_fd(struct rg_cq *cq);
/* To be woken once for many, call it before polling until 0. The descriptor is readable next when
 * `min` completions have come, counting those taken off by that polling, or when rg_cq_wait would
 * return with fewer. */
RG_API void rg_cq_expect(struct rg_cq *cq, uint32_t min);
/* Gives leased memory back. Neither data nor detail may be used afterwards. */
RG_API void rg_lease_release(struct rg_lease *lease);
/* True if the lease is pinned_max's: release it when no copy to a device is under way. */
RG_API bool rg_lease_is_pinned(const struct rg_lease *lease);
/* True if other processes read the same memory (cache_memory): writing there is a SIGSEGV. */
RG_API bool rg_lease_is_readonly(const struct rg_lease *lease);
/* CLOCK_MONOTONIC in nanoseconds, for deadlines: rg_now_ns() + 5 * 1000000000. */
RG_API uint64_t rg_now_ns(void);

RG_DECLS_END
#endif
