/* ObjectReader: what the file objects of ringest.checkpoint read by (rg_checkpoint_reader). */
#include "core.h"

#include <errno.h>

PyTypeObject *core_object_reader_type;

struct object_reader {
    PyObject_HEAD struct core_session *session; /* NULL: closed */
    struct rg_checkpoint_reader *reader;
    PyObject *uri;
    bool busy; /* in a call that lets other threads run */
};

static void reader_end(struct object_reader *self)
{
    struct core_session *session = self->session;
    self->session = NULL;
    if (session != NULL) {
        Py_BEGIN_ALLOW_THREADS rg_checkpoint_reader_close(self->reader);
        Py_END_ALLOW_THREADS core_session_unref(session);
    }
}

/* Bytes read, or -1 with an exception. A read that a signal ended has memory lent, so that it ends
 * the reader. */
static int64_t read_all(struct object_reader *self, unsigned long long offset,
                        const Py_buffer *view)
{
    int64_t got = -ETIME;
    while (got == -ETIME) {
        Py_BEGIN_ALLOW_THREADS got = rg_checkpoint_reader_read(
            self->reader, offset, view->buf, (uint64_t)view->len, rg_now_ns() + CORE_WAIT_NS);
        Py_END_ALLOW_THREADS if (got == -ETIME && PyErr_CheckSignals() < 0)
        {
            PyObject *type, *value, *trace;
            PyErr_Fetch(&type, &value, &trace);
            reader_end(self);
            PyErr_Restore(type, value, trace);
            return -1;
        }
    }
    if (got == -EIO) {
        struct rg_completion failure = *rg_checkpoint_reader_failure(self->reader);
        failure.lease = NULL; /* the reader's */
        core_error_raise(self->uri, &failure);
    } else if (got < 0) {
        core_errno_raise((int)got, "reading an object");
    }
    return got < 0 ? -1 : got;
}

static PyObject *object_reader_read_at(PyObject *object, PyObject *args)
{
    struct object_reader *self = (struct object_reader *)object;
    unsigned long long offset;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "Kw*:read_at", &offset, &view)) {
        return NULL;
    }
    int64_t got = -1;
    if (self->session == NULL || self->busy) {
        PyErr_Format(PyExc_ValueError, "%U: the reader %s", self->uri,
                     self->busy ? "is used by another thread" : "is closed");
    } else {
        self->busy = true;
        got = read_all(self, offset, &view);
        self->busy = false;
    }
    PyBuffer_Release(&view);
    return got >= 0 ? PyLong_FromLongLong(got) : NULL;
}

static PyObject *object_reader_close(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    struct object_reader *self = (struct object_reader *)object;
    if (self->busy) {
        PyErr_Format(PyExc_ValueError, "%U: the reader is used by another thread", self->uri);
        return NULL;
    }
    reader_end(self);
    Py_RETURN_NONE;
}

static int object_reader_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"client", "uri", "generation", NULL};
    struct object_reader *self = (struct object_reader *)object;
    PyObject *client, *uri_text;
    long long generation = 0;
    struct core_uri uri;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!U|$L:ObjectReader", names, core_client_type,
                                     &client, &uri_text, &generation) ||
        !core_uri_parse(uri_text, &uri)) {
        return -1;
    }
    if (self->uri != NULL) {
        PyErr_SetString(PyExc_ValueError, "a reader is made once");
        return -1;
    }
    struct core_session *session = core_client_session(client);
    if (session == NULL) {
        return -1;
    }
    struct rg_checkpoint_reader_options options = {
        .bucket = uri.bucket, .object = uri.object, .generation = generation};
    int rc = rg_checkpoint_reader_open(&self->reader, session->client, &options);
    if (rc < 0) {
        core_submit_raise(rc, uri_text);
        return -1;
    }
    core_session_ref(session);
    self->session = session;
    self->uri = Py_NewRef(uri_text);
    return 0;
}

static void object_reader_dealloc(PyObject *object)
{
    struct object_reader *self = (struct object_reader *)object;
    PyTypeObject *type = Py_TYPE(object);
    reader_end(self);
    Py_XDECREF(self->uri);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef object_reader_methods[] = {
    {"read_at", object_reader_read_at, METH_VARARGS,
     "read_at(offset, buffer) -> bytes read, fewer than the buffer has only at the object's end"},
    {"close", object_reader_close, METH_NOARGS, "Gives back what was read ahead."},
    {0},
};

static PyType_Slot object_reader_slots[] = {
    {Py_tp_doc, "Reads one generation of an object, from any place, and ahead where it goes on."},
    {Py_tp_init, object_reader_init},
    {Py_tp_dealloc, object_reader_dealloc},
    {Py_tp_methods, object_reader_methods},
    {0, NULL},
};
static PyType_Spec object_reader_spec = {
    .name = "ringest._core.ObjectReader",
    .basicsize = sizeof(struct object_reader),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = object_reader_slots,
};

int core_object_reader_register(PyObject *module)
{
    return core_type_add(module, &object_reader_spec, &core_object_reader_type);
}
