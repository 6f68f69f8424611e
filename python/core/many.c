/* GetMany: the iterator of get_many, a window of requests over an iterator of URIs.
 *
 * Numbers count the URIs; that of a number has the slot number % WINDOW from when it is pulled
 * until its item is handed out, or, without an order, has come.
 *
 *   pulled -> todo -> out -> (ordered: here ->) in a list
 *              ^               |
 *              +---------------+  put back: see many_relieve
 *
 * Memory. A request whose answer finds no memory waits until some comes back. What would give it
 * back may wait here behind that very request: then items that came too early are dropped and asked
 * for again, once the one that holds them up has come. A list is handed out short rather than kept
 * waiting. What the caller keeps of earlier lists is out of reach: that ends in a MemoryError.
 *
 * Invariant, under the interpreter's lock and between two calls: every number in the window has a
 * name, and is either to be submitted, out, or here; the counts and bytes are those of the slots.
 *
 * The iterator of URIs is the caller's code: whatever it does to this one, or lets other threads
 * do, is refused or put off until the call in which it runs is over. */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Requests of one get_many that are out at once, at most; so many for each connection, but not
 * fewer than WINDOW_MIN. */
#define WINDOW 1024
#define WINDOW_MIN 256
#define WINDOW_PER_CONNECTION 4
#define SUBMIT_MAX 64
#define DONE_MAX 256
/* The most items that one list may have. */
#define BATCH_MAX (1 << 20)
/* Bytes of one list, above which it is handed out short of `batch`: whoever has it holds them in
 * the client's memory, and what is still to come may be waiting for that. */
#define LIST_BYTES (UINT64_C(64) << 20)
/* The same where the caller has not said how many it wants: so that most of one list is still in
 * the cache when it is looked at, and when the memory is used again (15 % of the CPU time of an
 * object of 100 KiB, beside lists of 256). */
#define LIST_BYTES_DEFAULT (UINT64_C(4) << 20)
#define BATCH_DEFAULT 256
/* One list, and in order as much again that waits for its turn, may have this part of memory. */
#define MEMORY_DIVISOR 4
/* get_many waits for many completions at a time, since each wait that ends costs a switch between
 * threads. There are three limits. It waits for no more than this part of what is out, so that the
 * window is refilled in time. It waits for no more than this part of the connections: their loop
 * may have nothing to do before that many have come (15 % of the CPU time of an object of 4 KiB, on
 * 16 connections). And it waits for not so many bytes that the first ones have left the cache. */
#define WAIT_DIVISOR 8
#define WAIT_CONNECTIONS_DIVISOR 2
#define WAIT_BYTES (UINT64_C(1) << 20)

/* What filling a list came to. */
enum outcome { FILL_FAILED = -1, FILL_DONE, FILL_WAIT, FILL_PAUSE };

struct many {
    PyObject_HEAD struct core_session *session;
    struct core_use use;
    struct rg_cq *cq;        /* NULL: closed */
    PyObject *uris;          /* iterator; NULL when it is exhausted */
    PyObject *names[WINDOW]; /* of what is in the window */
    PyObject *items[WINDOW]; /* ordered: what has come and not been handed out */
    uint64_t sizes[WINDOW];  /* of those, in bytes */
    uint64_t todo[WINDOW];   /* numbers to be submitted, first in, first out */
    uint32_t todo_head, todo_count;
    uint64_t first, next;        /* ordered: to be handed out; to be pulled */
    uint64_t list_bytes;         /* of the list that is being filled */
    uint64_t here_bytes;         /* of `items` */
    uint64_t list_max, here_max; /* of these two */
    uint64_t size_max;           /* of what has come, the largest */
    uint32_t out_count, here_count, batch;
    uint32_t window;       /* at most so many are out or here; shrinks when memory was short */
    bool ordered, is_held; /* nothing is asked for until `first` has come */
    bool is_over;          /* the end was handed out */
    PyObject *list;        /* what is being filled: awaited, or when an exception came between */
    struct core_watch watch;
};
static PyTypeObject *many_type;

