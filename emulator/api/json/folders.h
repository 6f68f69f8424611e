/* Folders of a bucket with a hierarchical namespace in the JSON API: they are created,
 * described, listed, deleted and renamed. A rename is a long-running operation, which has ended
 * here when it is answered. The last operations can be asked for. */
#ifndef RG_EMULATOR_API_JSON_FOLDERS_H
#define RG_EMULATOR_API_JSON_FOLDERS_H

#include "emulator/request/reply.h"

/* Whether a request is about folders or operations of its bucket. */
bool rg_folder_api_is(const struct rg_api_request *request);
/* Answers the call, or names who receives its body. */
void rg_folder_api_start(struct rg_server_call *call, const struct rg_api_request *request);

#endif
