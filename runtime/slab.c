/* The slab arena: see slab.h.
 *
 * Life of a chunk:
 *
 *     fresh ──> slabs of a class <──────┐
 *       │          │ all slabs free     │ taken
 *       │          └──> idle ───────────┤
 *       │                 │ given back  │
 *       └──> run <──┐     v             │
 *                   └── free run ───────┘
 *
 * Fresh chunks lie at the end of the arena and were never used. A class keeps one idle chunk, so
 * that a load that swings around a chunk's worth of slabs does not cut the same chunk again and
 * again; a second idle one is given back at once. Free runs wait in buckets by their length,
 * unmerged, last in first out. Only when nothing fits are the idle chunks given back and neighbours
 * merged.
 *
 * Releases by other threads are a stack in one word, `returned`, which the owner takes whole. The
 * word holds the mark `starved` instead when the owner found no room: mark and stack share the
 * word, so a release either is seen by the owner before it gives up or replaces the mark and wakes
 * it. Pushing releases and taking acquires; all changes are read-modify-writes, hence the take
 * synchronizes with every push in the stack. Nobody looks below the top of a stack that he does not
 * own, so there is no ABA. */
#include "runtime/slab.h"

#include "runtime/fork.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/mman.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define SLAB_POISONS 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define SLAB_POISONS 1
#endif
#ifdef SLAB_POISONS
#include <sanitizer/asan_interface.h>
#define SLAB_POISON(address, size) ASAN_POISON_MEMORY_REGION((address), (size))
#define SLAB_UNPOISON(address, size) ASAN_UNPOISON_MEMORY_REGION((address), (size))
#else
#define SLAB_POISON(address, size) ((void)(address), (void)(size))
#define SLAB_UNPOISON(address, size) ((void)(address), (void)(size))
#endif

/* Linux 5.14; the C library of an older build machine may lack the name. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define CHUNK_SIZE RG_MIB(2)
#define PAGE_SIZE_MIN RG_KIB(4)

/* Classes: 4, 5, 6, 7, 8, 10, 12, 14, 16, ... KiB, four to a doubling. Above the largest one a body
 * takes whole chunks, because cutting a chunk into one piece would only hide the rest of it. */
#define SLAB_SIZE_MIN RG_KIB(4)
#define SLAB_SIZE_MAX RG_MIB(1)
#define CLASS_COUNT 33
#define SLABS_PER_CHUNK_MAX (CHUNK_SIZE / SLAB_SIZE_MIN)

/* Free runs of 1 to 62 chunks have a bucket each; the last bucket has all longer ones. One bit of a
 * word per bucket. */
#define BUCKET_COUNT 64
#define BUCKET_LAST (BUCKET_COUNT - 1)

/* Keeps chunk indices in 32 bits and the sums of sizes far from overflow: 16 TiB. */
#define CHUNKS_MAX (UINT32_C(1) << 23)

enum chunk_use { CHUNK_FRESH = 0, CHUNK_FREE, CHUNK_SLABS, CHUNK_RUN };

struct chunk {
    struct chunk *next;  /* FREE: the next run in the bucket */
    uint32_t run_length; /* chunks in this run; only its first chunk's fields mean anything */
    uint32_t live;       /* SLABS: how many are out */
    uint32_t carved;     /* SLABS: how many have been out since the chunk joined its class */
    uint8_t use;
    uint8_t class_index;
    bool faulted_in; /* stays true for good; meaningful for every chunk */
    bool is_pinned;  /* the run, or the chunk of slabs, that begins here; else false */
};

struct size_class {
    struct rg_list free;   /* slabs that came back */
    struct chunk *carving; /* has slabs that were not out yet; NULL when there is none */
    struct chunk *idle;    /* all of its slabs are free; NULL when no chunk is so */
    size_t size;
    uint32_t slabs_per_chunk;
};

struct rg_slab_arena {
    uint8_t *data;
    struct chunk *chunks;
    struct rg_lease *leases; /* SLABS_PER_CHUNK_MAX for each chunk */
    uint32_t chunk_count;
    uint32_t fork_generation;
    size_t books_size; /* of the mapping that holds this struct, the chunks and the leases */
    void (*wake)(void *context);
    void *wake_context;
    int (*pin)(void *context, void *address, size_t size);
    void (*unpin)(void *context, void *address);
    void *pin_context;

