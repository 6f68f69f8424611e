/* From JSON to attributes; see description.h. */
#include "emulator/api/description.h"

#include "emulator/api/access.h"
#include "emulator/api/contexts.h"
#include "emulator/store/model/clock.h"
#include "emulator/store/model/protection.h"

#include <errno.h>
#include <stdlib.h>

void rg_description_set_bucket(struct rg_description *description, struct rg_bucket *bucket)
{
    if (bucket != NULL) {
        rg_bucket_get_info(bucket, &description->bucket);
    }
}

void rg_description_set_holds(struct rg_description *description)
{
    static const char *const holds[] = {RG_PROTECTION_TEMPORARY_HOLD,
                                        RG_PROTECTION_EVENT_BASED_HOLD};
    for (size_t i = 0; i < RG_ARRAY_LEN(holds); i++) {
        (void)rg_attributes_set(&description->list, rg_text_slice(holds[i]),
                                (struct rg_h1_slice){NULL, 0});
    }
    if (description->bucket.holds_by_default) {
        (void)rg_attributes_set(&description->list, rg_text_slice(RG_PROTECTION_EVENT_BASED_HOLD),
                                rg_text_slice("true"));
    }
}

void rg_description_set_class(struct rg_description *description)
{
    const char *class = description->bucket.storage_class;
    bool is_default = class[0] == '\0' || strcmp(class, RG_STORE_CLASS_DEFAULT) == 0;
    (void)rg_attributes_set(&description->list, rg_text_slice(RG_ATTRIBUTES_CLASS),
                            is_default ? (struct rg_h1_slice){NULL, 0} : rg_text_slice(class));
}

void rg_description_fini(struct rg_description *description)
{
    rg_text_fini(&description->list);
}

bool rg_description_set(struct rg_server_call *call, const char *what, struct rg_h1_slice value,
                        char *out, size_t size_max)
{
    if (!rg_store_attribute_valid(value, size_max)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The %s is not a header value of 1 to %zu bytes.",
                       what, size_max);
        return false;
    }
    memcpy(out, value.data, value.size);
    out[value.size] = '\0';
    return true;
}

/* Takes a string; null and the empty string stand for none. */
static bool take_text(struct rg_server_call *call, yyjson_val *value, const char *what,
                      const char *none, char *out, size_t size_max)
{
    if (value == NULL) {
        return true;
    }
    if (yyjson_is_null(value) || (yyjson_is_str(value) && yyjson_get_len(value) == 0)) {
        strcpy(out, none);
        return true;
    }
    struct rg_h1_slice text = {yyjson_get_str(value), (uint32_t)yyjson_get_len(value)};
    return rg_description_set(call, what, text.data != NULL ? text : (struct rg_h1_slice){"", 0},
                              out, size_max);
}

static bool take_attribute(struct rg_server_call *call, struct rg_text *list, const char *name,
                           yyjson_val *value)
{
    struct rg_h1_slice text = {yyjson_get_str(value), (uint32_t)yyjson_get_len(value)};
    if ((!yyjson_is_str(value) && !yyjson_is_null(value)) ||
        rg_attributes_set(list, rg_text_slice(name), text) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The value of %.200s is not valid.", name);
        return false;
    }
    return true;
}

static bool take_metadata(struct rg_server_call *call, struct rg_text *list, yyjson_val *metadata)
{
    yyjson_val *key;
    if (yyjson_is_null(metadata)) {
        rg_attributes_clear(list, RG_ATTRIBUTES_METADATA);
        return true;
    }
    if (!yyjson_is_obj(metadata)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "metadata is not an object.");
        return false;
    }
    yyjson_obj_iter members = yyjson_obj_iter_with(metadata);
    while ((key = yyjson_obj_iter_next(&members)) != NULL) {
        char name[RG_ATTRIBUTES_SIZE_MAX];
        int size = snprintf(name, sizeof(name), RG_ATTRIBUTES_METADATA "%s", yyjson_get_str(key));
        if ((size_t)size >= sizeof(name) ||
            (size_t)size != strlen(RG_ATTRIBUTES_METADATA) + yyjson_get_len(key)) {
            rg_reply_error(call, RG_API_BAD_REQUEST, "A key of the metadata is not valid.");
            return false;
        }
        if (!take_attribute(call, list, name, yyjson_obj_iter_get_val(key))) {
            return false;
        }
    }
    return true;
}

