/* Writer: a stream into one object (rg_writer), which appears when it is finished, or never. */
#include "core.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static PyTypeObject *writer_type;

/* Limits of <ringest/upload.h>, and of the service. */
#define PART_SIZE_MAX (UINT64_C(5) << 30)
#define PARTS_MAX 128
#define SIZE_HINT_MAX (UINT64_C(5) << 40)

struct lent {
    PyObject *owner;
    unsigned long long end; /* of its bytes in the stream */
};

struct writer {
    PyObject_HEAD struct core_session *session;
    struct core_use use;
    struct rg_writer *writer; /* NULL: it has ended */
    PyObject *uri;
    PyObject *result; /* of finish */
    unsigned long long size;
    _Atomic unsigned long long rate; /* bytes in a second; 0: no limit */
    /* Memory that was lent, in the order of the stream: [lent_first, lent_count) of the array. */
    struct lent *lent;
    size_t lent_first, lent_count, lent_capacity;
    bool is_aborted; /* somebody has asked for that */
};

static struct writer *of(PyObject *object)
{
    return (struct writer *)object;
}

/* Memory that is lent lies in the order of the stream, and ends in it. O(what is lent). */
static bool invariants(const struct writer *self)
{
    unsigned long long end = 0;
    for (size_t i = self->lent_first; i < self->lent_count; i++) {
        if (self->lent[i].owner == NULL || self->lent[i].end < end) {
            return false;
        }
        end = self->lent[i].end;
    }
    return self->lent_first <= self->lent_count && self->lent_count <= self->lent_capacity;
}

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

/* An exception that is set stays. */
static void writer_end(struct writer *self)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    struct rg_writer *writer = self->writer;
    self->writer = NULL;
    if (writer != NULL && !core_use_is_half_done(&self->use)) {
        Py_BEGIN_ALLOW_THREADS rg_writer_close(writer);
        Py_END_ALLOW_THREADS
    }
    if (!core_use_is_half_done(&self->use)) {
        lent_release(self, UINT64_MAX);
    }
    core_use_drop_session(&self->use, &self->session);
    PyErr_Restore(type, value, trace);
}

/* Gives the result. Without one the writer ends, since nobody can tell how much of the stream was
 * taken. */
static PyObject *writer_finish_use(struct writer *self, PyObject *result)
{
    if (!core_use_goes_on(&self->use)) {
        Py_CLEAR(result);
    }
    if (result == NULL) {
        (void)core_use_close(&self->use);
    }
    RG_VERIFY(invariants(self));
    if (core_use_end(&self->use)) {
        writer_end(self);
    }
    return result;
}

/* Waits until the writer takes something; 0, another errno, or -ECANCELED with an exception. */
static int wait_for_room(struct writer *self)
{
    struct core_watch watch;
    core_watch_begin(&watch, self->session, true);
    for (;;) {
        int rc;
        Py_BEGIN_ALLOW_THREADS rc = rg_writer_wait(self->writer, rg_now_ns() + CORE_WAIT_NS);
        Py_END_ALLOW_THREADS if (rc != -ETIME)
        {
            return rc;
        }
        if (core_watch_go_on(&watch, &self->use) < 0) {
            return -ECANCELED;
        }
    }
}

/* Asks for the outcome; 0, or an errno, -ECANCELED with an exception. */
static int outcome_ask(struct writer *self, struct rg_cq *cq)
{
    int rc;
    do {
        rc = rg_writer_finish(self->writer, cq, 0);
        if (rc == -EAGAIN) {
            rc = wait_for_room(self);
            rc = rc == 0 ? -EAGAIN : rc;
        }
    } while (rc == -EAGAIN);
    return rc;
}

/* Takes it. False with an exception. */
static bool outcome_take(struct writer *self, struct rg_cq *cq, struct rg_completion *out_done)
{
    struct core_watch watch;
    core_watch_begin(&watch, self->session, true);
    int count = core_wait(&watch, &self->use, cq, out_done, 1);
    if (count != 1) {
        core_drain(self->session, cq, 0, 1, 1);
    }
    return count == 1;
}

