/* Request targets: names that are percent-encoded, and a query.
 *
 * One target lives from rg_target_init to rg_target_end and is written into the caller's memory.
 * Errors are sticky, so that only the result of rg_target_end must be looked at. */
#ifndef RG_GCS_WIRE_TARGET_H
#define RG_GCS_WIRE_TARGET_H

#include "runtime/base.h"

#include <errno.h>
#include <ringest/gcs.h>

/* The longest target that is sent, with a NUL; servers take at least this much. */
#define RG_TARGET_SIZE_MAX RG_KIB(16)

struct rg_target {
    char *text; /* borrowed; always ends with a NUL */
    size_t size, capacity;
    bool has_query;
    int error; /* 0 or -ENOSPC */
};

/* Begins an empty one in `capacity` bytes, at least 1. */
void rg_target_init(struct rg_target *target, char *text, size_t capacity);
/* Text that needs no encoding, or a name. */
void rg_target_add(struct rg_target *target, const char *text);
void rg_target_add_name(struct rg_target *target, const char *name);
/* "/storage/v1/b/BUCKET", and "/o/OBJECT" behind it unless object is NULL. */
void rg_target_add_object(struct rg_target *target, const char *bucket, const char *object);
/* One pair of the query; a value that is NULL or empty, or the number 0, adds nothing. */
void rg_target_query(struct rg_target *target, const char *name, const char *value);
void rg_target_query_i64(struct rg_target *target, const char *name, int64_t value);
/* The conditions of the object, or of the source of a copy (Cloud Storage, "Request
 * preconditions"). RG_GENERATION_ABSENT is sent as 0. */
void rg_target_conditions(struct rg_target *target, const struct rg_conditions *conditions);
void rg_target_source_conditions(struct rg_target *target, const struct rg_conditions *conditions);
/* The size without the NUL, or -ENOSPC. */
int rg_target_end(const struct rg_target *target);

/* True when anything is demanded. */
bool rg_conditions_any(const struct rg_conditions *conditions);
/* True when no number is one that no object can have. */
bool rg_conditions_valid(const struct rg_conditions *conditions);

#endif
