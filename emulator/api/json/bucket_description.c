/* See bucket_description.h. Settings are merged as JSON Merge Patch (RFC 7396) has it, and then
 * completed with what the service adds: since when a policy holds. */
#include "emulator/api/json/bucket_description.h"

#include "emulator/api/access.h"
#include "emulator/api/description.h"
#include "emulator/store/model/clock.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define US_PER_S INT64_C(1000000)
#define SOFT_DELETE_S_MIN (7 * 86400)
#define SOFT_DELETE_S_MAX (90 * 86400)
#define RETENTION_S_MAX INT64_C(3155760000) /* Limit of the service ("Bucket Lock"): 100 years. */

/* The state of taking over what a request says. */
struct describing {
    struct rg_server_call *call;
    struct rg_bucket_info *info;
    yyjson_val *root;
    yyjson_val *known; /* The settings so far. */
    yyjson_mut_doc *document;
    yyjson_mut_val *settings; /* What they become. */
};

static struct rg_h1_slice text_of(yyjson_val *value)
{
    return yyjson_is_str(value)
               ? (struct rg_h1_slice){yyjson_get_str(value), (uint32_t)yyjson_get_len(value)}
               : (struct rg_h1_slice){NULL, 0};
}

static struct rg_h1_slice mut_text_of(yyjson_mut_val *value)
{
    return yyjson_mut_is_str(value) ? (struct rg_h1_slice){yyjson_mut_get_str(value),
                                                           (uint32_t)yyjson_mut_get_len(value)}
                                    : (struct rg_h1_slice){NULL, 0};
}

static bool refuse(struct describing *describing, const char *what, const char *wanted)
{
    rg_reply_error(describing->call, RG_API_BAD_REQUEST, "%s of a bucket has to be %s.", what,
                   wanted);
    return false;
}

static bool refuse_unknown(struct describing *describing, const char *what)
{
    rg_reply_error(describing->call, RG_API_NOT_IMPLEMENTED,
                   "%.100s of a bucket is not implemented by this emulator.", what);
    return false;
}

/* Seconds, as a number or as a string. */
static bool seconds_of(yyjson_val *value, int64_t *out)
{
    struct rg_h1_slice text = text_of(value);
    *out = yyjson_get_sint(value);
    return text.data != NULL ? rg_text_parse_int64(text, out) == 0 : yyjson_is_int(value);
}

static bool take_location(struct describing *describing, yyjson_val *value)
{
    struct rg_h1_slice text = text_of(value);
    char *out = describing->info->location;
    if (text.data == NULL) {
        return true;
    }
    if (!rg_description_set(describing->call, "location", text, out, RG_STORE_LOCATION_SIZE_MAX)) {
        return false;
    }
    for (; *out != '\0'; out++) {
        *out = (char)toupper((unsigned char)*out);
    }
    return true;
}

static bool take_storage_class(struct describing *describing, yyjson_val *value)
{
    struct rg_h1_slice text = text_of(value);
    return text.data == NULL ||
           rg_description_set(describing->call, "storage class", text,
                              describing->info->storage_class, RG_STORE_LOCATION_SIZE_MAX);
}

static bool take_versioning(struct describing *describing, yyjson_val *value)
{
    describing->info->versioning = yyjson_get_bool(yyjson_obj_get(value, "enabled"));
    return true;
}

/* Objects that were deleted can be restored for 7 to 90 days, or not at all. */
static bool take_soft_delete(struct describing *describing, yyjson_val *policy)
{
    struct rg_bucket_info *info = describing->info;
    int64_t seconds = 0;
    if ((!yyjson_is_null(policy) &&
         !seconds_of(yyjson_obj_get(policy, "retentionDurationSeconds"), &seconds)) ||
        (seconds != 0 && (seconds < SOFT_DELETE_S_MIN || seconds > SOFT_DELETE_S_MAX))) {
        rg_reply_error(describing->call, RG_API_BAD_REQUEST,
                       "retentionDurationSeconds has to be 0, or from %d to %d.", SOFT_DELETE_S_MIN,
                       SOFT_DELETE_S_MAX);
        return false;
    }
    if (seconds * US_PER_S != info->soft_delete_us) {
        info->soft_delete_us = seconds * US_PER_S;
        info->soft_delete_since_us = rg_store_now_us();
    }
    return true;
}

static bool take_hierarchy(struct describing *describing, yyjson_val *value)
{
    describing->info->hierarchical = yyjson_get_bool(yyjson_obj_get(value, "enabled"));
    return true;
}

