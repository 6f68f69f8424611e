/* A reader: see <ringest/dataset.h>.
 *
 * Samples are numbered in the order of the reader's epoch. The window is a ring of slots, the slot
 * of a sample being its number modulo the capacity:
 *
 *      0 ......... first ................. next ......... total
 *        consumed        out, here, taken       not asked for
 *
 *   FREE -> OUT (asked for) -> HERE (has come) -> TAKEN (by the caller) -> FREE when `first` passes
 *            ^                  |  or TAKEN at once, when it is to be skipped
 *            +---- AGAIN <------+  to be asked for once more: without a generation, or because it
 *                                  held memory that `first` waits for
 *
 * One request may read several samples of a tar shard that follow each other, in the order and in
 * the shard. It is known by its first sample's number; the others are OUT with it, and share its
 * lease when it has come.
 *
 * There is no thread: the window is refilled by whoever takes samples, before and after. That is
 * one thread at a time; others may look at how far it is, under the lock that it holds but while it
 * waits. */
#include "dataset/progress.h"
#include "dataset/resume.h"
#include "dataset/sampler.h"
#include "dataset/source.h"
#include "gcs/request/client.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Requests submitted at a time, for which names are kept. */
#define SUBMIT_MAX 64
/* What an object of unknown size counts as until larger ones were seen. */
#define SIZE_GUESS RG_KIB(64)
/* Completions are waited for many at a time, since each wait that ends costs a switch between
 * threads: but no more than this part of what is out, so that the window is refilled in time, and
 * not so many bytes that the first ones have left the cache. */
#define WAIT_DIVISOR 8
#define WAIT_BYTES RG_MIB(1)
/* One request is no more than this part of the window, so that several are out. */
#define GROUP_DIVISOR 16
/* Requests at once for a sample of which much in between is not wanted. */
#define PIECES_AT_ONCE 8u
/* How long to wait where the client has no room and nothing of ours is out. */
#define CLIENT_FULL_PAUSE_NS RG_NS_PER_MS
/* With nothing coming for so long, while a request waits for memory, the window lets go of its own.
 * Longer than the answers of a healthy service are apart; what is let go is read twice. */
#define QUIET_NS (100 * RG_NS_PER_MS)

enum slot_state { SLOT_FREE = 0, SLOT_OUT, SLOT_AGAIN, SLOT_HERE, SLOT_TAKEN };

struct slot {
    enum slot_state state;
    bool was_asked;     /* its request has been planned before */
    bool newest;        /* was asked for without a generation */
    bool in_pieces;     /* is read by a set of ranges */
    uint32_t followers; /* how many samples behind it are read by its request */
    uint64_t index;
    uint64_t charge;      /* of its request, if it is the last sample of that; otherwise, and of
                           * what is AGAIN, 0 */
    uint64_t place, size; /* of tar samples: where they are in the body of their request */
    struct rg_completion completion;
};

/* Numbers of samples, first in, first out; at most the capacity of the window. */
struct queue {
    uint64_t *numbers;
    uint32_t head, count;
};

struct rg_reader {
    struct rg_client *client;
    struct rg_cq *cq;
    pthread_mutex_t lock; /* of what changes below */
    struct rg_reader_options options;
    struct rg_source source;
    uint32_t fingerprint;
    uint8_t digest[RG_DIGEST_SIZE];
    struct rg_resume resume;
    uint32_t group_samples_max;
    uint64_t group_bytes_max;
    struct rg_sampler sampler;
    struct slot *slots;
    uint32_t capacity;           /* a power of two */
    struct queue arrived;        /* of unordered readers: in the order of arrival */
    struct rg_progress handed;   /* out to the caller, or skipped; its `first` is the window's */
    struct rg_progress consumed; /* with consume_later: what of that was, at rg_reader_consume */
    uint64_t next;
    uint32_t again_count; /* requests */
    uint64_t again_first; /* none of them is before this number */
    uint32_t here_count;
    uint64_t taken, skipped;
    uint64_t bytes, bytes_max; /* charged to what is in the window; at most, which is halved each
                                * time that memory was short */
    bool is_held;              /* nothing is asked for behind `first`, which has to come first */
    uint64_t quiet_ns;         /* spent waiting since something has come */
    uint64_t size_guess;
    uint32_t out_count;     /* requests */
    uint32_t awaited_count; /* samples that were asked for, or will be, and are not here */
    char names[SUBMIT_MAX][RG_OBJECT_NAME_SIZE_MAX + 1];
};

void rg_reader_options_init_sized(struct rg_reader_options *options, size_t struct_size)
{
    RG_ASSERT(struct_size >= sizeof(size_t));
    memset(options, 0, struct_size);
    options->struct_size = struct_size;
}

static struct slot *slot_of(struct rg_reader *reader, uint64_t number)
{
    return &reader->slots[number & (reader->capacity - 1)];
}

