/* An upload: an operation (gcs/request/operation.h) over the calls that its method takes.
 *
 * A *method* is one of the service's ways to write an object, each in a file of its own. It takes
 * *steps* of its own, which that file names; what all methods need is here. The bytes are in the
 * parts (gcs/upload/parts.h), which take them from the source (gcs/upload/source.h).
 *
 * What is known of the object while the operation is RUNNING:
 *
 *   UNPUBLISHED   the method begins, fills and sends parts
 *      |
 *      |  a request that makes the object be there is started
 *      v
 *   PUBLISHING  <-------------------+
 *      |  |                         |  it is not what was sent, and the method has another way
 *      |  |  the answer was lost,   |
 *      |  |  or tells too little    |
 *      |  +------------------> COMPARING    what is stored is read, and compared with what was sent
 *      |                            |   |
 *      |  answered                  |   |  it is not what was sent -> the operation fails
 *      v                            v
 *   STORED  <-----------------------+       the method tidies up -> the operation finishes
 *
 * A failure or a cancellation stops the operation: calls are cancelled, but for those that need a
 * little time to end, and the method removes what it left on the server. Who cancels when the
 * server may have had all of the object (PUBLISHING, COMPARING) makes the outcome UNKNOWN: once
 * nothing is out, it is COMPARING, and STORED if what was sent is there; then the operation is
 * RUNNING again.
 *
 * Events (a call has ended, a part was filled, an alarm) only note what happened and defer the
 * operation's task, which is the one place where the next step is decided: so no event finds the
 * operation in the middle of another. */
#ifndef RG_GCS_UPLOAD_UPLOAD_H
#define RG_GCS_UPLOAD_UPLOAD_H

#include "gcs/upload/limits.h"
#include "gcs/upload/parts.h"
#include "gcs/wire/list_parser.h"
#include "gcs/wire/upload_text.h"

#include <ringest/upload.h>

struct rg_upload_op;

enum rg_upload_state {
    RG_UPLOAD_UNPUBLISHED = 0,
    RG_UPLOAD_PUBLISHING,
    RG_UPLOAD_COMPARING,
    RG_UPLOAD_STORED,
    RG_UPLOAD_UNKNOWN,
    RG_UPLOAD_STATE_COUNT,
};

/* Who chose the method. */
enum rg_upload_choice {
    RG_UPLOAD_CHOSEN_BY_CALLER = 0,
    RG_UPLOAD_CHOSEN_BY_US,
    RG_UPLOAD_CHOSEN_AGAIN, /* the server was found to know no multipart uploads */
};

/* A step of a method. */
struct rg_upload_step {
    const char *name;
    uint16_t followers; /* a bit for each step that may come next */
};

/* What differs between the methods. All run from the operation's task. */
struct rg_upload_method_ops {
    const char *name;
    const struct rg_upload_step *steps; /* the first is where it begins; NULL: it has none */
    size_t own_size;                    /* of the method's own memory, zeroed at first; 0: none */
    /* The step in which the answer to op->call alone tells what would have to be removed; 0: none.
     */
    uint8_t step_beginning;
    /* Takes the next step of an object that is UNPUBLISHED or PUBLISHING. */
    void (*advance)(struct rg_upload_op *op);
    /* The object is STORED. False: something else comes first, or has failed. May be NULL. */
    bool (*stored)(struct rg_upload_op *op);
    /* What is stored is not what was sent: true if there is another way to go on. May be NULL. */
    bool (*go_on)(struct rg_upload_op *op);
    /* Nothing more is begun: ends alarms. May come more than once. May be NULL. */
    void (*call_off)(struct rg_upload_op *op);
    /* After a failure, with nothing out: begins to remove what is left. False: nothing is, or
     * nothing more can be done about it. May be NULL. */
    bool (*clean)(struct rg_upload_op *op);
    /* Frees what op->own owns. May be NULL. */
    void (*release)(struct rg_upload_op *op);
};

