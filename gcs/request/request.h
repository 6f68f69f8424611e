/* One submitted operation, from its mail to its completion, over all its attempts.
 *
 *        reserve, prepare        the loop takes its mail      there is a token
 *   FREE ----------------> QUEUED ------------------+ (TOKEN) -----------+
 *    ^                       |                      |                    v
 *    |        an operation:  |          +---------> an attempt begins  (ADMISSION)
 *    |        it sends       v          |                                |  the limits of its
 *    |        nothing    CHILDREN       | the alarm                      v  bucket let it in
 *    |                       |       BACKOFF                            POOL
 *    |                       |          ^                                |  a connection takes
 *    |                       |          | a failure, worth another       v  its head
 *    |                       |          +------------------------------ OUT ----> (MEMORY)
 *    |                       |                                           |           |
 *    +-------------------- DONE <----------------------------------------+-----------+
 *        completion is published    success, or a failure that stands    memory for the answer
 *
 * The states in parentheses are only waited in where there is something to wait for. From POOL and
 * OUT the next attempt may also begin at once: after a 401, on a connection that turned out to be
 * closed, and to ask whether a write was done. In TOKEN, ADMISSION, BACKOFF and MEMORY nothing is
 * on the network, and a cancel ends the request there and then; in POOL and OUT the pool ends it. A
 * child of an operation is never FREE: from DONE it is started again, or its memory goes.
 *
 * Who counts what. `attempts` are the HTTP requests that were given to a connection, hedges too; a
 * completion tells them, and an operation adds up those of its children. retry.failures are the
 * tries that the limit of attempts counts: also those that found no connection, and not those
 * before the question whether a write was done. The bytes of a body are counted by the exchange
 * within an attempt (x.body_size), and by the kind of request over its attempts (get.received).
 *
 * What differs between reading, listing and writing is in struct rg_request_ops; everything about
 * attempts, deadlines, cancellation and completions is in request.c alone.
 *
 * An operation that takes several requests (an upload in parts, a copy in steps) is a request too,
 * whose ops have `start` and `cancel`: it makes no attempt itself. Its children are requests that
 * are embedded in its own state and run on its loop; each ends in a call of `done` instead of a
 * completion, and when all have, the operation ends itself by rg_request_finish or rg_request_fail.
 */
#ifndef RG_GCS_REQUEST_REQUEST_H
#define RG_GCS_REQUEST_REQUEST_H

#include "gcs/request/client.h"
#include "gcs/request/traffic.h"
#include "gcs/request/verify.h"
#include "gcs/wire/checksum.h"
#include "http/exchange.h"

/* An error answer of the server is kept up to this size, for its message. */
#define RG_ERROR_BODY_SIZE_MAX RG_KIB(64)
/* The text of a completion's detail, with its NUL. */
#define RG_DETAIL_SIZE_MAX 4096

enum rg_request_state {
    RG_REQUEST_FREE = 0,  /* nobody's */
    RG_REQUEST_QUEUED,    /* prepared: its submitter's, in the loop's mailbox, or not started yet */
    RG_REQUEST_TOKEN,     /* waits for an access token */
    RG_REQUEST_ADMISSION, /* waits until its bucket's limits let it in */
    RG_REQUEST_POOL,      /* waits for a connection */
    RG_REQUEST_OUT,       /* a connection has taken its head */
    RG_REQUEST_BACKOFF,   /* waits for the alarm of the next attempt */
    RG_REQUEST_MEMORY,    /* answered; waits for memory to take the answer in */
    RG_REQUEST_CHILDREN,  /* an operation, whose children are sent in its place */
    RG_REQUEST_DONE,      /* ended; of a child, until it is started again */
    RG_REQUEST_STATE_COUNT,
};

