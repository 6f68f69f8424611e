/* A reader: see <ringest/dataset.h>.
 *
 * The reader owns what its epoch needs, and moves samples through it:
 *
 *   source, sampler -> plan -> rg_client -> window -> the caller
 *                       ^                      |
 *                       +---- what has room ---+
 *
 * The window (dataset/window.h) knows which samples are out, here and taken, the plan
 * (dataset/plan.h) what is read next, and resume (dataset/resume.h) where the epoch continues. This
 * file makes the requests, waits for them, and decides what becomes of objects that have changed.
 *
 *   open -> next, next, ... until 0 -> close
 *
 * There is no thread: taking samples refills the window, before and after. That is one
 * thread at a time. `lock` guards the window, `consumed`, and what follows them in the struct; it
 * is held except while the reader waits, so that other threads may ask how far the reader is. */
#include "dataset/plan.h"
#include "dataset/reader_options.h"
#include "dataset/resume.h"
#include "gcs/request/client.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Requests submitted at a time, for which names are kept. */
#define SUBMIT_MAX 64
/* The reader waits for many completions at a time, since each wait that ends costs a switch between
 * threads. But it waits for no more than this part of what is out, so that the window is refilled
 * in time, and for not so many bytes that the first ones have left the cache. */
#define WAIT_DIVISOR 8
#define WAIT_BYTES RG_MIB(1)
/* How long to wait where the client has no room and nothing of ours is out. */
#define CLIENT_FULL_PAUSE_NS RG_NS_PER_MS
/* If nothing has come for so long while a request waits for memory, the window lets go of its own
 * memory. Longer than the pauses between the answers of a healthy service; what is let go is read
 * twice. */
#define QUIET_NS (100 * RG_NS_PER_MS)

struct rg_reader {
    struct rg_client *client;
    struct rg_cq *cq;
    struct rg_reader_options options;
    struct rg_source source;
    struct rg_state_epoch of;
    struct rg_resume resume;
    struct rg_sampler sampler;
    struct rg_plan plan;
    pthread_mutex_t lock; /* of what changes below */
    struct rg_window window;
    struct rg_progress consumed; /* with consume_later: what was handed out at rg_reader_consume */
    uint64_t skipped;
    uint64_t quiet_ns; /* spent waiting since something has come */
    char names[SUBMIT_MAX][RG_OBJECT_NAME_SIZE_MAX + 1];
};

/* What saved states must be of. */
static int epoch_identify(struct rg_reader *reader, char *error, size_t error_size)
{
    struct rg_reader_options *options = &reader->options;
    reader->of = (struct rg_state_epoch){
        .count = options->object_count,
        .seed = options->seed,
        .epoch = options->epoch,
        .shuffle = options->shuffle,
    };
    if (options->list_digest != NULL) {
        memcpy(reader->of.digest, options->list_digest, sizeof(reader->of.digest));
        options->list_digest = NULL; /* borrowed for the call only */
    }
    if (options->indices != NULL) {
        return rg_reader_options_check_indices(options, error, error_size);
    }
    if (rg_source_fingerprint(&reader->source, &reader->of.fingerprint) < 0) {
        return rg_explain(error, error_size, -EBADMSG, "the manifest is damaged");
    }
    return 0;
}

/* Finds out where the epoch continues, and divides what is left. */
static int sampler_open(struct rg_reader *reader, char *error, size_t error_size)
{
    const struct rg_reader_options *options = &reader->options;
    struct rg_sampler_options assignment = rg_reader_options_assignment(options);
    if (rg_sampler_init(&reader->sampler, &assignment) < 0) {
        return rg_reader_options_refuse_assignment(options, error, error_size);
    }
    struct rg_saved saved = {options->state, options->state_size, options->base,
                             options->base_size};
    int rc = rg_resume_init(&reader->resume, &saved, &reader->of, &assignment, error, error_size);
    if (rc == 0) {
        rg_resume_assign(&reader->resume, &reader->sampler);
    }
    return rc;
}

