/* The memory tier as its users see it. Two tiers of one process find each other as two processes
 * do: each has its own descriptors, locks and mappings. */
#include "tests/cache/memory_case.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define SIZE RG_MIB(64)
#define BODY RG_KIB(100)

static void test_what_was_put_is_found(void)
{
    static const size_t sizes[] = {0, 1, 63, 64, 10240, 102400, 262144, 262145, 1048576};
    struct cache_case c;
    cache_case_open(&c);
    struct rg_memory *memory = memory_case_start(&c, SIZE);
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        RG_CHECK_EQ(memory_case_read(&c, memory, i, sizes[i]), CASE_MISS);
        RG_CHECK(memory_case_put(&c, memory, i, sizes[i]));
        RG_CHECK(memory_case_put(&c, memory, i, sizes[i]));
        RG_CHECK_EQ(memory_case_read(&c, memory, i, sizes[i]), CASE_HIT);
    }
    rg_memory_flush(memory);
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(sizes); i++) {
        size_t number = i % RG_ARRAY_LEN(sizes);
        RG_CHECK_EQ(memory_case_read(&c, memory, number, sizes[number]), CASE_HIT);
    }
    struct rg_memory_stats stats = memory_case_stats(memory);
    RG_CHECK_EQ(stats.hits, 3 * RG_ARRAY_LEN(sizes));
    RG_CHECK_EQ(stats.misses, RG_ARRAY_LEN(sizes));
    RG_CHECK_EQ(stats.written, RG_ARRAY_LEN(sizes));
    RG_CHECK_EQ(stats.objects, RG_ARRAY_LEN(sizes));
    RG_CHECK_EQ(stats.errors + stats.bad_records, 0);
    rg_memory_close(memory);
    cache_case_close(&c);
}

static void test_another_generation_is_not_found(void)
{
    struct cache_case c;
    struct case_key k;
    struct rg_memory_block block;
    cache_case_open(&c);
    struct rg_memory *memory = memory_case_start(&c, SIZE);
    RG_CHECK(memory_case_put(&c, memory, 7, 1000));
    case_key_make(&k, 7);
    struct rg_cache_key others[] = {k.key, k.key, k.key, k.key, k.key, k.key};
    others[0].origin = "127.0.0.1:9000";
    others[1].bucket = "bucket2";
    others[2].object = "shard/00000008";
    others[3].generation++;
    others[4].block = 1;
    others[5].generation = 0;
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        RG_CHECK(!rg_memory_find(memory, &others[i], &block) && !rg_memory_has(memory, &others[i]));
    }
    RG_CHECK(rg_memory_has(memory, &k.key));
    rg_memory_forget(memory, &k.key);
    RG_CHECK(!rg_memory_has(memory, &k.key));
    RG_CHECK(memory_case_put(&c, memory, 7, 1000));
    RG_CHECK_EQ(memory_case_read(&c, memory, 7, 1000), CASE_HIT);
    rg_memory_close(memory);
    cache_case_close(&c);
}

static void test_it_is_shared_and_outlives_its_writer(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_memory *first = memory_case_start(&c, SIZE), *second = memory_case_start(&c, SIZE);
    for (unsigned i = 0; i < 30; i++) {
        RG_CHECK(memory_case_put(&c, first, i, BODY));
    }
    rg_memory_flush(first);
    rg_memory_flush(second);
    for (unsigned i = 0; i < 30; i++) {
        RG_CHECK_EQ(memory_case_read(&c, second, i, BODY), CASE_HIT);
    }
    RG_CHECK_EQ(memory_case_stats(second).written, 0);
    rg_memory_close(first);
    /* Whoever still has it is asked for it. */
    rg_memory_flush(second);
    struct rg_memory *third = memory_case_start(&c, SIZE);
    rg_memory_flush(third);
    rg_memory_close(second);
    for (unsigned i = 0; i < 30; i++) {
        RG_CHECK_EQ(memory_case_read(&c, third, i, BODY), CASE_HIT);
    }
    rg_memory_close(third);
    /* With the last one it is gone. */
    third = memory_case_start(&c, SIZE);
    rg_memory_flush(third);
    RG_CHECK_EQ(memory_case_stats(third).size, 0);
    RG_CHECK_EQ(memory_case_stats(third).objects, 0);
    rg_memory_close(third);
    cache_case_close(&c);
}

