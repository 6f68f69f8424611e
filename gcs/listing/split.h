/* Where a range of names is best cut in pieces that hold about equally many, from what was seen of
 * the names so far. Pure: no I/O, no allocation, and no way to do harm, because any key is a right
 * one to cut at; a bad guess costs a request that finds nothing.
 *
 * What is learned is which bytes occur at which position of the names (the *model*). They are taken
 * for samples of an alphabet: after a digit there may be any digit. A name is then a number whose
 * digits are its bytes, each to the base of its position's alphabet, and the distance between the
 * first and the last name of a page tells how dense names are. Three ways of cutting:
 *
 *   even     pieces of the same width, where the density predicts an end that can be believed
 *   widening each piece is wider than the one before by the same factor, where names seem to fill
 *            a tiny part of what they could: counters with leading zeros, deep prefixes
 *   near     pieces of a page each, beginning at the last name: for pages that are wanted in order
 */
#ifndef RG_GCS_LISTING_SPLIT_H
#define RG_GCS_LISTING_SPLIT_H

#include "runtime/base.h"

#include <ringest/gcs.h>

/* Keys of one cut at most. */
#define RG_SPLIT_KEYS_MAX 63
/* With the NUL. */
#define RG_SPLIT_KEY_SIZE (RG_OBJECT_NAME_SIZE_MAX + 1)
/* More pages than a density can predict. */
#define RG_SPLIT_PAGES_UNKNOWN 1e9

/* A bit for each byte at each position. Starts zeroed. */
struct rg_split_model {
    uint64_t seen[RG_OBJECT_NAME_SIZE_MAX][4];
};

/* Names of more than RG_OBJECT_NAME_SIZE_MAX bytes are learned up to there. */
void rg_split_learn(struct rg_split_model *model, const char *name);

/* The rest of a range: behind `last`, up to `end`. */
struct rg_split_range {
    const char *prefix;    /* of all names; "": none */
    const char *delimiter; /* names are cut behind its first occurrence after the prefix; "": not */
    const char *first;     /* of the last page; where there was but one name, the same as `last` */
    const char *last;      /* of the last page; not "" */
    const char *end;       /* names are below it; "": no end */
    uint32_t count;        /* names from `first` to `last` */
    uint32_t page_size;    /* names of a full page */
};

/* How many pages the rest probably has; RG_SPLIT_PAGES_UNKNOWN: there is no telling. */
double rg_split_pages(const struct rg_split_model *model, const struct rg_split_range *range);

/* Up to `count` keys, ascending, all above `last` and below `end`, valid UTF-8, and none inside a
 * group of names that the delimiter makes one. Returns how many, possibly 0. `count` is at most
 * RG_SPLIT_KEYS_MAX. */
uint32_t rg_split_choose(const struct rg_split_model *model, const struct rg_split_range *range,
                         uint32_t count, char (*out_keys)[RG_SPLIT_KEY_SIZE]);
/* The same with the first `count` pieces about a page each. */
uint32_t rg_split_choose_near(const struct rg_split_model *model,
                              const struct rg_split_range *range, uint32_t count,
                              char (*out_keys)[RG_SPLIT_KEY_SIZE]);

#endif
