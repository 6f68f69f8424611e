/* The steps of a loop over a reader: see steps.h. */
#include "dataset/steps.h"

#include "gcs/request/client_loop.h"
#include "runtime/census.h"
#include "runtime/fork.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The only place that changes the state. */
static void steps_become(struct rg_steps *steps, enum rg_steps_state state)
{
    RG_ASSERT(state == RG_STEPS_INSIDE ? steps->state != RG_STEPS_INSIDE
                                       : steps->state == RG_STEPS_INSIDE);
    steps->state = state;
}

static uint64_t cpu_used_ns(const struct rg_runtime *runtime)
{
    uint64_t used_ns = 0;
    for (uint32_t i = 0; i < runtime->loop_count; i++) {
        used_ns += rg_census_loop_cpu(runtime->loops[i]);
    }
    return used_ns;
}

int rg_steps_name(struct rg_steps *steps, const struct rg_client *client,
                  const struct rg_steps_name *name)
{
    RG_ASSERT(steps->told == NULL);
    struct rg_told *told = calloc(1, sizeof(*told));
    steps->folder = client->share_folder != NULL ? strdup(client->share_folder) : NULL;
    if (told == NULL || (steps->folder == NULL && client->share_folder != NULL)) {
        free(told);
        return -ENOMEM;
    }
    steps->told = told;
    steps->generation = rg_fork_generation();
    steps->runtime = client->runtime;
    steps->cpu_began_ns = cpu_used_ns(steps->runtime);
    told->began_ns = told->told_ns = rg_now_ns();
    told->loops = steps->runtime->loop_count;
    told->pid = (uint32_t)getpid();
    told->rank = name->rank;
    told->world_size = name->world_size;
    told->worker = name->worker;
    told->worker_count = name->worker_count;
    snprintf(told->command, sizeof(told->command), "%s", program_invocation_short_name);
    snprintf(told->dataset, sizeof(told->dataset), "%s", name->dataset);
    snprintf(told->source, sizeof(told->source), "%s", name->source);
    snprintf(told->ahead, sizeof(told->ahead), "%s", name->ahead);
    return 0;
}

static bool tells(const struct rg_steps *steps)
{
    return steps->told != NULL && steps->generation == rg_fork_generation();
}

static void cpu_note(struct rg_steps *steps, const struct rg_reader *reader)
{
    uint64_t used_ns = tells(steps) && reader != NULL ? cpu_used_ns(steps->runtime) : 0;
    if (used_ns >= steps->cpu_began_ns && used_ns > 0) {
        steps->told->cpu_ns = used_ns - steps->cpu_began_ns;
        steps->told->cpu_at_ns = rg_now_ns();
    }
}

/* The group is complete: the next step begins another one. */
static void tell(struct rg_steps *steps, const struct rg_reader *reader, enum rg_told_state state,
                 uint64_t now_ns)
{
    struct rg_told *told = steps->told;
    told->told_ns = now_ns;
    told->state = state;
    cpu_note(steps, reader);
    if (steps->folder != NULL) {
        rg_told_write(&steps->place, steps->folder, told);
    }
}

static bool is_due(const struct rg_steps *steps, uint64_t now_ns)
{
    return now_ns - steps->told->told_ns >= RG_TOLD_INTERVAL_NS;
}

/* The step that has been entered, as far as it has come. */
static struct rg_told_step step_now(const struct rg_steps *steps, const struct rg_reader *reader,
                                    uint64_t now_ns)
{
    struct rg_told_step step = {
        .ended_ns = now_ns,
        .away_ns = steps->left_ns != 0 ? steps->entered_ns - steps->left_ns : 0,
        .inside_ns = now_ns - steps->entered_ns,
    };
    if (reader != NULL) {
        rg_reader_waited(reader, step.slept_ns, RG_STAGE_COUNT);
        for (unsigned i = 0; i < RG_STAGE_COUNT; i++) {
            step.slept_ns[i] -= steps->slept_ns[i];
        }
    }
    return step;
}

static void tell_waiting(struct rg_steps *steps, const struct rg_reader *reader)
{
    uint64_t now_ns = rg_now_ns();
    if (tells(steps) && is_due(steps, now_ns)) {
        steps->told->open = step_now(steps, reader, now_ns);
        tell(steps, reader, RG_TOLD_INSIDE, now_ns);
    }
}