struct rg_request_ops {
    const char *verb; /* for messages: "get", "list", "put" */
    enum rg_traffic_kind traffic;
    /* Ended, it removes what it left on the server before it completes. */
    bool leaves_things;
    /* Encodes the head; ends with rg_request_encode_end. */
    int (*encode)(struct rg_request *request, struct rg_h1_encoder *encoder);
    /* A head with a 2xx status (or that of `accepts`): where its body goes. A negative result
     * refuses the answer as not what the service documents. */
    int (*head)(struct rg_request *request, const struct rg_h1_head *head);
    void (*data)(struct rg_request *request, const uint8_t *data, size_t size);
    /* The response is complete. Fills the completion, or sets a failure. Or it cannot be taken in
     * yet, for want of memory: calls rg_request_await_memory, and rg_request_answered later. */
    enum rg_status (*finish)(struct rg_request *request, struct rg_completion *completion);
    /* The response broke off: notes what has arrived, so that the next attempt can go on there. May
     * be NULL. True: there was progress. */
    bool (*broken)(struct rg_request *request);
    /* The server answered with this error status; may note a cause of its own. May be NULL. */
    void (*refused)(struct rg_request *request, uint16_t http_status);
    /* Frees what submit allocated, and leases. */
    void (*release)(struct rg_request *request);
    /* Of an operation; NULL in requests that are sent. `cancel` may come more than once: it makes
     * the operation end soon, also when its children can no longer start. */
    void (*start)(struct rg_request *request);
    void (*cancel)(struct rg_request *request, enum rg_status status);
};

struct rg_get_state {
    int64_t want_generation; /* 0: any */
    uint64_t offset, length;
    uint8_t *buf;
    uint64_t buf_size;
    bool buf_is_leased; /* of memory that others may wait for */
    bool no_checksum;
    /* In place of buf, where not NULL: takes the bytes, in order. `at`: of the first of them,
     * counted from the first that was asked for; 0 again where reading starts again. */
    void (*sink)(struct rg_request *request, uint64_t at, const uint8_t *data, size_t size);
    uint64_t sunk;
    struct rg_conditions conditions;
    /* Over attempts: what has arrived, and of which object. */
    struct rg_lease *lease;
    uint8_t *body;
    uint64_t received;
    uint64_t object_size;
    int64_t generation;
    uint32_t crc;
    uint32_t object_crc;
    bool has_object_crc;
    bool is_gzip;
    bool has_object_size;
    bool is_part;    /* the last answer was for a range */
    bool is_endless; /* the last answer did not say how long it is */
};

struct rg_list_state {
    char *target; /* owned; the whole request target */
    /* While there is no memory for the page. */
    struct rg_task waiter;
    char *body; /* owned */
    size_t body_size, page_size;
};

struct rg_put_state {
    const uint8_t *data;
    uint64_t size;
    char *content_type; /* owned; NULL: the default */
    /* Owned; around the data of a multipart/related request, which an exclusive put is. NULL: the
     * data alone is the body */
    char *lead, *trail;
    int64_t if_generation_match;
    uint32_t crc;
};

/* See gcs/request/object_request.h. */
struct rg_object_request_state {
    const char *method;
    const char *content_type; /* of the body */
    char *target;             /* owned, like the next two */
    char *body;               /* NULL: none */
    char *names;              /* of permissions, each with its NUL; NULL: none */
    size_t body_size, name_count;
    uint32_t crc32c; /* that what is written is to have, if has_crc32c */
    bool has_crc32c;
    int64_t metageneration; /* that a change demands */
};

struct rg_operation;

