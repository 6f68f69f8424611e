/* See stream.h. */
#include "gcs/upload/stream.h"

#include "gcs/wire/checksum.h"
#include "runtime/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PIECES_MIN 16
/* Lent memory is given back in the order of the stream, so one slow part keeps all that lies behind
 * it. No part begins that ends further behind the oldest one than so many times the bound of all
 * parts. */
#define SPAN_MAX 2

/* Each buffer is free, full, being filled, or with the loop; what is free is not counted as used,
 * and all memory stays below its bound. With the lock held. */
static bool invariants(const struct rg_stream *stream)
{
    uint32_t free_count = 0, in_use = 0;
    uint64_t mapped = 0;
    for (uint32_t i = 0; i < stream->buffer_count; i++) {
        in_use += stream->buffers[i].in_use;
        mapped += stream->buffers[i].capacity;
    }
    for (const struct rg_stream_buffer *each = stream->free_first; each != NULL;
         each = each->next) {
        free_count += !each->in_use;
    }
    return in_use == stream->used_count && free_count + in_use == stream->buffer_count &&
           mapped == stream->mapped_bytes && mapped <= stream->plan.bytes_max;
}

/* With the lock held. */
static void state_set(struct rg_stream *stream, enum rg_stream_state state)
{
    RG_ASSERT(state > stream->state);
    stream->state = state;
    pthread_cond_broadcast(&stream->changed);
}

/* With the lock held, like the next ones. */
static void buffer_unmap(struct rg_stream *stream, struct rg_stream_buffer *buffer)
{
    if (buffer->memory != NULL) {
        munmap(buffer->memory, buffer->capacity);
        stream->mapped_bytes -= buffer->capacity;
        buffer->memory = NULL;
        buffer->capacity = 0;
    }
}

/* Memory for a part of this size: the buffer's own, if that is as large, or new one, for which free
 * buffers give theirs where the bound demands it. It is there when it is touched. False: the system
 * has none. */
static bool buffer_map(struct rg_stream *stream, struct rg_stream_buffer *buffer, size_t size)
{
    if (buffer->capacity >= size) {
        return true;
    }
    buffer_unmap(stream, buffer);
    for (struct rg_stream_buffer *other = stream->free_first;
         other != NULL && stream->mapped_bytes + size > stream->plan.bytes_max;
         other = other->next) {
        buffer_unmap(stream, other);
    }
    RG_ASSERT(stream->mapped_bytes + size <= stream->plan.bytes_max);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    buffer->memory = memory;
    buffer->capacity = size;
    stream->mapped_bytes += size;
    return true;
}

static void buffer_free(struct rg_stream *stream, struct rg_stream_buffer *buffer)
{
    RG_ASSERT(buffer->in_use && stream->used_count > 0);
    buffer->in_use = false;
    buffer->next = stream->free_first;
    stream->free_first = buffer;
    stream->used_bytes -= buffer->capacity;
    /* Fewer are to be there now. */
    if (--stream->used_count >= stream->plan.window) {
        buffer_unmap(stream, buffer);
    }
    RG_VERIFY(invariants(stream));
}

/* Bytes from the first on that lie in no buffer, as the loop knows them: all of what it sent. */
static uint64_t sent_in_order(const struct rg_stream *stream)
{
    uint64_t sent = RG_MIN(stream->told_size, stream->dropped_offset);
    for (uint32_t i = 0; i < stream->buffer_count; i++) {
        const struct rg_stream_buffer *buffer = &stream->buffers[i];
        sent = buffer->in_use ? RG_MIN(sent, buffer->offset) : sent;
    }
    return sent;
}

/* The same, but of bytes that are not in the program's memory any more: sent or kept. */
static uint64_t returned_in_order(const struct rg_stream *stream)
{
    uint64_t returned = RG_MIN(stream->told_size, stream->dropped_offset);
    for (uint32_t i = 0; i < stream->buffer_count; i++) {
        const struct rg_stream_buffer *buffer = &stream->buffers[i];
        returned = buffer->in_use ? RG_MIN(returned, buffer->offset + buffer->kept) : returned;
    }
    return returned;
}

/* The same for the program, whose thread alone knows how long the stream is. */
static uint64_t sent_bytes(const struct rg_stream *stream)
{
    return stream->state == RG_STREAM_OVER ? stream->size : sent_in_order(stream);
}

static void lends_settle(struct rg_stream *stream)
{
    bool is_over = stream->state == RG_STREAM_OVER;
    if (stream->lends.count > 0) {
        rg_lends_settle(&stream->lends, is_over ? UINT64_MAX : returned_in_order(stream),
                        is_over ? stream->outcome : RG_STATUS_OK, is_over ? stream->lost : NULL);
    }
}

