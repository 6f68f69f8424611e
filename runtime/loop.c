/* The event loop: see loop.h. The life of a loop: create (the backend exists, so that its errors
 * are the caller's) -> start (the thread attaches, which makes it the owner of the ring) -> passes
 * -> stop mail -> the thread ends -> destroy. */
#include "runtime/loop.h"

#include "runtime/clock.h"
#include "runtime/cuda.h"
#include "runtime/log.h"
#include "runtime/probe.h"
#include "runtime/thread.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* The stack of a loop thread: the deepest path is certificate verification. */
#define LOOP_STACK_SIZE RG_KIB(512)

static void stop_run(struct rg_mail *mail)
{
    struct rg_loop *loop = RG_CONTAINER_OF(mail, struct rg_loop, stop_mail);
    RG_ASSERT(!loop->stopping);
    loop->stopping = true;
}

static void slab_wake(void *context)
{
    struct rg_loop *loop = context;
    atomic_store_explicit(&loop->slab_freed, true, memory_order_release);
    rg_loop_wake(loop);
}

static void slab_bind(void *context, void *address, size_t size)
{
    struct rg_loop *loop = context;
    int rc = rg_topology_bind_memory(loop->topology, &loop->placement, address, size);
    if (rc < 0) {
        rg_log(RG_LOG_DEBUG, "memory of loop %u was not bound to node %d: errno %d", loop->index,
               loop->placement.node, -rc);
    }
}

static int slab_pin(void *context, void *address, size_t size)
{
    return rg_cuda_register(context, address, size);
}

static void slab_unpin(void *context, void *address)
{
    rg_cuda_unregister(context, address);
}

static int loop_create_slabs(struct rg_loop *loop, const struct rg_loop_options *loop_options)
{
    if (loop_options->memory_max == 0) {
        return 0;
    }
    struct rg_slab_options options = {
        .budget = loop_options->memory_max,
        .wake = slab_wake,
        .wake_context = loop,
        .pin = loop_options->cuda != NULL ? slab_pin : NULL,
        .unpin = slab_unpin,
        .pin_context = loop_options->cuda,
        .pinned_max = loop_options->pinned_max,
    };
    if (loop->topology != NULL && loop->placement.node >= 0) {
        options.bind = slab_bind;
        options.bind_context = loop;
    }
    return rg_slab_arena_create(&loop->slabs, &options);
}

/* Memory has come back: everyone who waits tries again, in the order in which they came. */
static void slab_task_run(struct rg_task *task)
{
    struct rg_loop *loop = RG_CONTAINER_OF(task, struct rg_loop, slab_task);
    rg_list_splice_back(&loop->tasks, &loop->slab_waiters);
}

int rg_loop_create(struct rg_loop **out_loop, const struct rg_loop_options *options)
{
    RG_ASSERT(options->backend != NULL);
    /* Not calloc: the mailbox asks for a cache line of its own. */
    struct rg_loop *loop = aligned_alloc(_Alignof(struct rg_loop), sizeof(*loop));
    if (loop == NULL) {
        return -ENOMEM;
    }
    memset(loop, 0, sizeof(*loop));
    loop->index = options->index;
    loop->backend = options->backend;
    loop->backend_context = options->backend_context;
    loop->topology = options->topology;
    loop->placement = options->placement;
    loop->memory_max = options->memory_max;
    loop->ready_tail = &loop->ready_head;
    loop->stop_mail.run = stop_run;
    loop->slab_task.run = slab_task_run;
    rg_list_init(&loop->tasks);
    rg_list_init(&loop->slab_waiters);
    rg_mailbox_init(&loop->mailbox);
    int rc = loop->backend->create(loop, &loop->backend_self);
    if (rc < 0) {
        goto fail;
    }
    loop->now_ns = loop->backend->now_ns(loop->backend_self);
    rg_timer_wheel_init(&loop->timers, loop->now_ns);
    rc = loop_create_slabs(loop, options);
    if (rc < 0) {
        goto fail_backend;
    }
    *out_loop = loop;
    return 0;

fail_backend:
    loop->backend->destroy(loop->backend_self);
fail:
    free(loop);
    return rc;
}

