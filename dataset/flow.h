/* A reader that delivers into a queue of the caller's: see rg_reader_start.
 *
 *   intake: requests -> window --offer--> the caller's queue --took--> some thread
 *              ^                                                 |
 *              +----- refilled by whoever finds it due ----------+
 *
 * All of it moves in one place, the pump: it notes what was taken and what has come, makes the
 * requests that there is room for, and offers samples for which the queue has slots. It is due when
 * requests complete (the loop that has published them passes the baton, once for many if nobody
 * waits for them), when samples are taken (the taker does), when slots of the queue are free again,
 * when a thread finds too little in the queue, and at a tick of an alarm. The baton
 * (runtime/baton.h) keeps it to one thread at a time, and nobody waits.
 *
 *   FLOWING ------> ENDED       the last record is in the queue: the end, or that the client closed
 *      |              |
 *      +--> CLOSED <--+         the reader is gone
 *
 * Records that are still in the caller's queue then hold the flow; who takes the last of them
 * frees it.
 *
 * Order of locks: the reader's, a queue's or a client's list, the baton. A holder of the baton
 * takes no lock, but passes batons of queues. */
#ifndef RG_DATASET_FLOW_H
#define RG_DATASET_FLOW_H

#include "dataset/intake.h"

struct rg_flow;

/* Borrows the intake and the queue until rg_flow_stop. Nothing is delivered before
 * rg_flow_begin. Errors: -ENOMEM. */
int rg_flow_open(struct rg_flow **out_flow, struct rg_intake *intake, struct rg_cq *cq,
                 uint64_t user_data);
void rg_flow_begin(struct rg_flow *flow);
/* Between the two the window says what has been taken, and changes for nobody else. */
void rg_flow_hold(struct rg_flow *flow);
void rg_flow_let_go(struct rg_flow *flow);
/* Afterwards nothing is asked for and nothing delivered; loops may still find that out until the
 * intake is closed. Then it is dropped. Not the owner is a child of fork(), which only drops. */
void rg_flow_stop(struct rg_flow *flow);
void rg_flow_drop(struct rg_flow *flow, bool is_owner);

#endif
