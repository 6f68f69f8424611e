/* See clock.h. */
#include "emulator/store/model/clock.h"

#include <time.h>

int64_t rg_store_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t rg_store_next_generation(_Atomic int64_t *last)
{
    int64_t now = rg_store_now_us();
    int64_t before = atomic_load(last), next;
    do {
        next = RG_MAX(now, before + 1);
    } while (!atomic_compare_exchange_weak(last, &before, next));
    RG_ASSERT(next > before);
    return next;
}
