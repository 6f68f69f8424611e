/* A reader: see <ringest/dataset.h>.
 *
 * The reader owns what its epoch needs. Resume (dataset/resume.h) says where the epoch continues,
 * and the intake (dataset/intake.h) makes the requests and has the window. Samples leave it in one
 * of two ways:
 *
 *   source, sampler -> intake +--> rg_reader_next
 *                       ^  ^  +--> flow -> a completion queue of the caller's
 *                       |  |        |
 *                       +--+--------+ refilled by who calls next, or by the flow
 *
 *   open -> next, next, ... until 0 ------------------> close
 *      |       |
 *      +-------+--> start -> completions until the end -> close
 *
 * Before the start there is no thread but the caller's: taking samples refills the window, before
 * and after, one thread at a time. From the start on the flow (dataset/flow.h) has the intake.
 * `lock` guards what follows it in the struct; it is held except while the reader waits, so that
 * other threads may ask how far the reader is. */
#include "dataset/flow.h"
#include "dataset/reader_options.h"
#include "dataset/resume.h"
#include "dataset/waits.h"
#include "gcs/request/client.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct rg_reader {
    struct rg_runtime *runtime;
    struct rg_reader_options options;
    struct rg_source source;
    struct rg_state_epoch of;
    struct rg_resume resume;
    struct rg_sampler sampler;
    pthread_mutex_t lock;        /* of what changes below */
    struct rg_flow *flow;        /* NULL: not started */
    struct rg_intake intake;     /* the flow's, once there is one */
    struct rg_progress consumed; /* with consume_later: what was handed out at rg_reader_consume */
    uint64_t quiet_ns;           /* spent waiting since something has come */
    struct rg_waits waits;       /* of the thread that takes samples, and without the lock */
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

static void plan_open(struct rg_reader *reader)
{
    reader->intake.plan = (struct rg_plan){
        .window = &reader->intake.window,
        .source = &reader->source,
        .sampler = &reader->sampler,
        .indices = reader->options.indices,
    };
    rg_plan_limit(&reader->intake.plan, reader->options.tar_request_bytes);
}

static int intake_open(struct rg_reader *reader, struct rg_client *client, char *error,
                       size_t error_size)
{
    const struct rg_reader_options *options = &reader->options;
    const struct rg_state *state = &reader->resume.state;
    struct rg_window_options window = {
        .total = reader->sampler.total,
        .requests_max = options->window_requests,
        .bytes_max = RG_MIN(options->window_bytes, reader->runtime->memory_max / 2),
        .unordered = options->unordered,
    };
    reader->intake.changed = options->changed;
    int rc = rg_intake_open(&reader->intake, client, &window, state);
    if (rc == -EINVAL) {
        return rg_explain(error, error_size, rc, "the state lies beyond the end of the epoch");
    }
    rc = rc == 0 ? rg_progress_init(&reader->consumed, reader->intake.window.capacity) : rc;
    if (rc == 0) {
        rg_progress_copy(&reader->consumed, &reader->intake.window.handed);
        plan_open(reader);
    }
    return rc;
}

