/* One version of an object in memory: immutable but for what becomes of it, and with a reference
 * count. An open object holds a reference, so that overwriting or deleting only takes the version
 * out of the bucket. Its bytes are a row of pieces of segments. */
#ifndef RG_EMULATOR_STORE_MEMORY_VERSION_H
#define RG_EMULATOR_STORE_MEMORY_VERSION_H

#include "emulator/store/memory/segment.h"
#include "emulator/store/model/backend.h"

/* Bytes of an object up to `end`; they start where the piece before ends. */
struct rg_piece {
    struct rg_segment *segment;
    uint64_t end;
};

struct rg_version {
    _Atomic uint32_t refs;
    struct rg_store_object_info info;
    struct rg_attributes *attributes; /* Owned; what `info` points at. */
    struct rg_version *older;         /* Noncurrent ones of the name, the newest first. */
    size_t piece_count;
    struct rg_piece pieces[];
};

/* The owner of an object of this type is an rg_version. */
extern const struct rg_store_object_type rg_memory_version_type;

/* Takes a reference to each segment. NULL: out of memory. */
struct rg_version *rg_version_create(const struct rg_store_object_info *info,
                                     const struct rg_piece *pieces, size_t piece_count);
static inline struct rg_version *rg_version_ref(struct rg_version *version)
{
    atomic_fetch_add_explicit(&version->refs, 1, memory_order_relaxed);
    return version;
}
void rg_version_unref(struct rg_version *version);
/* Opens it. Takes the reference. */
void rg_version_open(struct rg_version *version, struct rg_store_object *out_object);
/* It becomes soft-deleted. */
void rg_version_soften(struct rg_version *version, int64_t now_us,
                       const struct rg_store_fate *fate);

#endif
