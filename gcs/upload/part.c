/* See part.h. */
#include "gcs/upload/part.h"

/* A free slot holds nothing. What is filled has all of its bytes, from one source. */
static bool invariants(const struct rg_upload_part *part)
{
    bool is_empty = part->data == NULL && part->memory == NULL && part->buffer == NULL &&
                    part->lead == NULL && part->trail == NULL && !part->call.out;
    return (part->state != RG_PART_FREE || is_empty) &&
           (part->state != RG_PART_FILLED || part->filled == part->size) &&
           (part->memory == NULL || part->buffer == NULL);
}

void rg_upload_part_become(struct rg_upload_part *part, enum rg_upload_part_state state)
{
    static const uint8_t followers[RG_PART_STATE_COUNT] = {
        [RG_PART_FREE] = 1 << RG_PART_FILLING | 1 << RG_PART_FILLED | 1 << RG_PART_SENDING,
        [RG_PART_FILLING] = 1 << RG_PART_FILLED | 1 << RG_PART_FREE,
        [RG_PART_FILLED] = 1 << RG_PART_SENDING | 1 << RG_PART_FREE,
        [RG_PART_SENDING] = 1 << RG_PART_FREE,
    };
    RG_ASSERT((followers[part->state] >> state & 1) != 0);
    part->state = state;
    RG_VERIFY(invariants(part));
}

void rg_upload_part_carry(const struct rg_upload_part *part, uint64_t skip, struct rg_exchange *x)
{
    RG_ASSERT(skip <= part->size);
    x->upload_size = part->size - skip;
    if (part->buffer != NULL && part->buffer->piece_count > 0) {
        x->pieces = part->buffer->pieces;
        x->piece_count = part->buffer->piece_count;
        x->pace = part->buffer->pace;
        x->upload_skip = skip;
    } else {
        x->upload = part->data != NULL ? part->data + skip : NULL;
    }
}
