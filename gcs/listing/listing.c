/* Listing a bucket with many requests at once.
 *
 * A listing lives on one loop. It has a fixed number of slots, each of which is free, or has a
 * request for a page out, or holds a page that the caller has not taken; so what is ahead of the
 * caller is bounded. What the requests ask for, and what is done with their answers, is decided by
 * the space of names (listing_space.h), which knows nothing of slots.
 *
 *   slot: free -> out (a child request) -> full -> free
 *
 * The first request is one for a plain page. Pages that have a next one let more requests be out:
 * quickly where a page takes long, because waiting is what can be saved, and slowly where the
 * server is so near that connections would cost more than they bring. Slots that are idle when a
 * page comes are put to work on what is left behind it.
 *
 * Slots go to segments in the order of names. When pages are wanted in order this also means that
 * the first segment, which the caller waits for, always gets the slot that it gave up last, however
 * many pages of later segments there are. Nor do those keep memory from it: beyond a share of the
 * loop's memory they are moved to the heap until their turn comes. */
#include "gcs/listing/listing.h"

#include "gcs/listing/page.h"
#include "gcs/listing/space.h"
#include "gcs/request/client.h"
#include "gcs/wire/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Which part of the loop's memory may be filled by pages whose turn has not come. Of a chunk of
 * that memory each may make the rest useless to others. */
#define KEPT_SHARE 4
#define KEPT_SIZE_MIN RG_MIB(2)

/* Connections are opened when pages have taken so many times as long as the first one did to open:
 * as much again is then likely to come. */
#define CONNECTS_WORTH 2
/* Pieces of an ordered listing that wait for a slot, for each request that may be out. */
#define QUEUE_PER_REQUEST 4
/* Requests that a page lets be out at most, and how long pages must have taken for another one:
 * many times what opening a connection costs the two ends in CPU time. */
#define GROWTH_PER_PAGE 3
#define GROWTH_NS (16 * RG_NS_PER_MS)

enum slot_state { SLOT_FREE, SLOT_OUT, SLOT_FULL };

struct slot {
    struct rg_request request;
    struct rg_listing *listing;
    struct rg_segment *segment; /* whose page is out; it may be gone when the slot is full */
    enum slot_state state;
    struct rg_list node;       /* of a free or full one */
    struct rg_completion page; /* of a full one */
    uint64_t kept_size;        /* of its lease, while its turn has not come */
    void *aside;               /* owned; where the page is instead of a lease; NULL: it is not */
};

struct rg_listing {
    struct rg_client *client;
    struct rg_client_loop *client_loop;
    struct rg_list_question question; /* its strings are owned */
    bool ordered;
    struct rg_space space;
    struct slot *slots;
    uint32_t slot_count, free_count, out_count;
    struct rg_list free_slots;
    struct rg_list ready; /* full slots, where no order is asked for */
    uint64_t page_count;
    uint64_t page_ns;    /* that the fastest page took */
    uint64_t connect_ns; /* that the first page waited for a connection */
    uint64_t kept_size;  /* of all slots */
    struct rg_task memory_task;
    struct rg_request *next; /* waits for a page; NULL: the caller wants none */
    bool failed, closing;
    __typeof__(((struct rg_request *)0)->failure) failure; /* if failed */
    struct {
        alignas(RG_CACHE_LINE) _Atomic bool busy; /* a page is wanted and its completion not made */
        _Atomic bool closed;
        sem_t closed_signal;
    } shared;
};

static void slot_set_free(struct slot *slot)
{
    struct rg_listing *listing = slot->listing;
    RG_ASSERT(slot->aside == NULL && listing->kept_size >= slot->kept_size);
    slot->state = SLOT_FREE;
    slot->segment = NULL;
    listing->kept_size -= slot->kept_size;
    slot->kept_size = 0;
    /* The one that was used last: its memory is hot. */
    rg_list_push_front(&listing->free_slots, &slot->node);
    listing->free_count++;
}

