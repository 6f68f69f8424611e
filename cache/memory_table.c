/* See memory_table.h. */
#include "cache/memory_table.h"

#include "runtime/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define VERSION 1
#define HEADER_SIZE RG_KIB(4)
#define FILE_SIZE (HEADER_SIZE + RG_MEMORY_LINES * sizeof(struct rg_memory_line))
/* Another may remove the file between the two steps of opening it. */
#define TRIES_MAX 10

/* Locks lie behind the file: a byte that is locked need not exist. */
#define LOCKS_OFFSET (INT64_C(1) << 48)
#define LOCK_TABLE 0
#define LOCK_HOLD(number) (1 + (uint64_t)(number))
#define LOCK_OWN(number) (1 + RG_MEMORY_LINES + (uint64_t)(number))

struct header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t clock;
};
static_assert(sizeof(struct rg_memory_line) == 64, "a line of the file is one of the cache");

static const struct header header_wanted = {
    .magic = "ringmem",
    .version = VERSION,
    .byte_order = 0x01020304,
};

static int fail(char *why, size_t why_size, int rc, const char *format, ...) RG_PRINTF(4, 5);

static int fail(char *why, size_t why_size, int rc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, why_size, format, args);
    va_end(args);
    return rc;
}

static int fd_track(int fd)
{
    return fd >= 0 ? rg_fd_track(fd) : -errno;
}

