/* What the scripts of scripted ends may do: see sim.h. */
#include "tests/support/sim_end.h"

#include <stdlib.h>
#include <string.h>

void *rg_sim_end_context(const struct rg_sim_end *end)
{
    return end->context;
}

void **rg_sim_end_state(struct rg_sim_end *end)
{
    return &end->state;
}

struct rg_sim *rg_sim_end_sim(const struct rg_sim_end *end)
{
    return end->sim;
}

void rg_sim_write(struct rg_sim_end *end, const void *data, size_t size)
{
    RG_ASSERT(end->service != NULL);
    if (end->shut || size == 0) {
        return;
    }
    rg_sim_trace(end->sim, "peer writes", end->id, (int64_t)size);
    if (end->other->closed) {
        rg_sim_pipe_append(end, RG_SIM_CHUNK_RESET, NULL, 0);
    } else {
        rg_sim_pipe_write(end->other, data, size);
    }
}

static void write_run(struct rg_sim *sim, const struct rg_sim_event *event)
{
    struct rg_sim_end *end = event->target;
    RG_ASSERT(end->sim == sim);
    rg_sim_write(end, event->owned, event->size);
}

void rg_sim_write_after(struct rg_sim_end *end, uint64_t delay_ns, const void *data, size_t size)
{
    uint8_t *copy = malloc(RG_MAX(size, (size_t)1));
    RG_ASSERT(copy != NULL);
    memcpy(copy, data, size);
    rg_sim_event_add(end->sim, (struct rg_sim_event){.at_ns = end->sim->now_ns + delay_ns,
                                                     .run = write_run,
                                                     .target = end,
                                                     .owned = copy,
                                                     .size = size});
}

static void script_finish(struct rg_sim_end *end, enum rg_sim_chunk_kind kind)
{
    RG_ASSERT(end->service != NULL);
    if (end->shut) {
        return;
    }
    end->shut = true;
    rg_sim_trace(end->sim, kind == RG_SIM_CHUNK_RESET ? "peer resets" : "peer closes", end->id, 0);
    rg_sim_pipe_append(end->other, kind, NULL, 0);
    end->end_told |= kind == RG_SIM_CHUNK_RESET;
    rg_sim_end_poke_at(end, end->sim->now_ns);
}

void rg_sim_close(struct rg_sim_end *end)
{
    script_finish(end, RG_SIM_CHUNK_FIN);
}

void rg_sim_reset(struct rg_sim_end *end)
{
    script_finish(end, RG_SIM_CHUNK_RESET);
}

void rg_sim_pause(struct rg_sim_end *end)
{
    RG_ASSERT(end->service != NULL);
    end->paused = true;
}

void rg_sim_resume(struct rg_sim_end *end)
{
    RG_ASSERT(end->service != NULL);
    end->paused = false;
    rg_sim_end_poke_at(end, end->sim->now_ns);
}
