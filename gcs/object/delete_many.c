/* Removing many objects: an operation that sends a batch (gcs/object/batch.h), and single requests.
 *
 *   the batch -> an answer for each -> done
 *                  some want another try -> pause -> those, one request each -> done
 *   the batch -> the server knows no batches -> all of them, one request each -> done
 *   the batch -> its answer cannot be read -> those that may be asked for twice, one request each
 *
 * A client that has met a server of the last two kinds sends it no batches any more. */
#include "gcs/object/batch.h"
#include "gcs/request/object_request.h"
#include "gcs/request/operation.h"
#include "gcs/request/remedy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Requests for single objects that are out at once. */
#define SINGLES_MAX 8
/* Why an object was not removed, with the NUL. */
#define DETAIL_SIZE 512

enum item_state {
    ITEM_DECIDED = 0, /* its result is there, once the batch has been answered */
    ITEM_WAITS,       /* it is to be removed by a request of its own, which has not been sent */
    ITEM_OUT,         /* that request is out */
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
    struct rg_batch batch;
    enum rg_batch_outcome outcome; /* of the batch, when it is done */
    struct single singles[SINGLES_MAX];
    uint8_t items[RG_DELETES_MAX]; /* enum item_state of each */
    struct rg_delete *deletes;     /* owned, like the next two */
    char *names;                   /* of the objects and their buckets */
    struct rg_lease *lease;        /* of the results */
    struct rg_delete_result *results;
    uint32_t count, next; /* items; the next that may be sent alone */
    bool alone;           /* the server knows no batches */
    struct rg_alarm pause;
};