static void queue_push(const struct rg_reader *reader, struct queue *queue, uint64_t number)
{
    RG_ASSERT(queue->count < reader->capacity);
    queue->numbers[(queue->head + queue->count++) & (reader->capacity - 1)] = number;
}

static uint64_t queue_pop(const struct rg_reader *reader, struct queue *queue)
{
    RG_ASSERT(queue->count > 0);
    uint64_t number = queue->numbers[queue->head];
    queue->head = (queue->head + 1) & (reader->capacity - 1);
    queue->count--;
    return number;
}

/* What the sample with a number of this reader's is, in the objects. */
static uint64_t index_at(const struct rg_reader *reader, uint64_t number)
{
    uint64_t position = rg_sampler_at(&reader->sampler, number);
    return reader->options.indices != NULL ? reader->options.indices[position] : position;
}

static int indices_check(const struct rg_reader_options *own, char *error, size_t error_size)
{
    if (own->state != NULL || own->base != NULL) {
        return rg_explain(error, error_size, -EINVAL, "samples of a list have no state");
    }
    for (uint64_t i = 0; i < own->index_count; i++) {
        if (own->indices[i] >= own->object_count) {
            return rg_explain(error, error_size, -EINVAL,
                              "there is no sample %" PRIu64 " of %" PRIu64, own->indices[i],
                              own->object_count);
        }
    }
    return 0;
}

static int options_read(struct rg_reader_options *own, const struct rg_reader_options *given,
                        char *error, size_t error_size)
{
    rg_reader_options_init(own);
    memcpy(own, given, RG_MIN(given->struct_size, sizeof(*own)));
    own->struct_size = sizeof(*own);
    own->world_size = own->world_size != 0 ? own->world_size : 1;
    own->worker_count = own->worker_count != 0 ? own->worker_count : 1;
    own->batch_size = own->batch_size != 0 ? own->batch_size : 1;
    if (own->window_requests == 0) {
        own->window_requests = RG_WINDOW_REQUESTS_DEFAULT;
    }
    if (own->window_bytes == 0) {
        own->window_bytes = RG_WINDOW_BYTES_DEFAULT;
    }
    if (own->tar_request_bytes == 0) {
        own->tar_request_bytes = RG_TAR_REQUEST_BYTES_DEFAULT;
    }
    if (own->tar != NULL && own->changed == RG_CHANGED_NEWEST) {
        return rg_explain(error, error_size, -EINVAL,
                          "an index says nothing of a shard that has changed since: scan it again "
                          "instead of reading the newest");
    }
    if (own->window_requests > RG_WINDOW_REQUESTS_MAX) {
        return rg_explain(error, error_size, -EINVAL,
                          "window_requests is %u, above the limit of %d", own->window_requests,
                          RG_WINDOW_REQUESTS_MAX);
    }
    if (own->changed > RG_CHANGED_NEWEST) {
        return rg_explain(error, error_size, -EINVAL, "changed is not one of enum rg_changed");
    }
    if (own->tar == NULL && own->tar_member_count > 0) {
        return rg_explain(error, error_size, -EINVAL, "only samples of tar archives have members");
    }
    return 0;
}

static struct rg_sampler_options sampler_options(const struct rg_reader_options *options)
{
    return (struct rg_sampler_options){
        .count = options->indices != NULL ? options->index_count : options->object_count,
        .seed = options->seed,
        .epoch = options->epoch,
        .shuffle = options->shuffle,
        .rank = options->rank,
        .world_size = options->world_size,
        .worker = options->worker,
        .worker_count = options->worker_count,
        .block_size = options->batch_size,
        .remainder = options->remainder,
    };
}

static struct rg_state_epoch epoch_of(const struct rg_reader *reader)
{
    const struct rg_reader_options *options = &reader->options;
    struct rg_state_epoch of = {
        .count = options->object_count,
        .fingerprint = reader->fingerprint,
        .seed = options->seed,
        .epoch = options->epoch,
        .shuffle = options->shuffle,
    };
    memcpy(of.digest, reader->digest, sizeof(of.digest));
    return of;
}

/* Why the sampler refused: nothing else in its options is the caller's. */
static int refuse_share(const struct rg_reader_options *options, char *error, size_t error_size)
{
    if (options->rank >= options->world_size) {
        return rg_explain(error, error_size, -EINVAL, "rank is %u of a world size of %u",
                          options->rank, options->world_size);
    }
    if (options->worker >= options->worker_count) {
        return rg_explain(error, error_size, -EINVAL, "worker is %u of %u workers", options->worker,
                          options->worker_count);
    }
    return rg_explain(error, error_size, -EINVAL, "remainder is %d, which is no rg_remainder",
                      (int)options->remainder);
}

