/* See memory_segment.h. */
#include "cache/memory_segment.h"

#include "cache/memory_table.h"
#include "runtime/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <ringest/gcs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Names that the C library of an older build machine may lack: Linux 6.3 and 5.14. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

static int fd_track(int fd)
{
    return fd >= 0 ? rg_fd_track(fd) : -errno;
}

static int memory_make(void)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    rg_fd_hold();
    int fd = memfd_create("ringest-memory", flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) {
        fd = memfd_create("ringest-memory", flags);
    }
    int rc = fd_track(fd);
    rg_fd_release();
    return rc;
}

/* Opens a file for reading by another descriptor of it, of this process (pid 0) or another. */
static int link_open(int pid, int fd, int flags)
{
    char link[48];
    if (pid == 0) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    } else {
        snprintf(link, sizeof(link), "/proc/%d/fd/%d", pid, fd);
    }
    rg_fd_hold();
    int opened = fd_track(open(link, flags | O_CLOEXEC));
    rg_fd_release();
    return opened;
}

/* A mapping by a descriptor that can only read can never be made writable, and is in the way of no
 * seal. */
static int map(struct rg_memory_segment *segment, int fd_readonly, uint64_t size)
{
    void *data = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd_readonly, 0);
    if (data == MAP_FAILED) {
        return -errno;
    }
    segment->data = data;
    segment->mapped = (size_t)size;
    return 0;
}

static int write_all(int fd, struct iovec *parts, int count, uint64_t offset)
{
    size_t size = 0;
    for (int i = 0; i < count; i++) {
        size += parts[i].iov_len;
    }
    ssize_t put;
    do {
        put = pwritev(fd, parts, count, (off_t)offset);
    } while (put < 0 && errno == EINTR);
    return put == (ssize_t)size ? 0 : put < 0 ? -errno : -ENOSPC;
}

static int segment_begin(struct rg_memory_segment *segment, uint64_t size)
{
    uint8_t bytes[RG_CACHE_HEAD_SIZE];
    struct rg_cache_head head = {.nonce = segment->nonce};
    struct iovec part = {bytes, sizeof(bytes)};
    if (fchmod(segment->fd, 0600) < 0 || ftruncate(segment->fd, (off_t)size) < 0) {
        return -errno;
    }
    rg_cache_head_write(&head, bytes);
    int rc = write_all(segment->fd, &part, 1, 0);
    int readable = rc == 0 ? link_open(0, segment->fd, O_RDONLY) : rc;
    if (readable < 0) {
        return readable;
    }
    rc = map(segment, readable, size);
    rg_fd_drop(readable);
    return rc;
}

int rg_memory_segment_make(struct rg_memory_segment *out_segment,
                           const struct rg_cache_nonce *nonce, uint64_t size)
{
    RG_ASSERT(size > RG_CACHE_HEAD_SIZE && size <= RG_CACHE_SEGMENT_SIZE_MAX);
    struct rg_memory_segment segment = {.nonce = *nonce, .fd = memory_make()};
    int rc = segment.fd < 0 ? segment.fd : segment_begin(&segment, size);
    if (rc < 0) {
        rg_memory_segment_close(&segment);
        return rc;
    }
    segment.size = size;
    segment.end = RG_CACHE_HEAD_SIZE;
    *out_segment = segment;
    return 0;
}

/* Bytes of the table and the trailer. */
static uint64_t tail_size(uint32_t count)
{
    return rg_cache_round_up(count * sizeof(struct rg_cache_content), RG_CACHE_UNIT) +
           RG_CACHE_TRAILER_SIZE;
}

uint32_t rg_memory_segment_reserve(struct rg_memory_segment *segment, size_t size)
{
    uint64_t room = rg_cache_round_up(size, RG_CACHE_UNIT);
    uint64_t tail = tail_size(segment->reserved + 1);
    if (segment->is_sealed || segment->end + room + tail > segment->size) {
        return 0;
    }
    uint32_t place = (uint32_t)(segment->end / RG_CACHE_UNIT);
    segment->end += room;
    segment->reserved++;
    return place;
}

int rg_memory_segment_put(const struct rg_memory_segment *segment, uint32_t place,
                          const uint8_t *header, size_t header_size, const uint8_t *body,
                          size_t body_size)
{
    struct iovec parts[] = {
        {(void *)(uintptr_t)header, header_size},
        {(void *)(uintptr_t)body, body_size},
    };
    return write_all(segment->fd, parts, body_size > 0 ? 2 : 1, (uint64_t)place * RG_CACHE_UNIT);
}

int rg_memory_segment_list(struct rg_memory_segment *segment,
                           const struct rg_cache_content *content)
{
    if (segment->count == segment->capacity) {
        uint32_t capacity = RG_MAX(2 * segment->capacity, 256U);
        void *more = realloc(segment->contents, capacity * sizeof(*segment->contents));
        if (more == NULL) {
            return -ENOMEM;
        }
        segment->contents = more;
        segment->capacity = capacity;
    }
    segment->contents[segment->count++] = *content;
    return 0;
}

static int tail_write(const struct rg_memory_segment *segment)
{
    static const uint8_t zeros[RG_CACHE_UNIT];
    uint8_t end[RG_CACHE_TRAILER_SIZE];
    size_t size = segment->count * sizeof(*segment->contents);
    struct rg_cache_trailer trailer = {
        .table_offset = segment->end,
        .count = segment->count,
        .table_crc = rg_crc32c(0, segment->contents, size),
    };
    struct iovec parts[] = {
        {segment->contents, size},
        {(void *)(uintptr_t)zeros, rg_cache_round_up(size, RG_CACHE_UNIT) - size},
        {end, sizeof(end)},
    };
    rg_cache_trailer_write(&trailer, &segment->nonce, end);
    return write_all(segment->fd, parts, RG_ARRAY_LEN(parts), segment->end);
}

