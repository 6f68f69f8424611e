/* The library's log on its way to Python's. The library's threads write lines into a ring and never
 * wait for the interpreter; a thread of ringest._log takes them out. What comes while the ring is
 * full is counted. */
#include "core.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LINES 256
#define PLACE_SIZE 64
#define TEXT_SIZE 1024

struct line {
    enum rg_log_level level;
    char place[PLACE_SIZE], text[TEXT_SIZE];
};

/* Invariant, under the mutex: `count` lines from `first` on, in the order in which they came. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct line lines[LINES];
    unsigned first, count, dropped;
    bool is_ended;
} ring = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void ring_put(enum rg_log_level level, const char *place, const char *text)
{
    pthread_mutex_lock(&ring.mutex);
    if (ring.count == LINES) {
        ring.dropped++;
    } else {
        struct line *line = &ring.lines[(ring.first + ring.count) % LINES];
        line->level = level;
        snprintf(line->place, sizeof(line->place), "%s", place);
        snprintf(line->text, sizeof(line->text), "%s", text);
        ring.count++;
        pthread_cond_signal(&ring.changed);
    }
    pthread_mutex_unlock(&ring.mutex);
}

/* False: there is none, and there will be none. */
static bool ring_take(struct line *out_line, unsigned *out_dropped)
{
    pthread_mutex_lock(&ring.mutex);
    while (ring.count == 0 && !ring.is_ended) {
        pthread_cond_wait(&ring.changed, &ring.mutex);
    }
    bool has_line = ring.count > 0;
    if (has_line) {
        *out_line = ring.lines[ring.first];
        *out_dropped = ring.dropped;
        ring.first = (ring.first + 1) % LINES;
        ring.count--;
        ring.dropped = 0;
    }
    pthread_mutex_unlock(&ring.mutex);
    return has_line;
}

PyObject *core_log_begin(PyObject *module, PyObject *level)
{
    (void)module;
    uint32_t value = 0;
    if (!core_number32(level, "level", RG_LOG_ERROR, RG_LOG_OFF, &value)) {
        return NULL;
    }
    pthread_mutex_lock(&ring.mutex);
    ring.is_ended = false;
    pthread_mutex_unlock(&ring.mutex);
    (void)rg_log_to((enum rg_log_level)value, ring_put);
    Py_RETURN_NONE;
}

PyObject *core_log_end(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    (void)rg_log_to(RG_LOG_OFF, NULL);
    pthread_mutex_lock(&ring.mutex);
    ring.is_ended = true;
    pthread_cond_broadcast(&ring.changed);
    pthread_mutex_unlock(&ring.mutex);
    Py_RETURN_NONE;
}

PyObject *core_log_forget(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    pthread_mutex_init(&ring.mutex, NULL);
    pthread_cond_init(&ring.changed, NULL);
    ring.first = ring.count = ring.dropped = 0;
    (void)rg_log_to(RG_LOG_OFF, NULL);
    Py_RETURN_NONE;
}

PyObject *core_log_take(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    struct line line;
    unsigned dropped;
    bool has_line;
    Py_BEGIN_ALLOW_THREADS has_line = ring_take(&line, &dropped);
    Py_END_ALLOW_THREADS if (!has_line)
    {
        Py_RETURN_NONE;
    }
    PyObject *text = PyUnicode_DecodeUTF8(line.text, (Py_ssize_t)strlen(line.text), "replace");
    return text != NULL ? Py_BuildValue("isNI", (int)line.level, line.place, text, dropped) : NULL;
}
