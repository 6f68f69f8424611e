/* Bases: what of an epoch was consumed, by the states of many readers (rg_base). */
#include "core.h"

/* The bytes of one member of a pair, or None. False with an exception. */
static bool bytes_of(PyObject *pair, Py_ssize_t place, const void **out_data, size_t *out_size)
{
    PyObject *object = PyTuple_GetItem(pair, place);
    char *data = NULL;
    Py_ssize_t size = 0;
    if (object == NULL ||
        (object != Py_None && PyBytes_AsStringAndSize(object, &data, &size) < 0)) {
        return false;
    }
    *out_data = data;
    *out_size = (size_t)size;
    return true;
}

/* From a list of (state, base), whose bytes the result borrows. NULL with an exception. */
static struct rg_saved *saved_parse(PyObject *list, Py_ssize_t count)
{
    struct rg_saved *saved = PyMem_Calloc((size_t)count + 1, sizeof(*saved));
    if (saved == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyList_GetItem(list, i);
        if (!bytes_of(pair, 0, &saved[i].state, &saved[i].state_size) ||
            !bytes_of(pair, 1, &saved[i].base, &saved[i].base_size)) {
            PyMem_Free(saved);
            return NULL;
        }
    }
    return saved;
}

PyObject *core_base_unite(PyObject *module, PyObject *args)
{
    CORE_ENTER();
    (void)module;
    PyObject *list;
    int all_ranks;
    if (!PyArg_ParseTuple(args, "O!p:unite", &PyList_Type, &list, &all_ranks)) {
        return NULL;
    }
    Py_ssize_t count = PyList_Size(list);
    struct rg_saved *saved = saved_parse(list, count);
    if (saved == NULL) {
        return NULL;
    }
    struct rg_base *base = NULL;
    char error[512] = "";
    int rc = rg_base_open(&base, saved, (size_t)count, all_ranks != 0, error, sizeof(error));
    PyMem_Free(saved);
    if (rc < 0) {
        return core_errno_raise(rc, error);
    }
    size_t size;
    const void *data = rg_base_data(base, &size);
    PyObject *bytes = PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
    rg_base_close(base);
    return bytes;
}
