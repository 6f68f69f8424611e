/* What uploads say beside the bytes: names that are unlike any other, the metadata of the object as
 * JSON and as header fields. */
#ifndef RG_GCS_UPLOAD_TEXT_H
#define RG_GCS_UPLOAD_TEXT_H

#include "runtime/base.h"

#include <ringest/upload.h>

struct rg_h1_encoder;

#define RG_UPLOAD_RANDOM_SIZE 32 /* hex digits of 128 random bits */

/* What is to be stored about an object; NULL: nothing. */
struct rg_upload_attributes {
    const char *content_type, *content_encoding, *cache_control, *storage_class;
    const struct rg_metadata *metadata;
    size_t metadata_count;
};

void rg_upload_random(char out_text[RG_UPLOAD_RANDOM_SIZE + 1]);

/* Content-Type, x-goog-meta-* and the like: XML API, "Request headers". */
void rg_upload_encode_attributes(const struct rg_upload_attributes *attributes,
                                 struct rg_h1_encoder *encoder);
/* The same as the JSON API's resource of an object; name and crc may be NULL. Returns owned, ends
 * with a NUL; NULL: no memory. */
char *rg_upload_resource_json(const struct rg_upload_attributes *attributes, const char *name,
                              const uint32_t *crc);

/* The body of "compose": sources in order, and the resource of what they become. `generations` may
 * hold 0: any. Returns owned; NULL: no memory. */
char *rg_upload_compose_json(const struct rg_upload_attributes *attributes, char *const *names,
                             const int64_t *generations, size_t count);

#endif
