/* See writer.h. */
#include "cache/writer.h"

#include "runtime/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void rg_cache_writer_init(struct rg_cache_writer *writer, int folder)
{
    *writer = (struct rg_cache_writer){.folder = folder, .fd = -1};
    rg_cache_host(&writer->host);
}

void rg_cache_writer_fini(struct rg_cache_writer *writer)
{
    rg_cache_writer_abandon(writer);
    free(writer->contents);
    writer->contents = NULL;
}

static int file_make(const struct rg_cache_writer *writer)
{
    char name[RG_CACHE_NAME_SIZE];
    int flags = O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC;
    rg_cache_name_write(&writer->nonce, true, name);
    rg_fd_hold();
    int fd = openat(writer->folder, name, flags | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL) {
        /* No direct writes here; some systems have made the file all the same. */
        (void)unlinkat(writer->folder, name, 0);
        fd = openat(writer->folder, name, flags, 0600);
    }
    int rc = fd >= 0 ? rg_fd_track(fd) : -errno;
    rg_fd_release();
    return rc;
}

/* All of an aligned piece. What direct writes do not take goes through the page cache. */
static int write_all(int fd, const uint8_t *data, size_t size, uint64_t offset)
{
    for (size_t done = 0; done < size;) {
        ssize_t put = pwrite(fd, data + done, size - done, (off_t)(offset + done));
        int flags = fcntl(fd, F_GETFL);
        if (put > 0) {
            done += (size_t)put;
        } else if (put < 0 && errno == EINVAL && (flags & O_DIRECT) != 0) {
            (void)fcntl(fd, F_SETFL, flags & ~O_DIRECT);
        } else if (put == 0 || errno != EINTR) {
            return put < 0 ? -errno : -EIO;
        }
    }
    return 0;
}

static int head_write(const struct rg_cache_writer *writer)
{
    uint8_t *bytes = aligned_alloc(RG_CACHE_ALIGNMENT, RG_CACHE_HEAD_SIZE);
    if (bytes == NULL) {
        return -ENOMEM;
    }
    struct rg_cache_head head = {.nonce = writer->nonce, .host = writer->host};
    rg_cache_head_write(&head, bytes);
    int rc = write_all(writer->fd, bytes, RG_CACHE_HEAD_SIZE, 0);
    free(bytes);
    return rc;
}

/* The space is taken now, so that it counts for everybody who looks; where the file system cannot
 * do that, the size at least. */
static int space_take(int fd, uint64_t size)
{
    if (fallocate(fd, 0, 0, (off_t)size) == 0) {
        return 0;
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
        return -errno;
    }
    return ftruncate(fd, (off_t)size) == 0 ? 0 : -errno;
}

int rg_cache_writer_begin(struct rg_cache_writer *writer, uint64_t size)
{
    RG_ASSERT(writer->fd < 0 && size > RG_CACHE_HEAD_SIZE);
    rg_cache_nonce_draw(&writer->nonce);
    int fd = file_make(writer);
    if (fd < 0) {
        return fd;
    }
    writer->fd = fd;
    writer->offset = RG_CACHE_HEAD_SIZE;
    writer->count = 0;
    /* The lock comes first: a file with a head and without a lock is an orphan. And the head comes
     * before the space: whoever is killed in between leaves what can be told for a segment. */
    (void)rg_cache_file_lock(fd);
    int rc = head_write(writer);
    rc = rc == 0 ? space_take(fd, size) : rc;
    if (rc < 0) {
        rg_cache_writer_abandon(writer);
    }
    return rc;
}

static int contents_reserve(struct rg_cache_writer *writer, uint32_t count)
{
    if (writer->count + count <= writer->capacity) {
        return 0;
    }
    uint32_t capacity = RG_MAX(2 * writer->capacity, writer->count + count);
    void *more = realloc(writer->contents, capacity * sizeof(*writer->contents));
    if (more == NULL) {
        return -ENOMEM;
    }
    writer->contents = more;
    writer->capacity = capacity;
    return 0;
}

int rg_cache_writer_append(struct rg_cache_writer *writer, const uint8_t *data, size_t size,
                           const struct rg_cache_content *contents, uint32_t count,
                           const struct rg_cache_content **out_contents)
{
    RG_ASSERT(writer->fd >= 0 && size % RG_CACHE_ALIGNMENT == 0);
    RG_ASSERT(writer->offset < RG_CACHE_SEGMENT_SIZE_MAX);
    int rc = contents_reserve(writer, count);
    rc = rc == 0 ? write_all(writer->fd, data, size, writer->offset) : rc;
    if (rc < 0) {
        return rc;
    }
    struct rg_cache_content *placed = writer->contents + writer->count;
    for (uint32_t i = 0; i < count; i++) {
        placed[i] = contents[i];
        if (!rg_cache_content_is_note(&placed[i])) {
            placed[i].place += (uint32_t)(writer->offset / RG_CACHE_UNIT);
        }
    }
    writer->count += count;
    writer->offset += size;
    *out_contents = placed;
    return 0;
}

/* Closing gives up the lock. */
static void file_close(struct rg_cache_writer *writer)
{
    rg_fd_drop(writer->fd);
    writer->fd = -1;
}

int rg_cache_writer_seal(struct rg_cache_writer *writer)
{
    int rc = rg_cache_file_seal(writer->folder, writer->fd, &writer->nonce, writer->offset,
                                writer->contents, writer->count);
    if (rc < 0) {
        rg_cache_writer_abandon(writer);
        return rc;
    }
    file_close(writer);
    return 0;
}

void rg_cache_writer_abandon(struct rg_cache_writer *writer)
{
    char name[RG_CACHE_NAME_SIZE];
    if (writer->fd < 0) {
        return;
    }
    rg_cache_name_write(&writer->nonce, true, name);
    (void)unlinkat(writer->folder, name, 0);
    file_close(writer);
}
