/* Reader: one epoch, in batches of items.
 *
 * One thread at a time takes samples; others may ask how far it is, or close it, which ends the
 * wait. Nothing that it refers to can refer to it, so it is no business of the garbage collector.
 *
 *   take: waits               start, then poll: gives what is there, and never waits
 *
 * A reader that was started has a queue, whose descriptor wakes an event loop. A list that is not
 * complete yet stays here, so that whoever waits for it may give that up and come again. */
#include "core.h"
#include "dataset/causes.h"
#include "dataset/steps.h"

#include <errno.h>
#include <string.h>

PyTypeObject *core_reader_type;

#define BATCH_MAX 65536
/* Samples that are asked for at once. */
#define PORTION_MAX 256
/* About as many bytes as take_some gives: whoever copies them finds them in the cache. */
#define SOME_BYTES (UINT64_C(1) << 20)
/* Of what the descriptor of one that was started says at a time; the rest of the window goes on. */
#define TOGETHER_BYTES (UINT64_C(16) << 20)
/* Of the queue of one that was started; the library leaves a quarter free. */
#define QUEUE_CAPACITY 1024

/* The numbers of samples that Python asks for. */
enum { TOTAL, TAKEN, SKIPPED, NUMBER_COUNT };

struct reader {
    PyObject_HEAD struct core_session *session;
    struct core_use use;
    struct rg_reader *reader; /* NULL: closed */
    PyObject *base;           /* bytes; NULL: there is none */
    PyObject *last_state;     /* bytes: of one that was closed, like the next */
    PyObject *pending; /* the place behind the value that goes out next; NULL: none is told */
    PyObject *told;    /* the place behind the last value that went out */
    uint64_t last_numbers[NUMBER_COUNT];
    PyObject *objects;
    struct rg_tar_cursor *cursor; /* of a TarIndex */
    uint64_t last_size;           /* of the sample that came last */
    uint64_t *indices;            /* that the reader borrows */
    struct rg_cq *cq;             /* NULL: not started, or closed */
    PyObject *part;               /* a list that is not complete; NULL: there is none */
    struct core_watch watch;      /* since that list was begun */
    bool is_over;                 /* the queue has said so */
    struct rg_steps steps;        /* of the Iteration over it */
    struct rg_steps_name name;    /* of these: the numbers */
};

static struct reader *of(PyObject *object)
{
    return (struct reader *)object;
}

/* What nobody has taken; in a child of fork() it is the parent's. */
static void queue_close(struct rg_cq *cq, bool is_own)
{
    struct rg_completion done;
    while (cq != NULL && is_own && rg_cq_poll(cq, &done, 1) == 1) {
        rg_lease_release(done.lease);
    }
    rg_cq_close(cq);
}

/* An exception that is set stays. */
static void reader_end(struct reader *self)
{
    struct rg_reader *reader = self->reader;
    struct rg_cq *cq = self->cq;
    self->reader = NULL;
    self->cq = NULL;
    if (reader != NULL && !core_use_is_half_done(&self->use)) {
        bool is_own = core_session_is_own(self->session);
        Py_BEGIN_ALLOW_THREADS rg_reader_close(reader);
        queue_close(cq, is_own);
        Py_END_ALLOW_THREADS
    }
    Py_CLEAR(self->part);
    core_use_drop_session(&self->use, &self->session);
}

static uint64_t number_of(const struct reader *self, int which)
{
    static uint64_t (*const numbers[])(const struct rg_reader *) = {
        rg_reader_total, rg_reader_taken, rg_reader_skipped};
    return self->reader != NULL ? numbers[which](self->reader) : self->last_numbers[which];
}

static PyObject *state_make(const struct reader *self)
{
    char data[RG_READER_STATE_MAX];
    size_t size = rg_reader_state(self->reader, data, sizeof(data));
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
}

/* What is still to be told of a reader that ends. An exception that is set stays. */
static void reader_note(struct reader *self)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    self->last_state = state_make(self); /* NULL: there is no memory, and none to ask for */
    for (int i = 0; i < NUMBER_COUNT; i++) {
        self->last_numbers[i] = number_of(self, i);
    }
    PyErr_Restore(type, value, trace);
}

/* Gives the result, unless somebody has closed the reader meanwhile. */
static PyObject *reader_finish(struct reader *self, PyObject *result)
{
    if (!core_use_goes_on(&self->use)) {
        Py_CLEAR(result);
    }
    if (core_use_end(&self->use) && self->reader != NULL) {
        reader_note(self);
        reader_end(self);
    }
    return result;
}

