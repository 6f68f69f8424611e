/* Multipart uploads of the XML API. Parts come in any order and in parallel, and become an
 * object at the end. Part numbers are 1 to 10,000, and all parts but the last have 5 MiB at
 * least. A part that is sent again replaces the one before. An upload that is not completed ends
 * with the emulator, or when RG_SESSIONS_MAX others were used since. */
#ifndef RG_EMULATOR_API_XML_MULTIPART_H
#define RG_EMULATOR_API_XML_MULTIPART_H

#include "emulator/request/reply.h"

#define RG_XML_MULTIPART_PART_SIZE_MIN RG_MIB(5)
#define RG_XML_MULTIPART_PART_MAX 10000

/* Whether a request to an object is one of these: it has ?uploads or ?uploadId=. */
bool rg_xml_multipart_is(const struct rg_api_request *request);
void rg_xml_multipart_start(struct rg_server_call *call, const struct rg_api_request *request);
/* GET of a bucket with ?uploads: those of a prefix that are behind the markers, by name and id. */
void rg_xml_multipart_list(struct rg_server_call *call, const struct rg_api_request *request);
/* Uploads that have neither been completed nor aborted, in all buckets. */
uint32_t rg_xml_multipart_count(struct rg_sessions *sessions);

#endif
