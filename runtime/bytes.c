/* See bytes.h. */
#include "runtime/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* New in Linux 6.3, where vm.memfd_noexec may demand it. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

int rg_memory_file_open(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) {
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    return fd >= 0 ? fd : -errno;
}

int rg_memory_file_seal(int fd)
{
    int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    return fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

int rg_bytes_map(struct rg_bytes *out_bytes, int fd)
{
    struct stat status;
    if (fstat(fd, &status) < 0) {
        return -errno;
    }
    if (!S_ISREG(status.st_mode) || status.st_size <= 0) {
        return -EBADMSG;
    }
    size_t size = (size_t)status.st_size;
    /* Private, because kernels before 6.7 do not map sealed files as shared. What is only read is
     * the file's memory all the same, not a copy. */
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        return -errno;
    }
    *out_bytes = (struct rg_bytes){.data = data, .size = size, .fd = fd, .is_mapped = true};
    return 0;
}

int rg_write_all(int fd, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    while (size > 0) {
        ssize_t written = write(fd, bytes, size);
        if (written < 0 && errno != EINTR) {
            return -errno;
        }
        if (written > 0) {
            bytes += written;
            size -= (size_t)written;
        }
    }
    return 0;
}

static int copy_shared(struct rg_bytes *out_bytes, int fd, const void *data, size_t size)
{
    int rc = rg_write_all(fd, data, size);
    rc = rc == 0 ? rg_memory_file_seal(fd) : rc;
    rc = rc == 0 ? rg_bytes_map(out_bytes, fd) : rc;
    if (rc < 0) {
        close(fd);
    }
    return rc;
}

int rg_bytes_copy(struct rg_bytes *out_bytes, const void *data, size_t size)
{
    int fd = size >= RG_BYTES_SHARED_SIZE_MIN ? rg_memory_file_open("ringest") : -1;
    if (fd >= 0) {
        return copy_shared(out_bytes, fd, data, size);
    }
    void *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        return -ENOMEM;
    }
    memcpy(copy, data, size);
    rg_bytes_own(out_bytes, copy, size);
    return 0;
}

void rg_bytes_own(struct rg_bytes *out_bytes, void *data, size_t size)
{
    *out_bytes = (struct rg_bytes){.data = data, .size = size, .fd = -1};
}

void rg_bytes_close(struct rg_bytes *bytes)
{
    if (bytes->data == NULL) {
        return;
    }
    if (bytes->is_mapped) {
        munmap((void *)(uintptr_t)bytes->data, bytes->size);
    } else {
        free((void *)(uintptr_t)bytes->data);
    }
    if (bytes->fd >= 0) {
        close(bytes->fd);
    }
    *bytes = (struct rg_bytes){.fd = -1};
}