struct rg_stream_buffer *rg_stream_take(struct rg_stream *stream, bool is_first, uint64_t *out_size)
{
    pthread_mutex_lock(&stream->lock);
    struct rg_stream_buffer *buffer = stream->full_first;
    if (buffer != NULL) {
        stream->full_first = buffer->next;
        if (stream->full_first == NULL) {
            stream->full_tail = &stream->full_first;
        }
    }
    if (stream->state == RG_STREAM_ENDED) {
        *out_size = stream->size;
    }
    if (buffer != NULL && buffer->size == 0 && !is_first) {
        /* Nothing came behind the last full one. */
        buffer_free(stream, buffer);
        buffer = NULL;
    }
    pthread_mutex_unlock(&stream->lock);
    return buffer;
}

void rg_stream_give(struct rg_stream *stream, struct rg_stream_buffer *buffer, uint64_t now_ns)
{
    pthread_mutex_lock(&stream->lock);
    rg_part_plan_sent(&stream->plan, buffer->size, now_ns);
    buffer_free(stream, buffer);
    lends_settle(stream);
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

void rg_stream_drop(struct rg_stream *stream, struct rg_stream_buffer *buffer)
{
    pthread_mutex_lock(&stream->lock);
    stream->dropped_offset = RG_MIN(stream->dropped_offset, buffer->offset);
    buffer_free(stream, buffer);
    pthread_mutex_unlock(&stream->lock);
}

void rg_stream_throttle(struct rg_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    rg_part_plan_throttle(&stream->plan);
    pthread_mutex_unlock(&stream->lock);
}

void rg_stream_stop_locked(struct rg_stream *stream, enum rg_status outcome)
{
    stream->outcome = outcome;
    if (outcome == RG_STATUS_CANCELLED && stream->state == RG_STREAM_OPEN) {
        stream->lost = "this memory was not sent: the writer was closed without rg_writer_finish";
    } else if (outcome != RG_STATUS_OK) {
        stream->lost = "the upload that this memory was lent to has ended without an object; the "
                       "completion of rg_writer_finish says why";
    }
    state_set(stream, RG_STREAM_OVER);
    lends_settle(stream);
}

void rg_stream_end(struct rg_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->state == RG_STREAM_OPEN) {
        state_set(stream, RG_STREAM_ENDED);
    }
    pthread_mutex_unlock(&stream->lock);
}

void rg_stream_hand_over(struct rg_stream *stream)
{
    struct rg_stream_buffer *buffer = stream->filling;
    stream->filling = NULL;
    pthread_mutex_lock(&stream->lock);
    buffer->next = NULL;
    *stream->full_tail = buffer;
    stream->full_tail = &buffer->next;
    stream->told_size = buffer->offset + buffer->size;
    pthread_mutex_unlock(&stream->lock);
}

/* With the lock held, like the next one. */
static bool has_room(const struct rg_stream *stream, uint64_t size)
{
    uint64_t span = stream->size + size - sent_bytes(stream);
    return stream->free_first != NULL && span <= SPAN_MAX * stream->plan.bytes_max &&
           rg_part_plan_has_room(&stream->plan, stream->used_count, stream->used_bytes, size);
}

static int buffer_begin(struct rg_stream *stream, size_t size)
{
    struct rg_stream_buffer *buffer = stream->free_first;
    stream->free_first = buffer->next;
    if (!buffer_map(stream, buffer, size)) {
        stream->free_first = buffer;
        return -ENOMEM;
    }
    stream->used_count++;
    stream->used_bytes += buffer->capacity;
    buffer->in_use = true;
    buffer->offset = stream->size;
    buffer->size = buffer->copied = buffer->kept = 0;
    buffer->size_max = size;
    buffer->piece_count = 0;
    buffer->crc = 0;
    stream->filling = buffer;
    RG_VERIFY(invariants(stream));
    return 0;
}

int rg_stream_begin(struct rg_stream *stream)
{
    int rc = 0;
    pthread_mutex_lock(&stream->lock);
    size_t size = (size_t)rg_part_plan_size(&stream->plan, stream->size);
    if (stream->state == RG_STREAM_OVER) {
        rc = -EIO;
    } else if (stream->filling == NULL && !has_room(stream, size)) {
        rg_part_plan_wait(&stream->plan);
        rc = -EAGAIN;
    } else if (stream->filling == NULL) {
        rc = buffer_begin(stream, size);
    }
    pthread_mutex_unlock(&stream->lock);
    return rc;
}