static int window_open(struct rg_reader *reader, char *error, size_t error_size)
{
    const struct rg_reader_options *options = &reader->options;
    const struct rg_state *state = &reader->resume.state;
    struct rg_window_options window = {
        .total = reader->sampler.total,
        .requests_max = options->window_requests,
        .bytes_max = RG_MIN(options->window_bytes, reader->client->runtime->memory_max / 2),
        .unordered = options->unordered,
    };
    int rc = rg_window_init(&reader->window, &window, state->taken, state->bits, state->bit_count);
    if (rc == -EINVAL) {
        return rg_explain(error, error_size, rc, "the state lies beyond the end of the epoch");
    }
    rc = rc == 0 ? rg_progress_init(&reader->consumed, reader->window.capacity) : rc;
    if (rc == 0) {
        rg_progress_copy(&reader->consumed, &reader->window.handed);
        rc = rg_cq_open(&reader->cq, reader->client->runtime, reader->window.capacity);
    }
    return rc;
}

static void plan_open(struct rg_reader *reader)
{
    reader->plan = (struct rg_plan){
        .window = &reader->window,
        .source = &reader->source,
        .sampler = &reader->sampler,
        .indices = reader->options.indices,
    };
    rg_plan_limit(&reader->plan, reader->options.tar_request_bytes);
}

static int reader_setup(struct rg_reader *reader, char *error, size_t error_size)
{
    struct rg_reader_options *options = &reader->options;
    int rc = rg_source_open(&reader->source, options, error, error_size);
    if (rc < 0) {
        return rc;
    }
    options->object_count = reader->source.count;
    rc = epoch_identify(reader, error, error_size);
    rc = rc == 0 ? sampler_open(reader, error, error_size) : rc;
    rc = rc == 0 ? window_open(reader, error, error_size) : rc;
    /* Borrowed for the call only, like the bits of the state. */
    options->tar_members = NULL;
    options->state = options->base = NULL;
    reader->resume.state = (struct rg_state){0};
    plan_open(reader);
    return rc;
}

int rg_reader_open(struct rg_reader **out_reader, struct rg_client *client,
                   const struct rg_reader_options *options, char *error, size_t error_size)
{
    if (rg_runtime_check(client->runtime) < 0) {
        return rg_explain(error, error_size, -EOWNERDEAD,
                          "the client was opened before fork(): open one in this process");
    }
    struct rg_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        return rg_explain(error, error_size, -ENOMEM, "no memory");
    }
    reader->client = client;
    pthread_mutex_init(&reader->lock, NULL);
    int rc = rg_reader_options_read(&reader->options, options, error, error_size);
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

/* Notes what became of submitting a request. False: there is no room for it now. */
static bool submission_note(struct rg_reader *reader, uint64_t first, int rc)
{
    if (rc == -EINVAL) {
        rg_plan_refuse(&reader->plan, first, RG_STATUS_BAD_REQUEST);
    } else if (rc < 0) {
        rg_window_postpone(&reader->window, first);
    }
    return rc >= 0 || rc == -EINVAL;
}

static int pieces_submit(struct rg_reader *reader, const struct rg_get *get,
                         const struct rg_source_item *item)
{
    struct rg_range ranges[RG_TAR_MEMBERS_MAX];
    struct rg_get_ranges all = rg_plan_ranges(get, item, ranges);
    return rg_submit_get_ranges(reader->client, reader->cq, &all);
}

