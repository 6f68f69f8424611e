/* What the pages of a listing are asked for.
 *
 * One question is the same for all pages of a listing; the offsets and the page token are added
 * for each page. A whole listing makes a copy of its options and frees it at its end. */
#ifndef RG_GCS_LISTING_QUESTION_H
#define RG_GCS_LISTING_QUESTION_H

#include <ringest/listing.h>

/* Names in a page at most, and where nothing else is asked for ("objects: list", maxResults). */
#define RG_LIST_RESULTS_MAX 1000
/* Requests of a listing that are out at once, and pages ahead of the caller. */
#define RG_LISTING_REQUESTS_DEFAULT 16
#define RG_LISTING_REQUESTS_LIMIT 1024

struct rg_list_question {
    struct rg_list_request list;
    const char *glob; /* NULL: none */
    bool versions, folders_as_prefixes;
};

/* Checks the options, and copies all but the two offsets. -EINVAL: text that is not UTF-8 or too
 * long, or a value that the service would refuse; -ENOMEM. To be freed in any case, so it starts
 * zeroed. */
int rg_list_question_copy(struct rg_list_question *question,
                          const struct rg_listing_options *options);
/* Frees the strings of a copy. */
void rg_list_question_free(struct rg_list_question *question);

#endif
