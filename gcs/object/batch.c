/* Removing many objects by one request (Cloud Storage, "Batch requests").
 *
 *   the batch -> an answer for each -> done
 *                  some want another try -> pause -> those, one request each -> done
 *   the batch -> the server knows no batches -> all of them, one request each -> done
 *   the batch -> its answer cannot be read -> those that may be asked for twice, one request each
 *
 * A client that has met a server of the last two kinds sends it no batches any more. */
#include "gcs/request/idempotency.h"
#include "gcs/request/object_request.h"
#include "gcs/request/operation.h"
#include "gcs/wire/batch_answer.h"
#include "http/answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUNDARY "ringest_part" /* no line of a part begins with two hyphens */
/* The largest answer: with the messages of all that was refused. */
#define ANSWER_SIZE_MAX RG_MIB(2)
/* Requests for single objects that are out at once. */
#define SINGLES_MAX 8

enum item_state {
    ITEM_DECIDED = 0, /* its result is there, once the batch has been answered */
    ITEM_WAITS,       /* it is to be removed by a request of its own, which has not been sent */
    ITEM_OUT,         /* that request is out */
};

struct item {
    struct rg_delete del; /* its strings are the operation's own */
    uint16_t http_status; /* of its answer in the batch; 0: none */
    enum item_state state;
};

struct single {
    struct rg_request child;
    uint32_t index; /* of its item */
    bool out;
};

/* What an operation does while it is RUNNING. */
enum phase {
    PHASE_BEGIN = 0, /* there is no lease yet; it may wait for memory */
    PHASE_BATCH,     /* the batch is out, or has been answered */
    PHASE_PAUSE,     /* before what was refused is tried again */
    PHASE_SINGLES,   /* requests for single objects */
};

struct rg_delete_many_state {
    struct rg_operation operation;
    enum phase phase;
    struct rg_request batch;
    struct rg_completion answered; /* of the batch */
    struct single singles[SINGLES_MAX];
    struct item *items; /* owned, like the next two */
    char *names;
    struct rg_lease *lease; /* of the results */
    struct rg_delete_result *results;
    uint32_t count, next; /* items; the next that may be sent alone */
    bool alone;           /* the server knows no batches */
    struct rg_alarm pause;
    char boundary[RG_BOUNDARY_SIZE_MAX + 1];
};

static struct rg_delete_many_state *state_of(struct rg_operation *operation)
{
    return RG_CONTAINER_OF(operation, struct rg_delete_many_state, operation);
}

static int batch_head(struct rg_request *request, const struct rg_h1_head *head)
{
    struct rg_delete_many_state *state = state_of(request->parent->operation);
    const struct rg_h1_slice *type = rg_h1_find(head, "content-type");
    struct rg_h1_slice none = {"", 0};
    if (rg_batch_boundary_parse(type != NULL ? *type : none, state->boundary) < 0) {
        rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer is not multipart/mixed");
        return -EBADMSG;
    }
    request->x.body_max = ANSWER_SIZE_MAX;
    return RG_BODY_LEASE;
}

static enum rg_status batch_finish(struct rg_request *request, struct rg_completion *completion)
{
    struct rg_delete_many_state *state = state_of(request->parent->operation);
    uint16_t statuses[RG_DELETES_MAX];
    const char *problem;
    int rc = rg_batch_answer_parse((const char *)request->x.body, (size_t)request->x.body_size,
                                   state->boundary, statuses, state->count, &problem);
    rg_lease_release(request->x.lease);
    if (rc < 0) {
        rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer %s", problem);
        return RG_STATUS_BAD_RESPONSE;
    }
    for (uint32_t i = 0; i < state->count; i++) {
        state->items[i].http_status = statuses[i];
    }
    completion->status = RG_STATUS_OK;
    return RG_STATUS_OK;
}

static bool knows_no_batches(uint16_t http_status)
{
    return http_status == 404 || http_status == 405 || http_status == 501;
}

static void batch_refused(struct rg_request *request, uint16_t http_status)
{
    if (knows_no_batches(http_status)) {
        rg_request_note(request, RG_STATUS_BAD_REQUEST, "the server knows no batch requests");
    }
}

