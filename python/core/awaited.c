/* AsyncIteration: what aiter() of a dataset gives, over an Iteration of a reader that was started.
 * Each call of anext() makes a Step, which is awaited, and then gives one value.
 *
 *   Step:  NEW -> RUNNING <-> WAITING    for a future, or for other tasks to have run
 *     |              |          |
 *     +--------------+----------+--> DONE
 *
 * A Step takes nothing along that it does not give. Where its task is cancelled while it waits,
 * what has come stays with the Iteration and the reader, and the next Step goes on from there.
 * Between the Iteration, which says that samples are consumed, and an `async for` no code of
 * Python's runs. */
#include "core.h"

/* A task that always finds samples lets the others of its loop run after so long. */
#define GIVE_WAY_NS (UINT64_C(2) * 1000 * 1000)

static PyTypeObject *awaited_type, *step_type;

struct awaited {
    PyObject_HEAD PyObject *iteration;
    PyObject *reader; /* as a value it says that there is none yet */
    PyObject *wait;   /* a function that gives a future: when to look again */
    PyObject *turn;   /* borrowed; the Step that is under way; NULL: none */
    uint64_t ran_ns;  /* since when no other task has run, as far as is known */
};

enum step_state { NEW, RUNNING, WAITING, DONE };

struct step {
    PyObject_HEAD struct awaited *of; /* owned */
    PyObject *future;                 /* its iterator; NULL: it waits for none */
    enum step_state state;
    bool is_close; /* of aclose() */
    bool has_waited;
    bool was_closed; /* the iteration, when it began */
};

static struct step *step_of(PyObject *object)
{
    return (struct step *)object;
}

static struct awaited *awaited_of(PyObject *object)
{
    return (struct awaited *)object;
}

static const char *const state_names[] = {"NEW", "RUNNING", "WAITING", "DONE"};

/* The only place that changes the state. */
static void step_become(struct step *self, enum step_state state)
{
    bool is_allowed = state == RUNNING   ? self->state == NEW || self->state == WAITING
                      : state == WAITING ? self->state == RUNNING
                                         : state == DONE && self->state != DONE;
    if (!is_allowed) {
        core_state_fail("dataset's awaited step", state_names[self->state], state_names[state]);
    }
    self->state = state;
    if (!self->is_close) {
        self->of->turn = state == DONE ? NULL : (PyObject *)self;
    }
    if (state == DONE) {
        Py_CLEAR(self->future);
    }
}

static PySendResult step_end(struct step *self, PySendResult result)
{
    step_become(self, DONE);
    return result;
}

static PySendResult step_close(struct step *self, PyObject **out)
{
    *out = PyObject_CallMethod(self->of->iteration, "close", NULL);
    return step_end(self, *out != NULL ? PYGEN_RETURN : PYGEN_ERROR);
}

/* There is no value. */
static PySendResult step_fail(struct step *self)
{
    if (!PyErr_Occurred() && !self->was_closed && core_iteration_is_closed(self->of->iteration)) {
        PyErr_SetString(PyExc_ValueError, "this iteration was closed while it was awaited");
    } else if (!PyErr_Occurred()) {
        PyErr_SetNone(PyExc_StopAsyncIteration);
    }
    return step_end(self, PYGEN_ERROR);
}

/* The future that says when there may be more. */
static int future_make(struct step *self)
{
    PyObject *future = PyObject_CallNoArgs(self->of->wait);
    self->future = future != NULL ? PyObject_CallMethod(future, "__await__", NULL) : NULL;
    Py_XDECREF(future);
    self->has_waited = true;
    return self->future != NULL ? 0 : -1;
}

/* PYGEN_RETURN: the future, if any, is there, or now another is to be made. */
static PySendResult future_send(struct step *self, PyObject *sent, PyObject **out)
{
    PySendResult result =
        self->future != NULL ? PyIter_Send(self->future, sent, out) : PYGEN_RETURN;
    if (result == PYGEN_RETURN) {
        Py_CLEAR(*out);
        Py_CLEAR(self->future);
        self->of->ran_ns = rg_now_ns();
    }
    return result;
}

/* Gives the next value, or what the event loop is to wait for. */
static PySendResult step_advance(struct step *self, PyObject *sent, PyObject **out)
{
    PySendResult result = self->has_waited ? future_send(self, sent, out) : PYGEN_RETURN;
    while (result == PYGEN_RETURN) {
        *out = PyIter_Next(self->of->iteration);
        if (*out == NULL) {
            return step_fail(self);
        }
        if (*out != self->of->reader) {
            return step_end(self, PYGEN_RETURN);
        }
        Py_CLEAR(*out);
        result = future_make(self) == 0 ? future_send(self, Py_None, out) : PYGEN_ERROR;
    }
    if (result == PYGEN_ERROR) {
        return step_end(self, result);
    }
    step_become(self, WAITING);
    return result;
}

static bool step_may_go_on(const struct step *self)
{
    const PyObject *turn = self->of->turn;
    if (self->state == RUNNING) {
        PyErr_SetString(PyExc_ValueError, "what is awaited is being advanced already");
    } else if (self->state == DONE) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse what was awaited already");
    } else if (!self->is_close && turn != NULL && turn != (const PyObject *)self) {
        PyErr_SetString(PyExc_ValueError, "this iteration is being awaited already, by another "
                                          "task: give each its own");
    } else {
        return true;
    }
    return false;
}

