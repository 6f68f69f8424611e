/* See region.h. Who is first makes the file; who comes second at the same moment finds that its
 * name is taken, and opens what is there. */
#include "gcs/host/region.h"

#include "runtime/descriptor.h"
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <ringest/gcs.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* Another may remove the file between the two steps of opening it. */
#define TRIES_MAX 10
/* Later versions that are looked for. */
#define OTHERS_MAX 16
/* Locks lie behind the file: a byte that is locked need not exist. */
#define LOCKS_OFFSET (INT64_C(1) << 48)

/* Of a machine with other integers it is another one. */
struct header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t size;
};

static const struct header header_wanted = {
    .magic = "ringest",
    .version = RG_HOST_VERSION,
    .byte_order = 0x01020304,
    .size = RG_HOST_REGION_SIZE,
};

/* One attempt to open or make the file. */
struct opening {
    const char *folder;
    char path[RG_HOST_PATH_SIZE_MAX];
    char *why;
    size_t why_size;
};

static int fail(struct opening *opening, int rc, const char *format, ...) RG_PRINTF(3, 4);

static int fail(struct opening *opening, int rc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(opening->why, opening->why_size, format, args);
    va_end(args);
    return rc;
}

static int fail_looking(struct opening *opening, int error)
{
    return fail(opening, -error, "%s cannot be looked at: %s", opening->path, rg_error_text(error));
}

static int fail_making(struct opening *opening, int error)
{
    bool is_full = error == ENOSPC || error == EDQUOT, is_short = error == EMFILE;
    return fail(opening, -error, "%s cannot be made: %s; %s", opening->path, rg_error_text(error),
                is_short  ? "raise ulimit -n"
                : is_full ? "make room there, or name another folder in RINGEST_SHARING"
                          : "name another folder in RINGEST_SHARING");
}

/* The name is taken by something else. */
static int fail_opening(struct opening *opening, int error)
{
    bool is_there = error == ELOOP || error == EISDIR || error == ENXIO;
    return fail(opening, -error, "%s cannot be opened: %s%s", opening->path,
                error == ELOOP ? "it is a symbolic link" : rg_error_text(error),
                is_there ? "; remove it" : "");
}

const char *rg_host_folder(const char *text)
{
    struct rg_client_options options;
    rg_client_options_init(&options);
    if (text != NULL && *text == '/') {
        return text;
    }
    /* What is neither is refused where the option is given. */
    bool is_on = text == NULL || rg_option_set(NULL, &options, "adapting", text, NULL, 0) < 0 ||
                 options.adapting == RG_SWITCH_ON;
    return is_on ? RG_HOST_FOLDER_DEFAULT : NULL;
}

static int path_write(const char *folder, uint32_t version, char *out, size_t size)
{
    return snprintf(out, size, "%s/ringest-%u-v%u", folder, (unsigned)geteuid(), version);
}

int rg_host_path_write(const char *folder, char *out, size_t size)
{
    return path_write(folder, RG_HOST_VERSION, out, size);
}

/* A forked child closes it: the locks of its parent would otherwise live on in it. */
static int fd_open(const char *path, int flags)
{
    rg_fd_hold();
    int fd = open(path, flags | O_RDWR | O_CLOEXEC, 0600);
    int rc = fd >= 0 ? rg_fd_track(fd) : -errno;
    rg_fd_release();
    return rc;
}

static int status_check(struct opening *opening, int fd)
{
    struct stat stat;
    if (fstat(fd, &stat) < 0) {
        return fail_looking(opening, errno);
    }
    if (!S_ISREG(stat.st_mode) || stat.st_nlink != 1) {
        return fail(opening, -EPERM, "%s is not a file with one name; remove it", opening->path);
    }
    if (stat.st_uid != geteuid()) {
        return fail(opening, -EPERM,
                    "%s belongs to another user (%u); have it removed, or name another folder in "
                    "RINGEST_SHARING",
                    opening->path, (unsigned)stat.st_uid);
    }
    if ((stat.st_mode & 07777) != 0600) {
        return fail(opening, -EPERM,
                    "%s has mode %04o, not 0600, so that others may have read it; "
                    "remove it",
                    opening->path, (unsigned)stat.st_mode & 07777);
    }
    if (stat.st_size != (off_t)RG_HOST_REGION_SIZE) {
        return fail(opening, -EINVAL, "%s has %lld bytes, not %zu; remove it", opening->path,
                    (long long)stat.st_size, RG_HOST_REGION_SIZE);
    }
    return 0;
}

