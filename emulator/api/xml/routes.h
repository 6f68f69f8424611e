/* The XML API in path style: /BUCKET and /BUCKET/OBJECT. */
#ifndef RG_EMULATOR_API_XML_ROUTES_H
#define RG_EMULATOR_API_XML_ROUTES_H

#include "emulator/request/reply.h"

/* Answers the call or starts an upload. */
void rg_xml_api_start(struct rg_server_call *call, const struct rg_api_request *request);

#endif
