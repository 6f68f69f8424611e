/* What a client says of an object: content type and encoding, the other known fields, and the
 * user's own metadata. It comes as a resource in JSON or as header fields. */
#ifndef RG_EMULATOR_API_DESCRIPTION_H
#define RG_EMULATOR_API_DESCRIPTION_H

#include "emulator/request/reply.h"

#include <yyjson.h>

#define RG_DESCRIPTION_CONTENT_TYPE "application/octet-stream"

/* A description in the making. It starts as that of an object, or zeroed. */
struct rg_description {
    struct rg_store_object_info info; /* Content type and encoding count; `attributes` does not. */
    struct rg_text list;              /* attributes */
    struct rg_bucket_info bucket; /* Where the object lies; zeroed where that is not known yet. */
};

/* Lets the object's bucket add what it demands, such as a hold. A NULL bucket adds nothing. */
void rg_description_set_bucket(struct rg_description *description, struct rg_bucket *bucket);
/* Removes all holds but the one that the bucket puts on new objects. An object has these when it
 * is made, whatever it is made from. */
void rg_description_set_holds(struct rg_description *description);
/* Gives it the bucket's own storage class, which an object has when it is made unless the request
 * says another, whatever it is made from. */
void rg_description_set_class(struct rg_description *description);
void rg_description_fini(struct rg_description *description);

/* Copies a value that has to be valid in a header field, of at most `size_max` bytes, with a
 * NUL. This and what follows return false with the call answered when something is wrong. */
bool rg_description_set(struct rg_server_call *call, const char *what, struct rg_h1_slice value,
                        char *out, size_t size_max);
/* Takes over what the members say; null takes a value away. With `replaces` metadata that is not
 * named goes, otherwise it stays. */
bool rg_description_take_json(struct rg_server_call *call, struct rg_description *description,
                              yyjson_val *root, bool replaces);
/* Whether the members say anything that describes an object. */
bool rg_description_is_said(yyjson_val *root);
/* Takes over what header fields of the XML API say, apart from content type and encoding. */
bool rg_description_take_head(struct rg_server_call *call, struct rg_description *description,
                              const struct rg_h1_head *head);
/* Makes attributes of what was taken. Returns owned. */
bool rg_description_finish(struct rg_server_call *call, const struct rg_description *description,
                           struct rg_attributes **out_attributes);

#endif
