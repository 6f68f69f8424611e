/* An upload: an operation (gcs/request/operation.h) over the calls that its method takes.
 *
 *   RUNNING    begin -> parts are filled and sent, each on its own -> the method publishes -> ENDED
 *      |
 *      |  failure, cancellation: calls are cancelled, but for those that need a little time to end
 *      v
 *   STOPPING   waits for what is out
 *      v
 *   VERIFYING  cancelled when the server may have had all of it: asks what is stored; what was sent
 *      |       is, so it is RUNNING again, as one that is stored
 *      v
 *   CLEANING   the method removes what it left on the server -> ENDED
 *
 * Vocabulary. A *source* is where the bytes come from: memory, a file, or a writer. A *slot* is the
 * place of one part that is on its way; there are parts_inflight_max of them, which bounds memory.
 * A *record* is what is known of a part that was sent. A *method* is one of the service's ways to
 * write an object.
 *
 * Events (a call has ended, a part was filled, an alarm) only note what happened and defer the
 * operation's task, which is the one place where the next step is decided: so no event finds the
 * operation in the middle of another. */
#ifndef RG_GCS_UPLOAD_UPLOAD_H
#define RG_GCS_UPLOAD_UPLOAD_H

#include "gcs/request/call.h"
#include "gcs/request/operation.h"
#include "gcs/upload/limits.h"
#include "gcs/upload/stream.h"
#include "gcs/wire/list_parser.h"
#include "gcs/wire/upload_text.h"

#include <ringest/upload.h>

struct rg_upload_op;

enum rg_upload_source_kind {
    RG_UPLOAD_SOURCE_MEMORY,
    RG_UPLOAD_SOURCE_FILE,
    RG_UPLOAD_SOURCE_WRITER,
};

enum rg_upload_part_state {
    RG_PART_FREE = 0,
    RG_PART_FILLING, /* waiting for memory, being read or summed up */
    RG_PART_FILLED,
    RG_PART_SENDING, /* or being composed */
};

struct rg_upload_part {
    struct rg_upload_op *op;
    enum rg_upload_part_state state;
    uint32_t number; /* from 0; the index of its record */
    uint64_t offset, size;
    const uint8_t *data;
    uint8_t *memory;                 /* taken; NULL: data is the caller's */
    struct rg_stream_buffer *buffer; /* of a writer, in place of data; borrowed until it is given */
    uint64_t filled;                 /* bytes that are there and summed up */
    uint32_t crc;                    /* of those */
    struct rg_op reading;
    struct rg_task task; /* waits for memory, or sums up the next piece */
    struct rg_gcs_call call;
    char *lead, *trail; /* owned; around the data of a multipart/related request */
};

struct rg_upload_record {
    uint64_t size;
    int64_t generation; /* of a temporary object */
    uint32_t crc;
    bool begun; /* something of it may be on the server */
    char etag[RG_GCS_CALL_ETAG_SIZE_MAX];
};

/* What differs between the methods. All run from the operation's task. */
struct rg_upload_method_ops {
    /* Takes the next step, while nothing has failed. */
    void (*advance)(struct rg_upload_op *op);
    /* After a failure, with nothing out: begins to remove what is left. False: nothing is, or
     * nothing more can be done about it. */
    bool (*clean)(struct rg_upload_op *op);
    /* After rg_upload_check, where what is stored is not what was sent: true if there is another
     * way to go on. May be NULL. */
    bool (*unstored)(struct rg_upload_op *op);
};

/* Where an upload in several steps is; each method uses those it needs. */
enum rg_upload_phase {
    RG_UPLOAD_BEGIN = 0,
    RG_UPLOAD_BEGINNING, /* the session or the multipart upload is being made */
    RG_UPLOAD_PARTS,
    RG_UPLOAD_ASKING,     /* a resumable session is asked how far it got */
    RG_UPLOAD_PUBLISHING, /* the last request is out */
    RG_UPLOAD_CHECKING,   /* what is stored is compared with what was sent */
    RG_UPLOAD_STORED,     /* it is there; temporary objects are being removed */
};

struct rg_upload_op {
    struct rg_operation operation; /* what is out of it are calls and reads */
    const struct rg_upload_method_ops *method;
    enum rg_upload_phase phase;
    struct rg_gcs_call call; /* that is not a part's */
    /* The request that publishes the object, when it was started; NULL: it was not. */
    const struct rg_gcs_call *publishing;
    bool in_doubt;     /* it was cancelled when the server may have had all of it */
    bool clean_failed; /* something could not be removed */
    bool found_done;   /* what is stored may be somebody else's */
    bool was_read;     /* what is stored was asked for, and not told by the answer to our request */
    bool is_auto;      /* the method was ours to choose */
    bool no_multipart; /* the server was found to know no multipart uploads */
    uint64_t clean_until_ns;
    /* What the caller asked for; strings are owned. */
    char *content_type, *content_encoding, *cache_control, *storage_class;
    struct rg_metadata *metadata;
    size_t metadata_count;
    struct rg_conditions conditions;
    char nonce[RG_NONCE_SIZE + 1]; /* among the metadata; "": none */
    uint64_t part_size;
    /* The source. */
    enum rg_upload_source_kind source;
    const uint8_t *data;
    int fd;
    uint64_t file_offset;
    bool disk_waits;          /* a read of the file had to wait for a disk */
    struct rg_stream *stream; /* of a writer */
    uint64_t size;            /* UINT64_MAX: not known yet */
    /* Parts. */
    uint32_t slot_count;
    struct rg_upload_part *slots;
    uint32_t part_next; /* the first that was not given a slot */
    uint64_t offset_next;
    struct rg_upload_record *records;
    uint32_t record_count, record_capacity;
    /* What the methods keep. */
    struct rg_retry retry; /* of a resumable session */
    struct rg_alarm alarm;
    bool waiting;  /* for the alarm */
    bool restart;  /* with a new session, from the start */
    char *session; /* owned; the target of a session, or the id of a multipart upload */
    uint64_t persisted, sent_end; /* of this session */
    uint32_t sessions;            /* made so far */
    char *body;                   /* owned; of op->call's request */
    uint32_t *level;              /* owned; records that are still to be joined, in order */
    uint32_t level_count, level_done, level_next;
    uint32_t part_count; /* records below are parts, those from it on are joined ones */
    char temporary[64];  /* what names of temporary objects begin with */
    struct rg_object_resource stored;
};

