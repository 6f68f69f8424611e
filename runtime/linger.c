/* The decision about lingering: see linger.h. */
#include "runtime/linger.h"

/* Waits in a window; the shorter one is of the first sleep of a busy loop, which costs whoever
 * should not have it. */
#define WINDOW 64
#define WINDOW_QUICK 16
/* Ops that a wait must bring for it to go on, and news in a window for it to be tried. */
#define OPS_MIN 2
#define NEWS_MIN (WINDOW / 2)
/* A wait that brings as much is worth its wake-up: a longer sleep would save little, and more bytes
 * would not stay in the cache of a core until they are received. */
#define OPS_ENOUGH 8
#define BYTES_ENOUGH RG_KIB(512)
/* A longer sleep is for waits that end fewer than one in so many of the exchanges that are under
 * way: it is a small part of the time of each then, and the server does not run out of them. So is,
 * by the second, a first one of a loop that is not busy: it would often find nothing, and be one
 * more wake-up. */
#define TURN_OF_SOCKETS 12
#define TURN_OF_SOCKETS_FIRST 32
/* A loss: fewer bytes than this share come. The second is for a busy loop, where nothing else would
 * tell it from chance in a short window. */
#define SHARE_MIN 0.95
#define SHARE_MIN_QUICK 0.7
/* Windows of ON before it is compared anew, those in a row that end it if less comes, and the
 * longest rest. */
#define ON_WINDOWS 32
#define POOR_WINDOWS 2
#define REST_MAX 63
/* Nothing came for so long: what was seen before is of no use. */
#define GAP_NS RG_NS_PER_S

static bool invariants(const struct rg_linger *linger)
{
    bool sleeps = linger->state == RG_LINGER_TRYING || linger->state == RG_LINGER_ON;
    return sleeps == (linger->sleep_ns > 0) && linger->sleep_ns <= RG_LINGER_MAX_NS &&
           (linger->state == RG_LINGER_ON) == (linger->windows > 0) &&
           (linger->state == RG_LINGER_RESTING) <= (linger->resting.windows > 0) &&
           linger->resting.next <= REST_MAX && linger->longer[0].next <= REST_MAX &&
           linger->longer[1].next <= REST_MAX && linger->poor < POOR_WINDOWS &&
           linger->waits < WINDOW;
}

static void window_begin(struct rg_linger *linger, uint64_t now_ns)
{
    linger->waits = linger->ops = linger->news = linger->sockets = linger->turns = 0;
    linger->window = (linger->window + 1) & UINT32_MAX >> 1;
    linger->bytes = 0;
    linger->since_ns = now_ns;
}

static void become(struct rg_linger *linger, enum rg_linger_state state, uint64_t sleep_ns)
{
    static const uint8_t after[] = {
        [RG_LINGER_AWAKE] = 1u << RG_LINGER_TRYING | 1u << RG_LINGER_ON,
        [RG_LINGER_TRYING] = 1u << RG_LINGER_TRYING | 1u << RG_LINGER_ON | 1u << RG_LINGER_RESTING |
                             1u << RG_LINGER_AWAKE,
        [RG_LINGER_ON] = 1u << RG_LINGER_TRYING | 1u << RG_LINGER_RESTING | 1u << RG_LINGER_AWAKE,
        [RG_LINGER_RESTING] = 1u << RG_LINGER_AWAKE,
    };
    RG_ASSERT(after[linger->state] & 1u << state);
    linger->state = state;
    linger->sleep_ns = sleep_ns;
    linger->windows = state == RG_LINGER_ON ? ON_WINDOWS : 0;
    linger->quick = false;
    linger->poor = 0;
}

/* From a sleep that is too long. */
static void rest_begin(struct rg_linger_rest *rest)
{
    rest->windows = rest->next + 1;
    rest->next = RG_MIN(2 * rest->next + 1, (uint32_t)REST_MAX);
}

/* A window of it has passed. True: it is over. */
static bool rest_passed(struct rg_linger_rest *rest)
{
    rest->windows -= rest->windows > 0;
    return rest->windows == 0;
}

/* From the next longer sleep than this. */
static struct rg_linger_rest *rest_from_longer(struct rg_linger *linger, uint64_t sleep_ns)
{
    return &linger->longer[sleep_ns > RG_LINGER_NS];
}

/* Enough happened that is not one exchange after the other. */
static bool has_news(const struct rg_linger *linger)
{
    return linger->ops >= WINDOW && linger->news >= NEWS_MIN;
}

static bool is_more_frequent(uint64_t elapsed_ns, uint64_t than_ns)
{
    return elapsed_ns < WINDOW * than_ns;
}

bool rg_linger_asks_for_crowd(const struct rg_linger *linger, uint64_t now_ns)
{
    return linger->state == RG_LINGER_AWAKE && has_news(linger) &&
           !is_more_frequent(now_ns - linger->since_ns, RG_LINGER_NS);
}

