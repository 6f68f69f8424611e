/* Reading the clock. It cannot fail, and on usual machines it makes no system call. */
#include "runtime/clock.h"

uint64_t rg_now_ns(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_MONOTONIC, &now);
    RG_ASSERT(rc == 0);
    return (uint64_t)now.tv_sec * RG_NS_PER_S + (uint64_t)now.tv_nsec;
}
