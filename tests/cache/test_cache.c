/* A cache as its users see it: what is found, what is not, and what is never handed out. */
#include "tests/cache/cache_case.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define SIZE RG_MIB(64)

static void test_what_was_written_is_found(void)
{
    static const size_t sizes[] = {0, 1, 63, 64, 10240, 102400, 262144, 262145, 1048576};
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, SIZE);
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        RG_CHECK_EQ(case_read(&c, cache, i, sizes[i]), CASE_MISS);
        RG_CHECK(case_write(&c, cache, i, sizes[i]));
    }
    rg_cache_flush(cache);
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        RG_CHECK_EQ(case_read(&c, cache, i, sizes[i]), CASE_HIT);
    }
    struct rg_cache_stats stats = case_stats(cache);
    RG_CHECK_EQ(stats.hits, RG_ARRAY_LEN(sizes));
    RG_CHECK_EQ(stats.misses, RG_ARRAY_LEN(sizes));
    RG_CHECK_EQ(stats.written, RG_ARRAY_LEN(sizes));
    RG_CHECK_EQ(stats.errors, 0);
    rg_cache_close(cache);
    cache_case_close(&c);
}

static void test_another_key_is_not_found(void)
{
    struct cache_case c;
    struct case_key k;
    struct rg_cache_place place;
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, SIZE);
    RG_CHECK(case_write(&c, cache, 7, 1000));
    rg_cache_flush(cache);
    case_key_make(&k, 7);
    struct rg_cache_key others[] = {k.key, k.key, k.key, k.key, k.key};
    others[0].origin = "127.0.0.1:9000";
    others[1].bucket = "bucket2";
    others[2].object = "shard/00000008";
    others[3].generation++;
    others[4].block = 1;
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        RG_CHECK(!rg_cache_find(cache, &others[i], &place));
    }
    /* A hint that is wrong: what lies there is compared with the whole key. */
    struct rg_cache_record record;
    RG_CHECK(rg_cache_find(cache, &k.key, &place));
    RG_CHECK_EQ(pread(place.fd, c.record, place.size, (off_t)place.offset), place.size);
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        RG_CHECK_EQ(rg_cache_record_open(cache, &place, &others[i], c.record, place.size, &record),
                    -ENOENT);
    }
    rg_cache_place_drop(cache, &place);
    RG_CHECK_EQ(case_read(&c, cache, 7, 1000), CASE_HIT);
    rg_cache_close(cache);
    cache_case_close(&c);
}

static void test_keys_that_cannot_be_cached(void)
{
    struct cache_case c;
    struct case_key k;
    struct rg_cache_place place;
    struct rg_cache_record record = {.object_size = 1};
    char name[2000];
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, SIZE);
    case_key_make(&k, 1);
    k.key.generation = 0;
    RG_CHECK(!rg_cache_write(cache, &k.key, &record, c.body, 1));
    RG_CHECK(!rg_cache_find(cache, &k.key, &place));
    case_key_make(&k, 1);
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    k.key.object = name;
    RG_CHECK(!rg_cache_write(cache, &k.key, &record, c.body, 1));
    RG_CHECK(!rg_cache_find(cache, &k.key, &place));
    rg_cache_close(cache);
    cache_case_close(&c);
}

