/* See limiter.h. */
#include "gcs/request/limiter.h"

/* A limit that is in force lets at least one through, and a gap ends. */
static bool invariants(const struct rg_limiter *limiter)
{
    bool window = limiter->window.count > 0 || limiter->window.sum_ns == 0;
    bool limit = limiter->state != RG_LIMITER_LIMITED ||
                 (limiter->limit >= 1 && limiter->limit <= limiter->options.limit_max);
    bool gap = limiter->state != RG_LIMITER_PACED ||
               (limiter->gap_ns >= 1 && limiter->gap_ns <= (double)RG_LIMITER_GAP_NS_MAX);
    bool steady_gap = limiter->steady_gap_ns == 0 || limiter->state == RG_LIMITER_PACED;
    bool follows = !limiter->follows || limiter->state != RG_LIMITER_FREE;
    return window && limit && gap && steady_gap && follows && limiter->steady >= 1;
}

static void become(struct rg_limiter *limiter, enum rg_limiter_state state)
{
    RG_ASSERT(state != limiter->state);
    RG_ASSERT(limiter->state != RG_LIMITER_FREE || state == RG_LIMITER_LIMITED);
    limiter->state = state;
    if (state == RG_LIMITER_FREE) {
        limiter->gap_ns = limiter->steady_gap_ns = 0;
        limiter->follows = false;
        /* How much there is room for is not known when few were out. */
        limiter->steady = RG_MAX(limiter->options.limit_max * RG_LIMITER_CUT, 1.0);
    }
}

void rg_limiter_init(struct rg_limiter *limiter, const struct rg_limiter_options *options,
                     uint64_t now_ns)
{
    RG_ASSERT(options->limit_max >= 1);
    *limiter =
        (struct rg_limiter){.options = *options, .begun_ns = now_ns, .random = options->seed};
    limiter->steady = RG_MAX(options->limit_max * RG_LIMITER_CUT, 1.0);
    limiter->window.since_ns = now_ns;
}

uint32_t rg_limiter_limit(const struct rg_limiter *limiter)
{
    switch (limiter->state) {
    case RG_LIMITER_FREE:
        return limiter->options.limit_max;
    case RG_LIMITER_LIMITED:
        return (uint32_t)limiter->limit;
    case RG_LIMITER_PACED:
        break;
    }
    return 1;
}

/* From three quarters to five quarters of the gap, by SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t gap_vary(struct rg_limiter *limiter)
{
    uint64_t z = (limiter->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    double part = (double)((z ^ (z >> 31)) >> 11) / (double)(UINT64_C(1) << 53);
    return (uint64_t)(limiter->gap_ns * (0.75 + part / 2));
}

/* What was learned so long ago says nothing about now. */
static void idle_end(struct rg_limiter *limiter, uint64_t now_ns)
{
    if (limiter->state != RG_LIMITER_FREE && limiter->in_flight == 0 &&
        now_ns - limiter->begun_ns >= RG_LIMITER_IDLE_NS) {
        if (limiter->state == RG_LIMITER_PACED) {
            become(limiter, RG_LIMITER_LIMITED);
        }
        become(limiter, RG_LIMITER_FREE);
        limiter->refused_count = 0;
    }
}

static bool is_full(const struct rg_limiter *limiter)
{
    return limiter->state != RG_LIMITER_FREE && limiter->in_flight >= rg_limiter_limit(limiter);
}

static void begin(struct rg_limiter *limiter, uint64_t now_ns)
{
    limiter->in_flight++;
    limiter->begun_ns = now_ns;
    if (limiter->state == RG_LIMITER_PACED) {
        limiter->next_ns = now_ns + gap_vary(limiter);
    }
}

/* A slot that came and was not used is lost like one that nobody took. */
static bool slot_has_come(struct rg_limiter *limiter, uint64_t now_ns)
{
    if (limiter->options.rate == NULL) {
        return true;
    }
    if (limiter->slot_ns == 0 || limiter->slot_ns + RG_RATE_BURST_NS < now_ns) {
        limiter->slot_ns = rg_rate_take(limiter->options.rate, now_ns);
    }
    if (limiter->slot_ns > now_ns) {
        return false;
    }
    limiter->slot_ns = 0;
    return true;
}

bool rg_limiter_enter(struct rg_limiter *limiter, uint64_t now_ns)
{
    idle_end(limiter, now_ns);
    bool is_early = limiter->state == RG_LIMITER_PACED && now_ns < limiter->next_ns;
    if (is_full(limiter) || is_early || !slot_has_come(limiter, now_ns)) {
        return false;
    }
    begin(limiter, now_ns);
    RG_VERIFY(invariants(limiter));
    return true;
}

void rg_limiter_twice(struct rg_limiter *limiter, uint64_t now_ns)
{
    if (limiter->options.rate != NULL) {
        (void)rg_rate_take(limiter->options.rate, now_ns);
    }
}

