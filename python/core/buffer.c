/* Buffer: one lease as bytes, without a copy. The lease goes back when the last view of it is gone.
 * Ranges that were read together are Buffers of one lease, which another Buffer of theirs holds.
 * Bytes that lie in several of them are read-only: nobody may find them changed by others. Those
 * of a lease that other processes read, too, are read-only in memory: who asks to write gets a
 * copy, which is the Buffer's from then on. Views from before keep what they have. A Buffer that
 * was unpickled has a copy of the bytes, and no session.
 *
 * Invariant, under the interpreter's lock: a Buffer has its memory by one of a lease of its own, a
 * share that has taken that lease, and another Buffer; or has no memory. It has a copy only if it
 * is not lent. What it adds to the session's held_bytes, the session has.
 *
 * Also a producer of DLPack capsules ("Python Specification for DLPack", versions 0 and 1), for
 * torch.from_dlpack and numpy.from_dlpack. What they keep is let go of by any thread, without the
 * interpreter's lock, and maybe after its end: so it is a share of the lease, which knows nothing
 * of Python, and not the Buffer. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static PyTypeObject *buffer_type;

struct buffer {
    PyObject_HEAD struct core_session *session; /* NULL: the bytes are a copy, in `share` */
    struct rg_lease *lease;
    struct core_share *share; /* that has the lease instead, since it was exported; or NULL */
    PyObject *owner;          /* the Buffer whose lease this is a part of, or NULL */
    struct core_share *copy;  /* of what was lent, since somebody asked to write; or NULL */
    uint64_t held;            /* what it adds to the session's held_bytes */
    const void *data;
    Py_ssize_t size;
    bool is_readonly;
    bool is_lent; /* `data` lies in a lease that is read-only */
};

static struct buffer *of(PyObject *object)
{
    return (struct buffer *)object;
}

static bool invariants(const struct buffer *self)
{
    int holders = (self->lease != NULL) + (self->share != NULL) + (self->owner != NULL);
    uint64_t counted = self->session != NULL ? self->session->held_bytes : 0;
    return holders <= 1 && !(self->is_lent && self->copy != NULL) && self->held <= counted &&
           self->size >= 0 && (self->size == 0 || self->data != NULL);
}

/* `session` may be NULL. */
static struct buffer *buffer_make(struct core_session *session, const void *data, uint64_t size)
{
    struct buffer *self = PyObject_New(struct buffer, buffer_type);
    if (self == NULL) {
        return NULL;
    }
    if (session != NULL) {
        core_session_ref(session);
        session->held_bytes += size;
    }
    self->held = session != NULL ? size : 0;
    self->session = session;
    self->lease = NULL;
    self->share = NULL;
    self->owner = NULL;
    self->copy = NULL;
    self->data = data;
    self->size = (Py_ssize_t)size;
    self->is_readonly = false;
    self->is_lent = false;
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
    self->is_lent = completion->lease != NULL && rg_lease_is_readonly(completion->lease);
    return (PyObject *)self;
}

static int by_place(const void *a, const void *b)
{
    const struct buffer *left = *(struct buffer *const *)a, *right = *(struct buffer *const *)b;
    return left->data < right->data ? -1 : left->data > right->data;
}

/* Makes read-only what has bytes in common with another part. The parts are in the order of their
 * places. */
static void overlaps_mark(struct buffer **parts, uint32_t count)
{
    struct buffer *last = NULL; /* that reaches furthest */
    for (uint32_t i = 0; i < count; i++) {
        struct buffer *part = parts[i];
        const char *begin = part->data;
        if (part->size == 0) {
            continue;
        }
        if (last != NULL && begin < (const char *)last->data + last->size) {
            part->is_readonly = last->is_readonly = true;
        }
        if (last == NULL || begin + part->size > (const char *)last->data + last->size) {
            last = part;
        }
    }
}

static PyObject *list_of_parts(struct buffer **parts, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; i < count && list != NULL; i++) {
        if (PyList_SetItem(list, (Py_ssize_t)i, Py_NewRef((PyObject *)parts[i])) < 0) {
            Py_CLEAR(list);
        }
    }
    if (list != NULL) {
        qsort(parts, count, sizeof(*parts), by_place);
        overlaps_mark(parts, count);
    }
    return list;
}