static void test_a_part_of_a_block_is_checked_alone(void)
{
    struct cache_case c;
    struct case_key k;
    struct rg_cache_place place;
    struct rg_cache_record record;
    uint32_t size = RG_MIB(1) - 1000;
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, SIZE);
    RG_CHECK(case_write(&c, cache, 3, size));
    rg_cache_flush(cache);
    case_key_make(&k, 3);
    RG_CHECK(rg_cache_find(cache, &k.key, &place));
    RG_CHECK_EQ(pread(place.fd, c.record, place.size, (off_t)place.offset), place.size);
    RG_CHECK_EQ(
        rg_cache_record_open(cache, &place, &k.key, c.record, RG_CACHE_HEADER_SIZE_MAX, &record),
        0);
    RG_CHECK_EQ(record.body_size, size);
    RG_CHECK_EQ(record.header_size % 64, 0);
    uint8_t *body = c.record + record.header_size;
    uint32_t last = size / record.piece_size * record.piece_size;
    body[0] ^= 1;
    RG_CHECK_EQ(rg_cache_record_check(cache, &place, &record, last, body + last, size - last), 0);
    RG_CHECK_EQ(rg_cache_record_check(cache, &place, &record, record.piece_size,
                                      body + record.piece_size, 2 * record.piece_size),
                0);
    RG_CHECK_EQ(rg_cache_record_check(cache, &place, &record, 0, body, record.piece_size),
                -EBADMSG);
    rg_cache_place_drop(cache, &place);
    /* What was found damaged is not found again. */
    RG_CHECK(!rg_cache_find(cache, &k.key, &place));
    RG_CHECK_EQ(case_stats(cache).bad_records, 1);
    rg_cache_close(cache);
    cache_case_close(&c);
}

static bool part_is_there(struct rg_cache *cache, uint64_t at)
{
    struct case_key k;
    struct rg_cache_place place;
    case_key_make(&k, 1);
    bool found = rg_cache_find_byte(cache, &k.key, at, RG_CACHE_BY_ANY, &place);
    RG_CHECK(!found || k.key.block == (RG_CACHE_PART | 1000));
    if (found) {
        rg_cache_place_drop(cache, &place);
    }
    return found;
}

/* Notes are in the table of a segment, from which a new index is made. */
static void test_a_part_is_found_by_another_byte(void)
{
    struct cache_case c;
    struct case_key k;
    const struct rg_cache_record record = {.object_size = 3 * RG_CACHE_BLOCK_SIZE};
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, SIZE);
    case_key_make(&k, 1);
    k.key.block = RG_CACHE_PART | 1000;
    body_fill(c.body, 200000, 1);
    RG_CHECK(rg_cache_write(cache, &k.key, &record, c.body, 200000));
    for (unsigned life = 0; life < 2; life++) {
        rg_cache_flush(cache);
        RG_CHECK(part_is_there(cache, 1000) && part_is_there(cache, 100000));
        RG_CHECK(!part_is_there(cache, 999) && !part_is_there(cache, 201000));
        if (life == 0) {
            RG_CHECK_EQ(case_stats(cache).written, 1);
            rg_cache_close(cache);
            folder_empty(c.share);
            cache = cache_case_start(&c, SIZE);
        }
    }
    rg_cache_close(cache);
    cache_case_close(&c);
}

static void test_a_second_life_finds_what_the_first_wrote(void)
{
    struct cache_case c;
    cache_case_open(&c);
    for (unsigned life = 0; life < 4; life++) {
        struct rg_cache *cache = cache_case_start(&c, SIZE);
        rg_cache_flush(cache);
        for (unsigned i = 0; i < 200; i++) {
            enum case_outcome want = i < life * 50 ? CASE_HIT : CASE_MISS;
            RG_CHECK_EQ(case_read(&c, cache, i, 20000), want);
        }
        for (unsigned i = life * 50; i < life * 50 + 50; i++) {
            RG_CHECK(case_write(&c, cache, i, 20000));
        }
        rg_cache_close(cache);
        if (life == 1) {
            /* The index is gone, and made again from the tables of contents. */
            folder_empty(c.share);
        }
    }
    cache_case_close(&c);
}

static void test_two_caches_share_a_folder(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache *one = cache_case_start(&c, SIZE), *two = cache_case_start(&c, SIZE);
    RG_CHECK(case_write(&c, one, 1, 5000));
    RG_CHECK(case_write(&c, two, 2, 5000));
    rg_cache_flush(one);
    rg_cache_flush(two);
    RG_CHECK_EQ(case_read(&c, one, 2, 5000), CASE_HIT);
    RG_CHECK_EQ(case_read(&c, two, 1, 5000), CASE_HIT);
    /* The segment stays readable when its writer seals it. */
    rg_cache_close(one);
    RG_CHECK_EQ(case_read(&c, two, 1, 5000), CASE_HIT);
    rg_cache_close(two);
    cache_case_close(&c);
}

