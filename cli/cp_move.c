/* The source of a move, when the destination has its bytes: a file that has not changed since it
 * was read, or exactly the generation of an object that was copied. Whatever stops the command
 * before leaves the source; nothing is lost, and the move can be repeated. */
#include "cli/cp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_SIZE 96

/* Numbers of inodes are given again when another process has replaced a file; the time tells. */
static void key_text(const struct stat *stat, char out_key[KEY_SIZE])
{
    snprintf(out_key, KEY_SIZE, "%ju:%ju:%jd.%ld", (uintmax_t)stat->st_dev, (uintmax_t)stat->st_ino,
             (intmax_t)stat->st_mtim.tv_sec, stat->st_mtim.tv_nsec);
}

/* Notes that a source was moved to the file. -EALREADY: another one was. */
static int file_claim(struct cp_run *run, const struct stat *stat)
{
    char key[KEY_SIZE];
    bool is_new;
    key_text(stat, key);
    int rc = places_take(&run->moved, key, &is_new);
    return rc < 0 ? rc : is_new ? 0 : -EALREADY;
}

static bool is_claimed(const struct cp_run *run, const char *path)
{
    struct stat stat;
    char key[KEY_SIZE];
    if (lstat(path, &stat) < 0) {
        return false;
    }
    key_text(&stat, key);
    return places_have(&run->moved, key);
}

int cp_item_publish(struct cp_worker *worker, struct cp_item *item)
{
    struct cp_run *run = worker->run;
    struct stat ours;
    if (!run->options->moves) {
        return local_publish(&item->file, run->options->no_clobber);
    }
    pthread_mutex_lock(&run->moved_lock);
    int rc = is_claimed(run, item->path)       ? -EALREADY
             : fstat(item->file.fd, &ours) < 0 ? -errno
                                               : file_claim(run, &ours);
    if (rc == 0) {
        rc = local_publish(&item->file, run->options->no_clobber);
    } else {
        local_discard(&item->file);
    }
    pthread_mutex_unlock(&run->moved_lock);
    return rc;
}

/* The file had the object's bytes before the move. */
static int file_claim_found(struct cp_run *run, const char *path)
{
    struct stat found;
    pthread_mutex_lock(&run->moved_lock);
    int rc = stat(path, &found) < 0 ? -errno : file_claim(run, &found);
    pthread_mutex_unlock(&run->moved_lock);
    return rc;
}

/* NULL: it is gone. */
static const char *file_remove(const struct cp_item *item)
{
    struct stat now;
    if (lstat(item->path, &now) < 0) {
        return errno == ENOENT ? NULL : local_error_text(-errno);
    }
    if (S_ISLNK(now.st_mode)) {
        return "it is a symbolic link";
    }
    if (!local_is_unchanged(item->path, &item->source)) {
        return "it has changed since it was read";
    }
    return unlink(item->path) == 0 || errno == ENOENT ? NULL : local_error_text(-errno);
}

static void object_remove(struct cp_worker *worker, struct cp_item *item)
{
    bool is_copy = item->kind == CP_COPY;
    const char *bucket = is_copy ? item->from_bucket : item->bucket;
    const char *name = is_copy ? item->from_name : item->name;
    int rc = is_copy ? 0 : local_persist(item->path);
    if (rc < 0) {
        cp_item_fail(worker, item, "gs://%s/%s: copied, and kept: %s: %s", bucket, name, item->path,
                     local_error_text(rc));
        return;
    }
    if (item->generation == 0) {
        cp_item_fail(worker, item,
                     "gs://%s/%s: copied, and kept: the server does not tell its generation",
                     bucket, name);
        return;
    }
    struct rg_delete del = {
        .bucket = bucket, .object = name, .conditions = {.if_generation_match = item->generation}};
    item->step = CP_STEP_REMOVE;
    struct cp_job *job = cp_job_open(worker, item, CP_WHOLE_ITEM, 0, &del.user_data);
    rc = rg_submit_delete(worker->run->session->client, worker->cq, &del);
    if (rc < 0) {
        cp_job_cancel(worker, job);
        cp_item_fail(worker, item, "gs://%s/%s: copied, and kept: %s", bucket, name,
                     cli_submit_text(rc));
    }
}

