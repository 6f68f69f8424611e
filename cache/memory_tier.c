/* See memory_tier.h. */
#include "cache/memory_tier.h"

#include "cache/files.h"
#include "cache/policy.h"
#include "runtime/clock.h"
#include "runtime/descriptor.h"
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the machine's memory: it stays available. */
#define RESERVE_PART 20
/* Before a segment is asked for again: others have to let go of one, or it is full. */
#define RETRY_SOON_NS (20 * RG_NS_PER_MS)
#define RETRY_LATE_NS RG_NS_PER_S

void rg_memory_trouble(struct rg_memory *memory, const char *what, int error)
{
    rg_memory_count(&memory->counters.errors, 1);
    if (!atomic_exchange_explicit(&memory->counters.has_said, true, memory_order_relaxed)) {
        rg_log(RG_LOG_WARN, "cache in memory: %s (%s); what it has not is read from elsewhere",
               what, rg_error_text(-error));
    }
}

/* The last entry, or lease of one, may be there after the tier was closed. */
static void memory_free(struct rg_memory *memory)
{
    rg_fork_hook_remove(&memory->hook);
    rg_memory_map_fini(&memory->map);
    rg_memory_table_close(&memory->table);
    pthread_cond_destroy(&memory->more);
    pthread_cond_destroy(&memory->flushed);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

void rg_memory_user_end(struct rg_memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    RG_ASSERT(memory->users > 0);
    bool is_last = --memory->users == 0;
    pthread_mutex_unlock(&memory->lock);
    if (is_last) {
        memory_free(memory);
    }
}

/* The line is given up when the memory is: what it counts for, it counts for until then. */
static void entry_end(struct rg_memory_entry *entry)
{
    struct rg_memory *memory = entry->memory;
    RG_ASSERT(entry->state == RG_MEMORY_ENTRY_GONE && entry->copying == 0);
    rg_memory_segment_close(&entry->segment);
    rg_memory_table_let_go(&memory->table, entry->line);
    pthread_mutex_lock(&memory->lock);
    memory->entries[entry->line] = NULL;
    memory->made -= entry->is_made;
    pthread_mutex_unlock(&memory->lock);
    free((void *)entry->checked);
    free(entry);
    rg_memory_user_end(memory);
}

void rg_memory_entry_unref(struct rg_memory_entry *entry)
{
    struct rg_memory *memory = entry->memory;
    pthread_mutex_lock(&memory->lock);
    RG_ASSERT(entry->refs > 0);
    bool is_last = --entry->refs == 0;
    pthread_mutex_unlock(&memory->lock);
    if (is_last) {
        entry_end(entry);
    }
}

struct rg_memory_entry *rg_memory_entry_add_locked(struct rg_memory *memory, uint32_t line,
                                                   const struct rg_memory_segment *segment,
                                                   enum rg_memory_entry_state state)
{
    struct rg_memory_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL) {
        return NULL;
    }
    entry->segment = *segment;
    entry->memory = memory;
    entry->line = line;
    entry->state = state;
    entry->refs = 1;
    entry->limit = segment->size;
    atomic_init(&entry->last_use, rg_memory_get(&memory->clock));
    RG_ASSERT(memory->entries[line] == NULL);
    memory->entries[line] = entry;
    memory->users++;
    return entry;
}

/* Bytes that the machine can still give; UINT64_MAX: it does not say. */
static uint64_t memory_available(void)
{
    char text[512];
    uint64_t total, available;
    rg_fd_hold();
    int fd = rg_fd_track(open("/proc/meminfo", O_RDONLY | O_CLOEXEC));
    rg_fd_release();
    ssize_t size = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    rg_fd_drop(fd);
    text[RG_MAX(size, (ssize_t)0)] = '\0';
    const char *line = strstr(text, "MemAvailable:");
    if (line == NULL || sscanf(text, "MemTotal: %" SCNu64, &total) != 1 ||
        sscanf(line, "MemAvailable: %" SCNu64, &available) != 1) {
        return UINT64_MAX;
    }
    uint64_t reserve = total / RESERVE_PART;
    return RG_KIB(available > reserve ? available - reserve : 0);
}

void rg_memory_clock_tell(struct rg_memory *memory)
{
    uint64_t bytes = atomic_exchange_explicit(&memory->looked_up, 0, memory_order_relaxed);
    uint64_t now = rg_memory_table_tick(&memory->table, bytes);
    atomic_store_explicit(&memory->clock, now, memory_order_relaxed);
}

/* What all lines add up to. */
struct tally {
    uint64_t used, evicted; /* bytes; evicted: of `used`, those that go when all let go of them */
    uint64_t segments;
    uint32_t free_line, oldest; /* UINT32_MAX: none */
    uint64_t oldest_use;
};

/* A line that nobody holds is free: its memory went with its holders. */
static bool line_is_taken(struct rg_memory *memory, uint32_t number)
{
    return memory->entries[number] != NULL || memory->adopting == number ||
           (memory->lines[number].state != RG_MEMORY_FREE &&
            rg_memory_table_is_held(&memory->table, number));
}

static void tally_line(struct rg_memory *memory, struct tally *tally, uint32_t number)
{
    const struct rg_memory_line *line = &memory->lines[number];
    const struct rg_memory_entry *entry = memory->entries[number];
    uint64_t use = RG_MAX(line->last_use, entry != NULL ? rg_memory_get(&entry->last_use) : 0);
    /* More than that is no segment: the file was damaged. */
    uint64_t size = RG_MIN(line->size, (uint64_t)RG_CACHE_SEGMENT_SIZE_MAX);
    tally->used += size;
    tally->segments++;
    tally->evicted += line->state == RG_MEMORY_EVICTED ? size : 0;
    if (line->state == RG_MEMORY_SEALED &&
        (tally->oldest == UINT32_MAX || use < tally->oldest_use)) {
        tally->oldest = number;
        tally->oldest_use = use;
    }
}

