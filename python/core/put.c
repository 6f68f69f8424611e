/* put: an object from memory, or from a file. */
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* Above it an upload takes several requests, each of which may be tried again by itself. */
#define PUT_SIZE_MAX (UINT64_C(8) << 20)

/* Opens the file that a path names. -1 with an exception. */
static int file_open(struct core_operation *self, PyObject *path)
{
    PyObject *name = NULL;
    struct stat status;
    if (!PyUnicode_FSConverter(path, &name)) {
        return -1;
    }
    /* Not to wait for the other end of a pipe. */
    int fd = open(PyBytes_AsString(name), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = fd < 0 ? -1 : fstat(fd, &status);
    if (rc < 0) {
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    } else if (!S_ISREG(status.st_mode)) {
        PyErr_Format(PyExc_ValueError, "%S is no regular file: read it, and give its bytes", path);
        rc = -1;
    } else {
        self->file_size = (uint64_t)status.st_size;
    }
    self->fd_plus_1 = fd + 1;
    Py_DECREF(name);
    return rc;
}

/* Bytes, or a file by its path. -1 with an exception. */
static int data_parse(struct core_operation *self, PyObject *data)
{
    if (PyObject_CheckBuffer(data)) {
        return PyObject_GetBuffer(data, &self->data, PyBUF_SIMPLE);
    }
    if (!PyUnicode_Check(data) && PyObject_HasAttrString(data, "__fspath__")) {
        return file_open(self, data);
    }
    PyErr_Format(
        PyExc_TypeError,
        "%U: data of type %R: it must be bytes-like, or a pathlib.Path of a file (a str is "
        "neither: encode text, and wrap the name of a file)",
        self->uri, (PyObject *)Py_TYPE(data));
    return -1;
}

static int put_parse(struct core_operation *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {
        "uri", "data", "if_generation_match", "content_type", "exclusive", "storage_class", NULL};
    PyObject *data, *condition = NULL, *type = NULL, *class = NULL;
    self->exclusive = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "UO|$OOpO:put", names, &self->uri, &data,
                                     &condition, &type, &self->exclusive, &class) ||
        !core_text(type, "content_type", &self->content_type) ||
        !core_storage_class(class, &self->storage_class) ||
        !core_condition(condition, &self->condition)) {
        return -1;
    }
    return data_parse(self, data);
}

static int upload_submit(struct core_operation *self, struct core_session *session,
                         struct rg_cq *cq, const struct core_uri *uri, uint64_t user_data)
{
    bool is_file = self->fd_plus_1 > 0;
    struct rg_upload upload = {
        .bucket = uri->bucket,
        .object = uri->object,
        .data = is_file ? NULL : self->data.buf,
        .fd = is_file ? self->fd_plus_1 - 1 : 0,
        .size = is_file ? self->file_size : (uint64_t)self->data.len,
        .content_type = self->content_type,
        .storage_class = self->storage_class,
        .conditions = {.if_generation_match = self->condition},
        .exclusive = self->exclusive && self->condition != 0,
        .user_data = user_data,
    };
    return rg_submit_upload(session->client, cq, &upload);
}

static int put_submit(struct core_operation *self, struct core_session *session, struct rg_cq *cq,
                      const struct core_uri *uri, uint64_t user_data)
{
    if (self->fd_plus_1 > 0 || (uint64_t)self->data.len > PUT_SIZE_MAX) {
        return upload_submit(self, session, cq, uri, user_data);
    }
    struct rg_put put = {
        .bucket = uri->bucket,
        .object = uri->object,
        .data = self->data.buf,
        .size = (uint64_t)self->data.len,
        .content_type = self->content_type,
        .storage_class = self->storage_class,
        .if_generation_match = self->condition,
        .exclusive = self->exclusive && self->condition != 0,
        .user_data = user_data,
    };
    return rg_submit_put(session->client, cq, &put);
}

static PyObject *put_result(struct core_operation *self, struct core_session *session,
                            const struct rg_completion *done)
{
    (void)self;
    (void)session;
    rg_lease_release(done->lease);
    return PyLong_FromLongLong(done->generation);
}

const struct core_operation_kind core_put_kind = {"put", put_parse, put_submit, put_result, true};
