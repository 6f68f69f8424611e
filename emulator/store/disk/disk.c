/* Written objects as files, one folder for each bucket; see disk.h.
 *
 * The folder holds the objects' own files and .ringest, where everything else lies: the records of
 * versions (records.h), the bytes of versions that are not live (versions.h), what is
 * being written (writer.h), %bucket, which describes the bucket (description.h), and
 * %folders, the log of its folders (folders.h). */
#include "emulator/store/disk/disk.h"

#include "emulator/store/disk/description.h"
#include "emulator/store/disk/object.h"
#include "emulator/store/disk/retire.h"
#include "emulator/store/disk/snapshot.h"
#include "emulator/store/disk/writer.h"
#include "emulator/store/model/clock.h"
#include "runtime/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FOLDERS_PATH RG_FILE_NAME_PRIVATE "/%folders"

struct disk_bucket {
    struct rg_disk_tree tree;
    int root_fd; /* The store's. */
    char folder[RG_STORE_BUCKET_NAME_SIZE_MAX + 1];
    struct rg_disk_snapshot live, noncurrent;
};

/* A bucket as the store knows it. */
static struct rg_disk_tree *tree_of(void *self)
{
    struct disk_bucket *bucket = self;
    return &bucket->tree;
}

static int disk_open(void *self, struct rg_h1_slice name, int64_t generation, bool soft,
                     struct rg_store_object *out_object)
{
    return rg_disk_object_open(tree_of(self), name, generation, soft, out_object);
}

static int disk_begin(void *self, uint64_t size_hint, void **out_writer)
{
    (void)size_hint;
    return rg_disk_writer_begin(tree_of(self), out_writer);
}

static int disk_save_info(void *self, const struct rg_bucket_info *info)
{
    return rg_disk_description_save(tree_of(self), info);
}

/* Fills in what is known of a name in the snapshot. -ENOENT when the file is gone since, may not
 * be read, or is of the other kind. A soft-deleted version whose time is over is removed now. */
static int fill_entry(struct rg_disk_tree *tree, bool soft, struct rg_store_entry *entry)
{
    char path[RG_FILE_PATH_MAX];
    int64_t generation = entry->info.generation;
    rg_file_name_encode((struct rg_h1_slice){entry->name, entry->name_size}, path);
    int fd = rg_disk_version_open(tree, path, generation, &entry->info);
    if (fd < 0) {
        return fd == -EACCES ? -ENOENT : fd;
    }
    close(fd);
    rg_attributes_unref(rg_disk_owned_attributes(&entry->info));
    entry->info.attributes = NULL;
    if (entry->info.hard_delete_us == 0) {
        return soft ? -ENOENT : 0;
    }
    /* The file may be the second name of the live version, left by a process that died. */
    bool live = rg_disk_current_generation(tree, path) == generation;
    if (!live && !rg_disk_is_of_kind(&entry->info, true)) {
        (void)rg_disk_version_remove(tree, path, generation);
        return -ENOENT;
    }
    return soft && !live ? 0 : -ENOENT;
}

