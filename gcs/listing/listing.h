/* The inner side of a listing (the outer side is in <ringest/listing.h>).
 *
 * A listing is an operation (gcs/request/operation.h) that hands out pages instead of one result.
 * Its own request has no completion queue; each rg_listing_next is a request of its own, which
 * waits in the listing until there is a page for it. The operation's states are those of any other:
 *
 *   IDLE      opened; nothing is sent before the first page is asked for
 *   RUNNING   pages are requested, kept and handed out. It rests while all slots are full, and at
 *             its end: then nothing is out and no task is deferred, until the next page is asked
 *             for. So it never finishes by itself
 *   STOPPING, VERIFYING, CLEANING   a request has failed, or the listing is being closed: what is
 *             out is cancelled; there is nothing to verify and nothing to clean
 *   ENDED     the pages that were kept are released. Who asks for a page gets the failure; a close
 *             returns
 *
 * Who lives where: listing.c has the public functions and the operation; walk.c the requests for
 * pages; delivery.c the pages that wait; pace.c how many requests may be out; space.c and split.c
 * the ranges of names; page.c a single request; question.c what is asked for. */
#ifndef RG_GCS_LISTING_LISTING_H
#define RG_GCS_LISTING_LISTING_H

#include <ringest/listing.h>

/* The two halves of rg_listing_close: who drives the loops himself does so between them, until
 * rg_listing_is_closed. */
void rg_listing_close_begin(struct rg_listing *listing);
bool rg_listing_is_closed(const struct rg_listing *listing);
void rg_listing_close_finish(struct rg_listing *listing);

#endif
