/* A writer: an upload whose source is the program's own thread, which writes a stream of unknown
 * length into one object.
 *
 *   IDLE -> RUNNING -> OVER -> COMPLETED
 *
 *   IDLE       the first part is being filled
 *   RUNNING    the operation is with its loop. It begins with the first full part, or when the
 *              stream ends: by then it is known whether the object fits one request
 *   OVER       the operation has ended; the outcome is kept until rg_writer_finish asks for it
 *   COMPLETED  the completion has been published
 *
 * The bytes are in a stream (gcs/upload/stream.h), whose lock guards what the program's thread and
 * the loop share. */
#include "gcs/upload/attributes.h"
#include "gcs/upload/stream.h"
#include "gcs/upload/upload.h"
#include "runtime/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Less than this is copied when it is lent: a piece of its own would cost more. It bounds the
 * number of pieces, too. */
#define LEND_SIZE_MIN RG_KIB(4)

enum writer_state {
    WRITER_IDLE = 0,
    WRITER_RUNNING,
    WRITER_OVER,
    WRITER_COMPLETED,
};

struct rg_writer {
    struct rg_client *client;
    struct rg_client_loop *client_loop;
    struct rg_upload_op *op; /* while IDLE; later the request owns it */
    enum rg_upload_method method;
    bool finished;              /* rg_writer_finish was called; of the program's thread */
    struct rg_mail finish_mail; /* carries the end of the stream to the loop */
    struct rg_stream stream;
    /* Guarded by the stream's lock. */
    enum writer_state state; /* changed by become() alone */
    struct rg_mail more_mail;
    bool more_posted;
    struct rg_cq *cq; /* of rg_writer_finish; NULL: not yet */
    uint64_t user_data;
    struct rg_completion outcome; /* while OVER */
    /* Only the loop uses what follows. */
    struct rg_request request;
};

static struct rg_loop *loop_of(const struct rg_writer *writer)
{
    return writer->client_loop->loop;
}

/* With the lock held. */
static void become(struct rg_writer *writer, enum writer_state state)
{
    static const char *const names[] = {
        [WRITER_IDLE] = "idle",
        [WRITER_RUNNING] = "running",
        [WRITER_OVER] = "over",
        [WRITER_COMPLETED] = "completed",
    };
    RG_ASSERT(state == writer->state + 1);
    rg_log(RG_LOG_DEBUG, "writer of gs://%s/%s: %s -> %s", writer->request.bucket,
           writer->request.object, names[writer->state], names[state]);
    writer->state = state;
}

/* On the loop, with the lock held: gives the outcome to the queue that asked for it. */
static void outcome_publish(struct rg_writer *writer)
{
    if (writer->state != WRITER_OVER || writer->cq == NULL) {
        return;
    }
    become(writer, WRITER_COMPLETED);
    writer->outcome.user_data = writer->user_data;
    if (writer->outcome.status != RG_STATUS_OK) {
        rg_request_explain(&writer->request, &writer->outcome);
    }
    rg_loop_complete(loop_of(writer), writer->cq, &writer->outcome);
}

/* The operation has ended. */
static void operation_done(struct rg_request *request, struct rg_completion *completion)
{
    struct rg_writer *writer = RG_CONTAINER_OF(request, struct rg_writer, request);
    struct rg_stream *stream = &writer->stream;
    pthread_mutex_lock(&stream->lock);
    become(writer, WRITER_OVER);
    writer->outcome = *completion;
    rg_stream_stop_locked(stream, completion->status);
    outcome_publish(writer);
    pthread_mutex_unlock(&stream->lock);
}

/* True: the operation is still there. */
static bool is_running(struct rg_writer *writer)
{
    pthread_mutex_lock(&writer->stream.lock);
    bool running = writer->state == WRITER_RUNNING;
    pthread_mutex_unlock(&writer->stream.lock);
    return running;
}