/* Finds out where the epoch goes on, and how what is left is dealt. */
static int sampler_open(struct rg_reader *reader, char *error, size_t error_size)
{
    const struct rg_reader_options *options = &reader->options;
    struct rg_sampler_options deal = sampler_options(options);
    if (rg_sampler_init(&reader->sampler, &deal) < 0) {
        return refuse_share(options, error, error_size);
    }
    struct rg_saved saved = {options->state, options->state_size, options->base,
                             options->base_size};
    struct rg_state_epoch of = epoch_of(reader);
    struct rg_resume *resume = &reader->resume;
    int rc = rg_resume_init(resume, &saved, &of, &deal, error, error_size);
    if (rc == 0 && resume->base != NULL) {
        deal.left = &resume->left;
        deal.own_left = resume->has_own_left ? &resume->own_left : NULL;
        rc = rg_sampler_init(&reader->sampler, &deal);
        RG_ASSERT(rc == 0);
    }
    return rc;
}

static int window_open(struct rg_reader *reader, const struct rg_state *state)
{
    uint64_t most = RG_MAX(reader->sampler.total, UINT64_C(1));
    uint32_t wanted = (uint32_t)RG_MIN((uint64_t)reader->options.window_requests, most);
    wanted = RG_MAX(wanted, state->bit_count);
    reader->capacity = 1;
    while (reader->capacity < wanted) {
        reader->capacity *= 2;
    }
    reader->slots = calloc(reader->capacity, sizeof(*reader->slots));
    reader->arrived.numbers = calloc(reader->capacity, sizeof(uint64_t));
    if (reader->slots == NULL || reader->arrived.numbers == NULL) {
        return -ENOMEM;
    }
    int rc = rg_progress_init(&reader->handed, reader->capacity);
    rc = rc == 0 ? rg_progress_init(&reader->consumed, reader->capacity) : rc;
    if (rc < 0) {
        return rc;
    }
    rg_progress_begin(&reader->handed, state->taken, state->bits, state->bit_count);
    rg_progress_copy(&reader->consumed, &reader->handed);
    uint64_t end = rg_progress_end(&reader->handed);
    for (uint64_t number = reader->handed.first; number < end; number++) {
        if (rg_progress_has(&reader->handed, number)) {
            slot_of(reader, number)->state = SLOT_TAKEN;
        }
    }
    reader->next = reader->handed.first;
    reader->taken = reader->handed.first + reader->handed.ahead;
    return rg_cq_open(&reader->cq, reader->client->runtime, reader->capacity);
}

static int reader_setup(struct rg_reader *reader, char *error, size_t error_size)
{
    struct rg_reader_options *options = &reader->options;
    int rc = rg_source_open(&reader->source, options, error, error_size);
    if (rc < 0) {
        return rc;
    }
    options->object_count = reader->source.count;
    if (options->list_digest != NULL) {
        memcpy(reader->digest, options->list_digest, sizeof(reader->digest));
        options->list_digest = NULL;
    }
    if (options->indices != NULL) {
        rc = indices_check(options, error, error_size);
    } else if (rg_source_fingerprint(&reader->source, &reader->fingerprint) < 0) {
        rc = rg_explain(error, error_size, -EBADMSG, "the manifest is damaged");
    }
    if (rc < 0) {
        return rc;
    }
    rc = sampler_open(reader, error, error_size);
    if (rc < 0) {
        return rc;
    }
    options->tar_members = NULL; /* borrowed for the call only */
    reader->size_guess = SIZE_GUESS;
    reader->bytes_max = RG_MIN(options->window_bytes, reader->client->runtime->memory_max / 2);
    reader->group_samples_max = RG_MAX(options->window_requests / GROUP_DIVISOR, 1u);
    reader->group_bytes_max = RG_MIN(options->tar_request_bytes, reader->bytes_max / GROUP_DIVISOR);
    rc = window_open(reader, &reader->resume.state);
    options->state = options->base = NULL; /* borrowed for the call only, like the state's bits */
    reader->resume.state = (struct rg_state){0};
    if (rc == 0 && rg_progress_end(&reader->handed) > reader->sampler.total) {
        rc = rg_explain(error, error_size, -EINVAL, "the state goes beyond the end of the epoch");
    }
    return rc;
}

int rg_reader_open(struct rg_reader **out_reader, struct rg_client *client,
                   const struct rg_reader_options *options, char *error, size_t error_size)
{
    if (rg_runtime_check(client->runtime) < 0) {
        return rg_explain(error, error_size, -EOWNERDEAD,
                          "the client was opened by the parent of this process");
    }
    struct rg_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        return rg_explain(error, error_size, -ENOMEM, "no memory");
    }
    reader->client = client;
    pthread_mutex_init(&reader->lock, NULL);
    int rc = options_read(&reader->options, options, error, error_size);
    if (rc == 0) {
        rc = reader_setup(reader, error, error_size);
    }
    if (rc < 0) {
        if (rc == -ENOMEM) {
            rg_explain(error, error_size, rc, "no memory for the window");
        }
        rg_reader_close(reader);
        return rc;
    }
    *out_reader = reader;
    return 0;
}

