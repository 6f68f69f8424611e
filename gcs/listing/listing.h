/* The inner side of a listing (the outer side is in <ringest/listing.h>). */
#ifndef RG_GCS_LISTING_LISTING_H
#define RG_GCS_LISTING_LISTING_H

#include <ringest/listing.h>

/* Requests of a listing that are out at once, and pages ahead of the caller. */
#define RG_LISTING_REQUESTS_DEFAULT 16
#define RG_LISTING_REQUESTS_LIMIT 1024

/* The two halves of rg_listing_close: who drives the loops himself does so between them, until
 * rg_listing_is_closed. */
void rg_listing_close_begin(struct rg_listing *listing);
bool rg_listing_is_closed(const struct rg_listing *listing);
void rg_listing_close_finish(struct rg_listing *listing);

#endif
