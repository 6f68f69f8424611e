/* Objects: what a dataset reads, a manifest in a file or in memory. A sequence of (name, size,
 * generation), and the manifest's bytes. It never changes. */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *core_objects_type;

struct objects {
    PyObject_HEAD struct rg_manifest *manifest; /* never NULL */
    struct rg_manifest_cursor *cursor;          /* of whoever has the interpreter's lock */
    PyObject *digest;                           /* a str; NULL: nobody has asked yet */
    uint64_t bytes, markers;                    /* of all objects; where has_totals */
    bool has_totals;
};

static struct objects *of(PyObject *object)
{
    return (struct objects *)object;
}

/* One object of an Objects, valid until the next call for them or until the interpreter's lock is
 * let go of. */
static int objects_at(PyObject *object, uint64_t index, struct rg_object *out_object)
{
    return rg_manifest_cursor_get(of(object)->cursor, index, out_object);
}

PyObject *core_objects_uri(PyObject *object, uint64_t index)
{
    struct rg_object entry;
    int rc = objects_at(object, index, &entry);
    if (rc < 0) {
        return core_errno_raise(rc, "the manifest is damaged");
    }
    return PyUnicode_FromFormat("gs://%s/%s", rg_manifest_bucket(of(object)->manifest), entry.name);
}

static uint64_t objects_count(PyObject *object)
{
    return rg_manifest_count(of(object)->manifest);
}

void core_objects_describe(PyObject *object, struct rg_reader_options *options)
{
    options->manifest = of(object)->manifest;
}

static void objects_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct objects *self = of(object);
    PyTypeObject *type = Py_TYPE(object);
    rg_manifest_cursor_close(self->cursor);
    rg_manifest_close(self->manifest);
    Py_XDECREF(self->digest);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *objects_make(PyTypeObject *type, struct rg_manifest *manifest)
{
    struct rg_manifest_cursor *cursor = NULL;
    PyObject *object = NULL;
    if (rg_manifest_cursor_open(&cursor, manifest) == 0) {
        object = PyType_GenericAlloc(type, 0);
    } else {
        PyErr_NoMemory();
    }
    if (object == NULL) {
        rg_manifest_cursor_close(cursor);
        rg_manifest_close(manifest);
        return NULL;
    }
    of(object)->manifest = manifest;
    of(object)->cursor = cursor;
    return object;
}

