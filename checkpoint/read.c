/* See read.h. */
#include "checkpoint/read.h"

#include "gcs/request/client.h"
#include "gcs/request/object_request.h"
#include "gcs/request/operation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* Large enough that requests cost nothing beside their bytes; and several, because one connection
 * does not fill a network. */
#define PIECE_SIZE RG_MIB(8)
#define PIECES_MAX 8
/* How often all is read again, because the object was replaced or came broken. */
#define RESTARTS_MAX 3

enum phase { PHASE_READING = 0, PHASE_DISCARDING };

struct piece {
    struct rg_request child;
    uint64_t begin; /* in the object */
    int64_t asked;  /* the generation that it names; 0: the newest */
    bool out;
};

struct read {
    struct rg_operation operation;
    struct rg_checkpoint_object *object;
    enum rg_checkpoint_read_kind kind;
    enum phase phase;
    uint8_t *buf;
    uint64_t offset, size;
    uint64_t begun; /* bytes that pieces were begun for */
    uint64_t came;  /* bytes */
    uint32_t crc;   /* of those, each as if zeros came behind it to the end of what there is */
    uint32_t restarts, piece_count;
    struct piece pieces[];
};

static struct read *read_of(struct rg_operation *operation)
{
    return RG_CONTAINER_OF(operation, struct read, operation);
}

/* What is out has a piece, and nothing was asked for twice. */
static bool invariants(const struct read *read)
{
    uint32_t out = 0;
    for (uint32_t i = 0; i < read->piece_count; i++) {
        out += read->pieces[i].out;
    }
    return out == read->operation.out && read->came <= read->begun && read->begun <= read->size;
}

/* How many of the bytes that are asked for there are, as far as is known. */
static uint64_t size_of(const struct read *read)
{
    uint64_t end = RG_MIN(rg_checkpoint_object_end(read->object), read->offset + read->size);
    return end - RG_MIN(end, read->offset);
}

static void pieces_cancel(struct read *read, enum rg_status status)
{
    for (uint32_t i = 0; i < read->piece_count; i++) {
        if (read->pieces[i].out) {
            rg_request_cancel(&read->pieces[i].child, status);
        }
    }
}

static void discard(struct read *read)
{
    RG_ASSERT(read->phase == PHASE_READING);
    read->phase = PHASE_DISCARDING;
}

static void piece_came(struct read *read, const struct piece *piece,
                       const struct rg_completion *completion)
{
    enum rg_checkpoint_answer answer =
        rg_checkpoint_object_answered(read->object, piece->asked, completion);
    if (answer == RG_CHECKPOINT_SAME) {
        uint64_t at = piece->begin - read->offset;
        uint64_t behind = size_of(read) - at - completion->size;
        read->crc ^= rg_crc32c_combine(completion->crc32c, 0, behind);
        read->came += completion->size;
    } else if (answer == RG_CHECKPOINT_OTHER) {
        discard(read);
    } else {
        rg_operation_fail(&read->operation,
                          answer == RG_CHECKPOINT_REPLACED ? RG_STATUS_TRUNCATED
                                                           : RG_STATUS_BAD_RESPONSE,
                          "%s", rg_checkpoint_answer_text(answer));
    }
}

/* An answer says that the object ends before the piece. If it is of another generation than the
 * other answers, bytes are missing in the end. */
static void piece_is_absent(struct read *read, const struct piece *piece)
{
    struct rg_checkpoint_facts facts;
    bool is_known = rg_checkpoint_object_facts(read->object, &facts);
    if (is_known && piece->begin < facts.size && piece->asked == facts.generation) {
        rg_operation_fail_by(&read->operation, &piece->child);
    }
}

static void piece_done(struct rg_request *child, struct rg_completion *completion)
{
    struct piece *piece = RG_CONTAINER_OF(child, struct piece, child);
    struct read *read = read_of(child->parent->operation);
    bool is_wanted = read->operation.state == RG_OPERATION_RUNNING && read->phase == PHASE_READING;
    RG_ASSERT(completion->lease == NULL);
    piece->out = false;
    if (is_wanted && completion->status == RG_STATUS_OK) {
        piece_came(read, piece, completion);
    } else if (is_wanted && completion->status == RG_STATUS_RANGE) {
        piece_is_absent(read, piece);
    } else if (is_wanted) {
        rg_operation_fail_by(&read->operation, child);
    }
    rg_operation_child_ended(&read->operation, child);
}

