/* What a request is made of. Its life, and who owns which count, is told in request.h, whose
 * functions alone change its state. */
#ifndef RG_GCS_REQUEST_REQUEST_TYPE_H
#define RG_GCS_REQUEST_REQUEST_TYPE_H

#include "gcs/request/admission.h"
#include "gcs/request/authorize.h"
#include "gcs/request/retry.h"
#include "gcs/request/verify.h"
#include "gcs/wire/checksum.h"
#include "http/exchange.h"
#include "runtime/loop.h"

#include <errno.h>
#include <ringest/gcs.h>
#include <stdlib.h>
#include <string.h>

struct rg_cached_gaps;
struct rg_cached_read;
struct rg_client;
struct rg_client_loop;
struct rg_operation;
struct rg_request;

/* An error answer of the server is kept up to this size, for its message. */
#define RG_ERROR_BODY_SIZE_MAX RG_KIB(64)
/* The text of a completion's detail, with its NUL. */
#define RG_DETAIL_SIZE_MAX 4096

enum rg_request_state {
    RG_REQUEST_FREE = 0,  /* nobody's */
    RG_REQUEST_QUEUED,    /* prepared: its submitter's, in the loop's mailbox, or not started yet */
    RG_REQUEST_CACHE,     /* is read from the client's cache */
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
    enum rg_verb operation; /* as it is counted */
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
    /* Operations have these; NULL in requests that are sent. `cancel` may come more than once: it
     * makes the operation end soon, also when its children can no longer start. */
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
    struct rg_lease *kept; /* a copy of what the sink took, for the cache; NULL: none */
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
    /* What is there is an older answer, kept in the cache: the service is asked whether it has
     * another generation. */
    bool is_doubted;
    bool is_confirmed;    /* an answer of this get has told the generation */
    bool is_outdated;     /* one has told another than the cache has, and all is sent for at once */
    bool is_fresh;        /* the cache is not asked: what it gave was wrong */
    uint64_t cached;      /* of `received`: those that the cache gave */
    uint64_t from_memory; /* of `cached`: those of its memory tier */
    /* Bytes of the object up to which is sent for, since the cache may have what follows; 0: for
     * all. */
    uint64_t gap_end;
    uint64_t sent_from;                 /* of `received`: from there on the service sends */
    struct rg_cached_gaps *gaps;        /* what it has sent before that; NULL: nothing */
    struct rg_cached_read *cached_read; /* CACHE: what is out; NULL: nothing */
};

/* What the cache gave may be of an older generation than was asked for. */
static inline bool rg_get_state_is_doubtful(const struct rg_get_state *get)
{
    return get->want_generation == 0 && get->cached > 0 && !get->is_confirmed;
}

/* Forgets what earlier attempts brought. */
static inline void rg_get_state_restart(struct rg_get_state *get)
{
    rg_lease_release(get->lease);
    get->lease = NULL;
    get->body = NULL;
    get->received = 0;
    get->cached = 0;
    get->from_memory = 0;
    get->is_doubted = false;
    get->is_confirmed = false;
    get->gap_end = 0;
    get->sent_from = 0;
    free(get->gaps);
    get->gaps = NULL;
    get->crc = 0;
    get->has_object_crc = false;
    get->has_object_size = false;
    get->object_size = 0;
}

/* Bytes of the lease from the body's beginning on. */
static inline uint64_t rg_get_state_room(const struct rg_get_state *get)
{
    return (uint64_t)(get->lease->data + get->lease->capacity - get->body);
}

/* Sees to it that `size` bytes of the body fit into its lease, which was taken for one answer. Then
 * what there is moves to a larger one. -ENOMEM: there is none now; -EMSGSIZE: there never will be.
 */
static inline int rg_get_state_reserve(struct rg_get_state *get, struct rg_slab_arena *slabs,
                                       uint64_t size)
{
    if (size <= rg_get_state_room(get)) {
        return 0;
    }
    if (size > rg_slab_size_max(slabs)) {
        return -EMSGSIZE;
    }
    struct rg_lease *larger = rg_slab_take(slabs, (size_t)size);
    if (larger == NULL) {
        return -ENOMEM;
    }
    memcpy(larger->data, get->body, (size_t)get->received);
    rg_lease_release(get->lease);
    get->lease = larger;
    get->body = larger->data;
    return 0;
}

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
    uint32_t free_next; /* taken: index + 1 of the next one taken with it; free: client_loop.c */
    struct rg_mail mail;
    struct rg_list node; /* in client_loop->active */
    struct rg_client *client;
    struct rg_client_loop *client_loop;
    struct rg_cq *cq; /* NULL: a child */
    /* A child's end: takes over what is in the completion (its lease too); request->failure says
     * what went wrong. May start it again. Runs on the loop, possibly from within
     * rg_request_cancel. */
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
    uint8_t stage; /* of a get, see runtime/stages.h; likewise */
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

/* A get, by which request.c and traffic.c tell that `get` of the union is in use. */
extern const struct rg_request_ops rg_get_ops;

#endif