/* Each wait ends so many of a number of exchanges. */
static bool ends_exchanges(const struct rg_linger *linger, uint64_t times, uint64_t of)
{
    return linger->turns * of >= times * linger->waits * linger->sockets;
}

/* Waits bring so many times what is enough, or end more exchanges than that. */
static bool finds_enough(const struct rg_linger *linger, uint64_t times)
{
    return linger->ops >= times * OPS_ENOUGH * linger->waits ||
           linger->bytes >= times * BYTES_ENOUGH * linger->waits ||
           ends_exchanges(linger, times, TURN_OF_SOCKETS);
}

/* Who waits for a CPU anyway does not lose by a sleep. */
static void awake_judge(struct rg_linger *linger, uint64_t elapsed_ns, uint32_t crowd)
{
    if (!has_news(linger)) {
        return;
    }
    bool busy = is_more_frequent(elapsed_ns, RG_LINGER_NS);
    if (!busy && elapsed_ns / 100 * crowd >= WINDOW * RG_LINGER_NS) {
        become(linger, RG_LINGER_ON, RG_LINGER_NS);
    } else if (busy || (is_more_frequent(elapsed_ns, RG_LINGER_MAX_NS) &&
                        !ends_exchanges(linger, 1, TURN_OF_SOCKETS_FIRST))) {
        become(linger, RG_LINGER_TRYING, RG_LINGER_NS);
        linger->quick = busy;
    }
}

static bool may_try_longer(struct rg_linger *linger)
{
    return linger->sleep_ns < RG_LINGER_MAX_NS &&
           rest_from_longer(linger, linger->sleep_ns)->windows == 0 && !finds_enough(linger, 1);
}

static void try_longer(struct rg_linger *linger, double rate)
{
    linger->rate = rate;
    become(linger, RG_LINGER_TRYING, 2 * linger->sleep_ns);
}

static void trial_judge(struct rg_linger *linger, double rate)
{
    bool is_loss = rate < (linger->quick ? SHARE_MIN_QUICK : SHARE_MIN) * linger->rate;
    uint64_t before_ns = linger->sleep_ns / 2;
    if (is_loss && linger->sleep_ns == RG_LINGER_NS) {
        rest_begin(&linger->resting);
        become(linger, RG_LINGER_RESTING, 0);
    } else if (is_loss) {
        rest_begin(rest_from_longer(linger, before_ns));
        become(linger, RG_LINGER_ON, before_ns);
    } else if (!linger->quick && may_try_longer(linger)) {
        try_longer(linger, rate);
    } else {
        linger->rate = rate;
        become(linger, RG_LINGER_ON, linger->sleep_ns);
    }
}

/* The next loss is the first one in a row. */
static void has_lasted(struct rg_linger *linger)
{
    linger->resting.next = 0;
    for (uint64_t ns = RG_LINGER_NS; ns < linger->sleep_ns; ns *= 2) {
        rest_from_longer(linger, ns)->next = 0;
    }
}

/* As much comes as before: is a longer sleep worth a trial, or this one worth its latency? */
static void on_adjust(struct rg_linger *linger, double rate)
{
    if (may_try_longer(linger)) {
        try_longer(linger, rate);
    } else if (linger->ops < OPS_MIN * WINDOW) {
        rest_begin(&linger->resting);
        become(linger, RG_LINGER_RESTING, 0);
    } else if (linger->sleep_ns > RG_LINGER_NS && finds_enough(linger, 2)) {
        linger->sleep_ns /= 2; /* which finds enough as well */
    }
}

static void on_judge(struct rg_linger *linger, double rate)
{
    (void)rest_passed(&linger->longer[0]);
    (void)rest_passed(&linger->longer[1]);
    linger->poor = rate < SHARE_MIN_QUICK * linger->rate ? linger->poor + 1 : 0;
    if (--linger->windows == 0) {
        has_lasted(linger);
        become(linger, RG_LINGER_AWAKE, 0);
    } else if (linger->poor == POOR_WINDOWS) {
        become(linger, RG_LINGER_AWAKE, 0);
    } else if (linger->poor == 0) {
        on_adjust(linger, rate);
    }
}

void rg_linger_judge(struct rg_linger *linger, uint64_t now_ns, uint32_t crowd)
{
    uint64_t elapsed_ns = now_ns - linger->since_ns;
    double rate = (double)linger->bytes / (double)RG_MAX(elapsed_ns, (uint64_t)1);
    switch (linger->state) {
    case RG_LINGER_AWAKE:
        linger->rate = rate;
        awake_judge(linger, elapsed_ns, crowd);
        break;
    case RG_LINGER_TRYING:
        trial_judge(linger, rate);
        break;
    case RG_LINGER_ON:
        on_judge(linger, rate);
        break;
    case RG_LINGER_RESTING:
        if (rest_passed(&linger->resting)) {
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
        if (linger->sleep_ns > 0) {
            become(linger, RG_LINGER_AWAKE, 0);
        }
        window_begin(linger, now_ns);
        return false;
    }
    return ++linger->waits >= (linger->quick ? WINDOW_QUICK : WINDOW);
}
