/* One segment of the memory tier: a file without a name (memfd_create(2)), in the format of
 * cache/format.h.
 *
 *   made: one process appends by pwrite -> sealed: nobody can change it, others may map it
 *
 * Everybody maps it read-only, also who fills it, so that no stray write of a program reaches it.
 * A sealed one has the seals F_SEAL_WRITE, GROW, SHRINK and SEAL, which the kernel never takes
 * back: neither can its bytes change under a reader, nor can it become shorter, which would be a
 * SIGBUS. Nothing else is mapped that comes from another process.
 *
 * The memory goes back to the system with its last descriptor and its last mapping, however the
 * processes end. */
#ifndef RG_CACHE_MEMORY_SEGMENT_H
#define RG_CACHE_MEMORY_SEGMENT_H

#include "cache/format.h"

struct rg_memory_line;

struct rg_memory_segment {
    struct rg_cache_nonce nonce;
    int fd; /* by which others open it; -1: it is only mapped */
    const uint8_t *data;
    size_t mapped;
    uint64_t size;                     /* bytes of memory, at most; those that are sealed */
    uint64_t end;                      /* of the records */
    struct rg_cache_content *contents; /* of one that is filled; owned */
    uint32_t count, capacity;
    uint32_t reserved; /* records that have room */
    bool is_sealed;
};

/* An empty one of that many bytes, which take memory as they are written. `nonce` is its name. 0 or
 * a negative errno. */
int rg_memory_segment_make(struct rg_memory_segment *out_segment,
                           const struct rg_cache_nonce *nonce, uint64_t size);
/* Takes room for a record of that many bytes. Its place in units; 0: there is none. */
uint32_t rg_memory_segment_reserve(struct rg_memory_segment *segment, size_t size);
/* Writes a record there; several threads may. 0 or a negative errno. */
int rg_memory_segment_put(const struct rg_memory_segment *segment, uint32_t place,
                          const uint8_t *header, size_t header_size, const uint8_t *body,
                          size_t body_size);
/* Puts it into the table of contents. 0 or -ENOMEM. */
int rg_memory_segment_list(struct rg_memory_segment *segment,
                           const struct rg_cache_content *content);
/* Writes the table, gives back what is not used, and seals. Nobody writes any more. 0; -EBUSY: a
 * device has some of its pages, so try later; or another negative errno, after which it may be
 * tried again, too. */
int rg_memory_segment_seal(struct rg_memory_segment *segment);
/* Opens and maps what another process has sealed, and checks its seals, its size, its name and its
 * table. 0 and *out_contents, in it; or a negative errno: -ENOENT: it is gone; -EPERM: it could
 * change. */
int rg_memory_segment_adopt(struct rg_memory_segment *out_segment,
                            const struct rg_memory_line *line,
                            const struct rg_cache_content **out_contents, uint32_t *out_count);
/* In a forked child, which counts for nothing: nobody reads it there. Async-signal-safe. */
void rg_memory_segment_unmap(struct rg_memory_segment *segment);
/* Nobody reads it any more. */
void rg_memory_segment_close(struct rg_memory_segment *segment);

#endif
