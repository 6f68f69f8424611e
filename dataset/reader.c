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
 *            +---- AGAIN <------+  asked for once more, without a generation
 *
 * There is no thread: the window is refilled by whoever takes samples, before and after. */
#include "dataset/sampler.h"
#include "dataset/state.h"
#include "dataset/tar_index.h"
#include "gcs/checksum.h"
#include "gcs/client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Requests submitted at a time, for which names are kept. */
#define SUBMIT_MAX 64
/* What an object of unknown size counts as until larger ones were seen. */
#define SIZE_GUESS RG_KIB(64)
/* Of objects that stand for all of them in a fingerprint. */
#define FINGERPRINT_SAMPLES 64
/* Completions are waited for many at a time, since each wait that ends costs a switch between
 * threads: but no more than this part of what is out, so that the window is refilled in time, and
 * not so many bytes that the first ones have left the cache. */
#define WAIT_DIVISOR 8
#define WAIT_BYTES RG_KIB(512)
/* How long to wait where the client has no room and nothing of ours is out. */
#define CLIENT_FULL_PAUSE_NS RG_NS_PER_MS

enum slot_state { SLOT_FREE = 0, SLOT_OUT, SLOT_AGAIN, SLOT_HERE, SLOT_TAKEN };

struct slot {
    enum slot_state state;
    bool newest; /* was asked for without a generation */
    uint64_t index, charge;
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
    struct rg_reader_options options;
    char *bucket; /* owned */
    uint32_t fingerprint;
    struct rg_sampler sampler;
    struct slot *slots;
    uint32_t capacity;    /* a power of two */
    struct queue arrived; /* of unordered readers: in the order of arrival */
    struct queue again;
    uint64_t first, next;
    uint64_t known_end; /* up to here the state that was gone on with says what was taken */
    uint32_t here_count;
    uint64_t taken, skipped;
    uint64_t bytes, bytes_max; /* charged to what is in the window */
    uint64_t size_guess;
    uint32_t out_count;
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

/* What one sample is: an object, or a range of one. */
struct item {
    const char *name;
    int64_t generation;
    uint64_t size; /* 0: unknown, but for ranges */
    uint64_t offset;
    bool is_range;
};

static int object_at(const struct rg_reader *reader, uint64_t index, struct rg_object *out_object,
                     char *name)
{
    if (reader->options.manifest != NULL) {
        return rg_manifest_get(reader->options.manifest, index, out_object, name);
    }
    *out_object = reader->options.objects[index];
    return 0;
}

/* The item at an index. Its name is in the manifest's case copied to `name`. */
static int item_at(const struct rg_reader *reader, uint64_t index, struct item *out_item,
                   char *name)
{
    if (reader->options.tar != NULL) {
        struct rg_tar_range range;
        int rc = rg_tar_index_range(reader->options.tar, index, &range);
        if (rc == 0) {
            *out_item = (struct item){range.name, range.generation, range.size, range.offset, true};
        }
        return rc;
    }
    struct rg_object object;
    int rc = object_at(reader, index, &object, name);
    if (rc == 0) {
        *out_item = (struct item){object.name, object.generation, object.size, 0, false};
    }
    return rc;
}

/* Tells one set of objects from another, without reading all of them. */
static int fingerprint_make(struct rg_reader *reader)
{
    uint64_t count = reader->options.object_count;
    uint32_t crc = rg_crc32c(0, &count, sizeof(count));
    uint64_t samples = RG_MIN(count, (uint64_t)FINGERPRINT_SAMPLES);
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t index = samples > 1 ? (count - 1) / (samples - 1) * i : 0;
        struct item item;
        int rc = item_at(reader, index, &item, reader->names[0]);
        if (rc < 0) {
            return rc;
        }
        crc = rg_crc32c(crc, item.name, strlen(item.name) + 1);
        crc = rg_crc32c(crc, &item.size, sizeof(item.size));
        crc = rg_crc32c(crc, &item.generation, sizeof(item.generation));
        if (item.is_range) {
            crc = rg_crc32c(crc, &item.offset, sizeof(item.offset));
        }
    }
    reader->fingerprint = crc;
    return 0;
}