static void test_the_budget_is_one_for_all(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_memory *both[2] = {memory_case_start(&c, RG_MIB(16)),
                                 memory_case_start(&c, RG_MIB(16))};
    unsigned taken = 0, found = 0;
    for (unsigned i = 0; i < 300; i++) {
        taken += memory_case_put(&c, both[i % 2], i, BODY);
    }
    RG_CHECK(taken >= 100 && taken <= 160);
    for (unsigned i = 0; i < 2; i++) {
        rg_memory_flush(both[i]);
        RG_CHECK(memory_case_stats(both[i]).size <= RG_MIB(16));
        RG_CHECK(memory_case_stats(both[i]).not_admitted > 0);
    }
    rg_memory_flush(both[0]);
    for (unsigned i = 0; i < 300; i++) {
        enum case_outcome outcome = memory_case_read(&c, both[0], i, BODY);
        RG_CHECK(outcome == CASE_HIT || outcome == CASE_MISS);
        found += outcome == CASE_HIT;
    }
    RG_CHECK_EQ(found, taken);
    rg_memory_close(both[0]);
    rg_memory_close(both[1]);
    cache_case_close(&c);
}

/* Reads so much of something else that the first segment is out of use, and goes. */
static void evict(struct cache_case *c, struct rg_memory *memory, struct rg_memory *other)
{
    for (uint64_t i = 0, evicted = memory_case_stats(memory).evicted;
         memory_case_stats(memory).evicted == evicted; i++) {
        RG_CHECK(i < 100000);
        (void)memory_case_put(c, memory, 1000000 + i, RG_MIB(1));
        if (i % 16 == 0) {
            rg_memory_flush(memory);
            rg_memory_flush(other);
        }
    }
    rg_memory_flush(memory);
    rg_memory_flush(other);
}

static void test_leases_outlive_eviction_and_closing(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_memory *first = memory_case_start(&c, RG_MIB(16));
    struct rg_memory *second = memory_case_start(&c, RG_MIB(16));
    RG_CHECK(memory_case_put(&c, first, 1, BODY));
    rg_memory_flush(first);
    rg_memory_flush(second);
    struct rg_lease *leases[] = {memory_case_lease(first, 1), memory_case_lease(second, 1)};
    RG_CHECK(leases[0] != NULL && leases[1] != NULL && leases[0]->data != leases[1]->data);
    RG_CHECK(rg_lease_is_readonly(leases[0]) && !rg_lease_is_pinned(leases[0]));
    evict(&c, first, second);
    RG_CHECK_EQ(memory_case_read(&c, first, 1, BODY), CASE_MISS);
    RG_CHECK_EQ(memory_case_read(&c, second, 1, BODY), CASE_MISS);
    body_fill(c.body, BODY, 1);
    RG_CHECK_MEM(leases[0]->data, leases[0]->capacity, c.body, BODY);
    RG_CHECK_MEM(leases[1]->data, leases[1]->capacity, c.body, BODY);
    rg_lease_share(leases[1], 1);
    rg_memory_close(first);
    rg_memory_close(second);
    for (unsigned i = 0; i < 2; i++) {
        RG_CHECK_MEM(leases[1]->data, leases[1]->capacity, c.body, BODY);
        rg_lease_release(leases[1]);
    }
    /* What is leased counts for the budget until it is not. */
    struct rg_memory *third = memory_case_start(&c, RG_MIB(16));
    rg_memory_flush(third);
    uint64_t leased = memory_case_stats(third).size;
    RG_CHECK(leased > 0);
    rg_lease_release(leases[0]);
    rg_memory_flush(third);
    RG_CHECK_EQ(memory_case_stats(third).size, 0);
    rg_memory_close(third);
    cache_case_close(&c);
}

