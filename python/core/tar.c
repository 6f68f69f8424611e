/* TarIndex: where the samples of tar archives lie, scanned, saved and opened; and samples as dicts.
 *
 * The object is immutable; a Reader and the samples that it made keep what they need of it. */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *core_tar_type;

/* Extensions that are kept as str objects: datasets have few. */
#define EXTENSIONS_KEPT 32

struct kept {
    PyObject *text;
    uint32_t size;
    char bytes[RG_TAR_EXTENSION_SIZE_MAX];
};

struct tar {
    PyObject_HEAD struct rg_tar_index *index;
    PyObject **urls; /* of the shards, made when they are first needed */
    struct kept *kept;
    uint32_t kept_count;
    PyObject *digest; /* a str; NULL: nobody has asked yet */
};

static PyObject *key_text, *url_text;

static struct tar *of(PyObject *object)
{
    return (struct tar *)object;
}

void core_tar_describe(PyObject *object, struct rg_reader_options *options)
{
    options->tar = of(object)->index;
}

static void tar_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct tar *self = of(object);
    PyTypeObject *type = Py_TYPE(object);
    if (self->urls != NULL) {
        for (uint64_t i = 0; i < rg_tar_index_shard_count(self->index); i++) {
            Py_XDECREF(self->urls[i]);
        }
    }
    for (uint32_t i = 0; i < self->kept_count; i++) {
        Py_DECREF(self->kept[i].text);
    }
    PyMem_Free(self->urls);
    PyMem_Free(self->kept);
    Py_XDECREF(self->digest);
    rg_tar_index_close(self->index);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* Names in archives need not be UTF-8: what is not comes as Python has it for file names. */
static PyObject *text_make(const char *bytes, uint32_t size)
{
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)size, "surrogateescape");
}

static int tar_setup(struct tar *self, struct rg_tar_index *index)
{
    self->index = index;
    self->urls = PyMem_Calloc(rg_tar_index_shard_count(index) + 1, sizeof(*self->urls));
    self->kept = PyMem_Calloc(EXTENSIONS_KEPT, sizeof(*self->kept));
    if (self->urls == NULL || self->kept == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static PyObject *tar_new(struct rg_tar_index *index)
{
    PyObject *object = PyType_GenericAlloc(core_tar_type, 0);
    if (object == NULL) {
        rg_tar_index_close(index);
        return NULL;
    }
    if (tar_setup(of(object), index) < 0) {
        Py_DECREF(object);
        return NULL;
    }
    return object;
}

/* -EBADMSG is a ValueError: what was given is no index. */
static PyObject *failure_raise(int rc, const char *text)
{
    return core_errno_raise(rc == -EBADMSG ? -EINVAL : rc, text);
}

static PyObject *tar_open(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    static char *names[] = {"path", "data", "fd", NULL};
    (void)type;
    PyObject *path = NULL;
    Py_buffer data = {0};
    int fd = -1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O&$y*i:TarIndex", names,
                                     PyUnicode_FSConverter, &path, &data, &fd)) {
        return NULL;
    }
    int rc = -EINVAL;
    char error[512] = "TarIndex(path) or TarIndex(data=bytes)";
    struct rg_tar_index *index;
    if (path != NULL) {
        rc = rg_tar_index_open(&index, PyBytes_AsString(path), error, sizeof(error));
    } else if (data.obj != NULL) {
        rc = rg_tar_index_open_memory(&index, data.buf, (size_t)data.len, error, sizeof(error));
    } else if (fd >= 0) {
        rc = rg_tar_index_open_fd(&index, fd, error, sizeof(error));
    }
    Py_XDECREF(path);
    if (data.obj != NULL) {
        PyBuffer_Release(&data);
    }
    return rc < 0 ? failure_raise(rc, error) : tar_new(index);
}

static PyObject *url_of(struct tar *self, uint64_t shard_number)
{
    if (self->urls[shard_number] == NULL) {
        struct rg_tar_shard shard;
        (void)rg_tar_index_shard(self->index, shard_number, &shard);
        self->urls[shard_number] =
            PyUnicode_FromFormat("gs://%s/%s", rg_tar_index_bucket(self->index), shard.name);
    }
    return self->urls[shard_number];
}

