/* The names of a listing, divided into segments: which pages are to be asked for, and what of their
 * answers counts. No I/O and no clock, so that a test can play every server.
 *
 * A *segment* is a range of names that one chain of pages walks. The first segment is everything.
 * While it has more pages, what is left of it may be cut in pieces: it keeps the first, the others
 * become segments behind it. So segments never overlap and leave nothing out, whatever the keys.
 *
 *   new -> query -> page -> query -> page ... -> done -> freed
 *             ^       |
 *             +-- cut +
 *
 * A chain goes on by page token, for which nothing else of its request may change. A segment that
 * was cut begins a new chain at the last name it has seen, which then comes again and is dropped.
 * Where there are several generations of a name that is not possible; the old chain goes on instead
 * and what it says of names behind the cut is dropped. */
#ifndef RG_GCS_LISTING_SPACE_H
#define RG_GCS_LISTING_SPACE_H

#include "gcs/listing/split.h"

struct rg_segment {
    struct rg_list node;  /* in the order of names */
    struct rg_list pages; /* for the owner's use; empty when the segment is freed */
    uint32_t page_count;  /* that it has had */
    bool waits;           /* for its next page to be asked for; the owner's */
    bool done;
    bool has_progress;  /* the last page had a name that was new */
    bool is_cut_off;    /* another segment ends where this one begins */
    uint32_t surprises; /* pages that came when none was expected any more */
    uint32_t repeats;   /* answers in a row that led nowhere */
    uint32_t last_count;
    char *token; /* owned; of the next page; NULL: a chain begins */
    /* "": none. */
    char low[RG_SPLIT_KEY_SIZE];   /* names >= it */
    char limit[RG_SPLIT_KEY_SIZE]; /* names < it */
    char first[RG_SPLIT_KEY_SIZE]; /* of the last page */
    char floor[RG_SPLIT_KEY_SIZE]; /* the last name that was seen: it and all below are done */
    char chain_start[RG_SPLIT_KEY_SIZE], chain_end[RG_SPLIT_KEY_SIZE];
};

struct rg_space {
    struct rg_list segments; /* struct rg_segment */
    uint32_t segment_count;
    const char *prefix, *delimiter; /* borrowed; not NULL */
    bool versions, ordered;
    bool unsorted; /* the server does not keep to the order; then nothing is cut */
    uint32_t page_size;
    uint32_t misses; /* new segments in a row that turned out empty */
    uint32_t trust;  /* how many may be made in advance: more with each that was not, half with one
                      * that was */
    double fill;     /* of the pages that new segments had lately: 1 is full */
    struct rg_split_model model;
    char keys[RG_SPLIT_KEYS_MAX][RG_SPLIT_KEY_SIZE];
};

struct rg_space_options {
    const char *prefix, *delimiter, *start, *end; /* NULL: none; the first two are borrowed */
    bool versions, ordered;
    uint32_t page_size;
};

/* What is to be asked for besides the prefix and the like; NULL: none. Borrowed from the segment.
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
/* Takes in the answer to the segment's query: cuts off the page what is not the segment's or came
 * before, and notes where it goes on, or that it is done. -EBADMSG: the answer does not belong to
 * the question, *out_problem says why in words that follow "the answer"; -ENOMEM. */
int rg_space_take_page(struct rg_space *space, struct rg_segment *segment,
                       struct rg_list_page *page, const char **out_problem);
/* Cuts what is left of a segment, directly after its page was taken in, into itself and up to
 * new_max segments behind it. Returns how many there are: fewer, or none, where more would not
 * help.
 */
uint32_t rg_space_cut(struct rg_space *space, struct rg_segment *segment, uint32_t new_max);
/* Joins a segment that was not asked about with those directly behind it that wait, too, and were
 * not either: up to as many as are likely to fill a page together, and join_max at most. */
void rg_space_join(struct rg_space *space, struct rg_segment *segment, uint32_t join_max);

#endif