static void objects_choose(struct rg_reader_options *own)
{
    if (own->tar != NULL) {
        own->bucket = rg_tar_index_bucket(own->tar);
        own->object_count = rg_tar_index_count(own->tar);
    } else if (own->manifest != NULL) {
        own->bucket = rg_manifest_bucket(own->manifest);
        own->object_count = rg_manifest_count(own->manifest);
    }
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
    objects_choose(own);
    bool has_array = own->manifest == NULL && own->tar == NULL;
    if (own->bucket == NULL || (has_array && own->objects == NULL && own->object_count != 0)) {
        return rg_explain(error, error_size, -EINVAL,
                          "neither a manifest nor a bucket and its objects were given");
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
    return 0;
}

static struct rg_sampler_options sampler_options(const struct rg_reader_options *options)
{
    return (struct rg_sampler_options){
        .count = options->object_count,
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

/* What a state must agree in with the options, whoever goes on. */
static int state_check(const struct rg_reader *reader, const struct rg_state *state, char *error,
                       size_t error_size)
{
    const struct rg_reader_options *options = &reader->options;
    if (state->count != options->object_count) {
        return rg_explain(error, error_size, -EINVAL,
                          "the state is of %" PRIu64 " objects and not of %" PRIu64, state->count,
                          options->object_count);
    }
    if (state->fingerprint != reader->fingerprint) {
        return rg_explain(error, error_size, -EINVAL,
                          "the state is of other objects: names, sizes or generations differ");
    }
    if (state->seed != options->seed || state->epoch != options->epoch) {
        return rg_explain(error, error_size, -EINVAL,
                          "the state is of seed %" PRIu64 " and epoch %" PRIu64
                          " and not of %" PRIu64 " and %" PRIu64,
                          state->seed, state->epoch, options->seed, options->epoch);
    }
    bool is_shuffled = (state->flags & RG_STATE_SHUFFLE) != 0;
    if (is_shuffled != options->shuffle) {
        return rg_explain(error, error_size, -EINVAL,
                          "the state is of an epoch that was%s shuffled",
                          is_shuffled ? "" : " not");
    }
    return 0;
}

static bool is_same_reader(const struct rg_reader_options *options, const struct rg_state *state)
{
    return state->rank == options->rank && state->world_size == options->world_size &&
           state->worker == options->worker && state->worker_count == options->worker_count &&
           state->batch_size == options->batch_size && state->remainder == options->remainder;
}

static bool has_bits(const struct rg_state *state)
{
    for (uint32_t i = 0; i < state->bit_count / 8; i++) {
        if (state->bits[i] != 0) {
            return true;
        }
    }
    return false;
}

/* How many positions the ranks that saved the state were done with, all together. */
static int state_consumed(const struct rg_reader *reader, const struct rg_state *state,
                          uint64_t *out_consumed)
{
    struct rg_sampler_options options = sampler_options(&reader->options);
    options.rank = state->rank;
    options.world_size = state->world_size;
    options.worker = 0;
    options.worker_count = 1;
    options.block_size = state->batch_size;
    options.remainder = (enum rg_remainder)state->remainder;
    options.consumed = state->consumed;
    struct rg_sampler sampler;
    if (rg_sampler_init(&sampler, &options) < 0 || state->taken > sampler.rank_total) {
        return -EINVAL;
    }
    *out_consumed = rg_sampler_consumed(&sampler, state->taken);
    return 0;
}

/* Decides where to begin: sets `consumed`, and in the same reader's case `first` and *out_state. */
static int state_apply(struct rg_reader *reader, uint64_t *out_consumed, struct rg_state *out_state,
                       char *error, size_t error_size)
{
    const struct rg_reader_options *options = &reader->options;
    *out_consumed = 0;
    if (options->state == NULL) {
        return 0;
    }
    struct rg_state state;
    if (rg_state_decode(options->state, options->state_size, &state) < 0) {
        return rg_explain(error, error_size, -EINVAL, "the state is damaged or of another version");
    }
    int rc = state_check(reader, &state, error, error_size);
    if (rc < 0) {
        return rc;
    }
    if (is_same_reader(options, &state)) {
        *out_consumed = state.consumed;
        *out_state = state;
        return 0;
    }
    if (state.worker_count != 1 || has_bits(&state) ||
        state_consumed(reader, &state, out_consumed) < 0) {
        return rg_explain(
            error, error_size, -EINVAL,
            "the state is of rank %u of %u, worker %u of %u, batches of %u, and can only "
            "be gone on with there",
            state.rank, state.world_size, state.worker, state.worker_count, state.batch_size);
    }
    return 0;
}

static int window_open(struct rg_reader *reader, const struct rg_state *state)
{
    uint32_t wanted = RG_MAX(reader->options.window_requests, state->bit_count);
    reader->capacity = 1;
    while (reader->capacity < wanted) {
        reader->capacity *= 2;
    }
    reader->slots = calloc(reader->capacity, sizeof(*reader->slots));
    reader->arrived.numbers = calloc(reader->capacity, sizeof(uint64_t));
    reader->again.numbers = calloc(reader->capacity, sizeof(uint64_t));
    if (reader->slots == NULL || reader->arrived.numbers == NULL || reader->again.numbers == NULL) {
        return -ENOMEM;
    }
    reader->first = reader->next = reader->taken = state->taken;
    for (uint32_t i = 0; i < state->bit_count; i++) {
        if ((state->bits[i / 8] & (1 << (i % 8))) != 0) {
            slot_of(reader, reader->first + i)->state = SLOT_TAKEN;
            reader->taken++;
        }
    }
    reader->known_end = reader->first + state->bit_count;
    return rg_cq_open(&reader->cq, reader->client->runtime, reader->capacity);
}

static int reader_setup(struct rg_reader *reader, char *error, size_t error_size)
{
    struct rg_reader_options *options = &reader->options;
    reader->bucket = strdup(options->bucket);
    if (reader->bucket == NULL) {
        return -ENOMEM;
    }
    int rc = fingerprint_make(reader);
    if (rc < 0) {
        return rg_explain(error, error_size, rc, "the manifest is damaged");
    }
    struct rg_state state = {0};
    struct rg_sampler_options sampling = sampler_options(options);
    rc = state_apply(reader, &sampling.consumed, &state, error, error_size);
    if (rc < 0) {
        return rc;
    }
    if (rg_sampler_init(&reader->sampler, &sampling) < 0) {
        return rg_explain(error, error_size, -EINVAL,
                          "rank %u of %u, worker %u of %u, or remainder %d makes no sense",
                          options->rank, options->world_size, options->worker,
                          options->worker_count, (int)options->remainder);
    }
    uint64_t bits = state.bit_count;
    if (state.taken > reader->sampler.total || bits > RG_STATE_BITS_MAX) {
        return rg_explain(error, error_size, -EINVAL, "the state goes beyond the end of the epoch");
    }
    options->state = NULL; /* borrowed for the call only */
    reader->size_guess = SIZE_GUESS;
    reader->bytes_max = RG_MIN(options->window_bytes, reader->client->runtime->memory_max / 2);
    return window_open(reader, &state);
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

static void first_advance(struct rg_reader *reader)
{
    while (reader->first < reader->next && slot_of(reader, reader->first)->state == SLOT_TAKEN) {
        slot_of(reader, reader->first++)->state = SLOT_FREE;
    }
}

/* A body takes a slab that is somewhat larger, and its head some room. */
static uint64_t charge_of(const struct rg_reader *reader, const struct item *item)
{
    uint64_t size = item->size != 0 || item->is_range ? item->size : reader->size_guess;
    return size + size / 4 + RG_KIB(4);
}

static bool window_has_room(const struct rg_reader *reader)
{
    return reader->next < reader->sampler.total &&
           reader->next - reader->first < reader->capacity &&
           reader->out_count + reader->here_count < reader->options.window_requests &&
           (reader->bytes == 0 || reader->bytes < reader->bytes_max);
}

static void sample_arrive(struct rg_reader *reader, uint64_t number,
                          const struct rg_completion *completion)
{
    struct slot *slot = slot_of(reader, number);
    slot->state = SLOT_HERE;
    slot->completion = *completion;
    reader->here_count++;
    if (reader->options.unordered) {
        queue_push(reader, &reader->arrived, number);
    }
}

/* The sample is there without a request having been made. */
static void sample_settle(struct rg_reader *reader, uint64_t number, enum rg_status status)
{
    struct rg_completion completion = {.user_data = number, .status = status};
    sample_arrive(reader, number, &completion);
}

/* Fills a get for a sample whose slot knows its index. False: there is nothing to be read, and the
 * sample has arrived as that. */
static bool get_fill(struct rg_reader *reader, uint64_t number, char *name, struct rg_get *out_get)
{
    struct slot *slot = slot_of(reader, number);
    struct item item;
    if (item_at(reader, slot->index, &item, name) < 0) {
        sample_settle(reader, number, RG_STATUS_SOURCE);
        return false;
    }
    if (item.is_range && item.size == 0) {
        sample_settle(reader, number, RG_STATUS_OK);
        return false;
    }
    if (slot->state != SLOT_AGAIN) {
        slot->charge = charge_of(reader, &item);
        reader->bytes += slot->charge;
    }
    *out_get = (struct rg_get){
        .bucket = reader->bucket,
        .object = item.name,
        .generation = slot->newest ? 0 : item.generation,
        .offset = item.offset,
        .length = item.is_range ? item.size : RG_WHOLE,
        .user_data = number,
    };
    return true;
}

/* Takes the next sample to ask for; false: none, or none that may be asked for now. */
static bool sample_next(struct rg_reader *reader, uint64_t *out_number)
{
    if (reader->again.count > 0) {
        *out_number = queue_pop(reader, &reader->again);
        return true;
    }
    while (window_has_room(reader)) {
        uint64_t number = reader->next++;
        struct slot *slot = slot_of(reader, number);
        if (slot->state == SLOT_TAKEN) {
            first_advance(reader); /* the state that was gone on with said so */
            continue;
        }
        RG_ASSERT(slot->state == SLOT_FREE);
        slot->index = rg_sampler_at(&reader->sampler, number);
        slot->newest = false;
        *out_number = number;
        return true;
    }
    return false;
}

/* What the client had no room for is asked for later. */
static void sample_postpone(struct rg_reader *reader, uint64_t number)
{
    slot_of(reader, number)->state = SLOT_AGAIN;
    queue_push(reader, &reader->again, number);
}

/* Submits one batch. False: there is nothing more to submit now. */
static bool window_refill_some(struct rg_reader *reader)
{
    struct rg_get gets[SUBMIT_MAX];
    uint32_t count = 0;
    uint64_t number;
    while (count < SUBMIT_MAX && sample_next(reader, &number)) {
        count += get_fill(reader, number, reader->names[count], &gets[count]);
    }
    uint32_t done = 0;
    int rc = 1;
    while (done < count && rc > 0) {
        rc = rg_submit_gets(reader->client, reader->cq, gets + done, count - done);
        if (rc == -EINVAL) {
            sample_settle(reader, gets[done++].user_data, RG_STATUS_BAD_REQUEST);
            rc = 1;
            continue;
        }
        for (int i = 0; i < rc; i++) {
            slot_of(reader, gets[done++].user_data)->state = SLOT_OUT;
            reader->out_count++;
        }
    }
    bool is_full = done < count;
    while (done < count) {
        sample_postpone(reader, gets[done++].user_data);
    }
    return count == SUBMIT_MAX && !is_full;
}

static void window_refill(struct rg_reader *reader)
{
    while (window_refill_some(reader)) {
    }
}

static void sample_consume(struct rg_reader *reader, uint64_t number)
{
    struct slot *slot = slot_of(reader, number);
    RG_ASSERT(reader->bytes >= slot->charge);
    reader->bytes -= slot->charge;
    slot->charge = 0;
    slot->state = SLOT_TAKEN;
    reader->taken++;
    first_advance(reader);
}

static void sample_notice(struct rg_reader *reader, const struct rg_completion *completion)
{
    uint64_t number = completion->user_data;
    struct slot *slot = slot_of(reader, number);
    RG_ASSERT(slot->state == SLOT_OUT);
    reader->out_count--;
    reader->size_guess = RG_MAX(reader->size_guess, completion->size);
    struct item item;
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    bool is_changed = completion->status == RG_STATUS_NOT_FOUND && !slot->newest &&
                      item_at(reader, slot->index, &item, name) == 0 && item.generation != 0;
    if (is_changed && reader->options.changed == RG_CHANGED_SKIP) {
        rg_lease_release(completion->lease);
        reader->skipped++;
        sample_consume(reader, number);
    } else if (is_changed && reader->options.changed == RG_CHANGED_NEWEST) {
        rg_lease_release(completion->lease);
        slot->newest = true;
        sample_postpone(reader, number);
    } else {
        sample_arrive(reader, number, completion);
    }
}

/* Hands out what may be taken now. */
static uint32_t samples_take(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max)
{
    uint32_t count = 0;
    while (count < out_max && reader->here_count > 0) {
        uint64_t number = reader->first;
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
        sample_consume(reader, number);
    }
    return count;
}

static void completions_notice(struct rg_reader *reader, const struct rg_completion *done,
                               int count)
{
    for (int i = 0; i < count; i++) {
        sample_notice(reader, &done[i]);
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

/* Waits for at least one, and up to `wanted`. 0, -ETIME or -EINTR. */
static int completions_wait(struct rg_reader *reader, uint32_t wanted, uint64_t deadline_ns)
{
    struct rg_completion done[SUBMIT_MAX];
    uint64_t min = RG_MIN((uint64_t)RG_MIN(wanted, SUBMIT_MAX), reader->out_count / WAIT_DIVISOR);
    min = RG_MAX(RG_MIN(min, WAIT_BYTES / reader->size_guess), UINT64_C(1));
    int count = rg_cq_wait(reader->cq, done, SUBMIT_MAX, (uint32_t)min, deadline_ns);
    completions_notice(reader, done, count);
    return count < 0 ? count : 0;
}

/* Others have filled the client, and nothing of ours is out whose end could be waited for. */
static int client_full_pause(uint64_t deadline_ns)
{
    if (rg_now_ns() >= deadline_ns) {
        return -ETIME;
    }
    struct timespec pause = {.tv_nsec = CLIENT_FULL_PAUSE_NS};
    return nanosleep(&pause, NULL) < 0 ? -EINTR : 0;
}

static bool reader_at_end(const struct rg_reader *reader)
{
    return reader->first == reader->sampler.total;
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
        } else if (reader->here_count == 0) {
            rc = client_full_pause(deadline_ns);
        }
    }
    window_refill(reader);
    return count > 0 || rc == 0 ? (int)count : rc;
}

uint64_t rg_reader_total(const struct rg_reader *reader)
{
    return reader->sampler.total;
}

uint64_t rg_reader_taken(const struct rg_reader *reader)
{
    return reader->taken;
}

uint64_t rg_reader_skipped(const struct rg_reader *reader)
{
    return reader->skipped;
}

/* The bits of what was taken behind `first`, up to the last that was. */
static uint32_t bits_make(const struct rg_reader *reader, uint8_t *bits)
{
    uint32_t count = 0;
    memset(bits, 0, RG_STATE_BITS_MAX / 8);
    uint64_t end = RG_MAX(reader->next, reader->known_end);
    for (uint64_t number = reader->first; number < end; number++) {
        uint32_t bit = (uint32_t)(number - reader->first);
        if (reader->slots[number & (reader->capacity - 1)].state == SLOT_TAKEN) {
            bits[bit / 8] |= (uint8_t)(1 << (bit % 8));
            count = (bit / 8 + 1) * 8;
        }
    }
    return count;
}

size_t rg_reader_state(const struct rg_reader *reader, void *buf, size_t size)
{
    const struct rg_reader_options *options = &reader->options;
    uint8_t bits[RG_STATE_BITS_MAX / 8];
    struct rg_state state = {
        .flags = (options->shuffle ? RG_STATE_SHUFFLE : 0u) |
                 (options->unordered ? RG_STATE_UNORDERED : 0u),
        .count = options->object_count,
        .fingerprint = reader->fingerprint,
        .seed = options->seed,
        .epoch = options->epoch,
        .consumed = reader->sampler.options.consumed,
        .rank = options->rank,
        .world_size = options->world_size,
        .worker = options->worker,
        .worker_count = options->worker_count,
        .batch_size = options->batch_size,
        .remainder = options->remainder,
        .taken = reader->first,
        .bit_count = bits_make(reader, bits),
        .bits = bits,
    };
    return rg_state_encode(&state, buf, size);
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
    free(reader->slots);
    free(reader->arrived.numbers);
    free(reader->again.numbers);
    free(reader->bucket);
    free(reader);
}
