/* The fork generation and the list of hooks: one of each per process, for as long as it lives.
 *
 * The lock is held across fork() (taken by the prepare handler, given up by the parent and the
 * child handler), so the child finds the list whole and the lock its own. */
#include "runtime/fork.h"

#include <errno.h>
#include <pthread.h>

_Atomic uint32_t rg_fork_count;

static struct {
    pthread_mutex_t lock;
    struct rg_list hooks;
    void (*first)(void); /* before the hooks; NULL: nothing */
} shared = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .hooks = {&shared.hooks, &shared.hooks},
};

static void lock_shared(void)
{
    int error = pthread_mutex_lock(&shared.lock);
    RG_ASSERT(error == 0);
}

static void unlock_shared(void)
{
    int error = pthread_mutex_unlock(&shared.lock);
    RG_ASSERT(error == 0);
}

static void become_child(void)
{
    atomic_fetch_add_explicit(&rg_fork_count, 1, memory_order_relaxed);
    if (shared.first != NULL) {
        shared.first();
    }
    struct rg_list *node;
    while ((node = rg_list_pop_front(&shared.hooks)) != NULL) {
        struct rg_fork_hook *hook = RG_CONTAINER_OF(node, struct rg_fork_hook, node);
        hook->child(hook);
    }
    unlock_shared();
}

/* The C library keeps its own lock while a fork runs handlers, and takes it in pthread_atfork. That
 * is no lock cycle: until the handlers are installed a fork does not ask for our lock. */
static int watch_locked(void)
{
    if (atomic_load_explicit(&rg_fork_count, memory_order_relaxed) != 0) {
        return 0;
    }
    int error = pthread_atfork(lock_shared, unlock_shared, become_child);
    if (error != 0) {
        RG_ASSERT(error == ENOMEM);
        return -ENOMEM;
    }
    atomic_store_explicit(&rg_fork_count, 1, memory_order_relaxed);
    return 0;
}

uint32_t rg_fork_watch(void)
{
    lock_shared();
    int error = watch_locked();
    unlock_shared();
    uint32_t now = atomic_load_explicit(&rg_fork_count, memory_order_relaxed);
    RG_ASSERT((now == 0) == (error != 0));
    return now;
}

int rg_fork_hook_add(struct rg_fork_hook *hook)
{
    RG_ASSERT(hook->child != NULL);
    lock_shared();
    int error = watch_locked();
    if (error == 0) {
        rg_list_push_back(&shared.hooks, &hook->node);
    }
    unlock_shared();
    return error;
}

void rg_fork_hold(void)
{
    lock_shared();
    (void)watch_locked();
}

void rg_fork_set_first(void (*run)(void))
{
    RG_ASSERT(shared.first == NULL || shared.first == run);
    shared.first = run;
}

void rg_fork_release(void)
{
    unlock_shared();
}

void rg_fork_hook_remove(struct rg_fork_hook *hook)
{
    lock_shared();
    rg_list_remove(&hook->node);
    unlock_shared();
    RG_ASSERT(!rg_list_linked(&hook->node));
}
