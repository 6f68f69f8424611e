/* See sim_end.h. */
#include "tests/support/sim_end.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FD_FIRST (1 << 24) /* far above any real one */

struct chunk {
    struct rg_list node;
    uint64_t arrive_ns;
    enum rg_sim_chunk_kind kind;
    size_t offset, size;
    uint8_t data[];
};

struct rg_sim_end *rg_sim_end_create(struct rg_sim *sim)
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

static struct chunk *pipe_first(const struct rg_sim_pipe *pipe)
{
    if (rg_list_empty(&pipe->chunks)) {
        return NULL;
    }
    return RG_CONTAINER_OF(pipe->chunks.next, struct chunk, node);
}

static void chunk_free(struct rg_sim_pipe *pipe, struct chunk *chunk)
{
    RG_ASSERT(pipe->size >= chunk->size);
    pipe->size -= chunk->size;
    rg_list_remove(&chunk->node);
    free(chunk);
}

void rg_sim_pipe_clear(struct rg_sim_pipe *pipe)
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

static void poke_run(struct rg_sim *sim, const struct rg_sim_event *event)
{
    RG_ASSERT(sim->now_ns >= event->at_ns);
    end_poke(event->target);
}

void rg_sim_end_poke_at(struct rg_sim_end *end, uint64_t at_ns)
{
    rg_sim_event_add(end->sim,
                     (struct rg_sim_event){.at_ns = at_ns, .run = poke_run, .target = end});
}