PyObject *core_buffers_of_ranges(struct core_session *session,
                                 const struct rg_completion *completion, uint32_t count)
{
    const struct rg_range_result *results = completion->data;
    struct buffer **parts = PyMem_Calloc((size_t)count + 1, sizeof(*parts));
    struct buffer *owner = parts != NULL ? buffer_make(session, completion->data, 0) : NULL;
    if (owner == NULL) {
        rg_lease_release(completion->lease);
        PyMem_Free(parts);
        return PyErr_NoMemory();
    }
    owner->lease = completion->lease;
    uint32_t made = 0;
    while (made < count &&
           (parts[made] = buffer_make(session, results[made].data, results[made].size)) != NULL) {
        parts[made++]->owner = Py_NewRef((PyObject *)owner);
    }
    PyObject *list = made == count ? list_of_parts(parts, count) : NULL;
    for (uint32_t i = 0; i < made; i++) {
        Py_DECREF(parts[i]);
    }
    Py_DECREF(owner);
    PyMem_Free(parts);
    return list;
}

PyObject *core_buffer_slice(PyObject *object, uint64_t offset, uint64_t size)
{
    struct buffer *owner = of(object);
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
    self->is_lent = owner->is_lent;
    self->data = size > 0 ? (const char *)owner->data + offset : NULL;
    self->size = (Py_ssize_t)size;
    return (PyObject *)self;
}

static void buffer_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct buffer *self = of(object);
    PyTypeObject *type = Py_TYPE(object);
    struct core_session *session = self->session;
    RG_ASSERT(invariants(self));
    /* A child of fork reads its parent's leases and leaves them alone. */
    if (self->lease != NULL && core_session_is_own(session)) {
        rg_lease_release(self->lease);
    }
    core_share_unref(self->share);
    core_share_unref(self->copy);
    Py_XDECREF(self->owner);
    if (session != NULL) {
        session->held_bytes -= self->held;
    }
    PyObject_Free(object);
    Py_DECREF(type);
    core_session_unref(session);
}

/* What is lent becomes the Buffer's own. False with an exception. */
static bool buffer_own(struct buffer *self)
{
    if (self->is_lent) {
        self->copy = core_share_copy(self->data, (size_t)self->size);
        if (self->copy == NULL) {
            return false;
        }
        self->data = core_share_bytes(self->copy);
        self->is_lent = false;
    }
    return true;
}

static int buffer_get(PyObject *object, Py_buffer *view, int flags)
{
    CORE_ENTER();
    struct buffer *self = of(object);
    /* Writable, as training code normalizes in place, where nobody else has this memory. */
    static char nothing;
    bool writes = (flags & PyBUF_WRITABLE) != 0 && !self->is_readonly;
    if (writes && !buffer_own(self)) {
        view->obj = NULL;
        return -1;
    }
    void *data = self->size > 0 ? (void *)(uintptr_t)self->data : &nothing;
    bool is_readonly = self->is_readonly || self->is_lent;
    return PyBuffer_FillInfo(view, object, data, self->size, is_readonly, flags);
}

static Py_ssize_t buffer_length(PyObject *object)
{
    return of(object)->size;
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
    CORE_ENTER();
    struct buffer *self = of(object);
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

/* The structs of dlpack.h: the older one, and that of version 1. */
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
struct dl_managed_versioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};
#define DL_CPU 1
#define DL_CUDA_HOST 3
#define DL_UINT 1
#define DL_IS_COPIED UINT64_C(2)

struct dl_export {
    union { /* first: what a capsule points to */
        struct dl_managed_tensor managed;
        struct dl_managed_versioned versioned;
    };
    int64_t shape;
    struct core_share *share; /* NULL: the bytes are a copy, behind this struct */
};

/* What a consumer asks for. */
struct dl_wanted {
    int device_type;
    bool is_copy, is_versioned;
};

/* Any thread, with the interpreter's lock or without, also when the interpreter is gone. */
static void export_free(struct dl_export *export)
{
    core_share_unref(export->share);
    free(export);
}

static void managed_delete(struct dl_managed_tensor *managed)
{
    export_free(managed->manager);
}

static void versioned_delete(struct dl_managed_versioned *versioned)
{
    export_free(versioned->manager);
}

static const char *const capsule_names[] = {"dltensor", "dltensor_versioned"};

/* A capsule that nobody consumed still has its first name. */
static void capsule_delete(PyObject *capsule)
{
    for (int i = 0; i < 2; i++) {
        if (PyCapsule_IsValid(capsule, capsule_names[i])) {
            export_free(PyCapsule_GetPointer(capsule, capsule_names[i]));
        }
    }
}

/* The share that has the lease of a Buffer, from now on if not before. New reference; NULL with an
 * exception. */
