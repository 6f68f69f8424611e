/* The JSON API's buckets: listed, made, described and removed, and their parts. Folders are in
 * folders.h. */
#ifndef RG_EMULATOR_API_JSON_BUCKETS_H
#define RG_EMULATOR_API_JSON_BUCKETS_H

#include "emulator/request/reply.h"

/* Answers a request of a route for buckets, a bucket or a part of one, or names who receives its
 * body. */
void rg_bucket_api_start(struct rg_server_call *call, const struct rg_api_request *request);

#endif
