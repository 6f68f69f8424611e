/* Reading manifests: see manifest.h. All checksums are checked when a manifest is opened. An entry
 * is checked again when it is decoded, because the file behind a mapping may change. */
#include "gcs/listing/manifest.h"

#include "gcs/listing/manifest_code.h"
#include "gcs/wire/checksum.h"
#include "gcs/wire/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOT_A_MANIFEST "it is not a manifest"

static_assert(RG_DIGEST_SIZE == RG_SHA256_SIZE, "digests are SHA-256");

struct rg_manifest {
    struct rg_bytes bytes;
    const uint8_t *data; /* of them, like the next */
    uint64_t size;
    uint64_t count, index;
    uint32_t header_size, block_count, block_entries;
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
};

static uint32_t header_u32(const struct rg_manifest *manifest, enum rg_manifest_field at)
{
    return rg_manifest_read_u32(manifest->data + at);
}

static uint64_t header_u64(const struct rg_manifest *manifest, enum rg_manifest_field at)
{
    return rg_manifest_read_u64(manifest->data + at);
}

static int check_header(struct rg_manifest *manifest, const struct rg_manifest_damage *damage)
{
    static const struct rg_manifest_format format = {RG_MANIFEST_MAGIC, RG_MANIFEST_VERSION,
                                                     NOT_A_MANIFEST};
    int rc =
        rg_manifest_header_check(&format, manifest->data, manifest->size, manifest->bucket, damage);
    if (rc > 0) {
        manifest->header_size = (uint32_t)rc;
        manifest->count = header_u64(manifest, RG_MANIFEST_AT_COUNT);
        manifest->index = header_u64(manifest, RG_MANIFEST_AT_INDEX);
        manifest->block_count = header_u32(manifest, RG_MANIFEST_AT_BLOCK_COUNT);
        manifest->block_entries = header_u32(manifest, RG_MANIFEST_AT_BLOCK_ENTRIES);
    }
    return RG_MIN(rc, 0);
}

/* Whether the counts in the header fit the size of the file. */
static int check_sizes(const struct rg_manifest *manifest, const struct rg_manifest_damage *damage)
{
    uint32_t entries = manifest->block_entries;
    bool is_block = entries >= 1 && entries <= RG_MANIFEST_BLOCK_ENTRIES_MAX;
    uint64_t blocks = is_block ? manifest->count / entries + (manifest->count % entries > 0) : 0;
    if (!is_block || blocks != manifest->block_count) {
        return rg_manifest_damaged(damage, RG_MANIFEST_AT_BLOCK_COUNT,
                                   "the numbers of blocks do not fit");
    }
    uint64_t index_size = blocks * RG_MANIFEST_INDEX_ENTRY_SIZE;
    if (manifest->index < manifest->header_size || index_size > manifest->size ||
        manifest->index != manifest->size - index_size) {
        return rg_manifest_damaged(damage, RG_MANIFEST_AT_INDEX,
                                   "the index is not where it should be");
    }
    return 0;
}

struct block {
    uint64_t offset;
    uint32_t size, crc;
};

static struct block block_at(const struct rg_manifest *manifest, uint32_t number)
{
    const uint8_t *entry =
        manifest->data + manifest->index + (uint64_t)number * RG_MANIFEST_INDEX_ENTRY_SIZE;
    return (struct block){
        .offset = rg_manifest_read_u64(entry),
        .size = rg_manifest_read_u32(entry + 8),
        .crc = rg_manifest_read_u32(entry + 12),
    };
}

static bool block_fits(const struct rg_manifest *manifest, const struct block *block)
{
    return block->offset >= manifest->header_size && block->offset <= manifest->index &&
           block->size <= manifest->index - block->offset;
}

/* Whether blocks follow each other without gaps and have the checksums that the index states. */
static int check_blocks(const struct rg_manifest *manifest, const struct rg_manifest_damage *damage)
{
    uint64_t at = manifest->header_size;
    for (uint32_t i = 0; i < manifest->block_count; i++) {
        struct block block = block_at(manifest, i);
        if (block.offset != at || !block_fits(manifest, &block)) {
            return rg_manifest_damaged(damage,
                                       manifest->index + (uint64_t)i * RG_MANIFEST_INDEX_ENTRY_SIZE,
                                       "block %" PRIu32 " is not where it should be", i);
        }
        if (rg_crc32c(0, manifest->data + block.offset, block.size) != block.crc) {
            return rg_manifest_damaged(
                damage, block.offset,
                "block %" PRIu32 " does not have the CRC32C that the index states", i);
        }
        at += block.size;
    }
    if (manifest->index - at >= RG_MANIFEST_ALIGNMENT) {
        return rg_manifest_damaged(damage, at,
                                   "something lies between the last block and the index");
    }
    return 0;
}

static int check_all(struct rg_manifest *manifest, const struct rg_manifest_damage *damage)
{
    int rc = check_header(manifest, damage);
    rc = rc == 0 ? check_sizes(manifest, damage) : rc;
    rc = rc == 0 ? check_blocks(manifest, damage) : rc;
    if (rc < 0) {
        return rc;
    }
    uint32_t crc = rg_crc32c(0, manifest->data + manifest->header_size,
                             manifest->size - manifest->header_size);
    if (crc != header_u32(manifest, RG_MANIFEST_AT_CRC)) {
        return rg_manifest_damaged(damage, manifest->index,
                                   "the index does not have the CRC32C that the header states");
    }
    return 0;
}

