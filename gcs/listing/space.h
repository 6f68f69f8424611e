/* The names of a listing, divided into segments: which pages to request, and which names of their
 * answers count. No I/O and no clock, so that a test can play every server.
 *
 * A *segment* is a range of names that one chain of pages walks. The first segment is everything.
 * While a segment has more pages, the rest of it may be cut into pieces: the segment keeps the
 * first piece, and the others become segments behind it. So segments never overlap and leave
 * nothing out, whatever the keys.
 *
 *   new -> query -> page -> query -> page ... -> done -> freed
 *             ^       |
 *             +-- cut +
 *
 * A chain goes on by page token. The service then allows nothing else of the request to change. So
 * a segment that was cut begins a new chain at the last name that it has seen; that name comes
 * again and is dropped. With several generations of a name this does not work: the last page may
 * not have had all of them. Then the old chain goes on, and names behind the cut are dropped. */
#ifndef RG_GCS_LISTING_SPACE_H
#define RG_GCS_LISTING_SPACE_H

#include "gcs/listing/split.h"

struct rg_segment {
    struct rg_list node;  /* in the order of names */
    struct rg_list pages; /* for the owner's use; empty when the segment is freed */
    uint32_t page_count;  /* that it has had */
    bool waits;           /* its next page has not been requested; the owner's */
    bool done;
    bool has_progress;   /* the last page had a name that was new */
    bool is_cut_off;     /* another segment ends where this one begins */
    uint32_t surprises;  /* pages that came when no more were predicted */
    uint32_t repeats;    /* answers in a row with no names and the token that was sent */
    uint32_t last_count; /* names of the last page */
    char *token;         /* owned; of the next page; NULL: a chain begins */
    /* "": none. */
    char low[RG_SPLIT_KEY_SIZE];   /* names >= it */
    char limit[RG_SPLIT_KEY_SIZE]; /* names < it */
    char first[RG_SPLIT_KEY_SIZE]; /* of the last page */
    char floor[RG_SPLIT_KEY_SIZE]; /* the last name that was seen: it and all below are done */
    /* The offsets that requests of the chain send. */
    char chain_start[RG_SPLIT_KEY_SIZE], chain_end[RG_SPLIT_KEY_SIZE];
};

struct rg_space {
    struct rg_list segments; /* struct rg_segment */
    uint32_t segment_count;
    const char *prefix, *delimiter; /* borrowed; not NULL */
    bool versions, ordered;
    bool unsorted; /* the server does not keep to the order; then nothing is cut */
    uint32_t page_size;
    uint32_t misses; /* new segments in a row that turned out to be empty */
    uint32_t trust;  /* ordered: how many may be made at once. One more after each that had names,
                      * half as many after an empty one */
    double fill;     /* how full the first pages of new segments were lately; 1: full */
    struct rg_split_model model;
    char keys[RG_SPLIT_KEYS_MAX][RG_SPLIT_KEY_SIZE];
};

struct rg_space_options {
    const char *prefix, *delimiter, *start, *end; /* NULL: none; the first two are borrowed */
    bool versions, ordered;
    uint32_t page_size;
};

/* What a request asks for besides what is the same for all; NULL: none. Borrowed from the segment.
 */
struct rg_space_query {
    const char *start_offset, *end_offset, *page_token;
};

/* -EINVAL: an offset that no name can be compared with; -ENOMEM. */
int rg_space_init(struct rg_space *space, const struct rg_space_options *options);
void rg_space_fini(struct rg_space *space);

struct rg_segment *rg_space_first(const struct rg_space *space);
/* Frees it. It is done, or the space is given up. */
void rg_space_remove(struct rg_space *space, struct rg_segment *segment);

void rg_segment_query(const struct rg_segment *segment, struct rg_space_query *out_query);
/* Takes the answer to the segment's query: removes names from the page that are not the segment's
 * or came before, and notes where the segment goes on, or that it is done. -EBADMSG: the answer
 * cannot be right; *out_problem says why in words that follow "the answer"; -ENOMEM. */
int rg_space_take_page(struct rg_space *space, struct rg_segment *segment,
                       struct rg_list_page *page, const char **out_problem);
/* Directly after rg_space_take_page: cuts the rest of the segment into itself and up to new_max
 * segments behind it. Returns how many it has made: fewer, or none, where more would not help. */
uint32_t rg_space_cut(struct rg_space *space, struct rg_segment *segment, uint32_t new_max);
/* Joins a segment of which no page was requested with the ones directly behind it of which none was
 * either: as many as are likely to fill one page together, and join_max at most. */
void rg_space_join(struct rg_space *space, struct rg_segment *segment, uint32_t join_max);

#endif
