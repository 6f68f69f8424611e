/* Datasets: the objects of a manifest as a stream that is read ahead, in an order that may be
 * shuffled, shared among ranks and workers, and gone on with exactly where it stopped.
 *
 * A reader gives one epoch to one worker of one rank. It keeps a window of requests out, refilled
 * by whoever takes samples, and knows what was taken: its state is small, does not count what is
 * only in flight, and lets the epoch go on without reading again what was consumed.
 *
 * A reader belongs to one thread at a time; how far it is, any other may ask meanwhile. After
 * fork() only rg_reader_close may be called. */
#ifndef RINGEST_DATASET_H
#define RINGEST_DATASET_H

#include <ringest/listing.h>
#include <ringest/tar.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of the samples that are left when the number of ranks does not divide theirs. */
enum rg_remainder {
    RG_REMAINDER_UNEVEN = 0, /* some ranks get one sample more */
    RG_REMAINDER_PAD = 1,    /* ranks that would lack one repeat samples of the order's beginning */
    RG_REMAINDER_DROP = 2    /* left out in this epoch */
};

/* What becomes of an object whose generation is no longer that of the manifest. */
enum rg_changed {
    RG_CHANGED_ERROR = 0, /* its sample is RG_STATUS_NOT_FOUND, saying so */
    RG_CHANGED_SKIP = 1,  /* left out; rg_reader_skipped counts */
    RG_CHANGED_NEWEST = 2 /* what is there now is read; if nothing is, as with ERROR */
};

#define RG_WINDOW_REQUESTS_DEFAULT 1024
#define RG_WINDOW_REQUESTS_MAX 65536
#define RG_WINDOW_BYTES_DEFAULT (UINT64_C(64) << 20)
#define RG_TAR_REQUEST_BYTES_DEFAULT (UINT64_C(1) << 20)

/* See rg_runtime_options about growing. */
struct rg_reader_options {
    size_t struct_size;
    /* The objects: a manifest, borrowed until the reader is closed; or with NULL an array, borrowed
     * too, of which name, size (0: unknown) and generation (0: any) are used. */
    const struct rg_manifest *manifest;
    const char *bucket;
    const struct rg_object *objects;
    uint64_t object_count;
    bool shuffle;
    uint64_t seed, epoch;
    uint32_t rank, world_size;     /* world_size 0: 1 */
    uint32_t worker, worker_count; /* worker_count 0: 1 */
    uint32_t batch_size;           /* workers take batches in turn; 0: 1 */
    enum rg_remainder remainder;
    enum rg_changed changed;
    bool unordered; /* samples come as they arrive; otherwise in the order of the epoch */
    /* What is out or waiting to be taken, at most. Bytes are those of the manifest, and at most
     * half of the runtime's memory, because a window that fills it would wait for itself. Where it
     * does so all the same, since others hold memory or it is in pieces, samples that came before
     * their turn are let go and read again, and the bytes halved. */
    uint32_t window_requests; /* 0: RG_WINDOW_REQUESTS_DEFAULT */
    uint64_t window_bytes;    /* 0: RG_WINDOW_BYTES_DEFAULT */
    /* From rg_reader_state: go on there. Refused unless it is of the same objects, seed, epoch and
     * order, and says enough: see rg_base. Borrowed for the call, as is the base. */
    const void *state;
    size_t state_size;
    /* In place of objects: the samples of tar archives, borrowed until the reader is closed. A
     * sample is then the range of its members, and `index` its number in the index. With
     * RG_CHANGED_NEWEST -EINVAL: an index says nothing of what is newer.
     *
     * Samples that follow each other, in the order and in a shard, are read by one request of at
     * most tar_request_bytes, 0 being RG_TAR_REQUEST_BYTES_DEFAULT, and of a 16th of the window; 1
     * means a request for each. Their completions then have the same lease, each to be released as
     * if it were its own: memory comes back when all have been. */
    const struct rg_tar_index *tar;
    uint64_t tar_request_bytes;
    /* The extensions of the members that are read, the others being left out, as rg_tar_cursor_open
     * has it; none: all. Borrowed for the call. A state may go on with other ones. */
    const char *const *tar_members;
    size_t tar_member_count;
    /* Of the objects or samples only these, in this order (or, with `shuffle`, in one of it), each
     * as often as it is named. Borrowed until the reader is closed. NULL: all. Such a reader has no
     * state: rg_reader_state returns 0. */
    const uint64_t *indices;
    uint64_t index_count;
    /* What is taken is consumed when rg_reader_consume says so, and not at once. */
    bool consume_later;
    /* From rg_reader_base, with the state; or from rg_base_data, alone. */
    const void *base;
    size_t base_size;
    /* RG_DIGEST_SIZE bytes that tell the list of objects from any other, such as
     * rg_manifest_digest: states keep it and are refused where it differs. Borrowed for the call;
     * NULL: none, and a sample of the objects has to do. */
    const uint8_t *list_digest;
};
RG_API void rg_reader_options_init_sized(struct rg_reader_options *options, size_t struct_size);
static inline void rg_reader_options_init(struct rg_reader_options *options)
{
    rg_reader_options_init_sized(options, sizeof(*options));
}