int rg_manifest_adopt(struct rg_manifest **out_manifest, const struct rg_bytes *bytes, char *error,
                      size_t error_size)
{
    struct rg_manifest *manifest = calloc(1, sizeof(*manifest));
    if (manifest == NULL) {
        return -ENOMEM;
    }
    manifest->bytes = *bytes;
    manifest->data = bytes->data;
    manifest->size = bytes->size;
    int rc = check_all(manifest, &(struct rg_manifest_damage){error, error_size});
    if (rc < 0) {
        free(manifest);
        return rc;
    }
    *out_manifest = manifest;
    return 0;
}

static int adopt_or_close(struct rg_manifest **out_manifest, struct rg_bytes *bytes, char *error,
                          size_t error_size)
{
    int rc = rg_manifest_adopt(out_manifest, bytes, error, error_size);
    if (rc < 0) {
        rg_bytes_close(bytes);
    }
    return rc;
}

int rg_manifest_open_memory(struct rg_manifest **out_manifest, const void *data, size_t size,
                            char *error, size_t error_size)
{
    struct rg_bytes bytes;
    int rc = rg_bytes_copy(&bytes, data, size);
    return rc < 0 ? rc : adopt_or_close(out_manifest, &bytes, error, error_size);
}

/* Takes the descriptor, also on failure. */
static int open_mapped(struct rg_manifest **out_manifest, int fd, char *error, size_t error_size)
{
    struct rg_bytes bytes;
    int rc = fd < 0 ? -errno : rg_bytes_map(&bytes, fd);
    if (rc == 0) {
        return adopt_or_close(out_manifest, &bytes, error, error_size);
    }
    if (rc == -EBADMSG) {
        rg_manifest_damaged(&(struct rg_manifest_damage){error, error_size}, 0, NOT_A_MANIFEST);
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

int rg_manifest_open_fd(struct rg_manifest **out_manifest, int fd, char *error, size_t error_size)
{
    return open_mapped(out_manifest, fcntl(fd, F_DUPFD_CLOEXEC, 0), error, error_size);
}

int rg_manifest_open(struct rg_manifest **out_manifest, const char *path, char *error,
                     size_t error_size)
{
    if (error != NULL && error_size > 0) {
        *error = '\0';
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = open_mapped(out_manifest, fd, error, error_size);
    if (rc < 0 && error != NULL && error_size > 0) {
        char *cause = strdup(*error != '\0' ? error : rg_error_text(-rc));
        snprintf(error, error_size, "manifest %s: %s", path, cause != NULL ? cause : "no memory");
        free(cause);
    }
    return rc;
}

void rg_manifest_close(struct rg_manifest *manifest)
{
    if (manifest == NULL) {
        return;
    }
    rg_bytes_close(&manifest->bytes);
    free(manifest);
}

const void *rg_manifest_data(const struct rg_manifest *manifest, size_t *out_size)
{
    *out_size = manifest->bytes.size;
    return manifest->data;
}

int rg_manifest_fd(const struct rg_manifest *manifest)
{
    return manifest->bytes.fd;
}

void rg_manifest_digest(const struct rg_manifest *manifest, uint8_t digest[RG_DIGEST_SIZE])
{
    rg_sha256(manifest->data, manifest->bytes.size, digest);
}

uint64_t rg_manifest_count(const struct rg_manifest *manifest)
{
    return manifest->count;
}

const char *rg_manifest_bucket(const struct rg_manifest *manifest)
{
    return manifest->bucket;
}

int rg_manifest_block(const struct rg_manifest *manifest, uint64_t index,
                      struct rg_manifest_decoder *out_decoder, uint64_t *out_begin,
                      uint64_t *out_end)
{
    if (index >= manifest->count) {
        return -ERANGE;
    }
    struct block block = block_at(manifest, (uint32_t)(index / manifest->block_entries));
    if (!block_fits(manifest, &block)) {
        return -EBADMSG;
    }
    *out_begin = index - index % manifest->block_entries;
    *out_end = *out_begin + manifest->block_entries;
    *out_decoder = (struct rg_manifest_decoder){
        .at = manifest->data + block.offset,
        .end = manifest->data + block.offset + block.size,
    };
    return 0;
}

int rg_manifest_get(const struct rg_manifest *manifest, uint64_t index,
                    struct rg_object *out_object, char *name)
{
    struct rg_manifest_decoder decoder;
    uint64_t begin, end;
    int rc = rg_manifest_block(manifest, index, &decoder, &begin, &end);
    if (rc < 0) {
        return rc;
    }
    decoder.name = name;
    for (uint64_t i = begin; i <= index; i++) {
        if (!rg_manifest_decode(&decoder)) {
            return -EBADMSG;
        }
    }
    *out_object = decoder.object;
    out_object->name = name;
    return 0;
}
