/* The table, the names, the checksums by algebra, and which objects are hidden; see synthetic.h.
 *
 * Checksums: the CRC register after some bytes is linear over GF(2) in the register before and in
 * the bytes. Let x^(8n) stand for "n zero bytes follow", the table be repeated for ever, and P(a)
 * be the register after its first `a` bytes, from register 0. Then the register after bytes a to b
 * is P(b) + P(a) * x^(8(b - a)). Checkpoints of P every 256 bytes make it cheap. */
#include "emulator/store/synthetic.h"

#include "emulator/wire/checksum.h"
#include "emulator/wire/text.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* The largest prime below 4 MiB: no size of chunks divides it, so that pieces of a large object
 * that were swapped never look alike. */
#define TABLE_SIZE 4194301
#define CHECKPOINT_SIZE 256
#define CHECKPOINT_COUNT (TABLE_SIZE / CHECKPOINT_SIZE + 1)
/* Powers of x for any number of bits below the 2^25 of the table. */
#define POWER_COUNT 26

/* 2023-11-14T22:13:20Z: the same in every run. */
#define SYNTHETIC_TIME INT64_C(1700000000000000)

struct rg_synthetic {
    char prefix[RG_STORE_NAME_SIZE_MAX];
    uint32_t prefix_size, digits;
    uint64_t count, object_size;
    uint32_t shift;         /* x^(8 * object_size) */
    uint64_t periods;       /* Whole tables in an object. */
    uint32_t period_crc[2]; /* The register after `periods` tables, and after one more. */
    _Atomic(_Atomic uint64_t *) hidden; /* A bit for each object; NULL while none is. */
};

/* Filled once per process and never changed after. */
static struct {
    pthread_once_t once;
    uint8_t bytes[TABLE_SIZE];
    uint32_t checkpoint[CHECKPOINT_COUNT]; /* P(i * CHECKPOINT_SIZE) */
    uint32_t power[POWER_COUNT];           /* x^(2^i) */
    uint32_t prefix;                       /* P(TABLE_SIZE) */
} table = {.once = PTHREAD_ONCE_INIT};

/* SplitMix64's finaliser: every input bit reaches every output bit. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* x^(8 * size). */
static uint32_t zero_bytes(uint64_t size)
{
    uint32_t result = RG_CHECKSUM_ONE;
    uint32_t square = table.power[3];
    for (uint32_t i = 3; size > 0; i++, size >>= 1) {
        if (size & 1) {
            result = rg_checksum_multiply(result, square);
        }
        square = i + 1 < POWER_COUNT ? table.power[i + 1] : rg_checksum_multiply(square, square);
    }
    return result;
}

static uint32_t table_prefix(uint64_t size)
{
    RG_ASSERT(size <= TABLE_SIZE);
    uint64_t checkpoint = size / CHECKPOINT_SIZE;
    uint64_t start = checkpoint * CHECKPOINT_SIZE;
    return rg_checksum_extend_raw(table.checkpoint[checkpoint], table.bytes + start, size - start);
}

static void table_fill(void)
{
    for (size_t at = 0; at < TABLE_SIZE; at += sizeof(uint64_t)) {
        uint64_t word = mix((at + 1) * UINT64_C(0x9e3779b97f4a7c15));
        for (size_t i = 0; i < sizeof(word) && at + i < TABLE_SIZE; i++) {
            table.bytes[at + i] = (uint8_t)(word >> 8 * i); /* The same on either byte order. */
        }
    }
    table.power[0] = RG_CHECKSUM_ONE >> 1;
    for (size_t i = 1; i < POWER_COUNT; i++) {
        table.power[i] = rg_checksum_multiply(table.power[i - 1], table.power[i - 1]);
    }
    for (size_t i = 1; i < CHECKPOINT_COUNT; i++) {
        table.checkpoint[i] = rg_checksum_extend_raw(
            table.checkpoint[i - 1], table.bytes + (i - 1) * CHECKPOINT_SIZE, CHECKPOINT_SIZE);
    }
    table.prefix = table_prefix(TABLE_SIZE);
}

