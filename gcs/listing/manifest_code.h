/* The file format of manifests, as docs/MANIFEST.md describes it: headers, numbers and entries, to
 * bytes and back. All numbers are little-endian. Pure.
 *
 * An entry has, in this order: how many bytes its name shares with the beginning of the name before
 * it in the block, how many bytes follow, and these; its size; the difference of its generation to
 * the one before; flags; its CRC32C. Lengths, size and the difference are varints: 7 bits a byte,
 * lowest first, and all bytes but the last have the highest bit set. The difference is folded
 * (zigzag), so that small negative numbers become small ones. */
#ifndef RG_GCS_LISTING_MANIFEST_CODE_H
#define RG_GCS_LISTING_MANIFEST_CODE_H

#include "runtime/base.h"

#include <ringest/gcs.h>

#define RG_MANIFEST_MAGIC "\x89RGM\r\n\x1a\n"
#define RG_MANIFEST_MAGIC_SIZE 8
#define RG_MANIFEST_VERSION 1
/* Entries in a block. To read one, all before it in its block are decoded. */
#define RG_MANIFEST_BLOCK_ENTRIES 16
/* Entries that a block may have at most in files that other programs have written. */
#define RG_MANIFEST_BLOCK_ENTRIES_MAX 64
/* The first block and the index begin at multiples of this. */
#define RG_MANIFEST_ALIGNMENT 8

/* Where the fields of the header are; the bucket's name follows them. */
enum rg_manifest_field {
    RG_MANIFEST_AT_MAGIC = 0,
    RG_MANIFEST_AT_VERSION = 8,        /* 4 bytes */
    RG_MANIFEST_AT_HEADER_SIZE = 12,   /* 4; with the bucket's name and zeros behind it */
    RG_MANIFEST_AT_COUNT = 16,         /* 8; objects */
    RG_MANIFEST_AT_FILE_SIZE = 24,     /* 8 */
    RG_MANIFEST_AT_INDEX = 32,         /* 8; offset */
    RG_MANIFEST_AT_BLOCK_COUNT = 40,   /* 4 */
    RG_MANIFEST_AT_BLOCK_ENTRIES = 44, /* 4 */
    RG_MANIFEST_AT_BUCKET_SIZE = 48,   /* 4 */
    RG_MANIFEST_AT_CRC = 52,           /* 4; of everything behind the header */
    RG_MANIFEST_AT_FLAGS = 56,         /* 4 */
    RG_MANIFEST_AT_HEADER_CRC = 60,    /* 4; of the header with this field 0 */
    RG_MANIFEST_HEADER_SIZE_MIN = 64,
};

/* An entry of the index: offset (8 bytes), size (4) and CRC32C (4) of a block. */
#define RG_MANIFEST_INDEX_ENTRY_SIZE 16

/* Flag of the header: entries are in the order in which they were added, not in that of names. Only
 * in memory. */
#define RG_MANIFEST_GIVEN_ORDER 1u

/* The largest entry: a name that shares nothing, two lengths, two numbers, flags, CRC32C. */
#define RG_MANIFEST_ENTRY_SIZE_MAX (RG_OBJECT_NAME_SIZE_MAX + 2 * 2 + 2 * 10 + 1 + 4)

#define RG_MANIFEST_FLAG_CRC32C 1u

uint32_t rg_manifest_read_u32(const uint8_t *data);
uint64_t rg_manifest_read_u64(const uint8_t *data);
void rg_manifest_write_u32(uint8_t *out, uint32_t number);
void rg_manifest_write_u64(uint8_t *out, uint64_t number);
/* Writes a varint, of at most RG_MANIFEST_VARINT_SIZE_MAX bytes; returns how many. */
#define RG_MANIFEST_VARINT_SIZE_MAX 10
size_t rg_manifest_write_varint(uint8_t *out, uint64_t number);
/* Moves *at behind the number. False: it does not end before `end`, or has more than 64 bits. */
bool rg_manifest_read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out_number);

/* Where a reader writes what is wrong with a file; text NULL: nowhere. */
struct rg_manifest_damage {
    char *text;
    size_t size;
};
/* Writes at which byte the damage is and what it is. Returns -EBADMSG. */
int rg_manifest_damaged(const struct rg_manifest_damage *damage, uint64_t at, const char *format,
                        ...) RG_PRINTF(3, 4);

/* Manifests and indexes of tar archives have headers of the same form: magic, version, the sizes of
 * header, file and bucket name, and the header's CRC32C are at the same places (enum
 * rg_manifest_field). */
struct rg_manifest_format {
    const char *magic; /* RG_MANIFEST_MAGIC_SIZE bytes */
    uint32_t version;
    const char *is_another; /* the error text for a file without the magic */
};
uint32_t rg_manifest_header_size(uint32_t bucket_size);
/* The checksum of a header of `size` bytes, with its own field taken for 0. */
uint32_t rg_manifest_header_crc(const uint8_t *header, uint32_t size);
/* Checks the header of a file of `size` bytes, and that the file is that long. Writes the bucket's
 * name, of RG_BUCKET_NAME_SIZE_MAX + 1 bytes. Returns the header's size, or -EBADMSG: damaged, or
 * of another format. The caller keeps that size, and does not read it from the file again: a
 * mapping may change. */
int rg_manifest_header_check(const struct rg_manifest_format *format, const uint8_t *data,
                             uint64_t size, char *out_bucket,
                             const struct rg_manifest_damage *damage);

/* Remembers the last entry of a block. Starts zeroed. */
struct rg_manifest_encoder {
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    int64_t generation;
};
/* Writes at most RG_MANIFEST_ENTRY_SIZE_MAX bytes and returns how many. The name fits. */
size_t rg_manifest_encode(struct rg_manifest_encoder *encoder, const struct rg_object *object,
                          uint8_t *out);

/* Reads the entries of a block; `name` is the caller's, of RG_OBJECT_NAME_SIZE_MAX + 1 bytes. */
struct rg_manifest_decoder {
    const uint8_t *at, *end;
    char *name;
    size_t name_size;
    struct rg_object object; /* without its name */
};
/* Decodes the next entry. False: there is none, or it is damaged. */
bool rg_manifest_decode(struct rg_manifest_decoder *decoder);

#endif
