/* Which objects of a dataset come next: for one reader of one rank, in one epoch.
 *
 * All readers of an epoch share one global order of positions: of the manifest, or shuffled by seed
 * and epoch. Those that are left of it, all at first, are assigned: the one in place p belongs to
 * rank p modulo world size. That is the rank's stream. What is left of a stream, all at first, is
 * cut into blocks (batches), and the rank's workers take blocks in turn, which is the order in
 * which PyTorch's DataLoader takes batches from them: the stream of a rank does not depend on its
 * number of workers.
 *
 * Invariant: every place of what is left of a rank's stream belongs to one worker and is one of its
 * samples; no reader has more samples than its rank has left, and no rank more than its share.
 *
 * Pure: no memory of its own, no clock, no I/O. */
#ifndef RG_DATASET_SAMPLER_H
#define RG_DATASET_SAMPLER_H

#include "dataset/permutation.h"
#include "dataset/remaining.h"

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
    /* Borrowed as long as the sampler is used. NULL: all. */
    const struct rg_remaining *left;     /* positions, of `count` */
    const struct rg_remaining *own_left; /* of the rank's stream, whose length is its count */
};

struct rg_sampler {
    struct rg_sampler_options options;
    struct rg_permutation permutation;
    uint64_t left_total; /* positions that are assigned */
    uint64_t rank_total; /* of the rank's stream */
    uint64_t own_total;  /* what is left of that */
    uint64_t total;      /* samples of this reader */
};

/* The length of a rank's stream where so many positions are left. */
uint64_t rg_sampler_rank_total(uint64_t left, uint32_t rank, uint32_t world_size,
                               enum rg_remainder remainder);
/* 0, or -EINVAL when the options contradict themselves. */
int rg_sampler_init(struct rg_sampler *sampler, const struct rg_sampler_options *options);
/* The object of this reader's sample number `sample`, which is below sampler->total. */
uint64_t rg_sampler_at(const struct rg_sampler *sampler, uint64_t sample);
/* Whether the object is one of the rank's in this epoch, of any of its workers. What has been
 * consumed of the rank's own stream counts, and what is padded does not. */
bool rg_sampler_is_ranks(const struct rg_sampler *sampler, uint64_t object);
/* How many samples are in the worker's blocks if `total` are left of the rank's stream. This and
 * the next two use the worker's number, the number of workers and the size of blocks, and nothing
 * else.
 */
uint64_t rg_sampler_worker_total(const struct rg_sampler_options *options, uint64_t total);
/* The place in what is left of the rank's stream that a reader's sample has. */
uint64_t rg_sampler_place(const struct rg_sampler_options *options, uint64_t sample);
/* Whose the sample in such a place is, and which of its own. */
uint32_t rg_sampler_worker(const struct rg_sampler_options *options, uint64_t place,
                           uint64_t *out_sample);

#endif
