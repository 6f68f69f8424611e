/* The completion queue: a bounded ring that any number of threads fill and empty, without a lock.
 *
 * Five counters, each of which only grows (but for `reserved` when slots are unreserved), say
 * everything. Slot `position % capacity` holds the record with that position.
 *
 *     head  <=  published  <=  tail  <=  reserved  <=  head + capacity
 *     taken     visible        claimed   promised
 *
 * Publishing claims positions (tail), copies the records, marks each slot with its position, and
 * adds to `published`. It looks for no room: tail <= reserved <= head + capacity is the room.
 *
 * Taking copies records out first and claims them after, by moving `head`. If another thread moved
 * it meanwhile the copy is thrown away; it may be torn, which is why records are copied as atomic
 * words. Thereby a slot is free at the instant in which its record is claimed, and a thread that is
 * suspended while it takes holds nothing up: neither other takers nor, what matters more, an event
 * loop.
 *
 * That a taker's copy happens before the next record is written to the slot: it is sequenced before
 * the release of `head`. Let X be the publish that writes position p + capacity, and Z the last, in
 * the order of `reserved`, of the reservations of X and of the publishes before it in the order of
 * `tail`. Their counts add up to more than p + capacity, so Z saw head > p, by an acquire. Z
 * happens before its publish, which happens before X (or is X), because `tail` is changed by
 * acquire-release.
 *
 * Sleeping (no wake-up is lost). A waiter (1) counts itself in `sleeping`, (2) reads `event`, (3)
 * puts the count of `published` that it needs into `wake_at` unless a lower one is there, (4) reads
 * `published` and looks again, (5) sleeps unless `event` has changed. A publisher (a) marks its
 * slots, (b) adds to `published`, (c) reads `wake_at`, and if that is reached (d) resets it, (e)
 * changes `event`, (f) wakes if there are sleepers. All of these but (a) are sequentially
 * consistent, so they have one order. If (c) comes before (3), then (b) comes before (4): the
 * waiter sees the count, and with it the marked slots. Otherwise (c) reads what the waiter needs or
 * less, and wakes it; or another publisher's (d) came between, whose (e) then comes after (2), so
 * that (5) does not sleep or is woken by (f). A count that is reached while an earlier position is
 * still being copied wakes too early; the waiter looks, sleeps again, and the publisher of that
 * position wakes it. `head` only grows, so a need computed from an old one also only wakes too
 * early. The last source that comes to rest or goes changes `present` before (e), so that a waiter
 * either sees that in (4) or is woken by (f). Whoever interrupts adds to `interruptions` before
 * (e), and a waiter takes one of them in (4). Each ends one wait: it stays until a waiter takes it,
 * and whoever looked before it was there does not sleep, or is woken with all others by (f), and
 * looks again. So nobody sleeps while one is left.
 *
 * One at a time. Where all who sleep need equally many records, (f) of a publisher wakes one of
 * them: several would come for what one can take. (d) has then forgotten what the others need. The
 * one that is woken takes records, and then does (3) and (4) for the others before it returns, or
 * goes back to (3), which stands for all of them. One that is counted but not asleep yet has read
 * `event` before (e), and does not sleep, or after it, and then its (3) comes after (d).
 *
 * The eventfd (no wake-up is lost). `signalled` is true from the write that made it readable until
 * a poll finds nothing, which clears it and then looks again. Either the publisher's (b) precedes
 * that second look, which finds the record, or the clearing precedes the publisher's reading of
 * `signalled`, and it writes.
 *
 * Sources (no free slot is lost). A source that finds no slot (1) sets WANTING and (2) looks at
 * `head` and `reserved` again. Whoever frees slots (a) moves one of these and (b) looks at
 * `source_bits`. All are sequentially consistent: if (b) does not find WANTING it comes before (1),
 * so that (2) finds the slots.
 *
 * What sources keep (no record is kept from who sleeps). A source that would keep what has come for
 * it (1) sets KEEPING and (2) looks at `wake_at` once more. A waiter (a) lowers `wake_at` and (b)
 * looks at `source_bits`, and has the sources deliver, which clears KEEPING first. If (2) does not
 * find what the waiter needs, then (1) comes before (b). */
