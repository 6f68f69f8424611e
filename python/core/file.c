/* ObjectReader: what the file objects of ringest.checkpoint read by (rg_checkpoint_reader).
 *
 * Invariant: whoever uses it finds a reader there, since that is ended only when it was closed and
 * nobody uses it. */
#include "core.h"

#include <errno.h>

static PyTypeObject *object_reader_type;

struct object_reader {
    PyObject_HEAD struct core_session *session;
    struct core_use use;
    struct rg_checkpoint_reader *reader; /* NULL: closed */
    PyObject *uri;
};

static struct object_reader *of(PyObject *object)
{
    return (struct object_reader *)object;
}

/* An exception that is set stays. */
static void reader_end(struct object_reader *self)
{
    struct rg_checkpoint_reader *reader = self->reader;
    RG_ASSERT(reader == NULL || core_use_is_closed(&self->use));
    self->reader = NULL;
    if (reader != NULL && !core_use_is_half_done(&self->use)) {
        Py_BEGIN_ALLOW_THREADS rg_checkpoint_reader_close(reader);
        Py_END_ALLOW_THREADS
    }
    core_use_drop_session(&self->use, &self->session);
}

/* Bytes read, or a negative errno; -ECANCELED with an exception. */
static int64_t read_some(struct object_reader *self, uint64_t offset, const Py_buffer *view)
{
    struct core_watch watch;
    RG_ASSERT(self->reader != NULL);
    core_watch_begin(&watch, self->session, true);
    for (;;) {
        int64_t got;
        Py_BEGIN_ALLOW_THREADS got = rg_checkpoint_reader_read(
            self->reader, offset, view->buf, (uint64_t)view->len, rg_now_ns() + CORE_WAIT_NS);
        Py_END_ALLOW_THREADS if (got != -ETIME && got != -EAGAIN)
        {
            return got;
        }
        int rc = got == -EAGAIN ? core_client_full_wait(&watch, &self->use)
                                : core_watch_go_on(&watch, &self->use);
        if (rc < 0) {
            return -ECANCELED;
        }
    }
}

/* Bytes read, or -1 with an exception. A read that was not let come to its end has memory lent, so
 * that it ends the reader. */
static int64_t read_all(struct object_reader *self, uint64_t offset, const Py_buffer *view)
{
    int64_t got = read_some(self, offset, view);
    if (got == -ECANCELED) {
        (void)core_use_close(&self->use);
    } else if (got == -EIO) {
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
    CORE_ENTER();
    struct object_reader *self = of(object);
    PyObject *number;
    uint64_t offset;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "Ow*:read_at", &number, &view)) {
        return NULL;
    }
    int64_t got = -1;
    if (core_number(number, "offset", 0, CORE_BYTES_MAX, &offset) && core_use_begin(&self->use)) {
        core_pages_advise(view.buf, (uint64_t)view.len);
        got = read_all(self, offset, &view);
        if (core_use_end(&self->use)) {
            reader_end(self);
        }
    }
    PyBuffer_Release(&view);
    return got >= 0 ? PyLong_FromLongLong(got) : NULL;
}

/* What is awaited, any number at once: (reader, offset, buffer). The operation keeps both. */
static int awaited_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"reader", "offset", "buffer", NULL};
    PyObject *number;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!Ow*:_read_at", names, object_reader_type,
                                     &self->reader, &number, &self->data)) {
        return -1;
    }
    self->uri = of(self->reader)->uri;
    return core_number(number, "offset", 0, CORE_BYTES_MAX - (uint64_t)self->data.len,
                       &self->offset)
               ? 0
               : -1;
}

static int awaited_submit(struct core_operation *self, struct core_session *session,
                          struct rg_cq *cq, const struct core_uri *uri, uint64_t user_data)
{
    struct object_reader *reader = of(self->reader);
    (void)uri;
    if (reader->reader == NULL || reader->session != session) {
        PyErr_Format(PyExc_ValueError, "the reader of %U is %s", reader->uri,
                     reader->reader == NULL ? "closed" : "of another client");
        return -EINVAL;
    }
    core_pages_advise(self->data.buf, (uint64_t)self->data.len);
    const struct rg_checkpoint_read read = {.offset = self->offset,
                                            .size = (uint64_t)self->data.len,
                                            .buf = self->data.buf,
                                            .user_data = user_data};
    return rg_submit_checkpoint_read(reader->reader, cq, &read);
}

static PyObject *awaited_result(struct core_operation *self, struct core_session *session,
                                const struct rg_completion *done)
{
    (void)self;
    (void)session;
    return PyLong_FromUnsignedLongLong(done->size);
}

const struct core_operation_kind core_read_at_kind = {"_read_at", awaited_parse, awaited_submit,
                                                      awaited_result, true};

static PyObject *object_reader_close(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct object_reader *self = of(object);
    if (core_use_close(&self->use)) {
        reader_end(self);
    } else if (self->reader != NULL) {
        rg_checkpoint_reader_interrupt(self->reader);
    }
    Py_RETURN_NONE;
}

static int reader_make(struct object_reader *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"client", "uri", "generation", NULL};
    PyObject *client, *uri_text, *number = NULL;
    int64_t generation = 0;
    struct core_uri uri;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!U|$O:ObjectReader", names, core_client_type,
                                     &client, &uri_text, &number) ||
        !core_generation(number, &generation) || !core_uri_parse(uri_text, &uri)) {
        return -1;
    }
    self->session = core_client_session(client);
    if (self->session == NULL) {
        return -1;
    }
    struct rg_checkpoint_reader_options options = {
        .bucket = uri.bucket, .object = uri.object, .generation = generation};
    int rc = rg_checkpoint_reader_open(&self->reader, self->session->client, &options);
    if (rc < 0) {
        core_submit_raise(rc, uri_text);
        return -1;
    }
    self->uri = Py_NewRef(uri_text);
    core_use_open(&self->use, self->session, "reader", self->uri, true);
    return 0;
}

static PyObject *object_reader_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    PyObject *object = PyType_GenericAlloc(type, 0);
    if (object != NULL && reader_make(of(object), args, keywords) < 0) {
        Py_CLEAR(object);
    }
    return object;
}

static void object_reader_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct object_reader *self = of(object);
    PyTypeObject *type = Py_TYPE(object);
    if (self->reader != NULL) {
        (void)core_use_close(&self->use);
    }
    reader_end(self);
    core_session_unref(self->session);
    Py_XDECREF(self->uri);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMethodDef object_reader_methods[] = {
    {"read_at", object_reader_read_at, METH_VARARGS,
     "read_at(offset, buffer) -> bytes read, fewer than the buffer has only at the object's end"},
    {"close", object_reader_close, METH_NOARGS,
     "Gives back what was read ahead. A call that another thread is in fails, and so does what is "
     "awaited."},
    {0},
};

static PyType_Slot object_reader_slots[] = {
    {Py_tp_doc, "Reads one generation of an object, from any place, and ahead where it goes on."},
    {Py_tp_new, object_reader_new},
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
    return core_type_add(module, &object_reader_spec, &object_reader_type);
}