static struct slot *slot_pop(struct rg_list *list)
{
    struct rg_list *node = rg_list_pop_front(list);
    return node != NULL ? RG_CONTAINER_OF(node, struct slot, node) : NULL;
}

static struct slot *slot_take_free(struct rg_listing *listing)
{
    struct slot *slot = slot_pop(&listing->free_slots);
    RG_ASSERT(slot != NULL && slot->state == SLOT_FREE && listing->free_count > 0);
    listing->free_count--;
    return slot;
}

/* Ends what the other requests do: one page missing is a listing that is wrong. */
static void listing_fail(struct rg_listing *listing)
{
    RG_ASSERT(listing->failed && listing->failure.status != RG_STATUS_OK);
    for (uint32_t i = 0; i < listing->slot_count; i++) {
        if (listing->slots[i].state == SLOT_OUT) {
            rg_request_cancel(&listing->slots[i].request, RG_STATUS_CANCELLED);
        }
    }
}

/* The request whose turn it is, for good. */
static struct rg_request *next_take(struct rg_listing *listing)
{
    struct rg_request *next = listing->next;
    listing->next = NULL;
    atomic_store_explicit(&listing->shared.busy, false, memory_order_release);
    return next;
}

static void next_fail(struct rg_listing *listing)
{
    struct rg_request *next = next_take(listing);
    next->failure = listing->failure;
    rg_request_fail(next);
}

static struct slot *slot_front(const struct rg_list *list)
{
    return rg_list_empty(list) ? NULL : RG_CONTAINER_OF(list->next, struct slot, node);
}

/* The page that the caller gets now; NULL: there is none yet. */
static struct slot *slot_ready(struct rg_listing *listing)
{
    struct rg_segment *first;
    if (!listing->ordered) {
        return slot_front(&listing->ready);
    }
    while ((first = rg_space_first(&listing->space)) != NULL) {
        struct slot *slot = slot_front(&first->pages);
        if (slot != NULL || !first->done) {
            return slot;
        }
        rg_space_remove(&listing->space, first);
    }
    return NULL;
}

