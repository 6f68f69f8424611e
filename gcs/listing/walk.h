/* Walks all names of a listing with several requests for pages at once. It runs on one loop and is
 * the part of a listing's operation that has the children.
 *
 * There is a fixed number of slots, so that what is ahead of the caller is bounded:
 *
 *   FREE -> OUT (a request for a page) -> FULL (the page waits for the caller) -> FREE
 *             |                                                                    ^
 *             +---- the page was empty, or the request has failed -----------------+
 *
 * When all slots are full nothing is out, and nothing more is requested until the caller takes a
 * page: that is the back-pressure.
 *
 * What is asked for next, and what of an answer counts, is decided by the space of names (space.h);
 * how many requests may be out, by the pace (pace.h); which page the caller gets next, by the
 * delivery (delivery.h). Slots go to segments in the order of names. In an ordered listing the
 * first segment, for which the caller waits, therefore always gets the slot that its last page
 * freed, however many pages of later segments there are. */
#ifndef RG_GCS_LISTING_WALK_H
#define RG_GCS_LISTING_WALK_H

#include "gcs/listing/delivery.h"
#include "gcs/listing/pace.h"
#include "gcs/listing/question.h"
#include "gcs/listing/space.h"
#include "gcs/request/operation.h"

struct rg_walk_slot;

struct rg_walk {
    struct rg_operation *operation;
    const struct rg_list_question *question; /* borrowed */
    bool ordered;
    struct rg_space space;
    struct rg_pace pace;
    struct rg_delivery delivery;
    struct rg_walk_slot *slots;
    uint32_t slot_count, free_count;
    struct rg_list free_slots;
};

/* Makes a zeroed walk that of an operation, whose request has its client and its loop. `question`
 * is the checked copy of `options`. -EINVAL: something that the
 * service would refuse; -ENOMEM. To be freed by rg_walk_fini in any case. */
int rg_walk_init(struct rg_walk *walk, struct rg_operation *operation,
                 const struct rg_list_question *question, const struct rg_listing_options *options);
/* A zeroed one is fine. Nothing is out. */
void rg_walk_fini(struct rg_walk *walk);

/* The operation is RUNNING: starts as many requests as there are slots and work for. May fail the
 * operation. */
void rg_walk_advance(struct rg_walk *walk);
/* The next page for the caller, with its lease; at the end an empty one. False: it has not come, or
 * the operation waits for memory for it. */
bool rg_walk_take(struct rg_walk *walk, struct rg_completion *out_page);
/* Cancels what is out. */
void rg_walk_cancel(struct rg_walk *walk, enum rg_status status);
/* Nothing is out: releases the pages that nobody will take. */
void rg_walk_drop_pages(struct rg_walk *walk);

#endif