static int reader_setup(struct rg_reader *reader, struct rg_client *client, char *error,
                        size_t error_size)
{
    struct rg_reader_options *options = &reader->options;
    int rc = rg_source_open(&reader->source, options, error, error_size);
    if (rc < 0) {
        return rc;
    }
    options->object_count = reader->source.count;
    rc = epoch_identify(reader, error, error_size);
    rc = rc == 0 ? sampler_open(reader, error, error_size) : rc;
    rc = rc == 0 ? intake_open(reader, client, error, error_size) : rc;
    if (rc == 0 && options->prefetch_next) {
        rc = rg_ahead_open(&reader->intake.ahead, client, options, &reader->sampler, error,
                           error_size);
    }
    /* Borrowed for the call only, like the bits of the state. */
    options->tar_members = NULL;
    options->state = options->base = NULL;
    reader->resume.state = (struct rg_state){0};
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
    reader->runtime = client->runtime;
    pthread_mutex_init(&reader->lock, NULL);
    int rc = rg_reader_options_read(&reader->options, options, error, error_size);
    if (rc == 0) {
        rc = reader_setup(reader, client, error, error_size);
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

/* Hands out what may be taken now. */
static uint32_t samples_take(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max)
{
    uint32_t count = 0;
    while (count < out_max && rg_window_take(&reader->intake.window, &out[count])) {
        count++;
    }
    return count;
}

/* Where nothing has happened for a while, loops are asleep, too. */
static void wait_end(struct rg_reader *reader, uint64_t now_ns)
{
    rg_waits_end(&reader->waits, reader->runtime, now_ns);
    if (reader->waits.is_unexplained) {
        rg_runtime_wake(reader->runtime);
    }
}

/* Waits for at least one completion, and for up to `wanted`, or until nothing has come for
 * RG_INTAKE_QUIET_NS. 0, -ETIME or -EINTR. */
static int completions_wait(struct rg_reader *reader, uint32_t wanted, uint64_t deadline_ns)
{
    struct rg_completion done[RG_INTAKE_AT_ONCE];
    uint64_t began_ns = rg_now_ns(),
             quiet_end_ns = began_ns + RG_INTAKE_QUIET_NS - reader->quiet_ns;
    uint32_t min = RG_MIN(wanted, rg_intake_portion(&reader->intake));
    rg_waits_begin(&reader->waits, reader->runtime, began_ns);
    pthread_mutex_unlock(&reader->lock);
    int count = rg_cq_wait(reader->intake.cq, done, RG_INTAKE_AT_ONCE, min,
                           RG_MIN(deadline_ns, quiet_end_ns));
    pthread_mutex_lock(&reader->lock);
    uint64_t ended_ns = rg_now_ns();
    wait_end(reader, ended_ns);
    rg_intake_note(&reader->intake, done, count);
    if (count > 0) {
        reader->quiet_ns = 0;
    } else {
        reader->quiet_ns = RG_MIN(reader->quiet_ns + (ended_ns - began_ns), RG_INTAKE_QUIET_NS);
    }
    return count == -ETIME && quiet_end_ns < deadline_ns ? 0 : RG_MIN(count, 0);
}

/* Where what is out waits for memory, and nothing has come for a while: makes room. False: only the
 * caller can, with the samples that it is about to be given. */
static bool window_relieve(struct rg_reader *reader, bool caller_has_some)
{
    if (reader->quiet_ns < RG_INTAKE_QUIET_NS) {
        return true;
    }
    reader->quiet_ns = 0;
    if (!rg_runtime_is_starved(reader->runtime)) {
        return true;
    }
    if (!caller_has_some) {
        (void)rg_intake_relieve(&reader->intake);
    }
    return !caller_has_some;
}

/* Others have filled the client, and nothing of ours is out whose end could be waited for. */
static int client_full_pause(struct rg_reader *reader, uint64_t deadline_ns)
{
    if (rg_now_ns() >= deadline_ns) {
        return -ETIME;
    }
    struct timespec pause = {.tv_nsec = RG_INTAKE_FULL_PAUSE_NS};
    rg_waits_begin(&reader->waits, reader->runtime, rg_now_ns());
    pthread_mutex_unlock(&reader->lock);
    int rc = nanosleep(&pause, NULL);
    pthread_mutex_lock(&reader->lock);
    wait_end(reader, rg_now_ns());
    return rc < 0 ? -EINTR : 0;
}

static int next_locked(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max,
                       uint32_t min, uint64_t deadline_ns)
{
    uint32_t count = 0;
    int rc = 0;
    while (rc == 0) {
        rg_intake_refill(&reader->intake);
        rg_intake_poll(&reader->intake);
        count += samples_take(reader, out + count, out_max - count);
        if (count >= min || rg_window_is_done(&reader->intake.window)) {
            break;
        }
        rg_intake_refill(&reader->intake);
        if (rg_intake_out(&reader->intake) > 0) {
            rc = completions_wait(reader, min - count, deadline_ns);
            if (!window_relieve(reader, count > 0)) {
                break;
            }
        } else if (reader->intake.window.counts[RG_SLOT_HERE] == 0) {
            rc = client_full_pause(reader, deadline_ns);
        }
    }
    rg_intake_refill(&reader->intake);
    return count > 0 || rc == 0 ? (int)count : rc;
}

int rg_reader_next(struct rg_reader *reader, struct rg_sample *out, uint32_t out_max, uint32_t min,
                   uint64_t deadline_ns)
{
    if (rg_runtime_check(reader->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (min == 0 || min > out_max) {
        return -EINVAL;
    }
    pthread_mutex_lock(&reader->lock);
    int rc = reader->flow == NULL ? next_locked(reader, out, out_max, min, deadline_ns) : -EINVAL;
    pthread_mutex_unlock(&reader->lock);
    return rc;
}

int rg_reader_start(struct rg_reader *reader, struct rg_cq *cq, uint64_t user_data)
{
    if (rg_runtime_check(reader->runtime) < 0) {
        return -EOWNERDEAD;
    }
    struct rg_flow *flow = NULL;
    pthread_mutex_lock(&reader->lock);
    int rc = reader->flow != NULL || cq == NULL
                 ? -EINVAL
                 : rg_flow_open(&flow, &reader->intake, cq, user_data);
    reader->flow = rc == 0 ? flow : reader->flow;
    pthread_mutex_unlock(&reader->lock);
    if (rc == 0) {
        rg_flow_begin(flow);
    }
    return rc;
}

void rg_reader_waited(const struct rg_reader *reader, uint64_t *out_ns, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        out_ns[i] = i < RG_STAGE_COUNT ? reader->waits.shares_ns[i] : 0;
    }
}

void rg_reader_sleep(struct rg_reader *reader, bool begins)
{
    bool sleeps = reader->waits.began_ns != 0;
    if (begins && !sleeps) {
        rg_waits_begin(&reader->waits, reader->runtime, rg_now_ns());
    } else if (!begins && sleeps) {
        wait_end(reader, rg_now_ns());
    }
}

void rg_reader_interrupt(struct rg_reader *reader)
{
    rg_cq_interrupt(reader->intake.cq);
}

uint64_t rg_reader_total(const struct rg_reader *reader)
{
    return reader->sampler.total;
}

/* There the threads that may have held a lock are gone, and nobody changes anything any more. */
static bool is_in_child(const struct rg_reader *reader)
{
    return rg_runtime_check(reader->runtime) != 0;
}

static void look_begin(const struct rg_reader *reader)
{
    if (is_in_child(reader)) {
        return;
    }
    pthread_mutex_lock(&((struct rg_reader *)(uintptr_t)reader)->lock);
    if (reader->flow != NULL) {
        rg_flow_hold(reader->flow);
    }
}

static void look_end(const struct rg_reader *reader)
{
    if (is_in_child(reader)) {
        return;
    }
    if (reader->flow != NULL) {
        rg_flow_let_go(reader->flow);
    }
    pthread_mutex_unlock(&((struct rg_reader *)(uintptr_t)reader)->lock);
}

uint64_t rg_reader_taken(const struct rg_reader *reader)
{
    look_begin(reader);
    uint64_t taken = rg_progress_count(&reader->intake.window.handed);
    look_end(reader);
    return taken;
}

uint64_t rg_reader_skipped(const struct rg_reader *reader)
{
    look_begin(reader);
    uint64_t skipped = reader->intake.skipped;
    look_end(reader);
    return skipped;
}

void rg_reader_consume(struct rg_reader *reader)
{
    look_begin(reader);
    rg_progress_copy(&reader->consumed, &reader->intake.window.handed);
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
        options->consume_later ? &reader->consumed : &reader->intake.window.handed;
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

void rg_reader_close(struct rg_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    /* After a fork the leases are the parent's. */
    bool is_owner = !is_in_child(reader);
    if (reader->flow != NULL && is_owner) {
        rg_flow_stop(reader->flow);
    }
    rg_intake_close(&reader->intake, is_owner);
    if (reader->flow != NULL) {
        rg_flow_drop(reader->flow, is_owner);
    }
    rg_progress_fini(&reader->consumed);
    rg_resume_fini(&reader->resume);
    rg_source_close(&reader->source);
    if (is_owner) {
        pthread_mutex_destroy(&reader->lock);
    }
    free(reader);
}