/* False with an exception. */
static bool writer_outcome(struct writer *self, struct rg_completion *out_done)
{
    struct rg_cq *cq;
    if (core_queue_open(self->session, 1, &cq) < 0) {
        return false;
    }
    int rc = outcome_ask(self, cq);
    if (rc < 0 && rc != -ECANCELED) {
        core_errno_raise(rc, "finishing an upload");
    }
    bool has_outcome = rc == 0 && outcome_take(self, cq, out_done);
    rg_cq_close(cq);
    return has_outcome;
}

/* The upload has failed: raises why. */
static void raise_failure(struct writer *self)
{
    struct rg_completion done;
    if (!writer_outcome(self, &done)) {
        return;
    }
    if (done.status == RG_STATUS_OK) {
        rg_lease_release(done.lease);
        core_errno_raise(-EIO, "the upload ended early");
    } else {
        core_error_raise(self->uri, &done);
    }
}

/* What _write_address is to return. */
enum core_sum { CORE_SUM_NONE = 0, CORE_SUM_CRC32 = 1, CORE_SUM_CRC32C = 2 };

/* Bytes on their way into a stream, and the sum of those up to `summed`. */
struct delivery {
    struct rg_writer *writer;
    const uint8_t *data;
    size_t size, done, summed;
    bool lend;
    enum core_sum kind;
    uint32_t sum;
    const _Atomic unsigned long long *rate;
    uint64_t begun_ns; /* when the last piece was that the rate held back; 0: none was */
    size_t allowed;    /* bytes up to the end of that */
    uint64_t slept_ns; /* since somebody looked whether the writer was closed */
    int rc;
};

/* A piece is summed up and then taken while it is in the cache. */
#define SUM_PIECE ((size_t)256 << 10)

/* While a rate holds, so much is summed up in one go: other threads that want the CPU lose a tenth
 * of a millisecond at a time. And how long a sleep is, after which it is looked at again. */
#define PACED_PIECE ((size_t)512 << 10)
#define NAP_NS (50 * RG_NS_PER_MS)
/* Sleeps last a little longer than they should: what is late by no more than that is made up for.
 */
#define LATE_NS (4 * RG_NS_PER_MS)

/* How many of the next `size` bytes may be taken now; 0: none yet, after a nap. */
static size_t delivery_room(struct delivery *self, size_t size)
{
    unsigned long long rate = atomic_load_explicit(self->rate, memory_order_relaxed);
    if (rate == 0) {
        return size;
    }
    if (self->done >= self->allowed) {
        uint64_t now_ns = rg_now_ns();
        uint64_t due_ns = self->begun_ns + (uint64_t)PACED_PIECE * RG_NS_PER_S / rate;
        if (self->begun_ns != 0 && now_ns < due_ns) {
            struct timespec nap = {.tv_nsec = (long)RG_MIN(due_ns - now_ns, NAP_NS)};
            (void)nanosleep(&nap, NULL);
            self->slept_ns += (uint64_t)nap.tv_nsec;
            return 0;
        }
        uint64_t late_ns = RG_MIN(now_ns - due_ns, LATE_NS);
        self->begun_ns = self->begun_ns != 0 ? now_ns - late_ns : now_ns;
        self->allowed = self->done + PACED_PIECE;
    }
    return RG_MIN(size, self->allowed - self->done);
}

/* Gives the stream as much as it takes; without the interpreter's lock. rc: 0 when it has all.
 * -EBUSY: it was held back for a while, and it is to be called again. */
static void delivery_run(struct delivery *self)
{
    for (int64_t taken = 1; taken > 0 && self->done < self->size;) {
        const uint8_t *data = self->data + self->done;
        size_t size = delivery_room(self, self->size - self->done);
        if (size == 0) {
            if (self->slept_ns < CORE_WAIT_NS) {
                continue;
            }
            self->slept_ns = 0;
            self->rc = -EBUSY;
            return;
        }
        if (self->kind == CORE_SUM_CRC32) {
            size = RG_MIN(size, SUM_PIECE);
            if (self->summed < self->done + size) {
                size_t more = self->done + size - self->summed;
                self->sum = rg_crc32(self->sum, self->data + self->summed, more);
                self->summed += more;
            }
        }
        taken = !self->lend ? rg_writer_write(self->writer, data, size)
                : self->kind == CORE_SUM_CRC32C
                    ? rg_writer_lend_sum(self->writer, data, size, &self->sum)
                    : rg_writer_lend(self->writer, data, size);
        self->rc = taken > 0 ? 0 : (int)taken;
        self->done += taken > 0 ? (size_t)taken : 0;
    }
}