void rg_loop_destroy(struct rg_loop *loop)
{
    if (loop == NULL) {
        return;
    }
    RG_ASSERT(!loop->has_thread);
    loop->backend->detach(loop->backend_self);
    loop->backend->destroy(loop->backend_self);
    rg_slab_arena_destroy(loop->slabs);
    free(loop);
}

int rg_loop_attach(struct rg_loop *loop)
{
    int rc = rg_topology_pin_self(loop->topology, &loop->placement);
    if (rc < 0) {
        rg_log(RG_LOG_WARN, "loop %u could not be pinned to CPU %d: errno %d", loop->index,
               loop->placement.cpu, -rc);
    }
    /* Our short sleeps shall not be rounded up to twice their length. Of this thread only. */
    (void)prctl(PR_SET_TIMERSLACK, RG_NS_PER_US);
    return loop->backend->attach(loop->backend_self);
}

struct loop_start {
    struct rg_loop *loop;
    sem_t attached;
    int rc;
};

/* From here on others may read how much CPU time this thread has used. */
static void cpu_clock_begin(struct rg_loop *loop)
{
    clockid_t clock;
    if (pthread_getcpuclockid(pthread_self(), &clock) == 0) {
        atomic_store(&loop->cpu_clock, clock);
    }
}

/* The clock ends with the thread. What it has shown is kept before. */
static void cpu_clock_end(struct rg_loop *loop)
{
    struct timespec used = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    rg_metric_store(&loop->metrics.loop_cpu,
                    (uint64_t)used.tv_sec * RG_NS_PER_S + (uint64_t)used.tv_nsec);
    atomic_store(&loop->cpu_clock, RG_LOOP_NO_CLOCK);
}

static void *loop_thread(void *context)
{
    struct loop_start *start = context;
    struct rg_loop *loop = start->loop;
    int rc = start->rc = rg_loop_attach(loop);
    sem_post(&start->attached);
    if (rc < 0) {
        return NULL;
    }
    cpu_clock_begin(loop);
    while (!loop->stopping) {
        rg_loop_pass(loop, UINT64_MAX);
    }
    cpu_clock_end(loop);
    loop->backend->detach(loop->backend_self);
    return NULL;
}

static void semaphore_wait(sem_t *semaphore)
{
    while (sem_wait(semaphore) < 0) {
        RG_ASSERT(errno == EINTR);
    }
}

int rg_loop_start(struct rg_loop *loop)
{
    RG_ASSERT(!loop->has_thread);
    struct loop_start start = {.loop = loop};
    sem_init(&start.attached, 0, 0);
    int rc = rg_thread_start(&loop->thread, LOOP_STACK_SIZE, loop_thread, &start);
    if (rc == 0) {
        semaphore_wait(&start.attached);
        rc = start.rc;
        if (rc < 0) {
            pthread_join(loop->thread, NULL);
        }
    }
    sem_destroy(&start.attached);
    loop->has_thread = rc == 0;
    return rc;
}

void rg_loop_stop(struct rg_loop *loop)
{
    if (!loop->has_thread) {
        return;
    }
    rg_loop_post(loop, &loop->stop_mail);
    pthread_join(loop->thread, NULL);
    loop->has_thread = false;
}

void rg_loop_op_ready(struct rg_loop *loop, struct rg_op *op, int32_t result)
{
    RG_ASSERT(op->state == RG_OP_INFLIGHT);
    op->state = RG_OP_READY;
    op->result = result;
    op->ready_next = NULL;
    *loop->ready_tail = op;
    loop->ready_tail = &op->ready_next;
}

static void op_detach(struct rg_op *op)
{
    struct rg_socket *socket = op->socket;
    op->state = RG_OP_IDLE;
    if (socket == NULL) {
        return;
    }
    bool writes = op->kind == RG_OP_CONNECT || op->kind == RG_OP_SEND;
    struct rg_op **slot = writes ? &socket->writing : &socket->reading;
    RG_ASSERT(*slot == op);
    *slot = NULL;
}

static void op_count(struct rg_loop *loop, const struct rg_op *op)
{
    if (op->result <= 0) {
        return;
    }
    if (op->kind == RG_OP_RECV || op->kind == RG_OP_RECV_INTO) {
        rg_metric_add(&loop->metrics.recv_bytes, (uint64_t)op->result);
    } else if (op->kind == RG_OP_SEND) {
        rg_metric_add(&loop->metrics.sent_bytes, (uint64_t)op->result);
        op->socket->taken += (uint64_t)op->result;
    }
}

