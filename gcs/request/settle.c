/* See settle.h. */
#include "gcs/request/settle.h"

#include "gcs/request/request.h"
#include "gcs/wire/list_parser.h"
#include "gcs/wire/target.h"

#include <string.h>

#define SETTLE_TARGET_SIZE_MAX                                                                     \
    (RG_URL_PATH_SIZE_MAX + 64 + 3 * (RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX))
/* Of an object's metadata. */
#define SETTLE_ANSWER_SIZE_MAX RG_KIB(256)

void rg_settle_expect_written(struct rg_request *request, uint64_t size, uint32_t crc32c)
{
    RG_ASSERT(request->idempotent && request->ops->finish != NULL);
    request->settle = (struct rg_settle){.kind = RG_SETTLE_WRITTEN, .size = size, .crc32c = crc32c};
}

void rg_settle_expect_nonce(struct rg_request *request, const char *nonce)
{
    RG_ASSERT(strlen(nonce) == RG_NONCE_SIZE);
    if (request->settle.kind != RG_SETTLE_CHANGED) {
        rg_settle_expect_written(request, RG_SETTLE_ANY_SIZE, 0);
    }
    strcpy(request->settle.nonce, nonce);
}

void rg_settle_expect_removed(struct rg_request *request)
{
    RG_ASSERT(request->idempotent);
    request->settle = (struct rg_settle){.kind = RG_SETTLE_REMOVED};
}

void rg_settle_expect_changed(struct rg_request *request)
{
    RG_ASSERT(request->idempotent && request->ops->finish != NULL);
    request->settle = (struct rg_settle){.kind = RG_SETTLE_CHANGED};
}

void rg_settle_note_attempt(struct rg_request *request)
{
    /* Who was asked to come back later was not served. */
    bool turned_away = request->failure.status == RG_STATUS_THROTTLED;
    if (request->x.request_sent && !turned_away) {
        request->settle.maybe_done = true;
    }
}

enum rg_settle_verdict rg_settle_refused(struct rg_request *request, uint16_t http_status)
{
    struct rg_settle *settle = &request->settle;
    if (settle->maybe_done && settle->kind == RG_SETTLE_REMOVED && http_status == 404) {
        return RG_SETTLE_DONE;
    }
    bool suspect = settle->maybe_done || settle->nonce[0] != '\0';
    if (!suspect || settle->asking || settle->kind == RG_SETTLE_NONE || http_status != 412 ||
        request->client_loop->closing || request->x.final) {
        return RG_SETTLE_REFUSED;
    }
    settle->asking = true;
    request->idempotent = true;
    request->retry.failures = 0;
    request->x.upload_size = 0;
    request->x.lead_size = request->x.trail_size = 0;
    return RG_SETTLE_ASK;
}

void rg_settle_give_up(struct rg_request *request)
{
    enum rg_status status = request->failure.status;
    bool ended_by_us =
        status == RG_STATUS_CANCELLED || status == RG_STATUS_DEADLINE || status == RG_STATUS_CLOSED;
    if (!request->settle.asking || ended_by_us) {
        return;
    }
    if (status != RG_STATUS_PRECONDITION) {
        char text[sizeof(request->failure.text)];
        strcpy(text, request->failure.text);
        request->failure.status = RG_STATUS_OK;
        rg_request_note(request, RG_STATUS_PRECONDITION,
                        "%s may have done it, and what is there cannot be read: %s%s%s",
                        request->settle.maybe_done ? "an earlier try" : "this request",
                        rg_status_text(status), *text != '\0' ? ": " : "", text);
    }
    request->failure.os_error = 0;
    request->failure.http_status = 412;
}

static int settle_encode(struct rg_request *request, struct rg_h1_encoder *encoder)
{
    char text[SETTLE_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text), request->client->endpoint.path);
    rg_target_add_object(&target, request->bucket, request->object);
    rg_target_query(&target, "prettyPrint", "false");
    RG_ASSERT(rg_target_end(&target) > 0);
    rg_h1_encode_request(encoder, "GET", text);
    return rg_request_encode_end(request, encoder);
}

static int settle_head(struct rg_request *request, const struct rg_h1_head *head)
{
    RG_ASSERT(head->status >= 200 && head->status < 300);
    request->x.body_max = SETTLE_ANSWER_SIZE_MAX;
    return RG_BODY_LEASE;
}

static bool is_what_was_sent(const struct rg_settle *settle,
                             const struct rg_object_resource *object)
{
    if (settle->nonce[0] != '\0') {
        return strcmp(object->nonce, settle->nonce) == 0;
    }
    bool same_size = settle->size == RG_SETTLE_ANY_SIZE || object->size == settle->size;
    return same_size && object->has_crc32c && object->crc32c == settle->crc32c;
}

static enum rg_status settle_finish(struct rg_request *request, struct rg_completion *completion)
{
    const struct rg_settle *settle = &request->settle;
    struct rg_exchange *x = &request->x;
    completion->found_done = rg_settle_is_guess(settle);
    if (settle->kind == RG_SETTLE_CHANGED) {
        return request->ops->finish(request, completion);
    }
    struct rg_object_resource object = {0};
    const char *problem;
    int rc =
        rg_object_resource_parse((const char *)x->body, (size_t)x->body_size, &object, &problem);
    if (rc == 0 && settle->kind == RG_SETTLE_WRITTEN && is_what_was_sent(settle, &object)) {
        return request->ops->finish(request, completion);
    }
    rg_lease_release(x->lease);
    if (rc < 0) {
        rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer %s", problem);
        return RG_STATUS_BAD_RESPONSE;
    }
    rg_request_note(request, RG_STATUS_PRECONDITION, "%s%s",
                    settle->kind == RG_SETTLE_REMOVED ? "there is another object of that name"
                    : settle->nonce[0] != '\0'        ? "somebody else wrote what is there"
                                                      : "what is there is not what was sent",
                    settle->maybe_done ? ", perhaps in the place of what an earlier try did" : "");
    return RG_STATUS_PRECONDITION;
}

/* Its verb and its release are those of the request whose step it is. */
const struct rg_request_ops rg_settle_ops = {
    .encode = settle_encode,
    .head = settle_head,
    .finish = settle_finish,
};
