/* What the library counts, as tuples that ringest/_metrics.py gives names to. */
#include "core.h"

#include <ringest/metrics.h>
#include <stdlib.h>

/* None, or (sum, p50, p99, p999, max, buckets), in ns. */
static PyObject *histogram_tuple(const struct rg_metric *metric)
{
    if (metric->kind != RG_METRIC_HISTOGRAM) {
        Py_RETURN_NONE;
    }
    PyObject *buckets = PyTuple_New(RG_METRIC_BUCKETS);
    for (Py_ssize_t i = 0; buckets != NULL && i < RG_METRIC_BUCKETS; i++) {
        PyObject *count = PyLong_FromUnsignedLongLong(metric->buckets[i]);
        if (count == NULL || PyTuple_SetItem(buckets, i, count) < 0) {
            Py_CLEAR(buckets);
        }
    }
    if (buckets == NULL) {
        return NULL;
    }
    const struct rg_latency *durations = &metric->durations;
    return Py_BuildValue(
        "(KKKKKN)", (unsigned long long)metric->sum_ns, (unsigned long long)durations->p50_ns,
        (unsigned long long)durations->p99_ns, (unsigned long long)durations->p999_ns,
        (unsigned long long)durations->max_ns, buckets);
}

static PyObject *metric_tuple(const struct rg_metric *metric)
{
    static const char *const kinds[] = {
        [RG_METRIC_COUNTER] = "counter",
        [RG_METRIC_GAUGE] = "gauge",
        [RG_METRIC_HISTOGRAM] = "histogram",
    };
    PyObject *histogram = histogram_tuple(metric);
    return histogram == NULL
               ? NULL
               : Py_BuildValue("(sssszzKN)", metric->name, kinds[metric->kind], metric->unit,
                               metric->text, metric->operation, metric->status,
                               (unsigned long long)metric->value, histogram);
}

/* A list of them; NULL after an exception. */
static PyObject *metrics_list(const struct rg_metric *metrics, int count)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; i < count && list != NULL; i++) {
        PyObject *one = metric_tuple(&metrics[i]);
        if (one == NULL || PyList_Append(list, one) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(one);
    }
    return list;
}

static PyObject *metrics_of(const struct rg_runtime *runtime)
{
    struct rg_metric *metrics = calloc(RG_METRICS_MAX, sizeof(*metrics));
    if (metrics == NULL) {
        return PyErr_NoMemory();
    }
    int count;
    Py_BEGIN_ALLOW_THREADS;
    count = rg_metrics_snapshot(runtime, metrics, RG_METRICS_MAX);
    Py_END_ALLOW_THREADS;
    PyObject *list = count < 0 ? core_errno_raise(count, "adding up what was counted")
                               : metrics_list(metrics, count);
    free(metrics);
    return list;
}

PyObject *core_metrics(PyObject *module, PyObject *nothing)
{
    CORE_ENTER();
    (void)module, (void)nothing;
    return metrics_of(NULL);
}

PyObject *core_client_checkpoint_took(PyObject *client, PyObject *args)
{
    CORE_ENTER();
    int part;
    unsigned long long ns;
    struct core_session *session;
    if (!PyArg_ParseTuple(args, "iK:_checkpoint_took", &part, &ns) ||
        (session = core_client_session(client)) == NULL) {
        return NULL;
    }
    rg_checkpoint_took(session->runtime, (enum rg_checkpoint_part)part, ns);
    core_session_unref(session);
    Py_RETURN_NONE;
}

PyObject *core_client_metrics(PyObject *client, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct core_session *session = core_client_session(client);
    if (session == NULL) {
        return NULL;
    }
    PyObject *list = metrics_of(session->runtime);
    core_session_unref(session);
    return list;
}