static void run_op(struct rg_loop *loop, struct rg_op *op)
{
    RG_ASSERT(op->state == RG_OP_READY);
    if (loop->backend->finish(loop->backend_self, op)) {
        rg_linger_note(&loop->linger, op);
        op_detach(op);
        op_count(loop, op);
        op->done(op);
        if (loop->backend->recycle != NULL) {
            loop->backend->recycle(loop->backend_self);
        }
    } else if (op->cancelled && op->state == RG_OP_INFLIGHT) {
        /* It was ready when it was cancelled, or the cancellation ended only a part of it. */
        loop->backend->cancel(loop->backend_self, op);
    }
}

static struct rg_op *take_ready(struct rg_loop *loop)
{
    struct rg_op *first = loop->ready_head;
    loop->ready_head = NULL;
    loop->ready_tail = &loop->ready_head;
    return first;
}

/* The ops that are ready now, and after each what its owner has started that is ready at once, such
 * as the body behind a head: its memory is then taken, filled and handed on while it is in the
 * cache. Only RG_LOOP_TURNS_MAX times, so that one busy connection cannot keep the others waiting;
 * the rest is for the next pass. */
static void loop_run_ready(struct rg_loop *loop)
{
    struct rg_op *later = NULL, **later_tail = &later;
    struct rg_op *op = take_ready(loop);
    while (op != NULL) {
        struct rg_op *next = op->ready_next;
        run_op(loop, op);
        for (int turn = 1; turn < RG_LOOP_TURNS_MAX && loop->ready_head != NULL; turn++) {
            struct rg_op *follower = take_ready(loop);
            while (follower != NULL) {
                struct rg_op *after = follower->ready_next;
                run_op(loop, follower);
                follower = after;
            }
        }
        if (loop->ready_head != NULL) {
            *later_tail = loop->ready_head;
            later_tail = loop->ready_tail;
            (void)take_ready(loop);
        }
        op = next;
    }
    if (later != NULL) {
        RG_ASSERT(loop->ready_head == NULL);
        loop->ready_head = later;
        loop->ready_tail = later_tail;
    }
}

static void loop_run_alarms(struct rg_loop *loop)
{
    struct rg_list expired;
    rg_list_init(&expired);
    rg_timer_wheel_advance(&loop->timers, loop->now_ns, &expired);
    struct rg_timer *timer;
    while ((timer = rg_timer_pop_expired(&expired)) != NULL) {
        struct rg_alarm *alarm = RG_CONTAINER_OF(timer, struct rg_alarm, timer);
        alarm->fire(alarm);
    }
}

static void loop_run_mail(struct rg_loop *loop)
{
    struct rg_mail *mail = rg_mailbox_drain(&loop->mailbox);
    while (mail != NULL) {
        struct rg_mail *next = mail->next;
        mail->run(mail);
        mail = next;
    }
}

static void loop_run_tasks(struct rg_loop *loop)
{
    if (atomic_load_explicit(&loop->slab_freed, memory_order_relaxed)) {
        /* An exchange, so that a release that falls between reading and clearing is seen by whoever
         * now tries again. */
        (void)atomic_exchange_explicit(&loop->slab_freed, false, memory_order_acquire);
        rg_loop_defer(loop, &loop->slab_task);
    }
    struct rg_list now;
    rg_list_init(&now);
    rg_list_splice_back(&now, &loop->tasks);
    struct rg_list *node;
    while ((node = rg_list_pop_front(&now)) != NULL) {
        struct rg_task *task = RG_CONTAINER_OF(node, struct rg_task, node);
        task->run(task);
    }
}

static void loop_publish(struct rg_loop *loop)
{
    struct rg_completion run[RG_LOOP_COMPLETIONS_MAX];
    uint32_t first = 0;
    while (first < loop->completion_count) {
        struct rg_cq *cq = loop->completions[first].cq;
        uint32_t count = 0;
        uint32_t i = first;
        for (; i < loop->completion_count && loop->completions[i].cq == cq; i++) {
            run[count++] = loop->completions[i].record;
        }
        rg_cq_publish(cq, run, count);
        first = i;
    }
    loop->completion_count = 0;
    loop->completion_bytes = 0;
}

