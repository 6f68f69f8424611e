/* See cached_body.h. */
#include "gcs/request/cached_body.h"

#include "gcs/request/client_loop.h"
#include "gcs/request/request_type.h"
#include "runtime/runtime.h"

#include <string.h>

struct rg_cache_key rg_cached_key(const struct rg_request *request, uint64_t block)
{
    return (struct rg_cache_key){
        .origin = request->client->endpoint.authority,
        .bucket = request->bucket,
        .object = request->object,
        .generation = request->get.generation,
        .block = block,
    };
}

uint64_t rg_cached_end(const struct rg_get_state *get)
{
    uint64_t end = get->length == RG_WHOLE ? UINT64_MAX : get->offset + get->length;
    return get->has_object_size ? RG_MIN(end, get->object_size) : end;
}

bool rg_cached_is_complete(const struct rg_get_state *get)
{
    return get->has_object_size && get->offset + get->received == rg_cached_end(get);
}

bool rg_cached_is_guess(const struct rg_get_state *get)
{
    return get->want_generation == 0;
}

bool rg_cached_fits(const struct rg_get_state *get, const struct rg_cache_record *record,
                    uint64_t begin)
{
    uint64_t at = get->offset + get->received;
    bool has_crcs = get->received > 0 && get->has_object_crc && record->has_object_crc32c;
    bool is_same = (get->received == 0 || record->object_size == get->object_size) &&
                   (!has_crcs || record->object_crc32c == get->object_crc);
    return is_same && at < begin + record->body_size &&
           begin + record->body_size <= record->object_size && record->piece_size > 0;
}

void rg_cached_note(struct rg_get_state *get, const struct rg_cache_record *record)
{
    get->has_object_size = true;
    get->object_size = record->object_size;
    if (get->received == 0 || record->has_object_crc32c) {
        get->has_object_crc = record->has_object_crc32c;
        get->object_crc = record->object_crc32c;
    }
}

bool rg_cached_is_answer(const struct rg_get_state *get, size_t size)
{
    return get->sink == NULL && get->buf == NULL && size == rg_cached_end(get) - get->offset;
}

/* That of a whole body is put together from those of its pieces, which were compared. */
static uint32_t crc_of(const struct rg_cache_record *record, const uint8_t *data, size_t size)
{
    if (size != record->body_size) {
        return rg_crc32c(0, data, size);
    }
    uint32_t crc = 0, piece_crc;
    for (size_t at = 0, i = 0; at < size; at += record->piece_size, i++) {
        memcpy(&piece_crc, record->crcs + i * sizeof(piece_crc), sizeof(piece_crc));
        size_t piece_size = RG_MIN(size - at, (size_t)record->piece_size);
        crc = i == 0 ? piece_crc : rg_crc32c_combine(crc, piece_crc, piece_size);
    }
    return crc;
}

/* Where the whole body is to be put together; false: there is no room. */
static bool body_make_room(struct rg_request *request)
{
    struct rg_get_state *get = &request->get;
    struct rg_slab_arena *slabs = request->client_loop->loop->slabs;
    uint64_t total = rg_cached_end(get) - get->offset;
    if (get->sink != NULL || get->buf != NULL) {
        return total <= get->buf_size;
    }
    if (get->lease == NULL && total <= rg_slab_size_max(slabs)) {
        get->lease = rg_slab_take(slabs, (size_t)total);
        get->body = get->lease != NULL ? get->lease->data : NULL;
    }
    return get->lease != NULL && rg_get_state_reserve(get, slabs, total) == 0;
}

bool rg_cached_hand_out(struct rg_request *request, const struct rg_cache_record *record,
                        const uint8_t *data, size_t size, struct rg_lease **lease)
{
    struct rg_get_state *get = &request->get;
    if (rg_cached_is_answer(get, size) && *lease != NULL) {
        get->lease = *lease;
        get->body = (uint8_t *)(uintptr_t)data;
        *lease = NULL;
    } else if (!body_make_room(request)) {
        return false;
    } else if (get->sink != NULL) {
        get->sink(request, get->received, data, size);
    } else {
        memcpy((get->buf != NULL ? get->buf : get->body) + get->received, data, size);
    }
    if (!get->no_checksum && get->sink == NULL) {
        uint32_t crc = crc_of(record, data, size);
        get->crc = get->received == 0 ? crc : rg_crc32c_combine(get->crc, crc, size);
    }
    get->received += size;
    get->sent_from = get->received;
    get->cached += size;
    return true;
}
