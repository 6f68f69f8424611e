/* See contexts.h. The value of an attribute is "CREATED UPDATED VALUE.", the times in microseconds;
 * the dot because attributes do not end in a space.
 */
#include "emulator/api/contexts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define STAMP_SIZE_MAX 48 /* Room for two numbers of 64 bits, with their spaces. */

struct context {
    struct rg_h1_slice key, value;
    int64_t created_us, updated_us;
};

/* False when the attribute is no context. */
static bool parse_context(struct rg_h1_slice name, struct rg_h1_slice value,
                          struct context *out_context)
{
    struct rg_h1_slice prefix = rg_text_slice(RG_CONTEXTS_PREFIX), parts[2];
    if (!rg_text_starts_with(name, prefix)) {
        return false;
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(parts); i++) {
        const char *space = memchr(value.data, ' ', value.size);
        if (space == NULL) {
            return false;
        }
        uint32_t size = (uint32_t)(space - value.data);
        parts[i] = (struct rg_h1_slice){value.data, size};
        value.data += size + 1;
        value.size -= size + 1;
    }
    out_context->key = (struct rg_h1_slice){name.data + prefix.size, name.size - prefix.size};
    if (value.size == 0) {
        return false;
    }
    out_context->value = (struct rg_h1_slice){value.data, value.size - 1};
    return rg_text_parse_int64(parts[0], &out_context->created_us) == 0 &&
           rg_text_parse_int64(parts[1], &out_context->updated_us) == 0;
}

static bool next_context(const struct rg_attributes *attributes, size_t *at,
                         struct context *out_context)
{
    struct rg_h1_slice name, value;
    while (rg_attributes_next(attributes, at, &name, &value)) {
        if (parse_context(name, value, out_context)) {
            return true;
        }
    }
    return false;
}

/* Finds a key's context in a list of attributes in the making. False: it has none. */
static bool find_context(const struct rg_text *list, struct rg_h1_slice key,
                         struct context *out_context, size_t *out_count)
{
    bool found = false;
    *out_count = 0;
    for (size_t at = 0; at < list->size;) {
        struct rg_h1_slice name = rg_text_slice(list->data + at);
        struct rg_h1_slice value = rg_text_slice(list->data + at + name.size + 1);
        struct context context;
        at += name.size + value.size + 2;
        if (parse_context(name, value, &context)) {
            ++*out_count;
            if (rg_text_compare(context.key, key) == 0) {
                *out_context = context;
                found = true;
            }
        }
    }
    return found;
}

static int take_context(struct rg_text *list, struct rg_h1_slice key, yyjson_val *payload,
                        int64_t now_us)
{
    char name[sizeof(RG_CONTEXTS_PREFIX) + RG_CONTEXTS_TEXT_SIZE_MAX];
    char stamped[STAMP_SIZE_MAX + RG_CONTEXTS_TEXT_SIZE_MAX];
    yyjson_val *value = yyjson_is_null(payload) ? payload : yyjson_obj_get(payload, "value");
    struct context before;
    size_t count;
    if (key.size == 0 || key.size > RG_CONTEXTS_TEXT_SIZE_MAX ||
        yyjson_get_len(value) > RG_CONTEXTS_TEXT_SIZE_MAX ||
        (!yyjson_is_null(value) && !yyjson_is_str(value))) {
        return -EINVAL;
    }
    int name_size =
        snprintf(name, sizeof(name), RG_CONTEXTS_PREFIX "%.*s", (int)key.size, key.data);
    struct rg_h1_slice full = {name, (uint32_t)name_size};
    if (yyjson_is_null(value)) {
        return rg_attributes_set(list, full, (struct rg_h1_slice){NULL, 0});
    }
    bool known = find_context(list, key, &before, &count);
    if (!known && count >= RG_CONTEXTS_MAX) {
        return -E2BIG;
    }
    struct rg_h1_slice text = {yyjson_get_str(value), (uint32_t)yyjson_get_len(value)};
    if (known && rg_text_compare(before.value, text) == 0) {
        return 0;
    }
    int size = snprintf(stamped, sizeof(stamped), "%" PRId64 " %" PRId64 " %.*s.",
                        known ? before.created_us : now_us, now_us, (int)text.size, text.data);
    return rg_attributes_set(list, full, (struct rg_h1_slice){stamped, (uint32_t)size});
}

