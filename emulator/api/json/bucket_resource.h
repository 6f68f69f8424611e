/* Buckets and folders as the JSON API describes them. */
#ifndef RG_EMULATOR_API_JSON_BUCKET_RESOURCE_H
#define RG_EMULATOR_API_JSON_BUCKET_RESOURCE_H

#include "emulator/api/resource.h"
#include "emulator/store/folders.h"

/* The members of a folder of a hierarchical bucket, without braces. */
void rg_resource_append_folder(struct rg_text *text, const struct rg_resource_style *style,
                               struct rg_h1_slice bucket, struct rg_h1_slice name,
                               const struct rg_folder_info *info);
void rg_resource_append_bucket(struct rg_text *text, const struct rg_resource_style *style,
                               struct rg_bucket *bucket);

#endif
