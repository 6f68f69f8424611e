/* An object in one request: "objects: insert" with uploadType=multipart, which carries the metadata
 * and the CRC32C that the service checks (Cloud Storage, "Single-request uploads"). The bytes are
 * not copied: what frames them lies in memory of its own on either side. */
#include "gcs/upload/single.h"

#include "gcs/request/idempotency.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void rg_upload_single_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder,
                             const struct rg_conditions *conditions)
{
    const struct rg_request *request = &call->request;
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add(&target, "/upload/storage/v1/b/");
    rg_target_add_name(&target, request->bucket);
    rg_target_add(&target, "/o");
    rg_target_query(&target, "uploadType", "multipart");
    rg_target_query(&target, "name", request->object);
    rg_target_conditions(&target, conditions);
    rg_gcs_call_encode(call, encoder, "POST", &target);
    rg_multipart_encode_type(rg_upload_part_of(call)->lead, encoder);
}

static int frame_make(struct rg_upload_part *part, const char *object)
{
    const struct rg_upload_op *op = rg_upload_op_of(&part->call);
    free(part->lead);
    free(part->trail);
    part->lead = part->trail = NULL;
    return rg_multipart_frame(&op->attributes, object, &part->crc, &part->lead, &part->trail);
}

int rg_upload_single_prepare(struct rg_upload_part *part, const struct rg_gcs_call_ops *ops,
                             const char *object, const struct rg_conditions *conditions)
{
    struct rg_request *request = &part->call.request;
    int rc = rg_gcs_call_prepare(&part->call, ops, object);
    if (rc == 0) {
        rc = frame_make(part, object);
    }
    if (rc < 0) {
        return rc;
    }
    request->x.lead = (const uint8_t *)part->lead;
    request->x.lead_size = strlen(part->lead);
    rg_upload_part_carry(part, 0, &request->x);
    request->x.trail = (const uint8_t *)part->trail;
    request->x.trail_size = strlen(part->trail);
    request->idempotent = rg_operation_idempotent(RG_OPERATION_INSERT, conditions, 0);
    if (request->idempotent) {
        rg_upload_expect(rg_upload_op_of(&part->call), request, part->size, part->crc);
    }
    return 0;
}

static void single_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    rg_upload_single_encode(call, encoder, &rg_upload_op_of(call)->conditions);
}

static enum rg_status single_check(struct rg_gcs_call *call)
{
    /* It is stored: whatever is wrong with the answer, another attempt could only fail by its own
     * condition. */
    call->request.idempotent = false;
    return rg_upload_read_stored(call);
}

static void single_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op != NULL && status != RG_STATUS_OK) {
        rg_operation_fail_by(&op->operation, &call->request);
    } else if (op != NULL) {
        rg_upload_become(op, RG_UPLOAD_STORED);
    }
}

static void single_advance(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = single_encode, .check = single_check, .done = single_done};
    rg_upload_parts_fill(&op->parts);
    struct rg_upload_part *part = rg_upload_parts_filled(&op->parts);
    if (part == NULL || !rg_upload_is_running(op)) {
        return;
    }
    if (rg_upload_single_prepare(part, &ops, op->operation.request->object, &op->conditions) < 0) {
        rg_upload_out_of_memory(op);
        return;
    }
    rg_upload_part_become(part, RG_PART_SENDING);
    rg_upload_call_publish(op, &part->call);
}

const struct rg_upload_method_ops rg_upload_single_method = {
    .name = "single",
    .advance = single_advance,
};
