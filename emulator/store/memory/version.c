/* See version.h. */
#include "emulator/store/memory/version.h"

#include <stdlib.h>

/* The pieces follow each other, each is in its segment, and together they are the object. */
static bool invariants(const struct rg_version *version)
{
    uint64_t end = 0;
    for (size_t i = 0; i < version->piece_count; i++) {
        const struct rg_piece *piece = &version->pieces[i];
        if (piece->end <= end || piece->end - end > piece->segment->size) {
            return false;
        }
        end = piece->end;
    }
    return end == version->info.size && version->info.attributes == version->attributes;
}

struct rg_version *rg_version_create(const struct rg_store_object_info *info,
                                     const struct rg_piece *pieces, size_t piece_count)
{
    struct rg_version *version = malloc(sizeof(*version) + piece_count * sizeof(*pieces));
    if (version == NULL) {
        return NULL;
    }
    *version = (struct rg_version){
        .refs = 1,
        .info = *info,
        .attributes = rg_attributes_ref(info->attributes),
        .piece_count = piece_count,
    };
    version->info.has_attributes = info->attributes != NULL;
    for (size_t i = 0; i < piece_count; i++) {
        version->pieces[i] = pieces[i];
        rg_segment_ref(pieces[i].segment);
    }
    RG_VERIFY(invariants(version));
    return version;
}

void rg_version_unref(struct rg_version *version)
{
    if (atomic_fetch_sub_explicit(&version->refs, 1, memory_order_acq_rel) == 1) {
        for (size_t i = 0; i < version->piece_count; i++) {
            rg_segment_unref(version->pieces[i].segment);
        }
        rg_attributes_unref(version->attributes);
        free(version);
    }
}

static size_t version_read(struct rg_store_object *object, uint64_t offset,
                           const uint8_t **out_data)
{
    const struct rg_version *version = object->owner;
    size_t low = 0, high = version->piece_count - 1;
    while (low < high) { /* The first piece that ends behind the offset. */
        size_t middle = low + (high - low) / 2;
        if (version->pieces[middle].end <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const struct rg_piece *piece = &version->pieces[low];
    uint64_t start = low > 0 ? piece[-1].end : 0;
    RG_ASSERT(offset >= start && offset < piece->end);
    *out_data = piece->segment->data + (offset - start);
    return (size_t)(piece->end - offset);
}

static void version_close(struct rg_store_object *object)
{
    rg_version_unref(object->owner);
}

const struct rg_store_object_type rg_memory_version_type = {.read = version_read,
                                                            .close = version_close};

void rg_version_open(struct rg_version *version, struct rg_store_object *out_object)
{
    *out_object = (struct rg_store_object){
        .info = version->info, .type = &rg_memory_version_type, .owner = version};
}

void rg_version_soften(struct rg_version *version, int64_t now_us, const struct rg_store_fate *fate)
{
    version->info.soft_deleted_us = now_us;
    version->info.hard_delete_us = now_us + fate->soft_delete_us;
}
