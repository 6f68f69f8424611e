/* One page of a bucket's listing, as both APIs need it: objects in the order of their names, with
 * names that go on behind a delimiter collapsed into a prefix. Nothing is materialised: each step
 * seeks in the store, and a collapsed prefix is skipped in one step. */
#ifndef RG_EMULATOR_STORE_LISTING_H
#define RG_EMULATOR_STORE_LISTING_H

#include "emulator/store/bucket.h"
#include "emulator/wire/text.h"

#define RG_LISTING_PAGE_MAX 1000
/* Limit of the names that are looked at for a page. A page is short when few of them match. */
#define RG_LISTING_SCAN_MAX 100000

struct rg_api_listing_query {
    struct rg_h1_slice prefix, delimiter;
    struct rg_h1_slice start, end; /* start <= name < end; empty: no bound. */
    struct rg_h1_slice after;      /* name > after, and not below `after` where that is a prefix. */
    struct rg_h1_slice token; /* The token of the page before; empty: this is the first page. */
    struct rg_h1_slice glob;  /* A valid pattern for names and prefixes. Empty: all match. */
    uint32_t page_max;
    bool soft_deleted; /* Only soft-deleted versions; `versions` is set, too. */
    bool versions;     /* Noncurrent ones, too. */
    bool folders;      /* Folders of a hierarchical bucket are prefixes; the delimiter is "/". */
    bool trailing_delimiter; /* An object named like a prefix is listed as well. */
};

enum rg_api_listing_kind {
    RG_LISTING_END,
    RG_LISTING_OBJECT, /* `entry` */
    RG_LISTING_PREFIX, /* `group` */
};

/* The query's slices are borrowed until the end. `more` and the token are valid after the end. */
struct rg_api_listing {
    struct rg_bucket *bucket;
    struct rg_api_listing_query query;
    uint32_t count, scanned;
    bool finished, more, group_pending;
    bool is_folder;           /* The entry is a folder, of which there is only a name. */
    struct rg_h1_slice group; /* In `entry.name`. */
    struct rg_store_entry entry;
    char next[RG_STORE_NAME_SIZE_MAX + 1]; /* Where to seek. */
    uint32_t next_size;
    int64_t next_after; /* Versions of exactly that name have to be behind this generation. */
};

/* 0, or -EINVAL: the token is not one of ours. */
int rg_api_listing_start(struct rg_api_listing *listing, struct rg_bucket *bucket,
                         const struct rg_api_listing_query *query);
/* An rg_api_listing_kind, or what the store says. */
int rg_api_listing_next(struct rg_api_listing *listing);
/* Appends the token of the page that follows. */
void rg_api_listing_append_token(const struct rg_api_listing *listing, struct rg_text *text);

#endif
