/* Client.get_into: ranges of one object, read into memory of the caller's.
 *
 * The ranges are cut into operations of RG_RANGES_MAX. The first one says which generation all are
 * of; the others are out together, or where the call is awaited one after the other. Memory is
 * borrowed, through its buffer views, until the last of them has ended, whatever ends the wait.
 *
 * Ranges are put in the order of their offsets first, so that neighbours share an operation, and so
 * that what came can be compared with the object's CRC32C. */
#include "core.h"
#include "gcs/wire/checksum.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operations that are out at once, each with several requests. */
#define OPERATIONS_MAX 8

struct core_into {
    struct core_session *session;
    struct rg_cq *cq;
    PyObject *uri_text;
    struct core_uri uri;
    Py_buffer *views;
    struct rg_range *ranges;
    size_t count, view_count;
    size_t *order;       /* where each range was asked for; NULL: they are as they were */
    uint32_t *checksums; /* of each range, as `ranges`; NULL: nobody needs them */
    uint64_t gap_max;
    bool verifies, tells_checksums;
    bool is_whole; /* all of the object is asked for, and nothing that was not compared is given */
    int64_t generation;
    uint64_t object_size;
    uint32_t object_crc32c;
    bool has_object_crc32c;
    uint32_t expected_crc32c; /* by the caller, where the server does not tell it */
    bool has_expected_crc32c;
    size_t next, out; /* operations: that was not submitted yet, and that are out */
    struct core_watch watch;
};

/* Its own exception says no more than that it cannot be. */
static void memory_refuse(const struct core_into *into, uint64_t offset, PyObject *buffer)
{
    PyObject *type = PyErr_ExceptionMatches(PyExc_TypeError)     ? PyExc_TypeError
                     : PyErr_ExceptionMatches(PyExc_BufferError) ? PyExc_BufferError
                                                                 : NULL;
    if (type != NULL) {
        PyErr_Format(type,
                     "%U: the memory for offset %llu is of %R; it must be writable and in one "
                     "piece, as of a bytearray",
                     into->uri_text, (unsigned long long)offset, Py_TYPE(buffer));
    }
}

/* One (offset, buffer). False with an exception. */
static bool request_parse(struct core_into *into, PyObject *request)
{
    PyObject *buffer, *number;
    uint64_t offset;
    Py_buffer *view = &into->views[into->view_count];
    if (!PyTuple_Check(request) || PyTuple_Size(request) != 2) {
        PyErr_Format(PyExc_TypeError, "%U: a request is (offset, buffer), not %R", into->uri_text,
                     request);
        return false;
    }
    number = PyTuple_GetItem(request, 0);
    buffer = PyTuple_GetItem(request, 1);
    if (!core_number(number, "offset of a request", 0, CORE_BYTES_MAX, &offset)) {
        core_error_begin_with(into->uri_text);
        return false;
    }
    if (PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE) < 0) {
        memory_refuse(into, offset, buffer);
        return false;
    }
    into->view_count++;
    if (view->len > 0) {
        into->ranges[into->count++] =
            (struct rg_range){.offset = offset, .length = (uint64_t)view->len, .buf = view->buf};
    }
    return true;
}

