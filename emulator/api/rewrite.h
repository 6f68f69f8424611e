/* Copies: rewriteTo with its tokens, copyTo, moveTo, and x-goog-copy-source of the XML API. */
#ifndef RG_EMULATOR_API_REWRITE_H
#define RG_EMULATOR_API_REWRITE_H

#include "emulator/request/reply.h"

/* A POST with the action of a copy. */
void rg_rewrite_start(struct rg_server_call *call, const struct rg_api_request *request);
/* A PUT with x-goog-copy-source. */
void rg_rewrite_start_xml(struct rg_server_call *call, const struct rg_api_request *request);

#endif
