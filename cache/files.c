/* See files.h. */
#include "cache/files.h"

#include "runtime/descriptor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ringest/gcs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NONCE_DIGITS ((size_t)2 * RG_CACHE_NONCE_SIZE)
#define OPEN_SUFFIX ".open"
#define SEALED_SUFFIX ".segment"
static_assert(2 * RG_CACHE_NONCE_SIZE + sizeof(SEALED_SUFFIX) == RG_CACHE_NAME_SIZE, "fits");

void rg_cache_name_write(const struct rg_cache_nonce *nonce, bool is_open,
                         char out[RG_CACHE_NAME_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < RG_CACHE_NONCE_SIZE; i++) {
        out[2 * i] = digits[nonce->bytes[i] >> 4];
        out[2 * i + 1] = digits[nonce->bytes[i] & 15];
    }
    strcpy(out + NONCE_DIGITS, is_open ? OPEN_SUFFIX : SEALED_SUFFIX);
}

static int digit_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool rg_cache_name_read(const char *name, struct rg_cache_nonce *out_nonce, bool *out_is_open)
{
    struct rg_cache_nonce nonce;
    for (size_t i = 0; i < NONCE_DIGITS; i += 2) {
        int high = digit_value(name[i]);
        int low = high < 0 ? -1 : digit_value(name[i + 1]);
        if (low < 0) {
            return false;
        }
        nonce.bytes[i / 2] = (uint8_t)(high << 4 | low);
    }
    bool is_open = strcmp(name + NONCE_DIGITS, OPEN_SUFFIX) == 0;
    if (!is_open && strcmp(name + NONCE_DIGITS, SEALED_SUFFIX) != 0) {
        return false;
    }
    *out_nonce = nonce;
    *out_is_open = is_open;
    return true;
}

void rg_cache_nonce_draw(struct rg_cache_nonce *out_nonce)
{
    ssize_t size = getrandom(out_nonce, sizeof(*out_nonce), 0);
    RG_ASSERT(size == (ssize_t)sizeof(*out_nonce));
}

void rg_cache_host(struct rg_cache_nonce *out_host)
{
    char text[64] = "";
    *out_host = (struct rg_cache_nonce){{0}};
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    ssize_t size = read(fd, text, sizeof(text));
    close(fd);
    for (size_t i = 0, digits = 0; size > 0 && i < (size_t)size && digits < NONCE_DIGITS; i++) {
        int value = digit_value(text[i]);
        if (value >= 0) {
            out_host->bytes[digits / 2] |= (uint8_t)(digits % 2 == 0 ? value << 4 : value);
            digits++;
        }
    }
}

static int folder_check(int fd, const char *path, char *why, size_t why_size)
{
    struct stat status;
    if (fstat(fd, &status) < 0) {
        snprintf(why, why_size, "%s cannot be looked at: %s", path, rg_error_text(errno));
        return -EIO;
    }
    if (status.st_uid != geteuid()) {
        snprintf(why, why_size,
                 "%s belongs to another user (%u), who could put other bytes there; name a folder "
                 "of your own",
                 path, (unsigned)status.st_uid);
        return -EPERM;
    }
    if ((status.st_mode & 022) != 0) {
        snprintf(why, why_size,
                 "%s has mode %04o: others may write to it, and could put other bytes there; take "
                 "that from them (chmod go-w)",
                 path, (unsigned)status.st_mode & 07777);
        return -EPERM;
    }
    return 0;
}

int rg_cache_folder_open(const char *path, bool make, char *why, size_t why_size)
{
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST) {
        int error = errno;
        snprintf(why, why_size, "%s cannot be made: %s", path, rg_error_text(error));
        return -error;
    }
    rg_fd_hold();
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd >= 0 ? rg_fd_track(fd) : -errno;
    rg_fd_release();
    if (rc < 0) {
        snprintf(why, why_size, "%s cannot be opened: %s", path, rg_error_text(-rc));
        return rc;
    }
    rc = folder_check(fd, path, why, why_size);
    if (rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    return fd;
}

/* False: it has vanished meanwhile, or is no file. */
static bool file_ask(int folder, const char *name, struct rg_cache_file *file)
{
    struct stat status;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(status.st_mode)) {
        return false;
    }
    file->size = (uint64_t)status.st_size;
    file->used_s = status.st_atim.tv_sec;
    file->written_s = status.st_mtim.tv_sec;
    return true;
}

static int files_add(struct rg_cache_files *files, const struct rg_cache_file *file)
{
    if (files->count == files->capacity) {
        size_t capacity = RG_MAX(2 * files->capacity, (size_t)64);
        void *more = realloc(files->files, capacity * sizeof(*files->files));
        if (more == NULL) {
            return -ENOMEM;
        }
        files->files = more;
        files->capacity = capacity;
    }
    files->files[files->count++] = *file;
    files->size += file->size;
    return 0;
}