struct rg_reader;
/* Sends nothing before the first rg_reader_next. Errors: -EINVAL with a line in `error` (may be
 * NULL) that names the option, or in what a state differs; -ENOMEM; -EOWNERDEAD. */
RG_API int rg_reader_open(struct rg_reader **out_reader, struct rg_client *client,
                          const struct rg_reader_options *options, char *error, size_t error_size);

/* One sample. completion.user_data is `number`; its lease is the caller's. */
struct rg_sample {
    uint64_t index;  /* of the object, in the manifest or array; of the sample, in the tar index */
    uint64_t number; /* of the sample, in this reader's epoch */
    struct rg_completion completion;
};
/* Takes between `min` and out_max samples, fewer at the end of the epoch or where the client's
 * memory has no room for more, waiting until deadline_ns. Returns how many; 0: the epoch is over;
 * -ETIME or -EINTR with none taken; -EINVAL if min is 0 or above out_max. What is taken is
 * consumed, but with consume_later. */
RG_API int rg_reader_next(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max,
                          uint32_t min, uint64_t deadline_ns);

/* Ends a wait of another thread in rg_reader_next, or the next one, with -EINTR. Any thread. */
RG_API void rg_reader_interrupt(struct rg_reader *reader);

/* With consume_later: all that was taken or skipped so far is consumed. For whoever passes samples
 * on, and may be interrupted before they have arrived: what was not consumed comes again when a
 * reader goes on. Nothing in here waits, fails or allocates. */
RG_API void rg_reader_consume(struct rg_reader *reader);

/* Samples of this reader in its whole epoch, and those taken or skipped so far. Any thread. */
RG_API uint64_t rg_reader_total(const struct rg_reader *reader);
RG_API uint64_t rg_reader_taken(const struct rg_reader *reader);
RG_API uint64_t rg_reader_skipped(const struct rg_reader *reader);

/* Any thread. What was consumed since the deal, as bytes to be kept with a checkpoint, together
 * with the base: 112, and with `unordered` or where samples were skipped a bit more for each
 * request of the window, so that there are at most RG_READER_STATE_MAX. Stores at most `size` bytes
 * and returns how many there are. */
#define RG_READER_STATE_MAX (112 + RG_WINDOW_REQUESTS_MAX / 8)
RG_API size_t rg_reader_state(const struct rg_reader *reader, void *buf, size_t size);
/* What the reader went on from: the same bytes as long as it is open, and for every reader of its
 * rank. NULL: it began at the beginning. */
RG_API const void *rg_reader_base(const struct rg_reader *reader, size_t *out_size);

/* A base: what of an epoch was consumed before the rest was dealt to ranks and workers. A reader
 * begins with
 *
 * - its own state and base, rank, world size, worker, number of workers and batch size being the
 *   same: it goes on within the deal;
 * - the state and base of the same rank, which had one worker: what is left of the rank's samples
 * is dealt to workers anew; or, of a world of 1, to ranks and workers;
 * - the base of its rank, made of the states of all its workers: the same;
 * - the base of all ranks, made of all states: what is left of the epoch is dealt anew, to any
 *   number of ranks and workers, wherever each had stopped;
 *
 * and says why where that does not say enough. All ranks go on from their own, or all from the same
 * base. What nobody had consumed comes exactly once, in the epoch's order, which the states and the
 * new deal determine; `remainder` then applies to what is left, and where all were at their end,
 * nothing is. A base has a bit for each sample between the first that was not consumed and the last
 * that was, and 116 bytes. */
struct rg_base;
/* One reader as it was saved, or with a NULL state what has not begun since its base, or with
 * neither what has not begun at all. */
struct rg_saved {
    const void *state;
    size_t state_size;
    const void *base;
    size_t base_size;
};
/* Unites what readers of one epoch have consumed: those of one rank, or with `all_ranks` of all of
 * them, each worker of each rank once. What has not begun stands for a whole rank that has no
 * other. Errors: -EINVAL with a line in `error` (may be NULL) that says what is missing, doubled or
 * of something else; -ENOMEM. */
RG_API int rg_base_open(struct rg_base **out_base, const struct rg_saved *saved, size_t saved_count,
                        bool all_ranks, char *error, size_t error_size);
/* Its bytes, which live as long as it. */
RG_API const void *rg_base_data(const struct rg_base *base, size_t *out_size);
/* NULL is fine. */
RG_API void rg_base_close(struct rg_base *base);

/* Ends it: what is out is cancelled and waited for. NULL is fine. */
RG_API void rg_reader_close(struct rg_reader *reader);

#ifdef __cplusplus
}
#endif

#endif
