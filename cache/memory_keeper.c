/* See memory_keeper.h. */
#include "cache/memory_keeper.h"

#include "cache/memory_tier.h"
#include "runtime/clock.h"
#include "runtime/descriptor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is sealed because of its age is no smaller part of what this process has sealed: there are
 * few segments, also where little is read at a time. */
#define AGED_PART 8
/* Another process has the table for less than that. */
#define RETRY_LOCK_NS RG_NS_PER_MS

/* Without memory each read is checked. */
static _Atomic uint64_t *bits_make(uint64_t size)
{
    return calloc(size / RG_CACHE_UNIT / RG_MEMORY_WORD_BITS + 1, sizeof(uint64_t));
}

/* Tells the others where it is. `state`: what the line has to be in; else -ENOENT. */
static int line_announce_locked(struct rg_memory *memory, const struct rg_memory_entry *entry,
                                enum rg_memory_state state)
{
    struct rg_memory_line before;
    struct rg_memory_line line = {
        .nonce = entry->segment.nonce,
        .size = entry->segment.size,
        .last_use = rg_memory_get(&entry->last_use),
        .state = RG_MEMORY_SEALED,
        .pid = getpid(),
        .fd = entry->segment.fd,
    };
    int rc = rg_memory_table_lock(&memory->table);
    if (rc < 0) {
        return rc;
    }
    rc = rg_memory_table_read(&memory->table, entry->line, 1, &before);
    bool is_same = rc == 0 && before.state == (uint32_t)state &&
                   memcmp(&before.nonce, &line.nonce, sizeof(line.nonce)) == 0;
    rc = is_same ? rg_memory_table_write(&memory->table, entry->line, &line) : -ENOENT;
    rg_memory_table_unlock(&memory->table);
    return rc;
}

/* What is sealed and not announced is tried again. */
static int entry_seal(struct rg_memory *memory, struct rg_memory_entry *entry)
{
    struct rg_memory_segment *segment = &entry->segment;
    int rc = segment->is_sealed ? 0 : rg_memory_segment_seal(segment);
    _Atomic uint64_t *bits = rc == 0 ? bits_make(segment->size) : NULL;
    pthread_mutex_lock(&memory->lock);
    rc = rc == 0 ? line_announce_locked(memory, entry, RG_MEMORY_OPEN) : rc;
    if (rc == 0 || rc == -ENOENT) { /* -ENOENT: the table was damaged, and others do not see it */
        entry->limit = segment->size;
        entry->checked = bits;
        entry->state = RG_MEMORY_ENTRY_SEALED;
        memory->full--;
        memory->sealed += segment->size;
    }
    pthread_mutex_unlock(&memory->lock);
    if (rc < 0 && rc != -ENOENT) {
        free((void *)bits);
    }
    return rc;
}

/* The next one that nobody copies to, from a line on. */
static struct rg_memory_entry *full_find_locked(const struct rg_memory *memory, uint32_t from)
{
    for (uint32_t i = from; memory->full > 0 && i < RG_MEMORY_LINES; i++) {
        struct rg_memory_entry *entry = memory->entries[i];
        if (entry != NULL && entry->state == RG_MEMORY_ENTRY_FULL && entry->copying == 0) {
            return entry;
        }
    }
    return NULL;
}

/* With the lock, which is given up meanwhile. Each is tried once. 0; or what went wrong last:
 * -EAGAIN: another process has the table just now. */
static int seal_step_locked(struct rg_memory *memory)
{
    int worst = 0;
    uint32_t from = 0;
    for (struct rg_memory_entry *entry; (entry = full_find_locked(memory, from)) != NULL;) {
        from = entry->line + 1;
        pthread_mutex_unlock(&memory->lock);
        int rc = entry_seal(memory, entry);
        if (rc < 0 && rc != -EAGAIN && rc != -EBUSY) {
            rg_memory_trouble(memory, "it cannot be sealed", rc);
        }
        worst = rc < 0 ? rc : worst;
        pthread_mutex_lock(&memory->lock);
    }
    return worst;
}

