/* See object.h. */
#include "emulator/store/disk/object.h"

#include "emulator/wire/checksum.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static size_t file_read(struct rg_store_object *object, uint64_t offset, const uint8_t **out_data)
{
    struct rg_disk_file *file = object->owner;
    size_t wanted = (size_t)RG_MIN(object->info.size - offset, (uint64_t)RG_DISK_READ_SIZE);
    ssize_t count = pread(file->fd, file->buffer, wanted, (off_t)offset);
    if (count <= 0) {
        /* Somebody made the file shorter while it is being sent, or the disk failed. The head is
         * sent, so the body has to be completed; the checksum shows that it is wrong. */
        memset(file->buffer, 0, wanted);
        count = (ssize_t)wanted;
    }
    *out_data = file->buffer;
    return (size_t)count;
}

static void file_close(struct rg_store_object *object)
{
    struct rg_disk_file *file = object->owner;
    close(file->fd);
    rg_attributes_unref(file->attributes);
    free(file);
}

const struct rg_store_object_type rg_disk_file_type = {.read = file_read, .close = file_close};

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

int rg_disk_object_open(struct rg_disk_tree *tree, struct rg_h1_slice name, int64_t generation,
                        bool soft, struct rg_store_object *out_object)
{
    char path[RG_FILE_PATH_MAX];
    rg_file_name_encode(name, path);
    struct rg_disk_file *file = malloc(sizeof(*file));
    if (file == NULL) {
        return -ENOMEM;
    }
    struct rg_store_object object = {.type = &rg_disk_file_type, .owner = file};
    file->fd = rg_disk_generation_open(tree, path, generation, soft, &object.info);
    if (file->fd < 0) {
        int rc = file->fd;
        free(file);
        return rc;
    }
    file->attributes = rg_disk_owned_attributes(&object.info);
    if (!object.info.has_crc32c) {
        object.info.crc32c = object_crc32c(&object);
        object.info.has_crc32c = true;
        /* Where we may not write, each open computes it again. */
        (void)rg_disk_record_write(tree, path, &object.info);
    }
    *out_object = object;
    return 0;
}
