/* See batch.h. */
#include "cache/batch.h"

#include "runtime/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Linux 5.14; the C library of an older build machine may lack the name. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Of a segment. */
#define SEGMENT_PART 8

static size_t batch_size_of(uint64_t segment_size)
{
    uint64_t size = segment_size / SEGMENT_PART / RG_CACHE_BATCH_SIZE_MIN * RG_CACHE_BATCH_SIZE_MIN;
    size = RG_MAX(size, (uint64_t)RG_CACHE_BATCH_SIZE_MIN);
    return (size_t)RG_MIN(size, (uint64_t)RG_CACHE_BATCH_SIZE_MAX);
}

void rg_cache_batches_init(struct rg_cache_batches *batches, uint64_t segment_size)
{
    pthread_condattr_t monotonic;
    *batches = (struct rg_cache_batches){.batch_size = batch_size_of(segment_size)};
    pthread_mutex_init(&batches->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&batches->more, &monotonic);
    pthread_condattr_destroy(&monotonic);
    rg_list_init(&batches->free);
    rg_list_init(&batches->full);
    for (unsigned i = 0; i < RG_CACHE_BATCH_COUNT; i++) {
        rg_list_push_back(&batches->free, &batches->all[i].node);
    }
}

void rg_cache_batches_fini(struct rg_cache_batches *batches)
{
    for (unsigned i = 0; i < RG_CACHE_BATCH_COUNT; i++) {
        RG_ASSERT(batches->all[i].copying == 0);
        free(batches->all[i].data);
        free(batches->all[i].contents);
    }
    pthread_cond_destroy(&batches->more);
    pthread_mutex_destroy(&batches->lock);
}

/* Of huge pages where the system has them: a direct write handles each page by itself. */
static uint8_t *data_alloc(size_t size)
{
    uint8_t *data = aligned_alloc(RG_CACHE_BATCH_SIZE_MIN, size);
    if (data != NULL) {
        (void)madvise(data, size, MADV_HUGEPAGE);
    }
    return data;
}

static bool batch_ready(const struct rg_cache_batches *batches, struct rg_cache_batch *batch)
{
    if (batch->data == NULL) {
        batch->data = data_alloc(batches->batch_size);
    }
    if (batch->contents == NULL) {
        batch->contents = calloc(RG_CACHE_BATCH_RECORDS, sizeof(*batch->contents));
    }
    return batch->data != NULL && batch->contents != NULL;
}

/* Whoever fills the next one would wait until the system has found memory for it. */
static bool next_is_wanted_locked(const struct rg_cache_batches *batches)
{
    return batches->filling != NULL && !rg_list_empty(&batches->free) &&
           RG_CONTAINER_OF(batches->free.next, struct rg_cache_batch, node)->data == NULL;
}

/* It stays free meanwhile: what finds no other one fills it at the same time, rather than be
 * dropped. Populating changes no byte, and only this thread writes batches and gives them back. */
bool rg_cache_batches_prepare_locked(struct rg_cache_batches *batches)
{
    if (!next_is_wanted_locked(batches)) {
        return false;
    }
    struct rg_cache_batch *batch = RG_CONTAINER_OF(batches->free.next, struct rg_cache_batch, node);
    if (!batch_ready(batches, batch)) {
        rg_list_remove(&batch->node);
        rg_list_push_back(&batches->free, &batch->node);
        return false;
    }
    uint8_t *data = batch->data;
    pthread_mutex_unlock(&batches->lock);
    (void)madvise(data, batches->batch_size, MADV_POPULATE_WRITE);
    pthread_mutex_lock(&batches->lock);
    return true;
}

static void close_locked(struct rg_cache_batches *batches)
{
    rg_list_push_back(&batches->full, &batches->filling->node);
    batches->filling = NULL;
    pthread_cond_broadcast(&batches->more);
}

