/* The simulated network: see sim.h.
 *
 * Every change of an end comes from an event of the queue, from its loop (start, cancel, shutdown,
 * close), or from its script; what one end does to the other goes through the queue, so that
 * nothing recurses. Ends and events live until the simulation is destroyed, so that no event needs
 * to know whether its target is gone. */
#include "tests/support/sim.h"

#include <ringest/runtime.h>

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LATENCY_NS_DEFAULT (100 * RG_NS_PER_US)
#define WINDOW_DEFAULT RG_KIB(256)
#define TRACE_LEN 256
#define LISTENERS_MAX 64
#define FD_FIRST (1 << 24) /* far above any real one */
/* Passes without time going on, after which a loop is taken to spin. */
#define PASSES_MAX 1000000
#define POISON 0xdb

enum chunk_kind { CHUNK_DATA, CHUNK_FIN, CHUNK_RESET };

struct chunk {
    struct rg_list node;
    uint64_t arrive_ns;
    enum chunk_kind kind;
    size_t offset, size;
    uint8_t data[];
};

/* One direction of a connection, kept at the receiving end. */
struct pipe {
    struct rg_list chunks;
    size_t size; /* bytes in it */
    uint64_t last_arrive_ns;
    bool fin, reset; /* in it, as the last chunks, in this order */
    bool stalled;    /* what is written is lost */
};

/* An op in flight; completing: its result is known. */
struct slot {
    struct rg_op *op;
    uint64_t serial; /* of the op, so that late events cannot hit the next one */
    bool completing;
    struct rg_list completion; /* in the loop's list */
    uint8_t *data;             /* of a RECV */
    uint64_t send_hash;
};
enum { READING, WRITING };

struct rg_sim_end {
    struct rg_sim *sim;
    struct rg_list node;
    uint32_t id;
    struct rg_sim_end *other; /* NULL until connected */
    struct pipe in;
    bool closed;     /* by its owner */
    bool shut;       /* both directions, by its owner */
    bool reset_told; /* the one ECONNRESET was given out */
    /* Sockets. */
    int fd;
    struct rg_socket *socket;
    struct sim_loop *loop;
    struct slot slots[2];
    struct listener *listener; /* of a listening one */
    struct rg_list backlog, backlog_node;
    /* Scripted. */
    const struct rg_sim_service *service;
    void *context, *state;
    bool paused, end_told, gone;
};

struct sim_loop {
    struct rg_sim *sim;
    struct rg_loop *loop;
    struct rg_list node;
    struct rg_list completions; /* slots */
    uint8_t *lent;              /* freed by recycle */
    uint64_t wake_ns;           /* what the last wait was asked for */
    bool woken, busy;
};

struct listener {
    struct sockaddr_storage address;
    const struct rg_sim_service *service;
    void *context;
    struct rg_sim_end *socket;
    uint64_t delay_ns;
};

struct event {
    uint64_t at_ns, order;
    void (*run)(struct rg_sim *sim, const struct event *event);
    void *target;
    uint64_t tag;
    void (*function)(void *context);
    uint8_t *owned;
    size_t size;
};

struct trace_entry {
    uint64_t at_ns;
    const char *what;
    uint32_t id;
    int64_t value;
};

struct rg_sim {
    struct rg_sim_options options;
    struct rg_list node; /* of all simulations */
    uint64_t now_ns, random_state, serial;
    struct rg_list ends, loops;
    uint32_t end_count, socket_count;
    struct listener listeners[LISTENERS_MAX];
    uint32_t listener_count;
    struct event *events; /* a binary heap */
    size_t event_count, event_room;
    uint64_t event_order;
    uint64_t fault_counts[RG_SIM_FAULT_COUNT];
    struct trace_entry trace[TRACE_LEN];
    uint64_t trace_count, hash;
};

static struct rg_list all_sims = {&all_sims, &all_sims};

static const char *const fault_names[] = {
#define XX(name) #name,
    RG_SIM_FAULTS(XX)
#undef XX
};

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
    /* FNV-1a. */
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static void trace(struct rg_sim *sim, const char *what, uint32_t id, int64_t value)
{
    struct trace_entry *entry = &sim->trace[sim->trace_count++ % TRACE_LEN];
    *entry = (struct trace_entry){sim->now_ns, what, id, value};
    sim->hash = hash_bytes(sim->hash, &entry->at_ns, sizeof(entry->at_ns));
    sim->hash = hash_bytes(sim->hash, what, strlen(what));
    sim->hash = hash_bytes(sim->hash, &entry->id, sizeof(entry->id));
    sim->hash = hash_bytes(sim->hash, &entry->value, sizeof(entry->value));
}

