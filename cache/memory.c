/* See memory.h. */
#include "cache/memory.h"

#include "cache/memory_keeper.h"
#include "cache/memory_tier.h"
#include "runtime/clock.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/slab.h"
#include "runtime/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Of a budget; fewer where so many descriptors are too many. */
#define SEGMENTS_WANTED 256
#define SEGMENT_SIZE_MIN RG_MIB(2)
/* Of the descriptors that the process may have. */
#define DESCRIPTORS_PART 4
/* After a write that failed. */
#define RETRY_NS RG_NS_PER_S

/* A place for a record; NULL: there is none. */
static struct rg_memory_entry *place_take_locked(struct rg_memory *memory, size_t size,
                                                 uint32_t *out_place)
{
    for (unsigned i = 0; i < 2; i++) {
        struct rg_memory_entry *entry = memory->filling;
        if (entry == NULL) {
            entry = memory->next != NULL ? memory->next : rg_memory_entry_make_locked(memory);
            memory->next = NULL;
            memory->filling = entry;
        }
        uint32_t place = entry != NULL ? rg_memory_segment_reserve(&entry->segment, size) : 0;
        if (place != 0) {
            entry->begun_ns = entry->begun_ns != 0 ? entry->begun_ns : rg_now_ns();
            entry->copying++;
            *out_place = place;
            return entry;
        }
        if (entry == NULL) {
            return NULL;
        }
        rg_memory_filling_end_locked(memory);
    }
    return NULL;
}

/* It was copied, or that failed. */
static void copy_end(struct rg_memory *memory, struct rg_memory_entry *entry,
                     const struct rg_cache_content *content, int rc)
{
    pthread_mutex_lock(&memory->lock);
    rc = rc == 0 ? rg_memory_segment_list(&entry->segment, content) : rc;
    if (rc == 0) {
        struct rg_memory_slot slot = {content->hash, content->place, entry->line};
        rg_memory_map_insert(&memory->map, &slot);
    } else {
        rg_memory_trouble(memory, "it cannot be written", rc);
        memory->retry_ns = rg_now_ns() + RETRY_NS;
    }
    RG_ASSERT(entry->copying > 0);
    entry->copying--;
    if (rc < 0 && entry == memory->filling) {
        rg_memory_filling_end_locked(memory);
    }
    bool is_half = entry->segment.end > memory->segment_size / 2 && !entry->has_asked;
    if (entry->state == RG_MEMORY_ENTRY_FULL ? entry->copying == 0 : is_half) {
        entry->has_asked = true;
        pthread_cond_signal(&memory->more);
    }
    pthread_mutex_unlock(&memory->lock);
}

bool rg_memory_put(struct rg_memory *memory, const struct rg_cache_key *key,
                   const struct rg_cache_record *record, const uint8_t *body, size_t body_size)
{
    struct rg_cache_key_sizes sizes;
    uint8_t header[RG_CACHE_HEADER_SIZE_MAX];
    RG_ASSERT(body_size <= RG_CACHE_BLOCK_SIZE);
    rg_memory_count(&memory->looked_up, body_size);
    if (!rg_cache_key_measure(key, &sizes)) {
        return false;
    }
    uint64_t hash = rg_cache_key_hash(key, &sizes);
    size_t header_size = rg_cache_header_size(&sizes, body_size);
    struct rg_cache_content content = {.hash = hash, .size = (uint32_t)(header_size + body_size)};
    pthread_mutex_lock(&memory->lock);
    bool is_there = rg_memory_map_find(&memory->map, hash) != NULL;
    struct rg_memory_entry *entry =
        is_there ? NULL : place_take_locked(memory, content.size, &content.place);
    pthread_mutex_unlock(&memory->lock);
    if (entry == NULL) {
        rg_memory_count(&memory->counters.not_admitted, !is_there);
        return is_there;
    }
    rg_cache_header_write(key, &sizes, hash, record, body, body_size, header);
    int rc =
        rg_memory_segment_put(&entry->segment, content.place, header, header_size, body, body_size);
    copy_end(memory, entry, &content, rc);
    rg_memory_count(&memory->counters.written, rc == 0);
    rg_memory_count(&memory->counters.written_bytes, rc == 0 ? body_size : 0);
    return rc == 0;
}

/* What is found of a hash, and stays until it is let go of. */
struct pin {
    struct rg_memory_entry *entry;
    const uint8_t *bytes;
    uint64_t limit; /* of bytes */
    uint32_t place;
    bool is_sealed;
};

