/* Objects as JSON; see resource.h. The text is written member by member: a listing has a
 * thousand objects, and building a tree of values first would be most of its cost. */
#include "emulator/api/resource.h"

#include "emulator/api/contexts.h"
#include "emulator/api/encryption.h"
#include "emulator/api/fields.h"
#include "emulator/request/reply.h"
#include "emulator/store/model/protection.h"

#include <inttypes.h>
#include <stdio.h>

/* XX(member, name, what appends its value) */
#define OBJECT_MEMBERS(XX)                                                                         \
    XX(KIND, "kind", append_kind)                                                                  \
    XX(ID, "id", append_id)                                                                        \
    XX(SELF_LINK, "selfLink", append_self_link)                                                    \
    XX(MEDIA_LINK, "mediaLink", append_media_link)                                                 \
    XX(NAME, "name", append_name)                                                                  \
    XX(BUCKET, "bucket", append_bucket)                                                            \
    XX(GENERATION, "generation", append_generation)                                                \
    XX(METAGENERATION, "metageneration", append_metageneration)                                    \
    XX(CONTENT_TYPE, "contentType", append_content_type)                                           \
    XX(CONTENT_ENCODING, "contentEncoding", append_content_encoding)                               \
    XX(CONTENT_LANGUAGE, "contentLanguage", append_attribute)                                      \
    XX(CONTENT_DISPOSITION, "contentDisposition", append_attribute)                                \
    XX(CACHE_CONTROL, "cacheControl", append_attribute)                                            \
    XX(CUSTOM_TIME, "customTime", append_attribute)                                                \
    XX(COMPONENT_COUNT, "componentCount", append_component_count)                                  \
    XX(METADATA, "metadata", append_metadata)                                                      \
    XX(CONTEXTS, "contexts", append_contexts)                                                      \
    XX(TEMPORARY_HOLD, RG_PROTECTION_TEMPORARY_HOLD, append_true)                                  \
    XX(EVENT_BASED_HOLD, RG_PROTECTION_EVENT_BASED_HOLD, append_true)                              \
    XX(CUSTOMER_ENCRYPTION, RG_ENCRYPTION_ATTRIBUTE, append_encryption)                            \
    XX(RETENTION_EXPIRATION_TIME, "retentionExpirationTime", append_expiration)                    \
    XX(ACL, RG_ATTRIBUTES_ACL, append_acl)                                                         \
    XX(TIME_DELETED, "timeDeleted", append_deleted)                                                \
    XX(SOFT_DELETE_TIME, "softDeleteTime", append_soft_deleted)                                    \
    XX(HARD_DELETE_TIME, "hardDeleteTime", append_hard_delete)                                     \
    XX(STORAGE_CLASS, "storageClass", append_storage_class)                                        \
    XX(SIZE, "size", append_size)                                                                  \
    XX(CRC32C, "crc32c", append_crc32c)                                                            \
    XX(MD5_HASH, "md5Hash", append_md5)                                                            \
    XX(ETAG, "etag", append_etag)                                                                  \
    XX(TIME_CREATED, "timeCreated", append_created)                                                \
    XX(UPDATED, "updated", append_updated)                                                         \
    XX(TIME_STORAGE_CLASS_UPDATED, "timeStorageClassUpdated", append_created)                      \
    XX(TIME_FINALIZED, "timeFinalized", append_created)

enum object_member {
#define XX(member, name, append) OBJECT_##member,
    OBJECT_MEMBERS(XX)
#undef XX
        OBJECT_MEMBER_COUNT
};
_Static_assert(OBJECT_MEMBER_COUNT <= 64, "a bit for each member");

#define BIT(member) (UINT64_C(1) << (member))

