/* What an object costs that lies in the memory tier: put there, found for the first time and again,
 * and what a consumer pays who wants to write to it.
 *
 * usage: bench_memory OBJECTS */
#include "cache/memory.h"
#include "perf/bench.h"
#include "runtime/slab.h"

#include <fcntl.h>
#include <ringest/gcs.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BODY_SIZE RG_KIB(100)
#define PAGE_SIZE RG_KIB(4)

struct bench {
    struct rg_memory *memory;
    uint8_t *body, *own;
    uint64_t objects, hash;
};

static struct rg_cache_key key_of(uint64_t number, char name[64])
{
    snprintf(name, 64, "train/n%08" PRIu64 "/image_%08" PRIu64 ".jpg", number % 1000, number);
    return (struct rg_cache_key){"storage.googleapis.com", "a-bucket", name,
                                 (int64_t)(1700000000000000 + number), 0};
}

static void report(const struct bench *bench, const char *what, uint64_t begun_ns, uint64_t count)
{
    RG_ASSERT(count == bench->objects);
    printf("%-52s %8.2f us of CPU each\n", what,
           (double)(bench_cpu_ns() - begun_ns) / 1000 / (double)count);
}

static void puts_run(struct bench *bench)
{
    uint64_t taken = 0, begun_ns = bench_cpu_ns();
    char name[64];
    struct rg_cache_record record = {
        .object_size = BODY_SIZE,
        .object_crc32c = rg_crc32c(0, bench->body, BODY_SIZE),
        .has_object_crc32c = true,
    };
    for (uint64_t i = 0; i < bench->objects; i++) {
        struct rg_cache_key key = key_of(i, name);
        taken += rg_memory_put(bench->memory, &key, &record, bench->body, BODY_SIZE);
    }
    report(bench, "put, CRC32C known", begun_ns, taken);
    rg_memory_flush(bench->memory);
}

static struct rg_lease *lease_of(struct bench *bench, uint64_t number)
{
    char name[64];
    struct rg_memory_block block;
    struct rg_cache_key key = key_of(number * 7919 % bench->objects, name);
    RG_ASSERT(rg_memory_find(bench->memory, &key, &block));
    struct rg_lease *lease = rg_memory_lease(bench->memory, &block, 0, BODY_SIZE);
    rg_memory_drop(bench->memory, &block);
    RG_ASSERT(lease != NULL);
    return lease;
}

static void hits_run(struct bench *bench, const char *what, bool copied)
{
    uint64_t begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < bench->objects; i++) {
        struct rg_lease *lease = lease_of(bench, i);
        if (copied) {
            memcpy(bench->own, lease->data, BODY_SIZE);
        }
        bench->hash = bench_hash_u64(bench->hash, lease->data[i % BODY_SIZE]);
        rg_lease_release(lease);
    }
    report(bench, what, begun_ns, bench->objects);
}

static void misses_run(struct bench *bench)
{
    char name[64];
    struct rg_memory_block block;
    uint64_t misses = 0, begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < bench->objects; i++) {
        struct rg_cache_key key = key_of(i + bench->objects, name);
        misses += !rg_memory_find(bench->memory, &key, &block);
    }
    report(bench, "looked up in vain", begun_ns, misses);
}

/* Sealed memory of the same bodies, without the tier. */
static int sealed_make(const struct bench *bench)
{
    int fd = memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    RG_ASSERT(fd >= 0);
    for (uint64_t i = 0; i < bench->objects; i++) {
        RG_ASSERT(pwrite(fd, bench->body, BODY_SIZE, (off_t)(i * BODY_SIZE)) == BODY_SIZE);
    }
    RG_ASSERT(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

/* A private mapping of each body, which may be written to without harm to others: each page that is
 * read is mapped, and each that is written is copied. */
static void private_run(struct bench *bench, int fd, const char *what, bool written)
{
    uint64_t begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < bench->objects; i++) {
        off_t offset = (off_t)(i * 7919 % bench->objects * BODY_SIZE);
        uint8_t *data = mmap(NULL, BODY_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, offset);
        RG_ASSERT(data != MAP_FAILED);
        for (size_t at = 0; at < BODY_SIZE; at += PAGE_SIZE) {
            bench->hash ^= data[at];
            if (written) {
                data[at] = 1;
            }
        }
        RG_ASSERT(munmap(data, BODY_SIZE) == 0);
    }
    report(bench, what, begun_ns, bench->objects);
}

int main(int argc, char **argv)
{
    char why[512];
    struct bench bench = {.hash = BENCH_HASH_INIT, .objects = bench_rounds(2, argv)};
    struct rg_memory_options options = {.size = 2 * bench.objects * BODY_SIZE + RG_MIB(64)};
    (void)argc;
    if (rg_memory_open(&bench.memory, &options, why, sizeof(why)) < 0) {
        fprintf(stderr, "bench_memory: %s\n", why);
        return 1;
    }
    bench.body = malloc(BODY_SIZE);
    bench.own = malloc(BODY_SIZE);
    RG_ASSERT(bench.body != NULL && bench.own != NULL);
    for (size_t i = 0; i < BODY_SIZE; i++) {
        bench.body[i] = (uint8_t)(i * 31 + (i >> 9));
    }
    misses_run(&bench);
    puts_run(&bench);
    hits_run(&bench, "hit, a lease; for the first time, with CRC32C", false);
    hits_run(&bench, "hit, a lease; again", false);
    hits_run(&bench, "hit, a lease, and a copy of it", true);
    int fd = sealed_make(&bench);
    private_run(&bench, fd, "instead: a private mapping of each, read", false);
    private_run(&bench, fd, "instead: a private mapping of each, written", true);
    close(fd);
    rg_memory_close(bench.memory);
    free(bench.body);
    free(bench.own);
    return 0;
}
