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
#include "gcs/wire/batch_answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUNDARY "ringest_part" /* no line of a part begins with two hyphens */
/* Of the answer: with the messages of all that was refused. */
#define ANSWER_SIZE_MAX RG_MIB(2)
/* Requests for single objects that are out at once. */
#define SINGLES_MAX 8

struct item {
    struct rg_delete del; /* its strings are the operation's own */
    uint16_t http_status; /* of its answer in the batch; 0: none */
    bool again;           /* it is to be removed by a request of its own */
};

struct single {
    struct rg_request child;
    uint32_t index; /* of its item */
    bool out;
};

struct rg_delete_many_state {
    struct rg_request batch;
    struct single singles[SINGLES_MAX];
    struct item *items; /* owned, like the next two */
    char *names;
    struct rg_lease *lease; /* of the results */
    struct rg_delete_result *results;
    uint32_t count, next, out; /* items; the next that may be sent alone; children that are out */
    bool batch_out;
    bool alone;            /* the server knows no batches */
    enum rg_status ending; /* what the operation was ended with; OK: it goes on */
    struct rg_request *request;
    struct rg_alarm pause;
    struct rg_task memory; /* waits for the lease */
    char boundary[RG_BOUNDARY_SIZE_MAX + 1];
};

static int batch_head(struct rg_request *request, const struct rg_h1_head *head)
{
    struct rg_delete_many_state *state = request->parent->delete_many;
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
    struct rg_delete_many_state *state = request->parent->delete_many;
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
static bool item_settle(struct rg_delete_many_state *state, uint32_t index)
{
    const struct item *item = &state->items[index];
    struct rg_delete_result *result = &state->results[index];
    bool may_retry = is_idempotent(&item->del) && state->request->client->options.attempts_max > 1;
    result->http_status = item->http_status;
    if (item->http_status == 0) {
        result->status = RG_STATUS_BAD_RESPONSE;
        return may_retry;
    }
    result->status = rg_retry_status_of_http(item->http_status);
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

static void operation_end(struct rg_delete_many_state *state)
{
    struct rg_request *request = state->request;
    RG_ASSERT(state->out == 0);
    if (state->ending != RG_STATUS_OK) {
        rg_request_note(request, state->ending, "%s", "");
        rg_request_fail(request);
        return;
    }
    struct rg_completion completion = {
        .status = RG_STATUS_OK,
        .http_status = 200,
        .data = state->results,
        .size = state->count * sizeof(*state->results),
        .lease = state->lease,
    };
    state->lease = NULL;
    rg_request_finish(request, &completion);
}

static void single_done(struct rg_request *child, struct rg_completion *completion);

/* Sends the next item that is to be sent alone. False: there is none, or it cannot be. */
static bool single_start(struct rg_delete_many_state *state, struct single *single)
{
    while (state->next < state->count && !state->items[state->next].again) {
        state->next++;
    }
    if (state->next == state->count || state->ending != RG_STATUS_OK) {
        return false;
    }
    single->index = state->next++;
    const struct item *item = &state->items[single->index];
    rg_request_init_child(&single->child, state->request, single_done);
    int rc = rg_delete_prepare(&single->child, &item->del);
    if (rc < 0) {
        state->ending = RG_STATUS_NO_RESOURCES;
        return false;
    }
    single->child.deadline_ns = state->request->deadline_ns;
    /* Who was asked to come back later was not served, nor was a batch that nobody knew. */
    bool maybe_done = state->alone ? state->batch.attempts > 1 : item->http_status != 429;
    if (maybe_done) {
        rg_verify_suspect(&single->child.verify);
    }
    if (!rg_request_start(&single->child)) {
        rg_object_release(&single->child);
        state->ending = RG_STATUS_CLOSED;
        return false;
    }
    single->out = true;
    state->out++;
    return true;
}

static void single_done(struct rg_request *child, struct rg_completion *completion)
{
    struct single *single = RG_CONTAINER_OF(child, struct single, child);
    struct rg_delete_many_state *state = child->parent->delete_many;
    rg_object_count_child(child->parent, completion);
    state->results[single->index] = (struct rg_delete_result){
        .status = completion->status,
        .http_status = completion->http_status,
        .found_done = completion->found_done,
    };
    single->out = false;
    state->out--;
    if (!single_start(state, single) && state->out == 0) {
        operation_end(state);
    }
}

static void singles_start(struct rg_delete_many_state *state)
{
    for (uint32_t i = 0; i < SINGLES_MAX && single_start(state, &state->singles[i]); i++) {
    }
    if (state->out == 0) {
        operation_end(state);
    }
}

static void pause_end(struct rg_alarm *alarm)
{
    singles_start(RG_CONTAINER_OF(alarm, struct rg_delete_many_state, pause));
}

/* Where the service asked for another try, not at once. */
static void pause_start(struct rg_delete_many_state *state)
{
    struct rg_request *request = state->request;
    struct rg_retry_event event = {.status = RG_STATUS_SERVER,
                                   .idempotent = true,
                                   .now_ns = request->client_loop->loop->now_ns,
                                   .deadline_ns = request->deadline_ns};
    uint64_t at_ns;
    if (rg_retry_next(&request->retry, &request->client_loop->retry_budget, &event, &at_ns)) {
        rg_loop_set_alarm(request->client_loop->loop, &state->pause, at_ns);
    } else {
        operation_end(state);
    }
}

static void batch_done(struct rg_request *child, struct rg_completion *completion)
{
    struct rg_request *request = child->parent;
    struct rg_delete_many_state *state = request->delete_many;
    rg_object_count_child(request, completion);
    state->batch_out = false;
    state->alone =
        completion->status == RG_STATUS_BAD_REQUEST && knows_no_batches(completion->http_status);
    /* It may have been done, wholly or in part. */
    bool unreadable = completion->status == RG_STATUS_BAD_RESPONSE;
    if (completion->status != RG_STATUS_OK && !state->alone && !unreadable) {
        rg_request_note_child(request, child);
        rg_request_fail(request);
        return;
    }
    bool again = false;
    for (uint32_t i = 0; i < state->count; i++) {
        state->items[i].again = state->alone || item_settle(state, i);
        again |= state->items[i].again;
    }
    if (state->alone || unreadable) {
        atomic_store(&request->client->shared.no_batches, true);
    }
    if (unreadable && !again) {
        rg_request_note_child(request, child);
        rg_request_fail(request);
    } else if (state->alone || unreadable) {
        singles_start(state);
    } else if (again) {
        pause_start(state);
    } else {
        operation_end(state);
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
        rg_delete_target(&target, "", &state->items[i].del);
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
    struct rg_request *request = state->request;
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text), request->client->endpoint.path);
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

static void all_start_alone(struct rg_delete_many_state *state)
{
    state->alone = true;
    for (uint32_t i = 0; i < state->count; i++) {
        state->items[i].again = true;
    }
    singles_start(state);
}

/* Takes the lease, now or when there is room, and begins. */
static void begin(struct rg_delete_many_state *state)
{
    struct rg_request *request = state->request;
    size_t size = state->count * sizeof(*state->results);
    /* Before anything is sent: whoever has removed objects must be able to say so. */
    state->lease = rg_loop_take_slab(request->client_loop->loop, size, &state->memory);
    if (state->lease == NULL) {
        return;
    }
    bool alone = atomic_load(&request->client->shared.no_batches);
    if (!alone && batch_prepare(state) < 0) {
        rg_request_note(request, RG_STATUS_NO_RESOURCES, "%s", "");
        rg_request_fail(request);
        return;
    }
    state->results = (struct rg_delete_result *)state->lease->data;
    if (alone) {
        all_start_alone(state);
        return;
    }
    state->batch_out = rg_request_start(&state->batch);
    if (!state->batch_out) {
        rg_object_release(&state->batch);
        rg_request_note(request, RG_STATUS_CLOSED, "%s", "");
        rg_request_fail(request);
    }
}

static void memory_is_back(struct rg_task *task)
{
    begin(RG_CONTAINER_OF(task, struct rg_delete_many_state, memory));
}

static void many_start(struct rg_request *request)
{
    begin(request->delete_many);
}

static void many_cancel(struct rg_request *request, enum rg_status status)
{
    struct rg_delete_many_state *state = request->delete_many;
    if (state->batch_out) {
        rg_request_cancel(&state->batch, status);
        return;
    }
    rg_loop_cancel_alarm(request->client_loop->loop, &state->pause);
    state->ending = state->ending != RG_STATUS_OK ? state->ending : status;
    /* One more than there are, so that the last of them to end does not end the operation here. */
    state->out++;
    for (uint32_t i = 0; i < SINGLES_MAX; i++) {
        if (state->singles[i].out) {
            rg_request_cancel(&state->singles[i].child, status);
        }
    }
    state->out--;
    if (state->out == 0) {
        operation_end(state);
    }
}

static void many_free(struct rg_delete_many_state *state)
{
    if (state != NULL) {
        rg_loop_undefer(&state->memory);
        rg_lease_release(state->lease);
        free(state->items);
        free(state->names);
        free(state);
    }
}

static void many_release(struct rg_request *request)
{
    many_free(request->delete_many);
    request->delete_many = NULL;
}

static const struct rg_request_ops many_ops = {
    .verb = "delete",
    .start = many_start,
    .cancel = many_cancel,
    .release = many_release,
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
    state->request = request;
    state->count = (uint32_t)many->count;
    rg_alarm_init(&state->pause, pause_end);
    state->memory.run = memory_is_back;
    int rc = items_copy(state, submission);
    if (rc < 0) {
        many_free(state);
        return rc;
    }
    rg_request_prepare(request, &many_ops, many->user_data, many->deadline_ns);
    request->delete_many = state;
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
