/* Local files for `cp`: see local.h. */
#include "cli/local.h"

#include "runtime/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART_PREFIX "."
#define PART_SUFFIX ".ringest-part"
/* Longer names are cut and told apart by their checksum. */
#define PART_STEM_MAX 200

/* The table behind the bytes. It is this machine's own, so it is in its byte order. */
struct table_head {
    char magic[8];
    int64_t generation;
    uint64_t size, part_size;
};
static const char table_magic[8] = "RGPART1";

struct local_mark {
    uint32_t crc32c;
    uint32_t present; /* MARK_PRESENT or 0 */
};
#define MARK_PRESENT UINT32_C(0x70617274)

const char *local_name_problem(const char *name)
{
    if (name[0] == '\0') {
        return "it is empty";
    }
    const char *segment = name;
    for (;;) {
        size_t size = strcspn(segment, "/");
        if (size == 0) {
            return segment == name ? "it begins with \"/\"" : "it has an empty part between \"/\"";
        }
        if ((size == 1 && segment[0] == '.') ||
            (size == 2 && segment[0] == '.' && segment[1] == '.')) {
            return "it has \".\" or \"..\" between \"/\"";
        }
        if (size > LOCAL_NAME_SIZE_MAX) {
            return "it has more than 255 bytes between \"/\"";
        }
        if (segment[size] == '\0') {
            return local_name_is_part(segment) ? "parts of files are kept under such names" : NULL;
        }
        segment += size + 1;
    }
}

bool local_name_is_part(const char *name)
{
    size_t size = strlen(name), suffix = sizeof(PART_SUFFIX) - 1;
    return size > suffix + 1 && name[0] == PART_PREFIX[0] &&
           strcmp(name + size - suffix, PART_SUFFIX) == 0;
}

int local_make_parents(const char *path)
{
    char *copy = strdup(path);
    if (copy == NULL) {
        return -ENOMEM;
    }
    int rc = 0;
    for (char *slash = strchr(copy + 1, '/'); slash != NULL && rc == 0;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0777) < 0 && errno != EEXIST) {
            rc = -errno;
        }
        *slash = '/';
    }
    free(copy);
    return rc;
}

int64_t local_read(int fd, void *out, uint64_t size, uint64_t offset)
{
    uint64_t done = 0;
    while (done < size) {
        ssize_t got = pread(fd, (char *)out + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno != EINTR) {
            return -errno;
        }
        if (got == 0) {
            break;
        }
        done += got > 0 ? (uint64_t)got : 0;
    }
    return (int64_t)done;
}

int local_crc32c(int fd, uint64_t offset, uint64_t size, uint32_t *out_crc)
{
    char *block = malloc(LOCAL_BLOCK_SIZE);
    if (block == NULL) {
        return -ENOMEM;
    }
    uint32_t crc = 0;
    int rc = 0;
    for (uint64_t done = 0; done < size && rc == 0;) {
        uint64_t piece = RG_MIN(size - done, (uint64_t)LOCAL_BLOCK_SIZE);
        int64_t got = local_read(fd, block, piece, offset + done);
        if (got < 0) {
            rc = (int)got;
        } else if ((uint64_t)got < piece) {
            rc = -ENODATA;
        } else {
            crc = rg_crc32c(crc, block, piece);
            done += piece;
        }
    }
    free(block);
    if (rc == 0) {
        *out_crc = crc;
    }
    return rc;
}

static int path_sync(const char *path, int flags)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | flags);
    int rc = fd < 0 || fsync(fd) < 0 ? -errno : 0;
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

int local_persist(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL   ? strdup(".")
                   : slash == path ? strdup("/")
                                   : strndup(path, (size_t)(slash - path));
    int rc = folder != NULL ? path_sync(path, O_NONBLOCK) : -ENOMEM;
    rc = rc == 0 ? path_sync(folder, O_DIRECTORY) : rc;
    free(folder);
    return rc;
}

