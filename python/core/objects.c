/* Objects: what a dataset reads, as a manifest file or as names in memory. A sequence of (name,
 * size, generation). */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *core_objects_type;

/* Of <ringest/listing.h>: names in a page. */
#define PAGE_MAX 1000

struct objects {
    PyObject_HEAD struct rg_manifest *manifest; /* NULL: what follows */
    char *bucket;
    struct rg_object *list;
    uint64_t count;
    char *names; /* of all objects, each with its NUL */
};

static struct objects *of(PyObject *object)
{
    return (struct objects *)object;
}

int core_objects_at(PyObject *object, uint64_t index, struct rg_object *out_object, char *name)
{
    struct objects *self = of(object);
    if (self->manifest != NULL) {
        return rg_manifest_get(self->manifest, index, out_object, name);
    }
    *out_object = self->list[index];
    return 0;
}

static const char *bucket_of(struct objects *self)
{
    return self->manifest != NULL ? rg_manifest_bucket(self->manifest) : self->bucket;
}

PyObject *core_objects_uri(PyObject *object, uint64_t index)
{
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    struct rg_object entry;
    int rc = core_objects_at(object, index, &entry, name);
    if (rc < 0) {
        return core_errno_raise(rc, "the manifest is damaged");
    }
    return PyUnicode_FromFormat("gs://%s/%s", bucket_of(of(object)), entry.name);
}

uint64_t core_objects_count(PyObject *object)
{
    struct objects *self = of(object);
    return self->manifest != NULL ? rg_manifest_count(self->manifest) : self->count;
}

void core_objects_describe(PyObject *object, struct rg_reader_options *options)
{
    struct objects *self = of(object);
    options->manifest = self->manifest;
    options->bucket = self->bucket;
    options->objects = self->list;
    options->object_count = self->count;
}

