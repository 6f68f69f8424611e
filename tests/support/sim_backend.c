/* The backend of loops that live in a simulation: see sim.h. An op is put into a slot of its end
 * and stays there until it is known what came of it; the loop's next wait hands it over. Nothing
 * here waits: rg_sim_run makes time pass. */
#include "tests/support/sim_connect.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POISON 0xdb

static int sim_create_backend(struct rg_loop *loop, void **out_self)
{
    RG_ASSERT(loop->backend_context != NULL);
    struct rg_sim_loop *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return -ENOMEM;
    }
    self->sim = loop->backend_context;
    self->loop = loop;
    rg_list_init(&self->completions);
    rg_list_push_back(&self->sim->loops, &self->node);
    *out_self = self;
    return 0;
}

static int sim_attach(void *self)
{
    RG_ASSERT(self != NULL);
    return 0;
}

static void sim_detach(void *self)
{
    RG_ASSERT(self != NULL);
}

static void sim_destroy_backend(void *context)
{
    struct rg_sim_loop *self = context;
    RG_ASSERT(self->lent == NULL);
    struct rg_list *ends = &self->sim->ends;
    for (struct rg_list *node = ends->next; node != ends; node = node->next) {
        struct rg_sim_end *end = RG_CONTAINER_OF(node, struct rg_sim_end, node);
        for (int i = 0; end->loop == self && i < 2; i++) {
            rg_list_remove(&end->slots[i].completion);
            free(end->slots[i].data);
            end->slots[i] = (struct rg_sim_slot){.op = NULL};
        }
        end->loop = end->loop == self ? NULL : end->loop;
    }
    rg_list_remove(&self->node);
    free(self);
}

static void end_attach(struct rg_sim_loop *self, struct rg_sim_end *end, struct rg_socket *socket)
{
    RG_ASSERT(end->socket == NULL && !end->closed);
    end->socket = socket;
    end->loop = self;
    socket->sim = end;
    socket->fd = end->fd;
    self->sim->socket_count++;
}

static int sim_socket_open(void *context, struct rg_socket *socket, int family)
{
    struct rg_sim_loop *self = context;
    RG_ASSERT(family == AF_INET || family == AF_INET6);
    if (rg_sim_strikes(self->sim, RG_SIM_FAULT_NO_DESCRIPTORS)) {
        return -EMFILE;
    }
    end_attach(self, rg_sim_end_create(self->sim), socket);
    return 0;
}

static int sim_socket_adopt(void *context, struct rg_socket *socket, int fd)
{
    struct rg_sim_loop *self = context;
    struct rg_list *ends = &self->sim->ends;
    for (struct rg_list *node = ends->next; node != ends; node = node->next) {
        struct rg_sim_end *end = RG_CONTAINER_OF(node, struct rg_sim_end, node);
        if (end->fd == fd && end->service == NULL) {
            end_attach(self, end, socket);
            return 0;
        }
    }
    return -EBADF;
}

static void sim_socket_output(void *context, const struct rg_socket *socket, uint64_t taken,
                              struct rg_socket_output *out_output)
{
    const struct rg_sim_end *end = socket->sim;
    RG_ASSERT(context != NULL && end->socket == socket);
    size_t pending = end->other != NULL ? end->other->in.size : 0;
    *out_output = (struct rg_socket_output){
        .acknowledged = taken - RG_MIN((uint64_t)pending, taken), .pending = (uint32_t)pending};
}

static void sim_socket_shutdown(void *context, struct rg_socket *socket)
{
    struct rg_sim_loop *self = context;
    struct rg_sim_end *end = socket->sim;
    RG_ASSERT(end->loop == self);
    end->shut = true;
    rg_sim_trace(self->sim, "shutdown", end->id, 0);
    struct rg_sim_slot *writing = &end->slots[RG_SIM_WRITING];
    if (writing->op != NULL && !writing->completing && writing->op->kind == RG_OP_CONNECT) {
        rg_sim_slot_complete(end, writing, -ECONNABORTED);
    }
    if (end->other != NULL) {
        rg_sim_pipe_append(end->other, RG_SIM_CHUNK_FIN, NULL, 0);
    }
    rg_sim_end_poke_at(end, self->sim->now_ns);
}

static void sim_socket_close(void *context, struct rg_socket *socket, bool reset)
{
    struct rg_sim_loop *self = context;
    struct rg_sim_end *end = socket->sim;
    RG_ASSERT(end->loop == self && end->socket == socket);
    rg_sim_trace(self->sim, reset ? "close, reset" : "close", end->id, 0);
    /* Closing over unread bytes tells the peer that they were lost (RFC 1122, 4.2.2.13). */
    bool lost = reset || rg_sim_end_readable(end) > 0;
    end->closed = end->shut = true;
    end->socket = NULL;
    socket->sim = NULL;
    self->sim->socket_count--;
    if (end->listener != NULL) {
        end->listener->socket = NULL;
        struct rg_list *node;
        while ((node = rg_list_pop_front(&end->backlog)) != NULL) {
            struct rg_sim_end *waiting = RG_CONTAINER_OF(node, struct rg_sim_end, backlog_node);
            waiting->closed = waiting->shut = true;
            rg_sim_pipe_append(waiting->other, RG_SIM_CHUNK_RESET, NULL, 0);
        }
    }
    if (end->other != NULL) {
        rg_sim_pipe_append(end->other, lost ? RG_SIM_CHUNK_RESET : RG_SIM_CHUNK_FIN, NULL, 0);
        rg_sim_end_poke_at(end->other, self->sim->now_ns);
    }
    rg_sim_pipe_clear(&end->in);
}

