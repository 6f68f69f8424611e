/* POST of a bucket with ?delete: up to 1,000 objects deleted in one request of the XML API. */
#ifndef RG_EMULATOR_API_XML_DELETE_H
#define RG_EMULATOR_API_XML_DELETE_H

#include "emulator/request/reply.h"

#define RG_XML_DELETE_COUNT_MAX 1000

void rg_xml_delete_start(struct rg_server_call *call, const struct rg_api_request *request);

#endif
