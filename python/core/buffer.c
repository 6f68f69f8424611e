/* Buffer: one lease as bytes, without a copy. The lease goes back when the last view of it is gone.
 * Ranges that were read together are Buffers of one lease, which another Buffer of theirs holds.
 *
 * Also a producer of DLPack capsules (the protocol of dlpack.h 0.8, "Python Specification for
 * DLPack"), for torch.from_dlpack and numpy.from_dlpack. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *core_buffer_type;

struct buffer {
    PyObject_HEAD struct core_session *session;
    struct rg_lease *lease;
    PyObject *owner; /* the Buffer whose lease this is a part of, or NULL */
    uint64_t held;   /* what it adds to the session's held_bytes */
    const void *data;
    Py_ssize_t size;
};

static struct buffer *buffer_make(struct core_session *session, const void *data, uint64_t size)
{
    struct buffer *self = PyObject_New(struct buffer, core_buffer_type);
    if (self == NULL) {
        return NULL;
    }
    core_session_ref(session);
    session->held_bytes += size;
    self->held = size;
    self->session = session;
    self->lease = NULL;
    self->owner = NULL;
    self->data = data;
    self->size = (Py_ssize_t)size;
    return self;
}

PyObject *core_buffer_new(struct core_session *session, const struct rg_completion *completion)
{
    struct buffer *self = buffer_make(session, completion->data, completion->size);
    if (self == NULL) {
        rg_lease_release(completion->lease);
        return NULL;
    }
    self->lease = completion->lease;
    return (PyObject *)self;
}

PyObject *core_buffers_of_ranges(struct core_session *session,
                                 const struct rg_completion *completion, uint32_t count)
{
    const struct rg_range_result *results = completion->data;
    struct buffer *owner = buffer_make(session, completion->data, 0);
    if (owner == NULL) {
        rg_lease_release(completion->lease);
        return NULL;
    }
    owner->lease = completion->lease;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; i < count && list != NULL; i++) {
        struct buffer *part = buffer_make(session, results[i].data, results[i].size);
        if (part != NULL) {
            part->owner = Py_NewRef((PyObject *)owner);
        }
        if (part == NULL || PyList_SetItem(list, (Py_ssize_t)i, (PyObject *)part) < 0) {
            Py_CLEAR(list);
        }
    }
    Py_DECREF(owner);
    return list;
}

PyObject *core_buffer_slice(PyObject *object, uint64_t offset, uint64_t size)
{
    struct buffer *owner = (struct buffer *)object;
    if (offset > (uint64_t)owner->size || size > (uint64_t)owner->size - offset) {
        return PyErr_Format(PyExc_ValueError, "bytes %llu to %llu of a buffer of %zd",
                            (unsigned long long)offset, (unsigned long long)(offset + size),
                            owner->size);
    }
    struct buffer *self = buffer_make(owner->session, NULL, 0);
    if (self == NULL) {
        return NULL;
    }
    self->owner = Py_NewRef(object);
    self->data = size > 0 ? (const char *)owner->data + offset : NULL;
    self->size = (Py_ssize_t)size;
    return (PyObject *)self;
}

static void buffer_dealloc(PyObject *object)
{
    struct buffer *self = (struct buffer *)object;
    PyTypeObject *type = Py_TYPE(object);
    /* A child of fork reads its parent's leases and leaves them alone. */
    if (core_session_is_own(self->session)) {
        rg_lease_release(self->lease);
    }
    Py_XDECREF(self->owner);
    self->session->held_bytes -= self->held;
    core_session_unref(self->session);
    PyObject_Free(object);
    Py_DECREF(type);
}

static int buffer_get(PyObject *object, Py_buffer *view, int flags)
{
    struct buffer *self = (struct buffer *)object;
    /* Writable, as training code normalizes in place; nobody else has this memory. */
    static char nothing;
    void *data = self->size > 0 ? (void *)(uintptr_t)self->data : &nothing;
    return PyBuffer_FillInfo(view, object, data, self->size, 0, flags);
}

static Py_ssize_t buffer_length(PyObject *object)
{
    return ((struct buffer *)object)->size;
}

static PyObject *buffer_subscript(PyObject *object, PyObject *key)
{
    PyObject *view = PyMemoryView_FromObject(object);
    PyObject *result = view != NULL ? PyObject_GetItem(view, key) : NULL;
    Py_XDECREF(view);
    return result;
}

