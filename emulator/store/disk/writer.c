/* See writer.h. */
#include "emulator/store/disk/writer.h"

#include "emulator/store/disk/object.h"
#include "emulator/store/disk/retire.h"
#include "runtime/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define COPY_SIZE_MAX (UINT64_C(1) << 30)

struct disk_writer {
    struct rg_disk_tree *tree;
    struct rg_disk_temporary file;
};

/* Bytes that are no object yet. No file is kept open for it: there may be thousands. */
struct disk_part {
    struct rg_disk_tree *tree;
    char path[64];
};

int rg_disk_writer_begin(struct rg_disk_tree *tree, void **out_writer)
{
    struct disk_writer *writer = malloc(sizeof(*writer));
    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->tree = tree;
    int rc = rg_disk_make_temporary(writer->tree, &writer->file);
    if (rc < 0) {
        free(writer);
        return rc;
    }
    *out_writer = writer;
    return 0;
}

int rg_disk_writer_append(void *self, const void *data, size_t size)
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
    unlinkat(part->tree->fd, part->path, 0);
    free(part);
}

/* Parts are only ever appended. */
static const struct rg_store_object_type part_type = {.read = NULL, .close = part_close};

static int append_part(struct disk_writer *writer, const struct rg_store_object *object)
{
    const struct disk_part *part = object->owner;
    int fd = openat(part->tree->fd, part->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int rc = copy_range(fd, writer->file.fd, object->info.size);
    close(fd);
    return rc;
}

int rg_disk_writer_append_object(void *self, struct rg_store_object *object)
{
    struct disk_writer *writer = self;
    if (object->type == &part_type) {
        return append_part(writer, object);
    }
    if (object->type != &rg_disk_file_type) {
        return -ENOTSUP;
    }
    const struct rg_disk_file *file = object->owner;
    return copy_range(file->fd, writer->file.fd, object->info.size);
}

void rg_disk_writer_abort(void *self)
{
    struct disk_writer *writer = self;
    rg_disk_drop_temporary(writer->tree, &writer->file);
    free(writer);
}

int rg_disk_writer_commit(void *self, struct rg_h1_slice name, struct rg_store_object_info *info,
                          const struct rg_store_fate *fate)
{
    struct disk_writer *writer = self;
    struct rg_disk_tree *tree = writer->tree;
    char path[RG_FILE_PATH_MAX];
    rg_file_name_encode(name, path);
    int64_t replaced = rg_disk_current_generation(tree, path);
    info->generation = RG_MAX(info->generation, replaced + 1);
    int rc = rg_disk_set_generation(writer->file.fd, info);
    rc =
        rc == 0 && fate->kept ? rg_disk_version_keep(tree, name, path, info->updated_us, fate) : rc;
    rc = rc == 0 ? rg_disk_record_write(tree, path, info) : rc;
    if (rc < 0) {
        rg_disk_writer_abort(writer);
        return rc;
    }
    rc = rg_disk_rename_into_place(tree, writer->file.path, path);
    if (rc < 0) {
        rg_disk_record_remove(tree, path, info->generation);
        rg_disk_writer_abort(writer);
        return rc;
    }
    if (replaced != 0 && replaced != info->generation && !fate->kept) {
        rg_disk_record_remove(tree, path, replaced);
    }
    atomic_fetch_add(&tree->change_count, 1);
    close(writer->file.fd);
    free(writer);
    return 0;
}

int rg_disk_writer_seal(void *self, const struct rg_store_object_info *info,
                        struct rg_store_object *out_object)
{
    struct disk_writer *writer = self;
    struct disk_part *part = malloc(sizeof(*part));
    if (part == NULL) {
        rg_disk_writer_abort(writer);
        return -ENOMEM;
    }
    part->tree = writer->tree;
    memcpy(part->path, writer->file.path, sizeof(part->path));
    close(writer->file.fd);
    free(writer);
    *out_object = (struct rg_store_object){.info = *info, .type = &part_type, .owner = part};
    return 0;
}
