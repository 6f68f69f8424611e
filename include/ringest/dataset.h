/* Datasets: the objects of a manifest, or samples of tar shards, as a stream that is read ahead,
 * may be shuffled and shared among ranks and workers, and resumes exactly (docs/C.md). A reader
 * gives one epoch to one worker of one rank; one thread at a time takes samples, which also sends
 * the next requests. After fork() only rg_reader_close may be called. */
#ifndef RINGEST_DATASET_H
#define RINGEST_DATASET_H

#include <ringest/listing.h>
#include <ringest/tar.h>

RG_DECLS_BEGIN
/* The last samples of an epoch, when the number of ranks does not divide their count. */
enum rg_remainder {
    RG_REMAINDER_UNEVEN = 0, /* some ranks get one sample more */
    RG_REMAINDER_PAD = 1,    /* ranks with one less repeat samples from the start of the order */
    RG_REMAINDER_DROP = 2    /* left out in this epoch */
};

/* An object whose generation is no longer that of the manifest. */
enum rg_changed {
    RG_CHANGED_ERROR = 0, /* the sample completes with RG_STATUS_NOT_FOUND and says so */
    RG_CHANGED_SKIP = 1,  /* left out; rg_reader_skipped counts them */
    RG_CHANGED_NEWEST = 2 /* the newest generation is read; if there is none, as with ERROR */
};

#define RG_WINDOW_REQUESTS_DEFAULT 1024
#define RG_WINDOW_REQUESTS_MAX 65536
#define RG_WINDOW_BYTES_DEFAULT (UINT64_C(64) << 20)
#define RG_TAR_REQUEST_BYTES_DEFAULT (UINT64_C(1) << 20)

/* "Kept": borrowed until the reader is closed; other pointers are borrowed for the call. */
struct rg_reader_options {
    size_t struct_size;
    /* The objects: a manifest; or NULL and an array, of which name, size (0: unknown) and
     * generation (0: any) are used. Both kept. */
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
    /* The window: requests in flight and samples that wait to be taken; bytes by the manifest's
     * sizes, at most half of memory_max. When memory runs short, samples that came early are
     * dropped and read again, and window_bytes is halved. */
    uint32_t window_requests; /* 0: RG_WINDOW_REQUESTS_DEFAULT */
    uint64_t window_bytes;    /* 0: RG_WINDOW_BYTES_DEFAULT */
    const void *state; /* from rg_reader_state; -EINVAL if objects, seed, epoch or order differ */
    size_t state_size;
    /* Instead of objects: samples of tar shards; kept; not with RG_CHANGED_NEWEST. Neighbouring
     * samples share a request of at most tar_request_bytes (1: one each) and a 16th of the window,
     * and its lease: release it for each sample. */
    const struct rg_tar_index *tar;
    uint64_t tar_request_bytes; /* 0: RG_TAR_REQUEST_BYTES_DEFAULT */
    /* Extensions of the members to read, see rg_tar_cursor_open; none: all. Not part of states. */
    const char *const *tar_members;
    size_t tar_member_count;
    const uint64_t *indices; /* only these, in this order or shuffled; kept; there is no state */
    uint64_t index_count;
    bool consume_later; /* samples count as consumed at rg_reader_consume, not when taken */
    const void *base;   /* from rg_reader_base, with the state; or from rg_base_data, alone */
    size_t base_size;
    /* rg_manifest_digest or the like, RG_DIGEST_SIZE bytes: stored in states, and compared at
     * resume. NULL: some of the objects are compared. */
    const uint8_t *list_digest;
    /* While this epoch ends, reads into the client's cache, unless it is full, what it lacks of the
     * beginning of epoch + 1: samples that other ranks had so far, up to half of the window. */
    bool prefetch_next;
};
RG_INIT(rg_reader_options)

struct rg_reader;
/* Sends nothing before the first rg_reader_next. Errors: -EINVAL (`error`, which may be NULL, gets
 * a line that names the option, or what differs from the state), -ENOMEM, -EOWNERDEAD. */
RG_API int rg_reader_open(struct rg_reader **out_reader, struct rg_client *client,
                          const struct rg_reader_options *options, char *error, size_t error_size);