static bool pin_take(struct rg_memory *memory, uint64_t hash, struct pin *out_pin)
{
    pthread_mutex_lock(&memory->lock);
    const struct rg_memory_slot *slot = rg_memory_map_find(&memory->map, hash);
    struct rg_memory_entry *entry = slot != NULL ? memory->entries[slot->line] : NULL;
    if (entry != NULL) {
        uint64_t offset = (uint64_t)slot->place * RG_CACHE_UNIT;
        RG_ASSERT(entry->state != RG_MEMORY_ENTRY_GONE && offset < entry->limit);
        entry->refs++;
        *out_pin = (struct pin){
            .entry = entry,
            .bytes = entry->segment.data + offset,
            .limit = entry->limit - offset,
            .place = slot->place,
            .is_sealed = entry->state == RG_MEMORY_ENTRY_SEALED,
        };
    }
    pthread_mutex_unlock(&memory->lock);
    return entry != NULL;
}

/* What this process has compared once is right for ever where nobody can change it. */
static int body_check(const struct pin *pin, const struct rg_cache_record *record)
{
    const uint8_t *body = pin->bytes + record->header_size;
    _Atomic uint64_t *word = pin->is_sealed && pin->entry->checked != NULL
                                 ? &pin->entry->checked[pin->place / RG_MEMORY_WORD_BITS]
                                 : NULL;
    uint64_t bit = UINT64_C(1) << pin->place % RG_MEMORY_WORD_BITS;
    if (word != NULL && (atomic_load_explicit(word, memory_order_relaxed) & bit) != 0) {
        return 0;
    }
    int rc = rg_cache_body_check(record, 0, body, record->body_size);
    if (rc == 0 && word != NULL) {
        atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
    }
    return rc;
}

/* 0; -EBADMSG: it is damaged; -ENOENT: it is another key's. */
static int record_open(const struct pin *pin, const struct rg_cache_key *key,
                       struct rg_cache_record *out_record)
{
    struct rg_cache_key found;
    struct rg_cache_record record;
    uint64_t hash;
    size_t size = (size_t)RG_MIN(pin->limit, (uint64_t)RG_CACHE_HEADER_SIZE_MAX);
    if (rg_cache_header_read(pin->bytes, size, &found, &record, &hash) < 0 ||
        record.header_size + (uint64_t)record.body_size > pin->limit) {
        return -EBADMSG;
    }
    if (!rg_cache_key_is_same(&found, key)) {
        return -ENOENT;
    }
    *out_record = record;
    return body_check(pin, &record);
}

static void hash_forget(struct rg_memory *memory, uint64_t hash)
{
    pthread_mutex_lock(&memory->lock);
    rg_memory_map_remove(&memory->map, hash);
    pthread_mutex_unlock(&memory->lock);
}

static void record_bad(struct rg_memory *memory, uint64_t hash)
{
    struct rg_memory_counters *counters = &memory->counters;
    rg_memory_count(&counters->bad_records, 1);
    hash_forget(memory, hash);
    if (!atomic_exchange_explicit(&counters->has_said_damage, true, memory_order_relaxed)) {
        rg_log(RG_LOG_WARN,
               "cache in memory: a record is damaged, and is read from elsewhere again");
    }
}

bool rg_memory_find(struct rg_memory *memory, const struct rg_cache_key *key,
                    struct rg_memory_block *out_block)
{
    struct rg_cache_key_sizes sizes;
    struct rg_cache_record record;
    struct pin pin;
    uint64_t hash = rg_cache_key_measure(key, &sizes) ? rg_cache_key_hash(key, &sizes) : 0;
    if (hash == 0 || !pin_take(memory, hash, &pin)) {
        rg_memory_count(&memory->counters.misses, 1);
        return false;
    }
    int rc = record_open(&pin, key, &record);
    if (rc < 0) {
        if (rc == -EBADMSG) {
            record_bad(memory, hash);
        }
        rg_memory_entry_unref(pin.entry);
        rg_memory_count(&memory->counters.misses, 1);
        return false;
    }
    atomic_store_explicit(&pin.entry->last_use, rg_memory_get(&memory->clock),
                          memory_order_relaxed);
    rg_memory_count(&memory->counters.hits, 1);
    rg_memory_count(&memory->counters.hit_bytes, record.body_size);
    rg_memory_count(&memory->looked_up, record.body_size);
    *out_block = (struct rg_memory_block){record, pin.bytes + record.header_size, pin.entry};
    return true;
}