static struct many *of(PyObject *object)
{
    return (struct many *)object;
}

static uint32_t slot_of(uint64_t number)
{
    return (uint32_t)(number % WINDOW);
}

/* O(WINDOW): for RG_VERIFY. */
static bool invariants(const struct many *self)
{
    uint32_t names = 0, here = 0;
    uint64_t here_bytes = 0;
    for (uint32_t i = 0; i < WINDOW; i++) {
        names += self->names[i] != NULL;
        here += self->items[i] != NULL;
        here_bytes += self->items[i] != NULL ? self->sizes[i] : 0;
        if (self->items[i] != NULL && self->names[i] == NULL) {
            return false;
        }
    }
    return names == self->todo_count + self->out_count + self->here_count &&
           here == self->here_count && here_bytes == self->here_bytes &&
           (self->ordered ? names == self->next - self->first : here == 0 && !self->is_held) &&
           self->todo_head < WINDOW && self->cq != NULL;
}

static void todo_push(struct many *self, uint64_t number)
{
    self->todo[(self->todo_head + self->todo_count++) % WINDOW] = number;
}

/* An exception that is set stays. */
static void many_end(struct many *self)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    struct rg_cq *cq = self->cq;
    self->cq = NULL;
    if (cq != NULL && core_session_is_own(self->session)) {
        uint64_t first = self->next > WINDOW ? self->next - WINDOW : 0;
        core_drain(self->session, cq, first, self->next, self->out_count);
    }
    rg_cq_close(cq);
    for (uint32_t i = 0; i < WINDOW; i++) {
        Py_CLEAR(self->names[i]);
        Py_CLEAR(self->items[i]);
    }
    Py_CLEAR(self->list);
    Py_CLEAR(self->uris);
    core_use_drop_session(&self->use, &self->session);
    PyErr_Restore(type, value, trace);
}

static int many_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct many *self = of(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->uris);
    Py_VISIT(self->list);
    for (uint32_t i = 0; i < WINDOW; i++) {
        Py_VISIT(self->names[i]);
        Py_VISIT(self->items[i]);
    }
    return 0;
}

static int many_clear(PyObject *object)
{
    CORE_ENTER();
    struct many *self = of(object);
    if (core_use_close(&self->use)) {
        many_end(self);
    }
    return 0;
}

static void many_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct many *self = of(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->session != NULL) {
        (void)core_use_close(&self->use);
    }
    many_end(self);
    core_session_unref(self->session);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* Gives the result, unless somebody has closed the iterator meanwhile. */
static PyObject *many_finish(struct many *self, PyObject *result)
{
    RG_VERIFY(invariants(self));
    if (!core_use_goes_on(&self->use)) {
        Py_CLEAR(result);
    }
    if (core_use_end(&self->use)) {
        many_end(self);
    }
    return result;
}

static bool many_has_room(const struct many *self)
{
    return self->uris != NULL && !core_use_is_closed(&self->use) &&
           self->out_count + self->here_count + self->todo_count < self->window &&
           self->here_bytes < self->here_max && self->names[slot_of(self->next)] == NULL;
}

/* Takes URIs into the window. */
static int many_pull(struct many *self)
{
    for (int i = 0; i < SUBMIT_MAX && many_has_room(self); i++) {
        PyObject *text = PyIter_Next(self->uris);
        if (text == NULL && PyErr_Occurred()) {
            return -1; /* whoever goes on asks it again */
        }
        if (text == NULL) {
            Py_CLEAR(self->uris);
            return 0;
        }
        if (!PyUnicode_Check(text)) {
            PyErr_Format(PyExc_TypeError, "a URI is a str, not %R", text);
            Py_DECREF(text);
            return -1;
        }
        self->names[slot_of(self->next)] = text;
        todo_push(self, self->next++);
    }
    return 0;
}