void rg_sim_print_trace(const struct rg_sim *sim, FILE *file)
{
    uint64_t first = sim->trace_count > TRACE_LEN ? sim->trace_count - TRACE_LEN : 0;
    fprintf(file, "simulation with seed %" PRIu64 ": the last %" PRIu64 " of %" PRIu64 " events\n",
            sim->options.seed, sim->trace_count - first, sim->trace_count);
    for (uint64_t i = first; i < sim->trace_count; i++) {
        const struct trace_entry *entry = &sim->trace[i % TRACE_LEN];
        fprintf(file, "  %14.6f ms  end %-4" PRIu32 " %-16s %" PRId64 "\n",
                (double)entry->at_ns / (double)RG_NS_PER_MS, entry->id, entry->what, entry->value);
    }
}

static void print_all_traces(void)
{
    fflush(stdout);
    for (struct rg_list *node = all_sims.next; node != &all_sims; node = node->next) {
        rg_sim_print_trace(RG_CONTAINER_OF(node, struct rg_sim, node), stderr);
    }
    fflush(stderr);
}

static void print_at_abort(int number)
{
    print_all_traces();
    signal(number, SIG_DFL);
}

/* Of the sanitizers' run-time library, where there is one. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void print_traces_of_failures(void)
{
    static bool installed;
    if (!installed) {
        installed = true;
        atexit(print_all_traces);
        signal(SIGABRT, print_at_abort);
        if (__sanitizer_set_death_callback != NULL) {
            __sanitizer_set_death_callback(print_all_traces);
        }
    }
}

static uint64_t random_next(struct rg_sim *sim)
{
    uint64_t z = (sim->random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t rg_sim_random_below(struct rg_sim *sim, uint64_t bound)
{
    RG_ASSERT(bound > 0);
    return random_next(sim) % bound;
}

static bool strikes(struct rg_sim *sim, enum rg_sim_fault fault)
{
    if (sim->options.faults[fault] == 0) {
        return false;
    }
    bool struck = rg_sim_random_below(sim, RG_SIM_ALWAYS) < sim->options.faults[fault];
    if (struck) {
        sim->fault_counts[fault]++;
        trace(sim, fault_names[fault], 0, 0);
    }
    return struck;
}

static bool event_before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void event_add(struct rg_sim *sim, struct event event)
{
    if (sim->event_count == sim->event_room) {
        sim->event_room = RG_MAX(2 * sim->event_room, (size_t)64);
        sim->events = realloc(sim->events, sim->event_room * sizeof(*sim->events));
        RG_ASSERT(sim->events != NULL);
    }
    event.order = sim->event_order++;
    size_t i = sim->event_count++;
    while (i > 0 && event_before(&event, &sim->events[(i - 1) / 2])) {
        sim->events[i] = sim->events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->events[i] = event;
}

static struct event event_take(struct rg_sim *sim)
{
    RG_ASSERT(sim->event_count > 0);
    struct event first = sim->events[0], last = sim->events[--sim->event_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < sim->event_count &&
            event_before(&sim->events[child + 1], &sim->events[child])) {
            child++;
        }
        if (child >= sim->event_count || !event_before(&sim->events[child], &last)) {
            break;
        }
        sim->events[i] = sim->events[child];
        i = child;
    }
    sim->events[i] = last;
    return first;
}

static struct rg_sim_end *end_create(struct rg_sim *sim)
{
    struct rg_sim_end *end = calloc(1, sizeof(*end));
    RG_ASSERT(end != NULL);
    end->sim = sim;
    end->id = ++sim->end_count;
    end->fd = FD_FIRST + (int)end->id;
    rg_list_init(&end->in.chunks);
    rg_list_init(&end->backlog);
    rg_list_push_back(&sim->ends, &end->node);
    return end;
}

static struct chunk *pipe_first(const struct pipe *pipe)
{
    if (rg_list_empty(&pipe->chunks)) {
        return NULL;
    }
    return RG_CONTAINER_OF(pipe->chunks.next, struct chunk, node);
}

static void chunk_free(struct pipe *pipe, struct chunk *chunk)
{
    RG_ASSERT(pipe->size >= chunk->size);
    pipe->size -= chunk->size;
    rg_list_remove(&chunk->node);
    free(chunk);
}

static void pipe_clear(struct pipe *pipe)
{
    struct chunk *chunk;
    while ((chunk = pipe_first(pipe)) != NULL) {
        chunk_free(pipe, chunk);
    }
}

/* The first chunk of what has arrived at the end; NULL: nothing has. */
static struct chunk *end_arrived(const struct rg_sim_end *end)
{
    struct chunk *chunk = pipe_first(&end->in);
    return chunk != NULL && chunk->arrive_ns <= end->sim->now_ns ? chunk : NULL;
}