static size_t text_size(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

/* What a copy of the page needs. */
static size_t page_size(const struct rg_list_page *page)
{
    size_t size = sizeof(*page) + page->object_count * sizeof(*page->objects) +
                  page->prefix_count * sizeof(*page->prefixes);
    for (size_t i = 0; i < page->object_count; i++) {
        size += text_size(page->objects[i].name) + text_size(page->objects[i].updated);
    }
    for (size_t i = 0; i < page->prefix_count; i++) {
        size += text_size(page->prefixes[i]);
    }
    return size;
}

static const char *text_copy(char **at, const char *text)
{
    size_t size = text_size(text);
    char *copy = *at;
    *at += size;
    return size > 0 ? memcpy(copy, text, size) : NULL;
}

/* Into page_size bytes. */
static struct rg_list_page *page_copy(const struct rg_list_page *page, void *memory)
{
    struct rg_list_page *copy = memory;
    struct rg_object *objects = (struct rg_object *)(copy + 1);
    const char **prefixes = (const char **)(objects + page->object_count);
    char *at = (char *)(prefixes + page->prefix_count);
    for (size_t i = 0; i < page->object_count; i++) {
        objects[i] = page->objects[i];
        objects[i].name = text_copy(&at, page->objects[i].name);
        objects[i].updated = text_copy(&at, page->objects[i].updated);
    }
    for (size_t i = 0; i < page->prefix_count; i++) {
        prefixes[i] = text_copy(&at, page->prefixes[i]);
    }
    *copy = (struct rg_list_page){
        .objects = objects,
        .object_count = page->object_count,
        .prefixes = prefixes,
        .prefix_count = page->prefix_count,
    };
    return copy;
}

/* Moves a page whose turn has not come to the heap, unless there is room for it. */
static void slot_set_aside(struct slot *slot)
{
    struct rg_listing *listing = slot->listing;
    uint64_t limit = rg_slab_size_max(listing->client_loop->loop->slabs) / KEPT_SHARE;
    uint64_t kept_size = RG_MAX(slot->page.lease->capacity, KEPT_SIZE_MIN);
    if (listing->kept_size + kept_size > limit) {
        slot->aside = malloc(page_size(slot->page.data));
    }
    if (slot->aside == NULL) {
        slot->kept_size = kept_size;
        listing->kept_size += kept_size;
        return;
    }
    slot->page.data = page_copy(slot->page.data, slot->aside);
    rg_lease_release(slot->page.lease);
    slot->page.lease = NULL;
}

/* Sees to it that the page lies in a lease. False: there is no memory now; memory_task follows. */
static bool slot_fetch(struct slot *slot)
{
    struct rg_listing *listing = slot->listing;
    if (slot->aside == NULL) {
        return true;
    }
    if (rg_list_linked(&listing->memory_task.node)) {
        return false;
    }
    struct rg_lease *lease = rg_loop_take_slab(listing->client_loop->loop,
                                               page_size(slot->page.data), &listing->memory_task);
    if (lease == NULL) {
        return false;
    }
    slot->page.data = page_copy(slot->page.data, lease->data);
    slot->page.lease = lease;
    free(slot->aside);
    slot->aside = NULL;
    return true;
}

static const struct rg_list_page the_end;

static void listing_deliver(struct rg_listing *listing)
{
    if (listing->next == NULL) {
        return;
    }
    if (listing->failed) {
        next_fail(listing);
        return;
    }
    struct rg_completion completion = {.data = &the_end, .size = sizeof(the_end)};
    struct slot *slot = slot_ready(listing);
    if (slot != NULL) {
        RG_ASSERT(slot->state == SLOT_FULL);
        if (!slot_fetch(slot)) {
            return;
        }
        completion = slot->page;
        rg_list_remove(&slot->node);
        listing->next->attempts = completion.attempts;
        listing->next->started_ns = completion.started_ns;
        slot_set_free(slot);
    } else if (listing->space.segment_count > 0) {
        return;
    }
    rg_request_finish(next_take(listing), &completion);
}

static void page_done(struct rg_request *child, struct rg_completion *completion);

/* A page of a segment. False: the listing has failed. */
static bool page_start(struct rg_listing *listing, struct rg_segment *segment)
{
    struct slot *slot = slot_take_free(listing);
    struct rg_list_question question = listing->question;
    struct rg_space_query query;
    rg_segment_query(segment, &query);
    question.list.start_offset = query.start_offset;
    question.list.end_offset = query.end_offset;
    question.list.page_token = query.page_token;
    slot->request.failure.status = RG_STATUS_OK;
    int rc = rg_list_prepare(&slot->request, &question);
    if (rc == 0 && rg_request_start(&slot->request)) {
        slot->state = SLOT_OUT;
        slot->segment = segment;
        segment->waits = false;
        listing->out_count++;
        return true;
    }
    if (rc == 0) {
        rg_request_note(&slot->request, RG_STATUS_CLOSED, "the client is being closed");
        slot->request.ops->release(&slot->request);
    } else {
        rg_request_note(&slot->request,
                        rc == -ENOMEM ? RG_STATUS_NO_RESOURCES : RG_STATUS_BAD_RESPONSE, "%s",
                        rc == -ENOMEM ? "no memory" : "a page token is too long");
    }
    listing->failed = true;
    listing->failure = slot->request.failure;
    slot_set_free(slot);
    return false;
}

static uint64_t requests_allowed(const struct rg_listing *listing)
{
    uint64_t spent_ns = listing->page_count * listing->page_ns;
    if (spent_ns < CONNECTS_WORTH * listing->connect_ns) {
        return 1;
    }
    return 1 + RG_MIN(spent_ns / GROWTH_NS, GROWTH_PER_PAGE * listing->page_count);
}

static uint32_t waiting_count(const struct rg_listing *listing)
{
    uint32_t count = 0;
    const struct rg_list *segments = &listing->space.segments;
    for (const struct rg_list *node = segments->next; node != segments; node = node->next) {
        count += RG_CONTAINER_OF(node, struct rg_segment, node)->waits;
    }
    return count;
}

/* Where nearly all slots hold pages of later names, pieces with hardly any names in them are not
 * asked for one by one. */
static void segments_join(struct rg_listing *listing, struct rg_segment *segment)
{
    uint32_t waiting = waiting_count(listing);
    if (listing->ordered && waiting > listing->free_count) {
        rg_space_join(&listing->space, segment, waiting / listing->free_count - 1);
    }
}

static void pages_start(struct rg_listing *listing)
{
    struct rg_list *segments = &listing->space.segments;
    for (struct rg_list *node = segments->next; node != segments; node = node->next) {
        struct rg_segment *segment = RG_CONTAINER_OF(node, struct rg_segment, node);
        if (listing->free_count == 0 || listing->out_count >= requests_allowed(listing)) {
            return;
        }
        if (!segment->waits) {
            continue;
        }
        segments_join(listing, segment);
        if (!page_start(listing, segment)) {
            listing_fail(listing);
            listing_deliver(listing);
            return;
        }
    }
}

static void listing_go_on(struct rg_listing *listing)
{
    listing_deliver(listing);
    if (!listing->failed && !listing->closing) {
        pages_start(listing);
    }
}

static void memory_came(struct rg_task *task)
{
    listing_go_on(RG_CONTAINER_OF(task, struct rg_listing, memory_task));
}

/* How many pieces what is left of a segment may be cut into, beside itself. */
static uint64_t pieces_allowed(const struct rg_listing *listing)
{
    uint64_t waiting = waiting_count(listing);
    uint64_t allowed = RG_MIN(requests_allowed(listing), (uint64_t)listing->slot_count);
    if (listing->ordered) {
        /* They are of a page each, and some are made in advance, for slots that become free before
         * the page comes that says what lies behind them. */
        uint64_t queue = allowed > 1 ? QUEUE_PER_REQUEST * allowed : 0;
        return queue - RG_MIN(queue, waiting);
    }
    uint64_t idle = listing->free_count - RG_MIN(waiting, (uint64_t)listing->free_count);
    uint64_t active = listing->out_count + waiting;
    return RG_MIN(idle, allowed - RG_MIN(active, allowed));
}

/* Puts idle slots to work on what is left of a segment. */
static void segment_cut(struct rg_listing *listing, struct rg_segment *segment)
{
    uint64_t count = pieces_allowed(listing);
    uint32_t made = rg_space_cut(&listing->space, segment, (uint32_t)count);
    struct rg_list *node = &segment->node;
    for (uint32_t i = 0; i < made; i++) {
        node = node->next;
        RG_CONTAINER_OF(node, struct rg_segment, node)->waits = true;
    }
}

/* Keeps the page until it is asked for; an empty one is nothing to anybody. */
static void page_keep(struct slot *slot, const struct rg_completion *completion)
{
    struct rg_listing *listing = slot->listing;
    const struct rg_list_page *page = completion->data;
    if (page->object_count + page->prefix_count == 0) {
        rg_lease_release(completion->lease);
        slot_set_free(slot);
        return;
    }
    slot->state = SLOT_FULL;
    slot->page = *completion;
    if (!listing->ordered) {
        rg_list_push_back(&listing->ready, &slot->node);
        return;
    }
    struct rg_list *pages = &slot->segment->pages;
    bool is_next = slot->segment == rg_space_first(&listing->space) && rg_list_empty(pages);
    rg_list_push_back(pages, &slot->node);
    if (!is_next) {
        slot_set_aside(slot);
    }
}

static void page_take(struct slot *slot, struct rg_completion *completion)
{
    struct rg_listing *listing = slot->listing;
    struct rg_segment *segment = slot->segment;
    /* It is the parser's, in a lease of ours. */
    struct rg_list_page *page = (struct rg_list_page *)(uintptr_t)completion->data;
    const char *problem = "";
    if (listing->page_count == 0) {
        listing->connect_ns = rg_time_between(slot->request.submitted_ns, completion->started_ns);
    }
    listing->page_count++;
    int rc = rg_space_take_page(&listing->space, segment, page, &problem);
    if (rc < 0) {
        rg_lease_release(completion->lease);
        slot->request.failure.status = RG_STATUS_OK;
        rg_request_note(&slot->request,
                        rc == -ENOMEM ? RG_STATUS_NO_RESOURCES : RG_STATUS_BAD_RESPONSE, "%s%s",
                        rc == -ENOMEM ? "no memory" : "the answer ", problem);
        listing->failed = true;
        listing->failure = slot->request.failure;
        slot_set_free(slot);
        listing_fail(listing);
        return;
    }
    page_keep(slot, completion);
    segment->waits = !segment->done;
    if (!segment->done) {
        /* One that ends a segment has few names, and says little about time. */
        uint64_t took_ns = completion->finished_ns - completion->started_ns;
        listing->page_ns = listing->page_ns > 0 ? RG_MIN(listing->page_ns, took_ns) : took_ns;
        segment_cut(listing, segment);
    } else if (!listing->ordered) {
        rg_space_remove(&listing->space, segment);
    }
}

static void page_lost(struct slot *slot, const struct rg_completion *completion)
{
    struct rg_listing *listing = slot->listing;
    rg_lease_release(completion->lease);
    slot_set_free(slot);
    if (!listing->failed && !listing->closing) {
        listing->failed = true;
        listing->failure = slot->request.failure;
        listing_fail(listing);
    }
}

static void listing_closed(struct rg_listing *listing)
{
    if (listing->closing && listing->out_count == 0) {
        atomic_store_explicit(&listing->shared.closed, true, memory_order_release);
        sem_post(&listing->shared.closed_signal);
    }
}

static void page_done(struct rg_request *child, struct rg_completion *completion)
{
    struct slot *slot = RG_CONTAINER_OF(child, struct slot, request);
    struct rg_listing *listing = slot->listing;
    RG_ASSERT(slot->state == SLOT_OUT && listing->out_count > 0);
    listing->out_count--;
    if (completion->status == RG_STATUS_OK && !listing->failed && !listing->closing) {
        page_take(slot, completion);
    } else {
        page_lost(slot, completion);
    }
    if (listing->closing) {
        listing_closed(listing);
    } else {
        listing_go_on(listing);
    }
}

static void next_start(struct rg_request *request)
{
    struct rg_listing *listing = request->listing;
    RG_ASSERT(listing->next == NULL && !listing->closing);
    listing->next = request;
    listing_go_on(listing);
}

/* The listing itself goes on: its pages are there for the next call. */
static void next_cancel(struct rg_request *request, enum rg_status status)
{
    struct rg_listing *listing = request->listing;
    RG_ASSERT(listing->next == request);
    request->failure.status = RG_STATUS_OK;
    rg_request_note(request, status, "%s", "");
    rg_request_fail(next_take(listing));
}

static void next_release(struct rg_request *request)
{
    (void)request;
}

static const struct rg_request_ops next_ops = {
    .verb = "list",
    .release = next_release,
    .start = next_start,
    .cancel = next_cancel,
};

static bool is_utf8(const char *text)
{
    for (size_t size = strlen(text); size > 0;) {
        uint32_t code;
        int used = rg_utf8_decode(text, size, &code);
        if (used < 0) {
            return false;
        }
        text += used;
        size -= (size_t)used;
    }
    return true;
}

static int copy_text(const char *text, const char **out_copy)
{
    if (text == NULL || *text == '\0') {
        return 0;
    }
    if (strlen(text) > RG_OBJECT_NAME_SIZE_MAX || !is_utf8(text)) {
        return -EINVAL;
    }
    *out_copy = strdup(text);
    return *out_copy != NULL ? 0 : -ENOMEM;
}

static int question_make(struct rg_list_question *question,
                         const struct rg_listing_options *options)
{
    if (options->bucket == NULL || strlen(options->bucket) > RG_BUCKET_NAME_SIZE_MAX ||
        options->results_max > RG_LIST_RESULTS_MAX ||
        options->requests_max > RG_LISTING_REQUESTS_LIMIT) {
        return -EINVAL;
    }
    bool is_folders = options->delimiter != NULL && strcmp(options->delimiter, "/") == 0;
    if (options->folders_as_prefixes && !is_folders) {
        return -EINVAL;
    }
    question->versions = options->versions;
    question->folders_as_prefixes = options->folders_as_prefixes;
    question->list.results_max = options->results_max;
    int rc = copy_text(options->bucket, &question->list.bucket);
    rc = rc == 0 ? copy_text(options->prefix, &question->list.prefix) : rc;
    rc = rc == 0 ? copy_text(options->delimiter, &question->list.delimiter) : rc;
    return rc == 0 ? copy_text(options->glob, &question->glob) : rc;
}

static int slots_make(struct rg_listing *listing, uint32_t count)
{
    listing->slots = calloc(count, sizeof(*listing->slots));
    if (listing->slots == NULL) {
        return -ENOMEM;
    }
    /* What a child takes from its parent, without there being one yet. */
    struct rg_request parent = {.client = listing->client, .client_loop = listing->client_loop};
    listing->slot_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct slot *slot = &listing->slots[i];
        slot->listing = listing;
        rg_request_init_child(&slot->request, &parent, page_done);
        slot->request.parent = NULL;
        slot_set_free(slot);
    }
    return 0;
}