static int many_arrive(struct many *self, PyObject *list, const struct rg_completion *done)
{
    uint32_t slot = slot_of(done->user_data);
    self->size_max = done->size > self->size_max ? done->size : self->size_max;
    PyObject *item = core_item_new(self->session, self->names[slot], done->user_data, done);
    if (item == NULL) {
        todo_push(self, done->user_data); /* whoever goes on asks for it again */
        return -1;
    }
    if (self->ordered) {
        self->items[slot] = item;
        self->sizes[slot] = done->size;
        self->here_bytes += done->size;
        self->here_count++;
        return 0;
    }
    Py_CLEAR(self->names[slot]);
    self->list_bytes += done->size;
    int rc = PyList_Append(list, item);
    Py_DECREF(item);
    return rc;
}

/* How many may be submitted now: what holds the others up always may. */
static uint32_t submit_max(const struct many *self)
{
    uint32_t in_use = self->out_count + self->here_count;
    uint32_t room = self->window > in_use ? self->window - in_use : 0;
    if (room == 0 && self->ordered && self->todo[self->todo_head] == self->first) {
        room = 1;
    }
    return room < SUBMIT_MAX ? room : SUBMIT_MAX;
}

/* Submits what is to be; what there is no room for stays. -1 with an exception. */
static int many_submit(struct many *self, PyObject *list)
{
    struct core_uri uris[SUBMIT_MAX];
    struct rg_get gets[SUBMIT_MAX];
    uint32_t count = 0, max = submit_max(self);
    while (count < max && count < self->todo_count) {
        uint64_t number = self->todo[(self->todo_head + count) % WINDOW];
        if (!core_uri_parse(self->names[slot_of(number)], &uris[count])) {
            return -1;
        }
        gets[count] = (struct rg_get){
            .bucket = uris[count].bucket, .object = uris[count].object, .user_data = number};
        count++;
    }
    for (uint32_t done = 0; done < count;) {
        int accepted =
            rg_submit_gets(self->session->client, self->cq, gets + done, (size_t)(count - done));
        if (accepted == -EAGAIN) {
            return 0;
        }
        uint32_t moved = accepted > 0 ? (uint32_t)accepted : 1;
        self->todo_head = (self->todo_head + moved) % WINDOW;
        self->todo_count -= moved;
        self->out_count += accepted > 0 ? moved : 0;
        if (accepted < 0) {
            /* What the client refuses is an item with an error, as if the service had. */
            struct rg_completion refused = {.user_data = gets[done].user_data,
                                            .status = RG_STATUS_BAD_REQUEST,
                                            .detail = core_refused_text(accepted)};
            if (many_arrive(self, list, &refused) < 0) {
                return -1;
            }
        }
        done += moved;
    }
    return 0;
}

static int many_refill(struct many *self, PyObject *list)
{
    if (self->is_held && self->items[slot_of(self->first)] == NULL && self->out_count > 0) {
        return 0;
    }
    self->is_held = false;
    uint32_t before;
    do {
        if (many_pull(self) < 0) {
            return -1;
        }
        before = self->todo_count;
        if (many_submit(self, list) < 0) {
            return -1;
        }
    } while (self->todo_count < before && (self->todo_count > 0 || many_has_room(self)));
    return 0;
}

static bool many_is_full(const struct many *self, PyObject *list)
{
    return PyList_Size(list) >= (Py_ssize_t)self->batch || self->list_bytes >= self->list_max;
}

static int many_hand_out(struct many *self, PyObject *list)
{
    while (self->items[slot_of(self->first)] != NULL && !many_is_full(self, list)) {
        uint32_t slot = slot_of(self->first);
        if (PyList_Append(list, self->items[slot]) < 0) {
            return -1;
        }
        Py_CLEAR(self->items[slot]);
        Py_CLEAR(self->names[slot]);
        self->list_bytes += self->sizes[slot];
        self->here_bytes -= self->sizes[slot];
        self->here_count--;
        self->first++;
    }
    return 0;
}

