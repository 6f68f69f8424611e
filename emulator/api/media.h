/* Reading and deleting an object, which is the same in both APIs but for where conditions come
 * from. */
#ifndef RG_EMULATOR_API_MEDIA_H
#define RG_EMULATOR_API_MEDIA_H

#include "emulator/request/reply.h"

/* Opens the object that the request names into call->object, with conditions checked. False when
 * that failed and the call is answered. */
bool rg_media_open(struct rg_server_call *call, const struct rg_api_request *request);
/* The same for what will be changed: a not-match that fails is 412 here, not 304. */
bool rg_media_open_to_change(struct rg_server_call *call, const struct rg_api_request *request);
/* Answers with the object's bytes, or the range of them that is wanted. */
void rg_media_get(struct rg_server_call *call, const struct rg_api_request *request);
void rg_media_remove(struct rg_server_call *call, const struct rg_api_request *request);

#endif
