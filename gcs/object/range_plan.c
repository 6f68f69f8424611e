/* See range_plan.h. */
#include "gcs/object/range_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int order_compare(const void *a, const void *b, void *ranges)
{
    const struct rg_range *left = (const struct rg_range *)ranges + *(const uint32_t *)a;
    const struct rg_range *right = (const struct rg_range *)ranges + *(const uint32_t *)b;
    if (left->offset != right->offset) {
        return left->offset < right->offset ? -1 : 1;
    }
    return left->length < right->length ? -1 : left->length > right->length;
}

int rg_range_plan_make(struct rg_range_plan *plan, const void *ranges, size_t count,
                       size_t item_size)
{
    plan->count = (uint32_t)count;
    plan->ranges = calloc(count, sizeof(*plan->ranges));
    plan->order = malloc(count * sizeof(*plan->order));
    if (plan->ranges == NULL || plan->order == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < plan->count; i++) {
        uint64_t end;
        memcpy(&plan->ranges[i], (const uint8_t *)ranges + i * item_size,
               RG_MIN(item_size, sizeof(*plan->ranges)));
        if (rg_add_overflow(plan->ranges[i].offset, plan->ranges[i].length, &end)) {
            return -EINVAL;
        }
        if (plan->ranges[i].length > 0) {
            plan->order[plan->order_count++] = i;
        }
    }
    qsort_r(plan->order, plan->order_count, sizeof(*plan->order), order_compare, plan->ranges);
    return 0;
}

void rg_range_plan_free(struct rg_range_plan *plan)
{
    free(plan->ranges);
    free(plan->order);
    *plan = (struct rg_range_plan){0};
}

/* Adds the neighbours of the range with which a group begins. */
static void group_gather(const struct rg_range_plan *plan, struct rg_range_group *group)
{
    while (group->first + group->count < plan->order_count) {
        const struct rg_range *next = rg_range_at(plan, group->first + group->count);
        uint64_t end = RG_MAX(group->end, rg_range_end(next));
        bool is_far = next->offset > group->end && next->offset - group->end > plan->gap_max;
        if (is_far || end - group->begin > plan->request_size_max) {
            return;
        }
        group->end = end;
        group->count++;
    }
}

/* A group is one piece of a range, or whole ranges whose gaps are not too large; it has as many
 * bytes as a request may have, and its ranges lie in it. */
static bool invariants(const struct rg_range_plan *plan, const struct rg_range_group *group)
{
    for (uint32_t i = 0; i < group->count && group->count > 1; i++) {
        const struct rg_range *range = rg_range_at(plan, group->first + i);
        if (range->offset < group->begin || rg_range_end(range) > group->end) {
            return false;
        }
    }
    return group->count > 0 && group->begin < group->end &&
           group->end - group->begin <= plan->request_size_max;
}

bool rg_range_group_next(const struct rg_range_plan *plan, struct rg_range_cursor *cursor,
                         struct rg_range_group *out_group)
{
    if (cursor->next == plan->order_count) {
        return false;
    }
    const struct rg_range *range = rg_range_at(plan, cursor->next);
    uint64_t rest = range->length - cursor->within;
    *out_group = (struct rg_range_group){.first = cursor->next, .count = 1};
    out_group->begin = range->offset + cursor->within;
    out_group->end = out_group->begin + RG_MIN(rest, plan->request_size_max);
    if (rest > plan->request_size_max) {
        cursor->within += plan->request_size_max;
        return true;
    }
    if (cursor->within == 0) {
        group_gather(plan, out_group);
    }
    cursor->next += out_group->count;
    cursor->within = 0;
    RG_VERIFY(invariants(plan, out_group));
    return true;
}

bool rg_range_group_is_leased(const struct rg_range_plan *plan, const struct rg_range_group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        if (rg_range_at(plan, group->first + i)->buf != NULL) {
            return false;
        }
    }
    return true;
}

/* Takes `size` bytes of the lease and returns where they begin in it. */
static uint64_t layout_take(struct rg_range_layout *layout, uint64_t size)
{
    uint64_t at = layout->size;
    uint64_t end;
    if (rg_add_overflow(at, size, &end) || end > UINT64_MAX - RG_CACHE_LINE) {
        end = UINT64_MAX - RG_CACHE_LINE;
    }
    layout->size = (end + RG_CACHE_LINE - 1) / RG_CACHE_LINE * RG_CACHE_LINE;
    return at;
}

/* Gives the ranges of a group their places. */
static void layout_group(const struct rg_range_plan *plan, struct rg_range_layout *layout,
                         const struct rg_range_group *group, struct rg_range_result *results)
{
    const struct rg_range *first = rg_range_at(plan, group->first);
    bool is_leased = rg_range_group_is_leased(plan, group);
    uint64_t at = 0;
    if (is_leased) {
        at = layout_take(layout, group->count > 1 ? group->end - group->begin : first->length);
    }
    for (uint32_t i = 0; i < group->count; i++) {
        const struct rg_range *range = rg_range_at(plan, group->first + i);
        uint64_t place = at + (range->offset - group->begin);
        if (!is_leased && range->buf == NULL) {
            place = layout_take(layout, range->length);
        }
        if (results != NULL && range->buf == NULL) {
            results[plan->order[group->first + i]].data = (const uint8_t *)results + place;
        }
    }
}

static uint64_t pieces_behind_first(const struct rg_range_plan *plan, const struct rg_range *range)
{
    return RG_MIN((range->length - 1) / plan->request_size_max, (uint64_t)UINT32_MAX);
}

void rg_range_plan_lay_out(const struct rg_range_plan *plan, struct rg_range_layout *out_layout,
                           struct rg_range_result *results)
{
    struct rg_range_cursor cursor = {0};
    struct rg_range_group group;
    *out_layout = (struct rg_range_layout){0};
    layout_take(out_layout, plan->count * sizeof(*results));
    while (rg_range_group_next(plan, &cursor, &group)) {
        layout_group(plan, out_layout, &group, results);
        out_layout->group_count++;
        if (cursor.within > 0) {
            /* The first piece of a range has taken the room for all of them. */
            out_layout->group_count += pieces_behind_first(plan, rg_range_at(plan, cursor.next));
            cursor = (struct rg_range_cursor){.next = cursor.next + 1};
        }
    }
}
