/* Written objects as files, one folder for each bucket, named by file_name.h.
 *
 * The generation of an object is the modification time of its file in microseconds, set before the
 * file gets its name, so that a restart and a file that was put there by hand need nothing else.
 * The rest (checksum, content type) lies in a record named after the object and its generation,
 * .ringest/PATH%gGENERATION. Extended attributes would do without a second file, but tmpfs before
 * Linux 6.6 and many network file systems have none.
 *
 * A write: bytes into .ringest/%t… -> the record of the new generation -> rename over the object,
 * which is the moment of the change -> the old record is removed. A process that dies in between
 * leaves the old object with its record, or the new one with its own. Nothing is synced: this is
 * for tests, and what a power failure leaves is up to the file system.
 *
 * One process serves a root folder at a time. */
#include "emulator/backend.h"
#include "emulator/checksum.h"
#include "emulator/file_name.h"
#include "emulator/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define READ_SIZE RG_KIB(64)
#define RECORD_SIZE_MAX 512
/* A listing sees files that were put there by hand after this long at the latest. */
#define SNAPSHOT_AGE_MAX_NS RG_NS_PER_S
/* How often a version may be replaced between opening it and reading its record. */
#define OPEN_ATTEMPTS_MAX 100
/* ".ringest/", a path, "%g" and a generation. */
#define RECORD_PATH_MAX (RG_FILE_PATH_MAX + 40)
#define RECORD_FORMAT                                                                              \
    "crc32c %08" PRIx32 "\nsize %" PRIu64 "\nmetageneration %" PRId64 "\ncontent-type %s\n"        \
    "content-encoding %s\n"

struct name_place {
    size_t offset;
    uint32_t size;
};

/* The names in a bucket, sorted, so that listing page after page reads the folders once. */
struct snapshot {
    struct rg_text names;      /* One after the other. */
    struct name_place *sorted; /* In `names`. */
    size_t count, capacity;
    uint64_t change_count, taken_ns; /* Of which state it is. */
    bool taken;
};

struct disk_bucket {
    int fd;
    _Atomic uint64_t change_count; /* Our own writes and removals. */
    _Atomic uint64_t temporary_count;
    pthread_mutex_t snapshot_lock;
    struct snapshot snapshot;
};

struct disk_file {
    int fd;
    uint8_t buffer[READ_SIZE];
};

struct temporary {
    char path[64];
    int fd;
};

struct disk_writer {
    struct disk_bucket *bucket;
    struct temporary file;
};

static int64_t generation_of(const struct stat *status)
{
    int64_t generation = (int64_t)status->st_mtim.tv_sec * 1000000 + status->st_mtim.tv_nsec / 1000;
    return RG_MAX(generation, INT64_C(1)); /* 0 would mean that there is no object. */
}

/* Opens the file at exactly this path, -ENOENT when there is none or it is not a regular file.
 * O_NONBLOCK: a FIFO that somebody put there must not stop the loop. */
static int open_regular(const struct disk_bucket *bucket, const char *path, struct stat *out_status)
{
    int fd = openat(bucket->fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return errno == ENOTDIR || errno == ELOOP || errno == ENXIO ? -ENOENT : -errno;
    }
    if (fstat(fd, out_status) < 0 || !S_ISREG(out_status->st_mode)) {
        close(fd);
        return -ENOENT;
    }
    return fd;
}

/* Where the file of an object lies while a folder of the plain name is there. */
static void aside_path(char out[RECORD_PATH_MAX], const char *path, size_t path_size)
{
    int size = snprintf(out, RECORD_PATH_MAX, "%.*s%s", (int)path_size, path, RG_FILE_NAME_ASIDE);
    RG_ASSERT(size > 0 && size < RECORD_PATH_MAX);
}

static int open_file(const struct disk_bucket *bucket, const char *path, struct stat *out_status)
{
    int fd = open_regular(bucket, path, out_status);
    if (fd != -ENOENT) {
        return fd;
    }
    char aside[RECORD_PATH_MAX];
    aside_path(aside, path, strlen(path));
    return open_regular(bucket, aside, out_status);
}