static int listing_make(struct rg_listing *listing, const struct rg_listing_options *options)
{
    int rc = question_make(&listing->question, options);
    if (rc < 0) {
        return rc;
    }
    const char *offset = NULL;
    rc = copy_text(options->start_offset, &offset);
    free((char *)(uintptr_t)offset);
    offset = NULL;
    rc = rc == 0 ? copy_text(options->end_offset, &offset) : rc;
    free((char *)(uintptr_t)offset);
    if (rc < 0) {
        return rc;
    }
    const struct rg_space_options space_options = {
        .prefix = listing->question.list.prefix,
        .delimiter = listing->question.list.delimiter,
        .start = options->start_offset,
        .end = options->end_offset,
        .versions = options->versions,
        .ordered = options->ordered,
        .page_size = options->results_max != 0 ? options->results_max : RG_LIST_RESULTS_MAX,
    };
    rc = rg_space_init(&listing->space, &space_options);
    if (rc < 0) {
        return rc;
    }
    rg_space_first(&listing->space)->waits = true;
    uint32_t count = options->requests_max;
    rc = slots_make(listing, count != 0 ? count : RG_LISTING_REQUESTS_DEFAULT);
    /* Bad names are refused now and not by the first page. */
    if (rc == 0) {
        rc = rg_list_prepare(&listing->slots[0].request, &listing->question);
    }
    if (rc == 0) {
        listing->slots[0].request.ops->release(&listing->slots[0].request);
    }
    return rc;
}