void rg_loop_complete(struct rg_loop *loop, struct rg_cq *cq, const struct rg_completion *record)
{
    RG_ASSERT(loop->completion_count < RG_LOOP_COMPLETIONS_MAX);
    loop->completions[loop->completion_count].cq = cq;
    loop->completions[loop->completion_count].record = *record;
    loop->completion_bytes += record->size;
    if (++loop->completion_count == RG_LOOP_COMPLETIONS_MAX ||
        loop->completion_bytes >= RG_LOOP_COMPLETION_BYTES_MAX) {
        loop_publish(loop);
    }
}

/* What was waited since `*waited_ns`, which becomes now. */
static uint64_t waited_since(uint64_t *waited_ns)
{
    uint64_t before_ns = *waited_ns;
    *waited_ns = rg_thread_waited_ns();
    return *waited_ns - RG_MIN(before_ns, *waited_ns);
}

uint32_t rg_loop_crowd(struct rg_loop *loop)
{
    uint64_t elapsed_ns = loop->now_ns - loop->crowd.looked_ns;
    if (loop->backend->flush == NULL || elapsed_ns < RG_LOOP_CROWD_NS) {
        return loop->crowd.percent;
    }
    uint64_t percent = waited_since(&loop->crowd.waited_ns) * 100 / elapsed_ns;
    loop->crowd.percent = (uint32_t)RG_MIN(percent, UINT64_C(100));
    loop->crowd.looked_ns = loop->now_ns;
    return loop->crowd.percent;
}

static void linger(struct rg_loop *loop)
{
    struct timespec pause = rg_timespec_from_ns(loop->linger.sleep_ns);
    loop->backend->flush(loop->backend_self);
    (void)nanosleep(&pause, NULL);
}

/* A pass begins. */
static void clock_read(struct rg_loop *loop)
{
    loop->now_ns = loop->backend->now_ns(loop->backend_self);
    rg_stages_pass(&loop->stages, &loop->metrics, loop->now_ns,
                   !rg_list_empty(&loop->slab_waiters));
}

static void loop_wait(struct rg_loop *loop, uint64_t deadline_ns)
{
    uint64_t wake_ns = RG_MIN(deadline_ns, rg_timer_wheel_next_ns(&loop->timers));
    bool busy = loop->ready_head != NULL || !rg_list_empty(&loop->tasks) || loop->stopping;
    if (busy || !rg_mailbox_sleep_begin(&loop->mailbox)) {
        loop->backend->wait(loop->backend_self, 0);
        clock_read(loop);
        return;
    }
    if (loop->linger.sleep_ns > 0) {
        linger(loop);
    }
    loop->backend->wait(loop->backend_self, wake_ns);
    rg_mailbox_sleep_end(&loop->mailbox);
    clock_read(loop);
    if (loop->backend->flush != NULL && rg_linger_waited(&loop->linger, loop->now_ns)) {
        bool asks = rg_linger_asks_for_crowd(&loop->linger, loop->now_ns);
        rg_linger_judge(&loop->linger, loop->now_ns, asks ? rg_loop_crowd(loop) : 0);
    }
}

/* Between two passes: no completion is held back, and each op that waits to be run is ready, in a
 * list whose tail is its end. */
static bool invariants(const struct rg_loop *loop)
{
    struct rg_op *const *tail = &loop->ready_head;
    bool ready = true;
    while (*tail != NULL) {
        ready &= (*tail)->state == RG_OP_READY && (*tail)->done != NULL;
        tail = &(*tail)->ready_next;
    }
    return ready && loop->ready_tail == tail && loop->completion_count == 0 &&
           loop->completion_bytes == 0;
}

void rg_loop_pass(struct rg_loop *loop, uint64_t deadline_ns)
{
    loop_wait(loop, deadline_ns);
    rg_metric_add(&loop->metrics.wakeups, 1);
    loop_run_ready(loop);
    loop_run_alarms(loop);
    loop_run_mail(loop);
    loop_run_tasks(loop);
    /* What owners have just started and what need not wait, such as a request to send with epoll.
     */
    loop_run_ready(loop);
    if (loop->completion_count > 0) {
        loop_publish(loop);
    }
    RG_VERIFY(invariants(loop));
}