static struct rg_sim_slot *slot_of(const struct rg_op *op)
{
    struct rg_sim_end *end = op->socket->sim;
    RG_ASSERT(end != NULL);
    bool writes = op->kind == RG_OP_CONNECT || op->kind == RG_OP_SEND;
    return &end->slots[writes ? RG_SIM_WRITING : RG_SIM_READING];
}

static void sim_start(void *context, struct rg_op *op)
{
    struct rg_sim_loop *self = context;
    if (op->kind == RG_OP_READ_FILE) {
        /* Files are real, and take no time. */
        int fd = op->file >= 0 ? op->file : op->file_direct;
        ssize_t got = pread(fd, op->data, op->size, (off_t)op->offset);
        rg_loop_op_ready(self->loop, op, got < 0 ? -errno : (int32_t)got);
        return;
    }
    struct rg_sim_end *end = op->socket->sim;
    struct rg_sim_slot *slot = slot_of(op);
    RG_ASSERT(slot->op == NULL && end->loop == self && end->socket == op->socket);
    *slot = (struct rg_sim_slot){.op = op, .serial = ++self->sim->serial};
    if (op->kind == RG_OP_CONNECT) {
        rg_sim_connect_start(end, slot);
        return;
    }
    if (op->kind == RG_OP_RECV_INTO) {
        memset(op->data, POISON, op->size);
    } else if (op->kind == RG_OP_SEND) {
        slot->send_hash = rg_sim_hash_bytes(0, op->data, op->size);
    }
    rg_sim_end_poke_at(end, self->sim->now_ns);
}

static void cancel_run(struct rg_sim *sim, const struct rg_sim_event *event)
{
    struct rg_sim_end *end = event->target;
    RG_ASSERT(end->sim == sim);
    for (int i = 0; i < 2; i++) {
        struct rg_sim_slot *slot = &end->slots[i];
        if (slot->op != NULL && !slot->completing && slot->serial == event->tag) {
            rg_sim_slot_complete(end, slot, -ECANCELED);
        }
    }
}

static void sim_cancel(void *context, struct rg_op *op)
{
    struct rg_sim_loop *self = context;
    uint64_t delay_ns = 0;
    if (rg_sim_strikes(self->sim, RG_SIM_FAULT_CANCEL_LATE)) {
        delay_ns = rg_sim_random_below(self->sim, 20 * self->sim->options.latency_ns);
    }
    rg_sim_event_add(self->sim, (struct rg_sim_event){
                                    .at_ns = self->sim->now_ns + delay_ns,
                                    .run = cancel_run,
                                    .target = op->socket->sim,
                                    .tag = slot_of(op)->serial,
                                });
}

static bool sim_finish(void *context, struct rg_op *op)
{
    struct rg_sim_loop *self = context;
    if (op->kind == RG_OP_READ_FILE) {
        return true;
    }
    struct rg_sim_slot *slot = slot_of(op);
    RG_ASSERT(slot->op == op && slot->completing && self->lent == NULL);
    if (op->kind == RG_OP_RECV) {
        self->lent = slot->data;
        op->data = slot->data;
    }
    if (op->kind == RG_OP_SEND) {
        /* The owner must not touch what is being sent. */
        RG_ASSERT(slot->send_hash == rg_sim_hash_bytes(0, op->data, op->size));
    }
    *slot = (struct rg_sim_slot){.op = NULL};
    return true;
}

static void sim_recycle(void *context)
{
    struct rg_sim_loop *self = context;
    free(self->lent);
    self->lent = NULL;
}

static struct rg_sim_slot *completion_take(struct rg_sim_loop *self, bool shuffle)
{
    struct rg_list *node = self->completions.next;
    uint64_t skip = 0;
    if (shuffle) {
        uint64_t count = 0;
        for (struct rg_list *i = node; i != &self->completions; i = i->next) {
            count++;
        }
        skip = rg_sim_random_below(self->sim, count);
    }
    while (skip-- > 0) {
        node = node->next;
    }
    rg_list_remove(node);
    return RG_CONTAINER_OF(node, struct rg_sim_slot, completion);
}

/* Does not wait: rg_sim_run makes time pass, by what the loops asked for here. */
static void sim_wait(void *context, uint64_t deadline_ns)
{
    struct rg_sim_loop *self = context;
    bool any = !rg_list_empty(&self->completions);
    self->wake_ns = deadline_ns;
    self->busy = any || self->woken || deadline_ns <= self->sim->now_ns;
    self->woken = false;
    bool shuffle = any && rg_sim_strikes(self->sim, RG_SIM_FAULT_SHUFFLE);
    while (!rg_list_empty(&self->completions)) {
        struct rg_sim_slot *slot = completion_take(self, shuffle);
        rg_loop_op_ready(self->loop, slot->op, slot->op->result);
    }
}

static void sim_wake(void *context)
{
    struct rg_sim_loop *self = context;
    self->woken = true;
}

static uint64_t sim_now_ns(void *context)
{
    const struct rg_sim_loop *self = context;
    return self->sim->now_ns;
}

const struct rg_backend_ops rg_sim_backend = {
    .name = "sim",
    .create = sim_create_backend,
    .attach = sim_attach,
    .detach = sim_detach,
    .destroy = sim_destroy_backend,
    .socket_open = sim_socket_open,
    .socket_adopt = sim_socket_adopt,
    .socket_output = sim_socket_output,
    .socket_shutdown = sim_socket_shutdown,
    .socket_close = sim_socket_close,
    .start = sim_start,
    .cancel = sim_cancel,
    .finish = sim_finish,
    .recycle = sim_recycle,
    .wait = sim_wait,
    .wake = sim_wake,
    .now_ns = sim_now_ns,
};
