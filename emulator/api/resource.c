/* Resources as JSON; see resource.h. Written by hand, member by member: a listing is a thousand of
 * them, and a tree of values in between would be most of its cost. */
#include "emulator/api/resource.h"

#include "emulator/api/contexts.h"
#include "emulator/api/encryption.h"
#include "emulator/api/fields.h"
#include "emulator/request/reply.h"
#include "emulator/store/model/protection.h"

#include <inttypes.h>
#include <stdio.h>

#define OBJECT_MEMBERS(XX)                                                                         \
    XX(KIND, "kind")                                                                               \
    XX(ID, "id")                                                                                   \
    XX(SELF_LINK, "selfLink")                                                                      \
    XX(MEDIA_LINK, "mediaLink")                                                                    \
    XX(NAME, "name")                                                                               \
    XX(BUCKET, "bucket")                                                                           \
    XX(GENERATION, "generation")                                                                   \
    XX(METAGENERATION, "metageneration")                                                           \
    XX(CONTENT_TYPE, "contentType")                                                                \
    XX(CONTENT_ENCODING, "contentEncoding")                                                        \
    XX(CONTENT_LANGUAGE, "contentLanguage")                                                        \
    XX(CONTENT_DISPOSITION, "contentDisposition")                                                  \
    XX(CACHE_CONTROL, "cacheControl")                                                              \
    XX(CUSTOM_TIME, "customTime")                                                                  \
    XX(COMPONENT_COUNT, "componentCount")                                                          \
    XX(METADATA, "metadata")                                                                       \
    XX(CONTEXTS, "contexts")                                                                       \
    XX(TEMPORARY_HOLD, RG_PROTECTION_TEMPORARY_HOLD)                                               \
    XX(EVENT_BASED_HOLD, RG_PROTECTION_EVENT_BASED_HOLD)                                           \
    XX(CUSTOMER_ENCRYPTION, RG_ENCRYPTION_ATTRIBUTE)                                               \
    XX(RETENTION_EXPIRATION_TIME, "retentionExpirationTime")                                       \
    XX(ACL, RG_ATTRIBUTES_ACL)                                                                     \
    XX(TIME_DELETED, "timeDeleted")                                                                \
    XX(SOFT_DELETE_TIME, "softDeleteTime")                                                         \
    XX(HARD_DELETE_TIME, "hardDeleteTime")                                                         \
    XX(STORAGE_CLASS, "storageClass")                                                              \
    XX(SIZE, "size")                                                                               \
    XX(CRC32C, "crc32c")                                                                           \
    XX(MD5_HASH, "md5Hash")                                                                        \
    XX(ETAG, "etag")                                                                               \
    XX(TIME_CREATED, "timeCreated")                                                                \
    XX(UPDATED, "updated")                                                                         \
    XX(TIME_STORAGE_CLASS_UPDATED, "timeStorageClassUpdated")                                      \
    XX(TIME_FINALIZED, "timeFinalized")

enum object_member {
#define XX(name, text) OBJECT_##name,
    OBJECT_MEMBERS(XX)
#undef XX
        OBJECT_MEMBER_COUNT
};
_Static_assert(OBJECT_MEMBER_COUNT <= 64, "a bit for each member");

#define BIT(member) (UINT64_C(1) << (member))

/* Members that not every object has. */
#define OPTIONAL_MEMBERS                                                                           \
    (BIT(OBJECT_CONTENT_TYPE) | BIT(OBJECT_CONTENT_ENCODING) | BIT(OBJECT_CRC32C) |                \
     BIT(OBJECT_MD5_HASH) | BIT(OBJECT_TIME_DELETED) | BIT(OBJECT_SOFT_DELETE_TIME) |              \
     BIT(OBJECT_HARD_DELETE_TIME) | BIT(OBJECT_CONTENT_LANGUAGE) |                                 \
     BIT(OBJECT_CONTENT_DISPOSITION) | BIT(OBJECT_CACHE_CONTROL) | BIT(OBJECT_CUSTOM_TIME) |       \
     BIT(OBJECT_COMPONENT_COUNT) | BIT(OBJECT_METADATA) | BIT(OBJECT_ACL) | BIT(OBJECT_CONTEXTS) | \
     BIT(OBJECT_TEMPORARY_HOLD) | BIT(OBJECT_EVENT_BASED_HOLD) |                                   \
     BIT(OBJECT_RETENTION_EXPIRATION_TIME) | BIT(OBJECT_CUSTOMER_ENCRYPTION))

