/* The line while no connection can be had: see watch.h. */
#include "cli/watch.h"

#include "cli/progress.h"
#include "runtime/thread.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_INTERVAL_NS (500 * RG_NS_PER_MS)

struct watch {
    const struct rg_runtime *runtime;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ending;
    uint64_t failed_before; /* when there was a connection last */
};

static void look(struct watch *watch)
{
    struct rg_stats stats;
    if (rg_runtime_stats(watch->runtime, &stats) != 0) {
        return;
    }
    if (stats.connections > 0) {
        watch->failed_before = stats.connections_failed;
    }
    uint64_t failed = stats.connections_failed - watch->failed_before;
    progress_trouble_clear();
    if (failed > 0) {
        char text[128];
        snprintf(text, sizeof(text), "no connection yet, %" PRIu64 " tries failed", failed);
        progress_trouble(text);
    }
}

static void *watch_main(void *argument)
{
    struct watch *watch = argument;
    pthread_mutex_lock(&watch->lock);
    while (!watch->ending) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        uint64_t at_ns = (uint64_t)until.tv_nsec + LOOK_INTERVAL_NS;
        until.tv_sec += (time_t)(at_ns / RG_NS_PER_S);
        until.tv_nsec = (long)(at_ns % RG_NS_PER_S);
        pthread_cond_timedwait(&watch->end, &watch->lock, &until);
        if (!watch->ending) {
            look(watch);
        }
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

struct watch *watch_open(const struct rg_runtime *runtime)
{
    struct watch *watch = calloc(1, sizeof(*watch));
    if (watch == NULL) {
        return NULL;
    }
    watch->runtime = runtime;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->end, &attributes);
    pthread_condattr_destroy(&attributes);
    /* Signals are for the thread that waits for requests: they end its waiting. */
    if (rg_thread_start(&watch->thread, 0, watch_main, watch) < 0) {
        pthread_cond_destroy(&watch->end);
        pthread_mutex_destroy(&watch->lock);
        free(watch);
        return NULL;
    }
    return watch;
}

void watch_close(struct watch *watch)
{
    if (watch == NULL) {
        return;
    }
    pthread_mutex_lock(&watch->lock);
    watch->ending = true;
    pthread_cond_signal(&watch->end);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    progress_trouble_clear();
    pthread_cond_destroy(&watch->end);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}
