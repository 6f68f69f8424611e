/* Requests with a document as their body, in JSON or XML, which can only be read when all of it
 * is there. The request's head is kept with it, because the server has reused its own by then. */
#ifndef RG_EMULATOR_REQUEST_BODY_H
#define RG_EMULATOR_REQUEST_BODY_H

#include "emulator/request/reply.h"

/* Limit of a description of an object or a bucket: 32 names and 8 KiB of metadata, with escapes. */
#define RG_BODY_SIZE_MAX RG_KIB(512)

/* Gets the request and its whole body, both valid for the duration of the call, and answers it. */
typedef void rg_body_finish(struct rg_server_call *call, const struct rg_api_request *request,
                            struct rg_h1_slice body);

/* Makes the call collect its body, at most `size_max` bytes, for `finish`. Answers the call when
 * there is no memory for that. */
void rg_body_collect(struct rg_server_call *call, const struct rg_api_request *request,
                     uint32_t size_max, rg_body_finish *finish);

#endif
