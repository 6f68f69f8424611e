/* See coverage.h. */
#include "checkpoint/coverage.h"

#include "gcs/wire/checksum.h"

#include <stdlib.h>
#include <string.h>

#define SPANS_MIN 16

/* Of the stretch of this number and the one before. */
static bool invariants(const struct rg_coverage *coverage, uint32_t number)
{
    const struct rg_coverage_span *span = &coverage->spans[number];
    bool is_there = number < coverage->count;
    return (!is_there || span->begin < span->end) &&
           (!is_there || number == 0 || span[-1].end <= span->begin) &&
           coverage->count <= coverage->capacity && (!coverage->is_lost || coverage->count == 0);
}

void rg_coverage_fini(struct rg_coverage *coverage)
{
    free(coverage->spans);
    *coverage = (struct rg_coverage){0};
}

static void lose(struct rg_coverage *coverage)
{
    rg_coverage_fini(coverage);
    coverage->is_lost = true;
}

/* The first stretch that ends behind this byte. */
static uint32_t span_find(const struct rg_coverage *coverage, uint64_t at)
{
    uint32_t low = 0, high = coverage->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (coverage->spans[middle].end > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void span_append(struct rg_coverage_span *span, const struct rg_coverage_span *next)
{
    span->crc = rg_crc32c_combine(span->crc, next->crc, next->end - next->begin);
    span->end = next->end;
}

/* O(stretches). */
static void neighbours_join(struct rg_coverage *coverage)
{
    struct rg_coverage_span *last = coverage->spans;
    for (uint32_t i = 1; i < coverage->count; i++) {
        const struct rg_coverage_span *next = &coverage->spans[i];
        if (last->end == next->begin) {
            span_append(last, next);
        } else {
            *++last = *next;
        }
    }
    coverage->count = (uint32_t)(last - coverage->spans) + 1;
}

static bool room_make(struct rg_coverage *coverage)
{
    if (coverage->count == RG_COVERAGE_SPANS_MAX) {
        neighbours_join(coverage);
    }
    if (coverage->count < coverage->capacity) {
        return true;
    }
    uint32_t capacity = RG_MAX(2 * coverage->capacity, (uint32_t)SPANS_MIN);
    struct rg_coverage_span *spans = NULL;
    if (capacity <= RG_COVERAGE_SPANS_MAX) {
        spans = reallocarray(coverage->spans, capacity, sizeof(*spans));
    }
    if (spans == NULL) {
        lose(coverage);
        return false;
    }
    coverage->spans = spans;
    coverage->capacity = capacity;
    return true;
}

/* Adds bytes that nobody has read. */
static void span_insert(struct rg_coverage *coverage, const struct rg_coverage_span *added)
{
    if (!room_make(coverage)) {
        return;
    }
    uint32_t number = span_find(coverage, added->begin);
    struct rg_coverage_span *span = &coverage->spans[number];
    memmove(span + 1, span, (coverage->count - number) * sizeof(*span));
    *span = *added;
    coverage->count++;
    coverage->covered += added->end - added->begin;
    RG_VERIFY(invariants(coverage, number) && invariants(coverage, number + 1));
}

void rg_coverage_add(struct rg_coverage *coverage, uint64_t begin, const void *data, uint64_t size,
                     uint32_t crc)
{
    uint64_t at = begin, end = begin + size;
    while (at < end && !coverage->is_lost) {
        uint32_t number = span_find(coverage, at);
        const struct rg_coverage_span *next = &coverage->spans[number];
        bool has_next = number < coverage->count;
        if (has_next && next->begin <= at) {
            at = next->end;
            continue;
        }
        struct rg_coverage_span added = {
            .begin = at, .end = has_next ? RG_MIN(end, next->begin) : end, .crc = crc};
        if (added.end - added.begin < size) {
            added.crc =
                rg_crc32c(0, (const uint8_t *)data + (at - begin), (size_t)(added.end - at));
        }
        at = added.end;
        span_insert(coverage, &added);
    }
}

bool rg_coverage_has(const struct rg_coverage *coverage, uint64_t begin, uint64_t size,
                     uint32_t *out_crc)
{
    const struct rg_coverage_span *spans = coverage->spans;
    uint32_t first = span_find(coverage, begin), count = coverage->count, last = first;
    if (size == 0 || first == count || spans[first].begin != begin) {
        return false;
    }
    while (spans[last].end < begin + size && last + 1 < count &&
           spans[last].end == spans[last + 1].begin) {
        last++;
    }
    if (spans[last].end != begin + size) {
        return false;
    }
    struct rg_coverage_span all = spans[first];
    while (first < last) {
        span_append(&all, &spans[++first]);
    }
    *out_crc = all.crc;
    return true;
}

bool rg_coverage_is_whole(const struct rg_coverage *coverage, uint64_t size, uint32_t *out_crc)
{
    return coverage->covered == size && rg_coverage_has(coverage, 0, size, out_crc);
}
