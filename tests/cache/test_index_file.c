/* The file of an index: made once, replaced, refused. */
#include "cache/index_file.h"

#include "runtime/descriptor.h"
#include "tests/cache/cache_case.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static struct rg_cache_index_file file_of(struct cache_case *c)
{
    struct rg_cache_index_file file = {.share = c->share, .fd = -1};
    snprintf(file.path, sizeof(file.path), "%s/index", c->share);
    return file;
}

static int try(struct cache_case *c, struct rg_cache_index_file *file, uint64_t lines)
{
    c->why[0] = '\0';
    return rg_cache_index_file_open(file, lines, c->why, sizeof(c->why));
}

static void test_the_second_opens_what_the_first_made(void)
{
    struct cache_case c;
    struct stat status;
    cache_case_open(&c);
    struct rg_cache_index_file one = file_of(&c), two = file_of(&c);
    RG_CHECK_EQ(try(&c, &one, 16), 0);
    RG_CHECK_EQ(try(&c, &two, 999), 0);
    RG_CHECK_EQ(fstat(two.fd, &status), 0);
    RG_CHECK_EQ(status.st_size, rg_cache_index_file_size());
    RG_CHECK_EQ(two.memory.lines, 16);
    RG_CHECK_EQ(two.memory.id, one.memory.id);
    RG_CHECK_EQ(status.st_mode, S_IFREG | 0600);
    RG_CHECK_EQ(rg_cache_index_file_lock(&one, 3), 0);
    RG_CHECK(rg_cache_index_file_lock(&two, 3) < 0);
    RG_CHECK_EQ(rg_cache_index_file_lock(&two, 4), 0);
    rg_cache_index_file_unlock(&one, 3);
    RG_CHECK_EQ(rg_cache_index_file_lock(&two, 3), 0);
    rg_cache_index_file_close(&one);
    rg_cache_index_file_close(&two);
    cache_case_close(&c);
}

static void test_another_in_its_place(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache_index_file one = file_of(&c), two = file_of(&c), made;
    RG_CHECK_EQ(try(&c, &one, 16), 0);
    RG_CHECK_EQ(try(&c, &two, 16), 0);
    RG_CHECK_EQ(rg_cache_index_file_make(&one, 32, &made), 0);
    RG_CHECK(!rg_cache_index_file_is_gone(&two));
    RG_CHECK_EQ(rg_cache_index_file_replace(&one, &made), 0);
    RG_CHECK(!rg_cache_index_file_is_gone(&one));
    RG_CHECK(rg_cache_index_file_is_gone(&two));
    rg_cache_index_file_close(&two);
    RG_CHECK_EQ(try(&c, &two, 16), 0);
    RG_CHECK_EQ(two.memory.lines, 32);
    rg_cache_index_file_close(&one);
    rg_cache_index_file_close(&two);
    cache_case_close(&c);
}

/* As if its memory were another's by now. */
static void test_a_file_whose_memory_is_not_its_own_is_replaced(void)
{
    struct cache_case c;
    cache_case_open(&c);
    for (size_t at = offsetof(struct rg_cache_index_header, memory_id);
         at < sizeof(struct rg_cache_index_header); at += 8) {
        struct rg_cache_index_file file = file_of(&c), other = file_of(&c);
        RG_CHECK_EQ(try(&c, &file, 16), 0);
        uint8_t byte = 0;
        RG_CHECK_EQ(pread(file.fd, &byte, 1, (off_t)at), 1);
        byte ^= 0x10;
        RG_CHECK_EQ(pwrite(file.fd, &byte, 1, (off_t)at), 1);
        RG_CHECK_EQ(try(&c, &other, 16), 0);
        RG_CHECK(rg_cache_index_file_is_gone(&file));
        RG_CHECK(other.memory.id != file.memory.id);
        rg_cache_index_file_close(&file);
        rg_cache_index_file_close(&other);
    }
    cache_case_close(&c);
}