static void test_without_the_folder_each_process_has_its_own(void)
{
    struct cache_case c;
    char share[64];
    cache_case_open(&c);
    memcpy(share, c.share, sizeof(share));
    strcpy(c.share, "/dev/shm/there is none/such");
    struct rg_memory *first = memory_case_start(&c, SIZE), *second = memory_case_start(&c, SIZE);
    RG_CHECK(memory_case_put(&c, first, 1, BODY));
    rg_memory_flush(first);
    rg_memory_flush(second);
    RG_CHECK_EQ(memory_case_read(&c, first, 1, BODY), CASE_HIT);
    RG_CHECK_EQ(memory_case_read(&c, second, 1, BODY), CASE_MISS);
    rg_memory_close(first);
    rg_memory_close(second);
    memcpy(c.share, share, sizeof(share));
    struct rg_memory_options options = {.size = RG_MIB(15)};
    RG_CHECK_EQ(rg_memory_open(&first, &options, c.why, sizeof(c.why)), -EINVAL);
    RG_CHECK(strstr(c.why, "16 MiB") != NULL);
    cache_case_close(&c);
}

/* That of the only segment of this process. */
static int memory_descriptor(void)
{
    for (int fd = 3; fd < 1000; fd++) {
        char path[48], target[64] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof(target) - 1) > 0 &&
            strstr(target, "ringest-memory") != NULL) {
            return fd;
        }
    }
    return -1;
}

/* Somebody has put other bytes into the memory before it was sealed. */
static void test_a_damaged_record_is_a_miss(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_memory *first = memory_case_start(&c, SIZE), *second = memory_case_start(&c, SIZE);
    RG_CHECK(memory_case_put(&c, first, 1, BODY) && memory_case_put(&c, first, 2, BODY));
    struct rg_lease *lease = memory_case_lease(first, 1);
    uint8_t flipped = lease->data[500] ^ 1;
    int fd = memory_descriptor();
    struct stat status;
    RG_CHECK_EQ(fstat(fd, &status), 0);
    for (off_t at = 0; at < status.st_size; at++) {
        char bytes[16];
        RG_CHECK(pread(fd, bytes, sizeof(bytes), at) > 0);
        if (memcmp(bytes, lease->data + 500, sizeof(bytes)) == 0) {
            RG_CHECK_EQ(pwrite(fd, &flipped, 1, at), 1);
            break;
        }
    }
    RG_CHECK_EQ(lease->data[500], flipped);
    rg_memory_flush(first);
    rg_memory_flush(second);
    RG_CHECK_EQ(memory_case_read(&c, second, 1, BODY), CASE_MISS);
    RG_CHECK_EQ(memory_case_read(&c, second, 2, BODY), CASE_HIT);
    RG_CHECK_EQ(memory_case_stats(second).bad_records, 1);
    RG_CHECK_EQ(memory_case_read(&c, first, 1, BODY), CASE_MISS);
    /* It is put again, and then it is right. */
    RG_CHECK(memory_case_put(&c, second, 1, BODY));
    RG_CHECK_EQ(memory_case_read(&c, second, 1, BODY), CASE_HIT);
    rg_lease_release(lease);
    rg_memory_close(first);
    rg_memory_close(second);
    cache_case_close(&c);
}

static void test_a_forked_child_leaves_it_alone(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_memory *memory = memory_case_start(&c, SIZE);
    RG_CHECK(memory_case_put(&c, memory, 1, BODY));
    rg_memory_flush(memory);
    struct rg_lease *lease = memory_case_lease(memory, 1);
    body_fill(c.body, BODY, 1);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        bool is_right = memcmp(lease->data, c.body, BODY) == 0;
        rg_lease_release(lease);
        rg_memory_close(memory);
        _exit(is_right ? 0 : 1);
    }
    int status = 1;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    RG_CHECK_MEM(lease->data, lease->capacity, c.body, BODY);
    rg_lease_release(lease);
    RG_CHECK_EQ(memory_case_read(&c, memory, 1, BODY), CASE_HIT);
    rg_memory_close(memory);
    cache_case_close(&c);
}

