/* Access control lists. They are stored and told, and nobody looks at what they allow: everybody
 * may do everything. What the service refuses to store is refused here, too. */
#ifndef RG_EMULATOR_API_ACCESS_H
#define RG_EMULATOR_API_ACCESS_H

#include "emulator/request/call.h"
#include "emulator/request/request.h"
#include "emulator/store/model/bucket_info.h"

#include <yyjson.h>

/* Each returns false with the call answered when something is wrong. */

/* Whether a list may be stored in a bucket, or in an object of it. */
bool rg_access_check(struct rg_server_call *call, const struct rg_bucket_info *bucket,
                     yyjson_val *acl);
/* Whether a list can be asked for: not where access is uniform, and only as a whole, by `get`. */
bool rg_access_check_read(struct rg_server_call *call, struct rg_bucket *bucket, bool get);
/* Stores the array of entries that a description has. */
bool rg_access_take_json(struct rg_server_call *call, const struct rg_bucket_info *bucket,
                         struct rg_text *list, yyjson_val *acl);
/* Stores the predefined list that a request names, if it names one. */
bool rg_access_take_predefined(struct rg_server_call *call, const struct rg_bucket_info *bucket,
                               struct rg_text *list, const struct rg_api_request *request);

#endif