/* New reference. */
static PyObject *extension_of(struct tar *self, const struct rg_tar_part *part)
{
    for (uint32_t i = 0; i < self->kept_count; i++) {
        struct kept *kept = &self->kept[i];
        if (kept->size == part->extension_size &&
            memcmp(kept->bytes, part->extension, kept->size) == 0) {
            return Py_NewRef(kept->text);
        }
    }
    PyObject *text = text_make(part->extension, part->extension_size);
    if (text != NULL && self->kept_count < EXTENSIONS_KEPT) {
        struct kept *kept = &self->kept[self->kept_count++];
        PyUnicode_InternInPlace(&text);
        kept->text = Py_NewRef(text);
        kept->size = part->extension_size;
        memcpy(kept->bytes, part->extension, kept->size);
    }
    return text;
}

static int part_set(struct tar *self, PyObject *sample, PyObject *whole,
                    const struct rg_tar_part *part)
{
    PyObject *extension = extension_of(self, part);
    PyObject *data = core_buffer_slice(whole, part->offset, part->size);
    int rc = extension != NULL && data != NULL ? PyDict_SetItem(sample, extension, data) : -1;
    Py_XDECREF(extension);
    Py_XDECREF(data);
    return rc;
}

static PyObject *sample_make(struct tar *self, PyObject *whole, PyObject *url,
                             const struct rg_tar_sample *sample)
{
    PyObject *made = PyDict_New();
    PyObject *key = text_make(sample->key, sample->key_size);
    int rc = made != NULL && key != NULL && PyDict_SetItem(made, key_text, key) == 0
                 ? PyDict_SetItem(made, url_text, url)
                 : -1;
    for (uint32_t i = 0; rc == 0 && i < sample->part_count; i++) {
        rc = part_set(self, made, whole, &sample->parts[i]);
    }
    Py_XDECREF(key);
    if (rc < 0) {
        Py_CLEAR(made);
    }
    return made;
}

