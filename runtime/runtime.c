/* A runtime: the event loops, where they are put, and which backend drives them. The life of one:
 * options and environment -> topology and backend chosen -> loops created, then started -> closed
 * in the opposite order. */
#include "runtime/runtime.h"

#include "runtime/census.h"
#include "runtime/errors.h"
#include "runtime/log.h"

#include <ringest/gcs.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void rg_runtime_options_init_sized(struct rg_runtime_options *options, size_t struct_size)
{
    RG_ASSERT(struct_size >= sizeof(size_t));
    memset(options, 0, struct_size);
    options->struct_size = struct_size;
}

/* The caller's options in a struct of our size: what it does not know keeps its default. */
static int options_read(struct rg_runtime_options *own, const struct rg_runtime_options *given)
{
    rg_runtime_options_init(own);
    if (given == NULL) {
        return 0;
    }
    if (given->struct_size < sizeof(size_t)) {
        return -EINVAL;
    }
    size_t size = RG_MIN(given->struct_size, sizeof(*own));
    memcpy(own, given, size);
    own->struct_size = sizeof(*own);
    bool valid = own->backend >= RG_BACKEND_AUTO && own->backend <= RG_BACKEND_EPOLL &&
                 own->numa_policy >= RG_NUMA_AUTO && own->numa_policy <= RG_NUMA_NONE &&
                 own->log_level >= RG_LOG_DEFAULT && own->log_level <= RG_LOG_OFF &&
                 own->threads <= RG_THREADS_MAX && own->local_world_size <= RG_LOCAL_RANKS_MAX &&
                 own->local_rank < RG_MAX(own->local_world_size, 1) &&
                 own->worker < RG_MAX(own->workers, 1);
    return valid ? 0 : -EINVAL;
}

/* What the caller left open is taken from the environment. */
static int environment_read(struct rg_runtime_options *options, struct rg_local_rank *out_rank)
{
    char error[256];
    int rc = rg_options_from_environment(options, NULL, error, sizeof(error));
    if (rc < 0) {
        rg_log(RG_LOG_ERROR, "%s", error);
    }
    if (rc == 0 && options->local_world_size == 0) {
        rc = rg_local_rank_find(out_rank);
    } else {
        *out_rank = (struct rg_local_rank){.rank = options->local_rank,
                                           .size = RG_MAX(options->local_world_size, 1),
                                           .variable = "",
                                           .is_given = true};
    }
    out_rank->worker = options->worker;
    out_rank->workers = options->workers;
    return rc;
}

static int backend_choose(struct rg_runtime *runtime, enum rg_backend wanted)
{
    runtime->backend_reason = "";
    runtime->backend = &rg_epoll_backend;
    if (wanted == RG_BACKEND_EPOLL) {
        runtime->backend_reason = "epoll was asked for";
        return 0;
    }
    int rc = rg_uring_probe(&runtime->backend_reason);
    if (rc == 0) {
        runtime->backend = &rg_uring_backend;
        return 0;
    }
    if (wanted == RG_BACKEND_URING) {
        rg_log(RG_LOG_WARN, "%s", runtime->backend_reason);
        return rg_errors_ring_unavailable(-rc) ? -EPERM : rc;
    }
    rg_log(RG_LOG_WARN, "using epoll: %s", runtime->backend_reason);
    return 0;
}

static uint64_t memory_default(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_size = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page_size <= 0) {
        return RG_MEMORY_DEFAULT;
    }
    uint64_t quarter = (uint64_t)pages * (uint64_t)page_size / 4;
    return RG_MIN(RG_MEMORY_DEFAULT, quarter);
}

static uint64_t memory_of(const struct rg_runtime_options *options)
{
    return options->memory_max != 0 ? options->memory_max : memory_default();
}