static int number_compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void todo_sort(struct many *self)
{
    uint64_t sorted[WINDOW];
    for (uint32_t i = 0; i < self->todo_count; i++) {
        sorted[i] = self->todo[(self->todo_head + i) % WINDOW];
    }
    qsort(sorted, self->todo_count, sizeof(sorted[0]), number_compare);
    memcpy(self->todo, sorted, self->todo_count * sizeof(sorted[0]));
    self->todo_head = 0;
}

/* Drops what has come before its turn, to be asked for again. */
static void many_put_back(struct many *self)
{
    uint32_t in_use = self->out_count + self->here_count;
    self->window = in_use > 2 ? in_use / 2 : 1;
    self->is_held = true;
    for (uint64_t number = self->first; number < self->next; number++) {
        uint32_t slot = slot_of(number);
        if (self->items[slot] != NULL) {
            Py_CLEAR(self->items[slot]);
            self->here_bytes -= self->sizes[slot];
            self->here_count--;
            todo_push(self, number);
        }
    }
    todo_sort(self);
}

/* Nothing has come for a while. 1: the list is to be handed out as it is; 0: wait on; -1 with an
 * exception. */
static int many_relieve(struct many *self, PyObject *list)
{
    bool is_short = core_memory_is_short(self->session);
    if (is_short && PyList_Size(list) > 0) {
        return 1;
    }
    if (is_short && self->here_count > 0) {
        many_put_back(self);
        core_watch_news(&self->watch);
    }
    return core_watch_go_on(&self->watch, &self->use);
}

static int completions_arrive(struct many *self, PyObject *list, const struct rg_completion *done,
                              int count)
{
    core_watch_news(&self->watch);
    for (int i = 0; i < count; i++) {
        self->out_count--;
        if (many_arrive(self, list, &done[i]) < 0) {
            for (int j = i + 1; j < count; j++) {
                rg_lease_release(done[j].lease);
                self->out_count--;
                todo_push(self, done[j].user_data);
            }
            todo_sort(self);
            return -1;
        }
    }
    return 0;
}

/* Enough for all connections to go on while what has come is handed out, and no more: each request
 * that waits is memory that others have pushed out of the cache when its turn comes (4 % of the CPU
 * time of an object of 4 KiB, on 64 connections). */
static uint32_t window_of(const struct core_session *session, uint32_t batch)
{
    uint64_t window = (uint64_t)session->connections * WINDOW_PER_CONNECTION;
    window = window > batch ? window : batch;
    if (session->connections == 0 || window > WINDOW) {
        return WINDOW;
    }
    return window > WINDOW_MIN ? (uint32_t)window : WINDOW_MIN;
}

/* How many completions to wait for when there may be up to `want`. */
static uint32_t wait_min(const struct many *self, uint32_t want)
{
    uint64_t min = self->out_count / WAIT_DIVISOR;
    uint64_t busy = self->session->connections / WAIT_CONNECTIONS_DIVISOR;
    min = busy == 0 || min < busy ? min : busy;
    min = min < want ? min : want;
    uint64_t in_cache = self->size_max > 0 ? WAIT_BYTES / self->size_max : 1;
    min = min < in_cache ? min : in_cache;
    return min > 1 ? (uint32_t)min : 1;
}

/* How many completions to take at once: not many more than the list has room for. */
static uint32_t want_max(const struct many *self, PyObject *list)
{
    if (self->ordered) {
        return DONE_MAX;
    }
    uint64_t want = self->batch - (uint32_t)PyList_Size(list);
    uint64_t left = self->list_max - self->list_bytes;
    uint64_t fit = self->size_max > 0 ? left / self->size_max + (left % self->size_max != 0) : want;
    want = fit < want ? fit : want;
    return want < DONE_MAX ? (uint32_t)want : DONE_MAX;
}

