/* Formatting and writing log lines: see log.h. The only state is the threshold. */
#include "runtime/log.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    ssize_t written;
    do {
        written = write(STDERR_FILENO, line->text, line->size);
    } while (written < 0 && errno == EINTR);

    if (written < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE)) {
        while (sigtimedwait(&pipe_set, NULL, &(struct timespec){0}) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &old_set, NULL);
}

void rg_log_write(enum rg_log_level level, const char *format, ...)
{
    RG_ASSERT(level >= RG_LOG_ERROR);
    RG_ASSERT(level <= RG_LOG_DEBUG);
    int saved_errno = errno;
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);

    struct line line;
    line.size = strftime(line.text, sizeof(line.text), "%Y-%m-%dT%H:%M:%S", &utc);
    line_print(&line, ".%06ldZ ringest %s [%d] ", now.tv_nsec / 1000, level_names[level],
               (int)gettid());
    va_list args;
    va_start(args, format);
    line_append(&line, format, args);
    va_end(args);
    line_write(&line);
    errno = saved_errno;
}

static void threshold_store(int level)
{
    RG_ASSERT(level >= 0);
    RG_ASSERT(level <= RG_LOG_DEBUG);
    atomic_store_explicit(&rg_log_threshold, level, memory_order_relaxed);
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
    line_print(&line,
               "ringest: RINGEST_LOG is \"%.*s\", which is none of error, warn, info, debug: "
               "logging is off",
               BAD_VALUE_SIZE_MAX, value);
    line_write(&line);
    errno = saved_errno;
}

static void environment_apply(void)
{
    const char *value = getenv("RINGEST_LOG");
    if (value == NULL || *value == '\0') {
        return;
    }
    for (int level = RG_LOG_ERROR; level <= RG_LOG_DEBUG; level++) {
        if (strcmp(value, level_names[level]) == 0) {
            threshold_store(level);
            return;
        }
    }
    threshold_store(0);
    bad_value_report(value);
}

void rg_log_configure(enum rg_log_level level)
{
    RG_ASSERT((int)level >= RG_LOG_DEFAULT);
    RG_ASSERT(level <= RG_LOG_OFF);
    if (level == RG_LOG_DEFAULT) {
        environment_apply();
    } else {
        threshold_store(level == RG_LOG_OFF ? 0 : (int)level);
    }
}
