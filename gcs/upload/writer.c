/* A stream of unknown length into one object: an upload whose source is the program's own thread.
 *
 * A buffer is one part: pieces of memory, which the program lent, or which were copied into the
 * buffer's own. How large it is, and how many may be in use, is decided when one is taken, by
 * gcs/upload/part_plan.h. One is being filled by the program; full ones wait in order for the
 * operation on its loop, which gives each back when the service has it:
 *
 *   free -> filling (program) -> full -> with the operation -> free
 *
 * The operation begins with the first full buffer, or when the stream ends: by then it is known
 * whether the object fits one request. It ends on its loop, which may be before the program is
 * told: the outcome stays here until rg_writer_finish asks for it. */
#include "gcs/upload/part_plan.h"
#include "gcs/upload/upload.h"
#include "runtime/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Less than this is copied when it is lent: a piece of its own would cost more. It bounds the
 * number of pieces, too. */
#define LEND_SIZE_MIN RG_KIB(4)
#define PIECES_MIN 16
/* Lent memory is given back in the order of the stream, so one slow part keeps all that lies behind
 * it. No part begins that ends further behind the oldest one than so many times the bound of all
 * parts. */
#define SPAN_MAX 2

struct rg_writer {
    struct rg_client *client;
    struct rg_client_loop *client_loop;
    struct rg_upload_op *op; /* until the request takes it over */
    enum rg_upload_method method;
    struct rg_writer_buffer *buffers;
    uint32_t buffer_count;
    struct rg_writer_buffer *filling; /* of the program's thread; NULL: none was free */
    uint64_t taken;                   /* bytes */
    struct rg_mail finish_mail;       /* carries the end of the stream to the loop */
    struct rg_mail close_mail;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a buffer came back, or the operation has ended */
    /* Guarded by the lock. */
    struct rg_writer_buffer *free_first, *full_first, **full_tail;
    struct rg_part_plan plan;
    uint32_t used_count;               /* buffers that are not free */
    uint64_t used_bytes, mapped_bytes; /* of their memory, and of all buffers' */
    struct rg_mail more_mail;
    bool more_posted, started, ended, finishing, over, published;
    struct rg_cq *cq; /* of rg_writer_finish */
    uint64_t user_data;
    struct rg_completion outcome; /* while over and not published */
    /* Only the loop uses what follows. */
    struct rg_request request;
};

static struct rg_loop *loop_of(const struct rg_writer *writer)
{
    return writer->client_loop->loop;
}

/* On the loop, with the lock held: gives the outcome to the queue that asked for it. */
static void outcome_publish(struct rg_writer *writer)
{
    if (!writer->over || writer->cq == NULL || writer->published) {
        return;
    }
    writer->published = true;
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
    pthread_mutex_lock(&writer->lock);
    writer->over = true;
    writer->outcome = *completion;
    outcome_publish(writer);
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
}

/* With the lock held, like the next ones. */
static void buffer_unmap(struct rg_writer *writer, struct rg_writer_buffer *buffer)
{
    if (buffer->memory != NULL) {
        munmap(buffer->memory, buffer->capacity);
        writer->mapped_bytes -= buffer->capacity;
        buffer->memory = NULL;
        buffer->capacity = 0;
    }
}

/* Memory for a part of this size: the buffer's own, if that is as large, or new one, for which free
 * buffers give theirs where the bound demands it. It is there when it is touched. False: the system
 * has none. */
static bool buffer_map(struct rg_writer *writer, struct rg_writer_buffer *buffer, size_t size)
{
    if (buffer->capacity >= size) {
        return true;
    }
    buffer_unmap(writer, buffer);
    for (struct rg_writer_buffer *other = writer->free_first;
         other != NULL && writer->mapped_bytes + size > writer->plan.bytes_max;
         other = other->next) {
        buffer_unmap(writer, other);
    }
    RG_ASSERT(writer->mapped_bytes + size <= writer->plan.bytes_max);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    buffer->memory = memory;
    buffer->capacity = size;
    writer->mapped_bytes += size;
    return true;
}

static void buffer_free(struct rg_writer *writer, struct rg_writer_buffer *buffer)
{
    RG_ASSERT(buffer->in_use && writer->used_count > 0);
    buffer->in_use = false;
    buffer->next = writer->free_first;
    writer->free_first = buffer;
    writer->used_bytes -= buffer->capacity;
    /* Fewer are to be there now. */
    if (--writer->used_count >= writer->plan.window) {
        buffer_unmap(writer, buffer);
    }
}