/* Whoever waits for bytes does not wait for open(2), too. */
static void test_segments_are_open_before_they_are_read(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache *one = cache_case_start(&c, SIZE), *two = cache_case_start(&c, SIZE);
    RG_CHECK(case_write(&c, one, 1, 5000));
    rg_cache_flush(one);
    rg_cache_flush(two);
    folder_empty(c.folder);
    RG_CHECK_EQ(case_read(&c, one, 1, 5000), CASE_HIT);
    RG_CHECK_EQ(case_read(&c, two, 1, 5000), CASE_HIT);
    rg_cache_close(one);
    rg_cache_close(two);
    cache_case_close(&c);
}

static void test_a_forgotten_key_is_a_miss(void)
{
    struct cache_case c;
    struct case_key k;
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, SIZE);
    RG_CHECK(case_write(&c, cache, 1, 5000) && case_write(&c, cache, 2, 5000));
    rg_cache_flush(cache);
    case_key_make(&k, 1);
    rg_cache_forget(cache, &k.key);
    RG_CHECK_EQ(case_read(&c, cache, 1, 5000), CASE_MISS);
    RG_CHECK_EQ(case_read(&c, cache, 2, 5000), CASE_HIT);
    rg_cache_close(cache);
    cache_case_close(&c);
}

/* What is forgotten makes room before anything else does, and at once. */
static void test_what_is_forgotten_goes_first(void)
{
    struct cache_case c;
    struct rg_cache_stats stats = {0};
    uint64_t count = 0;
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, RG_MIB(16));
    for (; stats.not_admitted == 0; count++) {
        (void)case_write(&c, cache, count, RG_CACHE_BLOCK_SIZE);
        rg_cache_flush(cache);
        rg_cache_stats(cache, &stats);
    }
    for (uint64_t i = 4; i < 8; i++) {
        struct case_key k;
        case_key_make(&k, i);
        rg_cache_forget(cache, &k.key);
    }
    rg_cache_flush(cache);
    RG_CHECK(case_write(&c, cache, 100, RG_CACHE_BLOCK_SIZE));
    rg_cache_flush(cache);
    rg_cache_stats(cache, &stats);
    RG_CHECK_EQ(stats.evicted, 1);
    RG_CHECK_EQ(case_read(&c, cache, 100, RG_CACHE_BLOCK_SIZE), CASE_HIT);
    RG_CHECK_EQ(case_read(&c, cache, 0, RG_CACHE_BLOCK_SIZE), CASE_HIT);
    RG_CHECK_EQ(case_read(&c, cache, 9, RG_CACHE_BLOCK_SIZE), CASE_HIT);
    rg_cache_close(cache);
    cache_case_close(&c);
}

/* As hosts that have only the folder in common. */
static void test_without_a_shared_index_sealed_segments_are_found(void)
{
    struct cache_case c;
    struct rg_cache *one = NULL, *two = NULL;
    cache_case_open(&c);
    RG_CHECK_EQ(cache_case_try(&c, SIZE, NULL, &one), 0);
    RG_CHECK_EQ(cache_case_try(&c, SIZE, NULL, &two), 0);
    RG_CHECK(case_write(&c, one, 1, 5000));
    rg_cache_flush(one);
    rg_cache_flush(two);
    RG_CHECK_EQ(case_read(&c, one, 1, 5000), CASE_HIT);
    RG_CHECK_EQ(case_read(&c, two, 1, 5000), CASE_MISS);
    rg_cache_close(one);
    rg_cache_flush(two);
    RG_CHECK_EQ(case_read(&c, two, 1, 5000), CASE_HIT);
    rg_cache_close(two);
    cache_case_close(&c);
}