void rg_loop_post(struct rg_loop *loop, struct rg_mail *mail)
{
    if (rg_mailbox_post(&loop->mailbox, mail)) {
        rg_loop_wake(loop);
    }
}

void rg_loop_wake(struct rg_loop *loop)
{
    loop->backend->wake(loop->backend_self);
}

struct loop_call {
    struct rg_mail mail;
    void (*function)(void *context);
    void *context;
    sem_t finished;
};

static void call_run(struct rg_mail *mail)
{
    struct loop_call *call = RG_CONTAINER_OF(mail, struct loop_call, mail);
    call->function(call->context);
    sem_post(&call->finished);
}

void rg_loop_call(struct rg_loop *loop, void (*function)(void *context), void *context)
{
    if (!loop->has_thread) {
        function(context);
        return;
    }
    RG_ASSERT(!pthread_equal(pthread_self(), loop->thread));
    struct loop_call call = {.mail.run = call_run, .function = function, .context = context};
    sem_init(&call.finished, 0, 0);
    rg_loop_post(loop, &call.mail);
    semaphore_wait(&call.finished);
    sem_destroy(&call.finished);
}

void rg_loop_defer(struct rg_loop *loop, struct rg_task *task)
{
    RG_ASSERT(task->run != NULL);
    if (!rg_list_linked(&task->node)) {
        rg_list_push_back(&loop->tasks, &task->node);
    }
}

void rg_loop_undefer(struct rg_task *task)
{
    rg_list_remove(&task->node);
}

void rg_alarm_init(struct rg_alarm *alarm, void (*fire)(struct rg_alarm *alarm))
{
    *alarm = (struct rg_alarm){.fire = fire};
}

void rg_loop_set_alarm(struct rg_loop *loop, struct rg_alarm *alarm, uint64_t deadline_ns)
{
    RG_ASSERT(alarm->fire != NULL);
    rg_timer_set(&loop->timers, &alarm->timer, deadline_ns);
}

void rg_loop_cancel_alarm(struct rg_loop *loop, struct rg_alarm *alarm)
{
    rg_timer_cancel(&loop->timers, &alarm->timer);
}

struct rg_lease *rg_loop_take_slab(struct rg_loop *loop, size_t size, struct rg_task *waiter)
{
    RG_ASSERT(waiter == NULL || !rg_list_linked(&waiter->node));
    struct rg_lease *lease = rg_slab_take(loop->slabs, size);
    if (lease == NULL && waiter != NULL) {
        rg_metric_add(&loop->metrics.lease_waits, 1);
        RG_PROBE1(lease_wait, size);
        rg_list_push_back(&loop->slab_waiters, &waiter->node);
    }
    return lease;
}

void rg_op_init(struct rg_op *op, void (*done)(struct rg_op *op))
{
    *op = (struct rg_op){.done = done};
}

static void op_hand_over(struct rg_loop *loop, struct rg_op *op, enum rg_op_kind kind)
{
    RG_ASSERT(op->state == RG_OP_IDLE && op->done != NULL);
    op->kind = (uint8_t)kind;
    op->state = RG_OP_INFLIGHT;
    op->cancelled = false;
    op->backend_state = 0;
    op->progress = 0;
    loop->backend->start(loop->backend_self, op);
}

static void op_start(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket,
                     enum rg_op_kind kind)
{
    RG_ASSERT(socket->fd >= 0);
    bool writes = kind == RG_OP_CONNECT || kind == RG_OP_SEND;
    struct rg_op **slot = writes ? &socket->writing : &socket->reading;
    RG_ASSERT(*slot == NULL);
    *slot = op;
    op->socket = socket;
    op_hand_over(loop, op, kind);
}

void rg_op_connect(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket,
                   const struct sockaddr *address, socklen_t address_size)
{
    op->data = (void *)address;
    op->size = address_size;
    op_start(loop, op, socket, RG_OP_CONNECT);
}

void rg_op_accept(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket)
{
    op_start(loop, op, socket, RG_OP_ACCEPT);
}