/* The batch that takes a record of that size; NULL: none. */
static struct rg_cache_batch *fill_locked(struct rg_cache_batches *batches, size_t size)
{
    struct rg_cache_batch *batch = batches->filling;
    if (batch != NULL &&
        (batch->size + size > batches->batch_size || batch->count == RG_CACHE_BATCH_RECORDS)) {
        close_locked(batches);
        batch = NULL;
    }
    if (batch != NULL) {
        return batch;
    }
    /* The one that was written last is still in the CPU's cache, in part. */
    struct rg_list *node = rg_list_pop_front(&batches->free);
    if (node == NULL) {
        return NULL;
    }
    batch = RG_CONTAINER_OF(node, struct rg_cache_batch, node);
    if (!batch_ready(batches, batch)) {
        rg_list_push_back(&batches->free, node);
        return NULL;
    }
    batch->size = 0;
    batch->count = batch->records = 0;
    batch->begun_ns = rg_now_ns();
    batches->filling = batch;
    if (next_is_wanted_locked(batches)) {
        pthread_cond_broadcast(&batches->more);
    }
    return batch;
}

bool rg_cache_batches_put(struct rg_cache_batches *batches, const struct rg_cache_key *key,
                          const struct rg_cache_key_sizes *sizes, uint64_t hash,
                          const struct rg_cache_record *record, const uint8_t *body,
                          size_t body_size)
{
    size_t header_size = rg_cache_header_size(sizes, body_size);
    size_t size = header_size + body_size, room = rg_cache_round_up(size, RG_CACHE_UNIT);
    pthread_mutex_lock(&batches->lock);
    struct rg_cache_batch *batch = fill_locked(batches, room);
    if (batch == NULL) {
        pthread_mutex_unlock(&batches->lock);
        return false;
    }
    uint8_t *to = batch->data + batch->size;
    batch->contents[batch->count++] = (struct rg_cache_content){
        .hash = hash,
        .place = (uint32_t)(batch->size / RG_CACHE_UNIT),
        .size = (uint32_t)size,
    };
    batch->size += room;
    batch->records++;
    batch->copying++;
    pthread_mutex_unlock(&batches->lock);
    rg_cache_header_write(key, sizes, hash, record, body, body_size, to);
    if (body_size > 0) {
        memcpy(to + header_size, body, body_size);
    }
    memset(to + size, 0, room - size);
    pthread_mutex_lock(&batches->lock);
    batch->copying--;
    if (batch->copying == 0 && batch != batches->filling) {
        pthread_cond_broadcast(&batches->more);
    }
    pthread_mutex_unlock(&batches->lock);
    return true;
}

void rg_cache_batches_note(struct rg_cache_batches *batches, const struct rg_cache_content *notes,
                           uint32_t count)
{
    pthread_mutex_lock(&batches->lock);
    struct rg_cache_batch *batch = batches->filling;
    if (batch != NULL && count <= RG_CACHE_BATCH_RECORDS - batch->count) {
        memcpy(batch->contents + batch->count, notes, count * sizeof(*notes));
        batch->count += count;
    }
    pthread_mutex_unlock(&batches->lock);
}

struct rg_cache_batch *rg_cache_batches_take_locked(struct rg_cache_batches *batches)
{
    if (rg_list_empty(&batches->full)) {
        return NULL;
    }
    struct rg_cache_batch *batch = RG_CONTAINER_OF(batches->full.next, struct rg_cache_batch, node);
    if (batch->copying > 0) {
        return NULL;
    }
    rg_list_remove(&batch->node);
    batches->writing++;
    size_t end = rg_cache_round_up(batch->size, RG_CACHE_ALIGNMENT);
    memset(batch->data + batch->size, 0, end - batch->size);
    batch->size = end;
    return batch;
}

void rg_cache_batches_give_locked(struct rg_cache_batches *batches, struct rg_cache_batch *batch)
{
    RG_ASSERT(batches->writing > 0);
    batches->writing--;
    rg_list_push_front(&batches->free, &batch->node);
}

void rg_cache_batches_close_locked(struct rg_cache_batches *batches, uint64_t begun_before_ns)
{
    if (batches->filling != NULL && batches->filling->begun_ns <= begun_before_ns) {
        close_locked(batches);
    }
}

bool rg_cache_batches_are_empty_locked(const struct rg_cache_batches *batches)
{
    return batches->filling == NULL && rg_list_empty(&batches->full) && batches->writing == 0;
}
