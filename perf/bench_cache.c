/* What a cached object costs: found, read and checked, from the page cache and from the disk, and
 * written behind a miss. Sizes of bodies are as those of images; small ones are written, too.
 *
 * usage: bench_cache OBJECTS [FOLDER]; the folder is made, and removed again. */
#include "cache/cache.h"
#include "cache/folder.h"
#include "perf/bench.h"
#include "runtime/clock.h"
#include "runtime/loop.h"
#include "runtime/op.h"

#include <fcntl.h>
#include <liburing.h>
#include <ringest/gcs.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define BODY_SIZE 102400
#define SMALL_SIZE RG_KIB(4)
/* Small bodies for each large one, so that there is something to measure. */
#define SMALL_PART 8
#define MEMORY_SIZE RG_MIB(2)
/* Reads that are out at a time. */
#define DEPTH_MAX 16
#define SLOT_SIZE (MEMORY_SIZE / DEPTH_MAX)

struct slot {
    struct rg_op op;
    struct bench *bench;
    struct rg_cache_place place;
    uint64_t number;
    uint8_t *memory;
    size_t size, done;
    bool direct;
};

struct bench {
    struct rg_cache *cache;
    struct rg_loop *loop;
    struct slot slots[DEPTH_MAX];
    struct rg_cache_place *places; /* of all objects, for the floors */
    uint8_t *memory;               /* a huge page, as leases are part of */
    uint8_t *body;
    uint64_t objects, hash, hits, crc;
    uint64_t next, end; /* objects that are still to be read */
    unsigned out;
    struct io_uring ring;
};

static struct rg_cache_key key_of(uint64_t number, char name[64])
{
    snprintf(name, 64, "train/n%08" PRIu64 "/image_%08" PRIu64 ".jpg", number % 1000, number);
    return (struct rg_cache_key){"storage.googleapis.com", "a-bucket", name,
                                 (int64_t)(1700000000000000 + number), 0};
}

static uint64_t aligned_begin(const struct rg_cache_place *place)
{
    return place->offset / RG_CACHE_ALIGNMENT * RG_CACHE_ALIGNMENT;
}

static size_t aligned_size(const struct rg_cache_place *place)
{
    uint64_t end = place->offset + place->size;
    return (size_t)(rg_cache_round_up(end, RG_CACHE_ALIGNMENT) - aligned_begin(place));
}

static void slot_read(struct slot *slot)
{
    uint64_t from = aligned_begin(&slot->place) + slot->done;
    struct rg_loop *loop = slot->bench->loop;
    if (slot->direct && slot->done == 0 && slot->place.fd_direct >= 0) {
        size_t lead = (size_t)(slot->place.offset - from);
        rg_op_read_file_direct(loop, &slot->op, slot->place.fd, slot->place.fd_direct, from,
                               slot->memory, slot->size, lead, lead + slot->place.size);
    } else {
        rg_op_read_file(loop, &slot->op, slot->place.fd, from, slot->memory + slot->done,
                        slot->size - slot->done);
    }
}

static bool slot_check(struct slot *slot)
{
    char name[64];
    struct bench *bench = slot->bench;
    struct rg_cache_record record;
    struct rg_cache_key key = key_of(slot->number, name);
    const uint8_t *bytes = slot->memory + slot->place.offset % RG_CACHE_ALIGNMENT;
    return rg_cache_record_open(bench->cache, &slot->place, &key, bytes, slot->place.size,
                                &record) == 0 &&
           rg_cache_record_check(bench->cache, &slot->place, &record, 0, bytes + record.header_size,
                                 record.body_size) == 0;
}

/* Looks the next object up, and begins to read it if it is there. In an order that no read-ahead
 * guesses. */
