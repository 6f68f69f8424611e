/* A trace of all requests of the process: what they were at, and when. One at a time. */
#ifndef RINGEST_TRACE_H
#define RINGEST_TRACE_H

#include <ringest/error.h>
#include <ringest/runtime.h>

#include <stdbool.h>

#define RG_TRACE_NAME_SIZE 72

/* From at_ns on, a request or a connection is at `what`. What a request is at for no time has no
 * event. */
struct rg_trace_event {
    uint64_t at_ns;        /* of CLOCK_MONOTONIC */
    uint64_t took_ns;      /* of a thread's sleep for samples, whose `what` is "wait"; or 0 */
    uint64_t request;      /* until its end, others have other numbers; 0: a connection */
    uint64_t connection;   /* likewise; 0: none */
    const char *operation; /* "get"; NULL where request is 0 */
    const char *what;      /* "queue", "first_byte"; at its end the name of a status */
    uint32_t thread;       /* a loop's number, or the system's of the thread that sleeps */
    uint32_t attempts;     /* at the end of a request */
    char name[RG_TRACE_NAME_SIZE]; /* of a request that begins: the end of "bucket/object" */
};

RG_DECLS_BEGIN
/* Begins a trace, whose memory has room for so many events and is taken now; later ones are
 * dropped. -ENOMEM, -EBUSY: there is one already. */
RG_API int rg_tracing_begin(uint32_t events_max);
/* Ends it: tells how many events there are, and how many were dropped. -EINVAL: there is none. */
RG_API int rg_tracing_end(uint32_t *out_count, uint64_t *out_dropped);
/* Of a trace that has ended, until another one begins: the event with that number, in the order of
 * time for each request. False: it was not written to its end. */
RG_API bool rg_tracing_get(uint32_t number, struct rg_trace_event *out_event);
/* Gives back the memory. */
RG_API void rg_tracing_free(void);
RG_DECLS_END
#endif