/* False: the client is being closed. */
static bool piece_start(struct read *read, struct piece *piece, uint64_t size)
{
    struct rg_request *request = read->operation.request;
    piece->begin = read->offset + read->begun;
    piece->asked = rg_checkpoint_object_wanted(read->object);
    struct rg_get get = {
        .bucket = request->bucket,
        .object = request->object,
        .generation = piece->asked,
        .offset = piece->begin,
        .length = size,
        .buf = read->buf + read->begun,
        .buf_size = size,
        .deadline_ns = request->deadline_ns,
    };
    rg_request_init_child(&piece->child, request, piece_done);
    int rc = rg_get_prepare(&piece->child, &get);
    RG_ASSERT(rc == 0);
    piece->child.get.is_fresh = read->restarts > 0;
    piece->out = rg_operation_child_start(&read->operation, &piece->child);
    read->begun += piece->out ? size : 0;
    return piece->out;
}

static void pieces_start(struct read *read)
{
    for (uint32_t i = 0; i < read->piece_count; i++) {
        uint64_t size = size_of(read);
        if (size <= read->begun) {
            return;
        }
        struct piece *piece = &read->pieces[i];
        if (!piece->out && !piece_start(read, piece, RG_MIN(size - read->begun, PIECE_SIZE))) {
            return;
        }
    }
}

static void read_again(struct read *read, enum rg_status status, const char *text)
{
    if (++read->restarts > RESTARTS_MAX) {
        rg_operation_fail(&read->operation, status, "%s", text);
        return;
    }
    read->phase = PHASE_READING;
    read->begun = read->came = 0;
    read->crc = 0;
    pieces_start(read);
}

static void read_finish(struct read *read, const struct rg_checkpoint_facts *facts)
{
    struct rg_completion completion = {
        .status = RG_STATUS_OK,
        .data = read->buf,
        .size = read->came,
        .crc32c = read->crc,
        .generation = facts->generation,
        .object_size = facts->size,
        .object_crc32c = facts->crc32c,
        .has_object_crc32c = facts->has_crc32c,
    };
    rg_operation_finish(&read->operation, &completion);
}

/* Fails where all bytes of the object, which others may have read, do not have its CRC32C. */
static void read_cover(struct read *read, const struct rg_checkpoint_facts *facts)
{
    char text[224];
    if (read->kind == RG_CHECKPOINT_READ_SUBMITTED) {
        rg_checkpoint_object_cover(read->object, read->offset, read->buf, read->came, read->crc);
    }
    if (rg_checkpoint_object_is_damaged(read->object, text, sizeof(text))) {
        rg_operation_fail(&read->operation, RG_STATUS_CHECKSUM, "%s", text);
    } else {
        read_finish(read, facts);
    }
}

/* No answer has told of an object: there is nothing where this read begins, or none was asked. */
static void read_is_empty(struct read *read)
{
    const struct rg_checkpoint_facts unknown = {.generation =
                                                    rg_checkpoint_object_wanted(read->object)};
    RG_ASSERT(read->came == 0);
    if (read->size > 0 && !rg_checkpoint_object_ends(read->object, read->offset)) {
        discard(read); /* at this very moment another answer has told of more */
        rg_operation_wake(&read->operation);
    } else {
        read_finish(read, &unknown);
    }
}