/* Of the lines that were read last. */
static struct tally tally_make_locked(struct rg_memory *memory)
{
    struct tally tally = {.free_line = UINT32_MAX, .oldest = UINT32_MAX};
    for (uint32_t i = 0; i < RG_MEMORY_LINES; i++) {
        if (line_is_taken(memory, i)) {
            tally_line(memory, &tally, i);
        } else if (tally.free_line == UINT32_MAX) {
            tally.free_line = i;
        }
    }
    atomic_store_explicit(&memory->counters.size, tally.used, memory_order_relaxed);
    atomic_store_explicit(&memory->counters.segments, tally.segments, memory_order_relaxed);
    return tally;
}

void rg_memory_measure_locked(struct rg_memory *memory)
{
    (void)tally_make_locked(memory);
}

/* All who have it let go of it at their next looks. */
static void line_evict(struct rg_memory *memory, uint32_t number)
{
    struct rg_memory_line line = memory->lines[number];
    line.state = RG_MEMORY_EVICTED;
    if (rg_memory_table_write(&memory->table, number, &line) == 0) {
        rg_memory_count(&memory->counters.evicted, 1);
        memory->looked_ns = 0;
        pthread_cond_signal(&memory->more);
    }
}

/* What the rule says of one more segment. What has been evicted is on its way out, and nothing else
 * has to go before it has gone. */
static int room_ask(struct rg_memory *memory, const struct tally *tally)
{
    struct rg_cache_look look = {
        .size_max = memory->size_max,
        .segment_size = memory->segment_size,
        .used = tally->used - tally->evicted,
        .free = tally->free_line != UINT32_MAX ? memory_available() : 0,
        .clock = rg_memory_get(&memory->clock),
        .has_oldest = tally->oldest != UINT32_MAX,
        .oldest_use = tally->oldest_use,
    };
    enum rg_cache_verdict verdict = rg_cache_decide(&look);
    if (verdict == RG_CACHE_FULL) {
        return -ENOSPC;
    }
    if (verdict == RG_CACHE_REPLACE) {
        line_evict(memory, tally->oldest);
        return -EAGAIN;
    }
    return tally->used + memory->segment_size <= memory->size_max ? 0 : -EAGAIN;
}

/* A line for a new segment, held and owned. With the lock of the table. */
static int line_take(struct rg_memory *memory, uint32_t *out_line, struct rg_cache_nonce *out_nonce)
{
    struct tally tally = tally_make_locked(memory);
    struct rg_memory_line line = {
        .size = memory->segment_size, .state = RG_MEMORY_OPEN, .fd = -1, .pid = getpid()};
    rg_cache_nonce_draw(&line.nonce);
    line.last_use = rg_memory_get(&memory->clock);
    uint32_t number = tally.free_line;
    int rc = room_ask(memory, &tally);
    if (rc < 0) {
        return rc;
    }
    rc = rg_memory_table_hold(&memory->table, number);
    rc = rc == 0 ? rg_memory_table_own(&memory->table, number) : rc;
    rc = rc == 0 ? rg_memory_table_write(&memory->table, number, &line) : rc;
    if (rc < 0) {
        rg_memory_table_let_go(&memory->table, number);
        return rc;
    }
    *out_line = number;
    *out_nonce = line.nonce;
    return 0;
}

static int line_claim_locked(struct rg_memory *memory, uint32_t *out_line,
                             struct rg_cache_nonce *out_nonce)
{
    int rc = rg_memory_table_lock(&memory->table);
    if (rc < 0) {
        return rc;
    }
    rg_memory_clock_tell(memory);
    rc = rg_memory_table_read(&memory->table, 0, RG_MEMORY_LINES, memory->lines);
    rc = rc == 0 ? line_take(memory, out_line, out_nonce) : rc;
    rg_memory_table_unlock(&memory->table);
    return rc;
}

struct rg_memory_entry *rg_memory_entry_make_locked(struct rg_memory *memory)
{
    struct rg_memory_segment segment = {.fd = -1};
    struct rg_memory_entry *entry = NULL;
    struct rg_cache_nonce nonce;
    uint32_t line = 0;
    if (rg_now_ns() < memory->retry_ns || memory->made >= memory->descriptors_max) {
        return NULL;
    }
    int rc = line_claim_locked(memory, &line, &nonce);
    if (rc < 0) {
        memory->retry_ns = rg_now_ns() + (rc == -EAGAIN ? RETRY_SOON_NS : RETRY_LATE_NS);
        return NULL;
    }
    rc = rg_memory_segment_make(&segment, &nonce, memory->segment_size);
    if (rc == 0) {
        entry = rg_memory_entry_add_locked(memory, line, &segment, RG_MEMORY_ENTRY_FILLING);
    }
    if (entry == NULL) {
        rg_memory_trouble(memory, "no memory can be had", rc < 0 ? rc : -ENOMEM);
        rg_memory_segment_close(&segment);
        rg_memory_table_let_go(&memory->table, line);
        memory->retry_ns = rg_now_ns() + RETRY_LATE_NS;
        return NULL;
    }
    entry->is_owned = entry->is_made = true;
    memory->made++;
    return entry;
}

void rg_memory_filling_end_locked(struct rg_memory *memory)
{
    memory->filling->state = RG_MEMORY_ENTRY_FULL;
    memory->filling = NULL;
    memory->full++;
    pthread_cond_signal(&memory->more);
}
