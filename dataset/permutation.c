/* See permutation.h. */
#include "dataset/permutation.h"

#include "runtime/base.h"

/* SplitMix64 (Steele, Lea, Flood 2014): the step and the finalizer. */
#define GAMMA UINT64_C(0x9e3779b97f4a7c15)

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The least number whose square is at least count. */
static uint32_t root_up(uint64_t count)
{
    uint64_t low = 1, high = UINT64_C(1) << 24;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (middle * middle >= count) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return (uint32_t)low;
}

/* The domain has room for all numbers and for few others. O(1), but not needed in each epoch. */
static bool invariants(const struct rg_permutation *permutation)
{
    uint64_t height = permutation->height, width = permutation->width;
    return height * width >= permutation->count &&
           height * width - permutation->count < 2 * height && permutation->rounds % 2 == 0;
}

void rg_permutation_init(struct rg_permutation *permutation, uint64_t count, uint64_t seed,
                         uint64_t epoch)
{
    RG_ASSERT(count >= 1 && count <= RG_PERMUTATION_COUNT_MAX);
    permutation->count = count;
    permutation->height = root_up(count);
    permutation->width = (uint32_t)((count - 1) / permutation->height + 1);
    permutation->rounds =
        count < RG_PERMUTATION_FEW ? RG_PERMUTATION_ROUNDS_FEW : RG_PERMUTATION_ROUNDS;
    RG_VERIFY(invariants(permutation));
    /* Mixed twice, so that seed 1 in epoch 0 has nothing to do with seed 0 in epoch 1. */
    uint64_t state = mix(mix(seed + GAMMA) ^ (epoch + GAMMA));
    for (uint32_t i = 0; i < permutation->rounds; i++) {
        state += GAMMA;
        permutation->keys[i] = mix(state);
    }
}

/* Uniform below `bound`, by the high half of a product (Lemire 2019, without its rejection: the
 * bias is at most bound / 2^64). */
static uint32_t below(uint64_t random, uint32_t bound)
{
    return (uint32_t)((unsigned __int128)random * bound >> 64);
}

static uint32_t add(uint32_t a, uint32_t b, uint32_t modulus)
{
    uint32_t sum = a + b;
    return sum >= modulus ? sum - modulus : sum;
}

static uint32_t subtract(uint32_t a, uint32_t b, uint32_t modulus)
{
    return a >= b ? a - b : a + (modulus - b);
}

static uint64_t walk(const struct rg_permutation *permutation, uint64_t number)
{
    uint32_t height = permutation->height, width = permutation->width;
    uint32_t row = (uint32_t)(number / width), column = (uint32_t)(number % width);
    for (uint32_t i = 0; i < permutation->rounds; i += 2) {
        row = add(row, below(mix(permutation->keys[i] + column), height), height);
        column = add(column, below(mix(permutation->keys[i + 1] + row), width), width);
    }
    return (uint64_t)row * width + column;
}

/* Where a walk ends at `number`, it began here. */
static uint64_t walk_back(const struct rg_permutation *permutation, uint64_t number)
{
    uint32_t height = permutation->height, width = permutation->width;
    uint32_t row = (uint32_t)(number / width), column = (uint32_t)(number % width);
    for (uint32_t i = permutation->rounds; i > 0; i -= 2) {
        column = subtract(column, below(mix(permutation->keys[i - 1] + row), width), width);
        row = subtract(row, below(mix(permutation->keys[i - 2] + column), height), height);
    }
    return (uint64_t)row * width + column;
}

uint64_t rg_permutation_at(const struct rg_permutation *permutation, uint64_t position)
{
    RG_ASSERT(position < permutation->count);
    uint64_t number = position;
    do {
        uint64_t before = number;
        number = walk(permutation, before);
        RG_VERIFY(walk_back(permutation, number) == before);
    } while (number >= permutation->count);
    return number;
}

uint64_t rg_permutation_find(const struct rg_permutation *permutation, uint64_t number)
{
    RG_ASSERT(number < permutation->count);
    uint64_t position = number;
    do {
        position = walk_back(permutation, position);
    } while (position >= permutation->count);
    return position;
}