static int name_compare(const void *a, const void *b)
{
    const struct rg_cache_file *left = a, *right = b;
    return memcmp(&left->nonce, &right->nonce, sizeof(left->nonce));
}

struct rg_cache_file *rg_cache_files_find(const struct rg_cache_files *files,
                                          const struct rg_cache_nonce *nonce)
{
    struct rg_cache_file wanted = {.nonce = *nonce};
    return files->count == 0
               ? NULL
               : bsearch(&wanted, files->files, files->count, sizeof(wanted), name_compare);
}

/* What is known of a sealed segment, which does not change. */
static bool file_recall(const struct rg_cache_files *known, struct rg_cache_file *file)
{
    const struct rg_cache_file *found = rg_cache_files_find(known, &file->nonce);
    bool is_known = found != NULL && !found->is_open && !file->is_open && found->size > 0;
    if (is_known) {
        *file = *found;
    }
    return is_known;
}

static int files_read(DIR *dir, int folder, const struct rg_cache_files *known,
                      struct rg_cache_files *out_files)
{
    struct dirent *entry;
    struct rg_cache_file file;
    int rc = 0;
    errno = 0;
    while (rc == 0 && (entry = readdir(dir)) != NULL) {
        if (rg_cache_name_read(entry->d_name, &file.nonce, &file.is_open) &&
            (file_recall(known, &file) || file_ask(folder, entry->d_name, &file))) {
            rc = files_add(out_files, &file);
        }
        errno = 0;
    }
    return rc == 0 ? -errno : rc;
}

static int files_replace(int folder, struct rg_cache_files *files,
                         const struct rg_cache_files *known)
{
    struct rg_cache_files found = {.count = 0};
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        close(fd);
        return -ENOMEM;
    }
    int rc = files_read(dir, folder, known, &found);
    closedir(dir);
    if (rc < 0) {
        rg_cache_files_fini(&found);
        return rc;
    }
    if (found.count > 0) {
        qsort(found.files, found.count, sizeof(*found.files), name_compare);
    }
    rg_cache_files_fini(files);
    *files = found;
    return 0;
}

int rg_cache_files_list(int folder, struct rg_cache_files *files)
{
    static const struct rg_cache_files none;
    return files_replace(folder, files, &none);
}

int rg_cache_files_update(int folder, struct rg_cache_files *files)
{
    return files_replace(folder, files, files);
}

void rg_cache_files_fini(struct rg_cache_files *files)
{
    free(files->files);
    *files = (struct rg_cache_files){0};
}

static int file_open(int folder, const char *name, int flags)
{
    rg_fd_hold();
    int fd = openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int rc = fd >= 0 ? rg_fd_track(fd) : -errno;
    rg_fd_release();
    return rc;
}

/* 0, or as rg_cache_head_read. */
static int head_check(int fd, const struct rg_cache_nonce *nonce, struct rg_cache_head *out_head)
{
    uint8_t bytes[RG_CACHE_UNIT];
    struct stat status;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
        return -EPERM;
    }
    ssize_t size = pread(fd, bytes, sizeof(bytes), 0);
    if (size < 0) {
        return -errno;
    }
    int rc = rg_cache_head_read(bytes, (size_t)size, out_head);
    return rc == 0 && memcmp(&out_head->nonce, nonce, sizeof(*nonce)) != 0 ? -EBADMSG : rc;
}

int rg_cache_file_open(int folder, const struct rg_cache_nonce *nonce, int flags)
{
    char name[RG_CACHE_NAME_SIZE];
    struct rg_cache_head head;
    rg_cache_name_write(nonce, false, name);
    int fd = file_open(folder, name, O_RDONLY | flags);
    if (fd == -ENOENT) {
        rg_cache_name_write(nonce, true, name);
        fd = file_open(folder, name, O_RDONLY | flags);
    }
    int rc = fd < 0 || flags != 0 ? fd : head_check(fd, nonce, &head);
    if (rc < 0) {
        rg_fd_drop(fd);
        return rc;
    }
    return fd;
}

/* All of it: 0, or -EBADMSG where the file ends before, or a negative errno. */
static int read_all(int fd, void *data, size_t size, uint64_t offset)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, (uint8_t *)data + done, size - done, (off_t)(offset + done));
        if (got <= 0) {
            return got < 0 ? -errno : -EBADMSG;
        }
        done += (size_t)got;
    }
    return 0;
}

