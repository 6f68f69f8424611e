/* What the fake service keeps, and what its requests do to it: a store of objects, sessions and
 * multipart uploads, without connections and without a lock. See fake_gcs.h. */
#ifndef RG_TESTS_SUPPORT_FAKE_GCS_STORE_H
#define RG_TESTS_SUPPORT_FAKE_GCS_STORE_H

#include "http/h1_decoder.h"
#include "tests/support/fake_gcs.h"

#define RG_FAKE_OBJECTS_MAX 512
#define RG_FAKE_UPLOADS_MAX 64
#define RG_FAKE_PARTS_MAX 128
#define RG_FAKE_HEAD_SIZE_MAX RG_KIB(32)
#define RG_FAKE_NAME_SIZE_MAX 1100

struct rg_fake_blob {
    uint8_t *data;
    uint64_t size;
};

struct rg_fake_object {
    char name[RG_FAKE_NAME_SIZE_MAX];
    struct rg_fake_blob content;
    int64_t generation; /* 0: there is none */
};

struct rg_fake_upload {
    bool open, is_session;
    char name[RG_FAKE_NAME_SIZE_MAX];
    int64_t if_generation_match; /* -1: none */
    struct rg_fake_blob content; /* of a session: what is persisted */
    struct rg_fake_blob parts[RG_FAKE_PARTS_MAX];
};

struct rg_fake_store {
    struct rg_fake_object objects[RG_FAKE_OBJECTS_MAX];
    struct rg_fake_upload uploads[RG_FAKE_UPLOADS_MAX];
    uint32_t upload_count;
    int64_t generation;
};

struct rg_fake_request {
    struct rg_h1_head head;
    char text[RG_FAKE_HEAD_SIZE_MAX];
    char method[16], path[RG_FAKE_NAME_SIZE_MAX * 3], query[8192];
    struct rg_fake_blob body;
    enum rg_fake_kind kind;
    enum rg_fake_action action;
};

struct rg_fake_answer {
    unsigned status;
    char fields[4096];
    char body[8192];
};

void rg_fake_blob_append(struct rg_fake_blob *blob, const void *data, uint64_t size);
void rg_fake_blob_free(struct rg_fake_blob *blob);

/* NULL: there is none. */
struct rg_fake_object *rg_fake_object_find(struct rg_fake_store *store, const char *name);
/* Takes the content. */
struct rg_fake_object *rg_fake_object_store(struct rg_fake_store *store, const char *name,
                                            struct rg_fake_blob content);
void rg_fake_upload_forget(struct rg_fake_upload *upload);

/* What a request asks for, by its method, path and query. */
enum rg_fake_kind rg_fake_kind_of(const struct rg_fake_request *request);
/* Does it to the store, in the way that its action says, and answers. */
void rg_fake_perform(struct rg_fake_store *store, struct rg_fake_request *request,
                     struct rg_fake_answer *answer);
void rg_fake_reply(struct rg_fake_answer *answer, unsigned status);

#endif