static const char *const member_names[] = {
#define XX(name, text) text,
    OBJECT_MEMBERS(XX)
#undef XX
};

/* The object that a member is appended for. */
struct subject {
    const struct rg_resource_style *style;
    struct rg_h1_slice bucket, name;
    const struct rg_store_object_info *info;
};

void rg_resource_style_init(struct rg_resource_style *style, bool tls,
                            const struct rg_h1_slice *host, struct rg_h1_slice mask,
                            const char *outer)
{
    struct rg_h1_slice authority = host != NULL ? *host : rg_text_slice("localhost");
    snprintf(style->origin, sizeof(style->origin), "http%s://%.*s", tls ? "s" : "",
             (int)authority.size, authority.data);
    style->members = 0;
    style->acl = false;
    style->retention_us = 0;
    for (uint32_t i = 0; i < OBJECT_MEMBER_COUNT; i++) {
        style->members |= (uint64_t)rg_fields_select(mask, outer, member_names[i]) << i;
    }
}

void rg_resource_style_of_request(struct rg_resource_style *style, struct rg_server_call *call,
                                  const struct rg_api_request *request, const char *outer)
{
    const struct rg_service *service = rg_service_of(call);
    rg_resource_style_init(style, service->tls, rg_h1_find(request->head, "host"),
                           request->params[RG_PARAM_FIELDS], outer);
    style->acl = rg_api_request_wants_acl(request);
    struct rg_bucket_info info;
    struct rg_bucket *bucket = rg_store_find_bucket(service->store, request->bucket);
    if (bucket != NULL) {
        rg_bucket_get_info(bucket, &info);
        style->retention_us = info.retention_us;
    }
}

/* For texts that have nothing to escape. */
static void append_quoted(struct rg_text *text, const char *data, size_t size)
{
    char quoted[64];
    RG_ASSERT(size <= sizeof(quoted) - 2);
    quoted[0] = '"';
    memcpy(quoted + 1, data, size);
    quoted[size + 1] = '"';
    rg_text_append(text, quoted, size + 2);
}

static void append_time(struct rg_text *text, int64_t microseconds)
{
    char time[RG_TEXT_RFC3339_SIZE + 1];
    rg_text_format_rfc3339(time, microseconds);
    append_quoted(text, time, RG_TEXT_RFC3339_SIZE);
}

static void append_etag(struct rg_text *text, const struct rg_store_object_info *info)
{
    char etag[RG_REPLY_ETAG_SIZE_MAX + 3];
    rg_reply_format_etag(etag, info); /* Its quotes serve as JSON's. */
    rg_text_append_str(text, etag);
}

static void append_u64_string(struct rg_text *text, uint64_t value)
{
    char digits[20];
    append_quoted(text, digits, rg_text_format_u64(digits, value));
}

void rg_resource_append_segment(struct rg_text *text, struct rg_h1_slice name)
{
    struct rg_h1_slice rest = name;
    for (;;) {
        const char *slash = memchr(rest.data, '/', rest.size);
        uint32_t size = slash != NULL ? (uint32_t)(slash - rest.data) : rest.size;
        rg_text_append_percent(text, rest.data, size);
        if (slash == NULL) {
            return;
        }
        rg_text_append_str(text, "%2F");
        rest.data += size + 1;
        rest.size -= size + 1;
    }
}

static void append_link(struct rg_text *text, const struct subject *subject, const char *path)
{
    rg_text_printf(text, "\"%s%s/storage/v1/b/%.*s/o/", subject->style->origin, path,
                   (int)subject->bucket.size, subject->bucket.data);
    rg_resource_append_segment(text, subject->name);
}

