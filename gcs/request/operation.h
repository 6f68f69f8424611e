/* An operation that takes several requests: an upload, a copy in steps, a batch, many ranges, a
 * listing.
 *
 *   IDLE -> RUNNING ----------------------------------------> ENDED  finished
 *            |   ^
 *            |   +---- it has been done all the same ----+
 *            v                                           |
 *         STOPPING -- nothing is out --> VERIFYING ------+
 *                                           |
 *                              nothing is out, it has not been done
 *                                           v
 *                                        CLEANING ----------> ENDED  failed
 *
 *   IDLE       it is made, and its request is on the way to the loop
 *   RUNNING    `advance` takes the next step
 *   STOPPING   it has failed or was cancelled, and waits for what is out
 *   VERIFYING  `verify` finds out whether what was under way has been done all the same
 *   CLEANING   `clean` removes what was left on the server
 *   ENDED      the request completes, and the operation is freed with it
 *
 * What is *out* are children (requests and calls) and reads of files. The end of one comes at any
 * time, also from within the call that cancels another. It therefore only notes what happened and
 * calls rg_operation_child_ended, which defers the operation's task. The task is the only place
 * where the next step is taken, so no event finds the operation in the middle of another. Deferring
 * allocates nothing; many events in one pass of the loop cost one run of the task.
 *
 * An operation that hands out many results (a listing) rests in RUNNING while nobody takes them:
 * nothing is out, and whoever asks for the next wakes it. It ends only by being stopped.
 *
 * An operation may wait for memory (rg_operation_take_slab). When there is some, `advance` runs at
 * once and not one pass later, behind all others that wait.
 *
 * The first failure is the request's: rg_request_note keeps it. An operation that is stopped
 * without a noted failure fails with the status that it was stopped with. */
#ifndef RG_GCS_REQUEST_OPERATION_H
#define RG_GCS_REQUEST_OPERATION_H

#include "gcs/request/request.h"

enum rg_operation_state {
    RG_OPERATION_IDLE = 0,
    RG_OPERATION_RUNNING,
    RG_OPERATION_STOPPING,
    RG_OPERATION_VERIFYING,
    RG_OPERATION_CLEANING,
    RG_OPERATION_ENDED,
};

/* What differs between operations. All but `cancel` and `free` run from a task; only `advance` and
 * `free` must be there. */
struct rg_operation_ops {
    /* RUNNING: takes the next step, or ends the operation by rg_operation_finish. */
    void (*advance)(struct rg_operation *operation);
    /* Cancels what is out. `hurry`: the client is being closed, so nothing may be waited for. */
    void (*stop)(struct rg_operation *operation, bool hurry);
    /* VERIFYING, once: may start a child that asks. Where it turns out that the operation has been
     * done, rg_operation_resume is called, here or when that child has ended. */
    void (*verify)(struct rg_operation *operation);
    /* CLEANING, whenever nothing is out: starts children that remove something. False: nothing is
     * left, or nothing more can be done about it. */
    bool (*clean)(struct rg_operation *operation);
    /* The state has changed. Must not end the operation. */
    void (*changed)(struct rg_operation *operation);
    /* The request is cancelled while the operation is RUNNING; NULL: rg_operation_stop. */
    void (*cancel)(struct rg_operation *operation, enum rg_status status);
    /* Frees the operation, which may never have been started. */
    void (*free)(struct rg_operation *operation);
};

struct rg_operation {
    struct rg_request *request;
    const struct rg_operation_ops *ops;
    enum rg_operation_state state;
    enum rg_status stopped_by; /* OK: it was not stopped */
    bool must_stop, hurry;     /* the task calls `stop` first */
    uint32_t out;
    struct rg_task task;
    struct rg_task memory; /* waits for a lease while it is linked */
};

/* Makes the operation of a request that has been prepared with the three functions below; from now
 * on the request's release frees it. */
void rg_operation_init(struct rg_operation *operation, const struct rg_operation_ops *ops,
                       struct rg_request *request);

/* For struct rg_request_ops. */
void rg_operation_start(struct rg_request *request);
void rg_operation_cancel(struct rg_request *request, enum rg_status status);
void rg_operation_release(struct rg_request *request);

/* Defers the task. */
void rg_operation_wake(struct rg_operation *operation);
/* A lease of at least `size` bytes, or NULL; then `advance` runs when there is memory, unless the
 * operation is stopped before. One wait at a time. */
struct rg_lease *rg_operation_take_slab(struct rg_operation *operation, size_t size);
static inline bool rg_operation_waits_for_memory(const struct rg_operation *operation)
{
    return rg_list_linked(&operation->memory.node);
}
/* Starts a prepared child. False: the client is being closed. The child has been released, and the
 * operation is stopped. */
bool rg_operation_child_start(struct rg_operation *operation, struct rg_request *child);
/* Something else was started that counts as a child: a call, or a read. */
void rg_operation_child_started(struct rg_operation *operation);
/* It has ended. Adds the attempts of a child to those of the operation. NULL: a read, of which many
 * make a part; whoever reads wakes a RUNNING operation when there is something to do. */
void rg_operation_child_ended(struct rg_operation *operation, const struct rg_request *child);

/* RUNNING: completes the request, which frees the operation. Nothing is out. */
void rg_operation_finish(struct rg_operation *operation, struct rg_completion *completion);
/* Stops a RUNNING operation; one that has been stopped stays as it is. */
void rg_operation_stop(struct rg_operation *operation, enum rg_status status);
/* The same, with a cause that is noted, printf-like, unless there is one already; or with a
 * child's. */
void rg_operation_fail(struct rg_operation *operation, enum rg_status status, const char *format,
                       ...) RG_PRINTF(3, 4);
void rg_operation_fail_by(struct rg_operation *operation, const struct rg_request *child);
/* Cancels what is out at once, whatever the state: the client is being closed. */
void rg_operation_hurry(struct rg_operation *operation);
/* VERIFYING: the operation has been done, and goes on as if it had not been stopped. */
void rg_operation_resume(struct rg_operation *operation);

#endif