    struct {
        pthread_t thread;
        bool has_thread;
        uint64_t pinned, pinned_max; /* bytes */
        uint32_t fresh;              /* index of the first fresh chunk */
        uint32_t touched;            /* chunks from here on were never touched */
        uint32_t spare_count;        /* chunks that are fresh, free or idle */
        uint64_t bucket_map;         /* which buckets hold a run */
        struct chunk *buckets[BUCKET_COUNT];
        struct size_class classes[CLASS_COUNT];
    } owner;

    /* Written by the owner, read by anyone. */
    alignas(RG_CACHE_LINE) struct {
        _Atomic uint64_t held; /* bytes taken less bytes that the owner itself released */
        _Atomic uint64_t leased_max;
        _Atomic uint64_t starved_count;
    } stats;

    /* Written by every thread that releases. */
    alignas(RG_CACHE_LINE) struct {
        _Atomic(struct rg_lease *) returned;
        _Atomic uint64_t released; /* bytes, ever */
    } foreign;
};

/* Only its address is used. */
static struct rg_lease starved;

/* The least class whose slabs hold `size` bytes: the two bits after the leading one choose among
 * the four steps of a doubling. */
static uint32_t class_of(size_t size)
{
    if (size <= SLAB_SIZE_MIN) {
        return 0;
    }
    RG_ASSERT(size <= SLAB_SIZE_MAX);
    uint64_t last = size - 1;
    uint32_t doubling = 63 - (uint32_t)__builtin_clzll(last);
    return (doubling - 12) * 4 + (uint32_t)((last >> (doubling - 2)) & 3) + 1;
}

static size_t class_size(uint32_t class_index)
{
    RG_ASSERT(class_index < CLASS_COUNT);
    return (size_t)(4 + class_index % 4) << (10 + class_index / 4);
}

static uint32_t chunk_index_of(const struct rg_slab_arena *arena, const struct chunk *chunk)
{
    RG_ASSERT(chunk >= arena->chunks && chunk < arena->chunks + arena->chunk_count);
    return (uint32_t)(chunk - arena->chunks);
}

static uint8_t *chunk_data(const struct rg_slab_arena *arena, const struct chunk *chunk)
{
    return arena->data + chunk_index_of(arena, chunk) * CHUNK_SIZE;
}

static bool owner_is_self(const struct rg_slab_arena *arena)
{
    return pthread_equal(arena->owner.thread, pthread_self()) != 0;
}

/* As one piece, because a device copies from one registration only. Nobody has it yet. */
static void pin_run(struct rg_slab_arena *arena, struct chunk *run)
{
    uint64_t size = run->run_length * CHUNK_SIZE;
    if (run->is_pinned || arena->owner.pinned + size > arena->owner.pinned_max) {
        return;
    }
    if (arena->pin(arena->pin_context, chunk_data(arena, run), size) < 0) {
        arena->owner.pinned_max = 0;
        return;
    }
    run->is_pinned = true;
    arena->owner.pinned += size;
}

/* Nobody has it any more. */
static void unpin_run(struct rg_slab_arena *arena, struct chunk *run)
{
    if (!run->is_pinned) {
        return;
    }
    uint64_t size = run->run_length * CHUNK_SIZE;
    RG_ASSERT(arena->owner.pinned >= size);
    arena->unpin(arena->pin_context, chunk_data(arena, run));
    run->is_pinned = false;
    arena->owner.pinned -= size;
}

static uint32_t bucket_of(uint32_t run_length)
{
    return RG_MIN(run_length, BUCKET_LAST);
}

static void push_run(struct rg_slab_arena *arena, struct chunk *run, uint32_t length)
{
    RG_ASSERT(length > 0);
    uint32_t bucket = bucket_of(length);
    run->use = CHUNK_FREE;
    run->run_length = length;
    run->next = arena->owner.buckets[bucket];
    arena->owner.buckets[bucket] = run;
    arena->owner.bucket_map |= UINT64_C(1) << bucket;
}