static void end_poke(struct rg_sim_end *end);

static void poke_run(struct rg_sim *sim, const struct event *event)
{
    RG_ASSERT(sim->now_ns >= event->at_ns);
    end_poke(event->target);
}

static void poke_at(struct rg_sim_end *end, uint64_t at_ns)
{
    event_add(end->sim, (struct event){.at_ns = at_ns, .run = poke_run, .target = end});
}

static void pipe_append(struct rg_sim_end *to, enum chunk_kind kind, const uint8_t *data,
                        size_t size)
{
    struct rg_sim *sim = to->sim;
    struct pipe *pipe = &to->in;
    bool ended = pipe->reset || (pipe->fin && kind != CHUNK_RESET);
    if (ended || pipe->stalled || to->closed) {
        return;
    }
    struct chunk *chunk = malloc(sizeof(*chunk) + size);
    RG_ASSERT(chunk != NULL);
    uint64_t late_ns = 0;
    if (kind == CHUNK_DATA && strikes(sim, RG_SIM_FAULT_LATE)) {
        late_ns = rg_sim_random_below(sim, RG_SIM_LATE_NS_MAX);
    }
    uint64_t arrive_ns = sim->now_ns + sim->options.latency_ns + late_ns;
    *chunk = (struct chunk){
        .arrive_ns = RG_MAX(arrive_ns, pipe->last_arrive_ns),
        .kind = kind,
        .size = size,
    };
    if (size > 0) {
        memcpy(chunk->data, data, size);
    }
    if (kind == CHUNK_DATA && strikes(sim, RG_SIM_FAULT_CORRUPT)) {
        chunk->data[rg_sim_random_below(sim, size)] ^= (uint8_t)(1u << rg_sim_random_below(sim, 8));
    }
    pipe->fin |= kind == CHUNK_FIN;
    pipe->reset |= kind == CHUNK_RESET;
    pipe->last_arrive_ns = chunk->arrive_ns;
    pipe->size += size;
    rg_list_push_back(&pipe->chunks, &chunk->node);
    poke_at(to, chunk->arrive_ns);
}

/* Bytes on their way to an end, with what may happen to them there. */
static void pipe_write(struct rg_sim_end *to, const uint8_t *data, size_t size)
{
    struct rg_sim *sim = to->sim;
    RG_ASSERT(size > 0);
    bool reset = strikes(sim, RG_SIM_FAULT_RESET);
    bool fin = !reset && strikes(sim, RG_SIM_FAULT_FIN);
    bool stall = !reset && !fin && strikes(sim, RG_SIM_FAULT_STALL);
    size_t kept = reset || fin || stall ? rg_sim_random_below(sim, size) : size;
    size_t segment = sim->options.segment != 0 ? sim->options.segment : size;
    for (size_t at = 0; at < kept; at += segment) {
        pipe_append(to, CHUNK_DATA, data + at, RG_MIN(segment, kept - at));
    }
    if (fin) {
        pipe_append(to, CHUNK_FIN, NULL, 0);
    } else if (reset) {
        pipe_append(to, CHUNK_RESET, NULL, 0);
        pipe_append(to->other, CHUNK_RESET, NULL, 0);
    }
    to->in.stalled |= stall;
}

static void slot_complete(struct rg_sim_end *end, struct slot *slot, int32_t result)
{
    RG_ASSERT(slot->op != NULL && !slot->completing);
    slot->completing = true;
    slot->op->result = result;
    rg_list_push_back(&end->loop->completions, &slot->completion);
    trace(end->sim, slot == &end->slots[READING] ? "read" : "written", end->id, result);
}