/* Writes all of it. -1 with an exception. */
static int write_all(struct writer *self, struct delivery *delivery)
{
    delivery->writer = self->writer;
    delivery->rate = &self->rate;
    while (delivery->done < delivery->size) {
        size_t before = delivery->done;
        Py_BEGIN_ALLOW_THREADS delivery_run(delivery);
        Py_END_ALLOW_THREADS self->size += delivery->done - before;
        int rc = delivery->rc == -EAGAIN ? wait_for_room(self) : delivery->rc;
        if (rc == -EBUSY) {
            rc = PyErr_CheckSignals() < 0 || !core_use_goes_on(&self->use) ? -ECANCELED : 0;
        }
        if (rc == -EIO) {
            raise_failure(self);
            return -1;
        }
        if (rc < 0) {
            if (rc != -ECANCELED) {
                core_errno_raise(rc, "writing to an upload");
            }
            return -1;
        }
    }
    return 0;
}

static PyObject *data_write(struct writer *self, PyObject *data, const Py_buffer *view, bool lend)
{
    PyObject *owner = lend ? PyMemoryView_FromObject(data) : NULL;
    int rc = -1;
    if (!lend || (owner != NULL && lent_keep(self, owner, (unsigned long long)view->len))) {
        struct delivery all = {.data = view->buf, .size = (size_t)view->len, .lend = lend};
        rc = write_all(self, &all);
    }
    Py_XDECREF(owner);
    return rc == 0 ? PyLong_FromSsize_t(view->len) : NULL;
}

static PyObject *writer_write(PyObject *object, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    static char *names[] = {"data", "borrow", NULL};
    struct writer *self = of(object);
    PyObject *data, *result = NULL;
    int borrow = 0;
    Py_buffer view;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$p:write", names, &data, &borrow) ||
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (core_use_begin(&self->use)) {
        result = writer_finish_use(self, data_write(self, data, &view, borrow != 0));
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *writer_write_address(PyObject *object, PyObject *args)
{
    CORE_ENTER();
    struct writer *self = of(object);
    PyObject *owner;
    unsigned long long address, size;
    int sum;
    unsigned int before = 0;
    if (!PyArg_ParseTuple(args, "KKOi|I:_write_address", &address, &size, &owner, &sum, &before)) {
        return NULL;
    }
    if (sum != CORE_SUM_NONE && sum != CORE_SUM_CRC32 && sum != CORE_SUM_CRC32C) {
        return PyErr_Format(PyExc_ValueError, "there is no sum %d", sum);
    }
    if (!core_use_begin(&self->use)) {
        return NULL;
    }
    struct delivery all = {.data = (const uint8_t *)(uintptr_t)address,
                           .size = (size_t)size,
                           .lend = true,
                           .kind = (enum core_sum)sum,
                           .sum = before};
    int rc = lent_keep(self, owner, size) ? write_all(self, &all) : -1;
    return writer_finish_use(self, rc == 0 ? PyLong_FromUnsignedLong(all.sum) : NULL);
}

/* One of the pieces of _write_framed: bytes, memory that is lent, and bytes. */
struct framed {
    PyObject *before, *owner, *behind;
    unsigned long long address, size;
};

/* Borrows from the piece. False with an exception. */
static bool framed_parse(PyObject *tuple, struct framed *out)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a piece must be a tuple");
        return false;
    }
    return PyArg_ParseTuple(tuple, "SKKOS:_write_framed", &out->before, &out->address, &out->size,
                            &out->owner, &out->behind) != 0;
}

static int bytes_write(struct writer *self, PyObject *bytes)
{
    struct delivery all = {.data = (const uint8_t *)PyBytes_AsString(bytes),
                           .size = (size_t)PyBytes_Size(bytes)};
    return write_all(self, &all);
}

/* The CRC32C of what was lent, or NULL with an exception. */
static PyObject *framed_write(struct writer *self, const struct framed *one)
{
    struct delivery all = {.data = (const uint8_t *)(uintptr_t)one->address,
                           .size = (size_t)one->size,
                           .lend = true,
                           .kind = CORE_SUM_CRC32C};
    if (bytes_write(self, one->before) < 0 ||
        (all.size > 0 && (!lent_keep(self, one->owner, one->size) || write_all(self, &all) < 0)) ||
        bytes_write(self, one->behind) < 0) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(all.sum);
}

