/* GET /unfinished_uploads: {"resumable":N,"multipart":M}, the uploads that were begun and neither
 * became an object nor were cancelled. The service lists only the latter; a test wants to know what
 * its program leaves behind of both. */
#ifndef RG_EMULATOR_UNFINISHED_H
#define RG_EMULATOR_UNFINISHED_H

#include "emulator/request/call.h"
#include "emulator/request/request.h"

/* Answers the call. False: the request is about something else. */
bool rg_unfinished_control(struct rg_server_call *call, const struct rg_api_request *request);

#endif
