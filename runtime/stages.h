/* How much time the gets of a loop have spent at each stage (enum rg_stage), all of them together:
 * as many gets as are at a stage, times how long they are, summed up.
 *
 *   a get moves ---> counts ---+
 *   connections open ----------+--> at each pass, times what has passed: metrics.stages
 *
 *   limits that hold back -----+
 *
 * So a change of stage costs two additions, and who looks at metrics.stages twice sees what gets
 * were at in between, up to the loop's last pass. A get that has no connection is at QUEUE, and
 * counts there, or for the connections that are being opened, or for memory where that is missing.
 *
 * Invariant: between passes the counts add up to 0, that of NONE standing for all the others.
 *
 * The loop's thread only. */
#ifndef RG_RUNTIME_STAGES_H
#define RG_RUNTIME_STAGES_H

#include "runtime/metrics.h"

/* What is being done for those who wait for a connection. */
enum rg_opening { RG_OPENING_DNS, RG_OPENING_CONNECT, RG_OPENING_TLS, RG_OPENING_COUNT };

/* A stage of counts only: waits until the limits of a bucket let it in. It is THROTTLED where they
 * hold it back, and else at QUEUE: as many are in as there are connections. */
#define RG_STAGES_ADMISSION RG_STAGE_COUNT
#define RG_STAGES_COUNT (RG_STAGE_COUNT + 1)

/* Zeroed: nothing is at any stage. */
struct rg_stages {
    uint32_t counts[RG_STAGES_COUNT]; /* gets; of NONE, 0 minus all of them */
    uint32_t held;                    /* of those at ADMISSION */
    uint32_t opening[RG_OPENING_COUNT];
    uint64_t since_ns; /* the last pass */
};

static inline void rg_stages_move(struct rg_stages *stages, uint8_t from, uint8_t to)
{
    stages->counts[from]--;
    stages->counts[to]++;
}

/* Adds what has passed since the last pass. is_short: somebody waits for leased memory. */
void rg_stages_add(struct rg_stages *stages, struct rg_metrics *metrics, uint64_t elapsed_ns,
                   bool is_short);

static inline void rg_stages_pass(struct rg_stages *stages, struct rg_metrics *metrics,
                                  uint64_t now_ns, bool is_short)
{
    if (stages->counts[RG_STAGE_NONE] != 0) {
        rg_stages_add(stages, metrics, now_ns - stages->since_ns, is_short);
    }
    stages->since_ns = now_ns;
}

#endif