static const struct rg_request_ops batch_ops = {
    .verb = "delete",
    .traffic = RG_TRAFFIC_WRITE,
    .encode = rg_object_encode,
    .head = batch_head,
    .finish = batch_finish,
    .refused = batch_refused,
    .release = rg_object_release,
};

static bool is_idempotent(const struct rg_delete *del)
{
    return rg_operation_idempotent(RG_OPERATION_DELETE, &del->conditions, del->generation);
}

/* What the batch's answer means for one of its items; true: it is to be tried again. */
static bool item_take(struct rg_delete_many_state *state, uint32_t index)
{
    const struct item *item = &state->items[index];
    struct rg_delete_result *result = &state->results[index];
    bool may_retry =
        is_idempotent(&item->del) && state->operation.request->client->options.attempts_max > 1;
    result->http_status = item->http_status;
    if (item->http_status == 0) {
        result->status = RG_STATUS_BAD_RESPONSE;
        return may_retry;
    }
    result->status = rg_answer_status(item->http_status);
    bool maybe_done = state->batch.verify.maybe_done && !item->del.exclusive;
    if (item->http_status == 404 && maybe_done) {
        result->status = RG_STATUS_OK; /* by the batch before, or by somebody else */
        result->found_done = true;
    }
    if (item->http_status == 412 && maybe_done) {
        return may_retry; /* to find out whether it is gone */
    }
    return may_retry && rg_status_retryable(result->status);
}

static void many_finish(struct rg_delete_many_state *state)
{
    struct rg_completion completion = {
        .status = RG_STATUS_OK,
        .http_status = 200,
        .data = state->results,
        .size = state->count * sizeof(*state->results),
        .lease = state->lease,
    };
    state->lease = NULL;
    rg_operation_finish(&state->operation, &completion);
}

static void single_done(struct rg_request *child, struct rg_completion *completion)
{
    struct single *single = RG_CONTAINER_OF(child, struct single, child);
    struct rg_delete_many_state *state = state_of(child->parent->operation);
    state->results[single->index] = (struct rg_delete_result){
        .status = completion->status,
        .http_status = completion->http_status,
        .found_done = completion->found_done,
    };
    state->items[single->index].state = ITEM_DECIDED;
    single->out = false;
    rg_operation_child_ended(&state->operation, child);
}

/* The next item that is to be sent alone; false: there is none. */
static bool item_next(struct rg_delete_many_state *state, uint32_t *out_index)
{
    while (state->next < state->count && state->items[state->next].state != ITEM_WAITS) {
        state->next++;
    }
    if (state->next == state->count) {
        return false;
    }
    *out_index = state->next++;
    return true;
}

/* Sends its item. False: the operation has failed. */
static bool single_start(struct rg_delete_many_state *state, struct single *single)
{
    struct rg_operation *operation = &state->operation;
    struct item *item = &state->items[single->index];
    rg_request_init_child(&single->child, operation->request, single_done);
    if (rg_delete_prepare(&single->child, &item->del) < 0) {
        rg_operation_fail(operation, RG_STATUS_NO_RESOURCES, "%s", "");
        return false;
    }
    single->child.deadline_ns = operation->request->deadline_ns;
    /* Who was asked to come back later was not served, nor was a batch that nobody knew. */
    bool maybe_done = state->alone ? state->batch.attempts > 1 : item->http_status != 429;
    if (maybe_done) {
        rg_verify_suspect(&single->child.verify);
    }
    single->out = rg_operation_child_start(operation, &single->child);
    item->state = single->out ? ITEM_OUT : ITEM_WAITS;
    return single->out;
}

static void singles_advance(struct rg_delete_many_state *state)
{
    for (uint32_t i = 0; i < SINGLES_MAX; i++) {
        struct single *single = &state->singles[i];
        if (single->out) {
            continue;
        }
        if (!item_next(state, &single->index)) {
            break;
        }
        if (!single_start(state, single)) {
            return;
        }
    }
    if (state->operation.out == 0) {
        many_finish(state);
    }
}

static void pause_end(struct rg_alarm *alarm)
{
    struct rg_delete_many_state *state = RG_CONTAINER_OF(alarm, struct rg_delete_many_state, pause);
    state->phase = PHASE_SINGLES;
    rg_operation_wake(&state->operation);
}

