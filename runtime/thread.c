/* See thread.h. */
#include "runtime/thread.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
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

/* Three numbers: time on a CPU, time in a CPU's queue, both in ns, and how often it ran (Linux,
 * scheduler/sched-stats.rst). */
uint64_t rg_thread_waited_ns(void)
{
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    char text[96];
    uint64_t waited_ns = 0;
    ssize_t size = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[RG_MAX(size, (ssize_t)0)] = '\0';
    return sscanf(text, "%*u %" SCNu64, &waited_ns) == 1 ? waited_ns : 0;
}