/* Removes the run that was freed last among those of the least sufficient bucket; NULL if none is.
 */
static struct chunk *pop_run(struct rg_slab_arena *arena, uint32_t length)
{
    uint64_t sufficient = arena->owner.bucket_map & (UINT64_MAX << bucket_of(length));
    if (sufficient == 0) {
        return NULL;
    }
    uint32_t bucket = (uint32_t)__builtin_ctzll(sufficient);
    struct chunk **link = &arena->owner.buckets[bucket];
    while (*link != NULL && (*link)->run_length < length) {
        RG_ASSERT(bucket == BUCKET_LAST);
        link = &(*link)->next;
    }
    struct chunk *run = *link;
    if (run == NULL) {
        return NULL;
    }
    RG_ASSERT(run->use == CHUNK_FREE);
    *link = run->next;
    if (arena->owner.buckets[bucket] == NULL) {
        arena->owner.bucket_map &= ~(UINT64_C(1) << bucket);
    }
    return run;
}

static struct chunk *find_run(struct rg_slab_arena *arena, uint32_t length)
{
    struct chunk *run = pop_run(arena, length);
    if (run != NULL) {
        if (run->run_length > length) {
            unpin_run(arena, run);
            push_run(arena, run + length, run->run_length - length);
        }
        return run;
    }
    if (arena->chunk_count - arena->owner.fresh < length) {
        return NULL;
    }
    run = &arena->chunks[arena->owner.fresh];
    arena->owner.fresh += length;
    arena->owner.touched = RG_MAX(arena->owner.touched, arena->owner.fresh);
    return run;
}

/* Takes an idle chunk from its class. */
static void give_back(struct rg_slab_arena *arena, struct chunk *chunk)
{
    RG_ASSERT(chunk->use == CHUNK_SLABS && chunk->live == 0);
    struct size_class *class = &arena->owner.classes[chunk->class_index];
    struct rg_lease *leases = &arena->leases[chunk_index_of(arena, chunk) * SLABS_PER_CHUNK_MAX];
    for (uint32_t i = 0; i < chunk->carved; i++) {
        RG_ASSERT(!leases[i].out);
        rg_list_remove(&leases[i].free_node);
    }
    if (class->carving == chunk) {
        class->carving = NULL;
    }
    push_run(arena, chunk, 1);
}

/* Merges free neighbours. Runs that reach the fresh chunks become fresh again. The lowest end on
 * top of their buckets, which packs what comes next. */
static void merge_runs(struct rg_slab_arena *arena)
{
    struct chunk *merged = NULL;
    struct chunk *end = &arena->chunks[arena->owner.fresh];
    struct chunk *next;
    for (struct chunk *run = arena->chunks; run < end; run = next) {
        next = run + run->run_length;
        if (run->use != CHUNK_FREE) {
            continue;
        }
        while (next < end && next->use == CHUNK_FREE) {
            unpin_run(arena, run);
            unpin_run(arena, next);
            run->run_length += next->run_length;
            next += next->run_length;
        }
        run->next = merged;
        merged = run;
    }
    for (uint32_t i = 0; i < BUCKET_COUNT; i++) {
        arena->owner.buckets[i] = NULL;
    }
    arena->owner.bucket_map = 0;
    if (merged != NULL && merged + merged->run_length == end) {
        unpin_run(arena, merged);
        arena->owner.fresh = chunk_index_of(arena, merged);
        merged->use = CHUNK_FRESH;
        merged = merged->next;
    }
    while (merged != NULL) {
        struct chunk *run = merged;
        merged = run->next;
        push_run(arena, run, run->run_length);
    }
}

static void gather_runs(struct rg_slab_arena *arena)
{
    for (uint32_t i = 0; i < CLASS_COUNT; i++) {
        struct size_class *class = &arena->owner.classes[i];
        if (class->idle != NULL) {
            give_back(arena, class->idle);
            class->idle = NULL;
        }
    }
    merge_runs(arena);
    RG_VERIFY(rg_slab_arena_is_sound(arena));
}