/* Takes arrived bytes out of the pipe. */
static size_t end_take(struct rg_sim_end *end, uint8_t *data, size_t size_max)
{
    size_t size = 0;
    struct chunk *chunk;
    while (size < size_max && (chunk = end_arrived(end)) != NULL && chunk->kind == CHUNK_DATA) {
        size_t part = RG_MIN(size_max - size, chunk->size);
        memcpy(data + size, chunk->data + chunk->offset, part);
        size += part;
        chunk->offset += part;
        chunk->size -= part;
        end->in.size -= part;
        if (chunk->size == 0) {
            chunk_free(&end->in, chunk);
        }
    }
    return size;
}

static size_t end_readable(const struct rg_sim_end *end)
{
    size_t size = 0;
    for (struct rg_list *node = end->in.chunks.next; node != &end->in.chunks; node = node->next) {
        struct chunk *chunk = RG_CONTAINER_OF(node, struct chunk, node);
        if (chunk->arrive_ns > end->sim->now_ns || chunk->kind != CHUNK_DATA) {
            break;
        }
        size += chunk->size;
    }
    return size;
}

/* True as soon as the reset has arrived, also while bytes before it are unread. */
static bool end_was_reset(const struct rg_sim_end *end)
{
    if (!end->in.reset) {
        return false;
    }
    const struct chunk *last = RG_CONTAINER_OF(end->in.chunks.prev, struct chunk, node);
    RG_ASSERT(last->kind == CHUNK_RESET);
    return last->arrive_ns <= end->sim->now_ns;
}

static void poke_recv(struct rg_sim_end *end, struct slot *slot)
{
    struct rg_sim *sim = end->sim;
    struct rg_op *op = slot->op;
    const struct chunk *first = end_arrived(end);
    size_t size = RG_MIN(end_readable(end), op->size);
    if (size > 0 && strikes(sim, RG_SIM_FAULT_NO_MEMORY)) {
        slot_complete(end, slot, -ENOBUFS);
    } else if (size > 0) {
        if (strikes(sim, RG_SIM_FAULT_SHORT_RECV)) {
            size = 1 + rg_sim_random_below(sim, size);
        }
        uint8_t *data = op->data;
        if (op->kind == RG_OP_RECV) {
            data = slot->data = malloc(size);
            RG_ASSERT(data != NULL);
        }
        size_t taken = end_take(end, data, size);
        RG_ASSERT(taken == size);
        slot_complete(end, slot, (int32_t)size);
        poke_at(end->other, sim->now_ns);
    } else if (first != NULL && first->kind == CHUNK_RESET && !end->reset_told) {
        end->reset_told = true;
        slot_complete(end, slot, -ECONNRESET);
    } else if (first != NULL || end->shut) {
        slot_complete(end, slot, 0);
    }
}

static void poke_accept(struct rg_sim_end *end, struct slot *slot)
{
    struct rg_list *node = rg_list_pop_front(&end->backlog);
    if (node != NULL) {
        struct rg_sim_end *accepted = RG_CONTAINER_OF(node, struct rg_sim_end, backlog_node);
        slot_complete(end, slot, accepted->fd);
    } else if (end->shut) {
        slot_complete(end, slot, -EINVAL);
    }
}

static void poke_send(struct rg_sim_end *end, struct slot *slot)
{
    struct rg_sim *sim = end->sim;
    struct rg_op *op = slot->op;
    if (end->shut || end_was_reset(end)) {
        bool tell = !end->shut && !end->reset_told;
        end->reset_told |= tell;
        slot_complete(end, slot, tell ? -ECONNRESET : -EPIPE);
        return;
    }
    RG_ASSERT(end->other != NULL);
    size_t on_the_way = end->other->in.size;
    size_t room = sim->options.window > on_the_way ? sim->options.window - on_the_way : 0;
    size_t size = RG_MIN(room, op->size - op->progress);
    if (size == 0 || end->other->in.stalled) {
        return;
    }
    if (strikes(sim, RG_SIM_FAULT_NO_MEMORY)) {
        slot_complete(end, slot, -ENOMEM);
        return;
    }
    if (strikes(sim, RG_SIM_FAULT_SHORT_SEND)) {
        size = 1 + rg_sim_random_below(sim, size);
    }
    if (end->other->closed) {
        /* Nobody is there: the answer to data is a reset. */
        pipe_append(end, CHUNK_RESET, NULL, 0);
    } else {
        pipe_write(end->other, (const uint8_t *)op->data + op->progress, size);
    }
    op->progress += (uint32_t)size;
    if (op->progress == op->size) {
        slot_complete(end, slot, (int32_t)op->size);
    } else {
        poke_at(end, sim->now_ns + sim->options.latency_ns);
    }
}

