/* See attributes.h. */
#include "gcs/upload/attributes.h"

#include "gcs/upload/limits.h"
#include "gcs/wire/utf8.h"
#include "http/h1_decoder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_padded(const char *text, size_t size)
{
    return size > 0 && (strchr(" \t", text[0]) != NULL || strchr(" \t", text[size - 1]) != NULL);
}

/* NULL stays NULL. 0, -ENOMEM, or -EINVAL: it can be sent in no field or in no JSON. */
static int text_copy(const char **out_text, const char *text, size_t *size_left)
{
    if (text == NULL) {
        return 0;
    }
    size_t size = strlen(text);
    if (rg_h1_value_span(text, size) != size || size > *size_left || !rg_utf8_valid(text, size) ||
        is_padded(text, size)) {
        return -EINVAL;
    }
    *size_left -= size;
    *out_text = strdup(text);
    return *out_text != NULL ? 0 : -ENOMEM;
}

static void text_free(const char *text)
{
    free((char *)(uintptr_t)text);
}

static int pair_copy(struct rg_metadata *own, const struct rg_metadata *given, size_t *size_left)
{
    if (given->key == NULL || given->value == NULL || *given->key == '\0' ||
        rg_h1_token_span(given->key, strlen(given->key)) != strlen(given->key)) {
        return -EINVAL;
    }
    int rc = text_copy(&own->key, given->key, size_left);
    return rc == 0 ? text_copy(&own->value, given->value, size_left) : rc;
}

static int nonce_add(struct rg_metadata *own, char *out_nonce)
{
    rg_nonce_draw(out_nonce);
    *own = (struct rg_metadata){strdup(RG_NONCE_KEY), strdup(out_nonce)};
    return own->key != NULL && own->value != NULL ? 0 : -ENOMEM;
}

static int metadata_copy(struct rg_upload_attributes *own, const struct rg_upload_attributes *given,
                         size_t *size_left, char *out_nonce)
{
    size_t count = given->metadata_count;
    if (count > RG_UPLOAD_ATTRIBUTES_SIZE_MAX ||
        (out_nonce != NULL && !rg_nonce_fits(given->metadata, count))) {
        return -EINVAL;
    }
    struct rg_metadata *pairs = calloc(count + 1, sizeof(*pairs));
    if (pairs == NULL) {
        return -ENOMEM;
    }
    own->metadata = pairs;
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = pair_copy(&pairs[own->metadata_count++], &given->metadata[i], size_left);
    }
    if (rc == 0 && out_nonce != NULL) {
        rc = nonce_add(&pairs[own->metadata_count++], out_nonce);
    }
    return rc;
}

int rg_upload_attributes_copy(struct rg_upload_attributes *out_own,
                              const struct rg_upload_attributes *given, char *out_nonce)
{
    const char *type =
        given->content_type != NULL ? given->content_type : "application/octet-stream";
    size_t size_left = RG_UPLOAD_ATTRIBUTES_SIZE_MAX;
    *out_own = (struct rg_upload_attributes){0};
    int rc = text_copy(&out_own->content_type, type, &size_left);
    if (rc == 0) {
        rc = text_copy(&out_own->content_encoding, given->content_encoding, &size_left);
    }
    if (rc == 0) {
        rc = text_copy(&out_own->cache_control, given->cache_control, &size_left);
    }
    if (rc == 0) {
        rc = text_copy(&out_own->storage_class, given->storage_class, &size_left);
    }
    return rc == 0 ? metadata_copy(out_own, given, &size_left, out_nonce) : rc;
}

bool rg_upload_class_is_cold(const char *storage_class)
{
    static const char *const cold[] = {"NEARLINE", "COLDLINE", "ARCHIVE"};
    bool found = false;
    for (size_t i = 0; storage_class != NULL && i < RG_ARRAY_LEN(cold) && !found; i++) {
        found = strcasecmp(storage_class, cold[i]) == 0;
    }
    return found;
}

void rg_upload_attributes_free(struct rg_upload_attributes *own)
{
    for (size_t i = 0; i < own->metadata_count; i++) {
        text_free(own->metadata[i].key);
        text_free(own->metadata[i].value);
    }
    free((struct rg_metadata *)(uintptr_t)own->metadata);
    text_free(own->content_type);
    text_free(own->content_encoding);
    text_free(own->cache_control);
    text_free(own->storage_class);
    *own = (struct rg_upload_attributes){0};
}
