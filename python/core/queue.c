/* Queue: requests that are awaited. Each has a tag, which comes back with what it became; an event
 * loop of Python's watches the descriptor and takes.
 *
 *   submit (tag, operation) -> ticket        take -> [(tag, result, error), ...]
 *
 * One thread at a time; any may cancel a ticket, or close the queue. What is out when it is closed
 * is cancelled and waited for.
 *
 * Invariant, under the interpreter's lock and between two calls: every slot is either on the list
 * of free ones or has what is pending with a ticket of that slot; the counts are those of the
 * slots. */
#include "core.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define CAPACITY_MAX 65536
#define TAKE_MAX 256

struct pending {
    struct core_operation operation;
    PyObject *tag;
    uint64_t ticket, since_ns;
    /* Both may hold: the caller has cancelled it; we have, for want of memory. */
    bool is_cancelled, is_starved;
};

struct queue {
    PyObject_HEAD struct core_session *session;
    struct core_use use;
    struct rg_cq *cq; /* NULL: closed */
    struct pending **slots;
    uint32_t *free; /* numbers of slots, the last one is the next to be used */
    uint32_t capacity, out_count, greedy_count; /* those that are not lean */
    uint64_t next;                              /* a ticket is next * capacity + slot */
    struct core_watch watch;
    uint64_t refused_since_ns; /* since when the client has had no room; 0: it has */
};
static PyTypeObject *queue_type;

static struct queue *of(PyObject *object)
{
    return (struct queue *)object;
}

/* O(capacity): for RG_VERIFY. */
static bool invariants(const struct queue *self)
{
    uint32_t out = 0, greedy = 0;
    for (uint32_t i = 0; i < self->capacity; i++) {
        const struct pending *pending = self->slots[i];
        if (pending != NULL) {
            out++;
            greedy += !core_operation_is_lean(&pending->operation);
            if (pending->ticket % self->capacity != i || pending->tag == NULL) {
                return false;
            }
        }
    }
    for (uint32_t i = 0; i < self->capacity - self->out_count; i++) {
        if (self->free[i] >= self->capacity || self->slots[self->free[i]] != NULL) {
            return false;
        }
    }
    return out == self->out_count && greedy == self->greedy_count && self->cq != NULL;
}

static int queue_make(struct queue *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"client", "capacity", NULL};
    PyObject *client, *number;
    uint32_t capacity = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O:Queue", names, core_client_type, &client,
                                     &number) ||
        !core_number32(number, "capacity", 1, CAPACITY_MAX, &capacity)) {
        return -1;
    }
    self->session = core_client_session(client);
    if (self->session == NULL) {
        return -1;
    }
    core_watch_begin(&self->watch, self->session, false);
    self->slots = PyMem_Calloc(capacity, sizeof(struct pending *));
    self->free = PyMem_Calloc(capacity, sizeof(uint32_t));
    if (self->slots == NULL || self->free == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < capacity; i++) {
        self->free[i] = capacity - 1 - i;
    }
    self->capacity = capacity;
    if (core_queue_open(self->session, capacity, &self->cq) < 0) {
        return -1;
    }
    core_use_open(&self->use, self->session, "queue", NULL, true);
    return 0;
}

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    PyObject *object = PyType_GenericAlloc(type, 0);
    if (object != NULL && queue_make(of(object), args, keywords) < 0) {
        Py_CLEAR(object);
    }
    return object;
}

static void pending_free(struct queue *self, struct pending *pending)
{
    uint32_t slot = (uint32_t)(pending->ticket % self->capacity);
    self->slots[slot] = NULL;
    self->free[self->capacity - self->out_count] = slot;
    self->out_count--;
    self->greedy_count -= !core_operation_is_lean(&pending->operation);
    core_operation_fini(&pending->operation);
    Py_XDECREF(pending->tag);
    PyMem_Free(pending);
}

