/* See sampler.h. */
#include "dataset/sampler.h"

#include "runtime/base.h"

#include <errno.h>

static bool options_valid(const struct rg_sampler_options *options)
{
    return options->count <= RG_PERMUTATION_COUNT_MAX && options->consumed <= options->count &&
           options->rank < options->world_size && options->worker < options->worker_count &&
           options->block_size >= 1 && options->remainder <= RG_REMAINDER_DROP;
}

static uint64_t rank_total(const struct rg_sampler_options *options)
{
    uint64_t left = options->count - options->consumed;
    uint64_t whole = left / options->world_size, rest = left % options->world_size;
    switch (options->remainder) {
    case RG_REMAINDER_PAD:
        return whole + (rest > 0);
    case RG_REMAINDER_DROP:
        return whole;
    case RG_REMAINDER_UNEVEN:
        break;
    }
    return whole + (options->rank < rest);
}

/* Of a rank's samples, those in the blocks of this worker. */
static uint64_t worker_total(const struct rg_sampler_options *options, uint64_t total)
{
    uint64_t round = (uint64_t)options->block_size * options->worker_count;
    uint64_t before = (uint64_t)options->block_size * options->worker;
    uint64_t rest = total % round;
    uint64_t last = rest > before ? RG_MIN(rest - before, (uint64_t)options->block_size) : 0;
    return total / round * options->block_size + last;
}

int rg_sampler_init(struct rg_sampler *sampler, const struct rg_sampler_options *options)
{
    if (!options_valid(options)) {
        return -EINVAL;
    }
    *sampler = (struct rg_sampler){.options = *options, .rank_total = rank_total(options)};
    sampler->total = worker_total(options, sampler->rank_total);
    if (options->shuffle && options->count > 0) {
        rg_permutation_init(&sampler->permutation, options->count, options->seed, options->epoch);
    }
    return 0;
}

uint64_t rg_sampler_at(const struct rg_sampler *sampler, uint64_t sample)
{
    RG_ASSERT(sample < sampler->total);
    const struct rg_sampler_options *options = &sampler->options;
    uint64_t block = sample / options->block_size, offset = sample % options->block_size;
    uint64_t of_rank =
        (block * options->worker_count + options->worker) * options->block_size + offset;
    uint64_t position = options->consumed + of_rank * options->world_size + options->rank;
    /* Only padding goes beyond the end, where the order begins again. */
    position %= options->count;
    return options->shuffle ? rg_permutation_at(&sampler->permutation, position) : position;
}

uint64_t rg_sampler_consumed(const struct rg_sampler *sampler, uint64_t rank_samples)
{
    const struct rg_sampler_options *options = &sampler->options;
    RG_ASSERT(rank_samples <= sampler->rank_total);
    /* With UNEVEN the last round is short; with DROP what is dropped is never consumed. */
    uint64_t consumed = options->consumed + rank_samples * options->world_size;
    return RG_MIN(consumed, options->count);
}
