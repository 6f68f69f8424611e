/* Resumable uploads, in both APIs. A session is started with the description of the object, and
 * then gets its bytes in any number of requests.
 *
 * Bytes of a request that broke off are kept, and told in units of 256 KiB, as by the service.
 * Bytes that are sent again are passed over. A session lives in the process: it ends with the
 * emulator, or when RG_SESSIONS_MAX others were used since. */
#ifndef RG_EMULATOR_API_RESUMABLE_H
#define RG_EMULATOR_API_RESUMABLE_H

#include "emulator/request/reply.h"

/* Whether the request belongs to a session that was started before. */
bool rg_resumable_is_session(const struct rg_api_request *request);
/* POST with uploadType=resumable, or with x-goog-resumable: start. */
void rg_resumable_start(struct rg_server_call *call, const struct rg_api_request *request);
/* Requests to a session: PUT of bytes, PUT that asks how many are there, DELETE. */
void rg_resumable_continue(struct rg_server_call *call, const struct rg_api_request *request);
/* Sessions that can still become an object. */
uint32_t rg_resumable_count(struct rg_sessions *sessions);

#endif