/* A body takes a slab that is somewhat larger, and its head some room. */
static uint64_t charge_of(uint64_t size)
{
    return size + size / 4 + RG_KIB(4);
}

static bool has_room_for_bytes(const struct rg_reader *reader)
{
    return !reader->is_held && (reader->bytes == 0 || reader->bytes < reader->bytes_max);
}

static bool window_has_room(const struct rg_reader *reader)
{
    return reader->next < reader->sampler.total &&
           reader->next - reader->handed.first < reader->capacity &&
           reader->awaited_count + reader->here_count < reader->options.window_requests &&
           has_room_for_bytes(reader);
}

static void sample_arrive(struct rg_reader *reader, uint64_t number,
                          const struct rg_completion *completion)
{
    struct slot *slot = slot_of(reader, number);
    slot->state = SLOT_HERE;
    slot->completion = *completion;
    reader->awaited_count--;
    reader->here_count++;
    if (reader->options.unordered) {
        queue_push(reader, &reader->arrived, number);
    }
}

/* The samples of a request are there without its having been made. */
static void request_settle(struct rg_reader *reader, uint64_t first, enum rg_status status)
{
    uint64_t last = first + slot_of(reader, first)->followers;
    for (uint64_t number = first; number <= last; number++) {
        struct rg_completion completion = {.user_data = number, .status = status};
        sample_arrive(reader, number, &completion);
    }
}

static void sample_join(struct rg_reader *reader, uint64_t number, uint64_t index, uint64_t place,
                        uint64_t size)
{
    struct slot *slot = slot_of(reader, number);
    slot->state = SLOT_OUT;
    slot->was_asked = slot->newest = slot->in_pieces = false;
    slot->followers = 0;
    slot->index = index;
    slot->place = place;
    slot->size = size;
    slot->charge = 0;
    reader->next = number + 1;
    reader->awaited_count++;
}

/* Whether a sample lies so close behind what a request reads that it is read by it, too. */
static bool is_neighbour(const struct rg_reader *reader, const struct rg_source_item *item,
                         const char *shard, uint64_t begin, uint64_t end)
{
    if (item->piece_count != 1 || item->name != shard) {
        return item->piece_count == 0 && item->name == shard;
    }
    const struct rg_tar_piece *piece = &item->pieces[0];
    return piece->offset >= end && piece->offset - end <= RG_TAR_GAP_MAX &&
           piece->offset + piece->size - begin <= reader->group_bytes_max;
}

/* Adds the samples that come next to a request for one range of a shard. */
static void followers_gather(struct rg_reader *reader, uint64_t first,
                             const struct rg_source_item *item)
{
    struct slot *slot = slot_of(reader, first);
    const char *shard = item->name;
    uint64_t begin = item->pieces[0].offset, end = begin + item->size;
    while (slot->followers + 1 < reader->group_samples_max && window_has_room(reader) &&
           slot_of(reader, reader->next)->state == SLOT_FREE) {
        uint64_t index = index_at(reader, reader->next);
        struct rg_source_item next;
        if (rg_source_at(&reader->source, index, &next, NULL) < 0 ||
            !is_neighbour(reader, &next, shard, begin, end)) {
            return;
        }
        uint64_t place = next.piece_count > 0 ? next.pieces[0].offset - begin : 0;
        sample_join(reader, reader->next, index, place, next.size);
        end = RG_MAX(end, begin + place + next.size);
        slot->followers++;
    }
}

/* How far the body of a request for one range of a shard goes. */
static uint64_t group_size(struct rg_reader *reader, uint64_t first)
{
    uint64_t size = 0;
    for (uint64_t number = first; number <= first + slot_of(reader, first)->followers; number++) {
        const struct slot *slot = slot_of(reader, number);
        size = RG_MAX(size, slot->place + slot->size);
    }
    return size;
}

/* The sample that bears the charge of a request. */
static struct slot *last_of(struct rg_reader *reader, uint64_t first)
{
    return slot_of(reader, first + slot_of(reader, first)->followers);
}

static void slot_charge(struct rg_reader *reader, struct slot *slot, uint64_t size)
{
    slot->charge = charge_of(size);
    reader->bytes += slot->charge;
}

static void slot_discharge(struct rg_reader *reader, struct slot *slot)
{
    RG_ASSERT(reader->bytes >= slot->charge);
    reader->bytes -= slot->charge;
    slot->charge = 0;
}

/* Plans the request of a sample whose slot knows its index. False: there is nothing to be read, and
 * the sample has arrived as that. With more than one piece the get is not one yet. */
