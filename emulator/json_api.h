/* The JSON API: /storage/v1 and its aliases /download, /upload and /batch. */
#ifndef RG_EMULATOR_JSON_API_H
#define RG_EMULATOR_JSON_API_H

#include "emulator/reply.h"

/* Answers the call, starts an upload, or has the body collected for rg_json_api_finish. */
void rg_json_api_start(struct rg_server_call *call, const struct rg_api_request *request);
/* The body of the one request that is collected, that to make a bucket, is in call->text. */
void rg_json_api_finish(struct rg_server_call *call);

#endif