static int loops_create(struct rg_runtime *runtime, const struct rg_runtime_options *options)
{
    uint64_t memory = memory_of(options);
    struct rg_placement placements[RG_THREADS_MAX];
    int count = rg_topology_plan(runtime->topology, options->numa_policy, options->threads,
                                 placements, RG_THREADS_MAX);
    if (count < 0) {
        return count;
    }
    RG_ASSERT(count > 0);
    rg_near_sort(placements, (uint32_t)count);
    int near_rc = rg_near_create(&runtime->near, runtime->topology, placements, (uint32_t)count);
    if (near_rc < 0) {
        return near_rc;
    }
    runtime->loops = calloc((size_t)count, sizeof(*runtime->loops));
    if (runtime->loops == NULL) {
        return -ENOMEM;
    }
    for (int i = 0; i < count; i++) {
        struct rg_loop_options loop_options = {
            .index = (uint32_t)i,
            .backend = runtime->backend,
            .topology = runtime->topology,
            .placement = placements[i],
            .memory_max = RG_MAX(memory / (uint64_t)count, (uint64_t)RG_LOOP_MEMORY_MIN),
            .cuda = runtime->cuda,
            .pinned_max = options->pinned_max / (uint64_t)count,
        };
        int rc = rg_loop_create(&runtime->loops[i], &loop_options);
        if (rc < 0) {
            return rc;
        }
        rg_census_enter(runtime->loops[i]);
        runtime->loop_count++;
        runtime->memory_max += loop_options.memory_max;
    }
    return 0;
}

static void loops_destroy(struct rg_runtime *runtime)
{
    for (uint32_t i = 0; i < runtime->loop_count; i++) {
        rg_loop_stop(runtime->loops[i]);
    }
    for (uint32_t i = 0; i < runtime->loop_count; i++) {
        rg_census_leave(runtime->loops[i]);
        rg_loop_destroy(runtime->loops[i]);
    }
    free(runtime->near);
    free(runtime->loops);
    runtime->near = NULL;
    runtime->loops = NULL;
    runtime->loop_count = 0;
    runtime->memory_max = 0;
}

static int loops_start(struct rg_runtime *runtime, const struct rg_runtime_options *options)
{
    int rc = loops_create(runtime, options);
    for (uint32_t i = 0; rc == 0 && i < runtime->loop_count; i++) {
        rc = rg_loop_start(runtime->loops[i]);
    }
    return rc;
}

/* One ring could be made when it was tried, and another cannot: there may be no memory for so many,
 * or it has been forbidden since. */
static int loops_start_again(struct rg_runtime *runtime, const struct rg_runtime_options *options,
                             int error)
{
    loops_destroy(runtime);
    runtime->backend = &rg_epoll_backend;
    runtime->backend_reason = rg_errors_ring_setup_text(-error);
    rg_log(RG_LOG_WARN, "using epoll: %s", runtime->backend_reason);
    return loops_start(runtime, options);
}

/* Without CUDA, bodies are in memory that is not pinned: copies to a device take longer. */
static void cuda_open(struct rg_runtime *runtime, const struct rg_runtime_options *options,
                      uint32_t local_rank)
{
    uint64_t pinned_max = RG_MIN(options->pinned_max, memory_of(options));
    char error[256];
    if (pinned_max < RG_PINNED_MIN) {
        return;
    }
    if (rg_cuda_open(&runtime->cuda, local_rank, error, sizeof(error)) < 0) {
        rg_log(RG_LOG_WARN, "no memory is pinned: %s", error);
        snprintf(runtime->pinned_told, sizeof(runtime->pinned_told), "none: %s", error);
        return;
    }
    snprintf(runtime->pinned_told, sizeof(runtime->pinned_told),
             "up to %" PRIu64 " bytes, by CUDA device %d", pinned_max,
             rg_cuda_device(runtime->cuda));
    rg_log(RG_LOG_INFO, "pinned memory: %s", runtime->pinned_told);
}

