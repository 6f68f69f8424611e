/* Requests whose body is small and has to be there as a whole before it means anything: JSON and
 * XML documents. What the request asked for is kept beside it, because the server's head is gone by
 * then. */
#ifndef RG_EMULATOR_REQUEST_BODY_H
#define RG_EMULATOR_REQUEST_BODY_H

#include "emulator/request/reply.h"

/* Of the description of an object or a bucket: 32 names and 8 KiB of metadata, with escapes. */
#define RG_BODY_SIZE_MAX RG_KIB(512)

/* `request` borrows from what was kept, `body` from what came. It answers the call. */
typedef void rg_body_finish(struct rg_server_call *call, const struct rg_api_request *request,
                            struct rg_h1_slice body);

/* In `begin`: has at most `size_max` bytes of the body collected for `finish`, or answers. */
void rg_body_collect(struct rg_server_call *call, const struct rg_api_request *request,
                     uint32_t size_max, rg_body_finish *finish);

#endif
