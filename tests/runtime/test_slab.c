/* The slab arena: classes, reuse, the way of chunks between classes and runs, back-pressure,
 * releases by other threads, and random life against a model. */
#include "runtime/slab.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHUNK RG_MIB(2)

static struct rg_slab_arena *make_arena(uint64_t chunk_count)
{
    struct rg_slab_options options = {.budget = chunk_count * CHUNK};
    struct rg_slab_arena *arena;
    RG_CHECK_EQ(rg_slab_arena_create(&arena, &options), 0);
    return arena;
}

static uint64_t bytes_out(const struct rg_slab_arena *arena)
{
    struct rg_slab_stats stats;
    rg_slab_arena_stats(arena, &stats);
    return stats.leased_bytes;
}

static void end_arena(struct rg_slab_arena *arena)
{
    RG_CHECK_EQ(bytes_out(arena), 0);
    RG_CHECK(rg_slab_arena_is_sound(arena));
    rg_slab_arena_destroy(arena);
}

static struct rg_lease *take(struct rg_slab_arena *arena, size_t size)
{
    struct rg_lease *lease = rg_slab_take(arena, size);
    RG_CHECK(lease != NULL);
    RG_CHECK(lease->capacity >= size);
    return lease;
}

static void test_create_checks_the_budget(void)
{
    struct rg_slab_arena *arena = NULL;
    struct rg_slab_options options = {.budget = 0};
    RG_CHECK_EQ(rg_slab_arena_create(&arena, &options), -EINVAL);
    RG_CHECK(arena == NULL);
    options.budget = 1;
    RG_CHECK_EQ(rg_slab_arena_create(&arena, &options), 0);
    RG_CHECK_EQ(rg_slab_size_max(arena), CHUNK);
    rg_slab_arena_destroy(arena);
    options.budget = 4 * CHUNK - 1;
    RG_CHECK_EQ(rg_slab_arena_create(&arena, &options), 0);
    RG_CHECK_EQ(rg_slab_size_max(arena), 3 * CHUNK);
    rg_slab_arena_destroy(arena);
    rg_slab_arena_destroy(NULL);
}

static void test_a_vast_budget_costs_nothing_until_used(void)
{
    struct rg_slab_arena *arena = make_arena((UINT64_C(64) << 30) / CHUNK);
    rg_lease_release(take(arena, 1));
    end_arena(arena);
}

static void test_no_address_space_is_an_error(void)
{
    struct rg_slab_arena *arena = NULL;
    struct rg_slab_options options = {.budget = UINT64_MAX};
    RG_CHECK_EQ(rg_slab_arena_create(&arena, &options), -ENOMEM);
    RG_CHECK(arena == NULL);
}

static void check_fit(struct rg_slab_arena *arena, size_t size)
{
    struct rg_lease *lease = take(arena, size);
    size_t wanted = RG_MAX(size, RG_KIB(4));
    RG_CHECK(lease->capacity - wanted <= wanted / 4 || lease->capacity == CHUNK);
    RG_CHECK_EQ((uintptr_t)lease->data % RG_CACHE_LINE, 0);
    if (lease->capacity % 4096 == 0) {
        RG_CHECK_EQ((uintptr_t)lease->data % 4096, 0);
    }
    memset(lease->data, 0x5a, lease->capacity);
    rg_lease_release(lease);
}

static void test_capacities_fit_their_sizes(void)
{
    struct rg_slab_arena *arena = make_arena(40);
    for (size_t step = RG_KIB(4); step <= RG_MIB(2); step += step / 4) {
        check_fit(arena, step - 1);
        check_fit(arena, step);
        check_fit(arena, step + 1);
    }
    for (int i = 0; i < 300; i++) {
        check_fit(arena, rg_test_random_below(RG_MIB(1) + 1));
    }
    struct rg_lease *run = take(arena, RG_MIB(5));
    RG_CHECK_EQ(run->capacity, RG_MIB(6));
    RG_CHECK_EQ((uintptr_t)run->data % CHUNK, 0);
    rg_lease_release(run);
    end_arena(arena);
}