/* The library compares the checksum of a whole object that one operation reads. */
static bool tables_make(struct core_into *into, size_t count)
{
    bool is_many = count > RG_RANGES_MAX || into->has_expected_crc32c;
    bool wants_checksums = into->tells_checksums || into->is_whole || (into->verifies && is_many);
    into->ranges = PyMem_Calloc(count + 1, sizeof(*into->ranges));
    if (wants_checksums) {
        into->checksums = PyMem_Calloc(count + 1, sizeof(*into->checksums));
    }
    if (into->ranges == NULL || (wants_checksums && into->checksums == NULL)) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

static bool requests_parse(struct core_into *into, PyObject *requests)
{
    PyObject *list = core_list_of(into->uri_text, requests, "requests", "(offset, buffer)");
    Py_ssize_t count = list != NULL ? PyList_Size(list) : -1;
    bool done = count >= 0;
    if (done) {
        into->views = PyMem_Calloc((size_t)count + 1, sizeof(*into->views));
        done = into->views != NULL;
        if (!done) {
            PyErr_NoMemory();
        }
    }
    done = done && tables_make(into, (size_t)count);
    for (Py_ssize_t i = 0; done && i < count; i++) {
        done = request_parse(into, PyList_GetItem(list, i));
    }
    Py_XDECREF(list);
    return done;
}

/* Offset, length and address of each range, as 64-bit numbers. */
static bool table_parse(struct core_into *into, PyObject *table)
{
    Py_buffer *view = into->views = PyMem_Calloc(1, sizeof(*into->views));
    if (view == NULL) {
        PyErr_NoMemory();
        return false;
    }
    if (PyObject_GetBuffer(table, view, PyBUF_SIMPLE) < 0) {
        return false;
    }
    into->view_count = 1;
    size_t count = (size_t)view->len / (3 * sizeof(uint64_t));
    const uint64_t *numbers = view->buf;
    if (!tables_make(into, count)) {
        return false;
    }
    for (size_t i = 0; i < count; i++, numbers += 3) {
        if (numbers[1] > 0) {
            into->ranges[into->count++] = (struct rg_range){
                .offset = numbers[0], .length = numbers[1], .buf = (void *)(uintptr_t)numbers[2]};
        }
    }
    return true;
}

static int order_compare(const void *a, const void *b, void *ranges)
{
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const struct rg_range *left = (const struct rg_range *)ranges + i;
    const struct rg_range *right = (const struct rg_range *)ranges + j;
    if (left->offset != right->offset) {
        return left->offset < right->offset ? -1 : 1;
    }
    return i < j ? -1 : i > j;
}

/* False with an exception. */
static bool ranges_sort(struct core_into *into)
{
    size_t i = 1;
    while (i < into->count && into->ranges[i - 1].offset <= into->ranges[i].offset) {
        i++;
    }
    if (i >= into->count) {
        return true;
    }
    struct rg_range *sorted = PyMem_Calloc(into->count, sizeof(*sorted));
    into->order = PyMem_Calloc(into->count, sizeof(*into->order));
    if (sorted == NULL || into->order == NULL) {
        PyMem_Free(sorted);
        PyErr_NoMemory();
        return false;
    }
    for (i = 0; i < into->count; i++) {
        into->order[i] = i;
    }
    qsort_r(into->order, into->count, sizeof(*into->order), order_compare, into->ranges);
    for (i = 0; i < into->count; i++) {
        sorted[i] = into->ranges[into->order[i]];
    }
    PyMem_Free(into->ranges);
    into->ranges = sorted;
    return true;
}

static int memory_compare(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t)(*(const struct rg_range *const *)a)->buf;
    uintptr_t right = (uintptr_t)(*(const struct rg_range *const *)b)->buf;
    return left < right ? -1 : left > right;
}

static bool is_behind(const struct rg_range *range, const struct rg_range *before)
{
    return (uintptr_t)range->buf >= (uintptr_t)before->buf + before->length;
}

/* Ranges are read at once, so that nobody could tell whose bytes are in memory that two of them
 * have. False with an exception. */
