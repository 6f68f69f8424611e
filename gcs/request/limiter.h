/* When the next request to one bucket may begin: a protocol core without clock or I/O, one for the
 * reads and one for the writes of a bucket on one event loop.
 *
 * There is no rate until the service asks for less, and then a rate that follows what it answers:
 *
 *     FREE      at most limit_max are out
 *     RISING    as many, and one begins each `gap_ns`, which time shortens: how large jobs begin
 *     PACED     as many, and one begins each `gap_ns`, which follows what is answered
 *
 *                        429, many 503, latency
 *     FREE, RISING -------------------------------------> PACED
 *                  <-------------------------------------
 *                limit_max are out, or the rate is not needed
 *
 * A large job. All its processes together begin with what a new bucket takes, and each doubles its
 * part in each RG_LIMITER_RISE_NS in which it needs it, until it is refused, or limit_max are out.
 * So the first refusals are few, and a process that is alone in using the bucket is not slow for
 * long. Where its part is less than one request a second, the longest gap is longer, too.
 *
 * Less. A 429 says that there are too many requests. A 503 may come from one server that is ill, so
 * it counts only while RG_LIMITER_UNAVAILABLE_SHARE of the last answers are 503, or where it is
 * *sudden*: it came by a connection that has just brought RG_LIMITER_WELL_ANSWERS good answers in a
 * row. One server that is ill, or that refuses now and then, has few of those, but where there is
 * too much to do nearly all 503 are so. More than RG_LIMITER_SUDDEN_EXCESS of them since the last
 * cut count, less RG_LIMITER_SUDDEN_SHARE of the answers, which are usual. Who asks seldom learns
 * late by that, so the same is done with the sum of what the limiters of a host count: more than
 * RG_LIMITER_HOST_EXCESS cut the rates of all that had one themselves. What counts cuts the rate,
 * once for all that was sent before the last cut, and by the share of refusals since then: after n
 * answers by 1/(2n + 2), but by RG_LIMITER_CUT where that is less, and by RG_LIMITER_CUT_ANSWERS /
 * n where even that is. In an outage, where nothing is answered, the rate is thus halved each time,
 * down to one request in RG_LIMITER_GAP_NS_MAX, or in a large job to the part that it began with.
 * Where 429 say that this is too much, gaps become RG_LIMITER_JOB_GAPS_MAX times as long. Gaps vary
 * at random, so that many clients do not all ask at once when it ends. The first gap is the time of
 * an answer, divided by what is out: the rate as it was. limit_max is the number of connections.
 * More would only wait for one, and would then be sent without a gap when the service asks for
 * less.
 *
 * Latency that rises cuts by RG_LIMITER_LATENCY_CUT: when in RG_LIMITER_WINDOW_NS the mean time to
 * the head is above RG_LIMITER_LATENCY_FACTOR times what it was in good times, and above
 * RG_LIMITER_LATENCY_MIN_NS.
 *
 * More. `quick_gap_ns` belongs to the rate that was refused last beside answers, less
 * RG_LIMITER_CUT, and in an outage to the rate that there was before. Up to it each answer lets one
 * more be out, which doubles the rate in each round. From there the rate r grows with the time t
 * since the cut:
 *
 *     d ln(r) / dt = t / RG_LIMITER_GROWTH_NS^2 * (1 + r * RG_LIMITER_GROWTH_UNIT_NS)
 *
 * Growth in time makes the rates of many clients equal, because who has more is refused more often;
 * so does it where all are seldom asked, and it wastes little where all are often. The last factor
 * lets those who ask often, and so learn more in the same time, be quicker. docs/internals/fleet.md
 * shows what comes of it.
 *
 * A rate that was not needed is gone RG_LIMITER_NEEDLESS_NS after the last cut, and one that
 * nothing was asked of at all after RG_LIMITER_IDLE_NS.
 *
 * Others of the host may talk to the same bucket. A lesson says what a limiter's equal part of all
 * rates is, and each goes some of the way there, up or down alike, so that the sum stays. Where the
 * part is so small that a limiter would not be slowed down to it, it goes its own way. Where others
 * are held back, one that is not *follows*: it keeps to the rate that it has, or begins with its
 * part. It is free again when nobody is held back by the service any more, unless it was refused
 * itself meanwhile. */
#ifndef RG_GCS_REQUEST_LIMITER_H
#define RG_GCS_REQUEST_LIMITER_H

#include "gcs/request/rate.h"

