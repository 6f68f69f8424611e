/* Written objects as files, one folder for each bucket, named by file_name.h.
 *
 * The generation of an object is the modification time of its file in microseconds, set before the
 * file gets its name, so that a restart and a file that was put there by hand need nothing else.
 * The rest (checksums, content type, metadata) lies in a record named after the object and its
 * generation, .ringest/PATH%gGENERATION. Extended attributes would do without a second file, but
 * tmpfs before Linux 6.6 and many network file systems have none. The bytes of a noncurrent version
 * are .ringest/PATH%vGENERATION. .ringest/%bucket describes the bucket, .ringest/%folders is the
 * log of its folders.
 *
 * A write: bytes into .ringest/%t… -> the record of the new generation -> rename over the object,
 * which is the moment of the change -> the old record is removed. A process that dies in between
 * leaves the old object with its record, or the new one with its own. A version that is kept gets
 * its second name before that; while it is the live one, the second name does not count. Nothing is
 * synced: this is for tests, and what a power failure leaves is up to the file system.
 *
 * One process serves a root folder at a time. */
#include "emulator/backend.h"
#include "emulator/checksum.h"
#include "emulator/clock.h"
#include "emulator/file_name.h"
#include "emulator/text.h"
#include "http/url.h"
#include "runtime/bytes.h"

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
/* Attributes take up to three bytes for each. */
#define RECORD_SIZE_MAX RG_KIB(64)
/* A listing sees files that were put there by hand after this long at the latest. */
#define SNAPSHOT_AGE_MAX_NS RG_NS_PER_S
/* The description of the bucket. */
#define INFO_PATH RG_FILE_NAME_PRIVATE "/%bucket"
/* The log of its folders. */
#define FOLDERS_PATH RG_FILE_NAME_PRIVATE "/%folders"
#define COPY_SIZE_MAX (UINT64_C(1) << 30)
/* How often a version may be replaced between opening it and reading its record. */
#define OPEN_ATTEMPTS_MAX 100
/* ".ringest/", a path, "%g" and a generation. */
#define RECORD_PATH_MAX (RG_FILE_PATH_MAX + 40)

/* Where one name is, and of a noncurrent version its generation. */
struct name_place {
    size_t offset;
    uint32_t size;
    int64_t generation;
};

/* The names in a bucket, sorted, so that listing page after page reads the folders once. */
struct snapshot {
    bool noncurrent;           /* Of noncurrent versions. */
    struct rg_text names;      /* One after the other. */
    struct name_place *sorted; /* In `names`; by generation where names are the same. */
    size_t count, capacity;
    uint64_t change_count, taken_ns; /* Of which state it is. */
    bool taken;
};

struct disk_bucket {
    int fd;
    int root_fd; /* The store's. */
    char folder[RG_STORE_BUCKET_NAME_SIZE_MAX + 1];
    _Atomic uint64_t change_count; /* Our own writes and removals. */
    _Atomic uint64_t temporary_count;
    pthread_mutex_t snapshot_lock;
    struct snapshot live, noncurrent;
};

