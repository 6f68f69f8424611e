/* The third backend of the op layer: a simulated network in virtual time, for tests.
 *
 * Vocabulary. A *simulation* has a clock, a network and a seed. Any number of loops belong to it
 * (those created with rg_sim_backend and the simulation as backend_context); one test thread drives
 * them all with rg_sim_run. An *end* is one side of a connection. It is either a socket, which a
 * loop drives through ops, or scripted: a *service* of the test is told what arrives and says what
 * to send. Two sockets may be connected to each other, so a client and a server of ours can meet
 * here.
 *
 * There are no file descriptors: the numbers are made up, and a system call on one fails.
 *
 * Nothing here depends on anything but the seed and the test, so a run can be repeated to the byte;
 * rg_sim_hash tells whether two runs were the same. A simulation that was not destroyed when the
 * program ends, or that dies in an assertion, was in a failing test: its seed and the last of what
 * happened in it are printed.
 *
 * What it checks of the owners of ops, beside what the op layer asserts: received bytes are fresh
 * memory that is freed when `done` has returned, memory of a receive in flight is overwritten, and
 * bytes that are being sent must be the same when the send is done. */
#ifndef RG_TESTS_SUPPORT_SIM_H
#define RG_TESTS_SUPPORT_SIM_H

#include "runtime/loop.h"

#include <stdio.h>

extern const struct rg_backend_ops rg_sim_backend;

/* What can go wrong: when it can, each kind does with its own probability. */
#define RG_SIM_FAULTS(XX)                                                                          \
    XX(SHORT_RECV)      /* a receive gives fewer bytes than are there */                           \
    XX(SHORT_SEND)      /* a send goes out in pieces */                                            \
    XX(LATE)            /* written bytes take up to RG_SIM_LATE_NS_MAX longer */                   \
    XX(SHUFFLE)         /* ops that finish together are told in random order */                    \
    XX(RESET)           /* both sides see a reset at a random byte of what was written */          \
    XX(FIN)             /* the stream ends at a random byte of what was written */                 \
    XX(STALL)           /* from a random byte on nothing arrives any more */                       \
    XX(CORRUPT)         /* a bit of what was written is flipped */                                 \
    XX(CANCEL_LATE)     /* a cancellation takes effect later; meanwhile the op may succeed */      \
    XX(NO_MEMORY)       /* a send or receive fails with ENOBUFS or ENOMEM */                       \
    XX(CONNECT_REFUSED) /* ECONNREFUSED */                                                         \
    XX(CONNECT_TIMEOUT) /* no answer at all; ETIMEDOUT after RG_SIM_CONNECT_NS_MAX */              \
    XX(CONNECT_SLOW)    /* takes up to RG_SIM_LATE_NS_MAX longer */                                \
    XX(NO_DESCRIPTORS)  /* EMFILE when a socket is opened */

enum rg_sim_fault {
#define XX(name) RG_SIM_FAULT_##name,
    RG_SIM_FAULTS(XX)
#undef XX
        RG_SIM_FAULT_COUNT
};

#define RG_SIM_LATE_NS_MAX (3 * RG_NS_PER_S)
#define RG_SIM_CONNECT_NS_MAX (127 * RG_NS_PER_S)
#define RG_SIM_ALWAYS 1000000 /* parts per million */

struct rg_sim_options {
    uint64_t seed;
    uint64_t latency_ns; /* one way; 0: 100 us */
    size_t window;       /* bytes that a sending socket may have on the way; 0: 256 KiB */
    size_t segment;      /* bytes that arrive together at most; 0: all that were written together */
    uint32_t faults[RG_SIM_FAULT_COUNT]; /* parts per million */
};

struct rg_sim;
struct rg_sim_end;

/* A scripted peer. All members but received may be NULL. */
struct rg_sim_service {
    void (*connected)(struct rg_sim_end *end);
    void (*received)(struct rg_sim_end *end, const uint8_t *data, size_t size);
    /* The other side sends nothing any more; with `reset` it also receives nothing. Once. Without
     * this member the end closes itself. */
    void (*ended)(struct rg_sim_end *end, bool reset);
    /* The last call for this end: free its state. */
    void (*gone)(struct rg_sim_end *end);
};

struct rg_sim *rg_sim_create(const struct rg_sim_options *options);
/* After the loops. NULL is fine. */
void rg_sim_destroy(struct rg_sim *sim);

/* Makes time pass: events happen, loops pass. Until `done(context)` holds (true), or until_ns
 * (false). `done` may be NULL. */
bool rg_sim_run(struct rg_sim *sim, uint64_t until_ns, bool (*done)(void *context), void *context);
uint64_t rg_sim_now_ns(const struct rg_sim *sim);
/* Calls function(context) at that time from now. */
void rg_sim_after(struct rg_sim *sim, uint64_t delay_ns, void (*function)(void *context),
                  void *context);
/* Uniform in [0, bound), from the seed. */
uint64_t rg_sim_random_below(struct rg_sim *sim, uint64_t bound);

/* Puts a service at an address, or takes it away (NULL). Without one, connections are refused. */
void rg_sim_listen(struct rg_sim *sim, const struct sockaddr *address,
                   const struct rg_sim_service *service, void *context);
/* The made-up descriptor of a listening socket at an address, to be adopted by a loop. */
int rg_sim_listen_fd(struct rg_sim *sim, const struct sockaddr *address);
/* From now on connections to the address are made after that time beyond the network's, or
 * (RG_FOREVER) are never answered. */
void rg_sim_delay_connections(struct rg_sim *sim, const struct sockaddr *address,
                              uint64_t delay_ns);

/* For scripted ends. What was given to rg_sim_listen, and a place for the end's own state. */
void *rg_sim_end_context(const struct rg_sim_end *end);
void **rg_sim_end_state(struct rg_sim_end *end);
struct rg_sim *rg_sim_end_sim(const struct rg_sim_end *end);
/* Writes are copied and never wait; after closing they are dropped. */
void rg_sim_write(struct rg_sim_end *end, const void *data, size_t size);
void rg_sim_write_after(struct rg_sim_end *end, uint64_t delay_ns, const void *data, size_t size);
void rg_sim_close(struct rg_sim_end *end); /* FIN, behind what was written */
void rg_sim_reset(struct rg_sim_end *end); /* RST */
/* Stops reading: the other side's sends block when the window is full. */
void rg_sim_pause(struct rg_sim_end *end);
void rg_sim_resume(struct rg_sim_end *end);

/* Sockets that are open now, in all loops. */
uint32_t rg_sim_socket_count(const struct rg_sim *sim);
uint64_t rg_sim_fault_count(const struct rg_sim *sim, enum rg_sim_fault fault);
/* A digest of everything that happened so far. */
uint64_t rg_sim_hash(const struct rg_sim *sim);
void rg_sim_print_trace(const struct rg_sim *sim, FILE *file);

#endif
