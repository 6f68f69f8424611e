/* What taking a lease and giving it back costs, for some sizes of bodies: one at a time, a batch in
 * the order it was taken, and with the release on another thread. */
#include "perf/bench.h"
#include "runtime/slab.h"

#include <pthread.h>

#define BATCH 64
#define BUDGET RG_MIB(1024)

static double bench_batches(struct rg_slab_arena *arena, uint64_t rounds, size_t size, size_t batch)
{
    struct rg_lease *leases[BATCH];
    uint64_t start_ns = bench_cpu_ns();
    for (uint64_t done = 0; done < rounds; done += batch) {
        for (size_t i = 0; i < batch; i++) {
            leases[i] = rg_slab_take(arena, size);
            RG_ASSERT(leases[i] != NULL);
        }
        for (size_t i = 0; i < batch; i++) {
            rg_lease_release(leases[i]);
        }
    }
    return (double)(bench_cpu_ns() - start_ns) / (double)rounds;
}

struct hand_over {
    struct rg_lease *leases[BATCH];
    pthread_barrier_t taken, released;
    uint64_t batches;
};

static void *release_leases(void *argument)
{
    struct hand_over *shared = argument;
    for (uint64_t i = 0; i < shared->batches; i++) {
        pthread_barrier_wait(&shared->taken);
        for (size_t j = 0; j < BATCH; j++) {
            rg_lease_release(shared->leases[j]);
        }
        pthread_barrier_wait(&shared->released);
    }
    return NULL;
}

/* CPU time of both threads, the two barriers around each batch included. */
static double bench_other_thread(struct rg_slab_arena *arena, uint64_t rounds, size_t size)
{
    struct hand_over shared = {.batches = (rounds + BATCH - 1) / BATCH};
    pthread_t thread;
    pthread_barrier_init(&shared.taken, NULL, 2);
    pthread_barrier_init(&shared.released, NULL, 2);
    RG_ASSERT(pthread_create(&thread, NULL, release_leases, &shared) == 0);
    uint64_t start_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < shared.batches; i++) {
        for (size_t j = 0; j < BATCH; j++) {
            shared.leases[j] = rg_slab_take(arena, size);
            RG_ASSERT(shared.leases[j] != NULL);
        }
        pthread_barrier_wait(&shared.taken);
        pthread_barrier_wait(&shared.released);
    }
    uint64_t spent_ns = bench_cpu_ns() - start_ns;
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&shared.taken);
    pthread_barrier_destroy(&shared.released);
    return (double)spent_ns / (double)(shared.batches * BATCH);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {RG_KIB(4), RG_KIB(100), RG_MIB(1), RG_MIB(3)};
    uint64_t rounds = bench_rounds(argc, argv);
    uint64_t hash = BENCH_HASH_INIT;
    struct rg_slab_arena *arena;
    RG_ASSERT(rg_slab_arena_create(&arena, &(struct rg_slab_options){.budget = BUDGET}) == 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        bench_batches(arena, BATCH, sizes[i], BATCH); /* the first use of memory is dear */
        double one = bench_batches(arena, rounds, sizes[i], 1);
        double batch = bench_batches(arena, rounds, sizes[i], BATCH);
        double other = bench_other_thread(arena, rounds, sizes[i]);
        struct rg_lease *lease = rg_slab_take(arena, sizes[i]);
        RG_ASSERT(lease != NULL);
        hash = bench_hash_u64(hash, lease->capacity);
        printf("%5zu KiB in %5zu: %5.0f ns alone, %5.0f ns in batches of %d, %5.0f ns when another "
               "thread releases\n",
               sizes[i] >> 10, lease->capacity >> 10, one, batch, BATCH, other);
        rg_lease_release(lease);
    }
    printf("hash %016" PRIx64 "\n", hash);
    rg_slab_arena_destroy(arena);
    return 0;
}