static void objects_dealloc(PyObject *object)
{
    struct objects *self = of(object);
    PyTypeObject *type = Py_TYPE(object);
    rg_manifest_close(self->manifest);
    PyMem_Free(self->bucket);
    PyMem_Free(self->list);
    PyMem_Free(self->names);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* (name, size, generation); the name is borrowed from the tuple. */
static int entry_parse(PyObject *entry, struct rg_object *out_object, Py_ssize_t *out_name_size)
{
    PyObject *name;
    unsigned long long size;
    long long generation;
    if (!PyArg_ParseTuple(entry, "UKL;an object is (name, size, generation)", &name, &size,
                          &generation)) {
        return -1;
    }
    const char *text = PyUnicode_AsUTF8AndSize(name, out_name_size);
    if (text == NULL) {
        return -1;
    }
    *out_object = (struct rg_object){.name = text, .size = size, .generation = generation};
    return 0;
}

static int entries_take(struct objects *self, PyObject *entries)
{
    Py_ssize_t count = PyList_Size(entries);
    Py_ssize_t names_size = 0;
    self->list = PyMem_Calloc((size_t)count + 1, sizeof(*self->list));
    if (self->list == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t size;
        if (entry_parse(PyList_GetItem(entries, i), &self->list[i], &size) < 0) {
            return -1;
        }
        names_size += size + 1;
    }
    self->names = PyMem_Malloc((size_t)names_size + 1);
    if (self->names == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    char *at = self->names;
    for (Py_ssize_t i = 0; i < count; i++) {
        size_t size = strlen(self->list[i].name) + 1;
        memcpy(at, self->list[i].name, size);
        self->list[i].name = at;
        at += size;
    }
    self->count = (uint64_t)count;
    return 0;
}

/* Grows by doubling; names are noted by their offset until all are there. */
struct collection {
    struct rg_object *list;
    char *names;
    size_t count, list_room, names_size, names_room;
};

static int room_make(void **array, size_t *room, size_t needed, size_t item_size)
{
    if (needed <= *room) {
        return 0;
    }
    size_t larger = *room * 2 > needed ? *room * 2 : needed + 1024;
    void *moved = PyMem_Realloc(*array, larger * item_size);
    if (moved == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *array = moved;
    *room = larger;
    return 0;
}

static int page_collect(struct collection *all, const struct rg_list_page *page)
{
    size_t size = 0;
    for (size_t i = 0; i < page->object_count; i++) {
        size += strlen(page->objects[i].name) + 1;
    }
    if (room_make((void **)&all->list, &all->list_room, all->count + page->object_count,
                  sizeof(*all->list)) < 0 ||
        room_make((void **)&all->names, &all->names_room, all->names_size + size, 1) < 0) {
        return -1;
    }
    for (size_t i = 0; i < page->object_count; i++) {
        size_t name_size = strlen(page->objects[i].name) + 1;
        memcpy(all->names + all->names_size, page->objects[i].name, name_size);
        all->list[all->count] = page->objects[i];
        all->list[all->count].updated = NULL;
        all->list[all->count++].name = (const char *)(uintptr_t)all->names_size;
        all->names_size += name_size;
    }
    return 0;
}

static PyObject *collection_finish(struct collection *all, const char *bucket)
{
    PyObject *object = PyType_GenericAlloc(core_objects_type, 0);
    if (object == NULL) {
        return NULL;
    }
    struct objects *self = of(object);
    self->bucket = PyMem_Malloc(strlen(bucket) + 1);
    if (self->bucket == NULL) {
        Py_DECREF(object);
        return PyErr_NoMemory();
    }
    strcpy(self->bucket, bucket);
    for (size_t i = 0; i < all->count; i++) {
        all->list[i].name = all->names + (uintptr_t)all->list[i].name;
    }
    self->list = all->list;
    self->names = all->names;
    self->count = all->count;
    *all = (struct collection){0};
    return object;
}

struct core_listing {
    struct rg_listing *listing;
    struct collection all;
    PyObject *folders; /* a list of names, which end in "/"; NULL: all names were asked for */
    PyObject *details; /* a list of what is told of each object; NULL: they are collected */
    size_t limit;      /* of entries; SIZE_MAX: none */
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
};

int core_listing_open(struct core_listing **out_listing, struct core_session *session,
                      const struct core_uri *uri, const struct core_listing_kind *kind)
{
    struct core_listing *self = PyMem_Calloc(1, sizeof(*self));
    if (self == NULL) {
        return -ENOMEM;
    }
    struct rg_listing_options options = {
        .bucket = uri->bucket, .prefix = uri->object, .ordered = true};
    self->limit = SIZE_MAX;
    if (kind->limit > 0) {
        self->limit = kind->limit;
        options.results_max = kind->limit < PAGE_MAX ? kind->limit : PAGE_MAX;
        options.requests_max = 1;
    }
    int rc = 0;
    if (kind->is_folder) {
        options.delimiter = "/";
        options.folders_as_prefixes = true;
        self->folders = PyList_New(0);
        rc = self->folders != NULL ? 0 : -ENOMEM;
    }
    if (rc == 0 && kind->is_detailed) {
        self->details = PyList_New(0);
        rc = self->details != NULL ? 0 : -ENOMEM;
    }
    rc = rc == 0 ? rg_listing_open(&self->listing, session->client, &options) : rc;
    if (rc < 0) {
        Py_XDECREF(self->folders);
        Py_XDECREF(self->details);
        PyMem_Free(self);
        return rc;
    }
    strcpy(self->bucket, uri->bucket);
    *out_listing = self;
    return 0;
}

int core_listing_next(struct core_listing *self, struct rg_cq *cq, uint64_t user_data)
{
    return rg_listing_next(self->listing, cq, user_data);
}

static int folders_collect(struct core_listing *self, const struct rg_list_page *page)
{
    int rc = 0;
    for (size_t i = 0; i < page->prefix_count && rc == 0; i++) {
        PyObject *name = PyUnicode_FromString(page->prefixes[i]);
        rc = name != NULL ? PyList_Append(self->folders, name) : -1;
        Py_XDECREF(name);
    }
    return rc;
}

static int details_collect(struct core_listing *self, const struct rg_list_page *page)
{
    int rc = 0;
    for (size_t i = 0; i < page->object_count && rc == 0; i++) {
        const struct rg_object *object = &page->objects[i];
        PyObject *entry = Py_BuildValue("(sKLNz)", object->name, (unsigned long long)object->size,
                                        (long long)object->generation,
                                        object->has_crc32c ? PyLong_FromUnsignedLong(object->crc32c)
                                                           : Py_NewRef(Py_None),
                                        object->updated);
        rc = entry != NULL ? PyList_Append(self->details, entry) : -1;
        Py_XDECREF(entry);
    }
    return rc;
}

static PyObject *listing_finish(struct core_listing *self)
{
    if (self->details != NULL) {
        return PyTuple_Pack(2, self->details, self->folders != NULL ? self->folders : Py_None);
    }
    PyObject *objects = collection_finish(&self->all, self->bucket);
    if (objects == NULL || self->folders == NULL) {
        return objects;
    }
    PyObject *both = PyTuple_Pack(2, objects, self->folders);
    Py_DECREF(objects);
    return both;
}

PyObject *core_listing_page(struct core_listing *self, const struct rg_completion *done,
                            Py_ssize_t *out_count)
{
    const struct rg_list_page *page = done->data;
    bool is_end = page->object_count == 0 && page->prefix_count == 0;
    int rc = self->details != NULL ? details_collect(self, page) : page_collect(&self->all, page);
    size_t count = self->details != NULL ? (size_t)PyList_Size(self->details) : self->all.count;
    if (self->folders != NULL && rc == 0) {
        rc = folders_collect(self, page);
        count += (size_t)PyList_Size(self->folders);
    }
    rg_lease_release(done->lease);
    *out_count = (Py_ssize_t)count;
    return rc == 0 && (is_end || count >= self->limit) ? listing_finish(self) : NULL;
}

void core_listing_close(struct core_listing *self)
{
    if (self == NULL) {
        return;
    }
    Py_BEGIN_ALLOW_THREADS rg_listing_close(self->listing);
    Py_END_ALLOW_THREADS PyMem_Free(self->all.list);
    PyMem_Free(self->all.names);
    Py_XDECREF(self->folders);
    Py_XDECREF(self->details);
    PyMem_Free(self);
}

static int objects_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"bucket", "entries", "manifest", NULL};
    struct objects *self = of(object);
    const char *bucket = NULL;
    PyObject *entries = Py_None, *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|zO$O&:Objects", names, &bucket, &entries,
                                     PyUnicode_FSConverter, &path)) {
        return -1;
    }
    if (path != NULL) {
        char error[512] = "";
        int rc = rg_manifest_open(&self->manifest, PyBytes_AsString(path), error, sizeof(error));
        if (rc < 0) {
            core_errno_raise(rc == -EBADMSG ? -EINVAL : rc,
                             error[0] != '\0' ? error : "the manifest");
        }
        Py_DECREF(path);
        return rc < 0 ? -1 : 0;
    }
    if (bucket == NULL || !PyList_Check(entries)) {
        PyErr_SetString(PyExc_TypeError, "Objects(bucket, list) or Objects(manifest=path)");
        return -1;
    }
    self->bucket = PyMem_Malloc(strlen(bucket) + 1);
    if (self->bucket == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    strcpy(self->bucket, bucket);
    return entries_take(self, entries);
}

