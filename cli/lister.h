/* Listing a bucket page by page, for the commands that need its names. */
#ifndef RG_CLI_LISTER_H
#define RG_CLI_LISTER_H

#include "cli/session.h"

/* Requests of a listing that are out at once. */
#define LISTER_REQUESTS 16

struct lister {
    struct cli_session *session;
    struct rg_listing *listing;
    struct rg_cq *cq;
    struct rg_completion completion; /* of the page that the caller has */
};

/* CLI_DONE, or an exit status after printing why not. */
int lister_open(struct lister *lister, struct cli_session *session,
                const struct rg_listing_options *options);
/* The next page, valid until the next call, or NULL at the end. Returns CLI_DONE, or an exit status
 * after printing why not. */
int lister_next(struct lister *lister, const struct rg_list_page **out_page);
/* A zeroed one is fine. */
void lister_close(struct lister *lister);

#define LISTED_TIME_SIZE 40
struct listed {
    char *name; /* owned */
    uint64_t size;
    int64_t generation;
    char updated[LISTED_TIME_SIZE]; /* RFC 3339; "": unknown */
};
/* All objects with a prefix, sorted by name, to be freed in any case. CLI_DONE, or an exit
 * status after printing why not. */
int lister_all(struct cli_session *session, const char *bucket, const char *prefix,
               struct listed **out_objects, size_t *out_count);
void listed_free(struct listed *objects, size_t count);

#endif