static bool get_fill(struct rg_reader *reader, uint64_t number, char *name,
                     struct rg_source_item *item, struct rg_get *out_get)
{
    struct slot *slot = slot_of(reader, number);
    bool is_new = !slot->was_asked;
    slot->was_asked = true;
    if (rg_source_at(&reader->source, slot->index, item, name) < 0) {
        request_settle(reader, number, RG_STATUS_SOURCE);
        return false;
    }
    if (item->is_range && item->size == 0) {
        request_settle(reader, number, RG_STATUS_OK);
        return false;
    }
    *out_get = (struct rg_get){
        .bucket = reader->source.bucket,
        .object = item->name,
        .generation = slot->newest ? 0 : item->generation,
        .offset = item->is_range ? item->pieces[0].offset : 0,
        .length = item->is_range ? item->size : RG_WHOLE,
        .user_data = number,
    };
    uint64_t size = item->size != 0 ? item->size : reader->size_guess;
    slot->size = item->size;
    slot->in_pieces = item->piece_count > 1;
    if (item->piece_count == 1) {
        if (is_new) {
            followers_gather(reader, number, item);
        }
        size = out_get->length = group_size(reader, number);
    }
    slot_charge(reader, last_of(reader, number), size);
    return true;
}

/* Submits the request of a sample in pieces. 0 or a negative errno, as rg_submit_get. */
static int pieces_submit(struct rg_reader *reader, const struct rg_get *get,
                         const struct rg_source_item *item)
{
    struct rg_range ranges[RG_TAR_MEMBERS_MAX];
    for (uint32_t i = 0; i < item->piece_count; i++) {
        ranges[i] = (struct rg_range){item->pieces[i].offset, item->pieces[i].size, NULL};
    }
    struct rg_get_ranges all = {
        .bucket = get->bucket,
        .object = get->object,
        .generation = get->generation,
        .ranges = ranges,
        .count = item->piece_count,
        .gap_max = RG_TAR_GAP_MAX,
        .requests_max = RG_MIN(item->piece_count, PIECES_AT_ONCE),
        .user_data = get->user_data,
        .no_checksum = true,
    };
    return rg_submit_get_ranges(reader->client, reader->cq, &all);
}

/* Takes what is to be asked for again. In order, so that `first`, for which there is always room,
 * does not wait behind others. */
static bool again_next(struct rg_reader *reader, uint64_t *out_number)
{
    uint64_t number = RG_MAX(reader->again_first, reader->handed.first);
    while (slot_of(reader, number)->state != SLOT_AGAIN) {
        number++;
        RG_ASSERT(number < reader->next);
    }
    reader->again_first = number;
    if (number > reader->handed.first && !has_room_for_bytes(reader)) {
        return false;
    }
    slot_of(reader, number)->state = SLOT_OUT;
    reader->again_count--;
    *out_number = number;
    return true;
}

/* Takes the next sample to ask for; false: none, or none that may be asked for now. */
static bool sample_next(struct rg_reader *reader, uint64_t *out_number)
{
    if (reader->again_count > 0) {
        return again_next(reader, out_number);
    }
    while (window_has_room(reader)) {
        uint64_t number = reader->next;
        struct slot *slot = slot_of(reader, number);
        if (slot->state == SLOT_TAKEN) {
            reader->next++; /* the state that was gone on with said so */
            continue;
        }
        RG_ASSERT(slot->state == SLOT_FREE);
        sample_join(reader, number, index_at(reader, number), 0, 0);
        *out_number = number;
        return true;
    }
    return false;
}

/* What the client had no room for, say, is asked for later. */
static void request_postpone(struct rg_reader *reader, uint64_t first)
{
    slot_of(reader, first)->state = SLOT_AGAIN;
    slot_discharge(reader, last_of(reader, first));
    reader->again_first = RG_MIN(reader->again_first, first);
    reader->again_count++;
}

/* Notes what became of submitting a request that is no get. False: there is no room now. */
static bool submission_note(struct rg_reader *reader, uint64_t number, int rc)
{
    if (rc == 0) {
        reader->out_count++;
    } else if (rc == -EINVAL) {
        request_settle(reader, number, RG_STATUS_BAD_REQUEST);
    } else {
        request_postpone(reader, number);
    }
    return rc == 0 || rc == -EINVAL;
}

/* Collects gets for one batch, and submits at once what is no get. */
static uint32_t gets_collect(struct rg_reader *reader, struct rg_get *gets, bool *out_is_full)
{
    uint32_t count = 0;
    uint64_t number;
    *out_is_full = false;
    while (count < SUBMIT_MAX && !*out_is_full && sample_next(reader, &number)) {
        struct rg_source_item item;
        struct rg_get *get = &gets[count];
        if (!get_fill(reader, number, reader->names[count], &item, get)) {
            continue;
        }
        if (item.piece_count > 1) {
            int rc = pieces_submit(reader, get, &item);
            *out_is_full = !submission_note(reader, number, rc);
        } else {
            count++;
        }
    }
    return count;
}

