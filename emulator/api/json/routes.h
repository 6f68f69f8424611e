/* The JSON API: /storage/v1 and its aliases /download, /upload and /batch. */
#ifndef RG_EMULATOR_API_JSON_ROUTES_H
#define RG_EMULATOR_API_JSON_ROUTES_H

#include "emulator/request/reply.h"

/* Answers the call, or names who receives its body. */
void rg_json_api_start(struct rg_server_call *call, const struct rg_api_request *request);

#endif