static void end_go(struct rg_sim_end *end)
{
    if (!end->gone && end->service != NULL) {
        end->gone = true;
        if (end->service->gone != NULL) {
            end->service->gone(end);
        }
    }
}

static void script_ended(struct rg_sim_end *end, bool reset)
{
    end->end_told = true;
    end->shut |= reset;
    trace(end->sim, reset ? "peer saw reset" : "peer saw end", end->id, 0);
    if (end->service->ended != NULL) {
        end->service->ended(end, reset);
    } else if (!reset) {
        rg_sim_close(end);
    }
}

/* Tells the script what has arrived. */
static void poke_script(struct rg_sim_end *end)
{
    while (!end->paused && !end->end_told) {
        struct chunk *chunk = end_arrived(end);
        if (chunk == NULL) {
            break;
        }
        if (chunk->kind != CHUNK_DATA) {
            script_ended(end, chunk->kind == CHUNK_RESET);
            break;
        }
        rg_list_remove(&chunk->node);
        end->in.size -= chunk->size;
        trace(end->sim, "peer got", end->id, (int64_t)chunk->size);
        if (!end->shut) {
            end->service->received(end, chunk->data + chunk->offset, chunk->size);
        } else {
            /* Nobody is there: the answer to data is a reset. */
            pipe_append(end->other, CHUNK_RESET, NULL, 0);
        }
        free(chunk);
        poke_at(end->other, end->sim->now_ns);
    }
    if (end->shut && (end->end_told || end->other->closed)) {
        end_go(end);
    }
}

static void end_poke(struct rg_sim_end *end)
{
    if (end->service != NULL) {
        if (!end->gone) {
            poke_script(end);
        }
        return;
    }
    struct slot *reading = &end->slots[READING], *writing = &end->slots[WRITING];
    if (reading->op != NULL && !reading->completing) {
        (reading->op->kind == RG_OP_ACCEPT ? poke_accept : poke_recv)(end, reading);
    }
    if (writing->op != NULL && !writing->completing && writing->op->kind == RG_OP_SEND) {
        poke_send(end, writing);
    }
}

static struct listener *listener_find(struct rg_sim *sim, const struct sockaddr *address)
{
    bool v4 = address->sa_family == AF_INET;
    RG_ASSERT(v4 || address->sa_family == AF_INET6);
    for (uint32_t i = 0; i < sim->listener_count; i++) {
        struct listener *listener = &sim->listeners[i];
        if (listener->address.ss_family != address->sa_family) {
            continue;
        }
        const void *a = &listener->address, *b = address;
        const struct sockaddr_in *a4 = a, *b4 = b;
        const struct sockaddr_in6 *a6 = a, *b6 = b;
        if (v4 ? a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr
               : a6->sin6_port == b6->sin6_port &&
                     memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0) {
            return listener;
        }
    }
    return NULL;
}

static struct listener *listener_get(struct rg_sim *sim, const struct sockaddr *address)
{
    struct listener *listener = listener_find(sim, address);
    if (listener == NULL) {
        RG_ASSERT(sim->listener_count < LISTENERS_MAX);
        listener = &sim->listeners[sim->listener_count++];
        memcpy(&listener->address, address,
               address->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                             : sizeof(struct sockaddr_in6));
    }
    return listener;
}

void rg_sim_listen(struct rg_sim *sim, const struct sockaddr *address,
                   const struct rg_sim_service *service, void *context)
{
    RG_ASSERT(service == NULL || service->received != NULL);
    struct listener *listener = listener_get(sim, address);
    listener->service = service;
    listener->context = context;
}

int rg_sim_listen_fd(struct rg_sim *sim, const struct sockaddr *address)
{
    struct listener *listener = listener_get(sim, address);
    RG_ASSERT(listener->socket == NULL && listener->service == NULL);
    listener->socket = end_create(sim);
    listener->socket->listener = listener;
    return listener->socket->fd;
}

void rg_sim_delay_connections(struct rg_sim *sim, const struct sockaddr *address, uint64_t delay_ns)
{
    listener_get(sim, address)->delay_ns = delay_ns;
}