static void record_path(char out[RECORD_PATH_MAX], const char *path, int64_t generation)
{
    int size =
        snprintf(out, RECORD_PATH_MAX, RG_FILE_NAME_PRIVATE "/%s%%g%" PRId64, path, generation);
    RG_ASSERT(size > 0 && size < RECORD_PATH_MAX);
}

/* -ENOENT also when what lies there does not describe a file of that size. */
static int read_record(const struct disk_bucket *bucket, const char *path,
                       struct rg_store_object_info *info)
{
    char name[RECORD_PATH_MAX], text[RECORD_SIZE_MAX + 1];
    record_path(name, path, info->generation);
    int fd = openat(bucket->fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -ENOENT;
    }
    ssize_t text_size = read(fd, text, RECORD_SIZE_MAX);
    close(fd);
    text[RG_MAX(text_size, 0)] = '\0';
    struct rg_store_object_info found = *info;
    int count = sscanf(text,
                       "crc32c %" SCNx32 "\nsize %" SCNu64 "\nmetageneration %" SCNd64
                       "\ncontent-type %127[^\n]\ncontent-encoding %31[^\n]\n",
                       &found.crc32c, &found.size, &found.metageneration, found.content_type,
                       found.content_encoding);
    struct rg_h1_slice type = rg_text_slice(found.content_type);
    struct rg_h1_slice encoding = rg_text_slice(found.content_encoding);
    if (count < 4 || found.size != info->size ||
        !rg_store_attribute_valid(type, RG_STORE_CONTENT_TYPE_SIZE_MAX) ||
        (count > 4 && !rg_store_attribute_valid(encoding, RG_STORE_CONTENT_ENCODING_SIZE_MAX))) {
        return -ENOENT;
    }
    found.has_crc32c = true;
    *info = found;
    return 0;
}

/* Makes the folders above `path`. A file where a folder has to be gives way. */
static int make_parents(const struct disk_bucket *bucket, const char *path)
{
    char folder[RECORD_PATH_MAX], aside[RECORD_PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        if (mkdirat(bucket->fd, folder, 0777) == 0) {
            continue;
        }
        struct stat status;
        if (errno != EEXIST || fstatat(bucket->fd, folder, &status, 0) < 0) {
            return -errno;
        }
        if (S_ISDIR(status.st_mode)) {
            continue;
        }
        aside_path(aside, path, (size_t)(slash - path));
        if (renameat(bucket->fd, folder, bucket->fd, aside) < 0 ||
            mkdirat(bucket->fd, folder, 0777) < 0) {
            return -errno;
        }
    }
    return 0;
}

/* Removes the folders above `path` that are empty now; never our own, where writers that hold no
 * lock make their temporary files. */
static void remove_parents(const struct disk_bucket *bucket, const char *path)
{
    char folder[RECORD_PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *slash = strrchr(folder, '/'); slash != NULL; slash = strrchr(folder, '/')) {
        *slash = '\0';
        if (strcmp(folder, RG_FILE_NAME_PRIVATE) == 0 ||
            unlinkat(bucket->fd, folder, AT_REMOVEDIR) < 0) {
            return;
        }
    }
}

static int make_temporary(struct disk_bucket *bucket, struct temporary *out)
{
    snprintf(out->path, sizeof(out->path), RG_FILE_NAME_PRIVATE "/%%t%" PRIu64,
             atomic_fetch_add(&bucket->temporary_count, 1));
    int rc = make_parents(bucket, out->path);
    if (rc < 0) {
        return rc;
    }
    out->fd = openat(bucket->fd, out->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return out->fd < 0 ? -errno : 0;
}

static void drop_temporary(struct disk_bucket *bucket, struct temporary *file)
{
    close(file->fd);
    unlinkat(bucket->fd, file->path, 0);
}

static int write_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t count = write(fd, data, size);
        if (count < 0 && errno != EINTR) {
            return -errno;
        }
        count = RG_MAX(count, 0);
        data += count;
        size -= (size_t)count;
    }
    return 0;
}