static bool take_access(struct describing *describing, yyjson_val *value)
{
    yyjson_val *uniform = yyjson_obj_get(value, "uniformBucketLevelAccess");
    yyjson_val *prevention = yyjson_obj_get(value, "publicAccessPrevention");
    struct rg_h1_slice text = text_of(prevention);
    if (uniform == NULL) {
        uniform = yyjson_obj_get(
            value, "bucketPolicyOnly"); /* The older name of uniform bucket-level access. */
    }
    if (uniform != NULL) {
        describing->info->uniform_access = yyjson_get_bool(yyjson_obj_get(uniform, "enabled"));
    }
    if (prevention == NULL) {
        return true;
    }
    describing->info->no_public_access = rg_text_equals(text, "enforced");
    return describing->info->no_public_access || rg_text_equals(text, "inherited") ||
           rg_text_equals(text, "unspecified") ||
           refuse(describing, "publicAccessPrevention", "enforced or inherited");
}

/* Checks of settings: whether a value has the right form. */

static bool is_labels(struct describing *describing, yyjson_val *labels)
{
    yyjson_val *key;
    yyjson_obj_iter members = yyjson_obj_iter_with(labels);
    while ((key = yyjson_obj_iter_next(&members)) != NULL) {
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        if (!yyjson_is_str(value) && !yyjson_is_null(value)) {
            return refuse(describing, "a label", "a string");
        }
    }
    return true;
}

static bool is_billing(struct describing *describing, yyjson_val *billing)
{
    yyjson_val *pays = yyjson_obj_get(billing, "requesterPays");
    return pays == NULL || yyjson_is_bool(pays) || yyjson_is_null(pays) ||
           refuse(describing, "billing.requesterPays", "true or false");
}

static bool is_encryption(struct describing *describing, yyjson_val *encryption)
{
    yyjson_val *key;
    yyjson_obj_iter members = yyjson_obj_iter_with(encryption);
    while ((key = yyjson_obj_iter_next(&members)) != NULL) {
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        const char *name = yyjson_get_str(key);
        if (strcmp(name, "defaultKmsKeyName") == 0) {
            if (!yyjson_is_null(value) && yyjson_get_len(value) > 0) {
                return refuse_unknown(describing, "encryption.defaultKmsKeyName");
            }
            continue;
        }
        struct rg_h1_slice mode = text_of(yyjson_obj_get(value, "restrictionMode"));
        if (!yyjson_is_null(value) && !rg_text_equals(mode, "FullyRestricted") &&
            !rg_text_equals(mode, "NotRestricted")) {
            return refuse(describing, "a restrictionMode", "NotRestricted or FullyRestricted");
        }
    }
    return true;
}

static bool is_autoclass(struct describing *describing, yyjson_val *autoclass)
{
    struct rg_h1_slice class = text_of(yyjson_obj_get(autoclass, "terminalStorageClass"));
    return class.data == NULL || rg_text_equals(class, "NEARLINE") ||
           rg_text_equals(class, "ARCHIVE") ||
           refuse(describing, "autoclass.terminalStorageClass", "NEARLINE or ARCHIVE");
}

static bool is_replication(struct describing *describing, yyjson_val *rpo)
{
    struct rg_h1_slice text = text_of(rpo);
    return rg_text_equals(text, "DEFAULT") || rg_text_equals(text, "ASYNC_TURBO") ||
           refuse(describing, "rpo", "DEFAULT or ASYNC_TURBO");
}

/* Addresses are not looked at: nobody is let in or kept out. */
static bool is_ip_filter(struct describing *describing, yyjson_val *filter)
{
    return !rg_text_equals(text_of(yyjson_obj_get(filter, "mode")), "Enabled") ||
           refuse_unknown(describing, "ipFilter.mode Enabled");
}

static bool is_retention(struct describing *describing, yyjson_val *policy)
{
    int64_t seconds;
    yyjson_val *period = yyjson_obj_get(policy, "retentionPeriod");
    return (seconds_of(period, &seconds) && seconds > 0 && seconds < RETENTION_S_MAX) ||
           refuse(describing, "retentionPolicy.retentionPeriod", "seconds, more than 0");
}

static bool is_acl(struct describing *describing, yyjson_val *acl)
{
    return rg_access_check(describing->call, describing->info, acl);
}

enum member_type { ANY, BOOL, TEXT, OBJECT, ARRAY };

