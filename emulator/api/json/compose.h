/* POST …/compose: an object out of up to 32 others of the same bucket. */
#ifndef RG_EMULATOR_API_JSON_COMPOSE_H
#define RG_EMULATOR_API_JSON_COMPOSE_H

#include "emulator/request/reply.h"

#define RG_COMPOSE_SOURCES_MAX 32

void rg_compose_start(struct rg_server_call *call, const struct rg_api_request *request);

#endif
