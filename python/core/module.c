/* The module ringest._core. */
#include "core.h"

int core_type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **out_type)
{
    PyObject *type = PyType_FromSpec(spec);
    if (type == NULL) {
        return -1;
    }
    *out_type = (PyTypeObject *)type;
    return PyModule_AddType(module, *out_type);
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

static PyMethodDef module_functions[] = {
    {"crc32c", module_crc32c, METH_VARARGS,
     "crc32c(data, crc=0, /) -> the CRC32C of what had `crc`, followed by data"},
    {"unite", core_base_unite, METH_VARARGS,
     "unite([(state, base), ...], all_ranks, /) -> the base of what readers have consumed"},
    {"crc32c_combine", module_crc32c_combine, METH_VARARGS,
     "crc32c_combine(first, second, size, /) -> the CRC32C of both; size is of the second"},
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ringest._core",
    .m_doc = "The C side of ringest; use the package.",
    .m_methods = module_functions,
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    if (core_error_register(module) < 0 || core_buffer_register(module) < 0 ||
        core_item_register(module) < 0 || core_client_register(module) < 0 ||
        core_many_register(module) < 0 || core_queue_register(module) < 0 ||
        core_objects_register(module) < 0 || core_reader_register(module) < 0 ||
        core_writer_register(module) < 0 || core_object_reader_register(module) < 0 ||
        core_iteration_register(module) < 0 || core_tar_register(module) < 0 ||
        PyModule_AddStringConstant(module, "version", rg_version()) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
