/* How many requests for pages may be out at once. Pure: it is told times and has no clock.
 *
 * A listing begins with one request. Requests at once save waiting, and each may cost a new
 * connection. So their number grows with the time that pages have taken: within a few round trips
 * where the server is far, and hardly at all where it is near. */
#ifndef RG_GCS_LISTING_PACE_H
#define RG_GCS_LISTING_PACE_H

#include "runtime/base.h"

/* Starts zeroed. */
struct rg_pace {
    uint64_t page_count;
    uint64_t page_ns;    /* of the fastest page that has a next one; 0: none has come */
    uint64_t connect_ns; /* that the first page waited for a connection */
};

/* A page has come; `waited_ns`: from its submission until it was sent. */
void rg_pace_page_came(struct rg_pace *pace, uint64_t waited_ns);
/* It has a next page, and took so long from being sent. (One that ends a range may have few names,
 * so its time says little.) */
void rg_pace_page_took(struct rg_pace *pace, uint64_t took_ns);
/* At least 1; more with every page. */
uint64_t rg_pace_requests(const struct rg_pace *pace);

#endif