/* Members that are taken over here or elsewhere, and those that only the service sets, which
 * clients send back as they got them. */
static const char *const known_members[] = {
    "acl",
    "bucket",
    "cacheControl",
    "componentCount",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "contexts",
    "crc32c",
    "customerEncryption",
    "customTime",
    "etag",
    "eventBasedHold",
    "generation",
    "hardDeleteTime",
    "id",
    "kind",
    "md5Hash",
    "mediaLink",
    "metadata",
    "metageneration",
    "name",
    "owner",
    "retentionExpirationTime",
    "selfLink",
    "size",
    "softDeleteTime",
    "storageClass",
    "temporaryHold",
    "timeCreated",
    "timeDeleted",
    "timeFinalized",
    "timeStorageClassUpdated",
    "updated",
};

/* Refuses the others. If they were dropped, the client would believe that they were stored. */
static bool check_members(struct rg_server_call *call, yyjson_val *root)
{
    yyjson_val *key;
    yyjson_obj_iter members = yyjson_obj_iter_with(root);
    while ((key = yyjson_obj_iter_next(&members)) != NULL) {
        bool found = yyjson_is_null(yyjson_obj_iter_get_val(key));
        for (size_t i = 0; !found && i < RG_ARRAY_LEN(known_members); i++) {
            found = yyjson_equals_str(key, known_members[i]);
        }
        if (!found) {
            rg_reply_error(call, RG_API_NOT_IMPLEMENTED,
                           "%.100s of an object is not implemented by this emulator.",
                           yyjson_get_str(key));
            return false;
        }
    }
    return true;
}

static bool take_holds(struct rg_server_call *call, struct rg_text *list, yyjson_val *root)
{
    static const char *const holds[] = {RG_PROTECTION_TEMPORARY_HOLD,
                                        RG_PROTECTION_EVENT_BASED_HOLD};
    for (size_t i = 0; i < RG_ARRAY_LEN(holds); i++) {
        yyjson_val *value = yyjson_obj_get(root, holds[i]);
        if (value == NULL) {
            continue;
        }
        if (!yyjson_is_bool(value) && !yyjson_is_null(value)) {
            rg_reply_error(call, RG_API_BAD_REQUEST, "%s has to be true or false.", holds[i]);
            return false;
        }
        (void)rg_attributes_set(list, rg_text_slice(holds[i]),
                                yyjson_get_bool(value) ? rg_text_slice("true")
                                                       : (struct rg_h1_slice){NULL, 0});
    }
    return true;
}

static bool take_contexts(struct rg_server_call *call, struct rg_text *list, yyjson_val *contexts)
{
    int rc = rg_contexts_take_json(list, contexts, rg_store_now_us());
    if (rc == -E2BIG) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "An object has at most %d contexts.",
                       RG_CONTEXTS_MAX);
    } else if (rc < 0) {
        rg_reply_error(
            call, RG_API_BAD_REQUEST,
            "contexts has to be {\"custom\": {KEY: {\"value\": VALUE}}}, keys and values of "
            "at most %d bytes.",
            RG_CONTEXTS_TEXT_SIZE_MAX);
    }
    return rc == 0;
}

bool rg_description_is_said(yyjson_val *root)
{
    const char *name, *header;
    bool is_said = yyjson_obj_get(root, "contentType") != NULL ||
                   yyjson_obj_get(root, "contentEncoding") != NULL ||
                   yyjson_obj_get(root, "metadata") != NULL ||
                   yyjson_obj_get(root, "contexts") != NULL;
    for (size_t i = 0; (name = rg_attributes_known(i, &header)) != NULL && !is_said; i++) {
        is_said = yyjson_obj_get(root, name) != NULL;
    }
    return is_said;
}