void rg_steps_enter(struct rg_steps *steps, struct rg_reader *reader)
{
    if (steps->state == RG_STEPS_AWAY) {
        steps->entered_ns = rg_now_ns();
    } else if (reader != NULL) {
        rg_reader_sleep(reader, false);
    }
    steps_become(steps, RG_STEPS_INSIDE);
}

void rg_steps_sleep(struct rg_steps *steps, struct rg_reader *reader)
{
    tell_waiting(steps, reader);
    if (reader != NULL) {
        rg_reader_sleep(reader, true);
    }
    steps_become(steps, RG_STEPS_ASLEEP);
}

void rg_steps_wait(struct rg_steps *steps, const struct rg_reader *reader)
{
    if (steps->state == RG_STEPS_INSIDE) {
        tell_waiting(steps, reader);
    }
}

/* To the group that is not complete, or to another one. */
static void group_add(struct rg_told *told, const struct rg_told_step *step)
{
    struct rg_told_step *group = &told->ring[(told->groups + RG_TOLD_GROUPS - 1) % RG_TOLD_GROUPS];
    if (told->groups == 0 || group->ended_ns <= told->told_ns) {
        group = &told->ring[told->groups++ % RG_TOLD_GROUPS];
        *group = (struct rg_told_step){0};
    }
    rg_told_add(group, step);
}

static void step_add(struct rg_steps *steps, const struct rg_reader *reader, uint64_t now_ns)
{
    struct rg_told_step step = step_now(steps, reader, now_ns);
    step.count = 1;
    steps->ring[steps->count++ % RG_STEPS_MAX] = step;
    for (unsigned i = 0; i < RG_STAGE_COUNT; i++) {
        steps->slept_ns[i] += step.slept_ns[i];
    }
    if (steps->told != NULL) {
        group_add(steps->told, &step);
    }
}

void rg_steps_leave(struct rg_steps *steps, const struct rg_reader *reader, bool has_value)
{
    uint64_t now_ns = rg_now_ns();
    if (steps->ring == NULL && has_value) {
        steps->ring = calloc(RG_STEPS_MAX, sizeof(*steps->ring));
    }
    if (has_value && steps->ring != NULL) {
        step_add(steps, reader, now_ns);
    }
    steps->left_ns = now_ns;
    steps_become(steps, RG_STEPS_AWAY);
    if (!tells(steps)) {
        return;
    }
    bool has_waited = steps->told->open.ended_ns != 0, is_last = steps->place.is_open && !has_value;
    if (has_waited || is_last || is_due(steps, now_ns)) {
        steps->told->open = (struct rg_told_step){0};
        tell(steps, reader, has_value ? RG_TOLD_AWAY : RG_TOLD_OVER, now_ns);
    }
}

void rg_steps_close(struct rg_steps *steps, const struct rg_reader *reader)
{
    if (steps->state != RG_STEPS_INSIDE && tells(steps) && steps->place.is_open) {
        steps->told->open = (struct rg_told_step){0};
        tell(steps, reader, RG_TOLD_OVER, rg_now_ns());
    }
}

void rg_steps_fini(struct rg_steps *steps)
{
    rg_told_close(&steps->place);
    free(steps->ring);
    free(steps->told);
    free(steps->folder);
    *steps = (struct rg_steps){0};
}

struct rg_told_step rg_steps_sum(const struct rg_steps *steps, uint64_t max,
                                 struct rg_told_step *out_open)
{
    *out_open = (struct rg_told_step){0};
    if (!tells(steps)) {
        return *out_open;
    }
    *out_open = steps->told->open;
    struct rg_told_step sum = *out_open;
    uint64_t kept = RG_MIN(steps->count, (uint64_t)RG_STEPS_MAX);
    uint64_t count = RG_MIN(max, kept);
    for (uint64_t i = steps->count - count; i < steps->count; i++) {
        rg_told_add(&sum, &steps->ring[i % RG_STEPS_MAX]);
    }
    return sum;
}

double rg_steps_busy(struct rg_steps *steps, const struct rg_reader *reader)
{
    cpu_note(steps, reader);
    return steps->told != NULL ? rg_told_busy(steps->told) : 0;
}
