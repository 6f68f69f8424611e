/* What is left of the numbers below a count, of which some are done with: all below `low`, those
 * between `low` and `high` whose bits are set, and none from `high` on. What is left has an order,
 * the numbers', and is found by its place in it.
 *
 *      0 ............. low ............. high ............. count
 *        done with          as the bits      left
 *                           say
 *
 * It is kept in one way only: the number at `low` is left, and the one below `high` is done with,
 * or low == high. So the same numbers have the same bits.
 *
 * Pure: no clock, no I/O. Once made it is read by any thread. */
#ifndef RG_DATASET_REMAINING_H
#define RG_DATASET_REMAINING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers between low and high; half a gibibyte of bits. */
#define RG_REMAINING_BITS_MAX (UINT64_C(1) << 32)
/* Bits that share an entry of the directory, of 64 bits: an eighth more memory. */
#define RG_REMAINING_BLOCK 512

struct rg_remaining {
    uint64_t count;
    uint64_t low, high;
    uint64_t *words;  /* owned; bit i % 64 of word i / 64 is that of the number low + i */
    uint64_t *before; /* owned; of each block, how many are left below it from `low` on */
    uint64_t between; /* how many are left from `low` to `high` */
};

/* All below `low` are done with; low <= count. Owns nothing. */
struct rg_remaining rg_remaining_from(uint64_t count, uint64_t low);
/* And so are those from `low` on whose bits are set: bit i % 8 of byte i / 8, `bit_count` of them,
 * a multiple of 8. Bits beyond the count are not set. 0, -ENOMEM, -EFBIG, or -EINVAL: bits or `low`
 * beyond the count. */
int rg_remaining_init(struct rg_remaining *left, uint64_t count, uint64_t low, const uint8_t *bits,
                      uint64_t bit_count);
/* Also one that is zero. */
void rg_remaining_fini(struct rg_remaining *left);

/* How many are left. */
uint64_t rg_remaining_total(const struct rg_remaining *left);
/* A number below the count. */
bool rg_remaining_is_done(const struct rg_remaining *left, uint64_t number);
/* What is left in a place, from 0 on, below the total. */
uint64_t rg_remaining_at(const struct rg_remaining *left, uint64_t place);

/* Says whether the number in a place of what is left is done with by now. */
struct rg_remaining_change {
    bool (*is_done)(const void *context, uint64_t place);
    const void *context;
    uint64_t low, high; /* places: all below `low` are done with, and none from `high` on; it is not
                         * asked about them. At most the total. */
    const uint64_t *numbers; /* that are done with as well, in any order, perhaps already */
    size_t number_count;
};
/* What is left after a change. Errors: -ENOMEM, -EFBIG. */
int rg_remaining_after(struct rg_remaining *left, const struct rg_remaining *before,
                       const struct rg_remaining_change *change);

/* Bytes of the bits, and the bits as bytes. */
uint64_t rg_remaining_bits_size(const struct rg_remaining *left);
void rg_remaining_bits(const struct rg_remaining *left, uint8_t *out);

#endif
