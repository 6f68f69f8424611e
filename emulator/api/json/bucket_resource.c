/* See bucket_resource.h. */
#include "emulator/api/json/bucket_resource.h"

#include <inttypes.h>
#include <yyjson.h>

void rg_resource_append_folder(struct rg_text *text, const struct rg_resource_style *style,
                               struct rg_h1_slice bucket, struct rg_h1_slice name,
                               const struct rg_folder_info *info)
{
    rg_text_append_str(text, "\"kind\":\"storage#folder\",\"id\":");
    rg_resource_append_id(text, bucket, name, 0);
    rg_text_printf(text, ",\"selfLink\":\"%s/storage/v1/b/%.*s/folders/", style->origin,
                   (int)bucket.size, bucket.data);
    rg_resource_append_segment(text, name);
    rg_text_append_str(text, "\",\"name\":");
    rg_text_append_json(text, name.data, name.size);
    rg_text_printf(text, ",\"bucket\":\"%.*s\",\"metageneration\":\"%" PRId64 "\",\"createTime\":",
                   (int)bucket.size, bucket.data, info->metageneration);
    rg_resource_append_time(text, info->created_us);
    rg_text_append_str(text, ",\"updateTime\":");
    rg_resource_append_time(text, info->updated_us);
}

/* Whether the settings have a member at their top level. */
static bool has_member(struct rg_h1_slice settings, const char *name)
{
    yyjson_doc *document = yyjson_read(settings.data, settings.size, 0);
    bool found = yyjson_obj_get(yyjson_doc_get_root(document), name) != NULL;
    yyjson_doc_free(document);
    return found;
}

/* As the service tells them. Some locations that are two regions have names of their own. */
static const char *location_type(const struct rg_bucket_info *info, struct rg_h1_slice settings)
{
    static const char *const dual[] = {"NAM4", "EUR4", "EUR5", "EUR7", "EUR8", "ASIA1"};
    static const char *const multi[] = {"US", "EU", "ASIA"};
    if (has_member(settings, "customPlacementConfig")) {
        return "dual-region";
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(dual); i++) {
        if (strcmp(info->location, dual[i]) == 0) {
            return "dual-region";
        }
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(multi); i++) {
        if (strcmp(info->location, multi[i]) == 0) {
            return "multi-region";
        }
    }
    return "region";
}

static void append_bucket_etag(struct rg_text *text, int64_t metageneration)
{
    uint8_t message[11] = {1 << 3}; /* Field 1, varint. */
    char etag[RG_TEXT_BASE64_SIZE(sizeof(message))];
    size_t size = 1;
    uint64_t value = (uint64_t)metageneration;
    for (; value >= 0x80; value >>= 7) {
        message[size++] = (uint8_t)(value | 0x80);
    }
    message[size++] = (uint8_t)value;
    rg_text_format_base64(etag, message, size);
    rg_resource_append_quoted(text, etag, RG_TEXT_BASE64_SIZE(size));
}

static void append_access(struct rg_text *text, const struct rg_bucket_info *info)
{
    const char *uniform = info->uniform_access ? "true" : "false";
    rg_text_printf(text,
                   ",\"iamConfiguration\":{\"bucketPolicyOnly\":{\"enabled\":%s},"
                   "\"uniformBucketLevelAccess\":{\"enabled\":%s},"
                   "\"publicAccessPrevention\":\"%s\"}",
                   uniform, uniform, info->no_public_access ? "enforced" : "inherited");
}

/* Appends what is kept as it was sent, and the defaults of what is not kept. */
static void append_settings(struct rg_text *text, struct rg_h1_slice settings, bool is_region)
{
    if (settings.size > 2) {
        rg_text_append_str(text, ",");
        rg_text_append(text, settings.data + 1, settings.size - 2);
    }
    if (!is_region && !has_member(settings, "rpo")) {
        rg_text_append_str(text, ",\"rpo\":\"DEFAULT\"");
    }
}

void rg_resource_append_bucket(struct rg_text *text, const struct rg_resource_style *style,
                               struct rg_bucket *bucket)
{
    struct rg_h1_slice name = rg_bucket_name(bucket); /* Needs no escapes. */
    struct rg_bucket_info info;
    struct rg_bucket_settings *settings = rg_bucket_get_settings(bucket);
    struct rg_h1_slice json = rg_bucket_settings_json(settings);
    rg_bucket_get_info(bucket, &info);
    const char *type = location_type(&info, json);
    rg_text_printf(text,
                   "{\"kind\":\"storage#bucket\",\"id\":\"%.*s\",\"name\":\"%.*s\","
                   "\"selfLink\":\"%s/storage/v1/b/%.*s\",\"projectNumber\":\"0\","
                   "\"metageneration\":\"%" PRId64 "\",\"locationType\":\"%s\",\"etag\":",
                   (int)name.size, name.data, (int)name.size, name.data, style->origin,
                   (int)name.size, name.data, info.metageneration, type);
    append_bucket_etag(text, info.metageneration);
    rg_text_append_str(text, ",\"location\":");
    rg_text_append_json(text, info.location, strlen(info.location));
    rg_text_append_str(text, ",\"storageClass\":");
    rg_text_append_json(text, info.storage_class, strlen(info.storage_class));
    if (info.versioning) {
        rg_text_append_str(text, ",\"versioning\":{\"enabled\":true}");
    }
    if (info.soft_delete_since_us != 0) {
        rg_text_printf(text, ",\"softDeletePolicy\":{\"retentionDurationSeconds\":\"%" PRId64 "\"",
                       info.soft_delete_us / 1000000);
        rg_text_append_str(text, ",\"effectiveTime\":");
        rg_resource_append_time(text, info.soft_delete_since_us);
        rg_text_append_str(text, "}");
    }
    append_access(text, &info);
    if (info.hierarchical && !has_member(json, "hierarchicalNamespace")) {
        rg_text_append_str(text, ",\"hierarchicalNamespace\":{\"enabled\":true}");
    }
    append_settings(text, json, strcmp(type, "region") == 0);
    rg_text_append_str(text, ",\"timeCreated\":");
    rg_resource_append_time(text, info.created_us);
    rg_text_append_str(text, ",\"updated\":");
    rg_resource_append_time(text, info.updated_us);
    rg_text_append_str(text, "}");
    rg_bucket_settings_unref(settings);
}
