/* See unsupported.h. */
#include "emulator/api/unsupported.h"

#include "http/url.h"

static const char *const json_params[] = {
    "allowNonEmpty",     "copySourceAcl", "destinationKmsKeyName",
    "dropContextGroups", "kmsKeyName",    "overrideUnlockedRetention",
    "restoreToken",
};
/* These are about soft-deleted buckets, which the emulator does not have. */
static const char *const bucket_params[] = {"generation", "softDeleted"};
/* These name parts of buckets and objects, or change an answer's head. */
static const char *const xml_params[] = {
    "accelerate",
    "acl",
    "analytics",
    "billing",
    "compose",
    "cors",
    "encryption",
    "encryptionConfig",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "retention",
    "select",
    "storageClass",
    "tagging",
    "torrent",
    "versionId",
    "versioning",
    "versions",
    "website",
};
static const char *const fields[] = {
    "if-modified-since",
    "if-range",
    "if-unmodified-since",
    "x-amz-server-side-encryption",
    "x-goog-copy-source-if-modified-since",
    "x-goog-copy-source-if-unmodified-since",
    "x-goog-copy-source-range",
    "x-goog-encryption-kms-key-name",
    "x-goog-object-lock-mode",
    "x-goog-object-lock-retain-until-date",
    "x-goog-tagging",
};

static bool is_listed(struct rg_h1_slice name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (rg_text_equals(name, list[i])) {
            return true;
        }
    }
    return false;
}

static bool is_unsupported(const struct rg_api_request *request, struct rg_h1_slice name,
                           struct rg_h1_slice value)
{
    bool is_bucket =
        request->route == RG_ROUTE_JSON_BUCKET || request->route == RG_ROUTE_JSON_BUCKETS;
    if (!rg_api_request_is_json(request)) {
        return is_listed(name, xml_params, RG_ARRAY_LEN(xml_params));
    }
    return !rg_text_equals(value, "false") &&
           (is_listed(name, json_params, RG_ARRAY_LEN(json_params)) ||
            (is_bucket && is_listed(name, bucket_params, RG_ARRAY_LEN(bucket_params))));
}

bool rg_unsupported_check(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_h1_slice path, query, name, value;
    rg_url_target_split(request->head->target, &path, &query);
    while (rg_url_query_next(&query, &name, &value)) {
        if (is_unsupported(request, name, value)) {
            rg_reply_error(call, RG_API_NOT_IMPLEMENTED,
                           "The parameter %.*s is not implemented by this emulator.",
                           (int)name.size, name.data);
            return false;
        }
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(fields); i++) {
        if (rg_h1_find(request->head, fields[i]) != NULL) {
            rg_reply_error(call, RG_API_NOT_IMPLEMENTED,
                           "The header field %s is not implemented by this emulator.", fields[i]);
            return false;
        }
    }
    return true;
}
