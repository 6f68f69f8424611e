/* Pages that have come and wait until the caller takes them, one at a time.
 *
 *   put -> (moved to the heap -> back to a lease) -> take
 *
 * Without an order, pages are taken as they came. In an ordered listing each segment keeps its own
 * pages, and those of the first segment are taken. The page that is next must never wait for memory
 * that pages behind it hold. So beyond a share of the loop's memory those are moved to the heap,
 * and back when it is their turn. */
#ifndef RG_GCS_LISTING_DELIVERY_H
#define RG_GCS_LISTING_DELIVERY_H

#include "gcs/listing/space.h"
#include "runtime/loop.h"

/* A page that waits. Starts zeroed; its owner's, who gets it back by take or drop. */
struct rg_waiting_page {
    struct rg_list node;
    struct rg_completion completion; /* its lease is owned; on the heap there is none */
    void *heap;                      /* owned; where the page is instead of a lease, or NULL */
    uint64_t counted; /* of the memory of all that wait; 0: on the heap, or it came as the next */
};

struct rg_delivery {
    struct rg_loop *loop;
    struct rg_space *space;
    bool ordered;
    struct rg_list ready;   /* struct rg_waiting_page; without an order */
    uint64_t counted;       /* the sum over all that wait */
    struct rg_task *memory; /* borrowed; waits for a lease for the page that is next */
};

/* `memory` runs when there may be memory for the next page, which should be taken at once. */
void rg_delivery_init(struct rg_delivery *delivery, struct rg_loop *loop, struct rg_space *space,
                      bool ordered, struct rg_task *memory);

/* Puts a page of `segment` behind those that are there; takes its lease. */
void rg_delivery_put(struct rg_delivery *delivery, struct rg_segment *segment,
                     struct rg_waiting_page *page, const struct rg_completion *completion);
/* The page that the caller gets next; NULL: it has not come. Removes segments that have ended. */
struct rg_waiting_page *rg_delivery_next(struct rg_delivery *delivery);
/* Hands it out, with its lease. False: there is no memory for it now; `memory` waits for some. */
bool rg_delivery_take(struct rg_delivery *delivery, struct rg_waiting_page *page,
                      struct rg_completion *out_completion);
/* Releases a page that nobody will take. */
void rg_delivery_drop(struct rg_delivery *delivery, struct rg_waiting_page *page);

#endif
