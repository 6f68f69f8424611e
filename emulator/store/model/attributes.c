/* Names and values, each with a NUL behind it; see attributes.h. */
#include "emulator/store/model/attributes.h"

#include "emulator/store/model/names.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define META_HEADER "x-goog-meta-"

struct rg_attributes {
    _Atomic uint32_t refs;
    size_t size;
    char data[];
};

static const struct {
    const char *name, *header;
} known[] = {
    {"cacheControl", "cache-control"},       {"contentDisposition", "content-disposition"},
    {"contentLanguage", "content-language"}, {RG_ATTRIBUTES_CLASS, "x-goog-storage-class"},
    {"customTime", "x-goog-custom-time"},
};

const char *rg_attributes_known(size_t index, const char **out_header)
{
    if (index >= RG_ARRAY_LEN(known)) {
        return NULL;
    }
    *out_header = known[index].header;
    return known[index].name;
}

struct rg_attributes *rg_attributes_ref(const struct rg_attributes *attributes)
{
    struct rg_attributes *shared = (struct rg_attributes *)(uintptr_t)attributes;
    if (shared != NULL) {
        atomic_fetch_add_explicit(&shared->refs, 1, memory_order_relaxed);
    }
    return shared;
}

void rg_attributes_unref(struct rg_attributes *attributes)
{
    if (attributes != NULL &&
        atomic_fetch_sub_explicit(&attributes->refs, 1, memory_order_acq_rel) == 1) {
        free(attributes);
    }
}

static bool next_pair(const char *data, size_t size, size_t *at, struct rg_h1_slice *out_name,
                      struct rg_h1_slice *out_value)
{
    if (*at >= size) {
        return false;
    }
    *out_name = rg_text_slice(data + *at);
    *at += out_name->size + 1;
    *out_value = rg_text_slice(data + *at);
    *at += out_value->size + 1;
    RG_ASSERT(*at <= size);
    return true;
}

bool rg_attributes_next(const struct rg_attributes *attributes, size_t *at,
                        struct rg_h1_slice *out_name, struct rg_h1_slice *out_value)
{
    return attributes != NULL &&
           next_pair(attributes->data, attributes->size, at, out_name, out_value);
}

struct rg_h1_slice rg_attributes_get(const struct rg_attributes *attributes, const char *name)
{
    struct rg_h1_slice found, value;
    for (size_t at = 0; rg_attributes_next(attributes, &at, &found, &value);) {
        if (rg_text_equals(found, name)) {
            return value;
        }
    }
    return (struct rg_h1_slice){NULL, 0};
}

int64_t rg_attributes_component_count(const struct rg_attributes *attributes)
{
    int64_t count;
    struct rg_h1_slice value = rg_attributes_get(attributes, RG_ATTRIBUTES_COMPONENT_COUNT);
    return rg_text_parse_int64(value, &count) == 0 ? count : 0;
}

void rg_attributes_copy(struct rg_text *list, const struct rg_attributes *attributes)
{
    if (attributes != NULL) {
        rg_text_append(list, attributes->data, attributes->size);
    }
}

void rg_attributes_clear(struct rg_text *list, const char *prefix)
{
    struct rg_h1_slice name, value;
    size_t kept = 0;
    for (size_t at = 0; next_pair(list->data, list->size, &at, &name, &value);) {
        if (!rg_text_starts_with(name, rg_text_slice(prefix))) {
            size_t size = name.size + value.size + 2;
            memmove(list->data + kept, name.data, size);
            kept += size;
        }
    }
    list->size = kept;
}

static void remove_name(struct rg_text *list, struct rg_h1_slice wanted)
{
    struct rg_h1_slice name, value;
    for (size_t at = 0; next_pair(list->data, list->size, &at, &name, &value);) {
        if (rg_text_compare(name, wanted) == 0) {
            size_t start = at - name.size - value.size - 2;
            memmove(list->data + start, list->data + at, list->size - at);
            list->size -= at - start;
            return;
        }
    }
}

int rg_attributes_set(struct rg_text *list, struct rg_h1_slice name, struct rg_h1_slice value)
{
    bool own = rg_text_starts_with(name, rg_text_slice(RG_ATTRIBUTES_METADATA));
    if (name.size == 0 || memchr(name.data, '\0', name.size) != NULL) {
        return -EINVAL;
    }
    if (value.data == NULL) {
        remove_name(list, name);
        return 0;
    }
    if ((value.size > 0 && memchr(value.data, '\0', value.size) != NULL) ||
        (!own && !rg_store_attribute_valid(value, RG_ATTRIBUTES_SIZE_MAX))) {
        return -EINVAL;
    }
    remove_name(list, name);
    rg_text_append(list, name.data, name.size);
    rg_text_append(list, "", 1);
    rg_text_append(list, value.data, value.size);
    rg_text_append(list, "", 1);
    return 0;
}

