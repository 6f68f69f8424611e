/* What a cached object costs: found, read and checked, from the page cache and from the disk, and
 * written behind a miss. Sizes of bodies are as those of images.
 *
 * usage: bench_cache OBJECTS [FOLDER]; the folder is made, and removed again. */
#include "cache/cache.h"
#include "cache/folder.h"
#include "perf/bench.h"
#include "runtime/clock.h"
#include "runtime/loop.h"
#include "runtime/op.h"

#include <errno.h>
#include <ringest/gcs.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BODY_SIZE 102400
#define MEMORY_SIZE RG_MIB(2)

struct bench {
    struct rg_cache *cache;
    struct rg_loop *loop;
    struct rg_op op;
    bool done;
    uint8_t *memory; /* a huge page, as leases are part of */
    uint8_t *body;
    uint64_t objects, hash;
};

static void op_done(struct rg_op *op)
{
    RG_CONTAINER_OF(op, struct bench, op)->done = true;
}

static struct rg_cache_key key_of(uint64_t number, char name[64])
{
    snprintf(name, 64, "train/n%08" PRIu64 "/image_%08" PRIu64 ".jpg", number % 1000, number);
    return (struct rg_cache_key){"storage.googleapis.com", "a-bucket", name,
                                 (int64_t)(1700000000000000 + number), 0};
}

static int32_t place_read(struct bench *bench, const struct rg_cache_place *place, bool direct)
{
    uint64_t from = place->offset / RG_CACHE_ALIGNMENT * RG_CACHE_ALIGNMENT;
    uint64_t end = place->offset + place->size;
    size_t size =
        (size_t)((end - from + RG_CACHE_ALIGNMENT - 1) / RG_CACHE_ALIGNMENT * RG_CACHE_ALIGNMENT);
    size_t done = 0;
    do {
        bench->done = false;
        if (direct && place->fd_direct >= 0) {
            rg_op_read_file_direct(bench->loop, &bench->op, place->fd, place->fd_direct, from,
                                   bench->memory, size);
        } else {
            rg_op_read_file(bench->loop, &bench->op, place->fd, from + done, bench->memory + done,
                            size - done);
        }
        while (!bench->done) {
            rg_loop_pass(bench->loop, rg_now_ns() + RG_NS_PER_S);
        }
        done += bench->op.result > 0 ? (size_t)bench->op.result : 0;
    } while (bench->op.result > 0 && done < size);
    return bench->op.result < 0 ? bench->op.result : (int32_t)done;
}

/* One hit; false: it was none. */
static bool object_read(struct bench *bench, uint64_t number, bool direct)
{
    char name[64];
    struct rg_cache_place place;
    struct rg_cache_record record;
    struct rg_cache_key key = key_of(number, name);
    if (!rg_cache_find(bench->cache, &key, &place)) {
        return false;
    }
    int32_t got = place_read(bench, &place, direct);
    int rc = 0;
    if (got <= 0) {
        rg_cache_place_failed(bench->cache, &place, got < 0 ? got : -EIO);
        rc = -EIO;
    }
    const uint8_t *bytes = bench->memory + place.offset % RG_CACHE_ALIGNMENT;
    rc =
        rc == 0 ? rg_cache_record_open(bench->cache, &place, &key, bytes, place.size, &record) : rc;
    rc = rc == 0 ? rg_cache_record_check(bench->cache, &place, &record, 0,
                                         bytes + record.header_size, record.body_size)
                 : rc;
    rg_cache_place_drop(bench->cache, &place);
    bench->hash = bench_hash_u64(bench->hash, rc == 0 ? number : 0);
    return rc == 0;
}

static void report(struct bench *bench, const char *what, uint64_t cpu_ns, uint64_t count)
{
    printf("%-44s %8.2f us of CPU each, %" PRIu64 " of %" PRIu64 "\n", what,
           count == 0 ? 0 : (double)cpu_ns / 1e3 / (double)count, count, bench->objects);
}

static void reads_run(struct bench *bench, const char *what, bool direct)
{
    uint64_t hits = 0, begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < bench->objects; i++) {
        hits += object_read(bench, i * 7919 % bench->objects, direct);
    }
    report(bench, what, bench_cpu_ns() - begun_ns, hits);
}

static void writes_run(struct bench *bench)
{
    uint64_t taken = 0, begun_ns = bench_cpu_ns();
    char name[64];
    for (uint64_t i = 0; i < bench->objects; i++) {
        struct rg_cache_record record = {
            .object_size = BODY_SIZE,
            .object_crc32c = rg_crc32c(0, bench->body, BODY_SIZE),
            .has_object_crc32c = true,
        };
        struct rg_cache_key key = key_of(i, name);
        taken += rg_cache_write(bench->cache, &key, &record, bench->body, BODY_SIZE);
        /* As fast as the disk, so that nothing is left out. */
        if (i % 64 == 63) {
            rg_cache_flush(bench->cache);
        }
    }
    rg_cache_flush(bench->cache);
    report(bench, "written behind (with one CRC32C, and flushes)", bench_cpu_ns() - begun_ns,
           taken);
}

