/* See index_file.h. */
#include "cache/index_file.h"

#include "runtime/descriptor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* Another may remove or replace the file between the two steps of opening it. */
#define TRIES_MAX 10

/* What each opening holds a shared lock on. Numbers of segments are smaller. */
#define LOCK_USE (RG_CACHE_SEGMENTS_MAX + 1)

static const struct rg_cache_index_header header_wanted = {
    .magic = "ringidx",
    .version = RG_CACHE_INDEX_VERSION,
    .byte_order = 0x01020304,
};

uint64_t rg_cache_index_slots_offset(void)
{
    uint64_t table = sizeof(struct rg_cache_numbered) * (RG_CACHE_SEGMENTS_MAX + 1);
    return RG_CACHE_INDEX_HEADER_SIZE + table;
}

uint64_t rg_cache_index_file_size(uint64_t lines)
{
    return rg_cache_index_slots_offset() + lines * RG_CACHE_LINE_SIZE;
}

static int fail(char *why, size_t why_size, int rc, const char *format, ...) RG_PRINTF(4, 5);

static int fail(char *why, size_t why_size, int rc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, why_size, format, args);
    va_end(args);
    return rc;
}

static int lock_change(int fd, short type, uint64_t number)
{
    struct flock lock = {
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = (off_t)(INT64_C(1) << 48) + (off_t)number,
        .l_len = 1,
    };
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

static int fd_track(int fd)
{
    return fd >= 0 ? rg_fd_track(fd) : -errno;
}

static int file_fill(int fd, uint64_t lines)
{
    struct rg_cache_index_header header = header_wanted;
    header.lines = lines;
    if (fchmod(fd, 0600) < 0 || fallocate(fd, 0, 0, (off_t)rg_cache_index_file_size(lines)) < 0) {
        return -errno;
    }
    ssize_t size = pwrite(fd, &header, sizeof(header), 0);
    return size == (ssize_t)sizeof(header) ? 0 : -EIO;
}

int rg_cache_index_file_make(const struct rg_cache_index_file *file, uint64_t lines)
{
    rg_fd_hold();
    int fd =
        fd_track(file->share == NULL ? memfd_create("ringest-cache", MFD_CLOEXEC)
                                     : open(file->share, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    rg_fd_release();
    int rc = fd < 0 ? fd : file_fill(fd, lines);
    if (rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    return fd;
}

/* Gives a nameless file its name. -EEXIST: another was first. */
static int file_name(const struct rg_cache_index_file *file, int fd)
{
    char nameless[32];
    snprintf(nameless, sizeof(nameless), "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, nameless, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW) == 0 ? 0 : -errno;
}

static int file_check(const struct rg_cache_index_file *file, int fd, char *why, size_t why_size)
{
    struct stat stat;
    struct rg_cache_index_header header;
    struct statfs system;
    if (fstat(fd, &stat) < 0 || fstatfs(fd, &system) < 0) {
        return fail(why, why_size, -EIO, "%s cannot be looked at", file->path);
    }
    if (!S_ISREG(stat.st_mode) || stat.st_uid != geteuid() || (stat.st_mode & 07777) != 0600 ||
        system.f_type != TMPFS_MAGIC) {
        return fail(why, why_size, -EPERM,
                    "%s is not a file in memory (tmpfs) that is yours alone; remove it",
                    file->path);
    }
    ssize_t size = pread(fd, &header, sizeof(header), 0);
    if (size != (ssize_t)sizeof(header) || memcmp(header.magic, header_wanted.magic, 8) != 0 ||
        header.version != header_wanted.version || header.byte_order != header_wanted.byte_order ||
        header.lines == 0 || header.lines > UINT64_C(1) << 40 ||
        rg_cache_index_file_size(header.lines) != (uint64_t)stat.st_size) {
        return fail(why, why_size, -EINVAL, "%s is of another version, or damaged; remove it",
                    file->path);
    }
    return 0;
}

/* -ENOENT: there is none. */
static int file_open(const struct rg_cache_index_file *file, char *why, size_t why_size)
{
    rg_fd_hold();
    int fd = fd_track(open(file->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    rg_fd_release();
    if (fd < 0) {
        return fail(why, why_size, fd, "%s cannot be opened: %s", file->path, rg_error_text(-fd));
    }
    int rc = file_check(file, fd, why, why_size);
    if (rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    return fd;
}

/* Makes one and names it. -EEXIST: another was first. */
static int file_create(const struct rg_cache_index_file *file, uint64_t lines, char *why,
                       size_t why_size)
{
    int fd = rg_cache_index_file_make(file, lines);
    int rc = fd < 0 || file->share == NULL ? fd : file_name(file, fd);
    if (rc < 0) {
        rg_fd_drop(fd);
        return fail(why, why_size, rc, "%s cannot be made: %s", file->path, rg_error_text(-rc));
    }
    return fd;
}

int rg_cache_index_file_open(struct rg_cache_index_file *file, uint64_t lines, char *why,
                             size_t why_size)
{
    int fd = -ENOENT;
    for (unsigned i = 0; i < TRIES_MAX && (fd == -ENOENT || fd == -EEXIST); i++) {
        fd = file->share != NULL ? file_open(file, why, why_size) : -ENOENT;
        if (fd == -ENOENT) {
            fd = file_create(file, lines, why, why_size);
        }
    }
    if (fd < 0) {
        return fd;
    }
    (void)lock_change(fd, F_RDLCK, LOCK_USE);
    file->fd = fd;
    return 0;
}

void rg_cache_index_file_close(struct rg_cache_index_file *file)
{
    rg_fd_drop(file->fd);
    file->fd = -1;
}

/* Whoever opens the index between the two steps finds none, and makes another: then that one stays.
 * Nothing is left behind by whoever is killed. */
int rg_cache_index_file_replace(struct rg_cache_index_file *file, int fd)
{
    int rc = 0;
    (void)lock_change(fd, F_RDLCK, LOCK_USE);
    if (file->share != NULL) {
        rc = unlink(file->path) < 0 && errno != ENOENT ? -errno : file_name(file, fd);
    }
    if (rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    rg_fd_drop(file->fd);
    file->fd = fd;
    return 0;
}

bool rg_cache_index_file_is_gone(const struct rg_cache_index_file *file)
{
    struct stat stat;
    return file->share != NULL && fstat(file->fd, &stat) == 0 && stat.st_nlink == 0;
}

/* Of any version. The folder is one of many programs, which may have files of such names. */
static bool is_index(int fd)
{
    struct rg_cache_index_header header;
    return pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
           memcmp(header.magic, header_wanted.magic, sizeof(header.magic)) == 0;
}

/* Whoever opens it just before it is removed, and has no lock yet, soon finds that it is gone, and
 * makes another. */
static void sweep_one(int folder, const char *name)
{
    struct stat stat;
    rg_fd_hold();
    int fd = fd_track(openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    rg_fd_release();
    if (fd >= 0 && fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_uid == geteuid() &&
        (stat.st_mode & 07777) == 0600 && stat.st_nlink == 1 &&
        time(NULL) - stat.st_mtime > RG_CACHE_INDEX_IDLE_S && is_index(fd) &&
        lock_change(fd, F_WRLCK, LOCK_USE) == 0) {
        (void)unlinkat(folder, name, 0);
    }
    rg_fd_drop(fd);
}

void rg_cache_index_file_sweep(const struct rg_cache_index_file *file)
{
    char start[48];
    DIR *folder = file->share != NULL ? opendir(file->share) : NULL;
    if (folder == NULL) {
        return;
    }
    int size = snprintf(start, sizeof(start), "ringest-%u-cache-", (unsigned)geteuid());
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, start, (size_t)size) == 0) {
            sweep_one(dirfd(folder), entry->d_name);
        }
    }
    closedir(folder);
}

int rg_cache_index_file_lock(const struct rg_cache_index_file *file, uint64_t number)
{
    return lock_change(file->fd, F_WRLCK, number);
}

void rg_cache_index_file_unlock(const struct rg_cache_index_file *file, uint64_t number)
{
    (void)lock_change(file->fd, F_UNLCK, number);
}
