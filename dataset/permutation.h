/* A random order of the numbers below `count` that is computed and not stored: the number at each
 * position is found by itself, in constant memory, so that an epoch of any size starts at once and
 * continues anywhere.
 *
 * A Feistel network on the domain height x width, both near the root of count, whose halves are
 * combined by addition; a result outside of the count goes round again (Black and Rogaway, "Ciphers
 * with Arbitrary Finite Domains", CT-RSA 2002: generalized Feistel and cycle walking). The domain
 * is larger than the count by less than twice its root, so that going round is rare. The round
 * function is SplitMix64's finalizer. This is an order for training, not a cipher.
 *
 * Invariant: height * width is at least the count and less than the count and twice its root, and
 * the network can be undone, so that no number comes twice.
 *
 * The order for a count and a key never changes between versions of this library: what was saved in
 * the middle of an epoch must continue with the rest of the same order. */
#ifndef RG_DATASET_PERMUTATION_H
#define RG_DATASET_PERMUTATION_H

#include <stdint.h>

#define RG_PERMUTATION_ROUNDS 8
/* Halves of a few values mix slowly: with 8 rounds the 120 orders of 5 objects are visibly not
 * equally likely. */
#define RG_PERMUTATION_ROUNDS_FEW 32
#define RG_PERMUTATION_FEW 4096
#define RG_PERMUTATION_COUNT_MAX (UINT64_C(1) << 48)

struct rg_permutation {
    uint64_t count;
    uint32_t height, width; /* height * width >= count */
    uint32_t rounds;
    uint64_t keys[RG_PERMUTATION_ROUNDS_FEW];
};

/* 1 <= count <= RG_PERMUTATION_COUNT_MAX. Epochs of one seed have orders of their own. */
void rg_permutation_init(struct rg_permutation *permutation, uint64_t count, uint64_t seed,
                         uint64_t epoch);
/* The number at a position, both below count. */
uint64_t rg_permutation_at(const struct rg_permutation *permutation, uint64_t position);
/* The position of a number. */
uint64_t rg_permutation_find(const struct rg_permutation *permutation, uint64_t number);

#endif
