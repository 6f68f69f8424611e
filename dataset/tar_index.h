/* The file format of tar indexes, as docs/TAR_INDEX.md describes it (the interface is in
 * <ringest/tar.h>). All numbers are little-endian.
 *
 *      init (a builder) -> add a shard, read or taken over ... -> finish -> an index in memory
 *      open (a file is mapped, everything is checked) -> get, from any thread -> close */
#ifndef RG_DATASET_TAR_INDEX_H
#define RG_DATASET_TAR_INDEX_H

#include "dataset/tar_section.h"

#define RG_TAR_INDEX_MAGIC "\x89RGT\r\n\x1a\n"
#define RG_TAR_INDEX_MAGIC_SIZE 8
#define RG_TAR_INDEX_VERSION 1
#define RG_TAR_INDEX_ALIGNMENT 8

/* Where the fields of the header are; the bucket's name follows them. */
enum rg_tar_index_field {
    RG_TAR_INDEX_AT_MAGIC = 0,
    RG_TAR_INDEX_AT_VERSION = 8,      /* 4 bytes */
    RG_TAR_INDEX_AT_HEADER_SIZE = 12, /* 4; with the bucket's name and zeros behind it */
    RG_TAR_INDEX_AT_COUNT = 16,       /* 8; samples */
    RG_TAR_INDEX_AT_FILE_SIZE = 24,   /* 8 */
    RG_TAR_INDEX_AT_TABLES = 32,      /* 8; offset */
    RG_TAR_INDEX_AT_SHARD_COUNT = 40, /* 4 */
    RG_TAR_INDEX_AT_BLOCK_COUNT = 44, /* 4 */
    RG_TAR_INDEX_AT_BUCKET_SIZE = 48, /* 4 */
    RG_TAR_INDEX_AT_NAMES_SIZE = 52,  /* 4 */
    RG_TAR_INDEX_AT_CRC = 56,         /* 4; of everything behind the header */
    RG_TAR_INDEX_AT_HEADER_CRC = 60,  /* 4; of the header with this field 0 */
    RG_TAR_INDEX_HEADER_SIZE_MIN = 64,
};

/* Tables: an entry for each block, one for each shard, and the shards' names with their NULs.
 * A block: offset (8 bytes), size (4), CRC32C (4). */
#define RG_TAR_INDEX_BLOCK_SIZE 16
/* A shard: size (8), generation (8), its first sample (8), its first block (4), and where in the
 * names its own begins (4). */
#define RG_TAR_INDEX_SHARD_SIZE 32

/* Collects the shards of an index. Invariant: its tables are whole entries, every block lies in the
 * data, and every shard's name ends in the names. */
struct rg_tar_builder {
    char *bucket; /* owned, like all of these */
    uint8_t *data, *blocks, *shards;
    char *names;
    size_t data_size, data_room, blocks_size, blocks_room, shards_size, shards_room, names_size,
        names_room;
    uint64_t sample_count;
};
/* The bucket is copied. 0 or -ENOMEM. Zeroed is fine to fini. */
int rg_tar_builder_init(struct rg_tar_builder *builder, const char *bucket);
/* 0, -ENOMEM or -EFBIG (more than the format has room for). */
int rg_tar_builder_add(struct rg_tar_builder *builder, const char *name, uint64_t size,
                       int64_t generation, const struct rg_tar_section *section);
/* A shard of another index, as it is. */
int rg_tar_builder_take(struct rg_tar_builder *builder, const struct rg_tar_index *index,
                        uint64_t number);
/* *out_index is the caller's. 0 or -ENOMEM. */
int rg_tar_builder_finish(struct rg_tar_builder *builder, struct rg_tar_index **out_index);
void rg_tar_builder_fini(struct rg_tar_builder *builder);

/* Where the samples of a block are, those with the numbers from `begin` to before `end`. */
struct rg_tar_block {
    uint64_t begin, end, shard;
    const char *name; /* of the shard; lives as long as the index */
    int64_t generation;
    struct rg_tar_decoder decoder; /* at the first of them */
};
/* The block that has a sample. The errors of rg_tar_index_get. */
int rg_tar_index_block(const struct rg_tar_index *index, uint64_t number,
                       struct rg_tar_block *out_block);

#endif
