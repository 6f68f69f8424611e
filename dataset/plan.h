/* What a reader reads next: the requests for the samples that its window has room for.
 *
 * The plan asks the window for a sample, the sampler which sample of the source that is, and the
 * source where it lies. Samples of a tar shard that follow each other, in the order and in the
 * shard, are read by one request for one range. A sample of which much in between is not wanted is
 * read in pieces, by a set of ranges.
 *
 * No sockets and no clock: the caller makes the requests. */
#ifndef RG_DATASET_PLAN_H
#define RG_DATASET_PLAN_H

#include "dataset/sampler.h"
#include "dataset/source.h"
#include "dataset/window.h"

struct rg_plan {
    struct rg_window *window; /* borrowed, as are these: */
    const struct rg_source *source;
    const struct rg_sampler *sampler;
    const uint64_t *indices;    /* of the samples that are read; NULL: all of the source */
    uint32_t group_samples_max; /* one request has no more samples, */
    uint64_t group_bytes_max;   /* and no more bytes unless it has one sample */
    uint64_t size_guess;        /* of objects of unknown size: that of the largest so far */
};

/* Limits of a request, so that the window has several of them. */
void rg_plan_limit(struct rg_plan *plan, uint64_t request_bytes_max);

/* Plans the next request. Its user_data is the number of its first sample, which is OUT in the
 * window. `name` has RG_OBJECT_NAME_SIZE_MAX + 1 bytes, to which out_get refers. With more than one
 * piece in out_item the request is one for a set of ranges: see rg_plan_ranges. False: there is
 * nothing to be asked for now. Samples that need no request, being empty, and those that the source
 * cannot find have arrived in the window. */
bool rg_plan_next(struct rg_plan *plan, char *name, struct rg_get *out_get,
                  struct rg_source_item *out_item);
/* The request for an item in pieces. `ranges` has room for RG_TAR_MEMBERS_MAX, and is borrowed. */
struct rg_get_ranges rg_plan_ranges(const struct rg_get *get, const struct rg_source_item *item,
                                    struct rg_range *ranges);
/* Makes the completion of such a request that of one body. */
void rg_plan_unite(struct rg_completion *completion, const struct rg_source_item *item);

/* Where the first sample of a request lies. Errors: those of rg_source_at. */
int rg_plan_item(const struct rg_plan *plan, uint64_t first, struct rg_source_item *out_item,
                 char *name);

/* A request cannot be made: its samples arrive with this status. */
void rg_plan_refuse(struct rg_plan *plan, uint64_t first, enum rg_status status);
/* A body of this size has come. */
void rg_plan_learn(struct rg_plan *plan, uint64_t size);

#endif