static void next_read(struct bench *bench, struct slot *slot)
{
    char name[64];
    while (bench->next < bench->end) {
        slot->number = bench->next++ * 7919 % bench->objects;
        struct rg_cache_key key = key_of(slot->number, name);
        if (rg_cache_find(bench->cache, &key, &slot->place)) {
            slot->size = aligned_size(&slot->place);
            slot->done = 0;
            RG_ASSERT(slot->size <= SLOT_SIZE);
            bench->out++;
            slot_read(slot);
            return;
        }
    }
}

/* As a get does: checks what came, and begins the next read from here. */
static void op_done(struct rg_op *op)
{
    struct slot *slot = RG_CONTAINER_OF(op, struct slot, op);
    struct bench *bench = slot->bench;
    slot->done += op->result > 0 ? (size_t)op->result : 0;
    bool came = slot->done >= slot->place.offset % RG_CACHE_ALIGNMENT + slot->place.size;
    if (!came && op->result > 0) {
        slot_read(slot);
        return;
    }
    bench->hits += came && slot_check(slot);
    rg_cache_place_drop(bench->cache, &slot->place);
    bench->out--;
    next_read(bench, slot);
}

static void report(const char *what, uint64_t cpu_ns, uint64_t count, uint64_t wanted)
{
    printf("%-48s %8.2f us of CPU each, %" PRIu64 " of %" PRIu64 "\n", what,
           count == 0 ? 0 : (double)cpu_ns / 1e3 / (double)count, count, wanted);
}

/* One way to read objects, of several that take turns over all of them. */
struct turn {
    const char *what;
    uint64_t (*run)(struct bench *bench, const struct turn *turn, uint64_t first, uint64_t end);
    unsigned depth; /* reads that are out at a time */
    bool direct, checked;
    int flags;
    uint64_t cpu_ns, count;
};

static uint64_t hits_run(struct bench *bench, const struct turn *turn, uint64_t first, uint64_t end)
{
    bench->hits = 0;
    bench->next = first;
    bench->end = end;
    for (unsigned i = 0; i < turn->depth; i++) {
        bench->slots[i].direct = turn->direct;
        next_read(bench, &bench->slots[i]);
    }
    while (bench->out > 0) {
        rg_loop_pass(bench->loop, rg_now_ns() + RG_NS_PER_S);
    }
    return bench->hits;
}

/* Ours and its floors in turns, none of which finds in the CPU's cache what another has just read.
 */
static void turns_run(struct bench *bench, struct turn *turns, unsigned count)
{
    uint64_t parts = 8 * count;
    for (uint64_t part = 0; part < parts; part++) {
        for (unsigned i = 0; i < count; i++) {
            uint64_t at = (part + 8 * i) % parts;
            uint64_t begun_ns = bench_cpu_ns();
            turns[i].count += turns[i].run(bench, &turns[i], at * bench->objects / parts,
                                           (at + 1) * bench->objects / parts);
            turns[i].cpu_ns += bench_cpu_ns() - begun_ns;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        report(turns[i].what, turns[i].cpu_ns, turns[i].count, bench->objects);
        bench->hash = bench_hash_u64(bench->hash, turns[i].count);
    }
}

/* What finds no room waits for the disk, so that nothing is left out. */
static bool object_write(struct bench *bench, uint64_t number, size_t size)
{
    char name[64];
    struct rg_cache_record record = {
        .object_size = size,
        .object_crc32c = rg_crc32c(0, bench->body, size),
        .has_object_crc32c = true,
    };
    struct rg_cache_key key = key_of(number, name);
    bool is_taken = rg_cache_write(bench->cache, &key, &record, bench->body, size);
    if (!is_taken) {
        rg_cache_flush(bench->cache);
        is_taken = rg_cache_write(bench->cache, &key, &record, bench->body, size);
    }
    return is_taken;
}

/* As fast as the disk. */
static void writes_run(struct bench *bench, const char *what, uint64_t first, uint64_t count,
                       size_t size)
{
    uint64_t taken = 0, begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < count; i++) {
        taken += object_write(bench, first + i, size);
    }
    rg_cache_flush(bench->cache);
    report(what, bench_cpu_ns() - begun_ns, taken, count);
}

