/* The request for one page of a listing: for rg_submit_list, and as a child of a whole listing. */
#ifndef RG_GCS_LISTING_PAGE_H
#define RG_GCS_LISTING_PAGE_H

#include "gcs/listing/question.h"
#include "gcs/request/request.h"

/* Prepares a request for one page; everything is copied. -EINVAL: a name or a number that the
 * service would refuse; -ENOMEM. On failure there is nothing to release. */
int rg_list_prepare(struct rg_request *request, const struct rg_list_question *question);

#endif