/* BUCKET/NAME, and for an object /GENERATION. */
static void append_id(struct rg_text *text, struct rg_h1_slice bucket, struct rg_h1_slice name,
                      int64_t generation)
{
    struct rg_text id = {0};
    rg_text_printf(&id, "%.*s/", (int)bucket.size, bucket.data);
    rg_text_append(&id, name.data, name.size);
    if (generation != 0) {
        rg_text_printf(&id, "/%" PRId64, generation);
    }
    text->failed = text->failed || id.failed;
    rg_text_append_json(text, id.data, id.size);
    rg_text_fini(&id);
}

static void append_attribute(struct rg_text *text, const struct rg_store_object_info *info,
                             enum object_member member)
{
    struct rg_h1_slice value = rg_attributes_get(info->attributes, member_names[member]);
    if (value.data == NULL) {
        RG_ASSERT(member == OBJECT_STORAGE_CLASS);
        value = rg_text_slice("STANDARD");
    }
    rg_text_append_json(text, value.data, value.size);
}

static void append_metadata(struct rg_text *text, const struct rg_attributes *attributes)
{
    struct rg_h1_slice name, value;
    const char *separator = "";
    uint32_t prefix_size = (uint32_t)strlen(RG_ATTRIBUTES_METADATA);
    rg_text_append_str(text, "{");
    for (size_t at = 0; rg_attributes_next(attributes, &at, &name, &value);) {
        if (rg_text_starts_with(name, rg_text_slice(RG_ATTRIBUTES_METADATA))) {
            rg_text_append_str(text, separator);
            rg_text_append_json(text, name.data + prefix_size, name.size - prefix_size);
            rg_text_append_str(text, ":");
            rg_text_append_json(text, value.data, value.size);
            separator = ",";
        }
    }
    rg_text_append_str(text, "}");
}

static void append_encryption(struct rg_text *text, const struct rg_store_object_info *info)
{
    struct rg_h1_slice sha256 = rg_attributes_get(info->attributes, RG_ENCRYPTION_ATTRIBUTE);
    rg_text_append_str(text, "{\"encryptionAlgorithm\":\"AES256\",\"keySha256\":");
    rg_text_append_json(text, sha256.data, sha256.size);
    rg_text_append_str(text, "}");
}

/* Which members the object has of those that not all have. */
static uint64_t optional_members(const struct rg_resource_style *style,
                                 const struct rg_store_object_info *info)
{
    static const struct {
        enum object_member member;
        const char *name;
    } attributes[] = {
        {OBJECT_CONTENT_LANGUAGE, "contentLanguage"},
        {OBJECT_CONTENT_DISPOSITION, "contentDisposition"},
        {OBJECT_CACHE_CONTROL, "cacheControl"},
        {OBJECT_CUSTOM_TIME, "customTime"},
        {OBJECT_COMPONENT_COUNT, RG_ATTRIBUTES_COMPONENT_COUNT},
        {OBJECT_ACL, RG_ATTRIBUTES_ACL},
        {OBJECT_TEMPORARY_HOLD, RG_PROTECTION_TEMPORARY_HOLD},
        {OBJECT_EVENT_BASED_HOLD, RG_PROTECTION_EVENT_BASED_HOLD},
        {OBJECT_CUSTOMER_ENCRYPTION, RG_ENCRYPTION_ATTRIBUTE},
    };
    struct rg_h1_slice name, value;
    uint64_t members = 0;
    members |= (uint64_t)(info->content_type[0] != '\0') << OBJECT_CONTENT_TYPE;
    members |= (uint64_t)(info->content_encoding[0] != '\0') << OBJECT_CONTENT_ENCODING;
    members |= (uint64_t)info->has_crc32c << OBJECT_CRC32C;
    members |= (uint64_t)(info->md5[0] != '\0') << OBJECT_MD5_HASH;
    members |= (uint64_t)(info->deleted_us != 0) << OBJECT_TIME_DELETED;
    if (info->hard_delete_us != 0) {
        members |= BIT(OBJECT_SOFT_DELETE_TIME) | BIT(OBJECT_HARD_DELETE_TIME);
    }
    for (size_t at = 0; rg_attributes_next(info->attributes, &at, &name, &value);) {
        members |= (uint64_t)rg_text_starts_with(name, rg_text_slice(RG_ATTRIBUTES_METADATA))
                   << OBJECT_METADATA;
        for (size_t i = 0; i < RG_ARRAY_LEN(attributes); i++) {
            members |= (uint64_t)rg_text_equals(name, attributes[i].name) << attributes[i].member;
        }
    }
    members |= (uint64_t)rg_contexts_present(info->attributes) << OBJECT_CONTEXTS;
    members |= (uint64_t)(rg_protection_expires_us(style->retention_us, info) != 0)
               << OBJECT_RETENTION_EXPIRATION_TIME;
    return style->acl ? members : members & ~BIT(OBJECT_ACL);
}

