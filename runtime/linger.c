/* The decision about lingering: see linger.h. */
#include "runtime/linger.h"

/* Waits in a window; the shorter one is of TRYING, which costs whoever should not have it. */
#define WINDOW 64
#define WINDOW_TRYING 16
/* Ops that a wait must bring for it to go on, and news in a window for it to be tried. */
#define OPS_MIN 2
#define NEWS_MIN (WINDOW / 2)
/* A loss: fewer bytes than this share come. */
#define SHARE_MIN 0.7
/* Windows of ON before it is compared anew, and the longest rest. */
#define ON_WINDOWS 32
#define REST_MAX 63
/* Nothing came for so long: what was seen before is of no use. */
#define GAP_NS RG_NS_PER_S

static bool invariants(const struct rg_linger *linger)
{
    bool counts = linger->state == RG_LINGER_ON || linger->state == RG_LINGER_RESTING;
    return counts == (linger->windows > 0) && linger->rest <= REST_MAX && linger->waits < WINDOW;
}

static void window_begin(struct rg_linger *linger, uint64_t now_ns)
{
    linger->waits = linger->ops = linger->news = 0;
    linger->bytes = 0;
    linger->since_ns = now_ns;
}

static void become(struct rg_linger *linger, enum rg_linger_state state, uint32_t windows)
{
    static const uint8_t after[] = {
        [RG_LINGER_AWAKE] = 1u << RG_LINGER_TRYING | 1u << RG_LINGER_ON,
        [RG_LINGER_TRYING] = 1u << RG_LINGER_ON | 1u << RG_LINGER_RESTING | 1u << RG_LINGER_AWAKE,
        [RG_LINGER_ON] = 1u << RG_LINGER_AWAKE,
        [RG_LINGER_RESTING] = 1u << RG_LINGER_AWAKE,
    };
    RG_ASSERT(after[linger->state] & 1u << state);
    linger->state = state;
    linger->windows = windows;
}

/* Enough happened that is not one exchange after the other. */
static bool has_news(const struct rg_linger *linger)
{
    return linger->ops >= WINDOW && linger->news >= NEWS_MIN;
}

static bool is_frequent(uint64_t elapsed_ns)
{
    return elapsed_ns < WINDOW * RG_LINGER_NS;
}

bool rg_linger_asks_for_crowd(const struct rg_linger *linger, uint64_t now_ns)
{
    return linger->state == RG_LINGER_AWAKE && has_news(linger) &&
           !is_frequent(now_ns - linger->since_ns);
}

/* Who waits for a CPU anyway does not lose by a sleep. */
static void awake_judge(struct rg_linger *linger, uint64_t elapsed_ns, uint32_t crowd)
{
    if (!has_news(linger)) {
        return;
    }
    if (is_frequent(elapsed_ns)) {
        become(linger, RG_LINGER_TRYING, 0);
    } else if (elapsed_ns / 100 * crowd >= WINDOW * RG_LINGER_NS) {
        become(linger, RG_LINGER_ON, ON_WINDOWS);
    }
}

static void trial_judge(struct rg_linger *linger, double rate)
{
    if (rate < SHARE_MIN * linger->awake_rate) {
        become(linger, RG_LINGER_RESTING, linger->rest + 1);
        linger->rest = RG_MIN(2 * linger->rest + 1, (uint32_t)REST_MAX);
    } else {
        become(linger, RG_LINGER_ON, ON_WINDOWS);
        linger->rest = 0;
    }
}

void rg_linger_judge(struct rg_linger *linger, uint64_t now_ns, uint32_t crowd)
{
    uint64_t elapsed_ns = now_ns - linger->since_ns;
    double rate = (double)linger->bytes / (double)RG_MAX(elapsed_ns, (uint64_t)1);
    switch (linger->state) {
    case RG_LINGER_AWAKE:
        linger->awake_rate = rate;
        awake_judge(linger, elapsed_ns, crowd);
        break;
    case RG_LINGER_TRYING:
        trial_judge(linger, rate);
        break;
    case RG_LINGER_ON:
        if (--linger->windows == 0 || linger->ops < OPS_MIN * WINDOW) {
            become(linger, RG_LINGER_AWAKE, 0);
        }
        break;
    case RG_LINGER_RESTING:
        if (--linger->windows == 0) {
            become(linger, RG_LINGER_AWAKE, 0);
        }
        break;
    }
    window_begin(linger, now_ns);
    RG_VERIFY(invariants(linger));
}

bool rg_linger_waited(struct rg_linger *linger, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - linger->waited_ns;
    linger->waited_ns = now_ns;
    if (RG_UNLIKELY(gap_ns >= GAP_NS)) {
        if (rg_linger_is_on(linger)) {
            become(linger, RG_LINGER_AWAKE, 0);
        }
        window_begin(linger, now_ns);
        return false;
    }
    return ++linger->waits >= (linger->state == RG_LINGER_TRYING ? WINDOW_TRYING : WINDOW);
}
