/* What the log and traces tell of requests. The log: changes of state at debug; attempts that
 * failed, and requests that failed in the end or took several attempts, at info. All of it is cold:
 * callers look at the level first (rg_log_enabled, rg_tracing_is_on), so that nothing is called,
 * and nothing formatted, when it is off.
 *
 * A line names the verb and the object, never a URL, a field or a body: a resumable session's URL
 * is as good as a password. */
#ifndef RG_GCS_REQUEST_TRACE_H
#define RG_GCS_REQUEST_TRACE_H

#include "gcs/request/request_type.h"

/* What a line of the cause needs, its NUL included. */
#define RG_TRACE_CAUSE_SIZE 512

/* "back-off". */
const char *rg_request_state_name(enum rg_request_state state);

/* "throttled (HTTP 429): slow down": why the request's last attempt failed. `out` is returned. */
const char *rg_trace_cause(const struct rg_request *request, enum rg_status status,
                           char out[static RG_TRACE_CAUSE_SIZE]);

__attribute__((cold)) void rg_trace_state(const struct rg_request *request,
                                          enum rg_request_state to);
/* The next attempt begins after `delay_ns`. */
__attribute__((cold)) void rg_trace_retry(const struct rg_request *request, uint64_t delay_ns);
/* The request has ended, as its completion says. */
__attribute__((cold)) void rg_trace_end(const struct rg_request *request,
                                        const struct rg_completion *completion);

/* Events of a trace (<ringest/trace.h>): what the request is at, by runtime/stages.h, from now on;
 * and that it has ended. Nothing of a request that no loop has begun, nor of what it is at for no
 * time. Not cold like the rest: made small instead of fast, they took more than twice as long. */
void rg_trace_stage(const struct rg_request *request, uint8_t stage);
void rg_trace_done(const struct rg_request *request, const struct rg_completion *completion);

#endif
