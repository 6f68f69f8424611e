/* The thread of a cache, beside others: kills in the middle of writes, damage everywhere, and
 * sizes. RINGEST_KILLS and RINGEST_DAMAGES say how many. */
#include "cache/index_file.h"
#include "runtime/descriptor.h"
#include "tests/cache/cache_case.h"

#include <signal.h>
#include <sys/wait.h>

#define SIZE RG_MIB(32)
#define OBJECTS 400

static unsigned wanted(const char *name, unsigned count)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : count;
}

static size_t size_of(unsigned number)
{
    return 1000 + number * 7919ULL % 200000;
}

/* Writes and reads until it is killed. */
static void child_run(struct cache_case *c, unsigned seed, int ready)
{
    struct rg_cache *cache = NULL;
    if (cache_case_try(c, SIZE, c->share, &cache) < 0) {
        _exit(1);
    }
    for (unsigned i = 0;; i++) {
        unsigned number = (seed * 31 + i * 17) % OBJECTS;
        if (case_read(c, cache, number, size_of(number)) == CASE_WRONG) {
            _exit(2);
        }
        (void)case_write(c, cache, number, size_of(number));
        /* Every other one has something in its file by then. */
        if (i == seed % 50 && seed % 2 == 1) {
            rg_cache_flush(cache);
        }
        if (i == seed % 50 && write(ready, "x", 1) != 1) {
            _exit(3);
        }
        if (i % 64 == seed % 64) {
            rg_cache_flush(cache);
        }
    }
}

/* Reads everything: none is wrong. Returns the hits. */
static unsigned all_read(struct cache_case *c, struct rg_cache *cache)
{
    unsigned hits = 0;
    for (unsigned i = 0; i < OBJECTS; i++) {
        enum case_outcome outcome = case_read(c, cache, i, size_of(i));
        RG_CHECK(outcome != CASE_WRONG);
        hits += outcome == CASE_HIT;
    }
    return hits;
}

static void test_killed_at_any_moment(void)
{
    struct cache_case c;
    unsigned kills = wanted("RINGEST_KILLS", 6), hits = 0;
    cache_case_open(&c);
    for (unsigned i = 0; i < kills; i++) {
        int ready[2], status = 0;
        char byte;
        RG_CHECK_EQ(pipe(ready), 0);
        pid_t child = fork();
        RG_CHECK(child >= 0);
        if (child == 0) {
            child_run(&c, i * 7 + 1, ready[1]);
        }
        close(ready[1]);
        RG_CHECK_EQ(read(ready[0], &byte, 1), 1);
        /* Another moment each time: so many system calls of ours later. */
        for (uint64_t turn = rg_test_random_below(20000); turn > 0; turn--) {
            (void)getppid();
        }
        kill(child, SIGKILL);
        RG_CHECK_EQ(waitpid(child, &status, 0), child);
        RG_CHECK(WIFSIGNALED(status));
        close(ready[0]);
        struct rg_cache *cache = cache_case_start(&c, SIZE);
        rg_cache_flush(cache);
        hits += all_read(&c, cache);
        RG_CHECK(case_stats(cache).bad_records == 0);
        RG_CHECK(case_stats(cache).size <= SIZE + 2 * RG_MIB(4));
        rg_cache_close(cache);
    }
    /* What was written whole before a kill is there after it. */
    RG_CHECK(hits > 0);
    cache_case_close(&c);
}

/* Flips bits of a file of the folder. */
static void file_damage(const char *folder, const char *name, unsigned count)
{
    char path[400];
    struct stat status;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    RG_CHECK(fd >= 0);
    RG_CHECK_EQ(fstat(fd, &status), 0);
    for (unsigned i = 0; i < count; i++) {
        uint8_t bytes[8];
        size_t size = 1 + rg_test_random_below(sizeof(bytes));
        off_t at = (off_t)rg_test_random_below((uint64_t)status.st_size);
        for (size_t j = 0; j < size; j++) {
            bytes[j] = (uint8_t)rg_test_random();
        }
        RG_CHECK_EQ(pwrite(fd, bytes, size, at), (ssize_t)size);
    }
    close(fd);
}

/* Returns how many pieces were damaged. */
static unsigned folder_damage(const char *folder, unsigned count)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    unsigned damaged = 0;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            file_damage(folder, entry->d_name, count);
            damaged += count;
        }
    }
    closedir(dir);
    return damaged;
}

static void fill(struct cache_case *c, struct rg_cache *cache)
{
    for (unsigned i = 0; i < OBJECTS; i++) {
        if (case_read(c, cache, i, size_of(i)) != CASE_HIT) {
            (void)case_write(c, cache, i, size_of(i));
        }
        if (i % 16 == 15) {
            rg_cache_flush(cache);
        }
    }
}

