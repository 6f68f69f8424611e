/* The files of a folder: names, what is refused, adopted and removed. */
#include "cache/files.h"

#include "cache/writer.h"
#include "runtime/descriptor.h"
#include "tests/cache/cache_case.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static void test_names(void)
{
    static const char *const wrong[] = {"",
                                        "x",
                                        "00112233445566778899aabbccddeeff",
                                        "00112233445566778899aabbccddeeff.openx",
                                        "00112233445566778899AABBCCDDEEFF.open",
                                        "00112233445566778899aabbccddeef.segment",
                                        "00112233445566778899aabbccddeeff0.segment",
                                        ".segment"};
    struct rg_cache_nonce nonce, back;
    char name[RG_CACHE_NAME_SIZE];
    bool is_open = false;
    rg_cache_nonce_draw(&nonce);
    for (int i = 0; i < 2; i++) {
        rg_cache_name_write(&nonce, i == 1, name);
        RG_CHECK(rg_cache_name_read(name, &back, &is_open));
        RG_CHECK_MEM(&back, sizeof(back), &nonce, sizeof(nonce));
        RG_CHECK_EQ(is_open, i == 1);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        RG_CHECK(!rg_cache_name_read(wrong[i], &back, &is_open));
    }
}

struct made {
    struct cache_case c;
    int folder;
    struct rg_cache_writer writer;
    uint8_t *batch;
};

static void made_open(struct made *m)
{
    cache_case_open(&m->c);
    m->folder = rg_cache_folder_open(m->c.folder, true, m->c.why, sizeof(m->c.why));
    RG_CHECK(m->folder >= 0);
    rg_cache_writer_init(&m->writer, m->folder);
    m->batch = aligned_alloc(RG_CACHE_ALIGNMENT, RG_MIB(1));
}

static void made_close(struct made *m)
{
    rg_cache_writer_fini(&m->writer);
    free(m->batch);
    rg_fd_drop(m->folder);
    cache_case_close(&m->c);
}

/* A batch of one record. */
static void append(struct made *m, uint64_t number, size_t size)
{
    struct case_key k;
    struct rg_cache_key_sizes sizes;
    struct rg_cache_record record = {.object_size = size};
    const struct rg_cache_content *placed;
    case_key_make(&k, number);
    RG_CHECK(rg_cache_key_measure(&k.key, &sizes));
    size_t header = rg_cache_header_size(&sizes, size);
    size_t all = rg_cache_round_up(header + size, RG_CACHE_ALIGNMENT);
    memset(m->batch, 0, all);
    body_fill(m->batch + header, size, number);
    rg_cache_header_write(&k.key, &sizes, number + 1, &record, m->batch + header, size, m->batch);
    struct rg_cache_content content = {number + 1, 0, (uint32_t)(header + size)};
    RG_CHECK_EQ(rg_cache_writer_append(&m->writer, m->batch, all, &content, 1, &placed), 0);
    RG_CHECK_EQ(placed->hash, number + 1);
}

static uint32_t contents_count(struct made *m, const struct rg_cache_nonce *nonce)
{
    struct rg_cache_content *contents;
    uint32_t count = 0;
    int fd = rg_cache_file_open(m->folder, nonce, 0);
    RG_CHECK(fd >= 0);
    RG_CHECK_EQ(rg_cache_file_contents(fd, nonce, &contents, &count), 0);
    for (uint32_t i = 0; i < count; i++) {
        RG_CHECK_EQ(contents[i].hash, i + 1);
    }
    free(contents);
    rg_fd_drop(fd);
    return count;
}

static void test_contents_by_the_table_and_by_walking(void)
{
    struct made m;
    made_open(&m);
    RG_CHECK_EQ(rg_cache_writer_begin(&m.writer, RG_MIB(2)), 0);
    struct rg_cache_nonce nonce = m.writer.nonce;
    for (uint64_t i = 0; i < 9; i++) {
        append(&m, i, 1000 * i + 1);
    }
    RG_CHECK_EQ(contents_count(&m, &nonce), 9);
    RG_CHECK_EQ(rg_cache_writer_seal(&m.writer), 0);
    RG_CHECK_EQ(contents_count(&m, &nonce), 9);
    /* A damaged table is done without. */
    char name[RG_CACHE_NAME_SIZE];
    rg_cache_name_write(&nonce, false, name);
    int fd = openat(m.folder, name, O_RDWR | O_CLOEXEC);
    struct stat status;
    RG_CHECK_EQ(fstat(fd, &status), 0);
    RG_CHECK_EQ(pwrite(fd, "x", 1, status.st_size - 30), 1);
    RG_CHECK_EQ(contents_count(&m, &nonce), 9);
    /* A damaged record ends the walk. */
    RG_CHECK_EQ(pwrite(fd, "x", 1, RG_CACHE_HEAD_SIZE), 1);
    RG_CHECK_EQ(contents_count(&m, &nonce), 0);
    close(fd);
    made_close(&m);
}

