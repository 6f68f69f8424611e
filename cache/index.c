/* See index.h. */
#include "cache/index.h"

#include "runtime/descriptor.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 2 MiB of slots, for 100,000 keys: no more memory than a batch of records on its way has. */
#define LINES_INITIAL 1024
/* Fuller than this, and keys begin to find no place in their line. */
#define LOAD_MAX_PERCENT 78
/* One in so many lines that something was put into is counted. The load is known after a part of
 * all slots, which is less than what the table grows by, or after that many. */
#define SAMPLED_INSERTS 64
#define SAMPLED_PART 16
#define SAMPLED_MIN 4096
#define SAMPLED_MAX 32768
/* Number 0 is no segment's: its lock is that of the table. */
#define LOCK_TABLE 0
/* Slots that look as if their segments were gone, and that one insert asks the table of. */
#define ASKED_MAX 2

struct slot {
    uint64_t hash; /* 0: none */
    uint64_t word; /* number 16 | place 22 | size 15 | check 11; 0: nor was there one */
};
#define CHECK_BITS 11
#define SIZE_BITS 15
#define PLACE_BITS 22
static_assert(RG_CACHE_RECORD_SIZE_MAX / RG_CACHE_UNIT < 1 << SIZE_BITS, "a size fits");
static_assert((RG_CACHE_SEGMENT_SIZE_MAX + RG_MIB(8)) / RG_CACHE_UNIT <= 1 << PLACE_BITS,
              "a place fits, also in the last batch");

struct rg_cache_index {
    struct rg_cache_index_file file;
    /* Held for reading by find and forget, for writing by what changes the file or the two below.
     */
    pthread_rwlock_t lock;
    struct rg_cache_numbered *table; /* a copy */
    uint32_t numbers;                /* above all that are in use */
    /* Units of each number's segment, and above them 32 bits of its nonce; any thread. */
    _Atomic uint64_t *forgotten;
    /* The thread's. */
    uint64_t inserted, sampled, sampled_used, load_percent;
};

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* One multiplication, whose halves are folded: it is computed for many slots at each entry. The
 * numbers are any. */
static uint64_t slot_check(uint64_t hash, uint64_t word, const struct rg_cache_nonce *nonce)
{
    uint64_t salt[2];
    memcpy(salt, nonce, sizeof(salt));
    salt[0] ^= UINT64_C(0xbf58476d1ce4e5b9);
    salt[1] ^= UINT64_C(0x94d049bb133111eb);
    __uint128_t product = (__uint128_t)(hash ^ salt[0]) * (word >> CHECK_BITS ^ salt[1]);
    return ((uint64_t)product ^ (uint64_t)(product >> 64)) >> (64 - CHECK_BITS);
}

static struct slot slot_make(uint32_t number, const struct rg_cache_content *content,
                             const struct rg_cache_nonce *nonce)
{
    uint32_t bytes = content->size & ~RG_CACHE_CONTENT_NOTE;
    uint64_t size = rg_cache_round_up(bytes, RG_CACHE_UNIT) / RG_CACHE_UNIT;
    uint64_t word = (uint64_t)number << (PLACE_BITS + SIZE_BITS + CHECK_BITS) |
                    (uint64_t)content->place << (SIZE_BITS + CHECK_BITS) | size << CHECK_BITS;
    return (struct slot){content->hash, word | slot_check(content->hash, word, nonce)};
}

static uint32_t slot_number(const struct slot *slot)
{
    return (uint32_t)(slot->word >> (PLACE_BITS + SIZE_BITS + CHECK_BITS));
}

static uint32_t slot_size(const struct slot *slot)
{
    return (uint32_t)(slot->word >> CHECK_BITS & ((1 << SIZE_BITS) - 1));
}

static bool slot_is_of(const struct slot *slot, const struct rg_cache_numbered *numbered)
{
    uint64_t check = slot->word & ((1 << CHECK_BITS) - 1);
    return numbered->state != RG_CACHE_SEGMENT_NONE &&
           check == slot_check(slot->hash, slot->word, &numbered->nonce);
}

