/* See remaining.h. */
#include "dataset/remaining.h"

#include "runtime/base.h"

#include <errno.h>
#include <stdlib.h>

#define WORD_BITS 64
#define BLOCK_WORDS (RG_REMAINING_BLOCK / WORD_BITS)

static_assert(RG_REMAINING_BLOCK % WORD_BITS == 0, "blocks are whole words");

static uint64_t words_for(uint64_t bits)
{
    return (bits + WORD_BITS - 1) / WORD_BITS;
}

static uint64_t blocks_for(uint64_t bits)
{
    return (bits + RG_REMAINING_BLOCK - 1) / RG_REMAINING_BLOCK;
}

static bool bit_of(const uint64_t *words, uint64_t i)
{
    return (words[i / WORD_BITS] >> (i % WORD_BITS) & 1) != 0;
}

static void bit_set(uint64_t *words, uint64_t i)
{
    words[i / WORD_BITS] |= UINT64_C(1) << (i % WORD_BITS);
}

/* What remaining.h says about low and high, and that the directory and `between` count what is
 * left. O(high - low): for RG_VERIFY. */
static bool invariants(const struct rg_remaining *left)
{
    uint64_t bits = left->high - left->low, count = 0;
    for (uint64_t i = 0; i < bits; i++) {
        if (i % RG_REMAINING_BLOCK == 0 && left->before[i / RG_REMAINING_BLOCK] != count) {
            return false;
        }
        count += !bit_of(left->words, i);
    }
    return count == left->between && left->low <= left->high && left->high <= left->count &&
           (bits == 0 || (!bit_of(left->words, 0) && bit_of(left->words, bits - 1)));
}

struct rg_remaining rg_remaining_from(uint64_t count, uint64_t low)
{
    RG_ASSERT(low <= count);
    return (struct rg_remaining){.count = count, .low = low, .high = low};
}

/* Makes the directory, which knows of each block what is left below it. */
static int directory_make(struct rg_remaining *left)
{
    uint64_t bits = left->high - left->low;
    if (bits == 0) {
        return 0;
    }
    left->before = malloc(blocks_for(bits) * sizeof(*left->before));
    if (left->before == NULL) {
        return -ENOMEM;
    }
    uint64_t count = 0;
    for (uint64_t word = 0; word < words_for(bits); word++) {
        if (word % BLOCK_WORDS == 0) {
            left->before[word / BLOCK_WORDS] = count;
        }
        uint64_t here = RG_MIN(bits - word * WORD_BITS, (uint64_t)WORD_BITS);
        count += here - (uint64_t)__builtin_popcountll(left->words[word]);
    }
    left->between = count;
    return 0;
}

/* Bits that begin at *low: how many of them, from the first, are set. */
static uint64_t leading_ones(const uint64_t *words, uint64_t bits)
{
    uint64_t i = 0;
    while (i < bits && bit_of(words, i)) {
        i++;
    }
    return i;
}

static uint64_t end_of_ones(const uint64_t *words, uint64_t bits)
{
    while (bits > 0 && !bit_of(words, bits - 1)) {
        bits--;
    }
    return bits;
}

static void shift_down(uint64_t *words, uint64_t word_count, uint64_t by)
{
    uint64_t whole = by / WORD_BITS, rest = by % WORD_BITS;
    for (uint64_t i = 0; i < word_count; i++) {
        uint64_t low = i + whole < word_count ? words[i + whole] : 0;
        uint64_t high = i + whole + 1 < word_count ? words[i + whole + 1] : 0;
        words[i] = rest == 0 ? low : low >> rest | high << (WORD_BITS - rest);
    }
}

/* Takes `words`, of the bits from `low` on. */
static int words_take(struct rg_remaining *left, uint64_t count, uint64_t low, uint64_t *words,
                      uint64_t bits)
{
    uint64_t end = end_of_ones(words, bits), done = leading_ones(words, end);
    if (done > 0) {
        shift_down(words, words_for(bits), done);
    }
    *left = rg_remaining_from(count, low + done);
    left->high = low + end;
    left->words = words;
    int rc = directory_make(left);
    if (rc < 0) {
        rg_remaining_fini(left);
        return rc;
    }
    RG_VERIFY(invariants(left));
    return 0;
}

