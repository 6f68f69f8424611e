/* See json.h. */
#include "gcs/wire/json.h"

#include "gcs/wire/checksum.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DECIMAL_DIGITS_MAX 20 /* of UINT64_MAX */

bool rg_json_read_text(yyjson_val *value, const char **out_text)
{
    if (!yyjson_is_str(value) || memchr(yyjson_get_str(value), '\0', yyjson_get_len(value))) {
        return false;
    }
    *out_text = yyjson_get_str(value);
    return true;
}

bool rg_json_read_u64(yyjson_val *value, uint64_t *out_number)
{
    if (yyjson_is_uint(value)) {
        *out_number = yyjson_get_uint(value);
        return true;
    }
    size_t size = yyjson_get_len(value);
    if (!yyjson_is_str(value) || size == 0 || size > DECIMAL_DIGITS_MAX) {
        return false;
    }
    const char *digits = yyjson_get_str(value);
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++) {
        uint64_t digit = (uint64_t)(digits[i] - '0');
        if (digit > 9 || rg_mul_overflow(number, UINT64_C(10), &number) ||
            rg_add_overflow(number, digit, &number)) {
            return false;
        }
    }
    *out_number = number;
    return true;
}

bool rg_json_read_i64(yyjson_val *value, int64_t *out_number)
{
    uint64_t number;
    if (!rg_json_read_u64(value, &number) || number > INT64_MAX) {
        return false;
    }
    *out_number = (int64_t)number;
    return true;
}

bool rg_json_read_crc32c(yyjson_val *value, uint32_t *out_crc)
{
    /* For what is no string, yyjson gives NULL and 0. */
    const char *text = yyjson_get_str(value);
    return text != NULL && rg_crc32c_parse(text, yyjson_get_len(value), out_crc) == 0;
}

static void fail(struct rg_json_writer *writer, int error)
{
    if (writer->error == 0) {
        writer->error = error;
    }
}

void rg_json_begin(struct rg_json_writer *writer)
{
    *writer = (struct rg_json_writer){.doc = yyjson_mut_doc_new(NULL)};
    writer->root = yyjson_mut_obj(writer->doc);
    if (writer->root == NULL) {
        fail(writer, -ENOMEM);
        return;
    }
    yyjson_mut_doc_set_root(writer->doc, writer->root);
}

yyjson_mut_val *rg_json_add(struct rg_json_writer *writer, yyjson_mut_val *object, const char *key,
                            yyjson_mut_val *value)
{
    if (!yyjson_mut_obj_add(object, yyjson_mut_str(writer->doc, key), value)) {
        fail(writer, -ENOMEM);
        return NULL;
    }
    return value;
}

void rg_json_add_text(struct rg_json_writer *writer, yyjson_mut_val *object, const char *key,
                      const char *text)
{
    if (text != NULL) {
        rg_json_add(writer, object, key,
                    *text != '\0' ? yyjson_mut_str(writer->doc, text)
                                  : yyjson_mut_null(writer->doc));
    }
}

void rg_json_add_i64(struct rg_json_writer *writer, yyjson_mut_val *object, const char *key,
                     int64_t number)
{
    char text[24];
    if (number != 0) {
        snprintf(text, sizeof(text), "%" PRId64, number);
        rg_json_add(writer, object, key, yyjson_mut_strcpy(writer->doc, text));
    }
}

void rg_json_add_metadata(struct rg_json_writer *writer, yyjson_mut_val *object,
                          const struct rg_metadata *metadata, size_t count, const char *nonce)
{
    if (count == 0 && *nonce == '\0') {
        return;
    }
    size_t size = 0;
    yyjson_mut_val *pairs = rg_json_add(writer, object, "metadata", yyjson_mut_obj(writer->doc));
    if (*nonce != '\0') {
        rg_json_add(writer, pairs, RG_NONCE_KEY, yyjson_mut_strcpy(writer->doc, nonce));
    }
    for (size_t i = 0; i < count && writer->error == 0; i++) {
        const char *key = metadata[i].key, *value = metadata[i].value;
        size += (key != NULL ? strlen(key) : 0) + (value != NULL ? strlen(value) : 0);
        if (key == NULL || *key == '\0' || size > RG_METADATA_SIZE_MAX) {
            fail(writer, -EINVAL);
            return;
        }
        rg_json_add(writer, pairs, key,
                    value != NULL ? yyjson_mut_str(writer->doc, value)
                                  : yyjson_mut_null(writer->doc));
    }
}

int rg_json_write(struct rg_json_writer *writer, char **out_text, size_t *out_size)
{
    yyjson_write_err error;
    char *text = NULL;
    if (writer->error == 0) {
        text = yyjson_mut_write_opts(writer->doc, YYJSON_WRITE_NOFLAG, NULL, out_size, &error);
        if (text == NULL) {
            fail(writer, error.code == YYJSON_WRITE_ERROR_MEMORY_ALLOCATION ? -ENOMEM : -EINVAL);
        }
    }
    yyjson_mut_doc_free(writer->doc);
    *writer = (struct rg_json_writer){.error = writer->error};
    if (text != NULL) {
        *out_text = text;
    }
    return writer->error;
}