void rg_limiter_enter_always(struct rg_limiter *limiter, uint64_t now_ns)
{
    rg_limiter_twice(limiter, now_ns);
    begin(limiter, now_ns);
}

uint64_t rg_limiter_next_ns(const struct rg_limiter *limiter, uint64_t now_ns)
{
    if (is_full(limiter)) {
        return UINT64_MAX;
    }
    uint64_t rate_ns = RG_MAX(limiter->slot_ns, now_ns);
    return limiter->state == RG_LIMITER_PACED ? RG_MAX(limiter->next_ns, rate_ns) : rate_ns;
}

static void cut_note(struct rg_limiter *limiter, uint64_t now_ns)
{
    limiter->cut_ns = now_ns;
    limiter->answer_count = 0;
    limiter->backoffs++;
    limiter->follows = false;
}

static void cut(struct rg_limiter *limiter, double factor, uint32_t least, uint64_t now_ns)
{
    double out = (double)RG_MIN(limiter->in_flight, rg_limiter_limit(limiter));
    bool is_known = is_full(limiter) && limiter->answer_count > 0;
    limiter->limit = RG_MAX(out * factor, (double)least);
    if (limiter->state == RG_LIMITER_FREE) {
        become(limiter, RG_LIMITER_LIMITED);
    } else if (is_known) {
        limiter->steady = limiter->limit;
    }
    cut_note(limiter, now_ns);
}

static void gap_set(struct rg_limiter *limiter, double gap_ns)
{
    limiter->gap_ns = RG_MIN(RG_MAX(gap_ns, 1.0), (double)RG_LIMITER_GAP_NS_MAX);
    limiter->next_ns = limiter->begun_ns + gap_vary(limiter);
}

/* One at a time was too much, or nothing is answered at all. True: it is slower now. */
static bool slow_down(struct rg_limiter *limiter, uint64_t sent_ns, uint64_t now_ns)
{
    double gap_ns = limiter->gap_ns, factor = limiter->answer_count > 0 ? 1 / RG_LIMITER_CUT : 2;
    if (limiter->answer_count == 0 && limiter->refused_count < RG_LIMITER_OUTAGE) {
        limiter->cut_ns = now_ns; /* too few to tell */
        return false;
    }
    if (limiter->answer_count > 0) {
        limiter->steady = 1;
    }
    if (limiter->state == RG_LIMITER_LIMITED) {
        become(limiter, RG_LIMITER_PACED);
        gap_ns = RG_MAX(gap_ns, (double)(now_ns - sent_ns));
    }
    gap_set(limiter, gap_ns * factor);
    if (limiter->answer_count > 0) {
        limiter->steady_gap_ns = limiter->gap_ns;
    }
    cut_note(limiter, now_ns);
    return true;
}

/* True: it counts, and cut the limit. */
static bool refused(struct rg_limiter *limiter, uint64_t sent_ns, uint64_t now_ns)
{
    if (limiter->options.rate != NULL) {
        rg_rate_throttled(limiter->options.rate);
    }
    limiter->refused_count += limiter->refused_count < RG_LIMITER_OUTAGE;
    if (sent_ns <= limiter->cut_ns) {
        return false;
    }
    if (limiter->state != RG_LIMITER_FREE && rg_limiter_limit(limiter) == 1) {
        return slow_down(limiter, sent_ns, now_ns);
    }
    cut(limiter, RG_LIMITER_CUT, 1, now_ns);
    return true;
}

static void raise(struct rg_limiter *limiter)
{
    double round = RG_MAX((double)limiter->options.limit_max / RG_LIMITER_ROUNDS, 1.0);
    limiter->limit += limiter->limit < limiter->steady ? 1 : round / limiter->limit;
    if (limiter->answer_count >= RG_LIMITER_OUTAGE) {
        limiter->gap_ns = 0; /* what it was when paced is of no use any more */
    }
    if (limiter->limit >= limiter->options.limit_max) {
        become(limiter, RG_LIMITER_FREE);
    }
}

static void speed_up(struct rg_limiter *limiter, bool was_outage, uint64_t sent_ns, uint64_t now_ns)
{
    double faster = 1 + (double)limiter->answer_count / RG_LIMITER_GAP_ANSWERS;
    if (was_outage && limiter->steady_gap_ns > 0) {
        gap_set(limiter, limiter->steady_gap_ns);
    } else if (was_outage || limiter->gap_ns / faster <= (double)(now_ns - sent_ns)) {
        limiter->limit = 1;
        limiter->steady_gap_ns = 0;
        become(limiter, RG_LIMITER_LIMITED);
    } else {
        gap_set(limiter, limiter->gap_ns / faster);
    }
}