static int write_record(struct disk_bucket *bucket, const char *path,
                        const struct rg_store_object_info *info)
{
    char name[RECORD_PATH_MAX], text[RECORD_SIZE_MAX];
    record_path(name, path, info->generation);
    int size = snprintf(text, sizeof(text), RECORD_FORMAT, info->crc32c, info->size,
                        info->metageneration, info->content_type, info->content_encoding);
    RG_ASSERT(size > 0 && (size_t)size < sizeof(text));
    struct temporary file;
    int rc = make_temporary(bucket, &file);
    if (rc < 0) {
        return rc;
    }
    rc = write_all(file.fd, (const uint8_t *)text, (size_t)size);
    rc = rc == 0 ? make_parents(bucket, name) : rc;
    if (rc == 0 && renameat(bucket->fd, file.path, bucket->fd, name) < 0) {
        rc = -errno;
    }
    if (rc < 0) {
        drop_temporary(bucket, &file);
        return rc;
    }
    close(file.fd);
    return 0;
}

static void remove_record(struct disk_bucket *bucket, const char *path, int64_t generation)
{
    char name[RECORD_PATH_MAX];
    record_path(name, path, generation);
    unlinkat(bucket->fd, name, 0);
    remove_parents(bucket, name);
}

/* Opens the object's file and says what is known of it. `has_crc32c` stays false for one that was
 * put there by hand and never read. The record of a version that is being replaced may be gone a
 * moment before we look: then the file is another one, too. */
static int open_version(const struct disk_bucket *bucket, const char *path,
                        struct rg_store_object_info *out_info)
{
    struct stat status = {0}, before = {0};
    for (int attempt = 0; attempt < OPEN_ATTEMPTS_MAX; attempt++) {
        int fd = open_file(bucket, path, &status);
        if (fd < 0) {
            return fd;
        }
        *out_info = (struct rg_store_object_info){
            .size = (uint64_t)status.st_size,
            .generation = generation_of(&status),
            .metageneration = 1,
            .updated_us = generation_of(&status),
            .content_type = "application/octet-stream",
        };
        bool same = attempt > 0 && before.st_ino == status.st_ino &&
                    before.st_dev == status.st_dev &&
                    generation_of(&before) == out_info->generation;
        if (read_record(bucket, path, out_info) == 0 || same) {
            return fd;
        }
        before = status;
        close(fd);
    }
    return -EBUSY;
}

static size_t file_read(struct rg_store_object *object, uint64_t offset, const uint8_t **out_data)
{
    struct disk_file *file = object->owner;
    size_t wanted = (size_t)RG_MIN(object->info.size - offset, (uint64_t)READ_SIZE);
    ssize_t count = pread(file->fd, file->buffer, wanted, (off_t)offset);
    if (count <= 0) {
        /* Somebody made the file shorter while it is being sent, or the disk fails. The head is
         * out, so the rest has to come; that it is wrong shows in the checksum. */
        memset(file->buffer, 0, wanted);
        count = (ssize_t)wanted;
    }
    *out_data = file->buffer;
    return (size_t)count;
}

static void file_close(struct rg_store_object *object)
{
    struct disk_file *file = object->owner;
    close(file->fd);
    free(file);
}

static const struct rg_store_object_type file_type = {.read = file_read, .close = file_close};

static uint32_t object_crc32c(struct rg_store_object *object)
{
    uint32_t crc = 0;
    const uint8_t *data;
    for (uint64_t offset = 0; offset < object->info.size;) {
        size_t size = file_read(object, offset, &data);
        crc = rg_checksum_extend(crc, data, size);
        offset += size;
    }
    return crc;
}

