/* The type of an object that has its bytes: it was there already, or the server has just copied it.
 *
 *   stat -> update, if the type is another one
 *
 * The update is conditional on the generation whose bytes were compared and on the metageneration
 * that was seen, so that it changes nothing that somebody else has written meanwhile, and can be
 * sent again when its answer was lost. */
#include "cli/cp.h"

#include <string.h>

bool cp_retypes(const struct cp_options *options)
{
    return options->content_type != NULL && options->content_type[0] != '\0';
}

static void submitted(struct cp_worker *worker, struct cp_item *item, struct cp_job *job, int rc)
{
    if (rc < 0) {
        cp_job_cancel(worker, job);
        cp_item_fail(worker, item, "gs://%s/%s: %s", item->bucket, item->name, cli_submit_text(rc));
    }
}

static void update_submit(struct cp_worker *worker, struct cp_item *item, int64_t generation,
                          int64_t metageneration)
{
    struct rg_update update = {
        .bucket = item->bucket,
        .object = item->name,
        .content_type = worker->run->options->content_type,
        .conditions = {.if_generation_match = generation,
                       .if_metageneration_match = metageneration},
    };
    item->step = CP_STEP_UPDATE;
    struct cp_job *job = cp_job_open(worker, item, CP_WHOLE_ITEM, 0, &update.user_data);
    submitted(worker, item, job,
              rg_submit_update(worker->run->session->client, worker->cq, &update));
}

void cp_retype_info(struct cp_worker *worker, struct cp_item *item,
                    const struct rg_object_info *info)
{
    const char *type = info->content_type != NULL ? info->content_type : "";
    if (strcmp(type, worker->run->options->content_type) == 0) {
        cp_item_done(worker, item, item->is_same ? CP_SKIPPED : CP_COPIED);
    } else {
        update_submit(worker, item, info->object.generation, info->metageneration);
    }
}

void cp_retype_start(struct cp_worker *worker, struct cp_item *item)
{
    struct rg_stat stat = {.bucket = item->bucket,
                           .object = item->name,
                           .conditions = {.if_generation_match = item->there.generation}};
    item->step = CP_STEP_STAT;
    item->is_same = true;
    struct cp_job *job = cp_job_open(worker, item, CP_WHOLE_ITEM, 0, &stat.user_data);
    submitted(worker, item, job, rg_submit_stat(worker->run->session->client, worker->cq, &stat));
}

void cp_retype_take(struct cp_worker *worker, const struct cp_job *job,
                    const struct rg_completion *completion)
{
    struct cp_item *item = job->item;
    bool changed =
        completion->status == RG_STATUS_PRECONDITION || completion->status == RG_STATUS_NOT_FOUND;
    if (completion->status == RG_STATUS_OK && item->step == CP_STEP_STAT) {
        cp_retype_info(worker, item, completion->data);
    } else if (completion->status == RG_STATUS_OK) {
        cp_item_done(worker, item, item->is_same ? CP_UPDATED : CP_COPIED);
    } else if (changed) {
        cp_item_fail(worker, item,
                     "gs://%s/%s: changed by somebody else before its type was set; run it again",
                     item->bucket, item->name);
    } else {
        cp_item_refused(worker, item, completion);
    }
}