static void misses_run(struct bench *bench)
{
    char name[64];
    struct rg_cache_place place;
    uint64_t misses = 0, begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < bench->objects; i++) {
        struct rg_cache_key key = key_of(i + (SMALL_PART + 1) * bench->objects, name);
        misses += !rg_cache_find(bench->cache, &key, &place);
    }
    report("looked up in vain", bench_cpu_ns() - begun_ns, misses, bench->objects);
}

/* The floors know where everything is. While the index grows, which takes its time on a busy
 * machine, it may forget some of what is written: that is written again. */
static void places_find(struct bench *bench)
{
    char name[64];
    uint64_t forgotten = 0;
    bench->places = calloc(bench->objects, sizeof(*bench->places));
    RG_ASSERT(bench->places != NULL);
    for (uint64_t i = 0; i < bench->objects; i++) {
        struct rg_cache_key key = key_of(i, name);
        while (!rg_cache_find(bench->cache, &key, &bench->places[i])) {
            RG_ASSERT(forgotten < bench->objects);
            forgotten++;
            (void)object_write(bench, i, BODY_SIZE);
            rg_cache_flush(bench->cache);
        }
    }
    printf("%" PRIu64 " objects had been forgotten, and were written again\n", forgotten);
}

static void places_drop(struct bench *bench)
{
    for (uint64_t i = 0; i < bench->objects; i++) {
        rg_cache_place_drop(bench->cache, &bench->places[i]);
    }
    free(bench->places);
}

/* Puts the files into the page cache in their order, as a program does that copies them. The kernel
 * takes larger pieces of memory for that than for reads here and there, and copies them faster. */
static void files_read(struct bench *bench)
{
    uint8_t *bytes = malloc(RG_MIB(1));
    int last = -1;
    RG_ASSERT(bytes != NULL);
    for (uint64_t i = 0; i < bench->objects; i++) {
        int fd = bench->places[i].fd;
        if (fd == last) {
            continue;
        }
        last = fd;
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        for (off_t at = 0; pread(fd, bytes, RG_MIB(1), at) > 0;) {
            at += (off_t)RG_MIB(1);
        }
    }
    free(bytes);
}

/* What the kernel's copy costs here, and the checksum of what it has brought. To the same memory as
 * a hit's. */
static uint64_t copies_run(struct bench *bench, const struct turn *turn, uint64_t first,
                           uint64_t end)
{
    uint64_t count = 0;
    for (uint64_t i = first; i < end; i++) {
        const struct rg_cache_place *place = &bench->places[i * 7919 % bench->objects];
        uint8_t *to = bench->memory + i % DEPTH_MAX * SLOT_SIZE;
        struct iovec piece = {.iov_base = to, .iov_len = place->size};
        count += preadv2(place->fd, &piece, 1, (off_t)place->offset, turn->flags) > 0;
        bench->crc += turn->checked ? rg_crc32c(0, to, BODY_SIZE) : 0;
    }
    return count;
}

static void floor_submit(struct bench *bench, uint64_t i, uint64_t slot)
{
    const struct rg_cache_place *place = &bench->places[i * 7919 % bench->objects];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&bench->ring);
    io_uring_prep_read(sqe, place->fd_direct >= 0 ? place->fd_direct : place->fd,
                       bench->memory + slot * SLOT_SIZE, (unsigned)aligned_size(place),
                       aligned_begin(place));
    io_uring_sqe_set_data64(sqe, slot);
}

