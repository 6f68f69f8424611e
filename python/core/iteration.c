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
    PyObject *cause;    /* a text; of BROKEN */
    PyObject *profiler; /* the module torch.autograd.profiler; NULL: it was not imported */
    PyObject *title;    /* that it shows */
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
    PyObject *values, *reader, *profiler = Py_None, *title = Py_None;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "OO!|OO:Iteration", &values, core_reader_type, &reader, &profiler,
                          &title)) {
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
        self->profiler = profiler != Py_None ? Py_NewRef(profiler) : NULL;
        self->title = Py_NewRef(title);
    }
    return (PyObject *)self;
}

static int iteration_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct iteration *self = of(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->values);
    Py_VISIT(self->reader);
    Py_VISIT(self->profiler);
    return 0;
}

static int iteration_clear(PyObject *object)
{
    CORE_ENTER();
    struct iteration *self = of(object);
    Py_CLEAR(self->values);
    Py_CLEAR(self->reader);
    Py_CLEAR(self->cause);
    Py_CLEAR(self->profiler);
    Py_CLEAR(self->title);
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

/* If the profiler runs, it is told of a step that begins: a context that was entered, or NULL.
 * -1 with an exception, which may be that of a signal's handler. */
static int profile_begin(const struct iteration *self, PyObject **out_context)
{
    PyObject *is_on = self->profiler != NULL
                          ? PyObject_GetAttrString(self->profiler, "_is_profiler_enabled")
                          : Py_NewRef(Py_False);
    PyObject *context = NULL, *entered = NULL;
    if (is_on == Py_True) {
        context = PyObject_CallMethod(self->profiler, "record_function", "O", self->title);
        entered = context != NULL ? PyObject_CallMethod(context, "__enter__", NULL) : NULL;
    }
    bool has_failed = is_on == NULL || (is_on == Py_True && entered == NULL);
    if (has_failed) {
        Py_CLEAR(context);
    }
    Py_XDECREF(entered);
    Py_XDECREF(is_on);
    *out_context = context;
    return has_failed ? -1 : 0;
}

/* -1 with an exception; one that was set before stays. */
static int profile_end(PyObject *context)
{
    if (context == NULL) {
        return 0;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *ended = PyObject_CallMethod(context, "__exit__", "OOO", Py_None, Py_None, Py_None);
    int rc = ended != NULL ? 0 : -1;
    Py_XDECREF(ended);
    Py_DECREF(context);
    if (type != NULL) {
        PyErr_Restore(type, value, trace);
    }
    return rc;
}

/* The next value, of which nobody has been told yet. */
static PyObject *value_take(const struct iteration *self)
{
    PyObject *profile;
    PyObject *value = profile_begin(self, &profile) == 0 ? PyIter_Next(self->values) : NULL;
    if (profile_end(profile) < 0) {
        Py_CLEAR(value);
    }
    return value;
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
    PyObject *value = value_take(self);
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