void rg_memory_drop(struct rg_memory *memory, struct rg_memory_block *block)
{
    RG_ASSERT(block->entry->memory == memory);
    rg_memory_entry_unref(block->entry);
    block->entry = NULL;
}

bool rg_memory_has(struct rg_memory *memory, const struct rg_cache_key *key)
{
    struct rg_cache_key_sizes sizes;
    if (!rg_cache_key_measure(key, &sizes)) {
        return false;
    }
    uint64_t hash = rg_cache_key_hash(key, &sizes);
    pthread_mutex_lock(&memory->lock);
    bool found = rg_memory_map_find(&memory->map, hash) != NULL;
    pthread_mutex_unlock(&memory->lock);
    return found;
}

struct lent {
    struct rg_lease lease;
    struct rg_memory_entry *entry;
};

/* Any thread. A child of fork leaves the books to its parent. */
static void lent_release(struct rg_lease *lease)
{
    struct lent *lent = RG_CONTAINER_OF(lease, struct lent, lease);
    if (lent->entry->memory->fork_generation == rg_fork_generation()) {
        rg_memory_entry_unref(lent->entry);
        free(lent);
    }
}

struct rg_lease *rg_memory_lease(struct rg_memory *memory, const struct rg_memory_block *block,
                                 uint32_t first, size_t size)
{
    RG_ASSERT(first <= block->record.body_size && size <= block->record.body_size - first);
    struct lent *lent =
        aligned_alloc(RG_CACHE_LINE, rg_cache_round_up(sizeof(*lent), RG_CACHE_LINE));
    if (lent == NULL) {
        return NULL;
    }
    rg_lease_lend(&lent->lease, block->body + first, size, lent_release);
    lent->entry = block->entry;
    pthread_mutex_lock(&memory->lock);
    block->entry->refs++;
    pthread_mutex_unlock(&memory->lock);
    return &lent->lease;
}

void rg_memory_forget(struct rg_memory *memory, const struct rg_cache_key *key)
{
    struct rg_cache_key_sizes sizes;
    if (rg_cache_key_measure(key, &sizes)) {
        hash_forget(memory, rg_cache_key_hash(key, &sizes));
    }
}

void rg_memory_flush(struct rg_memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    uint64_t mine = ++memory->flushes_wanted;
    pthread_cond_signal(&memory->more);
    while (memory->flushes_done < mine) {
        pthread_cond_wait(&memory->flushed, &memory->lock);
    }
    pthread_mutex_unlock(&memory->lock);
}

static uint32_t descriptors_limit(void)
{
    struct rlimit limit;
    rlim_t all = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
    rlim_t most = RG_MIN(all / DESCRIPTORS_PART, (rlim_t)RG_MEMORY_LINES);
    return (uint32_t)RG_MAX(most, (rlim_t)2);
}

static void memory_init(struct rg_memory *memory, uint64_t size)
{
    pthread_condattr_t monotonic;
    memory->descriptors_max = descriptors_limit();
    uint64_t wanted = RG_MIN(memory->descriptors_max, (uint32_t)SEGMENTS_WANTED);
    uint64_t segment_size = size / wanted / RG_CACHE_ALIGNMENT * RG_CACHE_ALIGNMENT;
    segment_size = RG_MAX(segment_size, (uint64_t)SEGMENT_SIZE_MIN);
    memory->size_max = size;
    memory->segment_size = RG_MIN(segment_size, (uint64_t)RG_CACHE_SEGMENT_SIZE_MAX);
    if (memory->segment_size * memory->descriptors_max < size / 2) {
        rg_log(RG_LOG_WARN,
               "cache in memory: this process can fill less than half of its %llu bytes, with a "
               "segment for each of %u descriptors; ulimit -n raises that, up to %u",
               (unsigned long long)size, memory->descriptors_max, 1U * RG_MEMORY_LINES);
    }
    memory->adopting = UINT32_MAX;
    memory->users = 1;
    pthread_mutex_init(&memory->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&memory->more, &monotonic);
    pthread_cond_init(&memory->flushed, NULL);
    pthread_condattr_destroy(&monotonic);
}

/* A child has no lines, and would keep memory that nobody counts. What it may still read is what it
 * has leases of. */