static void answered(struct rg_limiter *limiter, uint64_t sent_ns, uint64_t now_ns)
{
    bool was_outage = limiter->refused_count >= RG_LIMITER_OUTAGE;
    /* What was sent before the cut tells of a time before it. */
    bool is_news = sent_ns > limiter->cut_ns;
    if (is_news) {
        limiter->refused_count = 0;
        limiter->answer_count += limiter->answer_count < UINT32_MAX;
    }
    if (limiter->state == RG_LIMITER_PACED && is_news) {
        speed_up(limiter, was_outage, sent_ns, now_ns);
    } else if (limiter->state == RG_LIMITER_LIMITED && is_full(limiter)) {
        raise(limiter);
    }
}

bool rg_limiter_leave(struct rg_limiter *limiter, enum rg_limiter_outcome outcome, uint64_t sent_ns,
                      uint64_t now_ns)
{
    RG_ASSERT(limiter->in_flight > 0);
    bool is_cut = false;
    if (outcome == RG_LIMITER_THROTTLED) {
        is_cut = refused(limiter, sent_ns, now_ns);
    } else if (outcome == RG_LIMITER_ANSWERED) {
        answered(limiter, sent_ns, now_ns);
    }
    limiter->in_flight--;
    RG_VERIFY(invariants(limiter));
    return is_cut;
}

bool rg_limiter_latency(struct rg_limiter *limiter, uint64_t elapsed_ns, uint64_t now_ns)
{
    limiter->window.sum_ns += elapsed_ns;
    limiter->window.count++;
    if (now_ns - limiter->window.since_ns < RG_LIMITER_WINDOW_NS ||
        limiter->window.count < RG_LIMITER_WINDOW_SAMPLES_MIN) {
        return false;
    }
    double mean = (double)limiter->window.sum_ns / limiter->window.count;
    double baseline = limiter->window.baseline_ns;
    limiter->window.since_ns = now_ns;
    limiter->window.sum_ns = 0;
    limiter->window.count = 0;
    limiter->window.baseline_ns =
        baseline == 0 ? mean : RG_MIN(mean, baseline * RG_LIMITER_BASELINE_RISE);
    bool is_slow = baseline > 0 && mean > RG_LIMITER_LATENCY_FACTOR * baseline &&
                   mean > (double)RG_LIMITER_LATENCY_MIN_NS;
    if (is_slow && rg_limiter_limit(limiter) > RG_LIMITER_LATENCY_LIMIT_MIN) {
        cut(limiter, RG_LIMITER_LATENCY_CUT, RG_LIMITER_LATENCY_LIMIT_MIN, now_ns);
        return true;
    }
    return false;
}

/* Who has something out keeps to that, and who begins gets its part. */
static void follow(struct rg_limiter *limiter, const struct rg_limiter_lesson *lesson)
{
    double out = (double)limiter->in_flight, limit = out > 0 ? out : lesson->limit;
    limiter->limit = RG_MIN(RG_MAX(limit, 1.0), (double)limiter->options.limit_max);
    become(limiter, RG_LIMITER_LIMITED);
    limiter->follows = true;
    limiter->steady = limiter->limit;
    if (out == 0 && lesson->gap_ns > 0) {
        become(limiter, RG_LIMITER_PACED);
        gap_set(limiter, RG_MIN(lesson->gap_ns, (double)RG_LIMITER_LESSON_GAP_NS_MAX));
    }
}

static void limit_near(struct rg_limiter *limiter, double wanted)
{
    double limit = limiter->limit + (wanted - limiter->limit) * RG_LIMITER_LESSON;
    limiter->limit = RG_MIN(RG_MAX(limit, 1.0), (double)limiter->options.limit_max);
}

/* In rates, of which the sum stays the same. */
static void gap_near(struct rg_limiter *limiter, double wanted_ns)
{
    double most_ns = RG_MAX(limiter->gap_ns, (double)RG_LIMITER_LESSON_GAP_NS_MAX);
    double rate = 1 / limiter->gap_ns, wanted = 1 / wanted_ns;
    double gap_ns = 1 / (rate + (wanted - rate) * RG_LIMITER_LESSON);
    limiter->gap_ns = RG_MAX(RG_MIN(gap_ns, most_ns), 1.0);
}

void rg_limiter_learn(struct rg_limiter *limiter, const struct rg_limiter_lesson *lesson,
                      uint64_t now_ns)
{
    idle_end(limiter, now_ns);
    switch (limiter->state) {
    case RG_LIMITER_FREE:
        if (lesson->is_held && (lesson->is_news || limiter->in_flight == 0)) {
            follow(limiter, lesson);
        }
        break;
    case RG_LIMITER_LIMITED:
        if (limiter->follows && !lesson->is_held) {
            become(limiter, RG_LIMITER_FREE);
        } else if (lesson->limit > 0) {
            limit_near(limiter, lesson->limit);
        }
        break;
    case RG_LIMITER_PACED:
        if (lesson->gap_ns > 0) {
            gap_near(limiter, lesson->gap_ns);
        }
        break;
    }
    RG_VERIFY(invariants(limiter));
}