int rg_memory_segment_seal(struct rg_memory_segment *segment)
{
    RG_ASSERT(!segment->is_sealed && segment->fd >= 0 && segment->count <= segment->reserved);
    uint64_t size = segment->end + tail_size(segment->count);
    RG_ASSERT(size <= segment->size);
    int rc = tail_write(segment);
    if (rc < 0) {
        return rc;
    }
    if (ftruncate(segment->fd, (off_t)size) < 0 || fcntl(segment->fd, F_ADD_SEALS, SEALS) < 0) {
        return -errno;
    }
    segment->size = size;
    segment->is_sealed = true;
    free(segment->contents);
    segment->contents = NULL;
    segment->capacity = 0;
    /* So that the first reader of a page need not wait for the system. */
    (void)madvise((void *)(uintptr_t)segment->data, (size_t)size, MADV_POPULATE_READ);
    return 0;
}

/* Whether it is memory that is sealed, of this user and that size. Whatever it is, the descriptor
 * has not been opened for anything yet (O_PATH). */
static int file_check(int path, uint64_t size)
{
    struct stat stat;
    struct statfs system;
    if (fstat(path, &stat) < 0 || fstatfs(path, &system) < 0) {
        return -errno;
    }
    return S_ISREG(stat.st_mode) && stat.st_uid == geteuid() && system.f_type == TMPFS_MAGIC &&
                   stat.st_size == (off_t)size
               ? 0
               : -ENOENT;
}

/* A descriptor that reads the memory of a line; or a negative errno. */
static int line_open(const struct rg_memory_line *line)
{
    int path = link_open(line->pid, line->fd, O_PATH);
    if (path < 0) {
        return path;
    }
    int rc = file_check(path, line->size);
    int fd = rc == 0 ? link_open(0, path, O_RDONLY | O_NONBLOCK) : rc;
    rg_fd_drop(path);
    int seals = fd >= 0 ? fcntl(fd, F_GET_SEALS) : 0;
    if (fd >= 0 && (seals < 0 || (seals & SEALS) != SEALS)) {
        rc = -EPERM;
    } else if (fd >= 0) {
        rc = file_check(fd, line->size); /* which may have changed until it was sealed */
    }
    if (fd >= 0 && rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    return fd;
}

/* Notes are for the index of a folder, and name no place. */
static bool has_notes(const struct rg_cache_content *contents, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && !rg_cache_content_is_note(&contents[i])) {
        i++;
    }
    return i < count;
}

/* The table of what is mapped, after all checks. */
static int contents_find(struct rg_memory_segment *segment,
                         const struct rg_cache_content **out_contents, uint32_t *out_count)
{
    struct rg_cache_head head;
    struct rg_cache_trailer trailer;
    int rc = rg_cache_head_read(segment->data, segment->mapped, &head);
    if (rc < 0) {
        return rc;
    }
    if (memcmp(&head.nonce, &segment->nonce, sizeof(head.nonce)) != 0) {
        return -ENOENT;
    }
    const uint8_t *end = segment->data + segment->mapped - RG_CACHE_TRAILER_SIZE;
    rc = rg_cache_trailer_read(end, &segment->nonce, segment->mapped, &trailer);
    if (rc < 0 || trailer.table_offset % RG_CACHE_UNIT != 0) {
        return -EBADMSG;
    }
    const uint8_t *table = segment->data + trailer.table_offset;
    *out_contents = (const struct rg_cache_content *)(const void *)table;
    *out_count = trailer.count;
    segment->end = trailer.table_offset;
    rc = rg_cache_table_check(&trailer, *out_contents);
    return rc == 0 && has_notes(*out_contents, *out_count) ? -EBADMSG : rc;
}

int rg_memory_segment_adopt(struct rg_memory_segment *out_segment,
                            const struct rg_memory_line *line,
                            const struct rg_cache_content **out_contents, uint32_t *out_count)
{
    if (line->pid <= 0 || line->fd < 0 || line->size > RG_CACHE_SEGMENT_SIZE_MAX ||
        line->size < RG_CACHE_HEAD_SIZE + RG_CACHE_TRAILER_SIZE) {
        return -EBADMSG;
    }
    struct rg_memory_segment segment = {
        .nonce = line->nonce, .fd = line_open(line), .size = line->size, .is_sealed = true};
    int rc = segment.fd < 0 ? segment.fd : map(&segment, segment.fd, line->size);
    rc = rc == 0 ? contents_find(&segment, out_contents, out_count) : rc;
    if (rc < 0) {
        rg_memory_segment_close(&segment);
        return rc;
    }
    segment.count = *out_count;
    (void)madvise((void *)(uintptr_t)segment.data, segment.mapped, MADV_POPULATE_READ);
    *out_segment = segment;
    return 0;
}

/* A child that is forked meanwhile finds it unmapped, and leaves alone what lies there next. */
void rg_memory_segment_unmap(struct rg_memory_segment *segment)
{
    size_t mapped = segment->mapped;
    segment->mapped = 0;
    if (mapped > 0) {
        (void)munmap((void *)(uintptr_t)segment->data, mapped);
    }
}

void rg_memory_segment_close(struct rg_memory_segment *segment)
{
    rg_memory_segment_unmap(segment);
    rg_fd_drop(segment->fd);
    free(segment->contents);
    *segment = (struct rg_memory_segment){.fd = -1};
}