/* Reads everything once, in an order of its own. Returns the hits. */
static unsigned epoch_run(struct cache_case *c, struct rg_cache *cache, unsigned first,
                          unsigned objects, size_t size, unsigned step)
{
    unsigned hits = 0;
    for (unsigned i = 0; i < objects; i++) {
        unsigned number = first + (unsigned)((uint64_t)i * step % objects);
        enum case_outcome outcome = case_read(c, cache, number, size);
        RG_CHECK(outcome == CASE_HIT || outcome == CASE_MISS);
        hits += outcome == CASE_HIT;
        if (outcome == CASE_MISS) {
            (void)case_write(c, cache, number, size);
            rg_cache_flush(cache);
        }
    }
    return hits;
}

/* Sixteen segments of 2 MiB at most, objects of 64 KiB. */
static void test_a_data_set_twice_the_size_keeps_half(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, RG_MIB(16));
    unsigned objects = 512;
    RG_CHECK_EQ(epoch_run(&c, cache, 0, objects, 65536 - 512, 1), 0);
    unsigned sequential = epoch_run(&c, cache, 0, objects, 65536 - 512, 1);
    unsigned shuffled = epoch_run(&c, cache, 0, objects, 65536 - 512, 211);
    RG_CHECK(sequential * 100 >= objects * 40 && shuffled >= sequential);
    struct rg_cache_stats stats = case_stats(cache);
    RG_CHECK(stats.size <= stats.size_max + RG_MIB(2));
    RG_CHECK_EQ(stats.evicted, 0);
    rg_cache_close(cache);
    cache_case_close(&c);
}

static void test_a_data_set_that_is_done_with_goes(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, RG_MIB(16));
    unsigned objects = 128;
    (void)epoch_run(&c, cache, 0, objects, 65536 - 512, 1);
    (void)epoch_run(&c, cache, 1000, 256, 65536 - 512, 1);
    for (unsigned epoch = 0; epoch < 4; epoch++) {
        (void)epoch_run(&c, cache, 1000, 256, 65536 - 512, 1);
    }
    unsigned hits = epoch_run(&c, cache, 1000, 256, 65536 - 512, 1);
    RG_CHECK(hits * 100 >= 256 * 70);
    RG_CHECK(case_stats(cache).evicted > 0);
    rg_cache_close(cache);
    cache_case_close(&c);
}

