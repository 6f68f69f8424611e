/* Attributes of an object: what it has beside its bytes, content type and encoding. They are a
 * few fields that we know by name, and the user's own, which are called "metadata.KEY" here.
 *
 * The list of names and values is immutable and has a reference count, because versions, open
 * objects and uploads share it. Most objects have none, which is NULL. */
#ifndef RG_EMULATOR_STORE_MODEL_ATTRIBUTES_H
#define RG_EMULATOR_STORE_MODEL_ATTRIBUTES_H

#include "emulator/wire/text.h"
#include "http/h1_encoder.h"

/* Limit of their size as header fields, which is the longer form. They share a head with others. */
#define RG_ATTRIBUTES_SIZE_MAX RG_KIB(10)
#define RG_ATTRIBUTES_METADATA "metadata."
/* How many objects a composite object was made of. Users cannot set it. */
#define RG_ATTRIBUTES_COMPONENT_COUNT "componentCount"

/* STANDARD where there is none. */
#define RG_ATTRIBUTES_CLASS "storageClass"

/* The access control list, as a JSON array. It is told, and has no effect. */
#define RG_ATTRIBUTES_ACL "acl"

struct rg_attributes;

/* NULL stays NULL. */
struct rg_attributes *rg_attributes_ref(const struct rg_attributes *attributes);
void rg_attributes_unref(struct rg_attributes *attributes);

/* The next name and value behind *at, which starts as 0. False at the end. */
bool rg_attributes_next(const struct rg_attributes *attributes, size_t *at,
                        struct rg_h1_slice *out_name, struct rg_h1_slice *out_value);
/* `data` is NULL when there is none of that name. */
struct rg_h1_slice rg_attributes_get(const struct rg_attributes *attributes, const char *name);
/* How many objects it was composed of; 0 when it was not. */
int64_t rg_attributes_component_count(const struct rg_attributes *attributes);

/* A list in the making is a text that starts empty, or as a copy. Setting a name again replaces its
 * value, and a value without data takes it away. -EINVAL for what cannot be one: a NUL in it, or a
 * known field that is not a header value. */
void rg_attributes_copy(struct rg_text *list, const struct rg_attributes *attributes);
int rg_attributes_set(struct rg_text *list, struct rg_h1_slice name, struct rg_h1_slice value);
/* Takes away everything, or what starts with `prefix`. */
void rg_attributes_clear(struct rg_text *list, const char *prefix);
/* Returns owned, NULL for an empty list. -EMSGSIZE when it is too large, -ENOMEM. */
int rg_attributes_create(struct rg_attributes **out_attributes, const struct rg_text *list);

/* The known field of an index: its name in JSON, and as a header field. NULL: there are no more. */
const char *rg_attributes_known(size_t index, const char **out_header);

/* Takes what the header fields say: known ones and x-goog-meta-. -EINVAL as above. */
int rg_attributes_take_head(struct rg_text *list, const struct rg_h1_head *head);
/* Those that can be header fields; others are left out. */
void rg_attributes_encode(const struct rg_attributes *attributes, struct rg_h1_encoder *head);

#endif
