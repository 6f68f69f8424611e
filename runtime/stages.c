/* Adding up the time that gets spend: see stages.h. */
#include "runtime/stages.h"

#include <string.h>

const char *rg_stage_name(enum rg_stage stage)
{
    static const char *const names[RG_STAGE_COUNT] = {[RG_STAGE_NONE] = "none",
#define XX(name, enumerator, text) [RG_STAGE_##enumerator] = #name,
                                                      RG_METRIC_STAGES(XX)
#undef XX
    };
    return (unsigned)stage < RG_STAGE_COUNT ? names[stage] : "unknown";
}

static bool invariants(const struct rg_stages *stages)
{
    uint32_t sum = 0;
    for (unsigned i = 0; i < RG_STAGES_COUNT; i++) {
        sum += stages->counts[i];
    }
    return sum == 0 && stages->held <= stages->counts[RG_STAGES_ADMISSION];
}

/* Those who wait for a connection wait for what those do that are being opened. */
static void queue_add(const struct rg_stages *stages, struct rg_metrics *metrics, uint64_t spent_ns)
{
    static const uint8_t stage_of[RG_OPENING_COUNT] = {
        [RG_OPENING_DNS] = RG_STAGE_DNS,
        [RG_OPENING_CONNECT] = RG_STAGE_CONNECT,
        [RG_OPENING_TLS] = RG_STAGE_TLS,
    };
    uint32_t opening = 0;
    for (unsigned i = 0; i < RG_OPENING_COUNT; i++) {
        opening += stages->opening[i];
    }
    if (opening == 0) {
        rg_metric_add(&metrics->stages[RG_STAGE_QUEUE], spent_ns);
        return;
    }
    for (unsigned i = 0; i < RG_OPENING_COUNT; i++) {
        rg_metric_add(&metrics->stages[stage_of[i]], spent_ns / opening * stages->opening[i]);
    }
}

void rg_stages_add(struct rg_stages *stages, struct rg_metrics *metrics, uint64_t elapsed_ns,
                   bool is_short)
{
    RG_VERIFY(invariants(stages));
    for (unsigned i = RG_STAGE_NONE + 1; i < RG_STAGE_COUNT; i++) {
        if (i != RG_STAGE_QUEUE && stages->counts[i] != 0) {
            rg_metric_add(&metrics->stages[i], elapsed_ns * stages->counts[i]);
        }
    }
    uint32_t outside = stages->counts[RG_STAGES_ADMISSION];
    rg_metric_add(&metrics->stages[RG_STAGE_THROTTLED], elapsed_ns * stages->held);
    uint64_t queued_ns = elapsed_ns * (stages->counts[RG_STAGE_QUEUE] + outside - stages->held);
    if (is_short) {
        rg_metric_add(&metrics->stages[RG_STAGE_MEMORY], queued_ns);
    } else if (queued_ns > 0) {
        queue_add(stages, metrics, queued_ns);
    }
}