/* 0 and the table that a sealed segment ends with; -EBADMSG: it has none that is right. */
static int table_read(int fd, const struct rg_cache_nonce *nonce,
                      struct rg_cache_content **out_contents, uint32_t *out_count)
{
    struct stat status;
    struct rg_cache_trailer trailer;
    uint8_t bytes[RG_CACHE_TRAILER_SIZE];
    if (fstat(fd, &status) < 0) {
        return -errno;
    }
    uint64_t size = (uint64_t)status.st_size;
    int rc =
        size < sizeof(bytes) ? -EBADMSG : read_all(fd, bytes, sizeof(bytes), size - sizeof(bytes));
    rc = rc == 0 ? rg_cache_trailer_read(bytes, nonce, size, &trailer) : rc;
    if (rc < 0) {
        return rc;
    }
    size_t table_size = trailer.count * sizeof(struct rg_cache_content);
    struct rg_cache_content *table = malloc(RG_MAX(table_size, (size_t)1));
    if (table == NULL) {
        return -ENOMEM;
    }
    rc = read_all(fd, table, table_size, trailer.table_offset);
    rc = rc == 0 ? rg_cache_table_check(&trailer, table) : rc;
    if (rc < 0) {
        free(table);
        return rc;
    }
    *out_contents = table;
    *out_count = trailer.count;
    return 0;
}

/* Records found one behind the other. */
struct walk {
    int fd;
    struct rg_cache_content *contents;
    uint32_t count, capacity;
};

static int content_add(struct walk *walk, const struct rg_cache_content *content)
{
    if (walk->count == walk->capacity) {
        uint32_t capacity = RG_MAX(2 * walk->capacity, 256U);
        void *more = realloc(walk->contents, capacity * sizeof(*content));
        if (more == NULL) {
            return -ENOMEM;
        }
        walk->contents = more;
        walk->capacity = capacity;
    }
    walk->contents[walk->count++] = *content;
    return 0;
}

/* Of the record at `offset`: its size rounded up; 0: there is none. Or a negative errno. */
static int64_t record_step(struct walk *walk, uint64_t offset)
{
    uint8_t bytes[RG_CACHE_HEADER_SIZE_MAX];
    struct rg_cache_key key;
    struct rg_cache_record record;
    struct rg_cache_content content = {.place = (uint32_t)(offset / RG_CACHE_UNIT)};
    ssize_t got = pread(walk->fd, bytes, sizeof(bytes), (off_t)offset);
    if (got < 0) {
        return -errno;
    }
    if (rg_cache_header_read(bytes, (size_t)got, &key, &record, &content.hash) < 0) {
        return 0;
    }
    content.size = record.header_size + record.body_size;
    int rc = content_add(walk, &content);
    return rc < 0 ? rc : (int64_t)rg_cache_round_up(content.size, RG_CACHE_UNIT);
}

/* A record lies behind the one before it, or where the next batch began. */
static int walk_all(struct walk *walk)
{
    uint64_t offset = RG_CACHE_HEAD_SIZE;
    while (offset < RG_CACHE_SEGMENT_SIZE_MAX + RG_MIB(8)) {
        int64_t step = record_step(walk, offset);
        if (step == 0 && offset % RG_CACHE_ALIGNMENT != 0) {
            offset = rg_cache_round_up(offset, RG_CACHE_ALIGNMENT);
            step = record_step(walk, offset);
        }
        if (step <= 0) {
            return (int)step;
        }
        offset += (uint64_t)step;
    }
    return 0;
}

int rg_cache_file_contents(int fd, const struct rg_cache_nonce *nonce,
                           struct rg_cache_content **out_contents, uint32_t *out_count)
{
    int rc = table_read(fd, nonce, out_contents, out_count);
    if (rc != -EBADMSG) {
        return rc;
    }
    struct walk walk = {.fd = fd};
    rc = walk_all(&walk);
    if (rc < 0) {
        free(walk.contents);
        return rc;
    }
    *out_contents = walk.contents;
    *out_count = walk.count;
    return 0;
}