static uint64_t numbered_offset(uint32_t number)
{
    return RG_CACHE_INDEX_HEADER_SIZE + number * sizeof(struct rg_cache_numbered);
}

static bool read_at(const struct rg_cache_index *index, uint64_t offset, void *data, size_t size)
{
    return pread(index->file.fd, data, size, (off_t)offset) == (ssize_t)size;
}

static bool write_at(const struct rg_cache_index *index, uint64_t offset, const void *data,
                     size_t size)
{
    return pwrite(index->file.fd, data, size, (off_t)offset) == (ssize_t)size;
}

/* The line in which a hash may be. */
static struct rg_cache_slot *line_of(const struct rg_cache_index_memory *memory, uint64_t hash)
{
    uint64_t line = (uint64_t)(((__uint128_t)hash * memory->lines) >> 64);
    return memory->slots + line * RG_CACHE_LINE_SLOTS;
}

/* The i-th slot that is looked at for a hash. */
static struct rg_cache_slot *slot_at(struct rg_cache_slot *line, uint64_t hash, unsigned i)
{
    return line + (hash + i) % RG_CACHE_LINE_SLOTS;
}

/* Another thread or process may write it meanwhile: then it is half of one, half of another. */
static struct slot slot_load(const struct rg_cache_slot *at)
{
    return (struct slot){
        .hash = atomic_load_explicit(&at->hash, memory_order_relaxed),
        .word = atomic_load_explicit(&at->word, memory_order_relaxed),
    };
}

static void slot_store(struct rg_cache_slot *at, const struct slot *slot)
{
    atomic_store_explicit(&at->word, slot->word, memory_order_relaxed);
    atomic_store_explicit(&at->hash, slot->hash, memory_order_relaxed);
}

/* Nothing that is looked for from an earlier slot on lies behind it. */
static bool slot_is_end(const struct slot *slot)
{
    return slot->hash == 0 && slot->word == 0;
}

/* Whether a slot says where something is. The copy of the table may be older than the slot. */
static bool slot_resolve(const struct rg_cache_index *index, const struct slot *slot,
                         struct rg_cache_numbered *out_numbered)
{
    uint32_t number = slot_number(slot);
    if (number == 0) {
        return false;
    }
    *out_numbered = index->table[number];
    if (slot_is_of(slot, out_numbered)) {
        return true;
    }
    return read_at(index, numbered_offset(number), out_numbered, sizeof(*out_numbered)) &&
           slot_is_of(slot, out_numbered);
}

static bool slot_find(const struct rg_cache_index *index, uint64_t hash,
                      struct rg_cache_found *out_found)
{
    struct rg_cache_slot *line = line_of(&index->file.memory, hash);
    struct rg_cache_numbered numbered;
    for (unsigned i = 0; i < RG_CACHE_LINE_SLOTS; i++) {
        struct slot slot = slot_load(slot_at(line, hash, i));
        if (slot.hash == hash && slot_resolve(index, &slot, &numbered)) {
            *out_found = (struct rg_cache_found){
                .number = slot_number(&slot),
                .place = slot.word >> (SIZE_BITS + CHECK_BITS) & ((1 << PLACE_BITS) - 1),
                .size = slot_size(&slot),
                .nonce = numbered.nonce,
            };
            return true;
        }
        if (slot_is_end(&slot)) {
            break;
        }
    }
    return false;
}

bool rg_cache_index_find(struct rg_cache_index *index, uint64_t hash,
                         struct rg_cache_found *out_found)
{
    pthread_rwlock_rdlock(&index->lock);
    bool found = slot_find(index, hash, out_found);
    pthread_rwlock_unlock(&index->lock);
    return found;
}

/* What the count of a number begins with, so that no other segment of that number has it. */
static uint64_t forgotten_none(const struct rg_cache_index *index, uint32_t number)
{
    uint32_t tag;
    memcpy(&tag, &index->table[number].nonce, sizeof(tag));
    return (uint64_t)tag << 32;
}

