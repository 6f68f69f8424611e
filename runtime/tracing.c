/* Events of a trace: see tracing.h. */
#include "runtime/tracing.h"

#include "runtime/fork.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Events that a thread takes places for at once. */
#define GROUP 64
#define EVENTS_MAX (UINT32_C(1) << 24)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum tracing_state { OFF = 0, ON, ENDED };

/* Two lines of a cache, of which an event without a name takes one. */
static_assert(sizeof(struct rg_trace_event) == 128 && offsetof(struct rg_trace_event, name) <= 64,
              "an event is small");

_Atomic bool rg_tracing_on;
static struct {
    struct rg_fork_hook fork_hook; /* while ON */
    pthread_mutex_t lock;          /* of the next two */
    enum tracing_state state;
    uint32_t mapped; /* records */
    _Atomic uint32_t generation;
    struct rg_trace_event *_Atomic records; /* whose at_ns is written last; 0: not yet */
    _Atomic uint32_t max;
    _Atomic uint64_t taken; /* places; the last group may reach beyond max */
    _Atomic uint64_t dropped;
} tracing = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Of this thread: places that it has taken, in which trace. */
static _Thread_local struct {
    uint32_t generation;
    uint64_t next, end;
    struct rg_trace_event *latest; /* that may be changed; NULL: none */
} places;

static void state_enter(enum tracing_state state)
{
    RG_ASSERT(state != tracing.state && (state != ENDED || tracing.state == ON));
    tracing.state = state;
    atomic_store(&rg_tracing_on, state == ON);
}

/* Where the next event of this thread goes; NULL: there is no room. */
static struct rg_trace_event *record_take(void)
{
    uint32_t generation = atomic_load_explicit(&tracing.generation, memory_order_acquire);
    uint64_t max = atomic_load_explicit(&tracing.max, memory_order_acquire); /* before records */
    bool is_used_up = places.next == places.end || places.generation != generation;
    if (is_used_up && atomic_load_explicit(&tracing.taken, memory_order_relaxed) < max) {
        places.generation = generation;
        places.next = atomic_fetch_add_explicit(&tracing.taken, GROUP, memory_order_relaxed);
        places.end = places.next + GROUP;
        is_used_up = false;
    }
    if (is_used_up || places.next >= max) {
        atomic_fetch_add_explicit(&tracing.dropped, 1, memory_order_relaxed);
        return NULL;
    }
    return &atomic_load_explicit(&tracing.records, memory_order_relaxed)[places.next++];
}

struct rg_trace_event *rg_tracing_claim(void)
{
    return record_take();
}

void rg_tracing_publish(struct rg_trace_event *event, uint64_t at_ns, bool may_change)
{
    places.latest = may_change ? event : NULL;
    __atomic_store_n(&event->at_ns, at_ns, __ATOMIC_RELEASE);
}

struct rg_trace_event *rg_tracing_latest(uint64_t request, uint64_t at_ns)
{
    struct rg_trace_event *event = places.latest;
    bool is_there =
        event != NULL &&
        places.generation == atomic_load_explicit(&tracing.generation, memory_order_relaxed) &&
        event->request == request && event->at_ns == at_ns;
    return is_there ? event : NULL;
}

/* Somebody may be reading it, as the trace may just have ended. */
void rg_tracing_change(struct rg_trace_event *event, const char *what, uint64_t connection)
{
    __atomic_store_n(&event->what, what, __ATOMIC_RELAXED);
    __atomic_store_n(&event->connection, connection, __ATOMIC_RELAXED);
}

void rg_tracing_add(const struct rg_trace_event *event)
{
    struct rg_trace_event *record = record_take();
    if (record != NULL) {
        size_t begin = offsetof(struct rg_trace_event, took_ns);
        memcpy((char *)record + begin, (const char *)event + begin, sizeof(*event) - begin);
        rg_tracing_publish(record, event->at_ns, false);
    }
}

void rg_tracing_sleep(uint64_t began_ns, uint64_t ended_ns)
{
    const struct rg_trace_event event = {
        .at_ns = began_ns,
        .took_ns = ended_ns - began_ns,
        .what = "wait",
        .thread = (uint32_t)syscall(SYS_gettid),
    };
    rg_tracing_add(&event);
}

