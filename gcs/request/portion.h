/* What a loop concludes from what others of its host tell of the same bucket (gcs/host/peers.h): a
 * protocol core without clock or I/O.
 *
 *   begun -> what each other loop tells is added -> asked for lessons
 *
 * Everybody's part of what a bucket allows is the same: the sum of all rates, divided by the
 * processes that use the bucket now, and within a process by its loops. Each goes a part of the way
 * there in each interval, up or down. So the sum stays what the service's answers made it, a new
 * process gets its part within a second, and that of one that has gone falls to the others.
 *
 * What others tell is bounded before it is believed. At worst it is a lie, which makes a process
 * slow: it never stops, because its own answers raise its rate between two lessons. */
#ifndef RG_GCS_REQUEST_PORTION_H
#define RG_GCS_REQUEST_PORTION_H

#include "gcs/host/peers.h"
#include "gcs/request/limiter.h"

/* A refusal holds those back who are free, for so long, and longer those who begin. */
#define RG_PORTION_NEWS_NS (10 * RG_NS_PER_S)
#define RG_PORTION_HELD_NS (60 * RG_NS_PER_S)
/* Fewer heads than these say nothing about latency. */
#define RG_PORTION_HEADS_MIN 100

/* All others that use the reads, or the writes, now. */
struct rg_portion_side {
    double processes; /* other ones: each of a process's loops is a part of it */
    uint32_t own;     /* records of this process */
    double rates;     /* their sum, in requests a nanosecond */
    uint32_t restrained;
    uint32_t refused;              /* themselves, in RG_PORTION_HELD_NS */
    bool is_news;                  /* one was refused lately */
    uint64_t others;               /* a sum of who they are, whether they use it now or not */
    struct rg_limiter_count count; /* the sum of theirs */
};

/* Sums, each head having the same weight. */
struct rg_portion_kind {
    uint64_t count, silence_count;
    double median, late, silence;
};

struct rg_portion {
    uint64_t process;
    struct rg_portion_side sides[RG_PEER_SIDE_COUNT];
    struct rg_portion_kind kinds[RG_PEER_KIND_COUNT];
};

void rg_portion_begin(struct rg_portion *portion, uint64_t process);
/* `peer` tells of the same bucket. */
void rg_portion_add(struct rg_portion *portion, const struct rg_peer *peer);

/* `own`: what the loop tells itself. */
struct rg_limiter_lesson rg_portion_lesson(const struct rg_portion *portion, unsigned side,
                                           const struct rg_peer_side *own);
/* Loops of this process that use the side now, this one included, to be told to others. */
uint32_t rg_portion_loops(const struct rg_portion *portion, unsigned side);
/* Processes of the host that use the bucket now, for reads or for writes; this one is one of them.
 */
uint32_t rg_portion_processes(const struct rg_portion *portion);
/* What latencies are usual. False: nobody knows. Times in nanoseconds; silence 0: not known. */
bool rg_portion_latency(const struct rg_portion *portion, unsigned kind, uint64_t *out_median_ns,
                        uint64_t *out_late_ns, uint64_t *out_silence_ns);

#endif
