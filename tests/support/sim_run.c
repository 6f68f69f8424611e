/* The simulation as a whole: how its time passes, and its end. See sim.h. */
#include "tests/support/sim_end.h"

#include <stdlib.h>

/* Passes without time going on, after which a loop is taken to spin. */
#define PASSES_MAX 1000000

void rg_sim_destroy(struct rg_sim *sim)
{
    if (sim == NULL) {
        return;
    }
    RG_ASSERT(rg_list_empty(&sim->loops));
    struct rg_list *node;
    for (node = sim->ends.next; node != &sim->ends; node = node->next) {
        rg_sim_end_go(RG_CONTAINER_OF(node, struct rg_sim_end, node));
    }
    while ((node = rg_list_pop_front(&sim->ends)) != NULL) {
        struct rg_sim_end *end = RG_CONTAINER_OF(node, struct rg_sim_end, node);
        rg_sim_pipe_clear(&end->in);
        free(end);
    }
    rg_sim_world_free(sim);
}

static void run_due_events(struct rg_sim *sim)
{
    while (sim->event_count > 0 && sim->events[0].at_ns <= sim->now_ns) {
        struct rg_sim_event event = rg_sim_event_take(sim);
        event.run(sim, &event);
        free(event.owned);
    }
}

/* One pass of every loop. True if one of them had something to do. */
static bool pass_loops(struct rg_sim *sim, uint64_t *out_wake_ns)
{
    bool busy = false;
    *out_wake_ns = UINT64_MAX;
    for (struct rg_list *node = sim->loops.next; node != &sim->loops; node = node->next) {
        struct rg_sim_loop *self = RG_CONTAINER_OF(node, struct rg_sim_loop, node);
        rg_loop_pass(self->loop, UINT64_MAX);
        busy |= self->busy;
        *out_wake_ns = RG_MIN(*out_wake_ns, self->wake_ns);
    }
    return busy;
}

bool rg_sim_run(struct rg_sim *sim, uint64_t until_ns, bool (*done)(void *context), void *context)
{
    uint64_t passes = 0;
    for (;;) {
        uint64_t wake_ns;
        run_due_events(sim);
        bool busy = pass_loops(sim, &wake_ns);
        if (done != NULL && done(context)) {
            return true;
        }
        RG_ASSERT(++passes < PASSES_MAX);
        uint64_t event_ns = sim->event_count > 0 ? sim->events[0].at_ns : UINT64_MAX;
        if (busy || event_ns <= sim->now_ns) {
            continue;
        }
        passes = 0;
        uint64_t next_ns = RG_MIN(wake_ns, event_ns);
        if (next_ns > until_ns) {
            sim->now_ns = RG_MAX(sim->now_ns, until_ns);
            return false;
        }
        sim->now_ns = next_ns;
    }
}
