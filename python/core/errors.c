/* What is told to people: exceptions, made by ringest._errors, which knows the classes; and lines
 * of the log, by ringest._log. And URIs. */
#include "core.h"

#include "runtime/uri.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* From the first attempt to the end; such a request is worth a line at level debug. */
#define SLOW_NS (UINT64_C(1000) * 1000 * 1000)
/* The service's. */
#define BUCKET_NAME_SIZE_MIN 3

static PyObject *make_error;  /* ringest._errors.make */
static PyObject *log_request; /* ringest._log.request */
static PyObject *log_session; /* ringest._log.session */
static PyObject *log_ending;  /* ringest._log.ending */

static PyObject *function_of(const char *module, const char *name)
{
    PyObject *found = PyImport_ImportModule(module);
    PyObject *function = found != NULL ? PyObject_GetAttrString(found, name) : NULL;
    Py_XDECREF(found);
    return function;
}

int core_error_register(PyObject *module)
{
    (void)module;
    make_error = function_of("ringest._errors", "make");
    log_request = make_error != NULL ? function_of("ringest._log", "request") : NULL;
    log_session = log_request != NULL ? function_of("ringest._log", "session") : NULL;
    log_ending = log_session != NULL ? function_of("ringest._log", "ending") : NULL;
    return log_ending != NULL ? 0 : -1;
}