static struct rg_cache_nonce seal_one(struct made *m, uint64_t number)
{
    RG_CHECK_EQ(rg_cache_writer_begin(&m->writer, RG_MIB(2)), 0);
    struct rg_cache_nonce nonce = m->writer.nonce;
    append(m, number, 5000);
    RG_CHECK_EQ(rg_cache_writer_seal(&m->writer), 0);
    return nonce;
}

static uint64_t size_of(const struct rg_cache_files *files, const struct rg_cache_nonce *nonce)
{
    const struct rg_cache_file *file = rg_cache_files_find(files, nonce);
    return file != NULL ? file->size : 0;
}

/* An update asks for open ones and new ones, and a list for all. */
static void test_what_is_known_of_sealed_files_is_kept(void)
{
    struct made m;
    struct rg_cache_files files = {.count = 0};
    char name[RG_CACHE_NAME_SIZE];
    made_open(&m);
    struct rg_cache_nonce one = seal_one(&m, 0), two = seal_one(&m, 1);
    RG_CHECK_EQ(rg_cache_writer_begin(&m.writer, RG_MIB(2)), 0);
    struct rg_cache_nonce open = m.writer.nonce;
    RG_CHECK_EQ(rg_cache_files_update(m.folder, &files), 0);
    RG_CHECK_EQ(files.count, 3);
    uint64_t size = size_of(&files, &one);
    RG_CHECK(size > 0 && size == size_of(&files, &two));
    RG_CHECK_EQ(size_of(&files, &open), RG_MIB(2));
    rg_cache_name_write(&one, false, name);
    int fd = openat(m.folder, name, O_WRONLY | O_CLOEXEC);
    RG_CHECK_EQ(ftruncate(fd, 100), 0);
    close(fd);
    rg_cache_name_write(&two, false, name);
    RG_CHECK_EQ(unlinkat(m.folder, name, 0), 0);
    append(&m, 2, 5000);
    RG_CHECK_EQ(rg_cache_writer_seal(&m.writer), 0);
    struct rg_cache_nonce more = seal_one(&m, 3);
    RG_CHECK_EQ(rg_cache_files_update(m.folder, &files), 0);
    RG_CHECK_EQ(files.count, 3);
    RG_CHECK_EQ(size_of(&files, &one), size);
    RG_CHECK(rg_cache_files_find(&files, &two) == NULL);
    RG_CHECK_EQ(size_of(&files, &open), size);
    RG_CHECK_EQ(size_of(&files, &more), size);
    RG_CHECK_EQ(files.size, 3 * size);
    RG_CHECK_EQ(rg_cache_files_list(m.folder, &files), 0);
    RG_CHECK_EQ(size_of(&files, &one), 100);
    rg_cache_files_fini(&files);
    made_close(&m);
}

static bool adopt_all(struct made *m)
{
    struct rg_cache_files files = {.count = 0};
    struct rg_cache_nonce host;
    bool any = false;
    rg_cache_host(&host);
    RG_CHECK_EQ(rg_cache_files_list(m->folder, &files), 0);
    for (size_t i = 0; i < files.count; i++) {
        any |= files.files[i].is_open && rg_cache_file_adopt(m->folder, &files.files[i], &host);
    }
    rg_cache_files_fini(&files);
    return any;
}

static void test_only_dead_writers_are_succeeded(void)
{
    struct made m;
    int ready[2];
    made_open(&m);
    RG_CHECK_EQ(pipe(ready), 0);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        /* A child has no descriptors of its parent's cache. */
        m.writer.folder = rg_cache_folder_open(m.c.folder, false, m.c.why, sizeof(m.c.why));
        bool begun = rg_cache_writer_begin(&m.writer, RG_MIB(2)) == 0;
        append(&m, 0, 5000);
        append(&m, 1, 5000);
        RG_CHECK_EQ(write(ready[1], &m.writer.nonce, begun ? sizeof(m.writer.nonce) : 0),
                    sizeof(m.writer.nonce));
        pause();
    }
    struct rg_cache_nonce nonce;
    close(ready[1]);
    RG_CHECK_EQ(read(ready[0], &nonce, sizeof(nonce)), sizeof(nonce));
    RG_CHECK(!adopt_all(&m));
    kill(child, SIGKILL);
    RG_CHECK_EQ(waitpid(child, NULL, 0), child);
    RG_CHECK(adopt_all(&m));
    RG_CHECK_EQ(contents_count(&m, &nonce), 2);
    struct rg_cache_files files = {.count = 0};
    RG_CHECK_EQ(rg_cache_files_list(m.folder, &files), 0);
    RG_CHECK_EQ(files.count, 1);
    RG_CHECK(!files.files[0].is_open && files.size < RG_KIB(64));
    rg_cache_files_fini(&files);
    close(ready[0]);
    made_close(&m);
}