int rg_cache_file_remove(int folder, const struct rg_cache_file *file)
{
    char name[RG_CACHE_NAME_SIZE];
    struct rg_cache_head head;
    rg_cache_name_write(&file->nonce, file->is_open, name);
    int fd = file_open(folder, name, O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    int rc = head_check(fd, &file->nonce, &head);
    rg_fd_drop(fd);
    /* A newer version's head begins alike. */
    if (rc < 0 && rc != -EPROTONOSUPPORT) {
        return -EPERM;
    }
    return unlinkat(folder, name, 0) == 0 ? 0 : -errno;
}

static int write_all(int fd, const void *data, size_t size, uint64_t offset)
{
    for (size_t done = 0; done < size;) {
        ssize_t put = pwrite(fd, (const uint8_t *)data + done, size - done, (off_t)(offset + done));
        if (put <= 0) {
            return put < 0 ? -errno : -EIO;
        }
        done += (size_t)put;
    }
    return 0;
}

/* The table and the trailer as the file ends with them, in memory for a direct write. The caller
 * frees it; NULL: there is none. */
static uint8_t *end_make(const struct rg_cache_nonce *nonce, uint64_t end,
                         const struct rg_cache_content *contents, uint32_t count, size_t *out_size)
{
    size_t table_size = count * sizeof(*contents);
    size_t size = rg_cache_round_up(table_size + RG_CACHE_TRAILER_SIZE, RG_CACHE_ALIGNMENT);
    uint8_t *bytes = aligned_alloc(RG_CACHE_ALIGNMENT, size);
    if (bytes == NULL) {
        return NULL;
    }
    struct rg_cache_trailer trailer = {
        .table_offset = end,
        .count = count,
        .table_crc = rg_crc32c(0, contents, table_size),
    };
    memset(bytes, 0, size);
    if (count > 0) {
        memcpy(bytes, contents, table_size);
    }
    rg_cache_trailer_write(&trailer, nonce, bytes + size - RG_CACHE_TRAILER_SIZE);
    *out_size = size;
    return bytes;
}

int rg_cache_file_seal(int folder, int fd, const struct rg_cache_nonce *nonce, uint64_t end,
                       const struct rg_cache_content *contents, uint32_t count)
{
    RG_ASSERT(end % RG_CACHE_ALIGNMENT == 0);
    char open_name[RG_CACHE_NAME_SIZE], sealed_name[RG_CACHE_NAME_SIZE];
    size_t size = 0;
    uint8_t *bytes = end_make(nonce, end, contents, count, &size);
    if (bytes == NULL) {
        return -ENOMEM;
    }
    /* On a full disk without a table: then the records are found by walking. */
    size = write_all(fd, bytes, size, end) == 0 ? size : 0;
    free(bytes);
    int rc = ftruncate(fd, (off_t)(end + size)) == 0 ? 0 : -errno;
    rg_cache_name_write(nonce, true, open_name);
    rg_cache_name_write(nonce, false, sealed_name);
    if (rc == 0 && renameat(folder, open_name, folder, sealed_name) < 0) {
        rc = -errno;
    }
    return rc;
}

bool rg_cache_file_lock(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

static bool is_old(const struct rg_cache_file *file)
{
    int64_t patience_s = (int64_t)(RG_CACHE_ORPHAN_NS / RG_NS_PER_S);
    return file->written_s < (int64_t)time(NULL) - patience_s;
}

static bool is_same(const struct rg_cache_nonce *a, const struct rg_cache_nonce *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static const struct rg_cache_content *last_record(const struct rg_cache_content *contents,
                                                  uint32_t count)
{
    while (count > 0 && rg_cache_content_is_note(&contents[count - 1])) {
        count--;
    }
    return count > 0 ? &contents[count - 1] : NULL;
}

/* Gives it a table of what is there, or removes it where that is nothing. */
static void orphan_settle(int folder, int fd, const struct rg_cache_file *file)
{
    struct rg_cache_content *contents = NULL;
    uint32_t count = 0;
    int rc = rg_cache_file_contents(fd, &file->nonce, &contents, &count);
    const struct rg_cache_content *last = rc == 0 ? last_record(contents, count) : NULL;
    if (last != NULL) {
        uint64_t end = (uint64_t)last->place * RG_CACHE_UNIT + last->size;
        rc = rg_cache_file_seal(folder, fd, &file->nonce,
                                rg_cache_round_up(end, RG_CACHE_ALIGNMENT), contents, count);
    }
    if (rc < 0 || last == NULL) {
        (void)rg_cache_file_remove(folder, file);
    }
    free(contents);
}

bool rg_cache_file_adopt(int folder, const struct rg_cache_file *file,
                         const struct rg_cache_nonce *host)
{
    static const struct rg_cache_nonce unknown;
    char name[RG_CACHE_NAME_SIZE];
    struct rg_cache_head head;
    RG_ASSERT(file->is_open);
    rg_cache_name_write(&file->nonce, true, name);
    int fd = file_open(folder, name, O_RDWR);
    if (fd < 0) {
        return false;
    }
    int rc = head_check(fd, &file->nonce, &head);
    bool orphan = false;
    if (rc == 0 && is_same(&head.host, host) && !is_same(host, &unknown)) {
        orphan = rg_cache_file_lock(fd);
        if (orphan) {
            orphan_settle(folder, fd, file);
        }
    } else if (is_old(file) && (rc == 0 || rc == -EPROTONOSUPPORT || file->size == 0)) {
        /* Its writer may only sleep, so that nothing is written to it. */
        orphan = unlinkat(folder, name, 0) == 0;
    }
    rg_fd_drop(fd);
    return orphan;
}