static bool memory_check(const struct core_into *into)
{
    size_t i = 1;
    while (i < into->count && is_behind(&into->ranges[i], &into->ranges[i - 1])) {
        i++;
    }
    if (i >= into->count) {
        return true;
    }
    const struct rg_range **sorted = PyMem_Calloc(into->count, sizeof(*sorted));
    if (sorted == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (i = 0; i < into->count; i++) {
        sorted[i] = &into->ranges[i];
    }
    qsort(sorted, into->count, sizeof(*sorted), memory_compare);
    for (i = 1; i < into->count && is_behind(sorted[i], sorted[i - 1]); i++) {
    }
    if (i < into->count) {
        PyErr_Format(PyExc_ValueError,
                     "%U: bytes %llu to %llu and bytes %llu to %llu are to be read into the same "
                     "memory: give each its own",
                     into->uri_text, (unsigned long long)sorted[i - 1]->offset,
                     (unsigned long long)(sorted[i - 1]->offset + sorted[i - 1]->length - 1),
                     (unsigned long long)sorted[i]->offset,
                     (unsigned long long)(sorted[i]->offset + sorted[i]->length - 1));
    }
    PyMem_Free(sorted);
    return i >= into->count;
}

static size_t operation_count(const struct core_into *into)
{
    return (into->count + RG_RANGES_MAX - 1) / RG_RANGES_MAX;
}

/* No more are out than were submitted, and no more than there is room for; and only the first one
 * while it is not known which generation all are of. */
static bool invariants(const struct core_into *into)
{
    return into->out <= into->next && into->next <= operation_count(into) &&
           into->out <= OPERATIONS_MAX && (into->generation != 0 || into->next <= 1);
}

static const struct rg_range *operation_ranges(const struct core_into *into, size_t operation,
                                               size_t *out_count)
{
    size_t first = operation * RG_RANGES_MAX;
    size_t left = into->count - first;
    *out_count = left < RG_RANGES_MAX ? left : RG_RANGES_MAX;
    return into->ranges + first;
}

/* Submits the next operation: 0 or a negative errno. */
static int next_submit(const struct core_into *into, struct core_session *session, struct rg_cq *cq,
                       uint64_t user_data)
{
    size_t count;
    const struct rg_range *ranges = operation_ranges(into, into->next, &count);
    struct rg_get_ranges get = {
        .bucket = into->uri.bucket,
        .object = into->uri.object,
        .generation = into->generation,
        .ranges = ranges,
        .count = count,
        .gap_max = into->gap_max,
        .user_data = user_data,
        .no_checksum = !into->verifies && !into->tells_checksums,
    };
    return rg_submit_get_ranges(session->client, cq, &get);
}

/* The same for a call that waits; 0, -EAGAIN (the client is full), or -1 with an exception. */
static int submit_next(struct core_into *into)
{
    int rc = next_submit(into, into->session, into->cq, into->next);
    if (rc == -EAGAIN) {
        return rc;
    }
    if (rc < 0) {
        core_submit_raise(rc, into->uri_text);
        return -1;
    }
    size_t count;
    const struct rg_range *ranges = operation_ranges(into, into->next, &count);
    into->next++;
    into->out++;
    RG_ASSERT(invariants(into));
    Py_BEGIN_ALLOW_THREADS;
    core_pages_prepare(ranges, count, true);
    Py_END_ALLOW_THREADS;
    return 0;
}

/* Notes what an operation has read, and takes the lease; 0, or -1 with an exception. */
static int ranges_note(struct core_into *into, size_t operation, const struct rg_completion *done)
{
    const struct rg_range_result *results = done->data;
    size_t first = operation * RG_RANGES_MAX;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < done->size / sizeof(*results); i++) {
        const struct rg_range *range = &into->ranges[first + i];
        if (results[i].size != range->length) {
            PyErr_Format(PyExc_EOFError,
                         "%U has %llu bytes in generation %lld, which end before byte %llu of a "
                         "range that was asked for",
                         into->uri_text, (unsigned long long)done->object_size,
                         (long long)done->generation,
                         (unsigned long long)(range->offset + range->length));
            rc = -1;
        }
        if (into->checksums != NULL) {
            into->checksums[first + i] = results[i].crc32c;
        }
    }
    into->generation = done->generation;
    into->object_size = done->object_size;
    into->object_crc32c = done->object_crc32c;
    into->has_object_crc32c = done->has_object_crc32c;
    rg_lease_release(done->lease);
    return rc;
}

/* Takes one completion; 0, or -1 with an exception. */
static int take_one(struct core_into *into)
{
    struct rg_completion done;
    if (core_wait(&into->watch, NULL, into->cq, &done, 1) < 0) {
        return -1;
    }
    RG_ASSERT(into->out > 0 && done.user_data < into->next);
    into->out--;
    if (done.status != RG_STATUS_OK) {
        core_error_raise(into->uri_text, &done);
        return -1;
    }
    return ranges_note(into, (size_t)done.user_data, &done);
}

static int read_all(struct core_into *into)
{
    size_t count = operation_count(into);
    int rc = 0;
    while (rc == 0 && (into->next < count || into->out > 0)) {
        bool pinned = into->generation != 0 || into->next == 0;
        if (into->next < count && pinned && into->out < OPERATIONS_MAX) {
            rc = submit_next(into);
            if (rc == -EAGAIN) {
                rc = into->out > 0 ? take_one(into) : core_client_full_wait(&into->watch, NULL);
            }
        } else {
            rc = take_one(into);
        }
    }
    core_drain(into->session, into->cq, 0, into->next, into->out);
    into->out = 0;
    return rc;
}

