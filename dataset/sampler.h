/* Which objects of a dataset come next: for one reader of one rank, in one epoch.
 *
 * All readers of an epoch share one global order of positions: of the manifest, or shuffled by seed
 * and epoch. Position p belongs to rank p modulo world size, so that at any time all ranks together
 * have consumed a beginning of the order, and what is left can be dealt to any other number of
 * ranks. A rank's positions are cut into blocks (its batches), and its workers take blocks in turn,
 * which is the order in which PyTorch's DataLoader takes batches from them: the stream of a rank
 * does not depend on its number of workers.
 *
 * What is consumed is one number, `consumed`: how many positions of the order are done with. A
 * sampler begins there; rg_sampler_consumed says what it is after so many samples of one's own, on
 * condition that the other ranks have had as many, which data-parallel training ensures.
 *
 * Pure: no memory of its own, no clock, no I/O. */
#ifndef RG_DATASET_SAMPLER_H
#define RG_DATASET_SAMPLER_H

#include "dataset/permutation.h"

#include <ringest/dataset.h>
#include <stdbool.h>

struct rg_sampler_options {
    uint64_t count; /* objects; 0 is an empty epoch */
    uint64_t seed, epoch;
    bool shuffle;
    uint32_t rank, world_size;     /* rank < world_size */
    uint32_t worker, worker_count; /* worker < worker_count */
    uint32_t block_size;           /* samples of a batch; at least 1 */
    enum rg_remainder remainder;
    uint64_t consumed; /* positions that were done with before this sampler, at most count */
};

struct rg_sampler {
    struct rg_sampler_options options;
    struct rg_permutation permutation;
    uint64_t rank_total; /* samples of this rank */
    uint64_t total;      /* samples of this reader */
};

/* 0, or -EINVAL when the options contradict themselves. */
int rg_sampler_init(struct rg_sampler *sampler, const struct rg_sampler_options *options);
/* The object of this reader's sample number `sample`, which is below sampler->total. */
uint64_t rg_sampler_at(const struct rg_sampler *sampler, uint64_t sample);
/* The positions that all ranks together are done with when this rank has had so many samples. */
uint64_t rg_sampler_consumed(const struct rg_sampler *sampler, uint64_t rank_samples);

#endif