static void forgotten_note(struct rg_cache_index *index, uint32_t number, uint32_t units)
{
    uint64_t none = forgotten_none(index, number);
    uint64_t count = atomic_load_explicit(&index->forgotten[number], memory_order_relaxed), more;
    do {
        more = (count >> 32 == none >> 32 ? count : none) + units;
    } while (!atomic_compare_exchange_weak_explicit(&index->forgotten[number], &count, more,
                                                    memory_order_relaxed, memory_order_relaxed));
}

/* What is forgotten is no end: others may lie behind it. */
void rg_cache_index_forget(struct rg_cache_index *index, uint64_t hash)
{
    pthread_rwlock_rdlock(&index->lock);
    struct rg_cache_slot *line = line_of(&index->file.memory, hash);
    for (unsigned i = 0; i < RG_CACHE_LINE_SLOTS; i++) {
        struct rg_cache_slot *at = slot_at(line, hash, i);
        struct slot slot = slot_load(at);
        if (slot.hash == hash) {
            atomic_store_explicit(&at->hash, 0, memory_order_relaxed);
            forgotten_note(index, slot_number(&slot), slot_size(&slot));
        }
        if (slot_is_end(&slot)) {
            break;
        }
    }
    pthread_rwlock_unlock(&index->lock);
}

uint64_t rg_cache_index_forgotten(const struct rg_cache_index *index, uint32_t number)
{
    uint64_t count = atomic_load_explicit(&index->forgotten[number], memory_order_relaxed);
    bool is_its = count >> 32 == forgotten_none(index, number) >> 32;
    return is_its ? (count & UINT32_MAX) * RG_CACHE_UNIT : 0;
}

static bool slot_is_used(const struct rg_cache_index *index, const struct slot *slot)
{
    return slot->hash != 0 && slot_is_of(slot, &index->table[slot_number(slot)]);
}

/* Whether a slot may be taken for another key. The copy of the table may be older than the slot,
 * so that the table is asked, too. */
static bool slot_is_free(const struct rg_cache_index *index, const struct slot *slot,
                         unsigned *asked)
{
    struct rg_cache_numbered numbered;
    if (slot->hash == 0) {
        return true;
    }
    return !slot_is_used(index, slot) && (*asked)++ < ASKED_MAX &&
           !slot_resolve(index, slot, &numbered);
}

/* Which slot of its line a key takes: its own if it is there, else the first that is free. The last
 * resort is to put something out. */
static struct rg_cache_slot *slot_choose(const struct rg_cache_index *index, uint64_t hash)
{
    struct rg_cache_slot *line = line_of(&index->file.memory, hash), *chosen = NULL;
    unsigned asked = 0;
    for (unsigned i = 0; i < RG_CACHE_LINE_SLOTS; i++) {
        struct rg_cache_slot *at = slot_at(line, hash, i);
        struct slot slot = slot_load(at);
        if (slot.hash == hash) {
            return at;
        }
        if (chosen == NULL && slot_is_free(index, &slot, &asked)) {
            chosen = at;
        }
        if (slot_is_end(&slot)) {
            break;
        }
    }
    return chosen != NULL ? chosen : slot_at(line, hash, 0);
}

static void line_sample(struct rg_cache_index *index, const struct rg_cache_slot *line)
{
    for (unsigned i = 0; i < RG_CACHE_LINE_SLOTS; i++) {
        struct slot slot = slot_load(&line[i]);
        index->sampled_used += slot_is_used(index, &slot);
    }
    index->sampled += RG_CACHE_LINE_SLOTS;
}

void rg_cache_index_prefetch(const struct rg_cache_index *index, uint64_t hash)
{
    __builtin_prefetch(slot_at(line_of(&index->file.memory, hash), hash, 0), 1);
}

void rg_cache_index_insert(struct rg_cache_index *index, uint32_t number,
                           const struct rg_cache_content *content)
{
    struct slot slot = slot_make(number, content, &index->table[number].nonce);
    slot_store(slot_choose(index, slot.hash), &slot);
    if (index->inserted++ % SAMPLED_INSERTS == 0) {
        line_sample(index, line_of(&index->file.memory, slot.hash));
    }
}

