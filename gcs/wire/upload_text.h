/* What uploads say beside the bytes: the metadata of the object as JSON and as header fields. */
#ifndef RG_GCS_WIRE_UPLOAD_TEXT_H
#define RG_GCS_WIRE_UPLOAD_TEXT_H

#include "runtime/base.h"

#include <ringest/upload.h>

struct rg_h1_encoder;

/* What is to be stored about an object; NULL: nothing. */
struct rg_upload_attributes {
    const char *content_type, *content_encoding, *cache_control, *storage_class;
    const struct rg_metadata *metadata;
    size_t metadata_count;
};

/* Content-Type, x-goog-meta-* and the like: XML API, "Request headers". */
void rg_upload_encode_attributes(const struct rg_upload_attributes *attributes,
                                 struct rg_h1_encoder *encoder);
/* The same as the JSON API's resource of an object; name and crc may be NULL. Returns owned, ends
 * with a NUL; NULL: no memory. */
char *rg_upload_resource_json(const struct rg_upload_attributes *attributes, const char *name,
                              const uint32_t *crc);

/* What stands before and behind the bytes of an object in a multipart/related request, which
 * carries its resource with it. Returns both owned; 0 or -ENOMEM. */
int rg_multipart_frame(const struct rg_upload_attributes *attributes, const char *name,
                       const uint32_t *crc, char **out_lead, char **out_trail);
/* The Content-Type of a request whose body begins with `lead`. */
void rg_multipart_encode_type(const char *lead, struct rg_h1_encoder *encoder);

/* The body of "compose": sources in order, and the resource of what they become. `generations` may
 * hold 0: any. Returns owned; NULL: no memory. */
char *rg_upload_compose_json(const struct rg_upload_attributes *attributes, char *const *names,
                             const int64_t *generations, size_t count);

#endif
