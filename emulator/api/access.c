/* See access.h. */
#include "emulator/api/access.h"

#include "emulator/request/reply.h"
#include "emulator/store/model/attributes.h"

#include <stdlib.h>

/* The lists that have a name in each API. */
#define ENTRY(entity, role) "{\"entity\":\"" entity "\",\"role\":\"" role "\"}"
#define OWNER ENTRY("user-owner", "OWNER")
static const struct {
    const char *name, *header, *acl;
} predefined[] = {
    {"authenticatedRead", "authenticated-read",
     "[" OWNER "," ENTRY("allAuthenticatedUsers", "READER") "]"},
    {"bucketOwnerFullControl", "bucket-owner-full-control",
     "[" OWNER "," ENTRY("project-owners-0", "OWNER") "]"},
    {"bucketOwnerRead", "bucket-owner-read", "[" OWNER "," ENTRY("project-owners-0", "READER") "]"},
    {"private", "private", "[" OWNER "]"},
    {"projectPrivate", "project-private",
     "[" OWNER "," ENTRY("project-owners-0", "OWNER") "," ENTRY(
         "project-editors-0", "OWNER") "," ENTRY("project-viewers-0", "READER") "]"},
    {"publicRead", "public-read", "[" OWNER "," ENTRY("allUsers", "READER") "]"},
};
#undef OWNER
#undef ENTRY
static bool is_public(yyjson_val *acl)
{
    yyjson_arr_iter entries = yyjson_arr_iter_with(acl);
    yyjson_val *entry;
    while ((entry = yyjson_arr_iter_next(&entries)) != NULL) {
        yyjson_val *entity = yyjson_obj_get(entry, "entity");
        if (yyjson_equals_str(entity, "allUsers") ||
            yyjson_equals_str(entity, "allAuthenticatedUsers")) {
            return true;
        }
    }
    return false;
}

bool rg_access_check(struct rg_server_call *call, const struct rg_bucket_info *bucket,
                     yyjson_val *acl)
{
    if (bucket->uniform_access && yyjson_arr_size(acl) > 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "Cannot use ACL API to update a policy when uniform bucket-level access is "
                       "enabled.");
        return false;
    }
    if (bucket->no_public_access && is_public(acl)) {
        rg_reply_error(
            call, RG_API_CONDITION,
            "The member bindings allUsers and allAuthenticatedUsers are not allowed since "
            "public access prevention is enforced.");
        return false;
    }
    return true;
}

bool rg_access_check_read(struct rg_server_call *call, struct rg_bucket *bucket, bool get)
{
    struct rg_bucket_info info;
    rg_bucket_get_info(bucket, &info);
    if (info.uniform_access) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "Cannot use ACL API to get or update a policy when uniform bucket-level "
                       "access is enabled.");
    } else if (!get) {
        rg_reply_error(call, RG_API_NOT_IMPLEMENTED,
                       "Single entries of access control lists are not implemented by this "
                       "emulator.");
    }
    return !rg_call_of(call)->replied;
}

bool rg_access_take_json(struct rg_server_call *call, const struct rg_bucket_info *bucket,
                         struct rg_text *list, yyjson_val *acl)
{
    size_t size = 0;
    if (!rg_access_check(call, bucket, acl)) {
        return false;
    }
    char *json = yyjson_is_arr(acl) ? yyjson_val_write(acl, YYJSON_WRITE_NOFLAG, &size) : NULL;
    bool taken = json != NULL && size <= RG_ATTRIBUTES_SIZE_MAX &&
                 rg_attributes_set(list, rg_text_slice(RG_ATTRIBUTES_ACL),
                                   (struct rg_h1_slice){json, (uint32_t)size}) == 0;
    free(json);
    if (!taken) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The value of acl is not valid.");
    }
    return taken;
}

static bool check_predefined(struct rg_server_call *call, const struct rg_bucket_info *bucket,
                             const char *json)
{
    yyjson_doc *document = yyjson_read(json, strlen(json), 0);
    bool allowed = rg_access_check(call, bucket, yyjson_doc_get_root(document));
    yyjson_doc_free(document);
    return allowed;
}

/* The predefined list that the request names; empty: none. */
static struct rg_h1_slice predefined_name(const struct rg_api_request *request)
{
    if (!rg_api_request_is_json(request)) {
        const struct rg_h1_slice *header = rg_h1_find(request->head, "x-goog-acl");
        return header != NULL ? *header : (struct rg_h1_slice){NULL, 0};
    }
    return rg_api_request_has(request, RG_PARAM_DESTINATION_PREDEFINED_ACL)
               ? request->params[RG_PARAM_DESTINATION_PREDEFINED_ACL]
               : request->params[RG_PARAM_PREDEFINED_ACL];
}

bool rg_access_take_predefined(struct rg_server_call *call, const struct rg_bucket_info *bucket,
                               struct rg_text *list, const struct rg_api_request *request)
{
    bool json = rg_api_request_is_json(request);
    struct rg_h1_slice name = predefined_name(request);
    if (name.size == 0) {
        return true;
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(predefined); i++) {
        if (rg_text_equals(name, json ? predefined[i].name : predefined[i].header)) {
            if (!check_predefined(call, bucket, predefined[i].acl)) {
                return false;
            }
            (void)rg_attributes_set(list, rg_text_slice(RG_ATTRIBUTES_ACL),
                                    rg_text_slice(predefined[i].acl));
            return true;
        }
    }
    rg_reply_error(call, RG_API_BAD_REQUEST, "There is no predefined ACL of this name: %.*s",
                   (int)name.size, name.data);
    return false;
}
