/* update and compose: objects that the service makes of what it has.
 *
 * Texts of a dict or a list that was given are kept by `texts` of the operation, since whoever gave
 * it may change it. */
#include "core.h"

#include <errno.h>
#include <string.h>

/* The UTF-8 of a str, which is kept. NULL with an exception. */
static const char *text_keep(struct core_operation *self, PyObject *text, const char *what)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "%U: %s must be a str, got %R", self->uri, what, text);
        return NULL;
    }
    const char *data = PyUnicode_AsUTF8AndSize(text, &size);
    if (data != NULL && strlen(data) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%U: %s has %R, with a NUL character", self->uri, what,
                     text);
        return NULL;
    }
    return data != NULL && PyList_Append(self->texts, text) == 0 ? data : NULL;
}

static int texts_begin(struct core_operation *self)
{
    if (self->texts == NULL) {
        self->texts = PyList_New(0);
    }
    return self->texts != NULL ? 0 : -1;
}

/* A dict of str; None as a value removes a pair where `may_remove`. -1 with an exception. */
static int metadata_parse(struct core_operation *self, PyObject *pairs, bool may_remove)
{
    if (pairs == NULL || pairs == Py_None) {
        return 0;
    }
    PyObject *own = PyDict_New();
    if (own != NULL && !PyObject_HasAttrString(pairs, "keys")) {
        PyErr_Format(PyExc_TypeError, "%U: metadata must be a dict of str, got %R", self->uri,
                     pairs);
        Py_CLEAR(own);
    }
    PyObject *items = own != NULL && PyDict_Update(own, pairs) == 0 ? PyDict_Items(own) : NULL;
    Py_XDECREF(own);
    if (items == NULL) {
        return -1;
    }
    size_t count = (size_t)PyList_Size(items);
    self->metadata = PyMem_Calloc(count + 1, sizeof(*self->metadata));
    int rc = self->metadata != NULL ? texts_begin(self) : -1;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        PyObject *pair = PyList_GetItem(items, (Py_ssize_t)i);
        PyObject *value = PyTuple_GetItem(pair, 1);
        struct rg_metadata *out = &self->metadata[i];
        out->key = text_keep(self, PyTuple_GetItem(pair, 0), "a name of metadata");
        bool is_removed = may_remove && value == Py_None;
        out->value =
            is_removed || out->key == NULL ? NULL : text_keep(self, value, "a value of metadata");
        rc = out->key != NULL && (is_removed || out->value != NULL) ? 0 : -1;
    }
    if (rc < 0 && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    self->count = (uint32_t)count;
    Py_DECREF(items);
    return rc;
}

static int update_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri",
                            "content_type",
                            "metadata",
                            "content_encoding",
                            "cache_control",
                            "generation",
                            "exclusive",
                            "if_generation_match",
                            "if_metageneration_match",
                            NULL};
    PyObject *metadata = NULL, *generation = NULL, *condition = NULL, *metageneration = NULL;
    PyObject *type = NULL, *encoding = NULL, *control = NULL;
    self->exclusive = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U|$OOOOOpOO:update", names, &self->uri, &type,
                                     &metadata, &encoding, &control, &generation, &self->exclusive,
                                     &condition, &metageneration) ||
        !core_text(type, "content_type", &self->content_type) ||
        !core_text(encoding, "content_encoding", &self->content_encoding) ||
        !core_text(control, "cache_control", &self->cache_control) ||
        !core_generation(generation, &self->generation) ||
        !core_condition(condition, &self->condition) ||
        !core_metageneration(metageneration, &self->metageneration)) {
        return -1;
    }
    bool is_nothing = self->content_type == NULL && self->content_encoding == NULL &&
                      self->cache_control == NULL && (metadata == NULL || metadata == Py_None);
    if (is_nothing) {
        PyErr_Format(PyExc_ValueError,
                     "%U: nothing is to be changed: give content_type, content_encoding, "
                     "cache_control or metadata",
                     self->uri);
        return -1;
    }
    return metadata_parse(self, metadata, true);
}

static int update_submit(struct core_operation *self, struct core_session *session,
                         struct rg_cq *cq, const struct core_uri *uri, uint64_t user_data)
{
    struct rg_update update = {
        .bucket = uri->bucket,
        .object = uri->object,
        .generation = self->generation,
        .content_type = self->content_type,
        .content_encoding = self->content_encoding,
        .cache_control = self->cache_control,
        .metadata = self->metadata,
        .metadata_count = self->count,
        .conditions = {.if_generation_match = self->condition,
                       .if_metageneration_match = self->metageneration},
        .exclusive = self->exclusive && self->metageneration != 0,
        .user_data = user_data,
    };
    return rg_submit_update(session->client, cq, &update);
}

