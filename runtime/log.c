/* Formatting and writing log lines: see log.h. The only state is who takes which lines. */
#include "runtime/log.h"

#include "runtime/timer.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static_assert(RG_LOG_LINE_SIZE_MAX <= PIPE_BUF, "a pipe takes a line whole");

/* How much of a bad RINGEST_LOG is shown. */
#define BAD_VALUE_SIZE_MAX 32

static const char *const level_names[] = {
    [RG_LOG_ERROR] = "error",
    [RG_LOG_WARN] = "warn",
    [RG_LOG_INFO] = "info",
    [RG_LOG_DEBUG] = "debug",
};

_Atomic int rg_log_threshold;

/* Its parts: what goes to standard error, and what the program's own function takes. */
static _Atomic int stderr_threshold, sink_threshold;
static _Atomic rg_log_sink log_sink;
static _Atomic(const char *) preceding;

struct line {
    size_t size;
    char text[RG_LOG_LINE_SIZE_MAX];
};

/* Text that does not fit is cut off; the last byte is kept for the newline. */
static void line_append(struct line *line, const char *format, va_list args)
{
    RG_ASSERT(line->size < sizeof(line->text));
    size_t room = sizeof(line->text) - line->size;
    int wanted = vsnprintf(line->text + line->size, room, format, args);
    if (wanted > 0) {
        line->size += RG_MIN((size_t)wanted, room - 1);
    }
    RG_ASSERT(line->size < sizeof(line->text));
}

RG_PRINTF(2, 3) static void line_print(struct line *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    line_append(line, format, args);
    va_end(args);
}

/* Text of a peer must not be able to start a line of its own or to drive a terminal. */
static void line_sanitize(struct line *line)
{
    RG_ASSERT(line->size <= sizeof(line->text));
    for (size_t i = 0; i < line->size; i++) {
        unsigned char c = (unsigned char)line->text[i];
        if (c < 0x20 || c == 0x7f) {
            line->text[i] = '?';
        }
    }
}

/* Writes the line with SIGPIPE blocked in this thread; one that our write raised is taken away
 * again, so that the program never sees it. A line that cannot be written is lost: there is nobody
 * to tell. */
static void line_write(struct line *line)
{
    sigset_t pipe_set, old_set, pending;
    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &old_set);

    line_sanitize(line);
    RG_ASSERT(line->size < sizeof(line->text));
    line->text[line->size++] = '\n';
    const char *before = atomic_load(&preceding);
    struct iovec pieces[] = {
        {.iov_base = (char *)(uintptr_t)before, .iov_len = before != NULL ? strlen(before) : 0},
        {.iov_base = line->text, .iov_len = line->size}};
    ssize_t written;
    do {
        written = writev(STDERR_FILENO, pieces, RG_ARRAY_LEN(pieces));
    } while (written < 0 && errno == EINTR);

    if (written < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE)) {
        while (sigtimedwait(&pipe_set, NULL, &(struct timespec){0}) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &old_set, NULL);
}

/* "http/pool" of "../../http/pool.c": this file's own name says how long what comes before is. */
static void place_print(struct line *line, const char *file)
{
    const size_t above = sizeof(__FILE__) - sizeof("runtime/log.c");
    const char *place = strlen(file) > above ? file + above : file;
    const char *dot = strrchr(place, '.');
    line_print(line, "%.*s", dot != NULL ? (int)(dot - place) : (int)strlen(place), place);
}

/* "2026-07-01T12:00:00.123456Z ringest warn http/pool [4711] ", before what is there. */
static void stderr_write(enum rg_log_level level, const struct line *place, const struct line *text)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    struct line line;
    line.size = strftime(line.text, sizeof(line.text), "%Y-%m-%dT%H:%M:%S", &utc);
    line_print(&line, ".%06ldZ ringest %s %s [%d] %s", now.tv_nsec / 1000, level_names[level],
               place->text, (int)syscall(SYS_gettid), text->text);
    line_write(&line);
}

void rg_log_precede(const char *text)
{
    atomic_store(&preceding, text);
}