static void file_end(struct cp_worker *worker, struct cp_item *item)
{
    const char *problem = file_remove(item);
    if (problem == NULL) {
        cp_item_end(worker, item, CP_COPIED);
    } else {
        cp_item_fail(worker, item, "%s: copied, and kept: %s", item->path, problem);
    }
}

/* What had the file's bytes when the destination was listed may be gone by now. */
static void object_confirm(struct cp_worker *worker, struct cp_item *item)
{
    struct rg_stat stat = {.bucket = item->bucket,
                           .object = item->name,
                           .conditions = {.if_generation_match = item->there.generation}};
    item->step = CP_STEP_CONFIRM;
    struct cp_job *job = cp_job_open(worker, item, CP_WHOLE_ITEM, 0, &stat.user_data);
    int rc = rg_submit_stat(worker->run->session->client, worker->cq, &stat);
    if (rc < 0) {
        cp_job_cancel(worker, job);
        cp_item_fail(worker, item, "%s: not removed: gs://%s/%s: %s", item->path, item->bucket,
                     item->name, cli_submit_text(rc));
    }
}

static void confirm_take(struct cp_worker *worker, struct cp_item *item,
                         const struct rg_completion *completion)
{
    if (completion->status == RG_STATUS_OK && !worker->run->stopping) {
        file_end(worker, item);
    } else if (completion->status == RG_STATUS_PRECONDITION ||
               completion->status == RG_STATUS_NOT_FOUND) {
        cp_item_fail(worker, item,
                     "%s: not removed, because gs://%s/%s was removed or replaced meanwhile; run "
                     "it again",
                     item->path, item->bucket, item->name);
    } else {
        cp_item_refused(worker, item, completion);
    }
}

void cp_item_done(struct cp_worker *worker, struct cp_item *item, enum cp_end end)
{
    if (!worker->run->options->moves) {
        cp_item_end(worker, item, end);
        return;
    }
    if (worker->run->stopping) {
        cp_item_end(worker, item, CP_FAILED);
        return;
    }
    bool was_there = end == CP_SKIPPED;
    int rc = item->kind == CP_DOWNLOAD && was_there ? file_claim_found(worker->run, item->path) : 0;
    if (rc < 0) {
        cp_item_fail(worker, item, "gs://%s/%s: not removed: %s: %s", item->bucket, item->name,
                     item->path, local_error_text(rc));
    } else if (item->kind != CP_UPLOAD) {
        object_remove(worker, item);
    } else if (was_there) {
        object_confirm(worker, item);
    } else {
        file_end(worker, item);
    }
}

/* A condition also fails where nothing is left: what lies between has sent the request twice. */
static bool is_absent(struct cp_worker *worker, const char *bucket, const char *name)
{
    struct cli_uri uri;
    struct there there;
    snprintf(uri.bucket, sizeof(uri.bucket), "%s", bucket);
    snprintf(uri.name, sizeof(uri.name), "%s", name);
    return lookup_one(worker->run->session, &uri, &there) == CLI_DONE && there.is_known &&
           !there.exists;
}

void cp_move_take(struct cp_worker *worker, const struct cp_job *job,
                  const struct rg_completion *completion)
{
    struct cp_item *item = job->item;
    if (item->step == CP_STEP_CONFIRM) {
        confirm_take(worker, item, completion);
        return;
    }
    bool is_copy = item->kind == CP_COPY;
    const char *bucket = is_copy ? item->from_bucket : item->bucket;
    const char *name = is_copy ? item->from_name : item->name;
    bool failed = completion->status == RG_STATUS_PRECONDITION;
    if (completion->status == RG_STATUS_OK || completion->status == RG_STATUS_NOT_FOUND ||
        (failed && !worker->run->stopping && is_absent(worker, bucket, name))) {
        cp_item_end(worker, item, CP_COPIED);
    } else if (failed) {
        cp_item_fail(worker, item,
                     "gs://%s/%s: copied, and kept: it is not generation %" PRId64 " any more",
                     bucket, name, item->generation);
    } else {
        cp_item_refused(worker, item, completion);
    }
}