int rg_attributes_create(struct rg_attributes **out_attributes, const struct rg_text *list)
{
    struct rg_h1_slice name, value;
    size_t head_size = 0;
    if (list->failed) {
        return -ENOMEM;
    }
    for (size_t at = 0; next_pair(list->data, list->size, &at, &name, &value);) {
        head_size += strlen(META_HEADER) + name.size + value.size + strlen(": \r\n");
    }
    if (head_size > RG_ATTRIBUTES_SIZE_MAX) {
        return -EMSGSIZE;
    }
    if (list->size == 0) {
        *out_attributes = NULL;
        return 0;
    }
    struct rg_attributes *attributes = malloc(sizeof(*attributes) + list->size);
    if (attributes == NULL) {
        return -ENOMEM;
    }
    atomic_init(&attributes->refs, 1);
    attributes->size = list->size;
    memcpy(attributes->data, list->data, list->size);
    *out_attributes = attributes;
    return 0;
}

/* The user's own fields. Their keys ignore case. */
static int take_meta(struct rg_text *list, const struct rg_h1_header *field)
{
    char name[RG_ATTRIBUTES_SIZE_MAX] = RG_ATTRIBUTES_METADATA;
    size_t prefix_size = strlen(META_HEADER), name_size = strlen(name);
    if (field->name.size <= prefix_size ||
        strncasecmp(field->name.data, META_HEADER, prefix_size) != 0) {
        return 0;
    }
    if (field->name.size - prefix_size > sizeof(name) - name_size) {
        return -EINVAL;
    }
    for (size_t i = prefix_size; i < field->name.size; i++) {
        char c = field->name.data[i];
        name[name_size++] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    return rg_attributes_set(list, (struct rg_h1_slice){name, (uint32_t)name_size}, field->value);
}

int rg_attributes_take_head(struct rg_text *list, const struct rg_h1_head *head)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < RG_ARRAY_LEN(known); i++) {
        const struct rg_h1_slice *value = rg_h1_find(head, known[i].header);
        if (value != NULL && value->size > 0) {
            rc = rg_attributes_set(list, rg_text_slice(known[i].name), *value);
        }
    }
    for (uint32_t i = 0; rc == 0 && i < head->header_count; i++) {
        rc = take_meta(list, &head->headers[i]);
    }
    return rc;
}

static bool is_token(struct rg_h1_slice text)
{
    for (uint32_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (c <= ' ' || c >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", c) != NULL) {
            return false;
        }
    }
    return text.size > 0;
}

/* The header field of an attribute. False: it has none. */
static bool header_name(struct rg_h1_slice name, char out[RG_ATTRIBUTES_SIZE_MAX])
{
    struct rg_h1_slice prefix = rg_text_slice(RG_ATTRIBUTES_METADATA);
    if (rg_text_starts_with(name, prefix)) {
        struct rg_h1_slice key = {name.data + prefix.size, name.size - prefix.size};
        int size =
            snprintf(out, RG_ATTRIBUTES_SIZE_MAX, META_HEADER "%.*s", (int)key.size, key.data);
        return is_token(key) && size < (int)RG_ATTRIBUTES_SIZE_MAX;
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(known); i++) {
        if (rg_text_equals(name, known[i].name)) {
            strcpy(out, known[i].header);
            return true;
        }
    }
    if (rg_text_equals(name, RG_ATTRIBUTES_COMPONENT_COUNT)) {
        strcpy(out, "x-goog-component-count");
        return true;
    }
    return false;
}

void rg_attributes_encode(const struct rg_attributes *attributes, struct rg_h1_encoder *head)
{
    char header[RG_ATTRIBUTES_SIZE_MAX];
    struct rg_h1_slice name, value;
    for (size_t at = 0; rg_attributes_next(attributes, &at, &name, &value);) {
        if (rg_store_attribute_valid(value, RG_ATTRIBUTES_SIZE_MAX) && header_name(name, header)) {
            rg_h1_encode_header_slice(head, header, value);
        }
    }
}