/* The register after `count` tables in a row, by doubling. */
static uint32_t repeated_table(uint64_t count)
{
    uint32_t crc = 0;
    uint32_t power_crc = table.prefix; /* After 2^i tables, which are `shift` long. */
    uint32_t shift = zero_bytes(TABLE_SIZE);
    for (; count > 0; count >>= 1) {
        if (count & 1) {
            crc = rg_checksum_multiply(crc, shift) ^ power_crc;
        }
        power_crc = rg_checksum_multiply(power_crc, shift) ^ power_crc;
        shift = rg_checksum_multiply(shift, shift);
    }
    return crc;
}

static uint32_t object_crc32c(const struct rg_synthetic *set, uint64_t position)
{
    if (set->object_size == 0) {
        return 0;
    }
    uint64_t rest = position + set->object_size % TABLE_SIZE;
    bool wrapped = rest >= TABLE_SIZE;
    rest -= wrapped ? TABLE_SIZE : 0;
    uint32_t end = table_prefix(rest);
    if (set->periods > 0 || wrapped) {
        end ^= rg_checksum_multiply(set->period_crc[wrapped], zero_bytes(rest));
    }
    /* The standard starts from all ones, which like the bytes before the object are shifted out of
     * the way by its size, and inverts the result. */
    return ~(end ^ rg_checksum_multiply(table_prefix(position) ^ UINT32_MAX, set->shift));
}

static uint64_t name_position(struct rg_h1_slice name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (uint32_t i = 0; i < name.size; i++) {
        hash = (hash ^ (uint8_t)name.data[i]) * UINT64_C(0x100000001b3);
    }
    return mix(hash) % TABLE_SIZE;
}

static size_t synthetic_read(struct rg_store_object *object, uint64_t offset,
                             const uint8_t **out_data)
{
    uint64_t at = (object->position + offset) % TABLE_SIZE;
    *out_data = table.bytes + at;
    return (size_t)RG_MIN(object->info.size - offset, TABLE_SIZE - at);
}

static const struct rg_store_object_type synthetic_type = {.read = synthetic_read};

static bool is_hidden(struct rg_synthetic *set, uint64_t index)
{
    _Atomic uint64_t *hidden = atomic_load_explicit(&set->hidden, memory_order_acquire);
    return hidden != NULL &&
           (atomic_load_explicit(&hidden[index / 64], memory_order_relaxed) >> index % 64 & 1);
}

/* The index of the first object at or behind `from`; `count` when there is none. */
static uint64_t first_index(const struct rg_synthetic *set, struct rg_h1_slice from)
{
    struct rg_h1_slice prefix = {set->prefix, set->prefix_size};
    if (!rg_text_starts_with(from, prefix)) {
        return rg_text_compare(from, prefix) < 0 ? 0 : set->count;
    }
    uint64_t index = 0;
    uint32_t at = set->prefix_size;
    uint32_t end = set->prefix_size + set->digits;
    bool zeros = false, behind = false;
    for (; at < end; at++) {
        zeros = zeros || at >= from.size || (uint8_t)from.data[at] < '0';
        behind = behind || (!zeros && (uint8_t)from.data[at] > '9');
        index = index * 10 + (uint64_t)(behind ? 9 : zeros ? 0 : from.data[at] - '0');
    }
    /* A name that has more behind the last digit lies behind the object. */
    index += behind || (!zeros && from.size > end);
    return RG_MIN(index, set->count);
}

static void format_name(const struct rg_synthetic *set, uint64_t index, char *name)
{
    memcpy(name, set->prefix, set->prefix_size);
    for (uint32_t i = set->prefix_size + set->digits; i > set->prefix_size; i--) {
        name[i - 1] = (char)('0' + index % 10);
        index /= 10;
    }
}

static void describe(const struct rg_synthetic *set, uint64_t position,
                     struct rg_store_object_info *out)
{
    *out = (struct rg_store_object_info){
        .size = set->object_size,
        /* Objects of one name are alike in all runs if they are of one size: whoever keeps bytes by
         * their generation never takes those of another run for these. */
        .generation = SYNTHETIC_TIME + (int64_t)set->object_size,
        .metageneration = 1,
        .updated_us = SYNTHETIC_TIME,
        .crc32c = object_crc32c(set, position),
        .has_crc32c = true,
        .content_type = "application/octet-stream",
    };
}

