/* See state.h. */
#include "dataset/state.h"

#include "gcs/wire/checksum.h"
#include "runtime/base.h"

#include <errno.h>
#include <string.h>

#define STATE_MAGIC UINT32_C(0x73646772) /* "rgds" */
#define BASE_MAGIC UINT32_C(0x62646772)  /* "rgdb" */
#define VERSION 2
#define CRC_SIZE 4

/* Bits of the field after the version. */
enum { SHUFFLE = 1, UNORDERED = 2, HAS_BASE = 4, HAS_OWN = 8 };

/* Writes or reads one field after the other. What does not fit is only counted; what is not there
 * is zero, and noted. */
struct cursor {
    uint8_t *out;
    const uint8_t *in;
    size_t size, at;
    bool is_short;
};

static void put(struct cursor *cursor, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++, cursor->at++) {
        if (cursor->at < cursor->size) {
            cursor->out[cursor->at] = (uint8_t)(value >> (8 * i));
        }
    }
}

static void put_bytes(struct cursor *cursor, const uint8_t *bytes, uint64_t count)
{
    if (cursor->at < cursor->size && count > 0) {
        memcpy(cursor->out + cursor->at, bytes, RG_MIN(count, cursor->size - cursor->at));
    }
    cursor->at += count;
}

static uint64_t get(struct cursor *cursor, size_t width)
{
    if (cursor->size - cursor->at < width) {
        cursor->is_short = true;
        return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++) {
        value |= (uint64_t)cursor->in[cursor->at++] << (8 * i);
    }
    return value;
}

static const uint8_t *get_bytes(struct cursor *cursor, uint64_t count)
{
    const uint8_t *bytes = cursor->in + cursor->at;
    if (cursor->size - cursor->at < count) {
        cursor->is_short = true;
        return NULL;
    }
    cursor->at += count;
    return bytes;
}

static void put_head(struct cursor *cursor, uint32_t magic, uint32_t flags)
{
    put(cursor, magic, 4);
    put(cursor, VERSION, 2);
    put(cursor, flags, 2);
}

static void put_epoch(struct cursor *cursor, const struct rg_state_epoch *of)
{
    put(cursor, of->count, 8);
    put(cursor, of->fingerprint, 4);
    put_bytes(cursor, of->digest, sizeof(of->digest));
    put(cursor, of->seed, 8);
    put(cursor, of->epoch, 8);
}

static void get_epoch(struct cursor *cursor, struct rg_state_epoch *of)
{
    of->count = get(cursor, 8);
    of->fingerprint = (uint32_t)get(cursor, 4);
    const uint8_t *digest = get_bytes(cursor, sizeof(of->digest));
    if (digest != NULL) {
        memcpy(of->digest, digest, sizeof(of->digest));
    }
    of->seed = get(cursor, 8);
    of->epoch = get(cursor, 8);
}

/* Ends what was written; returns its size. */
static size_t put_crc(struct cursor *cursor)
{
    size_t total = cursor->at + CRC_SIZE;
    if (total <= cursor->size) {
        put(cursor, rg_crc32c(0, cursor->out, cursor->at), CRC_SIZE);
    }
    return total;
}

/* Begins to read what is intact and of a kind. 0 or -EBADMSG. */
static int get_head(struct cursor *cursor, const uint8_t *data, size_t size, uint32_t magic,
                    uint32_t *out_version, uint32_t *out_flags, uint32_t *out_crc)
{
    if (size < CRC_SIZE) {
        return -EBADMSG;
    }
    struct cursor end = {.in = data, .size = size, .at = size - CRC_SIZE};
    *out_crc = (uint32_t)get(&end, CRC_SIZE);
    *cursor = (struct cursor){.in = data, .size = size - CRC_SIZE};
    if (*out_crc != rg_crc32c(0, data, size - CRC_SIZE) || get(cursor, 4) != magic) {
        return -EBADMSG;
    }
    *out_version = (uint32_t)get(cursor, 2);
    *out_flags = (uint32_t)get(cursor, 2);
    return 0;
}

