/* An event loop: one thread that owns one ring (or epoll instance), its timers, its memory for
 * bodies, and every connection that was opened on it.
 *
 * One pass: wait for the kernel -> drain (ops become ready) -> run owners of ready ops -> timers ->
 * mail from other threads -> tasks that owners deferred -> publish completions. Owners never call
 * each other from a completion; they defer a task, so the stack does not grow with the traffic.
 *
 * Everything but rg_loop_post and rg_loop_call runs on the loop's thread. */
#ifndef RG_RUNTIME_LOOP_H
#define RG_RUNTIME_LOOP_H

#include "runtime/cq.h"
#include "runtime/linger.h"
#include "runtime/mailbox.h"
#include "runtime/metrics.h"
#include "runtime/op.h"
#include "runtime/slab.h"
#include "runtime/stages.h"
#include "runtime/timer.h"
#include "runtime/topology.h"

#include <pthread.h>

/* A timer that calls back. `fire` is called once, on the loop, and may set the alarm again. */
struct rg_alarm {
    struct rg_timer timer;
    void (*fire)(struct rg_alarm *alarm);
};

/* Something to do at the end of the pass. Deferring one that is deferred already does nothing. */
struct rg_task {
    struct rg_list node;
    void (*run)(struct rg_task *task);
};

/* How often a loop looks at most for how long it waited for a CPU. */
#define RG_LOOP_CROWD_NS (4 * RG_NS_PER_MS)

/* Completions held back until the end of a pass, so that a consumer is woken once for many; but no
 * more bytes than the second-level cache has room for while others are received, so that the
 * consumer finds them there and gives memory back that still is. */
#define RG_LOOP_COMPLETIONS_MAX 128
#define RG_LOOP_COMPLETION_BYTES_MAX RG_KIB(512)

/* How often in one pass an owner may start what is ready at once. */
#define RG_LOOP_TURNS_MAX 4

#define RG_LOOP_NO_CLOCK 0 /* CLOCK_REALTIME, which is no thread's */

struct rg_cuda;

struct rg_loop_options {
    uint32_t index;
    const struct rg_backend_ops *backend;
    void *backend_context;              /* for the simulation */
    const struct rg_topology *topology; /* borrowed; NULL: not pinned, not bound */
    struct rg_placement placement;
    uint64_t memory_max;  /* of the loop's slab arena; 0: no arena */
    struct rg_cuda *cuda; /* borrowed, where memory is registered; NULL: nowhere */
    uint64_t pinned_max;  /* bytes of the arena that are registered with it */
};

struct rg_loop {
    uint32_t index;
    const struct rg_backend_ops *backend;
    void *backend_self, *backend_context;
    uint64_t now_ns; /* read once per pass */
    struct rg_op *ready_head, **ready_tail;
    struct rg_timer_wheel timers;
    struct rg_list tasks;
    struct rg_slab_arena *slabs;
    uint64_t memory_max;         /* of the slabs */
    struct rg_list slab_waiters; /* tasks of owners that wait for a slab */
    struct rg_task slab_task;
    struct rg_metrics metrics;
    struct rg_stages stages;
    struct {
        struct rg_cq *cq;
        struct rg_completion record;
    } completions[RG_LOOP_COMPLETIONS_MAX];
    uint32_t completion_count;
    uint64_t completion_bytes;
    struct rg_linger linger;
    struct {
        uint64_t looked_ns, waited_ns; /* the last look, and rg_thread_waited_ns then */
        uint32_t percent;
    } crowd;
    bool stopping;
    const struct rg_topology *topology;
    struct rg_placement placement;
    pthread_t thread;
    bool has_thread;
    _Atomic clockid_t cpu_clock; /* of the thread; RG_LOOP_NO_CLOCK: it does not run */
    struct rg_mailbox mailbox;   /* shared with other threads */
    struct rg_mail stop_mail;
    _Atomic bool slab_freed; /* a foreign thread released a slab that a request waits for */
    /* Why the ring was given up and epoll took over; static. NULL: it was not. */
    const char *_Atomic fallback_reason;
    struct rg_list of_process; /* runtime/census.h */
};

/* Makes the loop and its backend; errors are those of the backend's setup. */
int rg_loop_create(struct rg_loop **out_loop, const struct rg_loop_options *options);
/* Starts the thread; rg_loop_stop ends and joins it. A loop without a thread is driven by
 * rg_loop_attach once and rg_loop_pass (tests, and the simulation). Errors of starting and of
 * attaching are those of setting up the backend. */
int rg_loop_start(struct rg_loop *loop);
void rg_loop_stop(struct rg_loop *loop);
void rg_loop_destroy(struct rg_loop *loop);
int rg_loop_attach(struct rg_loop *loop);
/* One pass, which waits until deadline_ns at the latest. */
void rg_loop_pass(struct rg_loop *loop, uint64_t deadline_ns);

/* In how much of the time lately the loop waited for a CPU, in percent. 0 without a kernel. */
uint32_t rg_loop_crowd(struct rg_loop *loop);

/* Hands mail to the loop, and wakes it if it sleeps; any thread. */
void rg_loop_post(struct rg_loop *loop, struct rg_mail *mail);
void rg_loop_wake(struct rg_loop *loop);
/* Runs function(context) on the loop's thread and waits for it. Any other thread. Where the loop
 * has no thread, the caller drives it, and is the one who runs the function. */
void rg_loop_call(struct rg_loop *loop, void (*function)(void *context), void *context);

void rg_loop_defer(struct rg_loop *loop, struct rg_task *task);
void rg_loop_undefer(struct rg_task *task);

void rg_alarm_init(struct rg_alarm *alarm, void (*fire)(struct rg_alarm *alarm));
void rg_loop_set_alarm(struct rg_loop *loop, struct rg_alarm *alarm, uint64_t deadline_ns);
void rg_loop_cancel_alarm(struct rg_loop *loop, struct rg_alarm *alarm);

/* A slab for a body, or NULL; then the task is deferred when memory has come back. The wait ends
 * with rg_loop_undefer. */
struct rg_lease *rg_loop_take_slab(struct rg_loop *loop, size_t size, struct rg_task *waiter);

/* Puts a completion on its queue at the end of the pass. */
void rg_loop_complete(struct rg_loop *loop, struct rg_cq *cq, const struct rg_completion *record);

/* For backends: the op has finished with `result`, or will in `finish`. */
void rg_loop_op_ready(struct rg_loop *loop, struct rg_op *op, int32_t result);

#endif
