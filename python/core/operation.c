/* Operations: what one request asks for, from a call's arguments to its result.
 *
 *   parse (arguments) -> submit -> result (of its completion) -> fini
 *                          ^          | NULL without an exception: there is more to ask for
 *                          +----------+
 *
 * A call that waits (core_operation_call) and one that is awaited (queue.c) go the same way.
 *
 * Invariant: what the request borrows (memory of a put, ranges) is let go of only when the
 * operation is not OUT, and one request of an operation is out at most. */
#include "core.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static bool bytes_parse(PyObject *value, const char *name, uint64_t *out)
{
    return core_number(value, name, 0, CORE_BYTES_MAX, out);
}

static int get_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri", "offset", "length", "generation", NULL};
    PyObject *offset = NULL, *length = NULL, *generation = NULL;
    return PyArg_ParseTupleAndKeywords(args, keywords, "U|$OOO:get", names, &self->uri, &offset,
                                       &length, &generation) &&
                   bytes_parse(offset, "offset", &self->offset) &&
                   bytes_parse(length, "length", &self->length) &&
                   core_generation(generation, &self->generation)
               ? 0
               : -1;
}

static int get_submit(struct core_operation *self, struct core_session *session, struct rg_cq *cq,
                      const struct core_uri *uri, uint64_t user_data)
{
    struct rg_get get = {
        .bucket = uri->bucket,
        .object = uri->object,
        .generation = self->generation,
        .offset = self->offset,
        .length = self->length,
        .user_data = user_data,
    };
    return rg_submit_get(session->client, cq, &get);
}

static PyObject *get_result(struct core_operation *self, struct core_session *session,
                            const struct rg_completion *done)
{
    (void)self;
    return core_buffer_new(session, done);
}

/* None: the answer does not tell it. */
static PyObject *number_or_none(bool is_told, uint64_t number)
{
    return is_told ? PyLong_FromUnsignedLongLong(number) : Py_NewRef(Py_None);
}

/* The bytes, and what their answer tells of the whole object. A size of 0 is none that was told:
 * the first byte of an empty object cannot be asked for. */
static PyObject *get_told_result(struct core_operation *self, struct core_session *session,
                                 const struct rg_completion *done)
{
    struct rg_completion told = *done;
    PyObject *buffer = get_result(self, session, done);
    return buffer == NULL
               ? NULL
               : Py_BuildValue("NLNNk", buffer, (long long)told.generation,
                               number_or_none(told.object_size != 0, told.object_size),
                               number_or_none(told.has_object_crc32c, told.object_crc32c),
                               (unsigned long)told.crc32c);
}

static int range_parse(struct core_operation *self, PyObject *pair, struct rg_range *range)
{
    PyObject *numbers = PySequence_Tuple(pair);
    if (numbers == NULL && !PyErr_ExceptionMatches(PyExc_TypeError)) {
        return -1;
    }
    bool done = false;
    if (numbers == NULL || PyTuple_Size(numbers) != 2) {
        PyErr_Format(PyExc_TypeError, "%U: a range is (offset, length), not %R", self->uri, pair);
    } else {
        done = bytes_parse(PyTuple_GetItem(numbers, 0), "offset of a range", &range->offset) &&
               bytes_parse(PyTuple_GetItem(numbers, 1), "length of a range", &range->length);
        if (!done) {
            core_error_begin_with(self->uri);
        }
    }
    Py_XDECREF(numbers);
    return done ? 0 : -1;
}

/* Pairs of offset and length. */
static int ranges_parse(struct core_operation *self, PyObject *pairs)
{
    PyObject *fast = core_list_of(self->uri, pairs, "ranges", "(offset, length)");
    if (fast == NULL) {
        return -1;
    }
    Py_ssize_t count = PyList_Size(fast);
    if (count > RG_RANGES_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd ranges; one call reads at most %d", count,
                     RG_RANGES_MAX);
        Py_DECREF(fast);
        return -1;
    }
    self->ranges = PyMem_Calloc((size_t)count + 1, sizeof(*self->ranges));
    int rc = self->ranges != NULL ? 0 : -1;
    for (Py_ssize_t i = 0; i < count && rc == 0; i++) {
        rc = range_parse(self, PyList_GetItem(fast, i), &self->ranges[i]);
    }
    if (rc < 0 && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    self->count = (uint32_t)count;
    Py_DECREF(fast);
    return rc;
}

