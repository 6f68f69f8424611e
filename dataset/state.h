/* What is saved of an epoch, as bytes: what is needed to resume, and to refuse to resume with
 * something else.
 *
 * The *base* is what was consumed before the rest was assigned to ranks and workers: positions of
 * the order, and where a rank resumes with other workers also what of its own stream. It is the
 * same as long as the assignment is. A *state* is what one reader has consumed since, and names its
 * base.
 *
 * Invariant: what was encoded is decoded to the same.
 *
 * Both are little-endian, in the order of their structs: "rgds" or "rgdb", a version, flags, what
 * they are of, and so on; at the end the CRC32C of all before it. States of version 1 are read,
 * too: they have a number of consumed positions in the place of a base. */
#ifndef RG_DATASET_STATE_H
#define RG_DATASET_STATE_H

#include <ringest/dataset.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A state without bits. */
#define RG_STATE_SIZE_MIN 112
/* Bits behind the first sample that was not taken. */
#define RG_STATE_BITS_MAX 65536
#define RG_STATE_SIZE_MAX (RG_STATE_SIZE_MIN + RG_STATE_BITS_MAX / 8)

/* The epoch that something is of. */
struct rg_state_epoch {
    uint64_t count;                 /* objects */
    uint32_t fingerprint;           /* of the objects: source.h */
    uint8_t digest[RG_DIGEST_SIZE]; /* of their list; zeros: unknown */
    uint64_t seed, epoch;
    bool shuffle;
};

struct rg_state {
    struct rg_state_epoch of;
    bool unordered;
    bool has_base;
    uint32_t base_crc; /* what rg_base_decode gives */
    uint64_t consumed; /* of version 1: the base is so many positions; else 0 */
    uint32_t rank, world_size, worker, worker_count, batch_size, remainder;
    uint64_t taken;     /* samples of the reader, without a gap */
    uint32_t bit_count; /* behind them; a multiple of 8 */
    const uint8_t *bits;
};

/* Numbers that were consumed: those below `low`, and from it on those whose bits are set. */
struct rg_state_set {
    uint64_t low, bit_count; /* a multiple of 8 */
    const uint8_t *bits;
};

struct rg_base_content {
    struct rg_state_epoch of;
    struct rg_state_set positions;
    bool has_own; /* it is that of one rank, like the rest */
    uint32_t rank, world_size, remainder;
    struct rg_state_set own;
};

/* Stores at most `size` bytes; returns how many there are. Version 2. */
size_t rg_state_encode(const struct rg_state *state, uint8_t *buf, size_t size);
/* Borrows `data` for out->bits. 0, or -EBADMSG: damaged, cut off, or of a newer version. */
int rg_state_decode(const uint8_t *data, size_t size, struct rg_state *out);

size_t rg_base_encode(const struct rg_base_content *base, uint8_t *buf, size_t size);
/* Borrows `data` for the bits of both sets. The CRC tells one base from another. */
int rg_base_decode(const uint8_t *data, size_t size, struct rg_base_content *out,
                   uint32_t *out_crc);

#endif
