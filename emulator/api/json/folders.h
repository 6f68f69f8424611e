/* The folders of a bucket with a hierarchical namespace by the JSON API: created, described,
 * listed, deleted, and renamed, which is a long-running operation that has ended when it is
 * answered. The last operations can be asked for. */
#ifndef RG_EMULATOR_API_JSON_FOLDERS_H
#define RG_EMULATOR_API_JSON_FOLDERS_H

#include "emulator/request/reply.h"

/* Whether the part of the bucket is folders or operations. */
bool rg_folder_api_is(const struct rg_api_request *request);
/* Answers, or names who receives the body. */
void rg_folder_api_start(struct rg_server_call *call, const struct rg_api_request *request);

#endif
