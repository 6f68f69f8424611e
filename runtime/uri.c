/* See uri.h. */
#include "runtime/uri.h"

#include <errno.h>
#include <string.h>

static const char *const schemes[] = {[RG_URI_GS] = RG_URI_SCHEME, [RG_URI_GCS] = "gcs://"};

int rg_uri_split(const char *text, size_t size, struct rg_uri *out_uri)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(schemes); i++) {
        size_t scheme_size = strlen(schemes[i]);
        if (size < scheme_size || memcmp(text, schemes[i], scheme_size) != 0) {
            continue;
        }
        const char *bucket = text + scheme_size, *end = text + size;
        const char *slash = memchr(bucket, '/', size - scheme_size);
        const char *bucket_end = slash != NULL ? slash : end;
        const char *name = slash != NULL ? slash + 1 : end;
        *out_uri = (struct rg_uri){
            .scheme = (enum rg_uri_scheme)i,
            .has_slash = slash != NULL,
            .bucket = bucket,
            .bucket_size = (size_t)(bucket_end - bucket),
            .name = name,
            .name_size = (size_t)(end - name),
        };
        return 0;
    }
    return -EINVAL;
}
