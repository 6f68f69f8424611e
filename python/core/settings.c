/* Settings: what a Client is made with, as the options of the library.
 *
 *   parse (keywords) -> read by every session that is opened -> free
 *
 * Each setting is a row of a table: its name, what it may be, and its place among the options. The
 * texts that options point to belong to the str objects, which are kept. */
#include "core.h"

#include <math.h>
#include <string.h>

/* Longer than a server may stay silent, so that it is not taken for a want of memory. */
#define PATIENCE_S 30.0
#define SECONDS_MAX 1e9
/* The library's limits, which it checks again when a session is opened. */
#define THREADS_MAX 256
#define LOCAL_RANKS_MAX 1024
#define CONNECTIONS_MAX 65536
#define REQUESTS_MAX (1 << 20)
#define ATTEMPTS_MAX 1000
#define HEDGES_MAX 1000

enum kind {
    TEXT,     /* a str, or None: the library's default */
    COUNT,    /* uint32_t, up to `max` */
    BYTES,    /* uint64_t */
    DURATION, /* seconds as a float, for uint64_t of nanoseconds; infinity switches it off */
    OFF,      /* bool: False sets the option, which is named for what it switches off */
    BACKEND,
    NUMA,
    RAMP,
};

struct setting {
    const char *name;
    enum kind kind;
    size_t place; /* in struct core_settings */
    uint32_t max; /* of a COUNT */
};

#define CLIENT(field) offsetof(struct core_settings, client.field)
#define RUNTIME(field) offsetof(struct core_settings, runtime.field)
static const struct setting settings[] = {
    {"endpoint", TEXT, CLIENT(endpoint), 0},
    {"connect_to", TEXT, CLIENT(connect_to), 0},
    {"ca", TEXT, CLIENT(ca_file), 0},
    {"token", TEXT, CLIENT(token), 0},
    {"user_project", TEXT, CLIENT(user_project), 0},
    {"headers", TEXT, CLIENT(headers), 0},
    {"user_agent", TEXT, CLIENT(user_agent), 0},
    {"credentials", TEXT, CLIENT(credentials), 0},
    {"scope", TEXT, CLIENT(scope), 0},
    {"proxy", TEXT, CLIENT(proxy), 0},
    {"client_cert", TEXT, CLIENT(client_cert_file), 0},
    {"client_key", TEXT, CLIENT(client_key_file), 0},
    {"local_address", TEXT, CLIENT(local_address), 0},
    {"local_device", TEXT, CLIENT(local_device), 0},
    {"connections", COUNT, CLIENT(connections_max), CONNECTIONS_MAX},
    {"requests", COUNT, CLIENT(requests_max), REQUESTS_MAX},
    {"attempts", COUNT, CLIENT(attempts_max), ATTEMPTS_MAX},
    {"prewarm", COUNT, CLIENT(prewarm_connections), CONNECTIONS_MAX},
    {"hedges_per_1000", COUNT, CLIENT(hedges_per_1000), HEDGES_MAX},
    {"reads_per_s", COUNT, CLIENT(reads_per_s), UINT32_MAX},
    {"writes_per_s", COUNT, CLIENT(writes_per_s), UINT32_MAX},
    {"hedge_size", BYTES, CLIENT(hedge_size_max), 0},
    {"connect_timeout", DURATION, CLIENT(connect_timeout_ns), 0},
    {"first_byte_timeout", DURATION, CLIENT(first_byte_timeout_ns), 0},
    {"stall_timeout", DURATION, CLIENT(stall_timeout_ns), 0},
    {"idle_timeout", DURATION, CLIENT(idle_timeout_ns), 0},
    {"backoff_min", DURATION, CLIENT(backoff_min_ns), 0},
    {"backoff_max", DURATION, CLIENT(backoff_max_ns), 0},
    {"checksum", OFF, CLIENT(no_checksum), 0},
    {"adapting", OFF, CLIENT(no_adapting), 0},
    {"hedging", OFF, CLIENT(no_hedging), 0},
    {"sharing", OFF, CLIENT(no_sharing), 0},
    {"ramp", RAMP, CLIENT(ramp), 0},
    {"job_processes", COUNT, CLIENT(job_processes), UINT32_MAX},
    {"threads", COUNT, RUNTIME(threads), THREADS_MAX},
    {"memory", BYTES, RUNTIME(memory_max), 0},
    {"memory_timeout", DURATION, offsetof(struct core_settings, patience_ns), 0},
    {"backend", BACKEND, RUNTIME(backend), 0},
    {"numa", NUMA, RUNTIME(numa_policy), 0},
    {"local_rank", COUNT, RUNTIME(local_rank), LOCAL_RANKS_MAX - 1},
    {"local_world_size", COUNT, RUNTIME(local_world_size), LOCAL_RANKS_MAX},
};

static const char *const backends[] = {
    [RG_BACKEND_AUTO] = "auto", [RG_BACKEND_URING] = "uring", [RG_BACKEND_EPOLL] = "epoll"};
static const char *const numa_policies[] = {[RG_NUMA_AUTO] = "auto",
                                            [RG_NUMA_COMPACT] = "compact",
                                            [RG_NUMA_SPREAD] = "spread",
                                            [RG_NUMA_NONE] = "none"};
static const char *const ramps[] = {[RG_RAMP_NONE] = "none", [RG_RAMP_GCS] = "gcs"};