static int get_ranges_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri", "ranges", "generation", "gap", NULL};
    PyObject *pairs, *generation = NULL, *gap = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "UO|$OO:get_ranges", names, &self->uri, &pairs,
                                     &generation, &gap) ||
        !core_generation(generation, &self->generation) || !bytes_parse(gap, "gap", &self->gap)) {
        return -1;
    }
    return ranges_parse(self, pairs);
}

static int get_ranges_submit(struct core_operation *self, struct core_session *session,
                             struct rg_cq *cq, const struct core_uri *uri, uint64_t user_data)
{
    struct rg_get_ranges get = {
        .bucket = uri->bucket,
        .object = uri->object,
        .generation = self->generation,
        .ranges = self->ranges,
        .count = self->count > 0 ? self->count : 1, /* an empty one */
        .gap_max = self->gap,
        .user_data = user_data,
    };
    return rg_submit_get_ranges(session->client, cq, &get);
}

static PyObject *get_ranges_result(struct core_operation *self, struct core_session *session,
                                   const struct rg_completion *done)
{
    return core_buffers_of_ranges(session, done, self->count);
}

static int stat_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri", "generation", NULL};
    PyObject *generation = NULL;
    return PyArg_ParseTupleAndKeywords(args, keywords, "U|$O:stat", names, &self->uri,
                                       &generation) &&
                   core_generation(generation, &self->generation)
               ? 0
               : -1;
}

static int stat_submit(struct core_operation *self, struct core_session *session, struct rg_cq *cq,
                       const struct core_uri *uri, uint64_t user_data)
{
    struct rg_stat stat = {
        .bucket = uri->bucket,
        .object = uri->object,
        .generation = self->generation,
        .user_data = user_data,
    };
    return rg_submit_stat(session->client, cq, &stat);
}

/* What its owner says of an object. */
static PyObject *metadata_dict(const struct rg_object_info *info)
{
    PyObject *pairs = PyDict_New();
    for (size_t i = 0; pairs != NULL && i < info->metadata_count; i++) {
        const char *text = info->metadata[i].value;
        PyObject *value = PyUnicode_FromString(text != NULL ? text : "");
        if (value == NULL || PyDict_SetItemString(pairs, info->metadata[i].key, value) < 0) {
            Py_CLEAR(pairs);
        }
        Py_XDECREF(value);
    }
    return pairs;
}

/* What is known of an object, from a completion whose lease it takes. */
static PyObject *info_dict(PyObject *text, const struct rg_completion *done)
{
    struct core_uri uri;
    const struct rg_object_info *info = done->data;
    PyObject *result = NULL;
    if (core_uri_parse(text, &uri)) {
        result = Py_BuildValue(
            "{sssssKsLsLsNszszszszszszszszsN}", "bucket", uri.bucket, "name", uri.object, "size",
            (unsigned long long)info->object.size, "generation", (long long)info->object.generation,
            "metageneration", (long long)info->metageneration, "crc32c",
            info->object.has_crc32c ? PyLong_FromUnsignedLong(info->object.crc32c)
                                    : Py_NewRef(Py_None),
            "content_type", info->content_type, "content_encoding", info->content_encoding,
            "updated", info->object.updated, "storage_class", info->storage_class, "etag",
            info->etag, "created", info->time_created, "cache_control", info->cache_control, "md5",
            info->md5, "metadata", metadata_dict(info));
    }
    rg_lease_release(done->lease);
    return result;
}

static PyObject *stat_result(struct core_operation *self, struct core_session *session,
                             const struct rg_completion *done)
{
    (void)session;
    return info_dict(self->uri, done);
}