/* Whether the ranges are the whole object, and if so its CRC32C. Bytes that a range has in common
 * with those before it are left out; the rest of it is added up from memory then. */
static bool covers_object(const struct core_into *into, uint32_t *out_crc)
{
    uint64_t end = 0;
    uint32_t crc = 0;
    for (size_t i = 0; i < into->count; i++) {
        const struct rg_range *range = &into->ranges[i];
        if (range->offset > end) {
            return false;
        }
        uint64_t known = end - range->offset;
        if (known >= range->length) {
            continue;
        }
        uint64_t size = range->length - known;
        crc = known == 0 ? rg_crc32c_combine(crc, into->checksums[i], size)
                         : rg_crc32c(crc, (const uint8_t *)range->buf + known, (size_t)size);
        end += size;
    }
    *out_crc = crc;
    return end == into->object_size;
}

static int checksum_raise(const struct core_into *into, const char *detail)
{
    const struct rg_completion failed = {.status = RG_STATUS_CHECKSUM, .detail = detail};
    core_error_raise(into->uri_text, &failed);
    return -1;
}

/* Compares the whole object with its CRC32C, where all of it was read; the library itself has done
 * so where one operation did. 0, or -1 with an exception. */
static int verify_whole(const struct core_into *into)
{
    char detail[160];
    uint32_t crc = 0;
    if (into->checksums == NULL || !into->verifies || into->count == 0) {
        return 0;
    }
    bool covers = covers_object(into, &crc);
    bool is_told = into->has_object_crc32c || into->has_expected_crc32c;
    uint32_t wanted = into->has_object_crc32c ? into->object_crc32c : into->expected_crc32c;
    if (into->is_whole && !(covers && is_told)) {
        snprintf(detail, sizeof(detail),
                 "generation %" PRId64 " of %" PRIu64 " bytes could not be compared with its "
                 "CRC32C: %s",
                 into->generation, into->object_size,
                 covers ? "the server does not tell it" : "not all of it was read");
        return checksum_raise(into, detail);
    }
    if (!covers || !is_told || crc == wanted) {
        return 0;
    }
    snprintf(detail, sizeof(detail),
             "generation %" PRId64 " has the CRC32C %s, but bytes 0 to %" PRIu64
             " that came have %s",
             into->generation, rg_crc32c_text(wanted).text, into->object_size - 1,
             rg_crc32c_text(crc).text);
    return checksum_raise(into, detail);
}

/* The generation, or with checksums (generation, [CRC32C of each range]). */
static PyObject *result_make(const struct core_into *into)
{
    if (!into->tells_checksums) {
        return PyLong_FromLongLong(into->generation);
    }
    PyObject *list = PyList_New((Py_ssize_t)into->count);
    for (size_t i = 0; list != NULL && i < into->count; i++) {
        PyObject *item = PyLong_FromUnsignedLong(into->checksums[i]);
        size_t at = into->order != NULL ? into->order[i] : i;
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)at, item) < 0) {
            Py_CLEAR(list);
        }
    }
    return list == NULL ? NULL : Py_BuildValue("LN", (long long)into->generation, list);
}

static void into_clear(struct core_into *into)
{
    RG_ASSERT(into->out == 0);
    for (size_t i = 0; i < into->view_count; i++) {
        PyBuffer_Release(&into->views[i]);
    }
    PyMem_Free(into->checksums);
    PyMem_Free(into->order);
    PyMem_Free(into->views);
    PyMem_Free(into->ranges);
}

typedef bool requests_parser(struct core_into *into, PyObject *requests);

/* False with an exception, and then, too, it is to be cleared. `client`: whose session a call that
 * waits has, from before code of the caller's runs that may close it; NULL: it is awaited. */