static int disk_open(void *self, struct rg_h1_slice name, struct rg_store_object *out_object)
{
    struct disk_bucket *bucket = self;
    char path[RG_FILE_PATH_MAX];
    rg_file_name_encode(name, path);
    struct disk_file *file = malloc(sizeof(*file));
    if (file == NULL) {
        return -ENOMEM;
    }
    struct rg_store_object object = {.type = &file_type, .owner = file};
    file->fd = open_version(bucket, path, &object.info);
    if (file->fd < 0) {
        int rc = file->fd;
        free(file);
        return rc;
    }
    if (!object.info.has_crc32c) {
        object.info.crc32c = object_crc32c(&object);
        object.info.has_crc32c = true;
        /* Where we may not write, each read computes it again. */
        (void)write_record(bucket, path, &object.info);
    }
    *out_object = object;
    return 0;
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * RG_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void snapshot_fini(struct snapshot *snapshot)
{
    rg_text_fini(&snapshot->names);
    free(snapshot->sorted);
    *snapshot = (struct snapshot){0};
}

static struct rg_h1_slice name_at(const struct rg_text *names, const struct name_place *place)
{
    return (struct rg_h1_slice){names->data + place->offset, place->size};
}

static int snapshot_add(struct snapshot *snapshot, const char *path)
{
    char name[RG_STORE_NAME_SIZE_MAX];
    int size = rg_file_name_decode(path, name);
    if (size < 0) {
        return 0;
    }
    if (snapshot->count == snapshot->capacity) {
        size_t capacity = RG_MAX(snapshot->capacity * 2, (size_t)1024);
        struct name_place *sorted =
            reallocarray(snapshot->sorted, capacity, sizeof(*snapshot->sorted));
        if (sorted == NULL) {
            return -ENOMEM;
        }
        snapshot->sorted = sorted;
        snapshot->capacity = capacity;
    }
    snapshot->sorted[snapshot->count++] =
        (struct name_place){.offset = snapshot->names.size, .size = (uint32_t)size};
    rg_text_append(&snapshot->names, name, (size_t)size);
    return snapshot->names.failed ? -ENOMEM : 0;
}

static bool entry_is_folder(int folder_fd, const struct dirent *entry)
{
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK) {
        return entry->d_type == DT_DIR;
    }
    struct stat status;
    return fstatat(folder_fd, entry->d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
}

/* Adds what lies in one folder: files to the snapshot, folders to `pending` (paths with a NUL). */
static int scan_folder(struct snapshot *snapshot, const struct disk_bucket *bucket,
                       const char *folder, struct rg_text *pending)
{
    int fd =
        openat(bucket->fd, folder[0] != '\0' ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        int rc = -errno;
        if (fd >= 0) {
            close(fd);
        }
        /* Removed meanwhile, or a loop of links. */
        return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP || rc == -EACCES ? 0 : rc;
    }
    int rc = 0;
    char path[RG_FILE_PATH_MAX];
    for (struct dirent *entry = readdir(dir); entry != NULL && rc == 0; entry = readdir(dir)) {
        int size = snprintf(path, sizeof(path), "%s%s%s", folder, folder[0] != '\0' ? "/" : "",
                            entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            strcmp(path, RG_FILE_NAME_PRIVATE) == 0 || (size_t)size >= sizeof(path)) {
            continue;
        }
        if (entry_is_folder(fd, entry)) {
            rg_text_append(pending, path, (size_t)size + 1);
            rc = pending->failed ? -ENOMEM : 0;
        } else {
            rc = snapshot_add(snapshot, path);
        }
    }
    closedir(dir);
    return rc;
}

static int compare_places(const void *a, const void *b, void *names)
{
    return rg_text_compare(name_at(names, a), name_at(names, b));
}

static int snapshot_take(struct snapshot *snapshot, struct disk_bucket *bucket)
{
    snapshot_fini(snapshot);
    snapshot->change_count = atomic_load(&bucket->change_count);
    snapshot->taken_ns = monotonic_ns();
    struct rg_text pending = {0};
    rg_text_append(&pending, "", 1);
    int rc = pending.failed ? -ENOMEM : 0;
    for (size_t at = 0; at < pending.size && rc == 0;) {
        /* `pending` moves when it grows. */
        char folder[RG_FILE_PATH_MAX];
        size_t size = strlen(pending.data + at) + 1;
        memcpy(folder, pending.data + at, size);
        at += size;
        rc = scan_folder(snapshot, bucket, folder, &pending);
    }
    rg_text_fini(&pending);
    if (rc < 0) {
        snapshot_fini(snapshot);
        return rc;
    }
    if (snapshot->count > 0) {
        qsort_r(snapshot->sorted, snapshot->count, sizeof(*snapshot->sorted), compare_places,
                &snapshot->names);
    }
    snapshot->taken = true;
    return 0;
}

/* Copies the first name at or behind `from` into `entry`. */
static int snapshot_find(const struct snapshot *snapshot, struct rg_h1_slice from,
                         struct rg_store_entry *entry)
{
    size_t low = 0, high = snapshot->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rg_text_compare(name_at(&snapshot->names, &snapshot->sorted[middle]), from) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == snapshot->count) {
        return -ENOENT;
    }
    struct rg_h1_slice name = name_at(&snapshot->names, &snapshot->sorted[low]);
    memcpy(entry->name, name.data, name.size);
    entry->name_size = name.size;
    return 0;
}