void rg_sim_pipe_append(struct rg_sim_end *to, enum rg_sim_chunk_kind kind, const uint8_t *data,
                        size_t size)
{
    struct rg_sim *sim = to->sim;
    struct rg_sim_pipe *pipe = &to->in;
    bool ended = pipe->reset || (pipe->fin && kind != RG_SIM_CHUNK_RESET);
    if (ended || pipe->stalled || to->closed) {
        return;
    }
    struct chunk *chunk = malloc(sizeof(*chunk) + size);
    RG_ASSERT(chunk != NULL);
    uint64_t late_ns = 0;
    if (kind == RG_SIM_CHUNK_DATA && rg_sim_strikes(sim, RG_SIM_FAULT_LATE)) {
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
    if (kind == RG_SIM_CHUNK_DATA && rg_sim_strikes(sim, RG_SIM_FAULT_CORRUPT)) {
        chunk->data[rg_sim_random_below(sim, size)] ^= (uint8_t)(1u << rg_sim_random_below(sim, 8));
    }
    pipe->fin |= kind == RG_SIM_CHUNK_FIN;
    pipe->reset |= kind == RG_SIM_CHUNK_RESET;
    pipe->last_arrive_ns = chunk->arrive_ns;
    pipe->size += size;
    rg_list_push_back(&pipe->chunks, &chunk->node);
    rg_sim_end_poke_at(to, chunk->arrive_ns);
}

void rg_sim_pipe_write(struct rg_sim_end *to, const uint8_t *data, size_t size)
{
    struct rg_sim *sim = to->sim;
    RG_ASSERT(size > 0);
    bool reset = rg_sim_strikes(sim, RG_SIM_FAULT_RESET);
    bool fin = !reset && rg_sim_strikes(sim, RG_SIM_FAULT_FIN);
    bool stall = !reset && !fin && rg_sim_strikes(sim, RG_SIM_FAULT_STALL);
    size_t kept = reset || fin || stall ? rg_sim_random_below(sim, size) : size;
    size_t segment = sim->options.segment != 0 ? sim->options.segment : size;
    for (size_t at = 0; at < kept; at += segment) {
        rg_sim_pipe_append(to, RG_SIM_CHUNK_DATA, data + at, RG_MIN(segment, kept - at));
    }
    if (fin) {
        rg_sim_pipe_append(to, RG_SIM_CHUNK_FIN, NULL, 0);
    } else if (reset) {
        rg_sim_pipe_append(to, RG_SIM_CHUNK_RESET, NULL, 0);
        rg_sim_pipe_append(to->other, RG_SIM_CHUNK_RESET, NULL, 0);
    }
    to->in.stalled |= stall;
}

void rg_sim_slot_complete(struct rg_sim_end *end, struct rg_sim_slot *slot, int32_t result)
{
    RG_ASSERT(slot->op != NULL && !slot->completing);
    slot->completing = true;
    slot->op->result = result;
    rg_list_push_back(&end->loop->completions, &slot->completion);
    rg_sim_trace(end->sim, slot == &end->slots[RG_SIM_READING] ? "read" : "written", end->id,
                 result);
}

/* Takes arrived bytes out of the pipe. */
static size_t end_take(struct rg_sim_end *end, uint8_t *data, size_t size_max)
{
    size_t size = 0;
    struct chunk *chunk;
    while (size < size_max && (chunk = end_arrived(end)) != NULL &&
           chunk->kind == RG_SIM_CHUNK_DATA) {
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

size_t rg_sim_end_readable(const struct rg_sim_end *end)
{
    size_t size = 0;
    for (struct rg_list *node = end->in.chunks.next; node != &end->in.chunks; node = node->next) {
        struct chunk *chunk = RG_CONTAINER_OF(node, struct chunk, node);
        if (chunk->arrive_ns > end->sim->now_ns || chunk->kind != RG_SIM_CHUNK_DATA) {
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
    RG_ASSERT(last->kind == RG_SIM_CHUNK_RESET);
    return last->arrive_ns <= end->sim->now_ns;
}

static void poke_recv(struct rg_sim_end *end, struct rg_sim_slot *slot)
{
    struct rg_sim *sim = end->sim;
    struct rg_op *op = slot->op;
    const struct chunk *first = end_arrived(end);
    size_t size = RG_MIN(rg_sim_end_readable(end), op->size);
    if (size > 0 && rg_sim_strikes(sim, RG_SIM_FAULT_NO_MEMORY)) {
        rg_sim_slot_complete(end, slot, -ENOBUFS);
    } else if (size > 0) {
        if (rg_sim_strikes(sim, RG_SIM_FAULT_SHORT_RECV)) {
            size = 1 + rg_sim_random_below(sim, size);
        }
        uint8_t *data = op->data;
        if (op->kind == RG_OP_RECV) {
            data = slot->data = malloc(size);
            RG_ASSERT(data != NULL);
        }
        size_t taken = end_take(end, data, size);
        RG_ASSERT(taken == size);
        rg_sim_slot_complete(end, slot, (int32_t)size);
        rg_sim_end_poke_at(end->other, sim->now_ns);
    } else if (first != NULL && first->kind == RG_SIM_CHUNK_RESET && !end->reset_told) {
        end->reset_told = true;
        rg_sim_slot_complete(end, slot, -ECONNRESET);
    } else if (first != NULL || end->shut) {
        rg_sim_slot_complete(end, slot, 0);
    }
}

static void poke_accept(struct rg_sim_end *end, struct rg_sim_slot *slot)
{
    struct rg_list *node = rg_list_pop_front(&end->backlog);
    if (node != NULL) {
        struct rg_sim_end *accepted = RG_CONTAINER_OF(node, struct rg_sim_end, backlog_node);
        rg_sim_slot_complete(end, slot, accepted->fd);
    } else if (end->shut) {
        rg_sim_slot_complete(end, slot, -EINVAL);
    }
}

static void poke_send(struct rg_sim_end *end, struct rg_sim_slot *slot)
{
    struct rg_sim *sim = end->sim;
    struct rg_op *op = slot->op;
    if (end->shut || end_was_reset(end)) {
        bool tell = !end->shut && !end->reset_told;
        end->reset_told |= tell;
        rg_sim_slot_complete(end, slot, tell ? -ECONNRESET : -EPIPE);
        return;
    }
    RG_ASSERT(end->other != NULL);
    size_t on_the_way = end->other->in.size;
    size_t room = sim->options.window > on_the_way ? sim->options.window - on_the_way : 0;
    size_t size = RG_MIN(room, op->size - op->progress);
    if (size == 0 || end->other->in.stalled) {
        return;
    }
    if (rg_sim_strikes(sim, RG_SIM_FAULT_NO_MEMORY)) {
        rg_sim_slot_complete(end, slot, -ENOMEM);
        return;
    }
    if (rg_sim_strikes(sim, RG_SIM_FAULT_SHORT_SEND)) {
        size = 1 + rg_sim_random_below(sim, size);
    }
    if (end->other->closed) {
        /* Nobody is there: the answer to data is a reset. */
        rg_sim_pipe_append(end, RG_SIM_CHUNK_RESET, NULL, 0);
    } else {
        rg_sim_pipe_write(end->other, (const uint8_t *)op->data + op->progress, size);
    }
    op->progress += (uint32_t)size;
    if (op->progress == op->size) {
        rg_sim_slot_complete(end, slot, (int32_t)op->size);
    } else {
        rg_sim_end_poke_at(end, sim->now_ns + sim->options.latency_ns);
    }
}

void rg_sim_end_go(struct rg_sim_end *end)
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
    rg_sim_trace(end->sim, reset ? "peer saw reset" : "peer saw end", end->id, 0);
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
        if (chunk->kind != RG_SIM_CHUNK_DATA) {
            script_ended(end, chunk->kind == RG_SIM_CHUNK_RESET);
            break;
        }
        rg_list_remove(&chunk->node);
        end->in.size -= chunk->size;
        rg_sim_trace(end->sim, "peer got", end->id, (int64_t)chunk->size);
        if (!end->shut) {
            end->service->received(end, chunk->data + chunk->offset, chunk->size);
        } else {
            /* Nobody is there: the answer to data is a reset. */
            rg_sim_pipe_append(end->other, RG_SIM_CHUNK_RESET, NULL, 0);
        }
        free(chunk);
        rg_sim_end_poke_at(end->other, end->sim->now_ns);
    }
    if (end->shut && (end->end_told || end->other->closed)) {
        rg_sim_end_go(end);
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
    struct rg_sim_slot *reading = &end->slots[RG_SIM_READING],
                       *writing = &end->slots[RG_SIM_WRITING];
    if (reading->op != NULL && !reading->completing) {
        (reading->op->kind == RG_OP_ACCEPT ? poke_accept : poke_recv)(end, reading);
    }
    if (writing->op != NULL && !writing->completing && writing->op->kind == RG_OP_SEND) {
        poke_send(end, writing);
    }
}
