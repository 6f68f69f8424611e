/* Requests about objects that are no data: a target, maybe a body, and an answer in JSON, or
 * nothing. They are submitted as they are, or are children of operations.
 *
 *   rg_request_set_names -> rg_object_prepare -> attempts -> the answer, parsed into a slab */
#ifndef RG_GCS_REQUEST_OBJECT_REQUEST_H
#define RG_GCS_REQUEST_OBJECT_REQUEST_H

#include "gcs/request/request.h"
#include "gcs/wire/object_resource.h"
#include "gcs/wire/target.h"

/* What of a resource is asked for. */
#define RG_RESOURCE_FIELDS                                                                         \
    "bucket,name,size,generation,metageneration,crc32c,md5Hash,updated,timeCreated,contentType,"   \
    "contentEncoding,cacheControl,storageClass,etag,componentCount,metadata"

/* Submits one request: `prepare` fills it from `given`, and on failure leaves nothing behind. */
int rg_object_submit(struct rg_client *client, struct rg_cq *cq,
                     int (*prepare)(struct rg_request *request, const void *given),
                     const void *given);

/* What is sent: the target, copied, and a body, which is taken and freed on failure too. */
struct rg_object_call {
    const char *method;
    const struct rg_target *target;
    const char *content_type; /* of the body, a literal; NULL: JSON */
    char *body;               /* NULL: none */
    size_t body_size;
    uint64_t user_data, deadline_ns;
};
/* Prepares a request whose names are set: 0, -ENOMEM, or -EINVAL where the target is too long. */
int rg_object_prepare(struct rg_request *request, const struct rg_request_ops *ops,
                      const struct rg_object_call *call);

/* What ops of this kind are made of. */
int rg_object_encode(struct rg_request *request, struct rg_h1_encoder *encoder);
int rg_object_head(struct rg_request *request, const struct rg_h1_head *head);
void rg_object_release(struct rg_request *request);
/* The end of a request whose answer `parse` reads: into `memory`, of which the first
 * RG_OBJECT_FRONT_SIZE bytes are its own and the rest is what the functions of object_resource.h
 * want. */
#define RG_OBJECT_FRONT_SIZE (2 * RG_CACHE_LINE)
typedef int rg_object_parse(struct rg_request *request, uint8_t *memory, size_t memory_size,
                            struct rg_completion *completion, const char **out_problem);
enum rg_status rg_object_finish(struct rg_request *request, rg_object_parse *parse,
                                struct rg_completion *completion);
/* The end of one that is answered by a resource; ops->finish. */
enum rg_status rg_object_finish_info(struct rg_request *request, struct rg_completion *completion);
/* Makes this resource the data of the completion, in its lease. */
void rg_object_complete_info(struct rg_completion *completion, const struct rg_object_info *info);

/* Removes one; a part of a batch is the same target. */
int rg_delete_prepare(struct rg_request *request, const void *given);
bool rg_delete_valid(const struct rg_delete *del);
/* Into the target's text, of its capacity. */
void rg_delete_target(struct rg_target *target, const struct rg_delete *del);

#endif