struct disk_file {
    int fd;
    struct rg_attributes *attributes;
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

/* Bytes that are no object yet. No file is kept open for it: there may be thousands. */
struct disk_part {
    struct disk_bucket *bucket;
    char path[64];
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

static void version_path(char out[RECORD_PATH_MAX], const char *path, int64_t generation)
{
    int size =
        snprintf(out, RECORD_PATH_MAX, RG_FILE_NAME_PRIVATE "/%s%%v%" PRId64, path, generation);
    RG_ASSERT(size > 0 && size < RECORD_PATH_MAX);
}

/* Reads a small file whole; a NUL is put behind it. Returns owned, NULL when there is none. */
static char *read_text(const struct disk_bucket *bucket, const char *path)
{
    struct stat status;
    int fd = open_regular(bucket, path, &status);
    if (fd < 0) {
        return NULL;
    }
    size_t size_max = (size_t)RG_MIN(status.st_size, (off_t)RECORD_SIZE_MAX);
    char *text = malloc(size_max + 1);
    if (text != NULL) {
        ssize_t size = read(fd, text, size_max);
        text[RG_MAX(size, 0)] = '\0';
    }
    close(fd);
    return text;
}

/* A record in the making: what is there, and the list of attributes. */
struct record {
    struct rg_store_object_info *info;
    struct rg_text list;
    uint64_t size;
};

static bool take_text(char *out, size_t size_max, const char *value)
{
    struct rg_h1_slice slice = rg_text_slice(value);
    if (!rg_store_attribute_valid(slice, size_max)) {
        return false;
    }
    memcpy(out, value, slice.size + 1);
    return true;
}

/* "NAME VALUE", both percent-encoded. Decoding is done in place. */
static bool take_attribute(struct record *record, char *text)
{
    char *space = strchr(text, ' ');
    if (space == NULL) {
        return false;
    }
    struct rg_h1_slice name = {text, (uint32_t)(space - text)};
    struct rg_h1_slice value = rg_text_slice(space + 1);
    int name_size = rg_url_percent_decode(name, RG_URL_PATH, text, name.size);
    int value_size = rg_url_percent_decode(value, RG_URL_PATH, space + 1, value.size);
    return name_size > 0 && value_size >= 0 &&
           rg_attributes_set(&record->list, (struct rg_h1_slice){text, (uint32_t)name_size},
                             (struct rg_h1_slice){space + 1, (uint32_t)value_size}) == 0;
}

static bool take_line(struct record *record, const char *key, char *value)
{
    struct rg_store_object_info *info = record->info;
    if (strcmp(key, "crc32c") == 0) {
        info->has_crc32c = sscanf(value, "%" SCNx32, &info->crc32c) == 1;
        return info->has_crc32c;
    }
    if (strcmp(key, "size") == 0) {
        return sscanf(value, "%" SCNu64, &record->size) == 1;
    }
    if (strcmp(key, "metageneration") == 0) {
        return sscanf(value, "%" SCNd64, &info->metageneration) == 1;
    }
    if (strcmp(key, "updated") == 0) {
        return sscanf(value, "%" SCNd64, &info->updated_us) == 1;
    }
    if (strcmp(key, "deleted") == 0) {
        return sscanf(value, "%" SCNd64, &info->deleted_us) == 1;
    }
    if (strcmp(key, "soft-deleted") == 0) {
        return sscanf(value, "%" SCNd64, &info->soft_deleted_us) == 1;
    }
    if (strcmp(key, "hard-delete") == 0) {
        return sscanf(value, "%" SCNd64, &info->hard_delete_us) == 1;
    }
    if (strcmp(key, "content-type") == 0) {
        info->content_type[0] = '\0';
        return value[0] == '\0' ||
               take_text(info->content_type, RG_STORE_CONTENT_TYPE_SIZE_MAX, value);
    }
    if (strcmp(key, "content-encoding") == 0) {
        return value[0] == '\0' ||
               take_text(info->content_encoding, RG_STORE_CONTENT_ENCODING_SIZE_MAX, value);
    }
    if (strcmp(key, "md5") == 0) {
        return strlen(value) == RG_STORE_MD5_SIZE && take_text(info->md5, RG_STORE_MD5_SIZE, value);
    }
    return strcmp(key, "attribute") == 0 && take_attribute(record, value);
}

/* Each line is a key, a space and a value. */
static int parse_record(char *text, struct record *record)
{
    while (*text != '\0') {
        char *end = strchr(text, '\n');
        char *space = end != NULL ? memchr(text, ' ', (size_t)(end - text)) : NULL;
        if (space == NULL) {
            return -ENOENT;
        }
        *end = *space = '\0';
        if (!take_line(record, text, space + 1)) {
            return -ENOENT;
        }
        text = end + 1;
    }
    return 0;
}

/* -ENOENT also when what lies there does not describe a file of that size. On success the caller
 * owns info->attributes. */
static int read_record(const struct disk_bucket *bucket, const char *path,
                       struct rg_store_object_info *info)
{
    char name[RECORD_PATH_MAX];
    record_path(name, path, info->generation);
    char *text = read_text(bucket, name);
    if (text == NULL) {
        return -ENOENT;
    }
    struct rg_store_object_info found = *info;
    struct rg_attributes *attributes = NULL;
    struct record record = {.info = &found, .size = UINT64_MAX};
    int rc = parse_record(text, &record);
    rc = rc == 0 && (record.size != info->size || !found.has_crc32c) ? -ENOENT : rc;
    rc = rc == 0 ? rg_attributes_create(&attributes, &record.list) : rc;
    rg_text_fini(&record.list);
    free(text);
    if (rc < 0) {
        return -ENOENT;
    }
    *info = found;
    info->attributes = attributes;
    info->has_attributes = attributes != NULL;
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

static void format_record(struct rg_text *text, const struct rg_store_object_info *info)
{
    struct rg_h1_slice name, value;
    rg_text_printf(text,
                   "crc32c %08" PRIx32 "\nsize %" PRIu64 "\nmetageneration %" PRId64
                   "\ncontent-type %s\ncontent-encoding %s\nupdated %" PRId64 "\ndeleted %" PRId64
                   "\n",
                   info->crc32c, info->size, info->metageneration, info->content_type,
                   info->content_encoding, info->updated_us, info->deleted_us);
    if (info->hard_delete_us != 0) {
        rg_text_printf(text, "soft-deleted %" PRId64 "\nhard-delete %" PRId64 "\n",
                       info->soft_deleted_us, info->hard_delete_us);
    }
    if (info->md5[0] != '\0') {
        rg_text_printf(text, "md5 %s\n", info->md5);
    }
    for (size_t at = 0; rg_attributes_next(info->attributes, &at, &name, &value);) {
        rg_text_append_str(text, "attribute ");
        rg_text_append_percent(text, name.data, name.size);
        rg_text_append_str(text, " ");
        rg_text_append_percent(text, value.data, value.size);
        rg_text_append_str(text, "\n");
    }
}

/* Replaces the file at `path` in one step. */
static int write_text(struct disk_bucket *bucket, const char *path, const struct rg_text *text)
{
    struct temporary file;
    int rc = text->failed ? -ENOMEM : make_temporary(bucket, &file);
    if (rc < 0) {
        return rc;
    }
    rc = rg_write_all(file.fd, text->data, text->size);
    rc = rc == 0 ? make_parents(bucket, path) : rc;
    if (rc == 0 && renameat(bucket->fd, file.path, bucket->fd, path) < 0) {
        rc = -errno;
    }
    if (rc < 0) {
        drop_temporary(bucket, &file);
        return rc;
    }
    close(file.fd);
    return 0;
}

static int write_record(struct disk_bucket *bucket, const char *path,
                        const struct rg_store_object_info *info)
{
    char name[RECORD_PATH_MAX];
    struct rg_text text = {0};
    record_path(name, path, info->generation);
    format_record(&text, info);
    int rc = write_text(bucket, name, &text);
    rg_text_fini(&text);
    return rc;
}

static void remove_record(struct disk_bucket *bucket, const char *path, int64_t generation)
{
    char name[RECORD_PATH_MAX];
    record_path(name, path, generation);
    unlinkat(bucket->fd, name, 0);
    remove_parents(bucket, name);
}

/* Opens the file of a version, 0 for the live one, and says what is known of it; the caller owns
 * out_info->attributes. `has_crc32c` stays false for one that was
 * put there by hand and never read. The record of a version that is being replaced may be gone a
 * moment before we look: then the file is another one, too. */
static int open_version(const struct disk_bucket *bucket, const char *path, int64_t generation,
                        struct rg_store_object_info *out_info)
{
    struct stat status = {0}, before = {0};
    char noncurrent[RECORD_PATH_MAX];
    version_path(noncurrent, path, generation);
    for (int attempt = 0; attempt < OPEN_ATTEMPTS_MAX; attempt++) {
        int fd = generation != 0 ? open_regular(bucket, noncurrent, &status)
                                 : open_file(bucket, path, &status);
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
            if (generation == 0) { /* Its record may be ready for what comes. */
                out_info->deleted_us = out_info->soft_deleted_us = out_info->hard_delete_us = 0;
            }
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
    rg_attributes_unref(file->attributes);
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

/* The reference that open_version gave. */
static struct rg_attributes *owned_attributes(const struct rg_store_object_info *info)
{
    return (struct rg_attributes *)(uintptr_t)info->attributes;
}

static bool is_of_kind(const struct rg_store_object_info *info, bool soft)
{
    return soft ? info->hard_delete_us > rg_store_now_us() : info->hard_delete_us == 0;
}

/* A live version that is asked for by its generation is found as such. */
static int open_generation(const struct disk_bucket *bucket, const char *path, int64_t generation,
                           bool soft, struct rg_store_object_info *out_info)
{
    int fd = open_version(bucket, path, 0, out_info);
    if (generation == 0 || (fd >= 0 && out_info->generation == generation && !soft)) {
        return fd;
    }
    bool live = fd >= 0 && out_info->generation == generation;
    if (fd >= 0) {
        rg_attributes_unref(owned_attributes(out_info));
        close(fd);
    }
    fd = live ? -ENOENT : open_version(bucket, path, generation, out_info);
    if (fd >= 0 && !is_of_kind(out_info, soft)) {
        rg_attributes_unref(owned_attributes(out_info));
        close(fd);
        return -ENOENT;
    }
    return fd;
}

static int disk_open(void *self, struct rg_h1_slice name, int64_t generation, bool soft,
                     struct rg_store_object *out_object)
{
    struct disk_bucket *bucket = self;
    char path[RG_FILE_PATH_MAX];
    rg_file_name_encode(name, path);
    struct disk_file *file = malloc(sizeof(*file));
    if (file == NULL) {
        return -ENOMEM;
    }
    struct rg_store_object object = {.type = &file_type, .owner = file};
    file->fd = open_generation(bucket, path, generation, soft, &object.info);
    if (file->fd < 0) {
        int rc = file->fd;
        free(file);
        return rc;
    }
    file->attributes = owned_attributes(&object.info);
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
    *snapshot = (struct snapshot){.noncurrent = snapshot->noncurrent};
}

static struct rg_h1_slice name_at(const struct rg_text *names, const struct name_place *place)
{
    return (struct rg_h1_slice){names->data + place->offset, place->size};
}

/* Divides ".ringest/PATH%vGENERATION" and returns the path, NULL for any other file. */
static const char *split_version_path(char *file, int64_t *out_generation)
{
    char *mark = NULL;
    for (char *at = strstr(file, "%v"); at != NULL; at = strstr(at + 1, "%v")) {
        mark = at;
    }
    if (mark == NULL || rg_text_parse_int64(rg_text_slice(mark + 2), out_generation) < 0) {
        return NULL;
    }
    *mark = '\0';
    return file + strlen(RG_FILE_NAME_PRIVATE "/");
}

static int snapshot_add(struct snapshot *snapshot, char *file)
{
    char name[RG_STORE_NAME_SIZE_MAX];
    int64_t generation = 0;
    const char *path = snapshot->noncurrent ? split_version_path(file, &generation) : file;
    int size = path != NULL ? rg_file_name_decode(path, name) : -EINVAL;
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
        (struct name_place){snapshot->names.size, (uint32_t)size, generation};
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
    const struct name_place *first = a, *second = b;
    int order = rg_text_compare(name_at(names, first), name_at(names, second));
    return order != 0 ? order
                      : (first->generation > second->generation) -
                            (first->generation < second->generation);
}

static int snapshot_take(struct snapshot *snapshot, struct disk_bucket *bucket)
{
    snapshot_fini(snapshot);
    snapshot->change_count = atomic_load(&bucket->change_count);
    snapshot->taken_ns = monotonic_ns();
    struct rg_text pending = {0};
    const char *start = snapshot->noncurrent ? RG_FILE_NAME_PRIVATE : "";
    rg_text_append(&pending, start, strlen(start) + 1);
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

/* Copies the first name at or behind `from` into `entry`, with the generation of the place. Of the
 * versions of `from` itself, the first behind `after`. */
static int snapshot_find(const struct snapshot *snapshot, struct rg_h1_slice from, int64_t after,
                         struct rg_store_entry *entry)
{
    size_t low = 0, high = snapshot->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct name_place *place = &snapshot->sorted[middle];
        int order = rg_text_compare(name_at(&snapshot->names, place), from);
        if (order < 0 || (order == 0 && snapshot->noncurrent && place->generation <= after)) {
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
    entry->info.generation = snapshot->sorted[low].generation;
    return 0;
}

static int next_place(struct disk_bucket *bucket, struct snapshot *snapshot,
                      struct rg_h1_slice from, int64_t after, struct rg_store_entry *entry)
{
    pthread_mutex_lock(&bucket->snapshot_lock);
    int rc = 0;
    if (!snapshot->taken || snapshot->change_count != atomic_load(&bucket->change_count) ||
        monotonic_ns() - snapshot->taken_ns > SNAPSHOT_AGE_MAX_NS) {
        rc = snapshot_take(snapshot, bucket);
    }
    rc = rc == 0 ? snapshot_find(snapshot, from, after, entry) : rc;
    pthread_mutex_unlock(&bucket->snapshot_lock);
    return rc;
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

static int remove_version(struct disk_bucket *bucket, const char *path, int64_t generation)
{
    char noncurrent[RECORD_PATH_MAX];
    version_path(noncurrent, path, generation);
    if (unlinkat(bucket->fd, noncurrent, 0) < 0) {
        return -errno;
    }
    remove_record(bucket, path, generation);
    atomic_fetch_add(&bucket->change_count, 1);
    return 0;
}

/* Fills in what is known of a place. -ENOENT when it is gone since the snapshot, may not be read,
 * or is of the other kind. What is soft-deleted and whose time is over goes now. */
static int fill_entry(struct disk_bucket *bucket, bool soft, struct rg_store_entry *entry)
{
    char path[RG_FILE_PATH_MAX];
    int64_t generation = entry->info.generation;
    rg_file_name_encode((struct rg_h1_slice){entry->name, entry->name_size}, path);
    int fd = open_version(bucket, path, generation, &entry->info);
    if (fd < 0) {
        return fd == -EACCES ? -ENOENT : fd;
    }
    close(fd);
    rg_attributes_unref(owned_attributes(&entry->info));
    entry->info.attributes = NULL;
    if (entry->info.hard_delete_us == 0) {
        return soft ? -ENOENT : 0;
    }
    /* It may be the second name of what is live, left by a process that died. */
    bool live = current_generation(bucket, path) == generation;
    if (!live && !is_of_kind(&entry->info, true)) {
        (void)remove_version(bucket, path, generation);
        return -ENOENT;
    }
    return soft && !live ? 0 : -ENOENT;
}

static int seek_place(struct disk_bucket *bucket, struct snapshot *snapshot,
                      struct rg_h1_slice from, int64_t after, bool soft,
                      struct rg_store_entry *out_entry)
{
    char start[RG_STORE_NAME_SIZE_MAX + 1];
    for (;;) {
        int rc = next_place(bucket, snapshot, from, after, out_entry);
        if (rc < 0) {
            return rc;
        }
        int64_t generation = out_entry->info.generation;
        rc = fill_entry(bucket, soft, out_entry);
        if (rc != -ENOENT) {
            return rc;
        }
        /* Go on behind it. */
        memcpy(start, out_entry->name, out_entry->name_size);
        start[out_entry->name_size] = '\0';
        after = generation;
        from = (struct rg_h1_slice){start, out_entry->name_size + (generation == 0)};
    }
}

static int disk_seek(void *self, struct rg_h1_slice from, struct rg_store_entry *out_entry)
{
    struct disk_bucket *bucket = self;
    return seek_place(bucket, &bucket->live, from, 0, false, out_entry);
}

static struct rg_h1_slice entry_name(const struct rg_store_entry *entry)
{
    return (struct rg_h1_slice){entry->name, entry->name_size};
}

/* The live version of a name comes after its noncurrent ones. */
static int disk_seek_version(void *self, struct rg_h1_slice from, int64_t after, bool soft,
                             struct rg_store_entry *out_entry)
{
    struct disk_bucket *bucket = self;
    struct rg_store_entry old;
    char next[RG_STORE_NAME_SIZE_MAX + 1];
    if (soft) {
        return seek_place(bucket, &bucket->noncurrent, from, after, true, out_entry);
    }
    int rc = disk_seek(bucket, from, out_entry);
    if (rc == 0 && rg_text_compare(entry_name(out_entry), from) == 0 &&
        out_entry->info.generation <= after) {
        memcpy(next, from.data, from.size);
        next[from.size] = '\0';
        rc = disk_seek(bucket, (struct rg_h1_slice){next, from.size + 1}, out_entry);
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    int old_rc = seek_place(bucket, &bucket->noncurrent, from, after, false, &old);
    if (old_rc < 0) {
        return old_rc == -ENOENT ? rc : old_rc;
    }
    int order = rc == 0 ? rg_text_compare(entry_name(&old), entry_name(out_entry)) : -1;
    /* The second name of the live version does not count. */
    if (order < 0 || (order == 0 && old.info.generation < out_entry->info.generation)) {
        *out_entry = old;
    }
    return 0;
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
    return rg_write_all(writer->file.fd, data, size);
}

static int copy_range(int from_fd, int to_fd, uint64_t size)
{
    loff_t offset = 0;
    while (size > 0) {
        ssize_t count =
            copy_file_range(from_fd, &offset, to_fd, NULL, (size_t)RG_MIN(size, COPY_SIZE_MAX), 0);
        if (count <= 0) {
            return count < 0 ? -errno : -EIO;
        }
        size -= (uint64_t)count;
    }
    return 0;
}

static void part_close(struct rg_store_object *object)
{
    struct disk_part *part = object->owner;
    unlinkat(part->bucket->fd, part->path, 0);
    free(part);
}

/* Parts are only ever appended. */
static const struct rg_store_object_type part_type = {.read = NULL, .close = part_close};

static int append_part(struct disk_writer *writer, const struct rg_store_object *object)
{
    const struct disk_part *part = object->owner;
    int fd = openat(part->bucket->fd, part->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int rc = copy_range(fd, writer->file.fd, object->info.size);
    close(fd);
    return rc;
}

static int disk_append_object(void *self, struct rg_store_object *object)
{
    struct disk_writer *writer = self;
    if (object->type == &part_type) {
        return append_part(writer, object);
    }
    if (object->type != &file_type) {
        return -ENOTSUP;
    }
    const struct disk_file *file = object->owner;
    return copy_range(file->fd, writer->file.fd, object->info.size);
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

static void note_fate(struct rg_store_object_info *info, int64_t now_us,
                      const struct rg_store_fate *fate)
{
    if (fate->soft_delete_us != 0) {
        info->soft_deleted_us = now_us;
        info->hard_delete_us = now_us + fate->soft_delete_us;
    } else {
        info->deleted_us = now_us;
    }
}

/* Gives the live version its second name, as a noncurrent or soft-deleted one. */
static int keep_version(struct disk_bucket *bucket, struct rg_h1_slice name, const char *path,
                        int64_t now_us, const struct rg_store_fate *fate)
{
    char noncurrent[RECORD_PATH_MAX], aside[RECORD_PATH_MAX];
    struct rg_store_object_info info;
    struct rg_store_object object;
    /* One that was put there by hand gets its record now. */
    int rc = disk_open(bucket, name, 0, false, &object);
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    info = object.info;
    version_path(noncurrent, path, info.generation);
    aside_path(aside, path, strlen(path));
    rc = make_parents(bucket, noncurrent);
    if (rc == 0 && linkat(bucket->fd, path, bucket->fd, noncurrent, 0) < 0 && errno != EEXIST) {
        /* A folder of the plain name cannot be linked. */
        rc = linkat(bucket->fd, aside, bucket->fd, noncurrent, 0) < 0 ? -errno : 0;
    }
    note_fate(&info, now_us, fate);
    rc = rc == 0 ? write_record(bucket, path, &info) : rc;
    rg_store_object_close(&object);
    return rc;
}

static int disk_commit(void *self, struct rg_h1_slice name, struct rg_store_object_info *info,
                       const struct rg_store_fate *fate)
{
    struct disk_writer *writer = self;
    struct disk_bucket *bucket = writer->bucket;
    char path[RG_FILE_PATH_MAX];
    rg_file_name_encode(name, path);
    int64_t replaced = current_generation(bucket, path);
    info->generation = RG_MAX(info->generation, replaced + 1);
    int rc = set_generation(writer->file.fd, info);
    rc = rc == 0 && fate->kept ? keep_version(bucket, name, path, info->updated_us, fate) : rc;
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
    if (replaced != 0 && replaced != info->generation && !fate->kept) {
        remove_record(bucket, path, replaced);
    }
    atomic_fetch_add(&bucket->change_count, 1);
    close(writer->file.fd);
    free(writer);
    return 0;
}

static int disk_seal(void *self, const struct rg_store_object_info *info,
                     struct rg_store_object *out_object)
{
    struct disk_writer *writer = self;
    struct disk_part *part = malloc(sizeof(*part));
    if (part == NULL) {
        disk_abort(writer);
        return -ENOMEM;
    }
    part->bucket = writer->bucket;
    memcpy(part->path, writer->file.path, sizeof(part->path));
    close(writer->file.fd);
    free(writer);
    *out_object = (struct rg_store_object){.info = *info, .type = &part_type, .owner = part};
    return 0;
}

static int disk_update(void *self, struct rg_h1_slice name, const struct rg_store_object_info *info)
{
    char path[RG_FILE_PATH_MAX];
    rg_file_name_encode(name, path);
    return write_record(self, path, info);
}

/* A noncurrent version becomes a soft-deleted one. */
static int soften_version(struct disk_bucket *bucket, const char *path, int64_t generation,
                          const struct rg_store_fate *fate)
{
    struct rg_store_object_info info;
    int fd = open_version(bucket, path, generation, &info);
    if (fd < 0) {
        return fd;
    }
    close(fd);
    bool known = is_of_kind(&info, false) && info.has_crc32c;
    note_fate(&info, rg_store_now_us(), fate);
    int rc = known ? write_record(bucket, path, &info) : -ENOENT;
    rg_attributes_unref(owned_attributes(&info));
    if (rc == 0) {
        atomic_fetch_add(&bucket->change_count, 1);
    }
    return rc;
}

static int disk_remove(void *self, struct rg_h1_slice name, int64_t generation,
                       const struct rg_store_fate *fate)
{
    struct disk_bucket *bucket = self;
    char path[RG_FILE_PATH_MAX], aside[RECORD_PATH_MAX];
    aside_path(aside, path, rg_file_name_encode(name, path));
    int64_t current = current_generation(bucket, path);
    if (generation != 0 && generation != current) {
        return fate->kept ? soften_version(bucket, path, generation, fate)
                          : remove_version(bucket, path, generation);
    }
    if (current == 0) {
        return -ENOENT;
    }
    int rc = fate->kept ? keep_version(bucket, name, path, rg_store_now_us(), fate) : 0;
    if (rc < 0) {
        return rc;
    }
    bool plain_gone = unlinkat(bucket->fd, path, 0) == 0;
    int plain_errno = errno;
    bool aside_gone = unlinkat(bucket->fd, aside, 0) == 0;
    if (!plain_gone && !aside_gone) {
        return plain_errno == EISDIR ? -errno : -plain_errno;
    }
    if (!fate->kept) {
        remove_record(bucket, path, current);
    }
    remove_parents(bucket, path);
    atomic_fetch_add(&bucket->change_count, 1);
    return 0;
}

/* The record goes first: it is found by a generation, which is the same at both names. */
static int disk_move(void *self, struct rg_h1_slice from, struct rg_h1_slice to)
{
    struct disk_bucket *bucket = self;
    char from_path[RG_FILE_PATH_MAX], to_path[RG_FILE_PATH_MAX];
    char aside[RECORD_PATH_MAX], from_record[RECORD_PATH_MAX], to_record[RECORD_PATH_MAX];
    struct stat status;
    rg_file_name_encode(to, to_path);
    aside_path(aside, from_path, rg_file_name_encode(from, from_path));
    int64_t generation = current_generation(bucket, from_path);
    if (generation == 0) {
        return -ENOENT;
    }
    record_path(from_record, from_path, generation);
    record_path(to_record, to_path, generation);
    int rc = make_parents(bucket, to_record);
    if (rc == 0 && renameat(bucket->fd, from_record, bucket->fd, to_record) < 0 &&
        errno != ENOENT) {
        rc = -errno;
    }
    bool plain = fstatat(bucket->fd, from_path, &status, 0) == 0 && S_ISREG(status.st_mode);
    rc = rc == 0 ? rename_into_place(bucket, plain ? from_path : aside, to_path) : rc;
    if (rc == 0) {
        remove_parents(bucket, from_record);
        remove_parents(bucket, from_path);
        atomic_fetch_add(&bucket->change_count, 1);
    }
    return rc;
}

static int disk_load_folders(void *self, struct rg_text *text)
{
    const struct disk_bucket *bucket = self;
    struct stat status;
    uint8_t buffer[READ_SIZE];
    int fd = open_regular(bucket, FOLDERS_PATH, &status);
    if (fd < 0) {
        return fd == -ENOENT ? 0 : fd;
    }
    ssize_t count;
    while ((count = read(fd, buffer, sizeof(buffer))) > 0) {
        rg_text_append(text, buffer, (size_t)count);
    }
    int rc = count < 0 ? -errno : 0;
    close(fd);
    return rc;
}

static int disk_append_folders(void *self, const struct rg_text *lines)
{
    const struct disk_bucket *bucket = self;
    int rc = make_parents(bucket, FOLDERS_PATH);
    int fd = rc == 0
                 ? openat(bucket->fd, FOLDERS_PATH, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)
                 : rc;
    if (fd < 0) {
        return rc < 0 ? rc : -errno;
    }
    off_t end = lseek(fd, 0, SEEK_END);
    rc = end < 0 ? -errno : rg_write_all(fd, lines->data, lines->size);
    if (rc < 0 && end >= 0) {
        (void)ftruncate(fd, end); /* Half a line would be continued by the next. */
    }
    close(fd);
    return rc;
}

static int disk_replace_folders(void *self, const struct rg_text *text)
{
    return write_text(self, FOLDERS_PATH, text);
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

static bool take_info_line(struct rg_bucket_info *info, const char *key, char *value)
{
    struct {
        const char *key;
        int64_t *number;
    } numbers[] = {{"created", &info->created_us},
                   {"updated", &info->updated_us},
                   {"metageneration", &info->metageneration},
                   {"retention", &info->retention_us},
                   {"soft-delete", &info->soft_delete_us},
                   {"soft-delete-since", &info->soft_delete_since_us}};
    for (size_t i = 0; i < RG_ARRAY_LEN(numbers); i++) {
        if (strcmp(key, numbers[i].key) == 0) {
            return sscanf(value, "%" SCNd64, numbers[i].number) == 1;
        }
    }
    struct {
        const char *key;
        bool *flag;
    } flags[] = {{"versioning", &info->versioning},
                 {"uniform-access", &info->uniform_access},
                 {"hierarchical", &info->hierarchical},
                 {"requester-pays", &info->requester_pays},
                 {"no-public-access", &info->no_public_access},
                 {"holds-by-default", &info->holds_by_default},
                 {"retention-locked", &info->retention_locked}};
    for (size_t i = 0; i < RG_ARRAY_LEN(flags); i++) {
        if (strcmp(key, flags[i].key) == 0) {
            *flags[i].flag = strcmp(value, "1") == 0;
            return true;
        }
    }
    if (strcmp(key, "settings") == 0) {
        rg_bucket_settings_unref(info->settings);
        info->settings = NULL;
        return rg_bucket_settings_create(&info->settings, rg_text_slice(value)) == 0;
    }
    return (strcmp(key, "location") == 0 &&
            take_text(info->location, RG_STORE_LOCATION_SIZE_MAX, value)) ||
           (strcmp(key, "storage-class") == 0 &&
            take_text(info->storage_class, RG_STORE_LOCATION_SIZE_MAX, value));
}

/* What is there of it; a line that means nothing is passed over. */
static void load_info(const struct disk_bucket *bucket, struct rg_bucket_info *info)
{
    char *text = read_text(bucket, INFO_PATH);
    char *at = text;
    while (at != NULL && *at != '\0') {
        char *end = strchr(at, '\n');
        char *space = end != NULL ? memchr(at, ' ', (size_t)(end - at)) : NULL;
        if (space == NULL) {
            break;
        }
        *end = *space = '\0';
        (void)take_info_line(info, at, space + 1);
        at = end + 1;
    }
    free(text);
}

static int disk_save_info(void *self, const struct rg_bucket_info *info)
{
    struct rg_text text = {0};
    rg_text_printf(&text,
                   "created %" PRId64 "\nupdated %" PRId64 "\nmetageneration %" PRId64
                   "\nsoft-delete %" PRId64 "\nsoft-delete-since %" PRId64
                   "\nversioning %d\nuniform-access %d\nhierarchical %d\nlocation %s"
                   "\nstorage-class %s\nretention %" PRId64
                   "\nretention-locked %d\nrequester-pays %d\nno-public-access %d"
                   "\nholds-by-default %d\nsettings ",
                   info->created_us, info->updated_us, info->metageneration, info->soft_delete_us,
                   info->soft_delete_since_us, info->versioning, info->uniform_access,
                   info->hierarchical, info->location, info->storage_class, info->retention_us,
                   info->retention_locked, info->requester_pays, info->no_public_access,
                   info->holds_by_default);
    struct rg_h1_slice settings = rg_bucket_settings_json(info->settings); /* On one line. */
    rg_text_append(&text, settings.data, settings.size);
    rg_text_append_str(&text, "\n");
    int rc = write_text(self, INFO_PATH, &text);
    rg_text_fini(&text);
    return rc;
}

/* Removes a folder with everything in it. `depth` bounds the recursion: paths are no longer. */
static void remove_tree(int parent_fd, const char *folder, unsigned depth)
{
    int fd = openat(parent_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(fd, entry->d_name, 0) < 0 && errno == EISDIR && depth > 0) {
            remove_tree(fd, entry->d_name, depth - 1);
        }
    }
    closedir(dir);
    unlinkat(parent_fd, folder, AT_REMOVEDIR);
}

static int disk_erase(void *self)
{
    struct disk_bucket *bucket = self;
    remove_tree(bucket->fd, RG_FILE_NAME_PRIVATE, RG_FILE_PATH_MAX / 2);
    return unlinkat(bucket->root_fd, bucket->folder, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int rg_disk_bucket_open(void **out_bucket, int root_fd, struct rg_h1_slice name, bool create,
                        struct rg_bucket_info *info)
{
    struct disk_bucket *bucket = calloc(1, sizeof(*bucket));
    if (bucket == NULL) {
        return -ENOMEM;
    }
    RG_ASSERT(name.size < sizeof(bucket->folder));
    memcpy(bucket->folder, name.data, name.size);
    bucket->root_fd = root_fd;
    int rc = 0;
    if (create && mkdirat(root_fd, bucket->folder, 0777) < 0 && errno != EEXIST) {
        rc = -errno;
    }
    bucket->fd = rc == 0 ? openat(root_fd, bucket->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (bucket->fd < 0) {
        rc = rc < 0 ? rc : errno == ENOTDIR ? -ENOENT : -errno;
        free(bucket);
        return rc;
    }
    pthread_mutex_init(&bucket->snapshot_lock, NULL);
    bucket->noncurrent.noncurrent = true;
    remove_temporaries(bucket);
    load_info(bucket, info);
    *out_bucket = bucket;
    return 0;
}

static void disk_close(void *self)
{
    struct disk_bucket *bucket = self;
    close(bucket->fd);
    snapshot_fini(&bucket->live);
    snapshot_fini(&bucket->noncurrent);
    pthread_mutex_destroy(&bucket->snapshot_lock);
    free(bucket);
}

const struct rg_store_backend rg_disk_backend = {
    .open = disk_open,
    .seek = disk_seek,
    .seek_version = disk_seek_version,
    .begin = disk_begin,
    .append = disk_append,
    .append_object = disk_append_object,
    .commit = disk_commit,
    .seal = disk_seal,
    .abort = disk_abort,
    .update = disk_update,
    .remove = disk_remove,
    .save_info = disk_save_info,
    .move = disk_move,
    .load_folders = disk_load_folders,
    .append_folders = disk_append_folders,
    .replace_folders = disk_replace_folders,
    .erase = disk_erase,
    .close = disk_close,
};
