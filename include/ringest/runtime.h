/* Event loops, completion queues and leases: what every part of ringest shares.
 *
 * A runtime owns event-loop threads, one ring each. Requests are submitted from any thread and come
 * back as records on a completion queue; there are no callbacks.
 *
 * Completion contract. If a submit function fails, no completion will arrive. If it succeeds,
 * exactly one will, always: also after a cancellation, a deadline, or closing the client. A slot of
 * the completion queue is reserved at submit, so a queue cannot overflow; a full one makes submit
 * return -EAGAIN, which means: take completions off first.
 *
 * Threads. Every function may be called from any thread, unless it says otherwise. Closing an
 * object while another thread uses it is an error of the caller.
 *
 * fork(). A child must not use what its parent opened: every function then returns -EOWNERDEAD, and
 * closing only gives up the child's copy. A child opens a runtime of its own.
 *
 * The library installs no signal handler, raises no SIGPIPE and prints nothing unless asked to. */
#ifndef RINGEST_RUNTIME_H
#define RINGEST_RUNTIME_H

#include <ringest/error.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rg_backend {
    RG_BACKEND_AUTO = 0, /* io_uring where the system allows it, else epoll */
    RG_BACKEND_URING = 1,
    RG_BACKEND_EPOLL = 2
};

/* Where event loops and their memory go on a machine of several NUMA nodes. */
enum rg_numa_policy {
    RG_NUMA_AUTO = 0,    /* nodes nearest the network device first */
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

/* Option structs may grow: the init function notes the size the caller was compiled with, and
 * fields that it did not know keep their defaults. Always begin with the init function. */
struct rg_runtime_options {
    size_t struct_size;
    uint32_t threads;                /* event loops; 0: RINGEST_THREADS, else by the machine */
    enum rg_backend backend;         /* AUTO: RINGEST_BACKEND, else probed */
    enum rg_numa_policy numa_policy; /* AUTO */
    enum rg_log_level log_level;     /* DEFAULT */
    uint64_t memory_max; /* bytes of leased bodies over all loops; 0: 1 GiB or a quarter of
                          * the machine's memory, whichever is less */
};

struct rg_runtime;
struct rg_cq;
struct rg_lease;

RG_API void rg_runtime_options_init_sized(struct rg_runtime_options *options, size_t struct_size);
static inline void rg_runtime_options_init(struct rg_runtime_options *options)
{
    rg_runtime_options_init_sized(options, sizeof(*options));
}

/* Starts the event loops. `options` may be NULL. On success *out_runtime is the caller's, to be
 * closed. Errors: -EINVAL (an option is out of range), -EPERM (RG_BACKEND_URING was asked for and
 * the system forbids it), -ENOMEM, -EMFILE, -EAGAIN (no more threads). */
RG_API int rg_runtime_open(struct rg_runtime **out_runtime,
                           const struct rg_runtime_options *options);

/* Stops the loops and frees everything. Clients and completion queues of the runtime must have been
 * closed and leases released before. NULL is fine. */
RG_API void rg_runtime_close(struct rg_runtime *runtime);

/* The backend in use, and why the other one is not (a static text; empty where there is nothing to
 * say). Never RG_BACKEND_AUTO. EPOLL also where an event loop had to give its ring up. */
RG_API enum rg_backend rg_runtime_backend(const struct rg_runtime *runtime,
                                          const char **out_reason);
RG_API uint32_t rg_runtime_threads(const struct rg_runtime *runtime);

/* Makes `size` bytes of the memory for leased bodies resident now, shared evenly by the loops;
 * clipped to memory_max. Otherwise that happens 2 MiB at a time, by the loop that first needs them:
 * 0.35 ms each, and 9 ms where a virtual machine's host has taken the memory back (measured). Call
 * it before a latency matters or is measured. Blocks; any thread. 0, or -EOWNERDEAD in a child of
 * the process that opened the runtime. */
RG_API int rg_runtime_fault_in(struct rg_runtime *runtime, uint64_t size);

/* One distribution of durations, in nanoseconds, over all loops since the runtime was opened. A
 * quantile is exact to 1/16 of its value. */
struct rg_latency {
    uint64_t count, p50_ns, p99_ns, p999_ns, max_ns;
};

struct rg_stats {
    uint64_t requests;    /* attempts sent, retries included */
    uint64_t retries;     /* attempts after the first */
    uint64_t recv_bytes;  /* from sockets, TLS included */
    uint64_t sent_bytes;  /* to sockets, TLS included */
    uint64_t connections; /* open now */
    uint64_t connections_opened, connections_failed, tls_resumed;
    uint64_t timeouts;     /* deadlines of any kind that fired */
    uint64_t lease_waits;  /* times a connection waited for leased memory to come back */
    uint64_t leased_bytes; /* out now */
    uint64_t wakeups;      /* returns of a loop from waiting */
    struct rg_latency queue, dns, connect, tls, first_byte, body, total;
    uint64_t hedges, hedge_wins; /* second attempts beside a slow first one; that answered first */
    uint64_t in_flight;          /* attempts that are out now, or wait for a connection */
    uint64_t limited;            /* times an attempt had to wait for the limits of its bucket */
    uint64_t backoffs;           /* times such a limit was cut: 429, 503, rising latency */
    uint64_t concurrency_limit;  /* attempts that the bucket with the tightest limit may have out
                                  * now, over all loops that have one; 0: no limit is in force */
    uint64_t memory_max;    /* bytes that may be leased at once, each loop having an equal part */
    uint64_t starved_loops; /* loops with requests that wait for leased memory now */
};

/* A snapshot; loops go on meanwhile. */
RG_API int rg_runtime_stats_sized(const struct rg_runtime *runtime, struct rg_stats *out_stats,
                                  size_t struct_size);
static inline int rg_runtime_stats(const struct rg_runtime *runtime, struct rg_stats *out_stats)
{
    return rg_runtime_stats_sized(runtime, out_stats, sizeof(*out_stats));
}

/* One finished request. Fixed size, plain data.
 *
 * Always valid: user_data, status, attempts, lease (may be NULL), started_ns, finished_ns.
 * status OK: data, size, and what the submit function's description names.
 * status not OK: os_error and http_status (0 where none applies) and detail; a get into the
 * caller's own buffer has stored `size` good bytes before it failed. */
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
    uint64_t started_ns; /* CLOCK_MONOTONIC: when the first attempt got a connection; 0: none did */
    uint64_t finished_ns;
    uint32_t object_crc32c; /* of the whole stored object, valid if has_object_crc32c */
    bool has_object_crc32c;
    bool is_gzip; /* the object is stored with Content-Encoding gzip, and data is as it is stored */
    /* With OK, of what writes or removes: an answer was lost, and what was asked for is there: by
     * this request, or by somebody else who had the same done. Never of one that is `exclusive` */
    bool found_done;
    uint64_t reserved[2];
};

