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
/* Whether objects of this class, NULL: the bucket's, are paid for a month or longer however soon
 * they are removed (Cloud Storage, "Storage classes"), so that temporary ones are dear. */
bool rg_upload_class_is_cold(const char *storage_class);
void rg_upload_attributes_free(struct rg_upload_attributes *own);

#endif
