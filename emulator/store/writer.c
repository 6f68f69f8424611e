/* See writer.h. */
#include "emulator/store/writer.h"

#include "emulator/store/bucket_state.h"
#include "emulator/store/model/backend.h"
#include "emulator/wire/checksum.h"

#include <errno.h>
#include <stdlib.h>

struct rg_store_writer {
    struct rg_bucket *bucket;
    void *written;
    uint64_t size;
    uint32_t crc32c;
    uint32_t name_size;
    char name[RG_STORE_NAME_SIZE_MAX];
};

/* A folder's name and the rest each have their own limit. */
static bool fits_folders(struct rg_h1_slice name)
{
    const char *last = memrchr(name.data, '/', name.size);
    size_t folder_size = last != NULL ? (size_t)(last - name.data) + 1 : 0;
    return folder_size <= RG_STORE_FOLDER_SIZE_MAX &&
           name.size - folder_size <= RG_STORE_FOLDER_SIZE_MAX;
}

int rg_store_writer_create(struct rg_store_writer **out_writer, struct rg_store *store,
                           struct rg_h1_slice bucket_name, struct rg_h1_slice name,
                           uint64_t size_hint)
{
    RG_ASSERT(rg_store_object_name_valid(name));
    struct rg_bucket *bucket;
    int rc = rg_store_bucket_to_write(store, bucket_name, &bucket);
    if (rc < 0) {
        return rc;
    }
    if (rg_bucket_is_hierarchical(bucket) && !fits_folders(name)) {
        return -ENAMETOOLONG;
    }
    struct rg_store_writer *writer = malloc(sizeof(*writer));
    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->bucket = bucket;
    writer->size = 0;
    writer->crc32c = 0;
    writer->name_size = name.size;
    memcpy(writer->name, name.data, name.size);
    rc = bucket->backend->begin(bucket->written, size_hint, &writer->written);
    if (rc < 0) {
        free(writer);
        return rc;
    }
    *out_writer = writer;
    return 0;
}

int rg_store_writer_append(struct rg_store_writer *writer, const void *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    int rc = writer->bucket->backend->append(writer->written, data, size);
    if (rc < 0) {
        return rc;
    }
    writer->size += size;
    writer->crc32c = rg_checksum_extend(writer->crc32c, data, size);
    return 0;
}

static int append_by_reading(struct rg_store_writer *writer, struct rg_store_object *object)
{
    const uint8_t *data;
    for (uint64_t offset = 0; offset < object->info.size;) {
        size_t size = rg_store_object_read(object, offset, &data);
        int rc = rg_store_writer_append(writer, data, size);
        if (rc < 0) {
            return rc;
        }
        offset += size;
    }
    return 0;
}

int rg_store_writer_append_object(struct rg_store_writer *writer, struct rg_store_object *object)
{
    RG_ASSERT(object->info.has_crc32c);
    int rc = writer->bucket->backend->append_object(writer->written, object);
    if (rc == -ENOTSUP) {
        return append_by_reading(writer, object);
    }
    if (rc == 0) {
        writer->crc32c =
            rg_checksum_combine(writer->crc32c, object->info.crc32c, object->info.size);
        writer->size += object->info.size;
    }
    return rc;
}

int rg_store_writer_seal(struct rg_store_writer *writer, struct rg_store_object *out_object)
{
    struct rg_store_object_info info = {
        .size = writer->size, .crc32c = writer->crc32c, .has_crc32c = true};
    int rc = writer->bucket->backend->seal(writer->written, &info, out_object);
    free(writer);
    return rc;
}

uint32_t rg_store_writer_crc32c(const struct rg_store_writer *writer)
{
    return writer->crc32c;
}

uint64_t rg_store_writer_size(const struct rg_store_writer *writer)
{
    return writer->size;
}

void rg_store_writer_abort(struct rg_store_writer *writer)
{
    if (writer != NULL) {
        writer->bucket->backend->abort(writer->written);
        free(writer);
    }
}

int rg_store_writer_commit(struct rg_store_writer *writer,
                           const struct rg_store_conditions *conditions,
                           const struct rg_store_object_info *attributes,
                           struct rg_store_object_info *out_info)
{
    struct rg_bucket *bucket = writer->bucket;
    struct rg_h1_slice name = {writer->name, writer->name_size};
    struct rg_store_object_info info = *attributes;
    info.size = writer->size;
    info.crc32c = writer->crc32c;
    info.has_crc32c = true;
    info.has_attributes = info.attributes != NULL;
    info.metageneration = 1;
    info.deleted_us = info.soft_deleted_us = info.hard_delete_us = 0;
    int rc = rg_bucket_commit(bucket, name, writer->written, conditions, &info);
    free(writer);
    if (rc == 0) {
        *out_info = info;
    }
    return rc;
}
