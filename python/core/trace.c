/* Traces of the library, as tuples that ringest/_trace.py writes to a file. */
#include "core.h"

#include <errno.h>
#include <ringest/trace.h>
#include <string.h>

PyObject *core_trace_begin(PyObject *module, PyObject *number)
{
    (void)module;
    CORE_ENTER();
    uint32_t max = 0;
    if (!core_number32(number, "events", 1, UINT32_MAX, &max)) {
        return NULL;
    }
    int rc;
    Py_BEGIN_ALLOW_THREADS;
    rc = rg_tracing_begin(max);
    Py_END_ALLOW_THREADS;
    if (rc < 0) {
        return core_errno_raise(rc, rc == -EBUSY ? "there is a trace already, and one at a time"
                                                 : "memory for a trace");
    }
    Py_RETURN_NONE;
}

static PyObject *event_tuple(const struct rg_trace_event *event)
{
    /* Names of programs in C may be other than UTF-8. */
    PyObject *name = PyUnicode_DecodeUTF8(event->name, (Py_ssize_t)strlen(event->name), "replace");
    return Py_BuildValue("(KKKKzsIIN)", (unsigned long long)event->at_ns,
                         (unsigned long long)event->took_ns, (unsigned long long)event->request,
                         (unsigned long long)event->connection, event->operation, event->what,
                         (unsigned)event->thread, (unsigned)event->attempts, name);
}

/* A list of what is there; NULL with an exception. */
static PyObject *events_list(uint32_t count)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; i < count && list != NULL; i++) {
        struct rg_trace_event event;
        if (!rg_tracing_get(i, &event)) {
            continue;
        }
        PyObject *one = event_tuple(&event);
        if (one == NULL || PyList_Append(list, one) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(one);
    }
    return list;
}

PyObject *core_trace_end(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    CORE_ENTER();
    uint32_t count;
    uint64_t dropped;
    int rc = rg_tracing_end(&count, &dropped);
    if (rc < 0) {
        return core_errno_raise(rc, "there is no trace");
    }
    PyObject *list = events_list(count);
    rg_tracing_free();
    return list != NULL ? Py_BuildValue("(NK)", list, (unsigned long long)dropped) : NULL;
}
