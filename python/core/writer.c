/* Writer: a stream into one object (rg_writer), which appears when it is finished, or never. */
#include "core.h"

#include <errno.h>
#include <string.h>

PyTypeObject *core_writer_type;

struct lent {
    PyObject *owner;
    unsigned long long end; /* of its bytes in the stream */
};

struct writer {
    PyObject_HEAD struct core_session *session; /* NULL: it has ended */
    struct rg_writer *writer;
    PyObject *uri;
    PyObject *result; /* of finish */
    unsigned long long size;
    /* Memory that was lent, in the order of the stream: [lent_first, lent_count) of the array. */
    struct lent *lent;
    size_t lent_first, lent_count, lent_capacity;
    bool busy; /* in a call that lets other threads run */
};

/* Lets go of memory that the service has. */
static void lent_release(struct writer *self, unsigned long long settled)
{
    while (self->lent_first < self->lent_count && self->lent[self->lent_first].end <= settled) {
        PyObject *owner = self->lent[self->lent_first++].owner;
        Py_DECREF(owner);
    }
}

/* Keeps the owner of what is lent next alive, `size` bytes of it. False with an exception. */
static bool lent_keep(struct writer *self, PyObject *owner, unsigned long long size)
{
    lent_release(self, rg_writer_settled(self->writer));
    if (self->lent_count == self->lent_capacity) {
        size_t kept = self->lent_count - self->lent_first;
        if (self->lent_first > 0) {
            memmove(self->lent, self->lent + self->lent_first, kept * sizeof(*self->lent));
        }
        self->lent_first = 0;
        self->lent_count = kept;
        if (2 * kept >= self->lent_capacity) {
            size_t capacity = 2 * self->lent_capacity + 64;
            struct lent *lent = PyMem_Realloc(self->lent, capacity * sizeof(*lent));
            if (lent == NULL) {
                PyErr_NoMemory();
                return false;
            }
            self->lent = lent;
            self->lent_capacity = capacity;
        }
    }
    self->lent[self->lent_count++] =
        (struct lent){.owner = Py_NewRef(owner), .end = self->size + size};
    return true;
}

static void writer_end(struct writer *self)
{
    struct core_session *session = self->session;
    struct rg_writer *writer = self->writer;
    self->session = NULL;
    self->writer = NULL;
    if (session == NULL) {
        return;
    }
    Py_BEGIN_ALLOW_THREADS rg_writer_close(writer);
    Py_END_ALLOW_THREADS core_session_unref(session);
    lent_release(self, UINT64_MAX);
}

/* False with an exception. */
static bool writer_enter(struct writer *self)
{
    if (self->session == NULL) {
        PyErr_Format(PyExc_ValueError, "%U: the writer has ended", self->uri);
        return false;
    }
    if (self->busy) {
        PyErr_Format(PyExc_ValueError, "%U: another thread uses this writer", self->uri);
        return false;
    }
    self->busy = true;
    return true;
}

/* Waits until the writer takes something; 0, -EIO, or -1 with an exception. */
static int wait_for_room(struct writer *self)
{
    int rc = -ETIME;
    while (rc == -ETIME) {
        Py_BEGIN_ALLOW_THREADS rc = rg_writer_wait(self->writer, rg_now_ns() + CORE_WAIT_NS);
        Py_END_ALLOW_THREADS if (rc == -ETIME && PyErr_CheckSignals() < 0)
        {
            return -1;
        }
    }
    return rc;
}

/* Asks for the outcome; 0 with it, or -1 with an exception. */
static int writer_outcome(struct writer *self, struct rg_completion *out_done)
{
    struct rg_cq *cq;
    if (core_queue_open(self->session, 1, &cq) < 0) {
        return -1;
    }
    int rc;
    while ((rc = rg_writer_finish(self->writer, cq, 0)) == -EAGAIN) {
        rc = wait_for_room(self);
        if (rc == -1) {
            rg_cq_close(cq);
            return -1;
        }
    }
    int count = -1;
    if (rc < 0) {
        core_errno_raise(rc, "finishing an upload");
    } else if ((count = core_wait(cq, out_done, 1)) < 0) {
        core_drain(self->session, cq, 0, 1, 1);
    }
    rg_cq_close(cq);
    return count == 1 ? 0 : -1;
}