/* Bytes of addresses that this process has. */
static uint64_t addresses_used(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    RG_CHECK(file != NULL);
    RG_CHECK_EQ(fscanf(file, "%llu", &pages), 1);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Others go on with it. */
static void test_who_cannot_attach_one_leaves_it_there(void)
{
    struct cache_case c;
    int status;
    cache_case_open(&c);
    struct rg_cache_index_file one = file_of(&c);
    RG_CHECK_EQ(try(&c, &one, RG_MIB(256) / RG_CACHE_LINE_SIZE), 0);
    pid_t pid = fork();
    RG_CHECK(pid >= 0);
    if (pid == 0) {
        struct rg_cache_index_file two = file_of(&c);
        struct rlimit limit;
        bool is_set = getrlimit(RLIMIT_AS, &limit) == 0;
        limit.rlim_cur = addresses_used() + RG_MIB(64);
        is_set = is_set && setrlimit(RLIMIT_AS, &limit) == 0;
        int rc = try(&c, &two, 16);
        bool is_said = strstr(c.why, c.share) != NULL && strstr(c.why, "attached") != NULL;
        _exit(!is_set ? 2 : rc != -ENOMEM ? 3 : is_said ? 0 : 4);
    }
    RG_CHECK_EQ(waitpid(pid, &status, 0), pid);
    RG_CHECK_EQ(status, 0);
    RG_CHECK(!rg_cache_index_file_is_gone(&one));
    rg_cache_index_file_close(&one);
    cache_case_close(&c);
}

static void test_one_that_was_removed_leaves_no_memory(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache_index_file one = file_of(&c), two = file_of(&c);
    RG_CHECK_EQ(try(&c, &one, 16), 0);
    RG_CHECK_EQ(try(&c, &two, 16), 0);
    int id = one.memory.id;
    RG_CHECK_EQ(unlink(one.path), 0);
    RG_CHECK(memory_is_there(id));
    rg_cache_index_file_close(&one);
    RG_CHECK(!memory_is_there(id));
    atomic_store(&two.memory.slots[0].word, 7);
    rg_cache_index_file_close(&two);
    cache_case_close(&c);
}

static void test_what_is_refused(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache_index_file file = file_of(&c);
    RG_CHECK_EQ(try(&c, &file, 16), 0);
    for (off_t at = 0; at < 16; at++) {
        uint8_t byte = 0;
        RG_CHECK_EQ(pread(file.fd, &byte, 1, at), 1);
        byte ^= 0x10;
        RG_CHECK_EQ(pwrite(file.fd, &byte, 1, at), 1);
        struct rg_cache_index_file other = file_of(&c);
        RG_CHECK_EQ(try(&c, &other, 16), -EINVAL);
        RG_CHECK(strstr(c.why, "remove it") != NULL);
        byte ^= 0x10;
        RG_CHECK_EQ(pwrite(file.fd, &byte, 1, at), 1);
    }
    RG_CHECK_EQ(fchmod(file.fd, 0644), 0);
    struct rg_cache_index_file other = file_of(&c);
    RG_CHECK_EQ(try(&c, &other, 16), -EPERM);
    rg_cache_index_file_close(&file);
    cache_case_close(&c);
}

struct left {
    const char *name;
    time_t age_s;
    mode_t mode;
    bool is_held, stays;
};

static struct rg_cache_index_file leave(struct cache_case *c, const struct left *left)
{
    struct rg_cache_index_file file = {.share = c->share, .fd = -1};
    struct timespec times[2] = {{.tv_sec = time(NULL) - left->age_s}, {0}};
    times[1] = times[0];
    snprintf(file.path, sizeof(file.path), "%s/%s", c->share, left->name);
    RG_CHECK_EQ(try(c, &file, 16), 0);
    RG_CHECK_EQ(fchmod(file.fd, left->mode), 0);
    RG_CHECK_EQ(futimens(file.fd, times), 0);
    if (!left->is_held) {
        rg_cache_index_file_close(&file);
    }
    return file;
}

/* Of the same user, held by nobody, and not written for long. */
static void test_what_is_left_of_other_caches_is_swept(void)
{
    const time_t old = RG_CACHE_INDEX_IDLE_S + 60;
    char names[6][64];
    const struct left all[] = {
        {names[0], old, 0600, false, false}, {names[1], old, 0600, true, true},
        {names[2], 0, 0600, false, true},    {names[3], old, 0644, false, true},
        {names[4], old, 0600, false, true},  {names[5], old, 0600, false, true},
    };
    struct rg_cache_index_file files[RG_ARRAY_LEN(all)];
    struct cache_case c;
    cache_case_open(&c);
    for (unsigned i = 0; i < RG_ARRAY_LEN(all); i++) {
        const char *kind = i == 4 ? "other" : "cache";
        unsigned uid = geteuid() + (i == 5);
        snprintf(names[i], sizeof(names[i]), "ringest-%u-%s-%u-v1", uid, kind, i);
        files[i] = leave(&c, &all[i]);
    }
    rg_cache_index_file_sweep(&files[1]);
    for (unsigned i = 0; i < RG_ARRAY_LEN(all); i++) {
        RG_CHECK_EQ(access(files[i].path, F_OK) == 0, all[i].stays);
    }
    /* It is held through a change of the file as well. */
    struct rg_cache_index_file made;
    RG_CHECK_EQ(rg_cache_index_file_make(&files[1], 32, &made), 0);
    RG_CHECK_EQ(rg_cache_index_file_replace(&files[1], &made), 0);
    int id = files[1].memory.id;
    RG_CHECK_EQ(futimens(files[1].fd, (struct timespec[2]){{0}, {0}}), 0);
    rg_cache_index_file_sweep(&files[2]);
    RG_CHECK(!rg_cache_index_file_is_gone(&files[1]));
    rg_cache_index_file_close(&files[1]);
    rg_cache_index_file_sweep(&files[2]);
    RG_CHECK(access(files[1].path, F_OK) < 0);
    RG_CHECK(!memory_is_there(id));
    cache_case_close(&c);
}

/* Whoever is killed while he makes one leaves memory that no file names. */
static void test_memory_that_no_file_names_is_swept(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache_index_file own = file_of(&c), made;
    RG_CHECK_EQ(try(&c, &own, 16), 0);
    int named = own.memory.id;
    RG_CHECK_EQ(rg_cache_index_file_make(&own, 32, &made), 0);
    int left = made.memory.id;
    rg_cache_index_memory_detach(&made.memory);
    rg_fd_drop(made.fd);
    rg_cache_index_file_close(&own);
    do { /* what the sweep of another process looks at in this moment, that one removes */
        rg_cache_index_file_sweep(&own);
    } while (memory_is_there(left));
    RG_CHECK_EQ(try(&c, &own, 32), 0);
    RG_CHECK_EQ(own.memory.id, named);
    RG_CHECK_EQ(own.memory.lines, 16);
    rg_cache_index_file_close(&own);
    cache_case_close(&c);
}

/* It has its memory as long as its file is there. */
static void test_the_memory_of_another_version_stays(void)
{
    const uint32_t version = RG_CACHE_INDEX_VERSION + 1;
    struct cache_case c;
    cache_case_open(&c);
    struct rg_cache_index_file own = file_of(&c);
    RG_CHECK_EQ(try(&c, &own, 16), 0);
    int id = own.memory.id;
    RG_CHECK_EQ(
        pwrite(own.fd, &version, sizeof(version), offsetof(struct rg_cache_index_header, version)),
        sizeof(version));
    rg_cache_index_file_close(&own);
    rg_cache_index_file_sweep(&own);
    RG_CHECK(memory_is_there(id));
    RG_CHECK_EQ(unlink(own.path), 0);
    do { /* as above */
        rg_cache_index_file_sweep(&own);
    } while (memory_is_there(id));
    cache_case_close(&c);
}

/* The folder is one of many programs. */
static void test_what_only_has_the_name_of_an_index_stays(void)
{
    static const char *const texts[] = {"", "notes", "ringidz, and then something that is longer"};
    const struct timespec times[2] = {{0}, {0}};
    struct cache_case c;
    char path[RG_CACHE_INDEX_PATH_SIZE_MAX];
    cache_case_open(&c);
    struct rg_cache_index_file own = file_of(&c);
    RG_CHECK_EQ(try(&c, &own, 16), 0);
    for (unsigned i = 0; i < RG_ARRAY_LEN(texts); i++) {
        snprintf(path, sizeof(path), "%s/ringest-%u-cache-notes", c.share, (unsigned)geteuid());
        int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        RG_CHECK(fd >= 0);
        RG_CHECK_EQ(write(fd, texts[i], strlen(texts[i])), strlen(texts[i]));
        RG_CHECK_EQ(futimens(fd, times), 0);
        close(fd);
        rg_cache_index_file_sweep(&own);
        RG_CHECK_EQ(unlink(path), 0);
    }
    rg_cache_index_file_close(&own);
    cache_case_close(&c);
}

static void test_memory_without_a_name(void)
{
    struct rg_cache_index_file file = {.share = NULL, .fd = -1}, made;
    char why[200];
    RG_CHECK_EQ(rg_cache_index_file_open(&file, 16, why, sizeof(why)), 0);
    RG_CHECK(!rg_cache_index_file_is_gone(&file));
    RG_CHECK_EQ(rg_cache_index_file_make(&file, 32, &made), 0);
    RG_CHECK_EQ(rg_cache_index_file_replace(&file, &made), 0);
    RG_CHECK_EQ(file.memory.lines, 32);
    rg_cache_index_file_close(&file);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_second_opens_what_the_first_made),
        RG_TEST(test_another_in_its_place),
        RG_TEST(test_a_file_whose_memory_is_not_its_own_is_replaced),
        RG_TEST(test_who_cannot_attach_one_leaves_it_there),
        RG_TEST(test_one_that_was_removed_leaves_no_memory),
        RG_TEST(test_what_is_refused),
        RG_TEST(test_what_is_left_of_other_caches_is_swept),
        RG_TEST(test_memory_that_no_file_names_is_swept),
        RG_TEST(test_the_memory_of_another_version_stays),
        RG_TEST(test_what_only_has_the_name_of_an_index_stays),
        RG_TEST(test_memory_without_a_name),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