/* Nameless, with all its memory. */
static int file_make(const char *share)
{
    rg_fd_hold();
    int fd = fd_track(share == NULL ? memfd_create("ringest-table", MFD_CLOEXEC)
                                    : open(share, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    rg_fd_release();
    if (fd < 0) {
        return fd;
    }
    int rc = fchmod(fd, 0600) < 0 || fallocate(fd, 0, 0, FILE_SIZE) < 0 ? -errno : 0;
    if (rc == 0 &&
        pwrite(fd, &header_wanted, sizeof(header_wanted), 0) != (ssize_t)sizeof(header_wanted)) {
        rc = -EIO;
    }
    if (rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    return fd;
}

/* -EEXIST: another was first. */
static int file_create(const char *share, const char *path, char *why, size_t why_size)
{
    char nameless[32];
    int fd = file_make(share);
    int rc = RG_MIN(fd, 0);
    snprintf(nameless, sizeof(nameless), "/proc/self/fd/%d", fd);
    if (rc == 0 && share != NULL &&
        linkat(AT_FDCWD, nameless, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0) {
        rc = -errno;
    }
    if (rc < 0) {
        rg_fd_drop(fd);
        return fail(why, why_size, rc, "%s cannot be made: %s", path, rg_error_text(-rc));
    }
    return fd;
}

static int file_check(int fd, const char *path, char *why, size_t why_size)
{
    struct stat stat;
    struct statfs system;
    struct header header;
    if (fstat(fd, &stat) < 0 || fstatfs(fd, &system) < 0) {
        return fail(why, why_size, -EIO, "%s cannot be looked at", path);
    }
    if (!S_ISREG(stat.st_mode) || stat.st_uid != geteuid() || (stat.st_mode & 07777) != 0600 ||
        system.f_type != TMPFS_MAGIC) {
        return fail(why, why_size, -EPERM,
                    "%s is not a file in memory (tmpfs) that is yours alone; remove it", path);
    }
    ssize_t size = pread(fd, &header, sizeof(header), 0);
    if (size != (ssize_t)sizeof(header) || stat.st_size != (off_t)FILE_SIZE ||
        memcmp(&header, &header_wanted, offsetof(struct header, clock)) != 0) {
        return fail(why, why_size, -EINVAL, "%s is of another version, or damaged; remove it",
                    path);
    }
    return 0;
}

/* -ENOENT: there is none. */
static int file_open(const char *path, char *why, size_t why_size)
{
    rg_fd_hold();
    int fd = fd_track(open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    rg_fd_release();
    if (fd < 0) {
        return fail(why, why_size, fd, "%s cannot be opened: %s", path, rg_error_text(-fd));
    }
    int rc = file_check(fd, path, why, why_size);
    if (rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    return fd;
}

static int path_write(struct rg_memory_table *table, const char *share, char *why, size_t why_size)
{
    int size = snprintf(table->path, sizeof(table->path), "%s/ringest-%u-memory-v%u", share,
                        (unsigned)geteuid(), VERSION);
    return size > 0 && (size_t)size < sizeof(table->path)
               ? 0
               : fail(why, why_size, -ENAMETOOLONG, "the folder's name is too long: %.100s", share);
}

int rg_memory_table_open(struct rg_memory_table *out_table, const char *share, char *why,
                         size_t why_size)
{
    struct rg_memory_table table = {.is_shared = share != NULL, .path = "memory"};
    int fd = share != NULL ? path_write(&table, share, why, why_size) : 0;
    if (fd < 0) {
        return fd;
    }
    fd = -ENOENT;
    for (unsigned i = 0; i < TRIES_MAX && (fd == -ENOENT || fd == -EEXIST); i++) {
        fd = share != NULL ? file_open(table.path, why, why_size) : -ENOENT;
        if (fd == -ENOENT) {
            fd = file_create(share, table.path, why, why_size);
        }
    }
    if (fd < 0) {
        return fd;
    }
    table.fd = fd;
    *out_table = table;
    return 0;
}

static int lock_change(const struct rg_memory_table *table, short type, uint64_t byte, off_t count)
{
    struct flock lock = {
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = LOCKS_OFFSET + (off_t)byte,
        .l_len = count,
    };
    if (fcntl(table->fd, F_OFD_SETLK, &lock) == 0) {
        return 0;
    }
    return errno == EACCES ? -EAGAIN : -errno;
}

/* A child that is just being forked has the descriptor, too, and would keep the locks for a moment.
 */
void rg_memory_table_close(struct rg_memory_table *table)
{
    if (table->fd >= 0) {
        (void)lock_change(table, F_UNLCK, 0, 0);
    }
    rg_fd_drop(table->fd);
    table->fd = -1;
}

int rg_memory_table_lock(struct rg_memory_table *table)
{
    return lock_change(table, F_WRLCK, LOCK_TABLE, 1);
}

void rg_memory_table_unlock(struct rg_memory_table *table)
{
    (void)lock_change(table, F_UNLCK, LOCK_TABLE, 1);
}

static off_t line_offset(uint32_t number)
{
    RG_ASSERT(number <= RG_MEMORY_LINES);
    return (off_t)(HEADER_SIZE + number * sizeof(struct rg_memory_line));
}

int rg_memory_table_read(const struct rg_memory_table *table, uint32_t first, uint32_t count,
                         struct rg_memory_line *out_lines)
{
    RG_ASSERT(count <= RG_MEMORY_LINES - first);
    size_t size = count * sizeof(*out_lines);
    ssize_t got = pread(table->fd, out_lines, size, line_offset(first));
    return got == (ssize_t)size ? 0 : got < 0 ? -errno : -EIO;
}

int rg_memory_table_write(const struct rg_memory_table *table, uint32_t number,
                          const struct rg_memory_line *line)
{
    ssize_t put = pwrite(table->fd, line, sizeof(*line), line_offset(number));
    return put == (ssize_t)sizeof(*line) ? 0 : put < 0 ? -errno : -EIO;
}

void rg_memory_table_note(const struct rg_memory_table *table, uint32_t number, uint64_t last_use)
{
    off_t offset = line_offset(number) + (off_t)offsetof(struct rg_memory_line, last_use);
    ssize_t put = pwrite(table->fd, &last_use, sizeof(last_use), offset);
    (void)put;
}

uint64_t rg_memory_table_tick(const struct rg_memory_table *table, uint64_t bytes)
{
    off_t offset = (off_t)offsetof(struct header, clock);
    uint64_t clock = 0;
    if (pread(table->fd, &clock, sizeof(clock), offset) != (ssize_t)sizeof(clock)) {
        return 0;
    }
    clock += bytes;
    ssize_t put = bytes > 0 ? pwrite(table->fd, &clock, sizeof(clock), offset) : 0;
    (void)put;
    return clock;
}

int rg_memory_table_hold(const struct rg_memory_table *table, uint32_t number)
{
    return lock_change(table, F_RDLCK, LOCK_HOLD(number), 1);
}

int rg_memory_table_own(const struct rg_memory_table *table, uint32_t number)
{
    return lock_change(table, F_WRLCK, LOCK_OWN(number), 1);
}

void rg_memory_table_let_go(const struct rg_memory_table *table, uint32_t number)
{
    (void)lock_change(table, F_UNLCK, LOCK_OWN(number), 1);
    (void)lock_change(table, F_UNLCK, LOCK_HOLD(number), 1);
}

static bool is_locked(const struct rg_memory_table *table, uint64_t byte)
{
    struct flock lock = {
        .l_type = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start = LOCKS_OFFSET + (off_t)byte,
        .l_len = 1,
    };
    return fcntl(table->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool rg_memory_table_is_held(const struct rg_memory_table *table, uint32_t number)
{
    return is_locked(table, LOCK_HOLD(number));
}

bool rg_memory_table_is_owned(const struct rg_memory_table *table, uint32_t number)
{
    return is_locked(table, LOCK_OWN(number));
}

/* Makes none: -ENOENT if there is none. */
static int table_find(struct rg_memory_table *out_table, const char *share, char *why,
                      size_t why_size)
{
    struct rg_memory_table table = {.is_shared = true};
    int rc = path_write(&table, share, why, why_size);
    table.fd = rc == 0 ? file_open(table.path, why, why_size) : rc;
    if (table.fd < 0) {
        return table.fd;
    }
    *out_table = table;
    return 0;
}

int rg_memory_table_measure(const char *share, uint64_t *out_segments, uint64_t *out_bytes,
                            char *why, size_t why_size)
{
    struct rg_memory_table table;
    struct rg_memory_line lines[RG_MEMORY_LINES];
    uint64_t segments = 0, bytes = 0;
    int rc = table_find(&table, share, why, why_size);
    if (rc == 0) {
        rc = rg_memory_table_read(&table, 0, RG_MEMORY_LINES, lines);
        for (uint32_t i = 0; rc == 0 && i < RG_MEMORY_LINES; i++) {
            bool is_there = lines[i].state != RG_MEMORY_FREE && rg_memory_table_is_held(&table, i);
            segments += is_there;
            bytes += is_there ? lines[i].size : 0;
        }
        rg_memory_table_close(&table);
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    *out_segments = segments;
    *out_bytes = bytes;
    return 0;
}