#include "runtime/cq.h"

#include "runtime/baton.h"
#include "runtime/clock.h"
#include "runtime/descriptor.h"
#include "runtime/fork.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAPACITY_MAX (UINT32_C(1) << 20)
#define INTERRUPTIONS_MAX (UINT32_C(1) << 20)
#define RECORD_WORDS (sizeof(struct rg_completion) / sizeof(uint64_t))
static_assert(sizeof(struct rg_completion) % sizeof(uint64_t) == 0, "records are copied as words");

/* States of a queue's sources. */
#define SOURCED 1u /* there is or was one */
#define WANTING 2u /* one wants slots */
#define KEEPING 4u /* one keeps what has come for it until more has */

/* What those that sleep need is not the same. */
#define MIXED UINT32_MAX

/* `mark` is the position of the record plus one; 0, which is what the kernel fills new memory with,
 * means that there was none yet. */
struct slot {
    alignas(RG_CACHE_LINE) _Atomic uint64_t mark;
    _Atomic uint64_t words[RECORD_WORDS];
};

struct rg_cq {
    uint32_t capacity; /* a power of two */
    uint32_t fork_generation;
    struct rg_runtime *runtime; /* borrowed */
    size_t mapping_size;        /* this struct and the slots */
    struct rg_fork_hook fork_hook;
    struct rg_list source_list;   /* guarded by `feeding` */
    struct rg_baton feeding;      /* tells the sources that there is room */
    _Atomic uint32_t source_bits; /* SOURCED, WANTING, KEEPING; 0 in most queues */
    _Atomic uint64_t present;     /* sources that are not AWAY << 32 | those of them that REST */

    /* Grouped by who writes them in the usual course: submitters, event loops, takers. */
    alignas(RG_CACHE_LINE) _Atomic uint64_t reserved;

    alignas(RG_CACHE_LINE) _Atomic uint64_t tail;
    _Atomic uint64_t published;
    _Atomic uint64_t departed; /* records whose publisher touches the queue no more */

    alignas(RG_CACHE_LINE) _Atomic uint64_t head;

    /* Read by every publish, written when a thread waits. */
    alignas(RG_CACHE_LINE) _Atomic uint64_t wake_at; /* UINT64_MAX: no thread waits */
    _Atomic uint32_t event;                          /* the futex */
    _Atomic uint64_t sleeping;                       /* threads << 32 | what each needs, or MIXED */
    _Atomic(struct rg_cq_listener *) listener;       /* NULL: none */
    _Atomic uint32_t interruptions;                  /* which have ended no wait yet */
    _Atomic int fd;                                  /* -1 until it is asked for */
    _Atomic bool signalled;
    _Atomic uint64_t fd_at; /* of `published`: the descriptor is not signalled before */

    struct slot slots[];
};

static bool in_child(const struct rg_cq *cq)
{
    return rg_fork_generation() != cq->fork_generation;
}

/* The counters are in the order that is drawn above. Each is read after those that it is not to be
 * below, by acquire: whoever has seen one of them has seen what it was derived from. `departed` and
 * `head` are compared with what was read before, and the latter once more as it is then. */
static bool invariants(const struct rg_cq *cq)
{
    uint64_t departed = atomic_load_explicit(&cq->departed, memory_order_acquire);
    uint64_t published = atomic_load_explicit(&cq->published, memory_order_acquire);
    uint64_t head = atomic_load_explicit(&cq->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&cq->tail, memory_order_acquire);
    uint64_t reserved = atomic_load_explicit(&cq->reserved, memory_order_acquire);
    uint64_t head_now = atomic_load_explicit(&cq->head, memory_order_acquire);
    return departed <= published && published <= tail && head <= tail && tail <= reserved &&
           reserved <= head_now + cq->capacity;
}