static const struct {
    const char *name;
    bool kept; /* The member is kept among the settings. Otherwise the store takes it, or only the
                  service sets it. */
    enum member_type type;
    bool (*take)(struct describing *describing, yyjson_val *value); /* NULL: nothing to do. */
} members[] = {
    {"acl", true, ARRAY, is_acl},
    {"autoclass", true, OBJECT, is_autoclass},
    {"billing", true, OBJECT, is_billing},
    {"cors", true, ARRAY, NULL},
    {"customPlacementConfig", true, OBJECT, NULL},
    {"defaultEventBasedHold", true, BOOL, NULL},
    {"defaultObjectAcl", true, ARRAY, is_acl},
    {"encryption", true, OBJECT, is_encryption},
    {"ipFilter", true, OBJECT, is_ip_filter},
    {"labels", true, OBJECT, is_labels},
    {"lifecycle", true, OBJECT, NULL},
    {"logging", true, OBJECT, NULL},
    {"retentionPolicy", true, OBJECT, is_retention},
    {"rpo", true, TEXT, is_replication},
    {"website", true, OBJECT, NULL},
    {"hierarchicalNamespace", true, OBJECT, take_hierarchy},
    {"iamConfiguration", false, OBJECT, take_access},
    {"location", false, TEXT, take_location},
    {"softDeletePolicy", false, OBJECT, take_soft_delete},
    {"storageClass", false, TEXT, take_storage_class},
    {"versioning", false, OBJECT, take_versioning},
    {"etag", false, ANY, NULL},
    {"generation", false, ANY, NULL},
    {"id", false, ANY, NULL},
    {"kind", false, ANY, NULL},
    {"locationType", false, ANY, NULL},
    {"metageneration", false, ANY, NULL},
    {"name", false, ANY, NULL},
    {"owner", false, ANY, NULL},
    {"project", false, ANY, NULL},
    {"projectNumber", false, ANY, NULL},
    {"satisfiesPZI", false, ANY, NULL},
    {"satisfiesPZS", false, ANY, NULL},
    {"selfLink", false, ANY, NULL},
    {"timeCreated", false, ANY, NULL},
    {"updated", false, ANY, NULL},
};

static bool has_type(yyjson_val *value, enum member_type type)
{
    switch (type) {
    case BOOL:
        return yyjson_is_bool(value);
    case TEXT:
        return yyjson_is_str(value);
    case OBJECT:
        return yyjson_is_obj(value);
    case ARRAY:
        return yyjson_is_arr(value);
    default:
        return true;
    }
}

/* Checks one member, and puts it into the patch if it is kept among the settings. */
static bool take_member(struct describing *describing, const char *name, yyjson_val *value,
                        yyjson_mut_val *patch)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(members); i++) {
        if (strcmp(name, members[i].name) != 0) {
            continue;
        }
        static const char *const types[] = {"", "true or false", "a string", "an object",
                                            "an array"};
        bool is_null = yyjson_is_null(value);
        if (!is_null && !has_type(value, members[i].type)) {
            return refuse(describing, name, types[members[i].type]);
        }
        /* A null removes a setting. Soft deletion is the only member that a null also changes. */
        if (members[i].take != NULL && (!is_null || members[i].take == take_soft_delete) &&
            !members[i].take(describing, value)) {
            return false;
        }
        return !members[i].kept ||
               yyjson_mut_obj_add(patch, yyjson_mut_str(describing->document, members[i].name),
                                  yyjson_val_mut_copy(describing->document, value));
    }
    return refuse_unknown(describing, name);
}

/* Puts the time of a change into a member. Times are told in milliseconds; this one always differs
 * from the one before. */
static void put_time(struct describing *describing, yyjson_mut_val *object, const char *name,
                     struct rg_h1_slice before)
{
    char text[RG_TEXT_RFC3339_SIZE + 1];
    int64_t now_us = rg_store_now_us();
    rg_text_format_rfc3339(text, now_us);
    if (rg_text_equals(before, text)) {
        rg_text_format_rfc3339(text, now_us + 1000);
    }
    yyjson_mut_obj_put(object, yyjson_mut_str(describing->document, name),
                       yyjson_mut_strcpy(describing->document, text));
}

static void keep_text(struct describing *describing, yyjson_mut_val *object, const char *name,
                      struct rg_h1_slice text)
{
    if (text.data != NULL) {
        yyjson_mut_obj_put(object, yyjson_mut_str(describing->document, name),
                           yyjson_mut_strncpy(describing->document, text.data, text.size));
    }
}

static bool refuse_locked(struct describing *describing)
{
    rg_reply_error(describing->call, RG_API_RETAINED,
                   "The retention policy of the bucket is locked: it can neither be removed nor "
                   "shortened.");
    return false;
}

