/* Ends of connections in the simulation, and the pipes between them.
 *
 * An end is a socket, which a loop drives, or scripted; it is connected when `other` is set, and it
 * lives until the simulation is destroyed. Every change of it comes from an event, from its loop,
 * or from its script; what one end does to the other goes through the queue of events, so that
 * nothing recurses: it is *poked*, and then looks at what has arrived, at what there is room for,
 * and at what its ops or its script make of that. */
#ifndef RG_TESTS_SUPPORT_SIM_END_H
#define RG_TESTS_SUPPORT_SIM_END_H

#include "tests/support/sim_world.h"

enum rg_sim_chunk_kind { RG_SIM_CHUNK_DATA, RG_SIM_CHUNK_FIN, RG_SIM_CHUNK_RESET };

/* One direction of a connection, kept at the receiving end. */
struct rg_sim_pipe {
    struct rg_list chunks;
    size_t size; /* bytes in it */
    uint64_t last_arrive_ns;
    bool fin, reset; /* in it, as the last chunks, in this order */
    bool stalled;    /* what is written is lost */
};

/* An op in flight; completing: its result is known. */
struct rg_sim_slot {
    struct rg_op *op;
    uint64_t serial; /* of the op, so that late events cannot hit the next one */
    bool completing;
    struct rg_list completion; /* in the loop's list */
    uint8_t *data;             /* of a RECV */
    uint64_t send_hash;
};
enum { RG_SIM_READING, RG_SIM_WRITING };

struct rg_sim_loop;

struct rg_sim_end {
    struct rg_sim *sim;
    struct rg_list node;
    uint32_t id;
    struct rg_sim_end *other; /* NULL until connected */
    struct rg_sim_pipe in;
    bool closed;     /* by its owner */
    bool shut;       /* both directions, by its owner */
    bool reset_told; /* the one ECONNRESET was given out */
    /* Sockets. */
    int fd;
    struct rg_socket *socket;
    struct rg_sim_loop *loop;
    struct rg_sim_slot slots[2];
    struct rg_sim_listener *listener; /* of a listening one */
    struct rg_list backlog, backlog_node;
    /* Scripted. */
    const struct rg_sim_service *service;
    void *context, *state;
    bool paused, end_told, gone;
};

/* A loop whose backend is the simulation: one of those that rg_sim_run drives. */
struct rg_sim_loop {
    struct rg_sim *sim;
    struct rg_loop *loop;
    struct rg_list node;
    struct rg_list completions; /* slots */
    uint8_t *lent;              /* freed by recycle */
    uint64_t wake_ns;           /* what the last wait was asked for */
    bool woken, busy;
};

struct rg_sim_end *rg_sim_end_create(struct rg_sim *sim);
/* Tells a scripted end, once, that nothing more comes. */
void rg_sim_end_go(struct rg_sim_end *end);
/* The end looks, at that time, at what it can do. */
void rg_sim_end_poke_at(struct rg_sim_end *end, uint64_t at_ns);
/* Bytes that have arrived and can be read now. */
size_t rg_sim_end_readable(const struct rg_sim_end *end);

/* Bytes, or the end of them, on their way to an end; nothing happens to them there. */
void rg_sim_pipe_append(struct rg_sim_end *to, enum rg_sim_chunk_kind kind, const uint8_t *data,
                        size_t size);
/* Bytes on their way to an end, with what may happen to them there. */
void rg_sim_pipe_write(struct rg_sim_end *to, const uint8_t *data, size_t size);
void rg_sim_pipe_clear(struct rg_sim_pipe *pipe);

/* The result of an op is known; its loop is told in its next pass. */
void rg_sim_slot_complete(struct rg_sim_end *end, struct rg_sim_slot *slot, int32_t result);

#endif
