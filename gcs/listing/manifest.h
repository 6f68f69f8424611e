/* The file format of manifests, as docs/MANIFEST.md describes it (the interface is in
 * <ringest/listing.h>). All numbers are little-endian.
 *
 * Writing:  open (a temporary file) -> add ... -> close: index, header, fsync, rename
 * Reading:  open (mmap, everything is checked) -> get, from any thread -> close */
#ifndef RG_GCS_LISTING_MANIFEST_H
#define RG_GCS_LISTING_MANIFEST_H

#include "gcs/listing/manifest_code.h"
#include "runtime/bytes.h"

#include <ringest/listing.h>

#define RG_MANIFEST_MAGIC "\x89RGM\r\n\x1a\n"
#define RG_MANIFEST_MAGIC_SIZE 8
#define RG_MANIFEST_VERSION 1
/* Names that are found by decoding all before them in their block. */
#define RG_MANIFEST_BLOCK_ENTRIES 16
/* Of files that others may have written. */
#define RG_MANIFEST_BLOCK_ENTRIES_MAX 64
/* Header and index end where numbers of 8 bytes may begin. */
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

/* The entries are in the order that they were given in. Only of lists in memory. */
#define RG_MANIFEST_GIVEN_ORDER 1u

/* The block that has an entry: where it begins, but for the name's buffer, and its entries, from
 * *out_begin to before *out_end. 0, -ERANGE or -EBADMSG. */
int rg_manifest_block(const struct rg_manifest *manifest, uint64_t index,
                      struct rg_manifest_decoder *out_decoder, uint64_t *out_begin,
                      uint64_t *out_end);

/* Checks bytes and takes them, but not where they are no manifest. Errors of rg_manifest_open. */
int rg_manifest_adopt(struct rg_manifest **out_manifest, const struct rg_bytes *bytes, char *error,
                      size_t error_size);

#endif