/* Reads the table of segments, as far as it is in use. */
static void table_load(struct rg_cache_index *index)
{
    struct rg_cache_numbered *table = index->table;
    uint32_t numbers = 0;
    size_t piece = RG_KIB(64) / sizeof(*table);
    for (size_t at = 0; at <= RG_CACHE_SEGMENTS_MAX; at += piece) {
        bool any = false;
        if (!read_at(index, numbered_offset((uint32_t)at), table + at, piece * sizeof(*table))) {
            memset(table + at, 0, piece * sizeof(*table));
        }
        for (size_t i = at; i < at + piece; i++) {
            if (table[i].state != RG_CACHE_SEGMENT_NONE && i > 0) {
                any = true;
                numbers = (uint32_t)i + 1;
            }
        }
        /* Numbers are given from the lowest on. */
        if (!any && at > 0) {
            break;
        }
    }
    index->numbers = numbers;
}

int rg_cache_index_open(struct rg_cache_index **out_index, const char *share, uint64_t folder_id,
                        char *why, size_t why_size)
{
    struct rg_cache_index *index = calloc(1, sizeof(*index));
    struct rg_cache_numbered *table = calloc(RG_CACHE_SEGMENTS_MAX + 1, sizeof(*table));
    void *forgotten = calloc(RG_CACHE_SEGMENTS_MAX + 1, sizeof(*index->forgotten));
    if (index == NULL || table == NULL || forgotten == NULL) {
        free(index);
        free(table);
        free(forgotten);
        snprintf(why, why_size, "there is no memory");
        return -ENOMEM;
    }
    index->table = table;
    index->forgotten = forgotten;
    index->file = (struct rg_cache_index_file){.share = share, .fd = -1};
    int size = snprintf(index->file.path, sizeof(index->file.path),
                        "%s/ringest-%u-cache-%016" PRIx64 "-v%u", share != NULL ? share : "memory",
                        (unsigned)geteuid(), folder_id ^ mix(rg_cache_index_memory_space()),
                        RG_CACHE_INDEX_VERSION);
    int rc = size < 0 || (size_t)size >= sizeof(index->file.path) ? -ENAMETOOLONG : 0;
    if (rc < 0) {
        snprintf(why, why_size, "the name of the folder in RINGEST_SHARING is too long");
    } else {
        rc = rg_cache_index_file_open(&index->file, LINES_INITIAL, why, why_size);
    }
    if (rc < 0) {
        free(table);
        free(forgotten);
        free(index);
        return rc;
    }
    rg_cache_index_file_sweep(&index->file);
    pthread_rwlock_init(&index->lock, NULL);
    table_load(index);
    *out_index = index;
    return 0;
}

void rg_cache_index_close(struct rg_cache_index *index)
{
    if (index == NULL) {
        return;
    }
    rg_cache_index_file_close(&index->file);
    pthread_rwlock_destroy(&index->lock);
    free(index->table);
    free(index->forgotten);
    free(index);
}

const struct rg_cache_numbered *rg_cache_index_at(const struct rg_cache_index *index,
                                                  uint32_t number)
{
    return &index->table[number];
}

uint32_t rg_cache_index_numbers(const struct rg_cache_index *index)
{
    return index->numbers;
}

/* The number a segment has in the copy of the table, or 0. */
static uint32_t number_of(struct rg_cache_index *index, const struct rg_cache_nonce *nonce)
{
    for (uint32_t i = 1; i < index->numbers; i++) {
        if (index->table[i].state != RG_CACHE_SEGMENT_NONE &&
            memcmp(&index->table[i].nonce, nonce, sizeof(*nonce)) == 0) {
            return i;
        }
    }
    return 0;
}

static bool numbered_set(struct rg_cache_index *index, uint32_t number,
                         const struct rg_cache_numbered *numbered)
{
    pthread_rwlock_wrlock(&index->lock);
    index->table[number] = *numbered;
    index->numbers = RG_MAX(index->numbers, number + 1);
    pthread_rwlock_unlock(&index->lock);
    return write_at(index, numbered_offset(number), numbered, sizeof(*numbered));
}

