/* See thread.h. */
#include "runtime/thread.h"

#include <limits.h>
#include <signal.h>
#include <unistd.h>

int rg_thread_start(pthread_t *out_thread, size_t stack_size, void *(*main)(void *context),
                    void *context)
{
    RG_ASSERT(main != NULL);
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    RG_ASSERT(error == 0);
    if (stack_size != 0) {
        /* What a thread needs at least: 16 KiB on x86-64, 128 KiB on aarch64, and more where the
         * processor's registers are large (sysconf(3)). */
        size_t least = (size_t)RG_MAX(sysconf(_SC_THREAD_STACK_MIN), (long)PTHREAD_STACK_MIN);
        error = pthread_attr_setstacksize(&attributes, RG_MAX(stack_size, least));
        RG_ASSERT(error == 0);
    }
    /* A thread begins with the mask of the one that starts it. Blocking them in the new thread
     * instead would leave a moment in which a signal may be delivered there. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    error = pthread_create(&thread, &attributes, main, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error == 0) {
        *out_thread = thread;
    }
    return -error;
}