static void listing_free(struct rg_listing *listing)
{
    const struct rg_list_question *question = &listing->question;
    const char *const texts[] = {question->list.bucket, question->list.prefix,
                                 question->list.delimiter, question->glob};
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        free((char *)(uintptr_t)texts[i]);
    }
    rg_space_fini(&listing->space);
    sem_destroy(&listing->shared.closed_signal);
    free(listing->slots);
    free(listing);
}

int rg_listing_open_sized(struct rg_listing **out_listing, struct rg_client *client,
                          const struct rg_listing_options *options, size_t struct_size)
{
    struct rg_listing_options own = {0};
    memcpy(&own, options, RG_MIN(struct_size, sizeof(own)));
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    size_t size = (sizeof(struct rg_listing) + RG_CACHE_LINE - 1) & ~(size_t)(RG_CACHE_LINE - 1);
    struct rg_listing *listing = aligned_alloc(RG_CACHE_LINE, size);
    if (listing == NULL) {
        return -ENOMEM;
    }
    memset(listing, 0, size);
    listing->client = client;
    listing->client_loop = rg_client_next_loop(client);
    listing->ordered = own.ordered;
    listing->memory_task.run = memory_came;
    rg_list_init(&listing->free_slots);
    rg_list_init(&listing->ready);
    rg_list_init(&listing->space.segments);
    sem_init(&listing->shared.closed_signal, 0, 0);
    int rc = listing_make(listing, &own);
    if (rc < 0) {
        listing_free(listing);
        return rc;
    }
    *out_listing = listing;
    return 0;
}