static struct slot *slot_at(struct rg_cq *cq, uint64_t position)
{
    return &cq->slots[position & (cq->capacity - 1)];
}

static int futex_wait(struct rg_cq *cq, uint32_t expected, uint64_t deadline_ns)
{
    struct timespec deadline = rg_timespec_from_ns(deadline_ns);
    long rc = syscall(SYS_futex, &cq->event, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
                      &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
    RG_ASSERT(rc == 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT);
    return rc == 0 || errno == EAGAIN ? 0 : -errno;
}

static void futex_wake(struct rg_cq *cq, int count)
{
    long rc = syscall(SYS_futex, &cq->event, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count);
    RG_ASSERT(rc >= 0);
}

static void close_fd(struct rg_cq *cq)
{
    int fd = atomic_exchange(&cq->fd, -1);
    RG_ASSERT(fd >= -1);
    rg_fd_drop(fd);
}

/* The descriptor is closed in the child by then. */
static void forked(struct rg_fork_hook *hook)
{
    atomic_store(&RG_CONTAINER_OF(hook, struct rg_cq, fork_hook)->fd, -1);
}

static uint32_t round_up_to_power_of_two(uint32_t n)
{
    RG_ASSERT(n >= 1 && n <= CAPACITY_MAX);
    return n == 1 ? 1 : UINT32_C(1) << (32 - __builtin_clz(n - 1));
}

/* Each is first in turn, so that one with many samples leaves slots to the others. */
static void sources_feed(void *context)
{
    struct rg_cq *cq = context;
    atomic_fetch_and(&cq->source_bits, ~(WANTING | KEEPING));
    struct rg_list *list = &cq->source_list;
    for (struct rg_list *node = list->next; node != list; node = node->next) {
        struct rg_cq_source *source = RG_CONTAINER_OF(node, struct rg_cq_source, node);
        source->has_room(source);
    }
    if (!rg_list_empty(list)) {
        rg_list_push_back(list, rg_list_pop_front(list));
    }
}

int rg_cq_open(struct rg_cq **out_cq, struct rg_runtime *runtime, uint32_t capacity)
{
    if (out_cq == NULL || runtime == NULL || capacity == 0 || capacity > CAPACITY_MAX) {
        return -EINVAL;
    }
    int rc = rg_runtime_check(runtime);
    if (rc < 0) {
        return rc;
    }
    capacity = round_up_to_power_of_two(capacity);
    size_t size = sizeof(struct rg_cq) + capacity * sizeof(struct slot);
    struct rg_cq *cq = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (cq == MAP_FAILED) {
        return -ENOMEM;
    }
    cq->capacity = capacity;
    cq->runtime = runtime;
    cq->mapping_size = size;
    cq->fork_generation = rg_fork_generation();
    cq->fork_hook.child = forked;
    atomic_init(&cq->wake_at, UINT64_MAX);
    atomic_init(&cq->fd, -1);
    rg_list_init(&cq->source_list);
    rg_baton_init(&cq->feeding, sources_feed, cq);
    rc = rg_fork_hook_add(&cq->fork_hook);
    if (rc < 0) {
        munmap(cq, size);
        return rc;
    }
    *out_cq = cq;
    return 0;
}

/* The records are out, but who published them may still be about to wake somebody. He is between
 * two instructions or in a short system call, so yielding is enough. */
static void wait_for_publishers(struct rg_cq *cq)
{
    uint64_t tail = atomic_load_explicit(&cq->tail, memory_order_acquire);
    RG_ASSERT(tail == atomic_load_explicit(&cq->reserved, memory_order_relaxed));
    while (atomic_load_explicit(&cq->departed, memory_order_acquire) != tail) {
        sched_yield();
    }
    RG_VERIFY(invariants(cq));
}

void rg_cq_close(struct rg_cq *cq)
{
    if (cq == NULL) {
        return;
    }
    rg_fork_hook_remove(&cq->fork_hook);
    /* The publishers of a child's copy exist in the parent only. */
    if (!in_child(cq)) {
        wait_for_publishers(cq);
        RG_ASSERT(rg_list_empty(&cq->source_list));
        rg_baton_fini(&cq->feeding);
    }
    close_fd(cq);
    int rc = munmap(cq, cq->mapping_size);
    RG_ASSERT(rc == 0);
}

/* As many slots as keep all that are in use at `most` of them. */
static int slots_reserve(struct rg_cq *cq, uint32_t count, uint32_t most)
{
    for (;;) {
        /* In this order: a later `reserved` is never below an earlier `head`. */
        uint64_t head = atomic_load(&cq->head);
        uint64_t reserved = atomic_load(&cq->reserved);
        uint64_t used = reserved - head;
        if (used >= most) {
            if (head != atomic_load_explicit(&cq->head, memory_order_relaxed)) {
                continue;
            }
            return 0;
        }
        uint64_t granted = RG_MIN(count, most - used);
        RG_ASSERT(granted <= cq->capacity);
        if (atomic_compare_exchange_weak_explicit(&cq->reserved, &reserved, reserved + granted,
                                                  memory_order_acq_rel, memory_order_relaxed)) {
            RG_VERIFY(invariants(cq));
            return (int)granted;
        }
    }
}

int rg_cq_reserve(struct rg_cq *cq, uint32_t count)
{
    return in_child(cq) ? -EOWNERDEAD : slots_reserve(cq, count, cq->capacity);
}

/* All others together hold no more than so many: a quarter is the requests', and one slot of two.
 */
static uint32_t share_of_sources(const struct rg_cq *cq)
{
    return cq->capacity - (cq->capacity == 2 ? 1 : cq->capacity / 4);
}

bool rg_cq_is_scarce(const struct rg_cq *cq)
{
    uint64_t head = atomic_load(&cq->head);
    return atomic_load(&cq->reserved) - head >= share_of_sources(cq);
}

int rg_cq_source_reserve(struct rg_cq *cq, uint32_t count)
{
    uint32_t most = share_of_sources(cq);
    int reserved = slots_reserve(cq, count, most);
    if (reserved == 0) {
        atomic_fetch_or(&cq->source_bits, WANTING);
        reserved = slots_reserve(cq, count, most);
    }
    return reserved;
}

/* Also where all are AWAY: they were there. */
static bool sources_rest(struct rg_cq *cq)
{
    if ((atomic_load(&cq->source_bits) & SOURCED) == 0) {
        return false;
    }
    uint64_t present = atomic_load(&cq->present);
    return present >> 32 == (present & UINT32_MAX);
}

/* Does nothing while it is readable already: one write per change from empty to not empty. */
static void signal_fd(struct rg_cq *cq)
{
    int fd = atomic_load(&cq->fd);
    if (fd < 0 || atomic_load(&cq->signalled) || atomic_exchange(&cq->signalled, true)) {
        return;
    }
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof(one));
    /* A counter that is full is readable. */
    RG_ASSERT(written == (ssize_t)sizeof(one) || errno == EAGAIN);
}