static bool complete_retention(struct describing *describing)
{
    struct rg_bucket_info *info = describing->info;
    yyjson_mut_val *policy = yyjson_mut_obj_get(describing->settings, "retentionPolicy");
    yyjson_val *known = yyjson_obj_get(describing->known, "retentionPolicy");
    char digits[21];
    if (!yyjson_mut_is_obj(policy)) {
        info->retention_us = 0;
        return !info->retention_locked || refuse_locked(describing);
    }
    yyjson_mut_val *period = yyjson_mut_obj_get(policy, "retentionPeriod");
    struct rg_h1_slice text = mut_text_of(period);
    int64_t seconds = yyjson_mut_get_sint(period);
    if (text.data != NULL) {
        (void)rg_text_parse_int64(text, &seconds);
    }
    if (info->retention_locked && seconds * US_PER_S < info->retention_us) {
        return refuse_locked(describing);
    }
    struct rg_h1_slice since = text_of(yyjson_obj_get(known, "effectiveTime"));
    if (seconds * US_PER_S != info->retention_us || since.data == NULL) {
        put_time(describing, policy, "effectiveTime", since);
    } else {
        keep_text(describing, policy, "effectiveTime", since);
    }
    info->retention_us = seconds * US_PER_S;
    keep_text(
        describing, policy, "retentionPeriod",
        (struct rg_h1_slice){digits, (uint32_t)rg_text_format_u64(digits, (uint64_t)seconds)});
    yyjson_mut_obj_put(policy, yyjson_mut_str(describing->document, "isLocked"),
                       yyjson_mut_bool(describing->document, info->retention_locked));
    return true;
}

static void complete_autoclass(struct describing *describing)
{
    yyjson_mut_val *autoclass = yyjson_mut_obj_get(describing->settings, "autoclass");
    yyjson_val *known = yyjson_obj_get(describing->known, "autoclass");
    describing->info->autoclass = false;
    if (!yyjson_mut_is_obj(autoclass)) {
        return;
    }
    bool enabled = yyjson_mut_get_bool(yyjson_mut_obj_get(autoclass, "enabled"));
    describing->info->autoclass = enabled;
    struct rg_h1_slice toggled = text_of(yyjson_obj_get(known, "toggleTime"));
    if (toggled.data == NULL || enabled != yyjson_get_bool(yyjson_obj_get(known, "enabled"))) {
        put_time(describing, autoclass, "toggleTime", toggled);
    } else {
        keep_text(describing, autoclass, "toggleTime", toggled);
    }
    if (enabled && yyjson_mut_obj_get(autoclass, "terminalStorageClass") == NULL) {
        keep_text(describing, autoclass, "terminalStorageClass", rg_text_slice("NEARLINE"));
    }
    struct rg_h1_slice class = mut_text_of(yyjson_mut_obj_get(autoclass, "terminalStorageClass"));
    struct rg_h1_slice before = text_of(yyjson_obj_get(known, "terminalStorageClass"));
    struct rg_h1_slice since = text_of(yyjson_obj_get(known, "terminalStorageClassUpdateTime"));
    if (class.data != NULL && rg_text_compare(class, before) != 0) {
        put_time(describing, autoclass, "terminalStorageClassUpdateTime", since);
    } else {
        keep_text(describing, autoclass, "terminalStorageClassUpdateTime", since);
    }
}

/* Each restriction is told with the time from which on it holds. */
static void complete_encryption(struct describing *describing)
{
    yyjson_mut_val *encryption = yyjson_mut_obj_get(describing->settings, "encryption"), *key;
    yyjson_mut_obj_iter iterator = yyjson_mut_obj_iter_with(encryption);
    yyjson_val *known = yyjson_obj_get(describing->known, "encryption");
    while ((key = yyjson_mut_obj_iter_next(&iterator)) != NULL) {
        yyjson_mut_val *config = yyjson_mut_obj_iter_get_val(key);
        yyjson_val *before = yyjson_obj_get(known, yyjson_mut_get_str(key));
        struct rg_h1_slice mode = mut_text_of(yyjson_mut_obj_get(config, "restrictionMode"));
        struct rg_h1_slice since = text_of(yyjson_obj_get(before, "effectiveTime"));
        if (!yyjson_mut_is_obj(config)) {
            continue;
        }
        if (!rg_text_equals(mode, "FullyRestricted")) {
            yyjson_mut_obj_remove_key(config, "effectiveTime");
        } else if (since.data == NULL) {
            put_time(describing, config, "effectiveTime", since);
        } else {
            keep_text(describing, config, "effectiveTime", since);
        }
    }
}