static void test_the_last_released_is_taken_first(void)
{
    static const size_t sizes[] = {1, RG_KIB(100), RG_MIB(1), RG_MIB(2), RG_MIB(5)};
    struct rg_slab_arena *arena = make_arena(64);
    for (size_t s = 0; s < RG_ARRAY_LEN(sizes); s++) {
        struct rg_lease *leases[4];
        for (int i = 0; i < 4; i++) {
            leases[i] = take(arena, sizes[s]);
        }
        rg_lease_release(leases[1]);
        rg_lease_release(leases[3]);
        RG_CHECK(take(arena, sizes[s]) == leases[3]);
        RG_CHECK(take(arena, sizes[s]) == leases[1]);
        for (int i = 0; i < 4; i++) {
            rg_lease_release(leases[i]);
        }
    }
    end_arena(arena);
}

static void *release_in_order(void *context)
{
    for (struct rg_lease **lease = context; *lease != NULL; lease++) {
        rg_lease_release(*lease);
    }
    return NULL;
}

static void release_elsewhere(struct rg_lease **leases)
{
    pthread_t thread;
    RG_CHECK_EQ(pthread_create(&thread, NULL, release_in_order, leases), 0);
    pthread_join(thread, NULL);
}

static void test_the_last_released_elsewhere_is_taken_first(void)
{
    struct rg_slab_arena *arena = make_arena(4);
    struct rg_lease *leases[4] = {0};
    for (int i = 0; i < 3; i++) {
        leases[i] = take(arena, RG_KIB(64));
    }
    release_elsewhere(leases);
    RG_CHECK_EQ(bytes_out(arena), 0);
    for (int i = 2; i >= 0; i--) {
        RG_CHECK(take(arena, RG_KIB(64)) == leases[i]);
    }
    release_elsewhere(leases);
    end_arena(arena);
}

static void test_a_lease_that_is_shared_comes_back_with_the_last_release(void)
{
    struct rg_slab_arena *arena = make_arena(1);
    struct rg_lease *lease = take(arena, RG_KIB(64));
    rg_lease_share(lease, 2);
    rg_lease_share(lease, 1);
    rg_lease_share(NULL, 1);
    for (int i = 0; i < 3; i++) {
        rg_lease_release(lease);
        RG_CHECK_EQ(bytes_out(arena), RG_KIB(64));
    }
    rg_lease_release(lease);
    RG_CHECK_EQ(bytes_out(arena), 0);
    RG_CHECK(take(arena, RG_KIB(64)) == lease);
    rg_lease_release(lease);
    end_arena(arena);
}

#define SHARERS 4
#define SHARED_TIMES 2000

static void *release_shared(void *leases)
{
    for (int i = 0; i < SHARED_TIMES; i++) {
        rg_lease_release(((struct rg_lease **)leases)[i]);
    }
    return NULL;
}

/* Holders on several threads, of which any may be the last. */
static void test_a_lease_may_be_shared_among_threads(void)
{
    static struct rg_lease *leases[SHARED_TIMES];
    pthread_t threads[SHARERS];
    struct rg_slab_arena *arena = make_arena(8);
    for (int i = 0; i < SHARED_TIMES; i++) {
        leases[i] = take(arena, RG_KIB(4));
        rg_lease_share(leases[i], SHARERS - 1);
    }
    for (int i = 0; i < SHARERS; i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, release_shared, leases), 0);
    }
    for (int i = 0; i < SHARERS; i++) {
        pthread_join(threads[i], NULL);
    }
    end_arena(arena);
}