static int copy_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri",           "target", "generation", "if_generation_match",
                            "storage_class", NULL};
    PyObject *generation = NULL, *condition = NULL, *class = NULL;
    return PyArg_ParseTupleAndKeywords(args, keywords, "UU|$OOO:copy", names, &self->uri,
                                       &self->target, &generation, &condition, &class) &&
                   core_generation(generation, &self->generation) &&
                   core_condition(condition, &self->condition) &&
                   core_storage_class(class, &self->storage_class)
               ? 0
               : -1;
}

static int copy_submit(struct core_operation *self, struct core_session *session, struct rg_cq *cq,
                       const struct core_uri *uri, uint64_t user_data)
{
    struct core_uri target;
    if (!core_uri_parse(self->target, &target)) {
        return -EINVAL;
    }
    struct rg_copy copy = {
        .source_bucket = uri->bucket,
        .source_object = uri->object,
        .source_generation = self->generation,
        .bucket = target.bucket,
        .object = target.object,
        .conditions = {.if_generation_match = self->condition},
        .user_data = user_data,
        .storage_class = self->storage_class,
    };
    int rc = rg_submit_copy(session->client, cq, &copy);
    if (rc == -EINVAL && *target.object == '\0') {
        core_submit_raise(rc, self->target);
    }
    return rc;
}

PyObject *core_info_found_dict(PyObject *uri, const struct rg_completion *done)
{
    PyObject *result = info_dict(uri, done);
    PyObject *found_done = done->found_done ? Py_True : Py_False;
    if (result != NULL && PyDict_SetItemString(result, "found_done", found_done) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *copy_result(struct core_operation *self, struct core_session *session,
                             const struct rg_completion *done)
{
    (void)session;
    return core_info_found_dict(self->target, done);
}

static int delete_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri", "generation", "if_generation_match", "exclusive", NULL};
    PyObject *generation = NULL, *condition = NULL;
    return PyArg_ParseTupleAndKeywords(args, keywords, "U|$OOp:delete", names, &self->uri,
                                       &generation, &condition, &self->exclusive) &&
                   core_generation(generation, &self->generation) &&
                   core_condition(condition, &self->condition)
               ? 0
               : -1;
}

static int delete_submit(struct core_operation *self, struct core_session *session,
                         struct rg_cq *cq, const struct core_uri *uri, uint64_t user_data)
{
    struct rg_delete del = {
        .bucket = uri->bucket,
        .object = uri->object,
        .generation = self->generation,
        .conditions = {.if_generation_match = self->condition},
        .exclusive = self->exclusive,
        .user_data = user_data,
    };
    return rg_submit_delete(session->client, cq, &del);
}

static PyObject *delete_result(struct core_operation *self, struct core_session *session,
                               const struct rg_completion *done)
{
    (void)self;
    (void)session;
    rg_lease_release(done->lease);
    Py_RETURN_NONE;
}

/* Reads an item of delete_many: a URI, or a pair of one and the generation that it is to have.
 * Borrowed; NULL with an exception. */
static PyObject *item_uri(PyObject *item, int64_t *out_condition)
{
    if (PyUnicode_Check(item)) {
        return item;
    }
    if (!PyTuple_Check(item) || PyTuple_Size(item) != 2) {
        return PyErr_Format(PyExc_TypeError, "an object is a URI or (uri, generation), not %R",
                            item);
    }
    int64_t generation = 0;
    if (!core_generation(PyTuple_GetItem(item, 1), &generation)) {
        core_error_begin_with(PyTuple_GetItem(item, 0));
        return NULL;
    }
    if (generation == 0) {
        return PyErr_Format(PyExc_ValueError, "%R: 0 is no generation", item);
    }
    *out_condition = generation;
    return PyTuple_GetItem(item, 0);
}

/* Up to RG_DELETES_MAX objects by one request. Its `uri` is a tuple of items. */
static int delete_many_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uris", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!:delete_many", names, &PyTuple_Type,
                                     &self->uri)) {
        return -1;
    }
    Py_ssize_t count = PyTuple_Size(self->uri);
    if (count == 0 || count > RG_DELETES_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd objects; one request removes 1 to %d", count,
                     RG_DELETES_MAX);
        return -1;
    }
    self->count = (uint32_t)count;
    return 0;
}

