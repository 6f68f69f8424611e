/* Waiting: with signals handled, other threads running, and an end where nothing can come any more
 * because the process holds all memory.
 *
 * The rule for memory is here and nowhere else. A wait ends with a MemoryError when for the
 * client's memory_timeout
 *
 *   - nothing has come for it, and
 *   - at every look some request was waiting for memory, and
 *   - Buffers hold some, or windows of readers and iterators that nobody goes on with:
 *
 * whoever refers to them may be the one who waits, for ever. A call that needs next to no memory
 * itself (it writes, or reads into the caller's) is held up only where all connections are, so that
 * bytes that anybody gets or sends count as news for it: a large one may well take longer than the
 * limit between two completions. */
#include "core.h"

#include <errno.h>
#include <time.h>

#define CLIENT_FULL_PAUSE_NS (1000 * 1000)
/* Whoever waits longer for the end of what was cancelled is told what for. */
#define DRAIN_SILENT_NS (UINT64_C(1000) * 1000 * 1000)

int core_queue_open(struct core_session *session, uint32_t capacity, struct rg_cq **out_cq)
{
    int rc = rg_cq_open(out_cq, session->runtime, capacity);
    if (rc < 0) {
        core_errno_raise(rc, "opening a completion queue");
    }
    return rc;
}

int core_queue_borrow(struct core_session *session, struct rg_cq **out_cq)
{
    *out_cq = session->spare;
    session->spare = NULL;
    return *out_cq != NULL ? 0 : core_queue_open(session, 1, out_cq);
}

void core_queue_return(struct core_session *session, struct rg_cq *cq)
{
    struct rg_cq *surplus = cq;
    /* A signal's handler may have forked: then this is the child's copy of the parent's. */
    if (core_session_is_own(session)) {
        surplus = session->spare;
        session->spare = cq;
    }
    rg_cq_close(surplus);
}

bool core_memory_is_short(struct core_session *session)
{
    struct rg_stats stats = {0};
    (void)rg_runtime_stats(session->runtime, &stats);
    return stats.starved_loops > 0;
}

void core_watch_begin(struct core_watch *self, struct core_session *session, bool is_lean)
{
    *self = (struct core_watch){.session = session, .is_lean = is_lean};
    core_watch_news(self);
}

void core_watch_news(struct core_watch *self)
{
    self->quiet_since_ns = rg_now_ns();
}

bool core_watch_is_starved(struct core_watch *self)
{
    const struct core_session *session = self->session;
    struct rg_stats stats = {0};
    (void)rg_runtime_stats(session->runtime, &stats);
    uint64_t moved_bytes = stats.recv_bytes + stats.sent_bytes;
    bool flows = self->is_lean && moved_bytes != self->moved_bytes;
    self->moved_bytes = moved_bytes;
    if (stats.starved_loops == 0 || flows ||
        (core_session_held(session) == 0 && session->windows == 0)) {
        core_watch_news(self);
        return false;
    }
    return rg_now_ns() - self->quiet_since_ns >= session->patience_ns;
}

PyObject *core_memory_raise(const struct core_session *session)
{
    return PyErr_Format(PyExc_MemoryError,
                        "Buffers of %llu bytes that are still referred to, and %u readers or "
                        "iterators that nobody goes on with, leave no room in the client's memory: "
                        "let go of them, or use Client(memory=...)",
                        (unsigned long long)core_session_held(session), session->windows);
}

int core_watch_go_on(struct core_watch *self, const struct core_use *use)
{
    if (PyErr_CheckSignals() < 0 || (use != NULL && !core_use_goes_on(use))) {
        return -1;
    }
    if (core_watch_is_starved(self)) {
        core_memory_raise(self->session);
        return -1;
    }
    return 0;
}

int core_wait_slice(struct rg_cq *cq, struct rg_completion *out, uint32_t max, uint32_t min)
{
    int count;
    Py_BEGIN_ALLOW_THREADS count = rg_cq_wait(cq, out, max, min, rg_now_ns() + CORE_WAIT_NS);
    Py_END_ALLOW_THREADS if (count == -ETIME || count == -EINTR)
    {
        return 0;
    }
    if (count < 0) {
        core_errno_raise(count, "waiting for completions");
    }
    return count < 0 ? -1 : count;
}

int core_wait(struct core_watch *watch, const struct core_use *use, struct rg_cq *cq,
              struct rg_completion *out, uint32_t max)
{
    for (;;) {
        int count = core_wait_slice(cq, out, max, 1);
        if (count > 0) {
            core_watch_news(watch);
        }
        if (count != 0) {
            return count;
        }
        if (core_watch_go_on(watch, use) < 0) {
            return -1;
        }
    }
}

int core_client_full_wait(struct core_watch *watch, const struct core_use *use)
{
    struct timespec pause = {.tv_nsec = CLIENT_FULL_PAUSE_NS};
    Py_BEGIN_ALLOW_THREADS(void) nanosleep(&pause, NULL);
    Py_END_ALLOW_THREADS return core_watch_go_on(watch, use);
}

/* Takes what comes; how many are still out. */
static uint64_t drain_until(struct rg_cq *cq, uint64_t out_count, uint64_t deadline_ns)
{
    int count = 0;
    Py_BEGIN_ALLOW_THREADS while (out_count > 0 && count != -ETIME)
    {
        struct rg_completion done;
        count = rg_cq_wait(cq, &done, 1, 1, deadline_ns);
        if (count == 1) {
            rg_lease_release(done.lease);
            out_count--;
        }
    }
    Py_END_ALLOW_THREADS return out_count;
}

void core_drain(struct core_session *session, struct rg_cq *cq, uint64_t first, uint64_t end,
                uint64_t out_count)
{
    PyObject *type, *value, *trace;
    if (!core_session_is_own(session)) {
        return; /* a signal's handler has forked, and what is out is the parent's */
    }
    PyErr_Fetch(&type, &value, &trace);
    for (uint64_t number = first; number < end && out_count > 0; number++) {
        (void)rg_cancel(session->client, cq, number);
    }
    out_count = drain_until(cq, out_count, rg_now_ns() + DRAIN_SILENT_NS);
    if (out_count > 0) {
        core_drain_note(out_count);
        (void)drain_until(cq, out_count, RG_FOREVER);
    }
    PyErr_Restore(type, value, trace);
}