static void futex_wake_all(struct rg_cq *cq)
{
    atomic_fetch_add(&cq->event, 1);
    if (atomic_load(&cq->sleeping) > 0) {
        futex_wake(cq, INT_MAX);
    }
}

/* Who waits is to look again, whatever he waits for. */
static void wake_all(struct rg_cq *cq)
{
    futex_wake_all(cq);
    if (atomic_load(&cq->published) != atomic_load(&cq->head)) {
        signal_fd(cq);
    }
}

static void room_tell(struct rg_cq *cq)
{
    if (RG_UNLIKELY((atomic_load(&cq->source_bits) & WANTING) != 0)) {
        rg_baton_pass(&cq->feeding);
    }
}

void rg_cq_unreserve(struct rg_cq *cq, uint32_t count)
{
    uint64_t head = atomic_load_explicit(&cq->head, memory_order_acquire);
    uint64_t before = atomic_fetch_sub(&cq->reserved, count);
    RG_ASSERT(before - head >= count);
    room_tell(cq);
    if (RG_UNLIKELY(sources_rest(cq))) {
        wake_all(cq); /* less is promised */
    }
}

void rg_cq_attach(struct rg_cq *cq, struct rg_cq_source *source)
{
    RG_ASSERT(source->took != NULL && source->has_room != NULL);
    atomic_fetch_or(&cq->source_bits, SOURCED);
    rg_cq_source_become(cq, source, RG_CQ_SOURCE_FLOWING);
    rg_baton_take(&cq->feeding);
    rg_list_push_back(&cq->source_list, &source->node);
    rg_baton_give(&cq->feeding);
}