/* Members that some objects lack. */
#define OPTIONAL_MEMBERS                                                                           \
    (BIT(OBJECT_CONTENT_TYPE) | BIT(OBJECT_CONTENT_ENCODING) | BIT(OBJECT_CRC32C) |                \
     BIT(OBJECT_MD5_HASH) | BIT(OBJECT_TIME_DELETED) | BIT(OBJECT_SOFT_DELETE_TIME) |              \
     BIT(OBJECT_HARD_DELETE_TIME) | BIT(OBJECT_CONTENT_LANGUAGE) |                                 \
     BIT(OBJECT_CONTENT_DISPOSITION) | BIT(OBJECT_CACHE_CONTROL) | BIT(OBJECT_CUSTOM_TIME) |       \
     BIT(OBJECT_COMPONENT_COUNT) | BIT(OBJECT_METADATA) | BIT(OBJECT_ACL) | BIT(OBJECT_CONTEXTS) | \
     BIT(OBJECT_TEMPORARY_HOLD) | BIT(OBJECT_EVENT_BASED_HOLD) |                                   \
     BIT(OBJECT_RETENTION_EXPIRATION_TIME) | BIT(OBJECT_CUSTOMER_ENCRYPTION))

static const char *const member_names[] = {
#define XX(member, name, append) name,
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

void rg_resource_append_quoted(struct rg_text *text, const char *data, size_t size)
{
    char quoted[64];
    RG_ASSERT(size <= sizeof(quoted) - 2);
    quoted[0] = '"';
    memcpy(quoted + 1, data, size);
    quoted[size + 1] = '"';
    rg_text_append(text, quoted, size + 2);
}

void rg_resource_append_time(struct rg_text *text, int64_t microseconds)
{
    char time[RG_TEXT_RFC3339_SIZE + 1];
    rg_text_format_rfc3339(time, microseconds);
    rg_resource_append_quoted(text, time, RG_TEXT_RFC3339_SIZE);
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

void rg_resource_append_id(struct rg_text *text, struct rg_h1_slice bucket, struct rg_h1_slice name,
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

static void append_kind(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    (void)subject;
    rg_text_append_str(text, "\"storage#object\"");
}

static void append_id(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    rg_resource_append_id(text, subject->bucket, subject->name, subject->info->generation);
}

static void append_link(struct rg_text *text, const struct subject *subject, const char *path)
{
    rg_text_printf(text, "\"%s%s/storage/v1/b/%.*s/o/", subject->style->origin, path,
                   (int)subject->bucket.size, subject->bucket.data);
    rg_resource_append_segment(text, subject->name);
}

static void append_self_link(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    append_link(text, subject, "");
    rg_text_append_str(text, "\"");
}

static void append_media_link(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    append_link(text, subject, "/download");
    rg_text_printf(text, "?generation=%" PRId64 "&alt=media\"", subject->info->generation);
}

static void append_name(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    rg_text_append_json(text, subject->name.data, subject->name.size);
}

static void append_bucket(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    rg_text_append_json(text, subject->bucket.data, subject->bucket.size);
}

static void append_u64_string(struct rg_text *text, uint64_t value)
{
    char digits[20];
    rg_resource_append_quoted(text, digits, rg_text_format_u64(digits, value));
}

static void append_generation(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    append_u64_string(text, (uint64_t)subject->info->generation);
}

static void append_metageneration(struct rg_text *text, const struct subject *subject,
                                  const char *name)
{
    (void)name;
    append_u64_string(text, (uint64_t)subject->info->metageneration);
}

static void append_size(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    append_u64_string(text, subject->info->size);
}

static void append_content_type(struct rg_text *text, const struct subject *subject,
                                const char *name)
{
    (void)name;
    rg_text_append_json(text, subject->info->content_type, strlen(subject->info->content_type));
}

static void append_content_encoding(struct rg_text *text, const struct subject *subject,
                                    const char *name)
{
    (void)name;
    rg_text_append_json(text, subject->info->content_encoding,
                        strlen(subject->info->content_encoding));
}

static void append_attribute(struct rg_text *text, const struct subject *subject, const char *name)
{
    struct rg_h1_slice value = rg_attributes_get(subject->info->attributes, name);
    RG_ASSERT(value.data != NULL);
    rg_text_append_json(text, value.data, value.size);
}

static void append_storage_class(struct rg_text *text, const struct subject *subject,
                                 const char *name)
{
    struct rg_h1_slice value = rg_attributes_get(subject->info->attributes, name);
    value = value.data != NULL ? value : rg_text_slice(RG_STORE_CLASS_DEFAULT);
    rg_text_append_json(text, value.data, value.size);
}

static void append_acl(struct rg_text *text, const struct subject *subject, const char *name)
{
    struct rg_h1_slice acl = rg_attributes_get(subject->info->attributes, name);
    rg_text_append(text, acl.data, acl.size); /* Is JSON. */
}

static void append_component_count(struct rg_text *text, const struct subject *subject,
                                   const char *name)
{
    (void)name;
    rg_text_printf(text, "%" PRId64, rg_attributes_component_count(subject->info->attributes));
}

static void append_metadata(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    struct rg_h1_slice key, value;
    const char *separator = "";
    uint32_t prefix_size = (uint32_t)strlen(RG_ATTRIBUTES_METADATA);
    rg_text_append_str(text, "{");
    for (size_t at = 0; rg_attributes_next(subject->info->attributes, &at, &key, &value);) {
        if (rg_text_starts_with(key, rg_text_slice(RG_ATTRIBUTES_METADATA))) {
            rg_text_append_str(text, separator);
            rg_text_append_json(text, key.data + prefix_size, key.size - prefix_size);
            rg_text_append_str(text, ":");
            rg_text_append_json(text, value.data, value.size);
            separator = ",";
        }
    }
    rg_text_append_str(text, "}");
}

static void append_contexts(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    rg_contexts_append_json(text, subject->info->attributes);
}

static void append_true(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    (void)subject;
    rg_text_append_str(text, "true");
}

static void append_encryption(struct rg_text *text, const struct subject *subject, const char *name)
{
    struct rg_h1_slice sha256 = rg_attributes_get(subject->info->attributes, name);
    rg_text_append_str(text, "{\"encryptionAlgorithm\":\"AES256\",\"keySha256\":");
    rg_text_append_json(text, sha256.data, sha256.size);
    rg_text_append_str(text, "}");
}

static void append_crc32c(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    char crc32c[RG_REPLY_CRC32C_SIZE];
    rg_reply_format_crc32c(crc32c, subject->info->crc32c);
    rg_resource_append_quoted(text, crc32c, sizeof(crc32c));
}

static void append_md5(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    rg_resource_append_quoted(text, subject->info->md5, RG_STORE_MD5_SIZE);
}

static void append_etag(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    char etag[RG_REPLY_ETAG_SIZE_MAX + 3];
    rg_reply_format_etag(etag, subject->info); /* Its quotes serve as JSON's. */
    rg_text_append_str(text, etag);
}

/* A generation is the time of its creation. */
static void append_created(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    rg_resource_append_time(text, subject->info->generation);
}

static void append_updated(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    rg_resource_append_time(text, subject->info->updated_us);
}

static void append_deleted(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    rg_resource_append_time(text, subject->info->deleted_us);
}

static void append_soft_deleted(struct rg_text *text, const struct subject *subject,
                                const char *name)
{
    (void)name;
    rg_resource_append_time(text, subject->info->soft_deleted_us);
}

static void append_hard_delete(struct rg_text *text, const struct subject *subject,
                               const char *name)
{
    (void)name;
    rg_resource_append_time(text, subject->info->hard_delete_us);
}

static void append_expiration(struct rg_text *text, const struct subject *subject, const char *name)
{
    (void)name;
    rg_resource_append_time(text,
                            rg_protection_expires_us(subject->style->retention_us, subject->info));
}

/* Each by its number. */
static void (*const member_values[])(struct rg_text *text, const struct subject *subject,
                                     const char *name) = {
#define XX(member, name, append) append,
    OBJECT_MEMBERS(XX)
#undef XX
};
_Static_assert(RG_ARRAY_LEN(member_values) == OBJECT_MEMBER_COUNT, "every member has a value");

/* Which of the optional members the object has. */
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
            member_values[i](text, &subject, member_names[i]);
            separator = ",\"";
        }
    }
    rg_text_append_str(text, members == 0 ? "{}" : "}");
}
