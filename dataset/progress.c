/* See progress.h. */
#include "dataset/progress.h"

#include "runtime/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const struct rg_progress *progress)
{
    return RG_MAX(progress->capacity / 8, 1u);
}

static uint32_t place_of(const struct rg_progress *progress, uint64_t number)
{
    return (uint32_t)(number & (progress->capacity - 1));
}

static bool is_set(const struct rg_progress *progress, uint64_t number)
{
    uint32_t place = place_of(progress, number);
    return (progress->bits[place / 8] & (1 << (place % 8))) != 0;
}

/* The invariant in progress.h. O(capacity): for RG_VERIFY. */
static bool invariants(const struct rg_progress *progress)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < progress->capacity; i++) {
        count += is_set(progress, i);
    }
    return count == progress->ahead && !is_set(progress, progress->first);
}

static void first_advance(struct rg_progress *progress)
{
    while (progress->ahead > 0 && is_set(progress, progress->first)) {
        uint32_t place = place_of(progress, progress->first++);
        progress->bits[place / 8] &= (uint8_t) ~(1 << (place % 8));
        progress->ahead--;
    }
    RG_VERIFY(invariants(progress));
}

int rg_progress_init(struct rg_progress *progress, uint32_t capacity)
{
    RG_ASSERT(capacity > 0 && (capacity & (capacity - 1)) == 0);
    *progress = (struct rg_progress){.capacity = capacity};
    progress->bits = calloc(bytes_of(progress), 1);
    return progress->bits != NULL ? 0 : -ENOMEM;
}

void rg_progress_fini(struct rg_progress *progress)
{
    free(progress->bits);
    *progress = (struct rg_progress){0};
}

void rg_progress_begin(struct rg_progress *progress, uint64_t first, const uint8_t *bits,
                       uint32_t bit_count)
{
    RG_ASSERT(bit_count % 8 == 0);
    memset(progress->bits, 0, bytes_of(progress));
    progress->first = first;
    progress->ahead = 0;
    for (uint32_t i = 0; i < bit_count; i++) {
        if ((bits[i / 8] & (1 << (i % 8))) != 0) {
            RG_ASSERT(i < progress->capacity);
            uint32_t place = place_of(progress, first + i);
            progress->bits[place / 8] |= (uint8_t)(1 << (place % 8));
            progress->ahead++;
        }
    }
    first_advance(progress);
}

bool rg_progress_has(const struct rg_progress *progress, uint64_t number)
{
    RG_ASSERT(number >= progress->first);
    return number - progress->first < progress->capacity && is_set(progress, number);
}

void rg_progress_add(struct rg_progress *progress, uint64_t number)
{
    RG_ASSERT(number >= progress->first && number - progress->first < progress->capacity);
    RG_ASSERT(!is_set(progress, number));
    if (number == progress->first) {
        progress->first++;
    } else {
        uint32_t place = place_of(progress, number);
        progress->bits[place / 8] |= (uint8_t)(1 << (place % 8));
        progress->ahead++;
    }
    first_advance(progress);
}

uint64_t rg_progress_end(const struct rg_progress *progress)
{
    uint64_t end = progress->first;
    uint32_t left = progress->ahead;
    for (uint64_t number = progress->first; left > 0; number++) {
        if (is_set(progress, number)) {
            end = number + 1;
            left--;
        }
    }
    return end;
}

void rg_progress_copy(struct rg_progress *progress, const struct rg_progress *other)
{
    RG_ASSERT(progress->capacity == other->capacity);
    if (progress->ahead > 0 || other->ahead > 0) {
        memcpy(progress->bits, other->bits, bytes_of(other));
    }
    progress->first = other->first;
    progress->ahead = other->ahead;
    RG_VERIFY(invariants(progress));
}

uint32_t rg_progress_bits(const struct rg_progress *progress, uint8_t *out)
{
    uint32_t count = (uint32_t)((rg_progress_end(progress) - progress->first + 7) / 8 * 8);
    memset(out, 0, count / 8);
    for (uint32_t i = 0; i < count; i++) {
        if (rg_progress_has(progress, progress->first + i)) {
            out[i / 8] |= (uint8_t)(1 << (i % 8));
        }
    }
    return count;
}
