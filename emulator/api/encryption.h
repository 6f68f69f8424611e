/* Customer-supplied encryption keys. Nothing is encrypted here; but who wrote an object with a key
 * reads it with the same one or not at all, as of the service. The key's SHA-256, which every
 * request brings along, stands for it. */
#ifndef RG_EMULATOR_API_ENCRYPTION_H
#define RG_EMULATOR_API_ENCRYPTION_H

#include "emulator/request/reply.h"

/* The attribute that has the SHA-256 in base64. */
#define RG_ENCRYPTION_ATTRIBUTE "customerEncryption"

/* Puts the key that an upload names into its attributes, or takes one away that is there. False
 * with the call answered. */
bool rg_encryption_take(struct rg_server_call *call, const struct rg_h1_head *head,
                        struct rg_text *list);
/* Whether the request has the key of an object whose bytes it wants; of a copy's source it is in
 * fields of their own. False with the call answered. */
bool rg_encryption_check(struct rg_server_call *call, const struct rg_h1_head *head,
                         bool is_copy_source, const struct rg_store_object_info *info);

#endif
