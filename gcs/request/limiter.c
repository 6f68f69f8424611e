/* See limiter.h. */
#include "gcs/request/limiter.h"

#include <math.h>

/* The time of an answer follows the last so many. */
#define ANSWER_MEAN_COUNT 16

/* The longest gap: a job of many has to ask seldom, all of it together. */
static double gap_max(const struct rg_limiter *limiter)
{
    double job_ns = RG_LIMITER_JOB_GAPS_MAX * limiter->options.job_gap_ns;
    return RG_MIN(RG_MAX(job_ns, (double)RG_LIMITER_GAP_NS_MAX), (double)RG_LIMITER_JOB_GAP_NS_MAX);
}

/* The longest gap after such a refusal. An outage, which 503 tell of, is no cause to ask less often
 * than the job began: whoever waits for longer finds out later that it is over. */
static double gap_refused_max(const struct rg_limiter *limiter, bool is_unavailable)
{
    double begun_ns = RG_MAX(limiter->options.job_gap_ns, (double)RG_LIMITER_GAP_NS_MAX);
    return is_unavailable ? RG_MIN(begun_ns, gap_max(limiter)) : gap_max(limiter);
}

/* A gap is there unless the limiter is free, and ends. */
static bool invariants(const struct rg_limiter *limiter)
{
    bool is_paced = limiter->state == RG_LIMITER_PACED;
    bool window = limiter->window.count > 0 || limiter->window.sum_ns == 0;
    bool gap = limiter->state == RG_LIMITER_FREE
                   ? limiter->gap_ns == 0
                   : limiter->gap_ns >= 1 && limiter->gap_ns <= gap_max(limiter);
    bool quick = is_paced || limiter->quick_gap_ns == 0;
    bool rise = limiter->state == RG_LIMITER_RISING || limiter->rise_ns == 0;
    bool share = limiter->unavailable >= 0 && limiter->unavailable <= 1;
    bool follows = !limiter->follows || is_paced;
    return window && gap && quick && rise && share && follows && limiter->answer_ns >= 0;
}

static void become(struct rg_limiter *limiter, enum rg_limiter_state state)
{
    RG_ASSERT(state != limiter->state);
    RG_ASSERT(state != RG_LIMITER_RISING || limiter->options.job_gap_ns > 0);
    limiter->state = state;
    limiter->gap_ns = limiter->quick_gap_ns = 0;
    limiter->rise_ns = 0;
    limiter->follows = false;
    if (state == RG_LIMITER_RISING) {
        limiter->gap_ns = RG_MIN(limiter->options.job_gap_ns, gap_max(limiter));
        limiter->next_ns = 0;
    }
}

/* What it is where nothing is known of what the service allows. */
static enum rg_limiter_state state_open(const struct rg_limiter *limiter)
{
    return limiter->options.job_gap_ns > 0 ? RG_LIMITER_RISING : RG_LIMITER_FREE;
}

void rg_limiter_init(struct rg_limiter *limiter, const struct rg_limiter_options *options,
                     uint64_t now_ns)
{
    RG_ASSERT(options->limit_max >= 1);
    *limiter =
        (struct rg_limiter){.options = *options, .begun_ns = now_ns, .random = options->seed};
    limiter->window.since_ns = now_ns;
    if (options->job_gap_ns > 0) {
        become(limiter, RG_LIMITER_RISING);
    }
}

uint32_t rg_limiter_limit(const struct rg_limiter *limiter)
{
    if (limiter->state == RG_LIMITER_FREE) {
        return limiter->options.limit_max;
    }
    double count = limiter->answer_ns / limiter->gap_ns;
    return (uint32_t)RG_MIN(RG_MAX(count, 1.0), (double)limiter->options.limit_max);
}

/* What began without asking, above limit_max, waits for a connection. */
static uint32_t out(const struct rg_limiter *limiter)
{
    return RG_MIN(limiter->in_flight, limiter->options.limit_max);
}

double rg_limiter_gap_ns(const struct rg_limiter *limiter)
{
    if (limiter->state != RG_LIMITER_FREE) {
        return limiter->gap_ns;
    }
    return limiter->in_flight > 0 ? limiter->answer_ns / out(limiter) : 0;
}