/* The other side of a connection that is being made. */
static void connect_accept(struct rg_sim_end *end, struct listener *listener)
{
    struct rg_sim_end *other = end_create(end->sim);
    other->other = end;
    end->other = other;
    if (listener->service != NULL) {
        other->service = listener->service;
        other->context = listener->context;
        if (other->service->connected != NULL) {
            other->service->connected(other);
        }
    } else {
        rg_list_push_back(&listener->socket->backlog, &other->backlog_node);
        poke_at(listener->socket, end->sim->now_ns);
    }
}

static void connect_run(struct rg_sim *sim, const struct event *event)
{
    struct rg_sim_end *end = event->target;
    struct slot *slot = &end->slots[WRITING];
    if (slot->op == NULL || slot->completing || slot->serial != event->tag) {
        return;
    }
    struct listener *listener = listener_find(sim, slot->op->data);
    bool listened = listener != NULL && (listener->service != NULL || listener->socket != NULL);
    bool unanswered = event->size != 0;
    if (unanswered) {
        slot_complete(end, slot, -ETIMEDOUT);
    } else if (!listened || strikes(sim, RG_SIM_FAULT_CONNECT_REFUSED)) {
        slot_complete(end, slot, -ECONNREFUSED);
    } else {
        slot_complete(end, slot, 0);
        connect_accept(end, listener);
    }
}

static void connect_start(struct rg_sim_end *end, struct slot *slot)
{
    struct rg_sim *sim = end->sim;
    RG_ASSERT(end->other == NULL && !end->shut);
    const struct listener *listener = listener_find(sim, slot->op->data);
    uint64_t delay_ns = listener != NULL ? listener->delay_ns : 0;
    bool unanswered = delay_ns == RG_FOREVER || strikes(sim, RG_SIM_FAULT_CONNECT_TIMEOUT);
    if (unanswered) {
        delay_ns = RG_SIM_CONNECT_NS_MAX;
    } else if (strikes(sim, RG_SIM_FAULT_CONNECT_SLOW)) {
        delay_ns += rg_sim_random_below(sim, RG_SIM_LATE_NS_MAX);
    }
    event_add(sim, (struct event){
                       .at_ns = sim->now_ns + 2 * sim->options.latency_ns + delay_ns,
                       .run = connect_run,
                       .target = end,
                       .tag = slot->serial,
                       .size = unanswered,
                   });
}

static int sim_create_backend(struct rg_loop *loop, void **out_self)
{
    RG_ASSERT(loop->backend_context != NULL);
    struct sim_loop *self = calloc(1, sizeof(*self));
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
    struct sim_loop *self = context;
    RG_ASSERT(self->lent == NULL);
    struct rg_list *ends = &self->sim->ends;
    for (struct rg_list *node = ends->next; node != ends; node = node->next) {
        struct rg_sim_end *end = RG_CONTAINER_OF(node, struct rg_sim_end, node);
        for (int i = 0; end->loop == self && i < 2; i++) {
            rg_list_remove(&end->slots[i].completion);
            free(end->slots[i].data);
            end->slots[i] = (struct slot){.op = NULL};
        }
        end->loop = end->loop == self ? NULL : end->loop;
    }
    rg_list_remove(&self->node);
    free(self);
}

static void end_attach(struct sim_loop *self, struct rg_sim_end *end, struct rg_socket *socket)
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
    struct sim_loop *self = context;
    RG_ASSERT(family == AF_INET || family == AF_INET6);
    if (strikes(self->sim, RG_SIM_FAULT_NO_DESCRIPTORS)) {
        return -EMFILE;
    }
    end_attach(self, end_create(self->sim), socket);
    return 0;
}

static int sim_socket_adopt(void *context, struct rg_socket *socket, int fd)
{
    struct sim_loop *self = context;
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
    struct sim_loop *self = context;
    struct rg_sim_end *end = socket->sim;
    RG_ASSERT(end->loop == self);
    end->shut = true;
    trace(self->sim, "shutdown", end->id, 0);
    struct slot *writing = &end->slots[WRITING];
    if (writing->op != NULL && !writing->completing && writing->op->kind == RG_OP_CONNECT) {
        slot_complete(end, writing, -ECONNABORTED);
    }
    if (end->other != NULL) {
        pipe_append(end->other, CHUNK_FIN, NULL, 0);
    }
    poke_at(end, self->sim->now_ns);
}

