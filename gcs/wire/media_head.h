/* What the head of an answer with an object's bytes says: of which object they are, and which bytes
 * (Cloud Storage, "objects: get" with alt=media). Pure. */
#ifndef RG_GCS_WIRE_MEDIA_HEAD_H
#define RG_GCS_WIRE_MEDIA_HEAD_H

#include "gcs/wire/checksum.h"
#include "http/h1_decoder.h"

/* The error of a read whose answers are of different generations. */
#define RG_MEDIA_REPLACED_TEXT "the object was replaced while it was read"

struct rg_media_head {
    int64_t generation; /* 0: not told */
    uint64_t stored_size;
    struct rg_object_hashes hashes;
    struct rg_h1_slice content_range, content_encoding, stored_encoding; /* in the head's bytes */
    bool gunzipped; /* the server has decompressed it on the way */
    bool has_stored_size, bad_hash;
    bool is_gzip; /* the object is stored with Content-Encoding gzip */
    /* Where the bytes of the answer begin in the object, and the object's size. */
    uint64_t first, total;
    bool has_total;
};

/* Reads the head of an answer with a 2xx status. -EBADMSG: what it says cannot be; *out_problem
 * says why. */
int rg_media_head_parse(const struct rg_h1_head *head, struct rg_media_head *out_media,
                        const char **out_problem);

#endif
