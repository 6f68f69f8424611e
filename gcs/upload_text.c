/* See upload_text.h. */
#include "gcs/upload_text.h"

#include "gcs/checksum.h"
#include "http/h1_encoder.h"
#include "runtime/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <yyjson.h>

#define META_FIELD_SIZE_MAX RG_KIB(16)

void rg_upload_random(char out_text[RG_UPLOAD_RANDOM_SIZE + 1])
{
    uint64_t bits[2] = {0, 0};
    if (getrandom(bits, sizeof(bits), 0) != (ssize_t)sizeof(bits)) {
        /* Before Linux's generator is ready; unlike any other of this machine will do. */
        bits[0] = rg_now_ns();
        bits[1] = (uint64_t)(uintptr_t)out_text;
    }
    snprintf(out_text, RG_UPLOAD_RANDOM_SIZE + 1, "%016" PRIx64 "%016" PRIx64, bits[0], bits[1]);
}

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