/* From three quarters to five quarters of it, by SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t vary(struct rg_limiter *limiter, double gap_ns)
{
    uint64_t z = (limiter->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    double part = (double)((z ^ (z >> 31)) >> 11) / (double)(UINT64_C(1) << 53);
    return (uint64_t)(gap_ns * (0.75 + part / 2));
}

/* What was learned so long ago says nothing about now. */
static bool is_idle(const struct rg_limiter *limiter, uint64_t now_ns)
{
    return limiter->in_flight == 0 && now_ns - limiter->begun_ns >= RG_LIMITER_IDLE_NS;
}

bool rg_limiter_is_paced(const struct rg_limiter *limiter, uint64_t now_ns)
{
    return limiter->state != RG_LIMITER_FREE && !is_idle(limiter, now_ns);
}

static void idle_end(struct rg_limiter *limiter, uint64_t now_ns)
{
    if (limiter->state != state_open(limiter) && is_idle(limiter, now_ns)) {
        become(limiter, state_open(limiter));
    }
}

static bool is_full(const struct rg_limiter *limiter)
{
    return limiter->in_flight >= limiter->options.limit_max;
}

/* The rate doubles in each RG_LIMITER_RISE_NS in which it is needed: not since the request before,
 * where this one comes later than it might. Returns how long it takes until one more may begin. */
static double rise(struct rg_limiter *limiter, uint64_t before_ns, uint64_t now_ns)
{
    if (limiter->rise_ns == 0) {
        limiter->rise_ns = limiter->next_ns = now_ns;
    }
    if (now_ns > limiter->next_ns + RG_LIMITER_RISE_LATE_NS) {
        limiter->rise_ns += now_ns - before_ns;
    }
    double turns = (double)(now_ns - limiter->rise_ns) / (double)RG_LIMITER_RISE_NS;
    double begun_ns = RG_MIN(limiter->options.job_gap_ns, gap_max(limiter));
    limiter->gap_ns = RG_MAX(begun_ns / exp2(turns), 1.0);
    double unit_ns = (double)RG_LIMITER_RISE_NS / M_LN2;
    return unit_ns * log1p(limiter->gap_ns / unit_ns);
}

static void begin(struct rg_limiter *limiter, uint64_t now_ns)
{
    uint64_t before_ns = limiter->begun_ns;
    limiter->in_flight++;
    limiter->begun_ns = now_ns;
    if (limiter->state == RG_LIMITER_FREE) {
        return;
    }
    bool is_rising = limiter->state == RG_LIMITER_RISING;
    double gap_ns = is_rising ? rise(limiter, before_ns, now_ns) : limiter->gap_ns;
    uint64_t oldest_ns = now_ns - RG_MIN(now_ns, RG_LIMITER_BURST_NS);
    limiter->next_ns = RG_MAX(limiter->next_ns, oldest_ns) + vary(limiter, gap_ns);
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
    bool is_early = limiter->state != RG_LIMITER_FREE && now_ns < limiter->next_ns;
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
    return limiter->state != RG_LIMITER_FREE ? RG_MAX(limiter->next_ns, rate_ns) : rate_ns;
}

static void gap_set(struct rg_limiter *limiter, double gap_ns)
{
    limiter->gap_ns = RG_MIN(RG_MAX(gap_ns, 1.0), gap_max(limiter));
}

/* known_ns: this gap was too short for what is answered; 0: that is not known. */
static void cut(struct rg_limiter *limiter, double gap_ns, double known_ns, uint64_t now_ns)
{
    if (limiter->state != RG_LIMITER_PACED) {
        become(limiter, RG_LIMITER_PACED);
    }
    gap_set(limiter, gap_ns);
    limiter->quick_gap_ns = known_ns > 0 ? known_ns / (1 - RG_LIMITER_CUT) : limiter->quick_gap_ns;
    limiter->next_ns = limiter->begun_ns + vary(limiter, limiter->gap_ns);
    limiter->cut_ns = now_ns;
    limiter->answer_count = 0;
    limiter->excess = limiter->host_excess = 0;
    limiter->backoffs++;
    limiter->follows = false;
}

