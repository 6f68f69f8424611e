/* Items through workers: a queue that the plan fills, workers that each keep their share of
 * requests out, and the counts.
 *
 * An item: queued -> started by a worker -> requests out -> ended, by whichever worker took the
 * last of its completions. Bytes that are out are bounded over all workers, the number of requests
 * by each worker's slots. */
#include "cli/cp.h"

#include "runtime/thread.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORKERS_MAX 8
#define QUEUE_MAX 4096
/* The plan goes on when so many are left. */
#define QUEUE_LOW (QUEUE_MAX / 2)
#define BATCH_MAX 32
/* The least that an event loop has. */
#define LOOP_MEMORY_MIN RG_MIB(8)
/* Completions come in bursts: waking a worker for each one costs more than the rest of a burst
 * takes to come. */
#define GATHER_TIME_NS (1 * RG_NS_PER_MS)
#define GATHER_SHARE 4 /* of what is out */
/* How long a worker sleeps before it looks whether there is more to do, or whether to stop. */
#define LOOK_INTERVAL_NS (20 * RG_NS_PER_MS)

struct cp_item *cp_item_create(enum cp_kind kind)
{
    struct cp_item *item = calloc(1, sizeof(*item));
    if (item != NULL) {
        item->kind = kind;
        item->fd = -1;
        item->file.fd = -1;
    }
    return item;
}

void cp_item_destroy(struct cp_item *item)
{
    if (item == NULL) {
        return;
    }
    RG_ASSERT(item->file.path == NULL);
    if (item->fd >= 0) {
        close(item->fd);
    }
    free(item->buffer);
    free(item->path);
    free(item->bucket);
    free(item->name);
    free(item->from_bucket);
    free(item->from_name);
    free(item);
}

static void counts_line(struct cp_run *run, uint64_t *counter)
{
    pthread_mutex_lock(&run->lock);
    (*counter)++;
    pthread_mutex_unlock(&run->lock);
}