/* A page fault per 4 KiB in the middle of a receive costs more than the receive; so all at once. */
static void fault_in(struct rg_slab_arena *arena, struct chunk *chunk)
{
    if (chunk->faulted_in) {
        return;
    }
    uint8_t *data = chunk_data(arena, chunk);
    if (madvise(data, CHUNK_SIZE, MADV_POPULATE_WRITE) < 0) {
        /* Older kernels do not know it. Nobody uses the chunk, so its bytes may be overwritten. */
        for (size_t i = 0; i < CHUNK_SIZE; i += PAGE_SIZE_MIN) {
            ((volatile uint8_t *)data)[i] = 0;
        }
    }
    chunk->faulted_in = true;
    SLAB_POISON(data, CHUNK_SIZE);
}

void rg_slab_fault_in(struct rg_slab_arena *arena, uint64_t size)
{
    uint64_t wanted = size / CHUNK_SIZE + (size % CHUNK_SIZE != 0);
    uint64_t count = RG_MIN(wanted, (uint64_t)arena->chunk_count);
    for (uint64_t i = 0; i < count; i++) {
        fault_in(arena, &arena->chunks[i]);
    }
    arena->owner.touched = RG_MAX(arena->owner.touched, (uint32_t)count);
}

/* The first of `length` neighbouring chunks that now belong to the caller, or NULL. */
static struct chunk *take_chunks(struct rg_slab_arena *arena, uint32_t length)
{
    if (arena->owner.spare_count < length) {
        return NULL;
    }
    struct chunk *run = find_run(arena, length);
    if (run == NULL) {
        gather_runs(arena);
        run = find_run(arena, length);
        if (run == NULL) {
            return NULL;
        }
    }
    arena->owner.spare_count -= length;
    run->run_length = length;
    for (uint32_t i = 0; i < length; i++) {
        fault_in(arena, run + i);
    }
    pin_run(arena, run);
    return run;
}

static struct rg_lease *make_lease(struct rg_slab_arena *arena, struct chunk *chunk,
                                   uint32_t slab_index, size_t capacity)
{
    RG_ASSERT(slab_index < SLABS_PER_CHUNK_MAX);
    uint32_t chunk_index = chunk_index_of(arena, chunk);
    struct rg_lease *lease = &arena->leases[chunk_index * SLABS_PER_CHUNK_MAX + slab_index];
    RG_ASSERT(!lease->out);
    *lease = (struct rg_lease){
        .data = chunk_data(arena, chunk) + slab_index * capacity,
        .capacity = capacity,
        .arena = arena,
        .chunk_index = chunk_index,
    };
    return lease;
}

static struct rg_lease *carve_slab(struct rg_slab_arena *arena, struct size_class *class)
{
    struct chunk *chunk = class->carving;
    if (chunk == NULL) {
        chunk = take_chunks(arena, 1);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->use = CHUNK_SLABS;
        chunk->class_index = (uint8_t)(class - arena->owner.classes);
        chunk->live = 0;
        chunk->carved = 0;
        class->carving = chunk;
    }
    struct rg_lease *lease = make_lease(arena, chunk, chunk->carved, class->size);
    if (++chunk->carved == class->slabs_per_chunk) {
        class->carving = NULL;
    }
    return lease;
}

static struct rg_lease *take_slab(struct rg_slab_arena *arena, size_t size)
{
    struct size_class *class = &arena->owner.classes[class_of(size)];
    struct rg_list *node = rg_list_pop_front(&class->free);
    struct rg_lease *lease =
        node != NULL ? RG_CONTAINER_OF(node, struct rg_lease, free_node) : carve_slab(arena, class);
    if (lease == NULL) {
        return NULL;
    }
    struct chunk *chunk = &arena->chunks[lease->chunk_index];
    RG_ASSERT(chunk->use == CHUNK_SLABS && chunk->live < chunk->carved);
    chunk->live++;
    if (class->idle == chunk) {
        class->idle = NULL;
        arena->owner.spare_count--;
    }
    return lease;
}