/* The upload has failed: raises why, and ends the writer. */
static void raise_failure(struct writer *self)
{
    struct rg_completion done;
    if (writer_outcome(self, &done) == 0) {
        if (done.status == RG_STATUS_OK) {
            rg_lease_release(done.lease);
            core_errno_raise(-EIO, "the upload ended early");
        } else {
            core_error_raise(self->uri, &done);
        }
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    writer_end(self);
    PyErr_Restore(type, value, trace);
}

/* Writes what is not lent; sum is for what is, and may be NULL. */
static int write_all(struct writer *self, const uint8_t *data, size_t size, bool lend,
                     uint32_t *sum)
{
    for (size_t done = 0; done < size;) {
        int64_t taken;
        Py_BEGIN_ALLOW_THREADS taken =
            !lend         ? rg_writer_write(self->writer, data + done, size - done)
            : sum != NULL ? rg_writer_lend_sum(self->writer, data + done, size - done, sum)
                          : rg_writer_lend(self->writer, data + done, size - done);
        Py_END_ALLOW_THREADS if (taken > 0)
        {
            done += (size_t)taken;
            self->size += (size_t)taken;
            continue;
        }
        int rc = taken == -EAGAIN ? wait_for_room(self) : (int)taken;
        if (rc == -EIO) {
            raise_failure(self);
            return -1;
        }
        if (rc < 0) {
            if (rc != -1) {
                core_errno_raise(rc, "writing to an upload");
            }
            return -1;
        }
    }
    return 0;
}

static PyObject *writer_write(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"data", "borrow", NULL};
    struct writer *self = (struct writer *)object;
    PyObject *data;
    int borrow = 0;
    Py_buffer view;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$p:write", names, &data, &borrow) ||
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    int rc = -1;
    Py_ssize_t size = view.len;
    if (writer_enter(self)) {
        PyObject *owner = borrow ? PyMemoryView_FromObject(data) : NULL;
        if (!borrow || (owner != NULL && lent_keep(self, owner, (unsigned long long)size))) {
            rc = write_all(self, view.buf, (size_t)size, borrow != 0, NULL);
        }
        Py_XDECREF(owner);
        self->busy = false;
    }
    PyBuffer_Release(&view);
    return rc == 0 ? PyLong_FromSsize_t(size) : NULL;
}

/* What _write_address is to return. */
enum { CORE_SUM_NONE = 0, CORE_SUM_CRC32 = 1, CORE_SUM_CRC32C = 2 };

/* A piece is summed up and then taken while it is in the cache. */
#define SUM_PIECE ((size_t)256 << 10)

static PyObject *writer_write_address(PyObject *object, PyObject *args)
{
    struct writer *self = (struct writer *)object;
    PyObject *owner;
    unsigned long long address, size;
    int sum;
    if (!PyArg_ParseTuple(args, "KKOi:_write_address", &address, &size, &owner, &sum)) {
        return NULL;
    }
    if (sum != CORE_SUM_NONE && sum != CORE_SUM_CRC32 && sum != CORE_SUM_CRC32C) {
        return PyErr_Format(PyExc_ValueError, "there is no sum %d", sum);
    }
    if (!writer_enter(self)) {
        return NULL;
    }
    const uint8_t *data = (const uint8_t *)(uintptr_t)address;
    uint32_t crc = 0;
    int rc = lent_keep(self, owner, size) ? 0 : -1;
    for (unsigned long long done = 0; rc == 0 && done < size;) {
        size_t left = (size_t)(size - done), piece = left;
        if (sum == CORE_SUM_CRC32) {
            piece = left > SUM_PIECE ? SUM_PIECE : left;
            Py_BEGIN_ALLOW_THREADS crc = rg_crc32(crc, data + done, piece);
            Py_END_ALLOW_THREADS
        }
        rc = write_all(self, data + done, piece, true, sum == CORE_SUM_CRC32C ? &crc : NULL);
        done += piece;
    }
    self->busy = false;
    return rc == 0 ? PyLong_FromUnsignedLong(crc) : NULL;
}

