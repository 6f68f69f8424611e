/* The request that writes a whole object out of one part: what SINGLE is, and what COMPOSE does
 * with each of its parts. */
#ifndef RG_GCS_UPLOAD_SINGLE_H
#define RG_GCS_UPLOAD_SINGLE_H

#include "gcs/upload/upload.h"

/* Prepares the call of a part that is FILLED. 0 or -ENOMEM. */
int rg_upload_single_prepare(struct rg_upload_part *part, const struct rg_gcs_call_ops *ops,
                             const char *object, const struct rg_conditions *conditions);
/* For `encode` of those ops. */
void rg_upload_single_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder,
                             const struct rg_conditions *conditions);

#endif