static int seek_place(struct disk_bucket *bucket, struct rg_disk_snapshot *snapshot,
                      struct rg_h1_slice from, int64_t after, bool soft,
                      struct rg_store_entry *out_entry)
{
    char start[RG_STORE_NAME_SIZE_MAX + 1];
    for (;;) {
        int rc = rg_disk_snapshot_seek(snapshot, &bucket->tree, from, after, out_entry);
        if (rc < 0) {
            return rc;
        }
        int64_t generation = out_entry->info.generation;
        rc = fill_entry(&bucket->tree, soft, out_entry);
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
    if (rc == 0 && rg_text_compare(rg_store_entry_name(out_entry), from) == 0 &&
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
    int order =
        rc == 0 ? rg_text_compare(rg_store_entry_name(&old), rg_store_entry_name(out_entry)) : -1;
    /* The second name of the live version does not count. */
    if (order < 0 || (order == 0 && old.info.generation < out_entry->info.generation)) {
        *out_entry = old;
    }
    return 0;
}

static int disk_update(void *self, struct rg_h1_slice name, const struct rg_store_object_info *info)
{
    char path[RG_FILE_PATH_MAX];
    rg_file_name_encode(name, path);
    return rg_disk_record_write(tree_of(self), path, info);
}

static int disk_remove(void *self, struct rg_h1_slice name, int64_t generation,
                       const struct rg_store_fate *fate)
{
    struct rg_disk_tree *tree = tree_of(self);
    char path[RG_FILE_PATH_MAX], aside[RG_DISK_PATH_MAX];
    rg_disk_aside_path(aside, path, rg_file_name_encode(name, path));
    int64_t current = rg_disk_current_generation(tree, path);
    if (generation != 0 && generation != current) {
        return fate->kept ? rg_disk_version_soften(tree, path, generation, fate)
                          : rg_disk_version_remove(tree, path, generation);
    }
    if (current == 0) {
        return -ENOENT;
    }
    int rc = fate->kept ? rg_disk_version_keep(tree, name, path, rg_store_now_us(), fate) : 0;
    if (rc < 0) {
        return rc;
    }
    bool plain_gone = unlinkat(tree->fd, path, 0) == 0;
    int plain_errno = errno;
    bool aside_gone = unlinkat(tree->fd, aside, 0) == 0;
    if (!plain_gone && !aside_gone) {
        return plain_errno == EISDIR ? -errno : -plain_errno;
    }
    if (!fate->kept) {
        rg_disk_record_remove(tree, path, current);
    }
    rg_disk_remove_parents(tree, path);
    atomic_fetch_add(&tree->change_count, 1);
    return 0;
}

/* The record is moved first. It is found by the generation, which stays the same. */
static int disk_move(void *self, struct rg_h1_slice from, struct rg_h1_slice to)
{
    struct rg_disk_tree *tree = tree_of(self);
    char from_path[RG_FILE_PATH_MAX], to_path[RG_FILE_PATH_MAX];
    char aside[RG_DISK_PATH_MAX], from_record[RG_DISK_PATH_MAX], to_record[RG_DISK_PATH_MAX];
    struct stat status;
    rg_file_name_encode(to, to_path);
    rg_disk_aside_path(aside, from_path, rg_file_name_encode(from, from_path));
    int64_t generation = rg_disk_current_generation(tree, from_path);
    if (generation == 0) {
        return -ENOENT;
    }
    rg_disk_record_path(from_record, from_path, generation);
    rg_disk_record_path(to_record, to_path, generation);
    int rc = rg_disk_make_parents(tree, to_record);
    if (rc == 0 && renameat(tree->fd, from_record, tree->fd, to_record) < 0 && errno != ENOENT) {
        rc = -errno;
    }
    bool plain = fstatat(tree->fd, from_path, &status, 0) == 0 && S_ISREG(status.st_mode);
    rc = rc == 0 ? rg_disk_rename_into_place(tree, plain ? from_path : aside, to_path) : rc;
    if (rc == 0) {
        rg_disk_remove_parents(tree, from_record);
        rg_disk_remove_parents(tree, from_path);
        atomic_fetch_add(&tree->change_count, 1);
    }
    return rc;
}

static int disk_load_folders(void *self, struct rg_text *text)
{
    const struct rg_disk_tree *tree = tree_of(self);
    struct stat status;
    uint8_t buffer[RG_DISK_READ_SIZE];
    int fd = rg_disk_open_regular(tree, FOLDERS_PATH, &status);
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
    const struct rg_disk_tree *tree = tree_of(self);
    int rc = rg_disk_make_parents(tree, FOLDERS_PATH);
    int fd = rc == 0
                 ? openat(tree->fd, FOLDERS_PATH, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)
                 : rc;
    if (fd < 0) {
        return rc < 0 ? rc : -errno;
    }
    off_t end = lseek(fd, 0, SEEK_END);
    rc = end < 0 ? -errno : rg_write_all(fd, lines->data, lines->size);
    if (rc < 0 && end >= 0) {
        (void)ftruncate(fd, end); /* Half a line must not stay: the next line would continue it. */
    }
    close(fd);
    return rc;
}

static int disk_replace_folders(void *self, const struct rg_text *text)
{
    return rg_disk_write_text(tree_of(self), FOLDERS_PATH, text);
}

static int disk_erase(void *self)
{
    struct disk_bucket *bucket = self;
    rg_disk_remove_folder(bucket->tree.fd, RG_FILE_NAME_PRIVATE, RG_FILE_PATH_MAX / 2);
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
    bucket->tree.fd =
        rc == 0 ? openat(root_fd, bucket->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (bucket->tree.fd < 0) {
        rc = rc < 0 ? rc : errno == ENOTDIR ? -ENOENT : -errno;
        free(bucket);
        return rc;
    }
    rg_disk_snapshot_init(&bucket->live, false);
    rg_disk_snapshot_init(&bucket->noncurrent, true);
    rg_disk_remove_temporaries(&bucket->tree);
    rg_disk_description_load(&bucket->tree, info);
    *out_bucket = bucket;
    return 0;
}

static void disk_close(void *self)
{
    struct disk_bucket *bucket = self;
    close(bucket->tree.fd);
    rg_disk_snapshot_fini(&bucket->live);
    rg_disk_snapshot_fini(&bucket->noncurrent);
    free(bucket);
}

const struct rg_store_backend rg_disk_backend = {
    .open = disk_open,
    .seek = disk_seek,
    .seek_version = disk_seek_version,
    .begin = disk_begin,
    .append = rg_disk_writer_append,
    .append_object = rg_disk_writer_append_object,
    .commit = rg_disk_writer_commit,
    .seal = rg_disk_writer_seal,
    .abort = rg_disk_writer_abort,
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
