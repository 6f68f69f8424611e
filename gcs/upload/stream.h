/* The bytes of a writer on their way from the program's thread to the loop.
 *
 * They lie in buffers, each of which becomes one part of the upload: pieces of memory, which the
 * program lent, or which were copied into the buffer's own. How large a buffer is, and how many may
 * be in use, is decided when one is begun, by gcs/upload/part_plan.h.
 *
 *   free -> filling (the program) -> full, in order -> taken (the loop) -> free
 *
 *   OPEN -> ENDED   nothing comes behind the buffers that were handed over
 *     |       |
 *     +-------+---> OVER   the loop takes no more, and the program gets -EIO
 *
 * Functions of the program are called by one thread, those of the loop by its thread; what both use
 * is guarded by the lock. Whoever embeds a stream may guard more by it, and waits by `changed`. */
#ifndef RG_GCS_UPLOAD_STREAM_H
#define RG_GCS_UPLOAD_STREAM_H

#include "gcs/upload/lends.h"
#include "gcs/upload/part_plan.h"
#include "http/exchange.h"

#include <pthread.h>

enum rg_stream_state {
    RG_STREAM_OPEN = 0,
    RG_STREAM_ENDED,
    RG_STREAM_OVER,
};

struct rg_stream_buffer {
    struct rg_stream_buffer *next;
    uint8_t *memory; /* for what is copied; NULL: none */
    size_t capacity; /* of that */
    struct rg_body_piece *pieces;
    uint32_t piece_count, piece_capacity;
    bool in_use;
    uint64_t offset; /* of its first byte in the stream */
    size_t size, size_max, copied;
    size_t kept; /* of its first bytes, all of which lie in `memory`; under the stream's lock */
    uint32_t crc;
    struct rg_send_pace *pace; /* the stream's */
};

struct rg_stream {
    struct rg_stream_buffer *buffers;
    uint32_t buffer_count;
    struct rg_send_pace pace; /* of all parts together; the loop's, but for the rate */
    /* Used by the program's thread alone. */
    struct rg_stream_buffer *filling; /* NULL: none was begun */
    uint64_t size;                    /* bytes so far */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a buffer came back, or the state changed */
    /* Guarded by the lock. */
    enum rg_stream_state state; /* changed by stream.c alone */
    struct rg_stream_buffer *free_first, *full_first, **full_tail;
    struct rg_part_plan plan;
    uint64_t told_size;      /* bytes up to the end of what was handed over or kept */
    uint64_t dropped_offset; /* of the first byte that was given back without being sent */
    struct rg_lends lends;   /* that the program wants to be told of */
    enum rg_status outcome;  /* once it is OVER, like the next one */
    const char *lost;        /* for people: what became of lends that were not sent; or NULL */
    uint32_t used_count;     /* buffers that are not free */
    uint64_t used_bytes, mapped_bytes; /* of their memory, and of all buffers' */
};

/* 0, or -ENOMEM; `fini` may be called either way. */
int rg_stream_init(struct rg_stream *stream, const struct rg_part_plan_options *options);
void rg_stream_fini(struct rg_stream *stream);

/* The program's thread: makes a buffer the one that is filled, unless one is. 0, -EAGAIN: there is
 * no room, -ENOMEM, or -EIO: the stream is OVER. */
int rg_stream_begin(struct rg_stream *stream);
/* Puts as much into that buffer as is summed up at once; that much, or -ENOMEM. `lent`: the memory
 * is not copied, and is borrowed until rg_stream_sent_bytes is behind it. *sum, unless NULL, goes
 * on over it. */
int64_t rg_stream_add(struct rg_stream *stream, const uint8_t *data, size_t size, bool lent,
                      uint32_t *sum);
/* True: that buffer is full. */
bool rg_stream_is_full(const struct rg_stream *stream);
/* Hands that buffer over, full or not. */
void rg_stream_hand_over(struct rg_stream *stream);
/* OPEN -> ENDED, before the last buffer is handed over. No change to a stream that is OVER. */
void rg_stream_end(struct rg_stream *stream);
/* Waits until a buffer can be begun: 0, -ETIME, or -EIO: the stream is OVER. */
int rg_stream_wait(struct rg_stream *stream, uint64_t deadline_ns);
/* Bytes, from the first one of the stream on, that are with the service. */
uint64_t rg_stream_sent_bytes(struct rg_stream *stream);
/* Room to be told of another lend: 0 or -ENOMEM. Then, when its bytes were added, what to tell. */
int rg_stream_lend_reserve(struct rg_stream *stream);
void rg_stream_lend_note(struct rg_stream *stream, const struct rg_lend *lend);
/* Copies what was lent to the buffer that is filled, so that those lends wait for the parts before
 * it alone: for when nobody may wait until it is full. O(bytes lent since the last time). */
void rg_stream_keep(struct rg_stream *stream);

/* The loop: the next full buffer, to be given back; NULL: there is none for now. Sets *out_size to
 * the bytes of the whole stream if it has ended. An empty buffer is only returned if it is the
 * first: the others have nothing to send. */
struct rg_stream_buffer *rg_stream_take(struct rg_stream *stream, bool is_first,
                                        uint64_t *out_size);
/* The service has it. */
void rg_stream_give(struct rg_stream *stream, struct rg_stream_buffer *buffer, uint64_t now_ns);
/* Nobody wants it any more: the upload has failed. */
void rg_stream_drop(struct rg_stream *stream, struct rg_stream_buffer *buffer);
/* A part was answered 429 or 503. */
void rg_stream_throttle(struct rg_stream *stream);
/* The state becomes OVER, and all lends are told of. With the lock held, so that who waits finds
 * what came with it. */
void rg_stream_stop_locked(struct rg_stream *stream, enum rg_status outcome);

#endif