/* The gap of the rate there is, where somebody saw that it takes so long to be answered. */
static double gap_at(const struct rg_limiter *limiter, uint64_t elapsed_ns)
{
    if (limiter->state != RG_LIMITER_FREE) {
        return limiter->gap_ns;
    }
    return RG_MAX(limiter->answer_ns, (double)elapsed_ns) / out(limiter);
}

/* By how much of it the rate is cut after so many answers. */
static double cut_after(uint32_t answer_count)
{
    double all = (double)answer_count + 1;
    return RG_MAX(1 / (2 * all), RG_MIN(RG_LIMITER_CUT, RG_LIMITER_CUT_ANSWERS / all));
}

/* True: it is slower now. */
static bool slow_down(struct rg_limiter *limiter, bool is_unavailable, uint64_t sent_ns,
                      uint64_t now_ns)
{
    bool is_free = limiter->state == RG_LIMITER_FREE;
    double was_ns = gap_at(limiter, now_ns - sent_ns);
    double most_ns = gap_refused_max(limiter, is_unavailable);
    double gap_ns = RG_MIN(was_ns / (1 - cut_after(limiter->answer_count)), most_ns);
    if (was_ns >= most_ns && limiter->state == RG_LIMITER_PACED) {
        limiter->cut_ns = now_ns;
        limiter->answer_count = 0;
        limiter->excess = limiter->host_excess = 0;
        return false;
    }
    if (limiter->answer_count == 0 && gap_ns >= most_ns) {
        /* Once in an outage: its first refusal was a part of it, and not of a rate. */
        limiter->quick_gap_ns *= 1 - RG_LIMITER_CUT;
    }
    /* Servers that are ill do not tell of a rate. */
    bool is_known = limiter->answer_count > 0 && !(is_free && is_unavailable);
    /* The others of the job have come as far. */
    is_known |= limiter->state == RG_LIMITER_RISING;
    cut(limiter, gap_ns, is_known ? was_ns : 0, now_ns);
    return true;
}

/* Not above what cuts: this limiter may have to wait for its own part in it. */
static void host_count(struct rg_limiter *limiter, uint32_t answers, uint32_t sudden)
{
    double excess = limiter->host_excess + sudden - answers * RG_LIMITER_SUDDEN_SHARE;
    limiter->host_excess = RG_MIN(RG_MAX(excess, 0.0), (double)RG_LIMITER_HOST_EXCESS);
}

/* Nobody's word alone cuts a rate. */
static bool is_host_overload(const struct rg_limiter *limiter)
{
    return limiter->host_excess >= RG_LIMITER_HOST_EXCESS && limiter->excess > 0;
}

/* True: so many were refused by servers that are well that there are too many requests. */
static bool is_overload(struct rg_limiter *limiter, enum rg_limiter_outcome outcome,
                        uint64_t sent_ns)
{
    if (outcome == RG_LIMITER_SUDDEN && sent_ns > limiter->cut_ns) {
        limiter->count.answers++;
        limiter->count.sudden++;
        limiter->excess += 1 - RG_LIMITER_SUDDEN_SHARE;
        host_count(limiter, 1, 1);
        return limiter->excess >= RG_LIMITER_SUDDEN_EXCESS || is_host_overload(limiter);
    }
    return outcome == RG_LIMITER_THROTTLED;
}

/* Who is ill refuses quickly, and so is asked more often than who is well: what comes again and
 * again by one connection counts by the time that it took. */
static void unavailable_note(struct rg_limiter *limiter, enum rg_limiter_outcome outcome,
                             uint64_t elapsed_ns)
{
    double weight = 1, is_unavailable = outcome != RG_LIMITER_THROTTLED;
    if (outcome == RG_LIMITER_REPEATED && limiter->answer_ns > 0) {
        weight = RG_MIN((double)elapsed_ns / limiter->answer_ns, 1.0);
    }
    limiter->unavailable +=
        weight * (is_unavailable - limiter->unavailable) / RG_LIMITER_UNAVAILABLE_COUNT;
}

