/* The steps of an iteration: see steps.h. */
#include "steps.h"

#include <string.h>

static const char *const state_names[] = {"AWAY", "INSIDE", "ASLEEP"};

/* The only place that changes the state. */
static void steps_become(struct core_steps *self, enum core_steps_state state)
{
    bool is_allowed = state == CORE_STEPS_INSIDE ? self->state != CORE_STEPS_INSIDE
                                                 : self->state == CORE_STEPS_INSIDE;
    if (!is_allowed) {
        core_state_fail("iteration's steps", state_names[self->state], state_names[state]);
    }
    self->state = state;
}

void core_steps_enter(struct core_steps *self, struct rg_reader *reader)
{
    if (self->state == CORE_STEPS_AWAY) {
        self->entered_ns = rg_now_ns();
    } else if (reader != NULL) {
        rg_reader_sleep(reader, false);
    }
    steps_become(self, CORE_STEPS_INSIDE);
}

void core_steps_sleep(struct core_steps *self, struct rg_reader *reader)
{
    if (reader != NULL) {
        rg_reader_sleep(reader, true);
    }
    steps_become(self, CORE_STEPS_ASLEEP);
}

static void step_add(struct core_steps *self, const struct rg_reader *reader, uint64_t now_ns)
{
    struct core_step *step = &self->ring[self->count++ % CORE_STEPS_MAX];
    uint64_t slept_ns[RG_STAGE_COUNT];
    memcpy(slept_ns, self->slept_ns, sizeof(slept_ns));
    if (reader != NULL) {
        rg_reader_waited(reader, slept_ns, RG_STAGE_COUNT);
    }
    step->away_ns = self->left_ns != 0 ? self->entered_ns - self->left_ns : 0;
    step->inside_ns = now_ns - self->entered_ns;
    for (unsigned i = 0; i < RG_STAGE_COUNT; i++) {
        step->slept_ns[i] = slept_ns[i] - self->slept_ns[i];
    }
    memcpy(self->slept_ns, slept_ns, sizeof(slept_ns));
}

void core_steps_leave(struct core_steps *self, const struct rg_reader *reader, bool has_value)
{
    uint64_t now_ns = rg_now_ns();
    if (self->ring == NULL && has_value) {
        self->ring = PyMem_Calloc(CORE_STEPS_MAX, sizeof(*self->ring));
    }
    if (has_value && self->ring != NULL) {
        step_add(self, reader, now_ns);
    }
    self->left_ns = now_ns;
    steps_become(self, CORE_STEPS_AWAY);
}

void core_steps_fini(struct core_steps *self)
{
    PyMem_Free(self->ring);
    self->ring = NULL;
}

static PyObject *slept_tuple(const uint64_t slept_ns[RG_STAGE_COUNT])
{
    PyObject *tuple = PyTuple_New(RG_STAGE_COUNT);
    for (Py_ssize_t i = 0; tuple != NULL && i < RG_STAGE_COUNT; i++) {
        /* What one step could not explain, the next one may: then its share is below 0. */
        PyObject *number = PyLong_FromLongLong((long long)slept_ns[i]);
        if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

PyObject *core_steps_sum(const struct core_steps *self, uint64_t max)
{
    struct core_step sum = {0};
    uint64_t kept = self->count < CORE_STEPS_MAX ? self->count : CORE_STEPS_MAX;
    uint64_t count = max < kept ? max : kept;
    for (uint64_t i = self->count - count; i < self->count; i++) {
        const struct core_step *step = &self->ring[i % CORE_STEPS_MAX];
        sum.away_ns += step->away_ns;
        sum.inside_ns += step->inside_ns;
        for (unsigned stage = 0; stage < RG_STAGE_COUNT; stage++) {
            sum.slept_ns[stage] += step->slept_ns[stage];
        }
    }
    PyObject *slept = slept_tuple(sum.slept_ns);
    return slept == NULL
               ? NULL
               : Py_BuildValue("(KKKN)", (unsigned long long)count, (unsigned long long)sum.away_ns,
                               (unsigned long long)sum.inside_ns, slept);
}