/* The CRC32Cs, or NULL with an exception. Of a tuple, which nobody can change meanwhile. */
static PyObject *all_framed_write(struct writer *self, PyObject *pieces)
{
    Py_ssize_t count = PyTuple_Size(pieces);
    PyObject *sums = PyList_New(count);
    for (Py_ssize_t i = 0; sums != NULL && i < count; i++) {
        struct framed one;
        PyObject *sum =
            framed_parse(PyTuple_GetItem(pieces, i), &one) ? framed_write(self, &one) : NULL;
        if (sum == NULL) {
            Py_CLEAR(sums);
        } else {
            (void)PyList_SetItem(sums, i, sum);
        }
    }
    return sums;
}

/* One call for many pieces, because four for each take longer than to put a small one into the
 * stream. */
static PyObject *writer_write_framed(PyObject *object, PyObject *given)
{
    CORE_ENTER();
    struct writer *self = of(object);
    PyObject *pieces = PySequence_Tuple(given), *result = NULL;
    if (pieces != NULL && core_use_begin(&self->use)) {
        result = writer_finish_use(self, all_framed_write(self, pieces));
    }
    Py_XDECREF(pieces);
    return result;
}

/* The facts of the object; whatever they are, the writer ends. */
static PyObject *outcome_make(struct writer *self)
{
    struct rg_completion done;
    if (!writer_outcome(self, &done)) {
        return NULL;
    }
    if (done.status != RG_STATUS_OK) {
        return core_error_raise(self->uri, &done);
    }
    PyObject *facts =
        Py_BuildValue("{sLsKsksO}", "generation", (long long)done.generation, "size",
                      (unsigned long long)done.object_size, "crc32c", (unsigned long)done.crc32c,
                      "found_done", done.found_done ? Py_True : Py_False);
    rg_lease_release(done.lease);
    return facts;
}

static PyObject *writer_finish(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct writer *self = of(object);
    if (self->result != NULL) {
        return Py_NewRef(self->result);
    }
    if (!core_use_begin(&self->use)) {
        return NULL;
    }
    self->result = outcome_make(self);
    (void)core_use_close(&self->use);
    (void)core_use_end(&self->use);
    writer_end(self);
    return Py_XNewRef(self->result);
}

/* Of any thread, also while another one is in a call: nothing is waited for, and the writer is
 * there as long as it has not ended. */
static PyObject *writer_set_rate(PyObject *object, PyObject *rate)
{
    CORE_ENTER();
    struct writer *self = of(object);
    unsigned long long bytes_per_s = PyLong_AsUnsignedLongLong(rate);
    if (PyErr_Occurred()) {
        return NULL;
    }
    atomic_store_explicit(&self->rate, bytes_per_s, memory_order_relaxed);
    if (self->writer != NULL) {
        rg_writer_set_rate(self->writer, bytes_per_s);
    }
    Py_RETURN_NONE;
}

static PyObject *writer_abort(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct writer *self = of(object);
    self->is_aborted |=
        self->writer != NULL || core_use_is_closed(&self->use); /* not while it is made */
    if (core_use_close(&self->use)) {
        writer_end(self);
    }
    Py_RETURN_NONE;
}

