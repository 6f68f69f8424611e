/* See plan.h. */
#include "dataset/plan.h"

/* What an object of unknown size counts as until larger ones were seen. */
#define SIZE_GUESS RG_KIB(64)
/* One request is no more than this part of the window, so that several are out. */
#define GROUP_DIVISOR 16
/* Requests at once for a sample of which much in between is not wanted. */
#define PIECES_AT_ONCE 8u

void rg_plan_limit(struct rg_plan *plan, uint64_t request_bytes_max)
{
    const struct rg_window_options *window = &plan->window->options;
    plan->group_samples_max = RG_MAX(window->requests_max / GROUP_DIVISOR, 1u);
    plan->group_bytes_max = RG_MIN(request_bytes_max, window->bytes_max / GROUP_DIVISOR);
    plan->size_guess = SIZE_GUESS;
}

/* A body takes a slab that is somewhat larger, and its head some room. */
static uint64_t charge_of(uint64_t size)
{
    return size + size / 4 + RG_KIB(4);
}

/* Which sample of the source has a number of this epoch. */
static uint64_t index_at(const struct rg_plan *plan, uint64_t number)
{
    uint64_t position = rg_sampler_at(plan->sampler, number);
    return plan->indices != NULL ? plan->indices[position] : position;
}

/* Whether a sample lies so close behind what a request reads that it is read by it, too. */
static bool is_neighbour(const struct rg_plan *plan, const struct rg_source_item *item,
                         const char *shard, uint64_t begin, uint64_t end)
{
    if (item->piece_count != 1 || item->name != shard) {
        return item->piece_count == 0 && item->name == shard;
    }
    const struct rg_tar_piece *piece = &item->pieces[0];
    return piece->offset >= end && piece->offset - end <= RG_TAR_GAP_MAX &&
           piece->offset + piece->size - begin <= plan->group_bytes_max;
}

/* Adds the samples that come next to a new request for one range of a shard. */
static void followers_gather(struct rg_plan *plan, uint64_t first,
                             const struct rg_source_item *item)
{
    const char *shard = item->name;
    uint64_t begin = item->pieces[0].offset, end = begin + item->size;
    for (uint32_t count = 1; count < plan->group_samples_max; count++) {
        if (!rg_window_next_is_open(plan->window)) {
            return;
        }
        uint64_t index = index_at(plan, plan->window->next);
        struct rg_source_item next;
        if (rg_source_at(plan->source, index, &next, NULL) < 0 ||
            !is_neighbour(plan, &next, shard, begin, end)) {
            return;
        }
        uint64_t place = next.piece_count > 0 ? next.pieces[0].offset - begin : 0;
        rg_window_follow(plan->window, first, index, place, next.size);
        end = RG_MAX(end, begin + place + next.size);
    }
}

int rg_plan_item(const struct rg_plan *plan, uint64_t first, struct rg_source_item *out_item,
                 char *name)
{
    return rg_source_at(plan->source, rg_window_slot(plan->window, first)->index, out_item, name);
}

void rg_plan_refuse(struct rg_plan *plan, uint64_t first, enum rg_status status)
{
    struct rg_completion completion = {.status = status};
    rg_window_arrive(plan->window, first, &completion);
}

static enum rg_slot_kind kind_of(const struct rg_source_item *item)
{
    if (item->piece_count > 1) {
        return RG_SLOT_PIECES;
    }
    return item->piece_count == 1 ? RG_SLOT_RANGE : RG_SLOT_OBJECT;
}

/* Says in a slot what its request reads. True: it is new, so that others may follow. */
static bool slot_plan(struct rg_slot *slot, const struct rg_source_item *item)
{
    bool is_new = slot->kind == RG_SLOT_UNPLANNED;
    slot->kind = slot->kind == RG_SLOT_NEWEST ? RG_SLOT_NEWEST : kind_of(item);
    slot->size = item->size;
    return is_new;
}

/* Plans the request of a sample that is OUT and whose slot has its index. False: none is needed,
 * and the sample has arrived. */
static bool get_fill(struct rg_plan *plan, uint64_t number, char *name, struct rg_get *out_get,
                     struct rg_source_item *item)
{
    if (rg_plan_item(plan, number, item, name) < 0) {
        rg_plan_refuse(plan, number, RG_STATUS_SOURCE);
        return false;
    }
    if (item->is_range && item->size == 0) {
        rg_plan_refuse(plan, number, RG_STATUS_OK);
        return false;
    }
    struct rg_slot *slot = rg_window_slot(plan->window, number);
    bool is_new = slot_plan(slot, item);
    *out_get = (struct rg_get){
        .bucket = plan->source->bucket,
        .object = item->name,
        .generation = slot->kind == RG_SLOT_NEWEST ? 0 : item->generation,
        .offset = item->is_range ? item->pieces[0].offset : 0,
        .length = item->is_range ? item->size : RG_WHOLE,
        .user_data = number,
    };
    uint64_t size = item->size != 0 ? item->size : plan->size_guess;
    if (slot->kind == RG_SLOT_RANGE) {
        if (is_new) {
            followers_gather(plan, number, item);
        }
        size = out_get->length = rg_window_body_size(plan->window, number);
    }
    rg_window_charge(plan->window, number, charge_of(size));
    return true;
}

bool rg_plan_next(struct rg_plan *plan, char *name, struct rg_get *out_get,
                  struct rg_source_item *out_item)
{
    uint64_t number;
    while (rg_window_ask(plan->window, &number)) {
        struct rg_slot *slot = rg_window_slot(plan->window, number);
        if (slot->kind == RG_SLOT_UNPLANNED) {
            slot->index = index_at(plan, number);
        }
        if (get_fill(plan, number, name, out_get, out_item)) {
            return true;
        }
    }
    return false;
}

struct rg_get_ranges rg_plan_ranges(const struct rg_get *get, const struct rg_source_item *item,
                                    struct rg_range *ranges)
{
    RG_ASSERT(item->piece_count > 1 && item->piece_count <= RG_TAR_MEMBERS_MAX);
    for (uint32_t i = 0; i < item->piece_count; i++) {
        ranges[i] = (struct rg_range){item->pieces[i].offset, item->pieces[i].size, NULL};
    }
    return (struct rg_get_ranges){
        .bucket = get->bucket,
        .object = get->object,
        .generation = get->generation,
        .ranges = ranges,
        .count = item->piece_count,
        .gap_max = RG_TAR_GAP_MAX,
        .requests_max = RG_MIN(item->piece_count, PIECES_AT_ONCE),
        .user_data = get->user_data,
        .no_checksum = true,
    };
}

/* That the pieces lie as planned is what the places of a sample's members rely on. */
void rg_plan_unite(struct rg_completion *completion, const struct rg_source_item *item)
{
    const struct rg_range_result *results = completion->data;
    const uint8_t *begin = results[0].data;
    uint64_t size = 0;
    for (uint32_t i = 0; i < item->piece_count; i++) {
        RG_ASSERT((const uint8_t *)results[i].data == begin + item->pieces[i].place);
        size = item->pieces[i].place + results[i].size;
        if (results[i].size < item->pieces[i].size) {
            break;
        }
    }
    completion->data = begin;
    completion->size = size;
}

void rg_plan_learn(struct rg_plan *plan, uint64_t size)
{
    plan->size_guess = RG_MAX(plan->size_guess, size);
}
