/* See tar_index.h. An index in memory is what its file is, so that there is one way to read it.
 * Everything is checked when one is opened, and a sample again when it is decoded: what is in a
 * mapping may change under it. */
#include "dataset/tar_index.h"

#include "gcs/listing/manifest.h"
#include "gcs/listing/manifest_code.h"
#include "gcs/request/client.h"
#include "gcs/wire/checksum.h"
#include "gcs/wire/digest.h"
#include "runtime/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOT_AN_INDEX "it is not a tar index"

/* What is read by the code of manifests. */
static_assert(RG_TAR_INDEX_AT_VERSION == (int)RG_MANIFEST_AT_VERSION, "as in manifests");
static_assert(RG_TAR_INDEX_AT_HEADER_SIZE == (int)RG_MANIFEST_AT_HEADER_SIZE, "as in manifests");
static_assert(RG_TAR_INDEX_AT_FILE_SIZE == (int)RG_MANIFEST_AT_FILE_SIZE, "as in manifests");
static_assert(RG_TAR_INDEX_AT_BUCKET_SIZE == (int)RG_MANIFEST_AT_BUCKET_SIZE, "as in manifests");
static_assert(RG_TAR_INDEX_AT_HEADER_CRC == (int)RG_MANIFEST_AT_HEADER_CRC, "as in manifests");
static_assert(RG_TAR_INDEX_HEADER_SIZE_MIN == (int)RG_MANIFEST_HEADER_SIZE_MIN, "as in manifests");
static_assert(RG_TAR_INDEX_ALIGNMENT == RG_MANIFEST_ALIGNMENT, "as in manifests");

struct rg_tar_index {
    struct rg_bytes bytes;
    const uint8_t *data; /* of them, like the next */
    uint64_t size;
    uint64_t count, tables, shards, names; /* the latter three: offsets */
    uint32_t header_size, shard_count, block_count, names_size;
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
};

static uint64_t align(uint64_t size)
{
    return (size + RG_TAR_INDEX_ALIGNMENT - 1) / RG_TAR_INDEX_ALIGNMENT * RG_TAR_INDEX_ALIGNMENT;
}

static uint32_t header_u32(const struct rg_tar_index *index, enum rg_tar_index_field at)
{
    return rg_manifest_read_u32(index->data + at);
}

static uint64_t header_u64(const struct rg_tar_index *index, enum rg_tar_index_field at)
{
    return rg_manifest_read_u64(index->data + at);
}

static int check_header(struct rg_tar_index *index, const struct rg_manifest_damage *damage)
{
    static const struct rg_manifest_format format = {RG_TAR_INDEX_MAGIC, RG_TAR_INDEX_VERSION,
                                                     NOT_AN_INDEX};
    int rc = rg_manifest_header_check(&format, index->data, index->size, index->bucket, damage);
    if (rc > 0) {
        index->header_size = (uint32_t)rc;
        index->count = header_u64(index, RG_TAR_INDEX_AT_COUNT);
        index->tables = header_u64(index, RG_TAR_INDEX_AT_TABLES);
        index->shard_count = header_u32(index, RG_TAR_INDEX_AT_SHARD_COUNT);
        index->block_count = header_u32(index, RG_TAR_INDEX_AT_BLOCK_COUNT);
        index->names_size = header_u32(index, RG_TAR_INDEX_AT_NAMES_SIZE);
    }
    return RG_MIN(rc, 0);
}

/* What the header says of the rest agrees with it. */
static int check_sizes(struct rg_tar_index *index, const struct rg_manifest_damage *damage)
{
    uint64_t tables_size = (uint64_t)index->block_count * RG_TAR_INDEX_BLOCK_SIZE +
                           (uint64_t)index->shard_count * RG_TAR_INDEX_SHARD_SIZE +
                           index->names_size;
    if (index->tables < index->header_size || tables_size > index->size ||
        index->tables != index->size - tables_size) {
        return rg_manifest_damaged(damage, RG_TAR_INDEX_AT_TABLES,
                                   "the tables are not where they should be");
    }
    index->shards = index->tables + (uint64_t)index->block_count * RG_TAR_INDEX_BLOCK_SIZE;
    index->names = index->shards + (uint64_t)index->shard_count * RG_TAR_INDEX_SHARD_SIZE;
    if (rg_crc32c(0, index->data + index->header_size, index->size - index->header_size) !=
        header_u32(index, RG_TAR_INDEX_AT_CRC)) {
        return rg_manifest_damaged(damage, index->header_size,
                                   "what follows does not have the CRC32C that the header states");
    }
    return 0;
}