static void reader_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct reader *self = of(object);
    PyTypeObject *type = Py_TYPE(object);
    if (self->reader != NULL) {
        (void)core_use_close(&self->use);
    }
    reader_end(self);
    rg_tar_cursor_close(self->cursor);
    PyMem_Free(self->indices);
    rg_steps_fini(&self->steps);
    Py_XDECREF(self->objects);
    Py_XDECREF(self->base);
    Py_XDECREF(self->last_state);
    Py_XDECREF(self->pending);
    Py_XDECREF(self->told);
    core_session_unref(self->session);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static bool objects_describe(PyObject *objects, struct rg_reader_options *options)
{
    if (Py_IS_TYPE(objects, core_objects_type)) {
        core_objects_describe(objects, options);
    } else if (Py_IS_TYPE(objects, core_tar_type)) {
        core_tar_describe(objects, options);
    } else {
        PyErr_Format(PyExc_TypeError, "a Reader reads Objects or a TarIndex, not %R",
                     (PyObject *)Py_TYPE(objects));
        return false;
    }
    return true;
}

/* From a tuple of numbers, or None: all. */
static int indices_parse(struct reader *self, PyObject *tuple, struct rg_reader_options *options)
{
    if (tuple == Py_None) {
        return 0;
    }
    Py_ssize_t count = PyTuple_Size(tuple);
    self->indices = PyMem_Malloc(((size_t)count + 1) * sizeof(*self->indices));
    if (self->indices == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!core_number(PyTuple_GetItem(tuple, i), "index", 0, UINT64_MAX, &self->indices[i])) {
            return -1;
        }
    }
    options->indices = self->indices;
    options->index_count = (uint64_t)count;
    return 0;
}

/* A list as it is now, since code of the caller's may change it; None stays. NULL with an
 * exception. */
static PyObject *list_freeze(PyObject *list, const char *name)
{
    if (list != Py_None && !PyList_Check(list)) {
        return PyErr_Format(PyExc_TypeError, "%s must be a list, got %R", name, list);
    }
    return list == Py_None ? Py_NewRef(list) : PySequence_Tuple(list);
}

static int digest_parse(const Py_buffer *digest, struct rg_reader_options *options)
{
    if (digest->buf != NULL && digest->len != RG_DIGEST_SIZE) {
        PyErr_Format(PyExc_ValueError, "a digest of %zd bytes; it has %d", digest->len,
                     RG_DIGEST_SIZE);
        return -1;
    }
    options->list_digest = digest->buf;
    return 0;
}

static void buffer_release(Py_buffer *buffer)
{
    if (buffer->obj != NULL) {
        PyBuffer_Release(buffer);
    }
}

static int base_keep(struct reader *self)
{
    size_t size;
    const void *base = rg_reader_base(self->reader, &size);
    if (base != NULL) {
        self->base = PyBytes_FromStringAndSize(base, (Py_ssize_t)size);
    }
    return base == NULL || self->base != NULL ? 0 : -1;
}

static int reader_open(struct reader *self, PyObject *client, PyObject *objects,
                       const struct rg_reader_options *options)
{
    self->session = core_client_session(client);
    if (self->session == NULL) {
        return -1;
    }
    char error[512] = "";
    struct rg_reader *reader;
    int rc = rg_reader_open(&reader, self->session->client, options, error, sizeof(error));
    if (rc < 0) {
        core_errno_raise(rc, error);
        return -1;
    }
    self->reader = reader;
    self->name = (struct rg_steps_name){
        .rank = options->rank,
        .world_size = options->world_size,
        .worker = options->worker,
        .worker_count = options->worker_count,
    };
    core_use_open(&self->use, self->session, "reader", NULL, true);
    self->objects = Py_NewRef(objects);
    return base_keep(self);
}

/* As they were given; NULL: not at all. */
struct reader_numbers {
    PyObject *seed, *epoch, *rank, *world_size, *worker, *worker_count, *batch_size;
    PyObject *remainder, *changed, *window_requests, *window_bytes, *request_bytes;
};