static bool times_equal(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool local_is_unchanged(const char *path, const struct stat *then)
{
    struct stat now;
    return lstat(path, &now) == 0 && now.st_dev == then->st_dev && now.st_ino == then->st_ino &&
           now.st_size == then->st_size && times_equal(&now.st_mtim, &then->st_mtim) &&
           times_equal(&now.st_ctim, &then->st_ctim);
}

const char *local_error_text(int error)
{
    switch (-error) {
    case ENOSPC:
        return "no space left on the device; free some and run it again";
    case EDQUOT:
        return "the disk quota is used up; free some space and run it again";
    case EFBIG:
        return "larger than the file system or `ulimit -f` allows";
    case EACCES:
    case EPERM:
        return "permission denied; check the modes of the file and its folders";
    case EROFS:
        return "the file system is read-only";
    case EISDIR:
        return "a folder has this name";
    case EEXIST:
        return "not a regular file, and not replaced";
    case ENOTDIR:
        return "a part of the path is a file, not a folder";
    case ENAMETOOLONG:
        return "the name is too long for a file";
    case EBUSY:
        return "another process is writing it; wait for that";
    case EALREADY:
        return "another source was moved to this file, whose path has several spellings; the "
               "source "
               "is kept";
    case ENODATA:
        return "it shrank while it was read";
    case EMFILE:
    case ENFILE:
        return "too many open files; use a smaller --concurrency or raise `ulimit -n`";
    default:
        return strerror(-error);
    }
}

static char *temporary_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    char *temporary;
    int rc;
    if (strlen(name) <= PART_STEM_MAX) {
        rc = asprintf(&temporary, "%.*s" PART_PREFIX "%s" PART_SUFFIX, (int)(name - path), path,
                      name);
    } else {
        rc = asprintf(&temporary, "%.*s" PART_PREFIX "%.*s-%08x" PART_SUFFIX, (int)(name - path),
                      path, PART_STEM_MAX, name, rg_crc32c(0, name, strlen(name)));
    }
    return rc < 0 ? NULL : temporary;
}

/* Opens and locks; -ESTALE if the process that had it before gave it away or removed it meanwhile.
 */
static int temporary_try(const char *temporary, uint64_t *out_left_size)
{
    int fd = open(temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0) {
        return -errno;
    }
    int rc = 0;
    struct stat opened, named;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
    } else if (fstat(fd, &opened) < 0) {
        rc = -errno;
    } else if (!S_ISREG(opened.st_mode)) {
        rc = -EEXIST;
    } else if (lstat(temporary, &named) < 0 || named.st_ino != opened.st_ino) {
        rc = -ESTALE;
    }
    if (rc < 0) {
        close(fd);
        return rc;
    }
    *out_left_size = (uint64_t)opened.st_size;
    return fd;
}

static int file_open(struct local_file *file, const char *path)
{
    struct stat existing;
    int rc = rg_new_file_check(path, &existing);
    if (rc < 0) {
        return rc;
    }
    *file = (struct local_file){.path = strdup(path), .temporary = temporary_name(path), .fd = -1};
    rc = file->path == NULL || file->temporary == NULL ? -ENOMEM : 0;
    bool made_parents = false;
    while (rc == 0 && file->fd < 0) {
        int fd = temporary_try(file->temporary, &file->left_size);
        if (fd == -ENOENT && !made_parents) {
            made_parents = true;
            rc = local_make_parents(path);
        } else if (fd != -ESTALE) {
            rc = RG_MIN(fd, 0);
            file->fd = fd;
        }
    }
    if (rc < 0) {
        free(file->path);
        free(file->temporary);
        *file = (struct local_file){.fd = -1};
    } else if (S_ISREG(existing.st_mode)) {
        rg_new_file_keep_mode(file->fd, &existing);
    }
    return rc;
}

static void file_close(struct local_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    free(file->path);
    free(file->temporary);
    free(file->marks);
    *file = (struct local_file){.fd = -1};
}

static int write_at(int fd, const void *data, uint64_t size, uint64_t offset)
{
    const char *bytes = data;
    while (size > 0) {
        ssize_t written = pwrite(fd, bytes, size, (off_t)offset);
        if (written < 0 && errno != EINTR) {
            return -errno;
        }
        if (written > 0) {
            bytes += written;
            size -= (uint64_t)written;
            offset += (uint64_t)written;
        }
    }
    return 0;
}

int local_open_small(struct local_file *file, const char *path)
{
    int rc = file_open(file, path);
    if (rc == 0 && file->left_size > 0 && ftruncate(file->fd, 0) < 0) {
        rc = -errno;
        local_discard(file);
    }
    return rc;
}

int local_write_small(struct local_file *file, const void *data, uint64_t size)
{
    file->size = size;
    return write_at(file->fd, data, size, 0);
}

static uint64_t marks_size(const struct local_file *file)
{
    return (uint64_t)file->part_count * sizeof(*file->marks);
}

/* Takes over what an earlier run left, if it is of the same bytes: parts count only when they are
 * what their marks say, because a machine that lost power may have kept a mark and not the part. */