static uint32_t number_take(struct rg_cache_index *index, const struct rg_cache_nonce *nonce)
{
    pthread_rwlock_wrlock(&index->lock);
    table_load(index);
    pthread_rwlock_unlock(&index->lock);
    uint32_t number = number_of(index, nonce);
    if (number != 0) {
        return number;
    }
    for (number = 1; number <= RG_CACHE_SEGMENTS_MAX; number++) {
        if (index->table[number].state == RG_CACHE_SEGMENT_NONE) {
            break;
        }
    }
    struct rg_cache_numbered numbered = {
        .nonce = *nonce,
        .last_use = rg_cache_index_tick(index, 0),
        .state = RG_CACHE_SEGMENT_NUMBERED,
    };
    bool done = number <= RG_CACHE_SEGMENTS_MAX && numbered_set(index, number, &numbered);
    return done ? number : 0;
}

uint32_t rg_cache_index_number(struct rg_cache_index *index, const struct rg_cache_nonce *nonce)
{
    uint32_t number = number_of(index, nonce);
    if (number != 0 || rg_cache_index_file_lock(&index->file, LOCK_TABLE) < 0) {
        return number;
    }
    number = number_take(index, nonce);
    rg_cache_index_file_unlock(&index->file, LOCK_TABLE);
    return number;
}

/* Changes the line of a segment. Since this process looked, another one may have dropped that
 * number and given it to another segment, whose line stays as it is. */
static void numbered_change(struct rg_cache_index *index, uint32_t number,
                            const struct rg_cache_nonce *nonce,
                            const struct rg_cache_numbered *changed)
{
    struct rg_cache_numbered there;
    if (!read_at(index, numbered_offset(number), &there, sizeof(there))) {
        there = (struct rg_cache_numbered){.state = RG_CACHE_SEGMENT_NONE};
    }
    if (there.state != RG_CACHE_SEGMENT_NONE && memcmp(&there.nonce, nonce, sizeof(*nonce)) == 0) {
        (void)numbered_set(index, number, changed);
        return;
    }
    pthread_rwlock_wrlock(&index->lock);
    index->table[number] = there;
    pthread_rwlock_unlock(&index->lock);
}

void rg_cache_index_drop(struct rg_cache_index *index, uint32_t number)
{
    static const struct rg_cache_numbered none;
    struct rg_cache_nonce nonce = index->table[number].nonce;
    numbered_change(index, number, &nonce, &none);
}

void rg_cache_index_set_listed(struct rg_cache_index *index, uint32_t number,
                               const struct rg_cache_nonce *nonce)
{
    struct rg_cache_numbered numbered = index->table[number];
    numbered.nonce = *nonce;
    numbered.state = RG_CACHE_SEGMENT_LISTED;
    numbered_change(index, number, nonce, &numbered);
}

void rg_cache_index_set_use(struct rg_cache_index *index, uint32_t number, uint64_t last_use)
{
    struct rg_cache_numbered numbered = index->table[number];
    numbered.last_use = last_use;
    if (numbered.state != RG_CACHE_SEGMENT_NONE) {
        numbered_change(index, number, &numbered.nonce, &numbered);
    }
}

bool rg_cache_index_hold(struct rg_cache_index *index, uint32_t number)
{
    return rg_cache_index_file_lock(&index->file, number) == 0;
}

void rg_cache_index_release(struct rg_cache_index *index, uint32_t number)
{
    rg_cache_index_file_unlock(&index->file, number);
}

/* Two processes that add at the same time lose one sum, which does not matter. */
uint64_t rg_cache_index_tick(struct rg_cache_index *index, uint64_t bytes)
{
    struct rg_cache_index_header header = {.clock = 0};
    (void)read_at(index, 0, &header, sizeof(header));
    header.clock += bytes;
    if (bytes > 0) {
        (void)write_at(index, offsetof(struct rg_cache_index_header, clock), &header.clock,
                       sizeof(header.clock));
    }
    return header.clock;
}

