/* The JSON API's buckets: listed, made, described and removed, and their parts. Folders are in
 * folder_api.h. */
#ifndef RG_EMULATOR_BUCKET_API_H
#define RG_EMULATOR_BUCKET_API_H

#include "emulator/reply.h"

/* Answers a request of a route for buckets, a bucket or a part of one, or names who receives its
 * body. */
void rg_bucket_api_start(struct rg_server_call *call, const struct rg_api_request *request);

#endif