/* Fills a list as far as it can without waiting for completions that are not there; `waits`: up to
 * CORE_WAIT_NS for each. */
static enum outcome many_fill(struct many *self, PyObject *list, bool waits)
{
    struct rg_completion done[DONE_MAX];
    while (core_use_goes_on(&self->use)) {
        if (many_refill(self, list) < 0 || (self->ordered && many_hand_out(self, list) < 0)) {
            return FILL_FAILED;
        }
        if (many_is_full(self, list)) {
            return FILL_DONE;
        }
        if (self->out_count == 0) {
            if (self->todo_count == 0 && self->here_count == 0 && self->uris == NULL) {
                return FILL_DONE;
            }
            if (self->todo_count > 0) {
                return FILL_PAUSE;
            }
            continue;
        }
        uint32_t want = want_max(self, list);
        int count = waits ? core_wait_slice(self->cq, done, want, wait_min(self, want))
                          : rg_cq_poll(self->cq, done, want);
        if (count < 0) {
            return FILL_FAILED;
        }
        if (count == 0) {
            return FILL_WAIT;
        }
        if (completions_arrive(self, list, done, count) < 0) {
            return FILL_FAILED;
        }
    }
    return FILL_FAILED;
}

/* The list that is to be filled, which an exception may have left. */
static PyObject *list_begin(struct many *self)
{
    core_watch_news(&self->watch);
    if (self->list != NULL) {
        PyObject *list = self->list;
        self->list = NULL;
        return list;
    }
    self->list_bytes = 0;
    return PyList_New(0);
}

/* NULL with an exception, or without at the end. What has come when there is an exception, a signal
 * handler's or one of the caller's iterator, is for the next call. */
static PyObject *list_make(struct many *self)
{
    PyObject *list = list_begin(self);
    while (list != NULL) {
        enum outcome outcome = many_fill(self, list, true);
        if (outcome == FILL_DONE) {
            break;
        }
        int rc = outcome == FILL_PAUSE  ? core_client_full_wait(&self->watch, &self->use)
                 : outcome == FILL_WAIT ? many_relieve(self, list)
                                        : -1;
        if (rc > 0) {
            break;
        }
        if (rc < 0) {
            self->list = list;
            return NULL;
        }
    }
    if (list != NULL && PyList_Size(list) == 0) {
        Py_CLEAR(list);
    }
    return list;
}

/* At the end it gives up all it has, since the caller may keep it for long. */
static PyObject *many_next(PyObject *object)
{
    CORE_ENTER();
    struct many *self = of(object);
    if (self->is_over || !core_use_begin(&self->use)) {
        return NULL;
    }
    PyObject *list = many_finish(self, list_make(self));
    self->is_over = list == NULL && !PyErr_Occurred();
    if (self->is_over && core_use_close(&self->use)) {
        many_end(self);
    }
    return list;
}

static PyObject *list_poll(struct many *self)
{
    if (self->list == NULL) {
        self->list = list_begin(self);
        if (self->list == NULL) {
            return NULL;
        }
    }
    uint64_t readable;
    if (read(rg_cq_fd(self->cq), &readable, sizeof(readable)) < 0 && errno != EAGAIN) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    enum outcome outcome = many_fill(self, self->list, false);
    if (outcome == FILL_PAUSE || outcome == FILL_WAIT) {
        bool is_early = rg_now_ns() - self->watch.quiet_since_ns < CORE_WAIT_NS;
        int rc = is_early ? 0 : many_relieve(self, self->list);
        if (rc == 0) {
            return Py_NewRef(outcome == FILL_PAUSE ? Py_False : Py_None);
        }
        outcome = rc > 0 ? FILL_DONE : FILL_FAILED;
    }
    PyObject *list = NULL;
    if (outcome != FILL_FAILED) {
        list = self->list;
        self->list = NULL;
    }
    return list;
}

