/* Customer-supplied encryption keys. Nothing is encrypted here, but an object that was written
 * with a key can only be read with the same one, as from the service. What is kept of the key is
 * its SHA-256, which every request brings along. */
#ifndef RG_EMULATOR_API_ENCRYPTION_H
#define RG_EMULATOR_API_ENCRYPTION_H

#include "emulator/request/reply.h"

/* The attribute that has the SHA-256 in base64. */
#define RG_ENCRYPTION_ATTRIBUTE "customerEncryption"

/* Puts the key that an upload names into its attributes. If it names none, one that is there is
 * removed. False with the call answered when the fields are malformed. */
bool rg_encryption_take(struct rg_server_call *call, const struct rg_h1_head *head,
                        struct rg_text *list);
/* Whether the request has the key of an object that it wants to read. For the source of a copy
 * it is in fields of its own. False with the call answered. */
bool rg_encryption_check(struct rg_server_call *call, const struct rg_h1_head *head,
                         bool is_copy_source, const struct rg_store_object_info *info);

#endif