bool rg_writer_next_part(struct rg_writer *writer, struct rg_upload_part *part)
{
    pthread_mutex_lock(&writer->lock);
    struct rg_writer_buffer *buffer = writer->full_first;
    if (buffer != NULL) {
        writer->full_first = buffer->next;
        if (writer->full_first == NULL) {
            writer->full_tail = &writer->full_first;
        }
        part->buffer = buffer;
        part->size = part->filled = buffer->size;
        part->crc = buffer->crc;
    }
    if (writer->ended) {
        part->op->size = writer->taken;
    }
    bool has_part = buffer != NULL && (buffer->size > 0 || part->number == 0);
    if (buffer != NULL && !has_part) {
        /* Nothing came behind the last full one. */
        part->buffer = NULL;
        buffer_free(writer, buffer);
    }
    pthread_mutex_unlock(&writer->lock);
    return has_part;
}

void rg_writer_give_part(struct rg_writer *writer, struct rg_writer_buffer *buffer)
{
    pthread_mutex_lock(&writer->lock);
    rg_part_plan_sent(&writer->plan, buffer->size, loop_of(writer)->now_ns);
    buffer_free(writer, buffer);
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
}

void rg_writer_throttle(struct rg_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    rg_part_plan_throttle(&writer->plan);
    pthread_mutex_unlock(&writer->lock);
}

static void more_run(struct rg_mail *mail)
{
    struct rg_writer *writer = RG_CONTAINER_OF(mail, struct rg_writer, more_mail);
    pthread_mutex_lock(&writer->lock);
    writer->more_posted = false;
    bool over = writer->over;
    pthread_mutex_unlock(&writer->lock);
    if (!over) {
        rg_operation_wake(writer->request.operation);
    }
}

static void finish_run(struct rg_mail *mail)
{
    struct rg_writer *writer = RG_CONTAINER_OF(mail, struct rg_writer, finish_mail);
    pthread_mutex_lock(&writer->lock);
    /* From now on rg_cancel finds it by these. */
    writer->request.cq = writer->cq;
    writer->request.user_data = writer->user_data;
    outcome_publish(writer);
    pthread_mutex_unlock(&writer->lock);
}

static void close_run(struct rg_mail *mail)
{
    struct rg_writer *writer = RG_CONTAINER_OF(mail, struct rg_writer, close_mail);
    pthread_mutex_lock(&writer->lock);
    bool over = writer->over;
    pthread_mutex_unlock(&writer->lock);
    if (!over) {
        rg_request_cancel(&writer->request, RG_STATUS_CANCELLED);
    }
    pthread_mutex_lock(&writer->lock);
    writer->finishing = true;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
}

/* By size and conditions. Parts in parallel cannot have conditions, nor be more than so many. */
static enum rg_upload_method method_choose(const struct rg_writer *writer)
{
    /* Nothing was handed over before, so this buffer has all of it. */
    if (writer->ended && writer->taken <= RG_UPLOAD_SINGLE_SIZE_MAX) {
        return RG_UPLOAD_SINGLE;
    }
    if (rg_conditions_any(&writer->op->conditions) || rg_part_plan_too_long(&writer->plan)) {
        return RG_UPLOAD_COMPOSE;
    }
    return atomic_load(&writer->client->shared.no_multipart) ? RG_UPLOAD_RESUMABLE
                                                             : RG_UPLOAD_MULTIPART;
}

static void operation_start(struct rg_writer *writer)
{
    enum rg_upload_method method = writer->method;
    if (method == RG_UPLOAD_AUTO) {
        method = method_choose(writer);
        writer->op->is_auto = true;
    }
    rg_upload_op_set_method(writer->op, method);
    writer->op = NULL;
    rg_loop_post(loop_of(writer), &writer->request.mail);
}

/* Hands the buffer that is being filled to the operation. */
static void buffer_hand_over(struct rg_writer *writer)
{
    struct rg_writer_buffer *buffer = writer->filling;
    writer->filling = NULL;
    pthread_mutex_lock(&writer->lock);
    buffer->next = NULL;
    *writer->full_tail = buffer;
    writer->full_tail = &buffer->next;
    bool start = !writer->started;
    bool post = !start && !writer->more_posted;
    writer->started = true;
    writer->more_posted |= post;
    pthread_mutex_unlock(&writer->lock);
    if (start) {
        operation_start(writer);
    } else if (post) {
        rg_loop_post(loop_of(writer), &writer->more_mail);
    }
}

/* Bytes, from the first one of the stream on, that are with the service. */
static uint64_t settled_bytes(const struct rg_writer *writer)
{
    uint64_t settled = writer->taken;
    for (uint32_t i = 0; i < writer->buffer_count && !writer->over; i++) {
        const struct rg_writer_buffer *buffer = &writer->buffers[i];
        settled = buffer->in_use ? RG_MIN(settled, buffer->offset) : settled;
    }
    return settled;
}