static void append_member_value(struct rg_text *text, const struct subject *subject,
                                enum object_member member)
{
    const struct rg_store_object_info *info = subject->info;
    char crc32c[RG_REPLY_CRC32C_SIZE];
    switch (member) {
    case OBJECT_KIND:
        rg_text_append_str(text, "\"storage#object\"");
        break;
    case OBJECT_ID:
        append_id(text, subject->bucket, subject->name, info->generation);
        break;
    case OBJECT_SELF_LINK:
        append_link(text, subject, "");
        rg_text_append_str(text, "\"");
        break;
    case OBJECT_MEDIA_LINK:
        append_link(text, subject, "/download");
        rg_text_printf(text, "?generation=%" PRId64 "&alt=media\"", info->generation);
        break;
    case OBJECT_NAME:
        rg_text_append_json(text, subject->name.data, subject->name.size);
        break;
    case OBJECT_BUCKET:
        rg_text_append_json(text, subject->bucket.data, subject->bucket.size);
        break;
    case OBJECT_GENERATION:
        append_u64_string(text, (uint64_t)info->generation);
        break;
    case OBJECT_METAGENERATION:
        append_u64_string(text, (uint64_t)info->metageneration);
        break;
    case OBJECT_CONTENT_TYPE:
        rg_text_append_json(text, info->content_type, strlen(info->content_type));
        break;
    case OBJECT_CONTENT_ENCODING:
        rg_text_append_json(text, info->content_encoding, strlen(info->content_encoding));
        break;
    case OBJECT_STORAGE_CLASS:
    case OBJECT_CONTENT_LANGUAGE:
    case OBJECT_CONTENT_DISPOSITION:
    case OBJECT_CACHE_CONTROL:
    case OBJECT_CUSTOM_TIME:
        append_attribute(text, info, member);
        break;
    case OBJECT_COMPONENT_COUNT:
        rg_text_printf(text, "%" PRId64, rg_attributes_component_count(info->attributes));
        break;
    case OBJECT_ACL: { /* Is JSON. */
        struct rg_h1_slice acl = rg_attributes_get(info->attributes, RG_ATTRIBUTES_ACL);
        rg_text_append(text, acl.data, acl.size);
        break;
    }
    case OBJECT_METADATA:
        append_metadata(text, info->attributes);
        break;
    case OBJECT_CONTEXTS:
        rg_contexts_append_json(text, info->attributes);
        break;
    case OBJECT_TEMPORARY_HOLD:
    case OBJECT_EVENT_BASED_HOLD:
        rg_text_append_str(text, "true");
        break;
    case OBJECT_CUSTOMER_ENCRYPTION:
        append_encryption(text, info);
        break;
    case OBJECT_RETENTION_EXPIRATION_TIME:
        append_time(text, rg_protection_expires_us(subject->style->retention_us, info));
        break;
    case OBJECT_TIME_DELETED:
        append_time(text, info->deleted_us);
        break;
    case OBJECT_SOFT_DELETE_TIME:
        append_time(text, info->soft_deleted_us);
        break;
    case OBJECT_HARD_DELETE_TIME:
        append_time(text, info->hard_delete_us);
        break;
    case OBJECT_SIZE:
        append_u64_string(text, info->size);
        break;
    case OBJECT_CRC32C:
        rg_reply_format_crc32c(crc32c, info->crc32c);
        append_quoted(text, crc32c, sizeof(crc32c));
        break;
    case OBJECT_MD5_HASH:
        append_quoted(text, info->md5, RG_STORE_MD5_SIZE);
        break;
    case OBJECT_ETAG:
        append_etag(text, info);
        break;
    case OBJECT_UPDATED:
        append_time(text, info->updated_us);
        break;
    case OBJECT_TIME_CREATED: /* A generation is the time of its creation. */
    case OBJECT_TIME_STORAGE_CLASS_UPDATED:
    case OBJECT_TIME_FINALIZED:
        append_time(text, info->generation);
        break;
    case OBJECT_MEMBER_COUNT:
        break;
    }
}