#define RG_LIMITER_CUT 0.2
#define RG_LIMITER_CUT_ANSWERS 64
#define RG_LIMITER_UNAVAILABLE_SHARE 0.25
/* The share follows the last so many answers and refusals. */
#define RG_LIMITER_UNAVAILABLE_COUNT 64
/* Servers that are well may refuse 1 in 100 at random. Without a sum of several, one that falls ill
 * would count: each of its connections has one. */
#define RG_LIMITER_SUDDEN_SHARE (1 / 80.0)
#define RG_LIMITER_SUDDEN_EXCESS 4
/* Of all limiters of a host together: so much more comes by chance where there are more answers. */
#define RG_LIMITER_HOST_EXCESS 10
/* What others sent before their cuts is answered for so long after ours, until they tell it. */
#define RG_LIMITER_HOST_LATE_NS (300 * RG_NS_PER_MS)
/* What others counted in a longer time is not known to be new. */
#define RG_LIMITER_HOST_OLD_NS RG_NS_PER_S
/* A server is well that gave so many good answers in a row, by one connection. */
#define RG_LIMITER_WELL_ANSWERS 8
#define RG_LIMITER_GROWTH_NS (120 * RG_NS_PER_S)
#define RG_LIMITER_GROWTH_UNIT_NS (700 * RG_NS_PER_MS)
/* The event loop's timers are not exact: what was missed for so long is made up for. */
#define RG_LIMITER_BURST_NS (4 * RG_NS_PER_MS)
#define RG_LIMITER_GAP_NS_MAX RG_NS_PER_S
/* Who has a small part of a large job's rate waits for longer, but never so long. */
#define RG_LIMITER_JOB_GAP_NS_MAX (16 * RG_NS_PER_S)
#define RG_LIMITER_JOB_GAPS_MAX 16
/* A job of so few processes does not ask for more at once than a new bucket has in some seconds. */
#define RG_LIMITER_SMALL_JOB_MAX 64
/* A large job's rate doubles in this time at first. */
#define RG_LIMITER_RISE_NS (RG_NS_PER_S / 2)
/* Who comes later than that after its turn did not wait for it. */
#define RG_LIMITER_RISE_LATE_NS (100 * RG_NS_PER_MS)
#define RG_LIMITER_NEEDLESS_NS (10 * RG_NS_PER_S)
#define RG_LIMITER_IDLE_NS (60 * RG_NS_PER_S)

#define RG_LIMITER_LATENCY_CUT 0.9
#define RG_LIMITER_LATENCY_FACTOR 4
#define RG_LIMITER_LATENCY_MIN_NS (250 * RG_NS_PER_MS)
/* Latency alone does not cut below this. */
#define RG_LIMITER_LATENCY_LIMIT_MIN 4
#define RG_LIMITER_WINDOW_NS RG_NS_PER_S
#define RG_LIMITER_WINDOW_SAMPLES_MIN 32
/* How much the good times' latency rises with each window that was slower: doubles in 70. */
#define RG_LIMITER_BASELINE_RISE 1.01

/* How much of the way to what others of the host have one lesson makes. */
#define RG_LIMITER_LESSON 0.25
/* Nobody's word alone makes a limiter wait longer. */
#define RG_LIMITER_LESSON_GAP_NS_MAX (250 * RG_NS_PER_MS)

struct rg_limiter_options {
    uint32_t limit_max;   /* at least 1 */
    struct rg_rate *rate; /* of which each request takes a slot; NULL: there is none */
    uint64_t seed;        /* of the gaps' variation */
    double job_gap_ns;    /* of rg_limiter_job_gap_ns */
};

enum rg_limiter_outcome {
    RG_LIMITER_ANSWERED,
    RG_LIMITER_THROTTLED,   /* 429 */
    RG_LIMITER_UNAVAILABLE, /* 503, after good answers by the same connection */
    RG_LIMITER_REPEATED,    /* 503, after another one, or as the first answer */
    RG_LIMITER_SUDDEN,      /* 503, of a server that is well */
    RG_LIMITER_BROKEN,      /* says nothing about load */
};

enum rg_limiter_state { RG_LIMITER_FREE = 0, RG_LIMITER_RISING, RG_LIMITER_PACED };

/* What came so far of what was sent after the cuts, for others to be told. They wrap around. */
struct rg_limiter_count {
    uint32_t answers; /* and refusals by servers that are well */
    uint32_t sudden;  /* of these, the refusals */
};