static PyObject *writer_exit(PyObject *object, PyObject *args)
{
    CORE_ENTER();
    PyObject *type, *value, *trace;
    if (!PyArg_ParseTuple(args, "OOO:__exit__", &type, &value, &trace)) {
        return NULL;
    }
    if (type != Py_None) {
        return writer_abort(object, NULL);
    }
    struct writer *self = of(object);
    if (core_use_is_closed(&self->use) && self->is_aborted) {
        Py_RETURN_NONE;
    }
    if (core_use_is_closed(&self->use) && self->result == NULL) {
        return PyErr_Format(PyExc_ValueError, "%U: nothing is published, since a write has failed",
                            self->uri);
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

static int writer_open(struct writer *self, PyObject *client, PyObject *uri_text,
                       struct rg_writer_options *options)
{
    struct core_uri uri;
    if (!core_uri_parse(uri_text, &uri)) {
        return -1;
    }
    self->session = core_client_session(client);
    if (self->session == NULL) {
        return -1;
    }
    options->bucket = uri.bucket;
    options->object = uri.object;
    int rc = rg_writer_open(&self->writer, self->session->client, options);
    if (rc < 0) {
        core_submit_raise(rc, uri_text);
        return -1;
    }
    self->uri = Py_NewRef(uri_text);
    core_use_open(&self->use, self->session, "writer", self->uri, false);
    return 0;
}

static int writer_make(struct writer *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {
        "client",       "uri",       "part_size", "parts_in_flight", "if_generation_match",
        "content_type", "size_hint", "exclusive", "storage_class",   NULL};
    PyObject *client, *uri_text, *condition = NULL, *class = NULL;
    PyObject *part_size = NULL, *parts = NULL, *size_hint = NULL, *content_type = NULL;
    int exclusive = 1;
    struct rg_writer_options options = {0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!U|$OOOOOpO:Writer", names, core_client_type,
                                     &client, &uri_text, &part_size, &parts, &condition,
                                     &content_type, &size_hint, &exclusive, &class) ||
        !core_storage_class(class, &options.storage_class) ||
        !core_text(content_type, "content_type", &options.content_type) ||
        !core_number(part_size, "part_size", 0, PART_SIZE_MAX, &options.part_size) ||
        !core_number32(parts, "parts_in_flight", 0, PARTS_MAX, &options.parts_inflight_max) ||
        !core_number(size_hint, "size_hint", 0, SIZE_HINT_MAX, &options.size_hint) ||
        !core_condition(condition, &options.conditions.if_generation_match)) {
        return -1;
    }
    options.exclusive = exclusive && options.conditions.if_generation_match != 0;
    return writer_open(self, client, uri_text, &options);
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    PyObject *object = PyType_GenericAlloc(type, 0);
    if (object != NULL && writer_make(of(object), args, keywords) < 0) {
        Py_CLEAR(object);
    }
    return object;
}

static int writer_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct writer *self = of(object);
    Py_VISIT(Py_TYPE(object));
    for (size_t i = self->lent_first; i < self->lent_count; i++) {
        Py_VISIT(self->lent[i].owner);
    }
    return 0;
}

static int writer_clear(PyObject *object)
{
    CORE_ENTER();
    Py_XDECREF(writer_abort(object, NULL));
    return 0;
}

static void writer_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct writer *self = of(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    writer_end(self);
    Py_XDECREF(self->uri);
    Py_XDECREF(self->result);
    PyMem_Free(self->lent);
    core_session_unref(self->session);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyObject *writer_size(PyObject *object, void *nothing)
{
    CORE_ENTER();
    (void)nothing;
    return PyLong_FromUnsignedLongLong(of(object)->size);
}

static PyObject *writer_ended(PyObject *object, void *nothing)
{
    CORE_ENTER();
    (void)nothing;
    return PyBool_FromLong(core_use_is_closed(&of(object)->use));
}

static PyMethodDef writer_methods[] = {
    {"write", (PyCFunction)(void (*)(void))writer_write, METH_VARARGS | METH_KEYWORDS,
     "write(data, *, borrow=False) -> bytes taken, which are all"},
    {"_write_address", writer_write_address, METH_VARARGS,
     "_write_address(address, size, owner, sum, before=0) -> sum: 0: 0, 1: the CRC-32, 2: the "
     "CRC32C, both of what `before` is of, too; lends memory, which `owner` keeps alive"},
    {"_write_framed", writer_write_framed, METH_O,
     "_write_framed([(before, address, size, owner, behind), ...]) -> CRC32Cs: of each the bytes "
     "`before`, lent memory, which `owner` keeps alive, and the bytes `behind`"},
    {"_set_rate", writer_set_rate, METH_O,
     "_set_rate(bytes_per_s): sends no more than that; 0: as fast as it goes"},
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
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_traverse, writer_traverse},
    {Py_tp_clear, writer_clear},
    {Py_tp_methods, writer_methods},
    {Py_tp_getset, writer_getters},
    {0, NULL},
};
static PyType_Spec writer_spec = {
    .name = "ringest._core.Writer",
    .basicsize = sizeof(struct writer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = writer_slots,
};

int core_writer_register(PyObject *module)
{
    return core_type_add(module, &writer_spec, &writer_type);
}