struct rg_request {
    uint32_t free_next; /* index + 1 of the next free request */
    struct rg_mail mail;
    struct rg_list node; /* in client_loop->active */
    struct rg_client *client;
    struct rg_client_loop *client_loop;
    struct rg_cq *cq; /* NULL: a child */
    /* Of a child: takes over what is in the completion (its lease too); request->failure says what
     * went wrong. May start it again. Runs on the loop, possibly from within rg_request_cancel. */
    void (*done)(struct rg_request *request, struct rg_completion *completion);
    struct rg_request *parent;
    const struct rg_request_ops *ops;
    uint64_t user_data, deadline_ns;
    uint64_t submitted_ns, started_ns;
    struct rg_exchange x;
    struct rg_admission admission;
    struct rg_alarm alarm;    /* of the next attempt */
    struct rg_alarm deadline; /* of the whole request */
    struct rg_retry retry;
    struct rg_verify verify;
    uint16_t attempts;       /* see above */
    bool has_no_write_token; /* it is none of the JSON API's writes */
    uint64_t write;          /* the number of the write on its loop; 0: not sent yet */
    bool idempotent;
    uint8_t state; /* enum rg_request_state; changed in request.c alone */
    /* A status besides 2xx that is an answer like those, and no refusal; 0: none. */
    uint16_t accepts;
    /* Where the body of a refusal goes, for who must not wait for memory; NULL: to a lease. */
    uint8_t *refusal_space;
    size_t refusal_space_size;
    struct rg_token_wait token;
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
        struct rg_object_request_state object_request;
        struct rg_operation *operation; /* owned; gcs/request/operation.h */
        struct rg_listing *listing;     /* one of whose pages is wanted */
    };
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
    char object[RG_OBJECT_NAME_SIZE_MAX + 1];
};

/* Prepares a reserved request: everything but its kind's own state. */
void rg_request_prepare(struct rg_request *request, const struct rg_request_ops *ops,
                        uint64_t user_data, uint64_t deadline_ns);
/* From within `finish`: the answer waits for memory. */
void rg_request_await_memory(struct rg_request *request);
/* The end of an attempt whose `finish` had to wait. */
void rg_request_answered(struct rg_request *request, enum rg_status status,
                         struct rg_completion *completion);
/* Copies the names, if they are valid: 0 or -EINVAL. */
int rg_request_set_names(struct rg_request *request, const char *bucket, const char *object);

/* Appends the fields that every request has, and the blank line. */
int rg_request_encode_end(struct rg_request *request, struct rg_h1_encoder *encoder);

/* Notes why an attempt failed, printf-like; the first cause of an attempt stays. */
void rg_request_note(struct rg_request *request, enum rg_status status, const char *format, ...)
    RG_PRINTF(3, 4);

/* Whether it waits for something else than the network: then a cancel ends it at once. */
static inline bool rg_request_is_waiting(const struct rg_request *request)
{
    const unsigned waits = 1u << RG_REQUEST_TOKEN | 1u << RG_REQUEST_ADMISSION |
                           1u << RG_REQUEST_BACKOFF | 1u << RG_REQUEST_MEMORY;
    return (waits >> request->state & 1) != 0;
}

/* Makes a child of an operation, in memory of the operation's; next comes rg_request_prepare and
 * what the kind of request needs. */
void rg_request_init_child(struct rg_request *child, struct rg_request *parent,
                           void (*done)(struct rg_request *child,
                                        struct rg_completion *completion));
/* Starts a prepared child, on the loop's thread. `done` never comes from within this call. False:
 * the client is being closed, and `done` will not come. */
bool rg_request_start(struct rg_request *child);
/* Ends an operation that has no child out: its completion, OK or (after rg_request_note) not. */
void rg_request_finish(struct rg_request *request, struct rg_completion *completion);
void rg_request_fail(struct rg_request *request);
/* Puts into a failed completion, for people, what failed and why. */
void rg_request_explain(struct rg_request *request, struct rg_completion *completion);
/* Takes over a child's failure as the operation's own. */
void rg_request_note_child(struct rg_request *request, const struct rg_request *child);

/* Prepares a get; its struct is as large as the library's. 0 or -EINVAL. */
int rg_get_prepare(struct rg_request *request, const struct rg_get *get);
/* The wait of a request for a token is over; failure NULL: there is one. */
void rg_request_token_came(struct rg_token_wait *wait, const char *failure);
/* For gcs/request/traffic.c: gives the pool a request that waited for its bucket's limits. */
void rg_request_admitted(struct rg_request *request);

/* Ends a request that is out: it completes, from within this call or soon. */
void rg_request_cancel(struct rg_request *request, enum rg_status status);

extern const struct rg_request_ops rg_get_ops;
/* The step of a request that asks whether its write was done. */
extern const struct rg_request_ops rg_verify_ops;

#endif
