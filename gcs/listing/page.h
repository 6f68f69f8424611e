/* Pages of a listing as requests: for rg_submit_list, and as children of a whole listing. */
#ifndef RG_GCS_LISTING_PAGE_H
#define RG_GCS_LISTING_PAGE_H

#include "gcs/request/request.h"

/* Names in a page at most, and where nothing else is asked for ("objects: list", maxResults). */
#define RG_LIST_RESULTS_MAX 1000

/* What a page is asked for. */
struct rg_list_question {
    struct rg_list_request list;
    const char *glob; /* NULL: none */
    bool versions, folders_as_prefixes;
};

/* Prepares a request for one page; everything is copied. -EINVAL: a name or a number that the
 * service would refuse; -ENOMEM. On failure there is nothing to release. */
int rg_list_prepare(struct rg_request *request, const struct rg_list_question *question);

#endif
