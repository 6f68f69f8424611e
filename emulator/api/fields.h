/* The `fields` parameter of the JSON API: which members of a response are wanted, as in
 * "nextPageToken,items(name,size)" or "items/name". */
#ifndef RG_EMULATOR_API_FIELDS_H
#define RG_EMULATOR_API_FIELDS_H

#include "http/h1_decoder.h"
#include "runtime/base.h"

/* Limit of the depth of parentheses. */
#define RG_FIELDS_DEPTH_MAX 8

/* Whether a well-formed mask selects member `name` of member `outer`, or of the top level when
 * `outer` is NULL. An empty mask selects everything. */
bool rg_fields_select(struct rg_h1_slice mask, const char *outer, const char *name);
bool rg_fields_valid(struct rg_h1_slice mask);

#endif
