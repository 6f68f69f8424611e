/* Client: settings, and the session that they make.
 *
 * A session (runtime and client) is opened at first use in a process; in a child of fork the
 * inherited one is given up and a new one opened. Calls of several threads share it; each call that
 * waits has a completion queue of its own. */
#include "core.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *core_client_type;

struct client {
    PyObject_HEAD struct core_session *session; /* NULL before the first use */
    struct core_settings settings;
    bool is_begun, is_made, is_closed;
};

/* How many forks lie between this process and the one that the module was loaded in. */
static unsigned this_process;

static void forked(void)
{
    this_process++;
}

/* The invariant in core.h, as far as one session shows it. */
static bool session_invariants(const struct core_session *session)
{
    return session->references > 0 && atomic_load(&session->owners) > 0;
}

void core_session_ref(struct core_session *session)
{
    RG_ASSERT(session_invariants(session));
    session->references++;
}

bool core_session_is_own(const struct core_session *session)
{
    return session->process == this_process;
}

uint64_t core_session_held(const struct core_session *session)
{
    return session->held_bytes + atomic_load(&session->exported_bytes);
}

/* An owner leaves; the last one closes the session. */
static void session_leave(struct core_session *session)
{
    if (atomic_fetch_sub(&session->owners, 1) == 1) {
        rg_client_close(session->client);
        rg_runtime_close(session->runtime);
        free(session);
    }
}

void core_session_unref(struct core_session *session)
{
    RG_ASSERT(session == NULL || session_invariants(session));
    if (session != NULL && --session->references == 0) {
        /* Everything that could be counted here had a reference of its own. */
        RG_ASSERT(session->held_bytes == 0 && session->windows == 0);
        rg_cq_close(session->spare);
        session->spare = NULL;
        Py_BEGIN_ALLOW_THREADS session_leave(session);
        Py_END_ALLOW_THREADS
    }
}

struct core_share {
    struct core_session *session; /* NULL: there is no lease, and the bytes are in `copy` */
    struct rg_lease *lease;
    uint64_t bytes;
    _Atomic unsigned references;
    _Alignas(16) uint8_t copy[];
};