static struct rg_lease *take_run(struct rg_slab_arena *arena, size_t size)
{
    uint32_t length = (uint32_t)((size - 1) / CHUNK_SIZE + 1);
    struct chunk *run = take_chunks(arena, length);
    if (run == NULL) {
        return NULL;
    }
    run->use = CHUNK_RUN;
    return make_lease(arena, run, 0, length * CHUNK_SIZE);
}

static void recycle_slab(struct rg_slab_arena *arena, struct rg_lease *lease, struct chunk *chunk)
{
    struct size_class *class = &arena->owner.classes[chunk->class_index];
    RG_ASSERT(chunk->live > 0);
    RG_ASSERT(lease->capacity == class->size);
    rg_list_push_front(&class->free, &lease->free_node);
    if (--chunk->live == 0) {
        if (class->idle != NULL) {
            give_back(arena, class->idle);
        }
        class->idle = chunk;
        arena->owner.spare_count++;
    }
}

static void recycle(struct rg_slab_arena *arena, struct rg_lease *lease)
{
    RG_ASSERT(!lease->out);
    struct chunk *chunk = &arena->chunks[lease->chunk_index];
    if (chunk->use == CHUNK_SLABS) {
        recycle_slab(arena, lease, chunk);
        return;
    }
    RG_ASSERT(chunk->use == CHUNK_RUN);
    arena->owner.spare_count += chunk->run_length;
    push_run(arena, chunk, chunk->run_length);
}

/* Takes in what other threads released. The stack has the last one on top, which shall be taken
 * first: so the oldest is recycled first. */
static void drain_returned(struct rg_slab_arena *arena)
{
    struct rg_lease *top = atomic_load_explicit(&arena->foreign.returned, memory_order_relaxed);
    if (top == NULL || top == &starved) {
        return;
    }
    top = atomic_exchange_explicit(&arena->foreign.returned, NULL, memory_order_acquire);
    struct rg_lease *oldest = NULL;
    while (top != NULL) {
        struct rg_lease *below = top->returned;
        top->returned = oldest;
        oldest = top;
        top = below;
    }
    while (oldest != NULL) {
        struct rg_lease *next = oldest->returned;
        oldest->returned = NULL;
        recycle(arena, oldest);
        oldest = next;
    }
}

/* Asks the next release to wake the owner. False if there was a release meanwhile: look again. */
static bool ask_to_be_woken(struct rg_slab_arena *arena)
{
    struct rg_lease *old = NULL;
    return atomic_compare_exchange_strong_explicit(&arena->foreign.returned, &old, &starved,
                                                   memory_order_relaxed, memory_order_relaxed) ||
           old == &starved;
}

/* In a forked child the owner does not exist, and the context's descriptors may be someone else's.
 */
static void wake_owner(struct rg_slab_arena *arena)
{
    if (arena->wake != NULL && rg_fork_generation() == arena->fork_generation) {
        arena->wake(arena->wake_context);
    }
}

static void release_foreign(struct rg_slab_arena *arena, struct rg_lease *lease)
{
    /* Before the push, after which the lease may be someone else's. */
    atomic_fetch_add_explicit(&arena->foreign.released, lease->capacity, memory_order_release);
    struct rg_lease *top = atomic_load_explicit(&arena->foreign.returned, memory_order_relaxed);
    do {
        RG_ASSERT(top != lease);
        lease->returned = top == &starved ? NULL : top;
    } while (!atomic_compare_exchange_weak_explicit(&arena->foreign.returned, &top, lease,
                                                    memory_order_release, memory_order_relaxed));
    if (RG_UNLIKELY(top == &starved)) {
        wake_owner(arena);
    }
}

/* Takes the mark away. True if it was there. */
static bool unask(struct rg_slab_arena *arena)
{
    struct rg_lease *top = &starved;
    return atomic_load_explicit(&arena->foreign.returned, memory_order_relaxed) == top &&
           atomic_compare_exchange_strong_explicit(&arena->foreign.returned, &top, NULL,
                                                   memory_order_relaxed, memory_order_relaxed);
}

