/* Names of buckets and objects: what the service allows, and how they are written into request
 * targets. Both run once a request. */
#ifndef RG_GCS_WIRE_NAMES_H
#define RG_GCS_WIRE_NAMES_H

#include "runtime/base.h"

#include <errno.h>
#include <ringest/gcs.h>

#define RG_BUCKET_NAME_SIZE_MIN 3
#define RG_BUCKET_LABEL_SIZE_MAX 63 /* between the dots of a bucket's name */

/* Each byte of a name becomes at most "%XX". */
#define RG_NAME_ENCODED_SIZE_MAX(size) ((size)*3)

/* 0 when the service would accept the name, otherwise -EINVAL with *out_problem, in words that
 * follow "the object name" or "the bucket name" (static storage). */
int rg_object_name_check(const char *name, size_t size, const char **out_problem);
int rg_bucket_name_check(const char *name, size_t size, const char **out_problem);

/* Percent-encodes everything but the unreserved characters of RFC 3986 section 2.3, with upper-case
 * digits: right for one path segment, where "/" must not divide the name, and for a query value,
 * where "+" would mean a space. Returns the encoded size, without a NUL, or -ENOSPC with `out` in
 * no defined state. */
int rg_name_encode(const char *name, size_t size, char *out, size_t capacity);

#endif
