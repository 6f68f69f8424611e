/* Synthetic objects, which take no memory. A set is COUNT objects of one size, named PREFIX and
 * a number of fixed width. Their bytes are a stretch of one pseudo-random table, which starts
 * where the hash of the name says. A body is therefore a pointer into the table, and its
 * checksum is computed from the table's without reading the body, so that listing millions is
 * cheap. */
#ifndef RG_EMULATOR_STORE_SYNTHETIC_H
#define RG_EMULATOR_STORE_SYNTHETIC_H

#include "emulator/store/model/object.h"

#define RG_SYNTHETIC_COUNT_MAX UINT64_C(1000000000000)
#define RG_SYNTHETIC_DIGITS_MIN 8

struct rg_synthetic;

/* Reads BUCKET/PREFIX:COUNT:SIZE. SIZE may end in KiB, MiB, GiB or TiB. Returns owned; on -EINVAL
 * `error` says what is wrong with the spec. *out_bucket lies in `spec`. */
int rg_synthetic_create(struct rg_synthetic **out_set, const char *spec,
                        struct rg_h1_slice *out_bucket, char *error, size_t error_size);
void rg_synthetic_destroy(struct rg_synthetic *set);

/* 0, or -ENOENT: no object of that name, or it is hidden. */
int rg_synthetic_open(struct rg_synthetic *set, struct rg_h1_slice name,
                      struct rg_store_object *out_object);
/* Valid as long as the set. */
struct rg_h1_slice rg_synthetic_prefix(const struct rg_synthetic *set);
/* The name of the first object at or behind `from` that is not hidden: RG_STORE_NAME_SIZE_MAX bytes
 * of room. */
int rg_synthetic_seek(struct rg_synthetic *set, struct rg_h1_slice from, char *out_name,
                      uint32_t *out_name_size);
/* An object of the set, by its name. */
void rg_synthetic_describe(const struct rg_synthetic *set, struct rg_h1_slice name,
                           struct rg_store_object_info *out_info);
/* Hides an object as if it were deleted. 0, -ENOENT when it is not there, -ENOMEM. Calls come
 * one at a time. */
int rg_synthetic_hide(struct rg_synthetic *set, struct rg_h1_slice name);

#endif