static void release_own(struct rg_slab_arena *arena, struct rg_lease *lease)
{
    uint64_t held = atomic_load_explicit(&arena->stats.held, memory_order_relaxed);
    RG_ASSERT(held >= lease->capacity);
    atomic_store_explicit(&arena->stats.held, held - lease->capacity, memory_order_relaxed);
    recycle(arena, lease);
    if (RG_UNLIKELY(unask(arena))) {
        wake_owner(arena);
    }
}

bool rg_lease_is_pinned(const struct rg_lease *lease)
{
    RG_ASSERT(lease->out);
    return lease->arena != NULL && lease->arena->chunks[lease->chunk_index].is_pinned;
}

bool rg_lease_is_readonly(const struct rg_lease *lease)
{
    RG_ASSERT(lease->out);
    return lease->arena == NULL;
}

void rg_lease_lend(struct rg_lease *out_lease, const uint8_t *data, size_t size,
                   void (*release)(struct rg_lease *lease))
{
    *out_lease = (struct rg_lease){
        .data = (uint8_t *)(uintptr_t)data,
        .capacity = size,
        .release = release,
        .out = true,
    };
}

void rg_lease_share(struct rg_lease *lease, uint32_t more)
{
    if (lease != NULL) {
        RG_ASSERT(lease->out);
        atomic_fetch_add_explicit(&lease->shares, more, memory_order_relaxed);
    }
}

/* False: there is no other holder. */
static bool give_up_share(struct rg_lease *lease)
{
    uint32_t shares = atomic_load_explicit(&lease->shares, memory_order_acquire);
    while (shares > 0 &&
           !atomic_compare_exchange_weak_explicit(&lease->shares, &shares, shares - 1,
                                                  memory_order_release, memory_order_acquire)) {
    }
    return shares > 0;
}

void rg_lease_release(struct rg_lease *lease)
{
    if (lease == NULL || give_up_share(lease)) {
        return;
    }
    struct rg_slab_arena *arena = lease->arena;
    RG_ASSERT(lease->out);
    lease->out = false;
    if (RG_UNLIKELY(arena == NULL)) {
        lease->release(lease);
        return;
    }
    SLAB_POISON(lease->data, lease->capacity);
    if (owner_is_self(arena)) {
        release_own(arena, lease);
    } else {
        release_foreign(arena, lease);
    }
}

/* `released` before `held`: a release that is counted was preceded by its take, which then is seen,
 * so the difference is never negative. */
static uint64_t leased_bytes(const struct rg_slab_arena *arena)
{
    uint64_t released = atomic_load_explicit(&arena->foreign.released, memory_order_acquire);
    uint64_t held = atomic_load_explicit(&arena->stats.held, memory_order_relaxed);
    RG_ASSERT(held >= released);
    return held - released;
}

static void hand_out(struct rg_slab_arena *arena, struct rg_lease *lease)
{
    RG_ASSERT(!lease->out);
    lease->out = true;
    SLAB_UNPOISON(lease->data, lease->capacity);
    uint64_t held = atomic_load_explicit(&arena->stats.held, memory_order_relaxed);
    atomic_store_explicit(&arena->stats.held, held + lease->capacity, memory_order_relaxed);
    uint64_t leased = leased_bytes(arena);
    if (leased > atomic_load_explicit(&arena->stats.leased_max, memory_order_relaxed)) {
        atomic_store_explicit(&arena->stats.leased_max, leased, memory_order_relaxed);
    }
}

static void count_starved(struct rg_slab_arena *arena)
{
    uint64_t count = atomic_load_explicit(&arena->stats.starved_count, memory_order_relaxed);
    RG_ASSERT(count < UINT64_MAX);
    atomic_store_explicit(&arena->stats.starved_count, count + 1, memory_order_relaxed);
}

