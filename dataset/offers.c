/* See offers.h. */
#include "dataset/offers.h"

#include <errno.h>
#include <stdlib.h>

int rg_offers_init(struct rg_offers *offers, uint32_t capacity)
{
    RG_ASSERT(capacity > 0 && (capacity & (capacity - 1)) == 0);
    *offers = (struct rg_offers){.capacity = capacity};
    offers->ring = calloc(capacity, sizeof(*offers->ring));
    return offers->ring != NULL ? 0 : -ENOMEM;
}

void rg_offers_fini(struct rg_offers *offers)
{
    free(offers->ring);
    offers->ring = NULL;
}

static struct rg_offer *offer_at(const struct rg_offers *offers, uint64_t place)
{
    return &offers->ring[place & (offers->capacity - 1)];
}

/* The invariant in offers.h. O(what is offered): for RG_VERIFY. */
static bool invariants(const struct rg_offers *offers)
{
    uint64_t fresh = atomic_load(&offers->fresh), left = 0;
    for (uint64_t place = offers->head; place < offers->tail; place++) {
        left += !offer_at(offers, place)->is_collected;
    }
    return offers->head <= offers->tail && offers->tail - offers->head <= offers->capacity &&
           fresh <= left;
}

uint64_t rg_offers_add(struct rg_offers *offers, uint64_t index, uint64_t number)
{
    RG_ASSERT(rg_offers_room(offers) > 0);
    struct rg_offer *offer = offer_at(offers, offers->tail);
    offer->index = index;
    offer->number = number;
    offer->is_collected = false;
    atomic_store_explicit(&offer->is_taken, false, memory_order_relaxed);
    return offers->tail++;
}

void rg_offers_take(struct rg_offers *offers, struct rg_completion *records, uint32_t count)
{
    atomic_fetch_add_explicit(&offers->fresh, count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        struct rg_offer *offer = offer_at(offers, records[i].sample_number);
        records[i].sample_index = offer->index;
        records[i].sample_number = offer->number;
        atomic_store_explicit(&offer->is_taken, true, memory_order_release);
    }
}

static void head_advance(struct rg_offers *offers)
{
    while (offers->head < offers->tail && offer_at(offers, offers->head)->is_collected) {
        offers->head++;
    }
}

uint32_t rg_offers_collect(struct rg_offers *offers, uint64_t *out_numbers, uint32_t max)
{
    uint64_t fresh = atomic_load_explicit(&offers->fresh, memory_order_acquire);
    uint32_t count = 0;
    for (uint64_t place = offers->head; place < offers->tail && count < max; place++) {
        /* Those that were found may have been counted after others that are not found yet. */
        if (count >= fresh &&
            count >= (fresh = atomic_load_explicit(&offers->fresh, memory_order_acquire))) {
            break;
        }
        struct rg_offer *offer = offer_at(offers, place);
        if (!offer->is_collected && atomic_load_explicit(&offer->is_taken, memory_order_acquire)) {
            out_numbers[count++] = offer->number;
            offer->is_collected = true;
        }
    }
    head_advance(offers);
    atomic_fetch_sub_explicit(&offers->fresh, count, memory_order_relaxed);
    RG_VERIFY(invariants(offers));
    return count;
}