/* True: it counts, and cut the rate. */
static bool refused(struct rg_limiter *limiter, enum rg_limiter_outcome outcome, uint64_t sent_ns,
                    uint64_t now_ns)
{
    bool is_unavailable = outcome != RG_LIMITER_THROTTLED;
    bool is_overload_sure = is_overload(limiter, outcome, sent_ns);
    unavailable_note(limiter, outcome, now_ns - sent_ns);
    if (!is_overload_sure && limiter->unavailable < RG_LIMITER_UNAVAILABLE_SHARE) {
        return false;
    }
    if (limiter->options.rate != NULL) {
        rg_rate_throttled(limiter->options.rate);
    }
    return sent_ns > limiter->cut_ns && slow_down(limiter, is_unavailable, sent_ns, now_ns);
}

/* One more may be out, but the rate is at most doubled. From a gap that only those in a large job
 * have, the rest of the way begins at once. */
static double gap_quick(const struct rg_limiter *limiter)
{
    double gap_ns = RG_MIN(limiter->gap_ns, 2 * (double)RG_LIMITER_GAP_NS_MAX);
    double more = RG_MIN(gap_ns / limiter->answer_ns, 1.0);
    return RG_MAX(gap_ns / (1 + more), limiter->quick_gap_ns);
}

/* Time goes by in gaps, of which each brings an answer. */
static double gap_slow(const struct rg_limiter *limiter)
{
    double since = limiter->answer_count * limiter->gap_ns / (double)RG_LIMITER_GROWTH_NS;
    double step =
        (limiter->gap_ns + (double)RG_LIMITER_GROWTH_UNIT_NS) / (double)RG_LIMITER_GROWTH_NS;
    return limiter->gap_ns / (1 + RG_MIN(since * step, 1.0));
}

/* All connections may be in use at this rate. */
static void freed(struct rg_limiter *limiter)
{
    if (limiter->gap_ns * limiter->options.limit_max <= limiter->answer_ns) {
        become(limiter, RG_LIMITER_FREE);
    }
}

/* What waits for a gap that was much longer waits no more. */
static void next_near(struct rg_limiter *limiter)
{
    if (limiter->next_ns > limiter->begun_ns + (uint64_t)(2 * limiter->gap_ns)) {
        limiter->next_ns = limiter->begun_ns + vary(limiter, limiter->gap_ns);
    }
}

static void speed_up(struct rg_limiter *limiter)
{
    bool is_quick = limiter->gap_ns > limiter->quick_gap_ns;
    gap_set(limiter, is_quick ? gap_quick(limiter) : gap_slow(limiter));
    next_near(limiter);
    freed(limiter);
}

static void answered(struct rg_limiter *limiter, uint64_t sent_ns, uint64_t now_ns)
{
    double elapsed_ns = (double)(now_ns - sent_ns), before_ns = limiter->answer_ns;
    limiter->answer_ns += (elapsed_ns - before_ns) / (before_ns > 0 ? ANSWER_MEAN_COUNT : 1);
    limiter->unavailable -= limiter->unavailable / RG_LIMITER_UNAVAILABLE_COUNT;
    /* What was sent before the cut tells of a time before it. */
    if (sent_ns <= limiter->cut_ns) {
        return;
    }
    limiter->answer_count += limiter->answer_count < UINT32_MAX;
    limiter->count.answers++;
    limiter->excess = RG_MAX(limiter->excess - RG_LIMITER_SUDDEN_SHARE, 0.0);
    host_count(limiter, 1, 0);
    if (limiter->state == RG_LIMITER_RISING) {
        freed(limiter);
    }
    if (limiter->state != RG_LIMITER_PACED) {
        return;
    }
    bool is_needed = now_ns <= limiter->next_ns + RG_LIMITER_BURST_NS;
    if (is_needed) {
        speed_up(limiter);
    } else if (!limiter->follows && now_ns - limiter->cut_ns >= RG_LIMITER_NEEDLESS_NS) {
        become(limiter, state_open(limiter));
    }
}