static int next_name(struct disk_bucket *bucket, struct rg_h1_slice from,
                     struct rg_store_entry *entry)
{
    pthread_mutex_lock(&bucket->snapshot_lock);
    struct snapshot *snapshot = &bucket->snapshot;
    int rc = 0;
    if (!snapshot->taken || snapshot->change_count != atomic_load(&bucket->change_count) ||
        monotonic_ns() - snapshot->taken_ns > SNAPSHOT_AGE_MAX_NS) {
        rc = snapshot_take(snapshot, bucket);
    }
    rc = rc == 0 ? snapshot_find(snapshot, from, entry) : rc;
    pthread_mutex_unlock(&bucket->snapshot_lock);
    return rc;
}

static int disk_seek(void *self, struct rg_h1_slice from, struct rg_store_entry *out_entry)
{
    struct disk_bucket *bucket = self;
    char start[RG_STORE_NAME_SIZE_MAX + 1], path[RG_FILE_PATH_MAX];
    for (;;) {
        int rc = next_name(bucket, from, out_entry);
        if (rc < 0) {
            return rc;
        }
        struct rg_h1_slice name = {out_entry->name, out_entry->name_size};
        rg_file_name_encode(name, path);
        int fd = open_version(bucket, path, &out_entry->info);
        if (fd >= 0) {
            close(fd);
            return 0;
        }
        if (fd != -ENOENT && fd != -EACCES) {
            return fd;
        }
        /* Gone since the snapshot: go on behind it. */
        memcpy(start, name.data, name.size);
        start[name.size] = '\0';
        from = (struct rg_h1_slice){start, name.size + 1};
    }
}

static int disk_begin(void *self, uint64_t size_hint, void **out_writer)
{
    (void)size_hint;
    struct disk_writer *writer = malloc(sizeof(*writer));
    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->bucket = self;
    int rc = make_temporary(writer->bucket, &writer->file);
    if (rc < 0) {
        free(writer);
        return rc;
    }
    *out_writer = writer;
    return 0;
}

static int disk_append(void *self, const void *data, size_t size)
{
    struct disk_writer *writer = self;
    return write_all(writer->file.fd, data, size);
}

static void disk_abort(void *self)
{
    struct disk_writer *writer = self;
    drop_temporary(writer->bucket, &writer->file);
    free(writer);
}

/* Dates the file, and says which generation the file system made of it. */
static int set_generation(int fd, struct rg_store_object_info *info)
{
    struct timespec time = {.tv_sec = (time_t)(info->generation / 1000000),
                            .tv_nsec = info->generation % 1000000 * 1000};
    struct timespec times[2] = {time, time};
    struct stat status;
    if (futimens(fd, times) < 0 || fstat(fd, &status) < 0) {
        return -errno;
    }
    info->generation = generation_of(&status);
    info->updated_us = info->generation;
    return 0;
}

/* Gives the file its name: the plain one, unless a folder is there. */
static int rename_into_place(struct disk_bucket *bucket, const char *temporary, const char *path)
{
    char aside[RECORD_PATH_MAX];
    aside_path(aside, path, strlen(path));
    int rc = make_parents(bucket, path);
    if (rc < 0) {
        return rc;
    }
    if (renameat(bucket->fd, temporary, bucket->fd, path) == 0) {
        /* From a time when there was a folder of the plain name. */
        unlinkat(bucket->fd, aside, 0);
        return 0;
    }
    if (errno == EISDIR && renameat(bucket->fd, temporary, bucket->fd, aside) == 0) {
        return 0;
    }
    return -errno;
}