static bool into_parse(struct core_into *into, PyObject *client, PyObject *args, PyObject *keywords,
                       requests_parser *parse)
{
    static char *names[] = {"uri",       "requests", "generation", "verify", "gap_max",
                            "checksums", "whole",    "crc32c",     NULL};
    PyObject *requests, *generation = NULL, *gap_max = NULL, *crc32c = NULL;
    int verify = 1, checksums = 0, whole = 0;
    uint64_t expected = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "UO|$OpOppO:get_into", names, &into->uri_text,
                                     &requests, &generation, &verify, &gap_max, &checksums, &whole,
                                     &crc32c) ||
        !core_generation(generation, &into->generation) ||
        !core_number(gap_max, "gap_max", 0, CORE_BYTES_MAX, &into->gap_max) ||
        (crc32c != Py_None && !core_number(crc32c, "crc32c", 0, UINT32_MAX, &expected))) {
        return false;
    }
    into->has_expected_crc32c = crc32c != NULL && crc32c != Py_None;
    into->expected_crc32c = (uint32_t)expected;
    if (whole && !verify) {
        PyErr_SetString(PyExc_ValueError, "whole=True is to verify: not with verify=False");
        return false;
    }
    into->verifies = verify != 0;
    into->tells_checksums = checksums != 0;
    into->is_whole = whole != 0;
    into->session = client != NULL ? core_client_session(client) : NULL;
    if (client != NULL && into->session == NULL) {
        return false;
    }
    return core_uri_parse(into->uri_text, &into->uri) && parse(into, requests) &&
           memory_check(into) && ranges_sort(into);
}

static PyObject *get_into(PyObject *client, PyObject *args, PyObject *keywords,
                          requests_parser *parse)
{
    struct core_into into = {0};
    int rc = -1;
    if (into_parse(&into, client, args, keywords, parse) &&
        core_queue_open(into.session, OPERATIONS_MAX, &into.cq) == 0) {
        core_watch_begin(&into.watch, into.session, true);
        rc = read_all(&into);
        rc = rc == 0 ? verify_whole(&into) : rc;
        rg_cq_close(into.cq);
    }
    PyObject *result = rc == 0 ? result_make(&into) : NULL;
    into_clear(&into);
    core_session_unref(into.session);
    return result;
}

PyObject *core_client_get_into(PyObject *client, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    return get_into(client, args, keywords, requests_parse);
}

PyObject *core_client_get_into_addresses(PyObject *client, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    return get_into(client, args, keywords, table_parse);
}

void core_into_free(struct core_into *into)
{
    if (into != NULL) {
        into_clear(into);
        PyMem_Free(into);
    }
}

int core_into_traverse(struct core_into *into, visitproc visit, void *arg)
{
    for (size_t i = 0; i < into->view_count; i++) {
        Py_VISIT(into->views[i].obj);
    }
    return 0;
}

/* What is awaited. */
static int awaited_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    self->into = PyMem_Calloc(1, sizeof(*self->into));
    if (self->into == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    bool done = into_parse(self->into, NULL, args, keywords, requests_parse);
    self->uri = self->into->uri_text;
    return done ? 0 : -1;
}

static int awaited_submit(struct core_operation *self, struct core_session *session,
                          struct rg_cq *cq, const struct core_uri *uri, uint64_t user_data)
{
    struct core_into *into = self->into;
    if (into->count > 0) {
        size_t count;
        const struct rg_range *ranges = operation_ranges(into, into->next, &count);
        core_pages_prepare(ranges, count, false); /* the event loop has no time for more */
        return next_submit(into, session, cq, user_data);
    }
    /* Every call has a request: an empty range. */
    struct rg_get_ranges get = {.bucket = uri->bucket,
                                .object = uri->object,
                                .generation = into->generation,
                                .ranges = into->ranges,
                                .count = 1,
                                .user_data = user_data};
    return rg_submit_get_ranges(session->client, cq, &get);
}

/* NULL without an exception while there is more to ask for. */
static PyObject *awaited_result(struct core_operation *self, struct core_session *session,
                                const struct rg_completion *done)
{
    (void)session;
    struct core_into *into = self->into;
    if (into->count == 0) {
        rg_lease_release(done->lease);
        return result_make(into);
    }
    if (ranges_note(into, into->next, done) < 0) {
        return NULL;
    }
    into->next++;
    if (into->next < operation_count(into)) {
        return NULL;
    }
    return verify_whole(into) == 0 ? result_make(into) : NULL;
}

const struct core_operation_kind core_get_into_kind = {"get_into", awaited_parse, awaited_submit,
                                                       awaited_result, true};
