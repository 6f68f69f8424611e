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

uint64_t rg_cache_index_file_size(void)
{
    return RG_CACHE_INDEX_HEADER_SIZE +
           sizeof(struct rg_cache_numbered) * (RG_CACHE_SEGMENTS_MAX + 1);
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

/* The table of segments takes memory as it is filled: whoever finds none is told by the system
 * call. */
static int file_fill(int fd, const struct rg_cache_index_memory *memory)
{
    struct rg_cache_index_header header = header_wanted;
    header.lines = memory->lines;
    header.memory_id = memory->id;
    header.memory_nonce = memory->nonce;
    if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)rg_cache_index_file_size()) < 0) {
        return -errno;
    }
    ssize_t size = pwrite(fd, &header, sizeof(header), 0);
    return size == (ssize_t)sizeof(header) ? 0 : size < 0 ? -errno : -EIO;
}

static int nameless_open(const char *share)
{
    rg_fd_hold();
    int fd = fd_track(share == NULL ? memfd_create("ringest-cache", MFD_CLOEXEC)
                                    : open(share, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    rg_fd_release();
    return fd;
}

/* Ends what nobody else knows. */
static void file_unmake(struct rg_cache_index_file *made)
{
    rg_cache_index_memory_remove(made->memory.id, &made->memory.nonce);
    rg_cache_index_file_close(made);
}

int rg_cache_index_file_make(const struct rg_cache_index_file *file, uint64_t lines,
                             struct rg_cache_index_file *out_made)
{
    *out_made = *file;
    out_made->fd = -1;
    const char *path = file->share != NULL ? file->path : NULL;
    int rc = rg_cache_index_memory_make(&out_made->memory, path, lines);
    if (rc < 0) {
        return rc;
    }
    int fd = nameless_open(file->share);
    if (fd >= 0) {
        out_made->fd = fd;
    }
    rc = fd < 0 ? fd : file_fill(fd, &out_made->memory);
    if (rc < 0) {
        file_unmake(out_made);
    }
    return rc;
}

/* Gives a nameless file its name. -EEXIST: another was first. */
static int file_name(const struct rg_cache_index_file *made)
{
    char nameless[32];
    snprintf(nameless, sizeof(nameless), "/proc/self/fd/%d", made->fd);
    return linkat(AT_FDCWD, nameless, AT_FDCWD, made->path, AT_SYMLINK_FOLLOW) == 0 ? 0 : -errno;
}

/* Of the layout that this version has. */
static bool header_read(int fd, struct rg_cache_index_header *out_header)
{
    return pread(fd, out_header, sizeof(*out_header), 0) == (ssize_t)sizeof(*out_header) &&
           memcmp(out_header->magic, header_wanted.magic, sizeof(header_wanted.magic)) == 0 &&
           out_header->version == header_wanted.version &&
           out_header->byte_order == header_wanted.byte_order;
}

static int file_check(const struct rg_cache_index_file *file, int fd,
                      struct rg_cache_index_header *out_header, char *why, size_t why_size)
{
    struct stat stat;
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
    if (!header_read(fd, out_header) || out_header->lines == 0 ||
        out_header->lines > UINT64_C(1) << 40 ||
        rg_cache_index_file_size() != (uint64_t)stat.st_size) {
        return fail(why, why_size, -EINVAL, "%s is of another version, or damaged; remove it",
                    file->path);
    }
    return 0;
}

/* Removes a file whose memory is gone, unless another is in its place by now. */
static void file_remove(const char *path, int fd)
{
    struct stat own, there;
    if (fstat(fd, &own) == 0 && stat(path, &there) == 0 && own.st_ino == there.st_ino &&
        own.st_dev == there.st_dev) {
        (void)unlink(path);
    }
}

/* 0; -ENOENT: there is none. */
static int file_open(struct rg_cache_index_file *file, char *why, size_t why_size)
{
    struct rg_cache_index_header header;
    rg_fd_hold();
    int fd = fd_track(open(file->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    rg_fd_release();
    if (fd < 0) {
        return fail(why, why_size, fd, "%s cannot be opened: %s", file->path, rg_error_text(-fd));
    }
    int rc = file_check(file, fd, &header, why, why_size);
    if (rc == 0) {
        (void)lock_change(fd, F_RDLCK, LOCK_USE);
        rc = rg_cache_index_memory_attach(&file->memory, header.memory_id, &header.memory_nonce,
                                          header.lines);
        if (rc == -ENOENT) {
            file_remove(file->path, fd);
        } else if (rc < 0) {
            (void)fail(why, why_size, rc, "the memory of %s cannot be attached: %s", file->path,
                       rg_error_text(-rc));
        }
    }
    if (rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    file->fd = fd;
    return 0;
}

/* Makes one and names it. -EEXIST: another was first. */
static int file_create(struct rg_cache_index_file *file, uint64_t lines, char *why, size_t why_size)
{
    struct rg_cache_index_file made;
    int rc = rg_cache_index_file_make(file, lines, &made);
    if (rc == 0 && file->share != NULL) {
        (void)lock_change(made.fd, F_RDLCK, LOCK_USE);
        rc = file_name(&made);
        if (rc < 0) {
            file_unmake(&made);
        }
    }
    if (rc < 0) {
        return fail(why, why_size, rc, "%s cannot be made: %s", file->path, rg_error_text(-rc));
    }
    *file = made;
    return 0;
}

int rg_cache_index_file_open(struct rg_cache_index_file *file, uint64_t lines, char *why,
                             size_t why_size)
{
    int rc = -ENOENT;
    file->fd = -1;
    file->memory = (struct rg_cache_index_memory){.id = -1};
    for (unsigned i = 0; i < TRIES_MAX && (rc == -ENOENT || rc == -EEXIST); i++) {
        rc = file->share != NULL ? file_open(file, why, why_size) : -ENOENT;
        if (rc == -ENOENT) {
            rc = file_create(file, lines, why, why_size);
        }
    }
    return rc;
}

/* Who has the last one of an index that was removed leaves nothing behind: nobody else finds its
 * memory any more. */
void rg_cache_index_file_close(struct rg_cache_index_file *file)
{
    if (rg_cache_index_file_is_gone(file)) {
        rg_cache_index_memory_remove(file->memory.id, &file->memory.nonce);
    }
    rg_cache_index_memory_detach(&file->memory);
    rg_fd_drop(file->fd);
    file->fd = -1;
}

/* Whoever opens the index between the two steps finds none, and makes another: then that one stays.
 * Of whoever is killed, memory that no file names is left, which the next sweep removes. */
int rg_cache_index_file_replace(struct rg_cache_index_file *file, struct rg_cache_index_file *made)
{
    int rc = 0;
    (void)lock_change(made->fd, F_RDLCK, LOCK_USE);
    if (file->share != NULL) {
        rc = unlink(file->path) < 0 && errno != ENOENT ? -errno : file_name(made);
    }
    if (rc < 0) {
        file_unmake(made);
        return rc;
    }
    file_unmake(file);
    *file = *made;
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
    struct rg_cache_index_header header;
    rg_fd_hold();
    int fd = fd_track(openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    rg_fd_release();
    if (fd >= 0 && fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_uid == geteuid() &&
        (stat.st_mode & 07777) == 0600 && stat.st_nlink == 1 &&
        time(NULL) - stat.st_mtime > RG_CACHE_INDEX_IDLE_S && is_index(fd) &&
        lock_change(fd, F_WRLCK, LOCK_USE) == 0) {
        (void)unlinkat(folder, name, 0);
        if (header_read(fd, &header)) {
            rg_cache_index_memory_remove(header.memory_id, &header.memory_nonce);
        }
    }
    rg_fd_drop(fd);
}

/* Whether the file that a segment of memory is for says that it is this one. What one of another
 * version says is not known. */
static bool is_named(const char *path, int id, const struct rg_cache_nonce *nonce)
{
    struct rg_cache_index_header header;
    rg_fd_hold();
    int fd = fd_track(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    rg_fd_release();
    bool named = fd >= 0 && is_index(fd);
    if (named && header_read(fd, &header)) {
        named = header.memory_id == id && memcmp(&header.memory_nonce, nonce, sizeof(*nonce)) == 0;
    }
    rg_fd_drop(fd);
    return named;
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
    rg_cache_index_memory_sweep(is_named);
}

int rg_cache_index_file_lock(const struct rg_cache_index_file *file, uint64_t number)
{
    return lock_change(file->fd, F_WRLCK, number);
}

void rg_cache_index_file_unlock(const struct rg_cache_index_file *file, uint64_t number)
{
    (void)lock_change(file->fd, F_UNLCK, number);
}