struct block {
    uint64_t offset;
    uint32_t size, crc;
};

static struct block block_at(const struct rg_tar_index *index, uint32_t number)
{
    const uint8_t *entry = index->data + index->tables + (uint64_t)number * RG_TAR_INDEX_BLOCK_SIZE;
    return (struct block){
        .offset = rg_manifest_read_u64(entry),
        .size = rg_manifest_read_u32(entry + 8),
        .crc = rg_manifest_read_u32(entry + 12),
    };
}

struct shard {
    uint64_t size, first_sample;
    int64_t generation;
    uint32_t first_block, name;
};

static struct shard shard_at(const struct rg_tar_index *index, uint32_t number)
{
    const uint8_t *entry = index->data + index->shards + (uint64_t)number * RG_TAR_INDEX_SHARD_SIZE;
    return (struct shard){
        .size = rg_manifest_read_u64(entry),
        .generation = (int64_t)rg_manifest_read_u64(entry + 8),
        .first_sample = rg_manifest_read_u64(entry + 16),
        .first_block = rg_manifest_read_u32(entry + 24),
        .name = rg_manifest_read_u32(entry + 28),
    };
}

/* Where the shard behind it begins. */
static void shard_end(const struct rg_tar_index *index, uint32_t number, uint64_t *out_sample,
                      uint32_t *out_block)
{
    if (number + 1 < index->shard_count) {
        struct shard next = shard_at(index, number + 1);
        *out_sample = next.first_sample;
        *out_block = next.first_block;
    } else {
        *out_sample = index->count;
        *out_block = index->block_count;
    }
}

static bool block_fits(const struct rg_tar_index *index, const struct block *block)
{
    return block->offset >= index->header_size && block->offset <= index->tables &&
           block->size <= index->tables - block->offset;
}

/* Blocks follow each other without gaps. */
static int check_blocks(const struct rg_tar_index *index, const struct rg_manifest_damage *damage)
{
    uint64_t at = index->header_size;
    for (uint32_t i = 0; i < index->block_count; i++) {
        struct block block = block_at(index, i);
        if (block.offset != at || !block_fits(index, &block)) {
            return rg_manifest_damaged(damage,
                                       index->tables + (uint64_t)i * RG_TAR_INDEX_BLOCK_SIZE,
                                       "block %" PRIu32 " is not where it should be", i);
        }
        at += block.size;
    }
    if (index->tables - at >= RG_TAR_INDEX_ALIGNMENT) {
        return rg_manifest_damaged(damage, at,
                                   "something lies between the last block and the tables");
    }
    return 0;
}

/* Shards have their samples and blocks one behind the other, and names that end. */
static int check_shards(const struct rg_tar_index *index, const struct rg_manifest_damage *damage)
{
    const uint8_t *names = index->data + index->names;
    if (index->names_size > 0 && names[index->names_size - 1] != '\0') {
        return rg_manifest_damaged(damage, index->size - 1, "the last name does not end");
    }
    uint64_t sample = 0;
    uint32_t block = 0;
    for (uint32_t i = 0; i < index->shard_count; i++) {
        struct shard shard = shard_at(index, i);
        uint64_t end_sample;
        uint32_t end_block;
        shard_end(index, i, &end_sample, &end_block);
        uint64_t samples = end_sample - shard.first_sample;
        uint64_t blocks = samples / RG_TAR_BLOCK_SAMPLES + (samples % RG_TAR_BLOCK_SAMPLES > 0);
        if (shard.first_sample != sample || shard.first_block != block || end_sample < sample ||
            end_block < block || end_block - block != blocks || shard.name >= index->names_size) {
            return rg_manifest_damaged(damage,
                                       index->shards + (uint64_t)i * RG_TAR_INDEX_SHARD_SIZE,
                                       "shard %" PRIu32 " is not what it should be", i);
        }
        sample = end_sample;
        block = end_block;
    }
    if (sample != index->count || block != index->block_count) {
        return rg_manifest_damaged(damage, RG_TAR_INDEX_AT_COUNT, "there are samples in no shard");
    }
    return 0;
}

