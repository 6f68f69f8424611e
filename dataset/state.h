/* The saved state of a reader: what is needed to go on, and to refuse to go on with something else.
 *
 * 84 bytes, little-endian, in the order of the struct: "rgds", a version, flags, and so on; behind
 * them, for readers that are unordered, a bit for each sample from `taken` on that was taken too;
 * at the end the CRC32C of all before it. */
#ifndef RG_DATASET_STATE_H
#define RG_DATASET_STATE_H

#include <stddef.h>
#include <stdint.h>

#define RG_STATE_SIZE_MIN 84
/* Bits behind the first sample that was not taken. */
#define RG_STATE_BITS_MAX 65536

enum rg_state_flags { RG_STATE_SHUFFLE = 1, RG_STATE_UNORDERED = 2 };

struct rg_state {
    uint32_t flags;
    uint64_t count;       /* objects */
    uint32_t fingerprint; /* of the objects: reader.c */
    uint64_t seed, epoch;
    uint64_t consumed; /* positions that were done with before this sharding */
    uint32_t rank, world_size, worker, worker_count, batch_size, remainder;
    uint64_t taken;     /* samples of the reader, without a gap */
    uint32_t bit_count; /* a multiple of 8 */
    const uint8_t *bits;
};

/* Stores at most `size` bytes; returns how many there are. */
size_t rg_state_encode(const struct rg_state *state, uint8_t *buf, size_t size);
/* Borrows `data` for out->bits. 0, or -EBADMSG: damaged, cut off, or of a newer version. */
int rg_state_decode(const uint8_t *data, size_t size, struct rg_state *out);

#endif
