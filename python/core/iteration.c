/* Iteration: what iter() of a dataset gives. It takes from an iterator of Python's and says that a
 * reader's samples are consumed when one of its values goes to the caller.
 *
 * Between the two no code of Python's runs, and so no signal handler, which could raise and keep
 * the value from arriving: what a `for` has not been given is not consumed.
 *
 * A value that is the reader itself is no sample: it says that the next one is to be waited for,
 * which is the business of awaited.c.
 *
 *   IDLE <-> RUNNING -> OVER     the iterator is exhausted
 *    |               -> BROKEN   it raised: whoever asks for more is told so, and not that the
 *    |                           epoch has ended
 *    +-------------> OVER        it was closed */
#include "core.h"

static PyTypeObject *iteration_type;

enum iteration_state { IDLE, RUNNING, OVER, BROKEN };

struct iteration {
    PyObject_HEAD PyObject *values; /* an iterator */
    PyObject *reader;
    PyObject *cause; /* a text; of BROKEN */
    enum iteration_state state;
    bool is_closed; /* somebody has asked for that */
};

static const char *const state_names[] = {"IDLE", "RUNNING", "OVER", "BROKEN"};

/* The only place that changes the state. */
static void iteration_become(struct iteration *self, enum iteration_state state)
{
    bool is_allowed = self->state == IDLE      ? state == RUNNING || state == OVER
                      : self->state == RUNNING ? state != RUNNING
                                               : false;
    if (!is_allowed) {
        core_state_fail("dataset's iteration", state_names[self->state], state_names[state]);
    }
    self->state = state;
}

static struct iteration *of(PyObject *object)
{
    return (struct iteration *)object;
}

bool core_iteration_is_closed(PyObject *iteration)
{
    return of(iteration)->is_closed;
}

PyObject *core_iteration_new(PyObject *values, PyObject *reader)
{
    return PyObject_CallFunctionObjArgs((PyObject *)iteration_type, values, reader, NULL);
}

static PyObject *iteration_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    PyObject *values, *reader;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "OO!:Iteration", &values, core_reader_type, &reader)) {
        return NULL;
    }
    if (!PyIter_Check(values)) {
        return PyErr_Format(PyExc_TypeError, "an Iteration is over an iterator, not %R", values);
    }
    allocfunc alloc = PyType_GetSlot(type, Py_tp_alloc);
    struct iteration *self = (struct iteration *)alloc(type, 0);
    if (self != NULL) {
        self->values = Py_NewRef(values);
        self->reader = Py_NewRef(reader);
    }
    return (PyObject *)self;
}

static int iteration_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct iteration *self = of(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->values);
    Py_VISIT(self->reader);
    return 0;
}

static int iteration_clear(PyObject *object)
{
    CORE_ENTER();
    struct iteration *self = of(object);
    Py_CLEAR(self->values);
    Py_CLEAR(self->reader);
    Py_CLEAR(self->cause);
    return 0;
}

static void iteration_dealloc(PyObject *object)
{
    CORE_ENTER();
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)iteration_clear(object);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* Keeps what the exception that is set says, and not the exception, whose frames hold samples. */
static void cause_keep(struct iteration *self)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    self->cause = PyObject_Repr(value);
    if (self->cause == NULL) {
        PyErr_Clear();
    }
    PyErr_Restore(type, value, trace);
}

static bool iteration_may_go_on(const struct iteration *self)
{
    if (self->state == RUNNING) {
        PyErr_SetString(PyExc_ValueError,
                        "this iteration is being advanced already, by another thread or from "
                        "within a transform: give each its own");
    } else if (self->state == BROKEN) {
        PyErr_Format(PyExc_RuntimeError,
                     "this iteration ended with %V and has not given all of the epoch: begin "
                     "another one, after load_state_dict(state_dict()) where this one ended",
                     self->cause, "an error");
    }
    return self->state == IDLE && self->values != NULL; /* the garbage collector has cleared it */
}

static PyObject *iteration_next(PyObject *object)
{
    CORE_ENTER();
    struct iteration *self = of(object);
    if (!iteration_may_go_on(self)) {
        return NULL;
    }
    iteration_become(self, RUNNING);
    core_reader_step(self->reader, CORE_READER_ASKED);
    PyObject *value = PyIter_Next(self->values);
    if (value != NULL && (value == self->reader || core_reader_hand_out(self->reader) == 0)) {
        iteration_become(self, IDLE);
        core_reader_step(self->reader,
                         value == self->reader ? CORE_READER_SLEEPS : CORE_READER_GIVES);
        return value;
    }
    core_reader_step(self->reader, CORE_READER_ENDS);
    bool has_raised = PyErr_Occurred() != NULL;
    iteration_become(self, has_raised ? BROKEN : OVER);
    Py_XDECREF(value);
    if (has_raised) {
        cause_keep(self);
    }
    return NULL;
}

/* Only the first one closes the iterator: it may let others run, and come here again, meanwhile.
 * While the iterator is advanced its reader is closed instead, which ends that. */
static PyObject *iteration_close(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct iteration *self = of(object);
    bool is_first = !self->is_closed && self->values != NULL;
    self->is_closed = true;
    if (!is_first) {
        Py_RETURN_NONE;
    }
    if (self->state == RUNNING) {
        return PyObject_CallMethod(self->reader, "close", NULL);
    }
    if (self->state == IDLE) {
        iteration_become(self, OVER);
    }
    return PyObject_CallMethod(self->values, "close", NULL);
}

static PyMethodDef iteration_methods[] = {
    {"close", iteration_close, METH_NOARGS,
     "Ends it, as a generator's does. A call that another thread is in fails."},
    {0},
};

static PyType_Slot iteration_slots[] = {
    {Py_tp_doc, "Iteration(values, reader): the same values; what goes out with each is consumed."},
    {Py_tp_new, iteration_new},
    {Py_tp_dealloc, iteration_dealloc},
    {Py_tp_traverse, iteration_traverse},
    {Py_tp_clear, iteration_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, iteration_next},
    {Py_tp_methods, iteration_methods},
    {0, NULL},
};
static PyType_Spec iteration_spec = {
    .name = "ringest._core.Iteration",
    .basicsize = sizeof(struct iteration),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = iteration_slots,
};

int core_iteration_register(PyObject *module)
{
    return core_type_add(module, &iteration_spec, &iteration_type);
}