int rg_listing_next(struct rg_listing *listing, struct rg_cq *cq, uint64_t user_data)
{
    struct rg_request *request;
    if (atomic_exchange_explicit(&listing->shared.busy, true, memory_order_acquire)) {
        return -EBUSY;
    }
    int rc = rg_client_reserve(listing->client, cq, &request);
    if (rc < 0) {
        atomic_store_explicit(&listing->shared.busy, false, memory_order_release);
        return rc;
    }
    const struct rg_list_request *list = &listing->question.list;
    strcpy(request->bucket, list->bucket);
    strcpy(request->object, list->prefix != NULL ? list->prefix : "");
    rg_request_prepare(request, &next_ops, user_data, 0);
    request->listing = listing;
    request->client_loop = listing->client_loop;
    rg_loop_post(request->client_loop->loop, &request->mail);
    return 0;
}

static void close_run(void *context)
{
    struct rg_listing *listing = context;
    listing->closing = true;
    if (listing->next != NULL) {
        next_cancel(listing->next, RG_STATUS_CANCELLED);
    }
    /* `done` of each may come now or later; the last one says that all is over. */
    listing->out_count++;
    for (uint32_t i = 0; i < listing->slot_count; i++) {
        struct slot *slot = &listing->slots[i];
        if (slot->state == SLOT_OUT) {
            rg_request_cancel(&slot->request, RG_STATUS_CANCELLED);
        } else if (slot->state == SLOT_FULL) {
            rg_lease_release(slot->page.lease);
            free(slot->aside);
            slot->aside = NULL;
            rg_list_remove(&slot->node);
            slot_set_free(slot);
        }
    }
    rg_loop_undefer(&listing->memory_task);
    listing->out_count--;
    listing_closed(listing);
}

void rg_listing_close_begin(struct rg_listing *listing)
{
    rg_loop_call(listing->client_loop->loop, close_run, listing);
}

bool rg_listing_is_closed(const struct rg_listing *listing)
{
    return atomic_load_explicit(&listing->shared.closed, memory_order_acquire);
}

void rg_listing_close_finish(struct rg_listing *listing)
{
    while (sem_wait(&listing->shared.closed_signal) < 0) {
        RG_ASSERT(errno == EINTR);
    }
    /* Whoever posted it has returned then, too. */
    rg_client_await_completions(listing->client_loop);
    listing_free(listing);
}

void rg_listing_close(struct rg_listing *listing)
{
    if (listing == NULL || rg_runtime_check(listing->client->runtime) < 0) {
        return;
    }
    rg_listing_close_begin(listing);
    rg_listing_close_finish(listing);
}

bool rg_object_is_folder_marker(const struct rg_object *object)
{
    size_t size = strlen(object->name);
    return object->size == 0 && size > 0 && object->name[size - 1] == '/';
}