bool rg_limiter_leave(struct rg_limiter *limiter, enum rg_limiter_outcome outcome, uint64_t sent_ns,
                      uint64_t now_ns)
{
    RG_ASSERT(limiter->in_flight > 0);
    bool is_cut = false;
    if (outcome == RG_LIMITER_ANSWERED) {
        answered(limiter, sent_ns, now_ns);
    } else if (outcome != RG_LIMITER_BROKEN) {
        is_cut = refused(limiter, outcome, sent_ns, now_ns);
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
    double was_ns = gap_at(limiter, (uint64_t)mean);
    double gap_ns = was_ns / RG_LIMITER_LATENCY_CUT;
    if (is_slow && mean / gap_ns > RG_LIMITER_LATENCY_LIMIT_MIN) {
        cut(limiter, gap_ns, was_ns, now_ns);
        return true;
    }
    return false;
}

/* Who has something out keeps to that, and who begins gets its part. */
static void follow(struct rg_limiter *limiter, const struct rg_limiter_lesson *lesson,
                   uint64_t now_ns)
{
    double own_ns = rg_limiter_gap_ns(limiter);
    double gap_ns = own_ns > 0 ? own_ns : lesson->gap_ns;
    become(limiter, RG_LIMITER_PACED);
    limiter->follows = true;
    gap_set(limiter, RG_MIN(gap_ns, (double)RG_LIMITER_LESSON_GAP_NS_MAX));
    limiter->quick_gap_ns = limiter->gap_ns;
    limiter->next_ns = now_ns;
}

/* In rates, of which the sum stays the same. */
static void gap_near(struct rg_limiter *limiter, double wanted_ns)
{
    if (wanted_ns > (double)RG_LIMITER_LESSON_GAP_NS_MAX) {
        return;
    }
    double rate = 1 / limiter->gap_ns, wanted = 1 / wanted_ns;
    double gap_ns = 1 / (rate + (wanted - rate) * RG_LIMITER_LESSON);
    if (limiter->gap_ns <= limiter->quick_gap_ns) {
        limiter->quick_gap_ns *= gap_ns / limiter->gap_ns;
    }
    gap_set(limiter, gap_ns);
    next_near(limiter);
}

/* Counts what others have counted since the last lesson, if they are the same. */
static void count_others(struct rg_limiter *limiter, const struct rg_limiter_lesson *lesson,
                         uint64_t now_ns)
{
    bool is_new = lesson->others == limiter->others && lesson->others != 0 &&
                  now_ns - limiter->taught_ns <= RG_LIMITER_HOST_OLD_NS;
    uint32_t answers = lesson->count.answers - limiter->others_count.answers;
    uint32_t sudden = lesson->count.sudden - limiter->others_count.sudden;
    limiter->others = lesson->others;
    limiter->others_count = lesson->count;
    limiter->taught_ns = now_ns;
    if (is_new && sudden <= answers && now_ns - limiter->cut_ns >= RG_LIMITER_HOST_LATE_NS) {
        host_count(limiter, answers, sudden);
    }
}

/* True: all of the host were refused so often that this one is slower now. */
static bool host_cut(struct rg_limiter *limiter, uint64_t now_ns)
{
    if (!is_host_overload(limiter) || rg_limiter_gap_ns(limiter) == 0) {
        return false;
    }
    if (limiter->options.rate != NULL) {
        rg_rate_throttled(limiter->options.rate);
    }
    return slow_down(limiter, true, now_ns, now_ns);
}

bool rg_limiter_learn(struct rg_limiter *limiter, const struct rg_limiter_lesson *lesson,
                      uint64_t now_ns)
{
    idle_end(limiter, now_ns);
    count_others(limiter, lesson, now_ns);
    bool is_cut = host_cut(limiter, now_ns);
    if (limiter->state == RG_LIMITER_FREE) {
        if (lesson->is_held && (lesson->is_news || limiter->in_flight == 0)) {
            follow(limiter, lesson, now_ns);
        }
    } else if (limiter->state == RG_LIMITER_RISING) {
        /* It begins with less than it could be told, and will be refused itself. */
    } else if (limiter->follows && !lesson->is_held) {
        become(limiter, state_open(limiter));
    } else if (lesson->gap_ns > 0) {
        gap_near(limiter, lesson->gap_ns);
    }
    RG_VERIFY(invariants(limiter));
    return is_cut;
}