/* Nothing is out, and all has been asked for. */
static void read_check(struct read *read)
{
    struct rg_checkpoint_facts facts;
    if (!rg_checkpoint_object_facts(read->object, &facts)) {
        read_is_empty(read);
        return;
    }
    bool is_whole = read->came > 0 && read->came == facts.size;
    bool is_broken =
        is_whole && read->object->checks && facts.has_crc32c && read->crc != facts.crc32c;
    if (read->came != size_of(read)) {
        read_again(read, RG_STATUS_TRUNCATED, rg_checkpoint_answer_text(RG_CHECKPOINT_OTHER));
    } else if (is_broken && read->restarts < RESTARTS_MAX) {
        read_again(read, RG_STATUS_CHECKSUM, "");
    } else {
        read_cover(read, &facts);
    }
}

static void read_advance(struct rg_operation *operation)
{
    struct read *read = read_of(operation);
    RG_VERIFY(invariants(read));
    if (read->phase == PHASE_READING) {
        pieces_start(read);
    } else if (operation->out > 0) {
        pieces_cancel(read, RG_STATUS_CANCELLED);
    }
    if (operation->out > 0 || operation->state != RG_OPERATION_RUNNING) {
        return;
    }
    if (read->phase == PHASE_READING) {
        read_check(read);
    } else {
        read_again(read, RG_STATUS_TRUNCATED, rg_checkpoint_answer_text(RG_CHECKPOINT_OTHER));
    }
}

static void read_stop(struct rg_operation *operation, bool hurry)
{
    pieces_cancel(read_of(operation), hurry ? RG_STATUS_CLOSED : RG_STATUS_CANCELLED);
}

static void read_free(struct rg_operation *operation)
{
    struct read *read = read_of(operation);
    rg_checkpoint_object_read_ended(read->object);
    free(read);
}

static const struct rg_operation_ops operation_ops = {
    .advance = read_advance,
    .stop = read_stop,
    .free = read_free,
};

static const struct rg_request_ops request_ops = {
    .verb = "get",
    .start = rg_operation_start,
    .cancel = rg_operation_cancel,
    .release = rg_operation_release,
};

struct submission {
    struct rg_checkpoint_object *object;
    const struct rg_checkpoint_read *read;
    enum rg_checkpoint_read_kind kind;
};

static int read_prepare(struct rg_request *request, const void *given)
{
    const struct submission *submission = given;
    const struct rg_checkpoint_read *asked = submission->read;
    struct rg_checkpoint_object *object = submission->object;
    uint64_t end;
    if ((asked->buf == NULL && asked->size > 0) ||
        rg_add_overflow(asked->offset, asked->size, &end) || end > (uint64_t)INT64_MAX ||
        rg_request_set_names(request, object->bucket, object->object) < 0) {
        return -EINVAL;
    }
    uint64_t count = RG_MAX(
        RG_MIN((asked->size + PIECE_SIZE - 1) / PIECE_SIZE, (uint64_t)PIECES_MAX), UINT64_C(1));
    struct read *read = calloc(1, sizeof(*read) + count * sizeof(read->pieces[0]));
    if (read == NULL) {
        return -ENOMEM;
    }
    read->object = object;
    read->kind = submission->kind;
    read->buf = asked->buf;
    read->offset = asked->offset;
    read->size = asked->size;
    read->piece_count = (uint32_t)count;
    rg_request_prepare(request, &request_ops, asked->user_data, asked->deadline_ns);
    rg_operation_init(&read->operation, &operation_ops, request);
    rg_checkpoint_object_read_begun(object);
    return 0;
}

int rg_checkpoint_read_submit(struct rg_checkpoint_object *object, struct rg_cq *cq,
                              const struct rg_checkpoint_read *read,
                              enum rg_checkpoint_read_kind kind)
{
    const struct submission submission = {.object = object, .read = read, .kind = kind};
    return rg_object_submit(object->client, cq, read_prepare, &submission);
}

static bool is_of_object(const struct rg_request *request, const void *object)
{
    return request->ops == &request_ops && request->operation != NULL &&
           read_of(request->operation)->object == object;
}

void rg_checkpoint_read_end_all(struct rg_checkpoint_object *object)
{
    /* Most readers have none, and asking every loop takes time. */
    if (rg_checkpoint_object_is_read(object)) {
        rg_client_end(object->client, RG_STATUS_CANCELLED, is_of_object, object);
        rg_checkpoint_object_await(object);
    }
}
