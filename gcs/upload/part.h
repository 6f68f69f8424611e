/* One part of an upload that is on its way, and its place, which is called a *slot*.
 *
 *   FREE -> FILLING -> FILLED -> SENDING -> FREE
 *
 *   FREE     the slot has no part
 *   FILLING  its memory is waited for, or its bytes are read and summed up
 *   FILLED   all bytes are there, with their CRC32C
 *   SENDING  its request is out; one that joins or removes temporary objects has no bytes
 *
 * A writer's part is FILLED from the beginning. A part may become FREE from any state. */
#ifndef RG_GCS_UPLOAD_PART_H
#define RG_GCS_UPLOAD_PART_H

#include "gcs/request/call.h"
#include "gcs/upload/stream.h"

struct rg_upload_source;

enum rg_upload_part_state {
    RG_PART_FREE = 0,
    RG_PART_FILLING,
    RG_PART_FILLED,
    RG_PART_SENDING,
    RG_PART_STATE_COUNT,
};

struct rg_upload_part {
    struct rg_upload_source *source;
    enum rg_upload_part_state state; /* changed by rg_upload_part_become alone */
    uint32_t number;                 /* from 0 */
    uint64_t offset, size;
    const uint8_t *data;
    uint8_t *memory;                 /* taken; NULL: data is the caller's */
    struct rg_stream_buffer *buffer; /* taken, in place of data; NULL: not of a writer */
    uint64_t filled;                 /* bytes that are there and summed up */
    uint32_t crc;                    /* of those */
    struct rg_op reading;
    struct rg_task task; /* waits for memory, or sums up the next piece */
    struct rg_gcs_call call;
    char *lead, *trail; /* owned; around the data of a multipart/related request */
};

static inline struct rg_upload_part *rg_upload_part_of(struct rg_gcs_call *call)
{
    return RG_CONTAINER_OF(call, struct rg_upload_part, call);
}

void rg_upload_part_become(struct rg_upload_part *part, enum rg_upload_part_state state);
/* The bytes of the part from `skip` on are what the request carries. */
void rg_upload_part_carry(const struct rg_upload_part *part, uint64_t skip, struct rg_exchange *x);

#endif