static PyObject *change_result(struct core_operation *self, struct core_session *session,
                               const struct rg_completion *done)
{
    (void)session;
    return core_info_found_dict(self->uri, done);
}

const struct core_operation_kind core_update_kind = {"update", update_parse, update_submit,
                                                     change_result, true};

/* A URI of the same bucket, or a pair of one and its generation. -1 with an exception. */
static int source_parse(struct core_operation *self, const struct core_uri *target, PyObject *item,
                        struct rg_compose_source *out)
{
    struct core_uri uri;
    PyObject *text = item;
    if (PyTuple_Check(item)) {
        PyObject *generation;
        if (!PyArg_ParseTuple(item, "OO;a source is a URI or (uri, generation)", &text,
                              &generation) ||
            !core_generation(generation, &out->generation)) {
            return -1;
        }
    }
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "%U: a source is a URI or (uri, generation), not %R",
                     self->uri, item);
        return -1;
    }
    if (!core_uri_parse(text, &uri)) {
        return -1;
    }
    if (strcmp(uri.bucket, target->bucket) != 0) {
        PyErr_Format(PyExc_ValueError,
                     "%U: %U is in another bucket; compose joins objects of one: copy it first",
                     self->uri, text);
        return -1;
    }
    PyObject *name = PyUnicode_FromString(uri.object);
    out->object = name != NULL ? text_keep(self, name, "sources") : NULL;
    Py_XDECREF(name);
    return out->object != NULL ? 0 : -1;
}

static int sources_parse(struct core_operation *self, PyObject *sources)
{
    struct core_uri target;
    if (PyUnicode_Check(sources)) {
        PyErr_Format(PyExc_TypeError, "%U: sources is a list of URIs, not one: [%R]", self->uri,
                     sources);
        return -1;
    }
    PyObject *list = NULL;
    if (core_uri_parse(self->uri, &target)) {
        list = core_list_of(self->uri, sources, "sources", "URIs");
    }
    if (list == NULL) {
        return -1;
    }
    Py_ssize_t count = PyList_Size(list);
    int rc = count >= 1 && count <= RG_COMPOSE_SOURCES_MAX ? texts_begin(self) : -1;
    if (rc < 0 && !PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError,
                     "%U: %zd sources; one compose joins 1 to %d, and its result can be a source "
                     "again",
                     self->uri, count, RG_COMPOSE_SOURCES_MAX);
    }
    self->sources = rc == 0 ? PyMem_Calloc((size_t)count, sizeof(*self->sources)) : NULL;
    if (rc == 0 && self->sources == NULL) {
        PyErr_NoMemory();
        rc = -1;
    }
    for (Py_ssize_t i = 0; rc == 0 && i < count; i++) {
        rc = source_parse(self, &target, PyList_GetItem(list, i), &self->sources[i]);
    }
    self->length = (uint64_t)count;
    Py_DECREF(list);
    return rc;
}

static int compose_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri",      "sources",   "if_generation_match", "content_type",
                            "metadata", "exclusive", "storage_class",       NULL};
    PyObject *sources, *condition = NULL, *metadata = NULL, *type = NULL, *class = NULL;
    self->exclusive = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "UO|$OOOpO:compose", names, &self->uri,
                                     &sources, &condition, &type, &metadata, &self->exclusive,
                                     &class) ||
        !core_storage_class(class, &self->storage_class) ||
        !core_text(type, "content_type", &self->content_type) ||
        !core_condition(condition, &self->condition) || sources_parse(self, sources) < 0) {
        return -1;
    }
    return metadata_parse(self, metadata, false);
}

static int compose_submit(struct core_operation *self, struct core_session *session,
                          struct rg_cq *cq, const struct core_uri *uri, uint64_t user_data)
{
    struct rg_compose compose = {
        .bucket = uri->bucket,
        .object = uri->object,
        .sources = self->sources,
        .source_count = (size_t)self->length,
        .content_type = self->content_type,
        .storage_class = self->storage_class,
        .metadata = self->metadata,
        .metadata_count = self->count,
        .conditions = {.if_generation_match = self->condition},
        .exclusive = self->exclusive && self->condition != 0,
        .user_data = user_data,
    };
    return rg_submit_compose(session->client, cq, &compose);
}

const struct core_operation_kind core_compose_kind = {"compose", compose_parse, compose_submit,
                                                      change_result, true};
