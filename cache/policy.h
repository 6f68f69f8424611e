/* What may take disk space: the rule, without files or a clock.
 *
 * An epoch reads everything once, in another order each time, so that what was used last says
 * nothing about what comes next. A cache that is smaller than the data set and always takes what it
 * has just read throws out what it will need, over and over. This one keeps a fixed part. While
 * there is room everything is admitted; when it is full nothing is, except in the place of a
 * segment that nobody has used while `patience` times the cache's size went by in bytes that were
 * looked up. So a data set that is done with makes room for the next one. A segment of which more
 * than half was forgotten, such as older generations, goes as soon as its place is wanted. */
#ifndef RG_CACHE_POLICY_H
#define RG_CACHE_POLICY_H

#include "runtime/base.h"

/* Cache sizes of bytes looked up, after which a segment is out of use. A data set that is read in
 * order is kept in part as long as it is smaller than that; a larger one comes back too late. */
#define RG_CACHE_PATIENCE 3

/* Bytes of a new segment in a cache of that size. */
uint64_t rg_cache_segment_size(uint64_t cache_size);
/* What has to stay free in a file system of that size. */
uint64_t rg_cache_reserve(uint64_t system_size);

/* What is known when a new segment is wanted. */
struct rg_cache_look {
    uint64_t size_max, segment_size;
    uint64_t used;       /* bytes of all files in the folder */
    uint64_t free;       /* bytes that the file system has left, less the reserve; 0: none */
    uint64_t clock;      /* bytes that all processes have looked up */
    bool has_oldest;     /* there is a sealed segment, and: */
    uint64_t oldest_use; /* the clock when the one longest out of use was used */
    bool is_spent;       /* or it is one whose records have been forgotten, most of them */
};

enum rg_cache_verdict {
    RG_CACHE_FULL,    /* nothing is admitted now */
    RG_CACHE_ROOM,    /* a segment may be made */
    RG_CACHE_REPLACE, /* the oldest segment goes, then it is asked again */
};
enum rg_cache_verdict rg_cache_decide(const struct rg_cache_look *look);

#endif