/* A bare ring: so many direct reads are out; when one has come, its checksum, and the next one. */
static uint64_t ring_run(struct bench *bench, const struct turn *turn, uint64_t first, uint64_t end)
{
    uint64_t count = 0, next = first, out = 0;
    while (out < turn->depth && next < end) {
        floor_submit(bench, next++, out++);
    }
    while (out > 0) {
        struct io_uring_cqe *cqe;
        io_uring_submit_and_wait(&bench->ring, 1);
        while (io_uring_peek_cqe(&bench->ring, &cqe) == 0) {
            uint64_t slot = io_uring_cqe_get_data64(cqe);
            count += cqe->res > 0;
            io_uring_cqe_seen(&bench->ring, cqe);
            bench->crc += rg_crc32c(0, bench->memory + slot * SLOT_SIZE, BODY_SIZE);
            out--;
            if (next < end) {
                floor_submit(bench, next++, slot);
                out++;
            }
        }
    }
    return count;
}

static void disk_turns(struct bench *bench)
{
    struct turn turns[] = {
        {.what = "hits, from the disk, O_DIRECT", .run = hits_run, .depth = 1, .direct = true},
        {.what = "floor: a bare ring, and CRC32C", .run = ring_run, .depth = 1},
        {.what = "hits, from the disk, 16 at a time",
         .run = hits_run,
         .depth = DEPTH_MAX,
         .direct = true},
        {.what = "floor: a bare ring, 16 at a time, and CRC32C",
         .run = ring_run,
         .depth = DEPTH_MAX},
    };
    bool has_ring = io_uring_queue_init(2 * DEPTH_MAX, &bench->ring, 0) == 0;
    if (has_ring) {
        turns_run(bench, turns, RG_ARRAY_LEN(turns));
        io_uring_queue_exit(&bench->ring);
    }
}

static void page_cache_turns(struct bench *bench)
{
    struct turn turns[] = {
        {.what = "hits, from the page cache", .run = hits_run, .depth = 1, .direct = true},
        {.what = "the same, 16 at a time", .run = hits_run, .depth = DEPTH_MAX, .direct = true},
        {.what = "floor: preadv2 with RWF_NOWAIT, and CRC32C",
         .run = copies_run,
         .checked = true,
         .flags = RWF_NOWAIT},
        {.what = "floor: pread, and CRC32C", .run = copies_run, .checked = true},
        {.what = "floor: pread alone", .run = copies_run},
    };
    turns_run(bench, turns, RG_ARRAY_LEN(turns));
}

/* The page cache is filled by reads here and there. */
static void page_cache_fill(struct bench *bench)
{
    struct turn turn = {
        .what = "hits, from the disk into the page cache", .run = hits_run, .depth = 1};
    turns_run(bench, &turn, 1);
}

/* What a miss cannot do without: each body is copied, and many are written at once. Without
 * O_DIRECT each is written by itself, which copies it into the page cache. */
struct floor {
    const char *what;
    size_t body_size, batch_size;
    uint64_t count;
    bool direct;
};

static int floor_open(const struct floor *floor, const char *folder)
{
    char path[4096];
    uint64_t room = floor->batch_size / floor->body_size;
    uint64_t size = (floor->count / room + 1) * floor->batch_size;
    snprintf(path, sizeof(path), "%s.floor", folder);
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | (floor->direct ? O_DIRECT : 0);
    int fd = open(path, flags, 0600);
    if (fd < 0 || fallocate(fd, 0, 0, (off_t)size) < 0) {
        perror(path);
        exit(1);
    }
    (void)unlink(path);
    return fd;
}