/* What has become of one, as (tag, result, error). */
static PyObject *outcome_make(PyObject *tag, PyObject *result)
{
    if (result != NULL) {
        return Py_BuildValue("(ONO)", tag, result, Py_None);
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *outcome = Py_BuildValue("(OOO)", tag, Py_None, value != NULL ? value : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return outcome;
}

/* Adds the outcome of a completion to the list, or submits what is to be gone on with. */
static int completion_take(struct queue *self, PyObject *list, const struct rg_completion *done)
{
    struct pending *pending = self->slots[done->user_data % self->capacity];
    PyObject *result = NULL;
    if (pending->is_starved && done->status == RG_STATUS_CANCELLED) {
        rg_lease_release(done->lease);
        core_operation_drop(&pending->operation);
        core_memory_raise(self->session);
    } else {
        result = core_operation_result(&pending->operation, self->session, done);
    }
    if (result == NULL && !PyErr_Occurred()) {
        int rc = pending->is_cancelled ? -ECANCELED
                                       : core_operation_submit(&pending->operation, self->session,
                                                               self->cq, pending->ticket);
        if (rc == 0) {
            return 0;
        }
        if (!PyErr_Occurred()) {
            core_errno_raise(rc, "the next page of a listing");
        }
    }
    PyObject *outcome = outcome_make(pending->tag, result);
    pending_free(self, pending);
    int rc = outcome != NULL ? PyList_Append(list, outcome) : -1;
    Py_XDECREF(outcome);
    return rc;
}

/* Takes what the operation has, on success. 0 with a ticket; -EAGAIN: there is no room; else
 * negative with an exception. */
static int pending_submit(struct queue *self, struct pending *pending, uint64_t *out_ticket)
{
    uint32_t slot = self->free[self->capacity - 1 - self->out_count];
    uint64_t ticket = pending->ticket = self->next++ * self->capacity + slot;
    self->slots[slot] = pending;
    if (self->out_count++ == 0) {
        core_watch_news(&self->watch);
    }
    self->greedy_count += !core_operation_is_lean(&pending->operation);
    pending->since_ns = rg_now_ns();
    int rc = core_operation_submit(&pending->operation, self->session, self->cq, ticket);
    if (rc < 0) {
        pending_free(self, pending);
    }
    *out_ticket = ticket;
    return rc;
}

/* The client has no room. None, or NULL with an exception where memory is what keeps it full. */
static PyObject *refusal(struct queue *self)
{
    uint64_t now_ns = rg_now_ns();
    self->refused_since_ns = self->refused_since_ns != 0 ? self->refused_since_ns : now_ns;
    if (now_ns - self->refused_since_ns >= self->session->patience_ns &&
        core_watch_is_starved(&self->watch)) {
        return core_memory_raise(self->session);
    }
    Py_RETURN_NONE;
}

/* A ticket, or None. */
static PyObject *operation_submit(struct queue *self, PyObject *tag, const char *name,
                                  PyObject *args, PyObject *keywords)
{
    if (self->out_count == self->capacity) {
        Py_RETURN_NONE;
    }
    struct pending *pending = PyMem_Calloc(1, sizeof(*pending));
    if (pending == NULL) {
        return PyErr_NoMemory();
    }
    if (core_operation_init(&pending->operation, name, args, keywords) < 0) {
        PyMem_Free(pending);
        return NULL;
    }
    pending->tag = Py_NewRef(tag);
    uint64_t ticket;
    int rc = pending_submit(self, pending, &ticket);
    if (rc == -EAGAIN) {
        return refusal(self);
    }
    self->refused_since_ns = 0;
    return rc < 0 ? NULL : PyLong_FromUnsignedLongLong(ticket);
}

static void queue_end(struct queue *self);

/* Gives the result, unless somebody has closed the queue meanwhile. */
static PyObject *queue_finish(struct queue *self, PyObject *result)
{
    RG_VERIFY(invariants(self));
    if (!core_use_goes_on(&self->use)) {
        Py_CLEAR(result);
    }
    if (core_use_end(&self->use)) {
        queue_end(self);
    }
    return result;
}

static PyObject *queue_submit(PyObject *object, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    struct queue *self = of(object);
    Py_ssize_t given = PyTuple_Size(args);
    if (given < 2) {
        PyErr_SetString(PyExc_TypeError, "submit(tag, name, ...)");
        return NULL;
    }
    const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(args, 1), NULL);
    PyObject *rest = name != NULL ? PyTuple_GetSlice(args, 2, given) : NULL;
    if (rest == NULL || !core_use_begin(&self->use)) {
        Py_XDECREF(rest);
        return NULL;
    }
    PyObject *ticket = operation_submit(self, PyTuple_GetItem(args, 0), name, rest, keywords);
    Py_DECREF(rest);
    return queue_finish(self, ticket);
}

static PyObject *queue_cancel(PyObject *object, PyObject *number)
{
    CORE_ENTER();
    struct queue *self = of(object);
    uint64_t ticket = 0;
    if (!core_number(number, "ticket", 0, UINT64_MAX, &ticket)) {
        return NULL;
    }
    struct pending *pending = self->cq != NULL ? self->slots[ticket % self->capacity] : NULL;
    if (pending != NULL && pending->ticket == ticket) {
        pending->is_cancelled = true;
        (void)rg_cancel(self->session->client, self->cq, ticket);
    }
    Py_RETURN_NONE;
}

/* All completions of the array become outcomes, whatever fails. */
static int completions_take(struct queue *self, PyObject *list, const struct rg_completion *done,
                            int count)
{
    int rc = 0;
    if (count > 0) {
        core_watch_news(&self->watch);
    }
    for (int i = 0; i < count; i++) {
        rc = completion_take(self, list, &done[i]) < 0 ? -1 : rc;
    }
    return rc;
}

/* Ends what has waited for memory for too long: each comes back with a MemoryError. */
static void memory_look(struct queue *self)
{
    self->watch.is_lean = self->greedy_count == 0;
    if (self->out_count == 0 || !core_watch_is_starved(&self->watch)) {
        return;
    }
    uint64_t now_ns = rg_now_ns();
    for (uint32_t i = 0; i < self->capacity; i++) {
        struct pending *pending = self->slots[i];
        if (pending != NULL && now_ns - pending->since_ns >= self->session->patience_ns) {
            pending->is_starved = true;
            (void)rg_cancel(self->session->client, self->cq, pending->ticket);
        }
    }
}

/* Outcomes of what has ended, possibly none. */
static PyObject *outcomes_take(struct queue *self)
{
    uint64_t readable;
    if (read(rg_cq_fd(self->cq), &readable, sizeof(readable)) < 0 && errno != EAGAIN) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyObject *list = PyList_New(0);
    struct rg_completion done[TAKE_MAX];
    int count = TAKE_MAX;
    /* Until none is left: only that makes the descriptor tell of the next one. */
    while (list != NULL && count > 0) {
        count = rg_cq_poll(self->cq, done, TAKE_MAX);
        if (count < 0) {
            core_errno_raise(count, "taking completions");
            Py_CLEAR(list);
        } else if (completions_take(self, list, done, count) < 0) {
            Py_CLEAR(list);
        }
    }
    if (list != NULL && PyList_Size(list) == 0) {
        memory_look(self);
    }
    return list;
}

static PyObject *queue_take(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct queue *self = of(object);
    return core_use_begin(&self->use) ? queue_finish(self, outcomes_take(self)) : NULL;
}

/* At least one, if any is out. */
static PyObject *outcomes_wait(struct queue *self)
{
    PyObject *list = PyList_New(0);
    struct rg_completion done[TAKE_MAX];
    while (list != NULL && PyList_Size(list) == 0 && self->out_count > 0) {
        self->watch.is_lean = self->greedy_count == 0;
        int count = core_wait(&self->watch, &self->use, self->cq, done, TAKE_MAX);
        if (count < 0 || completions_take(self, list, done, count) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *queue_wait(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct queue *self = of(object);
    return core_use_begin(&self->use) ? queue_finish(self, outcomes_wait(self)) : NULL;
}

/* Nothing is out any more. */
static void slots_free(struct queue *self)
{
    for (uint32_t i = 0; i < self->capacity && self->slots != NULL; i++) {
        if (self->slots[i] != NULL) {
            core_operation_drop(&self->slots[i]->operation);
            pending_free(self, self->slots[i]);
        }
    }
}

static PyObject *queue_tags(struct queue *self)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; i < self->capacity && list != NULL; i++) {
        if (self->slots[i] != NULL && PyList_Append(list, self->slots[i]->tag) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* An exception that is set stays. */
static void queue_end(struct queue *self)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    struct rg_cq *cq = self->cq;
    self->cq = NULL; /* nobody else goes on while other threads run */
    if (cq != NULL && core_session_is_own(self->session)) {
        for (uint32_t i = 0; i < self->capacity; i++) {
            if (self->slots[i] != NULL) {
                (void)rg_cancel(self->session->client, cq, self->slots[i]->ticket);
            }
        }
        core_drain(self->session, cq, 0, 0, self->out_count);
    }
    if (!core_use_is_half_done(&self->use)) {
        slots_free(self);
    }
    rg_cq_close(cq);
    core_use_drop_session(&self->use, &self->session);
    PyErr_Restore(type, value, trace);
}

static PyObject *queue_close(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct queue *self = of(object);
    PyObject *tags = queue_tags(self);
    if (core_use_close(&self->use)) {
        queue_end(self);
    } else if (self->cq != NULL) {
        rg_cq_interrupt(self->cq);
    }
    return tags;
}

static int queue_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct queue *self = of(object);
    Py_VISIT(Py_TYPE(object));
    for (uint32_t i = 0; i < self->capacity; i++) {
        if (self->slots[i] != NULL) {
            Py_VISIT(self->slots[i]->tag);
            int rc = core_operation_traverse(&self->slots[i]->operation, visit, arg);
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

static int queue_clear(PyObject *object)
{
    CORE_ENTER();
    struct queue *self = of(object);
    if (core_use_close(&self->use)) {
        queue_end(self);
    }
    return 0;
}

static void queue_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct queue *self = of(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->session != NULL) {
        (void)core_use_close(&self->use);
        queue_end(self);
    }
    PyMem_Free(self->slots);
    PyMem_Free(self->free);
    core_session_unref(self->session);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyObject *queue_fileno(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct queue *self = of(object);
    if (self->cq == NULL) {
        PyErr_SetString(PyExc_ValueError, "the queue is closed");
        return NULL;
    }
    int fd = rg_cq_fd(self->cq);
    return fd < 0 ? core_errno_raise(fd, "making an eventfd") : PyLong_FromLong(fd);
}

static Py_ssize_t queue_length(PyObject *object)
{
    CORE_ENTER();
    return of(object)->out_count;
}

static PyMethodDef queue_methods[] = {
    {"submit", (PyCFunction)(void (*)(void))queue_submit, METH_VARARGS | METH_KEYWORDS,
     "submit(tag, name, ...) -> ticket, or None where there is no room: a call of the client's, by "
     "its name and arguments"},
    {"take", queue_take, METH_NOARGS,
     "take() -> [(tag, result, error), ...] of what has ended, possibly nothing"},
    {"wait", queue_wait, METH_NOARGS, "wait() -> the same, after waiting for one at least"},
    {"cancel", queue_cancel, METH_O, "cancel(ticket): it ends soon, as cancelled or not"},
    {"fileno", queue_fileno, METH_NOARGS, "A descriptor that is readable when take() is due."},
    {"close", queue_close, METH_NOARGS,
     "Cancels what is out and waits for that; returns the tags of it."},
    {0},
};

static PyType_Slot queue_slots[] = {
    {Py_tp_doc, "Queue(client, capacity): requests that are awaited. One thread at a time."},
    {Py_tp_new, queue_new},
    {Py_tp_dealloc, queue_dealloc},
    {Py_tp_traverse, queue_traverse},
    {Py_tp_clear, queue_clear},
    {Py_tp_methods, queue_methods},
    {Py_sq_length, queue_length},
    {0, NULL},
};
static PyType_Spec queue_spec = {
    .name = "ringest._core.Queue",
    .basicsize = sizeof(struct queue),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = queue_slots,
};

int core_queue_register(PyObject *module)
{
    return core_type_add(module, &queue_spec, &queue_type);
}