static bool has_room(const struct rg_writer *writer, uint64_t size)
{
    uint64_t span = writer->taken + size - settled_bytes(writer);
    return writer->free_first != NULL && span <= SPAN_MAX * writer->plan.bytes_max &&
           rg_part_plan_has_room(&writer->plan, writer->used_count, writer->used_bytes, size);
}

static int buffer_begin(struct rg_writer *writer, size_t size)
{
    struct rg_writer_buffer *buffer = writer->free_first;
    writer->free_first = buffer->next;
    if (!buffer_map(writer, buffer, size)) {
        writer->free_first = buffer;
        return -ENOMEM;
    }
    writer->used_count++;
    writer->used_bytes += buffer->capacity;
    buffer->in_use = true;
    buffer->offset = writer->taken;
    buffer->size = buffer->copied = 0;
    buffer->size_max = size;
    buffer->piece_count = 0;
    buffer->crc = 0;
    writer->filling = buffer;
    return 0;
}

/* A buffer to fill: 0, -EAGAIN, -ENOMEM or -EIO. */
static int buffer_take(struct rg_writer *writer)
{
    int rc = 0;
    pthread_mutex_lock(&writer->lock);
    size_t size = (size_t)rg_part_plan_size(&writer->plan, writer->taken);
    if (writer->over) {
        rc = -EIO;
    } else if (writer->filling == NULL && !has_room(writer, size)) {
        rg_part_plan_wait(&writer->plan);
        rc = -EAGAIN;
    } else if (writer->filling == NULL) {
        rc = buffer_begin(writer, size);
    }
    pthread_mutex_unlock(&writer->lock);
    return rc;
}

/* Adds a piece to the buffer, or to its last piece; 0 or -ENOMEM. */
static int piece_add(struct rg_writer_buffer *buffer, const uint8_t *data, size_t size)
{
    if (buffer->piece_count > 0) {
        struct rg_body_piece *last = &buffer->pieces[buffer->piece_count - 1];
        uint64_t begin = buffer->piece_count > 1 ? last[-1].end : 0;
        if (last->data + (last->end - begin) == data) {
            last->end += size;
            return 0;
        }
    }
    if (buffer->piece_count == buffer->piece_capacity) {
        uint32_t capacity = RG_MAX(2 * buffer->piece_capacity, (uint32_t)PIECES_MIN);
        struct rg_body_piece *pieces = reallocarray(buffer->pieces, capacity, sizeof(*pieces));
        if (pieces == NULL) {
            return -ENOMEM;
        }
        buffer->pieces = pieces;
        buffer->piece_capacity = capacity;
    }
    buffer->pieces[buffer->piece_count++] =
        (struct rg_body_piece){.data = data, .end = buffer->size + size};
    return 0;
}

/* Puts as much into the buffer as is summed up at once; that much, or -ENOMEM. *sum, unless NULL,
 * goes on over it. */
static int64_t buffer_add(struct rg_writer *writer, const uint8_t *data, size_t size, bool lent,
                          uint32_t *sum)
{
    struct rg_writer_buffer *buffer = writer->filling;
    /* In pieces, so that what was copied is in the cache when it is summed up. */
    size_t piece = RG_MIN(RG_MIN(size, buffer->size_max - buffer->size), RG_KIB(256));
    const uint8_t *at = lent ? data : buffer->memory + buffer->copied;
    if (piece_add(buffer, at, piece) < 0) {
        return -ENOMEM;
    }
    if (!lent) {
        memcpy(buffer->memory + buffer->copied, data, piece);
        buffer->copied += piece;
    }
    if (sum != NULL) {
        /* Combining costs less than a second pass over the piece. */
        uint32_t crc = rg_crc32c(0, at, piece);
        buffer->crc = rg_crc32c_combine(buffer->crc, crc, piece);
        *sum = rg_crc32c_combine(*sum, crc, piece);
    } else {
        buffer->crc = rg_crc32c(buffer->crc, at, piece);
    }
    buffer->size += piece;
    writer->taken += piece;
    return (int64_t)piece;
}