/* The plan, a line each. */
static void runtime_tell(const struct rg_runtime *runtime)
{
    char text[2048], *rest = text;
    rg_log(RG_LOG_INFO, "ringest %s: %u event loops by %s%s%s", rg_version(), runtime->loop_count,
           runtime->backend == &rg_uring_backend ? "io_uring" : "epoll",
           *runtime->backend_reason != '\0' ? ": " : "", runtime->backend_reason);
    if (!rg_log_enabled(RG_LOG_DEBUG) || rg_runtime_describe(runtime, text, sizeof(text)) < 0) {
        return;
    }
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        const char *what = strsep(&line, "\t");
        rg_log(RG_LOG_DEBUG, "%s: %s", what, line != NULL ? line : "");
    }
}

int rg_runtime_open(struct rg_runtime **out_runtime, const struct rg_runtime_options *options)
{
    struct rg_runtime_options own;
    int rc = options_read(&own, options);
    if (rc < 0) {
        return rc;
    }
    struct rg_local_rank rank;
    rc = rg_log_configure(own.log_level);
    if (rc == 0) {
        rc = environment_read(&own, &rank);
    }
    if (rc < 0) {
        return rc;
    }
    struct rg_runtime *runtime = calloc(1, sizeof(*runtime));
    if (runtime == NULL) {
        return -ENOMEM;
    }
    runtime->fork_generation = rg_fork_generation();
    runtime->workers = RG_MAX(own.workers, 1);
    rc = runtime->fork_generation != 0 ? 0 : -ENOMEM;
    if (rc == 0) {
        rc = rg_topology_open(&runtime->topology, &rank, NULL);
    }
    if (rc == 0) {
        rc = backend_choose(runtime, own.backend);
    }
    if (rc == 0) {
        cuda_open(runtime, &own, rank.rank);
        rc = loops_start(runtime, &own);
        bool may_be_the_ring = rc < 0 && rc != -EAGAIN && runtime->backend == &rg_uring_backend;
        if (may_be_the_ring && own.backend == RG_BACKEND_AUTO) {
            rc = loops_start_again(runtime, &own, rc);
        }
    }
    if (rc < 0) {
        rg_runtime_close(runtime);
        return rc;
    }
    runtime_tell(runtime);
    *out_runtime = runtime;
    return 0;
}

void rg_runtime_close(struct rg_runtime *runtime)
{
    if (runtime == NULL || rg_runtime_check(runtime) < 0) {
        /* In a child the loops' threads and rings are not there; their memory is given up. */
        return;
    }
    loops_destroy(runtime);
    rg_cuda_close(runtime->cuda);
    rg_topology_close(runtime->topology);
    free(runtime);
}

int rg_runtime_check(const struct rg_runtime *runtime)
{
    return runtime->fork_generation == rg_fork_generation() ? 0 : -EOWNERDEAD;
}

enum rg_backend rg_runtime_backend(const struct rg_runtime *runtime, const char **out_reason)
{
    const char *reason = runtime->backend_reason;
    bool uring = runtime->backend == &rg_uring_backend;
    for (uint32_t i = 0; i < runtime->loop_count; i++) {
        const char *failed = atomic_load(&runtime->loops[i]->fallback_reason);
        if (failed != NULL) {
            reason = failed;
            uring = false;
        }
    }
    if (out_reason != NULL) {
        *out_reason = reason;
    }
    return uring ? RG_BACKEND_URING : RG_BACKEND_EPOLL;
}

uint32_t rg_runtime_threads(const struct rg_runtime *runtime)
{
    return runtime->loop_count;
}

int rg_runtime_describe(const struct rg_runtime *runtime, char *out, size_t out_size)
{
    struct rg_placement placements[RG_THREADS_MAX];
    if (rg_runtime_check(runtime) < 0) {
        return -EOWNERDEAD;
    }
    for (uint32_t i = 0; i < runtime->loop_count; i++) {
        placements[i] = runtime->loops[i]->placement;
    }
    size_t used =
        rg_topology_describe(runtime->topology, placements, runtime->loop_count, out, out_size);
    if (*runtime->pinned_told != '\0') {
        size_t kept = RG_MIN(used, out_size);
        used += (size_t)snprintf(out != NULL ? out + kept : NULL, out_size - kept,
                                 "pinned memory\t%s\n", runtime->pinned_told);
    }
    return (int)used;
}

