/* Threads that the library starts. Signals are the application's: all are blocked in our threads,
 * so that none is delivered to them and the application's own threads see every one. */
#ifndef RG_RUNTIME_THREAD_H
#define RG_RUNTIME_THREAD_H

#include "runtime/base.h"

#include <pthread.h>

/* Starts main(context) on a thread with all signals blocked; the caller's own mask stays. It must
 * be joined or detached. stack_size 0: the system's default. 0, or the negative errno of
 * pthread_create. */
int rg_thread_start(pthread_t *out_thread, size_t stack_size, void *(*main)(void *context),
                    void *context);

/* For how long the calling thread, since it began, could have run but had no CPU. Costs some
 * microseconds. 0 where the kernel does not tell (/proc is not mounted, a sandbox). */
uint64_t rg_thread_waited_ns(void);

#endif