PyObject *core_digest_keep(PyObject **place, const uint8_t digest[RG_DIGEST_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    char text[2 * RG_DIGEST_SIZE];
    for (size_t i = 0; i < RG_DIGEST_SIZE; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    if (*place == NULL) {
        *place = PyUnicode_FromStringAndSize(text, sizeof(text));
    }
    return Py_XNewRef(*place);
}

static PyObject **known_digest_of(PyObject *object, void *closure)
{
    return (PyObject **)(void *)((char *)object + (size_t)closure);
}

PyObject *core_digest_get_known(PyObject *object, void *closure)
{
    CORE_ENTER();
    PyObject *digest = *known_digest_of(object, closure);
    return Py_NewRef(digest != NULL ? digest : Py_None);
}

int core_digest_set_known(PyObject *object, PyObject *digest, void *closure)
{
    CORE_ENTER();
    if (digest == NULL || !PyUnicode_Check(digest)) {
        PyErr_SetString(PyExc_TypeError, "a digest is a str");
        return -1;
    }
    PyObject **place = known_digest_of(object, closure), *other = *place;
    *place = Py_NewRef(digest);
    Py_XDECREF(other);
    return 0;
}

PyObject *core_objects_new(struct rg_manifest_writer *writer)
{
    struct rg_manifest *manifest;
    int rc = rg_manifest_writer_finish(writer, &manifest);
    return rc < 0 ? core_errno_raise(rc, "the list of objects")
                  : objects_make(core_objects_type, manifest);
}

int core_objects_add(struct rg_manifest_writer *writer, const struct rg_object *object)
{
    int rc = rg_manifest_writer_add(writer, object);
    if (rc == -EINVAL) {
        PyErr_Format(PyExc_ValueError,
                     "('%.100s', %llu, %lld) is no object: a name has 1 to %d bytes, and a "
                     "generation is not negative",
                     object->name, (unsigned long long)object->size, (long long)object->generation,
                     RG_OBJECT_NAME_SIZE_MAX);
    } else if (rc < 0) {
        core_errno_raise(rc, "the list of objects");
    }
    return rc < 0 ? -1 : 0;
}

/* (name, size, generation); the name is borrowed from the tuple. */
static int entry_parse(PyObject *entry, struct rg_object *out_object)
{
    PyObject *name, *numbers[2];
    Py_ssize_t name_size;
    uint64_t size = 0;
    int64_t generation = 0;
    if (!PyTuple_Check(entry)) {
        PyErr_Format(PyExc_TypeError, "an object is (name, size, generation), and not %R", entry);
        return -1;
    }
    if (!PyArg_ParseTuple(entry, "UOO;an object is (name, size, generation)", &name, &numbers[0],
                          &numbers[1])) {
        return -1;
    }
    if (!core_number(numbers[0], "size", 0, CORE_BYTES_MAX, &size) ||
        !core_generation(numbers[1], &generation)) {
        core_error_begin_with(name);
        return -1;
    }
    const char *text = PyUnicode_AsUTF8AndSize(name, &name_size);
    if (text == NULL) {
        return -1;
    }
    if (strlen(text) != (size_t)name_size) {
        PyErr_Format(PyExc_ValueError, "%R has a NUL, which no name of an object has", name);
        return -1;
    }
    *out_object = (struct rg_object){.name = text, .size = size, .generation = generation};
    return 0;
}

static int entries_add(struct rg_manifest_writer *writer, PyObject *entries)
{
    int rc = 0;
    for (Py_ssize_t i = 0; rc == 0 && i < PyList_Size(entries); i++) {
        /* What numbers are made of may be the caller's code, which may empty the list. */
        PyObject *entry = Py_NewRef(PyList_GetItem(entries, i));
        struct rg_object object;
        rc = entry_parse(entry, &object);
        rc = rc == 0 ? core_objects_add(writer, &object) : rc;
        Py_DECREF(entry);
    }
    return rc;
}

static PyObject *of_entries(const char *bucket, PyObject *entries)
{
    struct rg_manifest_writer *writer;
    int rc = rg_manifest_writer_open(&writer, NULL, bucket);
    if (rc == -EINVAL) {
        return PyErr_Format(PyExc_ValueError, "'%s' is no name of a bucket", bucket);
    }
    if (rc < 0) {
        return core_errno_raise(rc, "the list of objects");
    }
    if (entries_add(writer, entries) < 0) {
        (void)rg_manifest_writer_close(writer, true);
        return NULL;
    }
    return core_objects_new(writer);
}

/* What was opened, or an exception; -EBADMSG is a ValueError: what was given is no manifest. */
static PyObject *opened(PyTypeObject *type, int rc, struct rg_manifest *manifest, const char *error)
{
    if (rc < 0) {
        return core_errno_raise(rc == -EBADMSG ? -EINVAL : rc,
                                error[0] != '\0' ? error : "the manifest");
    }
    return objects_make(type, manifest);
}

static PyObject *of_data(PyTypeObject *type, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    struct rg_manifest *manifest = NULL;
    char error[512] = "";
    int rc = rg_manifest_open_memory(&manifest, view.buf, (size_t)view.len, error, sizeof(error));
    PyBuffer_Release(&view);
    return opened(type, rc, manifest, error);
}

static PyObject *objects_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    static char *names[] = {"bucket", "entries", "manifest", "data", "fd", NULL};
    const char *bucket = NULL;
    PyObject *entries = NULL, *path = NULL, *data = NULL;
    int fd = -1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|zO$O&Oi:Objects", names, &bucket, &entries,
                                     PyUnicode_FSConverter, &path, &data, &fd)) {
        return NULL;
    }
    struct rg_manifest *manifest = NULL;
    char error[512] = "";
    if (path != NULL) {
        int rc = rg_manifest_open(&manifest, PyBytes_AsString(path), error, sizeof(error));
        Py_DECREF(path);
        return opened(type, rc, manifest, error);
    }
    if (fd >= 0) {
        int rc = rg_manifest_open_fd(&manifest, fd, error, sizeof(error));
        return opened(type, rc, manifest, error);
    }
    if (data != NULL) {
        return of_data(type, data);
    }
    if (bucket == NULL || entries == NULL || !PyList_Check(entries)) {
        PyErr_SetString(PyExc_TypeError,
                        "Objects(bucket, list), Objects(manifest=path) or Objects(data=bytes)");
        return NULL;
    }
    return of_entries(bucket, entries);
}

static Py_ssize_t objects_length(PyObject *object)
{
    return (Py_ssize_t)objects_count(object);
}

