/* See walk.h. */
#include "gcs/listing/walk.h"

#include "gcs/listing/page.h"

#include <errno.h>
#include <stdlib.h>

/* Pieces of an ordered listing that wait for a slot, for each request that may be out. */
#define QUEUE_PER_REQUEST 4

enum slot_state { SLOT_FREE = 0, SLOT_OUT, SLOT_FULL };

struct rg_walk_slot {
    struct rg_request request;
    struct rg_walk *walk;
    struct rg_segment *segment; /* OUT: whose page is out */
    enum slot_state state;
    struct rg_list node;         /* FREE: of free_slots */
    struct rg_waiting_page page; /* FULL */
};

/* The only place where the state of a slot changes. */
static void slot_become(struct rg_walk_slot *slot, enum slot_state state)
{
    static const uint8_t next[] = {
        [SLOT_FREE] = 1 << SLOT_OUT,
        [SLOT_OUT] = 1 << SLOT_FULL | 1 << SLOT_FREE,
        [SLOT_FULL] = 1 << SLOT_FREE,
    };
    struct rg_walk *walk = slot->walk;
    RG_ASSERT((next[slot->state] & 1 << state) != 0);
    if (slot->state == SLOT_FREE) {
        rg_list_remove(&slot->node);
        walk->free_count--;
    }
    slot->state = state;
    if (state != SLOT_OUT) {
        slot->segment = NULL;
    }
    if (state == SLOT_FREE) {
        /* First comes the one that was used last, because its memory is in the cache. */
        rg_list_push_front(&walk->free_slots, &slot->node);
        walk->free_count++;
    }
}

static uint32_t slots_in(const struct rg_walk *walk, enum slot_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < walk->slot_count; i++) {
        count += walk->slots[i].state == state;
    }
    return count;
}

/* Each child of the operation has a slot, and each slot that is OUT has a segment that goes on and
 * does not wait. */
static bool invariants(const struct rg_walk *walk)
{
    for (uint32_t i = 0; i < walk->slot_count; i++) {
        const struct rg_walk_slot *slot = &walk->slots[i];
        bool is_out = slot->state == SLOT_OUT;
        if (is_out != (slot->segment != NULL) ||
            (is_out && (slot->segment->done || slot->segment->waits))) {
            return false;
        }
    }
    return slots_in(walk, SLOT_OUT) == walk->operation->out &&
           slots_in(walk, SLOT_FREE) == walk->free_count;
}

static uint32_t waiting_count(const struct rg_walk *walk)
{
    uint32_t count = 0;
    const struct rg_list *segments = &walk->space.segments;
    for (const struct rg_list *node = segments->next; node != segments; node = node->next) {
        count += RG_CONTAINER_OF(node, struct rg_segment, node)->waits;
    }
    return count;
}

/* Requests the next page of a segment. */
static void page_start(struct rg_walk *walk, struct rg_segment *segment)
{
    struct rg_walk_slot *slot = RG_CONTAINER_OF(walk->free_slots.next, struct rg_walk_slot, node);
    struct rg_list_question question = *walk->question;
    struct rg_space_query query;
    rg_segment_query(segment, &query);
    question.list.start_offset = query.start_offset;
    question.list.end_offset = query.end_offset;
    question.list.page_token = query.page_token;
    int rc = rg_list_prepare(&slot->request, &question);
    if (rc == -ENOMEM) {
        rg_operation_fail(walk->operation, RG_STATUS_NO_RESOURCES, "no memory");
    } else if (rc < 0) {
        rg_operation_fail(walk->operation, RG_STATUS_BAD_RESPONSE, "a page token is too long");
    } else if (rg_operation_child_start(walk->operation, &slot->request)) {
        slot_become(slot, SLOT_OUT);
        slot->segment = segment;
        segment->waits = false;
    }
}

/* When nearly all slots hold pages of later names, pieces that hardly have any names are not
 * requested one by one. */
static void segments_join(struct rg_walk *walk, struct rg_segment *segment)
{
    uint32_t waiting = waiting_count(walk);
    if (walk->ordered && waiting > walk->free_count) {
        rg_space_join(&walk->space, segment, waiting / walk->free_count - 1);
    }
}