/* The generation of what is there; 0 for nothing. */
static int64_t current_generation(const struct disk_bucket *bucket, const char *path)
{
    struct stat status;
    int fd = open_file(bucket, path, &status);
    if (fd < 0) {
        return 0;
    }
    close(fd);
    return generation_of(&status);
}

static int disk_commit(void *self, struct rg_h1_slice name, struct rg_store_object_info *info)
{
    struct disk_writer *writer = self;
    struct disk_bucket *bucket = writer->bucket;
    char path[RG_FILE_PATH_MAX];
    rg_file_name_encode(name, path);
    int64_t replaced = current_generation(bucket, path);
    info->generation = RG_MAX(info->generation, replaced + 1);
    int rc = set_generation(writer->file.fd, info);
    rc = rc == 0 ? write_record(bucket, path, info) : rc;
    if (rc < 0) {
        disk_abort(writer);
        return rc;
    }
    rc = rename_into_place(bucket, writer->file.path, path);
    if (rc < 0) {
        remove_record(bucket, path, info->generation);
        disk_abort(writer);
        return rc;
    }
    if (replaced != 0 && replaced != info->generation) {
        remove_record(bucket, path, replaced);
    }
    atomic_fetch_add(&bucket->change_count, 1);
    close(writer->file.fd);
    free(writer);
    return 0;
}

static int disk_remove(void *self, struct rg_h1_slice name)
{
    struct disk_bucket *bucket = self;
    char path[RG_FILE_PATH_MAX], aside[RECORD_PATH_MAX];
    aside_path(aside, path, rg_file_name_encode(name, path));
    int64_t generation = current_generation(bucket, path);
    if (generation == 0) {
        return -ENOENT;
    }
    bool plain_gone = unlinkat(bucket->fd, path, 0) == 0;
    int plain_errno = errno;
    bool aside_gone = unlinkat(bucket->fd, aside, 0) == 0;
    if (!plain_gone && !aside_gone) {
        return plain_errno == EISDIR ? -errno : -plain_errno;
    }
    remove_record(bucket, path, generation);
    remove_parents(bucket, path);
    atomic_fetch_add(&bucket->change_count, 1);
    return 0;
}

/* What a process that died while writing left behind. */
static void remove_temporaries(const struct disk_bucket *bucket)
{
    int fd = openat(bucket->fd, RG_FILE_NAME_PRIVATE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strncmp(entry->d_name, "%t", 2) == 0) {
            unlinkat(fd, entry->d_name, 0);
        }
    }
    closedir(dir);
}

int rg_disk_bucket_open(void **out_bucket, int root_fd, struct rg_h1_slice name, bool create)
{
    char folder[RG_STORE_BUCKET_NAME_SIZE_MAX + 1];
    RG_ASSERT(name.size < sizeof(folder));
    memcpy(folder, name.data, name.size);
    folder[name.size] = '\0';
    if (create && mkdirat(root_fd, folder, 0777) < 0 && errno != EEXIST) {
        return -errno;
    }
    struct disk_bucket *bucket = calloc(1, sizeof(*bucket));
    if (bucket == NULL) {
        return -ENOMEM;
    }
    bucket->fd = openat(root_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (bucket->fd < 0) {
        int rc = errno == ENOTDIR ? -ENOENT : -errno;
        free(bucket);
        return rc;
    }
    pthread_mutex_init(&bucket->snapshot_lock, NULL);
    remove_temporaries(bucket);
    *out_bucket = bucket;
    return 0;
}

static void disk_close(void *self)
{
    struct disk_bucket *bucket = self;
    close(bucket->fd);
    snapshot_fini(&bucket->snapshot);
    pthread_mutex_destroy(&bucket->snapshot_lock);
    free(bucket);
}

const struct rg_store_backend rg_disk_backend = {
    .open = disk_open,
    .seek = disk_seek,
    .begin = disk_begin,
    .append = disk_append,
    .commit = disk_commit,
    .abort = disk_abort,
    .remove = disk_remove,
    .close = disk_close,
};