static struct core_share *share_of(struct buffer *self)
{
    struct buffer *root = self;
    while (root->owner != NULL && root->copy == NULL) {
        root = of(root->owner);
    }
    if (root->copy != NULL) {
        core_share_ref(root->copy);
        return root->copy;
    }
    if (root->share == NULL) {
        root->share = core_share_new(root->session, root->lease);
        if (root->share == NULL) {
            return NULL;
        }
        root->lease = NULL;
        core_share_charge(root->share, &root->held);
    }
    core_share_charge(root->share, &self->held);
    core_share_ref(root->share);
    return root->share;
}

static void tensor_fill(struct dl_tensor *tensor, void *data, int device_type, int64_t *shape)
{
    *tensor = (struct dl_tensor){
        .data = data,
        .device_type = device_type,
        .dimensions = 1,
        .type_code = DL_UINT,
        .type_bits = 8,
        .type_lanes = 1,
        .shape = shape,
    };
}

/* NULL with an exception. */
static struct dl_export *export_make(struct buffer *self, const struct dl_wanted *wanted)
{
    size_t extra = wanted->is_copy ? (size_t)self->size : 0;
    if (!wanted->is_copy && !buffer_own(self)) {
        return NULL;
    }
    struct dl_export *export = calloc(1, sizeof(*export) + extra);
    if (export == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    void *data = (void *)(uintptr_t)self->data;
    if (wanted->is_copy) {
        data = export + 1;
        memcpy(export + 1, self->data, extra);
    } else if ((export->share = share_of(self)) == NULL) {
        free(export);
        return NULL;
    }
    export->shape = self->size;
    if (wanted->is_versioned) {
        export->versioned.major = 1;
        export->versioned.manager = export;
        export->versioned.deleter = versioned_delete;
        export->versioned.flags = wanted->is_copy ? DL_IS_COPIED : 0;
        tensor_fill(&export->versioned.tensor, data, wanted->device_type, &export->shape);
    } else {
        export->managed.manager = export;
        export->managed.deleter = managed_delete;
        tensor_fill(&export->managed.tensor, data, wanted->device_type, &export->shape);
    }
    return export;
}

static bool is_pinned(struct buffer *self)
{
    while (self->owner != NULL) {
        self = of(self->owner);
    }
    return self->share != NULL ? core_share_is_pinned(self->share)
                               : self->lease != NULL && rg_lease_is_pinned(self->lease);
}

/* A tuple of two numbers, or None, which leaves both as they are. False with an exception. */
static bool pair_parse(PyObject *given, const char *what, int *first, int *second)
{
    if (given == Py_None) {
        return true;
    }
    if (!PyTuple_Check(given)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple of two numbers, got %R", what, given);
        return false;
    }
    return PyArg_ParseTuple(given, "ii", first, second);
}

/* Pinned memory is the CPU's too, and told as such unless it is asked for as kDLCUDAHost: PyTorch
 * takes no capsule of that type, and asks the driver itself what is pinned. */
static bool wanted_parse(struct dl_wanted *wanted, struct buffer *self, PyObject *version,
                         PyObject *device, PyObject *copy)
{
    int id = 0, major = 0, minor = 0, is_copy = PyObject_IsTrue(copy);
    wanted->device_type = DL_CPU;
    if (is_copy < 0 || !pair_parse(device, "dl_device", &wanted->device_type, &id) ||
        !pair_parse(version, "max_version", &major, &minor)) {
        return false;
    }
    wanted->is_copy = is_copy != 0;
    wanted->is_versioned = major >= 1;
    bool is_there = wanted->device_type == DL_CPU ||
                    (wanted->device_type == DL_CUDA_HOST && is_pinned(self) && !wanted->is_copy);
    if (!is_there || id != 0) {
        PyErr_Format(PyExc_BufferError,
                     "a Buffer is in memory of the CPU, (%d, 0), or (%d, 0) where it is pinned and "
                     "not copied, not %R",
                     DL_CPU, DL_CUDA_HOST, device);
        return false;
    }
    if (self->is_readonly && !wanted->is_copy) {
        PyErr_SetString(PyExc_BufferError,
                        "these bytes are part of another Buffer of the same get_ranges, too, and "
                        "read-only, which not every consumer of DLPack heeds: ask for copy=True");
        return false;
    }
    return true;
}

/* The bytes are all there, so that no stream has anything to wait for. */
static PyObject *buffer_dlpack(PyObject *object, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    struct dl_wanted wanted;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO:__dlpack__", names, &stream, &version,
                                     &device, &copy) ||
        !wanted_parse(&wanted, of(object), version, device, copy)) {
        return NULL;
    }
    struct dl_export *export = export_make(of(object), &wanted);
    if (export == NULL) {
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(export, capsule_names[wanted.is_versioned], capsule_delete);
    if (capsule == NULL) {
        export_free(export);
    }
    return capsule;
}