static bool may_start(const struct rg_walk *walk)
{
    return walk->operation->state == RG_OPERATION_RUNNING && walk->free_count > 0 &&
           walk->operation->out < rg_pace_requests(&walk->pace);
}

void rg_walk_advance(struct rg_walk *walk)
{
    struct rg_list *segments = &walk->space.segments;
    RG_VERIFY(invariants(walk));
    for (struct rg_list *node = segments->next; node != segments && may_start(walk);
         node = node->next) {
        struct rg_segment *segment = RG_CONTAINER_OF(node, struct rg_segment, node);
        if (segment->waits) {
            segments_join(walk, segment);
            page_start(walk, segment);
        }
    }
}

/* Into how many pieces the rest of a segment may be cut, besides itself. */
static uint64_t pieces_allowed(const struct rg_walk *walk)
{
    uint64_t waiting = waiting_count(walk);
    uint64_t allowed = RG_MIN(rg_pace_requests(&walk->pace), (uint64_t)walk->slot_count);
    if (walk->ordered) {
        /* They are a page each. Some are made in advance, for slots that become free before the
         * page comes that says what follows these pieces. */
        uint64_t queue = allowed > 1 ? QUEUE_PER_REQUEST * allowed : 0;
        return queue - RG_MIN(queue, waiting);
    }
    uint64_t idle = walk->free_count - RG_MIN(waiting, (uint64_t)walk->free_count);
    uint64_t active = walk->operation->out + waiting;
    return RG_MIN(idle, allowed - RG_MIN(active, allowed));
}

/* Cuts the rest of a segment, so that idle slots have work. */
static void segment_cut(struct rg_walk *walk, struct rg_segment *segment)
{
    uint64_t count = pieces_allowed(walk);
    uint32_t made = rg_space_cut(&walk->space, segment, (uint32_t)count);
    struct rg_list *node = &segment->node;
    for (uint32_t i = 0; i < made; i++) {
        node = node->next;
        RG_CONTAINER_OF(node, struct rg_segment, node)->waits = true;
    }
}

/* An empty page is not handed out. */
static void page_keep(struct rg_walk_slot *slot, struct rg_segment *segment,
                      const struct rg_completion *completion)
{
    const struct rg_list_page *page = completion->data;
    if (page->object_count + page->prefix_count == 0) {
        rg_lease_release(completion->lease);
        slot_become(slot, SLOT_FREE);
        return;
    }
    slot_become(slot, SLOT_FULL);
    rg_delivery_put(&slot->walk->delivery, segment, &slot->page, completion);
}

/* What the answer means for its segment, which then waits for its next page, has ended, or is cut.
 */
static void page_take(struct rg_walk_slot *slot, const struct rg_completion *completion)
{
    struct rg_walk *walk = slot->walk;
    struct rg_segment *segment = slot->segment;
    /* It is the parser's, in a lease of ours. */
    struct rg_list_page *page = (struct rg_list_page *)(uintptr_t)completion->data;
    const char *problem = "";
    rg_pace_page_came(&walk->pace,
                      rg_time_between(slot->request.submitted_ns, completion->started_ns));
    int rc = rg_space_take_page(&walk->space, segment, page, &problem);
    if (rc < 0) {
        rg_lease_release(completion->lease);
        slot_become(slot, SLOT_FREE);
        rg_operation_fail(walk->operation,
                          rc == -ENOMEM ? RG_STATUS_NO_RESOURCES : RG_STATUS_BAD_RESPONSE, "%s%s",
                          rc == -ENOMEM ? "no memory" : "the answer ", problem);
        return;
    }
    page_keep(slot, segment, completion);
    segment->waits = !segment->done;
    if (!segment->done) {
        rg_pace_page_took(&walk->pace,
                          rg_time_between(completion->started_ns, completion->finished_ns));
        segment_cut(walk, segment);
    } else if (!walk->ordered) {
        rg_space_remove(&walk->space, segment);
    }
}

