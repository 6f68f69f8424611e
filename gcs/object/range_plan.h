/* Which requests read many ranges of one object, and where their bytes go. Pure.
 *
 * A *group* is what one request reads: several ranges that lie near each other, or a piece of one
 * that is large. Groups follow from the ranges alone, so they are not kept: the next one is
 * computed from a cursor, once for the layout and once when it is read.
 *
 * The layout gives every range without a buffer its place in one lease. Ranges of a group that are
 * all leased lie in it as in the object, with the gaps, so that one request fills them all. */
#ifndef RG_GCS_OBJECT_RANGE_PLAN_H
#define RG_GCS_OBJECT_RANGE_PLAN_H

#include "runtime/base.h"

#include <ringest/objects.h>

struct rg_range_plan {
    struct rg_range *ranges;     /* owned, like the next */
    uint32_t *order;             /* ranges that are not empty, by their offsets */
    uint32_t count, order_count; /* of each */
    uint64_t gap_max;            /* bytes between two ranges of a group */
    uint64_t request_size_max;   /* bytes of a group */
};

/* A position in `order`. Starts zeroed. */
struct rg_range_cursor {
    uint32_t next;
    uint64_t within; /* bytes of that range which are behind it */
};

struct rg_range_group {
    uint32_t first, count; /* in `order` */
    uint64_t begin, end;   /* bytes of the object */
};

/* Memory that the plan takes. */
struct rg_range_layout {
    uint64_t size;        /* of the lease */
    uint64_t group_count; /* of a range in very many pieces, only 2^32 */
};

/* Copies `count` ranges of item_size bytes each and puts them in order. -EINVAL: a range that ends
 * above 2^64; -ENOMEM. To be freed in any case, so it starts zeroed; the two limits are set by the
 * caller. */
int rg_range_plan_make(struct rg_range_plan *plan, const void *ranges, size_t count,
                       size_t item_size);
void rg_range_plan_free(struct rg_range_plan *plan);

static inline const struct rg_range *rg_range_at(const struct rg_range_plan *plan, uint32_t place)
{
    return &plan->ranges[plan->order[place]];
}

static inline uint64_t rg_range_end(const struct rg_range *range)
{
    return range->offset + range->length;
}

/* Computes the group at the cursor, and moves the cursor behind it. False: there is none. */
bool rg_range_group_next(const struct rg_range_plan *plan, struct rg_range_cursor *cursor,
                         struct rg_range_group *out_group);
/* Whether no range of the group has a buffer. */
bool rg_range_group_is_leased(const struct rg_range_plan *plan, const struct rg_range_group *group);

/* Computes the layout. With `results` (NULL: none), which lie at the beginning of the lease, it
 * also sets the data of each range that has no buffer. The same twice for the same plan. */
void rg_range_plan_lay_out(const struct rg_range_plan *plan, struct rg_range_layout *out_layout,
                           struct rg_range_result *results);

#endif