static PyObject *buffer_dlpack_device(PyObject *object, PyObject *nothing)
{
    (void)object;
    (void)nothing;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

static PyObject *buffer_is_pinned(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    return PyBool_FromLong(is_pinned(of(object)));
}

static PyObject *buffer_to_bytes(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    const struct buffer *self = of(object);
    return PyBytes_FromStringAndSize(self->data, self->size);
}

static PyObject *buffer_decode(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"encoding", "errors", NULL};
    const char *encoding = "utf-8", *errors = "strict";
    return PyArg_ParseTupleAndKeywords(args, keywords, "|ss:decode", names, &encoding, &errors)
               ? PyUnicode_FromEncodedObject(object, encoding, errors)
               : NULL;
}

static PyObject *buffer_iterate(PyObject *object)
{
    PyObject *view = PyMemoryView_FromObject(object);
    PyObject *iterator = view != NULL ? PyObject_GetIter(view) : NULL;
    Py_XDECREF(view);
    return iterator;
}

/* The workers of a DataLoader give what the process itself would. Without this a worker, whose
 * thread that sends cannot report what it cannot pickle, would leave its parent waiting for ever.
 */
static PyObject *buffer_reduce(PyObject *object, PyObject *nothing)
{
    PyObject *module = PyImport_ImportModule("ringest._core");
    PyObject *make = module != NULL ? PyObject_GetAttrString(module, "_buffer_of") : NULL;
    PyObject *reduced =
        make != NULL ? Py_BuildValue("(O(N))", make, buffer_to_bytes(object, nothing)) : NULL;
    Py_XDECREF(make);
    Py_XDECREF(module);
    return reduced;
}

PyObject *core_buffer_of(PyObject *module, PyObject *data)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    struct core_share *share = core_share_copy(view.buf, (size_t)view.len);
    struct buffer *self =
        share != NULL ? buffer_make(NULL, core_share_bytes(share), (uint64_t)view.len) : NULL;
    PyBuffer_Release(&view);
    if (self == NULL) {
        core_share_unref(share);
        return NULL;
    }
    self->share = share;
    return (PyObject *)self;
}

static PyMethodDef buffer_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))buffer_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A DLPack capsule of these bytes (uint8, one dimension), without a copy but for copy=True."},
    {"__dlpack_device__", buffer_dlpack_device, METH_NOARGS, "(kDLCPU, 0)"},
    {"is_pinned", buffer_is_pinned, METH_NOARGS,
     "is_pinned() -> whether CUDA knows this memory, so that devices copy from it directly"},
    {"__reduce__", buffer_reduce, METH_NOARGS, "Unpickled, it is a Buffer with a copy."},
    {"to_bytes", buffer_to_bytes, METH_NOARGS, "to_bytes() -> a copy, as bytes"},
    {"decode", (PyCFunction)(void (*)(void))buffer_decode, METH_VARARGS | METH_KEYWORDS,
     "decode(encoding='utf-8', errors='strict') -> str"},
    {0},
};

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc,
     "Bytes of an object, in memory of the library: bytes-like, freed with the last view. What the "
     "cache shares with other processes (cache_memory) is read-only until somebody asks to write, "
     "as numpy and torch do, and then copied. "
     "Unpickled, as from the workers of a DataLoader, it is a Buffer with a copy of them. "
     "Functions that take bytes only want to_bytes() or decode(). Not to be made by hand."},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_tp_repr, buffer_repr},
    {Py_tp_iter, buffer_iterate},
    {Py_tp_richcompare, buffer_compare},
    {Py_tp_methods, buffer_methods},
    {Py_bf_getbuffer, buffer_get},
    {Py_mp_length, buffer_length},
    {Py_mp_subscript, buffer_subscript},
    {Py_sq_length, buffer_length},
    {0, NULL},
};
static PyType_Spec buffer_spec = {
    .name = "ringest.Buffer",
    .basicsize = sizeof(struct buffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = buffer_slots,
};

int core_buffer_register(PyObject *module)
{
    return core_type_add(module, &buffer_spec, &buffer_type);
}
