/* The loops of this process: see census.h.
 *
 * Between rg_fork_hold and rg_fork_release no child can see the list half done, and one thread is
 * there at a time. */
#include "runtime/census.h"

#include "runtime/fork.h"

#include <string.h>
#include <time.h>

static struct {
    uint32_t fork_generation; /* whose the rest is; 0: nobody's */
    struct rg_list loops;
    struct rg_metrics ended; /* of loops that have left */
} census;

/* No other thread is in until census_end. In a child the parent's loops are forgotten. */
static void census_begin(void)
{
    uint32_t generation = rg_fork_generation();
    rg_fork_hold();
    if (census.fork_generation != generation) {
        census.fork_generation = generation;
        rg_list_init(&census.loops);
        memset(&census.ended, 0, sizeof(census.ended));
    }
}

static void census_end(void)
{
    rg_fork_release();
}

void rg_census_enter(struct rg_loop *loop)
{
    census_begin();
    rg_list_push_back(&census.loops, &loop->of_process);
    census_end();
}

/* What there is no more with the loop. */
static void forget_what_is_now(struct rg_metrics *ended)
{
    rg_metric_store(&ended->in_flight, 0);
    rg_metric_store(&ended->concurrency_limit, 0);
    rg_metric_store(&ended->connections_closed, rg_metric_load(&ended->connections_opened));
}

void rg_census_leave(struct rg_loop *loop)
{
    census_begin();
    if (loop->of_process.next != NULL) {
        rg_list_remove(&loop->of_process);
        loop->of_process = (struct rg_list){0};
        rg_metrics_merge(&census.ended, &loop->metrics);
        forget_what_is_now(&census.ended);
    }
    census_end();
}

/* 0: the thread does not run. */
uint64_t rg_census_loop_cpu(const struct rg_loop *loop)
{
    struct timespec used;
    clockid_t clock = atomic_load(&loop->cpu_clock);
    bool is_there = clock != RG_LOOP_NO_CLOCK && clock_gettime(clock, &used) == 0;
    return is_there ? (uint64_t)used.tv_sec * RG_NS_PER_S + (uint64_t)used.tv_nsec : 0;
}

/* When its thread ends, a loop counts what that has used. So the clock is read first, and what it
 * said is added only if the loop had not counted when it was merged: never both, never neither. */
static void merge_with_cpu(struct rg_metrics *metrics, const struct rg_loop *loop)
{
    uint64_t before_ns = rg_metric_load(&metrics->loop_cpu), cpu_ns = rg_census_loop_cpu(loop);
    rg_metrics_merge(metrics, &loop->metrics);
    if (rg_metric_load(&metrics->loop_cpu) == before_ns) {
        rg_metric_add(&metrics->loop_cpu, cpu_ns);
    }
}

void rg_census_add_loop(const struct rg_loop *loop, struct rg_metrics *metrics)
{
    struct rg_slab_stats slabs;
    rg_slab_arena_stats(loop->slabs, &slabs);
    /* Closed is read first: the two are not of one instant. */
    uint64_t closed = rg_metric_load(&loop->metrics.connections_closed);
    uint64_t opened = rg_metric_load(&loop->metrics.connections_opened);
    merge_with_cpu(metrics, loop);
    rg_metric_add(&metrics->connections, opened - RG_MIN(closed, opened));
    rg_metric_add(&metrics->leased_bytes, slabs.leased_bytes);
    rg_metric_add(&metrics->memory_max, loop->memory_max);
    rg_metric_add(&metrics->starved_loops, rg_slab_arena_is_starved(loop->slabs));
    rg_metric_add(&metrics->loops, 1);
}

void rg_census_add_all(struct rg_metrics *metrics)
{
    census_begin();
    rg_metrics_merge(metrics, &census.ended);
    for (struct rg_list *node = census.loops.next; node != &census.loops; node = node->next) {
        rg_census_add_loop(RG_CONTAINER_OF(node, struct rg_loop, of_process), metrics);
    }
    census_end();
}
