/* Receiving an object. The plain body of a simple upload and of an XML PUT, and the multipart body
 * that carries metadata before the data, are received here in one request; uploads over several
 * requests (resumable.h, xml/multipart.h) use the same steps one by one. */
#ifndef RG_EMULATOR_API_UPLOAD_H
#define RG_EMULATOR_API_UPLOAD_H

#include "emulator/api/description.h"
#include "emulator/api/resource.h"
#include "emulator/request/reply.h"
#include "emulator/store/writer.h"
#include "emulator/wire/md5.h"
#include "emulator/wire/multipart.h"

/* The checksums of the data, as the client says. */
struct rg_upload_hashes {
    bool has_crc32c, has_md5;
    uint32_t crc32c;
    uint8_t md5[RG_MD5_SIZE];
};

/* When a client may say checksums: at the start, and at the end of a resumable upload. Both are
 * checked. */
enum rg_upload_stage { RG_UPLOAD_AT_START, RG_UPLOAD_AT_END, RG_UPLOAD_STAGE_COUNT };

/* The state of one upload. */
struct rg_upload {
    struct rg_store_writer *writer; /* NULL until the name is known, which metadata may tell. */
    struct rg_store_conditions conditions;
    struct rg_description description;
    struct rg_attributes *attributes; /* Owned; made of the description when the writer is. */
    struct rg_resource_style style;
    struct rg_h1_slice bucket, name; /* In the arrays below. */
    uint64_t size_hint;
    struct rg_upload_hashes hashes[RG_UPLOAD_STAGE_COUNT];
    struct rg_md5 md5_state; /* over all that was written */
    bool no_md5; /* No MD5 is computed: whole objects were appended, or nobody will ask for it. */
    bool is_multipart;
    struct rg_multipart multipart;
    char bucket_text[RG_STORE_BUCKET_NAME_SIZE_MAX];
    char name_text[RG_STORE_NAME_SIZE_MAX];
};

/* Receives in this request, or answers the call. */
void rg_upload_receive(struct rg_server_call *call, const struct rg_api_request *request);

/* The steps. Each returns false with the call answered when something is wrong. */

/* Returns owned; NULL with the call answered. Takes conditions and hashes from the head. */
struct rg_upload *rg_upload_create(struct rg_server_call *call,
                                   const struct rg_api_request *request, struct rg_h1_slice bucket);
/* An upload that was not committed leaves nothing behind. NULL does nothing. */
void rg_upload_destroy(struct rg_upload *upload);
bool rg_upload_set_name(struct rg_server_call *call, struct rg_upload *upload,
                        struct rg_h1_slice name);
bool rg_upload_set_content_type(struct rg_server_call *call, struct rg_upload *upload,
                                struct rg_h1_slice value);
/* Content type, encoding and in the XML API the other attributes that headers tell. */
bool rg_upload_take_fields(struct rg_server_call *call, struct rg_upload *upload,
                           const struct rg_api_request *request);
/* The description of an object in JSON: a text, which may be empty. */
bool rg_upload_take_text(struct rg_server_call *call, struct rg_upload *upload,
                         struct rg_h1_slice json);
/* Takes x-goog-hash and Content-MD5 of the last request's head. They replace those of an earlier
 * attempt. */
bool rg_upload_expect_hashes(struct rg_server_call *call, struct rg_upload *upload,
                             const struct rg_h1_head *head);
bool rg_upload_open_writer(struct rg_server_call *call, struct rg_upload *upload);
bool rg_upload_write(struct rg_server_call *call, struct rg_upload *upload, const uint8_t *data,
                     size_t size);
/* Appends a whole object. The new object has no MD5, unless the description names one. */
bool rg_upload_append_object(struct rg_server_call *call, struct rg_upload *upload,
                             struct rg_store_object *object);
/* Whether the data has the checksums that the client said. */
bool rg_upload_check_hashes(struct rg_server_call *call, struct rg_upload *upload);
/* Checks hashes and conditions and makes the object visible. The writer is gone afterwards. */
bool rg_upload_commit(struct rg_server_call *call, struct rg_upload *upload,
                      struct rg_store_object_info *out_info);
void rg_upload_reply(struct rg_server_call *call, const struct rg_upload *upload,
                     const struct rg_store_object_info *info);

#endif
