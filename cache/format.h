/* What lies in the files of a cache: pure functions over bytes that anything may have damaged.
 *
 *   segment:  head (4 KiB) | records, each at a multiple of 64 | table of contents | trailer (64)
 *   record:   header: fixed part (64), origin NUL bucket NUL object NUL, CRC32Cs of the body's
 *             pieces, zeros up to a multiple of 64 | body
 *
 * Between two batches of records zeros fill up to RG_CACHE_ALIGNMENT. A segment that is still
 * written, or whose writer died, has no table: its records are found by walking. Integers are as
 * the machine has them; one with another byte order finds another version. */
#ifndef RG_CACHE_FORMAT_H
#define RG_CACHE_FORMAT_H

#include "cache/key.h"

#define RG_CACHE_VERSION 1
/* Direct reads: what file offsets, sizes and memory are multiples of. */
#define RG_CACHE_ALIGNMENT RG_KIB(4)
/* Of a record's header: enough for the longest names. */
#define RG_CACHE_HEADER_SIZE_MAX RG_KIB(4)
#define RG_CACHE_NONCE_SIZE 16
#define RG_CACHE_UNIT 64 /* what places and sizes of records are counted in */
#define RG_CACHE_HEAD_SIZE RG_CACHE_ALIGNMENT
#define RG_CACHE_TRAILER_SIZE 64
/* A place in a segment has 22 bits of units; the last batch begins below this. */
#define RG_CACHE_SEGMENT_SIZE_MAX RG_MIB(248)
#define RG_CACHE_RECORD_SIZE_MAX (RG_CACHE_HEADER_SIZE_MAX + RG_CACHE_BLOCK_SIZE)
/* Bytes that each CRC32C is of. A small body has one, which is most often the object's. */
#define RG_CACHE_PIECE_SIZE RG_KIB(64)
#define RG_CACHE_WHOLE_SIZE_MAX RG_KIB(256)

/* What a block is part of, and how it is checked. */
struct rg_cache_record {
    uint64_t object_size;
    uint32_t object_crc32c; /* of the whole object */
    bool has_object_crc32c;
    /* Of records that were read: */
    uint32_t header_size; /* where the body begins in the record; a multiple of 64 */
    uint32_t body_size;   /* bytes of the block */
    uint32_t piece_size;  /* bytes that each CRC32C is of; the last piece may have fewer */
    const uint8_t *crcs;  /* in the header that was opened */
};

struct rg_cache_nonce {
    uint8_t bytes[RG_CACHE_NONCE_SIZE];
};

struct rg_cache_head {
    struct rg_cache_nonce nonce;
    struct rg_cache_nonce host; /* of the run of the kernel on which the writer lives */
};

void rg_cache_head_write(const struct rg_cache_head *head, uint8_t out[RG_CACHE_HEAD_SIZE]);
/* Of the first 64 bytes or more. 0; -EPROTONOSUPPORT: of another version; -EBADMSG: not ours. */
int rg_cache_head_read(const uint8_t *bytes, size_t size, struct rg_cache_head *out_head);

/* Bytes of the header. */
size_t rg_cache_header_size(const struct rg_cache_key_sizes *sizes, size_t body_size);
/* Writes the header of a record, whose body is read for its CRC32Cs. */
void rg_cache_header_write(const struct rg_cache_key *key, const struct rg_cache_key_sizes *sizes,
                           uint64_t hash, const struct rg_cache_record *record, const uint8_t *body,
                           size_t body_size, uint8_t *out);
/* Reads one: 0, and what it says, pointing into `bytes`; -EBADMSG: it is none, or damaged, or does
 * not lie within `size`. The body need not. */
int rg_cache_header_read(const uint8_t *bytes, size_t size, struct rg_cache_key *out_key,
                         struct rg_cache_record *out_record, uint64_t *out_hash);
/* Pieces of the body from `first` on: 0 or -EBADMSG. */
int rg_cache_body_check(const struct rg_cache_record *record, uint32_t first, const uint8_t *data,
                        size_t size);

/* An entry of a table of contents: of a record; or, with RG_CACHE_CONTENT_NOTE in its size, a note
 * for the index, whose place and size mean what cache/extent.h says. */
struct rg_cache_content {
    uint64_t hash;
    uint32_t place; /* in units */
    uint32_t size;  /* bytes, without what fills up the last unit */
};
#define RG_CACHE_CONTENT_NOTE (UINT32_C(1) << 31)

static inline bool rg_cache_content_is_note(const struct rg_cache_content *content)
{
    return (content->size & RG_CACHE_CONTENT_NOTE) != 0;
}

struct rg_cache_trailer {
    uint64_t table_offset;
    uint32_t count, table_crc;
};

/* `nonce` is the segment's, so that a trailer is not taken for another's. */
void rg_cache_trailer_write(const struct rg_cache_trailer *trailer,
                            const struct rg_cache_nonce *nonce, uint8_t out[RG_CACHE_TRAILER_SIZE]);
/* Of the last bytes of a file of that size. 0 or -EBADMSG. */
int rg_cache_trailer_read(const uint8_t bytes[RG_CACHE_TRAILER_SIZE],
                          const struct rg_cache_nonce *nonce, uint64_t file_size,
                          struct rg_cache_trailer *out_trailer);
/* Checks a table: 0 or -EBADMSG. */
int rg_cache_table_check(const struct rg_cache_trailer *trailer,
                         const struct rg_cache_content *table);

static inline uint64_t rg_cache_round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

#endif
