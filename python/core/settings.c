/* Settings: what a Client is made with, as the options of the library.
 *
 *   parse (keywords) -> read by every session that is opened -> free
 *
 * The library knows the options by name, and what each may be (rg_option_set). Here a Python value
 * of the right type becomes a text for it. Texts that options point to belong to the str objects,
 * which are kept. */
#include "core.h"

#include <math.h>
#include <string.h>

/* Longer than a server may stay silent, so that it is not taken for a want of memory. */
#define PATIENCE_S 30.0
#define SECONDS_MAX 1e9

static PyObject *type_refuse(const char *name, const char *wanted, PyObject *value)
{
    PyErr_Format(PyExc_TypeError, "%s must be %s, got %R", name, wanted, value);
    return NULL;
}

/* The value as a str, new; NULL with an exception that names the setting. */
static PyObject *text_of(const char *name, PyObject *value)
{
    if (!PyUnicode_Check(value)) {
        return type_refuse(name, "a str or None", value);
    }
    Py_INCREF(value);
    return value;
}

static PyObject *text_of_number(const char *name, PyObject *value)
{
    PyObject *number = PyBool_Check(value) ? NULL : PyNumber_Index(value);
    if (number == NULL) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) {
            return NULL;
        }
        PyErr_Clear();
        return type_refuse(name, "a whole number", value);
    }
    PyObject *text = PyObject_Str(number);
    Py_DECREF(number);
    return text;
}

static bool seconds_of(const char *name, PyObject *value, double *out)
{
    *out = PyBool_Check(value) ? 0 : PyFloat_AsDouble(value);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s must be at most 1e+09 seconds, or math.inf for no limit",
                     name);
        return false;
    }
    if (PyErr_Occurred() || PyBool_Check(value)) {
        PyErr_Clear();
        (void)type_refuse(name, "a number of seconds", value);
        return false;
    }
    return true;
}

static PyObject *text_of_seconds(const char *name, PyObject *value)
{
    double seconds;
    if (!seconds_of(name, value, &seconds)) {
        return NULL;
    }
    if ((seconds > 0 && seconds < 1e-9) || (seconds > SECONDS_MAX && !isinf(seconds))) {
        PyErr_Format(PyExc_ValueError,
                     "%s must be 1e-09 to 1e+09 seconds, or math.inf for no limit, got %R", name,
                     value);
        return NULL;
    }
    bool is_plain = seconds > 0 && seconds <= SECONDS_MAX;
    char *text = PyOS_double_to_string(seconds, is_plain ? 'f' : 'r', is_plain ? 9 : 0, 0, NULL);
    PyObject *result = text != NULL ? PyUnicode_FromString(text) : NULL;
    PyMem_Free(text);
    return result;
}

/* Nothing but a bool: "no" would be true. */
static PyObject *text_of_switch(const char *name, PyObject *value)
{
    if (!PyBool_Check(value)) {
        return type_refuse(name, "True or False", value);
    }
    return PyUnicode_FromString(value == Py_True ? "true" : "false");
}

static PyObject *text_of_setting(const char *name, enum rg_option_kind kind, PyObject *value)
{
    switch (kind) {
    case RG_OPTION_TEXT:
        return text_of(name, value);
    case RG_OPTION_COUNT:
    case RG_OPTION_SIZE:
        return text_of_number(name, value);
    case RG_OPTION_SECONDS:
        return text_of_seconds(name, value);
    case RG_OPTION_SWITCH:
        return text_of_switch(name, value);
    case RG_OPTION_SWITCH_OR_FOLDER:
        return PyBool_Check(value) ? text_of_switch(name, value) : text_of(name, value);
    default:
        return PyObject_Str(value);
    }
}

/* How long a call waits for memory; this is the extension's own. */
static bool patience_parse(struct core_settings *self, PyObject *value)
{
    double seconds;
    if (!seconds_of("memory_timeout", value, &seconds)) {
        return false;
    }
    if (isinf(seconds) && seconds > 0) {
        self->patience_ns = RG_FOREVER;
        return true;
    }
    if (!(seconds >= 0 && seconds <= SECONDS_MAX)) {
        PyErr_Format(PyExc_ValueError,
                     "memory_timeout must be 0 to 1e+09 seconds, or math.inf for no limit, got %R",
                     value);
        return false;
    }
    self->patience_ns = (uint64_t)(seconds * 1e9);
    return true;
}

static bool setting_parse(struct core_settings *self, PyObject *name_object, PyObject *value)
{
    Py_ssize_t size;
    char error[256];
    const char *name = PyUnicode_AsUTF8AndSize(name_object, &size);
    if (name == NULL || value == Py_None) {
        return name != NULL;
    }
    if (strcmp(name, "memory_timeout") == 0) {
        return patience_parse(self, value);
    }
    enum rg_option_kind kind = rg_option_kind(name);
    if (kind == RG_OPTION_NONE) {
        PyErr_Format(PyExc_TypeError, "a Client has no setting %R", name_object);
        return false;
    }
    PyObject *text_object = text_of_setting(name, kind, value);
    const char *text = text_object != NULL ? PyUnicode_AsUTF8AndSize(text_object, &size) : NULL;
    bool done = text != NULL;
    if (done && strlen(text) != (size_t)size) {
        /* Not shown: it may be a secret. */
        PyErr_Format(PyExc_ValueError, "%s has a NUL character", name);
        done = false;
    } else if (done &&
               rg_option_set(&self->runtime, &self->client, name, text, error, sizeof(error)) < 0) {
        PyErr_SetString(PyExc_ValueError, error);
        done = false;
    }
    bool is_borrowed = kind == RG_OPTION_TEXT || kind == RG_OPTION_SWITCH_OR_FOLDER;
    done = done && (!is_borrowed || PyList_Append(self->texts, text_object) == 0);
    Py_XDECREF(text_object);
    return done;
}

bool core_settings_complete(const struct core_settings *self, struct rg_runtime_options *runtime,
                            struct rg_client_options *client)
{
    char error[256];
    *runtime = self->runtime;
    *client = self->client;
    if (rg_options_from_environment(runtime, client, error, sizeof(error)) < 0) {
        PyErr_SetString(PyExc_ValueError, error);
        return false;
    }
    return true;
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
        done = setting_parse(self, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
    }
    Py_XDECREF(given);
    uint32_t rank = self->runtime.local_rank, size = self->runtime.local_world_size;
    if (done && rank != 0 && rank >= size) {
        PyErr_Format(PyExc_ValueError, "local_rank is %u, not below local_world_size, which is %u",
                     rank, size);
        done = false;
    }
    struct rg_runtime_options runtime;
    struct rg_client_options client;
    return done && core_settings_complete(self, &runtime, &client);
}

void core_settings_free(struct core_settings *self)
{
    Py_CLEAR(self->texts);
}
