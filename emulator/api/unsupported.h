/* Refuses requests for what the service does and the emulator does not. If they were answered,
 * it would look as if that were done. */
#ifndef RG_EMULATOR_API_UNSUPPORTED_H
#define RG_EMULATOR_API_UNSUPPORTED_H

#include "emulator/request/reply.h"

/* Checks parameters and header fields. What means something to the service, and nothing here, is
 * refused. What neither knows is passed over, because clients add some of their own. False with
 * the call answered. */
bool rg_unsupported_check(struct rg_server_call *call, const struct rg_api_request *request);

#endif