/* The index of a name; -ENOENT when it has none, or is hidden. */
static int find_index(struct rg_synthetic *set, struct rg_h1_slice name, uint64_t *out_index)
{
    if (name.size != set->prefix_size + set->digits ||
        memcmp(name.data, set->prefix, set->prefix_size) != 0) {
        return -ENOENT;
    }
    uint64_t index = 0;
    for (uint32_t i = set->prefix_size; i < name.size; i++) {
        uint8_t digit = (uint8_t)(name.data[i] - '0');
        if (digit > 9) {
            return -ENOENT;
        }
        index = index * 10 + digit;
    }
    if (index >= set->count || is_hidden(set, index)) {
        return -ENOENT;
    }
    *out_index = index;
    return 0;
}

int rg_synthetic_open(struct rg_synthetic *set, struct rg_h1_slice name,
                      struct rg_store_object *out_object)
{
    uint64_t index;
    int rc = find_index(set, name, &index);
    if (rc < 0) {
        return rc;
    }
    uint64_t position = name_position(name);
    out_object->type = &synthetic_type;
    out_object->owner = NULL;
    out_object->position = position;
    describe(set, position, &out_object->info);
    return 0;
}

struct rg_h1_slice rg_synthetic_prefix(const struct rg_synthetic *set)
{
    return (struct rg_h1_slice){set->prefix, set->prefix_size};
}

int rg_synthetic_seek(struct rg_synthetic *set, struct rg_h1_slice from, char *out_name,
                      uint32_t *out_name_size)
{
    uint64_t index = first_index(set, from);
    while (index < set->count && is_hidden(set, index)) {
        index++;
    }
    if (index == set->count) {
        return -ENOENT;
    }
    format_name(set, index, out_name);
    *out_name_size = set->prefix_size + set->digits;
    return 0;
}

void rg_synthetic_describe(const struct rg_synthetic *set, struct rg_h1_slice name,
                           struct rg_store_object_info *out_info)
{
    describe(set, name_position(name), out_info);
}

int rg_synthetic_hide(struct rg_synthetic *set, struct rg_h1_slice name)
{
    uint64_t index;
    int rc = find_index(set, name, &index);
    if (rc < 0) {
        return rc;
    }
    _Atomic uint64_t *hidden = atomic_load(&set->hidden);
    if (hidden == NULL) {
        hidden = calloc(set->count / 64 + 1, sizeof(*hidden));
        if (hidden == NULL) {
            return -ENOMEM;
        }
        atomic_store(&set->hidden, hidden);
    }
    atomic_fetch_or(&hidden[index / 64], UINT64_C(1) << index % 64);
    return 0;
}

/* Takes one of the binary suffixes (K, KB, KiB and so on, as the program's other sizes) off `text`;
 * returns by how many bits it shifts. */
static uint32_t take_suffix(struct rg_h1_slice *text)
{
    static const char units[] = "KMGT";
    uint32_t size = text->size;
    if (size > 2 && memcmp(text->data + size - 2, "iB", 2) == 0) {
        size -= 2;
    } else if (size > 1 && text->data[size - 1] == 'B') {
        size -= 1;
    }
    const char *unit = size > 1 ? memchr(units, text->data[size - 1], sizeof(units) - 1) : NULL;
    if (unit == NULL) {
        return 0;
    }
    text->size = size - 1;
    return 10 * (uint32_t)(unit - units + 1);
}

/* Digits and, where `units` are allowed, a suffix. */
static int parse_number(struct rg_h1_slice text, bool units, uint64_t *out_value)
{
    uint32_t bits = units ? take_suffix(&text) : 0;
    int64_t value;
    if (rg_text_parse_int64(text, &value) < 0 || value > INT64_MAX >> bits) {
        return -EINVAL;
    }
    *out_value = (uint64_t)value << bits;
    return 0;
}