/* The end of a request. The task takes the next step. */
static void page_done(struct rg_request *child, struct rg_completion *completion)
{
    struct rg_walk_slot *slot = RG_CONTAINER_OF(child, struct rg_walk_slot, request);
    struct rg_operation *operation = slot->walk->operation;
    bool is_wanted = operation->state == RG_OPERATION_RUNNING;
    rg_operation_child_ended(operation, child);
    if (is_wanted && completion->status == RG_STATUS_OK) {
        page_take(slot, completion);
        return;
    }
    rg_lease_release(completion->lease);
    slot_become(slot, SLOT_FREE);
    if (is_wanted) {
        /* Without this page the listing would not be whole. */
        rg_operation_fail_by(operation, child);
    }
}

bool rg_walk_take(struct rg_walk *walk, struct rg_completion *out_page)
{
    static const struct rg_list_page the_end;
    struct rg_waiting_page *page = rg_delivery_next(&walk->delivery);
    if (page != NULL) {
        if (!rg_delivery_take(&walk->delivery, page, out_page)) {
            return false;
        }
        slot_become(RG_CONTAINER_OF(page, struct rg_walk_slot, page), SLOT_FREE);
        return true;
    }
    if (walk->space.segment_count > 0) {
        return false;
    }
    *out_page = (struct rg_completion){.data = &the_end, .size = sizeof(the_end)};
    return true;
}

void rg_walk_cancel(struct rg_walk *walk, enum rg_status status)
{
    for (uint32_t i = 0; i < walk->slot_count; i++) {
        if (walk->slots[i].state == SLOT_OUT) {
            rg_request_cancel(&walk->slots[i].request, status);
        }
    }
}

void rg_walk_drop_pages(struct rg_walk *walk)
{
    for (uint32_t i = 0; i < walk->slot_count; i++) {
        struct rg_walk_slot *slot = &walk->slots[i];
        if (slot->state == SLOT_FULL) {
            rg_delivery_drop(&walk->delivery, &slot->page);
            slot_become(slot, SLOT_FREE);
        }
    }
}

static int slots_make(struct rg_walk *walk, uint32_t count)
{
    walk->slots = calloc(count, sizeof(*walk->slots));
    if (walk->slots == NULL) {
        return -ENOMEM;
    }
    walk->slot_count = walk->free_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct rg_walk_slot *slot = &walk->slots[i];
        slot->walk = walk;
        rg_request_init_child(&slot->request, walk->operation->request, page_done);
        rg_list_push_front(&walk->free_slots, &slot->node);
    }
    return 0;
}

int rg_walk_init(struct rg_walk *walk, struct rg_operation *operation,
                 const struct rg_list_question *question, const struct rg_listing_options *options)
{
    walk->operation = operation;
    walk->question = question;
    walk->ordered = options->ordered;
    rg_list_init(&walk->free_slots);
    rg_list_init(&walk->space.segments);
    rg_delivery_init(&walk->delivery, operation->request->client_loop->loop, &walk->space,
                     walk->ordered, &operation->memory);
    const struct rg_space_options space_options = {
        .prefix = question->list.prefix,
        .delimiter = question->list.delimiter,
        .start = options->start_offset,
        .end = options->end_offset,
        .versions = options->versions,
        .ordered = options->ordered,
        .page_size = options->results_max != 0 ? options->results_max : RG_LIST_RESULTS_MAX,
    };
    int rc = rg_space_init(&walk->space, &space_options);
    if (rc < 0) {
        return rc;
    }
    rg_space_first(&walk->space)->waits = true;
    uint32_t count = options->requests_max;
    rc = slots_make(walk, count != 0 ? count : RG_LISTING_REQUESTS_DEFAULT);
    if (rc < 0) {
        return rc;
    }
    /* Names that the service would refuse are refused now, and not by the first page. */
    struct rg_request *first = &walk->slots[0].request;
    rc = rg_list_prepare(first, question);
    if (rc == 0) {
        first->ops->release(first);
    }
    return rc;
}

void rg_walk_fini(struct rg_walk *walk)
{
    if (walk->operation == NULL) {
        return;
    }
    RG_ASSERT(walk->slot_count == 0 || walk->free_count == walk->slot_count);
    rg_space_fini(&walk->space);
    free(walk->slots);
}