/* Takes the result of a call. 0, or -1 with its exception. */
static int log_done(PyObject *result)
{
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static uint64_t duration_ns(const struct rg_completion *completion)
{
    return completion->started_ns != 0 ? completion->finished_ns - completion->started_ns : 0;
}

bool core_request_is_notable(const struct rg_completion *completion)
{
    return completion->attempts > 1 || duration_ns(completion) >= SLOW_NS;
}

int core_request_note(PyObject *uri, const struct rg_completion *completion)
{
    if (!core_request_is_notable(completion)) {
        return 0;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *found_done = completion->found_done ? Py_True : Py_False;
    int rc = log_done(PyObject_CallFunction(log_request, "OidsO", uri, (int)completion->attempts,
                                            (double)duration_ns(completion) / 1e9,
                                            rg_status_name(completion->status), found_done));
    if (type != NULL) {
        PyErr_Restore(type, value, trace);
        rc = 0;
    }
    return rc;
}

void core_drain_note(uint64_t count)
{
    if (log_done(PyObject_CallFunction(log_ending, "K", (unsigned long long)count)) < 0) {
        PyErr_Clear(); /* what ended the call is told */
    }
}

/* What the runtime says of pinned memory; "" where none was asked for. */
static void pinned_read(const struct rg_runtime *runtime, char *out, size_t out_size)
{
    static const char what[] = "pinned memory\t";
    char text[4096] = "";
    (void)rg_runtime_describe(runtime, text, sizeof(text));
    const char *line = strstr(text, what);
    size_t size = line != NULL ? strcspn(line += strlen(what), "\n") : 0;
    snprintf(out, out_size, "%.*s", (int)size, line != NULL ? line : "");
}

int core_session_note(struct core_session *session)
{
    const char *reason;
    char pinned[320];
    pinned_read(session->runtime, pinned, sizeof(pinned));
    bool is_uring = rg_runtime_backend(session->runtime, &reason) == RG_BACKEND_URING;
    return log_done(PyObject_CallFunction(log_session, "ssIs", is_uring ? "uring" : "epoll", reason,
                                          rg_runtime_threads(session->runtime), pinned));
}

PyObject *core_error_new(PyObject *uri, const struct rg_completion *completion)
{
    /* A server's words, cut where there is no more room: any bytes. */
    const char *told = completion->detail;
    PyObject *detail = told != NULL
                           ? PyUnicode_DecodeUTF8(told, (Py_ssize_t)strlen(told), "replace")
                           : Py_NewRef(Py_None);
    PyObject *error =
        PyObject_CallFunction(make_error, "OssiiN", uri, rg_status_name(completion->status),
                              rg_status_text(completion->status), (int)completion->http_status,
                              (int)completion->os_error, detail);
    rg_lease_release(completion->lease);
    return error;
}

PyObject *core_error_raise(PyObject *uri, const struct rg_completion *completion)
{
    PyObject *error = core_error_new(uri, completion);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

const char *core_refused_text(int rc)
{
    return rc == -EINVAL
               ? "Cloud Storage would refuse the name or an argument; buckets have 3 to 222 "
                 "characters, objects 1 to 1,024 bytes of UTF-8 without line breaks"
               : strerror(-rc);
}

/* A URI that the library refused, though it is of the form of one. */
static bool names_a_bucket(PyObject *text)
{
    struct core_uri uri;
    bool is_empty = PyUnicode_Check(text) && core_uri_parse(text, &uri) && *uri.object == '\0';
    PyErr_Clear();
    return is_empty && strlen(uri.bucket) >= BUCKET_NAME_SIZE_MIN;
}

PyObject *core_submit_raise(int rc, PyObject *uri)
{
    if (rc == -EINVAL) {
        const char *text = names_a_bucket(uri) ? "a bucket; here an object is needed, "
                                                 "gs://BUCKET/NAME"
                                               : core_refused_text(rc);
        return PyErr_Format(PyExc_ValueError, "%R: %s", uri, text);
    }
    return core_errno_raise(rc, "the request could not be submitted");
}

PyObject *core_list_of(PyObject *uri, PyObject *given, const char *name, const char *items)
{
    if (!PySequence_Check(given) && !PyObject_HasAttrString(given, "__iter__")) {
        return PyErr_Format(PyExc_TypeError, "%U: %s must be a list of %s, got %R", uri, name,
                            items, given);
    }
    return PySequence_List(given);
}

void core_error_begin_with(PyObject *name)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyErr_Format(type, "%R: %S", name, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

PyObject *core_errno_raise(int rc, const char *text)
{
    if (rc == -ENOMEM) {
        return PyErr_NoMemory();
    }
    if (rc == -EINVAL) {
        PyErr_SetString(PyExc_ValueError, text);
        return NULL;
    }
    PyObject *arguments = Py_BuildValue("(is)", -rc, text);
    if (arguments != NULL) {
        PyErr_SetObject(PyExc_OSError, arguments);
        Py_DECREF(arguments);
    }
    return NULL;
}

void core_state_fail(const char *noun, const char *from, const char *to)
{
    char text[128];
    PyOS_snprintf(text, sizeof(text), "a %s never goes from %s to %s", noun, from, to);
    rg_assert_fail(text, __FILE__, __LINE__, __func__);
}

bool core_uri_parse(PyObject *text, struct core_uri *out_uri)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "a URI is a str, not %R", text);
        return false;
    }
    const char *data = PyUnicode_AsUTF8AndSize(text, &size);
    if (data == NULL) {
        return false;
    }
    struct rg_uri uri;
    bool is_uri = rg_uri_split(data, (size_t)size, &uri) == 0 && uri.bucket_size > 0 &&
                  strlen(data) == (size_t)size;
    if (!is_uri || !uri.has_slash) {
        PyErr_Format(PyExc_ValueError, "%R is not of the form gs://BUCKET/NAME%s", text,
                     is_uri ? ": there is no / behind the bucket" : "");
        return false;
    }
    if (uri.bucket_size > RG_BUCKET_NAME_SIZE_MAX || uri.name_size > RG_OBJECT_NAME_SIZE_MAX) {
        PyErr_Format(PyExc_ValueError,
                     "the URI that begins with %.60s has a bucket of %zu and a name of %zu bytes; "
                     "%d and %d are allowed",
                     data, uri.bucket_size, uri.name_size, RG_BUCKET_NAME_SIZE_MAX,
                     RG_OBJECT_NAME_SIZE_MAX);
        return false;
    }
    memcpy(out_uri->bucket, uri.bucket, uri.bucket_size);
    out_uri->bucket[uri.bucket_size] = '\0';
    memcpy(out_uri->object, uri.name, uri.name_size + 1);
    return true;
}
