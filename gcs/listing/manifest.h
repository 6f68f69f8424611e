/* Manifests, whose interface is in <ringest/listing.h>; manifest_code.h has their format.
 *
 * Writing:  open (a temporary file) -> add ... -> close: index, header, fsync, rename
 * Reading:  open (mmap, everything is checked) -> get, from any thread -> close */
#ifndef RG_GCS_LISTING_MANIFEST_H
#define RG_GCS_LISTING_MANIFEST_H

#include "gcs/listing/manifest_code.h"
#include "runtime/bytes.h"

#include <ringest/listing.h>

/* Finds the block that has the entry `index`: a decoder at its beginning, whose `name` the caller
 * sets, and its entries, *out_begin <= index < *out_end. 0, -ERANGE or -EBADMSG. */
int rg_manifest_block(const struct rg_manifest *manifest, uint64_t index,
                      struct rg_manifest_decoder *out_decoder, uint64_t *out_begin,
                      uint64_t *out_end);

/* Checks bytes, and takes them if they are a manifest. Errors of rg_manifest_open. */
int rg_manifest_adopt(struct rg_manifest **out_manifest, const struct rg_bytes *bytes, char *error,
                      size_t error_size);

#endif
