/* Many ranges of one object, by few requests.
 *
 *   plan: sort, gather neighbours into groups, cut what is large -> one lease for all of it
 *   -> groups are read, requests_max at a time -> each range is put together -> completion
 *           another generation, or less than there must be -> end what is out, and read all again
 *
 * Which request reads which ranges is decided by the plan (range_plan.h).
 *
 * Where bytes go. A group of one range is read straight to its place, the caller's buffer or the
 * lease. So is a group whose ranges are all leased, because they lie in the lease as in the object.
 * If some ranges of a group have buffers, each record is copied to its place as it comes, while it
 * is in the cache.
 *
 * The first answer pins the generation. Requests that were sent before it are compared with it, and
 * those after name it, so that bytes of two generations never meet. */
#include "gcs/object/range_plan.h"
#include "gcs/request/object_request.h"
#include "gcs/request/operation.h"
#include "gcs/wire/media_head.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GAP_DEFAULT RG_KIB(64)
#define REQUEST_SIZE_DEFAULT RG_MIB(8)
#define REQUESTS_DEFAULT 8
#define REQUESTS_LIMIT 64
/* How often all is read again, because the object was replaced or came broken. */
#define RESTARTS_MAX 3

struct slot {
    struct rg_request child;
    struct rg_range_group group;
    uint32_t sunk; /* ranges of the group, from the first on, that have all their bytes */
    bool out, is_direct;
};

/* What an operation does while it is RUNNING. */
enum phase {
    PHASE_PLANNING = 0, /* there is no lease yet; it may wait for memory */
    PHASE_READING,
    PHASE_DISCARDING, /* the object was replaced: what is out ends before all is read again */
};

struct rg_ranges_state {
    struct rg_operation operation;
    enum phase phase;
    struct rg_range_plan plan;
    struct slot *slots; /* owned, like the next */
    struct rg_lease *lease;
    struct rg_range_result *results; /* at the beginning of the lease */
    uint32_t slot_count, restarts;
    bool no_checksum;
    int64_t want_generation;
    struct rg_range_cursor cursor;
    /* The object, as the first answer describes it; generation 0: none has come. */
    int64_t generation;
    uint64_t object_size;
    uint32_t object_crc;
    bool has_object_crc, has_answer, is_single; /* all of it is one group */
};

static struct rg_ranges_state *state_of(struct rg_operation *operation)
{
    return RG_CONTAINER_OF(operation, struct rg_ranges_state, operation);
}

static void children_cancel(struct rg_ranges_state *state, enum rg_status status)
{
    for (uint32_t i = 0; i < state->slot_count; i++) {
        if (state->slots[i].out) {
            rg_request_cancel(&state->slots[i].child, status);
        }
    }
}

static void child_done(struct rg_request *child, struct rg_completion *completion);

/* Bytes of a group have come: copies them to where they are wanted. */
static void group_sink(struct rg_request *child, uint64_t at, const uint8_t *data, size_t size)
{
    struct slot *slot = RG_CONTAINER_OF(child, struct slot, child);
    const struct rg_ranges_state *state = state_of(child->parent->operation);
    const struct rg_range_group *group = &slot->group;
    uint64_t begin = group->begin + at, end = begin + size;
    slot->sunk = at > 0 ? slot->sunk : 0;
    for (uint32_t i = slot->sunk; i < group->count; i++) {
        const struct rg_range *range = rg_range_at(&state->plan, group->first + i);
        struct rg_range_result *result = &state->results[state->plan.order[group->first + i]];
        uint64_t from = RG_MAX(begin, range->offset), to = RG_MIN(end, rg_range_end(range));
        if (range->offset >= end) {
            break;
        }
        if (to > from) {
            uint32_t crc = from > range->offset ? result->crc32c : 0;
            const uint8_t *piece = data + (from - begin);
            memcpy((uint8_t *)(uintptr_t)result->data + (from - range->offset), piece,
                   (size_t)(to - from));
            result->crc32c = state->no_checksum ? 0 : rg_crc32c(crc, piece, (size_t)(to - from));
        }
        slot->sunk += i == slot->sunk && rg_range_end(range) <= end;
    }
}