static PyObject *writer_finish(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    struct writer *self = (struct writer *)object;
    struct rg_completion done;
    if (self->result != NULL) {
        return Py_NewRef(self->result);
    }
    if (!writer_enter(self)) {
        return NULL;
    }
    int rc = writer_outcome(self, &done);
    self->busy = false;
    if (rc == 0 && done.status != RG_STATUS_OK) {
        core_error_raise(self->uri, &done);
    } else if (rc == 0) {
        self->result = Py_BuildValue("{sLsKsksO}", "generation", (long long)done.generation, "size",
                                     (unsigned long long)done.object_size, "crc32c",
                                     (unsigned long)done.crc32c, "found_done",
                                     done.found_done ? Py_True : Py_False);
        rg_lease_release(done.lease);
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    writer_end(self);
    PyErr_Restore(type, value, trace);
    return Py_XNewRef(self->result);
}

static PyObject *writer_abort(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    struct writer *self = (struct writer *)object;
    if (self->session != NULL && writer_enter(self)) {
        writer_end(self);
        self->busy = false;
    }
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *writer_exit(PyObject *object, PyObject *args)
{
    PyObject *type, *value, *trace;
    struct writer *self = (struct writer *)object;
    if (!PyArg_ParseTuple(args, "OOO:__exit__", &type, &value, &trace)) {
        return NULL;
    }
    if (type != Py_None) {
        return writer_abort(object, NULL);
    }
    if (self->session == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *result = writer_finish(object, NULL);
    Py_XDECREF(result);
    return result != NULL ? Py_NewRef(Py_None) : NULL;
}

static PyObject *writer_enter_context(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    return Py_NewRef(object);
}

static int writer_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"client",
                            "uri",
                            "part_size",
                            "parts_in_flight",
                            "if_generation_match",
                            "content_type",
                            "size_hint",
                            "exclusive",
                            NULL};
    struct writer *self = (struct writer *)object;
    PyObject *client, *uri_text, *condition = Py_None;
    unsigned long long part_size = 0, size_hint = 0;
    unsigned parts = 0;
    int exclusive = 1;
    struct core_uri uri;
    struct rg_writer_options options = {0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!U|$KIOzKp:Writer", names, core_client_type,
                                     &client, &uri_text, &part_size, &parts, &condition,
                                     &options.content_type, &size_hint, &exclusive)) {
        return -1;
    }
    if (self->uri != NULL) {
        PyErr_SetString(PyExc_ValueError, "a writer is made once");
        return -1;
    }
    if (condition != Py_None) {
        long long generation = PyLong_AsLongLong(condition);
        options.conditions.if_generation_match =
            generation == 0 ? RG_GENERATION_ABSENT : generation;
        options.exclusive = exclusive;
    }
    struct core_session *session = NULL;
    if (!PyErr_Occurred() && core_uri_parse(uri_text, &uri)) {
        session = core_client_session(client);
    }
    if (session == NULL) {
        return -1;
    }
    options.bucket = uri.bucket;
    options.object = uri.object;
    options.part_size = part_size;
    options.parts_inflight_max = parts;
    options.size_hint = size_hint;
    int rc = rg_writer_open(&self->writer, session->client, &options);
    if (rc < 0) {
        core_submit_raise(rc, uri_text);
        return -1;
    }
    core_session_ref(session);
    self->session = session;
    self->uri = Py_NewRef(uri_text);
    return 0;
}

static void writer_dealloc(PyObject *object)
{
    struct writer *self = (struct writer *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *error_type, *value, *trace;
    PyErr_Fetch(&error_type, &value, &trace);
    writer_end(self);
    PyErr_Restore(error_type, value, trace);
    Py_XDECREF(self->uri);
    Py_XDECREF(self->result);
    PyMem_Free(self->lent);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *writer_size(PyObject *object, void *nothing)
{
    (void)nothing;
    return PyLong_FromUnsignedLongLong(((struct writer *)object)->size);
}

static PyObject *writer_ended(PyObject *object, void *nothing)
{
    (void)nothing;
    return PyBool_FromLong(((struct writer *)object)->session == NULL);
}

static PyMethodDef writer_methods[] = {
    {"write", (PyCFunction)(void (*)(void))writer_write, METH_VARARGS | METH_KEYWORDS,
     "write(data, *, borrow=False) -> bytes taken, which are all"},
    {"_write_address", writer_write_address, METH_VARARGS,
     "_write_address(address, size, owner, sum) -> sum: 0: 0, 1: the CRC-32, 2: the CRC32C; lends "
     "memory, which `owner` keeps alive"},
    {"finish", writer_finish, METH_NOARGS,
     "Publishes the object; a dict of generation, size, crc32c and found_done."},
    {"abort", writer_abort, METH_NOARGS, "Ends the upload and removes what it left."},
    {"__enter__", writer_enter_context, METH_NOARGS, NULL},
    {"__exit__", writer_exit, METH_VARARGS, NULL},
    {0},
};

static PyGetSetDef writer_getters[] = {
    {"size", writer_size, NULL, "Bytes written so far.", NULL},
    {"ended", writer_ended, NULL, "True after finish, abort or a failure.", NULL},
    {0},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_doc, "A stream into one object, which appears when it is finished."},
    {Py_tp_init, writer_init},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_methods, writer_methods},
    {Py_tp_getset, writer_getters},
    {0, NULL},
};
static PyType_Spec writer_spec = {
    .name = "ringest._core.Writer",
    .basicsize = sizeof(struct writer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = writer_slots,
};

int core_writer_register(PyObject *module)
{
    return core_type_add(module, &writer_spec, &core_writer_type);
}
