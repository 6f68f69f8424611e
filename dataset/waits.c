/* Sleeps and their causes: see waits.h. */
#include "dataset/waits.h"

#include "runtime/tracing.h"

void rg_waits_begin(struct rg_waits *waits, const struct rg_runtime *runtime, uint64_t now_ns)
{
    RG_ASSERT(waits->began_ns == 0);
    waits->began_ns = now_ns;
    if (!waits->is_unexplained) {
        rg_runtime_stages(runtime, waits->before_ns);
    }
}

/* Divides `slept_ns` as gets have spent their time since it began. */
static void divide(struct rg_waits *waits, const uint64_t now_ns[static RG_STAGE_COUNT],
                   uint64_t slept_ns)
{
    double sum = 0, slept = (double)slept_ns;
    uint64_t left_ns = slept_ns;
    for (unsigned i = RG_STAGE_NONE + 1; i < RG_STAGE_COUNT; i++) {
        sum += (double)(now_ns[i] - waits->before_ns[i]);
    }
    for (unsigned i = RG_STAGE_NONE + 1; i < RG_STAGE_COUNT && sum > 0; i++) {
        double spent = (double)(now_ns[i] - waits->before_ns[i]);
        uint64_t share_ns = RG_MIN((uint64_t)(slept * (spent / sum)), left_ns);
        waits->shares_ns[i] += share_ns;
        left_ns -= share_ns;
    }
    waits->shares_ns[RG_STAGE_NONE] = left_ns;
    waits->is_unexplained = sum == 0;
}

void rg_waits_end(struct rg_waits *waits, const struct rg_runtime *runtime, uint64_t now_ns)
{
    uint64_t spent_ns[RG_STAGE_COUNT];
    RG_ASSERT(waits->began_ns != 0);
    rg_runtime_stages(runtime, spent_ns);
    divide(waits, spent_ns, waits->shares_ns[RG_STAGE_NONE] + (now_ns - waits->began_ns));
    if (rg_tracing_is_on()) {
        rg_tracing_sleep(waits->began_ns, now_ns);
    }
    waits->began_ns = 0;
}
