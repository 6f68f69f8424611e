/* Takes over what a request says of a bucket. For each member of the resource one of four things
 * is done: the store goes by it; it is kept and told; it is passed over, because only the
 * service sets it; or it is refused. Nothing is dropped silently. */
#ifndef RG_EMULATOR_API_JSON_BUCKET_DESCRIPTION_H
#define RG_EMULATOR_API_JSON_BUCKET_DESCRIPTION_H

#include "emulator/request/reply.h"

#include <yyjson.h>

/* Takes over what the members of `root` say. `known` are the settings so far; with `replaces`,
 * those that are not named go. *out_settings is owned by the caller. False with the call answered.
 */
bool rg_bucket_describe(struct rg_server_call *call, yyjson_val *root, bool replaces,
                        const struct rg_bucket_settings *known, struct rg_bucket_info *info,
                        struct rg_bucket_settings **out_settings);
/* The same for a retention policy that is locked from now on. */
bool rg_bucket_lock_retention(struct rg_server_call *call, const struct rg_bucket_settings *known,
                              struct rg_bucket_info *info,
                              struct rg_bucket_settings **out_settings);

#endif
