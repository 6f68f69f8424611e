/* See delivery.h. */
#include "gcs/listing/delivery.h"

#include <stdlib.h>
#include <string.h>

/* Which part of the loop's memory pages may fill while they wait for their turn. */
#define WAITING_SHARE 4
/* A page is counted as at least this much, because it may keep a whole chunk of that memory from
 * others. */
#define COUNTED_MIN RG_MIB(2)

void rg_delivery_init(struct rg_delivery *delivery, struct rg_loop *loop, struct rg_space *space,
                      bool ordered, struct rg_task *memory)
{
    *delivery =
        (struct rg_delivery){.loop = loop, .space = space, .ordered = ordered, .memory = memory};
    rg_list_init(&delivery->ready);
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

/* A waiting page is in a lease or on the heap, and only one in a lease is counted. */
static bool invariants(const struct rg_delivery *delivery, const struct rg_waiting_page *page)
{
    bool is_leased = page->completion.lease != NULL;
    return is_leased == (page->heap == NULL) && (is_leased || page->counted == 0) &&
           rg_list_linked(&page->node) && page->counted <= delivery->counted;
}

/* Counts a page whose turn has not come, or moves it to the heap where it would be too much. */
static void page_make_wait(struct rg_delivery *delivery, struct rg_waiting_page *page)
{
    uint64_t limit = rg_slab_size_max(delivery->loop->slabs) / WAITING_SHARE;
    uint64_t size = RG_MAX(page->completion.lease->capacity, COUNTED_MIN);
    if (delivery->counted + size > limit) {
        page->heap = malloc(page_size(page->completion.data));
    }
    if (page->heap == NULL) {
        page->counted = size;
        delivery->counted += size;
        return;
    }
    page->completion.data = page_copy(page->completion.data, page->heap);
    rg_lease_release(page->completion.lease);
    page->completion.lease = NULL;
}

void rg_delivery_put(struct rg_delivery *delivery, struct rg_segment *segment,
                     struct rg_waiting_page *page, const struct rg_completion *completion)
{
    RG_ASSERT(!rg_list_linked(&page->node) && page->heap == NULL && page->counted == 0);
    page->completion = *completion;
    struct rg_list *pages = delivery->ordered ? &segment->pages : &delivery->ready;
    bool is_next = segment == rg_space_first(delivery->space) && rg_list_empty(pages);
    rg_list_push_back(pages, &page->node);
    if (delivery->ordered && !is_next) {
        page_make_wait(delivery, page);
    }
    RG_VERIFY(invariants(delivery, page));
}

static struct rg_waiting_page *page_front(const struct rg_list *list)
{
    return rg_list_empty(list) ? NULL : RG_CONTAINER_OF(list->next, struct rg_waiting_page, node);
}

struct rg_waiting_page *rg_delivery_next(struct rg_delivery *delivery)
{
    struct rg_segment *first;
    if (!delivery->ordered) {
        return page_front(&delivery->ready);
    }
    while ((first = rg_space_first(delivery->space)) != NULL) {
        struct rg_waiting_page *page = page_front(&first->pages);
        if (page != NULL || !first->done) {
            return page;
        }
        rg_space_remove(delivery->space, first);
    }
    return NULL;
}

/* It waits no longer. */
static void page_end(struct rg_delivery *delivery, struct rg_waiting_page *page)
{
    RG_ASSERT(delivery->counted >= page->counted);
    rg_list_remove(&page->node);
    delivery->counted -= page->counted;
    page->counted = 0;
    free(page->heap);
    page->heap = NULL;
}

bool rg_delivery_take(struct rg_delivery *delivery, struct rg_waiting_page *page,
                      struct rg_completion *out_completion)
{
    RG_VERIFY(invariants(delivery, page));
    if (page->heap != NULL) {
        if (rg_list_linked(&delivery->memory->node)) {
            return false;
        }
        size_t size = page_size(page->completion.data);
        struct rg_lease *lease = rg_loop_take_slab(delivery->loop, size, delivery->memory);
        if (lease == NULL) {
            return false;
        }
        page->completion.data = page_copy(page->completion.data, lease->data);
        page->completion.lease = lease;
    }
    *out_completion = page->completion;
    page_end(delivery, page);
    return true;
}

void rg_delivery_drop(struct rg_delivery *delivery, struct rg_waiting_page *page)
{
    RG_VERIFY(invariants(delivery, page));
    rg_lease_release(page->completion.lease);
    page_end(delivery, page);
}