static void test_all_slabs_of_a_chunk_are_usable_and_apart(void)
{
    struct rg_slab_arena *arena = make_arena(1);
    struct rg_lease *leases[512];
    for (uint32_t i = 0; i < 512; i++) {
        leases[i] = take(arena, RG_KIB(4));
        memset(leases[i]->data, (int)i, RG_KIB(4));
    }
    RG_CHECK(rg_slab_take(arena, 1) == NULL);
    for (uint32_t i = 0; i < 512; i++) {
        RG_CHECK_EQ(leases[i]->data[0], (uint8_t)i);
        RG_CHECK_EQ(leases[i]->data[RG_KIB(4) - 1], (uint8_t)i);
        rg_lease_release(leases[i]);
    }
    end_arena(arena);
}

static size_t resident_bytes(uint8_t *data, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 0;
    for (size_t i = 0; i < size; i += page) {
        unsigned char resident = 0;
        RG_CHECK_EQ(mincore(data + i, page, &resident), 0);
        bytes += (resident & 1) != 0 ? page : 0;
    }
    return bytes;
}

static void test_memory_is_faulted_in_when_taken(void)
{
    struct rg_slab_arena *arena = make_arena(3);
    struct rg_lease *lease = take(arena, RG_MIB(3));
    RG_CHECK_EQ(resident_bytes(lease->data, lease->capacity), lease->capacity);
    rg_lease_release(lease);
    end_arena(arena);
}

static void test_memory_can_be_faulted_in_before(void)
{
    struct rg_slab_arena *arena = make_arena(4);
    rg_slab_fault_in(arena, CHUNK + 1);
    struct rg_lease *lease = take(arena, CHUNK);
    RG_CHECK_EQ(resident_bytes(lease->data + CHUNK, CHUNK), CHUNK);
    RG_CHECK_EQ(resident_bytes(lease->data + 2 * CHUNK, 2 * CHUNK), 0);
    memset(lease->data, 1, CHUNK);
    rg_slab_fault_in(arena, UINT64_MAX);
    RG_CHECK_EQ(resident_bytes(lease->data, 4 * CHUNK), 4 * CHUNK);
    RG_CHECK_EQ(lease->data[CHUNK - 1], 1);
    rg_lease_release(lease);
    end_arena(arena);
}

static void test_a_free_chunk_serves_any_class(void)
{
    struct rg_slab_arena *arena = make_arena(2);
    for (size_t size = RG_KIB(4); size <= RG_MIB(2); size += size / 4) {
        struct rg_lease *a = take(arena, size);
        struct rg_lease *b = take(arena, RG_MIB(2));
        rg_lease_release(a);
        rg_lease_release(b);
        RG_CHECK(rg_slab_arena_is_sound(arena));
        rg_lease_release(take(arena, RG_MIB(4)));
    }
    end_arena(arena);
}

static void test_an_idle_chunk_stays_with_its_class_while_there_is_room(void)
{
    struct rg_slab_arena *arena = make_arena(8);
    struct rg_lease *small = take(arena, RG_KIB(8));
    uint8_t *small_data = small->data;
    rg_lease_release(small);
    struct rg_lease *other = take(arena, RG_KIB(16));
    RG_CHECK((size_t)labs(other->data - small_data) >= CHUNK);
    small = take(arena, RG_KIB(8));
    RG_CHECK(small->data == small_data);
    rg_lease_release(small);
    rg_lease_release(other);
    end_arena(arena);
}

static void test_a_second_idle_chunk_is_given_back(void)
{
    struct rg_slab_arena *arena = make_arena(8);
    struct rg_lease *leases[4];
    for (int i = 0; i < 4; i++) {
        leases[i] = take(arena, RG_MIB(1)); /* two to a chunk */
    }
    uint8_t *older = leases[0]->data;
    for (int i = 0; i < 4; i++) {
        rg_lease_release(leases[i]);
    }
    struct rg_lease *other = take(arena, RG_KIB(16));
    RG_CHECK(other->data == older);
    rg_lease_release(other);
    end_arena(arena);
}

