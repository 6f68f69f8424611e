/* Which bytes of an object have been read, and the CRC32C of each stretch of them: once they reach
 * from the first byte to the last, the CRC32C of all can be compared with the object's. A protocol
 * core without I/O.
 *
 * Bytes count as they were read first. What a later read has besides those is summed up again, from
 * its memory; that of a read which meets nothing is known. A read that begins and ends where
 * stretches do, and has no other bytes, is compared with them.
 *
 * Invariant: stretches are in order and do not overlap. */
#ifndef RG_CHECKPOINT_COVERAGE_H
#define RG_CHECKPOINT_COVERAGE_H

#include "runtime/base.h"

/* Where there would be more, neighbours are joined. Still more, or no memory for one, and nothing
 * is kept any more: the object is not compared. Reads of a terabyte by 8 MiB are as many. */
#define RG_COVERAGE_SPANS_MAX 131072

struct rg_coverage_span {
    uint64_t begin, end;
    uint32_t crc;
};

struct rg_coverage {
    struct rg_coverage_span *spans; /* owned */
    uint32_t count, capacity;
    uint64_t covered; /* bytes in them */
    bool is_lost;
};

void rg_coverage_fini(struct rg_coverage *coverage);
/* Bytes from `begin` on were read; `crc` is that of all of them. */
void rg_coverage_add(struct rg_coverage *coverage, uint64_t begin, const void *data, uint64_t size,
                     uint32_t crc);
/* True: these bytes were read before, in stretches that begin and end with them, and had this
 * CRC32C. */
bool rg_coverage_has(const struct rg_coverage *coverage, uint64_t begin, uint64_t size,
                     uint32_t *out_crc);
/* True: all bytes of an object of this size were read, and this is their CRC32C. */
bool rg_coverage_is_whole(const struct rg_coverage *coverage, uint64_t size, uint32_t *out_crc);

#endif