static int delete_many_submit(struct core_operation *self, struct core_session *session,
                              struct rg_cq *cq, const struct core_uri *nothing, uint64_t user_data)
{
    (void)nothing;
    struct rg_delete deletes[RG_DELETES_MAX] = {0};
    struct core_uri *uris = PyMem_Calloc(self->count, sizeof(*uris));
    if (uris == NULL) {
        return -ENOMEM;
    }
    int rc = 0;
    for (uint32_t i = 0; i < self->count && rc == 0; i++) {
        int64_t condition = 0;
        PyObject *uri = item_uri(PyTuple_GetItem(self->uri, i), &condition);
        if (uri == NULL || !core_uri_parse(uri, &uris[i])) {
            rc = -EINVAL;
        }
        deletes[i] = (struct rg_delete){.bucket = uris[i].bucket,
                                        .object = uris[i].object,
                                        .conditions = {.if_generation_match = condition}};
    }
    if (rc == 0) {
        struct rg_delete_many many = {
            .deletes = deletes, .count = self->count, .user_data = user_data};
        rc = rg_submit_delete_many(session->client, cq, &many);
    }
    PyMem_Free(uris);
    return rc;
}

/* The errors of those that were not removed: where there was no answer, of all. */
static PyObject *delete_many_result(struct core_operation *self, struct core_session *session,
                                    const struct rg_completion *done)
{
    (void)session;
    const struct rg_delete_result *results = done->status == RG_STATUS_OK ? done->data : NULL;
    PyObject *errors = PyList_New(0);
    for (uint32_t i = 0; i < self->count && errors != NULL; i++) {
        struct rg_completion failed = *done;
        failed.lease = NULL;
        if (results != NULL) {
            failed = (struct rg_completion){.status = results[i].status,
                                            .http_status = results[i].http_status,
                                            .detail = results[i].detail};
        }
        if (failed.status == RG_STATUS_OK) {
            continue;
        }
        int64_t condition;
        PyObject *error =
            core_error_new(item_uri(PyTuple_GetItem(self->uri, i), &condition), &failed);
        if (error == NULL || PyList_Append(errors, error) < 0) {
            Py_CLEAR(errors);
        }
        Py_XDECREF(error);
    }
    rg_lease_release(done->lease);
    return errors;
}

static int list_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri",          "progress",   "folder_markers", "glob",
                            "start_offset", "end_offset", "versions",       NULL};
    int has_markers = 1;
    PyObject *glob = NULL, *start = NULL, *end = NULL;
    int rc = PyArg_ParseTupleAndKeywords(args, keywords, "U|$OpOOOp:list", names, &self->uri,
                                         &self->progress, &has_markers, &glob, &start, &end,
                                         &self->listed.versions) &&
                     core_text(glob, "glob", &self->listed.glob) &&
                     core_text(start, "start_offset", &self->listed.start_offset) &&
                     core_text(end, "end_offset", &self->listed.end_offset)
                 ? 0
                 : -1;
    self->listed.is_without_markers = has_markers == 0;
    return rc;
}

static int list_submit(struct core_operation *self, struct core_session *session, struct rg_cq *cq,
                       const struct core_uri *uri, uint64_t user_data)
{
    if (self->listing == NULL) {
        int rc = core_listing_open(&self->listing, session, uri, &self->listed);
        if (rc < 0) {
            return rc;
        }
    }
    return core_listing_next(self->listing, cq, user_data);
}

static PyObject *list_result(struct core_operation *self, struct core_session *session,
                             const struct rg_completion *done)
{
    (void)session;
    Py_ssize_t count;
    PyObject *objects = core_listing_page(self->listing, done, &count);
    if (objects == NULL && !PyErr_Occurred() && self->progress != NULL &&
        self->progress != Py_None) {
        PyObject *said = PyObject_CallFunction(self->progress, "n", count);
        Py_XDECREF(said);
    }
    return objects;
}

