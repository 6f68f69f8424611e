/* See upload_text.h. */
#include "gcs/wire/upload_text.h"

#include "gcs/wire/checksum.h"
#include "gcs/wire/nonce.h"
#include "http/h1_encoder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#define META_FIELD_SIZE_MAX RG_KIB(16)

static void encode_field(struct rg_h1_encoder *encoder, const char *name, const char *value)
{
    if (value != NULL) {
        rg_h1_encode_header(encoder, name, value);
    }
}

void rg_upload_encode_attributes(const struct rg_upload_attributes *attributes,
                                 struct rg_h1_encoder *encoder)
{
    char name[META_FIELD_SIZE_MAX];
    encode_field(encoder, "Content-Type", attributes->content_type);
    encode_field(encoder, "Content-Encoding", attributes->content_encoding);
    encode_field(encoder, "Cache-Control", attributes->cache_control);
    encode_field(encoder, "x-goog-storage-class", attributes->storage_class);
    for (size_t i = 0; i < attributes->metadata_count; i++) {
        snprintf(name, sizeof(name), "x-goog-meta-%s", attributes->metadata[i].key);
        encode_field(encoder, name, attributes->metadata[i].value);
    }
}

static bool add_text(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                     const char *value)
{
    return value == NULL || yyjson_mut_obj_add_str(doc, object, key, value);
}

static bool add_attributes(yyjson_mut_doc *doc, yyjson_mut_val *object,
                           const struct rg_upload_attributes *attributes)
{
    bool added = add_text(doc, object, "contentType", attributes->content_type) &&
                 add_text(doc, object, "contentEncoding", attributes->content_encoding) &&
                 add_text(doc, object, "cacheControl", attributes->cache_control) &&
                 add_text(doc, object, "storageClass", attributes->storage_class);
    if (!added || attributes->metadata_count == 0) {
        return added;
    }
    yyjson_mut_val *pairs = yyjson_mut_obj_add_obj(doc, object, "metadata");
    for (size_t i = 0; pairs != NULL && i < attributes->metadata_count; i++) {
        const struct rg_metadata *pair = &attributes->metadata[i];
        if (!yyjson_mut_obj_add_str(doc, pairs, pair->key, pair->value)) {
            return false;
        }
    }
    return pairs != NULL;
}

/* Writes and frees the document. */
static char *finish(yyjson_mut_doc *doc, bool complete)
{
    char *text = complete ? yyjson_mut_write(doc, YYJSON_WRITE_NOFLAG, NULL) : NULL;
    yyjson_mut_doc_free(doc);
    return text;
}

static yyjson_mut_doc *begin(yyjson_mut_val **out_root)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    *out_root = doc != NULL ? yyjson_mut_obj(doc) : NULL;
    if (*out_root != NULL) {
        yyjson_mut_doc_set_root(doc, *out_root);
    }
    return doc;
}

char *rg_upload_resource_json(const struct rg_upload_attributes *attributes, const char *name,
                              const uint32_t *crc)
{
    char crc_text[RG_CRC32C_TEXT_SIZE + 1] = "";
    if (crc != NULL) {
        rg_crc32c_format(*crc, crc_text);
    }
    yyjson_mut_val *root;
    yyjson_mut_doc *doc = begin(&root);
    return finish(doc, root != NULL && add_text(doc, root, "name", name) &&
                           add_text(doc, root, "crc32c", crc != NULL ? crc_text : NULL) &&
                           add_attributes(doc, root, attributes));
}

static bool add_sources(yyjson_mut_doc *doc, yyjson_mut_val *root, char *const *names,
                        const int64_t *generations, size_t count)
{
    yyjson_mut_val *sources = yyjson_mut_obj_add_arr(doc, root, "sourceObjects");
    for (size_t i = 0; sources != NULL && i < count; i++) {
        yyjson_mut_val *source = yyjson_mut_arr_add_obj(doc, sources);
        char number[24];
        snprintf(number, sizeof(number), "%" PRId64, generations[i]);
        if (source == NULL || !yyjson_mut_obj_add_str(doc, source, "name", names[i]) ||
            (generations[i] != 0 &&
             !yyjson_mut_obj_add_strcpy(doc, source, "generation", number))) {
            return false;
        }
    }
    return sources != NULL;
}

char *rg_upload_compose_json(const struct rg_upload_attributes *attributes, char *const *names,
                             const int64_t *generations, size_t count)
{
    yyjson_mut_val *root;
    yyjson_mut_doc *doc = begin(&root);
    bool complete = root != NULL && add_sources(doc, root, names, generations, count);
    yyjson_mut_val *destination =
        complete ? yyjson_mut_obj_add_obj(doc, root, "destination") : NULL;
    return finish(doc, destination != NULL && add_attributes(doc, destination, attributes));
}

int rg_multipart_frame(const struct rg_upload_attributes *attributes, const char *name,
                       const uint32_t *crc, char **out_lead, char **out_trail)
{
    char boundary[RG_NONCE_SIZE + 1];
    char *lead = NULL, *trail = NULL;
    rg_nonce_draw(boundary);
    char *json = rg_upload_resource_json(attributes, name, crc);
    bool made = json != NULL &&
                asprintf(&lead,
                         "--%s\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n%s\r\n"
                         "--%s\r\nContent-Type: %s\r\n\r\n",
                         boundary, json, boundary, attributes->content_type) >= 0 &&
                asprintf(&trail, "\r\n--%s--\r\n", boundary) >= 0;
    free(json);
    if (!made) {
        free(lead);
        return -ENOMEM;
    }
    *out_lead = lead;
    *out_trail = trail;
    return 0;
}

void rg_multipart_encode_type(const char *lead, struct rg_h1_encoder *encoder)
{
    char type[sizeof("multipart/related; boundary=") + RG_NONCE_SIZE];
    /* The boundary stands behind the two dashes with which the body begins. */
    snprintf(type, sizeof(type), "multipart/related; boundary=%.*s", RG_NONCE_SIZE, lead + 2);
    rg_h1_encode_header(encoder, "Content-Type", type);
}