static void test_scattered_free_runs_become_one(void)
{
    struct rg_slab_arena *arena = make_arena(12);
    struct rg_lease *leases[12];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 12; i++) {
            leases[i] = take(arena, CHUNK);
        }
        for (int i = 12; i > 0; i--) {
            uint64_t other = rg_test_random_below((uint64_t)i);
            rg_lease_release(leases[other]);
            leases[other] = leases[i - 1];
        }
        rg_lease_release(take(arena, 12 * CHUNK));
        RG_CHECK(rg_slab_arena_is_sound(arena));
    }
    end_arena(arena);
}

static void test_long_runs_share_a_bucket_but_fit(void)
{
    struct rg_slab_arena *arena = make_arena(300);
    struct rg_lease *a = take(arena, 80 * CHUNK);
    struct rg_lease *wall = take(arena, CHUNK);
    struct rg_lease *b = take(arena, 70 * CHUNK);
    struct rg_lease *wall2 = take(arena, CHUNK);
    rg_lease_release(a);
    rg_lease_release(b); /* on top of the bucket, but too short for the next */
    struct rg_lease *c = take(arena, 75 * CHUNK);
    RG_CHECK(c->data == a->data);
    rg_lease_release(c);
    rg_lease_release(wall);
    rg_lease_release(wall2);
    rg_lease_release(take(arena, 300 * CHUNK));
    end_arena(arena);
}

static void count_wake(void *context)
{
    atomic_fetch_add((_Atomic unsigned *)context, 1);
}

static void test_the_first_release_after_a_dearth_wakes_once(void)
{
    _Atomic unsigned wake_count = 0;
    struct rg_slab_options options = {
        .budget = 2 * CHUNK, .wake = count_wake, .wake_context = &wake_count};
    struct rg_slab_arena *arena;
    RG_CHECK_EQ(rg_slab_arena_create(&arena, &options), 0);
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        unsigned before = atomic_load(&wake_count);
        struct rg_lease *leases[3] = {take(arena, CHUNK), take(arena, CHUNK), NULL};
        RG_CHECK(rg_slab_take(arena, 1) == NULL);
        RG_CHECK(rg_slab_take(arena, CHUNK) == NULL);
        if (elsewhere) {
            release_elsewhere(leases);
        } else {
            release_in_order(leases);
        }
        RG_CHECK_EQ(atomic_load(&wake_count) - before, 1);
        rg_lease_release(take(arena, 2 * CHUNK));
        RG_CHECK_EQ(atomic_load(&wake_count) - before, 1);
    }
    struct rg_slab_stats stats;
    rg_slab_arena_stats(arena, &stats);
    RG_CHECK_EQ(stats.starved_count, 4);
    RG_CHECK_EQ(stats.leased_bytes_max, 2 * CHUNK);
    end_arena(arena);
}

struct binding {
    uint8_t *address;
    size_t size;
    unsigned count;
};

static void note_binding(void *context, void *address, size_t size)
{
    struct binding *binding = context;
    *binding = (struct binding){.address = address, .size = size, .count = binding->count + 1};
}

static void test_the_whole_mapping_is_bound_once(void)
{
    struct binding binding = {0};
    struct rg_slab_options options = {
        .budget = 3 * CHUNK, .bind = note_binding, .bind_context = &binding};
    struct rg_slab_arena *arena;
    RG_CHECK_EQ(rg_slab_arena_create(&arena, &options), 0);
    RG_CHECK_EQ(binding.size, 3 * CHUNK);
    RG_CHECK_EQ((uintptr_t)binding.address % CHUNK, 0);
    struct rg_lease *lease = take(arena, 3 * CHUNK);
    RG_CHECK(lease->data == binding.address);
    RG_CHECK_EQ(binding.count, 1);
    rg_lease_release(lease);
    end_arena(arena);
}

