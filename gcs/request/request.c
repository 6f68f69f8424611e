/* The life of a request over its attempts: see request.h. */
#include "gcs/request/request.h"

#include "gcs/request/cached_read.h"
#include "gcs/request/remedy.h"
#include "gcs/request/trace.h"
#include "gcs/wire/error_body.h"
#include "gcs/wire/names.h"
#include "gcs/wire/retry_after.h"
#include "http/answer.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/probe.h"
#include "runtime/tracing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Attempts in all up to which one on a connection that turns out to be closed is repeated at once.
 */
#define STALE_ATTEMPTS_MAX 4

static struct rg_loop *loop_of(const struct rg_request *request)
{
    return request->client_loop->loop;
}

/* The states from which an attempt begins, and those that it may lead to at once. */
#define BIT(state) (1u << RG_REQUEST_##state)
#define ATTEMPT (BIT(TOKEN) | BIT(ADMISSION) | BIT(POOL))

/* Which states may follow; see request.h. */
static const uint16_t followers[RG_REQUEST_STATE_COUNT] = {
    [RG_REQUEST_FREE] = BIT(QUEUED),
    [RG_REQUEST_QUEUED] = ATTEMPT | BIT(CACHE) | BIT(CHILDREN) | BIT(QUEUED) | BIT(FREE),
    [RG_REQUEST_CACHE] = ATTEMPT | BIT(DONE),
    [RG_REQUEST_TOKEN] = BIT(ADMISSION) | BIT(POOL) | BIT(DONE),
    [RG_REQUEST_ADMISSION] = BIT(POOL) | BIT(DONE),
    [RG_REQUEST_POOL] = ATTEMPT | BIT(OUT) | BIT(BACKOFF) | BIT(DONE),
    [RG_REQUEST_OUT] = ATTEMPT | BIT(CACHE) | BIT(OUT) | BIT(BACKOFF) | BIT(MEMORY) | BIT(DONE),
    [RG_REQUEST_BACKOFF] = ATTEMPT | BIT(DONE),
    [RG_REQUEST_MEMORY] = BIT(BACKOFF) | BIT(DONE),
    [RG_REQUEST_CHILDREN] = BIT(DONE),
    [RG_REQUEST_DONE] = ATTEMPT | BIT(CACHE) | BIT(QUEUED) | BIT(FREE),
};

static const uint8_t stages[RG_REQUEST_STATE_COUNT] = {
    [RG_REQUEST_CACHE] = RG_STAGE_CACHE,    [RG_REQUEST_TOKEN] = RG_STAGE_TOKEN,
    [RG_REQUEST_POOL] = RG_STAGE_QUEUE,     [RG_REQUEST_ADMISSION] = RG_STAGES_ADMISSION,
    [RG_REQUEST_OUT] = RG_STAGE_FIRST_BYTE, [RG_REQUEST_BACKOFF] = RG_STAGE_RETRY,
    [RG_REQUEST_MEMORY] = RG_STAGE_MEMORY,
};

/* That of a state, but that an answer which has begun is at BODY. */
static uint8_t stage_of(const struct rg_request *request, enum rg_request_state state)
{
    uint16_t http_status = request->failure.http_status;
    bool is_throttled = state == RG_REQUEST_BACKOFF && (http_status == 429 || http_status == 503);
    return is_throttled ? RG_STAGE_THROTTLED : stages[state];
}

/* Only gets are counted. A request that is at no stage may be another thread's. */
static void stage_enter(struct rg_request *request, uint8_t stage)
{
    if (request->stage != stage && request->ops->operation == RG_VERB_GET) {
        rg_stages_move(&loop_of(request)->stages, request->stage, stage);
        request->stage = stage;
    }
}

__attribute__((noreturn, cold)) static void state_fail(const struct rg_request *request,
                                                       enum rg_request_state state)
{
    char text[96];
    snprintf(text, sizeof(text), "a request goes from \"%s\" to \"%s\"",
             rg_request_state_name(request->state), rg_request_state_name(state));
    rg_assert_fail(text, __FILE__, __LINE__, __func__);
}