struct fault_in {
    struct rg_loop *loop;
    uint64_t size;
};

static void loop_fault_in(void *context)
{
    struct fault_in *share = context;
    rg_slab_fault_in(share->loop->slabs, share->size);
}

int rg_runtime_fault_in(struct rg_runtime *runtime, uint64_t size)
{
    int rc = rg_runtime_check(runtime);
    if (rc < 0) {
        return rc;
    }
    uint64_t each = size / runtime->loop_count + (size % runtime->loop_count != 0);
    for (uint32_t i = 0; i < runtime->loop_count; i++) {
        struct fault_in share = {.loop = runtime->loops[i], .size = each};
        rg_loop_call(runtime->loops[i], loop_fault_in, &share);
    }
    return 0;
}

static void stats_fill(struct rg_stats *stats, const struct rg_metrics *metrics)
{
    stats->requests = rg_metric_load(&metrics->attempts);
    stats->retries = rg_metrics_retries(metrics);
    stats->recv_bytes = rg_metric_load(&metrics->recv_bytes);
    stats->sent_bytes = rg_metric_load(&metrics->sent_bytes);
    stats->connections_opened = rg_metric_load(&metrics->connections_opened);
    stats->connections = rg_metric_load(&metrics->connections);
    stats->leased_bytes = rg_metric_load(&metrics->leased_bytes);
    stats->memory_max = rg_metric_load(&metrics->memory_max);
    stats->starved_loops = rg_metric_load(&metrics->starved_loops);
    stats->connections_failed = rg_metric_load(&metrics->connections_failed);
    stats->tls_resumed = rg_metric_load(&metrics->tls_resumed);
    stats->timeouts = rg_metric_load(&metrics->timeouts);
    stats->lease_waits = rg_metric_load(&metrics->lease_waits);
    stats->wakeups = rg_metric_load(&metrics->wakeups);
    stats->hedges = rg_metric_load(&metrics->hedges);
    stats->hedge_wins = rg_metric_load(&metrics->hedge_wins);
    stats->in_flight = rg_metric_load(&metrics->in_flight);
    stats->limited = rg_metric_load(&metrics->limited);
    stats->backoffs = rg_metric_load(&metrics->backoffs);
    stats->concurrency_limit = rg_metric_load(&metrics->concurrency_limit);
    stats->cache_hits = rg_metric_load(&metrics->cache_hits);
    stats->cache_hit_bytes = rg_metric_load(&metrics->cache_hit_bytes);
    stats->cache_misses = rg_metric_load(&metrics->cache_misses);
    stats->cache_bad = rg_metric_load(&metrics->cache_bad);
    stats->cache_writes = rg_metric_load(&metrics->cache_writes);
    stats->cache_drops = rg_metric_load(&metrics->cache_drops);
    stats->cache_memory_hits = rg_metric_load(&metrics->cache_memory_hits);
    stats->window_room = rg_metric_load(&metrics->window_room);
    stats->window_out = rg_metric_load(&metrics->window_out);
    stats->window_filled = rg_metric_load(&metrics->window_filled);
    const struct rg_histogram *phases = metrics->phases;
    rg_histogram_summarize(&phases[RG_PHASE_QUEUE], &stats->queue);
    rg_histogram_summarize(&phases[RG_PHASE_DNS], &stats->dns);
    rg_histogram_summarize(&phases[RG_PHASE_CONNECT], &stats->connect);
    rg_histogram_summarize(&phases[RG_PHASE_TLS], &stats->tls);
    rg_histogram_summarize(&phases[RG_PHASE_FIRST_BYTE], &stats->first_byte);
    rg_histogram_summarize(&phases[RG_PHASE_BODY], &stats->body);
    struct rg_histogram total = {0};
    rg_metrics_total(metrics, &total);
    rg_histogram_summarize(&total, &stats->total);
}