void rg_resource_append_object(struct rg_text *text, const struct rg_resource_style *style,
                               struct rg_h1_slice bucket, struct rg_h1_slice name,
                               const struct rg_store_object_info *info)
{
    struct subject subject = {style, bucket, name, info};
    uint64_t members = style->members;
    members &= ~OPTIONAL_MEMBERS | optional_members(style, info);
    const char *separator = "{\"";
    for (uint32_t i = 0; i < OBJECT_MEMBER_COUNT; i++) {
        if (members >> i & 1) {
            rg_text_append_str(text, separator);
            rg_text_append_str(text, member_names[i]);
            rg_text_append_str(text, "\":");
            append_member_value(text, &subject, i);
            separator = ",\"";
        }
    }
    rg_text_append_str(text, members == 0 ? "{}" : "}");
}

void rg_resource_append_folder(struct rg_text *text, const struct rg_resource_style *style,
                               struct rg_h1_slice bucket, struct rg_h1_slice name,
                               const struct rg_folder_info *info)
{
    rg_text_append_str(text, "\"kind\":\"storage#folder\",\"id\":");
    append_id(text, bucket, name, 0);
    rg_text_printf(text, ",\"selfLink\":\"%s/storage/v1/b/%.*s/folders/", style->origin,
                   (int)bucket.size, bucket.data);
    rg_resource_append_segment(text, name);
    rg_text_append_str(text, "\",\"name\":");
    rg_text_append_json(text, name.data, name.size);
    rg_text_printf(text, ",\"bucket\":\"%.*s\",\"metageneration\":\"%" PRId64 "\",\"createTime\":",
                   (int)bucket.size, bucket.data, info->metageneration);
    append_time(text, info->created_us);
    rg_text_append_str(text, ",\"updateTime\":");
    append_time(text, info->updated_us);
}

/* Whether settings have a member, on the first level. */
static bool has_member(struct rg_h1_slice settings, const char *name)
{
    yyjson_doc *document = yyjson_read(settings.data, settings.size, 0);
    bool found = yyjson_obj_get(yyjson_doc_get_root(document), name) != NULL;
    yyjson_doc_free(document);
    return found;
}

/* As the service tells them: a few regions in two or more places have names of their own. */
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
    append_quoted(text, etag, RG_TEXT_BASE64_SIZE(size));
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

/* What is kept as it was sent, and what is told where nothing is. */
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
        append_time(text, info.soft_delete_since_us);
        rg_text_append_str(text, "}");
    }
    append_access(text, &info);
    if (info.hierarchical && !has_member(json, "hierarchicalNamespace")) {
        rg_text_append_str(text, ",\"hierarchicalNamespace\":{\"enabled\":true}");
    }
    append_settings(text, json, strcmp(type, "region") == 0);
    rg_text_append_str(text, ",\"timeCreated\":");
    append_time(text, info.created_us);
    rg_text_append_str(text, ",\"updated\":");
    append_time(text, info.updated_us);
    rg_text_append_str(text, "}");
    rg_bucket_settings_unref(settings);
}