/* Zeroed words for so many bits; at least one. */
static int words_alloc(uint64_t bits, uint64_t **out_words)
{
    if (bits > RG_REMAINING_BITS_MAX) {
        return -EFBIG;
    }
    uint64_t *words = calloc(RG_MAX(words_for(bits), UINT64_C(1)), sizeof(*words));
    if (words == NULL) {
        return -ENOMEM;
    }
    *out_words = words;
    return 0;
}

int rg_remaining_init(struct rg_remaining *left, uint64_t count, uint64_t low, const uint8_t *bits,
                      uint64_t bit_count)
{
    RG_ASSERT(bit_count % 8 == 0);
    uint64_t *words;
    int rc = low <= count ? words_alloc(bit_count, &words) : -EINVAL;
    if (rc < 0) {
        return rc;
    }
    for (uint64_t i = 0; i < bit_count / 8; i++) {
        words[i / 8] |= (uint64_t)bits[i] << (8 * (i % 8));
    }
    uint64_t end = end_of_ones(words, bit_count);
    if (end > count - low) {
        free(words);
        return -EINVAL;
    }
    return words_take(left, count, low, words, bit_count);
}

void rg_remaining_fini(struct rg_remaining *left)
{
    free(left->words);
    free(left->before);
    *left = (struct rg_remaining){0};
}

uint64_t rg_remaining_total(const struct rg_remaining *left)
{
    return left->between + (left->count - left->high);
}

bool rg_remaining_is_done(const struct rg_remaining *left, uint64_t number)
{
    RG_ASSERT(number < left->count);
    if (number < left->low || number >= left->high) {
        return number < left->low;
    }
    return bit_of(left->words, number - left->low);
}

/* The last block below which no more are left than `place`. */
static uint64_t block_find(const struct rg_remaining *left, uint64_t place)
{
    uint64_t low = 0, high = blocks_for(left->high - left->low);
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (left->before[middle] <= place) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

uint64_t rg_remaining_at(const struct rg_remaining *left, uint64_t place)
{
    RG_ASSERT(place < rg_remaining_total(left));
    if (place >= left->between) {
        return left->high + (place - left->between);
    }
    uint64_t block = block_find(left, place), skip = place - left->before[block];
    uint64_t word = block * BLOCK_WORDS, open = ~left->words[word];
    for (uint64_t here; skip >= (here = (uint64_t)__builtin_popcountll(open)); skip -= here) {
        open = ~left->words[++word];
    }
    while (skip-- > 0) {
        open &= open - 1;
    }
    return left->low + word * WORD_BITS + (uint64_t)__builtin_ctzll(open);
}

/* Where the bits of what is left after a change end. */
static uint64_t change_end(const struct rg_remaining *before,
                           const struct rg_remaining_change *change)
{
    uint64_t end = before->high;
    if (change->high > change->low) {
        end = RG_MAX(end, rg_remaining_at(before, change->high - 1) + 1);
    }
    for (size_t i = 0; i < change->number_count; i++) {
        end = RG_MAX(end, change->numbers[i] + 1);
    }
    return end;
}

int rg_remaining_after(struct rg_remaining *left, const struct rg_remaining *before,
                       const struct rg_remaining_change *change)
{
    uint64_t total = rg_remaining_total(before);
    RG_ASSERT(change->low <= total && change->high <= total);
    uint64_t low = change->low < total ? rg_remaining_at(before, change->low) : before->count;
    uint64_t end = RG_MAX(change_end(before, change), low);
    uint64_t *words;
    int rc = words_alloc(end - low, &words);
    if (rc < 0) {
        return rc;
    }
    uint64_t place = change->low;
    for (uint64_t number = low; number < end; number++) {
        bool is_done = rg_remaining_is_done(before, number);
        if (!is_done) {
            is_done = place < change->high && change->is_done(change->context, place);
            place++;
        }
        if (is_done) {
            bit_set(words, number - low);
        }
    }
    for (size_t i = 0; i < change->number_count; i++) {
        RG_ASSERT(change->numbers[i] < before->count);
        if (change->numbers[i] >= low) {
            bit_set(words, change->numbers[i] - low);
        }
    }
    return words_take(left, before->count, low, words, end - low);
}

uint64_t rg_remaining_bits_size(const struct rg_remaining *left)
{
    return (left->high - left->low + 7) / 8;
}

void rg_remaining_bits(const struct rg_remaining *left, uint8_t *out)
{
    for (uint64_t i = 0; i < rg_remaining_bits_size(left); i++) {
        out[i] = (uint8_t)(left->words[i / 8] >> (8 * (i % 8)));
    }
}