/* Submits one batch. False: there is nothing more to submit now. */
static bool window_refill_some(struct rg_reader *reader)
{
    struct rg_get gets[SUBMIT_MAX];
    bool is_full;
    uint32_t count = gets_collect(reader, gets, &is_full), done = 0;
    int rc = 1;
    while (done < count && rc > 0) {
        rc = rg_submit_gets(reader->client, reader->cq, gets + done, count - done);
        if (rc == -EINVAL) {
            request_settle(reader, gets[done++].user_data, RG_STATUS_BAD_REQUEST);
            rc = 1;
            continue;
        }
        done += rc > 0 ? (uint32_t)rc : 0;
        reader->out_count += rc > 0 ? (uint32_t)rc : 0;
    }
    is_full = is_full || done < count;
    while (done < count) {
        request_postpone(reader, gets[done++].user_data);
    }
    return count == SUBMIT_MAX && !is_full;
}

static void window_refill(struct rg_reader *reader)
{
    while (window_refill_some(reader)) {
    }
}

/* A sample is the caller's, or skipped. */
static void sample_end(struct rg_reader *reader, uint64_t number)
{
    struct slot *slot = slot_of(reader, number);
    slot_discharge(reader, slot);
    slot->state = SLOT_TAKEN;
    reader->taken++;
    uint64_t first = reader->handed.first;
    rg_progress_add(&reader->handed, number);
    while (first < reader->handed.first) {
        slot_of(reader, first++)->state = SLOT_FREE;
        reader->is_held = false;
    }
    reader->next = RG_MAX(reader->next, reader->handed.first);
}

/* Cuts what has come for a sample in pieces: that they lie as planned is what the sample's parts
 * rely on. */
static void pieces_unite(struct rg_completion *completion, const struct rg_source_item *item)
{
    const struct rg_range_result *results = completion->data;
    const uint8_t *begin = results[0].data;
    uint64_t size = 0;
    for (uint32_t i = 0; i < item->piece_count; i++) {
        RG_ASSERT((const uint8_t *)results[i].data == begin + item->pieces[i].place);
        size = item->pieces[i].place + results[i].size;
        if (results[i].size < item->pieces[i].size) {
            break;
        }
    }
    completion->data = begin;
    completion->size = size;
}

/* What a sample has of the body of its request. */
static struct rg_completion completion_cut(const struct slot *slot,
                                           const struct rg_completion *completion)
{
    struct rg_completion cut = *completion;
    if (cut.status == RG_STATUS_OK) {
        uint64_t begin = RG_MIN(slot->place, completion->size);
        cut.data = (const uint8_t *)completion->data + begin;
        cut.size = RG_MIN(slot->size, completion->size - begin);
        cut.crc32c = cut.size == completion->size ? completion->crc32c : 0;
    }
    return cut;
}

static void request_arrive(struct rg_reader *reader, struct rg_completion *completion,
                           const struct rg_source_item *item)
{
    uint64_t first = completion->user_data;
    uint32_t followers = slot_of(reader, first)->followers;
    if (reader->source.cursor == NULL) {
        sample_arrive(reader, first, completion);
        return;
    }
    if (slot_of(reader, first)->in_pieces && completion->status == RG_STATUS_OK) {
        pieces_unite(completion, item);
    }
    rg_lease_share(completion->lease, followers);
    for (uint32_t i = 0; i <= followers; i++) {
        struct rg_completion cut = completion_cut(slot_of(reader, first + i), completion);
        cut.user_data = first + i;
        sample_arrive(reader, first + i, &cut);
    }
}

static void request_skip(struct rg_reader *reader, uint64_t first)
{
    uint64_t last = first + slot_of(reader, first)->followers;
    for (uint64_t number = first; number <= last; number++) {
        reader->skipped++;
        reader->awaited_count--;
        sample_end(reader, number);
    }
}

static void request_notice(struct rg_reader *reader, struct rg_completion *completion)
{
    uint64_t first = completion->user_data;
    struct slot *slot = slot_of(reader, first);
    RG_ASSERT(slot->state == SLOT_OUT);
    reader->out_count--;
    struct rg_source_item item = {0};
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    bool is_gone = completion->status == RG_STATUS_NOT_FOUND && !slot->newest;
    bool is_known = (is_gone || slot->in_pieces) &&
                    rg_source_at(&reader->source, slot->index, &item, name) == 0;
    bool is_changed = is_gone && is_known && item.generation != 0;
    if (is_changed && reader->options.changed == RG_CHANGED_SKIP) {
        rg_lease_release(completion->lease);
        request_skip(reader, first);
    } else if (is_changed && reader->options.changed == RG_CHANGED_NEWEST) {
        rg_lease_release(completion->lease);
        slot->newest = true;
        request_postpone(reader, first);
    } else {
        request_arrive(reader, completion, &item);
    }
    reader->size_guess = RG_MAX(reader->size_guess, completion->size);
}

