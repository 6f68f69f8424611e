/* The region: who makes it, what is not used, and locks, among openings and among processes. */
#include "tests/gcs/host/region_case.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MAKERS 16

static void test_it_is_made_once_with_all_its_memory(void)
{
    struct region_case c;
    region_case_open(&c);
    mode_t umask_before = umask(0777);
    struct rg_host_region one = region_case_get(&c), two = region_case_get(&c);
    umask(umask_before);
    struct stat status;
    RG_CHECK_EQ(stat(c.path, &status), 0);
    RG_CHECK_EQ(status.st_mode, S_IFREG | 0600);
    RG_CHECK_EQ(status.st_size, RG_HOST_REGION_SIZE);
    RG_CHECK_EQ(status.st_blocks * 512, RG_HOST_TAKEN_SIZE);
    char text[4] = "abc", back[4];
    RG_CHECK_EQ(rg_host_region_write(&one, RG_HOST_REGION_SIZE - 4, text, 4), 0);
    RG_CHECK_EQ(rg_host_region_read(&two, RG_HOST_REGION_SIZE - 4, back, 4), 0);
    RG_CHECK_STR(back, "abc");
    rg_host_region_close(&one);
    rg_host_region_close(&one);
    rg_host_region_close(&two);
    region_case_close(&c);
}

/* Processes that all begin when a pipe ends, and what they exited with. */
static void children_run(unsigned count, int (*run)(struct region_case *c), struct region_case *c)
{
    int start[2];
    RG_CHECK_EQ(pipe2(start, O_CLOEXEC), 0);
    for (unsigned i = 0; i < count; i++) {
        pid_t child = fork();
        RG_CHECK(child >= 0);
        if (child == 0) {
            char byte;
            close(start[1]);
            _exit(read(start[0], &byte, 1) == 0 ? run(c) : 99);
        }
    }
    close(start[0]);
    close(start[1]);
    for (unsigned i = 0; i < count; i++) {
        int status = 0;
        RG_CHECK(wait(&status) > 0);
        RG_CHECK_EQ(status, 0);
    }
}

static int child_opens(struct region_case *c)
{
    struct rg_host_region region;
    struct stat mine, named;
    if (region_case_try(c, &region) < 0) {
        return 1;
    }
    return fstat(region.fd, &mine) == 0 && stat(c->path, &named) == 0 && mine.st_ino == named.st_ino
               ? 0
               : 2;
}

static void test_many_makers_at_once_make_one(void)
{
    for (unsigned round = 0; round < 10; round++) {
        struct region_case c;
        region_case_open(&c);
        children_run(MAKERS, child_opens, &c);
        /* Nothing but the region is in the folder, which can be removed after it. */
        region_case_close(&c);
    }
}

static void check_refused(struct region_case *c, const char *part)
{
    struct rg_host_region region;
    RG_CHECK(region_case_try(c, &region) < 0);
    RG_CHECK_CONTAINS(c->why, part);
    RG_CHECK_CONTAINS(c->why, c->folder);
    unlink(c->path);
}

static void region_make(struct region_case *c)
{
    struct rg_host_region region = region_case_get(c);
    rg_host_region_close(&region);
}