static PySendResult step_send(PyObject *object, PyObject *sent, PyObject **out)
{
    CORE_ENTER();
    struct step *self = step_of(object);
    *out = NULL;
    if (!step_may_go_on(self)) {
        return PYGEN_ERROR;
    }
    bool is_new = self->state == NEW;
    step_become(self, RUNNING);
    self->was_closed = is_new ? core_iteration_is_closed(self->of->iteration) : self->was_closed;
    if (self->is_close) {
        return step_close(self, out);
    }
    if (is_new && rg_now_ns() - self->of->ran_ns >= GIVE_WAY_NS) {
        self->has_waited = true;
        *out = Py_NewRef(Py_None); /* which tells asyncio to come again when others have run */
        step_become(self, WAITING);
        return PYGEN_NEXT;
    }
    return step_advance(self, sent, out);
}

/* As an iterator and a coroutine have it: what is returned is in a StopIteration. */
static PyObject *step_send_one(PyObject *object, PyObject *sent)
{
    CORE_ENTER();
    PyObject *value;
    PySendResult result = step_send(object, sent, &value);
    if (result != PYGEN_RETURN) {
        return value;
    }
    PyObject *stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, value, NULL);
    Py_DECREF(value);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
    return NULL;
}

static PyObject *step_next(PyObject *object)
{
    CORE_ENTER();
    return step_send_one(object, Py_None);
}

static void raise_given(PyObject *args)
{
    PyObject *type, *value = NULL, *trace = NULL;
    if (!PyArg_ParseTuple(args, "O|OO:throw", &type, &value, &trace)) {
        return;
    }
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else if (PyExceptionClass_Check(type)) {
        PyErr_SetObject(type, value);
    } else {
        PyErr_SetString(PyExc_TypeError, "only an exception can be thrown");
    }
}

/* What waits ends, and nothing else does. False with an exception. */
static bool step_leave(struct step *self)
{
    if (self->state == RUNNING) {
        return step_may_go_on(self);
    }
    if (self->state != DONE) {
        step_become(self, DONE);
    }
    return true;
}

static PyObject *step_throw(PyObject *object, PyObject *args)
{
    CORE_ENTER();
    if (step_leave(step_of(object))) {
        raise_given(args);
    }
    return NULL;
}

static PyObject *step_stop(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    return step_leave(step_of(object)) ? Py_NewRef(Py_None) : NULL;
}

static int step_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct step *self = step_of(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->of);
    Py_VISIT(self->future);
    return 0;
}

static void step_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct step *self = step_of(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)step_leave(self);
    Py_DECREF(self->of);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyObject *step_new(PyObject *of, bool is_close)
{
    struct step *self = (struct step *)PyType_GenericAlloc(step_type, 0);
    if (self != NULL) {
        self->of = awaited_of(Py_NewRef(of));
        self->is_close = is_close;
    }
    return (PyObject *)self;
}

static PyObject *awaited_next(PyObject *object)
{
    CORE_ENTER();
    return step_new(object, false);
}

static PyObject *awaited_close(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    return step_new(object, true);
}

static PyObject *awaited_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    PyObject *values, *reader, *wait;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "OO!O:AsyncIteration", &values, core_reader_type, &reader, &wait)) {
        return NULL;
    }
    PyObject *iteration = core_iteration_new(values, reader);
    struct awaited *self =
        iteration != NULL ? (struct awaited *)PyType_GenericAlloc(type, 0) : NULL;
    if (self == NULL) {
        Py_XDECREF(iteration);
        return NULL;
    }
    self->iteration = iteration;
    self->reader = Py_NewRef(reader);
    self->wait = Py_NewRef(wait);
    self->ran_ns = rg_now_ns();
    return (PyObject *)self;
}

static int awaited_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct awaited *self = awaited_of(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->iteration);
    Py_VISIT(self->reader);
    Py_VISIT(self->wait);
    return 0;
}

static void awaited_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct awaited *self = awaited_of(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self->iteration);
    Py_CLEAR(self->reader);
    Py_CLEAR(self->wait);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMethodDef step_methods[] = {
    {"send", step_send_one, METH_O, "As of a coroutine."},
    {"throw", step_throw, METH_VARARGS, "As of a coroutine; the iteration may go on."},
    {"close", step_stop, METH_NOARGS, "As of a coroutine; the iteration may go on."},
    {0},
};
static PyType_Slot step_slots[] = {
    {Py_tp_dealloc, step_dealloc},    {Py_tp_traverse, step_traverse},
    {Py_tp_iter, PyObject_SelfIter},  {Py_tp_iternext, step_next},
    {Py_am_await, PyObject_SelfIter}, {Py_am_send, step_send},
    {Py_tp_methods, step_methods},    {0, NULL},
};
static PyType_Spec step_spec = {
    .name = "ringest._core.AsyncIterationStep",
    .basicsize = sizeof(struct step),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = step_slots,
};

static PyMethodDef awaited_methods[] = {
    {"aclose", awaited_close, METH_NOARGS,
     "Ends it, as an asynchronous generator's does. What another task awaits of it fails."},
    {0},
};
static PyType_Slot awaited_slots[] = {
    {Py_tp_doc, "AsyncIteration(values, reader, wait): the same values, awaited; what goes out "
                "with each is consumed."},
    {Py_tp_new, awaited_new},
    {Py_tp_dealloc, awaited_dealloc},
    {Py_tp_traverse, awaited_traverse},
    {Py_am_aiter, PyObject_SelfIter},
    {Py_am_anext, awaited_next},
    {Py_tp_methods, awaited_methods},
    {0, NULL},
};
static PyType_Spec awaited_spec = {
    .name = "ringest._core.AsyncIteration",
    .basicsize = sizeof(struct awaited),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = awaited_slots,
};

int core_awaited_register(PyObject *module)
{
    int rc = core_type_add(module, &step_spec, &step_type);
    return rc == 0 ? core_type_add(module, &awaited_spec, &awaited_type) : rc;
}
