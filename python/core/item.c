/* Item: what one request of many became.
 *
 * The garbage collector looks at those that may be part of a cycle, by what an error or a dict
 * refers to; most have a Buffer and a str, which refer to nothing. */
#include "core.h"

#include <stddef.h>
#include <structmember.h>

static PyTypeObject *item_type;

struct item {
    PyObject_HEAD PyObject *uri; /* NULL until somebody asks, where `objects` knows it */
    PyObject *objects, *data, *error;
    unsigned long long index;
    long long generation;
    char is_gzip;
};

static PyObject *item_uri(struct item *self)
{
    if (self->uri == NULL) {
        self->uri = core_objects_uri(self->objects, self->index);
    }
    return self->uri;
}

/* Takes the completion's lease. */
static PyObject *item_fill(struct item *self, struct core_session *session,
                           const struct rg_completion *completion)
{
    self->generation = completion->generation;
    self->is_gzip = completion->is_gzip;
    bool is_good = completion->status == RG_STATUS_OK;
    bool is_noted = !is_good || core_request_is_notable(completion);
    if (is_noted && (item_uri(self) == NULL || core_request_note(self->uri, completion) < 0)) {
        rg_lease_release(completion->lease);
        Py_DECREF(self);
        return NULL;
    }
    self->data = is_good ? core_buffer_new(session, completion) : Py_NewRef(Py_None);
    self->error = is_good ? Py_NewRef(Py_None) : core_error_new(self->uri, completion);
    if (self->data == NULL || self->error == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    if (!is_good) {
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

static PyObject *item_new(struct core_session *session, PyObject *uri, PyObject *objects,
                          uint64_t index, const struct rg_completion *completion)
{
    struct item *self = PyObject_GC_New(struct item, item_type);
    if (self == NULL) {
        rg_lease_release(completion->lease);
        return NULL;
    }
    self->uri = uri;
    self->objects = objects;
    Py_XINCREF(uri);
    Py_XINCREF(objects);
    self->data = self->error = NULL;
    self->index = index;
    return item_fill(self, session, completion);
}

PyObject *core_item_new(struct core_session *session, PyObject *uri, uint64_t index,
                        const struct rg_completion *completion)
{
    return item_new(session, uri, NULL, index, completion);
}

PyObject *core_item_of_objects(struct core_session *session, PyObject *objects, uint64_t index,
                               const struct rg_completion *completion)
{
    return item_new(session, NULL, objects, index, completion);
}

PyObject *core_item_data(PyObject *object)
{
    return ((struct item *)object)->data;
}

void core_item_set_data(PyObject *object, PyObject *data)
{
    struct item *self = (struct item *)object;
    PyObject *before = self->data;
    self->data = data;
    Py_DECREF(before);
    if (!PyObject_GC_IsTracked(object)) {
        PyObject_GC_Track(object);
    }
}

static int item_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct item *self = (struct item *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->data);
    Py_VISIT(self->error);
    return 0;
}

/* An Item that something still sees meanwhile has no data, and no error. */
static int item_clear(PyObject *object)
{
    CORE_ENTER();
    struct item *self = (struct item *)object;
    PyObject *data = self->data, *error = self->error;
    self->data = Py_NewRef(Py_None);
    self->error = Py_NewRef(Py_None);
    Py_XDECREF(data);
    Py_XDECREF(error);
    return 0;
}

static void item_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct item *self = (struct item *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->uri);
    Py_XDECREF(self->objects);
    Py_XDECREF(self->data);
    Py_XDECREF(self->error);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyObject *item_get_uri(PyObject *object, void *closure)
{
    CORE_ENTER();
    (void)closure;
    PyObject *uri = item_uri((struct item *)object);
    Py_XINCREF(uri);
    return uri;
}

static PyGetSetDef item_getset[] = {
    {"uri", item_get_uri, NULL, "gs://BUCKET/OBJECT", NULL},
    {0},
};

static PyObject *item_repr(PyObject *object)
{
    CORE_ENTER();
    struct item *self = (struct item *)object;
    PyObject *uri = item_uri(self);
    return uri == NULL ? NULL
                       : PyUnicode_FromFormat("Item(index=%llu, uri=%R, data=%R, error=%R)",
                                              self->index, uri, self->data, self->error);
}

static PyMemberDef item_members[] = {
    {"index", T_ULONGLONG, offsetof(struct item, index), READONLY, "place in what was asked for"},
    {"data", T_OBJECT, offsetof(struct item, data), READONLY, "a Buffer; None with an error"},
    {"generation", T_LONGLONG, offsetof(struct item, generation), READONLY,
     "of the object that was read"},
    {"is_gzip", T_BOOL, offsetof(struct item, is_gzip), READONLY,
     "stored with Content-Encoding gzip: data is compressed"},
    {"error", T_OBJECT, offsetof(struct item, error), READONLY,
     "None, or the exception that get() would raise"},
    {0},
};

/* The stub has it generic in its data. */
static PyMethodDef item_methods[] = {
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot item_slots[] = {
    {Py_tp_doc, "One object that was read: uri, index, data, generation, error."},
    {Py_tp_dealloc, item_dealloc},
    {Py_tp_traverse, item_traverse},
    {Py_tp_clear, item_clear},
    {Py_tp_repr, item_repr},
    {Py_tp_members, item_members},
    {Py_tp_methods, item_methods},
    {Py_tp_getset, item_getset},
    {0, NULL},
};
static PyType_Spec item_spec = {
    .name = "ringest.Item",
    .basicsize = sizeof(struct item),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = item_slots,
};

int core_item_register(PyObject *module)
{
    return core_type_add(module, &item_spec, &item_type);
}
