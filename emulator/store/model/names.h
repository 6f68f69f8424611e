/* What buckets, objects, folders and header-field values may be called: the limits of Cloud
 * Storage, and who keeps to them. */
#ifndef RG_EMULATOR_STORE_MODEL_NAMES_H
#define RG_EMULATOR_STORE_MODEL_NAMES_H

#include "http/h1_decoder.h"
#include "runtime/base.h"

#define RG_STORE_NAME_SIZE_MAX 1024 /* an object's, in bytes */
/* Limit in buckets with a hierarchical namespace: of a folder's name with its "/", and of the
 * rest of an object's name behind it. */
#define RG_STORE_FOLDER_SIZE_MAX 512
#define RG_STORE_BUCKET_NAME_SIZE_MAX                                                              \
    222 /* The service allows 63 for names without dots; we do not insist on that. */
#define RG_STORE_CONTENT_TYPE_SIZE_MAX 127
#define RG_STORE_CONTENT_ENCODING_SIZE_MAX 31
#define RG_STORE_MD5_SIZE 24              /* In base64. */
#define RG_STORE_CLASS_DEFAULT "STANDARD" /* The storage class of buckets and objects. */
#define RG_STORE_LOCATION_SIZE_MAX 63     /* Limit of a bucket's location and storage class. */
#define RG_STORE_OBJECT_SIZE_MAX (UINT64_C(5) << 40)

bool rg_store_bucket_name_valid(struct rg_h1_slice name);
/* Whether a text can be the value of a header field, as content types have to be: 1 to
 * `size_max` bytes, no control characters, no space at either end. */
bool rg_store_attribute_valid(struct rg_h1_slice value, size_t size_max);
/* 1..1024 bytes of UTF-8, no CR or LF, neither "." nor "..". */
bool rg_store_object_name_valid(struct rg_h1_slice name);
/* The name of an object that ends in "/", and is not too long. */
bool rg_store_folder_name_valid(struct rg_h1_slice name);

#endif