static bool numbers_parse(const struct reader_numbers *given, struct rg_reader_options *options)
{
    const uint32_t most = UINT32_MAX;
    uint32_t remainder = 0, changed = 0;
    bool is_good =
        core_number(given->seed, "seed", 0, UINT64_MAX, &options->seed) &&
        core_number(given->epoch, "epoch", 0, UINT64_MAX, &options->epoch) &&
        core_number32(given->rank, "rank", 0, most, &options->rank) &&
        core_number32(given->world_size, "world_size", 0, most, &options->world_size) &&
        core_number32(given->worker, "worker", 0, most, &options->worker) &&
        core_number32(given->worker_count, "worker_count", 0, most, &options->worker_count) &&
        core_number32(given->batch_size, "batch_size", 0, most, &options->batch_size) &&
        core_number32(given->remainder, "remainder", 0, RG_REMAINDER_DROP, &remainder) &&
        core_number32(given->changed, "changed", 0, RG_CHANGED_NEWEST, &changed) &&
        core_number32(given->window_requests, "requests", 0, RG_WINDOW_REQUESTS_MAX,
                      &options->window_requests) &&
        core_number(given->window_bytes, "prefetch", 0, CORE_BYTES_MAX, &options->window_bytes) &&
        core_number(given->request_bytes, "coalesce", 0, CORE_BYTES_MAX,
                    &options->tar_request_bytes);
    options->remainder = (enum rg_remainder)remainder;
    options->changed = (enum rg_changed)changed;
    return is_good;
}

static int reader_make(struct reader *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"client",
                            "objects",
                            "shuffle",
                            "seed",
                            "epoch",
                            "rank",
                            "world_size",
                            "worker",
                            "worker_count",
                            "batch_size",
                            "remainder",
                            "changed",
                            "unordered",
                            "window_requests",
                            "window_bytes",
                            "state",
                            "members",
                            "request_bytes",
                            "indices",
                            "base",
                            "digest",
                            "prefetch_next",
                            NULL};
    struct rg_reader_options options;
    rg_reader_options_init(&options);
    PyObject *client, *objects, *members = Py_None, *indices = Py_None;
    int shuffle = 0, unordered = 0, prefetch_next = 0;
    struct reader_numbers numbers = {0};
    Py_buffer state = {0}, base = {0}, digest = {0};
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "O!O|$pOOOOOOOOOpOOz*OOOz*z*p:Reader", names, core_client_type, &client,
            &objects, &shuffle, &numbers.seed, &numbers.epoch, &numbers.rank, &numbers.world_size,
            &numbers.worker, &numbers.worker_count, &numbers.batch_size, &numbers.remainder,
            &numbers.changed, &unordered, &numbers.window_requests, &numbers.window_bytes, &state,
            &members, &numbers.request_bytes, &indices, &base, &digest, &prefetch_next)) {
        return -1;
    }
    members = list_freeze(members, "members");
    indices = members != NULL ? list_freeze(indices, "indices") : NULL;
    const char *texts[RG_TAR_MEMBERS_MAX];
    bool is_tar = Py_IS_TYPE(objects, core_tar_type);
    int rc = -1;
    if (indices != NULL && numbers_parse(&numbers, &options) &&
        objects_describe(objects, &options) &&
        core_tar_members(members, texts, &options.tar_member_count) == 0 &&
        indices_parse(self, indices, &options) == 0 && digest_parse(&digest, &options) == 0 &&
        (!is_tar || core_tar_cursor(objects, members, &self->cursor) == 0)) {
        options.shuffle = shuffle != 0;
        options.unordered = unordered != 0;
        options.prefetch_next = prefetch_next != 0;
        options.consume_later = true;
        options.tar_members = texts;
        options.state = state.buf;
        options.state_size = (size_t)state.len;
        options.base = base.buf;
        options.base_size = (size_t)base.len;
        rc = reader_open(self, client, objects, &options);
    }
    buffer_release(&state);
    buffer_release(&base);
    buffer_release(&digest);
    Py_XDECREF(members);
    Py_XDECREF(indices);
    return rc;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    PyObject *object = PyType_GenericAlloc(type, 0);
    if (object != NULL && reader_make(of(object), args, keywords) < 0) {
        Py_CLEAR(object);
    }
    return object;
}

/* Whether something may be asked of it, by any thread, as long as no other is let run. False with
 * an exception. */
static bool is_open(const struct reader *self)
{
    if (core_use_is_half_done(&self->use)) {
        PyErr_SetString(PyExc_OSError, "the reader does not go on in a child of fork()");
        return false;
    }
    if (self->reader == NULL) {
        PyErr_SetString(PyExc_ValueError, "the reader is closed");
    }
    return self->reader != NULL;
}

