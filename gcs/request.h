/* One submitted operation, from its mail to its completion, over all its attempts.
 *
 *   submit (any thread)        loop
 *   ------------------------   -------------------------------------------------------------
 *   free -> prepared -> mail -> attempt -> exchange done -> success             -> completion
 *                                  ^                     -> failure, give up    -> completion
 *                                  +---- back-off alarm <- failure, try again
 *
 * What differs between reading, listing and writing is in struct rg_request_ops; everything about
 * attempts, deadlines, cancellation and completions is in request.c alone. */
#ifndef RG_GCS_REQUEST_H
#define RG_GCS_REQUEST_H

#include "gcs/checksum.h"
#include "gcs/client.h"
#include "http/exchange.h"

/* An error answer of the server is kept up to this size, for its message. */
#define RG_ERROR_BODY_SIZE_MAX RG_KIB(64)
/* The text of a completion's detail, with its NUL. */
#define RG_DETAIL_SIZE_MAX 4096

struct rg_request_ops {
    const char *verb; /* for messages: "get", "list", "put" */
    /* Encodes the head; ends with rg_request_encode_end. */
    int (*encode)(struct rg_request *request, struct rg_h1_encoder *encoder);
    /* A head with a 2xx status: where its body goes. A negative result refuses the answer as not
     * what the service documents. */
    int (*head)(struct rg_request *request, const struct rg_h1_head *head);
    void (*data)(struct rg_request *request, const uint8_t *data, size_t size);
    /* The response is complete. Fills the completion, or sets a failure. */
    enum rg_status (*finish)(struct rg_request *request, struct rg_completion *completion);
    /* The response broke off: notes what has arrived, so that the next attempt can go on there. May
     * be NULL. True: there was progress. */
    bool (*broken)(struct rg_request *request);
    /* The server answered with this error status; may note a cause of its own. May be NULL. */
    void (*refused)(struct rg_request *request, uint16_t http_status);
    /* Frees what submit allocated, and leases. */
    void (*release)(struct rg_request *request);
};

struct rg_get_state {
    int64_t want_generation; /* 0: any */
    uint64_t offset, length;
    uint8_t *buf;
    uint64_t buf_size;
    /* Over attempts: what has arrived, and of which object. */
    struct rg_lease *lease;
    uint8_t *body;
    uint64_t received;
    uint64_t object_size;
    int64_t generation;
    uint32_t crc;
    uint32_t object_crc;
    bool has_object_crc;
    bool transcoded; /* the server decompressed: lengths and checksums are of other bytes */
    bool has_object_size;
    bool is_part;    /* the last answer was for a range */
    bool is_endless; /* the last answer did not say how long it is */
};

struct rg_list_state {
    char *target; /* owned; the whole request target */
};

struct rg_put_state {
    const uint8_t *data;
    uint64_t size;
    char *content_type; /* owned; NULL: the default */
    int64_t if_generation_match;
    uint32_t crc;
};

struct rg_request {
    uint32_t free_next; /* index + 1 of the next free request */
    struct rg_mail mail;
    struct rg_list node; /* in client_loop->active */
    struct rg_client *client;
    struct rg_client_loop *part;
    struct rg_cq *cq;
    const struct rg_request_ops *ops;
    uint64_t user_data, deadline_ns;
    uint64_t submitted_ns, started_ns;
    struct rg_exchange x;
    struct rg_alarm alarm;    /* of the next attempt */
    struct rg_alarm deadline; /* of the whole request */
    struct rg_retry retry;
    uint16_t attempts;
    bool idempotent;
    bool waiting; /* for the alarm of the next attempt */
    struct {
        enum rg_status status;
        int os_error;
        uint16_t http_status;
        char text[256];
    } failure;
    union {
        struct rg_get_state get;
        struct rg_list_state list;
        struct rg_put_state put;
    };
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
    char object[RG_OBJECT_NAME_SIZE_MAX + 1];
};

/* Prepares a reserved request: everything but its kind's own state. */
void rg_request_prepare(struct rg_request *request, const struct rg_request_ops *ops,
                        uint64_t user_data, uint64_t deadline_ns);
/* Copies the names, if they are valid: 0 or -EINVAL. */
int rg_request_set_names(struct rg_request *request, const char *bucket, const char *object);

/* Appends the fields that every request has, and the blank line. */
int rg_request_encode_end(struct rg_request *request, struct rg_h1_encoder *encoder);

/* Notes why an attempt failed, printf-like; the first cause of an attempt stays. */
void rg_request_note(struct rg_request *request, enum rg_status status, const char *format, ...)
    RG_PRINTF(3, 4);

/* Ends a request that is out: it completes, from within this call or soon. */
void rg_request_cancel(struct rg_request *request, enum rg_status status);

extern const struct rg_request_ops rg_get_ops, rg_list_ops, rg_put_ops;

#endif