static bool is_mapped(const uint8_t *data)
{
    unsigned char in_core;
    uintptr_t page = (uintptr_t)data & ~(uintptr_t)4095;
    return mincore((void *)page, 1, &in_core) == 0;
}

/* Else a worker that was forked would keep memory that no budget counts. */
static void test_a_forked_child_keeps_only_what_it_has_leases_of(void)
{
    struct cache_case c;
    struct case_key k;
    struct rg_memory_block block;
    cache_case_open(&c);
    struct rg_memory *memory = memory_case_start(&c, SIZE);
    RG_CHECK(memory_case_put(&c, memory, 1, BODY));
    rg_memory_flush(memory);
    RG_CHECK(memory_case_put(&c, memory, 2, BODY));
    struct rg_lease *lease = memory_case_lease(memory, 1);
    case_key_make(&k, 2);
    RG_CHECK(rg_memory_find(memory, &k.key, &block));
    const uint8_t *other = block.body;
    rg_memory_drop(memory, &block);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        _exit(is_mapped(lease->data) && !is_mapped(other) ? 0 : 1);
    }
    int status = 1;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    RG_CHECK(is_mapped(other));
    RG_CHECK_EQ(memory_case_read(&c, memory, 2, BODY), CASE_HIT);
    rg_lease_release(lease);
    rg_memory_close(memory);
    cache_case_close(&c);
}

/* The program needs descriptors for other things, too. */
static void test_it_leaves_descriptors_to_others(void)
{
    struct cache_case c;
    struct rlimit before;
    RG_CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit few = {.rlim_cur = 64, .rlim_max = before.rlim_max};
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    cache_case_open(&c);
    struct rg_memory *memory = memory_case_start(&c, RG_MIB(256));
    for (uint64_t i = 0; i < 256; i++) {
        (void)memory_case_put(&c, memory, i, RG_CACHE_BLOCK_SIZE);
    }
    int fd = dup(0);
    RG_CHECK(fd >= 0 && fd < 40);
    close(fd);
    RG_CHECK_EQ(memory_case_stats(memory).errors, 0);
    RG_CHECK_EQ(memory_case_read(&c, memory, 0, RG_CACHE_BLOCK_SIZE), CASE_HIT);
    rg_memory_close(memory);
    cache_case_close(&c);
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Puts and reads until it is killed, and tells of each step. */
static void writer_run(struct cache_case *c, int progress, uint64_t first)
{
    struct rg_memory *memory = memory_case_start(c, RG_MIB(16));
    for (uint64_t i = first;; i++) {
        (void)memory_case_put(c, memory, i % 200, BODY);
        if (memory_case_read(c, memory, (i * 7) % 200, BODY) == CASE_WRONG ||
            write(progress, "x", 1) != 1) {
            _exit(1);
        }
        if (i % 5 == 0) {
            rg_memory_flush(memory);
        }
    }
}

/* `memory` looks at what the writer has sealed while that is alive. */
static void writer_kill_after(struct cache_case *c, struct rg_memory *memory, uint64_t first,
                              unsigned steps)
{
    int ends[2];
    char byte;
    RG_CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        writer_run(c, ends[1], first);
    }
    close(ends[1]);
    for (unsigned i = 0; i < steps; i++) {
        RG_CHECK_EQ(read(ends[0], &byte, 1), 1);
        if (i % 8 == 7) {
            rg_memory_flush(memory);
        }
    }
    int status = 0;
    RG_CHECK_EQ(kill(child, SIGKILL), 0);
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK(WIFSIGNALED(status));
    close(ends[0]);
}

