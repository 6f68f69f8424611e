/* Makes a program believe that its files lie on NFS, as far as calls of the C library go
 * (LD_PRELOAD): there are no locks (ENOLCK) and no O_DIRECT (EINVAL), and a file that another host
 * has removed cannot be read any more (ESTALE). That holds for files beside RINGEST_NFS_FOLDER. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#define NFS_SUPER_MAGIC 0x6969
#define STAND_IN_API __attribute__((visibility("default")))

static int is_there(int fd, struct stat *status)
{
    const char *path = getenv("RINGEST_NFS_FOLDER");
    struct stat folder;
    return path != NULL && stat(path, &folder) == 0 && fstat(fd, status) == 0 &&
           folder.st_dev == status->st_dev;
}

static int is_stale(int fd)
{
    struct stat status;
    int stale = is_there(fd, &status) && S_ISREG(status.st_mode) && status.st_nlink == 0;
    if (stale) {
        errno = ESTALE;
    }
    return stale;
}

STAND_IN_API int openat64(int folder, const char *path, int flags, ...)
{
    int (*next)(int, const char *, int, ...) =
        (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
    struct stat status;
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if ((flags & O_DIRECT) != 0 && is_there(folder, &status)) {
        errno = EINVAL;
        return -1;
    }
    return next(folder, path, flags, mode);
}

STAND_IN_API int fcntl64(int fd, int command, ...)
{
    int (*next)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
    struct stat status;
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (command == F_OFD_SETLK && is_there(fd, &status)) {
        errno = ENOLCK;
        return -1;
    }
    return next(fd, command, argument);
}

STAND_IN_API int fstatfs64(int fd, struct statfs64 *out)
{
    int (*next)(int, struct statfs64 *) =
        (int (*)(int, struct statfs64 *))dlsym(RTLD_NEXT, "fstatfs64");
    struct stat status;
    int rc = next(fd, out);
    if (rc == 0 && is_there(fd, &status)) {
        out->f_type = NFS_SUPER_MAGIC;
    }
    return rc;
}

STAND_IN_API ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
    ssize_t (*next)(int, void *, size_t, off64_t) =
        (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    return is_stale(fd) ? -1 : next(fd, data, size, offset);
}

STAND_IN_API ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset,
                                int flags)
{
    ssize_t (*next)(int, const struct iovec *, int, off64_t, int) =
        (ssize_t(*)(int, const struct iovec *, int, off64_t, int))dlsym(RTLD_NEXT, "preadv64v2");
    return is_stale(fd) ? -1 : next(fd, parts, count, offset, flags);
}
