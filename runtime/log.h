/* The library's log: off unless the program or RINGEST_LOG=error|warn|info|debug asks for it.
 *
 * One line on standard error for each call, in one write(), so that lines of several threads and
 * processes do not mix: time, level, place in the sources, thread, text.
 *
 *     2026-07-01T12:00:00.123456Z ringest warn runtime/runtime [4711] using epoll: io_uring is ...
 *
 * Nothing is allocated, errno is kept, and a closed pipe raises no SIGPIPE. Control characters,
 * which may come from a peer, are replaced; what exceeds RG_LOG_LINE_SIZE_MAX is cut off.
 *
 * The levels: error, what a program asked for cannot be had; warn, something works, but worse than
 * it should; info, what an operator wants to know of a job, a few lines; debug, each request and
 * connection. What may come often at info or above is rg_log_some.
 *
 * Callers never pass anything secret: no token, no key, no Authorization header, no signed URL, no
 * upload session. The log cannot know one from another. */
#ifndef RG_RUNTIME_LOG_H
#define RG_RUNTIME_LOG_H

#include "runtime/base.h"

#include <ringest/runtime.h>

#include <stdatomic.h>

/* Bytes of a line, its newline included. At most PIPE_BUF, so that a pipe takes a line whole. */
#define RG_LOG_LINE_SIZE_MAX 1024
/* One rg_log_some writes at most RG_LOG_SOME_LINES lines in RG_LOG_SOME_NS. */
#define RG_LOG_SOME_LINES 5
#define RG_LOG_SOME_NS (10 * RG_NS_PER_S)

/* Sets what is written to standard error, for the whole process. RG_LOG_DEFAULT takes RINGEST_LOG;
 * where that is unset or empty it leaves the level as another runtime of the process has set it,
 * and off otherwise. -EINVAL: RINGEST_LOG is no level; a line on standard error says so, once. */
int rg_log_configure(enum rg_log_level level);

/* What each line on standard error is preceded by: a program that keeps a line of its own at the
 * foot of a terminal clears it so. A constant; NULL: nothing. */
void rg_log_precede(const char *text);

/* printf-like, without a newline at the end: rg_log(RG_LOG_WARN, "%s: %s", host, text). The level
 * is RG_LOG_ERROR to RG_LOG_DEBUG. The arguments are evaluated only if the line is written. */
#define rg_log(level, ...)                                                                         \
    do {                                                                                           \
        if (RG_UNLIKELY(rg_log_enabled(level))) {                                                  \
            rg_log_write(level, __FILE__, __VA_ARGS__);                                            \
        }                                                                                          \
    } while (0)

/* The same for what may come often: RG_LOG_SOME_LINES lines in RG_LOG_SOME_NS. The next line says
 * how many were left out. At debug all are written. */
#define rg_log_some(level, ...)                                                                    \
    do {                                                                                           \
        static struct rg_log_some some_;                                                           \
        if (RG_UNLIKELY(rg_log_enabled(level)) && rg_log_some_allow(&some_, level, __FILE__)) {    \
            rg_log_write(level, __FILE__, __VA_ARGS__);                                            \
        }                                                                                          \
    } while (0)

/* How much one place in the sources has written. All zero at first. */
struct rg_log_some {
    _Atomic uint64_t window; /* which RG_LOG_SOME_NS of the clock the counts are of */
    _Atomic uint32_t written, left_out;
};

/* The least important level that is written anywhere; 0: none is. */
extern _Atomic int rg_log_threshold;

static inline bool rg_log_enabled(enum rg_log_level level)
{
    return (int)level <= atomic_load_explicit(&rg_log_threshold, memory_order_relaxed);
}

__attribute__((cold)) void rg_log_write(enum rg_log_level level, const char *file,
                                        const char *format, ...) RG_PRINTF(3, 4);
__attribute__((cold)) bool rg_log_some_allow(struct rg_log_some *some, enum rg_log_level level,
                                             const char *file);

#endif
