/* The time of day, and generations made of it. */
#ifndef RG_EMULATOR_STORE_MODEL_CLOCK_H
#define RG_EMULATOR_STORE_MODEL_CLOCK_H

#include "runtime/base.h"

#include <stdatomic.h>

/* Microseconds since 1970. */
int64_t rg_store_now_us(void);
/* A generation that nobody else has: the time, or one more than *last, which becomes it. Any
 * thread. */
int64_t rg_store_next_generation(_Atomic int64_t *last);

#endif