static void test_a_child_may_read_and_release_but_wakes_nobody(void)
{
    _Atomic unsigned *wake_count =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rg_slab_options options = {
        .budget = CHUNK, .wake = count_wake, .wake_context = wake_count};
    struct rg_slab_arena *arena;
    RG_CHECK_EQ(rg_slab_arena_create(&arena, &options), 0);
    struct rg_lease *lease = take(arena, CHUNK);
    lease->data[CHUNK - 1] = 42;
    RG_CHECK(rg_slab_take(arena, 1) == NULL);
    pid_t pid = fork();
    if (pid == 0) {
        bool readable = lease->data[CHUNK - 1] == 42;
        rg_lease_release(lease);
        rg_slab_arena_destroy(arena);
        _exit(readable ? 0 : 1);
    }
    int status = -1;
    RG_CHECK_EQ(waitpid(pid, &status, 0), pid);
    RG_CHECK_EQ(status, 0);
    RG_CHECK_EQ(atomic_load(wake_count), 0);
    rg_lease_release(lease);
    RG_CHECK_EQ(atomic_load(wake_count), 1);
    munmap(wake_count, 4096);
    end_arena(arena);
}

static void test_releasing_twice_ends_the_process(void)
{
    struct rg_slab_arena *arena = make_arena(1);
    pid_t pid = fork();
    if (pid == 0) {
        struct rg_lease *lease = rg_slab_take(arena, 1);
        rg_lease_release(lease);
        if (freopen("/dev/null", "w", stderr) == NULL) {
            _exit(1);
        }
        rg_lease_release(lease);
        _exit(0);
    }
    int status = 0;
    RG_CHECK_EQ(waitpid(pid, &status, 0), pid);
    RG_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    end_arena(arena);
}

#define MODEL_SLOTS 200
#define MODEL_STEPS 15000
#define MODEL_CHUNKS 24

struct model_slot {
    struct rg_lease *lease;
    uint64_t stamp;
};

/* Both ends of a lease carry its stamp: two leases that overlap spoil one of them. */
static void stamp_lease(struct model_slot *slot)
{
    slot->stamp = rg_test_random();
    memcpy(slot->lease->data, &slot->stamp, sizeof(slot->stamp));
    memcpy(slot->lease->data + slot->lease->capacity - sizeof(slot->stamp), &slot->stamp,
           sizeof(slot->stamp));
}

static void check_stamp(const struct model_slot *slot)
{
    size_t size = sizeof(slot->stamp);
    RG_CHECK_MEM(slot->lease->data, size, &slot->stamp, size);
    RG_CHECK_MEM(slot->lease->data + slot->lease->capacity - size, size, &slot->stamp, size);
}

/* Mostly small, sometimes long runs. */
static size_t random_size(void)
{
    uint64_t bits = 10 + rg_test_random_below(15);
    return (size_t)(1 + rg_test_random_below(UINT64_C(1) << bits));
}

static void test_random_life_keeps_leases_apart_and_the_books_right(void)
{
    struct rg_slab_arena *arena = make_arena(MODEL_CHUNKS);
    struct model_slot slots[MODEL_SLOTS] = {0};
    uint64_t out = 0, refused = 0;
    for (int step = 0; step < MODEL_STEPS; step++) {
        struct model_slot *slot = &slots[rg_test_random_below(MODEL_SLOTS)];
        if (slot->lease != NULL) {
            check_stamp(slot);
            out -= slot->lease->capacity;
            rg_lease_release(slot->lease);
            slot->lease = NULL;
        } else {
            slot->lease = rg_slab_take(arena, random_size());
            refused += slot->lease == NULL;
            if (slot->lease != NULL) {
                out += slot->lease->capacity;
                stamp_lease(slot);
            }
        }
        RG_CHECK_EQ(bytes_out(arena), out);
        RG_CHECK(step % 64 != 0 || rg_slab_arena_is_sound(arena));
    }
    RG_CHECK(refused > 0);
    for (int i = 0; i < MODEL_SLOTS; i++) {
        rg_lease_release(slots[i].lease);
    }
    rg_lease_release(take(arena, MODEL_CHUNKS * CHUNK));
    end_arena(arena);
}