/* Gives back the pages: zeroed when they are used again. Async-signal-safe. */
static int pages_free(void)
{
    struct rg_trace_event *records = atomic_load(&tracing.records);
    size_t size = tracing.mapped * sizeof(*records);
    return size == 0 || madvise(records, size, MADV_DONTNEED) == 0 ? 0 : -errno;
}

/* Takes the pages, which to take costs several times more than to write the events in them. Where
 * the kernel cannot (before 5.14), those who write do. */
static void pages_take(uint32_t events_max)
{
    struct rg_trace_event *records = atomic_load(&tracing.records);
    (void)madvise(records, events_max * sizeof(*records), MADV_POPULATE_WRITE);
}

/* In a child, which has none of the threads that write events: the trace is its parent's. */
static void forked(struct rg_fork_hook *hook)
{
    (void)hook;
    tracing.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (tracing.state == ON) {
        (void)pages_free();
        state_enter(ENDED);
        state_enter(OFF);
    }
}

/* Zeroed memory for so many records: what there is, or new. */
static int memory_prepare(uint32_t events_max)
{
    size_t size = events_max * sizeof(struct rg_trace_event);
    int rc = pages_free();
    if (rc < 0) {
        return rc;
    }
    if (events_max <= tracing.mapped) {
        pages_take(events_max);
        return 0;
    }
    void *records = mmap(NULL, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (records == MAP_FAILED) {
        return -ENOMEM;
    }
    atomic_store(&tracing.records, records);
    tracing.mapped = events_max;
    pages_take(events_max);
    return 0;
}

int rg_tracing_begin(uint32_t events_max)
{
    pthread_mutex_lock(&tracing.lock);
    bool is_on = tracing.state == ON;
    events_max = RG_MIN(RG_MAX(events_max, (uint32_t)GROUP), EVENTS_MAX);
    int rc = is_on ? -EBUSY : memory_prepare(events_max);
    if (rc == 0) {
        tracing.fork_hook.child = forked;
        rc = rg_fork_hook_add(&tracing.fork_hook);
    }
    if (rc == 0) {
        atomic_store(&tracing.max, events_max);
        atomic_store(&tracing.taken, 0);
        atomic_store(&tracing.dropped, 0);
        atomic_fetch_add_explicit(&tracing.generation, 1, memory_order_release);
        state_enter(ON);
    }
    pthread_mutex_unlock(&tracing.lock);
    return rc;
}

int rg_tracing_end(uint32_t *out_count, uint64_t *out_dropped)
{
    pthread_mutex_lock(&tracing.lock);
    bool is_on = tracing.state == ON;
    if (is_on) {
        rg_fork_hook_remove(&tracing.fork_hook);
        state_enter(ENDED);
        uint64_t taken = atomic_load(&tracing.taken);
        *out_count = (uint32_t)RG_MIN(taken, (uint64_t)atomic_load(&tracing.max));
        *out_dropped = atomic_load(&tracing.dropped);
    }
    pthread_mutex_unlock(&tracing.lock);
    return is_on ? 0 : -EINVAL;
}

/* A thread that is late may be changing it. */
static bool record_get(const struct rg_trace_event *record, struct rg_trace_event *out_event)
{
    uint64_t at_ns = __atomic_load_n(&record->at_ns, __ATOMIC_ACQUIRE);
    if (at_ns == 0) {
        return false;
    }
    *out_event = (struct rg_trace_event){
        .at_ns = at_ns,
        .took_ns = record->took_ns,
        .request = record->request,
        .connection = __atomic_load_n(&record->connection, __ATOMIC_RELAXED),
        .operation = record->operation,
        .what = __atomic_load_n(&record->what, __ATOMIC_RELAXED),
        .thread = record->thread,
        .attempts = record->attempts,
    };
    memcpy(out_event->name, record->name, sizeof(record->name));
    return true;
}

bool rg_tracing_get(uint32_t number, struct rg_trace_event *out_event)
{
    pthread_mutex_lock(&tracing.lock);
    bool is_there = tracing.state == ENDED && number < atomic_load(&tracing.max);
    if (is_there) {
        is_there = record_get(&atomic_load(&tracing.records)[number], out_event);
    }
    pthread_mutex_unlock(&tracing.lock);
    return is_there;
}

void rg_tracing_free(void)
{
    pthread_mutex_lock(&tracing.lock);
    if (tracing.state == ENDED) {
        (void)pages_free();
        state_enter(OFF);
    }
    pthread_mutex_unlock(&tracing.lock);
}
