/* Where credentials are found: the search order of Application Default Credentials. */
#ifndef RG_GCS_CREDENTIALS_FILE_H
#define RG_GCS_CREDENTIALS_FILE_H

#include "gcs/credentials/kind.h"

#define RG_CREDENTIALS_PATH_SIZE_MAX 4096

/* Finds and reads credentials: the file `path`, or, where that is NULL, what
 * GOOGLE_APPLICATION_CREDENTIALS names, else gcloud's own file, else the metadata server. Nothing
 * but files is asked. The config lives in reader->arena; *out_origin says where it comes from, for
 * people, and *out_hash, of RG_SHA256_SIZE bytes, differs where the credentials do. NULL:
 * reader->rc and reader->text. */
struct rg_credentials_config *rg_credentials_find(struct rg_credentials_reader *reader,
                                                  const char *path, const char **out_origin,
                                                  uint8_t *out_hash);

#endif