/* Collects gets for one batch. Submits at once what is read in pieces. */
static uint32_t gets_collect(struct rg_reader *reader, struct rg_get *gets, bool *out_is_full)
{
    uint32_t count = 0;
    struct rg_source_item item;
    *out_is_full = false;
    while (count < SUBMIT_MAX && !*out_is_full &&
           rg_plan_next(&reader->plan, reader->names[count], &gets[count], &item)) {
        if (item.piece_count > 1) {
            int rc = pieces_submit(reader, &gets[count], &item);
            *out_is_full = !submission_note(reader, gets[count].user_data, rc);
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
            (void)submission_note(reader, gets[done++].user_data, rc);
            rc = 1;
            continue;
        }
        done += rc > 0 ? (uint32_t)rc : 0;
    }
    is_full = is_full || done < count;
    while (done < count) {
        rg_window_postpone(&reader->window, gets[done++].user_data);
    }
    return count == SUBMIT_MAX && !is_full;
}

static void window_refill(struct rg_reader *reader)
{
    while (window_refill_some(reader)) {
    }
}

/* What becomes of a request. */
enum outcome { OUTCOME_ARRIVED, OUTCOME_SKIPPED, OUTCOME_AGAIN };

/* An object whose generation is gone follows the policy of the options. */
static enum outcome outcome_of_missing(struct rg_reader *reader, uint64_t first)
{
    struct rg_slot *slot = rg_window_slot(&reader->window, first);
    struct rg_source_item item;
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    if (slot->kind == RG_SLOT_NEWEST || rg_plan_item(&reader->plan, first, &item, name) < 0 ||
        item.generation == 0) {
        return OUTCOME_ARRIVED;
    }
    switch (reader->options.changed) {
    case RG_CHANGED_SKIP:
        return OUTCOME_SKIPPED;
    case RG_CHANGED_NEWEST:
        slot->kind = RG_SLOT_NEWEST;
        return OUTCOME_AGAIN;
    case RG_CHANGED_ERROR:
        break;
    }
    return OUTCOME_ARRIVED;
}

/* Makes what has come in pieces one body. The item was found when the request was planned; if the
 * index has been damaged since, the sample fails. */
static void pieces_unite(struct rg_reader *reader, struct rg_completion *completion)
{
    struct rg_source_item item;
    if (rg_plan_item(&reader->plan, completion->user_data, &item, NULL) == 0) {
        rg_plan_unite(completion, &item);
    } else {
        rg_lease_release(completion->lease);
        *completion =
            (struct rg_completion){.user_data = completion->user_data, .status = RG_STATUS_SOURCE};
    }
}

static void request_arrive(struct rg_reader *reader, struct rg_completion *completion)
{
    uint64_t first = completion->user_data;
    const struct rg_slot *slot = rg_window_slot(&reader->window, first);
    if (slot->kind == RG_SLOT_PIECES && completion->status == RG_STATUS_OK) {
        pieces_unite(reader, completion);
    }
    rg_lease_share(completion->lease, slot->followers);
    rg_window_arrive(&reader->window, first, completion);
}

static void request_notice(struct rg_reader *reader, struct rg_completion *completion)
{
    uint64_t first = completion->user_data;
    enum outcome outcome = completion->status == RG_STATUS_NOT_FOUND
                               ? outcome_of_missing(reader, first)
                               : OUTCOME_ARRIVED;
    switch (outcome) {
    case OUTCOME_ARRIVED:
        request_arrive(reader, completion);
        break;
    case OUTCOME_SKIPPED:
        rg_lease_release(completion->lease);
        reader->skipped += rg_window_skip(&reader->window, first);
        break;
    case OUTCOME_AGAIN:
        rg_lease_release(completion->lease);
        rg_window_postpone(&reader->window, first);
        break;
    }
    rg_plan_learn(&reader->plan, completion->size);
}