static PyObject *objects_item(PyObject *object, Py_ssize_t index)
{
    CORE_ENTER();
    struct rg_object entry;
    if (index < 0 || (uint64_t)index >= objects_count(object)) {
        PyErr_SetString(PyExc_IndexError, "there is no such object");
        return NULL;
    }
    int rc = objects_at(object, (uint64_t)index, &entry);
    if (rc < 0) {
        return core_errno_raise(rc, "the manifest is damaged");
    }
    /* A str is made before the tuple, whose making may run finalizers, which may look up others. */
    PyObject *name = PyUnicode_FromString(entry.name);
    return name == NULL ? NULL
                        : Py_BuildValue("(NKL)", name, (unsigned long long)entry.size,
                                        (long long)entry.generation);
}

static int objects_buffer(PyObject *object, Py_buffer *view, int flags)
{
    size_t size;
    const void *data = rg_manifest_data(of(object)->manifest, &size);
    return PyBuffer_FillInfo(view, object, (void *)(uintptr_t)data, (Py_ssize_t)size, 1, flags);
}

static int by_name(const void *a, const void *b)
{
    const struct rg_object *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order != 0
               ? order
               : (left->generation > right->generation) - (left->generation < right->generation);
}

static void entries_free(struct rg_object *list, uint64_t count)
{
    for (uint64_t i = 0; list != NULL && i < count; i++) {
        free((char *)(uintptr_t)list[i].name);
    }
    free(list);
}

/* All of a manifest, with names of their own. NULL: there is no memory, or an entry is damaged. */
static struct rg_object *entries_copy(struct rg_manifest_cursor *cursor, uint64_t count)
{
    struct rg_object *list = calloc(count + 1, sizeof(*list));
    for (uint64_t i = 0; list != NULL && i < count; i++) {
        char *name = rg_manifest_cursor_get(cursor, i, &list[i]) == 0 ? strdup(list[i].name) : NULL;
        list[i].name = name;
        if (name == NULL) {
            entries_free(list, i);
            return NULL;
        }
    }
    return list;
}

/* As long as they come in the order of names; -EINVAL where they do not. */
static int entries_write(struct rg_manifest_cursor *cursor, struct rg_manifest_writer *writer,
                         uint64_t count)
{
    int rc = 0;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        struct rg_object object;
        rc = rg_manifest_cursor_get(cursor, i, &object);
        rc = rc == 0 ? rg_manifest_writer_add(writer, &object) : rc;
    }
    return rc;
}

/* For a list that was given in another order. Stores the name that is there twice. */
static int entries_write_sorted(struct rg_manifest_cursor *cursor,
                                struct rg_manifest_writer *writer, uint64_t count, char *out_twice)
{
    struct rg_object *list = entries_copy(cursor, count);
    int rc = list != NULL ? 0 : -ENOMEM;
    if (rc == 0) {
        qsort(list, count, sizeof(*list), by_name);
    }
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        rc = rg_manifest_writer_add(writer, &list[i]);
        if (rc == -EINVAL) {
            strcpy(out_twice, list[i].name);
        }
    }
    entries_free(list, count);
    return rc;
}

/* Needs no interpreter. */
static int manifest_save(const struct rg_manifest *manifest, const char *path, bool is_sorting,
                         char *out_twice)
{
    struct rg_manifest_cursor *cursor = NULL;
    struct rg_manifest_writer *writer = NULL;
    uint64_t count = rg_manifest_count(manifest);
    int rc = rg_manifest_cursor_open(&cursor, manifest);
    rc = rc == 0 ? rg_manifest_writer_open(&writer, path, rg_manifest_bucket(manifest)) : rc;
    if (rc == 0) {
        rc = is_sorting ? entries_write_sorted(cursor, writer, count, out_twice)
                        : entries_write(cursor, writer, count);
    }
    int closed = rg_manifest_writer_close(writer, rc < 0);
    rg_manifest_cursor_close(cursor);
    rc = rc < 0 ? rc : closed;
    return rc == -EINVAL && !is_sorting ? manifest_save(manifest, path, true, out_twice) : rc;
}

static PyObject *objects_save(PyObject *object, PyObject *args)
{
    CORE_ENTER();
    const struct rg_manifest *manifest = of(object)->manifest;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "O&:save", PyUnicode_FSConverter, &path)) {
        return NULL;
    }
    char twice[RG_OBJECT_NAME_SIZE_MAX + 1] = "";
    const char *file = PyBytes_AsString(path);
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = manifest_save(manifest, file, false, twice);
    Py_END_ALLOW_THREADS if (rc == -EINVAL)
    {
        PyErr_Format(PyExc_ValueError, "%s is there twice, which a manifest file has not", twice);
    }
    else if (rc < 0)
    {
        PyErr_Format(PyExc_OSError, "%s: %s", file, strerror(-rc));
    }
    Py_DECREF(path);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *objects_get_bucket(PyObject *object, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(rg_manifest_bucket(of(object)->manifest));
}

