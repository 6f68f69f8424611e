/* The source of a move, when the destination has its bytes: a file that has not changed since it
 * was read, or exactly the generation of an object that was copied. Whatever stops the command
 * before leaves the source; nothing is lost, and the move can be repeated. */
#include "cli/cp.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

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
    if (item->kind != CP_UPLOAD) {
        object_remove(worker, item);
        return;
    }
    const char *problem = file_remove(item);
    if (problem == NULL) {
        cp_item_end(worker, item, CP_COPIED);
    } else {
        cp_item_fail(worker, item, "%s: copied, and kept: %s", item->path, problem);
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