static uint32_t starved_loops(const struct rg_runtime *runtime)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < runtime->loop_count; i++) {
        count += rg_slab_arena_is_starved(runtime->loops[i]->slabs);
    }
    return count;
}

bool rg_runtime_is_starved(const struct rg_runtime *runtime)
{
    return starved_loops(runtime) > 0;
}

void rg_runtime_waited(struct rg_runtime *runtime, uint64_t ns)
{
    if (runtime->loop_count > 0) {
        rg_histogram_record_shared(&runtime->loops[0]->metrics.phases[RG_PHASE_CONSUMER_WAIT], ns);
    }
}

void rg_checkpoint_took(struct rg_runtime *runtime, enum rg_checkpoint_part part, uint64_t ns)
{
    if (rg_runtime_check(runtime) == 0 && (unsigned)part < RG_CHECKPOINT_COUNT) {
        atomic_fetch_add_explicit(&runtime->loops[0]->metrics.checkpoints[part], ns,
                                  memory_order_relaxed);
    }
}

static void gauge_move(_Atomic uint64_t *gauge, uint32_t from, uint32_t to)
{
    if (from != to) {
        atomic_fetch_add_explicit(gauge, (uint64_t)to - from, memory_order_relaxed);
    }
}

void rg_runtime_window(struct rg_runtime *runtime, struct rg_window_fill *told,
                       const struct rg_window_fill *now)
{
    struct rg_metrics *metrics = &runtime->loops[0]->metrics;
    gauge_move(&metrics->window_room, told->room, now->room);
    gauge_move(&metrics->window_out, told->out, now->out);
    gauge_move(&metrics->window_filled, told->filled, now->filled);
    *told = *now;
}

void rg_runtime_stages(const struct rg_runtime *runtime, uint64_t out_ns[static RG_STAGE_COUNT])
{
    for (unsigned stage = 0; stage < RG_STAGE_COUNT; stage++) {
        out_ns[stage] = 0;
    }
    for (uint32_t i = 0; i < runtime->loop_count; i++) {
        for (unsigned stage = 0; stage < RG_STAGE_COUNT; stage++) {
            out_ns[stage] += rg_metric_load(&runtime->loops[i]->metrics.stages[stage]);
        }
    }
}

void rg_runtime_wake(const struct rg_runtime *runtime)
{
    for (uint32_t i = 0; i < runtime->loop_count; i++) {
        rg_loop_wake(runtime->loops[i]);
    }
}

struct rg_metrics *rg_runtime_metrics(const struct rg_runtime *runtime)
{
    struct rg_metrics *merged = calloc(1, sizeof(*merged));
    for (uint32_t i = 0; merged != NULL && runtime != NULL && i < runtime->loop_count; i++) {
        rg_census_add_loop(runtime->loops[i], merged);
    }
    if (merged != NULL && runtime == NULL) {
        rg_census_add_all(merged);
    }
    return merged;
}

int rg_runtime_stats_sized(const struct rg_runtime *runtime, struct rg_stats *out_stats,
                           size_t struct_size)
{
    int rc = runtime != NULL ? rg_runtime_check(runtime) : 0;
    if (rc < 0) {
        return rc;
    }
    struct rg_stats stats = {0};
    struct rg_metrics *merged = rg_runtime_metrics(runtime);
    if (merged == NULL) {
        return -ENOMEM;
    }
    stats_fill(&stats, merged);
    free(merged);
    memset(out_stats, 0, struct_size);
    memcpy(out_stats, &stats, RG_MIN(struct_size, sizeof(stats)));
    return 0;
}
