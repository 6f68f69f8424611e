/* Who uses an object: one call at a time, of any thread.
 *
 *   begin -> goes_on (wherever others may have run) ... -> end
 *                   close, of any thread: false while it is in use, and then true from end
 *
 * All of it under the interpreter's lock. What the object has is freed by whoever comes last: by
 * close where nobody uses it, otherwise by the call that does, on its way out. So no call has to
 * look for pointers that went away while it waited.
 *
 * The garbage collector tells anybody of objects that are being made, while code of the caller's
 * runs (what it logs, an iterator's beginning): until core_use_open, which comes last, they are of
 * no use. */
#include "core.h"

#include <errno.h>

/* "reader of gs://bucket/name"; NULL with an exception. */
static PyObject *name_make(const struct core_use *self)
{
    return self->uri != NULL ? PyUnicode_FromFormat("%s of %U", self->noun, self->uri)
                             : PyUnicode_FromString(self->noun);
}

static void refuse(const struct core_use *self, PyObject *error, const char *why)
{
    PyObject *name = name_make(self);
    if (name != NULL) {
        PyErr_Format(error, "the %U %s", name, why);
        Py_DECREF(name);
    }
}

void core_use_open(struct core_use *self, struct core_session *session, const char *noun,
                   PyObject *uri, bool is_window)
{
    *self = (struct core_use){.session = session, .noun = noun, .uri = uri, .is_window = is_window};
    session->windows += is_window;
}

bool core_use_begin(struct core_use *self)
{
    unsigned long thread = PyThread_get_thread_ident();
    if (self->session == NULL) {
        PyErr_SetString(PyExc_ValueError, "this object is not made yet");
    } else if (self->is_closed) {
        refuse(self, PyExc_ValueError, "is closed");
    } else if (!core_session_is_own(self->session)) {
        refuse(self, PyExc_OSError, "does not go on in a child of fork()");
    } else if (self->is_busy && self->thread == thread) {
        refuse(self, PyExc_ValueError, "is in use by a call that this one is made from");
    } else if (self->is_busy) {
        refuse(self, PyExc_ValueError, "is in use by another thread");
    } else {
        self->is_busy = true;
        self->thread = thread;
        self->session->windows -= self->is_window;
        return true;
    }
    return false;
}

bool core_use_goes_on(const struct core_use *self)
{
    if (self->is_closed && !PyErr_Occurred()) {
        refuse(self, PyExc_ValueError, "was closed while it was in use");
    }
    return !self->is_closed;
}

bool core_use_end(struct core_use *self)
{
    self->is_busy = false;
    self->session->windows += self->is_window && !self->is_closed;
    return self->is_closed;
}

bool core_use_close(struct core_use *self)
{
    if (self->session == NULL) {
        return false; /* whoever makes it goes on */
    }
    bool is_first = !self->is_closed;
    self->is_closed = true;
    self->session->windows -= is_first && self->is_window && !self->is_busy;
    return is_first && (!self->is_busy || !core_session_is_own(self->session));
}

bool core_use_is_half_done(const struct core_use *self)
{
    return self->is_busy && !core_session_is_own(self->session);
}
