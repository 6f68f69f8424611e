/* What a bucket is described with beside what the store goes by: labels, who pays, retention, and
 * the like. A JSON object whose members are those of the resource, as text; immutable, with a
 * reference count, because it is told while others change it. None is NULL. */
#ifndef RG_EMULATOR_STORE_MODEL_BUCKET_SETTINGS_H
#define RG_EMULATOR_STORE_MODEL_BUCKET_SETTINGS_H

#include "http/h1_decoder.h"
#include "runtime/base.h"

#define RG_BUCKET_SETTINGS_SIZE_MAX RG_KIB(32)

struct rg_bucket_settings;

/* Returns owned; NULL for an empty text. -EMSGSIZE, -ENOMEM. */
int rg_bucket_settings_create(struct rg_bucket_settings **out_settings, struct rg_h1_slice json);
/* NULL stays NULL. */
struct rg_bucket_settings *rg_bucket_settings_ref(struct rg_bucket_settings *settings);
void rg_bucket_settings_unref(struct rg_bucket_settings *settings);
/* "{}" for NULL. */
struct rg_h1_slice rg_bucket_settings_json(const struct rg_bucket_settings *settings);

#endif