int core_tar_members(PyObject *members, const char **out_members, size_t *out_count)
{
    Py_ssize_t count = members != Py_None ? PyTuple_Size(members) : 0;
    if (count > RG_TAR_MEMBERS_MAX) {
        PyErr_Format(PyExc_ValueError, "members is %R; it is a list of at most %d extensions",
                     members, RG_TAR_MEMBERS_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        out_members[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(members, i), NULL);
        if (out_members[i] == NULL) {
            return -1;
        }
    }
    *out_count = (size_t)count;
    return 0;
}

int core_tar_cursor(PyObject *object, PyObject *members, struct rg_tar_cursor **out_cursor)
{
    const char *texts[RG_TAR_MEMBERS_MAX];
    size_t count;
    if (core_tar_members(members, texts, &count) < 0) {
        return -1;
    }
    int rc = rg_tar_cursor_open(out_cursor, of(object)->index, texts, count);
    if (rc < 0) {
        core_errno_raise(rc, "an extension has at most 255 bytes");
    }
    return rc < 0 ? -1 : 0;
}

PyObject *core_tar_item(PyObject *object, struct rg_tar_cursor *cursor,
                        struct core_session *session, uint64_t number,
                        const struct rg_completion *completion)
{
    struct tar *self = of(object);
    const struct rg_tar_sample *sample;
    int rc = rg_tar_cursor_get(cursor, number, &sample);
    PyObject *url = rc == 0 ? url_of(self, sample->shard) : NULL;
    if (url == NULL) {
        rg_lease_release(completion->lease);
        return rc == 0 ? NULL : core_errno_raise(rc, "the index is damaged");
    }
    PyObject *item = core_item_new(session, url, number, completion);
    if (item != NULL && completion->status == RG_STATUS_OK) {
        PyObject *made = sample_make(self, core_item_data(item), url, sample);
        if (made == NULL) {
            Py_CLEAR(item);
        } else {
            core_item_set_data(item, made);
        }
    }
    return item;
}

static int shard_parse(PyObject *entry, struct rg_object *out_shard)
{
    PyObject *size, *generation;
    if (!PyTuple_Check(entry)) {
        PyErr_Format(PyExc_TypeError, "a shard is (name, size, generation), and not %R", entry);
        return -1;
    }
    if (!PyArg_ParseTuple(entry, "sOO;a shard is (name, size, generation)", &out_shard->name, &size,
                          &generation)) {
        return -1;
    }
    if (!core_number(size, "size", 0, CORE_BYTES_MAX, &out_shard->size) ||
        !core_generation(generation, &out_shard->generation)) {
        core_error_begin_with(PyTuple_GetItem(entry, 0));
        return -1;
    }
    return 0;
}

/* Names live as long as the tuple. */
static struct rg_object *shards_parse(PyObject *entries)
{
    Py_ssize_t count = PyTuple_Size(entries);
    struct rg_object *shards = PyMem_Calloc((size_t)count + 1, sizeof(*shards));
    if (shards == NULL) {
        return (struct rg_object *)PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (shard_parse(PyTuple_GetItem(entries, i), &shards[i]) < 0) {
            PyMem_Free(shards);
            return NULL;
        }
    }
    return shards;
}

static PyObject *scan_raise(const struct rg_tar_scan *scan, const char *bucket, int rc)
{
    const char *shard;
    struct rg_completion completion;
    const char *text = rg_tar_scan_failure(scan, &shard, &completion);
    if (rc != -EREMOTEIO) {
        return failure_raise(rc, text);
    }
    PyObject *uri = PyUnicode_FromFormat("gs://%s/%s", bucket, shard);
    completion.lease = NULL; /* remains the scan's */
    if (uri != NULL) {
        core_error_raise(uri, &completion);
        Py_DECREF(uri);
    }
    return NULL;
}

/* Calls progress(done, read), if there is one. */
static int progress_tell(PyObject *progress, const struct rg_tar_scan *scan)
{
    if (progress == Py_None) {
        return 0;
    }
    uint64_t read;
    uint64_t done = rg_tar_scan_done(scan, &read);
    PyObject *result =
        PyObject_CallFunction(progress, "KK", (unsigned long long)done, (unsigned long long)read);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static PyObject *scan_run(struct core_session *session, struct rg_tar_scan *scan,
                          const char *bucket, PyObject *progress)
{
    /* What comes for a scan is not told; where bytes come, it goes on. */
    struct core_watch watch;
    core_watch_begin(&watch, session, true);
    for (;;) {
        int rc;
        Py_BEGIN_ALLOW_THREADS rc = rg_tar_scan_run(scan, rg_now_ns() + CORE_WAIT_NS);
        Py_END_ALLOW_THREADS if (rc < 0 && rc != -ETIME && rc != -EINTR)
        {
            return scan_raise(scan, bucket, rc);
        }
        if ((rc < 0 && core_watch_go_on(&watch, NULL) < 0) || progress_tell(progress, scan) < 0) {
            return NULL;
        }
        if (rc == 0) {
            struct rg_tar_index *index;
            rc = rg_tar_scan_finish(scan, &index);
            return rc < 0 ? core_errno_raise(rc, "making the index") : tar_new(index);
        }
    }
}

static PyObject *shards_scan(struct core_session *session, PyObject *entries,
                             struct rg_tar_scan_options *options, PyObject *progress)
{
    struct rg_object *shards = shards_parse(entries);
    if (shards == NULL) {
        return NULL;
    }
    options->shards = shards;
    options->shard_count = (uint64_t)PyTuple_Size(entries);
    struct rg_tar_scan *scan = NULL;
    char error[512] = "";
    int rc = rg_tar_scan_open(&scan, session->client, options, error, sizeof(error));
    PyMem_Free(shards);
    PyObject *result =
        rc < 0 ? core_errno_raise(rc, error) : scan_run(session, scan, options->bucket, progress);
    Py_BEGIN_ALLOW_THREADS rg_tar_scan_close(scan);
    Py_END_ALLOW_THREADS return result;
}

static PyObject *tar_scan(PyObject *type, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    static char *names[] = {"client", "bucket", "shards", "known", "at_once", "progress", NULL};
    (void)type;
    struct rg_tar_scan_options options;
    rg_tar_scan_options_init(&options);
    PyObject *client, *entries, *known = Py_None, *progress = Py_None, *at_once = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!sO!|$OOO:scan", names, core_client_type,
                                     &client, &options.bucket, &PyList_Type, &entries, &known,
                                     &at_once, &progress) ||
        !core_number32(at_once, "at_once", 0, RG_TAR_SCAN_SHARDS_MAX, &options.shards_at_once)) {
        return NULL;
    }
    if (known != Py_None && !Py_IS_TYPE(known, core_tar_type)) {
        return PyErr_Format(PyExc_TypeError, "known is a TarIndex or None, not %R", known);
    }
    options.known = known != Py_None ? of(known)->index : NULL;
    struct core_session *session = core_client_session(client);
    /* As they are now: code of the caller's may change the list. */
    PyObject *frozen = session != NULL ? PySequence_Tuple(entries) : NULL;
    PyObject *result = frozen != NULL ? shards_scan(session, frozen, &options, progress) : NULL;
    Py_XDECREF(frozen);
    core_session_unref(session);
    return result;
}

