/* What requests may ask for that the emulator does not do. It would look as if it were done. */
#ifndef RG_EMULATOR_API_UNSUPPORTED_H
#define RG_EMULATOR_API_UNSUPPORTED_H

#include "emulator/request/reply.h"

/* Refuses parameters and header fields that mean something to the service, and nothing here; what
 * neither knows is passed over, as clients add some of their own. False with the call answered. */
bool rg_unsupported_check(struct rg_server_call *call, const struct rg_api_request *request);

#endif