/* Takes between 1 and `max` samples: how many, 0 at the end, or -1 with an exception. */
static int samples_wait(struct reader *self, struct rg_sample *samples, uint32_t max)
{
    struct core_watch watch;
    core_watch_begin(&watch, self->session, false);
    for (;;) {
        int count;
        Py_BEGIN_ALLOW_THREADS count =
            rg_reader_next(self->reader, samples, max, max, rg_now_ns() + CORE_WAIT_NS);
        Py_END_ALLOW_THREADS if (count >= 0)
        {
            return count;
        }
        if (count != -ETIME && count != -EINTR) {
            core_errno_raise(count, "reading the next samples");
            return -1;
        }
        rg_steps_wait(&self->steps, self->reader);
        if (core_watch_go_on(&watch, &self->use) < 0) {
            return -1;
        }
    }
}

/* An Item, or with `is_data` its Buffer; an error is then raised. Takes the lease. */
static PyObject *sample_make(struct reader *self, const struct rg_sample *sample, bool is_data)
{
    const struct rg_completion *done = &sample->completion;
    if (Py_IS_TYPE(self->objects, core_tar_type)) {
        return core_tar_item(self->objects, self->cursor, self->session, sample->index, done);
    }
    if (!is_data) {
        return core_item_of_objects(self->session, self->objects, sample->index, done);
    }
    if (done->status == RG_STATUS_OK && !core_request_is_notable(done)) {
        return core_buffer_new(self->session, done);
    }
    PyObject *uri = core_objects_uri(self->objects, sample->index);
    if (uri == NULL || core_request_note(uri, done) < 0) {
        Py_XDECREF(uri);
        rg_lease_release(done->lease);
        return NULL;
    }
    PyObject *made = done->status == RG_STATUS_OK ? core_buffer_new(self->session, done)
                                                  : core_error_raise(uri, done);
    Py_DECREF(uri);
    return made;
}

/* All samples are added to the list, or are given back. */
static int samples_append(struct reader *self, PyObject *list, const struct rg_sample *samples,
                          int count, bool is_data)
{
    int rc = 0;
    for (int i = 0; i < count; i++) {
        PyObject *made = NULL;
        if (rc == 0) {
            made = sample_make(self, &samples[i], is_data);
        } else {
            rg_lease_release(samples[i].completion.lease);
        }
        if (made == NULL || PyList_Append(list, made) < 0) {
            rc = -1;
        }
        Py_XDECREF(made);
    }
    return rc;
}

static PyObject *samples_take(PyObject *object, PyObject *number, bool is_data)
{
    struct reader *self = of(object);
    uint64_t wanted = 0;
    if (!core_number(number, "count", 1, BATCH_MAX, &wanted) || !core_use_begin(&self->use)) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    struct rg_sample samples[PORTION_MAX];
    while (list != NULL && (uint64_t)PyList_Size(list) < wanted) {
        uint64_t missing = wanted - (uint64_t)PyList_Size(list);
        int count =
            samples_wait(self, samples, missing < PORTION_MAX ? (uint32_t)missing : PORTION_MAX);
        if (count == 0) {
            break;
        }
        if (count < 0 || samples_append(self, list, samples, count, is_data) < 0) {
            Py_CLEAR(list);
        }
    }
    return reader_finish(self, list);
}

/* As many as are likely to have SOME_BYTES, so that large ones are not waited for together. */
static uint32_t some_count(const struct reader *self, uint64_t wanted)
{
    uint64_t count = self->last_size > 0 ? SOME_BYTES / self->last_size : 1;
    count = count < PORTION_MAX ? count : PORTION_MAX;
    count = count < wanted ? count : wanted;
    return count > 0 ? (uint32_t)count : 1;
}

static PyObject *reader_take_some(PyObject *object, PyObject *number)
{
    CORE_ENTER();
    struct reader *self = of(object);
    uint64_t wanted = 0;
    if (!core_number(number, "count", 1, UINT64_MAX, &wanted) || !core_use_begin(&self->use)) {
        return NULL;
    }
    struct rg_sample samples[PORTION_MAX];
    PyObject *list = PyList_New(0);
    int count = list != NULL ? samples_wait(self, samples, some_count(self, wanted)) : -1;
    if (count > 0) {
        self->last_size = samples[count - 1].completion.size;
    }
    if (count < 0 || samples_append(self, list, samples, count, false) < 0) {
        Py_CLEAR(list);
    }
    return reader_finish(self, list);
}