static PyObject *buffer_compare(PyObject *object, PyObject *other, int op)
{
    struct buffer *self = (struct buffer *)object;
    Py_buffer view;
    if ((op != Py_EQ && op != Py_NE) || PyObject_GetBuffer(other, &view, PyBUF_SIMPLE) < 0) {
        PyErr_Clear();
        Py_RETURN_NOTIMPLEMENTED;
    }
    bool equal = view.len == self->size &&
                 (view.len == 0 || memcmp(view.buf, self->data, (size_t)view.len) == 0);
    PyBuffer_Release(&view);
    return PyBool_FromLong(equal == (op == Py_EQ));
}

static PyObject *buffer_repr(PyObject *object)
{
    return PyUnicode_FromFormat("<ringest.Buffer of %zd bytes>", buffer_length(object));
}

/* The structs of dlpack.h, version 0.8. */
struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t dimensions;
    uint8_t type_code, type_bits;
    uint16_t type_lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct dl_managed_tensor {
    struct dl_tensor tensor;
    void *manager;
    void (*deleter)(struct dl_managed_tensor *self);
};
#define DL_CPU 1
#define DL_UINT 1

struct dl_export {
    struct dl_managed_tensor managed;
    int64_t shape;
    PyObject *buffer;
};

static void dlpack_delete(struct dl_managed_tensor *managed)
{
    struct dl_export *export = managed->manager;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(export->buffer);
    PyGILState_Release(state);
    free(export);
}

/* A capsule that nobody consumed still has its first name. */
static void capsule_delete(PyObject *capsule)
{
    struct dl_managed_tensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (managed == NULL) {
        PyErr_Clear();
        return;
    }
    managed->deleter(managed);
}

static PyObject *buffer_dlpack(PyObject *object, PyObject *args, PyObject *keywords)
{
    (void)args;
    (void)keywords; /* stream and copy: memory of the CPU has no streams */
    struct buffer *self = (struct buffer *)object;
    struct dl_export *export = calloc(1, sizeof(*export));
    if (export == NULL) {
        return PyErr_NoMemory();
    }
    export->shape = self->size;
    export->buffer = Py_NewRef(object);
    export->managed.manager = export;
    export->managed.deleter = dlpack_delete;
    export->managed.tensor.data = (void *)(uintptr_t)self->data;
    export->managed.tensor.device_type = DL_CPU;
    export->managed.tensor.dimensions = 1;
    export->managed.tensor.type_code = DL_UINT;
    export->managed.tensor.type_bits = 8;
    export->managed.tensor.type_lanes = 1;
    export->managed.tensor.shape = &export->shape;
    PyObject *capsule = PyCapsule_New(&export->managed, "dltensor", capsule_delete);
    if (capsule == NULL) {
        dlpack_delete(&export->managed);
    }
    return capsule;
}

static PyObject *buffer_dlpack_device(PyObject *object, PyObject *nothing)
{
    (void)object;
    (void)nothing;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

/* Writable, like the Buffer. Without this a DataLoader's worker, whose thread that sends cannot
 * report what it cannot pickle, would leave its parent waiting for ever. */
static PyObject *buffer_reduce(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    const struct buffer *self = (const struct buffer *)object;
    return Py_BuildValue("(O(N))", (PyObject *)&PyByteArray_Type,
                         PyBytes_FromStringAndSize(self->data, self->size));
}

static PyMethodDef buffer_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))buffer_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A DLPack capsule of these bytes (uint8, one dimension), without a copy."},
    {"__dlpack_device__", buffer_dlpack_device, METH_NOARGS, "(kDLCPU, 0)"},
    {"__reduce__", buffer_reduce, METH_NOARGS, "Pickled, it becomes a bytearray with a copy."},
    {0},
};

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc,
     "Bytes of an object, in memory of the library: bytes-like, freed with the last view. Pickled, "
     "as by the workers of a DataLoader, it becomes a bytearray with a copy of them. "
     "Not to be made by hand."},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_tp_repr, buffer_repr},
    {Py_tp_richcompare, buffer_compare},
    {Py_tp_methods, buffer_methods},
    {Py_bf_getbuffer, buffer_get},
    {Py_mp_length, buffer_length},
    {Py_mp_subscript, buffer_subscript},
    {Py_sq_length, buffer_length},
    {0, NULL},
};
static PyType_Spec buffer_spec = {
    .name = "ringest._core.Buffer",
    .basicsize = sizeof(struct buffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = buffer_slots,
};

int core_buffer_register(PyObject *module)
{
    return core_type_add(module, &buffer_spec, &core_buffer_type);
}