static void more_run(struct rg_mail *mail)
{
    struct rg_writer *writer = RG_CONTAINER_OF(mail, struct rg_writer, more_mail);
    pthread_mutex_lock(&writer->stream.lock);
    writer->more_posted = false;
    pthread_mutex_unlock(&writer->stream.lock);
    if (is_running(writer)) {
        rg_operation_wake(writer->request.operation);
    }
}

static void finish_run(struct rg_mail *mail)
{
    struct rg_writer *writer = RG_CONTAINER_OF(mail, struct rg_writer, finish_mail);
    pthread_mutex_lock(&writer->stream.lock);
    /* From now on rg_cancel finds it by these. */
    writer->request.cq = writer->cq;
    writer->request.user_data = writer->user_data;
    outcome_publish(writer);
    pthread_mutex_unlock(&writer->stream.lock);
}

static void close_run(void *context)
{
    struct rg_writer *writer = context;
    if (is_running(writer)) {
        rg_request_cancel(&writer->request, RG_STATUS_CANCELLED);
    }
}

/* By size and conditions. Parts in parallel cannot have conditions, nor be more than so many. */
static enum rg_upload_method method_choose(const struct rg_writer *writer)
{
    /* Nothing was handed over before, so the first buffer has all of it. */
    if (writer->finished && writer->stream.size <= RG_UPLOAD_SINGLE_SIZE_MAX) {
        return RG_UPLOAD_SINGLE;
    }
    if (rg_conditions_any(&writer->op->conditions) || rg_part_plan_too_long(&writer->stream.plan)) {
        return rg_upload_class_is_cold(writer->op->attributes.storage_class) ? RG_UPLOAD_RESUMABLE
                                                                             : RG_UPLOAD_COMPOSE;
    }
    return atomic_load(&writer->client->shared.no_multipart) ? RG_UPLOAD_RESUMABLE
                                                             : RG_UPLOAD_MULTIPART;
}

static void operation_start(struct rg_writer *writer)
{
    enum rg_upload_method method = writer->method;
    if (method == RG_UPLOAD_AUTO) {
        method = method_choose(writer);
        writer->op->choice = RG_UPLOAD_CHOSEN_BY_US;
    }
    rg_upload_op_set_method(writer->op, method);
    writer->op = NULL;
    rg_loop_post(loop_of(writer), &writer->request.mail);
}

/* Hands the buffer that is being filled to the operation. */
static void buffer_hand_over(struct rg_writer *writer)
{
    rg_stream_hand_over(&writer->stream);
    pthread_mutex_lock(&writer->stream.lock);
    bool start = writer->state == WRITER_IDLE;
    bool post = !start && !writer->more_posted;
    if (start) {
        become(writer, WRITER_RUNNING);
    }
    writer->more_posted |= post;
    pthread_mutex_unlock(&writer->stream.lock);
    if (start) {
        operation_start(writer);
    } else if (post) {
        rg_loop_post(loop_of(writer), &writer->more_mail);
    }
}