static struct rg_delete_many_state *state_of(struct rg_operation *operation)
{
    return RG_CONTAINER_OF(operation, struct rg_delete_many_state, operation);
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

/* The details lie behind the results. `message` is what the service says, or "". */
static void result_explain(struct rg_delete_many_state *state, uint32_t index, const char *message)
{
    struct rg_delete_result *result = &state->results[index];
    const struct rg_client *client = state->operation.request->client;
    char *detail = (char *)(state->results + state->count) + index * (size_t)DETAIL_SIZE;
    char http[16] = "", principal[256], remedy[RG_REMEDY_SIZE];
    result->detail = NULL;
    if (result->status == RG_STATUS_OK) {
        return;
    }
    (void)rg_client_principal_write(client, principal, sizeof(principal));
    const struct rg_remedy_facts facts = {.status = result->status,
                                          .cause = message,
                                          .verb = "delete",
                                          .principal = principal,
                                          .is_tls = client->endpoint.is_tls};
    if (result->http_status != 0) {
        snprintf(http, sizeof(http), " (HTTP %u)", result->http_status);
    }
    snprintf(detail, DETAIL_SIZE, "%s%s%s%s%s", rg_status_text(result->status), http,
             *message != '\0' ? ": " : "", message, rg_remedy(&facts, remedy));
    result->detail = detail;
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
    result_explain(state, single->index, child->failure.text);
    state->items[single->index] = ITEM_DECIDED;
    single->out = false;
    rg_operation_child_ended(&state->operation, child);
}

/* The next item that is to be sent alone; false: there is none. */
static bool item_next(struct rg_delete_many_state *state, uint32_t *out_index)
{
    while (state->next < state->count && state->items[state->next] != ITEM_WAITS) {
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
    rg_request_init_child(&single->child, operation->request, single_done);
    if (rg_delete_prepare(&single->child, &state->deletes[single->index]) < 0) {
        rg_operation_fail(operation, RG_STATUS_NO_RESOURCES, "%s", "");
        return false;
    }
    single->child.deadline_ns = operation->request->deadline_ns;
    /* A removal that was answered by 429 was not carried out, nor was a batch that the server does
     * not know. */
    bool maybe_done = state->alone ? state->batch.request.attempts > 1
                                   : state->batch.http_statuses[single->index] != 429;
    if (maybe_done) {
        rg_verify_suspect(&single->child.verify);
    }
    single->out = rg_operation_child_start(operation, &single->child);
    state->items[single->index] = single->out ? ITEM_OUT : ITEM_WAITS;
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

/* Waits before what was refused is sent again, as long as the retry policy says. */
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
    state->outcome = rg_batch_outcome(completion);
    rg_operation_child_ended(&state->operation, child);
}

/* Decides about each item by the answer of the batch. True: some are to be sent alone. */
static bool items_take(struct rg_delete_many_state *state)
{
    bool again = false;
    for (uint32_t i = 0; i < state->count; i++) {
        bool waits = state->alone || rg_batch_take(&state->batch, i, &state->results[i]);
        state->items[i] = waits ? ITEM_WAITS : ITEM_DECIDED;
        result_explain(state, i, rg_batch_message(&state->batch, i));
        again |= waits;
    }
    return again;
}

static void batch_take(struct rg_delete_many_state *state)
{
    struct rg_operation *operation = &state->operation;
    bool unreadable = state->outcome == RG_BATCH_UNREADABLE;
    if (state->outcome == RG_BATCH_FAILED) {
        rg_operation_fail_by(operation, &state->batch.request);
        return;
    }
    state->alone = state->outcome == RG_BATCH_UNKNOWN;
    bool again = items_take(state);
    if (state->alone || unreadable) {
        atomic_store(&operation->request->client->shared.no_batches, true);
    }
    if (unreadable && !again) {
        rg_operation_fail_by(operation, &state->batch.request);
    } else if (state->alone || unreadable) {
        state->phase = PHASE_SINGLES;
        singles_advance(state);
    } else if (again) {
        pause_start(state);
    } else {
        many_finish(state);
    }
}

static void all_send_alone(struct rg_delete_many_state *state)
{
    state->alone = true;
    for (uint32_t i = 0; i < state->count; i++) {
        state->items[i] = ITEM_WAITS;
    }
    state->phase = PHASE_SINGLES;
}

static void batch_start(struct rg_delete_many_state *state)
{
    struct rg_operation *operation = &state->operation;
    if (rg_batch_prepare(&state->batch, operation->request, state->deletes, state->count,
                         batch_done) < 0) {
        rg_operation_fail(operation, RG_STATUS_NO_RESOURCES, "%s", "");
        return;
    }
    state->phase = PHASE_BATCH;
    (void)rg_operation_child_start(operation, &state->batch.request);
}

/* Takes the lease, if there is room for it. */
static void begin(struct rg_delete_many_state *state)
{
    const struct rg_request *request = state->operation.request;
    size_t size = state->count * (sizeof(*state->results) + DETAIL_SIZE);
    /* Taken before anything is sent, so that the results of removals can always be told. */
    state->lease = rg_operation_take_slab(&state->operation, size);
    if (state->lease == NULL) {
        return;
    }
    state->results = (struct rg_delete_result *)state->lease->data;
    memset(state->results, 0, state->count * sizeof(*state->results));
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
        rg_request_cancel(&state->batch.request, status);
    }
    if (status == RG_STATUS_NO_RESOURCES) {
        /* Removals that are out may be done by now: they end by themselves. */
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
        if (state->items[i] != ITEM_DECIDED || is_ended) {
            return false;
        }
    }
    return true;
}

/* The last answer may have come before the cancellation took effect. If every item is decided then,
 * the operation has succeeded. */
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
    if (state->outcome == RG_BATCH_FAILED) {
        rg_request_note_child(operation->request, &state->batch.request);
    } else if (state->outcome == RG_BATCH_ANSWERED && !items_take(state)) {
        rg_operation_resume(operation);
    }
}

static void many_free(struct rg_delete_many_state *state)
{
    if (state != NULL) {
        rg_lease_release(state->lease);
        rg_batch_fini(&state->batch);
        free(state->deletes);
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
    .operation = RG_VERB_DELETE,
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
    state->deletes = calloc(state->count, sizeof(*state->deletes));
    state->names = malloc(size);
    if (state->deletes == NULL || state->names == NULL) {
        return -ENOMEM;
    }
    char *end = state->names;
    for (uint32_t i = 0; i < state->count; i++) {
        struct rg_delete *del = &state->deletes[i];
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
