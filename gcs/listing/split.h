/* Guesses where to cut a range of names into pieces that have about the same number of names, from
 * the names that were seen so far. Pure: no I/O and no allocation. Any key is a correct one to cut
 * at; a bad guess only costs a request that finds nothing.
 *
 * The *model* remembers which bytes occurred at which position of the names. They are taken as
 * samples of an alphabet: where there was one digit, there may be any digit. A name is then a
 * number. Its digits are its bytes, each to the base of its position's alphabet. The distance
 * between the first and the last name of a page tells how dense names are. There are three ways of
 * cutting:
 *
 *   even      pieces of the same width, if the density predicts a plausible number of pages
 *   widening  each piece is wider than the one before, by the same factor. For names that use a
 *             tiny part of the space they could: counters with leading zeros, deep prefixes
 *   near      pieces of a page each, beginning at the last name. For ordered listings
 */
#ifndef RG_GCS_LISTING_SPLIT_H
#define RG_GCS_LISTING_SPLIT_H

#include "runtime/base.h"

#include <ringest/gcs.h>

/* Keys of one cut at most. */
#define RG_SPLIT_KEYS_MAX 63
/* With the NUL. */
#define RG_SPLIT_KEY_SIZE (RG_OBJECT_NAME_SIZE_MAX + 1)
/* The density predicts nothing useful. */
#define RG_SPLIT_PAGES_UNKNOWN 1e9

/* A bit for each byte that was seen at each position. Starts zeroed. */
struct rg_split_model {
    uint64_t seen[RG_OBJECT_NAME_SIZE_MAX][4];
};

/* Learns the first RG_OBJECT_NAME_SIZE_MAX bytes of a name. */
void rg_split_learn(struct rg_split_model *model, const char *name);

/* The rest of a range: behind `last`, up to `end`. */
struct rg_split_range {
    const char *prefix;    /* of all names; "": none */
    const char *delimiter; /* names are cut behind its first occurrence after the prefix; "": not */
    const char *first;     /* of the last page; the same as `last` if it had one name */
    const char *last;      /* of the last page; not "" */
    const char *end;       /* names are below it; "": no end */
    uint32_t count;        /* names from `first` to `last` */
    uint32_t page_size;    /* names of a full page */
};

/* How many pages the rest probably has; RG_SPLIT_PAGES_UNKNOWN: it cannot be predicted. */
double rg_split_pages(const struct rg_split_model *model, const struct rg_split_range *range);

/* Writes up to `count` keys: ascending, above `last` and below `end`, valid UTF-8, and none inside
 * a group of names that the delimiter makes one prefix. Returns how many, possibly 0. `count` is at
 * most RG_SPLIT_KEYS_MAX. */
uint32_t rg_split_choose(const struct rg_split_model *model, const struct rg_split_range *range,
                         uint32_t count, char (*out_keys)[RG_SPLIT_KEY_SIZE]);
/* The same, with pieces of about a page each, from `last` on. */
uint32_t rg_split_choose_near(const struct rg_split_model *model,
                              const struct rg_split_range *range, uint32_t count,
                              char (*out_keys)[RG_SPLIT_KEY_SIZE]);

#endif