static void test_writers_that_are_killed(void)
{
    struct cache_case c;
    unsigned hits = 0;
#ifdef __SANITIZE_THREAD__
    rg_test_skip("a child of a process with threads has none under this sanitizer");
#endif
    cache_case_open(&c);
    for (unsigned round = 0; round < 12; round++) {
        struct rg_memory *memory = memory_case_start(&c, RG_MIB(16));
        writer_kill_after(&c, memory, round * 31, 1 + (unsigned)rg_test_random_below(60));
        for (unsigned i = 0; i < 2; i++) {
            rg_memory_flush(memory);
            RG_CHECK(memory_case_stats(memory).size <= RG_MIB(16));
            for (unsigned number = 0; number < 200; number++) {
                enum case_outcome outcome = memory_case_read(&c, memory, number, BODY);
                RG_CHECK(outcome == CASE_HIT || outcome == CASE_MISS);
                hits += outcome == CASE_HIT;
            }
            writer_kill_after(&c, memory, round * 31 + 100, 1 + (unsigned)rg_test_random_below(60));
        }
        RG_CHECK_EQ(memory_case_stats(memory).bad_records, 0);
        rg_memory_close(memory);
        memory = memory_case_start(&c, RG_MIB(16));
        rg_memory_flush(memory);
        RG_CHECK_EQ(memory_case_stats(memory).size, 0);
        rg_memory_close(memory);
    }
    RG_CHECK(hits > 0);
    cache_case_close(&c);
}

struct crowd {
    struct rg_memory *both[2];
    _Atomic unsigned wrong;
};

static void *crowd_run(void *context)
{
    struct crowd *crowd = context;
    static _Atomic uint64_t seeds;
    uint64_t word = atomic_fetch_add(&seeds, 1) * 977 + 1;
    struct cache_case c = {.body = malloc(BODY)};
    RG_CHECK(c.body != NULL);
    for (unsigned i = 0; i < 400; i++) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
        struct rg_memory *memory = crowd->both[word >> 33 & 1];
        uint64_t number = (word >> 40) % 300;
        struct rg_lease *lease = memory_case_lease(memory, number);
        if (lease == NULL) {
            (void)memory_case_put(&c, memory, number, RG_KIB(60));
            continue;
        }
        body_fill(c.body, RG_KIB(60), number);
        atomic_fetch_add(&crowd->wrong, lease->capacity != RG_KIB(60) ||
                                            memcmp(lease->data, c.body, RG_KIB(60)) != 0);
        rg_lease_release(lease);
    }
    free(c.body);
    return NULL;
}

static void test_eight_threads(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct crowd crowd = {
        .both = {memory_case_start(&c, RG_MIB(16)), memory_case_start(&c, RG_MIB(16))}};
    pthread_t threads[8];
    for (unsigned i = 0; i < RG_ARRAY_LEN(threads); i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, crowd_run, &crowd), 0);
    }
    for (unsigned i = 0; i < 5; i++) {
        rg_memory_flush(crowd.both[i % 2]);
    }
    for (unsigned i = 0; i < RG_ARRAY_LEN(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    RG_CHECK_EQ(crowd.wrong, 0);
    RG_CHECK(memory_case_stats(crowd.both[0]).hits > 0);
    RG_CHECK_EQ(memory_case_stats(crowd.both[0]).bad_records, 0);
    rg_memory_close(crowd.both[0]);
    rg_memory_close(crowd.both[1]);
    cache_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_was_put_is_found),
        RG_TEST(test_another_generation_is_not_found),
        RG_TEST(test_it_is_shared_and_outlives_its_writer),
        RG_TEST(test_the_budget_is_one_for_all),
        RG_TEST(test_leases_outlive_eviction_and_closing),
        RG_TEST(test_without_the_folder_each_process_has_its_own),
        RG_TEST(test_a_damaged_record_is_a_miss),
        RG_TEST(test_a_forked_child_leaves_it_alone),
        RG_TEST(test_a_forked_child_keeps_only_what_it_has_leases_of),
        RG_TEST(test_it_leaves_descriptors_to_others),
        RG_TEST(test_writers_that_are_killed),
        RG_TEST(test_eight_threads),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