bool rg_cache_index_refresh(struct rg_cache_index *index)
{
    char why[RG_CACHE_INDEX_PATH_SIZE_MAX + 100];
    struct rg_cache_index_file file = index->file;
    bool other = rg_cache_index_file_is_gone(&index->file) &&
                 rg_cache_index_file_open(&file, LINES_INITIAL, why, sizeof(why)) == 0;
    pthread_rwlock_wrlock(&index->lock);
    if (other) {
        rg_cache_index_file_close(&index->file);
        index->file = file;
        memset(index->table, 0, sizeof(*index->table) * (RG_CACHE_SEGMENTS_MAX + 1));
    }
    table_load(index);
    pthread_rwlock_unlock(&index->lock);
    return other;
}

/* Copies what is of use. The copy of the table of segments is the present one. */
static void slots_copy(const struct rg_cache_index *index, const struct rg_cache_index_memory *to)
{
    const struct rg_cache_index_memory *from = &index->file.memory;
    for (uint64_t i = 0; i < from->lines * RG_CACHE_LINE_SLOTS; i++) {
        struct slot slot = slot_load(&from->slots[i]);
        if (!slot_is_used(index, &slot)) {
            continue;
        }
        struct rg_cache_slot *line = line_of(to, slot.hash), *at = slot_at(line, slot.hash, 0);
        for (unsigned j = 0; j < RG_CACHE_LINE_SLOTS && slot_load(at).hash != 0; j++) {
            at = slot_at(line, slot.hash, j);
        }
        slot_store(at, &slot);
    }
}

/* Everything of the old one in a new one, which nobody else can have. 0 or a negative errno. */
static int index_enlarge(struct rg_cache_index *index, uint64_t lines,
                         struct rg_cache_index_file *out_made)
{
    uint64_t clock = rg_cache_index_tick(index, 0);
    size_t size = sizeof(*index->table) * index->numbers;
    int rc = rg_cache_index_file_make(&index->file, lines, out_made);
    if (rc < 0) {
        return rc;
    }
    (void)pwrite(out_made->fd, &clock, sizeof(clock),
                 offsetof(struct rg_cache_index_header, clock));
    (void)pwrite(out_made->fd, index->table, size, (off_t)numbered_offset(0));
    slots_copy(index, &out_made->memory);
    return 0;
}

static void index_replace(struct rg_cache_index *index)
{
    struct rg_cache_index_file made;
    uint64_t lines = index->file.memory.lines + index->file.memory.lines / 7;
    pthread_rwlock_wrlock(&index->lock);
    table_load(index);
    pthread_rwlock_unlock(&index->lock);
    if (index_enlarge(index, lines, &made) < 0) {
        return;
    }
    pthread_rwlock_wrlock(&index->lock);
    (void)rg_cache_index_file_replace(&index->file, &made);
    pthread_rwlock_unlock(&index->lock);
}

void rg_cache_index_grow(struct rg_cache_index *index)
{
    uint64_t slots = index->file.memory.lines * RG_CACHE_LINE_SLOTS;
    if (index->sampled < RG_MIN(slots / SAMPLED_PART, (uint64_t)SAMPLED_MAX)) {
        return;
    }
    index->load_percent = 100 * index->sampled_used / index->sampled;
    index->sampled = 0;
    index->sampled_used = 0;
    if (index->load_percent < LOAD_MAX_PERCENT ||
        rg_cache_index_file_lock(&index->file, LOCK_TABLE) < 0) {
        return;
    }
    /* Another process may have replaced it just before: what has come in its place stays. The lock
     * ends with the file. */
    if (!rg_cache_index_file_is_gone(&index->file)) {
        index_replace(index);
    }
    rg_cache_index_file_unlock(&index->file, LOCK_TABLE);
}

void rg_cache_index_measure(const struct rg_cache_index *index, uint64_t *out_objects,
                            uint64_t *out_bytes)
{
    uint64_t sampled = index->sampled, used = index->sampled_used;
    uint64_t slots = index->file.memory.lines * RG_CACHE_LINE_SLOTS;
    *out_objects =
        sampled >= SAMPLED_MIN ? slots * used / sampled : slots * index->load_percent / 100;
    *out_bytes = rg_cache_index_file_size() + index->file.memory.lines * RG_CACHE_LINE_SIZE;
}