static void child_begin(struct rg_fork_hook *hook)
{
    struct rg_memory *memory = RG_CONTAINER_OF(hook, struct rg_memory, hook);
    for (uint32_t i = 0; i < RG_MEMORY_LINES; i++) {
        struct rg_memory_entry *entry = memory->entries[i];
        if (entry != NULL && entry->refs <= (entry->state != RG_MEMORY_ENTRY_GONE)) {
            rg_memory_segment_unmap(&entry->segment);
        }
    }
}

/* Shared where that can be had, else of this process alone. */
static int table_open(struct rg_memory *memory, const char *share, char *why, size_t why_size)
{
    int rc = share != NULL ? rg_memory_table_open(&memory->table, share, why, why_size) : -ENOENT;
    if (rc < 0 && share != NULL) {
        rg_log(RG_LOG_WARN, "cache in memory: each process has its own: %s", why);
    }
    return rc == 0 ? 0 : rg_memory_table_open(&memory->table, NULL, why, why_size);
}

int rg_memory_open(struct rg_memory **out_memory, const struct rg_memory_options *options,
                   char *why, size_t why_size)
{
    uint32_t generation = rg_fork_generation();
    if (options->size < RG_MEMORY_SIZE_MIN) {
        snprintf(why, why_size,
                 "a cache in memory has at least 16 MiB, and this one would have %llu",
                 (unsigned long long)options->size);
        return -EINVAL;
    }
    struct rg_memory *memory = generation != 0 ? calloc(1, sizeof(*memory)) : NULL;
    if (memory == NULL) {
        snprintf(why, why_size, "there is no memory");
        return -ENOMEM;
    }
    memory_init(memory, options->size);
    memory->fork_generation = generation;
    memory->table.fd = -1;
    int rc = table_open(memory, options->share, why, why_size);
    memory->hook.child = child_begin;
    rc = rc == 0 ? rg_fork_hook_add(&memory->hook) : rc;
    if (rc == 0) {
        rc = rg_thread_start(&memory->thread, 0, rg_memory_keeper_main, memory);
    }
    if (rc < 0) {
        snprintf(why, why_size, "the cache in memory cannot be opened: %s", rg_error_text(-rc));
        rg_memory_user_end(memory);
        return rc;
    }
    *out_memory = memory;
    return 0;
}

void rg_memory_close(struct rg_memory *memory)
{
    /* A child has neither the thread nor the descriptors; its memory stays as it is. */
    if (memory == NULL || memory->fork_generation != rg_fork_generation()) {
        return;
    }
    pthread_mutex_lock(&memory->lock);
    memory->stopping = true;
    pthread_cond_signal(&memory->more);
    pthread_mutex_unlock(&memory->lock);
    pthread_join(memory->thread, NULL);
    for (uint32_t i = 0; i < RG_MEMORY_LINES; i++) {
        pthread_mutex_lock(&memory->lock);
        struct rg_memory_entry *entry = memory->entries[i];
        bool is_gone = entry == NULL || entry->state == RG_MEMORY_ENTRY_GONE;
        if (!is_gone) {
            entry->state = RG_MEMORY_ENTRY_GONE;
        }
        pthread_mutex_unlock(&memory->lock);
        if (!is_gone) {
            rg_memory_entry_unref(entry);
        }
    }
    rg_memory_user_end(memory);
}

void rg_memory_stats(struct rg_memory *memory, struct rg_memory_stats *out_stats)
{
    const struct rg_memory_counters *counters = &memory->counters;
    pthread_mutex_lock(&memory->lock);
    size_t objects = memory->map.count;
    pthread_mutex_unlock(&memory->lock);
    *out_stats = (struct rg_memory_stats){
        .hits = rg_memory_get(&counters->hits),
        .hit_bytes = rg_memory_get(&counters->hit_bytes),
        .misses = rg_memory_get(&counters->misses),
        .written = rg_memory_get(&counters->written),
        .written_bytes = rg_memory_get(&counters->written_bytes),
        .not_admitted = rg_memory_get(&counters->not_admitted),
        .bad_records = rg_memory_get(&counters->bad_records),
        .evicted = rg_memory_get(&counters->evicted),
        .errors = rg_memory_get(&counters->errors),
        .size = rg_memory_get(&counters->size),
        .size_max = memory->size_max,
        .segments = rg_memory_get(&counters->segments),
        .objects = objects,
    };
}