static int get_end(const struct cursor *cursor)
{
    return cursor->is_short || cursor->at != cursor->size ? -EBADMSG : 0;
}

/* Whether a reader can have written it. */
static bool state_is_possible(const struct rg_state *state)
{
    return state->bit_count % 8 == 0 && state->bit_count <= RG_STATE_BITS_MAX &&
           state->rank < state->world_size && state->worker < state->worker_count &&
           state->batch_size > 0 && state->remainder <= RG_REMAINDER_DROP &&
           state->taken <= state->of.count && state->consumed <= state->of.count;
}

static bool epoch_is_same(const struct rg_state_epoch *a, const struct rg_state_epoch *b)
{
    return a->count == b->count && a->fingerprint == b->fingerprint &&
           memcmp(a->digest, b->digest, sizeof(a->digest)) == 0 && a->seed == b->seed &&
           a->epoch == b->epoch && a->shuffle == b->shuffle;
}

/* The invariant in state.h, of what a reader can have written. */
static bool state_reads_back(const struct rg_state *state, const uint8_t *data, size_t size)
{
    struct rg_state again;
    if (!state_is_possible(state)) {
        return true;
    }
    return rg_state_decode(data, size, &again) == 0 && epoch_is_same(&again.of, &state->of) &&
           again.unordered == state->unordered && again.has_base == state->has_base &&
           again.base_crc == state->base_crc && again.rank == state->rank &&
           again.world_size == state->world_size && again.worker == state->worker &&
           again.worker_count == state->worker_count && again.batch_size == state->batch_size &&
           again.remainder == state->remainder && again.taken == state->taken &&
           again.bit_count == state->bit_count &&
           (state->bit_count == 0 || memcmp(again.bits, state->bits, state->bit_count / 8) == 0);
}

size_t rg_state_encode(const struct rg_state *state, uint8_t *buf, size_t size)
{
    RG_ASSERT(state->bit_count % 8 == 0 && state->bit_count <= RG_STATE_BITS_MAX);
    size_t total = RG_STATE_SIZE_MIN + state->bit_count / 8;
    if (size < total) {
        return total;
    }
    struct cursor cursor = {.out = buf, .size = size};
    put_head(&cursor, STATE_MAGIC,
             (state->of.shuffle ? SHUFFLE : 0u) | (state->unordered ? UNORDERED : 0u) |
                 (state->has_base ? HAS_BASE : 0u));
    put_epoch(&cursor, &state->of);
    put(&cursor, state->base_crc, 4);
    put(&cursor, state->rank, 4);
    put(&cursor, state->world_size, 4);
    put(&cursor, state->worker, 4);
    put(&cursor, state->worker_count, 4);
    put(&cursor, state->batch_size, 4);
    put(&cursor, state->remainder, 4);
    put(&cursor, state->taken, 8);
    put(&cursor, state->bit_count, 4);
    put_bytes(&cursor, state->bits, state->bit_count / 8);
    RG_ASSERT(put_crc(&cursor) == total);
    RG_VERIFY(state_reads_back(state, buf, total));
    return total;
}

static void get_state_1(struct cursor *cursor, struct rg_state *state)
{
    state->of.count = get(cursor, 8);
    state->of.fingerprint = (uint32_t)get(cursor, 4);
    state->remainder = (uint32_t)get(cursor, 4);
    state->of.seed = get(cursor, 8);
    state->of.epoch = get(cursor, 8);
    state->consumed = get(cursor, 8);
    state->rank = (uint32_t)get(cursor, 4);
    state->world_size = (uint32_t)get(cursor, 4);
    state->worker = (uint32_t)get(cursor, 4);
    state->worker_count = (uint32_t)get(cursor, 4);
    state->batch_size = (uint32_t)get(cursor, 4);
    state->bit_count = (uint32_t)get(cursor, 4);
    state->taken = get(cursor, 8);
}