static Py_ssize_t objects_length(PyObject *object)
{
    return (Py_ssize_t)core_objects_count(object);
}

static PyObject *objects_item(PyObject *object, Py_ssize_t index)
{
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    struct rg_object entry;
    if (index < 0 || (uint64_t)index >= core_objects_count(object)) {
        PyErr_SetString(PyExc_IndexError, "there is no such object");
        return NULL;
    }
    int rc = core_objects_at(object, (uint64_t)index, &entry, name);
    if (rc < 0) {
        return core_errno_raise(rc, "the manifest is damaged");
    }
    return Py_BuildValue("(sKL)", entry.name, (unsigned long long)entry.size,
                         (long long)entry.generation);
}

static int by_name(const void *a, const void *b)
{
    const struct rg_object *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order != 0
               ? order
               : (left->generation > right->generation) - (left->generation < right->generation);
}

/* Adds all, in the order of names; 0 or a negative errno, with an exception for names that a
 * manifest cannot have. */
static int entries_write(struct objects *self, struct rg_manifest_writer *writer)
{
    struct rg_object *sorted = PyMem_Malloc((self->count + 1) * sizeof(*sorted));
    if (sorted == NULL) {
        return -ENOMEM;
    }
    memcpy(sorted, self->list, self->count * sizeof(*sorted));
    qsort(sorted, self->count, sizeof(*sorted), by_name);
    int rc = 0;
    for (uint64_t i = 0; i < self->count && rc == 0; i++) {
        rc = rg_manifest_writer_add(writer, &sorted[i]);
        if (rc == -EINVAL) {
            PyErr_Format(PyExc_ValueError, "%s is there twice, or is no name of an object",
                         sorted[i].name);
        }
    }
    PyMem_Free(sorted);
    return rc;
}

static PyObject *objects_save(PyObject *object, PyObject *args)
{
    struct objects *self = of(object);
    PyObject *path;
    if (!PyArg_ParseTuple(args, "O&:save", PyUnicode_FSConverter, &path)) {
        return NULL;
    }
    struct rg_manifest_writer *writer = NULL;
    int rc = 0;
    if (self->manifest != NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "these objects are of a manifest file already: copy that");
    } else {
        rc = rg_manifest_writer_open(&writer, PyBytes_AsString(path), self->bucket);
        rc = rc == 0 ? entries_write(self, writer) : rc;
    }
    int closed = rg_manifest_writer_close(writer, rc < 0 || PyErr_Occurred());
    rc = rc < 0 ? rc : closed;
    if (rc < 0 && !PyErr_Occurred()) {
        PyErr_Format(PyExc_OSError, "%s: %s", PyBytes_AsString(path), strerror(-rc));
    }
    Py_DECREF(path);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef objects_methods[] = {
    {"save", objects_save, METH_VARARGS,
     "save(path): writes a manifest file, in the order of names, that datasets open at once and "
     "processes share"},
    {0},
};

static PyObject *objects_get_bucket(PyObject *object, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(bucket_of(of(object)));
}

static PyGetSetDef objects_getset[] = {
    {"bucket", objects_get_bucket, NULL, "The bucket that all objects are in.", NULL},
    {0},
};

static PyType_Slot objects_slots[] = {
    {Py_tp_doc, "Objects(bucket, [(name, size, generation), ...]) or Objects(manifest=path)"},
    {Py_tp_init, objects_init},
    {Py_tp_dealloc, objects_dealloc},
    {Py_tp_getset, objects_getset},
    {Py_tp_iter, PySeqIter_New},
    {Py_tp_methods, objects_methods},
    {Py_sq_length, objects_length},
    {Py_sq_item, objects_item},
    {0, NULL},
};
static PyType_Spec objects_spec = {
    .name = "ringest._core.Objects",
    .basicsize = sizeof(struct objects),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = objects_slots,
};

int core_objects_register(PyObject *module)
{
    return core_type_add(module, &objects_spec, &core_objects_type);
}