/* Whoever owned it has ended: the others find it by this process from now on. */
static void line_take_over_locked(struct rg_memory *memory, struct rg_memory_entry *entry)
{
    bool may = entry->state == RG_MEMORY_ENTRY_SEALED && !entry->is_owned && entry->segment.fd >= 0;
    if (may && !rg_memory_table_is_owned(&memory->table, entry->line) &&
        rg_memory_table_own(&memory->table, entry->line) == 0) {
        entry->is_owned = line_announce_locked(memory, entry, RG_MEMORY_SEALED) == 0;
    }
}

/* True: the entry is to be let go of. */
static bool entry_look_locked(struct rg_memory *memory, struct rg_memory_entry *entry)
{
    const struct rg_memory_line *line = &memory->lines[entry->line];
    bool is_same = memcmp(&line->nonce, &entry->segment.nonce, sizeof(line->nonce)) == 0;
    if (entry->state != RG_MEMORY_ENTRY_SEALED) {
        return false;
    }
    if (!is_same || line->state != RG_MEMORY_SEALED) {
        rg_memory_map_remove_line(&memory->map, entry->line);
        entry->state = RG_MEMORY_ENTRY_GONE;
        return true;
    }
    uint64_t use = rg_memory_get(&entry->last_use);
    if (use > entry->noted_use) {
        entry->noted_use = use;
        rg_memory_table_note(&memory->table, entry->line, use);
    }
    line_take_over_locked(memory, entry);
    return false;
}

/* Without its descriptor it is read all the same, but cannot be taken over. */
static bool descriptor_keep(struct rg_memory *memory, struct rg_memory_segment *segment)
{
    if (memory->descriptors < memory->descriptors_max) {
        memory->descriptors++;
        return true;
    }
    rg_fd_drop(segment->fd);
    segment->fd = -1;
    return false;
}

/* Maps what another process has sealed. Its line is held. 0 or a negative errno. */
static int line_adopt(struct rg_memory *memory, uint32_t number)
{
    struct rg_memory_segment segment;
    struct rg_memory_line line;
    const struct rg_cache_content *contents;
    uint32_t count_all;
    int rc = rg_memory_table_read(&memory->table, number, 1, &line);
    if (rc < 0 || line.state != RG_MEMORY_SEALED ||
        memcmp(&line.nonce, &memory->looked[number].nonce, sizeof(line.nonce)) != 0) {
        return -ENOENT;
    }
    rc = rg_memory_segment_adopt(&segment, &line, &contents, &count_all);
    if (rc < 0) {
        return rc;
    }
    bool is_counted = descriptor_keep(memory, &segment);
    _Atomic uint64_t *bits = bits_make(segment.size);
    pthread_mutex_lock(&memory->lock);
    struct rg_memory_entry *entry =
        rg_memory_entry_add_locked(memory, number, &segment, RG_MEMORY_ENTRY_SEALED);
    for (uint32_t i = 0; entry != NULL && i < count_all; i++) {
        struct rg_memory_slot slot = {contents[i].hash, contents[i].place, number};
        rg_memory_map_insert(&memory->map, &slot);
    }
    if (entry != NULL) {
        entry->checked = bits;
        entry->is_counted = is_counted;
    }
    pthread_mutex_unlock(&memory->lock);
    if (entry == NULL) {
        memory->descriptors -= is_counted;
        rg_memory_segment_close(&segment);
        free((void *)bits);
        return -ENOMEM;
    }
    return 0;
}

/* Who has been killed between two steps leaves a line whose memory is gone, which is none. */
static void line_look(struct rg_memory *memory, uint32_t number)
{
    const struct rg_memory_line *line = &memory->looked[number];
    struct rg_cache_nonce *failed = &memory->failed[number];
    pthread_mutex_lock(&memory->lock);
    bool wanted = line->state == RG_MEMORY_SEALED && memory->entries[number] == NULL &&
                  memcmp(&line->nonce, failed, sizeof(*failed)) != 0;
    memory->adopting = wanted ? number : UINT32_MAX;
    pthread_mutex_unlock(&memory->lock);
    if (!wanted) {
        return;
    }
    int rc = rg_memory_table_hold(&memory->table, number);
    rc = rc == 0 ? line_adopt(memory, number) : rc;
    if (rc < 0) {
        rg_memory_table_let_go(&memory->table, number);
    }
    bool is_short = rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM;
    if (rc < 0 && rc != -ENOENT && rc != -EAGAIN) {
        *failed = is_short ? *failed : line->nonce; /* what is short now may be there later */
        rg_memory_trouble(memory, "what another process has there cannot be used", rc);
    }
    pthread_mutex_lock(&memory->lock);
    memory->adopting = UINT32_MAX;
    pthread_mutex_unlock(&memory->lock);
}

