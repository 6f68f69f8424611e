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
           (!is_there || number == 0 || span[-1].end < span->begin) &&
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

static bool room_make(struct rg_coverage *coverage)
{
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

static void span_append(struct rg_coverage_span *span, const struct rg_coverage_span *next)
{
    span->crc = rg_crc32c_combine(span->crc, next->crc, next->end - next->begin);
    span->end = next->end;
}

/* Adds bytes that nobody has read, which lie before the stretch of this number. */
static void span_insert(struct rg_coverage *coverage, uint32_t number,
                        const struct rg_coverage_span *added)
{
    struct rg_coverage_span *span = &coverage->spans[number];
    bool joins_last = number > 0 && span[-1].end == added->begin;
    bool joins_next = number < coverage->count && span->begin == added->end;
    size_t behind = coverage->count - number;
    if (joins_last) {
        span_append(&span[-1], added);
        if (joins_next) {
            span_append(&span[-1], span);
            coverage->count--;
            memmove(span, span + 1, (behind - 1) * sizeof(*span));
        }
    } else if (joins_next) {
        struct rg_coverage_span joined = *added;
        span_append(&joined, span);
        *span = joined;
    } else if (room_make(coverage)) {
        span = &coverage->spans[number];
        memmove(span + 1, span, behind * sizeof(*span));
        *span = *added;
        coverage->count++;
    }
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
        span_insert(coverage, number, &added);
        RG_VERIFY(invariants(coverage, number) && invariants(coverage, number + 1));
    }
}

bool rg_coverage_is_whole(const struct rg_coverage *coverage, uint64_t size, uint32_t *out_crc)
{
    if (coverage->count != 1 || coverage->spans[0].begin != 0 || coverage->spans[0].end != size) {
        return false;
    }
    *out_crc = coverage->spans[0].crc;
    return true;
}