#define RELEASERS 2
#define HANDED_EACH 15000
#define PIPE_SLOTS 64

/* From the owner to one releasing thread: a ring that each side spins on. */
struct pipe_end {
    pthread_t thread;
    _Atomic(struct rg_lease *) slots[PIPE_SLOTS];
    _Atomic unsigned spoiled;
};

static void *release_handed(void *context)
{
    struct pipe_end *end = context;
    for (unsigned i = 0; i < HANDED_EACH; i++) {
        _Atomic(struct rg_lease *) *slot = &end->slots[i % PIPE_SLOTS];
        struct rg_lease *lease;
        while ((lease = atomic_load_explicit(slot, memory_order_acquire)) == NULL) {
            sched_yield();
        }
        atomic_store_explicit(slot, NULL, memory_order_relaxed);
        if (lease->data[0] != (uint8_t)i || lease->data[lease->capacity - 1] != (uint8_t)i) {
            atomic_fetch_add(&end->spoiled, 1);
        }
        rg_lease_release(lease);
    }
    return NULL;
}

struct sleepy_owner {
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool awake;
};

static void wake_sleepy(void *context)
{
    struct sleepy_owner *owner = context;
    pthread_mutex_lock(&owner->lock);
    owner->awake = true;
    pthread_cond_signal(&owner->woken);
    pthread_mutex_unlock(&owner->lock);
}

static void sleep_until_woken(struct sleepy_owner *owner)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 30; /* only a lost wake-up lasts as long */
    pthread_mutex_lock(&owner->lock);
    int rc = 0;
    while (!owner->awake && rc == 0) {
        rc = pthread_cond_timedwait(&owner->woken, &owner->lock, &limit);
    }
    owner->awake = false;
    pthread_mutex_unlock(&owner->lock);
    RG_CHECK_EQ(rc, 0);
}

static struct rg_lease *take_or_sleep(struct rg_slab_arena *arena, struct sleepy_owner *owner,
                                      size_t size)
{
    struct rg_lease *lease;
    while ((lease = rg_slab_take(arena, size)) == NULL) {
        sleep_until_woken(owner);
    }
    return lease;
}

static void test_releases_by_others_come_back_and_wake(void)
{
    static struct pipe_end ends[RELEASERS];
    struct sleepy_owner owner = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                 .woken = PTHREAD_COND_INITIALIZER};
    struct rg_slab_options options = {
        .budget = 4 * CHUNK, .wake = wake_sleepy, .wake_context = &owner};
    struct rg_slab_arena *arena;
    RG_CHECK_EQ(rg_slab_arena_create(&arena, &options), 0);
    for (int i = 0; i < RELEASERS; i++) {
        RG_CHECK_EQ(pthread_create(&ends[i].thread, NULL, release_handed, &ends[i]), 0);
    }
    for (unsigned i = 0; i < HANDED_EACH; i++) {
        for (int r = 0; r < RELEASERS; r++) {
            static const size_t sizes[] = {RG_KIB(4), RG_KIB(512), RG_MIB(1), RG_MIB(3)};
            size_t size = sizes[rg_test_random_below(RG_ARRAY_LEN(sizes))];
            struct rg_lease *lease = take_or_sleep(arena, &owner, size);
            lease->data[0] = lease->data[lease->capacity - 1] = (uint8_t)i;
            _Atomic(struct rg_lease *) *slot = &ends[r].slots[i % PIPE_SLOTS];
            while (atomic_load_explicit(slot, memory_order_acquire) != NULL) {
                sched_yield();
            }
            atomic_store_explicit(slot, lease, memory_order_release);
        }
    }
    for (int i = 0; i < RELEASERS; i++) {
        pthread_join(ends[i].thread, NULL);
        RG_CHECK_EQ(ends[i].spoiled, 0);
    }
    struct rg_slab_stats stats;
    rg_slab_arena_stats(arena, &stats);
    RG_CHECK(stats.starved_count > 0);
    rg_lease_release(take(arena, 4 * CHUNK));
    end_arena(arena);
}

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>

