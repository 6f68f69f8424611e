/* What a forked child does about the descriptors and handles of its parent.
 *
 * A child has the parent's memory but none of its event loops. Every handle of this library notes
 * the generation it was opened in; a different one means that this process is a child, and the
 * handle's functions return -EOWNERDEAD. Descriptors would keep the parent's connections alive:
 * those of the library are closed in the child (runtime/descriptor.h), before any hook runs.
 *
 * Only fork() counts. A child made by vfork() or posix_spawn() execs at once and runs no handlers.
 */
#ifndef RG_RUNTIME_FORK_H
#define RG_RUNTIME_FORK_H

#include "runtime/base.h"

#include <stdatomic.h>

/* Embedded in its owner, which stays alive until the hook is removed. */
struct rg_fork_hook {
    struct rg_list node;
    void (*child)(struct rg_fork_hook *hook);
};

/* 0 until forks are watched for. Relaxed: it changes only in a child's single thread. Written by
 * fork.c alone. */
extern _Atomic uint32_t rg_fork_count;
/* Begins to watch for forks, and returns the generation. */
uint32_t rg_fork_watch(void);

/* A number that differs between a process and its descendants. Never 0 unless the system has no
 * memory to watch for forks, in which case whatever is being opened fails with -ENOMEM. Any thread;
 * after the first call one relaxed load. */
static inline uint32_t rg_fork_generation(void)
{
    uint32_t now = atomic_load_explicit(&rg_fork_count, memory_order_relaxed);
    return RG_LIKELY(now != 0) ? now : rg_fork_watch();
}

/* From now on hook->child runs in a child of this process: in its only thread, before fork()
 * returns there, and under the lock of this module, so that it may call async-signal-safe functions
 * only and no function of this header but rg_fork_generation, which already gives the child's
 * number. Whatever other threads were doing to the hook's owner stays half done. A hook runs once:
 * the child has it no more, so that grandchildren do not run it again. 0 or -ENOMEM. Any thread. */
int rg_fork_hook_add(struct rg_fork_hook *hook);

/* Harmless for a hook that is zeroed or was removed, and in a child. Any thread. */
void rg_fork_hook_remove(struct rg_fork_hook *hook);

/* `run` comes before any hook in every child from now on; async-signal-safe. The same one every
 * time: it is runtime/descriptor.c's. Held. */
void rg_fork_set_first(void (*run)(void));

/* Between the two no fork() takes place: for what must not be seen half done by a child. Short, not
 * nested, without waiting for another thread; and nothing else of this header in between. Any
 * thread. */
void rg_fork_hold(void);
void rg_fork_release(void);

#endif