/* What the settings mean for the store. */
static bool complete(struct describing *describing)
{
    struct rg_bucket_info *info = describing->info;
    yyjson_mut_val *settings = describing->settings;
    yyjson_mut_val *billing = yyjson_mut_obj_get(settings, "billing");
    info->requester_pays = yyjson_mut_get_bool(yyjson_mut_obj_get(billing, "requesterPays"));
    info->holds_by_default =
        yyjson_mut_get_bool(yyjson_mut_obj_get(settings, "defaultEventBasedHold"));
    if (!complete_retention(describing)) {
        return false;
    }
    complete_autoclass(describing);
    complete_encryption(describing);
    if (info->hierarchical && (!info->uniform_access || info->versioning)) {
        rg_reply_error(describing->call, RG_API_BAD_REQUEST,
                       "A hierarchical namespace needs uniform bucket-level access, and has no "
                       "object versioning.");
        return false;
    }
    return true;
}

static bool finish(struct describing *describing, struct rg_bucket_settings **out_settings)
{
    size_t size = 0;
    char *json = yyjson_mut_val_write(describing->settings, YYJSON_WRITE_NOFLAG, &size);
    int rc =
        json != NULL && size <= RG_BUCKET_SETTINGS_SIZE_MAX
            ? rg_bucket_settings_create(out_settings, (struct rg_h1_slice){json, (uint32_t)size})
        : json != NULL ? -EMSGSIZE
                       : -ENOMEM;
    free(json);
    if (rc == -EMSGSIZE) {
        rg_reply_error(describing->call, RG_API_BAD_REQUEST,
                       "The description of a bucket is at most %zu bytes.",
                       (size_t)RG_BUCKET_SETTINGS_SIZE_MAX);
    } else if (rc < 0) {
        rg_reply_error(describing->call, RG_API_INTERNAL, "Out of memory.");
    }
    return rc == 0;
}

static bool merge(struct describing *describing, bool replaces)
{
    yyjson_mut_doc *document = describing->document;
    yyjson_mut_val *patch = yyjson_mut_obj(document);
    yyjson_val *key;
    /* Uniform access comes first: other members are checked against it. */
    yyjson_val *access = yyjson_obj_get(describing->root, "iamConfiguration");
    if (yyjson_is_obj(access) && !take_access(describing, access)) {
        return false;
    }
    yyjson_obj_iter iterator = yyjson_obj_iter_with(describing->root);
    while ((key = yyjson_obj_iter_next(&iterator)) != NULL) {
        if (!take_member(describing, yyjson_get_str(key), yyjson_obj_iter_get_val(key), patch)) {
            return false;
        }
    }
    yyjson_mut_val *before =
        replaces ? yyjson_mut_obj(document) : yyjson_val_mut_copy(document, describing->known);
    describing->settings = yyjson_mut_merge_patch(document, before, patch);
    return true;
}

static bool describe(struct describing *describing, bool replaces,
                     struct rg_bucket_settings **out_settings)
{
    bool merged = merge(describing, replaces);
    if (merged && describing->settings == NULL) {
        rg_reply_error(describing->call, RG_API_INTERNAL, "Out of memory.");
        return false;
    }
    return merged && complete(describing) && finish(describing, out_settings);
}

bool rg_bucket_describe(struct rg_server_call *call, yyjson_val *root, bool replaces,
                        const struct rg_bucket_settings *known, struct rg_bucket_info *info,
                        struct rg_bucket_settings **out_settings)
{
    struct rg_h1_slice json = rg_bucket_settings_json(known);
    yyjson_doc *before = yyjson_read(json.data, json.size, 0);
    struct describing describing = {
        .call = call,
        .info = info,
        .root = root,
        .known = yyjson_doc_get_root(before),
        .document = yyjson_mut_doc_new(NULL),
    };
    bool described = false;
    if (before == NULL || describing.document == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
    } else {
        described = describe(&describing, replaces, out_settings);
    }
    yyjson_mut_doc_free(describing.document);
    yyjson_doc_free(before);
    return described;
}

bool rg_bucket_lock_retention(struct rg_server_call *call, const struct rg_bucket_settings *known,
                              struct rg_bucket_info *info, struct rg_bucket_settings **out_settings)
{
    if (info->retention_us == 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The bucket has no retention policy to lock.");
        return false;
    }
    info->retention_locked = true;
    return rg_bucket_describe(call, NULL, false, known, info, out_settings);
}