struct core_share *core_share_new(struct core_session *session, struct rg_lease *lease)
{
    struct core_share *share = calloc(1, sizeof(*share));
    if (share == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    share->session = session;
    share->lease = lease;
    atomic_init(&share->references, 1);
    atomic_fetch_add(&session->owners, 1);
    return share;
}

struct core_share *core_share_copy(const void *data, size_t size)
{
    struct core_share *share = malloc(sizeof(*share) + size);
    if (share == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *share = (struct core_share){.session = NULL};
    atomic_init(&share->references, 1);
    memcpy(share->copy, data, size);
    return share;
}

const void *core_share_bytes(const struct core_share *share)
{
    RG_ASSERT(share->session == NULL);
    return share->copy;
}

bool core_share_is_pinned(const struct core_share *share)
{
    return share->session != NULL && rg_lease_is_pinned(share->lease);
}

void core_share_charge(struct core_share *share, uint64_t *held)
{
    if (share->session == NULL) {
        RG_ASSERT(*held == 0);
        return;
    }
    RG_ASSERT(share->session->held_bytes >= *held);
    share->bytes += *held;
    atomic_fetch_add(&share->session->exported_bytes, *held);
    share->session->held_bytes -= *held;
    *held = 0;
}

void core_share_ref(struct core_share *share)
{
    atomic_fetch_add(&share->references, 1);
}

void core_share_unref(struct core_share *share)
{
    if (share == NULL || atomic_fetch_sub(&share->references, 1) > 1) {
        return;
    }
    struct core_session *session = share->session;
    if (session != NULL) {
        /* A child of fork reads its parent's leases and leaves them alone. */
        if (core_session_is_own(session)) {
            rg_lease_release(share->lease);
        }
        atomic_fetch_sub(&session->exported_bytes, share->bytes);
        session_leave(session);
    }
    free(share);
}

/* Which worker of how many of a DataLoader this process is, which ringest._loader says. False with
 * an exception. */
static bool worker_read(uint32_t *out_worker, uint32_t *out_workers)
{
    PyObject *finders = PySys_GetObject("meta_path"); /* borrowed */
    if (finders == NULL || finders == Py_None) {
        return true; /* at the interpreter's end nothing can be imported any more */
    }
    PyObject *module = PyImport_ImportModule("ringest._loader");
    PyObject *pair = module != NULL ? PyObject_CallMethod(module, "worker", NULL) : NULL;
    bool done = pair != NULL && PyArg_ParseTuple(pair, "II", out_worker, out_workers);
    Py_XDECREF(pair);
    Py_XDECREF(module);
    return done;
}

static struct core_session *session_open(const struct client *self, uint32_t worker,
                                         uint32_t workers)
{
    struct rg_runtime_options runtime_options;
    struct rg_client_options options;
    if (!core_settings_complete(&self->settings, &runtime_options, &options)) {
        return NULL;
    }
    struct core_session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    session->references = 1;
    atomic_init(&session->owners, 1);
    session->process = this_process;
    session->patience_ns = self->settings.patience_ns;
    session->connections = options.connections_max;
    char error[512] = "";
    runtime_options.worker = worker;
    runtime_options.workers = workers;
    int rc = rg_runtime_open(&session->runtime, &runtime_options);
    if (rc < 0) {
        core_errno_raise(
            rc, "the event loops could not be started: a variable of the launcher or RINGEST_LOG "
                "is wrong, or backend='uring' is asked for where the system forbids it; `ringest "
                "doctor` tells");
    } else {
        rc = rg_client_open_explained(&session->client, session->runtime, &options, error,
                                      sizeof(error));
        if (rc < 0) {
            core_errno_raise(rc, error);
        }
    }
    if (rc < 0) {
        core_session_unref(session);
        return NULL;
    }
    return session;
}

struct core_session *core_client_session(PyObject *object)
{
    struct client *self = (struct client *)object;
    struct core_session *session = self->session;
    if (session != NULL && !core_session_is_own(session)) {
        self->session = NULL;
        core_session_unref(session);
    }
    uint32_t worker = 0, workers = 0;
    bool is_first = self->session == NULL && self->is_made && !self->is_closed;
    if (is_first && !worker_read(&worker, &workers)) {
        return NULL;
    }
    /* That ran Python, hence other threads: what they did to the client is looked at only now. */
    if (self->is_closed || !self->is_made) {
        PyErr_SetString(PyExc_ValueError,
                        self->is_made
                            ? "the client is closed; make another ringest.Client, or keep "
                              "the `with` of this one open"
                            : "Client.__init__ was not called");
        return NULL;
    }
    if (self->session != NULL) {
        core_session_ref(self->session);
        return self->session;
    }
    session = session_open(self, worker, workers);
    if (session == NULL) {
        return NULL;
    }
    core_session_ref(session);
    self->session = session;
    /* Logging runs code of the caller's, and other threads, which find the session, or close it. */
    int rc = core_session_note(session);
    if (rc < 0) {
        core_session_unref(session);
        return NULL;
    }
    if (self->session != session) {
        core_session_unref(session);
        PyErr_SetString(PyExc_ValueError, "the client was closed while it was opened");
        return NULL;
    }
    return session;
}

static int client_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    CORE_ENTER();
    struct client *self = (struct client *)object;
    if (self->is_begun) {
        PyErr_SetString(PyExc_ValueError, "a client is made once");
        return -1;
    }
    self->is_begun = true;
    if (PyTuple_Size(args) > 0) {
        PyErr_SetString(PyExc_TypeError, "settings of a Client are given by keyword");
        return -1;
    }
    self->is_made = core_settings_parse(&self->settings, keywords);
    return self->is_made ? 0 : -1;
}

static void client_dealloc(PyObject *object)
{
    CORE_ENTER();
    struct client *self = (struct client *)object;
    PyTypeObject *type = Py_TYPE(object);
    core_session_unref(self->session);
    core_settings_free(&self->settings);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *client_close(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct client *self = (struct client *)object;
    self->is_closed = true;
    struct core_session *session = self->session;
    self->session = NULL;
    core_session_unref(session);
    Py_RETURN_NONE;
}

static PyObject *latency_dict(const struct rg_latency *latency)
{
    return Py_BuildValue("{sKsKsKsKsK}", "count", (unsigned long long)latency->count, "p50_ns",
                         (unsigned long long)latency->p50_ns, "p99_ns",
                         (unsigned long long)latency->p99_ns, "p999_ns",
                         (unsigned long long)latency->p999_ns, "max_ns",
                         (unsigned long long)latency->max_ns);
}

static PyObject *client_server_time(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct core_session *session = core_client_session(object);
    int64_t seconds;
    if (session == NULL) {
        return NULL;
    }
    int rc = rg_client_server_time(session->client, &seconds);
    core_session_unref(session);
    if (rc < 0) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(seconds);
}

/* Adds the value, a reference that is taken, also when there was an exception before. */
static int dict_take(PyObject *dict, const char *name, PyObject *value)
{
    int rc = value != NULL ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return rc;
}

static PyObject *stats_dict(const struct rg_stats *stats)
{
#define COUNT(name)                                                                                \
    {                                                                                              \
#name, offsetof(struct rg_stats, name)                                                     \
    }
    static const struct {
        const char *name;
        size_t offset;
    } counts[] =
        {
            COUNT(in_flight),
            COUNT(requests),
            COUNT(retries),
            COUNT(recv_bytes),
            COUNT(sent_bytes),
            COUNT(connections),
            COUNT(connections_opened),
            COUNT(connections_failed),
            COUNT(tls_resumed),
            COUNT(timeouts),
            COUNT(lease_waits),
            COUNT(leased_bytes),
            COUNT(memory_max),
            COUNT(starved_loops),
            COUNT(cache_hits),
            COUNT(cache_hit_bytes),
            COUNT(cache_misses),
            COUNT(cache_bad),
            COUNT(cache_writes),
            COUNT(cache_drops),
            COUNT(cache_memory_hits),
            COUNT(wakeups),
            COUNT(hedges),
            COUNT(hedge_wins),
            COUNT(limited),
            COUNT(backoffs),
            COUNT(concurrency_limit),
            COUNT(window_room),
            COUNT(window_out),
            COUNT(window_filled),
        },
      latencies[] = {
          COUNT(queue),      COUNT(dns),  COUNT(connect), COUNT(tls),
          COUNT(first_byte), COUNT(body), COUNT(total),
      };
#undef COUNT
    PyObject *dict = PyDict_New();
    const char *base = (const char *)stats;
    int rc = dict != NULL ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < sizeof(counts) / sizeof(counts[0]); i++) {
        uint64_t count = *(const uint64_t *)(base + counts[i].offset);
        rc = dict_take(dict, counts[i].name, PyLong_FromUnsignedLongLong(count));
    }
    for (size_t i = 0; rc == 0 && i < sizeof(latencies) / sizeof(latencies[0]); i++) {
        const void *latency = base + latencies[i].offset;
        rc = dict_take(dict, latencies[i].name, latency_dict(latency));
    }
    if (rc < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *core_stats(PyObject *module, PyObject *nothing)
{
    CORE_ENTER();
    (void)module, (void)nothing;
    struct rg_stats stats;
    int rc = rg_runtime_stats(NULL, &stats);
    return rc < 0 ? core_errno_raise(rc, "adding up what was counted") : stats_dict(&stats);
}

/* More than a client's loops know, in all but odd cases. */
#define BUCKETS_MAX 64

static PyObject *side_dict(const struct rg_bucket_side *side)
{
    return Py_BuildValue("{sIsIsIsdsK}", "limit", side->limit, "in_flight", side->in_flight,
                         "waiting", side->waiting, "rate_per_s", side->rate_per_s, "backoffs",
                         (unsigned long long)side->backoffs);
}

/* A dict by name; NULL after an exception. */
static PyObject *buckets_dict(struct rg_client *client)
{
    struct rg_bucket_stats buckets[BUCKETS_MAX];
    int count;
    Py_BEGIN_ALLOW_THREADS;
    count = rg_client_buckets(client, buckets, BUCKETS_MAX);
    Py_END_ALLOW_THREADS;
    PyObject *dict = PyDict_New();
    for (int i = 0; i < count && dict != NULL; i++) {
        PyObject *reads = side_dict(&buckets[i].reads), *writes = side_dict(&buckets[i].writes);
        PyObject *one = reads != NULL && writes != NULL
                            ? Py_BuildValue("{sIsOsO}", "processes", buckets[i].processes, "reads",
                                            reads, "writes", writes)
                            : NULL;
        Py_XDECREF(reads);
        Py_XDECREF(writes);
        if (dict_take(dict, buckets[i].name, one) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *client_stats(PyObject *object, PyObject *nothing)
{
    CORE_ENTER();
    (void)nothing;
    struct core_session *session = core_client_session(object);
    struct rg_stats stats = {0};
    if (session == NULL) {
        return NULL;
    }
    (void)rg_runtime_stats(session->runtime, &stats);
    const char *reason;
    bool is_uring = rg_runtime_backend(session->runtime, &reason) == RG_BACKEND_URING;
    PyObject *dict = stats_dict(&stats);
    if (dict != NULL &&
        (dict_take(dict, "held_bytes", PyLong_FromUnsignedLongLong(core_session_held(session))) <
             0 ||
         dict_take(dict, "backend", PyUnicode_FromString(is_uring ? "uring" : "epoll")) < 0 ||
         dict_take(dict, "buckets", buckets_dict(session->client)) < 0)) {
        Py_CLEAR(dict);
    }
    core_session_unref(session);
    return dict;
}

#define CLIENT_CALL(name)                                                                          \
    static PyObject *client_##name(PyObject *self, PyObject *args, PyObject *keywords)             \
    {                                                                                              \
        CORE_ENTER();                                                                              \
        return core_operation_call(#name, self, args, keywords);                                   \
    }
CLIENT_CALL(get)
CLIENT_CALL(_get_told)
CLIENT_CALL(get_ranges)
CLIENT_CALL(put)
CLIENT_CALL(stat)
CLIENT_CALL(delete)
CLIENT_CALL(list)
CLIENT_CALL(list_folder)
CLIENT_CALL(_list_details)
CLIENT_CALL(copy)
CLIENT_CALL(update)
CLIENT_CALL(compose)
CLIENT_CALL(list_uploads)
CLIENT_CALL(abort_upload)

#define METHOD(name, call, doc)                                                                    \
    {                                                                                              \
        name, (PyCFunction)(void (*)(void))(call), METH_VARARGS | METH_KEYWORDS, doc               \
    }
static PyMethodDef client_methods[] = {
    METHOD("get", client_get, "get(uri, *, offset=0, length=0, generation=0) -> Buffer"),
    METHOD(
        "_get_told", client__get_told,
        "_get_told(uri, *, offset=0, length=0, generation=0) -> (Buffer, generation, size, CRC32C "
        "of all, of what came): as get, with what its answer tells of the object, or None"),
    METHOD(
        "get_ranges", client_get_ranges,
        "get_ranges(uri, [(offset, length), ...], *, generation=0, gap=0) -> list of Buffer, all "
        "of one generation. Ranges no further apart than `gap` bytes (0: 64 KiB) share a "
        "request; one that ends behind the object is short. At most 4096."),
    METHOD("put", client_put,
           "put(uri, data, *, if_generation_match=None, content_type=None, exclusive=True, "
           "storage_class=None) -> generation; data is bytes-like, or a pathlib.Path"),
    METHOD("list", client_list,
           "list(uri, *, progress=None, folder_markers=True, glob=None, start_offset=None, "
           "end_offset=None, versions=False) -> Objects whose names begin with the URI's"),
    METHOD("list_folder", client_list_folder,
           "list_folder(uri, *, limit=0) -> (Objects, folders): what the names that begin with the "
           "URI's have up to the next '/'"),
    METHOD("_list_details", client__list_details,
           "_list_details(uri, *, folder=False, limit=0) -> ([(name, size, generation, crc32c, "
           "updated), ...], folders or None): as list, or list_folder"),
    METHOD(
        "copy", client_copy,
        "copy(uri, target, *, generation=0, if_generation_match=None, storage_class=None) -> dict "
        "as stat's"),
    METHOD("update", client_update,
           "update(uri, *, content_type=None, metadata=None, content_encoding=None, "
           "cache_control=None, generation=0, if_generation_match=None, "
           "if_metageneration_match=None, exclusive=True) -> dict as stat's"),
    METHOD("compose", client_compose,
           "compose(uri, sources, *, if_generation_match=None, content_type=None, metadata=None, "
           "exclusive=True, storage_class=None) -> dict as stat's"),
    METHOD("list_uploads", client_list_uploads,
           "list_uploads(uri) -> list of (name, id, time of its beginning): multipart uploads that "
           "nobody has finished, of objects whose names begin with the URI's"),
    METHOD("abort_upload", client_abort_upload,
           "abort_upload(uri, upload_id): ends one of them and removes its parts"),
    METHOD("stat", client_stat, "stat(uri, *, generation=0) -> dict"),
    METHOD("delete", client_delete,
           "delete(uri, *, generation=0, if_generation_match=None, exclusive=False)"),
    METHOD("get_many", core_many_new,
           "get_many(uris, *, ordered=False, batch=None) -> iterator of lists of Item: `batch` of "
           "them, fewer at the end, when they have 64 MiB, and when memory is short; without it at "
           "most 256, and no more when they have 4 MiB"),
    METHOD("get_into", core_client_get_into,
           "get_into(uri, requests, *, generation=0, verify=True, gap_max=0, checksums=False) -> "
           "generation; reads each (offset, buffer) of the object straight into its buffer"),
    METHOD("_get_into_addresses", core_client_get_into_addresses,
           "get_into, with a table of (offset, length, address) as 64-bit numbers; for memory that "
           "has no buffer interface. The caller keeps it alive."),
    {"_server_time", client_server_time, METH_NOARGS,
     "The server's clock, in seconds since 1970, by its answers so far; None: none has told it."},
    {"stats", client_stats, METH_NOARGS, "Counters and latencies since the first use: a dict."},
    {"_checkpoint_took", core_client_checkpoint_took, METH_VARARGS,
     "_checkpoint_took(part, ns): counts it as checkpoint_PART_time."},
    {"_metrics", core_client_metrics, METH_NOARGS, "The rows of ringest.metrics(client)."},
    {"close", client_close, METH_NOARGS, "Ends the client; Buffers that are still held stay good."},
    {0},
};

static PyType_Slot client_slots[] = {
    {Py_tp_doc, "See ringest.Client."},
    {Py_tp_init, client_init},
    {Py_tp_dealloc, client_dealloc},
    {Py_tp_methods, client_methods},
    {0, NULL},
};
static PyType_Spec client_spec = {
    .name = "ringest._core.Client",
    .basicsize = sizeof(struct client),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = client_slots,
};

int core_client_register(PyObject *module)
{
    static bool is_watched;
    int rc = is_watched ? 0 : pthread_atfork(NULL, NULL, forked);
    if (rc != 0) {
        core_errno_raise(-rc, "watching for forks");
        return -1;
    }
    is_watched = true;
    return core_type_add(module, &client_spec, &core_client_type);
}
