/* CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of every object: reading and writing it
 * as the service does. runtime/crc.c computes it, in pieces (rg_crc32c in <ringest/gcs.h>), and
 * combines those of pieces that were computed apart.
 *
 * A checksum is always the finished value, inversions included; that of no bytes is 0. */
#ifndef RG_GCS_WIRE_CHECKSUM_H
#define RG_GCS_WIRE_CHECKSUM_H

#include "runtime/base.h"

#include <errno.h>
#include <ringest/gcs.h>

#define RG_CRC32C_TEXT_SIZE 8 /* base64 of four big-endian bytes: "AAAAAA==" */

void rg_crc32c_format(uint32_t crc, char out_text[RG_CRC32C_TEXT_SIZE]);
/* The same with an end, for messages: as the service, listings and `gcloud storage hash` write it.
 */
struct rg_crc32c_text {
    char text[RG_CRC32C_TEXT_SIZE + 1];
};
struct rg_crc32c_text rg_crc32c_text(uint32_t crc);
/* 0, or -EINVAL: not exactly what rg_crc32c_format would write for some checksum. */
int rg_crc32c_parse(const char *text, size_t size, uint32_t *out_crc);

/* What the x-goog-hash fields of one answer say. Starts zeroed. */
struct rg_object_hashes {
    bool has_crc32c;
    uint32_t crc32c;
};

/* Adds what the value of one x-goog-hash field: says: "crc32c=...", "md5=..." or several, with
 * commas between them. The field may come more than once in an answer. Other hashes are passed
 * over. -EBADMSG when a CRC32C is malformed or differs from one before it; `hashes` is as it was
 * then. */
int rg_object_hashes_parse(struct rg_object_hashes *hashes, const char *value, size_t size);

#endif