static int list_folder_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri", "limit", NULL};
    self->listed.is_folder = true;
    PyObject *limit = NULL;
    return PyArg_ParseTupleAndKeywords(args, keywords, "U|$O:list_folder", names, &self->uri,
                                       &limit) &&
                   core_number32(limit, "limit", 0, UINT32_MAX, &self->listed.limit)
               ? 0
               : -1;
}

static int list_details_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri", "folder", "limit", NULL};
    int is_folder = 0;
    PyObject *limit = NULL;
    int rc = PyArg_ParseTupleAndKeywords(args, keywords, "U|$pO:_list_details", names, &self->uri,
                                         &is_folder, &limit) &&
                     core_number32(limit, "limit", 0, UINT32_MAX, &self->listed.limit)
                 ? 0
                 : -1;
    self->listed.is_folder = is_folder != 0;
    self->listed.is_detailed = true;
    return rc;
}

static int list_uploads_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri", NULL};
    return PyArg_ParseTupleAndKeywords(args, keywords, "U:list_uploads", names, &self->uri) ? 0
                                                                                            : -1;
}

static int list_uploads_submit(struct core_operation *self, struct core_session *session,
                               struct rg_cq *cq, const struct core_uri *uri, uint64_t user_data)
{
    struct rg_list_uploads list = {
        .bucket = uri->bucket,
        .prefix = uri->object,
        .key_marker = self->key_marker,
        .id_marker = self->id_marker,
        .user_data = user_data,
    };
    return rg_submit_list_uploads(session->client, cq, &list);
}

/* A copy of a text that may be NULL, in the place of one. -1 with an exception. */
static int text_replace(char **text, const char *with)
{
    size_t size = with != NULL ? strlen(with) + 1 : 0;
    PyMem_Free(*text);
    *text = with != NULL ? PyMem_Malloc(size) : NULL;
    if (with != NULL && *text == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (with != NULL) {
        memcpy(*text, with, size);
    }
    return 0;
}

static bool texts_differ(const char *a, const char *b)
{
    return (a == NULL) != (b == NULL) || (a != NULL && strcmp(a, b) != 0);
}

/* Adds a page, and notes where the next begins. -1 with an exception; 1: it was the last. */
static int uploads_add(struct core_operation *self, const struct rg_uploads_page *page)
{
    if (self->found == NULL && (self->found = PyList_New(0)) == NULL) {
        return -1;
    }
    for (size_t i = 0; i < page->count; i++) {
        const struct rg_unfinished_upload *upload = &page->uploads[i];
        PyObject *entry = Py_BuildValue("(ssz)", upload->object, upload->id, upload->initiated);
        int rc = entry != NULL ? PyList_Append(self->found, entry) : -1;
        Py_XDECREF(entry);
        if (rc < 0) {
            return -1;
        }
    }
    if (page->next_key_marker == NULL) {
        return 1;
    }
    if (!texts_differ(page->next_key_marker, self->key_marker) &&
        !texts_differ(page->next_id_marker, self->id_marker)) {
        struct rg_completion failed = {.status = RG_STATUS_BAD_RESPONSE,
                                       .detail = "the list of uploads leads back to itself"};
        core_error_raise(self->uri, &failed);
        return -1;
    }
    return text_replace(&self->key_marker, page->next_key_marker) < 0 ||
                   text_replace(&self->id_marker, page->next_id_marker) < 0
               ? -1
               : 0;
}

static PyObject *list_uploads_result(struct core_operation *self, struct core_session *session,
                                     const struct rg_completion *done)
{
    (void)session;
    int rc = uploads_add(self, done->data);
    rg_lease_release(done->lease);
    return rc == 1 ? Py_NewRef(self->found) : NULL;
}

static int abort_upload_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uri", "upload_id", NULL};
    return PyArg_ParseTupleAndKeywords(args, keywords, "Us:abort_upload", names, &self->uri,
                                       &self->upload_id)
               ? 0
               : -1;
}