/* Makes a sealed segment as another version might. */
static void foreign_make(const struct cache_case *c, size_t size, char path[200])
{
    static const struct rg_cache_head head = {.nonce = {{1, 2, 3}}};
    uint8_t bytes[RG_CACHE_HEAD_SIZE];
    char name[RG_CACHE_NAME_SIZE];
    rg_cache_head_write(&head, bytes);
    bytes[8] = 99;
    rg_cache_name_write(&head.nonce, false, name);
    snprintf(path, 200, "%s/%s", c->folder, name);
    RG_CHECK(mkdir(c->folder, 0700) == 0 || errno == EEXIST);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    RG_CHECK_EQ(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
    RG_CHECK_EQ(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

static void test_a_segment_of_another_version_is_not_read_and_goes_as_the_oldest(void)
{
    struct cache_case c;
    char path[200];
    cache_case_open(&c);
    foreign_make(&c, RG_MIB(15), path);
    struct rg_cache *cache = cache_case_start(&c, RG_MIB(16));
    rg_cache_flush(cache);
    rg_cache_flush(cache);
    RG_CHECK_EQ(case_stats(cache).size, RG_MIB(15));
    RG_CHECK_EQ(case_stats(cache).errors, 1);
    /* There is no room beside it until it is out of use. */
    RG_CHECK(!case_write(&c, cache, 1, 10000));
    RG_CHECK_EQ(access(path, F_OK), 0);
    for (unsigned i = 0; i < 60; i++) {
        (void)case_write(&c, cache, 1000 + i, RG_MIB(1));
    }
    rg_cache_flush(cache);
    RG_CHECK(case_write(&c, cache, 1, 10000));
    rg_cache_flush(cache);
    RG_CHECK_EQ(case_read(&c, cache, 1, 10000), CASE_HIT);
    RG_CHECK(access(path, F_OK) < 0);
    RG_CHECK_EQ(case_stats(cache).evicted, 1);
    rg_cache_close(cache);
    cache_case_close(&c);
}

static void test_folders_that_are_refused(void)
{
    struct cache_case c;
    struct rg_cache *cache = NULL;
    cache_case_open(&c);
    RG_CHECK_EQ(cache_case_try(&c, 1000, NULL, &cache), -EINVAL);
    RG_CHECK(strstr(c.why, "16 MiB") != NULL);
    RG_CHECK_EQ(chmod(c.folder, 0777), 0);
    RG_CHECK_EQ(cache_case_try(&c, SIZE, NULL, &cache), -EPERM);
    RG_CHECK(strstr(c.why, "chmod go-w") != NULL);
    RG_CHECK_EQ(rmdir(c.folder), 0);
    /* Only the last part is made: another may be a place where something should be mounted. */
    char folder[200];
    snprintf(folder, sizeof(folder), "%s/not-there/cache", c.root);
    struct rg_cache_options options = {.folder = folder, .size = SIZE};
    RG_CHECK_EQ(rg_cache_open(&cache, &options, c.why, sizeof(c.why)), -ENOENT);
    RG_CHECK(strstr(c.why, folder) != NULL);
    cache_case_close(&c);
}

static void test_a_folder_that_vanishes(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, SIZE);
    RG_CHECK(case_write(&c, cache, 1, 5000));
    rg_cache_flush(cache);
    folder_empty(c.folder);
    RG_CHECK_EQ(rmdir(c.folder), 0);
    rg_cache_flush(cache);
    (void)case_read(&c, cache, 1, 5000);
    for (unsigned i = 10; i < 200; i++) {
        (void)case_write(&c, cache, i, RG_CACHE_BLOCK_SIZE);
        (void)case_read(&c, cache, i, RG_CACHE_BLOCK_SIZE);
    }
    rg_cache_flush(cache);
    rg_cache_close(cache);
    cache_case_close(&c);
}

/* A disk that is full: of files of more than 3 MB, for this process. */
static void test_what_cannot_be_written_is_a_miss(void)
{
    struct cache_case c;
    struct rlimit before, small = {.rlim_cur = 3000000};
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, SIZE);
    RG_CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    RG_CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (unsigned i = 0; i < 20; i++) {
        (void)case_write(&c, cache, i, 200000);
    }
    rg_cache_flush(cache);
    RG_CHECK(case_stats(cache).errors > 0);
    RG_CHECK_EQ(case_stats(cache).size, 0);
    RG_CHECK_EQ(case_read(&c, cache, 1, 200000), CASE_MISS);
    RG_CHECK(!case_write(&c, cache, 1, 200000));
    rg_cache_close(cache);
    RG_CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    cache_case_close(&c);
}

static bool text_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return done;
}

/* A file system of this process's own, of 24 MiB; false where none can be had. */
static bool mount_own(struct cache_case *c, unsigned uid, unsigned gid)
{
    char uids[32], gids[32];
    snprintf(uids, sizeof(uids), "0 %u 1", uid);
    snprintf(gids, sizeof(gids), "0 %u 1", gid);
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && text_write("/proc/self/uid_map", uids) &&
           text_write("/proc/self/setgroups", "deny") && text_write("/proc/self/gid_map", gids) &&
           mkdir(c->folder, 0700) == 0 &&
           mount("none", c->folder, "tmpfs", 0, "size=24m,mode=0700") == 0;
}

static void junk_write(struct cache_case *c)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/junk", c->folder);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    memset(c->record, 1, RG_MIB(1));
    while (write(fd, c->record, RG_MIB(1)) > 0) {
    }
    close(fd);
}

