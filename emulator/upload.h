/* Receiving an object in one request: the plain body of a simple upload and of an XML PUT, and the
 * multipart body that carries metadata before the data. Resumable uploads are something else.
 *
 * Life: rg_api_upload_start in `begin` -> rg_api_upload_receive for each piece ->
 * rg_api_upload_finish, which answers the call. The first two answer it when something is wrong,
 * and then nothing more comes. */
#ifndef RG_EMULATOR_UPLOAD_H
#define RG_EMULATOR_UPLOAD_H

#include "emulator/reply.h"

/* Sets call->upload, unless it answers. */
void rg_api_upload_start(struct rg_server_call *call, const struct rg_api_request *request);
void rg_api_upload_receive(struct rg_server_call *call, const uint8_t *data, size_t size);
void rg_api_upload_finish(struct rg_server_call *call);
/* What was not committed leaves no trace. NULL does nothing. */
void rg_api_upload_destroy(struct rg_api_upload *upload);

#endif