struct rg_sample {
    uint64_t index;  /* of the object in the manifest or array, or of the sample in the tar index */
    uint64_t number; /* of the sample in this reader's epoch; also completion.user_data */
    struct rg_completion completion; /* its lease is the caller's */
};
/* Takes `min` to out_max samples; fewer at the end of the epoch, or if memory has no room for more.
 * Waits until deadline_ns. Returns how many; 0: the epoch is over; -ETIME or -EINTR with none
 * taken; -EINVAL: min is 0 or above out_max. Without consume_later, taken samples are consumed. */
RG_API int rg_reader_next(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max,
                          uint32_t min, uint64_t deadline_ns);
/* From now on samples are delivered into `cq`, which may serve requests and other readers too, and
 * which the reader is to be closed before. Loops keep the window full. A sample comes as a
 * completion with `user_data`, sample_index and sample_number; it counts as taken when a thread
 * takes it off. The last completion has no sample: RG_STATUS_END, or RG_STATUS_CLOSED if the client
 * was closed before. A quarter of the queue is left to requests: one slot of two, none of one.
 * While the rest is in use, samples wait in the window. rg_reader_next returns -EINVAL from then
 * on. Samples that were not taken off when the reader is closed stay in the queue; the last
 * completion is not given then. 0, -EINVAL (it was started before), -ENOMEM, -EOWNERDEAD. */
RG_API int rg_reader_start(struct rg_reader *reader, struct rg_cq *cq, uint64_t user_data);
/* Ends a wait in rg_reader_next, or the next wait, with -EINTR. Any thread. */
RG_API void rg_reader_interrupt(struct rg_reader *reader);
/* Stores how long rg_reader_next has slept so far, in ns: at each stage (enum rg_stage) a share as
 * large as that of the time which gets of the client's runtime spent at it meanwhile. [0] is sleep
 * while there were none. Fills `count` elements. By the thread that takes samples. */
RG_API void rg_reader_waited(const struct rg_reader *reader, uint64_t *out_ns, uint32_t count);
/* For who waits for a reader that was started: a sleep that counts begins, or ends. */
RG_API void rg_reader_sleep(struct rg_reader *reader, bool begins);
/* With consume_later: what was taken or skipped so far has reached its user and is now consumed;
 * everything else comes again after a resume. Never waits, fails or allocates. */
RG_API void rg_reader_consume(struct rg_reader *reader);
/* Samples in this reader's whole epoch, and those taken or skipped so far. Any thread. */
RG_API uint64_t rg_reader_total(const struct rg_reader *reader);
RG_API uint64_t rg_reader_taken(const struct rg_reader *reader);
RG_API uint64_t rg_reader_skipped(const struct rg_reader *reader);
/* Which samples were consumed, as bytes to save with a checkpoint, together with the base. Requests
 * in flight do not count. 112 bytes; with `unordered` or skipped samples one more bit for each
 * request of the window. Stores at most `size` bytes, returns how many there are. Any thread. */
#define RG_READER_STATE_MAX (112 + RG_WINDOW_REQUESTS_MAX / 8)
RG_API size_t rg_reader_state(const struct rg_reader *reader, void *buf, size_t size);
/* The base that the reader resumed from: the same bytes for every reader of its rank, valid until
 * it is closed. NULL: it began at the start of the epoch. */
RG_API const void *rg_reader_base(const struct rg_reader *reader, size_t *out_size);

/* A base: the samples that were consumed before the rest was divided among ranks and workers anew.
 * Made of the states of a rank's workers, it lets that rank resume with other workers; made of all
 * states, any number of ranks and workers. Every sample that was not consumed comes exactly once.
 * 116 bytes, and a bit for each sample from the first not consumed to the last consumed. */
struct rg_base;
/* What one reader saved. Without state: it had not started since its base. Neither: not at all. */
struct rg_saved {
    const void *state;
    size_t state_size;
    const void *base;
    size_t base_size;
};
/* Unites the states of one epoch: those of one rank, or with `all_ranks` of all, each worker of
 * each rank once. An entry without a state stands for a whole rank that has no other entry. Errors:
 * -EINVAL (`error`, which may be NULL, says what is missing, doubled or foreign), -ENOMEM. */
RG_API int rg_base_open(struct rg_base **out_base, const struct rg_saved *saved, size_t saved_count,
                        bool all_ranks, char *error, size_t error_size);
/* Its bytes, valid until it is closed. */
RG_API const void *rg_base_data(const struct rg_base *base, size_t *out_size);
RG_API void rg_base_close(struct rg_base *base);
/* Cancels the requests in flight and waits for them. */
RG_API void rg_reader_close(struct rg_reader *reader);

RG_DECLS_END
#endif
