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
#include <sys/mman.h>
#include <unistd.h>

/* 256 KiB of slots. */
#define LINES_INITIAL 128
/* Fuller than this, and keys begin to find no place in their line. */
#define LOAD_MAX_PERCENT 78
/* One in so many lines that something was put into is counted, and after so many slots the load is
 * known. */
#define SAMPLED_PART 8
#define SAMPLED_MIN 4096
#define SAMPLED_MAX 32768
/* Number 0 is no segment's: its lock is that of the table. */
#define LOCK_TABLE 0

struct slot {
    uint64_t hash; /* 0: none */
    uint64_t word; /* number 16 | place 22 | size 15 | check 11 */
};
#define CHECK_BITS 11
#define SIZE_BITS 15
#define PLACE_BITS 22
static_assert(sizeof(struct slot) * RG_CACHE_LINE_SLOTS == RG_CACHE_LINE_SIZE, "a whole line");
static_assert(RG_CACHE_RECORD_SIZE_MAX / RG_CACHE_UNIT < 1 << SIZE_BITS, "a size fits");
static_assert((RG_CACHE_SEGMENT_SIZE_MAX + RG_MIB(8)) / RG_CACHE_UNIT <= 1 << PLACE_BITS,
              "a place fits, also in the last batch");

struct rg_cache_index {
    struct rg_cache_index_file file;
    /* Held for reading by find and forget, for writing by what changes the three below. */
    pthread_rwlock_t lock;
    uint64_t lines;
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

static uint64_t line_of(uint64_t hash, uint64_t lines)
{
    return (uint64_t)(((__uint128_t)hash * lines) >> 64);
}

static uint64_t slot_check(uint64_t hash, uint64_t word, const struct rg_cache_nonce *nonce)
{
    uint64_t salt[2];
    memcpy(salt, nonce, sizeof(salt));
    return mix(hash ^ mix(word >> CHECK_BITS ^ salt[0]) ^ salt[1]) >> (64 - CHECK_BITS);
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

static uint64_t line_offset(uint64_t line)
{
    return rg_cache_index_slots_offset() + line * RG_CACHE_LINE_SIZE;
}

static bool line_read(const struct rg_cache_index *index, uint64_t line,
                      struct slot out[RG_CACHE_LINE_SLOTS])
{
    return read_at(index, line_offset(line), out, RG_CACHE_LINE_SIZE);
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

static bool line_find(const struct rg_cache_index *index, uint64_t line, uint64_t hash,
                      struct rg_cache_found *out_found)
{
    struct slot slots[RG_CACHE_LINE_SLOTS];
    struct rg_cache_numbered numbered;
    if (!line_read(index, line, slots)) {
        return false;
    }
    for (unsigned i = 0; i < RG_CACHE_LINE_SLOTS; i++) {
        if (slots[i].hash == hash && slot_resolve(index, &slots[i], &numbered)) {
            uint64_t word = slots[i].word;
            *out_found = (struct rg_cache_found){
                .number = slot_number(&slots[i]),
                .place = word >> (SIZE_BITS + CHECK_BITS) & ((1 << PLACE_BITS) - 1),
                .size = slot_size(&slots[i]),
                .nonce = numbered.nonce,
            };
            return true;
        }
    }
    return false;
}

bool rg_cache_index_find(struct rg_cache_index *index, uint64_t hash,
                         struct rg_cache_found *out_found)
{
    pthread_rwlock_rdlock(&index->lock);
    bool found = line_find(index, line_of(hash, index->lines), hash, out_found);
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

void rg_cache_index_forget(struct rg_cache_index *index, uint64_t hash)
{
    static const struct slot none;
    struct slot slots[RG_CACHE_LINE_SLOTS];
    pthread_rwlock_rdlock(&index->lock);
    uint64_t line = line_of(hash, index->lines);
    bool is_there = line_read(index, line, slots);
    for (unsigned i = 0; is_there && i < RG_CACHE_LINE_SLOTS; i++) {
        if (slots[i].hash == hash) {
            (void)write_at(index, line_offset(line) + i * sizeof(none), &none, sizeof(none));
            forgotten_note(index, slot_number(&slots[i]), slot_size(&slots[i]));
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

/* Which slot of its line a new key takes: an empty one, else one of a segment that is gone. The
 * last resort is to put something out. Keys begin to look at places of their own, so that two
 * processes which fill the same line at the same time seldom take the same slot. */
static unsigned slot_free(const struct rg_cache_index *index, const struct slot *slots,
                          uint64_t hash)
{
    unsigned begin = (unsigned)(hash % RG_CACHE_LINE_SLOTS);
    for (unsigned i = 0; i < RG_CACHE_LINE_SLOTS; i++) {
        unsigned at = (begin + i) % RG_CACHE_LINE_SLOTS;
        if (slots[at].hash == 0) {
            return at;
        }
    }
    for (unsigned i = 0; i < RG_CACHE_LINE_SLOTS; i++) {
        unsigned at = (begin + i) % RG_CACHE_LINE_SLOTS;
        if (!slot_is_used(index, &slots[at])) {
            return at;
        }
    }
    return begin;
}

static unsigned slot_choose(const struct rg_cache_index *index, const struct slot *slots,
                            uint64_t hash)
{
    for (unsigned i = 0; i < RG_CACHE_LINE_SLOTS; i++) {
        if (slots[i].hash == hash) {
            return i;
        }
    }
    return slot_free(index, slots, hash);
}

static void line_sample(struct rg_cache_index *index, const struct slot *slots)
{
    for (unsigned i = 0; i < RG_CACHE_LINE_SLOTS; i++) {
        index->sampled_used += slot_is_used(index, &slots[i]);
    }
    index->sampled += RG_CACHE_LINE_SLOTS;
}

void rg_cache_index_insert(struct rg_cache_index *index, uint32_t number,
                           const struct rg_cache_content *content)
{
    struct slot slots[RG_CACHE_LINE_SLOTS];
    struct slot slot = slot_make(number, content, &index->table[number].nonce);
    uint64_t line = line_of(slot.hash, index->lines);
    if (!line_read(index, line, slots)) {
        return;
    }
    unsigned at = slot_choose(index, slots, slot.hash);
    (void)write_at(index, line_offset(line) + at * sizeof(slot), &slot, sizeof(slot));
    if (index->inserted++ % SAMPLED_PART == 0) {
        line_sample(index, slots);
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

static void index_load(struct rg_cache_index *index)
{
    struct rg_cache_index_header header = {.lines = 1};
    (void)read_at(index, 0, &header, sizeof(header));
    index->lines = header.lines;
    memset(index->table, 0, sizeof(*index->table) * (RG_CACHE_SEGMENTS_MAX + 1));
    table_load(index);
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
                        (unsigned)geteuid(), folder_id, RG_CACHE_INDEX_VERSION);
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
    index_load(index);
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

void rg_cache_index_drop(struct rg_cache_index *index, uint32_t number)
{
    static const struct rg_cache_numbered none;
    (void)numbered_set(index, number, &none);
}

void rg_cache_index_set_listed(struct rg_cache_index *index, uint32_t number)
{
    struct rg_cache_numbered numbered = index->table[number];
    numbered.state = RG_CACHE_SEGMENT_LISTED;
    (void)numbered_set(index, number, &numbered);
}

void rg_cache_index_set_use(struct rg_cache_index *index, uint32_t number, uint64_t last_use)
{
    struct rg_cache_numbered numbered = index->table[number];
    numbered.last_use = last_use;
    if (numbered.state != RG_CACHE_SEGMENT_NONE) {
        (void)numbered_set(index, number, &numbered);
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
        index_load(index);
    } else {
        table_load(index);
    }
    pthread_rwlock_unlock(&index->lock);
    return other;
}

/* Copies what is of use. The copy of the table of segments is the present one. */
static void slots_copy(struct rg_cache_index *index, struct slot *to, uint64_t lines)
{
    struct slot slots[RG_CACHE_LINE_SLOTS];
    for (uint64_t line = 0; line < index->lines; line++) {
        if (!line_read(index, line, slots)) {
            continue;
        }
        for (unsigned i = 0; i < RG_CACHE_LINE_SLOTS; i++) {
            if (slot_is_used(index, &slots[i])) {
                struct slot *into = to + line_of(slots[i].hash, lines) * RG_CACHE_LINE_SLOTS;
                into[slot_free(index, into, slots[i].hash)] = slots[i];
            }
        }
    }
}

/* Everything of the old file in a new one, without a name yet. It is mapped while nobody else can
 * have it: all its memory is taken, and nobody can cut it. A descriptor, or a negative errno. */
static int index_enlarge(struct rg_cache_index *index, uint64_t lines)
{
    int fd = rg_cache_index_file_make(&index->file, lines);
    if (fd < 0) {
        return fd;
    }
    size_t size = rg_cache_index_file_size(lines);
    uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) {
        rg_fd_drop(fd);
        return -ENOMEM;
    }
    struct rg_cache_index_header *header = (struct rg_cache_index_header *)bytes;
    header->clock = rg_cache_index_tick(index, 0);
    memcpy(bytes + RG_CACHE_INDEX_HEADER_SIZE, index->table,
           rg_cache_index_slots_offset() - RG_CACHE_INDEX_HEADER_SIZE);
    slots_copy(index, (struct slot *)(bytes + rg_cache_index_slots_offset()), lines);
    munmap(bytes, size);
    return fd;
}

static void index_replace(struct rg_cache_index *index)
{
    uint64_t lines = index->lines + index->lines / 7;
    pthread_rwlock_wrlock(&index->lock);
    table_load(index);
    pthread_rwlock_unlock(&index->lock);
    int fd = index_enlarge(index, lines);
    if (fd < 0) {
        return;
    }
    pthread_rwlock_wrlock(&index->lock);
    if (rg_cache_index_file_replace(&index->file, fd) == 0) {
        index->lines = lines;
    }
    pthread_rwlock_unlock(&index->lock);
}

void rg_cache_index_grow(struct rg_cache_index *index)
{
    uint64_t slots = index->lines * RG_CACHE_LINE_SLOTS;
    if (index->sampled < RG_MIN(slots / 4, (uint64_t)SAMPLED_MAX)) {
        return;
    }
    index->load_percent = 100 * index->sampled_used / index->sampled;
    index->sampled = 0;
    index->sampled_used = 0;
    if (index->load_percent < LOAD_MAX_PERCENT || rg_cache_index_file_is_gone(&index->file) ||
        rg_cache_index_file_lock(&index->file, LOCK_TABLE) < 0) {
        return;
    }
    /* The lock ends with the file. */
    index_replace(index);
    rg_cache_index_file_unlock(&index->file, LOCK_TABLE);
}

void rg_cache_index_measure(const struct rg_cache_index *index, uint64_t *out_objects,
                            uint64_t *out_bytes)
{
    uint64_t sampled = index->sampled, used = index->sampled_used;
    uint64_t slots = index->lines * RG_CACHE_LINE_SLOTS;
    *out_objects =
        sampled >= SAMPLED_MIN ? slots * used / sampled : slots * index->load_percent / 100;
    *out_bytes = rg_cache_index_file_size(index->lines);
}
