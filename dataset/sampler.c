/* See sampler.h. */
#include "dataset/sampler.h"

#include "runtime/base.h"

#include <errno.h>

static uint64_t total_of(const struct rg_remaining *left, uint64_t count)
{
    return left != NULL ? rg_remaining_total(left) : count;
}

static bool options_valid(const struct rg_sampler_options *options)
{
    return options->count <= RG_PERMUTATION_COUNT_MAX && options->rank < options->world_size &&
           options->worker < options->worker_count && options->block_size >= 1 &&
           options->remainder <= RG_REMAINDER_DROP &&
           (options->left == NULL || options->left->count == options->count);
}

uint64_t rg_sampler_rank_total(uint64_t left, uint32_t rank, uint32_t world_size,
                               enum rg_remainder remainder)
{
    uint64_t whole = left / world_size, rest = left % world_size;
    switch (remainder) {
    case RG_REMAINDER_PAD:
        return whole + (rest > 0);
    case RG_REMAINDER_DROP:
        return whole;
    case RG_REMAINDER_UNEVEN:
        break;
    }
    return whole + (rank < rest);
}

uint64_t rg_sampler_worker_total(const struct rg_sampler_options *options, uint64_t total)
{
    uint64_t round = (uint64_t)options->block_size * options->worker_count;
    uint64_t before = (uint64_t)options->block_size * options->worker;
    uint64_t rest = total % round;
    uint64_t last = rest > before ? RG_MIN(rest - before, (uint64_t)options->block_size) : 0;
    return total / round * options->block_size + last;
}

/* What all ranks have together, by the remainder: what is left, or less than a world more or less.
 */
static bool shares_fit(const struct rg_sampler *sampler)
{
    uint64_t world = sampler->options.world_size, left = sampler->left_total;
    uint64_t all = sampler->rank_total * world;
    switch (sampler->options.remainder) {
    case RG_REMAINDER_PAD:
        return all >= left && all - left < world;
    case RG_REMAINDER_DROP:
        return all <= left && left - all < world;
    case RG_REMAINDER_UNEVEN:
        break;
    }
    return all < left + world && left < all + world;
}

static bool invariants(const struct rg_sampler *sampler)
{
    return sampler->left_total <= sampler->options.count &&
           sampler->own_total <= sampler->rank_total && sampler->total <= sampler->own_total &&
           shares_fit(sampler);
}

/* A reader's sample is in a place that is there, and that is this reader's. */
static bool place_is_own(const struct rg_sampler *sampler, uint64_t sample, uint64_t place)
{
    uint64_t again;
    uint32_t worker = rg_sampler_worker(&sampler->options, place, &again);
    return place < sampler->own_total && worker == sampler->options.worker && again == sample;
}

int rg_sampler_init(struct rg_sampler *sampler, const struct rg_sampler_options *options)
{
    if (!options_valid(options)) {
        return -EINVAL;
    }
    *sampler = (struct rg_sampler){.options = *options};
    sampler->left_total = total_of(options->left, options->count);
    sampler->rank_total = rg_sampler_rank_total(sampler->left_total, options->rank,
                                                options->world_size, options->remainder);
    if (options->own_left != NULL && options->own_left->count != sampler->rank_total) {
        return -EINVAL;
    }
    sampler->own_total = total_of(options->own_left, sampler->rank_total);
    sampler->total = rg_sampler_worker_total(options, sampler->own_total);
    if (options->shuffle && options->count > 0) {
        rg_permutation_init(&sampler->permutation, options->count, options->seed, options->epoch);
    }
    RG_VERIFY(invariants(sampler));
    return 0;
}

uint64_t rg_sampler_place(const struct rg_sampler_options *options, uint64_t sample)
{
    uint64_t block = sample / options->block_size, offset = sample % options->block_size;
    return (block * options->worker_count + options->worker) * options->block_size + offset;
}

uint32_t rg_sampler_worker(const struct rg_sampler_options *options, uint64_t place,
                           uint64_t *out_sample)
{
    uint64_t block = place / options->block_size, offset = place % options->block_size;
    *out_sample = block / options->worker_count * options->block_size + offset;
    return (uint32_t)(block % options->worker_count);
}

/* Only padding goes beyond the end, where the order begins again. */
static uint64_t position_at(const struct rg_sampler *sampler, uint64_t place)
{
    const struct rg_sampler_options *options = &sampler->options;
    if (place >= sampler->left_total) {
        return (place - sampler->left_total) % options->count;
    }
    return options->left != NULL ? rg_remaining_at(options->left, place) : place;
}

uint64_t rg_sampler_at(const struct rg_sampler *sampler, uint64_t sample)
{
    RG_ASSERT(sample < sampler->total);
    const struct rg_sampler_options *options = &sampler->options;
    uint64_t place = rg_sampler_place(options, sample);
    RG_VERIFY(place_is_own(sampler, sample, place));
    if (options->own_left != NULL) {
        place = rg_remaining_at(options->own_left, place);
    }
    uint64_t position = position_at(sampler, place * options->world_size + options->rank);
    return options->shuffle ? rg_permutation_at(&sampler->permutation, position) : position;
}

/* The place of a position in what is left; UINT64_MAX: it is not left. */
static uint64_t place_find(const struct rg_remaining *left, uint64_t position)
{
    uint64_t low = 0, high = rg_remaining_total(left);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t found = rg_remaining_at(left, middle);
        if (found == position) {
            return middle;
        }
        low = found < position ? middle + 1 : low;
        high = found < position ? high : middle;
    }
    return UINT64_MAX;
}

bool rg_sampler_is_ranks(const struct rg_sampler *sampler, uint64_t object)
{
    const struct rg_sampler_options *options = &sampler->options;
    uint64_t place = options->shuffle ? rg_permutation_find(&sampler->permutation, object) : object;
    if (options->left != NULL) {
        place = place_find(options->left, place);
    }
    return place != UINT64_MAX && place % options->world_size == options->rank &&
           place / options->world_size < sampler->rank_total;
}