static void floor_run(struct bench *bench, const struct floor *floor, const char *folder)
{
    size_t size = floor->body_size, room = floor->batch_size / size;
    uint8_t *batches = aligned_alloc(MEMORY_SIZE, 2 * floor->batch_size);
    uint64_t count = 0;
    int fd = floor_open(floor, folder);
    RG_ASSERT(batches != NULL);
    (void)madvise(batches, 2 * floor->batch_size, MADV_HUGEPAGE);
    memset(batches, 0, 2 * floor->batch_size);
    uint64_t begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < floor->count; i++) {
        uint64_t number = i / room;
        uint8_t *batch = batches + number % 2 * floor->batch_size;
        if (!floor->direct) {
            count += pwrite(fd, bench->body, size, (off_t)(i * size)) == (ssize_t)size;
            continue;
        }
        memcpy(batch + i % room * size, bench->body, size);
        bool full = i % room == room - 1 || i + 1 == floor->count;
        off_t at = (off_t)(number * floor->batch_size);
        ssize_t put = full ? pwrite(fd, batch, floor->batch_size, at) : 0;
        count += put == (ssize_t)floor->batch_size ? i % room + 1 : 0;
    }
    report(floor->what, bench_cpu_ns() - begun_ns, count, floor->count);
    close(fd);
    free(batches);
}

static void floors_run(struct bench *bench, const char *folder)
{
    uint64_t large = bench->objects, small = SMALL_PART * bench->objects;
    const struct floor floors[] = {
        {"floor: memcpy, and direct writes of 2 MiB", BODY_SIZE, RG_MIB(2), large, true},
        {"floor: the same of 8 MiB", BODY_SIZE, RG_MIB(8), large, true},
        {"floor: write to the page cache", BODY_SIZE, RG_MIB(2), large, false},
        {"floor: 4 KiB each, direct writes of 2 MiB", SMALL_SIZE, RG_MIB(2), small, true},
        {"floor: 4 KiB each, direct writes of 8 MiB", SMALL_SIZE, RG_MIB(8), small, true},
        {"floor: 4 KiB each, to the page cache", SMALL_SIZE, RG_MIB(2), small, false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(floors); i++) {
        floor_run(bench, &floors[i], folder);
    }
}

/* Pieces of memory that no CPU's cache has, one behind the other. */
static void memory_run(struct bench *bench)
{
    size_t size = bench->objects * BODY_SIZE;
    uint8_t *from = aligned_alloc(MEMORY_SIZE, rg_cache_round_up(size, MEMORY_SIZE));
    RG_ASSERT(from != NULL);
    (void)madvise(from, size, MADV_HUGEPAGE);
    memset(from, 1, size);
    uint64_t begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < bench->objects; i++) {
        memcpy(bench->memory, from + i * 7919 % bench->objects * BODY_SIZE, BODY_SIZE);
        bench->hash ^= bench->memory[i % BODY_SIZE] - 1U;
    }
    report("floor: memcpy from memory", bench_cpu_ns() - begun_ns, bench->objects, bench->objects);
    free(from);
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
    bench->body = malloc(BODY_SIZE);
    bench->memory = aligned_alloc(MEMORY_SIZE, MEMORY_SIZE);
    RG_ASSERT(bench->body != NULL && bench->memory != NULL);
    (void)madvise(bench->memory, MEMORY_SIZE, MADV_HUGEPAGE);
    memset(bench->memory, 0, MEMORY_SIZE);
    for (size_t i = 0; i < DEPTH_MAX; i++) {
        struct slot *slot = &bench->slots[i];
        *slot = (struct slot){.bench = bench, .memory = bench->memory + i * SLOT_SIZE};
        rg_op_init(&slot->op, op_done);
    }
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
    writes_run(&bench, "written behind, with one CRC32C", 0, bench.objects, BODY_SIZE);
    writes_run(&bench, "4 KiB each, written behind", bench.objects, SMALL_PART * bench.objects,
               SMALL_SIZE);
    floors_run(&bench, path);
    places_find(&bench);
    disk_turns(&bench);
    page_cache_fill(&bench);
    page_cache_turns(&bench);
    files_read(&bench);
    printf("the files were read in order:\n");
    page_cache_turns(&bench);
    memory_run(&bench);
    places_drop(&bench);
    close_all(&bench, path);
    RG_ASSERT(bench.crc != 1); /* so that all of them are computed */
    printf("hash %016" PRIx64 "\n", bench.hash);
    return 0;
}