void cp_run_refuse(struct cp_run *run, const char *format, ...)
{
    char text[2 * RG_OBJECT_NAME_SIZE_MAX + 512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    cli_fail("%s", text);
    counts_line(run, &run->counts.failed);
    counts_line(run, &run->counts.unplanned);
}

void cp_run_skip(struct cp_run *run)
{
    counts_line(run, &run->counts.skipped);
    counts_line(run, &run->counts.unplanned);
}

void cp_item_end(struct cp_worker *worker, struct cp_item *item, enum cp_end end)
{
    struct cp_run *run = worker->run;
    pthread_mutex_lock(&run->lock);
    struct cp_counts *counts = &run->counts;
    if (end == CP_COPIED) {
        counts->copied++;
        counts->gzipped += item->is_gzip;
        counts->bytes += item->size;
    } else if (end == CP_UPDATED) {
        counts->updated++;
    } else if (end == CP_SKIPPED) {
        counts->skipped++;
    } else {
        counts->failed++;
    }
    /* Parts were counted as they came. */
    if (!item->is_in_parts) {
        counts->bytes_now += item->size;
        counts->bytes_skipped += end == CP_COPIED ? 0 : item->size;
    }
    counts->bytes_uploading -= item->kind == CP_UPLOAD ? item->size_planned : 0;
    run->items_active--;
    if (run->items_active == 0) {
        pthread_cond_broadcast(&run->work);
        pthread_cond_signal(&run->room);
    }
    pthread_mutex_unlock(&run->lock);
    cp_item_destroy(item);
}

/* Ends the item and everything else with it. Of several that come to this at once the first one
 * says why. */
static void stop_all(struct cp_worker *worker, struct cp_item *item, const char *what,
                     const char *why)
{
    struct cp_run *run = worker->run;
    if (!atomic_exchange(&run->stopping, true)) {
        cli_fail("%s%s%s", what, *what != '\0' ? ": " : "", why);
    }
    pthread_mutex_lock(&run->lock);
    pthread_cond_broadcast(&run->work);
    pthread_mutex_unlock(&run->lock);
    cp_item_end(worker, item, CP_FAILED);
}

/* What was named as an object, and is none: names below it are all that makes a folder. */
static bool item_is_folder(struct cp_worker *worker, const struct cp_item *item)
{
    bool any = false;
    return item->kind == CP_DOWNLOAD && !worker->run->options->recursive &&
           lookup_folder(worker->run->session, item->bucket, item->name, &any) == CLI_DONE && any;
}

void cp_item_refused(struct cp_worker *worker, struct cp_item *item,
                     const struct rg_completion *completion)
{
    /* What is missing may be the source of a copy. */
    bool no_bucket = completion->status == RG_STATUS_NOT_FOUND &&
                     (item->kind == CP_UPLOAD || item->has_no_bucket);
    if (no_bucket || cli_is_everybodys(completion->status)) {
        stop_all(worker, item, "", cli_completion_text(completion));
    } else if (completion->status == RG_STATUS_NOT_FOUND && item_is_folder(worker, item)) {
        cp_item_fail(worker, item, "gs://%s/%s: is a folder; copy it with -r", item->bucket,
                     item->name);
    } else {
        const char *source = item->kind == CP_COPY ? item->from_name : item->name;
        bool missing = completion->status == RG_STATUS_NOT_FOUND && item->kind != CP_UPLOAD;
        cp_item_fail(worker, item, "%s%s", cli_completion_text(completion),
                     missing ? lookup_version_hint(source) : "");
    }
}

void cp_item_unwritten(struct cp_worker *worker, struct cp_item *item, int rc)
{
    if (rc == -ENOSPC || rc == -EDQUOT || rc == -EROFS) {
        stop_all(worker, item, item->path, local_error_text(rc));
    } else {
        cp_item_fail(worker, item, "%s: %s", item->path, local_error_text(rc));
    }
}

void cp_item_stop(struct cp_worker *worker, struct cp_item *item, const char *format, ...)
{
    char text[2 * RG_OBJECT_NAME_SIZE_MAX + 512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    stop_all(worker, item, "", text);
}

void cp_item_fail(struct cp_worker *worker, struct cp_item *item, const char *format, ...)
{
    if (!worker->run->stopping) {
        char text[2 * RG_OBJECT_NAME_SIZE_MAX + 512];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        cli_fail("%s", text);
    }
    cp_item_end(worker, item, CP_FAILED);
}

struct cp_job *cp_job_open(struct cp_worker *worker, struct cp_item *item, uint32_t part,
                           uint64_t cost, uint64_t *out_user_data)
{
    RG_ASSERT(worker->out < worker->job_count);
    uint32_t index = worker->free_jobs[worker->job_count - ++worker->out];
    struct cp_job *job = &worker->jobs[index];
    *job = (struct cp_job){.item = item, .part = part, .cost = cost};
    *out_user_data = index;
    struct cp_run *run = worker->run;
    pthread_mutex_lock(&run->lock);
    run->bytes_out += cost;
    pthread_mutex_unlock(&run->lock);
    return job;
}

void cp_job_cancel(struct cp_worker *worker, struct cp_job *job)
{
    struct cp_run *run = worker->run;
    pthread_mutex_lock(&run->lock);
    run->bytes_out -= job->cost;
    if (run->queue_count > 0 || run->in_parts != NULL) {
        pthread_cond_signal(&run->work);
    }
    pthread_mutex_unlock(&run->lock);
    job->item = NULL;
    worker->free_jobs[worker->job_count - worker->out--] = (uint32_t)(job - worker->jobs);
}

void cp_run_split(struct cp_worker *worker, struct cp_item *item)
{
    struct cp_run *run = worker->run;
    pthread_mutex_lock(&run->lock);
    item->next = run->in_parts;
    run->in_parts = item;
    pthread_cond_broadcast(&run->work);
    pthread_mutex_unlock(&run->lock);
}

/* The next part of a file that has been begun, before anything new is. */
static bool part_take(struct cp_run *run, struct cp_job *out_job)
{
    while (run->in_parts != NULL) {
        struct cp_item *item = run->in_parts;
        if (!item->has_failed && cp_download_next_part(item, &out_job->part)) {
            item->parts_out++;
            out_job->item = item;
            return true;
        }
        run->in_parts = item->next;
        item->next = NULL;
    }
    return false;
}

/* What a job may cost is known before it is taken. */
static bool has_room(const struct cp_run *run)
{
    uint64_t cost = run->part_size;
    if (run->in_parts == NULL && run->queue_head != NULL && run->queue_head->is_size_known) {
        cost = RG_MIN(run->queue_head->size, run->bytes_out_max);
    }
    return run->bytes_out == 0 || run->bytes_out + cost <= run->bytes_out_max;
}

/* The next thing to do. With `wait`, false means that there will not be any more. */
static bool job_take(struct cp_run *run, bool wait, struct cp_job *out_job)
{
    bool taken = false;
    pthread_mutex_lock(&run->lock);
    for (;;) {
        if (run->stopping) {
            break;
        }
        if (has_room(run)) {
            if (part_take(run, out_job)) {
                taken = true;
                break;
            }
            if (run->queue_head != NULL) {
                struct cp_item *item = run->queue_head;
                run->queue_head = item->next;
                run->queue_tail = run->queue_head != NULL ? run->queue_tail : &run->queue_head;
                run->queue_count--;
                run->items_active++;
                item->size_planned = item->size;
                run->counts.bytes_uploading += item->kind == CP_UPLOAD ? item->size : 0;
                item->next = NULL;
                *out_job = (struct cp_job){.item = item, .part = CP_WHOLE_ITEM};
                if (run->queue_count == QUEUE_LOW) {
                    pthread_cond_signal(&run->room);
                }
                taken = true;
                break;
            }
        }
        bool at_end = run->is_planned && run->queue_head == NULL && run->items_active == 0;
        if (!wait || at_end) {
            break;
        }
        pthread_cond_wait(&run->work, &run->lock);
    }
    pthread_mutex_unlock(&run->lock);
    return taken;
}

static void job_start(struct cp_worker *worker, const struct cp_job *job)
{
    if (job->part != CP_WHOLE_ITEM) {
        cp_download_part(worker, job->item, job->part);
    } else if (job->item->kind == CP_UPLOAD) {
        cp_upload_start(worker, job->item);
    } else if (job->item->kind == CP_DOWNLOAD) {
        cp_download_start(worker, job->item);
    } else {
        cp_copy_start(worker, job->item);
    }
}

static void completion_take(struct cp_worker *worker, struct rg_completion *completion)
{
    struct cp_job *slot = &worker->jobs[completion->user_data];
    RG_ASSERT(slot->item != NULL);
    struct cp_job job = *slot;
    cp_job_cancel(worker, slot);
    if (job.item->step == CP_STEP_CONFIRM || job.item->step == CP_STEP_REMOVE) {
        cp_move_take(worker, &job, completion);
    } else if (job.item->step != CP_STEP_TRANSFER) {
        cp_retype_take(worker, &job, completion);
    } else if (job.item->kind == CP_UPLOAD) {
        cp_upload_take(worker, &job, completion);
    } else if (job.item->kind == CP_DOWNLOAD) {
        cp_download_take(worker, &job, completion);
    } else {
        cp_copy_take(worker, &job, completion);
    }
    rg_lease_release(completion->lease);
}

static void cancel_all(struct cp_worker *worker)
{
    worker->cancelled = true;
    for (uint32_t i = 0; i < worker->job_count; i++) {
        if (worker->jobs[i].item != NULL) {
            rg_cancel(worker->run->session->client, worker->cq, i);
        }
    }
}

static int completions_wait(struct cp_worker *worker, struct rg_completion *out_done)
{
    uint32_t burst = RG_MIN(worker->out / GATHER_SHARE, (uint32_t)BATCH_MAX);
    int count = 0;
    if (burst > 1) {
        count = rg_cq_wait(worker->cq, out_done, BATCH_MAX, burst, rg_now_ns() + GATHER_TIME_NS);
    }
    if (count <= 0) {
        count = rg_cq_wait(worker->cq, out_done, BATCH_MAX, 1, rg_now_ns() + LOOK_INTERVAL_NS);
    }
    return count;
}

static void *worker_main(void *argument)
{
    struct cp_worker *worker = argument;
    struct rg_completion done[BATCH_MAX];
    for (;;) {
        struct cp_job job;
        while (worker->out < worker->job_count && job_take(worker->run, worker->out == 0, &job)) {
            job_start(worker, &job);
        }
        if (worker->out == 0) {
            cp_download_stop(worker);
            return NULL;
        }
        if (!worker->cancelled && worker->run->stopping) {
            cancel_all(worker);
        }
        int count = completions_wait(worker, done);
        for (int i = 0; i < count; i++) {
            completion_take(worker, &done[i]);
        }
    }
}

/* Bytes that uploads in progress have sent. Heads of requests are counted too, so that this is an
 * upper bound. */
static uint64_t bytes_sent(const struct cp_run *run)
{
    struct rg_stats stats;
    const struct cp_counts *counts = &run->counts;
    if (counts->bytes_uploading == 0 || rg_runtime_stats(run->session->runtime, &stats) != 0 ||
        stats.sent_bytes < counts->bytes) {
        return 0;
    }
    return RG_MIN(stats.sent_bytes - counts->bytes, counts->bytes_uploading);
}

/* Tells the workers when a signal came, and draws. */
static void look_around(struct cp_run *run)
{
    if (cli_interrupted() && !run->stopping) {
        run->stopping = true;
        pthread_cond_broadcast(&run->work);
    }
    if (run->counts.planned == 0 || !progress_is_due(&run->progress)) {
        return;
    }
    const struct cp_counts *counts = &run->counts;
    uint64_t bytes_done = counts->bytes_now + bytes_sent(run);
    struct progress_state state = {
        .done = counts->copied + counts->updated + counts->skipped + counts->failed,
        .total = counts->planned + counts->unplanned,
        .bytes_done = bytes_done,
        .bytes_total = RG_MAX(counts->bytes_planned, bytes_done),
        .bytes_skipped = counts->bytes_skipped,
        .may_grow = !run->is_planned,
    };
    progress_draw(&run->progress, &state);
}

static void wait_for_room(struct cp_run *run)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100 * (long)RG_NS_PER_MS;
    if (until.tv_nsec >= (long)RG_NS_PER_S) {
        until.tv_nsec -= (long)RG_NS_PER_S;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&run->room, &run->lock, &until);
}

bool cp_run_add(struct cp_run *run, struct cp_item *item)
{
    pthread_mutex_lock(&run->lock);
    look_around(run);
    while (run->queue_count >= QUEUE_MAX && !run->stopping) {
        wait_for_room(run);
        look_around(run);
    }
    bool accepted = !run->stopping;
    if (accepted) {
        *run->queue_tail = item;
        run->queue_tail = &item->next;
        run->queue_count++;
        if (!run->options->dry_run) { /* where that is what would be copied */
            run->counts.planned++;
            run->counts.bytes_planned += item->size;
        }
        pthread_cond_signal(&run->work);
    }
    pthread_mutex_unlock(&run->lock);
    if (!accepted) {
        cp_item_destroy(item);
    }
    return accepted;
}

void cp_run_finish(struct cp_run *run)
{
    pthread_mutex_lock(&run->lock);
    run->is_planned = true;
    pthread_cond_broadcast(&run->work);
    look_around(run);
    while ((run->queue_head != NULL && !run->stopping) || run->items_active > 0) {
        wait_for_room(run);
        look_around(run);
    }
    pthread_mutex_unlock(&run->lock);
}

/* A body must fit into the memory of one event loop, which may hold others, in slabs up to twice as
 * large. */
static uint64_t part_size_choose(const struct cli_session *session,
                                 const struct cp_options *options)
{
    uint64_t each = session->memory_max / RG_MAX(rg_runtime_threads(session->runtime), 1u);
    uint64_t room = RG_MAX(each, (uint64_t)LOOP_MEMORY_MIN) / 4;
    return session->memory_max == 0 ? options->part_size : RG_MIN(options->part_size, room);
}

/* Half of the memory is for bodies that are being written or waited for. */
int cp_run_open(struct cp_run *run, struct cli_session *session, const struct cp_options *options,
                uint64_t bytes_out_max)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t wanted = (uint32_t)RG_MIN(RG_MAX(cpus, 2L), (long)WORKERS_MAX);
    wanted = RG_MIN(wanted, options->concurrency);
    *run = (struct cp_run){
        .options = options,
        .session = session,
        .queue_tail = &run->queue_head,
        .bytes_out_max = bytes_out_max,
        .part_size = part_size_choose(session, options),
    };
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&run->lock, NULL);
    pthread_mutex_init(&run->moved_lock, NULL);
    pthread_cond_init(&run->work, &attributes);
    pthread_cond_init(&run->room, &attributes);
    pthread_condattr_destroy(&attributes);
    progress_open(&run->progress, "files", options->json || options->dry_run);
    run->workers = calloc(wanted, sizeof(*run->workers));
    int rc = run->workers != NULL ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < wanted && rc == 0; i++) {
        struct cp_worker *worker = &run->workers[i];
        worker->run = run;
        worker->job_count = (options->concurrency + wanted - 1 - i) / wanted;
        worker->jobs = calloc(worker->job_count, sizeof(*worker->jobs));
        worker->free_jobs = calloc(worker->job_count, sizeof(*worker->free_jobs));
        if (worker->jobs == NULL || worker->free_jobs == NULL) {
            rc = -ENOMEM;
        } else {
            rc = rg_cq_open(&worker->cq, session->runtime, worker->job_count);
        }
        for (uint32_t j = 0; rc == 0 && j < worker->job_count; j++) {
            worker->free_jobs[j] = j;
        }
        if (rc == 0) {
            /* Signals end the main thread's waiting, which then tells the workers. */
            rc = rg_thread_start(&worker->thread, 0, worker_main, worker);
        }
        if (rc == 0) {
            run->worker_count++;
        } else {
            rg_cq_close(worker->cq);
            free(worker->jobs);
            free(worker->free_jobs);
        }
    }
    if (rc < 0) {
        cp_run_close(run);
        return cli_fail("no worker thread: %s", strerror(-rc));
    }
    return CLI_DONE;
}

void cp_run_close(struct cp_run *run)
{
    pthread_mutex_lock(&run->lock);
    run->is_planned = true;
    pthread_cond_broadcast(&run->work);
    pthread_mutex_unlock(&run->lock);
    for (uint32_t i = 0; i < run->worker_count; i++) {
        struct cp_worker *worker = &run->workers[i];
        pthread_join(worker->thread, NULL);
        rg_cq_close(worker->cq);
        free(worker->jobs);
        free(worker->free_jobs);
    }
    free(run->workers);
    while (run->queue_head != NULL) {
        struct cp_item *item = run->queue_head;
        run->queue_head = item->next;
        cp_item_destroy(item);
    }
    progress_close(&run->progress);
    places_fini(&run->places);
    places_fini(&run->links);
    places_fini(&run->moved);
    pthread_cond_destroy(&run->room);
    pthread_cond_destroy(&run->work);
    pthread_mutex_destroy(&run->lock);
    pthread_mutex_destroy(&run->moved_lock);
}
