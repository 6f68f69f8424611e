/* POST /batch/storage/v1: up to 100 calls of the JSON API in one request, each answered for itself,
 * in their order. Uploads and downloads are not among them. */
#ifndef RG_EMULATOR_API_JSON_BATCH_H
#define RG_EMULATOR_API_JSON_BATCH_H

#include "emulator/request/reply.h"

#define RG_BATCH_CALLS_MAX 100
#define RG_BATCH_SIZE_MAX (10u << 20)

void rg_batch_start(struct rg_server_call *call, const struct rg_api_request *request);

#endif
