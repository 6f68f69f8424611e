/* Lines of the log, and events, about requests: see trace.h. */
#include "gcs/request/trace.h"

#include "gcs/request/client_loop.h"
#include "http/conn.h"
#include "runtime/log.h"
#include "runtime/stages.h"
#include "runtime/tracing.h"

#include <stdio.h>
#include <string.h>

/* "get gs://bucket/object" and its arguments. */
#define WHAT "%s gs://%s/%s: "
#define WHAT_OF(request) (request)->ops->verb, (request)->bucket, (request)->object

const char *rg_request_state_name(enum rg_request_state state)
{
    static const char *const names[RG_REQUEST_STATE_COUNT] = {
        [RG_REQUEST_FREE] = "free",
        [RG_REQUEST_QUEUED] = "queued",
        [RG_REQUEST_CACHE] = "cache",
        [RG_REQUEST_TOKEN] = "token",
        [RG_REQUEST_ADMISSION] = "admission",
        [RG_REQUEST_POOL] = "pool",
        [RG_REQUEST_OUT] = "out",
        [RG_REQUEST_BACKOFF] = "back-off",
        [RG_REQUEST_MEMORY] = "memory",
        [RG_REQUEST_CHILDREN] = "children",
        [RG_REQUEST_DONE] = "done",
    };
    RG_ASSERT(state < RG_REQUEST_STATE_COUNT);
    return names[state];
}

const char *rg_trace_cause(const struct rg_request *request, enum rg_status status,
                           char out[static RG_TRACE_CAUSE_SIZE])
{
    int os_error = request->failure.os_error;
    const char *text = request->failure.text;
    const char *system_text = os_error != 0 ? rg_error_text(os_error) : NULL;
    char http[16] = "";
    if (request->failure.http_status != 0) {
        snprintf(http, sizeof(http), " (HTTP %u)", request->failure.http_status);
    }
    snprintf(out, RG_TRACE_CAUSE_SIZE, "%s%s%s%s%s%s", rg_status_text(status), http,
             *text != '\0' ? ": " : "", text, system_text != NULL ? ": " : "",
             system_text != NULL ? system_text : "");
    return out;
}

/* Before it is queued, and after it is free again, a request has no name, or an old one's. That of
 * a whole listing never has one. */
void rg_trace_state(const struct rg_request *request, enum rg_request_state to)
{
    if (to != RG_REQUEST_QUEUED && to != RG_REQUEST_FREE && request->bucket[0] != '\0') {
        rg_log(RG_LOG_DEBUG, WHAT "%s -> %s", WHAT_OF(request),
               rg_request_state_name((enum rg_request_state)request->state),
               rg_request_state_name(to));
    }
}

void rg_trace_retry(const struct rg_request *request, uint64_t delay_ns)
{
    char cause[RG_TRACE_CAUSE_SIZE];
    rg_log_some(RG_LOG_INFO, WHAT "attempt %u of %u failed, the next in %.3f s: %s",
                WHAT_OF(request), request->retry.failures, request->retry.policy.attempts_max,
                (double)delay_ns / (double)RG_NS_PER_S,
                rg_trace_cause(request, request->failure.status, cause));
}

void rg_trace_end(const struct rg_request *request, const struct rg_completion *completion)
{
    char cause[RG_TRACE_CAUSE_SIZE];
    bool failed = completion->status != RG_STATUS_OK && request->bucket[0] != '\0';
    bool ended_by_us = completion->status == RG_STATUS_CANCELLED ||
                       completion->status == RG_STATUS_DEADLINE ||
                       completion->status == RG_STATUS_CLOSED;
    if (failed && !ended_by_us && request->attempts != 1) {
        rg_log_some(RG_LOG_INFO, WHAT "failed after %u attempts: %s", WHAT_OF(request),
                    request->attempts, rg_trace_cause(request, completion->status, cause));
    } else if (failed) {
        rg_log(RG_LOG_DEBUG, WHAT "failed: %s", WHAT_OF(request),
               rg_trace_cause(request, completion->status, cause));
    } else if (request->attempts > 1 && request->ops->start == NULL) {
        rg_log_some(RG_LOG_INFO, WHAT "done after %u attempts", WHAT_OF(request),
                    request->attempts);
    }
}

static uint64_t connection_of(const struct rg_request *request)
{
    const struct rg_conn *conn = request->x.conn;
    return conn != NULL ? (uintptr_t)&conn->transport : 0;
}

static void event_fill(struct rg_trace_event *event, const struct rg_request *request,
                       const char *what)
{
    event->request = (uintptr_t)request;
    event->connection = connection_of(request);
    event->operation = request->ops->verb;
    event->what = what;
    event->thread = request->client_loop->loop->index;
}

/* The end of "bucket/object", which is what differs. */
static void name_write(const struct rg_request *request, char out[static RG_TRACE_NAME_SIZE])
{
    size_t room = RG_TRACE_NAME_SIZE - 1, size = strlen(request->object);
    size_t skipped = size > room ? size - room : 0;
    while (skipped > 0 && ((uint8_t)request->object[skipped] & 0xc0) == 0x80) {
        skipped++; /* the rest of a character of UTF-8 that is cut */
    }
    if (size < room) {
        size_t bucket_size = strlen(request->bucket), taken = RG_MIN(bucket_size, room - size - 1);
        memcpy(out, request->bucket + bucket_size - taken, taken);
        out[taken] = '/';
        out += taken + 1;
    }
    memcpy(out, request->object + skipped, size - skipped + 1);
}

void rg_trace_stage(const struct rg_request *request, uint8_t stage)
{
    bool has_children = request->state == RG_REQUEST_CHILDREN;
    if (stage == RG_STAGE_NONE && !has_children) {
        return;
    }
    const char *what = has_children                   ? "children"
                       : stage == RG_STAGES_ADMISSION ? "admission"
                                                      : rg_stage_name((enum rg_stage)stage);
    uint64_t now_ns = request->client_loop->loop->now_ns;
    struct rg_trace_event *event = rg_tracing_latest((uintptr_t)request, now_ns);
    if (event != NULL) {
        rg_tracing_change(event, what, connection_of(request));
        return;
    }
    event = rg_tracing_claim();
    if (event == NULL) {
        return;
    }
    event_fill(event, request, what);
    if (request->attempts == 0 && request->x.conn == NULL) {
        name_write(request, event->name);
    }
    rg_tracing_publish(event, now_ns, true);
}

void rg_trace_done(const struct rg_request *request, const struct rg_completion *completion)
{
    struct rg_trace_event *event = rg_tracing_claim();
    if (event != NULL) {
        event_fill(event, request, rg_status_name(completion->status));
        event->attempts = completion->attempts;
        rg_tracing_publish(event, request->client_loop->loop->now_ns, false);
    }
}
