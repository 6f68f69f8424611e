/* What an upload is to say about its object, copied from the caller. */
#ifndef RG_GCS_UPLOAD_ATTRIBUTES_H
#define RG_GCS_UPLOAD_ATTRIBUTES_H

#include "gcs/wire/nonce.h"
#include "gcs/wire/upload_text.h"

/* Copies `given`, which needs no content type. Where `out_nonce` is not NULL, adds a nonce to the
 * metadata, by which what is stored is known again. 0, -ENOMEM, or -EINVAL for what can be sent
 * neither in a header field nor in JSON, or is too long; free it either way. */
int rg_upload_attributes_copy(struct rg_upload_attributes *out_own,
                              const struct rg_upload_attributes *given, char *out_nonce);
/* Zeroed: nothing to free. */
void rg_upload_attributes_free(struct rg_upload_attributes *own);

#endif
