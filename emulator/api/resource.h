/* Objects as the JSON API describes them. Integers of 64 bits are strings there. */
#ifndef RG_EMULATOR_API_RESOURCE_H
#define RG_EMULATOR_API_RESOURCE_H

#include "emulator/request/call.h"
#include "emulator/request/request.h"
#include "emulator/store/store.h"
#include "emulator/wire/text.h"

#define RG_RESOURCE_ORIGIN_SIZE_MAX 300

/* What a request wants of resources: the same for all objects of an answer. */
struct rg_resource_style {
    char origin[RG_RESOURCE_ORIGIN_SIZE_MAX]; /* What links start with, as in
                                                 "https://localhost:8443". */
    uint64_t members;     /* Which members are wanted, as bits that only resource.c knows. */
    bool acl;             /* The access control list is wanted, too. False at first. */
    int64_t retention_us; /* The bucket's. 0 at first. */
};

/* `host` is the request's Host. The members are those that the `fields` mask selects; `outer` is
 * the member of the answer that holds the resources, or NULL. */
void rg_resource_style_init(struct rg_resource_style *style, bool tls,
                            const struct rg_h1_slice *host, struct rg_h1_slice mask,
                            const char *outer);
/* The same from a call's request and its bucket. */
void rg_resource_style_of_request(struct rg_resource_style *style, struct rg_server_call *call,
                                  const struct rg_api_request *request, const char *outer);

void rg_resource_append_object(struct rg_text *text, const struct rg_resource_style *style,
                               struct rg_h1_slice bucket, struct rg_h1_slice name,
                               const struct rg_store_object_info *info);
/* Parts that resources have in common. */

/* A text that has nothing to escape, at most 62 bytes, with quotes. */
void rg_resource_append_quoted(struct rg_text *text, const char *data, size_t size);
void rg_resource_append_time(struct rg_text *text, int64_t microseconds);
/* BUCKET/NAME, and /GENERATION where that is not 0. */
void rg_resource_append_id(struct rg_text *text, struct rg_h1_slice bucket, struct rg_h1_slice name,
                           int64_t generation);
/* A name as one segment of a path, whose slashes are escaped. */
void rg_resource_append_segment(struct rg_text *text, struct rg_h1_slice name);

#endif
