/* How many requests to one bucket may be out, and when the next may begin: a protocol core without
 * clock or I/O, one for the reads and one for the writes of a bucket on one event loop.
 *
 * There is no limit until the service asks for less, and then it follows what the service answers:
 *
 *     FREE      any number may be out
 *     LIMITED   `limit` of them, from 1 to limit_max
 *     PACED     one, and that `gap_ns` at least after the one before
 *
 *            429, 503, latency             refused at a limit of 1
 *     FREE -------------------> LIMITED ---------------------------> PACED
 *          <-------------------         <---------------------------
 *           limit_max reached            answered behind an outage, or
 *                                        later than the gap is long
 *
 * A refusal (429 or 503) counts when its request was sent after the last cut, so that what was sent
 * together cuts once. It makes the limit RG_LIMITER_CUT of what is out, and the rate when paced as
 * much less; while nothing is answered, the gap doubles instead, up to RG_LIMITER_GAP_NS_MAX.
 * Rising latency cuts by RG_LIMITER_LATENCY_CUT: when in RG_LIMITER_WINDOW_NS the mean time to the
 * head is above RG_LIMITER_LATENCY_FACTOR times what it was in good times, and above
 * RG_LIMITER_LATENCY_MIN_NS.
 *
 * Answers while the limit is used raise it: by one each up to `steady`, which doubles it in each
 * round, and from there by limit_max / RG_LIMITER_ROUNDS in each round. `steady` is the limit that
 * the last cut left where something had been answered before. In an outage, where nothing is, it
 * stays what it was, so that there is no need to find it again.
 *
 * RG_LIMITER_OUTAGE refusals without an answer between them are an outage. It costs the service one
 * request in each gap, and its end is noticed by the next of these. Gaps vary at random, so that
 * many clients do not all ask at once then, and each begins with one request at a time, or with the
 * gap that it had found before.
 *
 * Otherwise, when paced, answer n after a refusal raises the rate by n / RG_LIMITER_GAP_ANSWERS of
 * it: slowly where it was refused, and faster the longer it is not.
 *
 * A limiter that nothing was asked of for RG_LIMITER_IDLE_NS begins anew, without a limit.
 *
 * Others of the host may talk to the same bucket. A lesson says what a limiter's equal part of all
 * is, and each goes some of the way there. Where others are held back, one that is free *follows*:
 * it keeps to what it has out, or begins with its part. It is free again when nobody is held back
 * by the service any more, unless it was refused itself meanwhile. */
#ifndef RG_GCS_REQUEST_LIMITER_H
#define RG_GCS_REQUEST_LIMITER_H

#include "gcs/request/rate.h"

#define RG_LIMITER_CUT 0.7
#define RG_LIMITER_LATENCY_CUT 0.9
#define RG_LIMITER_LATENCY_FACTOR 4
#define RG_LIMITER_LATENCY_MIN_NS (250 * RG_NS_PER_MS)
/* Latency alone does not cut below this. */
#define RG_LIMITER_LATENCY_LIMIT_MIN 4
#define RG_LIMITER_WINDOW_NS RG_NS_PER_S
#define RG_LIMITER_WINDOW_SAMPLES_MIN 32
/* How much the good times' latency rises with each window that was slower: doubles in 70. */
#define RG_LIMITER_BASELINE_RISE 1.01

#define RG_LIMITER_ROUNDS 64
#define RG_LIMITER_GAP_NS_MAX RG_NS_PER_S
#define RG_LIMITER_GAP_ANSWERS 1024
#define RG_LIMITER_OUTAGE 8
#define RG_LIMITER_IDLE_NS (60 * RG_NS_PER_S)
/* How much of the way to what others of the host have one lesson makes. */
#define RG_LIMITER_LESSON 0.25
/* Nobody's word alone makes a limiter wait longer. */
#define RG_LIMITER_LESSON_GAP_NS_MAX (250 * RG_NS_PER_MS)

struct rg_limiter_options {
    uint32_t limit_max;   /* at least 1 */
    struct rg_rate *rate; /* of which each request takes a slot; NULL: there is none */
    uint64_t seed;        /* of the gaps' variation */
};

enum rg_limiter_outcome {
    RG_LIMITER_ANSWERED,
    RG_LIMITER_THROTTLED, /* 429 or 503 */
    RG_LIMITER_BROKEN,    /* says nothing about load */
};

enum rg_limiter_state { RG_LIMITER_FREE = 0, RG_LIMITER_LIMITED, RG_LIMITER_PACED };

struct rg_limiter {
    struct rg_limiter_options options;
    enum rg_limiter_state state;
    uint32_t in_flight;
    double limit;           /* while LIMITED: at least 1 */
    double steady;          /* up to here it grows quickly */
    double gap_ns;          /* the last one; 0: none lately */
    double steady_gap_ns;   /* the last one that a refusal left beside answers; 0: none */
    uint64_t begun_ns;      /* of the last request */
    uint64_t next_ns;       /* while PACED: not before */
    uint64_t cut_ns;        /* of the last cut */
    uint64_t backoffs;      /* cuts so far */
    bool follows;           /* it is LIMITED or PACED by lessons alone */
    uint32_t refused_count; /* without an answer to what was sent later; up to RG_LIMITER_OUTAGE */
    uint32_t answer_count;  /* to what was sent after the last cut */
    uint64_t random;
    struct {
        uint64_t since_ns, sum_ns;
        uint32_t count;
        double baseline_ns; /* 0: none yet */
    } window;
    uint64_t slot_ns; /* a slot of the rate that is waited for; 0: none */
};

void rg_limiter_init(struct rg_limiter *limiter, const struct rg_limiter_options *options,
                     uint64_t now_ns);
/* True: the request may begin, and is in flight until rg_limiter_leave. */
bool rg_limiter_enter(struct rg_limiter *limiter, uint64_t now_ns);
/* Begins without asking: a request that holds what others wait for. Its slot is taken from those
 * that come later. */
void rg_limiter_enter_always(struct rg_limiter *limiter, uint64_t now_ns);
/* One that is in flight is sent a second time: only the rate counts that. */
void rg_limiter_twice(struct rg_limiter *limiter, uint64_t now_ns);
/* After a refusal: when to ask again; UINT64_MAX: when another request leaves. */
uint64_t rg_limiter_next_ns(const struct rg_limiter *limiter, uint64_t now_ns);
/* sent_ns 0: it never was. True: the limit was cut. */
bool rg_limiter_leave(struct rg_limiter *limiter, enum rg_limiter_outcome outcome, uint64_t sent_ns,
                      uint64_t now_ns);
/* A head came. True: the limit was cut. */
bool rg_limiter_latency(struct rg_limiter *limiter, uint64_t elapsed_ns, uint64_t now_ns);
/* From what others of the host have. */
struct rg_limiter_lesson {
    double limit;  /* the equal part of all limits; 0: nobody else has one */
    double gap_ns; /* and that of rates, where most others are paced; 0: they are not */
    bool is_held;  /* the service holds another back */
    bool is_news;  /* it refused another lately */
};

void rg_limiter_learn(struct rg_limiter *limiter, const struct rg_limiter_lesson *lesson,
                      uint64_t now_ns);
/* Requests that may be out now. */
uint32_t rg_limiter_limit(const struct rg_limiter *limiter);

#endif