static bool text_parse(struct core_settings *self, const char *name, PyObject *value,
                       const char **out)
{
    Py_ssize_t size;
    if (value == Py_None) {
        return true;
    }
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be a str or None, got %R", name, value);
        return false;
    }
    const char *text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text != NULL && strlen(text) != (size_t)size) {
        /* Not shown: it may be a secret. */
        PyErr_Format(PyExc_ValueError, "%s has a NUL character", name);
        return false;
    }
    *out = text;
    return text != NULL && PyList_Append(self->texts, value) == 0;
}

static bool duration_parse(const char *name, PyObject *value, uint64_t *out_ns)
{
    double seconds = PyBool_Check(value) ? -1 : PyFloat_AsDouble(value);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s must be a number of seconds, got %R", name, value);
        return false;
    }
    if (isinf(seconds) && seconds > 0) {
        *out_ns = RG_FOREVER;
        return true;
    }
    if (!(seconds >= 0 && seconds <= SECONDS_MAX)) {
        PyErr_Format(PyExc_ValueError,
                     "%s must be 0 to 1e+09 seconds, or math.inf for no limit, got %R", name,
                     value);
        return false;
    }
    *out_ns = (uint64_t)(seconds * 1e9);
    return true;
}

/* Nothing but a bool: "no" would be true. */
static bool off_parse(const char *name, PyObject *value, bool *out_is_off)
{
    if (!PyBool_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be True or False, got %R", name, value);
        return false;
    }
    *out_is_off = value == Py_False;
    return true;
}

static bool choice_parse(const char *name, PyObject *value, const char *const *choices,
                         size_t count, int *out)
{
    for (size_t i = 0; PyUnicode_Check(value) && i < count; i++) {
        if (PyUnicode_CompareWithASCIIString(value, choices[i]) == 0) {
            *out = (int)i;
            return true;
        }
    }
    char known[128] = "";
    for (size_t i = 0, size = 0; i < count; i++) {
        PyOS_snprintf(known + size, sizeof(known) - size, "%s'%s'", i > 0 ? ", " : "", choices[i]);
        size = strlen(known);
    }
    PyErr_Format(PyExc_ValueError, "%s must be one of %s, got %R", name, known, value);
    return false;
}

static bool setting_parse(struct core_settings *self, const struct setting *setting,
                          PyObject *value)
{
    void *place = (char *)self + setting->place;
    int choice = 0;
    switch (setting->kind) {
    case TEXT:
        return text_parse(self, setting->name, value, place);
    case COUNT:
        return core_number32(value, setting->name, 0, setting->max, place);
    case BYTES:
        return core_number(value, setting->name, 0, CORE_BYTES_MAX, place);
    case DURATION:
        return duration_parse(setting->name, value, place);
    case OFF:
        return off_parse(setting->name, value, place);
    case BACKEND:
        if (!choice_parse(setting->name, value, backends, RG_ARRAY_LEN(backends), &choice)) {
            return false;
        }
        self->runtime.backend = (enum rg_backend)choice;
        return true;
    case NUMA:
        if (!choice_parse(setting->name, value, numa_policies, RG_ARRAY_LEN(numa_policies),
                          &choice)) {
            return false;
        }
        self->runtime.numa_policy = (enum rg_numa_policy)choice;
        return true;
    case RAMP:
        if (!choice_parse(setting->name, value, ramps, RG_ARRAY_LEN(ramps), &choice)) {
            return false;
        }
        self->client.ramp = (enum rg_ramp)choice;
        return true;
    }
    return false;
}

static const struct setting *setting_find(PyObject *name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(settings); i++) {
        if (PyUnicode_CompareWithASCIIString(name, settings[i].name) == 0) {
            return &settings[i];
        }
    }
    PyErr_Format(PyExc_TypeError, "a Client has no setting %R", name);
    return NULL;
}

bool core_settings_parse(struct core_settings *self, PyObject *keywords)
{
    rg_runtime_options_init(&self->runtime);
    rg_client_options_init(&self->client);
    self->client.user_agent = "ringest-python";
    self->patience_ns = (uint64_t)(PATIENCE_S * 1e9);
    self->texts = PyList_New(0);
    if (self->texts == NULL) {
        return false;
    }
    /* Code of the caller's, such as __index__, may change what it has given. */
    PyObject *given = keywords != NULL ? PyDict_Items(keywords) : PyList_New(0);
    bool done = given != NULL;
    for (Py_ssize_t i = 0; done && i < PyList_Size(given); i++) {
        PyObject *pair = PyList_GetItem(given, i);
        const struct setting *setting = setting_find(PyTuple_GetItem(pair, 0));
        done = setting != NULL && setting_parse(self, setting, PyTuple_GetItem(pair, 1));
    }
    Py_XDECREF(given);
    if (done && self->client.backoff_min_ns != 0 && self->client.backoff_max_ns != 0 &&
        self->client.backoff_min_ns > self->client.backoff_max_ns) {
        PyErr_SetString(PyExc_ValueError, "backoff_min is above backoff_max");
        done = false;
    }
    uint32_t rank = self->runtime.local_rank, size = self->runtime.local_world_size;
    if (done && rank != 0 && rank >= size) {
        PyErr_Format(PyExc_ValueError, "local_rank is %u, not below local_world_size, which is %u",
                     rank, size);
        done = false;
    }
    return done;
}

void core_settings_free(struct core_settings *self)
{
    Py_CLEAR(self->texts);
}