static int64_t writer_take(struct rg_writer *writer, const void *data, size_t size, bool lent,
                           uint32_t *sum)
{
    struct rg_stream *stream = &writer->stream;
    size_t done = 0;
    if (rg_runtime_check(writer->client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (writer->finished || (data == NULL && size > 0)) {
        return -EINVAL;
    }
    while (done < size) {
        int rc = rg_stream_begin(stream);
        if (rc == -EIO || (rc < 0 && done == 0)) {
            return rc;
        }
        if (rc < 0) {
            break;
        }
        int64_t taken = rg_stream_add(stream, (const uint8_t *)data + done, size - done, lent, sum);
        if (taken < 0) {
            return done > 0 ? (int64_t)done : taken;
        }
        done += (size_t)taken;
        if (rg_stream_is_full(stream)) {
            buffer_hand_over(writer);
        }
    }
    return (int64_t)done;
}

int64_t rg_writer_write(struct rg_writer *writer, const void *data, size_t size)
{
    return writer_take(writer, data, size, false, NULL);
}

int64_t rg_writer_lend(struct rg_writer *writer, const void *data, size_t size)
{
    return writer_take(writer, data, size, size >= LEND_SIZE_MIN, NULL);
}

int64_t rg_writer_lend_sum(struct rg_writer *writer, const void *data, size_t size,
                           uint32_t *crc32c)
{
    return writer_take(writer, data, size, size >= LEND_SIZE_MIN, crc32c);
}

int64_t rg_writer_lend_completed(struct rg_writer *writer, const void *data, size_t size,
                                 struct rg_cq *cq, uint64_t user_data)
{
    int reserved = rg_cq_reserve(cq, 1);
    if (reserved <= 0) {
        return reserved < 0 ? reserved : -EAGAIN;
    }
    struct rg_lend lend = {.cq = cq, .user_data = user_data, .data = data};
    int64_t taken = rg_stream_lend_reserve(&writer->stream);
    if (taken == 0) {
        taken = writer_take(writer, data, size, size >= LEND_SIZE_MIN, &lend.crc);
    }
    if (taken <= 0) {
        rg_cq_unreserve(cq, 1);
        return taken;
    }
    lend.size = (uint64_t)taken;
    lend.end = writer->stream.size;
    /* The program may not fill the part before it has slots again. Whoever takes the last ones thus
     * gives them back, so somebody does in every queue. */
    if (rg_cq_is_scarce(cq)) {
        rg_stream_keep(&writer->stream);
    }
    rg_stream_lend_note(&writer->stream, &lend);
    return taken;
}

uint64_t rg_writer_settled(struct rg_writer *writer)
{
    return rg_runtime_check(writer->client->runtime) < 0 ? 0
                                                         : rg_stream_sent_bytes(&writer->stream);
}

int rg_writer_wait(struct rg_writer *writer, uint64_t deadline_ns)
{
    return rg_runtime_check(writer->client->runtime) < 0
               ? -EOWNERDEAD
               : rg_stream_wait(&writer->stream, deadline_ns);
}

void rg_writer_set_rate(struct rg_writer *writer, uint64_t bytes_per_s)
{
    atomic_store_explicit(&writer->stream.pace.bytes_per_s, bytes_per_s, memory_order_relaxed);
}

int rg_writer_finish(struct rg_writer *writer, struct rg_cq *cq, uint64_t user_data)
{
    if (rg_runtime_check(writer->client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (writer->finished) {
        return -EINVAL;
    }
    /* The last part may be empty, and needs a buffer all the same. */
    int rc = rg_stream_begin(&writer->stream);
    if (rc == -EAGAIN || rc == -ENOMEM) {
        return rc;
    }
    int reserved = rg_cq_reserve(cq, 1);
    if (reserved <= 0) {
        return reserved < 0 ? reserved : -EAGAIN;
    }
    writer->finished = true;
    pthread_mutex_lock(&writer->stream.lock);
    writer->cq = cq;
    writer->user_data = user_data;
    pthread_mutex_unlock(&writer->stream.lock);
    rg_stream_end(&writer->stream);
    if (rc == 0) {
        buffer_hand_over(writer);
    }
    rg_loop_post(loop_of(writer), &writer->finish_mail);
    return 0;
}

static void writer_free(struct rg_writer *writer)
{
    rg_upload_op_destroy(writer->op);
    rg_stream_fini(&writer->stream);
    free(writer);
}

void rg_writer_close(struct rg_writer *writer)
{
    if (writer == NULL || rg_runtime_check(writer->client->runtime) < 0) {
        return;
    }
    struct rg_stream *stream = &writer->stream;
    if (writer->op == NULL) {
        /* Runs behind all mail that this thread has posted, so none comes after it. */
        rg_loop_call(loop_of(writer), close_run, writer);
        pthread_mutex_lock(&stream->lock);
        while (stream->state != RG_STREAM_OVER) {
            pthread_cond_wait(&stream->changed, &stream->lock);
        }
        pthread_mutex_unlock(&stream->lock);
    } else {
        pthread_mutex_lock(&stream->lock);
        rg_stream_stop_locked(stream, RG_STATUS_CANCELLED);
        pthread_mutex_unlock(&stream->lock);
    }
    writer_free(writer);
}

static bool options_valid(const struct rg_writer_options *options)
{
    bool known = options->method >= RG_UPLOAD_AUTO && options->method <= RG_UPLOAD_COMPOSE &&
                 options->method != RG_UPLOAD_SINGLE;
    return known && options->object != NULL && options->part_size <= RG_UPLOAD_PART_SIZE_MAX &&
           options->parts_inflight_max <= RG_UPLOAD_INFLIGHT_MAX &&
           options->size_hint <= RG_UPLOAD_OBJECT_SIZE_MAX &&
           !(options->method == RG_UPLOAD_MULTIPART && rg_conditions_any(&options->conditions));
}

/* What the program fixes, as the service can take it: every chunk but the last has to be a multiple
 * of the one, and every part as large as the other. */
static struct rg_part_plan_options plan_options_of(const struct rg_writer_options *options)
{
    uint64_t size = options->part_size;
    uint32_t window = options->parts_inflight_max;
    bool conditional = rg_conditions_any(&options->conditions);
    if (size != 0 && (options->method == RG_UPLOAD_MULTIPART ||
                      (options->method == RG_UPLOAD_AUTO && !conditional))) {
        size = RG_MAX(size, RG_UPLOAD_PART_SIZE_MIN);
    }
    if (options->method == RG_UPLOAD_RESUMABLE && window == 0) {
        /* One request after the other: more would only be there. */
        window = RG_PARTS_WINDOW_FIRST;
    }
    return (struct rg_part_plan_options){
        .size_hint = options->size_hint,
        .part_size =
            (size + RG_UPLOAD_CHUNK_UNIT - 1) / RG_UPLOAD_CHUNK_UNIT * RG_UPLOAD_CHUNK_UNIT,
        .window = window,
    };
}

static int operation_make(struct rg_writer *writer, const struct rg_writer_options *options)
{
    struct rg_upload_spec spec = {
        .method = options->method != RG_UPLOAD_AUTO ? options->method : RG_UPLOAD_MULTIPART,
        .attributes = {.content_type = options->content_type,
                       .content_encoding = options->content_encoding,
                       .cache_control = options->cache_control,
                       .storage_class = options->storage_class,
                       .metadata = options->metadata,
                       .metadata_count = options->metadata_count},
        .conditions = options->conditions,
        .exclusive = options->exclusive,
        .slot_count = writer->stream.buffer_count,
    };
    struct rg_request *request = &writer->request;
    request->client = writer->client;
    request->client_loop = writer->client_loop;
    request->done = operation_done;
    rg_list_init(&request->node);
    if (rg_request_set_names(request, options->bucket, options->object) < 0) {
        return -EINVAL;
    }
    int rc = rg_upload_op_create(&writer->op, request, &spec);
    if (rc < 0) {
        return rc;
    }
    rg_request_prepare(request, &rg_upload_ops, 0, 0);
    writer->op->parts.source.kind = RG_UPLOAD_SOURCE_STREAM;
    writer->op->parts.source.stream = &writer->stream;
    return 0;
}

int rg_writer_open_sized(struct rg_writer **out_writer, struct rg_client *client,
                         const struct rg_writer_options *options, size_t struct_size)
{
    struct rg_writer_options own = {0};
    memcpy(&own, options, RG_MIN(struct_size, sizeof(own)));
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (!options_valid(&own)) {
        return -EINVAL;
    }
    struct rg_writer *writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->client = client;
    writer->client_loop = rg_client_next_loop(client, 1);
    writer->method = own.method;
    writer->more_mail.run = more_run;
    writer->finish_mail.run = finish_run;
    struct rg_part_plan_options plan = plan_options_of(&own);
    int rc = rg_stream_init(&writer->stream, &plan);
    if (rc == 0) {
        rc = operation_make(writer, &own);
    }
    if (rc < 0) {
        writer_free(writer);
        return rc;
    }
    *out_writer = writer;
    return 0;
}