/* Starts the next group that has bytes; false when there is none. */
static bool slot_start(struct rg_ranges_state *state, struct slot *slot)
{
    struct rg_range_group *group = &slot->group;
    struct rg_request *request = state->operation.request;
    if (state->has_answer && state->cursor.within > 0 &&
        rg_range_at(&state->plan, state->cursor.next)->offset + state->cursor.within >=
            state->object_size) {
        /* The rest of this range lies behind the object. */
        state->cursor = (struct rg_range_cursor){.next = state->cursor.next + 1};
    }
    if (!rg_range_group_next(&state->plan, &state->cursor, group)) {
        return false;
    }
    const struct rg_range *first = rg_range_at(&state->plan, group->first);
    uint8_t *data = (uint8_t *)(uintptr_t)state->results[state->plan.order[group->first]].data;
    slot->is_direct = group->count == 1 || rg_range_group_is_leased(&state->plan, group);
    struct rg_get get = {
        .bucket = request->bucket,
        .object = request->object,
        .generation = state->generation != 0 ? state->generation : state->want_generation,
        .offset = group->begin,
        .length = group->end - group->begin,
        .buf = slot->is_direct ? data + (group->begin - first->offset) : NULL,
        .buf_size = slot->is_direct ? group->end - group->begin : 0,
        .deadline_ns = request->deadline_ns,
    };
    rg_request_init_child(&slot->child, request, child_done);
    int rc = rg_get_prepare(&slot->child, &get);
    RG_ASSERT(rc == 0);
    if (state->want_generation == 0) {
        /* That its generation is gone only means that reading starts again. */
        slot->child.verify = (struct rg_verify){0};
    }
    slot->child.get.buf_is_leased = slot->is_direct && first->buf == NULL;
    slot->child.get.no_checksum = state->no_checksum;
    slot->child.get.is_fresh = state->restarts > 0;
    if (!slot->is_direct) {
        slot->child.get.sink = group_sink;
        slot->child.get.buf_size = group->end - group->begin;
    }
    slot->out = rg_operation_child_start(&state->operation, &slot->child);
    return slot->out;
}

static void groups_start(struct rg_ranges_state *state)
{
    for (uint32_t i = 0; i < state->slot_count; i++) {
        if (!state->slots[i].out && !slot_start(state, &state->slots[i])) {
            return;
        }
    }
}

/* How many bytes of a range there are. */
static uint64_t range_size(const struct rg_ranges_state *state, const struct rg_range *range)
{
    uint64_t end = RG_MIN(rg_range_end(range), state->object_size);
    return end - RG_MIN(end, range->offset);
}

/* True when every range has all its bytes. */
static bool is_complete(const struct rg_ranges_state *state)
{
    for (uint32_t i = 0; i < state->plan.order_count; i++) {
        uint32_t index = state->plan.order[i];
        if (state->results[index].size != range_size(state, &state->plan.ranges[index])) {
            return false;
        }
    }
    return true;
}

/* Whether the ranges are the whole object, and if so its CRC32C. Bytes that a range has in common
 * with those before it are left out; the rest of it is added up from memory then. */
static bool is_whole(const struct rg_ranges_state *state, uint32_t *out_crc)
{
    uint64_t end = 0;
    uint32_t crc = 0;
    for (uint32_t i = 0; i < state->plan.order_count; i++) {
        const struct rg_range *range = rg_range_at(&state->plan, i);
        const struct rg_range_result *result = &state->results[state->plan.order[i]];
        if (range->offset > end) {
            return false;
        }
        uint64_t known = end - range->offset;
        if (known >= result->size) {
            continue;
        }
        uint64_t size = result->size - known;
        crc = known == 0 ? rg_crc32c_combine(crc, result->crc32c, size)
                         : rg_crc32c(crc, (const uint8_t *)result->data + known, (size_t)size);
        end += size;
    }
    *out_crc = crc;
    return end == state->object_size;
}

static void read_again(struct rg_ranges_state *state, enum rg_status status, const char *text)
{
    if (++state->restarts > RESTARTS_MAX) {
        rg_operation_fail(&state->operation, status, "%s", text);
        return;
    }
    state->cursor = (struct rg_range_cursor){0};
    state->generation = 0;
    state->has_answer = false;
    state->phase = PHASE_READING;
    for (uint32_t i = 0; i < state->plan.count; i++) {
        state->results[i].size = 0;
        state->results[i].crc32c = 0;
    }
    groups_start(state);
}

static void ranges_finish(struct rg_ranges_state *state)
{
    struct rg_completion completion = {
        .status = RG_STATUS_OK,
        .data = state->results,
        .size = state->plan.count * sizeof(*state->results),
        .generation = state->generation,
        .object_size = state->object_size,
        .object_crc32c = state->object_crc,
        .has_object_crc32c = state->has_object_crc,
        .lease = state->lease,
    };
    state->lease = NULL;
    rg_operation_finish(&state->operation, &completion);
}

/* All groups were read: is what they have the object, or a part of it? */
static void ranges_check(struct rg_ranges_state *state)
{
    uint32_t crc;
    bool checks = !state->no_checksum && state->has_object_crc;
    if (!is_complete(state)) {
        read_again(state, RG_STATUS_TRUNCATED, RG_MEDIA_REPLACED_TEXT);
    } else if (checks && is_whole(state, &crc) && crc != state->object_crc) {
        read_again(state, RG_STATUS_CHECKSUM, "the ranges put together do not have it");
    } else {
        ranges_finish(state);
    }
}