struct rg_lease *rg_slab_take(struct rg_slab_arena *arena, size_t size)
{
    RG_ASSERT(size <= rg_slab_size_max(arena));
    if (RG_UNLIKELY(!arena->owner.has_thread)) {
        arena->owner.thread = pthread_self();
        arena->owner.has_thread = true;
    }
    RG_ASSERT(owner_is_self(arena));
    struct rg_lease *lease;
    do {
        drain_returned(arena);
        lease = size <= SLAB_SIZE_MAX ? take_slab(arena, size) : take_run(arena, size);
    } while (lease == NULL && !ask_to_be_woken(arena));
    if (lease == NULL) {
        count_starved(arena);
        return NULL;
    }
    hand_out(arena, lease);
    return lease;
}

size_t rg_slab_size_max(const struct rg_slab_arena *arena)
{
    RG_ASSERT(arena->chunk_count > 0);
    return arena->chunk_count * CHUNK_SIZE;
}

void rg_slab_arena_stats(const struct rg_slab_arena *arena, struct rg_slab_stats *out_stats)
{
    RG_ASSERT(arena->chunk_count > 0);
    *out_stats = (struct rg_slab_stats){
        .leased_bytes = leased_bytes(arena),
        .leased_bytes_max = atomic_load_explicit(&arena->stats.leased_max, memory_order_relaxed),
        .starved_count = atomic_load_explicit(&arena->stats.starved_count, memory_order_relaxed),
    };
}

bool rg_slab_arena_is_starved(const struct rg_slab_arena *arena)
{
    return atomic_load_explicit(&arena->foreign.returned, memory_order_relaxed) == &starved;
}

static void *map(size_t size)
{
    void *address = mmap(NULL, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

static void unmap(void *address, size_t size)
{
    if (size > 0) {
        int rc = munmap(address, size);
        RG_ASSERT(rc == 0);
    }
}

/* A mapping that begins at a huge page. NULL if there is no address space. */
static uint8_t *map_chunks(size_t size)
{
    uint8_t *start = map(size + CHUNK_SIZE);
    if (start == NULL) {
        return NULL;
    }
    size_t before = -(uintptr_t)start & (CHUNK_SIZE - 1);
    uint8_t *data = start + before;
    unmap(start, before);
    unmap(data + size, CHUNK_SIZE - before);
    /* Where huge pages are switched off this fails, and small ones serve. */
    (void)madvise(data, size, MADV_HUGEPAGE);
    return data;
}

/* The arena, its chunks and its leases lie in one mapping, zero and untouched where not in use. */
static struct rg_slab_arena *map_books(uint32_t chunk_count)
{
    static_assert(sizeof(struct rg_slab_arena) % RG_CACHE_LINE == 0, "leases begin on a line");
    static_assert(sizeof(struct rg_lease) == RG_CACHE_LINE, "one lease, one cache line");
    size_t leases_size = chunk_count * SLABS_PER_CHUNK_MAX * sizeof(struct rg_lease);
    size_t chunks_size = chunk_count * sizeof(struct chunk);
    size_t size = sizeof(struct rg_slab_arena) + leases_size + chunks_size;
    struct rg_slab_arena *arena = map(size);
    if (arena == NULL) {
        return NULL;
    }
    arena->books_size = size;
    arena->chunk_count = chunk_count;
    arena->leases = (struct rg_lease *)(arena + 1);
    arena->chunks = (struct chunk *)((uint8_t *)arena->leases + leases_size);
    return arena;
}

int rg_slab_arena_create(struct rg_slab_arena **out_arena, const struct rg_slab_options *options)
{
    if (options->budget == 0) {
        return -EINVAL;
    }
    if (options->budget / CHUNK_SIZE > CHUNKS_MAX) {
        return -ENOMEM;
    }
    uint32_t chunk_count = (uint32_t)RG_MAX(options->budget / CHUNK_SIZE, 1);
    uint32_t fork_generation = rg_fork_generation();
    struct rg_slab_arena *arena = fork_generation != 0 ? map_books(chunk_count) : NULL;
    if (arena == NULL) {
        return -ENOMEM;
    }
    arena->data = map_chunks(chunk_count * CHUNK_SIZE);
    if (arena->data == NULL) {
        unmap(arena, arena->books_size);
        return -ENOMEM;
    }
    arena->fork_generation = fork_generation;
    arena->wake = options->wake;
    arena->wake_context = options->wake_context;
    arena->pin = options->pin;
    arena->unpin = options->unpin;
    arena->pin_context = options->pin_context;
    arena->owner.pinned_max = options->pin != NULL ? options->pinned_max : 0;
    arena->owner.spare_count = chunk_count;
    for (uint32_t i = 0; i < CLASS_COUNT; i++) {
        struct size_class *class = &arena->owner.classes[i];
        rg_list_init(&class->free);
        class->size = class_size(i);
        class->slabs_per_chunk = (uint32_t)(CHUNK_SIZE / class->size);
    }
    if (options->bind != NULL) {
        options->bind(options->bind_context, arena->data, chunk_count * CHUNK_SIZE);
    }
    *out_arena = arena;
    return 0;
}

static void unpin_all(struct rg_slab_arena *arena)
{
    for (uint32_t i = 0; i < arena->owner.fresh; i += arena->chunks[i].run_length) {
        unpin_run(arena, &arena->chunks[i]);
    }
    RG_ASSERT(arena->owner.pinned == 0);
}

void rg_slab_arena_destroy(struct rg_slab_arena *arena)
{
    /* A child keeps everything: the fork may have caught the owner in the middle of a change, and
     * what was leased may still be read. */
    if (arena == NULL || rg_fork_generation() != arena->fork_generation) {
        return;
    }
    arena->owner.thread = pthread_self();
    drain_returned(arena);
    uint64_t leased = leased_bytes(arena);
    RG_VERIFY(leased == 0);
    RG_VERIFY(rg_slab_arena_is_sound(arena));
    if (leased > 0) {
        /* Nobody is left to be woken by the releases to come. */
        (void)unask(arena);
        return;
    }
    unpin_all(arena);
    SLAB_UNPOISON(arena->data, arena->owner.touched * CHUNK_SIZE);
    unmap(arena->data, arena->chunk_count * CHUNK_SIZE);
    unmap(arena, arena->books_size);
}

static size_t list_length(const struct rg_list *list)
{
    size_t length = 0;
    for (const struct rg_list *node = list->next; node != list; node = node->next) {
        RG_ASSERT(node->next->prev == node);
        length++;
    }
    return length;
}

static uint32_t count_free_in_buckets(const struct rg_slab_arena *arena)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < BUCKET_COUNT; i++) {
        const struct chunk *run = arena->owner.buckets[i];
        RG_ASSERT((run != NULL) == ((arena->owner.bucket_map >> i & 1) != 0));
        for (; run != NULL; run = run->next) {
            RG_ASSERT(bucket_of(run->run_length) == i);
            count += run->run_length;
        }
    }
    return count;
}

