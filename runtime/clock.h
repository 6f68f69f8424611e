/* The one clock of the library: CLOCK_MONOTONIC in nanoseconds, read by rg_now_ns (public). */
#ifndef RG_RUNTIME_CLOCK_H
#define RG_RUNTIME_CLOCK_H

#include "runtime/base.h"

#include <ringest/runtime.h>
#include <time.h>

/* RG_FOREVER becomes a time some 584 years after boot, which the kernel takes for one that never
 * comes; no special case is needed for it. */
static inline struct timespec rg_timespec_from_ns(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / RG_NS_PER_S),
                             .tv_nsec = (long)(ns % RG_NS_PER_S)};
}

#endif