/* poll() -> a list, empty at the end; None: not yet, wait for fileno(); False: not yet, and nothing
 * is out whose end could be waited for. */
static PyObject *many_poll(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct many *self = of(object);
    return core_use_begin(&self->use) ? many_finish(self, list_poll(self)) : NULL;
}

static PyObject *many_fileno(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct many *self = of(object);
    if (self->cq == NULL) {
        PyErr_SetString(PyExc_ValueError, "the iterator is closed");
        return NULL;
    }
    int fd = rg_cq_fd(self->cq);
    return fd < 0 ? core_errno_raise(fd, "making an eventfd") : PyLong_FromLong(fd);
}

static PyObject *many_close(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct many *self = of(object);
    if (core_use_close(&self->use)) {
        many_end(self);
    } else if (self->cq != NULL) {
        rg_cq_interrupt(self->cq); /* whoever waits sees that it is closed, and ends it */
    }
    Py_RETURN_NONE;
}

static int many_open(struct many *self, PyObject *client, PyObject *uris)
{
    self->session = core_client_session(client);
    if (self->session == NULL) {
        return -1;
    }
    core_watch_begin(&self->watch, self->session, false);
    self->uris = PyObject_GetIter(uris);
    if (self->uris == NULL) {
        return -1;
    }
    self->window = window_of(self->session, self->batch);
    struct rg_stats stats = {0};
    (void)rg_runtime_stats(self->session->runtime, &stats);
    uint64_t part = stats.memory_max / MEMORY_DIVISOR;
    self->here_max = part < LIST_BYTES ? part : LIST_BYTES;
    self->list_max = part < self->list_max ? part : self->list_max;
    if (core_queue_open(self->session, WINDOW, &self->cq) < 0) {
        return -1;
    }
    core_use_open(&self->use, self->session, "iterator of get_many", NULL, true);
    return 0;
}

PyObject *core_many_new(PyObject *client, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    static char *names[] = {"uris", "ordered", "batch", NULL};
    PyObject *uris;
    int ordered = 0;
    PyObject *number = NULL;
    uint32_t batch = BATCH_DEFAULT;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$pO:get_many", names, &uris, &ordered,
                                     &number) ||
        (number != NULL && number != Py_None &&
         !core_number32(number, "batch", 1, BATCH_MAX, &batch))) {
        return NULL;
    }
    PyObject *object = PyType_GenericAlloc(many_type, 0);
    if (object != NULL) {
        of(object)->batch = batch;
        of(object)->list_max =
            number == NULL || number == Py_None ? LIST_BYTES_DEFAULT : LIST_BYTES;
        of(object)->ordered = ordered != 0;
        if (many_open(of(object), client, uris) < 0) {
            Py_CLEAR(object);
        }
    }
    return object;
}

static PyMethodDef many_methods[] = {
    {"poll", many_poll, METH_NOARGS,
     "poll() -> the next list, empty at the end; None: wait until fileno() is readable; False: ask "
     "again after a pause. Not to be mixed with iteration."},
    {"fileno", many_fileno, METH_NOARGS, "A descriptor that is readable when poll() is due."},
    {"close", many_close, METH_NOARGS,
     "Ends it; what is in flight is dropped. A call that another thread is in fails."},
    {0},
};

static PyType_Slot many_slots[] = {
    {Py_tp_dealloc, many_dealloc},
    {Py_tp_traverse, many_traverse},
    {Py_tp_clear, many_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, many_next},
    {Py_tp_methods, many_methods},
    {0, NULL},
};
static PyType_Spec many_spec = {
    .name = "ringest._core.GetMany",
    .basicsize = sizeof(struct many),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = many_slots,
};

int core_many_register(PyObject *module)
{
    return core_type_add(module, &many_spec, &many_type);
}