/* Opens a queue with room for `capacity` completions, 1 to 1,048,576 (rounded up to a power of
 * two). Any number of threads may take completions off; each goes to one of them. Completions come
 * in the order in which requests finish. Errors: -EINVAL, -ENOMEM. */
RG_API int rg_cq_open(struct rg_cq **out_cq, struct rg_runtime *runtime, uint32_t capacity);
/* Requests that were submitted to the queue must have completed and been taken off. NULL is fine.
 */
RG_API void rg_cq_close(struct rg_cq *cq);

/* Takes off up to out_max completions without waiting. Returns how many, possibly 0. */
RG_API int rg_cq_poll(struct rg_cq *cq, struct rg_completion *out, uint32_t out_max);

/* A deadline that never passes. */
#define RG_FOREVER UINT64_MAX

/* Takes off between `min` and `out_max` completions, waiting for the first `min` until deadline_ns
 * (CLOCK_MONOTONIC). Returns how many; fewer than min but at least one when the deadline passed
 * with some at hand; -ETIME when it passed with none; -EINTR when a signal handler ran or
 * rg_cq_interrupt was called and none are at hand; -EINVAL if min is 0 or above out_max or above
 * the capacity. */
RG_API int rg_cq_wait(struct rg_cq *cq, struct rg_completion *out, uint32_t out_max, uint32_t min,
                      uint64_t deadline_ns);

/* Ends a wait that a thread is in, or the next one that has to sleep, as if a signal handler had
 * run: for a thread that is to stop waiting because of something else. One call ends one wait. */
RG_API void rg_cq_interrupt(struct rg_cq *cq);

/* An eventfd that becomes readable when the queue has completions; for poll, epoll, asyncio. Read
 * it to reset it, then poll until 0. It belongs to the queue. Errors: -EMFILE. */
RG_API int rg_cq_fd(struct rg_cq *cq);

/* Gives leased memory back, after which neither data nor detail may be touched. NULL is fine. */
RG_API void rg_lease_release(struct rg_lease *lease);

/* CLOCK_MONOTONIC in nanoseconds, for deadlines: rg_now_ns() + 5 * 1000000000. */
RG_API uint64_t rg_now_ns(void);

#ifdef __cplusplus
}
#endif

#endif
