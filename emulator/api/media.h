/* Reading and deleting an object. Both APIs do it alike; they differ in where conditions are
 * said. */
#ifndef RG_EMULATOR_API_MEDIA_H
#define RG_EMULATOR_API_MEDIA_H

#include "emulator/request/reply.h"

/* Opens the object that the request names into call->object, with conditions checked. False when
 * that failed and the call is answered. */
bool rg_media_open(struct rg_server_call *call, const struct rg_api_request *request);
/* The same for an object that will be changed: a failed not-match is 412 then, not 304. */
bool rg_media_open_to_change(struct rg_server_call *call, const struct rg_api_request *request);
/* Answers with the object's bytes, or the range of them that is wanted. */
void rg_media_get(struct rg_server_call *call, const struct rg_api_request *request);
void rg_media_remove(struct rg_server_call *call, const struct rg_api_request *request);

#endif