/* Records, tables of contents and the index, while the cache is open and before it is. */
static void test_damage_is_never_handed_out(void)
{
    struct cache_case c;
    unsigned want = wanted("RINGEST_DAMAGES", 2000), damaged = 0;
    uint64_t bad = 0;
    cache_case_open(&c);
    for (unsigned round = 0; damaged < want; round++) {
        struct rg_cache *cache = cache_case_start(&c, SIZE);
        rg_cache_flush(cache);
        (void)all_read(&c, cache);
        fill(&c, cache);
        damaged += folder_damage(c.folder, 20);
        if (round % 2 == 0) {
            damaged += folder_damage(c.share, 20);
        }
        (void)all_read(&c, cache);
        rg_cache_flush(cache);
        (void)all_read(&c, cache);
        bad += case_stats(cache).bad_records;
        rg_cache_close(cache);
        damaged += folder_damage(c.folder, 20);
        if (round % 3 == 0) {
            folder_empty(c.share);
        }
    }
    RG_CHECK(bad > 0);
    cache_case_close(&c);
}

static void writer_run(struct cache_case *c, unsigned seed)
{
    struct rg_cache *cache = NULL;
    if (cache_case_try(c, SIZE, c->share, &cache) < 0) {
        _exit(1);
    }
    for (unsigned i = 0; i < 300; i++) {
        unsigned number = seed * 1000 + i;
        if (case_read(c, cache, number, 200000) == CASE_WRONG) {
            _exit(2);
        }
        (void)case_write(c, cache, number, 200000);
        if (i % 32 == 0) {
            rg_cache_flush(cache);
        }
        struct rg_cache_stats stats = case_stats(cache);
        /* Each of the four may have made its segment at the same moment. */
        if (stats.size > SIZE + 4 * RG_MIB(6)) {
            _exit(3);
        }
    }
    rg_cache_close(cache);
    _exit(0);
}

static void test_several_processes_stay_within_the_size(void)
{
    struct cache_case c;
    struct rg_cache_files files = {.count = 0};
    cache_case_open(&c);
    for (unsigned i = 0; i < 4; i++) {
        pid_t child = fork();
        RG_CHECK(child >= 0);
        if (child == 0) {
            writer_run(&c, i);
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        int status = 1;
        RG_CHECK(wait(&status) > 0);
        RG_CHECK_EQ(status, 0);
    }
    int folder = rg_cache_folder_open(c.folder, false, c.why, sizeof(c.why));
    RG_CHECK_EQ(rg_cache_files_list(folder, &files), 0);
    RG_CHECK(files.size <= SIZE + 4 * RG_MIB(6) && files.size >= SIZE / 2);
    for (size_t i = 0; i < files.count; i++) {
        RG_CHECK(!files.files[i].is_open);
    }
    rg_cache_files_fini(&files);
    rg_fd_drop(folder);
    /* A smaller one makes it small. */
    struct rg_cache *cache = cache_case_start(&c, RG_MIB(16));
    rg_cache_flush(cache);
    RG_CHECK(case_write(&c, cache, 1, 1000));
    rg_cache_flush(cache);
    rg_cache_flush(cache);
    RG_CHECK(case_stats(cache).size <= RG_MIB(16) + 2 * RG_MIB(2));
    RG_CHECK(case_stats(cache).evicted > 0);
    rg_cache_close(cache);
    cache_case_close(&c);
}

/* As a process that looks at an older table than the present one would have it. */
static void number_give(struct cache_case *c, uint32_t number)
{
    struct rg_cache_numbered other = {.nonce = {{9}}, .state = RG_CACHE_SEGMENT_NUMBERED};
    off_t at = (off_t)(RG_CACHE_INDEX_HEADER_SIZE + number * sizeof(other));
    DIR *dir = opendir(c->share);
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL && entry->d_name[0] == '.') {
    }
    int fd = openat(dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC);
    RG_CHECK_EQ(pwrite(fd, &other, sizeof(other), at), sizeof(other));
    close(fd);
    closedir(dir);
}

static void test_a_segment_that_loses_its_number_gets_another(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, SIZE);
    for (unsigned i = 0; i < 40; i++) {
        RG_CHECK(case_write(&c, cache, i, 1000));
        if (i == 19) {
            rg_cache_flush(cache);
            number_give(&c, 1);
        }
    }
    rg_cache_flush(cache);
    struct rg_cache *other = cache_case_start(&c, SIZE);
    for (unsigned i = 0; i < 40; i++) {
        RG_CHECK_EQ(case_read(&c, cache, i, 1000), CASE_HIT);
        RG_CHECK_EQ(case_read(&c, other, i, 1000), CASE_HIT);
    }
    rg_cache_close(cache);
    rg_cache_close(other);
    cache_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_killed_at_any_moment),
        RG_TEST(test_damage_is_never_handed_out),
        RG_TEST(test_several_processes_stay_within_the_size),
        RG_TEST(test_a_segment_that_loses_its_number_gets_another),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
