/* See state.h. */
#include "dataset/state.h"

#include "gcs/checksum.h"
#include "runtime/base.h"

#include <errno.h>
#include <string.h>

#define MAGIC UINT32_C(0x73646772) /* "rgds" */
#define VERSION 1
#define CRC_SIZE 4

/* Writes or reads one field after the other; what does not fit is only counted. */
struct cursor {
    uint8_t *out;
    const uint8_t *in;
    size_t size, at;
};

static void put(struct cursor *cursor, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++, cursor->at++) {
        if (cursor->at < cursor->size) {
            cursor->out[cursor->at] = (uint8_t)(value >> (8 * i));
        }
    }
}

static uint64_t get(struct cursor *cursor, size_t width)
{
    RG_ASSERT(cursor->size - cursor->at >= width);
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++) {
        value |= (uint64_t)cursor->in[cursor->at++] << (8 * i);
    }
    return value;
}

size_t rg_state_encode(const struct rg_state *state, uint8_t *buf, size_t size)
{
    RG_ASSERT(state->bit_count % 8 == 0 && state->bit_count <= RG_STATE_BITS_MAX);
    size_t total = RG_STATE_SIZE_MIN + state->bit_count / 8;
    if (size < total) {
        return total;
    }
    struct cursor cursor = {.out = buf, .size = size};
    put(&cursor, MAGIC, 4);
    put(&cursor, VERSION, 2);
    put(&cursor, state->flags, 2);
    put(&cursor, state->count, 8);
    put(&cursor, state->fingerprint, 4);
    put(&cursor, state->remainder, 4);
    put(&cursor, state->seed, 8);
    put(&cursor, state->epoch, 8);
    put(&cursor, state->consumed, 8);
    put(&cursor, state->rank, 4);
    put(&cursor, state->world_size, 4);
    put(&cursor, state->worker, 4);
    put(&cursor, state->worker_count, 4);
    put(&cursor, state->batch_size, 4);
    put(&cursor, state->bit_count, 4);
    put(&cursor, state->taken, 8);
    for (uint32_t i = 0; i < state->bit_count / 8; i++) {
        put(&cursor, state->bits[i], 1);
    }
    put(&cursor, rg_crc32c(0, buf, cursor.at), CRC_SIZE);
    RG_ASSERT(cursor.at == total);
    return total;
}

int rg_state_decode(const uint8_t *data, size_t size, struct rg_state *out)
{
    if (size < RG_STATE_SIZE_MIN) {
        return -EBADMSG;
    }
    struct cursor end = {.in = data, .size = size, .at = size - CRC_SIZE};
    struct cursor cursor = {.in = data, .size = size};
    bool is_intact = get(&end, CRC_SIZE) == rg_crc32c(0, data, size - CRC_SIZE);
    if (!is_intact || get(&cursor, 4) != MAGIC || get(&cursor, 2) != VERSION) {
        return -EBADMSG;
    }
    struct rg_state state = {.flags = (uint32_t)get(&cursor, 2)};
    state.count = get(&cursor, 8);
    state.fingerprint = (uint32_t)get(&cursor, 4);
    state.remainder = (uint32_t)get(&cursor, 4);
    state.seed = get(&cursor, 8);
    state.epoch = get(&cursor, 8);
    state.consumed = get(&cursor, 8);
    state.rank = (uint32_t)get(&cursor, 4);
    state.world_size = (uint32_t)get(&cursor, 4);
    state.worker = (uint32_t)get(&cursor, 4);
    state.worker_count = (uint32_t)get(&cursor, 4);
    state.batch_size = (uint32_t)get(&cursor, 4);
    state.bit_count = (uint32_t)get(&cursor, 4);
    state.taken = get(&cursor, 8);
    state.bits = data + cursor.at;
    if (state.bit_count % 8 != 0 || state.bit_count > RG_STATE_BITS_MAX ||
        size != RG_STATE_SIZE_MIN + state.bit_count / 8) {
        return -EBADMSG;
    }
    *out = state;
    return 0;
}