static void sim_socket_close(void *context, struct rg_socket *socket, bool reset)
{
    struct sim_loop *self = context;
    struct rg_sim_end *end = socket->sim;
    RG_ASSERT(end->loop == self && end->socket == socket);
    trace(self->sim, reset ? "close, reset" : "close", end->id, 0);
    /* Closing over unread bytes tells the peer that they were lost (RFC 1122, 4.2.2.13). */
    bool lost = reset || end_readable(end) > 0;
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
            pipe_append(waiting->other, CHUNK_RESET, NULL, 0);
        }
    }
    if (end->other != NULL) {
        pipe_append(end->other, lost ? CHUNK_RESET : CHUNK_FIN, NULL, 0);
        poke_at(end->other, self->sim->now_ns);
    }
    pipe_clear(&end->in);
}

static struct slot *slot_of(const struct rg_op *op)
{
    struct rg_sim_end *end = op->socket->sim;
    RG_ASSERT(end != NULL);
    bool writes = op->kind == RG_OP_CONNECT || op->kind == RG_OP_SEND;
    return &end->slots[writes ? WRITING : READING];
}

static void sim_start(void *context, struct rg_op *op)
{
    struct sim_loop *self = context;
    if (op->kind == RG_OP_READ_FILE) {
        /* Files are real, and take no time. */
        ssize_t got = pread(op->file, op->data, op->size, (off_t)op->offset);
        rg_loop_op_ready(self->loop, op, got < 0 ? -errno : (int32_t)got);
        return;
    }
    struct rg_sim_end *end = op->socket->sim;
    struct slot *slot = slot_of(op);
    RG_ASSERT(slot->op == NULL && end->loop == self && end->socket == op->socket);
    *slot = (struct slot){.op = op, .serial = ++self->sim->serial};
    if (op->kind == RG_OP_CONNECT) {
        connect_start(end, slot);
        return;
    }
    if (op->kind == RG_OP_RECV_INTO) {
        memset(op->data, POISON, op->size);
    } else if (op->kind == RG_OP_SEND) {
        slot->send_hash = hash_bytes(0, op->data, op->size);
    }
    poke_at(end, self->sim->now_ns);
}

static void cancel_run(struct rg_sim *sim, const struct event *event)
{
    struct rg_sim_end *end = event->target;
    RG_ASSERT(end->sim == sim);
    for (int i = 0; i < 2; i++) {
        struct slot *slot = &end->slots[i];
        if (slot->op != NULL && !slot->completing && slot->serial == event->tag) {
            slot_complete(end, slot, -ECANCELED);
        }
    }
}

static void sim_cancel(void *context, struct rg_op *op)
{
    struct sim_loop *self = context;
    uint64_t delay_ns = 0;
    if (strikes(self->sim, RG_SIM_FAULT_CANCEL_LATE)) {
        delay_ns = rg_sim_random_below(self->sim, 20 * self->sim->options.latency_ns);
    }
    event_add(self->sim, (struct event){
                             .at_ns = self->sim->now_ns + delay_ns,
                             .run = cancel_run,
                             .target = op->socket->sim,
                             .tag = slot_of(op)->serial,
                         });
}

static bool sim_finish(void *context, struct rg_op *op)
{
    struct sim_loop *self = context;
    if (op->kind == RG_OP_READ_FILE) {
        return true;
    }
    struct slot *slot = slot_of(op);
    RG_ASSERT(slot->op == op && slot->completing && self->lent == NULL);
    if (op->kind == RG_OP_RECV) {
        self->lent = slot->data;
        op->data = slot->data;
    }
    if (op->kind == RG_OP_SEND) {
        /* The owner must not touch what is being sent. */
        RG_ASSERT(slot->send_hash == hash_bytes(0, op->data, op->size));
    }
    *slot = (struct slot){.op = NULL};
    return true;
}

static void sim_recycle(void *context)
{
    struct sim_loop *self = context;
    free(self->lent);
    self->lent = NULL;
}

static struct slot *completion_take(struct sim_loop *self, bool shuffle)
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
    return RG_CONTAINER_OF(node, struct slot, completion);
}

/* Does not wait: rg_sim_run makes time pass, by what the loops asked for here. */
static void sim_wait(void *context, uint64_t deadline_ns)
{
    struct sim_loop *self = context;
    bool any = !rg_list_empty(&self->completions);
    self->wake_ns = deadline_ns;
    self->busy = any || self->woken || deadline_ns <= self->sim->now_ns;
    self->woken = false;
    bool shuffle = any && strikes(self->sim, RG_SIM_FAULT_SHUFFLE);
    while (!rg_list_empty(&self->completions)) {
        struct slot *slot = completion_take(self, shuffle);
        rg_loop_op_ready(self->loop, slot->op, slot->op->result);
    }
}