/* Records that are there, or come for sure, behind `head`; at least one. */
static uint32_t promised(struct rg_cq *cq, uint64_t head)
{
    uint64_t reserved = atomic_load(&cq->reserved);
    return reserved > head ? (uint32_t)RG_MIN(reserved - head, (uint64_t)cq->capacity) : 1;
}

static uint64_t weight_of(enum rg_cq_source_state state)
{
    return (uint64_t)(state != RG_CQ_SOURCE_AWAY) << 32 | (state == RG_CQ_SOURCE_RESTING);
}

void rg_cq_source_become(struct rg_cq *cq, struct rg_cq_source *source,
                         enum rg_cq_source_state state)
{
    if (source->state == state) {
        return;
    }
    atomic_fetch_add(&cq->present, weight_of(state) - weight_of(source->state));
    source->state = state;
    if (sources_rest(cq)) {
        wake_all(cq);
    }
}

void rg_cq_detach(struct rg_cq *cq, struct rg_cq_source *source)
{
    RG_ASSERT(source->state == RG_CQ_SOURCE_AWAY);
    rg_baton_take(&cq->feeding);
    rg_list_remove(&source->node);
    rg_baton_give(&cq->feeding);
}

/* More than is there has to come before the descriptor is signalled. */
static bool fd_is_awaited(struct rg_cq *cq)
{
    return atomic_load(&cq->fd_at) > atomic_load(&cq->published) && atomic_load(&cq->fd) >= 0;
}

bool rg_cq_is_awaited(struct rg_cq *cq)
{
    return atomic_load(&cq->sleeping) > 0 || fd_is_awaited(cq);
}

/* How many records more end the shortest wait. 1 if nobody waits and nothing is there, since
 * whoever looks next finds nothing; UINT32_MAX if something is. */
static uint32_t wanted(struct rg_cq *cq)
{
    uint64_t head = atomic_load(&cq->head);
    uint64_t published = atomic_load(&cq->published);
    uint64_t at = atomic_load(&cq->wake_at);
    if (fd_is_awaited(cq)) {
        at = RG_MIN(at, atomic_load(&cq->fd_at));
    }
    if (at == UINT64_MAX) {
        return published > head ? UINT32_MAX : 1;
    }
    return at > published ? (uint32_t)RG_MIN(at - published, (uint64_t)cq->capacity) : 1;
}

bool rg_cq_source_keeps(struct rg_cq *cq, uint64_t count)
{
    if (count >= wanted(cq)) {
        return false;
    }
    if ((atomic_load(&cq->source_bits) & KEEPING) == 0) {
        atomic_fetch_or(&cq->source_bits, KEEPING);
    }
    return count < wanted(cq);
}

uint64_t rg_cq_published(const struct rg_cq *cq)
{
    return atomic_load(&cq->published);
}

void rg_cq_listen(struct rg_cq *cq, struct rg_cq_listener *listener)
{
    atomic_store(&cq->listener, listener);
    /* Who has not seen the listener has published what the caller now finds. */
    (void)atomic_load(&cq->published);
}

