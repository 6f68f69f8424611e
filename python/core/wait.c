/* Waiting for completions: with signals handled, other threads running, and an end where nothing
 * can come any more because the caller holds all memory. */
#include "core.h"

#include <errno.h>
#include <time.h>

#define CLIENT_FULL_PAUSE_NS (1000 * 1000)

int core_queue_open(struct core_session *session, uint32_t capacity, struct rg_cq **out_cq)
{
    int rc = rg_cq_open(out_cq, session->runtime, capacity);
    if (rc < 0) {
        core_errno_raise(rc, "opening a completion queue");
    }
    return rc;
}

int core_wait_slice(struct rg_cq *cq, struct rg_completion *out, uint32_t max, uint32_t min)
{
    int count;
    Py_BEGIN_ALLOW_THREADS count = rg_cq_wait(cq, out, max, min, rg_now_ns() + CORE_WAIT_NS);
    Py_END_ALLOW_THREADS if (count > 0)
    {
        return count;
    }
    if (count != -ETIME && count != -EINTR) {
        core_errno_raise(count, "waiting for completions");
        return -1;
    }
    return PyErr_CheckSignals() < 0 ? -1 : 0;
}

int core_wait(struct rg_cq *cq, struct rg_completion *out, uint32_t max)
{
    int count;
    do {
        count = core_wait_slice(cq, out, max, 1);
    } while (count == 0);
    return count;
}

void core_client_full_pause(void)
{
    struct timespec pause = {.tv_nsec = CLIENT_FULL_PAUSE_NS};
    Py_BEGIN_ALLOW_THREADS(void) nanosleep(&pause, NULL);
    Py_END_ALLOW_THREADS
}

bool core_memory_is_short(struct core_session *session)
{
    struct rg_stats stats = {0};
    (void)rg_runtime_stats(session->runtime, &stats);
    return stats.starved_loops > 0;
}

int core_memory_check(struct core_session *session, uint64_t since_ns)
{
    if (rg_now_ns() - since_ns < session->patience_ns || session->held_bytes == 0 ||
        !core_memory_is_short(session)) {
        return 0;
    }
    PyErr_Format(PyExc_MemoryError,
                 "Buffers of %llu bytes that are still referred to leave no room in the client's "
                 "memory: let go of them, or use Client(memory=...)",
                 (unsigned long long)session->held_bytes);
    return -1;
}

int core_wait_for_one(struct core_session *session, struct rg_cq *cq,
                      struct rg_completion *out_done)
{
    uint64_t since_ns = rg_now_ns();
    for (;;) {
        int count = core_wait_slice(cq, out_done, 1, 1);
        if (count != 0) {
            return count;
        }
        if (core_memory_check(session, since_ns) < 0) {
            return -1;
        }
    }
}

void core_drain(struct core_session *session, struct rg_cq *cq, uint64_t first, uint64_t end,
                uint64_t out_count)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_BEGIN_ALLOW_THREADS for (uint64_t number = first; number < end && out_count > 0; number++)
    {
        (void)rg_cancel(session->client, cq, number);
    }
    while (out_count > 0) {
        struct rg_completion done;
        if (rg_cq_wait(cq, &done, 1, 1, RG_FOREVER) == 1) {
            rg_lease_release(done.lease);
            out_count--;
        }
    }
    Py_END_ALLOW_THREADS PyErr_Restore(type, value, trace);
}
