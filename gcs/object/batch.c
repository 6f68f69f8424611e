/* See batch.h. */
#include "gcs/object/batch.h"

#include "gcs/request/idempotency.h"
#include "gcs/request/object_request.h"
#include "gcs/wire/error_body.h"
#include "http/answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUNDARY "ringest_part" /* no line of a part begins with two hyphens */
/* The largest answer: with the messages of all that was refused. */
#define ANSWER_SIZE_MAX RG_MIB(2)

static struct rg_batch *batch_of(struct rg_request *request)
{
    return RG_CONTAINER_OF(request, struct rg_batch, request);
}

static int batch_head(struct rg_request *request, const struct rg_h1_head *head)
{
    struct rg_batch *batch = batch_of(request);
    const struct rg_h1_slice *type = rg_h1_find(head, "content-type");
    struct rg_h1_slice none = {"", 0};
    if (rg_batch_boundary_parse(type != NULL ? *type : none, batch->boundary) < 0) {
        rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer is not multipart/mixed");
        return -EBADMSG;
    }
    request->x.body_max = ANSWER_SIZE_MAX;
    return RG_BODY_LEASE;
}

/* Of a removal, with the NUL. */
#define MESSAGE_SIZE 256

/* Without memory for them nothing is told. */
static void messages_keep(struct rg_batch *batch, const struct rg_batch_part *parts)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        batch->http_statuses[i] = parts[i].http_status;
        if (parts[i].http_status < 400) {
            continue;
        }
        if (batch->messages == NULL) {
            batch->messages = calloc(batch->count, MESSAGE_SIZE);
        }
        if (batch->messages != NULL && parts[i].message.size > 0) {
            (void)rg_error_message(parts[i].message.data, parts[i].message.size,
                                   batch->messages + i * (size_t)MESSAGE_SIZE, MESSAGE_SIZE);
        }
    }
}

static enum rg_status batch_finish(struct rg_request *request, struct rg_completion *completion)
{
    struct rg_batch *batch = batch_of(request);
    struct rg_batch_part parts[RG_DELETES_MAX];
    const char *problem;
    int rc = rg_batch_answer_parse((const char *)request->x.body, (size_t)request->x.body_size,
                                   batch->boundary, parts, batch->count, &problem);
    if (rc == 0) {
        messages_keep(batch, parts);
    }
    rg_lease_release(request->x.lease);
    if (rc < 0) {
        memset(batch->http_statuses, 0, sizeof(batch->http_statuses));
        rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer %s", problem);
        return RG_STATUS_BAD_RESPONSE;
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

/* True when no second removal could take something else away. */
static bool all_idempotent(const struct rg_batch *batch)
{
    bool all = true;
    for (uint32_t i = 0; i < batch->count; i++) {
        all &= is_idempotent(&batch->deletes[i]);
    }
    return all;
}

static int body_write(const struct rg_batch *batch, char **out_body, size_t *out_size)
{
    FILE *body = open_memstream(out_body, out_size);
    if (body == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        char text[RG_TARGET_SIZE_MAX];
        struct rg_target target = {.text = text, .capacity = sizeof(text)};
        rg_delete_target(&target, &batch->deletes[i]);
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

int rg_batch_prepare(struct rg_batch *batch, struct rg_request *parent,
                     const struct rg_delete *deletes, uint32_t count,
                     void (*done)(struct rg_request *request, struct rg_completion *completion))
{
    RG_ASSERT(count > 0 && count <= RG_DELETES_MAX);
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add(&target, "/batch/storage/v1");
    struct rg_object_call call = {.method = "POST",
                                  .target = &target,
                                  .content_type = "multipart/mixed; boundary=" BOUNDARY,
                                  .deadline_ns = parent->deadline_ns};
    batch->deletes = deletes;
    batch->count = count;
    int rc = body_write(batch, &call.body, &call.body_size);
    if (rc < 0) {
        return rc;
    }
    rg_request_init_child(&batch->request, parent, done);
    rc = rg_object_prepare(&batch->request, &batch_ops, &call);
    if (rc == 0) {
        batch->request.idempotent = all_idempotent(batch);
    }
    return rc;
}

enum rg_batch_outcome rg_batch_outcome(const struct rg_completion *completion)
{
    switch (completion->status) {
    case RG_STATUS_OK:
        return RG_BATCH_ANSWERED;
    case RG_STATUS_BAD_RESPONSE:
        return RG_BATCH_UNREADABLE;
    case RG_STATUS_BAD_REQUEST:
        return knows_no_batches(completion->http_status) ? RG_BATCH_UNKNOWN : RG_BATCH_FAILED;
    default:
        return RG_BATCH_FAILED;
    }
}

bool rg_batch_take(const struct rg_batch *batch, uint32_t index, struct rg_delete_result *result)
{
    const struct rg_delete *del = &batch->deletes[index];
    bool may_retry = is_idempotent(del) && batch->request.client->options.attempts_max > 1;
    uint16_t http_status = batch->http_statuses[index];
    result->http_status = http_status;
    if (http_status == 0) {
        result->status = RG_STATUS_BAD_RESPONSE;
        return may_retry;
    }
    result->status = rg_answer_status(http_status);
    bool maybe_done = batch->request.verify.maybe_done && !del->exclusive;
    if (http_status == 404 && maybe_done) {
        result->status = RG_STATUS_OK; /* by the batch before, or by somebody else */
        result->found_done = true;
    }
    if (http_status == 412 && maybe_done) {
        return may_retry; /* to find out whether it is gone */
    }
    return may_retry && rg_status_retryable(result->status);
}

const char *rg_batch_message(const struct rg_batch *batch, uint32_t index)
{
    return batch->messages != NULL ? batch->messages + index * (size_t)MESSAGE_SIZE : "";
}

void rg_batch_fini(struct rg_batch *batch)
{
    free(batch->messages);
}