static int region_check(struct opening *opening, int fd)
{
    struct header header;
    int rc = status_check(opening, fd);
    if (rc < 0) {
        return rc;
    }
    ssize_t size = pread(fd, &header, sizeof(header), 0);
    if (size != (ssize_t)sizeof(header) || memcmp(&header, &header_wanted, sizeof(header)) != 0) {
        return fail(opening, -EINVAL, "%s is of another version, or damaged; remove it",
                    opening->path);
    }
    return 0;
}

/* Of a file system on a disk the tokens would outlive the machine's run, and one of the network is
 * not this host's alone. */
static int folder_check(struct opening *opening, int fd)
{
    struct statfs system;
    if (fstatfs(fd, &system) < 0) {
        return fail_looking(opening, errno);
    }
    if (system.f_type != TMPFS_MAGIC) {
        return fail(opening, -EINVAL,
                    "%s is not in memory (tmpfs); name another folder in "
                    "RINGEST_SHARING",
                    opening->folder);
    }
    return 0;
}

/* A nameless file with its memory, since a hole in it could not be filled when that is used up: but
 * for what is told to people, which may be left out. */
static int file_fill(struct opening *opening, int fd)
{
    int rc = folder_check(opening, fd);
    if (rc < 0) {
        return rc;
    }
    /* Against a umask that takes from the owner. */
    if (fchmod(fd, 0600) < 0 || fallocate(fd, 0, 0, RG_HOST_TAKEN_SIZE) < 0 ||
        ftruncate(fd, RG_HOST_REGION_SIZE) < 0) {
        return fail_making(opening, errno);
    }
    ssize_t size = pwrite(fd, &header_wanted, sizeof(header_wanted), 0);
    return size == (ssize_t)sizeof(header_wanted) ? 0 : fail_making(opening, EIO);
}

/* The descriptor of a new file that has its name. -EEXIST: another was first. */
static int file_make(struct opening *opening)
{
    int fd = fd_open(opening->folder, O_TMPFILE);
    if (fd < 0) {
        return fail_making(opening, -fd);
    }
    int rc = file_fill(opening, fd);
    if (rc == 0) {
        char nameless[32];
        snprintf(nameless, sizeof(nameless), "/proc/self/fd/%d", fd);
        if (linkat(AT_FDCWD, nameless, AT_FDCWD, opening->path, AT_SYMLINK_FOLLOW) < 0) {
            rc = fail_making(opening, errno);
        }
    }
    if (rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    return fd;
}

/* -ENOENT: there is none. */
static int file_open(struct opening *opening)
{
    /* Does not wait for the other end of what may be a pipe. */
    int fd = fd_open(opening->path, O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return fail_opening(opening, -fd);
    }
    int rc = folder_check(opening, fd);
    rc = rc == 0 ? region_check(opening, fd) : rc;
    if (rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    return fd;
}

/* Whether it is what an earlier version made, and nobody has written to it for a day. */
static bool former_is_ours(int fd, uint32_t version)
{
    struct stat status;
    struct statfs system;
    struct header header;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_nlink != 1 ||
        status.st_uid != geteuid() || (status.st_mode & 07777) != 0600) {
        return false;
    }
    if (fstatfs(fd, &system) < 0 || system.f_type != TMPFS_MAGIC ||
        pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header)) {
        return false;
    }
    struct header wanted = header_wanted;
    wanted.version = version;
    wanted.size = (uint64_t)status.st_size;
    return memcmp(&header, &wanted, sizeof(header)) == 0 &&
           time(NULL) - status.st_mtime >= RG_HOST_FORMER_UNUSED_S;
}

/* Nobody has a lock of it, and none can be had from now on. */
static bool former_lock(int fd)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &all) == 0;
}

/* The name may have been given to another file meanwhile. */
static bool is_name_of(const char *path, int fd)
{
    struct stat named, open;
    return lstat(path, &named) == 0 && fstat(fd, &open) == 0 && named.st_dev == open.st_dev &&
           named.st_ino == open.st_ino;
}