/* Where the service asked for another try, not at once. */
static void pause_start(struct rg_delete_many_state *state)
{
    struct rg_request *request = state->operation.request;
    struct rg_retry_event event = {.status = RG_STATUS_SERVER,
                                   .idempotent = true,
                                   .now_ns = request->client_loop->loop->now_ns,
                                   .deadline_ns = request->deadline_ns};
    uint64_t at_ns;
    if (rg_retry_next(&request->retry, &request->client_loop->retry_budget, &event, &at_ns)) {
        state->phase = PHASE_PAUSE;
        rg_loop_set_alarm(request->client_loop->loop, &state->pause, at_ns);
    } else {
        many_finish(state);
    }
}

static void batch_done(struct rg_request *child, struct rg_completion *completion)
{
    struct rg_delete_many_state *state = state_of(child->parent->operation);
    RG_ASSERT(completion->lease == NULL);
    state->answered = *completion;
    rg_operation_child_ended(&state->operation, child);
}

static bool batch_is_unknown(const struct rg_completion *answered)
{
    return answered->status == RG_STATUS_BAD_REQUEST && knows_no_batches(answered->http_status);
}

/* The batch may have been carried out, wholly or in part, and nothing says which. */
static bool batch_is_unreadable(const struct rg_completion *answered)
{
    return answered->status == RG_STATUS_BAD_RESPONSE;
}

/* True: the batch has failed, and all that it asked for with it. */
static bool batch_has_failed(const struct rg_completion *answered)
{
    return answered->status != RG_STATUS_OK && !batch_is_unknown(answered) &&
           !batch_is_unreadable(answered);
}

/* Decides about each item by the answer of the batch. True: some are to be sent alone. */
static bool items_take(struct rg_delete_many_state *state)
{
    bool again = false;
    for (uint32_t i = 0; i < state->count; i++) {
        bool waits = state->alone || item_take(state, i);
        state->items[i].state = waits ? ITEM_WAITS : ITEM_DECIDED;
        again |= waits;
    }
    return again;
}

static void batch_take(struct rg_delete_many_state *state)
{
    struct rg_operation *operation = &state->operation;
    bool unreadable = batch_is_unreadable(&state->answered);
    if (batch_has_failed(&state->answered)) {
        rg_operation_fail_by(operation, &state->batch);
        return;
    }
    state->alone = batch_is_unknown(&state->answered);
    bool again = items_take(state);
    if (state->alone || unreadable) {
        atomic_store(&operation->request->client->shared.no_batches, true);
    }
    if (unreadable && !again) {
        rg_operation_fail_by(operation, &state->batch);
    } else if (state->alone || unreadable) {
        state->phase = PHASE_SINGLES;
        singles_advance(state);
    } else if (again) {
        pause_start(state);
    } else {
        many_finish(state);
    }
}

static int batch_body(const struct rg_delete_many_state *state, char **out_body, size_t *out_size)
{
    FILE *body = open_memstream(out_body, out_size);
    if (body == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < state->count; i++) {
        char text[RG_TARGET_SIZE_MAX];
        struct rg_target target = {.text = text, .capacity = sizeof(text)};
        rg_delete_target(&target, &state->items[i].del);
        RG_ASSERT(rg_target_end(&target) > 0);
        fprintf(body,
                "--" BOUNDARY "\r\nContent-Type: application/http\r\n"
                "Content-ID: <" RG_BATCH_ID_PREFIX "%" PRIu32 ">\r\n\r\n"
                "DELETE %s HTTP/1.1\r\n\r\n\r\n",
                i, text);
    }
    fputs("--" BOUNDARY "--\r\n", body);
    bool failed = ferror(body) != 0;
    if (fclose(body) != 0 || failed) {
        free(*out_body);
        return -ENOMEM;
    }
    return 0;
}

/* True when no item's second removal could take something else away. */
static bool all_idempotent(const struct rg_delete_many_state *state)
{
    bool all = true;
    for (uint32_t i = 0; i < state->count; i++) {
        all &= is_idempotent(&state->items[i].del);
    }
    return all;
}