static PyObject *reader_take(PyObject *object, PyObject *number)
{
    CORE_ENTER();
    return samples_take(object, number, false);
}

static PyObject *reader_take_data(PyObject *object, PyObject *number)
{
    CORE_ENTER();
    return samples_take(object, number, true);
}

static bool queue_start(struct reader *self)
{
    struct rg_cq *cq;
    if (core_queue_open(self->session, QUEUE_CAPACITY, &cq) < 0) {
        return false;
    }
    int rc = rg_reader_start(self->reader, cq, 0);
    if (rc < 0) {
        rg_cq_close(cq);
        core_errno_raise(rc, "the reader was started before");
        return false;
    }
    self->cq = cq;
    return true;
}

static PyObject *reader_start(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct reader *self = of(object);
    if (!core_use_begin(&self->use)) {
        return NULL;
    }
    return reader_finish(self, queue_start(self) ? Py_NewRef(Py_None) : NULL);
}

/* The event loop is next woken when that many are there, or so many bytes. */
static void samples_expect(struct reader *self, uint32_t count)
{
    uint64_t fit = TOGETHER_BYTES / (self->last_size + 1);
    count = fit < count ? (uint32_t)fit : count;
    rg_cq_expect(self->cq, count > 0 ? count : 1);
}

/* Adds up to `max` of what is in the queue: how many, or -1 with an exception. */
static int samples_add(struct reader *self, PyObject *list, uint32_t max, bool is_data)
{
    struct rg_completion done[PORTION_MAX];
    struct rg_sample samples[PORTION_MAX];
    samples_expect(self, max);
    int count = rg_cq_poll(self->cq, done, max);
    if (count < 0) {
        core_errno_raise(count, "taking samples");
        return -1;
    }
    if (count > 0) {
        core_watch_news(&self->watch);
    }
    /* The last one of an epoch has no sample. The client is not closed before the reader. */
    self->is_over = count > 0 && done[count - 1].status == RG_STATUS_END;
    int sample_count = count - self->is_over;
    self->last_size = sample_count > 0 ? done[sample_count - 1].size : self->last_size;
    for (int i = 0; i < sample_count; i++) {
        samples[i] = (struct rg_sample){
            .index = done[i].sample_index, .number = done[i].sample_number, .completion = done[i]};
    }
    return samples_append(self, list, samples, sample_count, is_data) < 0 ? -1 : count;
}

/* A list begun before, or a new one. NULL with an exception. */
static PyObject *part_begin(struct reader *self)
{
    PyObject *list = self->part;
    self->part = NULL;
    if (list == NULL) {
        core_watch_begin(&self->watch, self->session, false);
        list = PyList_New(0);
    }
    return list;
}

/* None: the list is not complete, which may be for want of memory that the caller has. */
static PyObject *part_keep(struct reader *self, PyObject *list)
{
    bool is_early = rg_now_ns() - self->watch.quiet_since_ns < CORE_WAIT_NS;
    if (!is_early && core_watch_is_starved(&self->watch)) {
        Py_DECREF(list);
        return core_memory_raise(self->session);
    }
    self->part = list;
    Py_RETURN_NONE;
}

static PyObject *list_poll(struct reader *self, uint64_t wanted, bool is_data)
{
    if (self->cq == NULL) {
        PyErr_SetString(PyExc_ValueError, "the reader was not started");
        return NULL;
    }
    PyObject *list = part_begin(self);
    int count = list != NULL ? 1 : -1;
    while (count > 0 && !self->is_over && (uint64_t)PyList_Size(list) < wanted) {
        uint64_t missing = wanted - (uint64_t)PyList_Size(list);
        count = samples_add(self, list, missing < PORTION_MAX ? (uint32_t)missing : PORTION_MAX,
                            is_data);
    }
    if (count < 0) {
        Py_CLEAR(list);
    }
    return count == 0 && !self->is_over ? part_keep(self, list) : list;
}

static PyObject *samples_poll(PyObject *object, PyObject *number, bool is_data)
{
    struct reader *self = of(object);
    uint64_t wanted = 0;
    if (!core_number(number, "count", 1, BATCH_MAX, &wanted) || !core_use_begin(&self->use)) {
        return NULL;
    }
    return reader_finish(self, list_poll(self, wanted, is_data));
}