/* The only place where a request's state changes. */
static void become(struct rg_request *request, enum rg_request_state state)
{
    if (RG_UNLIKELY((followers[request->state] >> state & 1) == 0)) {
        state_fail(request, state);
    }
    if (RG_UNLIKELY(rg_log_enabled(RG_LOG_DEBUG))) {
        rg_trace_state(request, state);
    }
    request->state = (uint8_t)state;
    stage_enter(request, stage_of(request, state));
    if (rg_tracing_is_on()) {
        rg_trace_stage(request, stage_of(request, state));
    }
}

/* The functions of the step that the request is at. */
static const struct rg_request_ops *step_of(const struct rg_request *request)
{
    return request->verify.asking ? &rg_verify_ops : request->ops;
}

void rg_request_note(struct rg_request *request, enum rg_status status, const char *format, ...)
{
    if (request->failure.status != RG_STATUS_OK) {
        return;
    }
    request->failure.status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(request->failure.text, sizeof(request->failure.text), format, args);
    va_end(args);
}

/* Fields that were checked when they were made. */
static void fields_append(struct rg_h1_encoder *encoder, const char *fields, size_t size)
{
    if (encoder->error == 0 && encoder->capacity - encoder->size < size) {
        encoder->error = -ENOSPC;
    }
    if (encoder->error == 0 && size > 0) {
        memcpy(encoder->data + encoder->size, fields, size);
        encoder->size += size;
    }
}