static int64_t writer_take(struct rg_writer *writer, const void *data, size_t size, bool lent,
                           uint32_t *sum)
{
    size_t done = 0;
    if (rg_runtime_check(writer->client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (writer->ended || (data == NULL && size > 0)) {
        return -EINVAL;
    }
    while (done < size) {
        int rc = buffer_take(writer);
        if (rc == -EIO || (rc < 0 && done == 0)) {
            return rc;
        }
        if (rc < 0) {
            break;
        }
        int64_t taken = buffer_add(writer, (const uint8_t *)data + done, size - done, lent, sum);
        if (taken < 0) {
            return done > 0 ? (int64_t)done : taken;
        }
        done += (size_t)taken;
        if (writer->filling->size == writer->filling->size_max) {
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

uint64_t rg_writer_settled(struct rg_writer *writer)
{
    if (rg_runtime_check(writer->client->runtime) < 0) {
        return 0;
    }
    pthread_mutex_lock(&writer->lock);
    uint64_t settled = settled_bytes(writer);
    pthread_mutex_unlock(&writer->lock);
    return settled;
}

int rg_writer_wait(struct rg_writer *writer, uint64_t deadline_ns)
{
    struct timespec until = rg_timespec_from_ns(deadline_ns);
    int rc = 0;
    if (rg_runtime_check(writer->client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    pthread_mutex_lock(&writer->lock);
    uint64_t size = rg_part_plan_size(&writer->plan, writer->taken);
    while (rc == 0 && !writer->over && writer->filling == NULL && !has_room(writer, size)) {
        rc = deadline_ns == UINT64_MAX
                 ? pthread_cond_wait(&writer->changed, &writer->lock)
                 : pthread_cond_timedwait(&writer->changed, &writer->lock, &until);
    }
    if (writer->over) {
        rc = EIO;
    }
    pthread_mutex_unlock(&writer->lock);
    return rc == ETIMEDOUT ? -ETIME : -rc;
}

int rg_writer_finish(struct rg_writer *writer, struct rg_cq *cq, uint64_t user_data)
{
    if (rg_runtime_check(writer->client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (writer->ended) {
        return -EINVAL;
    }
    /* The last part may be empty, and needs a buffer all the same. */
    int rc = buffer_take(writer);
    if (rc == -EAGAIN || rc == -ENOMEM) {
        return rc;
    }
    int reserved = rg_cq_reserve(cq, 1);
    if (reserved <= 0) {
        return reserved < 0 ? reserved : -EAGAIN;
    }
    pthread_mutex_lock(&writer->lock);
    writer->ended = true;
    writer->cq = cq;
    writer->user_data = user_data;
    pthread_mutex_unlock(&writer->lock);
    if (rc == 0) {
        buffer_hand_over(writer);
    }
    rg_loop_post(loop_of(writer), &writer->finish_mail);
    return 0;
}

static void writer_free(struct rg_writer *writer)
{
    rg_upload_op_destroy(writer->op);
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->lock);
    for (uint32_t i = 0; writer->buffers != NULL && i < writer->buffer_count; i++) {
        buffer_unmap(writer, &writer->buffers[i]);
        free(writer->buffers[i].pieces);
    }
    free(writer->buffers);
    free(writer);
}

void rg_writer_close(struct rg_writer *writer)
{
    if (writer == NULL || rg_runtime_check(writer->client->runtime) < 0) {
        return;
    }
    if (writer->started) {
        rg_loop_post(loop_of(writer), &writer->close_mail);
        pthread_mutex_lock(&writer->lock);
        while (!writer->over || !writer->finishing) {
            pthread_cond_wait(&writer->changed, &writer->lock);
        }
        pthread_mutex_unlock(&writer->lock);
    }
    writer_free(writer);
}

static int buffers_make(struct rg_writer *writer)
{
    writer->buffers = calloc(writer->buffer_count, sizeof(*writer->buffers));
    if (writer->buffers == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = writer->buffer_count; i-- > 0;) {
        writer->buffers[i].next = writer->free_first;
        writer->free_first = &writer->buffers[i];
    }
    return 0;
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
        .bucket = options->bucket,
        .object = options->object,
        .method = options->method != RG_UPLOAD_AUTO ? options->method : RG_UPLOAD_MULTIPART,
        .content_type = options->content_type,
        .content_encoding = options->content_encoding,
        .cache_control = options->cache_control,
        .storage_class = options->storage_class,
        .metadata = options->metadata,
        .metadata_count = options->metadata_count,
        .conditions = options->conditions,
        .exclusive = options->exclusive,
        .slot_count = writer->buffer_count,
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
    writer->op->source = RG_UPLOAD_SOURCE_WRITER;
    writer->op->writer = writer;
    return 0;
}

/* Time-outs are by the clock of deadlines. */
static void lock_init(struct rg_writer *writer)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, &attributes);
    pthread_condattr_destroy(&attributes);
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
    lock_init(writer);
    writer->client = client;
    writer->client_loop = rg_client_next_loop(client);
    writer->method = own.method;
    struct rg_part_plan_options plan = plan_options_of(&own);
    rg_part_plan_init(&writer->plan, &plan);
    writer->buffer_count = writer->plan.window_max;
    writer->full_tail = &writer->full_first;
    writer->more_mail.run = more_run;
    writer->finish_mail.run = finish_run;
    writer->close_mail.run = close_run;
    int rc = buffers_make(writer);
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