/* Puts the bytes of a group where its ranges want them, and adds up their CRC32C. */
static void group_deliver(struct rg_ranges_state *state, const struct slot *slot,
                          const struct rg_completion *completion)
{
    const struct rg_range_group *group = &slot->group;
    for (uint32_t i = 0; i < group->count; i++) {
        uint32_t index = state->plan.order[group->first + i];
        const struct rg_range *range = &state->plan.ranges[index];
        struct rg_range_result *result = &state->results[index];
        if (group->count == 1) {
            /* Pieces come in any order: each counts as if followed by zeros. */
            uint64_t after = range_size(state, range) - (group->begin - range->offset);
            after -= RG_MIN(after, completion->size);
            result->crc32c ^= rg_crc32c_combine(completion->crc32c, 0, after);
            result->size += completion->size;
            continue;
        }
        result->size = range_size(state, range);
        if (slot->is_direct && !state->no_checksum) {
            result->crc32c = rg_crc32c(0, result->data, result->size);
        }
    }
}

/* Takes note of the object that the answer tells of; false when it is another one than before. */
static bool object_note(struct rg_ranges_state *state, const struct rg_completion *completion)
{
    if (!state->has_answer) {
        state->has_answer = true;
        state->generation = completion->generation;
        state->object_size = completion->object_size;
        state->object_crc = completion->object_crc32c;
        state->has_object_crc = completion->has_object_crc32c;
        return true;
    }
    return completion->generation == state->generation &&
           completion->object_size == state->object_size;
}

static void group_read(struct rg_ranges_state *state, const struct slot *slot,
                       const struct rg_completion *completion)
{
    const struct rg_range_group *group = &slot->group;
    if (completion->generation == 0 && !state->is_single) {
        rg_operation_fail(
            &state->operation, RG_STATUS_BAD_RESPONSE,
            "the answer does not tell the generation, which parts of one object must");
    } else if (completion->object_size < group->begin + completion->size) {
        rg_operation_fail(&state->operation, RG_STATUS_BAD_RESPONSE,
                          "the answer does not tell the object's size");
    } else if (!object_note(state, completion)) {
        state->phase = PHASE_DISCARDING;
    } else if (rg_range_at(&state->plan, group->first + group->count - 1)->offset >=
               state->object_size) {
        rg_operation_fail(&state->operation, RG_STATUS_RANGE,
                          "a range begins behind the object's end");
    } else {
        group_deliver(state, slot, completion);
    }
}

static void group_failed(struct rg_ranges_state *state, const struct slot *slot,
                         const struct rg_completion *completion)
{
    const struct rg_range *first = rg_range_at(&state->plan, slot->group.first);
    if (completion->status == RG_STATUS_RANGE && slot->group.begin > first->offset) {
        return; /* a piece of a range that is shortened */
    }
    if (completion->status == RG_STATUS_NOT_FOUND && state->generation != 0 &&
        state->want_generation == 0) {
        state->phase = PHASE_DISCARDING; /* there was one when the first answer came */
        return;
    }
    rg_operation_fail_by(&state->operation, &slot->child);
}

static void child_done(struct rg_request *child, struct rg_completion *completion)
{
    struct slot *slot = RG_CONTAINER_OF(child, struct slot, child);
    struct rg_ranges_state *state = state_of(child->parent->operation);
    bool is_wanted =
        state->operation.state == RG_OPERATION_RUNNING && state->phase == PHASE_READING;
    RG_ASSERT(completion->lease == NULL);
    slot->out = false;
    if (is_wanted && completion->status == RG_STATUS_OK) {
        group_read(state, slot, completion);
    } else if (is_wanted) {
        group_failed(state, slot, completion);
    }
    rg_operation_child_ended(&state->operation, child);
}

/* Takes the lease, if there is room for it. */
static void plan(struct rg_ranges_state *state)
{
    struct rg_loop *loop = state->operation.request->client_loop->loop;
    struct rg_range_layout layout;
    rg_range_plan_lay_out(&state->plan, &layout, NULL);
    state->is_single = layout.group_count <= 1;
    uint64_t group_count = RG_MAX(layout.group_count, UINT64_C(1));
    state->slot_count = (uint32_t)RG_MIN((uint64_t)state->slot_count, group_count);
    if (layout.size > rg_slab_size_max(loop->slabs)) {
        rg_operation_fail(&state->operation, RG_STATUS_TOO_LARGE, "%s",
                          "ask for less at once, or give buffers");
        return;
    }
    state->lease = rg_operation_take_slab(&state->operation, (size_t)layout.size);
    if (state->lease == NULL) {
        return;
    }
    state->results = (struct rg_range_result *)state->lease->data;
    for (uint32_t i = 0; i < state->plan.count; i++) {
        void *data =
            state->plan.ranges[i].buf != NULL ? state->plan.ranges[i].buf : state->lease->data;
        state->results[i] = (struct rg_range_result){.data = data};
    }
    rg_range_plan_lay_out(&state->plan, &layout, state->results);
    state->phase = PHASE_READING;
}