/* Hands out what may be taken now. */
static uint32_t samples_take(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max)
{
    uint32_t count = 0;
    while (count < out_max && reader->here_count > 0) {
        uint64_t number = reader->handed.first;
        if (reader->options.unordered) {
            number = queue_pop(reader, &reader->arrived);
        } else if (slot_of(reader, number)->state != SLOT_HERE) {
            break;
        }
        reader->here_count--;
        struct slot *slot = slot_of(reader, number);
        out[count].index = slot->index;
        out[count].number = number;
        out[count].completion = slot->completion;
        count++;
        sample_end(reader, number);
    }
    return count;
}

static void completions_notice(struct rg_reader *reader, struct rg_completion *done, int count)
{
    for (int i = 0; i < count; i++) {
        request_notice(reader, &done[i]);
    }
}

static void completions_poll(struct rg_reader *reader)
{
    struct rg_completion done[SUBMIT_MAX];
    int count;
    do {
        count = rg_cq_poll(reader->cq, done, SUBMIT_MAX);
        completions_notice(reader, done, count);
    } while (count == SUBMIT_MAX);
}

/* Waits for at least one, and up to `wanted`, or until it has been quiet for QUIET_NS. 0, -ETIME or
 * -EINTR. */
static int completions_wait(struct rg_reader *reader, uint32_t wanted, uint64_t deadline_ns)
{
    struct rg_completion done[SUBMIT_MAX];
    uint64_t began_ns = rg_now_ns(), quiet_end_ns = began_ns + QUIET_NS - reader->quiet_ns;
    uint64_t min = RG_MIN((uint64_t)RG_MIN(wanted, SUBMIT_MAX), reader->out_count / WAIT_DIVISOR);
    min = RG_MAX(RG_MIN(min, WAIT_BYTES / reader->size_guess), UINT64_C(1));
    pthread_mutex_unlock(&reader->lock);
    int count =
        rg_cq_wait(reader->cq, done, SUBMIT_MAX, (uint32_t)min, RG_MIN(deadline_ns, quiet_end_ns));
    pthread_mutex_lock(&reader->lock);
    completions_notice(reader, done, count);
    if (count > 0) {
        reader->quiet_ns = 0;
    } else {
        reader->quiet_ns = RG_MIN(reader->quiet_ns + (rg_now_ns() - began_ns), QUIET_NS);
    }
    return count == -ETIME && quiet_end_ns < deadline_ns ? 0 : RG_MIN(count, 0);
}

/* Lets go of what has come before its turn, to be asked for again. The samples of a request are
 * here or not here together, since those before them are not here. */
static void window_put_back(struct rg_reader *reader)
{
    reader->bytes_max = RG_MAX(RG_MIN(reader->bytes, reader->bytes_max) / 2, UINT64_C(1));
    reader->is_held = true;
    for (uint64_t number = reader->handed.first; number < reader->next; number++) {
        struct slot *slot = slot_of(reader, number);
        if (slot->state != SLOT_HERE || slot->completion.status != RG_STATUS_OK) {
            continue;
        }
        uint64_t last = number + slot->followers;
        request_postpone(reader, number);
        for (uint64_t each = number; each <= last; each++) {
            slot = slot_of(reader, each);
            rg_lease_release(slot->completion.lease);
            slot->state = each == number ? SLOT_AGAIN : SLOT_OUT;
            reader->here_count--;
            reader->awaited_count++;
        }
        number = last;
    }
}

/* Where what is out waits for memory, and nothing has come for a while: makes room. False: it is
 * the caller who can, with the samples that it has just been given. */
static bool window_relieve(struct rg_reader *reader, bool caller_has_some)
{
    if (reader->quiet_ns < QUIET_NS) {
        return true;
    }
    reader->quiet_ns = 0;
    if (!rg_runtime_is_starved(reader->client->runtime)) {
        return true;
    }
    if (!caller_has_some && reader->here_count > 0) {
        window_put_back(reader);
    }
    return !caller_has_some;
}

/* Others have filled the client, and nothing of ours is out whose end could be waited for. */
static int client_full_pause(struct rg_reader *reader, uint64_t deadline_ns)
{
    if (rg_now_ns() >= deadline_ns) {
        return -ETIME;
    }
    struct timespec pause = {.tv_nsec = CLIENT_FULL_PAUSE_NS};
    pthread_mutex_unlock(&reader->lock);
    int rc = nanosleep(&pause, NULL);
    pthread_mutex_lock(&reader->lock);
    return rc < 0 ? -EINTR : 0;
}

