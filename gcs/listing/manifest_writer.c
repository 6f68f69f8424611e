/* Writing manifests: see manifest.h. Objects go through a buffer to a temporary file beside the
 * final one, so that memory holds the buffer and the index: 16 bytes for each block. */
#include "gcs/listing/manifest.h"
#include "gcs/listing/manifest_code.h"
#include "gcs/wire/checksum.h"
#include "gcs/wire/names.h"
#include "runtime/new_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_SIZE RG_KIB(256)
#define BLOCKS_MIN 64

static_assert(BUFFER_SIZE >= RG_BYTES_SHARED_SIZE_MIN, "what fits the buffer is small");

struct rg_manifest_writer {
    bool is_file; /* else in memory */
    struct rg_new_file file;
    int fd;    /* the file's. In memory: -1 until the buffer is full, or if memfd is forbidden */
    int error; /* the first one of writing; nothing is written after it */
    struct rg_manifest_encoder encoder; /* of the block that is being written */
    char last_name[RG_OBJECT_NAME_SIZE_MAX + 1];
    int64_t last_generation;
    uint64_t count;
    uint64_t offset; /* where the next byte goes */
    uint64_t block_offset;
    uint32_t crc, block_crc;
    uint8_t *index;
    uint32_t block_count, block_capacity;
    uint8_t *buffer; /* without a descriptor it holds everything */
    size_t buffer_size, buffer_room;
    bool is_given_order;
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
};

static void buffer_flush(struct rg_manifest_writer *writer)
{
    const uint8_t *at = writer->buffer;
    while (writer->error == 0 && writer->buffer_size > 0) {
        ssize_t written = write(writer->fd, at, writer->buffer_size);
        if (written < 0 && errno != EINTR) {
            writer->error = -errno;
        } else if (written > 0) {
            at += written;
            writer->buffer_size -= (size_t)written;
        }
    }
    writer->buffer_size = 0;
}

static void buffer_grow(struct rg_manifest_writer *writer)
{
    uint8_t *grown = realloc(writer->buffer, 2 * writer->buffer_room);
    if (grown == NULL) {
        writer->error = -ENOMEM;
        writer->buffer_size = 0;
        return;
    }
    writer->buffer = grown;
    writer->buffer_room *= 2;
}

/* When the buffer is full, it is written to the file, or to a file in memory, which other processes
 * can map. If there are no files in memory, the buffer grows. */
static void buffer_make_room(struct rg_manifest_writer *writer)
{
    if (writer->fd < 0 && writer->buffer_room == BUFFER_SIZE) {
        writer->fd = rg_memory_file_open("ringest-manifest");
    }
    if (writer->fd >= 0) {
        buffer_flush(writer);
    } else {
        buffer_grow(writer);
    }
}

/* Appends to the part behind the header, which the checksum covers. */
static void append(struct rg_manifest_writer *writer, const void *data, size_t size)
{
    RG_ASSERT(size <= BUFFER_SIZE);
    if (size > writer->buffer_room - writer->buffer_size) {
        buffer_make_room(writer);
    }
    memcpy(writer->buffer + writer->buffer_size, data, size);
    writer->buffer_size += size;
    writer->crc = rg_crc32c(writer->crc, data, size);
    writer->offset += size;
}

static int index_grow(struct rg_manifest_writer *writer)
{
    if (writer->block_count < writer->block_capacity) {
        return 0;
    }
    if (writer->block_capacity > UINT32_MAX / 2) {
        return -EFBIG;
    }
    uint32_t capacity = RG_MAX(2 * writer->block_capacity, (uint32_t)BLOCKS_MIN);
    uint8_t *grown = realloc(writer->index, (size_t)capacity * RG_MANIFEST_INDEX_ENTRY_SIZE);
    if (grown == NULL) {
        return -ENOMEM;
    }
    writer->index = grown;
    writer->block_capacity = capacity;
    return 0;
}