static void misses_run(struct bench *bench)
{
    uint64_t misses = 0, begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < bench->objects; i++) {
        misses += !object_read(bench, i + bench->objects, false);
    }
    report(bench, "looked up in vain", bench_cpu_ns() - begun_ns, misses);
}

/* What the kernel's copy alone costs here, and the checksum of as many bytes. */
static void floors_run(struct bench *bench)
{
    char name[64];
    uint64_t count = 0, crc = 0, begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < bench->objects; i++) {
        struct rg_cache_place place;
        struct rg_cache_key key = key_of(i * 7919 % bench->objects, name);
        if (rg_cache_find(bench->cache, &key, &place)) {
            count += pread(place.fd, bench->memory, place.size, (off_t)place.offset) > 0;
            rg_cache_place_drop(bench->cache, &place);
        }
    }
    report(bench, "pread of the same bytes, unchecked", bench_cpu_ns() - begun_ns, count);
    begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < bench->objects; i++) {
        crc += rg_crc32c((uint32_t)crc, bench->memory, BODY_SIZE);
    }
    report(bench, "CRC32C of a body", bench_cpu_ns() - begun_ns, bench->objects);
    RG_ASSERT(crc != 1);
}

static int open_all(struct bench *bench, const char *folder)
{
    char why[512];
    struct rg_loop_options options = {.backend = &rg_uring_backend,
                                      .placement = {.node = -1, .cpu = -1}};
    struct rg_cache_options cache = {.folder = folder,
                                     .size = 2 * bench->objects * BODY_SIZE + RG_MIB(64)};
    int rc = rg_cache_open(&bench->cache, &cache, why, sizeof(why));
    if (rc < 0) {
        fprintf(stderr, "bench_cache: %s\n", why);
        return rc;
    }
    rc = rg_loop_create(&bench->loop, &options);
    if (rc < 0) {
        options.backend = &rg_epoll_backend;
        rc = rg_loop_create(&bench->loop, &options);
    }
    rc = rc == 0 ? rg_loop_attach(bench->loop) : rc;
    RG_ASSERT(rc == 0);
    rg_op_init(&bench->op, op_done);
    bench->body = malloc(BODY_SIZE);
    bench->memory = aligned_alloc(MEMORY_SIZE, MEMORY_SIZE);
    RG_ASSERT(bench->body != NULL && bench->memory != NULL);
    (void)madvise(bench->memory, MEMORY_SIZE, MADV_HUGEPAGE);
    memset(bench->memory, 0, MEMORY_SIZE);
    for (size_t i = 0; i < BODY_SIZE; i++) {
        bench->body[i] = (uint8_t)(i * 31 + (i >> 9));
    }
    return 0;
}

static void close_all(struct bench *bench, const char *folder)
{
    struct rg_cache_folder_totals totals;
    struct rg_cache_stats stats;
    rg_cache_stats(bench->cache, &stats);
    rg_cache_close(bench->cache);
    rg_loop_destroy(bench->loop);
    RG_ASSERT(rg_cache_list(folder, NULL, NULL, &totals) == 0);
    printf("%" PRIu64 " records in %" PRIu64 " files of %" PRIu64 " bytes; %" PRIu64 " hits\n",
           totals.records, totals.segments, totals.size, stats.hits);
    RG_ASSERT(rg_cache_verify(folder, false, NULL, NULL, &totals) == 0);
    RG_ASSERT(totals.damaged_records == 0);
    RG_ASSERT(rg_cache_prune(folder, 0, &totals) == 0);
    (void)rmdir(folder);
    free(bench->body);
    free(bench->memory);
}

int main(int argc, char **argv)
{
    char folder[] = "bench_cache.XXXXXX";
    struct bench bench = {.hash = BENCH_HASH_INIT, .objects = bench_rounds(2, argv)};
    const char *path = argc > 2 ? argv[2] : mkdtemp(folder);
    if (path == NULL || open_all(&bench, path) < 0) {
        return 1;
    }
    misses_run(&bench);
    writes_run(&bench);
    reads_run(&bench, "hits, from the disk, O_DIRECT", true);
    reads_run(&bench, "hits, from the disk into the page cache", false);
    reads_run(&bench, "hits, from the page cache", false);
    floors_run(&bench);
    close_all(&bench, path);
    printf("hash %016" PRIx64 "\n", bench.hash);
    return 0;
}
