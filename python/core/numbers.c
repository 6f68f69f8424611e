/* The whole numbers and texts that calls are given. PyArg_Parse would take -1 for a large one, True
 * for 1, and cut off what does not fit; and none of its messages says which argument is meant. */
#include "core.h"

#include <string.h>

/* "2**63 - 1" is easier to read than its digits. */
static const char *number_text(uint64_t number, char text[32])
{
    if (number == UINT64_MAX || number == INT64_MAX) {
        return number == INT64_MAX ? "2**63 - 1" : "2**64 - 1";
    }
    PyOS_snprintf(text, 32, "%llu", (unsigned long long)number);
    return text;
}

static void refuse(PyObject *value, const char *name, uint64_t min, uint64_t max)
{
    char low[32], high[32];
    PyErr_Format(PyExc_ValueError, "%s must be %s to %s, got %R", name, number_text(min, low),
                 number_text(max, high), value);
}

bool core_number(PyObject *value, const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
    if (value == NULL) {
        return true;
    }
    PyObject *number = PyBool_Check(value) ? NULL : PyNumber_Index(value);
    if (number == NULL) {
        if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "%s must be a whole number, got %R", name, value);
        }
        return false;
    }
    unsigned long long found = PyLong_AsUnsignedLongLong(number);
    bool fits = !PyErr_Occurred();
    PyErr_Clear(); /* it is negative or too large */
    fits = fits && found >= min && found <= max;
    if (fits) {
        *out = found;
    } else {
        refuse(number, name, min, max);
    }
    Py_DECREF(number);
    return fits;
}

bool core_text(PyObject *value, const char *name, const char **out)
{
    if (value == NULL || value == Py_None) {
        return true;
    }
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be a str or None, got %R", name, value);
        return false;
    }
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text != NULL && strlen(text) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%s must have no null character, got %R", name, value);
        text = NULL;
    }
    *out = text != NULL ? text : *out;
    return text != NULL;
}

bool core_storage_class(PyObject *value, const char **out)
{
    const char *class = NULL;
    if (!core_text(value, "storage_class", &class)) {
        return false;
    }
    bool valid = class == NULL || *class != '\0';
    for (const char *c = class; valid && c != NULL && *c != '\0'; c++) {
        valid = *c > ' ' && *c <= '~';
    }
    if (!valid) {
        PyErr_Format(PyExc_ValueError,
                     "storage_class must be a class such as 'NEARLINE', or None for that of the "
                     "bucket, got %R",
                     value);
        return false;
    }
    *out = class;
    return true;
}

bool core_number32(PyObject *value, const char *name, uint32_t min, uint32_t max, uint32_t *out)
{
    uint64_t wide = *out;
    bool fits = core_number(value, name, min, max, &wide);
    if (fits) {
        *out = (uint32_t)wide;
    }
    return fits;
}

bool core_generation(PyObject *value, int64_t *out)
{
    uint64_t number = (uint64_t)*out;
    bool fits = core_number(value, "generation", 0, INT64_MAX, &number);
    if (fits) {
        *out = (int64_t)number;
    }
    return fits;
}

bool core_condition(PyObject *value, int64_t *out)
{
    uint64_t number = 0;
    if (value == NULL || value == Py_None) {
        return true;
    }
    if (!core_number(value, "if_generation_match", 0, INT64_MAX, &number)) {
        return false;
    }
    *out = number == 0 ? RG_GENERATION_ABSENT : (int64_t)number;
    return true;
}

bool core_metageneration(PyObject *value, int64_t *out)
{
    uint64_t number = 0;
    if (value == NULL || value == Py_None) {
        return true;
    }
    if (!core_number(value, "if_metageneration_match", 1, INT64_MAX, &number)) {
        return false;
    }
    *out = (int64_t)number;
    return true;
}