struct rg_upload_op {
    struct rg_operation operation; /* what is out of it are calls and reads */
    enum rg_upload_state state;    /* changed by rg_upload_become alone */
    const struct rg_upload_method_ops *method;
    enum rg_upload_choice choice;
    uint8_t step;            /* of the method; changed by rg_upload_step alone */
    void *own;               /* owned; the method's, made when it begins */
    struct rg_gcs_call call; /* that is not a part's */
    /* The call that publishes the object; NULL while UNPUBLISHED. */
    const struct rg_gcs_call *publishing;
    uint64_t stopped_until_ns; /* the deadline of calls of an operation that was stopped */
    /* What the caller asked for. */
    struct rg_upload_attributes attributes; /* owned */
    struct rg_conditions conditions;
    char nonce[RG_NONCE_SIZE + 1]; /* among the metadata; "": none */
    struct rg_upload_parts parts;
    /* What the service says of the object, once it is STORED. */
    struct rg_object_resource stored;
    bool was_read;     /* read by a request of its own, not from the answer to ours */
    bool may_be_other; /* somebody else may have stored the same bytes */
};

extern const struct rg_upload_method_ops rg_upload_single_method, rg_upload_resumable_method,
    rg_upload_multipart_method, rg_upload_compose_method;

/* What an upload and a writer have in common. */
struct rg_upload_spec {
    enum rg_upload_method method;
    struct rg_upload_attributes attributes;
    struct rg_conditions conditions;
    bool exclusive;
    uint64_t part_size;
    uint32_t slot_count;
};

/* Makes the operation of a request, whose source its maker sets in op->parts. Returns owned: once
 * the request was posted, its release frees the operation. 0, -EINVAL or -ENOMEM. */
int rg_upload_op_create(struct rg_upload_op **out_op, struct rg_request *request,
                        const struct rg_upload_spec *spec);
void rg_upload_op_destroy(struct rg_upload_op *op);
/* Chooses the method, which takes its first step next. */
void rg_upload_op_set_method(struct rg_upload_op *op, enum rg_upload_method method);
extern const struct rg_request_ops rg_upload_ops;

/* The rest is for methods. Nothing has failed, so they go on. */
static inline bool rg_upload_is_running(const struct rg_upload_op *op)
{
    return op->operation.state == RG_OPERATION_RUNNING;
}
void rg_upload_become(struct rg_upload_op *op, enum rg_upload_state state);
void rg_upload_step(struct rg_upload_op *op, uint8_t step);

/* Prepares op->call for a request about the object. False: there is no memory, and the operation
 * has failed if it was RUNNING. */
bool rg_upload_call_prepare(struct rg_upload_op *op, const struct rg_gcs_call_ops *ops);
/* Starts a prepared call; one that cannot start fails the operation. */
void rg_upload_call_start(struct rg_upload_op *op, struct rg_gcs_call *call);
/* The same for the one that makes the object be there. */
void rg_upload_call_publish(struct rg_upload_op *op, struct rg_gcs_call *call);
/* First thing in a call's `done`. NULL: the operation is being stopped. */
struct rg_upload_op *rg_upload_call_ended(struct rg_gcs_call *call);
/* The operation that a call belongs to. */
struct rg_upload_op *rg_upload_op_of(const struct rg_gcs_call *call);
/* Fails the operation. */
void rg_upload_out_of_memory(struct rg_upload_op *op);

/* What calls of parts have as `refused`: a writer that sends too much at once hears of it. */
void rg_upload_part_refused(struct rg_gcs_call *call, uint16_t http_status);
/* What the request, which has a condition and writes the whole object or one of its temporary ones,
 * will find if it has been done. */
void rg_upload_expect(const struct rg_upload_op *op, struct rg_request *request, uint64_t size,
                      uint32_t crc);
/* Reads what is stored, which the answer to the call that publishes the object tells. */
enum rg_status rg_upload_read_stored(struct rg_gcs_call *call);

#endif
