/* PATCH and PUT of an object's description in the JSON API. */
#ifndef RG_EMULATOR_API_JSON_UPDATE_H
#define RG_EMULATOR_API_JSON_UPDATE_H

#include "emulator/request/call.h"
#include "emulator/request/request.h"

/* PATCH changes the members that it names, PUT all of them. */
void rg_update_start(struct rg_server_call *call, const struct rg_api_request *request);

#endif
