/* What the service allows of uploads, and what we choose within that. */
#ifndef RG_GCS_UPLOAD_LIMITS_H
#define RG_GCS_UPLOAD_LIMITS_H

#include "runtime/base.h"

/* Up to this AUTO takes one request. */
#define RG_UPLOAD_SINGLE_SIZE_MAX RG_MIB(8)
#define RG_UPLOAD_PART_SIZE_DEFAULT RG_MIB(16)
/* Cloud Storage, "Quotas and limits": of XML multipart uploads; the last part may be smaller. */
#define RG_UPLOAD_PART_SIZE_MIN RG_MIB(5)
#define RG_UPLOAD_PART_SIZE_MAX (UINT64_C(5) << 30)
#define RG_UPLOAD_PARTS_MAX 10000
/* Cloud Storage, "Resumable uploads": every chunk but the last is a multiple of this. */
#define RG_UPLOAD_CHUNK_UNIT RG_KIB(256)
#define RG_UPLOAD_OBJECT_SIZE_MAX (UINT64_C(5) << 40)
#define RG_UPLOAD_INFLIGHT_DEFAULT 8
#define RG_UPLOAD_INFLIGHT_MAX 128
/* How long what is left on the server may take to be removed, after a failure. */
#define RG_UPLOAD_CLEAN_TIME_NS (20 * RG_NS_PER_S)
/* How long the end of a request that may take effect is still waited for, after a failure. */
#define RG_UPLOAD_GRACE_NS (1 * RG_NS_PER_S)
/* How long it may take to learn whether what was cancelled is stored all the same. */
#define RG_UPLOAD_ASK_TIME_NS (10 * RG_NS_PER_S)
/* The size of metadata and content type together, as they are sent. */
#define RG_UPLOAD_ATTRIBUTES_SIZE_MAX RG_KIB(16)

#endif