static PyObject *tar_save(PyObject *object, PyObject *args)
{
    CORE_ENTER();
    PyObject *path;
    if (!PyArg_ParseTuple(args, "O&:save", PyUnicode_FSConverter, &path)) {
        return NULL;
    }
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = rg_tar_index_save(of(object)->index, PyBytes_AsString(path));
    Py_END_ALLOW_THREADS if (rc < 0)
    {
        char text[512];
        PyOS_snprintf(text, sizeof(text), "writing the tar index %s: %s", PyBytes_AsString(path),
                      strerror(-rc));
        core_errno_raise(rc, text);
    }
    Py_DECREF(path);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *tar_data(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    size_t size;
    const void *data = rg_tar_index_data(of(object)->index, &size);
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
}

static PyObject *tar_shards(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct tar *self = of(object);
    uint64_t count = rg_tar_index_shard_count(self->index);
    PyObject *list = PyList_New(0);
    for (uint64_t i = 0; list != NULL && i < count; i++) {
        struct rg_tar_shard shard;
        (void)rg_tar_index_shard(self->index, i, &shard);
        PyObject *entry = Py_BuildValue(
            "(sKLKK)", shard.name, (unsigned long long)shard.size, (long long)shard.generation,
            (unsigned long long)shard.first, (unsigned long long)shard.count);
        if (entry == NULL || PyList_Append(list, entry) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(entry);
    }
    return list;
}

static bool number_check(const struct tar *self, Py_ssize_t number)
{
    if (number < 0 || (uint64_t)number >= rg_tar_index_count(self->index)) {
        PyErr_Format(PyExc_IndexError, "there is no sample %zd", number);
        return false;
    }
    return true;
}

/* What readers ask for: (name, size, generation), as Objects have it. */
static PyObject *tar_item(PyObject *object, Py_ssize_t number)
{
    CORE_ENTER();
    struct tar *self = of(object);
    struct rg_tar_sample sample;
    struct rg_tar_shard shard;
    if (!number_check(self, number)) {
        return NULL;
    }
    int rc = rg_tar_index_get(self->index, (uint64_t)number, &sample);
    if (rc < 0) {
        return core_errno_raise(rc, "the index is damaged");
    }
    (void)rg_tar_index_shard(self->index, sample.shard, &shard);
    return Py_BuildValue("(sKL)", shard.name, (unsigned long long)sample.size,
                         (long long)shard.generation);
}

static PyObject *part_describe(struct tar *self, const struct rg_tar_sample *sample, uint32_t i)
{
    const struct rg_tar_part *part = &sample->parts[i];
    PyObject *extension = extension_of(self, part);
    return extension == NULL ? NULL
                             : Py_BuildValue("(NKK)", extension,
                                             (unsigned long long)(sample->offset + part->offset),
                                             (unsigned long long)part->size);
}

static PyObject *tar_sample(PyObject *object, PyObject *args)
{
    CORE_ENTER();
    struct tar *self = of(object);
    struct rg_tar_sample sample;
    PyObject *given;
    if (!PyArg_ParseTuple(args, "O:sample", &given)) {
        return NULL;
    }
    Py_ssize_t number = PyNumber_AsSsize_t(given, PyExc_IndexError);
    if (PyErr_Occurred() || !number_check(self, number)) {
        return NULL;
    }
    int rc = rg_tar_index_get(self->index, (uint64_t)number, &sample);
    if (rc < 0) {
        return core_errno_raise(rc, "the index is damaged");
    }
    PyObject *parts = PyList_New(0);
    for (uint32_t i = 0; parts != NULL && i < sample.part_count; i++) {
        PyObject *part = part_describe(self, &sample, i);
        if (part == NULL || PyList_Append(parts, part) < 0) {
            Py_CLEAR(parts);
        }
        Py_XDECREF(part);
    }
    PyObject *key = text_make(sample.key, sample.key_size);
    PyObject *url = url_of(self, sample.shard);
    if (parts == NULL || key == NULL || url == NULL) {
        Py_XDECREF(parts);
        Py_XDECREF(key);
        return NULL;
    }
    return Py_BuildValue("(NON)", key, url, parts);
}

static Py_ssize_t tar_length(PyObject *object)
{
    return (Py_ssize_t)rg_tar_index_count(of(object)->index);
}

static PyObject *tar_get_bucket(PyObject *object, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(rg_tar_index_bucket(of(object)->index));
}

static PyObject *tar_get_fd(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromLong(rg_tar_index_fd(of(object)->index));
}

static PyObject *tar_get_digest(PyObject *object, void *closure)
{
    CORE_ENTER();
    (void)closure;
    struct tar *self = of(object);
    if (self->digest != NULL) {
        return Py_NewRef(self->digest);
    }
    uint8_t digest[RG_DIGEST_SIZE];
    Py_BEGIN_ALLOW_THREADS rg_tar_index_digest(self->index, digest);
    Py_END_ALLOW_THREADS return core_digest_keep(&self->digest, digest);
}

static int tar_buffer(PyObject *object, Py_buffer *view, int flags)
{
    size_t size;
    const void *data = rg_tar_index_data(of(object)->index, &size);
    return PyBuffer_FillInfo(view, object, (void *)(uintptr_t)data, (Py_ssize_t)size, 1, flags);
}

static PyObject *tar_reduce(PyObject *object, PyObject *nothing)
{
    PyObject *data = tar_data(object, nothing);
    PyObject *make = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "from_data");
    if (data == NULL || make == NULL) {
        Py_XDECREF(data);
        Py_XDECREF(make);
        return NULL;
    }
    return Py_BuildValue("(N(N))", make, data);
}

static PyObject *tar_from_data(PyObject *type, PyObject *data)
{
    CORE_ENTER();
    PyObject *arguments = PyTuple_New(0);
    PyObject *keywords = Py_BuildValue("{sO}", "data", data);
    PyObject *made =
        arguments != NULL && keywords != NULL ? PyObject_Call(type, arguments, keywords) : NULL;
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    return made;
}

static PyMethodDef tar_methods[] = {
    {"scan", (PyCFunction)(void (*)(void))tar_scan, METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     "scan(client, bucket, [(name, size, generation), ...], *, known=None, at_once=0, "
     "progress=None) -> TarIndex; shards of `known` are taken over if their generation is still "
     "the same, and progress(done, read) is told of shards"},
    {"from_data", tar_from_data, METH_O | METH_CLASS, "The index that data() gave."},
    {"save", tar_save, METH_VARARGS, "save(path): replaces the file when it is complete"},
    {"data", tar_data, METH_NOARGS, "The bytes that save() writes."},
    {"shards", tar_shards, METH_NOARGS, "[(name, size, generation, first sample, samples), ...]"},
    {"sample", tar_sample, METH_VARARGS,
     "sample(i) -> (key, URL of the shard, [(extension, offset in the shard, size), ...])"},
    {"__reduce__", tar_reduce, METH_NOARGS, "Pickles as data()."},
    {0},
};
static PyGetSetDef tar_getset[] = {
    {"bucket", tar_get_bucket, NULL, "The bucket that all shards are in.", NULL},
    {"_digest", core_digest_get_known, core_digest_set_known,
     "The digest where it is known, else None; may be set by who knows it.",
     (void *)offsetof(struct tar, digest)},
    {"digest", tar_get_digest, NULL, "SHA-256 of the index's bytes, in hexadecimal.", NULL},
    {"fd", tar_get_fd, NULL, "What another process opens it from without a copy; -1: it is small.",
     NULL},
    {0},
};

static PyType_Slot tar_slots[] = {
    {Py_tp_doc, "Where the samples of tar archives lie: TarIndex(path), TarIndex.scan(...)."},
    {Py_tp_new, tar_open},
    {Py_tp_dealloc, tar_dealloc},
    {Py_tp_methods, tar_methods},
    {Py_tp_getset, tar_getset},
    {Py_sq_length, tar_length},
    {Py_sq_item, tar_item},
    {Py_bf_getbuffer, tar_buffer},
    {0, NULL},
};
static PyType_Spec tar_spec = {
    .name = "ringest.TarIndex",
    .basicsize = sizeof(struct tar),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = tar_slots,
};

int core_tar_register(PyObject *module)
{
    key_text = PyUnicode_InternFromString("__key__");
    url_text = PyUnicode_InternFromString("__url__");
    if (key_text == NULL || url_text == NULL) {
        return -1;
    }
    return core_type_add(module, &tar_spec, &core_tar_type);
}
