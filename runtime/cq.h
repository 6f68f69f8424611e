/* The inner side of a completion queue (the outer side is in <ringest/runtime.h>).
 *
 * A submit function reserves a slot before it accepts a request; the event loop that finishes the
 * request publishes its record into that slot. So publishing always finds room and never waits. */
#ifndef RG_RUNTIME_CQ_H
#define RG_RUNTIME_CQ_H

#include "runtime/base.h"

#include <ringest/runtime.h>

/* 0, or -EOWNERDEAD in a child of the process that opened the runtime. Defined where runtimes are.
 */
int rg_runtime_check(const struct rg_runtime *runtime);
/* A thread has slept so long for completions. Any thread; defined there, too. */
void rg_runtime_waited(struct rg_runtime *runtime, uint64_t ns);

/* Reserves up to `count` slots; each is to be published into or unreserved. Returns how many:
 * fewer, possibly 0, when the queue is full; -EOWNERDEAD in a forked child. Any thread. */
int rg_cq_reserve(struct rg_cq *cq, uint32_t count);
void rg_cq_unreserve(struct rg_cq *cq, uint32_t count);

/* A quarter of the queue is free at most: who holds slots until the program does something else
 * must give them back by himself. */
bool rg_cq_is_scarce(const struct rg_cq *cq);

/* Who has records for a queue without having reserved slots for all of them, and is told when one
 * of them is taken off: a reader of a dataset. Its records have its address as sample_index, and in
 * sample_number what it likes. Calls come from threads that take off or unreserve. */
enum rg_cq_source_state {
    RG_CQ_SOURCE_AWAY = 0, /* not attached, or its last record was taken off */
    RG_CQ_SOURCE_FLOWING,  /* records of it are on their way */
    RG_CQ_SOURCE_RESTING,  /* nothing comes before something is taken off */
};
struct rg_cq_source {
    struct rg_list node; /* in the queue's list, while attached */
    enum rg_cq_source_state state;
    /* This thread has taken these records of the source's off. It replaces both words. Also after
     * the source was detached. */
    void (*took)(struct rg_cq_source *source, struct rg_completion *records, uint32_t count);
    /* There may be slots for which rg_cq_source_reserve failed, or a thread is about to sleep: what
     * is kept is to be delivered. Must not wait. */
    void (*has_room)(struct rg_cq_source *source);
};
/* It flows at first. After rg_cq_detach, which it has to be AWAY for, has_room is not called any
 * more. Both may wait. */
void rg_cq_attach(struct rg_cq *cq, struct rg_cq_source *source);
void rg_cq_detach(struct rg_cq *cq, struct rg_cq_source *source);
/* When all sources rest or are AWAY, no thread waits for more than is there or was reserved by
 * requests. One thread at a time for each source, which must be attached. */
void rg_cq_source_become(struct rg_cq *cq, struct rg_cq_source *source,
                         enum rg_cq_source_state state);
/* Like rg_cq_reserve, but leaves a quarter of the queue to requests: one slot of two, none of one.
 * With 0, all sources are told when there are slots. */
int rg_cq_source_reserve(struct rg_cq *cq, uint32_t count);
/* A thread waits in rg_cq_wait, or for the descriptor. */
bool rg_cq_is_awaited(struct rg_cq *cq);
/* Whether a source may keep `count` records for now, since they end no wait and something else is
 * there. If so its has_room is called before a thread sleeps that has not told its need yet. */
bool rg_cq_source_keeps(struct rg_cq *cq, uint64_t count);

/* Copies the records into reserved slots, one after the other, and wakes who waits. The queue may
 * be closed as soon as the last of them has been taken off, even before this returns. Any thread.
 */
void rg_cq_publish(struct rg_cq *cq, const struct rg_completion *records, uint32_t count);

/* From rg_cq_listen on, `published` is called by each thread that has published, with the number of
 * records that were published since the queue was opened; what was published before is for the
 * caller to take. Must not wait. Borrowed until the queue is closed, which waits for calls that are
 * going on. */
struct rg_cq_listener {
    void (*published)(struct rg_cq_listener *listener, uint64_t count);
};
/* That number. */
uint64_t rg_cq_published(const struct rg_cq *cq);
void rg_cq_listen(struct rg_cq *cq, struct rg_cq_listener *listener);

#endif