static void look(struct rg_memory *memory)
{
    struct rg_memory_entry *gone[RG_MEMORY_LINES];
    uint32_t gone_count = 0;
    pthread_mutex_lock(&memory->lock);
    memory->looked_ns = rg_now_ns();
    if (rg_memory_table_lock(&memory->table) == 0) {
        rg_memory_clock_tell(memory);
        rg_memory_table_unlock(&memory->table);
    }
    int rc = rg_memory_table_read(&memory->table, 0, RG_MEMORY_LINES, memory->lines);
    for (uint32_t i = 0; rc == 0 && i < RG_MEMORY_LINES; i++) {
        struct rg_memory_entry *entry = memory->entries[i];
        if (entry != NULL && entry_look_locked(memory, entry)) {
            gone[gone_count++] = entry;
        }
    }
    if (rc == 0) {
        rg_memory_measure_locked(memory);
        memcpy(memory->looked, memory->lines, sizeof(memory->looked));
    }
    pthread_mutex_unlock(&memory->lock);
    for (uint32_t i = 0; i < gone_count; i++) {
        memory->descriptors -= gone[i]->is_counted;
        rg_memory_entry_unref(gone[i]);
    }
    for (uint32_t i = 0; rc == 0 && memory->table.is_shared && i < RG_MEMORY_LINES; i++) {
        line_look(memory, i);
    }
}

/* What others wait for, and is worth a segment. */
static bool is_aged_locked(const struct rg_memory *memory, uint64_t now_ns)
{
    const struct rg_memory_entry *entry = memory->filling;
    return entry != NULL && entry->begun_ns != 0 && now_ns >= entry->begun_ns + RG_MEMORY_AGE_NS &&
           entry->segment.end >= memory->sealed / AGED_PART;
}

/* The next one is there before this one is full. */
static void next_make_locked(struct rg_memory *memory)
{
    if (memory->filling != NULL && memory->next == NULL &&
        memory->filling->segment.end > memory->segment_size / 2) {
        memory->next = rg_memory_entry_make_locked(memory);
    }
}

static void wait_until(struct rg_memory *memory, uint64_t deadline_ns)
{
    struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / RG_NS_PER_S),
        .tv_nsec = (long)(deadline_ns % RG_NS_PER_S),
    };
    pthread_cond_timedwait(&memory->more, &memory->lock, &deadline);
}

/* Seals, then looks, then tells who waits for that. With the lock. */
static void step_locked(struct rg_memory *memory)
{
    uint64_t now_ns = rg_now_ns(), flushes = memory->flushes_wanted;
    bool hurries = memory->flushes_done < flushes;
    if (memory->filling != NULL && memory->filling->begun_ns != 0 &&
        (hurries || is_aged_locked(memory, now_ns))) {
        rg_memory_filling_end_locked(memory);
    }
    next_make_locked(memory);
    int rc = seal_step_locked(memory);
    bool waits = hurries && memory->full > 0 && (rc == 0 || rc == -EAGAIN);
    if (!waits && (hurries || now_ns >= memory->looked_ns + RG_MEMORY_LOOK_NS)) {
        pthread_mutex_unlock(&memory->lock);
        look(memory);
        pthread_mutex_lock(&memory->lock);
        memory->flushes_done = flushes;
        pthread_cond_broadcast(&memory->flushed);
    }
    bool has_more = memory->flushes_done < memory->flushes_wanted && !waits;
    if (!memory->stopping && !has_more) {
        wait_until(memory, now_ns + (rc == -EAGAIN ? RETRY_LOCK_NS : RG_MEMORY_LOOK_NS));
    }
}

void *rg_memory_keeper_main(void *context)
{
    struct rg_memory *memory = context;
    pthread_mutex_lock(&memory->lock);
    while (!memory->stopping) {
        step_locked(memory);
    }
    pthread_mutex_unlock(&memory->lock);
    return NULL;
}
