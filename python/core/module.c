/* The module ringest._core.
 *
 * Its types are those of the process: in the main interpreter a second import gives the same ones,
 * and no other interpreter gets the module, nor does one that begins after the main one has ended,
 * because objects and locks of two interpreters would meet in them. Free-threaded
 * interpreters have a build of their own, since they lay out objects otherwise; some of them load
 * what was built for the others all the same, and are told so before anything is made. */
#include "core.h"

#include "gcs/credentials/sign.h"
#include "runtime/hypervisor.h"

#include <ringest/metrics.h>
#include <string.h>

#ifdef Py_GIL_DISABLED
PyMutex core_mutex;
#endif

int core_type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **out_type)
{
    if (*out_type == NULL) {
        *out_type = (PyTypeObject *)PyType_FromSpec(spec);
    }
    return *out_type != NULL ? PyModule_AddType(module, *out_type) : -1;
}

/* A checksum of so much or more is worth letting other threads run. */
#define UNLOCKED_SIZE_MIN (256 << 10)

static PyObject *module_crc32c(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *data, *number = NULL;
    Py_buffer view;
    uint32_t crc = 0;
    if (!PyArg_ParseTuple(args, "O|O:crc32c", &data, &number) ||
        !core_number32(number, "crc", 0, UINT32_MAX, &crc) ||
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (view.len < UNLOCKED_SIZE_MIN) {
        crc = rg_crc32c(crc, view.buf, (size_t)view.len);
    } else {
        Py_BEGIN_ALLOW_THREADS crc = rg_crc32c(crc, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *module_crc32c_combine(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *numbers[3];
    uint32_t first = 0, second = 0;
    uint64_t size = 0;
    if (!PyArg_ParseTuple(args, "OOO:crc32c_combine", &numbers[0], &numbers[1], &numbers[2]) ||
        !core_number32(numbers[0], "first", 0, UINT32_MAX, &first) ||
        !core_number32(numbers[1], "second", 0, UINT32_MAX, &second) ||
        !core_number(numbers[2], "size", 0, UINT64_MAX, &size)) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(rg_crc32c_combine(first, second, size));
}

static PyObject *module_sign(PyObject *module, PyObject *args)
{
    (void)module;
    const char *pem, *data;
    Py_ssize_t size;
    uint8_t signature[RG_RSA_SIGNATURE_SIZE_MAX];
    if (!PyArg_ParseTuple(args, "sy#:_rsa_sha256_sign", &pem, &data, &size)) {
        return NULL;
    }
    int signed_size = rg_rsa_sha256_sign(pem, data, (size_t)size, signature);
    if (signed_size < 0) {
        PyErr_SetString(PyExc_ValueError, "the private key is no RSA private key in PEM");
        return NULL;
    }
    return PyBytes_FromStringAndSize((const char *)signature, signed_size);
}

static PyObject *module_hypervisor(PyObject *module, PyObject *unused)
{
    char signature[RG_HYPERVISOR_SIGNATURE_SIZE];
    (void)module, (void)unused;
    rg_hypervisor_signature(signature);
    const char *name = rg_hypervisor_name("", signature);
    return Py_BuildValue("z", name);
}

static PyMethodDef module_functions[] = {
    {"_rsa_sha256_sign", module_sign, METH_VARARGS,
     "_rsa_sha256_sign(pem, data, /) -> the signature of RS256, with a private key"},
    {"crc32c", module_crc32c, METH_VARARGS,
     "crc32c(data, crc=0, /) -> the CRC32C of what had `crc`, followed by data"},
    {"_buffer_of", core_buffer_of, METH_O,
     "_buffer_of(data, /) -> a Buffer with a copy of the bytes"},
    {"stats", core_stats, METH_NOARGS,
     "stats() -> a dict of what all clients of the process have counted, also closed ones"},
    {"metrics", core_metrics, METH_NOARGS, "metrics() -> the rows of ringest.metrics()"},
    {"trace_begin", core_trace_begin, METH_O, "trace_begin(events, /): see <ringest/trace.h>"},
    {"trace_end", core_trace_end, METH_NOARGS, "trace_end() -> (events, dropped)"},
    {"_log_begin", core_log_begin, METH_O,
     "_log_begin(level, /): keeps lines of the library's log up to that level"},
    {"_log_end", core_log_end, METH_NOARGS, "_log_end(): keeps no more, and ends who waits"},
    {"_log_forget", core_log_forget, METH_NOARGS, "_log_forget(): in a child of fork"},
    {"_log_take", core_log_take, METH_NOARGS,
     "_log_take() -> (level, place, text, lines lost before it), or None at the end"},
    {"unite", core_base_unite, METH_VARARGS,
     "unite([(state, base), ...], all_ranks, /) -> the base of what readers have consumed"},
    {"_hypervisor", module_hypervisor, METH_NOARGS,
     "_hypervisor() -> what this machine is a guest of, None: of nothing"},
    {"crc32c_combine", module_crc32c_combine, METH_VARARGS,
     "crc32c_combine(first, second, size, /) -> the CRC32C of both; size is of the second"},
    {0},
};

static bool is_over; /* the main interpreter is */

static void interpreter_ended(void)
{
    is_over = true;
}

static int interpreter_check(void)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0 || is_over) {
        PyErr_SetString(PyExc_ImportError,
                        is_over ? "ringest._core cannot be loaded again after Py_Finalize()"
                                : "ringest._core does not support subinterpreters");
        return -1;
    }
    return 0;
}

static int module_fill(PyObject *module)
{
    static int (*const parts[])(PyObject * module) = {
        core_error_register,         core_buffer_register,    core_item_register,
        core_client_register,        core_many_register,      core_queue_register,
        core_objects_register,       core_reader_register,    core_writer_register,
        core_object_reader_register, core_iteration_register, core_awaited_register,
        core_tar_register,
    };
    static bool is_watched;
    int rc = interpreter_check();
    if (rc == 0 && !is_watched) {
        is_watched = Py_AtExit(interpreter_ended) == 0;
    }
    for (size_t i = 0; rc == 0 && i < sizeof(parts) / sizeof(parts[0]); i++) {
        rc = parts[i](module);
    }
    return rc == 0 ? PyModule_AddStringConstant(module, "version", rg_version()) : -1;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_fill},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ringest._core",
    .m_doc = "The C side of ringest; use the package.",
    .m_methods = module_functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
#ifndef Py_GIL_DISABLED
    if (strstr(Py_GetVersion(), "free-threading") != NULL) {
        PyErr_SetString(PyExc_ImportError,
                        "this ringest was built for interpreters with a global lock (GIL), and "
                        "this is a free-threaded one: build ringest with it, or use python3.14 "
                        "instead of python3.14t");
        return NULL;
    }
#endif
    return PyModuleDef_Init(&definition);
}
