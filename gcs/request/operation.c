/* See operation.h. */
#include "gcs/request/operation.h"

#include <stdarg.h>
#include <stdio.h>

static struct rg_loop *loop_of(const struct rg_operation *operation)
{
    return operation->request->client_loop->loop;
}

/* Which states may come after which. */
static bool may_follow(enum rg_operation_state from, enum rg_operation_state to)
{
    static const uint8_t next[] = {
        [RG_OPERATION_IDLE] = 1 << RG_OPERATION_RUNNING,
        [RG_OPERATION_RUNNING] = 1 << RG_OPERATION_STOPPING | 1 << RG_OPERATION_ENDED,
        [RG_OPERATION_STOPPING] = 1 << RG_OPERATION_VERIFYING,
        [RG_OPERATION_VERIFYING] = 1 << RG_OPERATION_RUNNING | 1 << RG_OPERATION_CLEANING,
        [RG_OPERATION_CLEANING] = 1 << RG_OPERATION_ENDED,
        [RG_OPERATION_ENDED] = 0,
    };
    return (next[from] & 1 << to) != 0;
}

/* An operation has a cause while it is being stopped and no other time. What has ended has nothing
 * out and no task that could still run. */
static bool invariants(const struct rg_operation *operation)
{
    bool is_stopped =
        operation->state >= RG_OPERATION_STOPPING && operation->state <= RG_OPERATION_CLEANING;
    bool is_over = operation->state == RG_OPERATION_IDLE || operation->state == RG_OPERATION_ENDED;
    return (!is_stopped || operation->stopped_by != RG_STATUS_OK) &&
           (operation->state != RG_OPERATION_RUNNING || operation->stopped_by == RG_STATUS_OK) &&
           (!is_over || (operation->out == 0 && !rg_list_linked(&operation->task.node) &&
                         !rg_operation_waits_for_memory(operation)));
}

static void state_set(struct rg_operation *operation, enum rg_operation_state state)
{
    RG_ASSERT(may_follow(operation->state, state));
    operation->state = state;
    if (state == RG_OPERATION_ENDED) {
        rg_loop_undefer(&operation->task);
    }
    if (state != RG_OPERATION_RUNNING) {
        rg_loop_undefer(&operation->memory);
    }
    if (operation->ops->changed != NULL) {
        operation->ops->changed(operation);
    }
    RG_VERIFY(invariants(operation));
}

void rg_operation_wake(struct rg_operation *operation)
{
    RG_ASSERT(operation->state != RG_OPERATION_IDLE && operation->state != RG_OPERATION_ENDED);
    rg_loop_defer(loop_of(operation), &operation->task);
}

/* Nothing more can be done: the operation fails, and is freed. */
static void end_failed(struct rg_operation *operation)
{
    struct rg_request *request = operation->request;
    enum rg_status status = operation->stopped_by;
    state_set(operation, RG_OPERATION_ENDED);
    rg_request_note(request, status, "%s", "");
    rg_request_fail(request);
}

/* One step of an operation that was stopped and has nothing out. False: it has to wait, or is gone.
 */
static bool stopped_step(struct rg_operation *operation)
{
    const struct rg_operation_ops *ops = operation->ops;
    if (operation->state == RG_OPERATION_STOPPING) {
        state_set(operation, RG_OPERATION_VERIFYING);
        if (ops->verify != NULL) {
            ops->verify(operation);
        }
        return true;
    }
    if (operation->state == RG_OPERATION_VERIFYING) {
        state_set(operation, RG_OPERATION_CLEANING);
        return true;
    }
    if ((ops->clean == NULL || !ops->clean(operation)) && operation->out == 0) {
        end_failed(operation);
    }
    return false;
}

static void task_run(struct rg_task *task)
{
    struct rg_operation *operation = RG_CONTAINER_OF(task, struct rg_operation, task);
    if (operation->must_stop) {
        operation->must_stop = false;
        if (operation->ops->stop != NULL) {
            operation->ops->stop(operation, operation->hurry);
        }
    }
    if (operation->state == RG_OPERATION_RUNNING) {
        operation->ops->advance(operation);
        return;
    }
    while (operation->out == 0 && operation->state != RG_OPERATION_RUNNING &&
           stopped_step(operation)) {
    }
}

static void memory_run(struct rg_task *task)
{
    struct rg_operation *operation = RG_CONTAINER_OF(task, struct rg_operation, memory);
    RG_ASSERT(operation->state == RG_OPERATION_RUNNING);
    operation->ops->advance(operation);
}