/* Takes the bytes, and closes them where it fails. */
static int index_adopt(struct rg_tar_index **out_index, struct rg_bytes *bytes,
                       const struct rg_manifest_damage *damage)
{
    struct rg_tar_index *index = calloc(1, sizeof(*index));
    if (index == NULL) {
        rg_bytes_close(bytes);
        return rg_explain(damage->text, damage->size, -ENOMEM, "no memory");
    }
    index->bytes = *bytes;
    index->data = bytes->data;
    index->size = bytes->size;
    int rc = check_header(index, damage);
    rc = rc == 0 ? check_sizes(index, damage) : rc;
    rc = rc == 0 ? check_blocks(index, damage) : rc;
    rc = rc == 0 ? check_shards(index, damage) : rc;
    if (rc < 0) {
        rg_bytes_close(bytes);
        free(index);
        return rc;
    }
    *out_index = index;
    return 0;
}

int rg_tar_index_open_memory(struct rg_tar_index **out_index, const void *data, size_t size,
                             char *error, size_t error_size)
{
    struct rg_bytes bytes;
    int rc = rg_bytes_copy(&bytes, data, size);
    if (rc < 0) {
        return rg_explain(error, error_size, rc, "%s", rg_error_text(-rc));
    }
    return index_adopt(out_index, &bytes, &(struct rg_manifest_damage){error, error_size});
}