static uint64_t mix(uint64_t x)
{
    /* The finalizer of splitmix64: a permutation, so that no two writes have the same token. */
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The same for each attempt, by which the service's upload servers know one that they have carried
 * out (as Google's own clients do). A UUID of version 4 in its form. */
static void write_token_encode(struct rg_request *request, struct rg_h1_encoder *encoder)
{
    const struct rg_client *client = request->client;
    struct rg_client_loop *client_loop = request->client_loop;
    if (request->write == 0) {
        request->write = ++client_loop->writes;
    }
    uint64_t place = (uint64_t)(client_loop - client->loops) << 48;
    uint64_t low = mix(client->write_seed[0] + place + request->write);
    uint64_t high = client->write_seed[1] ^ mix(low);
    char text[40];
    snprintf(text, sizeof(text), "%08x-%04x-4%03x-%04x-%012" PRIx64, (uint32_t)(high >> 32),
             (unsigned)(high >> 16) & 0xffff, (unsigned)high & 0xfff,
             0x8000 | ((unsigned)(low >> 48) & 0x3fff), low & UINT64_C(0xffffffffffff));
    rg_h1_encode_header(encoder, "x-goog-gcs-idempotency-token", text);
}

int rg_request_encode_end(struct rg_request *request, struct rg_h1_encoder *encoder)
{
    const struct rg_client *client = request->client;
    bool is_write = request->ops->traffic == RG_TRAFFIC_WRITE && !request->has_no_write_token;
    if (is_write && !request->verify.asking) {
        write_token_encode(request, encoder);
    }
    struct rg_h1_slice authorization =
        rg_authorize_field(&request->client_loop->authorizer, &request->token);
    fields_append(encoder, authorization.data, authorization.size);
    fields_append(encoder, client->common_fields, client->common_fields_size);
    return rg_h1_encode_end(encoder);
}

int rg_request_set_names(struct rg_request *request, const char *bucket, const char *object)
{
    const char *problem;
    if (bucket == NULL || rg_bucket_name_check(bucket, strlen(bucket), &problem) < 0) {
        return -EINVAL;
    }
    if (object != NULL && rg_object_name_check(object, strlen(object), &problem) < 0) {
        return -EINVAL;
    }
    strcpy(request->bucket, bucket);
    strcpy(request->object, object != NULL ? object : "");
    return 0;
}

/* In a slab of its own, unless there is no memory for one. */
void rg_request_explain(struct rg_request *request, struct rg_completion *completion)
{
    struct rg_lease *lease = rg_slab_take(loop_of(request)->slabs, RG_DETAIL_SIZE_MAX);
    if (lease == NULL) {
        return;
    }
    const struct rg_client *client = request->client;
    char cause[RG_TRACE_CAUSE_SIZE], principal[256], remedy[RG_REMEDY_SIZE];
    (void)rg_client_principal_write(client, principal, sizeof(principal));
    const struct rg_remedy_facts facts = {.status = completion->status,
                                          .cause = request->failure.text,
                                          .verb = request->ops->verb,
                                          .principal = principal,
                                          .is_tls = client->endpoint.is_tls};
    snprintf((char *)lease->data, RG_DETAIL_SIZE_MAX, "%s gs://%s/%s at %s: %s%s",
             request->ops->verb, request->bucket, request->object, client->endpoint.text,
             rg_trace_cause(request, completion->status, cause), rg_remedy(&facts, remedy));
    completion->lease = lease;
    completion->detail = (const char *)lease->data;
}

void rg_request_finish(struct rg_request *request, struct rg_completion *completion)
{
    struct rg_client_loop *client_loop = request->client_loop;
    struct rg_loop *loop = client_loop->loop;
    struct rg_cq *cq = request->cq;
    RG_ASSERT(request->x.conn == NULL);
    RG_PROBE4(request_end, request, request->ops->verb, (int)completion->status,
              rg_time_between(request->submitted_ns, loop->now_ns));
    become(request, RG_REQUEST_DONE);
    rg_loop_cancel_alarm(loop, &request->deadline);
    rg_list_remove(&request->node);
    rg_traffic_forget(request);
    completion->user_data = request->user_data;
    completion->attempts = request->attempts;
    completion->started_ns = request->started_ns;
    completion->finished_ns = loop->now_ns;
    if (completion->status != RG_STATUS_OK) {
        completion->http_status = request->failure.http_status;
        completion->os_error = request->failure.os_error;
    }
    if (completion->found_done && request->cq != NULL) {
        rg_log(RG_LOG_INFO,
               "%s gs://%s/%s: an answer was lost, and it is done, by us or by somebody else",
               request->ops->verb, request->bucket, request->object);
    }
    if (RG_UNLIKELY(rg_log_enabled(RG_LOG_INFO))) {
        rg_trace_end(request, completion);
    }
    if (rg_tracing_is_on()) {
        rg_trace_done(request, completion);
    }
    if (request->done != NULL) {
        request->ops->release(request);
        request->done(request, completion);
        rg_client_check_closed(client_loop);
        return;
    }
    if (completion->status != RG_STATUS_OK) {
        rg_request_explain(request, completion);
    }
    rg_metrics_request(&loop->metrics, request->ops->operation, completion->status,
                       rg_time_between(request->submitted_ns, loop->now_ns));
    request->ops->release(request);
    become(request, RG_REQUEST_FREE);
    rg_client_give_request(request->client, request);
    rg_loop_complete(loop, cq, completion);
    rg_client_check_closed(client_loop);
}

void rg_request_fail(struct rg_request *request)
{
    RG_ASSERT(request->failure.status != RG_STATUS_OK);
    struct rg_completion completion = {.status = request->failure.status};
    if (request->ops == &rg_get_ops && request->get.buf != NULL) {
        completion.data = request->get.buf;
        completion.size = rg_get_state_is_doubtful(&request->get) ? 0 : request->get.received;
    }
    rg_request_finish(request, &completion);
}

void rg_request_admitted(struct rg_request *request)
{
    become(request, RG_REQUEST_POOL);
    rg_pool_submit(request->client_loop->pool, &request->x);
}

/* There is a token where one is needed. */
static void attempt_send(struct rg_request *request)
{
    /* A body that broke off waits in its slab for the rest. */
    request->x.holds_memory =
        request->ops == &rg_get_ops && (request->get.lease != NULL || request->get.buf_is_leased);
    if (rg_traffic_enter(request)) {
        rg_request_admitted(request);
    } else {
        become(request, RG_REQUEST_ADMISSION);
    }
}

static void attempt_start(struct rg_request *request)
{
    request->failure.status = RG_STATUS_OK;
    request->failure.os_error = 0;
    request->failure.http_status = 0;
    request->failure.text[0] = '\0';
    if (rg_authorize(&request->client_loop->authorizer, &request->token)) {
        attempt_send(request);
    } else {
        become(request, RG_REQUEST_TOKEN);
    }
}

void rg_request_token_came(struct rg_token_wait *wait, const char *failure)
{
    struct rg_request *request = RG_CONTAINER_OF(wait, struct rg_request, token);
    RG_ASSERT(request->state == RG_REQUEST_TOKEN);
    if (failure == NULL) {
        attempt_send(request);
    } else {
        rg_request_note(request, RG_STATUS_CREDENTIALS, "%s", failure);
        rg_request_fail(request);
    }
}

void rg_request_cache_ended(struct rg_request *request, bool is_answered)
{
    struct rg_completion completion = {0};
    RG_ASSERT(request->state == RG_REQUEST_CACHE);
    rg_loop_cancel_alarm(loop_of(request), &request->alarm);
    if (is_answered && request->ops->finish(request, &completion) == RG_STATUS_OK) {
        rg_request_finish(request, &completion);
        return;
    }
    attempt_start(request);
}

/* No get waits long for the cache: its folder may lie on a server that is gone. */
static void cache_enter(struct rg_request *request,
                        enum rg_cached_begun (*begin)(struct rg_request *request))
{
    struct rg_loop *loop = loop_of(request);
    become(request, RG_REQUEST_CACHE);
    switch (begin(request)) {
    case RG_CACHED_READING:
        rg_loop_set_alarm(loop, &request->alarm, loop->now_ns + RG_CACHED_READ_PATIENCE_NS);
        break;
    case RG_CACHED_ANSWERED:
        /* Whoever starts an inner request is not told its end before it has begun. */
        if (request->cq != NULL) {
            rg_request_cache_ended(request, true);
        } else {
            rg_loop_set_alarm(loop, &request->alarm, loop->now_ns);
        }
        break;
    case RG_CACHED_NOTHING:
        attempt_start(request);
        break;
    }
}

static void alarm_fire(struct rg_alarm *alarm)
{
    struct rg_request *request = RG_CONTAINER_OF(alarm, struct rg_request, alarm);
    if (request->state == RG_REQUEST_CACHE) {
        bool is_answered = request->get.cached_read == NULL;
        if (!is_answered) {
            rg_cached_read_give_up(request);
        }
        rg_request_cache_ended(request, is_answered);
        return;
    }
    RG_ASSERT(request->state == RG_REQUEST_BACKOFF);
    rg_metric_add(&loop_of(request)->metrics.retries[request->failure.status], 1);
    attempt_start(request);
}

/* Takes a request out of what it waits in; memory is not waited for any more once it is released.
 */
static void wait_end(struct rg_request *request)
{
    switch ((enum rg_request_state)request->state) {
    case RG_REQUEST_CACHE:
        rg_loop_cancel_alarm(loop_of(request), &request->alarm);
        if (request->get.cached_read != NULL) {
            rg_cached_read_abandon(request);
        }
        break;
    case RG_REQUEST_TOKEN:
        rg_authorize_cancel(&request->token);
        break;
    case RG_REQUEST_ADMISSION:
        rg_traffic_withdraw(request);
        break;
    case RG_REQUEST_BACKOFF:
        rg_loop_cancel_alarm(loop_of(request), &request->alarm);
        break;
    default:
        RG_ASSERT(request->state == RG_REQUEST_MEMORY);
        break;
    }
}

void rg_request_cancel(struct rg_request *request, enum rg_status status)
{
    if (request->ops->cancel != NULL) {
        request->ops->cancel(request, status);
        return;
    }
    if (rg_request_is_waiting(request)) {
        wait_end(request);
        /* What the last attempt died of is worth more than that time is up. */
        request->failure.status = status;
        rg_request_fail(request);
        return;
    }
    rg_traffic_unhedge(request);
    rg_pool_cancel(request->client_loop->pool, &request->x, status);
}

static void deadline_fire(struct rg_alarm *alarm)
{
    struct rg_request *request = RG_CONTAINER_OF(alarm, struct rg_request, deadline);
    rg_metric_add(&loop_of(request)->metrics.timeouts, 1);
    rg_request_cancel(request, RG_STATUS_DEADLINE);
}

/* A write was refused, and why is not known from what is there. */
static void unread_note(struct rg_request *request, enum rg_status status, const char *text)
{
    const struct rg_verify *verify = &request->verify;
    const char *doubt = verify->kind == RG_VERIFY_READ ? "no such generation"
                        : verify->maybe_done           ? "an earlier try may have done it"
                                                       : "this request may have done it";
    if (verify->kind != RG_VERIFY_READ && status == RG_STATUS_NOT_FOUND) {
        rg_request_note(request, RG_STATUS_PRECONDITION, "%s%sthere is no such object",
                        verify->maybe_done ? doubt : "", verify->maybe_done ? ", and now " : "");
        return;
    }
    rg_request_note(request,
                    verify->kind == RG_VERIFY_READ ? RG_STATUS_NOT_FOUND : RG_STATUS_PRECONDITION,
                    "%s, and what is there cannot be read: %s%s%s", doubt, rg_status_text(status),
                    *text != '\0' ? ": " : "", text);
}

/* What is there could not be read, which is not what the caller asked for: the refusal stands. */
static void question_failed(struct rg_request *request)
{
    enum rg_status status = request->failure.status;
    bool ended_by_us =
        status == RG_STATUS_CANCELLED || status == RG_STATUS_DEADLINE || status == RG_STATUS_CLOSED;
    if (!request->verify.asking || ended_by_us) {
        return;
    }
    bool is_read = request->verify.kind == RG_VERIFY_READ;
    enum rg_status refusal = is_read ? RG_STATUS_NOT_FOUND : RG_STATUS_PRECONDITION;
    if (status != refusal) {
        char text[sizeof(request->failure.text)];
        strcpy(text, request->failure.text);
        request->failure.status = RG_STATUS_OK;
        unread_note(request, status, text);
    }
    request->failure.os_error = 0;
    request->failure.http_status = is_read ? 404 : 412;
}

/* Decides about another attempt after a failure, and arranges it. */
static void attempt_failed(struct rg_request *request, bool progress)
{
    struct rg_loop *loop = loop_of(request);
    if (request->ops == &rg_get_ops && request->get.is_outdated &&
        !rg_client_loop_is_closing(request->client_loop)) {
        request->get.is_outdated = false;
        attempt_start(request);
        return;
    }
    rg_verify_note_attempt(&request->verify, request->x.request_sent, request->failure.status);
    struct rg_retry_event event = {
        .status = request->failure.status,
        .idempotent = request->idempotent,
        .final = request->x.final,
        .sent = request->x.request_sent,
        .progress = progress,
        .now_ns = loop->now_ns,
        .deadline_ns = request->deadline_ns,
    };
    uint64_t at_ns;
    if (rg_client_loop_is_closing(request->client_loop) ||
        !rg_retry_next(&request->retry, &request->client_loop->retry_budget, &event, &at_ns)) {
        question_failed(request);
        rg_request_fail(request);
        return;
    }
    if (RG_UNLIKELY(rg_log_enabled(RG_LOG_INFO))) {
        rg_trace_retry(request, at_ns - loop->now_ns);
    }
    RG_PROBE3(retry, request, (int)request->failure.status, at_ns - loop->now_ns);
    become(request, RG_REQUEST_BACKOFF);
    rg_loop_set_alarm(loop, &request->alarm, at_ns);
}

/* The server answered with an error: its message is in the body. */
static void error_answer(struct rg_request *request)
{
    struct rg_exchange *x = &request->x;
    char message[RG_ERROR_MESSAGE_SIZE_MAX] = "";
    if (x->body_size > 0) {
        rg_error_message((const char *)x->body, (size_t)x->body_size, message, sizeof(message));
    }
    rg_lease_release(x->lease);
    request->failure.http_status = x->http_status;
    if (step_of(request)->refused != NULL) {
        step_of(request)->refused(request, x->http_status);
    }
    rg_request_note(request, rg_answer_status(x->http_status), "%s", message);
}

static bool is_success(const struct rg_request *request, uint16_t http_status)
{
    return (http_status >= 200 && http_status < 300) ||
           (http_status != 0 && http_status == request->accepts);
}

/* The question is sent without the body of the write, and has a limit of attempts of its own. */
static void question_start(struct rg_request *request)
{
    request->idempotent = true;
    request->retry.failures = 0;
    request->x.upload_size = 0;
    request->x.lead_size = request->x.trail_size = 0;
    attempt_start(request);
}

static void answer_refused(struct rg_request *request)
{
    struct rg_completion completion = {.http_status = request->x.http_status};
    error_answer(request);
    bool may_have_another = !rg_client_loop_is_closing(request->client_loop) &&
                            request->client->options.attempts_max > 1;
    if (request->x.http_status == 401 &&
        rg_authorize_again(&request->client_loop->authorizer, &request->token, may_have_another)) {
        rg_metric_add(&loop_of(request)->metrics.retries[RG_STATUS_UNAUTHENTICATED], 1);
        if (RG_UNLIKELY(rg_log_enabled(RG_LOG_INFO))) {
            rg_trace_retry(request, 0);
        }
        attempt_start(request);
        return;
    }
    bool may_ask = !rg_client_loop_is_closing(request->client_loop) && !request->x.final;
    switch (rg_verify_refused(&request->verify, request->x.http_status, may_ask)) {
    case RG_VERIFY_ASK:
        question_start(request);
        break;
    case RG_VERIFY_DONE:
        completion.found_done = true;
        rg_request_finish(request, &completion);
        break;
    default:
        attempt_failed(request, false);
        break;
    }
}

void rg_request_await_memory(struct rg_request *request)
{
    become(request, RG_REQUEST_MEMORY);
}

void rg_request_answered(struct rg_request *request, enum rg_status status,
                         struct rg_completion *completion)
{
    if (status == RG_STATUS_OK) {
        rg_retry_budget_success(&request->client_loop->retry_budget);
        rg_request_finish(request, completion);
        return;
    }
    rg_request_note(request, status, "%s", "");
    request->failure.http_status = request->x.http_status;
    attempt_failed(request, false);
}

/* What came is a part of what is wanted, and the cache may have what follows. */
static void gap_filled(struct rg_request *request)
{
    rg_retry_budget_success(&request->client_loop->retry_budget);
    if (rg_client_loop_is_closing(request->client_loop)) {
        rg_request_note(request, RG_STATUS_CLOSED, "%s", "");
        rg_request_fail(request);
        return;
    }
    cache_enter(request, rg_cached_read_go_on);
}

static void answer_complete(struct rg_request *request)
{
    if (!is_success(request, request->x.http_status)) {
        answer_refused(request);
        return;
    }
    struct rg_completion completion = {.http_status = request->x.http_status};
    enum rg_status status = request->failure.status;
    if (status == RG_STATUS_OK) {
        status = step_of(request)->finish(request, &completion);
    } else {
        rg_lease_release(request->x.lease);
    }
    if (request->ops == &rg_get_ops && status == RG_STATUS_OK && rg_get_has_gap(request)) {
        gap_filled(request);
        return;
    }
    if (request->state != RG_REQUEST_MEMORY) {
        rg_request_answered(request, status, &completion);
    }
}

/* An error status says it all: how the body that explains it has fared does not matter, unless it
 * was we who ended it. */
static bool is_refusal(const struct rg_request *request)
{
    const struct rg_exchange *x = &request->x;
    bool ended_by_us = x->status == RG_STATUS_CANCELLED || x->status == RG_STATUS_DEADLINE ||
                       x->status == RG_STATUS_CLOSED;
    return x->http_status != 0 && !is_success(request, x->http_status) && !ended_by_us;
}

/* The server closed an idle connection at the moment we used it, which says nothing about the
 * request. */
static bool may_repeat_at_once(const struct rg_request *request)
{
    uint32_t attempts_max = RG_MIN(request->client->options.attempts_max, STALE_ATTEMPTS_MAX);
    return request->x.stale && request->idempotent && request->attempts < attempts_max &&
           !rg_client_loop_is_closing(request->client_loop);
}

static void exchange_done(struct rg_exchange *x)
{
    struct rg_request *request = RG_CONTAINER_OF(x, struct rg_request, x);
    if (rg_traffic_goes_on(request)) {
        return;
    }
    rg_traffic_leave(request);
    if (x->started_ns != 0) {
        request->attempts++;
        if (request->started_ns == 0) {
            request->started_ns = x->started_ns;
        }
    }
    if (x->status == RG_STATUS_OK || is_refusal(request)) {
        answer_complete(request);
        return;
    }
    bool is_accepted =
        is_success(request, x->http_status) && request->failure.status == RG_STATUS_OK;
    bool progress = false;
    if (is_accepted && step_of(request)->broken != NULL) {
        progress = step_of(request)->broken(request);
    } else {
        rg_lease_release(x->lease);
    }
    if (may_repeat_at_once(request)) {
        rg_verify_note_attempt(&request->verify, x->request_sent, request->failure.status);
        request->retry.failures++;
        rg_metric_add(&loop_of(request)->metrics.retries[x->status], 1);
        rg_log(RG_LOG_DEBUG, "%s gs://%s/%s: its connection had been closed, the next at once",
               request->ops->verb, request->bucket, request->object);
        attempt_start(request);
        return;
    }
    rg_request_note(request, x->status, "%s", x->text != NULL ? x->text : "");
    request->failure.os_error = x->os_error;
    request->failure.http_status = x->http_status;
    attempt_failed(request, progress);
}

/* Once in a while: it costs half a microsecond. */
static void clock_note(struct rg_request *request, const struct rg_h1_head *head)
{
    struct rg_client_loop *client_loop = request->client_loop;
    uint64_t now_ns = client_loop->loop->now_ns;
    int64_t seconds; /* what has passed of the last one is not told */
    if (client_loop->clock_due_ns > now_ns) {
        return;
    }
    const struct rg_h1_slice *date = rg_h1_find(head, "date");
    if (date != NULL && rg_http_date_parse(*date, &seconds) == 0) {
        client_loop->clock_due_ns = now_ns + RG_CLIENT_CLOCK_NS;
        atomic_store_explicit(&request->client->shared.server_clock_ns,
                              seconds * (int64_t)RG_NS_PER_S - (int64_t)now_ns,
                              memory_order_relaxed);
    }
}

static enum rg_body_action exchange_head(struct rg_exchange *x, const struct rg_h1_head *head)
{
    struct rg_request *request = RG_CONTAINER_OF(x, struct rg_request, x);
    rg_traffic_answered(request);
    stage_enter(request, RG_STAGE_BODY);
    if (rg_tracing_is_on()) {
        rg_trace_stage(request, RG_STAGE_BODY);
    }
    request->retry.retry_after_ns = 0;
    clock_note(request, head);
    if (is_success(request, head->status)) {
        int action = step_of(request)->head(request, head);
        if (action >= 0) {
            return (enum rg_body_action)action;
        }
        x->body_max = RG_ERROR_BODY_SIZE_MAX;
        return RG_BODY_DISCARD;
    }
    rg_metrics_refusal(&loop_of(request)->metrics, head->status);
    const struct rg_h1_slice *retry_after = rg_h1_find(head, "retry-after");
    if (retry_after != NULL) {
        request->retry.retry_after_ns = rg_retry_after_parse(retry_after, rg_h1_find(head, "date"));
    }
    x->body_max = RG_ERROR_BODY_SIZE_MAX;
    if (request->refusal_space != NULL) {
        x->into = request->refusal_space;
        x->into_size = request->refusal_space_size;
        return RG_BODY_INTO;
    }
    return RG_BODY_LEASE;
}

static void exchange_data(struct rg_exchange *x, const uint8_t *data, size_t size)
{
    struct rg_request *request = RG_CONTAINER_OF(x, struct rg_request, x);
    rg_traffic_arrived(request);
    if (is_success(request, x->http_status) && step_of(request)->data != NULL) {
        step_of(request)->data(request, data, size);
    }
}

static int exchange_encode(struct rg_exchange *x, struct rg_h1_encoder *encoder)
{
    struct rg_request *request = RG_CONTAINER_OF(x, struct rg_request, x);
    if (request->started_ns == 0) {
        struct rg_loop *loop = loop_of(request);
        rg_histogram_record(&loop->metrics.phases[RG_PHASE_QUEUE],
                            rg_time_between(request->submitted_ns, loop->now_ns));
    }
    become(request, RG_REQUEST_OUT);
    rg_traffic_sent(request);
    return step_of(request)->encode(request, encoder);
}

static const struct rg_exchange_ops exchange_ops = {
    .encode = exchange_encode,
    .head = exchange_head,
    .data = exchange_data,
    .done = exchange_done,
};

/* When a request starts: it has one place for its end, nothing of it is out, and only what may be
 * sent twice is asked about when it is refused. */
static bool invariants(const struct rg_request *request)
{
    bool verifiable = request->verify.kind == RG_VERIFY_NONE || request->idempotent;
    bool placed = (request->cq != NULL) != (request->done != NULL);
    return verifiable && placed && request->x.conn == NULL;
}

/* Begins a prepared request, on its loop. */
static void begin(struct rg_request *request)
{
    struct rg_client_loop *client_loop = request->client_loop;
    RG_ASSERT(!rg_client_loop_is_closing(client_loop));
    RG_VERIFY(invariants(request));
    RG_PROBE4(request_begin, request, request->ops->verb, request->bucket, request->object);
    rg_list_push_back(&client_loop->active, &request->node);
    if (request->deadline_ns != 0) {
        rg_loop_set_alarm(client_loop->loop, &request->deadline, request->deadline_ns);
    }
    if (request->ops->start != NULL) {
        become(request, RG_REQUEST_CHILDREN);
        request->ops->start(request);
    } else if (RG_UNLIKELY(request->client->newest != NULL) && request->ops == &rg_get_ops) {
        cache_enter(request, rg_cached_read_begin);
    } else {
        attempt_start(request);
    }
}

static void mail_run(struct rg_mail *mail)
{
    begin(RG_CONTAINER_OF(mail, struct rg_request, mail));
}

void rg_request_init_inner(struct rg_request *request, struct rg_client_loop *client_loop,
                           void (*done)(struct rg_request *request,
                                        struct rg_completion *completion))
{
    request->client = client_loop->client;
    request->client_loop = client_loop;
    request->cq = NULL;
    request->parent = NULL;
    request->done = done;
    rg_list_init(&request->node);
}

void rg_request_init_child(struct rg_request *child, struct rg_request *parent,
                           void (*done)(struct rg_request *child, struct rg_completion *completion))
{
    rg_request_init_inner(child, parent->client_loop, done);
    child->parent = parent;
}

bool rg_request_start(struct rg_request *request)
{
    RG_ASSERT(request->done != NULL);
    if (rg_client_loop_is_closing(request->client_loop)) {
        return false;
    }
    request->token.refused = false;
    begin(request);
    return true;
}

void rg_request_note_child(struct rg_request *request, const struct rg_request *child)
{
    if (request->failure.status == RG_STATUS_OK) {
        request->failure = child->failure;
    }
}

void rg_request_prepare(struct rg_request *request, const struct rg_request_ops *ops,
                        uint64_t user_data, uint64_t deadline_ns)
{
    RG_ASSERT(ops->start != NULL || (ops->encode != NULL && ops->finish != NULL));
    RG_ASSERT(ops->release != NULL);
    const struct rg_client *client = request->client;
    become(request, RG_REQUEST_QUEUED);
    request->mail.run = mail_run;
    request->ops = ops;
    request->user_data = user_data;
    request->deadline_ns = deadline_ns;
    request->submitted_ns = rg_now_ns();
    request->started_ns = 0;
    request->attempts = 0;
    request->failure.status = RG_STATUS_OK;
    request->failure.text[0] = '\0';
    request->failure.http_status = 0;
    request->failure.os_error = 0;
    request->idempotent = true;
    request->has_no_write_token = false;
    request->write = 0;
    request->verify = (struct rg_verify){0};
    request->accepts = 0;
    request->refusal_space = NULL;
    request->token = (struct rg_token_wait){0};
    rg_list_init(&request->token.node);
    request->x = (struct rg_exchange){.ops = &exchange_ops};
    request->admission = (struct rg_admission){0};
    rg_alarm_init(&request->alarm, alarm_fire);
    rg_alarm_init(&request->deadline, deadline_fire);
    struct rg_retry_policy policy = {
        .attempts_max = client->options.attempts_max,
        .backoff_min_ns = client->options.backoff_min_ns,
        .backoff_max_ns = client->options.backoff_max_ns,
    };
    rg_retry_init(&request->retry, &policy, request->submitted_ns ^ user_data);
}