static void former_remove(const char *folder, uint32_t version)
{
    char path[RG_HOST_PATH_SIZE_MAX];
    (void)path_write(folder, version, path, sizeof(path));
    int fd = fd_open(path, O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (former_is_ours(fd, version) && former_lock(fd) && is_name_of(path, fd) &&
        unlink(path) == 0) {
        rg_log(RG_LOG_INFO, "removed %s: an earlier version made it, and nobody uses it", path);
    }
    rg_fd_drop(fd);
}

static int opening_begin(struct opening *opening)
{
    int size = rg_host_path_write(opening->folder, opening->path, sizeof(opening->path));
    return size >= 0 && (size_t)size < sizeof(opening->path)
               ? 0
               : fail(opening, -ENAMETOOLONG, "the folder's name is too long: %.100s",
                      opening->folder);
}

int rg_host_region_find(struct rg_host_region *out_region, const char *folder, char *why,
                        size_t why_size)
{
    struct opening opening = {.folder = folder, .why = why, .why_size = why_size};
    int fd = opening_begin(&opening);
    fd = fd == 0 ? file_open(&opening) : fd;
    if (fd < 0) {
        return fd;
    }
    *out_region = (struct rg_host_region){.fd = fd};
    return 0;
}

int rg_host_region_open(struct rg_host_region *out_region, const char *folder, char *why,
                        size_t why_size)
{
    struct opening opening = {.folder = folder, .why = why, .why_size = why_size};
    int rc = opening_begin(&opening);
    if (rc < 0) {
        return rc;
    }
    int fd = -ENOENT;
    for (unsigned i = 0; i < TRIES_MAX && (fd == -ENOENT || fd == -EEXIST); i++) {
        fd = file_open(&opening);
        if (fd == -ENOENT) {
            fd = file_make(&opening);
        }
    }
    if (fd < 0) {
        return fd;
    }
    for (uint32_t version = 1; version < RG_HOST_VERSION; version++) {
        former_remove(folder, version);
    }
    *out_region = (struct rg_host_region){.fd = fd};
    return 0;
}

void rg_host_say_alone(const char *what, const char *why)
{
    static _Atomic bool said;
    if (!atomic_exchange(&said, true)) {
        rg_log(RG_LOG_WARN, "%s: %s", what, why);
    }
}

bool rg_host_region_is_named(const struct rg_host_region *region)
{
    struct stat status;
    return fstat(region->fd, &status) == 0 && status.st_nlink > 0;
}

/* A count of 0: all from that number on. */
static int locks_change(const struct rg_host_region *region, short type, uint64_t number,
                        off_t count)
{
    RG_ASSERT(number < (UINT64_C(1) << 48));
    struct flock lock = {
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = LOCKS_OFFSET + (off_t)number,
        .l_len = count,
    };
    return fcntl(region->fd, F_OFD_SETLK, &lock);
}

/* A child that is just being forked has the descriptor, too, and would keep the locks for a moment.
 */
void rg_host_region_close(struct rg_host_region *region)
{
    if (region->fd >= 0) {
        (void)locks_change(region, F_UNLCK, 0, 0);
    }
    rg_fd_drop(region->fd);
    region->fd = -1;
}

static bool is_inside(uint64_t offset, size_t size)
{
    return offset >= RG_HOST_HEADER_SIZE && size <= RG_HOST_REGION_SIZE &&
           offset <= RG_HOST_REGION_SIZE - size;
}

int rg_host_region_read(const struct rg_host_region *region, uint64_t offset, void *data,
                        size_t size)
{
    RG_ASSERT(is_inside(offset, size));
    ssize_t got = pread(region->fd, data, size, (off_t)offset);
    return got == (ssize_t)size ? 0 : got < 0 ? -errno : -EIO;
}

int rg_host_region_write(const struct rg_host_region *region, uint64_t offset, const void *data,
                         size_t size)
{
    RG_ASSERT(is_inside(offset, size));
    ssize_t put = pwrite(region->fd, data, size, (off_t)offset);
    return put == (ssize_t)size ? 0 : put < 0 ? -errno : -EIO;
}

void rg_host_region_empty(const struct rg_host_region *region, uint64_t offset, size_t size)
{
    RG_ASSERT(is_inside(offset, size));
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    (void)fallocate(region->fd, mode, (off_t)offset, (off_t)size);
}

int rg_host_region_lock(const struct rg_host_region *region, uint64_t number)
{
    if (locks_change(region, F_WRLCK, number, 1) == 0) {
        return 0;
    }
    return errno == EACCES ? -EAGAIN : -errno;
}

void rg_host_region_unlock(const struct rg_host_region *region, uint64_t number)
{
    (void)locks_change(region, F_UNLCK, number, 1);
}

bool rg_host_region_is_locked(const struct rg_host_region *region, uint64_t number)
{
    RG_ASSERT(number < (UINT64_C(1) << 48));
    struct flock lock = {
        .l_type = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start = LOCKS_OFFSET + (off_t)number,
        .l_len = 1,
    };
    return fcntl(region->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Somebody has a lock of the file of that name. */
static bool is_used(const char *path)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = fd_open(path, O_NOFOLLOW | O_NONBLOCK);
    bool is_locked = fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    rg_fd_drop(fd);
    return is_locked;
}

uint32_t rg_host_other_version(const char *folder)
{
    for (uint32_t version = RG_HOST_VERSION + OTHERS_MAX; version > 0; version--) {
        char path[RG_HOST_PATH_SIZE_MAX];
        (void)path_write(folder, version, path, sizeof(path));
        if (version != RG_HOST_VERSION && is_used(path)) {
            return version;
        }
    }
    return 0;
}
