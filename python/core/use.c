/* Who uses an object: one call at a time, of any thread.
 *
 *            open           begin
 *   MAKING -------> IDLE ----------> BUSY      goes_on is asked wherever others may have run
 *                    |  ^--- end -----|
 *              close |                | close, of any thread
 *                    v      end       v
 *                 CLOSED <-------- CLOSING
 *
 * All of it happens under the interpreter's lock. What the object has is freed by whoever comes
 * last: by close if nobody uses it, otherwise by the call that does, on its way out. So no call has
 * to look for pointers that went away while it waited.
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

static const char *const state_names[] = {
    [CORE_USE_MAKING] = "MAKING",   [CORE_USE_IDLE] = "IDLE",     [CORE_USE_BUSY] = "BUSY",
    [CORE_USE_CLOSING] = "CLOSING", [CORE_USE_CLOSED] = "CLOSED",
};

/* One bit for each state that may follow a state. */
#define TO(state) (1u << CORE_USE_##state)
static const unsigned changes[] = {
    [CORE_USE_MAKING] = TO(IDLE),
    [CORE_USE_IDLE] = TO(BUSY) | TO(CLOSED),
    [CORE_USE_BUSY] = TO(IDLE) | TO(CLOSING),
    [CORE_USE_CLOSING] = TO(CLOSED),
    [CORE_USE_CLOSED] = 0,
};

/* The only place that changes the state, and with it the session's count of windows. */
static void use_become(struct core_use *self, enum core_use_state state)
{
    if ((changes[self->state] & (1u << state)) == 0) {
        core_state_fail(self->noun, state_names[self->state], state_names[state]);
    }
    if (self->is_window && self->state == CORE_USE_IDLE) {
        RG_ASSERT(self->session->windows > 0);
        self->session->windows--;
    }
    self->session->windows += self->is_window && state == CORE_USE_IDLE;
    self->state = state;
}

static bool is_in_use(const struct core_use *self)
{
    return self->state == CORE_USE_BUSY || self->state == CORE_USE_CLOSING;
}

void core_use_open(struct core_use *self, struct core_session *session, const char *noun,
                   PyObject *uri, bool is_window)
{
    *self = (struct core_use){.session = session, .noun = noun, .uri = uri, .is_window = is_window};
    use_become(self, CORE_USE_IDLE);
}

bool core_use_begin(struct core_use *self)
{
    unsigned long thread = PyThread_get_thread_ident();
    if (self->state == CORE_USE_MAKING) {
        PyErr_SetString(PyExc_ValueError, "this object is not made yet");
    } else if (core_use_is_closed(self)) {
        refuse(self, PyExc_ValueError, "is closed");
    } else if (!core_session_is_own(self->session)) {
        refuse(self, PyExc_OSError, "does not go on in a child of fork()");
    } else if (is_in_use(self) && self->thread == thread) {
        refuse(self, PyExc_ValueError, "is in use by a call that this one is made from");
    } else if (is_in_use(self)) {
        refuse(self, PyExc_ValueError, "is in use by another thread");
    } else {
        use_become(self, CORE_USE_BUSY);
        self->thread = thread;
        return true;
    }
    return false;
}

bool core_use_is_closed(const struct core_use *self)
{
    return self->state == CORE_USE_CLOSING || self->state == CORE_USE_CLOSED;
}

bool core_use_goes_on(const struct core_use *self)
{
    if (core_use_is_closed(self) && !PyErr_Occurred()) {
        refuse(self, PyExc_ValueError, "was closed while it was in use");
    }
    return !core_use_is_closed(self);
}

bool core_use_end(struct core_use *self)
{
    bool was_closed = self->state == CORE_USE_CLOSING;
    use_become(self, was_closed ? CORE_USE_CLOSED : CORE_USE_IDLE);
    return was_closed;
}

bool core_use_close(struct core_use *self)
{
    switch (self->state) {
    case CORE_USE_MAKING: /* whoever makes it goes on */
    case CORE_USE_CLOSING:
    case CORE_USE_CLOSED:
        return false;
    case CORE_USE_IDLE:
        use_become(self, CORE_USE_CLOSED);
        return true;
    case CORE_USE_BUSY:
        use_become(self, CORE_USE_CLOSING);
        break;
    }
    /* In a child of fork nobody will come out of the call. */
    return !core_session_is_own(self->session);
}

bool core_use_is_half_done(const struct core_use *self)
{
    return is_in_use(self) && !core_session_is_own(self->session);
}

void core_use_drop_session(struct core_use *self, struct core_session **session)
{
    if (core_use_is_half_done(self)) {
        return;
    }
    RG_ASSERT(!is_in_use(self));
    struct core_session *dropped = *session;
    *session = self->session = NULL; /* before other threads run */
    core_session_unref(dropped);
}