/* Ends the block that is being written. There is room for it in the index. */
static void block_end(struct rg_manifest_writer *writer)
{
    uint64_t size = writer->offset - writer->block_offset;
    if (size == 0) {
        return;
    }
    RG_ASSERT(writer->block_count < writer->block_capacity && size <= UINT32_MAX);
    uint8_t *entry = writer->index + (size_t)writer->block_count * RG_MANIFEST_INDEX_ENTRY_SIZE;
    rg_manifest_write_u64(entry, writer->block_offset);
    rg_manifest_write_u32(entry + 8, (uint32_t)size);
    rg_manifest_write_u32(entry + 12, writer->block_crc);
    writer->block_count++;
    writer->block_offset = writer->offset;
    writer->block_crc = 0;
    writer->encoder = (struct rg_manifest_encoder){.name = ""};
}

static void writer_free(struct rg_manifest_writer *writer)
{
    if (!writer->is_file && writer->fd >= 0) {
        close(writer->fd);
    }
    free(writer->index);
    free(writer->buffer);
    free(writer);
}

int rg_manifest_writer_open(struct rg_manifest_writer **out_writer, const char *path,
                            const char *bucket)
{
    const char *problem;
    if (rg_bucket_name_check(bucket, strlen(bucket), &problem) < 0) {
        return -EINVAL;
    }
    struct rg_manifest_writer *writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->fd = -1;
    writer->buffer = malloc(BUFFER_SIZE);
    writer->buffer_room = BUFFER_SIZE;
    int rc = writer->buffer == NULL ? -ENOMEM : 0;
    rc = rc == 0 && path != NULL ? rg_new_file_open(&writer->file, path) : rc;
    if (rc < 0) {
        writer_free(writer);
        return rc;
    }
    writer->is_file = path != NULL;
    writer->fd = writer->is_file ? writer->file.fd : -1;
    strcpy(writer->bucket, bucket);
    /* The header is written last. Until then the file is not a manifest. */
    uint32_t header_size = rg_manifest_header_size((uint32_t)strlen(bucket));
    memset(writer->buffer, 0, header_size);
    writer->buffer_size = header_size;
    writer->offset = writer->block_offset = header_size;
    *out_writer = writer;
    return 0;
}

/* Whether the object comes behind the last one, or is a newer generation of the same name. */
static bool is_in_order(const struct rg_manifest_writer *writer, const struct rg_object *object)
{
    int order = strcmp(object->name, writer->last_name);
    return order > 0 || (order == 0 && object->generation > writer->last_generation);
}

int rg_manifest_writer_add(struct rg_manifest_writer *writer, const struct rg_object *object)
{
    uint8_t entry[RG_MANIFEST_ENTRY_SIZE_MAX];
    size_t name_size = object->name != NULL ? strlen(object->name) : 0;
    bool is_ordered = name_size > 0 && is_in_order(writer, object);
    if (name_size == 0 || name_size > RG_OBJECT_NAME_SIZE_MAX || object->generation < 0 ||
        (!is_ordered && writer->is_file)) {
        return -EINVAL;
    }
    writer->is_given_order |= !is_ordered;
    int rc = writer->error != 0 ? writer->error : index_grow(writer);
    if (rc < 0) {
        return rc;
    }
    size_t size = rg_manifest_encode(&writer->encoder, object, entry);
    writer->block_crc = rg_crc32c(writer->block_crc, entry, size);
    append(writer, entry, size);
    memcpy(writer->last_name, object->name, name_size + 1);
    writer->last_generation = object->generation;
    writer->count++;
    if (writer->count % RG_MANIFEST_BLOCK_ENTRIES == 0) {
        block_end(writer);
    }
    return writer->error;
}

#define HEADER_SIZE_MAX                                                                            \
    (RG_MANIFEST_HEADER_SIZE_MIN + RG_BUCKET_NAME_SIZE_MAX + RG_MANIFEST_ALIGNMENT)