static void header_damage(const struct region_case *c, off_t offset)
{
    uint8_t byte;
    int fd = open(c->path, O_RDWR | O_CLOEXEC);
    RG_CHECK_EQ(pread(fd, &byte, 1, offset), 1);
    byte ^= 0x10;
    RG_CHECK_EQ(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static void test_what_is_not_used(void)
{
    struct region_case c;
    region_case_open(&c);
    region_make(&c);
    RG_CHECK_EQ(chmod(c.path, 0640), 0);
    check_refused(&c, "mode 0640");
    for (off_t offset = 0; offset < 24; offset++) {
        region_make(&c);
        header_damage(&c, offset);
        check_refused(&c, "of another version, or damaged");
    }
    region_make(&c);
    RG_CHECK_EQ(truncate(c.path, 100), 0);
    check_refused(&c, "has 100 bytes");
    char other[300];
    snprintf(other, sizeof(other), "%s/other", c.folder);
    region_make(&c);
    RG_CHECK_EQ(link(c.path, other), 0);
    check_refused(&c, "is not a file with one name");
    RG_CHECK_EQ(symlink(other, c.path), 0);
    check_refused(&c, "symbolic link; remove it");
    RG_CHECK_EQ(unlink(other), 0);
    RG_CHECK_EQ(mkdir(c.path, 0700), 0);
    check_refused(&c, "Is a directory; remove it");
    RG_CHECK_EQ(rmdir(c.path), 0);
    RG_CHECK_EQ(mkfifo(c.path, 0600), 0);
    check_refused(&c, "is not a file with one name");
    if (geteuid() == 0) {
        region_make(&c);
        RG_CHECK_EQ(chown(c.path, 12345, (gid_t)-1), 0);
        check_refused(&c, "belongs to another user (12345); have it removed, or name another");
    }
    region_case_close(&c);
}

static void test_folders_that_are_not_used(void)
{
    struct rg_host_region region;
    char why[256], name[400];
    RG_CHECK(rg_host_region_open(&region, "/proc", why, sizeof(why)) < 0);
    RG_CHECK(rg_host_region_open(&region, "/nowhere/at/all", why, sizeof(why)) == -ENOENT);
    RG_CHECK_CONTAINS(why, "/nowhere/at/all");
    RG_CHECK_CONTAINS(why, "name another folder in RINGEST_SHARING");
    memset(name, 'x', sizeof(name));
    name[0] = '/';
    name[sizeof(name) - 1] = '\0';
    RG_CHECK_EQ(rg_host_region_open(&region, name, why, sizeof(why)), -ENAMETOOLONG);
}

static void test_what_the_environment_chooses(void)
{
    RG_CHECK_STR(rg_host_folder(NULL), "/dev/shm");
    RG_CHECK_STR(rg_host_folder(""), "/dev/shm");
    RG_CHECK_STR(rg_host_folder("1"), "/dev/shm");
    RG_CHECK_STR(rg_host_folder("true"), "/dev/shm");
    RG_CHECK_STR(rg_host_folder("ON"), "/dev/shm");
    RG_CHECK_STR(rg_host_folder("/run/shared"), "/run/shared");
    RG_CHECK(rg_host_folder("0") == NULL);
    RG_CHECK(rg_host_folder("no") == NULL);
}

static void test_a_full_folder(void)
{
    struct region_case c;
    struct rg_host_region region;
    region_case_open(&c);
    if (mount("none", c.folder, "tmpfs", 0, "size=64k") < 0) {
        rmdir(c.folder);
        rg_test_skip("only root may mount a small file system");
    }
    RG_CHECK_EQ(region_case_try(&c, &region), -ENOSPC);
    RG_CHECK_CONTAINS(c.why, "cannot be made");
    RG_CHECK_CONTAINS(c.why, "make room there, or name another folder in RINGEST_SHARING");
    RG_CHECK_EQ(umount(c.folder), 0);
    region_case_close(&c);
}

static void test_a_region_that_is_removed(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region old = region_case_get(&c);
    RG_CHECK_EQ(unlink(c.path), 0);
    struct rg_host_region new = region_case_get(&c);
    char byte = 'x';
    RG_CHECK_EQ(rg_host_region_write(&old, RG_HOST_HEADER_SIZE, &byte, 1), 0);
    RG_CHECK_EQ(rg_host_region_read(&new, RG_HOST_HEADER_SIZE, &byte, 1), 0);
    RG_CHECK_EQ(byte, 0);
    /* Cut off under us: an error, no signal. */
    RG_CHECK_EQ(truncate(c.path, 0), 0);
    RG_CHECK_EQ(rg_host_region_read(&new, RG_HOST_HEADER_SIZE, &byte, 1), -EIO);
    rg_host_region_close(&old);
    rg_host_region_close(&new);
    region_case_close(&c);
}

static void test_locks_keep_openings_apart(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region one = region_case_get(&c), two = region_case_get(&c);
    uint64_t last = (UINT64_C(1) << 48) - 1;
    RG_CHECK_EQ(rg_host_region_lock(&one, 0), 0);
    RG_CHECK_EQ(rg_host_region_lock(&one, last), 0);
    RG_CHECK_EQ(rg_host_region_lock(&two, 0), -EAGAIN);
    RG_CHECK_EQ(rg_host_region_lock(&two, last), -EAGAIN);
    RG_CHECK_EQ(rg_host_region_lock(&two, 1), 0);
    rg_host_region_unlock(&one, 0);
    RG_CHECK_EQ(rg_host_region_lock(&two, 0), 0);
    rg_host_region_close(&one);
    RG_CHECK_EQ(rg_host_region_lock(&two, last), 0);
    rg_host_region_close(&two);
    region_case_close(&c);
}

/* Where there are no locks, nobody is said to have one. */
static void test_locks_that_cannot_be_had(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region region = region_case_get(&c);
    struct rg_host_region unwritable = {.fd = open(c.path, O_RDONLY | O_CLOEXEC)};
    RG_CHECK_EQ(rg_host_region_lock(&region, 7), 0);
    RG_CHECK_EQ(rg_host_region_lock(&unwritable, 7), -EBADF);
    RG_CHECK_EQ(close(unwritable.fd), 0);
    rg_host_region_close(&region);
    region_case_close(&c);
}

/* A process that has a lock, and its child, which lives until nobody has `end` open. */
struct holder {
    pid_t pid;
    int said, end;
};

/* The child says that it is there, when its parent's descriptors are closed in it. */
static void holder_main(struct region_case *c, uint64_t number, int said, int end)
{
    struct rg_host_region region;
    char byte;
    if (region_case_try(c, &region) < 0 || rg_host_region_lock(&region, number) < 0) {
        _exit(1);
    }
    if (fork() == 0) {
        bool closed = fcntl(region.fd, F_GETFD) == -1;
        _exit(closed && write(said, "x", 1) == 1 && read(end, &byte, 1) == 0 ? 0 : 1);
    }
    for (;;) {
        pause();
    }
}

static void holder_start(struct holder *holder, struct region_case *c, uint64_t number)
{
    int said[2], end[2];
    RG_CHECK_EQ(pipe2(said, O_CLOEXEC), 0);
    RG_CHECK_EQ(pipe2(end, O_CLOEXEC), 0);
    holder->pid = fork();
    RG_CHECK(holder->pid >= 0);
    if (holder->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(end[1]);
        holder_main(c, number, said[1], end[0]);
    }
    close(said[1]);
    close(end[0]);
    holder->said = said[0];
    holder->end = end[1];
    char byte;
    RG_CHECK_EQ(read(holder->said, &byte, 1), 1);
}

static void holder_kill(struct holder *holder)
{
    RG_CHECK_EQ(kill(holder->pid, SIGKILL), 0);
    RG_CHECK_EQ(waitpid(holder->pid, NULL, 0), holder->pid);
}

static void holder_end(struct holder *holder)
{
    close(holder->end);
    close(holder->said);
}

static void test_who_is_killed_holds_nothing(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region region = region_case_get(&c);
    struct holder holder;
    holder_start(&holder, &c, 7);
    RG_CHECK_EQ(rg_host_region_lock(&region, 7), -EAGAIN);
    holder_kill(&holder);
    /* Its child is still there. */
    RG_CHECK_EQ(rg_host_region_lock(&region, 7), 0);
    holder_end(&holder);
    rg_host_region_close(&region);
    region_case_close(&c);
}

/* As containers with --ipc=host: both are process 1 of theirs. */
static void test_processes_of_the_same_number(void)
{
    struct region_case c;
    struct holder holders[2];
    int here = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    region_case_open(&c);
    struct rg_host_region region = region_case_get(&c);
    for (unsigned i = 0; i < 2; i++) {
        if (unshare(CLONE_NEWPID) < 0) {
            rg_host_region_close(&region);
            region_case_close(&c);
            close(here);
            rg_test_skip("only root may make namespaces");
        }
        holder_start(&holders[i], &c, 7 + i);
        RG_CHECK_EQ(setns(here, CLONE_NEWPID), 0);
    }
    close(here);
    holder_kill(&holders[0]);
    RG_CHECK_EQ(rg_host_region_lock(&region, 7), 0);
    RG_CHECK_EQ(rg_host_region_lock(&region, 8), -EAGAIN);
    holder_kill(&holders[1]);
    RG_CHECK_EQ(rg_host_region_lock(&region, 8), 0);
    holder_end(&holders[0]);
    holder_end(&holders[1]);
    rg_host_region_close(&region);
    region_case_close(&c);
}

/* A file as an earlier version made it, which nobody has written to for a day. Its descriptor. */
static int former_make(const struct region_case *c, uint32_t version, char *path, size_t size)
{
    struct {
        char magic[8];
        uint32_t version, byte_order;
        uint64_t size;
    } header = {"ringest", version, 0x01020304, RG_KIB(132)};
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    snprintf(path, size, "%s/ringest-%u-v%u", c->folder, (unsigned)geteuid(), version);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    RG_CHECK(fd >= 0);
    RG_CHECK_EQ(fchmod(fd, 0600), 0);
    RG_CHECK_EQ(pwrite(fd, &header, sizeof(header), 0), (ssize_t)sizeof(header));
    RG_CHECK_EQ(ftruncate(fd, RG_KIB(132)), 0);
    RG_CHECK_EQ(futimens(fd, old), 0);
    return fd;
}

/* Whether the file is still there after an opening. */
static bool former_stays(struct region_case *c, const char *path)
{
    struct rg_host_region region = region_case_get(c);
    rg_host_region_close(&region);
    return access(path, F_OK) == 0;
}

static void test_files_of_earlier_versions_are_removed(void)
{
    struct region_case c;
    char path[RG_HOST_PATH_SIZE_MAX];
    region_case_open(&c);
    for (uint32_t version = 1; version < RG_HOST_VERSION; version++) {
        close(former_make(&c, version, path, sizeof(path)));
        RG_CHECK(!former_stays(&c, path));
    }
    /* A later version's is that one's. */
    close(former_make(&c, RG_HOST_VERSION + 1, path, sizeof(path)));
    RG_CHECK(former_stays(&c, path));
    unlink(path);
    region_case_close(&c);
}

static void test_processes_of_other_versions_are_noticed(void)
{
    struct region_case c;
    char path[RG_HOST_PATH_SIZE_MAX];
    region_case_open(&c);
    const uint32_t versions[] = {1, RG_HOST_VERSION - 1, RG_HOST_VERSION + 1};
    struct rg_host_region own = region_case_get(&c);
    RG_CHECK_EQ(rg_host_region_lock(&own, 7), 0);
    for (unsigned i = 0; i < RG_ARRAY_LEN(versions); i++) {
        int fd = former_make(&c, versions[i], path, sizeof(path));
        RG_CHECK_EQ(rg_host_other_version(c.folder), 0);
        struct rg_host_region former = {.fd = fd};
        RG_CHECK_EQ(rg_host_region_lock(&former, RG_HOST_PLACE_LOCKS + 3), 0);
        RG_CHECK_EQ(rg_host_other_version(c.folder), versions[i]);
        close(fd);
        unlink(path);
    }
    RG_CHECK_EQ(rg_host_other_version(c.folder), 0);
    rg_host_region_close(&own);
    region_case_close(&c);
}

/* What `spoil` does to it makes it another's, or one that is used. */
static void former_spoil(int fd, const char *path, unsigned how, char *other)
{
    const uint32_t wrong = 9;
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_C(1) << 50, .l_len = 1};
    switch (how) {
    case 0:
        RG_CHECK_EQ(fchmod(fd, 0644), 0);
        break;
    case 1:
        RG_CHECK_EQ(link(path, other), 0);
        break;
    case 2:
        RG_CHECK_EQ(rename(path, other) + symlink(other, path), 0);
        break;
    case 3:
        RG_CHECK_EQ(futimens(fd, NULL), 0);
        break;
    case 4:
        RG_CHECK_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
        break;
    case 5:
        RG_CHECK_EQ(ftruncate(fd, 100), 0);
        break;
    default:
        RG_CHECK_EQ(pwrite(fd, &wrong, sizeof(wrong), how == 6 ? 0 : 8), (ssize_t)sizeof(wrong));
        break;
    }
    if (how >= 5) {
        const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
        RG_CHECK_EQ(futimens(fd, old), 0);
    }
}

static void test_a_file_that_is_not_ours_or_is_used_stays(void)
{
    struct region_case c;
    char path[RG_HOST_PATH_SIZE_MAX], other[RG_HOST_PATH_SIZE_MAX];
    region_case_open(&c);
    snprintf(other, sizeof(other), "%s/other", c.folder);
    for (unsigned how = 0; how < 8; how++) {
        int fd = former_make(&c, 1, path, sizeof(path));
        former_spoil(fd, path, how, other);
        RG_CHECK(former_stays(&c, path));
        close(fd);
        unlink(path);
        unlink(other);
    }
    /* A folder of that name, and another user's file. */
    close(former_make(&c, 1, path, sizeof(path)));
    RG_CHECK_EQ(unlink(path) + mkdir(path, 0700), 0);
    RG_CHECK(former_stays(&c, path));
    RG_CHECK_EQ(rmdir(path), 0);
    int fd = former_make(&c, 1, path, sizeof(path));
    if (geteuid() == 0 && fchown(fd, 12345, 12345) == 0) {
        RG_CHECK(former_stays(&c, path));
    }
    close(fd);
    unlink(path);
    region_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_it_is_made_once_with_all_its_memory),
        RG_TEST(test_many_makers_at_once_make_one),
        RG_TEST(test_what_is_not_used),
        RG_TEST(test_folders_that_are_not_used),
        RG_TEST(test_what_the_environment_chooses),
        RG_TEST(test_a_full_folder),
        RG_TEST(test_files_of_earlier_versions_are_removed),
        RG_TEST(test_processes_of_other_versions_are_noticed),
        RG_TEST(test_a_file_that_is_not_ours_or_is_used_stays),
        RG_TEST(test_a_region_that_is_removed),
        RG_TEST(test_locks_keep_openings_apart),
        RG_TEST(test_locks_that_cannot_be_had),
        RG_TEST(test_who_is_killed_holds_nothing),
        RG_TEST(test_processes_of_the_same_number),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