static int abort_upload_submit(struct core_operation *self, struct core_session *session,
                               struct rg_cq *cq, const struct core_uri *uri, uint64_t user_data)
{
    struct rg_abort_upload abort = {
        .bucket = uri->bucket,
        .object = uri->object,
        .id = self->upload_id,
        .user_data = user_data,
    };
    return rg_submit_abort_upload(session->client, cq, &abort);
}

static const struct core_operation_kind kinds[] = {
    {"get", get_parse, get_submit, get_result, false},
    {"_get_told", get_parse, get_submit, get_told_result, false},
    {"get_ranges", get_ranges_parse, get_ranges_submit, get_ranges_result, false},
    {"stat", stat_parse, stat_submit, stat_result, true},
    {"delete", delete_parse, delete_submit, delete_result, true},
    {"delete_many", delete_many_parse, delete_many_submit, delete_many_result, true},
    {"list", list_parse, list_submit, list_result, false},
    {"list_folder", list_folder_parse, list_submit, list_result, false},
    {"_list_details", list_details_parse, list_submit, list_result, false},
    {"copy", copy_parse, copy_submit, copy_result, true},
    {"list_uploads", list_uploads_parse, list_uploads_submit, list_uploads_result, false},
    {"abort_upload", abort_upload_parse, abort_upload_submit, delete_result, true},
};

/* Its URI may be a bucket's. */
static bool kind_lists(const struct core_operation_kind *kind)
{
    return kind->submit == list_submit || kind->submit == list_uploads_submit;
}

/* Kinds that are defined in other files. */
static const struct core_operation_kind *const more_kinds[] = {
    &core_put_kind, &core_update_kind, &core_compose_kind, &core_get_into_kind, &core_read_at_kind,
};

static const struct core_operation_kind *kind_find(const char *name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(more_kinds); i++) {
        if (strcmp(more_kinds[i]->name, name) == 0) {
            return more_kinds[i];
        }
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &kinds[i];
        }
    }
    PyErr_Format(PyExc_ValueError, "there is no operation %s", name);
    return NULL;
}

static void operation_become(struct core_operation *self, enum core_operation_state state)
{
    static const uint8_t states_after[] = {
        [CORE_OPERATION_NONE] = 1u << CORE_OPERATION_READY,
        [CORE_OPERATION_READY] = 1u << CORE_OPERATION_OUT | 1u << CORE_OPERATION_NONE,
        [CORE_OPERATION_OUT] = 1u << CORE_OPERATION_READY,
    };
    RG_ASSERT(states_after[self->state] & 1u << state);
    self->state = state;
}

int core_operation_init(struct core_operation *self, const char *name, PyObject *args,
                        PyObject *keywords)
{
    memset(self, 0, sizeof(*self));
    self->kind = kind_find(name);
    if (self->kind == NULL) {
        return -1;
    }
    operation_become(self, CORE_OPERATION_READY);
    int rc = self->kind->parse(self, args, keywords);
    /* The parsers borrow. */
    Py_XINCREF(self->uri);
    Py_XINCREF(self->target);
    Py_XINCREF(self->progress);
    Py_XINCREF(self->reader);
    if (rc < 0) {
        core_operation_fini(self);
    }
    return rc;
}

void core_operation_drop(struct core_operation *self)
{
    if (self->state == CORE_OPERATION_OUT) {
        operation_become(self, CORE_OPERATION_READY);
    }
}

void core_operation_fini(struct core_operation *self)
{
    operation_become(self, CORE_OPERATION_NONE);
    core_listing_close(self->listing);
    PyMem_Free(self->ranges);
    PyMem_Free(self->metadata);
    PyMem_Free(self->sources);
    core_into_free(self->into);
    if (self->fd_plus_1 > 0) {
        (void)close(self->fd_plus_1 - 1);
    }
    if (self->data.obj != NULL) {
        PyBuffer_Release(&self->data);
    }
    PyMem_Free(self->key_marker);
    PyMem_Free(self->id_marker);
    Py_XDECREF(self->found);
    Py_XDECREF(self->texts);
    Py_XDECREF(self->uri);
    Py_XDECREF(self->target);
    Py_XDECREF(self->progress);
    Py_XDECREF(self->reader);
    memset(self, 0, sizeof(*self));
}