static uint32_t header_make(const struct rg_manifest_writer *writer, uint64_t index,
                            uint8_t header[static HEADER_SIZE_MAX])
{
    uint32_t bucket_size = (uint32_t)strlen(writer->bucket);
    uint32_t header_size = rg_manifest_header_size(bucket_size);
    memset(header, 0, header_size);
    memcpy(header, RG_MANIFEST_MAGIC, RG_MANIFEST_MAGIC_SIZE);
    rg_manifest_write_u32(header + RG_MANIFEST_AT_VERSION, RG_MANIFEST_VERSION);
    rg_manifest_write_u32(header + RG_MANIFEST_AT_HEADER_SIZE, header_size);
    rg_manifest_write_u64(header + RG_MANIFEST_AT_COUNT, writer->count);
    rg_manifest_write_u64(header + RG_MANIFEST_AT_FILE_SIZE, writer->offset);
    rg_manifest_write_u64(header + RG_MANIFEST_AT_INDEX, index);
    rg_manifest_write_u32(header + RG_MANIFEST_AT_BLOCK_COUNT, writer->block_count);
    rg_manifest_write_u32(header + RG_MANIFEST_AT_BLOCK_ENTRIES, RG_MANIFEST_BLOCK_ENTRIES);
    rg_manifest_write_u32(header + RG_MANIFEST_AT_BUCKET_SIZE, bucket_size);
    rg_manifest_write_u32(header + RG_MANIFEST_AT_CRC, writer->crc);
    rg_manifest_write_u32(header + RG_MANIFEST_AT_FLAGS,
                          writer->is_given_order ? RG_MANIFEST_GIVEN_ORDER : 0);
    memcpy(header + RG_MANIFEST_HEADER_SIZE_MIN, writer->bucket, bucket_size);
    rg_manifest_write_u32(header + RG_MANIFEST_AT_HEADER_CRC,
                          rg_manifest_header_crc(header, header_size));
    return header_size;
}

static void header_write(struct rg_manifest_writer *writer, uint64_t index)
{
    uint8_t header[HEADER_SIZE_MAX];
    uint32_t size = header_make(writer, index, header);
    if (writer->fd < 0) {
        memcpy(writer->buffer, header, size);
        return;
    }
    buffer_flush(writer);
    ssize_t written = pwrite(writer->fd, header, size, 0);
    if (writer->error == 0 && written != (ssize_t)size) {
        writer->error = written < 0 ? -errno : -EIO;
    }
}

/* Writes the index, and then the header, which makes it a manifest. */
static void content_finish(struct rg_manifest_writer *writer)
{
    static const uint8_t zeros[RG_MANIFEST_ALIGNMENT];
    block_end(writer);
    append(writer, zeros, -writer->offset % RG_MANIFEST_ALIGNMENT);
    uint64_t index = writer->offset;
    for (uint32_t i = 0; i < writer->block_count; i++) {
        append(writer, writer->index + (size_t)i * RG_MANIFEST_INDEX_ENTRY_SIZE,
               RG_MANIFEST_INDEX_ENTRY_SIZE);
    }
    if (writer->error == 0) {
        header_write(writer, index);
    }
}

int rg_manifest_writer_close(struct rg_manifest_writer *writer, bool abandon)
{
    int rc = 0;
    if (writer == NULL) {
        return 0;
    }
    if (writer->is_file && !abandon) {
        content_finish(writer);
        rc = writer->error;
    }
    if (writer->is_file && (abandon || rc < 0)) {
        rg_new_file_abandon(&writer->file);
    } else if (writer->is_file) {
        rc = rg_new_file_publish(&writer->file);
    }
    writer_free(writer);
    return rc;
}

/* Moves what was written from the writer to *out_bytes. */
static int bytes_take(struct rg_manifest_writer *writer, struct rg_bytes *out_bytes)
{
    if (writer->fd < 0) {
        uint8_t *shrunk = realloc(writer->buffer, writer->buffer_size);
        rg_bytes_own(out_bytes, shrunk != NULL ? shrunk : writer->buffer, writer->buffer_size);
        writer->buffer = NULL;
        return 0;
    }
    int rc = rg_memory_file_seal(writer->fd);
    rc = rc == 0 ? rg_bytes_map(out_bytes, writer->fd) : rc;
    if (rc == 0) {
        writer->fd = -1;
    }
    return rc;
}

int rg_manifest_writer_finish(struct rg_manifest_writer *writer, struct rg_manifest **out_manifest)
{
    if (writer->is_file) {
        (void)rg_manifest_writer_close(writer, true);
        return -EINVAL;
    }
    content_finish(writer);
    struct rg_bytes bytes;
    int rc = writer->error == 0 ? bytes_take(writer, &bytes) : writer->error;
    writer_free(writer);
    if (rc < 0) {
        return rc;
    }
    rc = rg_manifest_adopt(out_manifest, &bytes, NULL, 0);
    if (rc < 0) {
        rg_bytes_close(&bytes);
    }
    return rc;
}