/* Adds a piece to the buffer, or to its last piece; 0 or -ENOMEM. */
static int piece_add(struct rg_stream_buffer *buffer, const uint8_t *data, size_t size)
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

int64_t rg_stream_add(struct rg_stream *stream, const uint8_t *data, size_t size, bool lent,
                      uint32_t *sum)
{
    struct rg_stream_buffer *buffer = stream->filling;
    RG_ASSERT(buffer != NULL && size > 0 && !rg_stream_is_full(stream));
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
    stream->size += piece;
    return (int64_t)piece;
}

bool rg_stream_is_full(const struct rg_stream *stream)
{
    return stream->filling->size == stream->filling->size_max;
}

uint64_t rg_stream_sent_bytes(struct rg_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    uint64_t sent = sent_bytes(stream);
    pthread_mutex_unlock(&stream->lock);
    return sent;
}

int rg_stream_lend_reserve(struct rg_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    int rc = rg_lends_reserve(&stream->lends);
    pthread_mutex_unlock(&stream->lock);
    return rc;
}

/* What was sent in the meantime is told of at once. */
void rg_stream_lend_note(struct rg_stream *stream, const struct rg_lend *lend)
{
    pthread_mutex_lock(&stream->lock);
    rg_lends_push(&stream->lends, lend);
    lends_settle(stream);
    pthread_mutex_unlock(&stream->lock);
}

void rg_stream_keep(struct rg_stream *stream)
{
    struct rg_stream_buffer *buffer = stream->filling;
    if (buffer == NULL || buffer->size == 0) {
        return;
    }
    /* From the last to the first: what was copied before lies below the place that it moves to. */
    for (uint32_t i = buffer->piece_count; i-- > 0;) {
        uint64_t begin = i > 0 ? buffer->pieces[i - 1].end : 0;
        if (buffer->pieces[i].data != buffer->memory + begin) {
            memmove(buffer->memory + begin, buffer->pieces[i].data,
                    (size_t)(buffer->pieces[i].end - begin));
        }
    }
    buffer->pieces[0] = (struct rg_body_piece){.data = buffer->memory, .end = buffer->size};
    buffer->piece_count = 1;
    buffer->copied = buffer->size;
    pthread_mutex_lock(&stream->lock);
    buffer->kept = buffer->size;
    stream->told_size = buffer->offset + buffer->size;
    pthread_mutex_unlock(&stream->lock);
}

int rg_stream_wait(struct rg_stream *stream, uint64_t deadline_ns)
{
    struct timespec until = rg_timespec_from_ns(deadline_ns);
    int rc = 0;
    pthread_mutex_lock(&stream->lock);
    uint64_t size = rg_part_plan_size(&stream->plan, stream->size);
    while (rc == 0 && stream->state != RG_STREAM_OVER && stream->filling == NULL &&
           !has_room(stream, size)) {
        rc = deadline_ns == UINT64_MAX
                 ? pthread_cond_wait(&stream->changed, &stream->lock)
                 : pthread_cond_timedwait(&stream->changed, &stream->lock, &until);
    }
    if (stream->state == RG_STREAM_OVER) {
        rc = EIO;
    }
    pthread_mutex_unlock(&stream->lock);
    return rc == ETIMEDOUT ? -ETIME : -rc;
}

/* Time-outs are by the clock of deadlines. */
static void lock_init(struct rg_stream *stream)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

int rg_stream_init(struct rg_stream *stream, const struct rg_part_plan_options *options)
{
    *stream = (struct rg_stream){.dropped_offset = UINT64_MAX};
    lock_init(stream);
    rg_part_plan_init(&stream->plan, options);
    stream->full_tail = &stream->full_first;
    stream->buffers = calloc(stream->plan.window_max, sizeof(*stream->buffers));
    if (stream->buffers == NULL) {
        return -ENOMEM;
    }
    stream->buffer_count = stream->plan.window_max;
    for (uint32_t i = stream->buffer_count; i-- > 0;) {
        stream->buffers[i].next = stream->free_first;
        stream->buffers[i].pace = &stream->pace;
        stream->free_first = &stream->buffers[i];
    }
    return 0;
}

void rg_stream_fini(struct rg_stream *stream)
{
    for (uint32_t i = 0; i < stream->buffer_count; i++) {
        buffer_unmap(stream, &stream->buffers[i]);
        free(stream->buffers[i].pieces);
    }
    free(stream->buffers);
    rg_lends_fini(&stream->lends);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
}