static int batch_prepare(struct rg_delete_many_state *state)
{
    struct rg_request *request = state->operation.request;
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add(&target, "/batch/storage/v1");
    struct rg_object_call call = {.method = "POST",
                                  .target = &target,
                                  .content_type = "multipart/mixed; boundary=" BOUNDARY,
                                  .deadline_ns = request->deadline_ns};
    int rc = batch_body(state, &call.body, &call.body_size);
    if (rc < 0) {
        return rc;
    }
    rg_request_init_child(&state->batch, request, batch_done);
    rc = rg_object_prepare(&state->batch, &batch_ops, &call);
    if (rc == 0) {
        state->batch.idempotent = all_idempotent(state);
    }
    return rc;
}

static void all_send_alone(struct rg_delete_many_state *state)
{
    state->alone = true;
    for (uint32_t i = 0; i < state->count; i++) {
        state->items[i].state = ITEM_WAITS;
    }
    state->phase = PHASE_SINGLES;
}

static void batch_start(struct rg_delete_many_state *state)
{
    struct rg_operation *operation = &state->operation;
    if (batch_prepare(state) < 0) {
        rg_operation_fail(operation, RG_STATUS_NO_RESOURCES, "%s", "");
        return;
    }
    state->phase = PHASE_BATCH;
    (void)rg_operation_child_start(operation, &state->batch);
}

/* Takes the lease, if there is room for it. */
static void begin(struct rg_delete_many_state *state)
{
    const struct rg_request *request = state->operation.request;
    size_t size = state->count * sizeof(*state->results);
    /* Before anything is sent: whoever has removed objects must be able to say so. */
    state->lease = rg_operation_take_slab(&state->operation, size);
    if (state->lease == NULL) {
        return;
    }
    state->results = (struct rg_delete_result *)state->lease->data;
    if (atomic_load(&request->client->shared.no_batches)) {
        all_send_alone(state);
    } else {
        batch_start(state);
    }
}

static uint32_t singles_out(const struct rg_delete_many_state *state)
{
    uint32_t out = 0;
    for (uint32_t i = 0; i < SINGLES_MAX; i++) {
        out += state->singles[i].out;
    }
    return out;
}

/* Nothing is sent before there is room for the results, and the batch is never out beside requests
 * for single objects. */
static bool invariants(const struct rg_delete_many_state *state)
{
    return (state->phase == PHASE_BEGIN) == (state->lease == NULL) &&
           (state->phase == PHASE_SINGLES
                ? state->operation.out == singles_out(state)
                : singles_out(state) == 0 && state->operation.out <= (state->phase == PHASE_BATCH));
}

static void many_advance(struct rg_operation *operation)
{
    struct rg_delete_many_state *state = state_of(operation);
    RG_VERIFY(invariants(state));
    if (state->phase == PHASE_BEGIN && !rg_operation_waits_for_memory(operation)) {
        begin(state);
    } else if (state->phase == PHASE_BATCH && operation->out == 0) {
        batch_take(state); /* which may be the operation's end */
        return;
    }
    if (state->phase == PHASE_SINGLES) {
        singles_advance(state);
    }
}

static void many_stop(struct rg_operation *operation, bool hurry)
{
    struct rg_delete_many_state *state = state_of(operation);
    enum rg_status status = hurry ? RG_STATUS_CLOSED : operation->stopped_by;
    rg_loop_cancel_alarm(operation->request->client_loop->loop, &state->pause);
    if (state->phase == PHASE_BATCH && operation->out > 0) {
        rg_request_cancel(&state->batch, status);
    }
    if (status == RG_STATUS_NO_RESOURCES) {
        /* What is out may be done by now: it ends by itself. */
        return;
    }
    for (uint32_t i = 0; i < SINGLES_MAX; i++) {
        if (state->singles[i].out) {
            rg_request_cancel(&state->singles[i].child, status);
        }
    }
}

/* Whether every item is decided, and not by being cancelled. */
static bool singles_are_answered(const struct rg_delete_many_state *state)
{
    for (uint32_t i = 0; i < state->count; i++) {
        enum rg_status status = state->results[i].status;
        bool is_ended = status == RG_STATUS_CANCELLED || status == RG_STATUS_DEADLINE ||
                        status == RG_STATUS_CLOSED;
        if (state->items[i].state != ITEM_DECIDED || is_ended) {
            return false;
        }
    }
    return true;
}

/* The last answer may have come before the cancellation could take effect. Where all is decided by
 * that, it has been done. */