struct synthetic_spec {
    struct rg_h1_slice bucket, prefix;
    uint64_t count, size;
};

static struct rg_h1_slice slice_between(const char *start, const char *end)
{
    return (struct rg_h1_slice){start, (uint32_t)(end - start)};
}

static uint32_t count_digits(uint64_t count)
{
    uint32_t digits = 1;
    for (uint64_t last = count - 1; last > 9; last /= 10) {
        digits++;
    }
    return RG_MAX(digits, (uint32_t)RG_SYNTHETIC_DIGITS_MIN);
}

/* Every name of a set is valid if the first one is. */
static bool prefix_valid(struct rg_h1_slice prefix, uint32_t digits)
{
    char name[RG_STORE_NAME_SIZE_MAX];
    if (prefix.size > sizeof(name) - digits) {
        return false;
    }
    memcpy(name, prefix.data, prefix.size);
    memset(name + prefix.size, '0', digits);
    return rg_store_object_name_valid((struct rg_h1_slice){name, prefix.size + digits});
}

/* NULL, or what is wrong with it. The prefix may hold colons: the last two separate. */
static const char *parse_spec(const char *spec, struct synthetic_spec *out)
{
    const char *slash = strchr(spec, '/');
    const char *size = strrchr(spec, ':');
    const char *count = size != NULL ? memrchr(spec, ':', (size_t)(size - spec)) : NULL;
    if (slash == NULL || count == NULL || slash > count) {
        return "a part is missing";
    }
    out->bucket = slice_between(spec, slash);
    out->prefix = slice_between(slash + 1, count);
    if (!rg_store_bucket_name_valid(out->bucket)) {
        return "the bucket name is not 3 or more of a-z, 0-9, '-', '_' and '.'";
    }
    if (parse_number(slice_between(count + 1, size), false, &out->count) < 0 || out->count == 0 ||
        out->count > RG_SYNTHETIC_COUNT_MAX) {
        return "COUNT is not a number from 1 to 10^12";
    }
    if (parse_number(rg_text_slice(size + 1), true, &out->size) < 0 ||
        out->size > RG_STORE_OBJECT_SIZE_MAX) {
        return "SIZE is not a number of bytes up to 5TiB (100000, 100K, 4MiB)";
    }
    if (!prefix_valid(out->prefix, count_digits(out->count))) {
        return "PREFIX is not the start of an object name (UTF-8, 1024 bytes with the number)";
    }
    return NULL;
}

static void synthetic_init(struct rg_synthetic *set, const struct synthetic_spec *spec)
{
    pthread_once(&table.once, table_fill);
    memcpy(set->prefix, spec->prefix.data, spec->prefix.size);
    set->prefix_size = spec->prefix.size;
    set->digits = count_digits(spec->count);
    set->count = spec->count;
    set->object_size = spec->size;
    set->shift = zero_bytes(spec->size);
    set->periods = spec->size / TABLE_SIZE;
    set->period_crc[0] = repeated_table(set->periods);
    set->period_crc[1] = repeated_table(set->periods + 1);
}

int rg_synthetic_create(struct rg_synthetic **out_set, const char *spec,
                        struct rg_h1_slice *out_bucket, char *error, size_t error_size)
{
    struct synthetic_spec parsed = {0};
    const char *problem = parse_spec(spec, &parsed);
    if (problem != NULL) {
        snprintf(error, error_size,
                 "--synthetic '%s': %s; must be BUCKET/PREFIX:COUNT:SIZE, as in "
                 "data/train-:20000:100KiB",
                 spec, problem);
        return -EINVAL;
    }
    struct rg_synthetic *set = calloc(1, sizeof(*set));
    if (set == NULL) {
        snprintf(error, error_size, "--synthetic '%s': out of memory", spec);
        return -ENOMEM;
    }
    synthetic_init(set, &parsed);
    *out_bucket = parsed.bucket;
    *out_set = set;
    return 0;
}

void rg_synthetic_destroy(struct rg_synthetic *set)
{
    if (set != NULL) {
        free((void *)atomic_load(&set->hidden));
        free(set);
    }
}