static bool takes(const _Atomic int *threshold, enum rg_log_level level)
{
    return (int)level <= atomic_load_explicit(threshold, memory_order_relaxed);
}

static void tell(enum rg_log_level level, const char *file, const struct line *text)
{
    struct line place = {.size = 0, .text = ""};
    place_print(&place, file);
    if (takes(&stderr_threshold, level)) {
        stderr_write(level, &place, text);
    }
    rg_log_sink sink = atomic_load(&log_sink);
    if (sink != NULL && takes(&sink_threshold, level)) {
        sink(level, place.text, text->text);
    }
}

void rg_log_write(enum rg_log_level level, const char *file, const char *format, ...)
{
    RG_ASSERT(level >= RG_LOG_ERROR);
    RG_ASSERT(level <= RG_LOG_DEBUG);
    int saved_errno = errno;
    struct line text = {.size = 0, .text = ""};
    va_list args;
    va_start(args, format);
    line_append(&text, format, args);
    va_end(args);
    line_sanitize(&text);
    tell(level, file, &text);
    errno = saved_errno;
}

bool rg_log_some_allow(struct rg_log_some *some, enum rg_log_level level, const char *file)
{
    if (rg_log_enabled(RG_LOG_DEBUG)) {
        return true;
    }
    uint64_t window = 1 + rg_now_ns() / RG_LOG_SOME_NS;
    if (atomic_exchange_explicit(&some->window, window, memory_order_relaxed) != window) {
        atomic_store_explicit(&some->written, 0, memory_order_relaxed);
        uint32_t left_out = atomic_exchange_explicit(&some->left_out, 0, memory_order_relaxed);
        if (left_out > 0) {
            rg_log_write(level, file, "%u lines like the next one were left out", left_out);
        }
    }
    if (atomic_fetch_add_explicit(&some->written, 1, memory_order_relaxed) < RG_LOG_SOME_LINES) {
        return true;
    }
    atomic_fetch_add_explicit(&some->left_out, 1, memory_order_relaxed);
    return false;
}

static void threshold_store(_Atomic int *threshold, int level)
{
    RG_ASSERT(level >= 0);
    RG_ASSERT(level <= RG_LOG_DEBUG);
    atomic_store(threshold, level);
    int to_stderr = atomic_load(&stderr_threshold), to_sink = atomic_load(&sink_threshold);
    atomic_store_explicit(&rg_log_threshold, RG_MAX(to_stderr, to_sink), memory_order_relaxed);
}

static void bad_value_report(const char *value)
{
    RG_ASSERT(value != NULL);
    static atomic_flag is_reported = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&is_reported)) {
        return;
    }
    int saved_errno = errno;
    struct line line = {.size = 0};
    line_print(
        &line,
        "ringest: RINGEST_LOG is \"%.*s\", which is no level: use error, warn, info or debug",
        BAD_VALUE_SIZE_MAX, value);
    line_write(&line);
    errno = saved_errno;
}

static int environment_apply(void)
{
    const char *value = getenv("RINGEST_LOG");
    if (value == NULL || *value == '\0') {
        return 0;
    }
    for (int level = RG_LOG_ERROR; level <= RG_LOG_DEBUG; level++) {
        if (strcmp(value, level_names[level]) == 0) {
            threshold_store(&stderr_threshold, level);
            return 0;
        }
    }
    bad_value_report(value);
    return -EINVAL;
}

int rg_log_configure(enum rg_log_level level)
{
    RG_ASSERT((int)level >= RG_LOG_DEFAULT);
    RG_ASSERT(level <= RG_LOG_OFF);
    if (level == RG_LOG_DEFAULT) {
        return environment_apply();
    }
    threshold_store(&stderr_threshold, level == RG_LOG_OFF ? 0 : (int)level);
    return 0;
}

int rg_log_to(enum rg_log_level level, rg_log_sink sink)
{
    if ((int)level < RG_LOG_ERROR || level > RG_LOG_OFF) {
        return -EINVAL;
    }
    atomic_store(&log_sink, sink);
    threshold_store(&sink_threshold, level == RG_LOG_OFF || sink == NULL ? 0 : (int)level);
    return 0;
}