static void test_free_memory_is_poisoned(void)
{
    struct rg_slab_arena *arena = make_arena(4);
    struct rg_lease *above =
        take(arena, 3 * CHUNK); /* faults in, and so poisons, what lies behind */
    rg_lease_release(above);
    static const size_t sizes[] = {RG_KIB(4), CHUNK};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        struct rg_lease *lease = take(arena, sizes[i]);
        uint8_t *data = lease->data;
        size_t capacity = lease->capacity;
        RG_CHECK(__asan_region_is_poisoned(data, capacity) == NULL);
        RG_CHECK(__asan_address_is_poisoned(data + capacity));
        rg_lease_release(lease);
        RG_CHECK(__asan_address_is_poisoned(data));
        RG_CHECK(__asan_address_is_poisoned(data + capacity - 1));
    }
    end_arena(arena);
}
#else
static void test_free_memory_is_poisoned(void)
{
    rg_test_skip("only with the address sanitizer");
}
#endif

static unsigned returned;

static void lent_return(struct rg_lease *lease)
{
    (void)lease;
    returned++;
}

static void test_a_lease_of_other_memory_goes_back_to_its_lender(void)
{
    static const uint8_t bytes[3] = {1, 2, 3};
    struct rg_lease lease;
    returned = 0;
    rg_lease_lend(&lease, bytes, sizeof(bytes), lent_return);
    RG_CHECK(lease.data == bytes && lease.capacity == sizeof(bytes));
    RG_CHECK(rg_lease_is_readonly(&lease) && !rg_lease_is_pinned(&lease));
    rg_lease_share(&lease, 2);
    rg_lease_release(&lease);
    rg_lease_release(&lease);
    RG_CHECK_EQ(returned, 0);
    rg_lease_release(&lease);
    RG_CHECK_EQ(returned, 1);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_create_checks_the_budget),
        RG_TEST(test_a_vast_budget_costs_nothing_until_used),
        RG_TEST(test_no_address_space_is_an_error),
        RG_TEST(test_capacities_fit_their_sizes),
        RG_TEST(test_the_last_released_is_taken_first),
        RG_TEST(test_the_last_released_elsewhere_is_taken_first),
        RG_TEST(test_a_lease_that_is_shared_comes_back_with_the_last_release),
        RG_TEST(test_a_lease_may_be_shared_among_threads),
        RG_TEST(test_all_slabs_of_a_chunk_are_usable_and_apart),
        RG_TEST(test_memory_is_faulted_in_when_taken),
        RG_TEST(test_memory_can_be_faulted_in_before),
        RG_TEST(test_a_free_chunk_serves_any_class),
        RG_TEST(test_an_idle_chunk_stays_with_its_class_while_there_is_room),
        RG_TEST(test_a_second_idle_chunk_is_given_back),
        RG_TEST(test_scattered_free_runs_become_one),
        RG_TEST(test_long_runs_share_a_bucket_but_fit),
        RG_TEST(test_the_first_release_after_a_dearth_wakes_once),
        RG_TEST(test_the_whole_mapping_is_bound_once),
        RG_TEST(test_a_child_may_read_and_release_but_wakes_nobody),
        RG_TEST(test_releasing_twice_ends_the_process),
        RG_TEST(test_random_life_keeps_leases_apart_and_the_books_right),
        RG_TEST(test_releases_by_others_come_back_and_wake),
        RG_TEST(test_free_memory_is_poisoned),
        RG_TEST(test_a_lease_of_other_memory_goes_back_to_its_lender),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