bool rg_slab_arena_is_sound(const struct rg_slab_arena *arena)
{
    size_t free_slabs[CLASS_COUNT] = {0};
    uint32_t free_count = 0, idle_count = 0, i = 0;
    uint64_t pinned = 0;
    while (i < arena->owner.fresh) {
        const struct chunk *chunk = &arena->chunks[i];
        if (chunk->run_length == 0) {
            return false;
        }
        pinned += chunk->is_pinned ? chunk->run_length * CHUNK_SIZE : 0;
        if (chunk->use == CHUNK_FREE) {
            free_count += chunk->run_length;
        } else if (chunk->use == CHUNK_SLABS) {
            const struct size_class *class = &arena->owner.classes[chunk->class_index];
            if (chunk->live > chunk->carved || (chunk->live == 0) != (class->idle == chunk)) {
                return false;
            }
            free_slabs[chunk->class_index] += chunk->carved - chunk->live;
            idle_count += chunk->live == 0;
        }
        i += chunk->run_length;
    }
    for (uint32_t c = 0; c < CLASS_COUNT; c++) {
        if (list_length(&arena->owner.classes[c].free) != free_slabs[c]) {
            return false;
        }
    }
    uint32_t fresh_count = arena->chunk_count - arena->owner.fresh;
    return i == arena->owner.fresh && pinned == arena->owner.pinned &&
           free_count == count_free_in_buckets(arena) &&
           arena->owner.spare_count == fresh_count + free_count + idle_count;
}