static unsigned many_read(struct cache_case *c, struct rg_cache *cache)
{
    unsigned hits = 0;
    for (unsigned i = 0; i < 40; i++) {
        enum case_outcome outcome = case_read(c, cache, i, 900000);
        RG_CHECK(outcome == CASE_HIT || outcome == CASE_MISS);
        hits += outcome == CASE_HIT;
    }
    return hits;
}

static void many_write(struct cache_case *c, struct rg_cache *cache, unsigned first)
{
    for (unsigned i = first; i < 40; i++) {
        (void)case_write(c, cache, i, 900000);
        rg_cache_flush(cache);
    }
}

static void disks_run(struct cache_case *c, unsigned uid, unsigned gid)
{
    struct rg_cache *cache = NULL, *second = NULL;
    if (!mount_own(c, uid, gid)) {
        _exit(77);
    }
    RG_CHECK_EQ(cache_case_try(c, SIZE, NULL, &cache), 0);
    RG_CHECK(case_write(c, cache, 0, 900000));
    rg_cache_flush(cache);
    junk_write(c);
    many_write(c, cache, 1);
    RG_CHECK(many_read(c, cache) > 0);
    RG_CHECK(case_stats(cache).errors + case_stats(cache).not_admitted > 0);
    /* Unmounted while it is in use, as an administrator does it. */
    RG_CHECK_EQ(umount2(c->folder, MNT_DETACH), 0);
    (void)many_read(c, cache);
    many_write(c, cache, 1);
    rg_cache_close(cache);
    RG_CHECK_EQ(mount("none", c->folder, "tmpfs", MS_RDONLY, "size=24m,mode=0700"), 0);
    RG_CHECK_EQ(cache_case_try(c, SIZE, NULL, &second), 0);
    many_write(c, second, 0);
    RG_CHECK_EQ(many_read(c, second), 0);
    RG_CHECK(case_stats(second).errors > 0);
    rg_cache_close(second);
    _exit(0);
}

static void test_full_vanished_and_read_only_disks(void)
{
    struct cache_case c;
    cache_case_open(&c);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        disks_run(&c, (unsigned)geteuid(), (unsigned)getegid());
    }
    int status = 1;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    cache_case_close(&c);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        rg_test_skip("there are no namespaces of users");
    }
    RG_CHECK_EQ(status, 0);
}

static void test_a_forked_child_leaves_it_alone(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache *cache = cache_case_start(&c, SIZE);
    RG_CHECK(case_write(&c, cache, 1, 5000));
    rg_cache_flush(cache);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        rg_cache_close(cache);
        _exit(0);
    }
    int status = 1;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    RG_CHECK_EQ(case_read(&c, cache, 1, 5000), CASE_HIT);
    rg_cache_close(cache);
    cache_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_was_written_is_found),
        RG_TEST(test_another_key_is_not_found),
        RG_TEST(test_keys_that_cannot_be_cached),
        RG_TEST(test_a_part_of_a_block_is_checked_alone),
        RG_TEST(test_a_part_is_found_by_another_byte),
        RG_TEST(test_a_second_life_finds_what_the_first_wrote),
        RG_TEST(test_two_caches_share_a_folder),
        RG_TEST(test_segments_are_open_before_they_are_read),
        RG_TEST(test_a_forgotten_key_is_a_miss),
        RG_TEST(test_what_is_forgotten_goes_first),
        RG_TEST(test_without_a_shared_index_sealed_segments_are_found),
        RG_TEST(test_a_data_set_twice_the_size_keeps_half),
        RG_TEST(test_a_data_set_that_is_done_with_goes),
        RG_TEST(test_a_segment_of_another_version_is_not_read_and_goes_as_the_oldest),
        RG_TEST(test_folders_that_are_refused),
        RG_TEST(test_a_folder_that_vanishes),
        RG_TEST(test_what_cannot_be_written_is_a_miss),
        RG_TEST(test_full_vanished_and_read_only_disks),
        RG_TEST(test_a_forked_child_leaves_it_alone),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