static void many_verify(struct rg_operation *operation)
{
    struct rg_delete_many_state *state = state_of(operation);
    if (state->phase == PHASE_SINGLES && operation->request->failure.status == RG_STATUS_OK &&
        singles_are_answered(state)) {
        rg_operation_resume(operation);
        return;
    }
    if (state->phase != PHASE_BATCH || operation->request->failure.status != RG_STATUS_OK) {
        return;
    }
    if (batch_has_failed(&state->answered)) {
        rg_request_note_child(operation->request, &state->batch);
    } else if (state->answered.status == RG_STATUS_OK && !items_take(state)) {
        rg_operation_resume(operation);
    }
}

static void many_free(struct rg_delete_many_state *state)
{
    if (state != NULL) {
        rg_lease_release(state->lease);
        free(state->items);
        free(state->names);
        free(state);
    }
}

static void operation_free(struct rg_operation *operation)
{
    many_free(state_of(operation));
}

static const struct rg_operation_ops operation_ops = {
    .advance = many_advance,
    .stop = many_stop,
    .verify = many_verify,
    .free = operation_free,
};

static const struct rg_request_ops many_ops = {
    .verb = "delete",
    .start = rg_operation_start,
    .cancel = rg_operation_cancel,
    .release = rg_operation_release,
};

static const char *name_keep(char **end, const char *name)
{
    char *kept = *end;
    *end = stpcpy(kept, name) + 1;
    return kept;
}

/* What was submitted, and how large its items were when the program was compiled. */
struct submission {
    struct rg_delete_many many;
    size_t item_size;
};

static struct rg_delete item_at(const struct submission *submission, size_t index)
{
    struct rg_delete del = {0};
    const uint8_t *items = (const uint8_t *)submission->many.deletes;
    memcpy(&del, items + index * submission->item_size, RG_MIN(submission->item_size, sizeof(del)));
    return del;
}

/* Copies the items with their names, which have been checked. */
static int items_copy(struct rg_delete_many_state *state, const struct submission *submission)
{
    size_t size = 0;
    for (uint32_t i = 0; i < state->count; i++) {
        struct rg_delete del = item_at(submission, i);
        size += strlen(del.bucket) + strlen(del.object) + 2;
    }
    state->items = calloc(state->count, sizeof(*state->items));
    state->names = malloc(size);
    if (state->items == NULL || state->names == NULL) {
        return -ENOMEM;
    }
    char *end = state->names;
    for (uint32_t i = 0; i < state->count; i++) {
        struct rg_delete *del = &state->items[i].del;
        *del = item_at(submission, i);
        del->bucket = name_keep(&end, del->bucket);
        del->object = name_keep(&end, del->object);
        del->user_data = 0;
        del->deadline_ns = 0;
    }
    return 0;
}

static int many_prepare(struct rg_request *request, const void *given)
{
    const struct submission *submission = given;
    const struct rg_delete_many *many = &submission->many;
    if (many->deletes == NULL || many->count == 0 || many->count > RG_DELETES_MAX) {
        return -EINVAL;
    }
    for (size_t i = many->count; i-- > 0;) {
        struct rg_delete del = item_at(submission, i);
        if (!rg_delete_valid(&del) || rg_request_set_names(request, del.bucket, del.object) < 0) {
            return -EINVAL;
        }
    }
    if (many->count > 1) {
        snprintf(request->object, sizeof(request->object), "... (%zu objects)", many->count);
    }
    struct rg_delete_many_state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return -ENOMEM;
    }
    state->count = (uint32_t)many->count;
    rg_alarm_init(&state->pause, pause_end);
    int rc = items_copy(state, submission);
    if (rc < 0) {
        many_free(state);
        return rc;
    }
    rg_request_prepare(request, &many_ops, many->user_data, many->deadline_ns);
    rg_operation_init(&state->operation, &operation_ops, request);
    return 0;
}

int rg_submit_delete_many_sized(struct rg_client *client, struct rg_cq *cq,
                                const struct rg_delete_many *many, size_t struct_size,
                                size_t item_size)
{
    struct submission own = {.item_size = item_size};
    memcpy(&own.many, many, RG_MIN(struct_size, sizeof(own.many)));
    return rg_object_submit(client, cq, many_prepare, &own);
}
