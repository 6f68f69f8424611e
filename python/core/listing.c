/* A listing page by page: into Objects, or into a list of all that is told of each object. */
#include "core.h"

#include <errno.h>
#include <string.h>

/* How many names a page may have, by <ringest/listing.h>. */
#define PAGE_MAX 1000

struct core_listing {
    struct rg_listing *listing;
    struct rg_manifest_writer *writer; /* NULL: what is told goes to `details` */
    uint64_t count;                    /* of objects that were added */
    bool has_markers;                  /* objects that only stand for a folder, too */
    PyObject *folders; /* a list of names, which end in "/"; NULL: all names were asked for */
    PyObject *details; /* a list of what is told of each object; NULL: they are collected */
    size_t limit;      /* of entries; SIZE_MAX: none */
};

int core_listing_open(struct core_listing **out_listing, struct core_session *session,
                      const struct core_uri *uri, const struct core_listing_kind *kind)
{
    struct core_listing *self = PyMem_Calloc(1, sizeof(*self));
    if (self == NULL) {
        return -ENOMEM;
    }
    struct rg_listing_options options = {
        .bucket = uri->bucket,
        .prefix = uri->object,
        .glob = kind->glob,
        .start_offset = kind->start_offset,
        .end_offset = kind->end_offset,
        .versions = kind->versions != 0,
        .ordered = true,
    };
    self->limit = SIZE_MAX;
    if (kind->limit > 0) {
        self->limit = kind->limit;
        options.results_max = kind->limit < PAGE_MAX ? kind->limit : PAGE_MAX;
        options.requests_max = 1;
    }
    self->has_markers = !kind->is_without_markers;
    int rc = kind->is_detailed ? 0 : rg_manifest_writer_open(&self->writer, NULL, uri->bucket);
    if (rc == 0 && kind->is_folder) {
        options.delimiter = "/";
        options.folders_as_prefixes = true;
        self->folders = PyList_New(0);
        rc = self->folders != NULL ? 0 : -ENOMEM;
    }
    if (rc == 0 && kind->is_detailed) {
        self->details = PyList_New(0);
        rc = self->details != NULL ? 0 : -ENOMEM;
    }
    rc = rc == 0 ? rg_listing_open(&self->listing, session->client, &options) : rc;
    if (rc < 0) {
        core_listing_close(self);
        return rc;
    }
    *out_listing = self;
    return 0;
}

int core_listing_next(struct core_listing *self, struct rg_cq *cq, uint64_t user_data)
{
    return rg_listing_next(self->listing, cq, user_data);
}

static int objects_collect(struct core_listing *self, const struct rg_list_page *page)
{
    int rc = 0;
    for (size_t i = 0; i < page->object_count && rc == 0; i++) {
        const struct rg_object *object = &page->objects[i];
        if (self->has_markers || !rg_object_is_folder_marker(object)) {
            rc = core_objects_add(self->writer, object);
            self->count++;
        }
    }
    return rc;
}

static int folders_collect(struct core_listing *self, const struct rg_list_page *page)
{
    int rc = 0;
    for (size_t i = 0; i < page->prefix_count && rc == 0; i++) {
        PyObject *name = PyUnicode_FromString(page->prefixes[i]);
        rc = name != NULL ? PyList_Append(self->folders, name) : -1;
        Py_XDECREF(name);
    }
    return rc;
}

static int details_collect(struct core_listing *self, const struct rg_list_page *page)
{
    int rc = 0;
    for (size_t i = 0; i < page->object_count && rc == 0; i++) {
        const struct rg_object *object = &page->objects[i];
        PyObject *entry = Py_BuildValue("(sKLNz)", object->name, (unsigned long long)object->size,
                                        (long long)object->generation,
                                        object->has_crc32c ? PyLong_FromUnsignedLong(object->crc32c)
                                                           : Py_NewRef(Py_None),
                                        object->updated);
        rc = entry != NULL ? PyList_Append(self->details, entry) : -1;
        Py_XDECREF(entry);
    }
    return rc;
}

static PyObject *listing_finish(struct core_listing *self)
{
    if (self->details != NULL) {
        return PyTuple_Pack(2, self->details, self->folders != NULL ? self->folders : Py_None);
    }
    PyObject *objects = core_objects_new(self->writer);
    self->writer = NULL;
    if (objects == NULL || self->folders == NULL) {
        return objects;
    }
    PyObject *both = PyTuple_Pack(2, objects, self->folders);
    Py_DECREF(objects);
    return both;
}

PyObject *core_listing_page(struct core_listing *self, const struct rg_completion *done,
                            Py_ssize_t *out_count)
{
    const struct rg_list_page *page = done->data;
    bool is_end = page->object_count == 0 && page->prefix_count == 0;
    int rc = self->details != NULL ? details_collect(self, page) : objects_collect(self, page);
    size_t count = self->details != NULL ? (size_t)PyList_Size(self->details) : self->count;
    if (self->folders != NULL && rc == 0) {
        rc = folders_collect(self, page);
        count += (size_t)PyList_Size(self->folders);
    }
    rg_lease_release(done->lease);
    *out_count = (Py_ssize_t)count;
    return rc == 0 && (is_end || count >= self->limit) ? listing_finish(self) : NULL;
}

void core_listing_close(struct core_listing *self)
{
    if (self == NULL) {
        return;
    }
    Py_BEGIN_ALLOW_THREADS rg_listing_close(self->listing);
    Py_END_ALLOW_THREADS(void) rg_manifest_writer_close(self->writer, true);
    Py_XDECREF(self->folders);
    Py_XDECREF(self->details);
    PyMem_Free(self);
}
