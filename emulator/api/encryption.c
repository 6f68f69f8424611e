/* See encryption.h. */
#include "emulator/api/encryption.h"

#define SHA256_SIZE 32

/* Finds the fields that name a key; NULL when there are none. False with the call answered when
 * they are malformed. */
static bool read_key(struct rg_server_call *call, const struct rg_h1_head *head,
                     bool is_copy_source, const struct rg_h1_slice **out_sha256)
{
    static const char *const names[2][3] = {
        {"x-goog-encryption-algorithm", "x-goog-encryption-key", "x-goog-encryption-key-sha256"},
        {"x-goog-copy-source-encryption-algorithm", "x-goog-copy-source-encryption-key",
         "x-goog-copy-source-encryption-key-sha256"}};
    const struct rg_h1_slice *fields[3];
    uint8_t bytes[SHA256_SIZE];
    size_t count = 0;
    for (size_t i = 0; i < RG_ARRAY_LEN(fields); i++) {
        fields[i] = rg_h1_find(head, names[is_copy_source][i]);
        count += fields[i] != NULL;
    }
    *out_sha256 = fields[2];
    if (count == 0) {
        return true;
    }
    if (count < RG_ARRAY_LEN(fields) || !rg_text_equals(*fields[0], "AES256") ||
        rg_text_parse_base64(*fields[1], bytes, sizeof(bytes)) != sizeof(bytes) ||
        rg_text_parse_base64(*fields[2], bytes, sizeof(bytes)) != sizeof(bytes)) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "An encryption key is 32 bytes in base64, with its SHA-256, for AES256.");
        return false;
    }
    return true;
}

bool rg_encryption_take(struct rg_server_call *call, const struct rg_h1_head *head,
                        struct rg_text *list)
{
    const struct rg_h1_slice *sha256;
    if (!read_key(call, head, false, &sha256)) {
        return false;
    }
    (void)rg_attributes_set(list, rg_text_slice(RG_ENCRYPTION_ATTRIBUTE),
                            sha256 != NULL ? *sha256 : (struct rg_h1_slice){NULL, 0});
    return true;
}

bool rg_encryption_check(struct rg_server_call *call, const struct rg_h1_head *head,
                         bool is_copy_source, const struct rg_store_object_info *info)
{
    const struct rg_h1_slice *sha256;
    if (!read_key(call, head, is_copy_source, &sha256)) {
        return false;
    }
    struct rg_h1_slice stored = rg_attributes_get(info->attributes, RG_ENCRYPTION_ATTRIBUTE);
    struct rg_h1_slice given = sha256 != NULL ? *sha256 : (struct rg_h1_slice){NULL, 0};
    if (rg_text_compare(stored, given) == 0) {
        return true;
    }
    rg_reply_error(call, RG_API_BAD_REQUEST, "%s",
                   stored.data == NULL
                       ? "The target object is not encrypted by a customer-supplied "
                         "encryption key."
                   : given.data == NULL
                       ? "The target object is encrypted by a customer-supplied encryption key."
                       : "The provided encryption key is incorrect.");
    return false;
}
