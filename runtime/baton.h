/* A lock for work that any thread may find to be due, and that no thread shall wait for.
 *
 * Who passes the baton either gets it and does the work, or leaves word and goes on: then the
 * holder does the work once more before it lets go. So an event loop never waits for a thread that
 * the system has suspended. Threads that may wait take the baton and give it back, like a lock.
 *
 *   rg_baton_pass: FREE -> HELD, work, -> FREE      or      HELD -> HELD and due, work, -> FREE
 *
 * Invariant: when the last holder has let go, no work is due. */
#ifndef RG_RUNTIME_BATON_H
#define RG_RUNTIME_BATON_H

#include "runtime/base.h"

#include <pthread.h>
#include <stdatomic.h>

struct rg_baton {
    pthread_mutex_t lock;
    _Atomic uint32_t due; /* word that was left; not 0: there is work */
    void (*work)(void *context);
    void *context;
};

void rg_baton_init(struct rg_baton *baton, void (*work)(void *context), void *context);
/* Not in a child of fork(), where a thread that is gone may hold it. */
void rg_baton_fini(struct rg_baton *baton);

/* Has work(context) begin after this call did: in this thread, or in the holder's. Any thread, also
 * from within the work. */
void rg_baton_pass(struct rg_baton *baton);

/* Between the two no work is done. Giving does what has become due meanwhile. */
void rg_baton_take(struct rg_baton *baton);
void rg_baton_give(struct rg_baton *baton);

#endif