void rg_op_recv(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket, size_t size_max)
{
    RG_ASSERT(size_max > 0);
    op->data = NULL;
    op->size = RG_MIN(size_max, RG_RECV_SIZE_MAX);
    op_start(loop, op, socket, RG_OP_RECV);
}

void rg_op_recv_into(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket, void *data,
                     size_t size)
{
    RG_ASSERT(data != NULL && size > 0);
    op->data = data;
    op->size = RG_MIN(size, RG_OP_SIZE_MAX);
    op_start(loop, op, socket, RG_OP_RECV_INTO);
}

static void send_start(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket,
                       const void *data, size_t size, bool more)
{
    RG_ASSERT(data != NULL && size > 0 && size <= RG_OP_SIZE_MAX);
    op->data = (void *)data;
    op->size = size;
    op->more = more;
    op_start(loop, op, socket, RG_OP_SEND);
}

void rg_op_send(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket, const void *data,
                size_t size)
{
    send_start(loop, op, socket, data, size, false);
}

void rg_op_send_more(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket,
                     const void *data, size_t size)
{
    send_start(loop, op, socket, data, size, true);
}

static void read_start(struct rg_loop *loop, struct rg_op *op, uint64_t offset, void *data,
                       size_t size)
{
    RG_ASSERT(data != NULL && size > 0);
    op->data = data;
    op->size = size;
    op->offset = offset;
    op->waited = false;
    op->socket = NULL;
    op_hand_over(loop, op, RG_OP_READ_FILE);
}

void rg_op_read_file(struct rg_loop *loop, struct rg_op *op, int fd, uint64_t offset, void *data,
                     size_t size)
{
    RG_ASSERT(fd >= 0);
    op->file = fd;
    op->file_direct = -1;
    op->lead = 0;
    op->needed = RG_MIN(size, RG_OP_SIZE_MAX);
    read_start(loop, op, offset, data, op->needed);
}

void rg_op_read_file_direct(struct rg_loop *loop, struct rg_op *op, int fd, int fd_direct,
                            uint64_t offset, void *data, size_t size, size_t lead, size_t needed)
{
    RG_ASSERT(fd_direct >= 0 && size <= 2 * RG_OP_SIZE_MAX);
    RG_ASSERT(lead < needed && needed <= size);
    op->file = fd;
    op->file_direct = fd_direct;
    op->lead = lead;
    op->needed = needed;
    read_start(loop, op, offset, data, size);
}

void rg_op_cancel(struct rg_loop *loop, struct rg_op *op)
{
    if (op->kind == RG_OP_READ_FILE) {
        return;
    }
    if (op->state != RG_OP_IDLE) {
        op->cancelled = true;
    }
    if (op->state == RG_OP_INFLIGHT) {
        loop->backend->cancel(loop->backend_self, op);
    }
}

int rg_socket_open(struct rg_loop *loop, struct rg_socket *socket, int family)
{
    *socket = (struct rg_socket){.fd = -1};
    return loop->backend->socket_open(loop->backend_self, socket, family);
}

int rg_socket_adopt(struct rg_loop *loop, struct rg_socket *socket, int fd)
{
    RG_ASSERT(fd >= 0);
    *socket = (struct rg_socket){.fd = -1};
    return loop->backend->socket_adopt(loop->backend_self, socket, fd);
}

void rg_socket_output(struct rg_loop *loop, const struct rg_socket *socket,
                      struct rg_socket_output *out_output)
{
    RG_ASSERT(socket->fd >= 0);
    const struct rg_op *writing = socket->writing;
    uint64_t taken = socket->taken;
    if (writing != NULL && writing->kind == RG_OP_SEND) {
        taken += writing->progress;
    }
    loop->backend->socket_output(loop->backend_self, socket, taken, out_output);
}

void rg_socket_shutdown(struct rg_loop *loop, struct rg_socket *socket)
{
    if (socket->fd >= 0) {
        loop->backend->socket_shutdown(loop->backend_self, socket);
    }
}

void rg_socket_close(struct rg_loop *loop, struct rg_socket *socket, bool reset)
{
    RG_ASSERT(socket->reading == NULL && socket->writing == NULL);
    if (socket->fd >= 0) {
        loop->backend->socket_close(loop->backend_self, socket, reset);
        socket->fd = -1;
    }
}
