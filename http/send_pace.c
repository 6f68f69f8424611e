/* See send_pace.h. */
#include "http/send_pace.h"

static_assert(RG_SEND_PACE_PIECE <= UINT64_MAX / RG_NS_PER_S, "a piece's time fits");

uint64_t rg_send_pace_room(struct rg_send_pace *pace, uint64_t now_ns, uint64_t *out_look_ns)
{
    uint64_t rate = atomic_load_explicit(&pace->bytes_per_s, memory_order_relaxed);
    if (rate == 0) {
        return UINT64_MAX;
    }
    while (pace->left <= 0) {
        uint64_t due_ns = pace->begun_ns + RG_SEND_PACE_PIECE * RG_NS_PER_S / rate;
        if (now_ns < due_ns) {
            *out_look_ns = RG_MIN(due_ns, now_ns + RG_SEND_PACE_LOOK_NS);
            return 0;
        }
        uint64_t kept_ns = now_ns - RG_MIN(now_ns, RG_SEND_PACE_BURST_NS);
        pace->begun_ns = RG_MAX(due_ns, kept_ns);
        pace->left += RG_SEND_PACE_PIECE;
    }
    return (uint64_t)pace->left;
}

void rg_send_pace_sent(struct rg_send_pace *pace, uint64_t size)
{
    /* What was sent while there was no limit is not owed. */
    int64_t left = pace->left - (int64_t)RG_MIN(size, (uint64_t)INT64_MAX / 2);
    pace->left = RG_MAX(left, -(int64_t)RG_SEND_PACE_PIECE);
}