int core_operation_traverse(struct core_operation *self, visitproc visit, void *arg)
{
    Py_VISIT(self->uri);
    Py_VISIT(self->target);
    Py_VISIT(self->progress);
    Py_VISIT(self->reader);
    Py_VISIT(self->data.obj);
    Py_VISIT(self->found);
    Py_VISIT(self->texts);
    return self->into != NULL ? core_into_traverse(self->into, visit, arg) : 0;
}

int core_operation_submit(struct core_operation *self, struct core_session *session,
                          struct rg_cq *cq, uint64_t user_data)
{
    struct core_uri uri;
    RG_ASSERT(self->state == CORE_OPERATION_READY);
    if (!PyTuple_Check(self->uri) && !core_uri_parse(self->uri, &uri)) {
        return -EINVAL;
    }
    int rc = self->kind->submit(self, session, cq, &uri, user_data);
    if (rc == 0) {
        operation_become(self, CORE_OPERATION_OUT);
    }
    if (rc == -EINVAL && !PyErr_Occurred() && kind_lists(self->kind)) {
        PyErr_Format(PyExc_ValueError, "%R: %s", self->uri, core_refused_text(rc));
    } else if (rc < 0 && rc != -EAGAIN && !PyErr_Occurred()) {
        core_submit_raise(rc, self->uri);
    }
    return rc;
}

bool core_operation_is_lean(const struct core_operation *self)
{
    return self->kind->is_lean;
}

PyObject *core_operation_result(struct core_operation *self, struct core_session *session,
                                const struct rg_completion *done)
{
    operation_become(self, CORE_OPERATION_READY);
    if (core_request_note(self->uri, done) < 0) {
        rg_lease_release(done->lease);
        return NULL;
    }
    if (done->status != RG_STATUS_OK && self->kind->result != delete_many_result) {
        return core_error_raise(self->uri, done);
    }
    return self->kind->result(self, session, done);
}

/* 0 when it was submitted; waits while the client, which others use too, has no room. */
static int submit_patiently(struct core_operation *self, struct core_watch *watch, struct rg_cq *cq)
{
    int rc;
    while ((rc = core_operation_submit(self, watch->session, cq, 0)) == -EAGAIN) {
        if (core_client_full_wait(watch, NULL) < 0) {
            return -ECANCELED;
        }
    }
    return rc;
}

static PyObject *operation_run(struct core_operation *self, struct core_session *session,
                               struct rg_cq *cq)
{
    struct core_watch watch;
    core_watch_begin(&watch, session, core_operation_is_lean(self));
    PyObject *result = NULL;
    while (result == NULL && !PyErr_Occurred()) {
        if (submit_patiently(self, &watch, cq) < 0) {
            return NULL;
        }
        struct rg_completion done;
        if (core_wait(&watch, NULL, cq, &done, 1) < 0) {
            core_drain(session, cq, 0, 1, 1);
            core_operation_drop(self);
            return NULL;
        }
        result = core_operation_result(self, session, &done);
    }
    return result;
}

PyObject *core_operation_call(const char *name, PyObject *client, PyObject *args,
                              PyObject *keywords)
{
    struct core_operation operation;
    struct rg_cq *cq;
    if (core_operation_init(&operation, name, args, keywords) < 0) {
        return NULL;
    }
    struct core_session *session = core_client_session(client);
    PyObject *result = NULL;
    if (session != NULL && core_queue_borrow(session, &cq) == 0) {
        result = operation_run(&operation, session, cq);
        core_operation_fini(&operation);
        core_queue_return(session, cq);
    } else {
        core_operation_fini(&operation);
    }
    core_session_unref(session);
    return result;
}