struct rg_lease *rg_operation_take_slab(struct rg_operation *operation, size_t size)
{
    RG_ASSERT(operation->state == RG_OPERATION_RUNNING);
    RG_ASSERT(!rg_operation_waits_for_memory(operation));
    return rg_loop_take_slab(loop_of(operation), size, &operation->memory);
}

void rg_operation_init(struct rg_operation *operation, const struct rg_operation_ops *ops,
                       struct rg_request *request)
{
    RG_ASSERT(ops->advance != NULL && ops->free != NULL);
    *operation = (struct rg_operation){
        .request = request, .ops = ops, .task.run = task_run, .memory.run = memory_run};
    request->operation = operation;
}

void rg_operation_start(struct rg_request *request)
{
    state_set(request->operation, RG_OPERATION_RUNNING);
    rg_operation_wake(request->operation);
}

void rg_operation_stop(struct rg_operation *operation, enum rg_status status)
{
    RG_ASSERT(status != RG_STATUS_OK);
    if (operation->state != RG_OPERATION_RUNNING) {
        return;
    }
    operation->stopped_by = status;
    operation->must_stop = true;
    state_set(operation, RG_OPERATION_STOPPING);
    rg_operation_wake(operation);
}

void rg_operation_hurry(struct rg_operation *operation)
{
    operation->must_stop = operation->hurry = true;
    rg_operation_wake(operation);
}

void rg_operation_cancel(struct rg_request *request, enum rg_status status)
{
    struct rg_operation *operation = request->operation;
    if (operation->state != RG_OPERATION_RUNNING) {
        /* It ends anyway; where there is no time for that, it ends at once. */
        if (status == RG_STATUS_CLOSED) {
            rg_operation_hurry(operation);
        }
    } else if (operation->ops->cancel != NULL) {
        operation->ops->cancel(operation, status);
    } else {
        rg_operation_stop(operation, status);
    }
}

void rg_operation_release(struct rg_request *request)
{
    struct rg_operation *operation = request->operation;
    request->operation = NULL;
    operation->ops->free(operation);
}

bool rg_operation_child_start(struct rg_operation *operation, struct rg_request *child)
{
    if (!rg_request_start(child)) {
        child->ops->release(child);
        rg_operation_fail(operation, RG_STATUS_CLOSED, "%s", "");
        return false;
    }
    rg_operation_child_started(operation);
    return true;
}

void rg_operation_child_started(struct rg_operation *operation)
{
    operation->out++;
}

void rg_operation_child_ended(struct rg_operation *operation, const struct rg_request *child)
{
    struct rg_request *request = operation->request;
    RG_ASSERT(operation->out > 0);
    operation->out--;
    if (child != NULL) {
        uint32_t attempts = (uint32_t)request->attempts + child->attempts;
        request->attempts = (uint16_t)RG_MIN(attempts, (uint32_t)UINT16_MAX);
        request->started_ns = request->started_ns == 0 ? child->started_ns : request->started_ns;
    }
    if (child != NULL || operation->state != RG_OPERATION_RUNNING) {
        rg_operation_wake(operation);
    }
}

void rg_operation_finish(struct rg_operation *operation, struct rg_completion *completion)
{
    RG_ASSERT(operation->out == 0 && operation->state == RG_OPERATION_RUNNING);
    state_set(operation, RG_OPERATION_ENDED);
    rg_request_finish(operation->request, completion);
}

void rg_operation_fail(struct rg_operation *operation, enum rg_status status, const char *format,
                       ...)
{
    char text[sizeof(operation->request->failure.text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    rg_request_note(operation->request, status, "%s", text);
    rg_operation_stop(operation, status);
}

void rg_operation_fail_by(struct rg_operation *operation, const struct rg_request *child)
{
    rg_request_note_child(operation->request, child);
    rg_request_note(operation->request, RG_STATUS_UNEXPECTED, "%s", "");
    rg_operation_stop(operation, operation->request->failure.status);
}

void rg_operation_resume(struct rg_operation *operation)
{
    struct rg_request *request = operation->request;
    request->failure.status = RG_STATUS_OK;
    request->failure.text[0] = '\0';
    operation->stopped_by = RG_STATUS_OK;
    state_set(operation, RG_OPERATION_RUNNING);
    rg_operation_wake(operation);
}