int rg_contexts_take_json(struct rg_text *list, yyjson_val *contexts, int64_t now_us)
{
    yyjson_val *custom = yyjson_obj_get(contexts, "custom"), *key;
    if (yyjson_is_null(contexts) || yyjson_is_null(custom)) {
        rg_attributes_clear(list, RG_CONTEXTS_PREFIX);
        return 0;
    }
    if (!yyjson_is_obj(contexts) || (custom != NULL && !yyjson_is_obj(custom))) {
        return -EINVAL;
    }
    yyjson_obj_iter members = yyjson_obj_iter_with(custom);
    while ((key = yyjson_obj_iter_next(&members)) != NULL) {
        struct rg_h1_slice name = {yyjson_get_str(key), (uint32_t)yyjson_get_len(key)};
        int rc = take_context(list, name, yyjson_obj_iter_get_val(key), now_us);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

bool rg_contexts_present(const struct rg_attributes *attributes)
{
    struct context context;
    size_t at = 0;
    return next_context(attributes, &at, &context);
}

static void append_time(struct rg_text *text, const char *name, int64_t microseconds)
{
    char time[RG_TEXT_RFC3339_SIZE + 1];
    rg_text_format_rfc3339(time, microseconds);
    rg_text_printf(text, ",\"%s\":\"%s\"", name, time);
}

void rg_contexts_append_json(struct rg_text *text, const struct rg_attributes *attributes)
{
    struct context context;
    const char *separator = "";
    rg_text_append_str(text, "{\"custom\":{");
    for (size_t at = 0; next_context(attributes, &at, &context);) {
        rg_text_append_str(text, separator);
        rg_text_append_json(text, context.key.data, context.key.size);
        rg_text_append_str(text, ":{\"value\":");
        rg_text_append_json(text, context.value.data, context.value.size);
        append_time(text, "createTime", context.created_us);
        append_time(text, "updateTime", context.updated_us);
        rg_text_append_str(text, "}");
        separator = ",";
    }
    rg_text_append_str(text, "}}");
}

/* Reads a text in quotes, with no quote inside, at the front of *text. */
static bool take_quoted(struct rg_h1_slice *text, struct rg_h1_slice *out)
{
    if (text->size < 2 || text->data[0] != '"') {
        return false;
    }
    const char *end = memchr(text->data + 1, '"', text->size - 1);
    if (end == NULL) {
        return false;
    }
    uint32_t size = (uint32_t)(end - text->data) - 1;
    *out = (struct rg_h1_slice){text->data + 1, size};
    text->data += size + 2;
    text->size -= size + 2;
    return memchr(out->data, '\\', size) == NULL;
}

static bool take_literal(struct rg_h1_slice *text, const char *literal)
{
    struct rg_h1_slice wanted = rg_text_slice(literal);
    if (!rg_text_starts_with(*text, wanted)) {
        return false;
    }
    text->data += wanted.size;
    text->size -= wanted.size;
    return true;
}

int rg_context_filter_parse(struct rg_context_filter *out_filter, struct rg_h1_slice text)
{
    struct rg_context_filter filter = {.negated = take_literal(&text, "-")};
    if (!take_literal(&text, "contexts.") || !take_quoted(&text, &filter.key)) {
        return -EINVAL;
    }
    bool known =
        take_literal(&text, "=") ? take_quoted(&text, &filter.value) : take_literal(&text, ":*");
    if (!known || text.size > 0) {
        return -EINVAL;
    }
    *out_filter = filter;
    return 0;
}

bool rg_context_filter_match(const struct rg_context_filter *filter,
                             const struct rg_attributes *attributes)
{
    struct context context;
    bool matches = false;
    for (size_t at = 0; !matches && next_context(attributes, &at, &context);) {
        matches =
            rg_text_compare(context.key, filter->key) == 0 &&
            (filter->value.data == NULL || rg_text_compare(context.value, filter->value) == 0);
    }
    return matches != filter->negated;
}