static PyObject *reader_poll(PyObject *object, PyObject *number)
{
    CORE_ENTER();
    return samples_poll(object, number, false);
}

static PyObject *reader_poll_data(PyObject *object, PyObject *number)
{
    CORE_ENTER();
    return samples_poll(object, number, true);
}

static PyObject *reader_fileno(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct reader *self = of(object);
    if (self->cq == NULL) {
        PyErr_SetString(PyExc_ValueError, "the reader was not started, or is closed");
        return NULL;
    }
    int fd = rg_cq_fd(self->cq);
    return fd < 0 ? core_errno_raise(fd, "making an eventfd") : PyLong_FromLong(fd);
}

static PyObject *reader_state(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct reader *self = of(object);
    if (self->last_state != NULL) {
        return Py_NewRef(self->last_state);
    }
    return is_open(self) ? state_make(self) : NULL;
}

/* -1 with a ValueError where it was closed. */
static int all_consume(struct reader *self)
{
    if (!is_open(self)) {
        return -1;
    }
    rg_reader_consume(self->reader);
    return 0;
}

int core_reader_hand_out(PyObject *object)
{
    struct reader *self = of(object);
    if (self->pending == NULL) {
        return all_consume(self);
    }
    PyObject *before = self->told;
    self->told = self->pending;
    self->pending = NULL;
    Py_XDECREF(before); /* a tuple of bytes, texts and numbers: no code of Python's runs */
    return 0;
}