/* By the limit of a file's size, where the space of a segment is taken. */
static void test_a_writer_killed_while_it_begins_leaves_nothing(void)
{
    struct made m;
    struct rg_cache_files files = {.count = 0};
    made_open(&m);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        struct rlimit small = {RG_MIB(1), RG_MIB(1)}, none = {0, 0};
        bool limited = setrlimit(RLIMIT_FSIZE, &small) == 0 && setrlimit(RLIMIT_CORE, &none) == 0;
        signal(SIGXFSZ, SIG_DFL);
        m.writer.folder = rg_cache_folder_open(m.c.folder, false, m.c.why, sizeof(m.c.why));
        _exit(limited && rg_cache_writer_begin(&m.writer, RG_MIB(2)) == 0);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    RG_CHECK(adopt_all(&m));
    RG_CHECK_EQ(rg_cache_files_list(m.folder, &files), 0);
    RG_CHECK_EQ(files.count, 0);
    rg_cache_files_fini(&files);
    made_close(&m);
}

/* Of a host that does not answer: by the time of the last write. */
static void test_another_hosts_files_are_left_for_a_day(void)
{
    struct made m;
    made_open(&m);
    m.writer.host = (struct rg_cache_nonce){{1, 2, 3}};
    RG_CHECK_EQ(rg_cache_writer_begin(&m.writer, RG_MIB(2)), 0);
    append(&m, 0, 100);
    RG_CHECK(!adopt_all(&m));
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 25 * 3600}};
    RG_CHECK_EQ(futimens(m.writer.fd, times), 0);
    RG_CHECK(adopt_all(&m));
    /* Its writer only slept, and goes on with what has no name. */
    append(&m, 1, 100);
    RG_CHECK(rg_cache_writer_seal(&m.writer) < 0);
    RG_CHECK(!rg_cache_writer_is_open(&m.writer));
    made_close(&m);
}

/* What another version left open has a head that begins alike, and counts for the size. */
static void test_another_versions_files_are_left_for_a_day(void)
{
    struct made m;
    struct rg_cache_files files = {.count = 0};
    made_open(&m);
    RG_CHECK_EQ(rg_cache_writer_begin(&m.writer, RG_MIB(2)), 0);
    RG_CHECK_EQ(fcntl(m.writer.fd, F_SETFL, 0), 0);
    RG_CHECK_EQ(pwrite(m.writer.fd, "\x7f", 1, 8), 1);
    RG_CHECK(!adopt_all(&m));
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 25 * 3600}};
    RG_CHECK_EQ(futimens(m.writer.fd, times), 0);
    RG_CHECK(adopt_all(&m));
    RG_CHECK_EQ(rg_cache_files_list(m.folder, &files), 0);
    RG_CHECK_EQ(files.count, 0);
    rg_cache_files_fini(&files);
    rg_cache_writer_abandon(&m.writer);
    made_close(&m);
}

static void test_nothing_else_is_removed(void)
{
    struct made m;
    struct rg_cache_file file = {.nonce = {{1}}};
    char name[RG_CACHE_NAME_SIZE];
    made_open(&m);
    rg_cache_name_write(&file.nonce, false, name);
    int fd = openat(m.folder, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    RG_CHECK_EQ(write(fd, "my thesis", 9), 9);
    RG_CHECK_EQ(rg_cache_file_remove(m.folder, &file), -EPERM);
    RG_CHECK_EQ(faccessat(m.folder, name, F_OK, 0), 0);
    RG_CHECK_EQ(rg_cache_file_open(m.folder, &file.nonce, 0), -EBADMSG);
    close(fd);
    RG_CHECK_EQ(unlinkat(m.folder, name, 0), 0);
    RG_CHECK_EQ(rg_cache_file_remove(m.folder, &file), -ENOENT);
    RG_CHECK_EQ(symlinkat("/etc/passwd", m.folder, name), 0);
    RG_CHECK(rg_cache_file_remove(m.folder, &file) < 0);
    made_close(&m);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_names),
        RG_TEST(test_contents_by_the_table_and_by_walking),
        RG_TEST(test_only_dead_writers_are_succeeded),
        RG_TEST(test_a_writer_killed_while_it_begins_leaves_nothing),
        RG_TEST(test_what_is_known_of_sealed_files_is_kept),
        RG_TEST(test_another_hosts_files_are_left_for_a_day),
        RG_TEST(test_another_versions_files_are_left_for_a_day),
        RG_TEST(test_nothing_else_is_removed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
