/* The library's log: off unless the program or RINGEST_LOG=error|warn|info|debug asks for it.
 *
 * One line on standard error for each call, in one write(), so that lines of several threads and
 * processes do not mix:
 *
 *     2026-07-01T12:00:00.123456Z ringest warn [4711] io_uring is not permitted here, using epoll
 *
 * Nothing is allocated, errno is kept, and a closed pipe raises no SIGPIPE. Control characters,
 * which may come from a peer, are replaced; what exceeds RG_LOG_LINE_SIZE_MAX is cut off.
 *
 * Callers never pass anything secret: no token, no key, no Authorization header, no signed URL. The
 * log cannot know one from another. */
#ifndef RG_RUNTIME_LOG_H
#define RG_RUNTIME_LOG_H

#include "runtime/base.h"

#include <ringest/runtime.h>

#include <stdatomic.h>

/* Bytes of a line, its newline included. At most PIPE_BUF, so that a pipe takes a line whole. */
#define RG_LOG_LINE_SIZE_MAX 1024

/* Sets what is logged, for the whole process. RG_LOG_DEFAULT takes RINGEST_LOG; where that is unset
 * or empty it leaves the level as another runtime of the process has set it, and off otherwise. A
 * RINGEST_LOG that is no level is reported once, on standard error, and means off. */
void rg_log_configure(enum rg_log_level level);

/* printf-like, without a newline at the end: rg_log(RG_LOG_WARN, "%s: %s", host, text). The level
 * is RG_LOG_ERROR to RG_LOG_DEBUG. The arguments are evaluated only if the line is written. */
#define rg_log(level, ...)                                                                         \
    do {                                                                                           \
        if (RG_UNLIKELY(rg_log_enabled(level))) {                                                  \
            rg_log_write(level, __VA_ARGS__);                                                      \
        }                                                                                          \
    } while (0)

/* The least important level that is written; 0 writes nothing. */
extern _Atomic int rg_log_threshold;

static inline bool rg_log_enabled(enum rg_log_level level)
{
    return (int)level <= atomic_load_explicit(&rg_log_threshold, memory_order_relaxed);
}

__attribute__((cold)) void rg_log_write(enum rg_log_level level, const char *format, ...)
    RG_PRINTF(2, 3);

#endif