bool rg_description_take_json(struct rg_server_call *call, struct rg_description *description,
                              yyjson_val *root, bool replaces)
{
    struct rg_store_object_info *info = &description->info;
    yyjson_val *contexts = yyjson_obj_get(root, "contexts");
    if (!check_members(call, root) || !take_holds(call, &description->list, root)) {
        return false;
    }
    if (contexts != NULL && replaces) {
        rg_attributes_clear(&description->list, RG_CONTEXTS_PREFIX);
    }
    if (contexts != NULL && !take_contexts(call, &description->list, contexts)) {
        return false;
    }
    yyjson_val *metadata = yyjson_obj_get(root, "metadata");
    yyjson_val *acl = yyjson_obj_get(root, "acl");
    const char *name, *header;
    if (acl != NULL && !rg_access_take_json(call, &description->bucket, &description->list, acl)) {
        return false;
    }
    if (!take_text(call, yyjson_obj_get(root, "contentType"), "content type",
                   RG_DESCRIPTION_CONTENT_TYPE, info->content_type,
                   RG_STORE_CONTENT_TYPE_SIZE_MAX) ||
        !take_text(call, yyjson_obj_get(root, "contentEncoding"), "content encoding", "",
                   info->content_encoding, RG_STORE_CONTENT_ENCODING_SIZE_MAX)) {
        return false;
    }
    for (size_t i = 0; (name = rg_attributes_known(i, &header)) != NULL; i++) {
        yyjson_val *value = yyjson_obj_get(root, name);
        if (value != NULL && yyjson_is_str(value) && yyjson_get_len(value) == 0) {
            (void)rg_attributes_set(&description->list, rg_text_slice(name),
                                    (struct rg_h1_slice){NULL, 0});
        } else if (value != NULL && !take_attribute(call, &description->list, name, value)) {
            return false;
        }
    }
    if (metadata != NULL && replaces) {
        rg_attributes_clear(&description->list, RG_ATTRIBUTES_METADATA);
    }
    return metadata == NULL || take_metadata(call, &description->list, metadata);
}

bool rg_description_take_head(struct rg_server_call *call, struct rg_description *description,
                              const struct rg_h1_head *head)
{
    if (rg_attributes_take_head(&description->list, head) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "An x-goog-meta- field is not valid.");
        return false;
    }
    return true;
}

/* Those of today, and those that the service still takes for them. */
static bool is_class(struct rg_h1_slice class)
{
    static const char *const classes[] = {"STANDARD",
                                          "NEARLINE",
                                          "COLDLINE",
                                          "ARCHIVE",
                                          "REGIONAL",
                                          "MULTI_REGIONAL",
                                          "DURABLE_REDUCED_AVAILABILITY"};
    bool found = class.data == NULL;
    for (size_t i = 0; i < RG_ARRAY_LEN(classes) && !found; i++) {
        found = rg_text_equals(class, classes[i]);
    }
    return found;
}

bool rg_description_finish(struct rg_server_call *call, const struct rg_description *description,
                           struct rg_attributes **out_attributes)
{
    struct rg_attributes *attributes = NULL;
    int rc = rg_attributes_create(&attributes, &description->list);
    if (rc == 0 && !is_class(rg_attributes_get(attributes, RG_ATTRIBUTES_CLASS))) {
        rg_attributes_unref(attributes);
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The storage class is not STANDARD, NEARLINE, COLDLINE or ARCHIVE.");
        return false;
    }
    if (rc == -EMSGSIZE) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The metadata of an object is at most 10 KiB.");
    } else if (rc < 0) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
    } else {
        *out_attributes = attributes;
    }
    return rc == 0;
}
