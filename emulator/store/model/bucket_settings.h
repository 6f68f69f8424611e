/* Members of a bucket's description that are kept as they were sent, such as labels. They are
 * the text of a JSON object with the members of the resource. It is immutable and has a
 * reference count, because it is told while others change it. NULL: there are none. */
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