static bool reader_at_end(const struct rg_reader *reader)
{
    return reader->handed.first == reader->sampler.total;
}

static int next_locked(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max,
                       uint32_t min, uint64_t deadline_ns)
{
    uint32_t count = 0;
    int rc = 0;
    while (rc == 0) {
        window_refill(reader);
        completions_poll(reader);
        count += samples_take(reader, out + count, out_max - count);
        if (count >= min || reader_at_end(reader)) {
            break;
        }
        window_refill(reader);
        if (reader->out_count > 0) {
            rc = completions_wait(reader, min - count, deadline_ns);
            if (!window_relieve(reader, count > 0)) {
                break;
            }
        } else if (reader->here_count == 0) {
            rc = client_full_pause(reader, deadline_ns);
        }
    }
    window_refill(reader);
    return count > 0 || rc == 0 ? (int)count : rc;
}

int rg_reader_next(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max, uint32_t min,
                   uint64_t deadline_ns)
{
    if (rg_runtime_check(reader->client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (min == 0 || min > out_max) {
        return -EINVAL;
    }
    pthread_mutex_lock(&reader->lock);
    int rc = next_locked(reader, out, out_max, min, deadline_ns);
    pthread_mutex_unlock(&reader->lock);
    return rc;
}

void rg_reader_interrupt(struct rg_reader *reader)
{
    rg_cq_interrupt(reader->cq);
}

uint64_t rg_reader_total(const struct rg_reader *reader)
{
    return reader->sampler.total;
}

static void look_begin(const struct rg_reader *reader)
{
    pthread_mutex_lock(&((struct rg_reader *)(uintptr_t)reader)->lock);
}

static void look_end(const struct rg_reader *reader)
{
    pthread_mutex_unlock(&((struct rg_reader *)(uintptr_t)reader)->lock);
}

uint64_t rg_reader_taken(const struct rg_reader *reader)
{
    look_begin(reader);
    uint64_t taken = reader->taken;
    look_end(reader);
    return taken;
}

uint64_t rg_reader_skipped(const struct rg_reader *reader)
{
    look_begin(reader);
    uint64_t skipped = reader->skipped;
    look_end(reader);
    return skipped;
}

void rg_reader_consume(struct rg_reader *reader)
{
    look_begin(reader);
    rg_progress_copy(&reader->consumed, &reader->handed);
    look_end(reader);
}

size_t rg_reader_state(const struct rg_reader *reader, void *buf, size_t size)
{
    const struct rg_reader_options *options = &reader->options;
    if (options->indices != NULL) {
        return 0;
    }
    const struct rg_progress *consumed =
        options->consume_later ? &reader->consumed : &reader->handed;
    uint8_t bits[RG_STATE_BITS_MAX / 8];
    look_begin(reader);
    struct rg_state state = {
        .of = epoch_of(reader),
        .unordered = options->unordered,
        .has_base = reader->resume.base != NULL,
        .base_crc = reader->resume.base != NULL ? reader->resume.base->crc : 0,
        .rank = options->rank,
        .world_size = options->world_size,
        .worker = options->worker,
        .worker_count = options->worker_count,
        .batch_size = options->batch_size,
        .remainder = options->remainder,
        .taken = consumed->first,
        .bit_count = rg_progress_bits(consumed, bits),
        .bits = bits,
    };
    look_end(reader);
    return rg_state_encode(&state, buf, size);
}

const void *rg_reader_base(const struct rg_reader *reader, size_t *out_size)
{
    const struct rg_base *base = reader->resume.base;
    return base != NULL ? rg_base_data(base, out_size) : NULL;
}

/* Ends what is out and gives everything back. */
static void window_drain(struct rg_reader *reader)
{
    rg_client_cancel_all(reader->client, reader->cq);
    while (reader->out_count > 0) {
        struct rg_completion done;
        if (rg_cq_wait(reader->cq, &done, 1, 1, RG_FOREVER) == 1) {
            rg_lease_release(done.lease);
            reader->out_count--;
        }
    }
    for (uint32_t i = 0; i < reader->capacity; i++) {
        if (reader->slots[i].state == SLOT_HERE) {
            rg_lease_release(reader->slots[i].completion.lease);
        }
    }
}

void rg_reader_close(struct rg_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    bool is_owner = rg_runtime_check(reader->client->runtime) == 0;
    if (reader->cq != NULL && is_owner) {
        window_drain(reader);
    }
    rg_cq_close(reader->cq);
    rg_source_close(&reader->source);
    rg_resume_fini(&reader->resume);
    rg_progress_fini(&reader->handed);
    rg_progress_fini(&reader->consumed);
    free(reader->slots);
    free(reader->arrived.numbers);
    if (is_owner) {
        pthread_mutex_destroy(&reader->lock);
    }
    free(reader);
}