extern const struct rg_upload_method_ops rg_upload_single_method, rg_upload_resumable_method,
    rg_upload_multipart_method, rg_upload_compose_method;

/* What an upload and a writer have in common. */
struct rg_upload_spec {
    const char *bucket, *object;
    enum rg_upload_method method;
    const char *content_type, *content_encoding, *cache_control, *storage_class;
    const struct rg_metadata *metadata;
    size_t metadata_count;
    struct rg_conditions conditions;
    bool exclusive;
    uint64_t part_size;
    uint32_t slot_count;
};

/* Makes the operation of a request. Returns owned: once the request was posted, its release frees
 * the operation. 0, -EINVAL or -ENOMEM. */
int rg_upload_op_create(struct rg_upload_op **out_op, struct rg_request *request,
                        const struct rg_upload_spec *spec);
void rg_upload_op_destroy(struct rg_upload_op *op);
/* Chooses the method's functions. */
void rg_upload_op_set_method(struct rg_upload_op *op, enum rg_upload_method method);
extern const struct rg_request_ops rg_upload_ops;

/* Nothing has failed, so methods and sources go on. */
static inline bool rg_upload_is_running(const struct rg_upload_op *op)
{
    return op->operation.state == RG_OPERATION_RUNNING;
}
/* For methods and sources. */
/* Starts a prepared call; a call that cannot start fails the operation. `publish`: the one that
 * makes the object be there. */
void rg_upload_call_start(struct rg_upload_op *op, struct rg_gcs_call *call);
void rg_upload_call_publish(struct rg_upload_op *op, struct rg_gcs_call *call);
/* First thing in a call's `done`. NULL: the operation is being stopped. */
struct rg_upload_op *rg_upload_call_ended(struct rg_gcs_call *call);
/* The operation that a call belongs to. */
struct rg_upload_op *rg_upload_op_of(const struct rg_gcs_call *call);
/* The object is stored as op->stored says: compares, and ends the operation. */
void rg_upload_finish(struct rg_upload_op *op);

/* Gives free slots their next parts, and begins to fill them. */
void rg_upload_parts_fill(struct rg_upload_op *op);
/* What calls of parts have as `refused`: a writer that sends too much at once hears of it. */
void rg_upload_part_refused(struct rg_gcs_call *call, uint16_t http_status);
/* The first filled part in the order of the slots; NULL: none. */
struct rg_upload_part *rg_upload_part_filled(struct rg_upload_op *op);
/* The part was sent, or is not wanted any more. */
void rg_upload_part_free(struct rg_upload_part *part);
/* True when all parts have been given slots, and no slot is in use. */
bool rg_upload_parts_done(const struct rg_upload_op *op);
/* The record of a part, made when there is none; NULL: no memory. */
struct rg_upload_record *rg_upload_record_at(struct rg_upload_op *op, uint32_t number);
uint64_t rg_upload_total(const struct rg_upload_op *op);
/* The CRC32C of the parts so far, one behind the other. */
uint32_t rg_upload_crc(const struct rg_upload_op *op);

/* The bytes of the part from `skip` on are what the request carries. */
void rg_upload_part_carry(const struct rg_upload_part *part, uint64_t skip, struct rg_exchange *x);

/* The source of a part. */
void rg_upload_source_fill(struct rg_upload_part *part);
void rg_upload_source_drop(struct rg_upload_part *part); /* gives its memory back */
/* A read has ended. */
void rg_upload_source_read(struct rg_op *op);
void rg_upload_source_run(struct rg_task *task);

/* What the request, which has a condition and writes the whole object or one of its temporary ones,
 * will find if it has been done. */
void rg_upload_expect(const struct rg_upload_op *op, struct rg_request *request, uint64_t size,
                      uint32_t crc);
/* Compares what is stored, which the answer to the call that publishes the object tells. */
enum rg_status rg_upload_judge_stored(struct rg_gcs_call *call);
/* Asks what is stored. Where that is what was sent, or nothing was noted at op->request that doubts
 * it, the phase is STORED then; otherwise the operation fails with what was noted. */
void rg_upload_check(struct rg_upload_op *op);

struct rg_upload_attributes rg_upload_attributes_of(const struct rg_upload_op *op);

/* Prepares the request that writes a whole object out of a filled part: what SINGLE is, and what
 * COMPOSE does with each of its parts. */
int rg_upload_single_prepare(struct rg_upload_part *part, const struct rg_gcs_call_ops *ops,
                             const char *object, const struct rg_conditions *conditions);

void rg_upload_single_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder,
                             const struct rg_conditions *conditions);

#endif
