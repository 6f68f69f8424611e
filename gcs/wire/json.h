/* What reading and writing the service's JSON share, over yyjson.
 *
 * The service sends 64-bit numbers as strings; numbers are taken as well. */
#ifndef RG_GCS_WIRE_JSON_H
#define RG_GCS_WIRE_JSON_H

#include "runtime/base.h"

#include <errno.h>
#include <ringest/objects.h>
#include <string.h>
#include <yyjson.h>

/* A million listed names have five million keys: where the name is a literal, its size is known to
 * the compiler and compared first. */
__attribute__((always_inline)) static inline bool rg_json_key_is(yyjson_val *key, const char *name)
{
    size_t size = strlen(name);
    return yyjson_get_len(key) == size && memcmp(yyjson_get_str(key), name, size) == 0;
}

/* A string that can be given out as one that ends with a NUL. False, with the output untouched:
 * the value is something else. */
bool rg_json_read_text(yyjson_val *value, const char **out_text);
bool rg_json_read_u64(yyjson_val *value, uint64_t *out_number);
/* A generation or metageneration. */
bool rg_json_read_i64(yyjson_val *value, int64_t *out_number);
bool rg_json_read_crc32c(yyjson_val *value, uint32_t *out_crc);

/* Custom metadata is written up to this size in all; the service takes 8 KiB. */
#define RG_METADATA_SIZE_MAX RG_KIB(64)

/* One document that is written: begin, add, write. Errors are sticky, so that only the result of
 * rg_json_write must be looked at. Texts are borrowed until then. */
struct rg_json_writer {
    yyjson_mut_doc *doc;
    yyjson_mut_val *root; /* an object */
    int error;            /* 0, -ENOMEM or -EINVAL */
};

void rg_json_begin(struct rg_json_writer *writer);
/* Adds a member to an object of the document's; `value` is of the document's too, and NULL where
 * making it failed. Returns it. */
yyjson_mut_val *rg_json_add(struct rg_json_writer *writer, yyjson_mut_val *object, const char *key,
                            yyjson_mut_val *value);
/* NULL adds nothing and "" a null, which in a change removes what there is. */
void rg_json_add_text(struct rg_json_writer *writer, yyjson_mut_val *object, const char *key,
                      const char *text);
/* A number as text; 0 adds nothing. */
void rg_json_add_i64(struct rg_json_writer *writer, yyjson_mut_val *object, const char *key,
                     int64_t number);
/* "metadata", unless there is none; a value NULL is a null. `nonce` is a pair more; "": none.
 * -EINVAL: too much of it, or a key that is missing or empty. */
void rg_json_add_metadata(struct rg_json_writer *writer, yyjson_mut_val *object,
                          const struct rg_metadata *metadata, size_t count, const char *nonce);
/* Ends it; the text is the caller's, to be freed. -EINVAL (a text is not UTF-8, too) or -ENOMEM. */
int rg_json_write(struct rg_json_writer *writer, char **out_text, size_t *out_size);

#endif