/* What is read has a place to go, and what is out has a slot. */
static bool invariants(const struct rg_ranges_state *state)
{
    uint32_t out = 0;
    for (uint32_t i = 0; i < state->slot_count; i++) {
        out += state->slots[i].out;
    }
    return (state->phase == PHASE_PLANNING) == (state->lease == NULL) &&
           out == state->operation.out;
}

static void ranges_advance(struct rg_operation *operation)
{
    struct rg_ranges_state *state = state_of(operation);
    RG_VERIFY(invariants(state));
    if (state->phase == PHASE_PLANNING && !rg_operation_waits_for_memory(operation)) {
        plan(state);
    }
    if (state->phase == PHASE_READING) {
        groups_start(state);
    } else if (state->phase == PHASE_DISCARDING && operation->out > 0) {
        children_cancel(state, RG_STATUS_CANCELLED);
    }
    if (operation->out > 0 || operation->state != RG_OPERATION_RUNNING) {
        return;
    }
    if (state->phase == PHASE_READING) {
        ranges_check(state);
    } else if (state->phase == PHASE_DISCARDING) {
        read_again(state, RG_STATUS_TRUNCATED, RG_MEDIA_REPLACED_TEXT);
    }
}

static void ranges_stop(struct rg_operation *operation, bool hurry)
{
    struct rg_ranges_state *state = state_of(operation);
    children_cancel(state, hurry ? RG_STATUS_CLOSED : RG_STATUS_CANCELLED);
}

static void ranges_free(struct rg_ranges_state *state)
{
    rg_lease_release(state->lease);
    rg_range_plan_free(&state->plan);
    free(state->slots);
    free(state);
}

static void operation_free(struct rg_operation *operation)
{
    ranges_free(state_of(operation));
}

static const struct rg_operation_ops operation_ops = {
    .advance = ranges_advance,
    .stop = ranges_stop,
    .free = operation_free,
};

static const struct rg_request_ops ranges_ops = {
    .verb = "get ranges of",
    .operation = RG_VERB_GET,
    .start = rg_operation_start,
    .cancel = rg_operation_cancel,
    .release = rg_operation_release,
};

/* What was submitted, and how large its ranges were when the program was compiled. */
struct submission {
    struct rg_get_ranges get;
    size_t item_size;
};

static int ranges_prepare(struct rg_request *request, const void *given)
{
    const struct submission *submission = given;
    const struct rg_get_ranges *get = &submission->get;
    if (get->object == NULL || get->ranges == NULL || get->count == 0 ||
        get->count > RG_RANGES_MAX || get->generation < 0 || get->requests_max > REQUESTS_LIMIT ||
        rg_request_set_names(request, get->bucket, get->object) < 0) {
        return -EINVAL;
    }
    struct rg_ranges_state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return -ENOMEM;
    }
    state->slot_count = get->requests_max != 0 ? get->requests_max : REQUESTS_DEFAULT;
    state->plan.gap_max = get->gap_max != 0 ? get->gap_max : GAP_DEFAULT;
    state->plan.request_size_max =
        get->request_size_max != 0 ? get->request_size_max : REQUEST_SIZE_DEFAULT;
    state->want_generation = get->generation;
    state->no_checksum = get->no_checksum || request->client->options.checksum == RG_SWITCH_OFF;
    int rc = rg_range_plan_make(&state->plan, get->ranges, get->count, submission->item_size);
    state->slots = calloc(state->slot_count, sizeof(*state->slots));
    if (rc == 0 && state->slots == NULL) {
        rc = -ENOMEM;
    }
    if (rc < 0) {
        ranges_free(state);
        return rc;
    }
    rg_request_prepare(request, &ranges_ops, get->user_data, get->deadline_ns);
    rg_operation_init(&state->operation, &operation_ops, request);
    return 0;
}

int rg_submit_get_ranges_sized(struct rg_client *client, struct rg_cq *cq,
                               const struct rg_get_ranges *get, size_t struct_size,
                               size_t item_size)
{
    struct submission own = {.item_size = item_size};
    memcpy(&own.get, get, RG_MIN(struct_size, sizeof(own.get)));
    return rg_object_submit(client, cq, ranges_prepare, &own);
}