static void get_state_2(struct cursor *cursor, struct rg_state *state)
{
    get_epoch(cursor, &state->of);
    state->base_crc = (uint32_t)get(cursor, 4);
    state->rank = (uint32_t)get(cursor, 4);
    state->world_size = (uint32_t)get(cursor, 4);
    state->worker = (uint32_t)get(cursor, 4);
    state->worker_count = (uint32_t)get(cursor, 4);
    state->batch_size = (uint32_t)get(cursor, 4);
    state->remainder = (uint32_t)get(cursor, 4);
    state->taken = get(cursor, 8);
    state->bit_count = (uint32_t)get(cursor, 4);
}

int rg_state_decode(const uint8_t *data, size_t size, struct rg_state *out)
{
    struct cursor cursor;
    uint32_t version, flags, crc;
    if (get_head(&cursor, data, size, STATE_MAGIC, &version, &flags, &crc) < 0 || version == 0 ||
        version > VERSION) {
        return -EBADMSG;
    }
    struct rg_state state = {.unordered = (flags & UNORDERED) != 0,
                             .has_base = (flags & HAS_BASE) != 0};
    state.of.shuffle = (flags & SHUFFLE) != 0;
    if (version == 1) {
        get_state_1(&cursor, &state);
    } else {
        get_state_2(&cursor, &state);
    }
    state.bits = get_bytes(&cursor, state.bit_count / 8);
    if (get_end(&cursor) < 0 || !state_is_possible(&state)) {
        return -EBADMSG;
    }
    *out = state;
    return 0;
}

static void put_set(struct cursor *cursor, const struct rg_state_set *set)
{
    RG_ASSERT(set->bit_count % 8 == 0);
    put(cursor, set->low, 8);
    put(cursor, set->bit_count, 8);
    put_bytes(cursor, set->bits, set->bit_count / 8);
}

static int get_set(struct cursor *cursor, struct rg_state_set *set)
{
    set->low = get(cursor, 8);
    set->bit_count = get(cursor, 8);
    set->bits = get_bytes(cursor, set->bit_count / 8);
    return set->bit_count % 8 == 0 ? 0 : -EBADMSG;
}

size_t rg_base_encode(const struct rg_base_content *base, uint8_t *buf, size_t size)
{
    struct cursor cursor = {.out = buf, .size = size};
    put_head(&cursor, BASE_MAGIC,
             (base->of.shuffle ? SHUFFLE : 0u) | (base->has_own ? HAS_OWN : 0u));
    put_epoch(&cursor, &base->of);
    put(&cursor, base->rank, 4);
    put(&cursor, base->world_size, 4);
    put(&cursor, base->remainder, 4);
    put_set(&cursor, &base->positions);
    put_set(&cursor, &base->own);
    return put_crc(&cursor);
}

int rg_base_decode(const uint8_t *data, size_t size, struct rg_base_content *out, uint32_t *out_crc)
{
    struct cursor cursor;
    uint32_t version, flags, crc;
    if (get_head(&cursor, data, size, BASE_MAGIC, &version, &flags, &crc) < 0 ||
        version != VERSION) {
        return -EBADMSG;
    }
    struct rg_base_content base = {.has_own = (flags & HAS_OWN) != 0};
    base.of.shuffle = (flags & SHUFFLE) != 0;
    get_epoch(&cursor, &base.of);
    base.rank = (uint32_t)get(&cursor, 4);
    base.world_size = (uint32_t)get(&cursor, 4);
    base.remainder = (uint32_t)get(&cursor, 4);
    if (get_set(&cursor, &base.positions) < 0 || get_set(&cursor, &base.own) < 0 ||
        get_end(&cursor) < 0 || base.remainder > RG_REMAINDER_DROP ||
        (base.has_own && base.rank >= base.world_size)) {
        return -EBADMSG;
    }
    *out = base;
    *out_crc = crc;
    return 0;
}