static void sim_wake(void *context)
{
    struct sim_loop *self = context;
    self->woken = true;
}

static uint64_t sim_now_ns(void *context)
{
    const struct sim_loop *self = context;
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

struct rg_sim *rg_sim_create(const struct rg_sim_options *options)
{
    struct rg_sim *sim = calloc(1, sizeof(*sim));
    RG_ASSERT(sim != NULL);
    sim->options = *options;
    if (sim->options.latency_ns == 0) {
        sim->options.latency_ns = LATENCY_NS_DEFAULT;
    }
    if (sim->options.window == 0) {
        sim->options.window = WINDOW_DEFAULT;
    }
    sim->random_state = options->seed;
    sim->now_ns = RG_NS_PER_S;
    sim->hash = UINT64_C(0xcbf29ce484222325);
    rg_list_init(&sim->ends);
    rg_list_init(&sim->loops);
    rg_list_push_back(&all_sims, &sim->node);
    print_traces_of_failures();
    return sim;
}

void rg_sim_destroy(struct rg_sim *sim)
{
    if (sim == NULL) {
        return;
    }
    RG_ASSERT(rg_list_empty(&sim->loops));
    struct rg_list *node;
    for (node = sim->ends.next; node != &sim->ends; node = node->next) {
        end_go(RG_CONTAINER_OF(node, struct rg_sim_end, node));
    }
    while ((node = rg_list_pop_front(&sim->ends)) != NULL) {
        struct rg_sim_end *end = RG_CONTAINER_OF(node, struct rg_sim_end, node);
        pipe_clear(&end->in);
        free(end);
    }
    while (sim->event_count > 0) {
        free(event_take(sim).owned);
    }
    free(sim->events);
    rg_list_remove(&sim->node);
    free(sim);
}

static void run_due_events(struct rg_sim *sim)
{
    while (sim->event_count > 0 && sim->events[0].at_ns <= sim->now_ns) {
        struct event event = event_take(sim);
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
        struct sim_loop *self = RG_CONTAINER_OF(node, struct sim_loop, node);
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

uint64_t rg_sim_now_ns(const struct rg_sim *sim)
{
    return sim->now_ns;
}

static void after_run(struct rg_sim *sim, const struct event *event)
{
    RG_ASSERT(sim->now_ns >= event->at_ns);
    event->function(event->target);
}

void rg_sim_after(struct rg_sim *sim, uint64_t delay_ns, void (*function)(void *context),
                  void *context)
{
    event_add(sim, (struct event){.at_ns = sim->now_ns + delay_ns,
                                  .run = after_run,
                                  .function = function,
                                  .target = context});
}

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
    trace(end->sim, "peer writes", end->id, (int64_t)size);
    if (end->other->closed) {
        pipe_append(end, CHUNK_RESET, NULL, 0);
    } else {
        pipe_write(end->other, data, size);
    }
}

static void write_run(struct rg_sim *sim, const struct event *event)
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
    event_add(end->sim, (struct event){.at_ns = end->sim->now_ns + delay_ns,
                                       .run = write_run,
                                       .target = end,
                                       .owned = copy,
                                       .size = size});
}

static void script_finish(struct rg_sim_end *end, enum chunk_kind kind)
{
    RG_ASSERT(end->service != NULL);
    if (end->shut) {
        return;
    }
    end->shut = true;
    trace(end->sim, kind == CHUNK_RESET ? "peer resets" : "peer closes", end->id, 0);
    pipe_append(end->other, kind, NULL, 0);
    end->end_told |= kind == CHUNK_RESET;
    poke_at(end, end->sim->now_ns);
}

void rg_sim_close(struct rg_sim_end *end)
{
    script_finish(end, CHUNK_FIN);
}

void rg_sim_reset(struct rg_sim_end *end)
{
    script_finish(end, CHUNK_RESET);
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
    poke_at(end, end->sim->now_ns);
}

uint32_t rg_sim_socket_count(const struct rg_sim *sim)
{
    return sim->socket_count;
}

uint64_t rg_sim_fault_count(const struct rg_sim *sim, enum rg_sim_fault fault)
{
    RG_ASSERT(fault < RG_SIM_FAULT_COUNT);
    return sim->fault_counts[fault];
}

uint64_t rg_sim_hash(const struct rg_sim *sim)
{
    return sim->hash;
}