/* Hands out what may be taken now. */
static uint32_t samples_take(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max)
{
    uint32_t count = 0;
    while (count < out_max && rg_window_take(&reader->window, &out[count])) {
        count++;
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

/* Requests of which no completion was noticed. */
static uint32_t out_count(const struct rg_reader *reader)
{
    return reader->window.counts[RG_SLOT_OUT];
}

/* Waits for at least one completion, and for up to `wanted`, or until nothing has come for
 * QUIET_NS. 0, -ETIME or -EINTR. */
static int completions_wait(struct rg_reader *reader, uint32_t wanted, uint64_t deadline_ns)
{
    struct rg_completion done[SUBMIT_MAX];
    uint64_t began_ns = rg_now_ns(), quiet_end_ns = began_ns + QUIET_NS - reader->quiet_ns;
    uint64_t min = RG_MIN((uint64_t)RG_MIN(wanted, SUBMIT_MAX), out_count(reader) / WAIT_DIVISOR);
    min = RG_MAX(RG_MIN(min, WAIT_BYTES / reader->plan.size_guess), UINT64_C(1));
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

/* Where what is out waits for memory, and nothing has come for a while: makes room. False: only the
 * caller can, with the samples that it is about to be given. */
static bool window_relieve(struct rg_reader *reader, bool caller_has_some)
{
    if (reader->quiet_ns < QUIET_NS) {
        return true;
    }
    reader->quiet_ns = 0;
    if (!rg_runtime_is_starved(reader->client->runtime)) {
        return true;
    }
    bool is_here = rg_window_can_take(&reader->window);
    if (!caller_has_some && !is_here && reader->window.counts[RG_SLOT_HERE] > 0) {
        rg_window_let_go(&reader->window, rg_lease_release);
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

static int next_locked(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max,
                       uint32_t min, uint64_t deadline_ns)
{
    uint32_t count = 0;
    int rc = 0;
    while (rc == 0) {
        window_refill(reader);
        completions_poll(reader);
        count += samples_take(reader, out + count, out_max - count);
        if (count >= min || rg_window_is_done(&reader->window)) {
            break;
        }
        window_refill(reader);
        if (out_count(reader) > 0) {
            rc = completions_wait(reader, min - count, deadline_ns);
            if (!window_relieve(reader, count > 0)) {
                break;
            }
        } else if (reader->window.counts[RG_SLOT_HERE] == 0) {
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
    uint64_t taken = rg_progress_count(&reader->window.handed);
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
    rg_progress_copy(&reader->consumed, &reader->window.handed);
    look_end(reader);
}

size_t rg_reader_state(const struct rg_reader *reader, void *buf, size_t size)
{
    const struct rg_reader_options *options = &reader->options;
    if (options->indices != NULL) {
        return 0;
    }
    struct rg_sampler_options assignment = rg_reader_options_assignment(options);
    uint8_t bits[RG_STATE_BITS_MAX / 8];
    look_begin(reader);
    const struct rg_progress *consumed =
        options->consume_later ? &reader->consumed : &reader->window.handed;
    struct rg_state state =
        rg_resume_state(&reader->resume, &reader->of, &assignment, consumed, bits);
    look_end(reader);
    state.unordered = options->unordered;
    return rg_state_encode(&state, buf, size);
}

const void *rg_reader_base(const struct rg_reader *reader, size_t *out_size)
{
    const struct rg_base *base = reader->resume.base;
    return base != NULL ? rg_base_data(base, out_size) : NULL;
}

/* Ends what is out. */
static void requests_cancel(struct rg_reader *reader)
{
    rg_client_cancel_all(reader->client, reader->cq);
    for (uint32_t left = out_count(reader); left > 0;) {
        struct rg_completion done;
        if (rg_cq_wait(reader->cq, &done, 1, 1, RG_FOREVER) == 1) {
            rg_lease_release(done.lease);
            left--;
        }
    }
}

void rg_reader_close(struct rg_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    /* After a fork the leases are the parent's. */
    bool is_owner = rg_runtime_check(reader->client->runtime) == 0;
    if (reader->cq != NULL && is_owner) {
        requests_cancel(reader);
    }
    rg_cq_close(reader->cq);
    rg_window_fini(&reader->window, is_owner ? rg_lease_release : NULL);
    rg_progress_fini(&reader->consumed);
    rg_resume_fini(&reader->resume);
    rg_source_close(&reader->source);
    if (is_owner) {
        pthread_mutex_destroy(&reader->lock);
    }
    free(reader);
}
