/* The question what is there (gcs/request/verify.h), as a step of the request that
 * was refused: it reads the metadata of the object and compares. */
#include "gcs/request/request.h"
#include "gcs/wire/list_parser.h"
#include "gcs/wire/target.h"

#include <inttypes.h>

#define VERIFY_TARGET_SIZE_MAX                                                                     \
    (RG_URL_PATH_SIZE_MAX + 64 + 3 * (RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX))
/* An object's metadata are no larger. */
#define VERIFY_ANSWER_SIZE_MAX RG_KIB(256)

static int verify_encode(struct rg_request *request, struct rg_h1_encoder *encoder)
{
    char text[VERIFY_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
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

/* The generation that was to be read was not there, and this is now. It may be the same: where it
 * was written just then, or the 404 came from what lies between. */
static enum rg_status replaced_note(struct rg_request *request,
                                    const struct rg_object_resource *object)
{
    if (object->generation == request->verify.generation) {
        rg_request_note(request, RG_STATUS_NOT_FOUND,
                        "generation %" PRId64 " was answered by 404, and is there; read it again",
                        object->generation);
        return RG_STATUS_NOT_FOUND;
    }
    rg_request_note(request, RG_STATUS_NOT_FOUND,
                    "it was replaced by generation %" PRId64 "%s%s; list again, read without a "
                    "generation, or choose changed= of the dataset",
                    object->generation, object->created[0] != '\0' ? ", written " : "",
                    object->created);
    return RG_STATUS_NOT_FOUND;
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
    if (rc == 0 && verify->kind == RG_VERIFY_WRITTEN &&
        rg_verify_matches(verify, object.nonce, object.size, object.has_crc32c, object.crc32c)) {
        return request->ops->finish(request, completion);
    }
    rg_lease_release(x->lease);
    if (rc < 0) {
        rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer %s", problem);
        return RG_STATUS_BAD_RESPONSE;
    }
    if (verify->kind == RG_VERIFY_READ) {
        return replaced_note(request, &object);
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