struct rg_limiter {
    struct rg_limiter_options options;
    enum rg_limiter_state state;
    uint32_t in_flight;
    double gap_ns;       /* 0 while FREE */
    double quick_gap_ns; /* while PACED: up to this it grows quickly; 0: to the end */
    uint64_t rise_ns;    /* while RISING: since when, less what was not needed; 0: not begun */
    double answer_ns;    /* how long an answer takes; 0: not known yet */
    double unavailable;  /* the share of 503 */
    double excess;       /* of sudden ones since the last cut, above the usual share */
    double host_excess;  /* the same of all of the host's limiters of the bucket */
    struct rg_limiter_count count, others_count; /* its own; theirs as the last lesson had it */
    uint64_t others, taught_ns;                  /* who they were, and when */
    uint64_t begun_ns;                           /* of the last request */
    uint64_t next_ns;                            /* unless FREE: not before */
    uint64_t cut_ns;                             /* of the last cut */
    uint64_t backoffs;                           /* cuts so far */
    bool follows;                                /* it is PACED by lessons alone */
    uint32_t answer_count;                       /* to what was sent after the last cut */
    uint64_t random;
    struct {
        uint64_t since_ns, sum_ns;
        uint32_t count;
        double baseline_ns; /* 0: none yet */
    } window;
    uint64_t slot_ns; /* a slot of the rate that is waited for; 0: none */
};

/* This limiter's part of the rate that a job begins with, where each of its processes has so many
 * limiters. 0: the job is small. */
static inline double rg_limiter_job_gap_ns(uint32_t processes, uint32_t limiters, double per_s)
{
    bool is_large = processes > RG_LIMITER_SMALL_JOB_MAX;
    return is_large ? (double)RG_NS_PER_S * processes * limiters / per_s : 0;
}

/* What a 503 is after so many good answers by its connection. */
static inline enum rg_limiter_outcome rg_limiter_unavailable(uint32_t good_before)
{
    if (good_before == 0) {
        return RG_LIMITER_REPEATED;
    }
    return good_before >= RG_LIMITER_WELL_ANSWERS ? RG_LIMITER_SUDDEN : RG_LIMITER_UNAVAILABLE;
}

void rg_limiter_init(struct rg_limiter *limiter, const struct rg_limiter_options *options,
                     uint64_t now_ns);
/* True: the request may begin, and is in flight until rg_limiter_leave. */
bool rg_limiter_enter(struct rg_limiter *limiter, uint64_t now_ns);
/* Begins without asking: a request that holds what others wait for. Its slot is taken from those
 * that come later. */
void rg_limiter_enter_always(struct rg_limiter *limiter, uint64_t now_ns);
/* One that is in flight is sent a second time: only the rate counts that. */
void rg_limiter_twice(struct rg_limiter *limiter, uint64_t now_ns);
/* Where it may not begin: when to ask again; UINT64_MAX: when another request leaves. */
uint64_t rg_limiter_next_ns(const struct rg_limiter *limiter, uint64_t now_ns);
/* sent_ns 0: it never was. True: the rate was cut. */
bool rg_limiter_leave(struct rg_limiter *limiter, enum rg_limiter_outcome outcome, uint64_t sent_ns,
                      uint64_t now_ns);
/* A head came. True: the rate was cut. */
bool rg_limiter_latency(struct rg_limiter *limiter, uint64_t elapsed_ns, uint64_t now_ns);
/* From what others of the host have. */
struct rg_limiter_lesson {
    double gap_ns;   /* the equal part of all rates; 0: nobody else is held back */
    bool is_held;    /* the service holds another back */
    bool is_news;    /* it refused another lately */
    uint64_t others; /* a sum of who they are, which changes when one comes or goes; 0: none */
    struct rg_limiter_count count; /* the sum of theirs */
};

/* True: the rate was cut, because of what all of the host were refused. */
bool rg_limiter_learn(struct rg_limiter *limiter, const struct rg_limiter_lesson *lesson,
                      uint64_t now_ns);
/* While it is used: the gap of the rate that it has, FREE or PACED. 0: not known. */
double rg_limiter_gap_ns(const struct rg_limiter *limiter);
/* Whether requests begin a gap apart, and somebody has asked for one of late. */
bool rg_limiter_is_paced(const struct rg_limiter *limiter, uint64_t now_ns);
/* About how many requests are out at the rate there is: those that begin while one is answered. */
uint32_t rg_limiter_limit(const struct rg_limiter *limiter);

#endif