static bool table_load(struct local_file *file, const struct table_head *wanted)
{
    struct table_head head;
    struct stat stat;
    uint64_t table_size = sizeof(head) + marks_size(file);
    if (fstat(file->fd, &stat) < 0 || (uint64_t)stat.st_size != file->size + table_size ||
        local_read(file->fd, &head, sizeof(head), file->size) != (int64_t)sizeof(head) ||
        memcmp(&head, wanted, sizeof(head)) != 0 ||
        local_read(file->fd, file->marks, marks_size(file), file->size + sizeof(head)) !=
            (int64_t)marks_size(file)) {
        return false;
    }
    for (uint32_t i = 0; i < file->part_count; i++) {
        uint32_t crc;
        if (!local_part_is_present(file, i)) {
            continue;
        }
        if (local_crc32c(file->fd, i * file->part_size, local_part_size(file, i), &crc) == 0 &&
            crc == file->marks[i].crc32c) {
            file->present_at_open++;
        } else {
            file->marks[i] = (struct local_mark){0};
        }
    }
    return true;
}

/* Reserves the space at once, so that a full disk shows before the bytes have been fetched. */
static int table_make(struct local_file *file, const struct table_head *head)
{
    memset(file->marks, 0, marks_size(file));
    uint64_t size = file->size + sizeof(*head) + marks_size(file);
    if (ftruncate(file->fd, 0) < 0 || ftruncate(file->fd, (off_t)size) < 0) {
        return -errno;
    }
    if (fallocate(file->fd, 0, 0, (off_t)size) < 0 && errno != EOPNOTSUPP && errno != EINTR) {
        return -errno;
    }
    return write_at(file->fd, head, sizeof(*head), file->size);
}

int local_open_parts(struct local_file *file, const char *path, int64_t generation, uint64_t size,
                     uint64_t part_size)
{
    int rc = file_open(file, path);
    if (rc < 0) {
        return rc;
    }
    struct table_head head = {.generation = generation, .size = size, .part_size = part_size};
    memcpy(head.magic, table_magic, sizeof(head.magic));
    file->size = size;
    file->part_size = part_size;
    file->part_count = (uint32_t)((size + part_size - 1) / part_size);
    file->marks = calloc(file->part_count, sizeof(*file->marks));
    if (file->marks == NULL) {
        rc = -ENOMEM;
    } else if (!table_load(file, &head)) {
        rc = table_make(file, &head);
    }
    if (rc < 0) {
        local_discard(file);
    }
    return rc;
}

bool local_part_is_present(const struct local_file *file, uint32_t index)
{
    return file->marks[index].present == MARK_PRESENT;
}

uint64_t local_part_size(const struct local_file *file, uint32_t index)
{
    return RG_MIN(file->part_size, file->size - index * file->part_size);
}

int local_put_part(struct local_file *file, uint32_t index, const void *data, uint32_t crc32c)
{
    int rc = write_at(file->fd, data, local_part_size(file, index), index * file->part_size);
    if (rc < 0) {
        return rc;
    }
    struct local_mark mark = {.crc32c = crc32c, .present = MARK_PRESENT};
    file->marks[index] = mark;
    return write_at(file->fd, &mark, sizeof(mark),
                    file->size + sizeof(struct table_head) + index * sizeof(mark));
}

uint32_t local_parts_crc32c(const struct local_file *file)
{
    uint32_t crc = 0;
    for (uint32_t i = 0; i < file->part_count; i++) {
        crc = rg_crc32c_combine(crc, file->marks[i].crc32c, local_part_size(file, i));
    }
    return crc;
}

/* Where the file system knows no renameat2, a hard link refuses a name that is taken just as well.
 */
static int rename_to_free_name(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return -errno;
    }
    return link(from, to) == 0 && unlink(from) == 0 ? 0 : -errno;
}

int local_publish(struct local_file *file, bool keep_existing)
{
    int rc = 0;
    if (file->marks != NULL &&
        (ftruncate(file->fd, (off_t)file->size) < 0 || fsync(file->fd) < 0)) {
        rc = -errno;
    }
    if (rc == 0 && keep_existing) {
        rc = rename_to_free_name(file->temporary, file->path);
    } else if (rc == 0 && rename(file->temporary, file->path) < 0) {
        rc = -errno;
    }
    if (rc < 0) {
        local_discard(file);
    } else {
        file_close(file);
    }
    return rc;
}

void local_discard(struct local_file *file)
{
    unlink(file->temporary);
    file_close(file);
}

bool local_leave(struct local_file *file)
{
    for (uint32_t i = 0; file->marks != NULL && i < file->part_count; i++) {
        if (local_part_is_present(file, i)) {
            file_close(file);
            return true;
        }
    }
    local_discard(file);
    return false;
}