static void store_record(struct rg_cq *cq, uint64_t position, const struct rg_completion *record)
{
    struct slot *slot = slot_at(cq, position);
    RG_ASSERT(atomic_load_explicit(&slot->mark, memory_order_relaxed) <= position);
    uint64_t words[RECORD_WORDS];
    memcpy(words, record, sizeof(words));
    for (size_t i = 0; i < RECORD_WORDS; i++) {
        atomic_store_explicit(&slot->words[i], words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&slot->mark, position + 1, memory_order_release);
}

/* False if the slot does not hold the record of that position (yet, or any more). */
static bool load_record(struct rg_cq *cq, uint64_t position, struct rg_completion *out_record)
{
    struct slot *slot = slot_at(cq, position);
    if (atomic_load_explicit(&slot->mark, memory_order_acquire) != position + 1) {
        return false;
    }
    uint64_t words[RECORD_WORDS];
    for (size_t i = 0; i < RECORD_WORDS; i++) {
        words[i] = atomic_load_explicit(&slot->words[i], memory_order_relaxed);
    }
    memcpy(out_record, words, sizeof(words));
    return true;
}

static void wake_sleepers(struct rg_cq *cq, uint64_t published)
{
    if (RG_LIKELY(published < atomic_load(&cq->wake_at))) {
        return;
    }
    uint64_t reached = atomic_exchange(&cq->wake_at, UINT64_MAX);
    RG_ASSERT(reached > 0);
    atomic_fetch_add(&cq->event, 1);
    uint64_t sleeping = atomic_load(&cq->sleeping);
    if (sleeping > 0) {
        futex_wake(cq, (uint32_t)sleeping == MIXED ? INT_MAX : 1);
    }
}

void rg_cq_publish(struct rg_cq *cq, const struct rg_completion *records, uint32_t count)
{
    uint64_t first = atomic_fetch_add_explicit(&cq->tail, count, memory_order_acq_rel);
    RG_ASSERT(first + count <= atomic_load_explicit(&cq->reserved, memory_order_relaxed));
    for (uint32_t i = 0; i < count; i++) {
        store_record(cq, first + i, &records[i]);
    }
    uint64_t published = atomic_fetch_add(&cq->published, count) + count;
    wake_sleepers(cq, published);
    if (published >= atomic_load(&cq->fd_at) || sources_rest(cq)) {
        signal_fd(cq);
    }
    struct rg_cq_listener *listener = atomic_load(&cq->listener);
    if (RG_UNLIKELY(listener != NULL)) {
        listener->published(listener, published);
    }
    /* The last access. */
    atomic_fetch_add_explicit(&cq->departed, count, memory_order_release);
}

/* Takes off up to `max` records, or none if there are not at least `min`. */
static uint32_t take(struct rg_cq *cq, struct rg_completion *out, uint32_t max, uint32_t min)
{
    RG_ASSERT(min >= 1 && min <= max);
    uint64_t head = atomic_load_explicit(&cq->head, memory_order_acquire);
    for (;;) {
        uint32_t count = 0;
        while (count < max && load_record(cq, head + count, &out[count])) {
            count++;
        }
        if (count == 0 || count < min) {
            uint64_t now = atomic_load_explicit(&cq->head, memory_order_acquire);
            if (now == head) {
                return 0;
            }
            head = now;
            continue;
        }
        if (atomic_compare_exchange_weak_explicit(&cq->head, &head, head + count,
                                                  memory_order_seq_cst, memory_order_acquire)) {
            return count;
        }
    }
}

/* Has sources deliver what they have gathered. False: there are none. */
static bool sources_ask(struct rg_cq *cq)
{
    if (RG_LIKELY((atomic_load(&cq->source_bits) & SOURCED) == 0)) {
        return false;
    }
    rg_baton_pass(&cq->feeding);
    return true;
}

/* By who is about to sleep, after what is needed was told. */
static void kept_ask(struct rg_cq *cq)
{
    if (RG_UNLIKELY((atomic_load(&cq->source_bits) & KEEPING) != 0)) {
        rg_baton_pass(&cq->feeding);
    }
}

static void sources_tell(struct rg_cq *cq, struct rg_completion *out, uint32_t count)
{
    for (uint32_t i = 0; i < count;) {
        struct rg_cq_source *source = (struct rg_cq_source *)(uintptr_t)out[i].sample_index;
        uint32_t end = i + 1;
        while (end < count && out[end].sample_index == out[i].sample_index) {
            end++;
        }
        if (source != NULL) {
            source->took(source, &out[i], end - i);
        }
        i = end;
    }
    room_tell(cq);
}

/* What has been taken off goes to the caller. */
static int hand_out(struct rg_cq *cq, struct rg_completion *out, uint32_t count)
{
    if (RG_UNLIKELY(atomic_load(&cq->source_bits) != 0)) {
        sources_tell(cq, out, count);
    }
    return (int)count;
}

int rg_cq_poll(struct rg_cq *cq, struct rg_completion *out, uint32_t out_max)
{
    if (in_child(cq)) {
        return -EOWNERDEAD;
    }
    if (out_max == 0) {
        return 0;
    }
    out_max = RG_MIN(out_max, cq->capacity);
    uint32_t count = take(cq, out, out_max, 1);
    if (count == 0 && sources_ask(cq)) {
        count = take(cq, out, out_max, 1);
    }
    if (count == 0 && atomic_load(&cq->signalled)) {
        atomic_store(&cq->signalled, false);
        (void)atomic_load(&cq->published);
        count = take(cq, out, out_max, 1);
    }
    RG_ASSERT(count <= out_max);
    return hand_out(cq, out, count);
}

static void lower_wake_at(struct rg_cq *cq, uint64_t needed)
{
    RG_ASSERT(needed > 0);
    uint64_t now = atomic_load(&cq->wake_at);
    while (needed < now && !atomic_compare_exchange_weak(&cq->wake_at, &now, needed)) {
    }
}

/* Ends this wait by one of the interruptions. False: there are none. */
static bool interruption_take(struct rg_cq *cq)
{
    uint32_t now = atomic_load(&cq->interruptions);
    while (now > 0 && !atomic_compare_exchange_weak(&cq->interruptions, &now, now - 1)) {
    }
    return now > 0;
}

/* Counts a thread that needs `min` among those that sleep. */
static void sleeping_add(struct rg_cq *cq, uint32_t min)
{
    uint64_t now = atomic_load(&cq->sleeping), then;
    do {
        uint32_t need = now == 0 || (uint32_t)now == min ? min : MIXED;
        then = (now & ~(uint64_t)UINT32_MAX) + (UINT64_C(1) << 32) + need;
    } while (!atomic_compare_exchange_weak(&cq->sleeping, &now, then));
}

/* What those that are left need; 0: there are none. */
static uint32_t sleeping_remove(struct rg_cq *cq)
{
    uint64_t now = atomic_load(&cq->sleeping), then;
    do {
        then = now >> 32 == 1 ? 0 : now - (UINT64_C(1) << 32);
    } while (!atomic_compare_exchange_weak(&cq->sleeping, &now, then));
    return (uint32_t)then;
}

/* Whoever was woken alone, and has taken records, looks for those that sleep on. */
static void others_wake(struct rg_cq *cq, uint32_t need)
{
    if (need > 0 && (need == MIXED || sources_rest(cq))) {
        futex_wake_all(cq);
    } else if (need > 0) {
        lower_wake_at(cq, atomic_load(&cq->head) + need);
        kept_ask(cq);
        wake_sleepers(cq, atomic_load(&cq->published));
    }
}

/* Takes at least `min`, or sleeps until there may be as many and returns 0; negative when the sleep
 * ended otherwise. */
static int take_or_sleep(struct rg_cq *cq, struct rg_completion *out, uint32_t out_max,
                         uint32_t min, uint64_t deadline_ns)
{
    sleeping_add(cq, min);
    uint32_t event = atomic_load(&cq->event);
    uint64_t head = atomic_load_explicit(&cq->head, memory_order_acquire);
    uint32_t fewest = sources_rest(cq) ? RG_MIN(min, promised(cq, head)) : min;
    lower_wake_at(cq, head + fewest);
    kept_ask(cq);
    (void)atomic_load(&cq->published);
    int rc = (int)take(cq, out, out_max, fewest);
    if (rc == 0 && interruption_take(cq)) {
        rc = -EINTR;
    }
    if (rc == 0) {
        uint64_t since_ns = rg_now_ns();
        rc = futex_wait(cq, event, deadline_ns);
        RG_ASSERT(rc <= 0);
        rg_runtime_waited(cq->runtime, rg_now_ns() - since_ns);
    }
    if (rc == 0) {
        /* Before it says again what it needs: that would wake somebody else for what is taken now,
         * and who waits next too early. */
        rc = (int)take(cq, out, out_max, min);
    }
    uint32_t others = sleeping_remove(cq);
    if (rc > 0) {
        others_wake(cq, others);
    }
    return rc;
}

int rg_cq_wait(struct rg_cq *cq, struct rg_completion *out, uint32_t out_max, uint32_t min,
               uint64_t deadline_ns)
{
    if (in_child(cq)) {
        return -EOWNERDEAD;
    }
    if (min == 0 || min > out_max || min > cq->capacity) {
        return -EINVAL;
    }
    out_max = RG_MIN(out_max, cq->capacity);
    int rc = (int)take(cq, out, out_max, min);
    if (rc == 0 && sources_ask(cq)) {
        rc = (int)take(cq, out, out_max, min);
    }
    while (rc == 0) {
        rc = take_or_sleep(cq, out, out_max, min, deadline_ns);
    }
    if (rc > 0) {
        return hand_out(cq, out, (uint32_t)rc);
    }
    RG_ASSERT(rc == -ETIMEDOUT || rc == -EINTR);
    int count = rg_cq_poll(cq, out, out_max);
    if (count != 0) {
        return count;
    }
    return rc == -ETIMEDOUT ? -ETIME : -EINTR;
}

void rg_cq_interrupt(struct rg_cq *cq)
{
    if (in_child(cq)) {
        return;
    }
    uint32_t now = atomic_load(&cq->interruptions);
    while (now < INTERRUPTIONS_MAX &&
           !atomic_compare_exchange_weak(&cq->interruptions, &now, now + 1)) {
    }
    wake_all(cq);
}

void rg_cq_expect(struct rg_cq *cq, uint32_t min)
{
    if (!in_child(cq)) {
        uint64_t head = atomic_load(&cq->head);
        atomic_store(&cq->fd_at, head + RG_MIN(min, cq->capacity));
    }
}

int rg_cq_fd(struct rg_cq *cq)
{
    if (in_child(cq)) {
        return -EOWNERDEAD;
    }
    int fd = atomic_load(&cq->fd);
    if (fd >= 0) {
        return fd;
    }
    rg_fd_hold();
    int made = rg_fd_track(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    int error = made < 0 ? errno : 0;
    bool is_first = made >= 0 && atomic_compare_exchange_strong(&cq->fd, &fd, made);
    rg_fd_release();
    if (made < 0) {
        RG_ASSERT(error == EMFILE || error == ENFILE || error == ENOMEM || error == ENODEV);
        return error == ENFILE ? -EMFILE : -error;
    }
    if (!is_first) {
        rg_fd_drop(made);
        return fd;
    }
    /* What was published before the descriptor existed did not signal it. */
    if (atomic_load(&cq->published) != atomic_load(&cq->head)) {
        signal_fd(cq);
    }
    return made;
}
