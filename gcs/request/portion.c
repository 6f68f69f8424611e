/* See portion.h. */
#include "gcs/request/portion.h"

#include "gcs/request/quantile.h"

/* What is believed of others, at most. */
#define GAP_NS_MIN (10 * RG_NS_PER_US)
#define LATENCY_US_MAX (60u * 1000 * 1000)

/* Sums of what was added are of others, and no part of them is without a whole. */
static bool invariants(const struct rg_portion *portion)
{
    bool ok = true;
    for (unsigned i = 0; i < RG_PEER_SIDE_COUNT; i++) {
        const struct rg_portion_side *side = &portion->sides[i];
        ok &= side->processes >= 0 && side->rates >= 0;
        ok &= side->refused <= side->restrained && side->restrained >= side->is_news;
    }
    return ok;
}

void rg_portion_begin(struct rg_portion *portion, uint64_t process)
{
    *portion = (struct rg_portion){.process = process};
}

static double rate_of(const struct rg_peer_side *told)
{
    uint64_t gap_ns = RG_MIN(RG_MAX(told->gap_ns, GAP_NS_MIN), RG_LIMITER_JOB_GAP_NS_MAX);
    return told->gap_ns > 0 ? 1.0 / (double)gap_ns : 0;
}

/* Times are the other's own: this loop's may be a little earlier. */
static void side_add(struct rg_portion_side *side, const struct rg_peer_side *told,
                     uint64_t told_ns, bool is_own)
{
    bool is_used = told->in_flight > 0 || told->waiting > 0;
    if (!is_used) {
        return;
    }
    side->own += is_own;
    side->processes += is_own ? 0 : 1.0 / RG_MIN(RG_MAX(told->loops, 1u), (uint32_t)RG_PEERS_COUNT);
    side->rates += rate_of(told);
    if (told->restraint == RG_PEER_FREE) {
        return;
    }
    side->restrained++;
    if (told->refused_ns != 0 && told->refused_ns <= told_ns) {
        uint64_t ago_ns = told_ns - told->refused_ns;
        side->refused += told->restraint == RG_PEER_REFUSED && ago_ns <= RG_PORTION_HELD_NS;
        side->is_news |= ago_ns <= RG_PORTION_NEWS_NS;
    }
}

static void kind_add(struct rg_portion_kind *kind, const struct rg_peer_kind *told)
{
    if (told->count < RG_PORTION_HEADS_MIN || told->median_us > told->late_us ||
        told->late_us > LATENCY_US_MAX || told->silence_us > LATENCY_US_MAX) {
        return;
    }
    double count = RG_MIN(told->count, (uint32_t)RG_QUANTILE_FORGET);
    kind->count += (uint64_t)count;
    kind->median += count * told->median_us;
    kind->late += count * told->late_us;
    if (told->silence_us > 0) {
        kind->silence_count += (uint64_t)count;
        kind->silence += count * told->silence_us;
    }
}

void rg_portion_add(struct rg_portion *portion, const struct rg_peer *peer)
{
    bool is_own = peer->process == portion->process;
    for (unsigned i = 0; i < RG_PEER_SIDE_COUNT; i++) {
        side_add(&portion->sides[i], &peer->sides[i], peer->told_ns, is_own);
        portion->sides[i].others += peer->process;
        portion->sides[i].count.answers += peer->sides[i].answers;
        portion->sides[i].count.sudden += peer->sides[i].sudden;
    }
    for (unsigned i = 0; i < RG_PEER_KIND_COUNT; i++) {
        kind_add(&portion->kinds[i], &peer->kinds[i]);
    }
    RG_VERIFY(invariants(portion));
}

struct rg_limiter_lesson rg_portion_lesson(const struct rg_portion *portion, unsigned side,
                                           const struct rg_peer_side *own)
{
    const struct rg_portion_side *others = &portion->sides[side];
    struct rg_limiter_lesson lesson = {
        .is_held = others->refused > 0,
        .is_news = others->is_news,
        .others = others->others,
        .count = others->count,
    };
    if (others->restrained > 0) {
        double sharers = (others->processes + 1) * (others->own + 1);
        double rates = others->rates + rate_of(own);
        lesson.gap_ns = rates > 0 ? sharers / rates : 0;
    }
    return lesson;
}

uint32_t rg_portion_loops(const struct rg_portion *portion, unsigned side)
{
    return portion->sides[side].own + 1;
}

uint32_t rg_portion_processes(const struct rg_portion *portion)
{
    double most = 0;
    for (unsigned i = 0; i < RG_PEER_SIDE_COUNT; i++) {
        most = RG_MAX(most, portion->sides[i].processes);
    }
    return 1 + (uint32_t)(most + 0.5);
}

static uint64_t mean_ns(double sum_us, uint64_t count)
{
    return count > 0 ? (uint64_t)(sum_us / (double)count) * RG_NS_PER_US : 0;
}

bool rg_portion_latency(const struct rg_portion *portion, unsigned kind, uint64_t *out_median_ns,
                        uint64_t *out_late_ns, uint64_t *out_silence_ns)
{
    const struct rg_portion_kind *others = &portion->kinds[kind];
    if (others->count == 0) {
        return false;
    }
    *out_median_ns = mean_ns(others->median, others->count);
    *out_late_ns = mean_ns(others->late, others->count);
    *out_silence_ns = mean_ns(others->silence, others->silence_count);
    return true;
}