/* As plain as pickle and JSON have them, and without a way back to the reader. */
static PyObject *reader_pend(PyObject *object, PyObject *place)
{
    CORE_ENTER();
    struct reader *self = of(object);
    if (!PyTuple_Check(place)) {
        return PyErr_Format(PyExc_TypeError, "a place is a tuple, not %R", place);
    }
    PyObject *before = self->pending;
    self->pending = Py_NewRef(place);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *reader_consume(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    if (all_consume(of(object)) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *reader_close(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct reader *self = of(object);
    if (core_use_close(&self->use)) {
        if (!core_use_is_half_done(&self->use)) {
            reader_note(self);
            rg_steps_close(&self->steps, self->reader);
        }
        reader_end(self);
    } else if (self->reader != NULL) {
        rg_reader_interrupt(self->reader); /* whoever waits sees that it is closed, and ends it */
    }
    Py_RETURN_NONE;
}

void core_reader_step(PyObject *object, enum core_reader_step step)
{
    struct reader *self = of(object);
    struct rg_reader *reader = core_use_is_half_done(&self->use) ? NULL : self->reader;
    if (step == CORE_READER_ASKED) {
        rg_steps_enter(&self->steps, reader);
    } else if (step == CORE_READER_SLEEPS) {
        rg_steps_sleep(&self->steps, reader);
    } else {
        rg_steps_leave(&self->steps, reader, step == CORE_READER_GIVES);
    }
}

static PyObject *reader_introduce(PyObject *object, PyObject *args)
{
    CORE_ENTER();
    struct reader *self = of(object);
    struct rg_steps_name name = self->name;
    if (!PyArg_ParseTuple(args, "sss:introduce", &name.dataset, &name.source, &name.ahead) ||
        !core_use_begin(&self->use)) {
        return NULL;
    }
    bool is_new = self->steps.told == NULL && self->reader != NULL;
    if (is_new && rg_steps_name(&self->steps, self->session->client, &name) < 0) {
        return reader_finish(self, PyErr_NoMemory());
    }
    return reader_finish(self, Py_NewRef(Py_None));
}

static PyObject *parts_dict(const struct rg_causes *causes)
{
    PyObject *parts = PyDict_New();
    for (unsigned i = 0; i < RG_CAUSE_COUNT && parts != NULL; i++) {
        unsigned cause = (i + 1) % RG_CAUSE_COUNT; /* what is not known comes last */
        PyObject *seconds = PyFloat_FromDouble(causes->parts[cause]);
        if (seconds == NULL || PyDict_SetItemString(parts, rg_cause_name(cause), seconds) < 0) {
            Py_CLEAR(parts);
        }
        Py_XDECREF(seconds);
    }
    return parts;
}

static PyObject *reader_explain(PyObject *object, PyObject *args)
{
    CORE_ENTER();
    struct reader *self = of(object);
    PyObject *number;
    const char *ahead;
    uint64_t max = 0;
    if (!PyArg_ParseTuple(args, "Os:explain", &number, &ahead) ||
        !core_number(number, "steps", 1, UINT64_MAX, &max)) {
        return NULL;
    }
    struct rg_reader *reader = core_use_is_half_done(&self->use) ? NULL : self->reader;
    struct rg_told_step open, sum = rg_steps_sum(&self->steps, max, &open);
    struct rg_causes causes = rg_causes_find(&sum, &open, rg_steps_busy(&self->steps, reader));
    char advice[RG_CAUSES_ADVICE_MAX], text[RG_CAUSES_TEXT_MAX];
    rg_causes_advise(&causes, ahead, advice);
    rg_causes_write(&causes, text);
    PyObject *parts = parts_dict(&causes);
    return parts == NULL ? NULL
                         : Py_BuildValue("(KddNddss)", (unsigned long long)causes.steps,
                                         causes.consumer, causes.wait, parts, causes.busy,
                                         rg_causes_attributed(&causes), advice, text);
}

static PyObject *reader_get_number(PyObject *object, void *closure)
{
    CORE_ENTER();
    struct reader *self = of(object);
    if (self->reader != NULL && !is_open(self)) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(number_of(self, (int)(intptr_t)closure));
}

static PyObject *reader_get_told(PyObject *object, void *closure)
{
    CORE_ENTER();
    (void)closure;
    struct reader *self = of(object);
    return Py_NewRef(self->told != NULL ? self->told : Py_None);
}

static PyObject *reader_get_base(PyObject *object, void *closure)
{
    CORE_ENTER();
    (void)closure;
    struct reader *self = of(object);
    return Py_NewRef(self->base != NULL ? self->base : Py_None);
}

static PyMethodDef reader_methods[] = {
    {"take", reader_take, METH_O, "take(n) -> list of n Items, fewer only at the end of the epoch"},
    {"take_some", reader_take_some, METH_O,
     "take_some(n) -> list of between 1 and n Items, about a megabyte; none at the end"},
    {"take_data", reader_take_data, METH_O,
     "take_data(n) -> list of their Buffers; the first error is raised"},
    {"start", reader_start, METH_NOARGS,
     "From now on loops read ahead, samples are polled for, and none of the above may be called."},
    {"poll", reader_poll, METH_O,
     "poll(n) -> as take(n); None: not yet, wait until fileno() is readable"},
    {"poll_data", reader_poll_data, METH_O, "poll_data(n) -> as take_data(n), or None"},
    {"fileno", reader_fileno, METH_NOARGS, "A descriptor that is readable when poll() is due."},
    {"consume", reader_consume, METH_NOARGS, "All that was taken so far is consumed."},
    {"pend", reader_pend, METH_O,
     "The next value of the Iteration consumes nothing: this tuple is told when it goes out."},
    {"state", reader_state, METH_NOARGS,
     "What was consumed, as bytes to go on with; also when it is closed."},
    {"introduce", reader_introduce, METH_VARARGS,
     "introduce(dataset, source, ahead): tells other processes of the user of its steps, under "
     "these names"},
    {"explain", reader_explain, METH_VARARGS,
     "explain(n, ahead) -> (steps, seconds of the loop, seconds of waiting, these by cause, which "
     "part of a CPU each event loop has used, which part of the wait has a known cause, advice, "
     "all of that as a text) of the last n values of its Iteration, or fewer"},
    {"close", reader_close, METH_NOARGS,
     "Ends it; what is in flight is dropped. A call that another thread is in fails."},
    {0},
};
static PyGetSetDef reader_getset[] = {
    {"total", reader_get_number, NULL, "samples of this reader's epoch", (void *)TOTAL},
    {"taken", reader_get_number, NULL, "samples taken or skipped", (void *)TAKEN},
    {"base", reader_get_base, NULL, "what it went on from, as bytes that belong to its state",
     NULL},
    {"skipped", reader_get_number, NULL, "samples skipped", (void *)SKIPPED},
    {"told", reader_get_told, NULL, "what was pending when the last value went out; or None", NULL},
    {0},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, "One epoch of Objects: see rg_reader_options in <ringest/dataset.h>."},
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {Py_tp_getset, reader_getset},
    {0, NULL},
};
static PyType_Spec reader_spec = {
    .name = "ringest._core.Reader",
    .basicsize = sizeof(struct reader),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = reader_slots,
};

int core_reader_register(PyObject *module)
{
    return core_type_add(module, &reader_spec, &core_reader_type);
}
