/* What a bucket is described by. Plain data. */
#ifndef RG_EMULATOR_STORE_MODEL_BUCKET_INFO_H
#define RG_EMULATOR_STORE_MODEL_BUCKET_INFO_H

#include "emulator/store/model/bucket_settings.h"
#include "emulator/store/model/names.h"

/* The description of a bucket. Texts end in a NUL. */
struct rg_bucket_info {
    int64_t created_us, updated_us, metageneration;
    bool versioning;     /* What is replaced or deleted stays as a noncurrent version. */
    bool uniform_access; /* It is told, and has no effect: everybody may do everything. */
    bool hierarchical;   /* It has folders. This never changes after its creation. */
    /* For how long what is deleted or replaced for good stays soft-deleted, 0: not at all; and
     * since when that is so. */
    int64_t soft_delete_us, soft_delete_since_us;
    bool requester_pays;   /* Requests have to say who pays for them. */
    bool no_public_access; /* No access control list may name everybody. */
    bool holds_by_default; /* What is written is under an event-based hold. */
    bool autoclass;        /* What is written has the class STANDARD, whatever requests say. */
    bool retention_locked; /* The retention may only grow. */
    int64_t
        retention_us; /* How old an object has to be to be removed or replaced; 0: of any age. */
    /* All other members, which are only told. Borrowed by rg_bucket_configure; NULL from
     * rg_bucket_get_info. */
    struct rg_bucket_settings *settings;
    char location[RG_STORE_LOCATION_SIZE_MAX + 1];
    char storage_class[RG_STORE_LOCATION_SIZE_MAX + 1];
};

#endif
