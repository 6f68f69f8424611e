/* All parts of an upload: slots for those that are on their way, which bounds memory, and a record
 * of each that was begun. They are begun in order; `next` and `offset` say where that has got. */
#ifndef RG_GCS_UPLOAD_PARTS_H
#define RG_GCS_UPLOAD_PARTS_H

#include "gcs/upload/source.h"

/* What stays known of a part. */
struct rg_upload_record {
    uint64_t size;
    uint32_t crc; /* once the part is FILLED */
};

struct rg_upload_parts {
    struct rg_upload_source source;
    uint64_t part_size; /* of all but the last; not of a stream */
    uint32_t slot_count;
    struct rg_upload_part *slots;
    uint32_t next;   /* the number of the first part that was not begun */
    uint64_t offset; /* of its first byte */
    struct rg_upload_record *records;
    uint32_t record_capacity;
};

/* Zeroed before. 0 or -ENOMEM. */
int rg_upload_parts_init(struct rg_upload_parts *parts, struct rg_operation *operation,
                         uint32_t slot_count);
void rg_upload_parts_fini(struct rg_upload_parts *parts);
/* The operation begins. */
void rg_upload_parts_start(struct rg_upload_parts *parts);

/* Gives free slots their next parts, and begins to fill them. */
void rg_upload_parts_fill(struct rg_upload_parts *parts);
/* Stops filling parts. */
void rg_upload_parts_call_off(struct rg_upload_parts *parts);
/* The first part in the order of the slots that is FILLED; NULL: none. */
struct rg_upload_part *rg_upload_parts_filled(struct rg_upload_parts *parts);
/* The part that this byte is in, if it has a slot; or NULL. */
struct rg_upload_part *rg_upload_parts_at(struct rg_upload_parts *parts, uint64_t offset);
/* The part was sent, or is not wanted any more: its slot is FREE. */
void rg_upload_part_free(struct rg_upload_part *part);
void rg_upload_parts_free_all(struct rg_upload_parts *parts);
/* All is begun anew, from the first byte on; nothing is out. */
void rg_upload_parts_restart(struct rg_upload_parts *parts);

/* All parts have been begun, and none is FILLING. */
bool rg_upload_parts_all_filled(const struct rg_upload_parts *parts);
/* All parts have been begun, and all slots are FREE. */
bool rg_upload_parts_done(const struct rg_upload_parts *parts);
/* Bytes of the whole, as far as that is known. */
uint64_t rg_upload_parts_total(const struct rg_upload_parts *parts);
/* The CRC32C of the parts so far, one behind the other. */
uint32_t rg_upload_parts_crc(const struct rg_upload_parts *parts);

#endif
