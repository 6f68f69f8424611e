/* See baton.h.
 *
 * No word is lost. Leaving word and looking for it after the lock was let go are both changes of
 * `due`, so one of them comes first. If it is the word, the look finds it. Otherwise the change
 * that leaves word has seen the look, and with it that the lock was let go: the lock is free then,
 * or was taken by another thread since, whose own look is still to come. */
#include "runtime/baton.h"

void rg_baton_init(struct rg_baton *baton, void (*work)(void *context), void *context)
{
    pthread_mutex_init(&baton->lock, NULL);
    atomic_init(&baton->due, 0);
    baton->work = work;
    baton->context = context;
}

void rg_baton_fini(struct rg_baton *baton)
{
    RG_ASSERT(atomic_load(&baton->due) == 0);
    pthread_mutex_destroy(&baton->lock);
}

/* A change even where it is 0: see above. */
static bool is_due(struct rg_baton *baton)
{
    return atomic_fetch_or(&baton->due, 0) != 0;
}

static void due_work(struct rg_baton *baton)
{
    do {
        if (pthread_mutex_trylock(&baton->lock) != 0) {
            return;
        }
        while (atomic_exchange(&baton->due, 0) != 0) {
            baton->work(baton->context);
        }
        pthread_mutex_unlock(&baton->lock);
    } while (is_due(baton));
}

void rg_baton_pass(struct rg_baton *baton)
{
    (void)atomic_exchange(&baton->due, 1);
    due_work(baton);
}

void rg_baton_take(struct rg_baton *baton)
{
    pthread_mutex_lock(&baton->lock);
}

void rg_baton_give(struct rg_baton *baton)
{
    pthread_mutex_unlock(&baton->lock);
    if (is_due(baton)) {
        due_work(baton);
    }
}