static PyObject *objects_get_fd(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromLong(rg_manifest_fd(of(object)->manifest));
}

static PyObject *objects_get_digest(PyObject *object, void *closure)
{
    CORE_ENTER();
    (void)closure;
    struct objects *self = of(object);
    if (self->digest != NULL) {
        return Py_NewRef(self->digest);
    }
    uint8_t digest[RG_DIGEST_SIZE];
    Py_BEGIN_ALLOW_THREADS rg_manifest_digest(self->manifest, digest);
    Py_END_ALLOW_THREADS return core_digest_keep(&self->digest, digest);
}

/* Needs no interpreter. */
static int totals_add(const struct rg_manifest *manifest, uint64_t *out_bytes,
                      uint64_t *out_markers)
{
    struct rg_manifest_cursor *cursor;
    uint64_t count = rg_manifest_count(manifest), bytes = 0, markers = 0;
    int rc = rg_manifest_cursor_open(&cursor, manifest);
    if (rc < 0) {
        return rc;
    }
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        struct rg_object object;
        rc = rg_manifest_cursor_get(cursor, i, &object);
        if (rc == 0) {
            bytes += object.size;
            /* The size of a name that was given by hand is not known. */
            markers += object.generation != 0 && rg_object_is_folder_marker(&object);
        }
    }
    rg_manifest_cursor_close(cursor);
    *out_bytes = bytes;
    *out_markers = markers;
    return rc;
}

/* (bytes, folder markers), counted once. */
static PyObject *objects_get_totals(PyObject *object, void *closure)
{
    CORE_ENTER();
    (void)closure;
    struct objects *self = of(object);
    uint64_t bytes = self->bytes, markers = self->markers;
    if (!self->has_totals) {
        int rc;
        Py_BEGIN_ALLOW_THREADS rc = totals_add(self->manifest, &bytes, &markers);
        Py_END_ALLOW_THREADS if (rc < 0)
        {
            return core_errno_raise(rc, "the manifest is damaged");
        }
        self->bytes = bytes;
        self->markers = markers;
        self->has_totals = true;
    }
    return Py_BuildValue("(KK)", (unsigned long long)bytes, (unsigned long long)markers);
}

static PyObject *objects_get_size(PyObject *object, void *closure)
{
    CORE_ENTER();
    PyObject *totals = objects_get_totals(object, closure);
    PyObject *size = totals != NULL ? Py_NewRef(PyTuple_GetItem(totals, 0)) : NULL;
    Py_XDECREF(totals);
    return size;
}

static PyMethodDef objects_methods[] = {
    {"save", objects_save, METH_VARARGS,
     "save(path): writes a manifest file, in the order of names, that datasets open at once and "
     "processes share"},
    {0},
};
static PyGetSetDef objects_getset[] = {
    {"bucket", objects_get_bucket, NULL, "The bucket that all objects are in.", NULL},
    {"_digest", core_digest_get_known, core_digest_set_known,
     "The digest where it is known, else None; may be set by who knows it.",
     (void *)offsetof(struct objects, digest)},
    {"size", objects_get_size, NULL, "Bytes of all objects together; names given by hand have 0.",
     NULL},
    {"_totals", objects_get_totals, NULL, "(bytes, folder markers) of all objects.", NULL},
    {"digest", objects_get_digest, NULL, "SHA-256 of the manifest's bytes, in hexadecimal.", NULL},
    {"fd", objects_get_fd, NULL,
     "What another process opens it from without a copy; -1: it is small.", NULL},
    {0},
};

static PyType_Slot objects_slots[] = {
    {Py_tp_doc, "Objects(bucket, [(name, size, generation), ...]), Objects(manifest=path), "
                "Objects(data=bytes) or Objects(fd=descriptor)"},
    {Py_tp_new, objects_new},
    {Py_tp_dealloc, objects_dealloc},
    {Py_tp_getset, objects_getset},
    {Py_tp_iter, PySeqIter_New},
    {Py_tp_methods, objects_methods},
    {Py_sq_length, objects_length},
    {Py_sq_item, objects_item},
    {Py_bf_getbuffer, objects_buffer},
    {0, NULL},
};
static PyType_Spec objects_spec = {
    .name = "ringest.Objects",
    .basicsize = sizeof(struct objects),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = objects_slots,
};

int core_objects_register(PyObject *module)
{
    return core_type_add(module, &objects_spec, &core_objects_type);
}
