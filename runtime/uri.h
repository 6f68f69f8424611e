/* URIs of objects, gs://BUCKET/NAME, taken apart.
 *
 * This only finds the parts. The caller says which of them it needs and how long they may be. The
 * name may be empty and holds any bytes: nothing is percent-encoded. */
#ifndef RG_RUNTIME_URI_H
#define RG_RUNTIME_URI_H

#include "runtime/base.h"

#define RG_URI_SCHEME "gs://"

enum rg_uri_scheme {
    RG_URI_GS = 0,
    RG_URI_GCS, /* "gcs://", which fsspec takes for the same */
};

/* Borrows the text. */
struct rg_uri {
    enum rg_uri_scheme scheme;
    bool has_slash; /* behind the bucket; without one there is no name */
    const char *bucket, *name;
    size_t bucket_size, name_size;
};

/* 0, or -EINVAL: the text begins with neither scheme. Schemes are lower case. */
int rg_uri_split(const char *text, size_t size, struct rg_uri *out_uri);

#endif
