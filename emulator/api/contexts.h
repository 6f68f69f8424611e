/* Object contexts: keys and values that a listing can be filtered by. They are attributes whose
 * names begin with RG_CONTEXTS_PREFIX, and whose values say when they were made and changed. */
#ifndef RG_EMULATOR_API_CONTEXTS_H
#define RG_EMULATOR_API_CONTEXTS_H

#include "emulator/store/model/attributes.h"
#include "emulator/wire/text.h"

#include <yyjson.h>

#define RG_CONTEXTS_PREFIX "contexts."
/* Limits of the service ("Object contexts"): contexts of an object, bytes of a key and of a
 * value. */
#define RG_CONTEXTS_MAX 50
#define RG_CONTEXTS_TEXT_SIZE_MAX 256

/* Takes over the member `contexts` of a resource. A null removes the context, or all of them,
 * that it stands for; contexts that are not named stay. 0; -EINVAL: it is malformed; -E2BIG:
 * there are too many. */
int rg_contexts_take_json(struct rg_text *list, yyjson_val *contexts, int64_t now_us);
bool rg_contexts_present(const struct rg_attributes *attributes);
/* The member's value. */
void rg_contexts_append_json(struct rg_text *text, const struct rg_attributes *attributes);

/* A listing's parameter `filter`: contexts."KEY"="VALUE" or contexts."KEY":*. A "-" in front
 * negates it. */
struct rg_context_filter {
    bool negated;
    struct rg_h1_slice key, value; /* Borrowed. A value whose data is NULL stands for any. */
};
/* -EINVAL when it is something else. */
int rg_context_filter_parse(struct rg_context_filter *out_filter, struct rg_h1_slice text);
bool rg_context_filter_match(const struct rg_context_filter *filter,
                             const struct rg_attributes *attributes);

#endif