/* Takes the descriptor, also where it fails. */
static int open_mapped(struct rg_tar_index **out_index, int fd,
                       const struct rg_manifest_damage *damage)
{
    struct rg_bytes bytes;
    int rc = fd < 0 ? -errno : rg_bytes_map(&bytes, fd);
    if (rc == 0) {
        return index_adopt(out_index, &bytes, damage);
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc == -EBADMSG ? rg_manifest_damaged(damage, 0, NOT_AN_INDEX)
                          : rg_explain(damage->text, damage->size, rc, "%s", rg_error_text(-rc));
}

int rg_tar_index_open_fd(struct rg_tar_index **out_index, int fd, char *error, size_t error_size)
{
    return open_mapped(out_index, fcntl(fd, F_DUPFD_CLOEXEC, 0),
                       &(struct rg_manifest_damage){error, error_size});
}

int rg_tar_index_open(struct rg_tar_index **out_index, const char *path, char *error,
                      size_t error_size)
{
    char cause[256] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = open_mapped(out_index, fd, &(struct rg_manifest_damage){cause, sizeof(cause)});
    return rc < 0 ? rg_explain(error, error_size, rc, "tar index %s: %s", path, cause) : 0;
}

void rg_tar_index_close(struct rg_tar_index *index)
{
    if (index == NULL) {
        return;
    }
    rg_bytes_close(&index->bytes);
    free(index);
}

const void *rg_tar_index_data(const struct rg_tar_index *index, size_t *out_size)
{
    *out_size = index->bytes.size;
    return index->data;
}

int rg_tar_index_fd(const struct rg_tar_index *index)
{
    return index->bytes.fd;
}

void rg_tar_index_digest(const struct rg_tar_index *index, uint8_t digest[RG_DIGEST_SIZE])
{
    rg_sha256(index->data, index->bytes.size, digest);
}

int rg_tar_index_save(const struct rg_tar_index *index, const char *path)
{
    struct rg_new_file file;
    int rc = rg_new_file_open(&file, path);
    if (rc < 0) {
        return rc;
    }
    rc = rg_write_all(file.fd, index->data, index->size);
    if (rc < 0) {
        rg_new_file_abandon(&file);
        return rc;
    }
    return rg_new_file_publish(&file);
}

uint64_t rg_tar_index_count(const struct rg_tar_index *index)
{
    return index->count;
}

uint64_t rg_tar_index_shard_count(const struct rg_tar_index *index)
{
    return index->shard_count;
}

const char *rg_tar_index_bucket(const struct rg_tar_index *index)
{
    return index->bucket;
}

static const char *shard_name(const struct rg_tar_index *index, const struct shard *shard)
{
    return (const char *)index->data + index->names + shard->name;
}

int rg_tar_index_shard_sized(const struct rg_tar_index *index, uint64_t number,
                             struct rg_tar_shard *out_shard, size_t struct_size)
{
    if (number >= index->shard_count) {
        return -ERANGE;
    }
    struct shard shard = shard_at(index, (uint32_t)number);
    uint64_t end_sample;
    uint32_t end_block;
    shard_end(index, (uint32_t)number, &end_sample, &end_block);
    struct rg_tar_shard whole = {
        .name = shard_name(index, &shard),
        .size = shard.size,
        .generation = shard.generation,
        .first = shard.first_sample,
        .count = end_sample - shard.first_sample,
    };
    memset(out_shard, 0, struct_size);
    memcpy(out_shard, &whole, RG_MIN(struct_size, sizeof(whole)));
    return 0;
}

/* The shard that has a sample: the last one that does not begin behind it, and that is not empty,
 * since an empty one begins where the next one does. */
static uint32_t shard_find(const struct rg_tar_index *index, uint64_t sample)
{
    uint32_t low = 0, high = index->shard_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (shard_at(index, middle).first_sample <= sample) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

int rg_tar_index_block(const struct rg_tar_index *index, uint64_t number,
                       struct rg_tar_block *out_block)
{
    if (number >= index->count) {
        return -ERANGE;
    }
    uint32_t shard_number = shard_find(index, number), end_block;
    struct shard shard = shard_at(index, shard_number);
    uint64_t end_sample;
    shard_end(index, shard_number, &end_sample, &end_block);
    uint64_t of_shard = (number - shard.first_sample) / RG_TAR_BLOCK_SAMPLES;
    uint64_t block_number = shard.first_block + of_shard;
    if (number < shard.first_sample || number >= end_sample || block_number >= index->block_count) {
        return -EBADMSG;
    }
    struct block block = block_at(index, (uint32_t)block_number);
    if (!block_fits(index, &block) || shard.name >= index->names_size) {
        return -EBADMSG;
    }
    uint64_t begin = shard.first_sample + of_shard * RG_TAR_BLOCK_SAMPLES;
    *out_block = (struct rg_tar_block){
        .begin = begin,
        .end = RG_MIN(begin + RG_TAR_BLOCK_SAMPLES, end_sample),
        .shard = shard_number,
        .name = shard_name(index, &shard),
        .generation = shard.generation,
        .decoder = {.at = index->data + block.offset,
                    .limit = index->data + block.offset + block.size},
    };
    return 0;
}

int rg_tar_index_get(const struct rg_tar_index *index, uint64_t number,
                     struct rg_tar_sample *out_sample)
{
    struct rg_tar_block block;
    int rc = rg_tar_index_block(index, number, &block);
    if (rc < 0) {
        return rc;
    }
    out_sample->key_size = 0;
    out_sample->part_count = 0;
    for (uint64_t i = block.begin; i <= number; i++) {
        if (!rg_tar_decode(&block.decoder, out_sample)) {
            return -EBADMSG;
        }
    }
    out_sample->shard = block.shard;
    return 0;
}

int rg_tar_builder_init(struct rg_tar_builder *builder, const char *bucket)
{
    *builder = (struct rg_tar_builder){.bucket = strdup(bucket)};
    return builder->bucket != NULL ? 0 : -ENOMEM;
}

void rg_tar_builder_fini(struct rg_tar_builder *builder)
{
    free(builder->bucket);
    free(builder->data);
    free(builder->blocks);
    free(builder->shards);
    free(builder->names);
    *builder = (struct rg_tar_builder){0};
}

/* Room for `size` more bytes of one of the arrays. */
static int room_make(void *array_address, size_t used, size_t *room, size_t size)
{
    void **array = array_address;
    if (*room - used >= size) {
        return 0;
    }
    size_t larger = RG_MAX(2 * *room, used + size + RG_KIB(1));
    void *grown = realloc(*array, larger);
    if (grown == NULL) {
        return -ENOMEM;
    }
    *array = grown;
    *room = larger;
    return 0;
}

/* What a shard adds, in one form for both sources: blocks' offsets are from `data`. */
struct addition {
    const char *name;
    uint64_t size, sample_count;
    int64_t generation;
    const uint8_t *data;
    size_t data_size;
    uint32_t block_count;
};

static int addition_make_room(struct rg_tar_builder *builder, const struct addition *more)
{
    size_t name_size = strlen(more->name) + 1;
    uint64_t blocks = builder->blocks_size / RG_TAR_INDEX_BLOCK_SIZE + more->block_count;
    uint64_t shards = builder->shards_size / RG_TAR_INDEX_SHARD_SIZE + 1;
    if (blocks > UINT32_MAX || shards > UINT32_MAX ||
        builder->names_size + name_size > UINT32_MAX) {
        return -EFBIG;
    }
    if (room_make(&builder->data, builder->data_size, &builder->data_room, more->data_size) < 0 ||
        room_make(&builder->blocks, builder->blocks_size, &builder->blocks_room,
                  (size_t)more->block_count * RG_TAR_INDEX_BLOCK_SIZE) < 0 ||
        room_make(&builder->shards, builder->shards_size, &builder->shards_room,
                  RG_TAR_INDEX_SHARD_SIZE) < 0 ||
        room_make(&builder->names, builder->names_size, &builder->names_room, name_size) < 0) {
        return -ENOMEM;
    }
    return 0;
}

/* Adds a block whose offset is, for now, from the beginning of all data. */
static void block_add(struct rg_tar_builder *builder, uint64_t offset, uint32_t size, uint32_t crc)
{
    uint8_t *entry = builder->blocks + builder->blocks_size;
    rg_manifest_write_u64(entry, offset);
    rg_manifest_write_u32(entry + 8, size);
    rg_manifest_write_u32(entry + 12, crc);
    builder->blocks_size += RG_TAR_INDEX_BLOCK_SIZE;
}

/* The invariant in tar_index.h, of the shard that was added last and its blocks. */
static bool invariants(const struct rg_tar_builder *builder, uint32_t block_count)
{
    const uint8_t *blocks = builder->blocks + builder->blocks_size;
    for (uint32_t i = 1; i <= block_count; i++) {
        const uint8_t *entry = blocks - (size_t)i * RG_TAR_INDEX_BLOCK_SIZE;
        uint64_t end = rg_manifest_read_u64(entry) + rg_manifest_read_u32(entry + 8);
        if (end > builder->data_size) {
            return false;
        }
    }
    return builder->blocks_size % RG_TAR_INDEX_BLOCK_SIZE == 0 &&
           builder->shards_size % RG_TAR_INDEX_SHARD_SIZE == 0 &&
           builder->blocks_size / RG_TAR_INDEX_BLOCK_SIZE >= block_count &&
           builder->data_size <= builder->data_room &&
           builder->blocks_size <= builder->blocks_room &&
           builder->shards_size <= builder->shards_room && builder->names_size > 0 &&
           builder->names_size <= builder->names_room &&
           builder->names[builder->names_size - 1] == '\0';
}

/* Its blocks were added before it. */
static void shard_add(struct rg_tar_builder *builder, const struct addition *more)
{
    size_t name_size = strlen(more->name) + 1;
    uint8_t *entry = builder->shards + builder->shards_size;
    uint64_t first_block = builder->blocks_size / RG_TAR_INDEX_BLOCK_SIZE - more->block_count;
    rg_manifest_write_u64(entry, more->size);
    rg_manifest_write_u64(entry + 8, (uint64_t)more->generation);
    rg_manifest_write_u64(entry + 16, builder->sample_count);
    rg_manifest_write_u32(entry + 24, (uint32_t)first_block);
    rg_manifest_write_u32(entry + 28, (uint32_t)builder->names_size);
    memcpy(builder->names + builder->names_size, more->name, name_size);
    if (more->data_size > 0) {
        memcpy(builder->data + builder->data_size, more->data, more->data_size);
    }
    builder->shards_size += RG_TAR_INDEX_SHARD_SIZE;
    builder->names_size += name_size;
    builder->data_size += more->data_size;
    builder->sample_count += more->sample_count;
    RG_VERIFY(invariants(builder, more->block_count));
}

int rg_tar_builder_add(struct rg_tar_builder *builder, const char *name, uint64_t size,
                       int64_t generation, const struct rg_tar_section *section)
{
    struct addition more = {
        .name = name,
        .size = size,
        .sample_count = section->sample_count,
        .generation = generation,
        .data = section->data,
        .data_size = section->size,
        .block_count = section->block_count,
    };
    int rc = addition_make_room(builder, &more);
    for (uint32_t i = 0; rc == 0 && i < section->block_count; i++) {
        const struct rg_tar_section_block *block = &section->blocks[i];
        block_add(builder, builder->data_size + block->offset, block->size, block->crc);
    }
    if (rc == 0) {
        shard_add(builder, &more);
    }
    return rc;
}

int rg_tar_builder_take(struct rg_tar_builder *builder, const struct rg_tar_index *index,
                        uint64_t number)
{
    RG_ASSERT(number < index->shard_count);
    struct shard shard = shard_at(index, (uint32_t)number);
    uint64_t end_sample;
    uint32_t end_block;
    shard_end(index, (uint32_t)number, &end_sample, &end_block);
    struct addition more = {
        .name = shard_name(index, &shard),
        .size = shard.size,
        .sample_count = end_sample - shard.first_sample,
        .generation = shard.generation,
        .block_count = end_block - shard.first_block,
    };
    struct block first = {0}, last = {0};
    if (more.block_count > 0) {
        first = block_at(index, shard.first_block);
        last = block_at(index, end_block - 1);
        more.data = index->data + first.offset;
        more.data_size = (size_t)(last.offset + last.size - first.offset);
    }
    int rc = addition_make_room(builder, &more);
    for (uint32_t i = 0; rc == 0 && i < more.block_count; i++) {
        struct block block = block_at(index, shard.first_block + i);
        block_add(builder, builder->data_size + (block.offset - first.offset), block.size,
                  block.crc);
    }
    if (rc == 0) {
        shard_add(builder, &more);
    }
    return rc;
}

static void header_write(const struct rg_tar_builder *builder, uint8_t *file, uint32_t header_size,
                         uint64_t tables, uint64_t size)
{
    uint32_t bucket_size = (uint32_t)strlen(builder->bucket);
    memcpy(file, RG_TAR_INDEX_MAGIC, RG_TAR_INDEX_MAGIC_SIZE);
    rg_manifest_write_u32(file + RG_TAR_INDEX_AT_VERSION, RG_TAR_INDEX_VERSION);
    rg_manifest_write_u32(file + RG_TAR_INDEX_AT_HEADER_SIZE, header_size);
    rg_manifest_write_u64(file + RG_TAR_INDEX_AT_COUNT, builder->sample_count);
    rg_manifest_write_u64(file + RG_TAR_INDEX_AT_FILE_SIZE, size);
    rg_manifest_write_u64(file + RG_TAR_INDEX_AT_TABLES, tables);
    rg_manifest_write_u32(file + RG_TAR_INDEX_AT_SHARD_COUNT,
                          (uint32_t)(builder->shards_size / RG_TAR_INDEX_SHARD_SIZE));
    rg_manifest_write_u32(file + RG_TAR_INDEX_AT_BLOCK_COUNT,
                          (uint32_t)(builder->blocks_size / RG_TAR_INDEX_BLOCK_SIZE));
    rg_manifest_write_u32(file + RG_TAR_INDEX_AT_BUCKET_SIZE, bucket_size);
    rg_manifest_write_u32(file + RG_TAR_INDEX_AT_NAMES_SIZE, (uint32_t)builder->names_size);
    memcpy(file + RG_TAR_INDEX_HEADER_SIZE_MIN, builder->bucket, bucket_size);
    rg_manifest_write_u32(file + RG_TAR_INDEX_AT_CRC,
                          rg_crc32c(0, file + header_size, size - header_size));
    rg_manifest_write_u32(file + RG_TAR_INDEX_AT_HEADER_CRC,
                          rg_manifest_header_crc(file, header_size));
}

static uint8_t *append(uint8_t *at, const void *data, size_t size)
{
    if (size > 0) {
        memcpy(at, data, size);
    }
    return at + size;
}

int rg_tar_builder_finish(struct rg_tar_builder *builder, struct rg_tar_index **out_index)
{
    uint32_t header_size = (uint32_t)align(RG_TAR_INDEX_HEADER_SIZE_MIN + strlen(builder->bucket));
    uint64_t tables = align(header_size + builder->data_size);
    uint64_t size = tables + builder->blocks_size + builder->shards_size + builder->names_size;
    uint8_t *file = calloc(1, size);
    if (file == NULL) {
        return -ENOMEM;
    }
    (void)append(file + header_size, builder->data, builder->data_size);
    uint8_t *blocks = file + tables;
    uint8_t *end = append(blocks, builder->blocks, builder->blocks_size);
    for (uint8_t *entry = blocks; entry < end; entry += RG_TAR_INDEX_BLOCK_SIZE) {
        rg_manifest_write_u64(entry, header_size + rg_manifest_read_u64(entry));
    }
    end = append(end, builder->shards, builder->shards_size);
    end = append(end, builder->names, builder->names_size);
    RG_ASSERT(end == file + size);
    header_write(builder, file, header_size, tables, size);
    struct rg_bytes bytes;
    int rc = 0;
    if (size < RG_BYTES_SHARED_SIZE_MIN) {
        rg_bytes_own(&bytes, file, size);
    } else {
        rc = rg_bytes_copy(&bytes, file, size);
        free(file);
    }
    char error[256] = "";
    rc = rc == 0
             ? index_adopt(out_index, &bytes, &(struct rg_manifest_damage){error, sizeof(error)})
             : rc;
    RG_ASSERT(rc != -EBADMSG);
    return rc;
}
