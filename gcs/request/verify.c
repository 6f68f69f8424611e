/* See verify.h. */
#include "gcs/request/verify.h"

#include "gcs/request/request.h"
#include "gcs/wire/list_parser.h"
#include "gcs/wire/target.h"

#include <string.h>

#define VERIFY_TARGET_SIZE_MAX                                                                     \
    (RG_URL_PATH_SIZE_MAX + 64 + 3 * (RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX))
/* Of an object's metadata. */
#define VERIFY_ANSWER_SIZE_MAX RG_KIB(256)

void rg_verify_expect_written(struct rg_request *request, uint64_t size, uint32_t crc32c)
{
    RG_ASSERT(request->idempotent && request->ops->finish != NULL);
    request->verify = (struct rg_verify){.kind = RG_VERIFY_WRITTEN, .size = size, .crc32c = crc32c};
}

void rg_verify_expect_nonce(struct rg_request *request, const char *nonce)
{
    RG_ASSERT(strlen(nonce) == RG_NONCE_SIZE);
    if (request->verify.kind != RG_VERIFY_CHANGED) {
        rg_verify_expect_written(request, RG_VERIFY_ANY_SIZE, 0);
    }
    strcpy(request->verify.nonce, nonce);
}

void rg_verify_expect_removed(struct rg_request *request)
{
    RG_ASSERT(request->idempotent);
    request->verify = (struct rg_verify){.kind = RG_VERIFY_REMOVED};
}

void rg_verify_expect_changed(struct rg_request *request)
{
    RG_ASSERT(request->idempotent && request->ops->finish != NULL);
    request->verify = (struct rg_verify){.kind = RG_VERIFY_CHANGED};
}

void rg_verify_note_attempt(struct rg_request *request)
{
    /* Who was asked to come back later was not served. */
    bool turned_away = request->failure.status == RG_STATUS_THROTTLED;
    if (request->x.request_sent && !turned_away) {
        request->verify.maybe_done = true;
    }
}

enum rg_verify_verdict rg_verify_refused(struct rg_request *request, uint16_t http_status)
{
    struct rg_verify *verify = &request->verify;
    if (verify->maybe_done && verify->kind == RG_VERIFY_REMOVED && http_status == 404) {
        return RG_VERIFY_DONE;
    }
    bool suspect = verify->maybe_done || verify->nonce[0] != '\0';
    if (!suspect || verify->asking || verify->kind == RG_VERIFY_NONE || http_status != 412 ||
        request->client_loop->closing || request->x.final) {
        return RG_VERIFY_REFUSED;
    }
    verify->asking = true;
    request->idempotent = true;
    request->retry.failures = 0;
    request->x.upload_size = 0;
    request->x.lead_size = request->x.trail_size = 0;
    return RG_VERIFY_ASK;
}

void rg_verify_give_up(struct rg_request *request)
{
    enum rg_status status = request->failure.status;
    bool ended_by_us =
        status == RG_STATUS_CANCELLED || status == RG_STATUS_DEADLINE || status == RG_STATUS_CLOSED;
    if (!request->verify.asking || ended_by_us) {
        return;
    }
    if (status != RG_STATUS_PRECONDITION) {
        char text[sizeof(request->failure.text)];
        strcpy(text, request->failure.text);
        request->failure.status = RG_STATUS_OK;
        rg_request_note(request, RG_STATUS_PRECONDITION,
                        "%s may have done it, and what is there cannot be read: %s%s%s",
                        request->verify.maybe_done ? "an earlier try" : "this request",
                        rg_status_text(status), *text != '\0' ? ": " : "", text);
    }
    request->failure.os_error = 0;
    request->failure.http_status = 412;
}

static int verify_encode(struct rg_request *request, struct rg_h1_encoder *encoder)
{
    char text[VERIFY_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text), request->client->endpoint.path);
    rg_target_add_object(&target, request->bucket, request->object);
    rg_target_query(&target, "prettyPrint", "false");
    RG_ASSERT(rg_target_end(&target) > 0);
    rg_h1_encode_request(encoder, "GET", text);
    return rg_request_encode_end(request, encoder);
}

static int verify_head(struct rg_request *request, const struct rg_h1_head *head)
{
    RG_ASSERT(head->status >= 200 && head->status < 300);
    request->x.body_max = VERIFY_ANSWER_SIZE_MAX;
    return RG_BODY_LEASE;
}

static bool is_what_was_sent(const struct rg_verify *verify,
                             const struct rg_object_resource *object)
{
    if (verify->nonce[0] != '\0') {
        return strcmp(object->nonce, verify->nonce) == 0;
    }
    bool same_size = verify->size == RG_VERIFY_ANY_SIZE || object->size == verify->size;
    return same_size && object->has_crc32c && object->crc32c == verify->crc32c;
}

static enum rg_status verify_finish(struct rg_request *request, struct rg_completion *completion)
{
    const struct rg_verify *verify = &request->verify;
    struct rg_exchange *x = &request->x;
    completion->found_done = rg_verify_is_guess(verify);
    if (verify->kind == RG_VERIFY_CHANGED) {
        return request->ops->finish(request, completion);
    }
    struct rg_object_resource object = {0};
    const char *problem;
    int rc =
        rg_object_resource_parse((const char *)x->body, (size_t)x->body_size, &object, &problem);
    if (rc == 0 && verify->kind == RG_VERIFY_WRITTEN && is_what_was_sent(verify, &object)) {
        return request->ops->finish(request, completion);
    }
    rg_lease_release(x->lease);
    if (rc < 0) {
        rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer %s", problem);
        return RG_STATUS_BAD_RESPONSE;
    }
    rg_request_note(request, RG_STATUS_PRECONDITION, "%s%s",
                    verify->kind == RG_VERIFY_REMOVED ? "there is another object of that name"
                    : verify->nonce[0] != '\0'        ? "somebody else wrote what is there"
                                                      : "what is there is not what was sent",
                    verify->maybe_done ? ", perhaps in the place of what an earlier try did" : "");
    return RG_STATUS_PRECONDITION;
}

/* Its verb and its release are those of the request whose step it is. */
const struct rg_request_ops rg_verify_ops = {
    .encode = verify_encode,
    .head = verify_head,
    .finish = verify_finish,
};
