/* Objects to objects, by the server. What is the same already was found by the plan. */
#include "cli/cp.h"

static void submit(struct cp_worker *worker, struct cp_item *item)
{
    const struct cp_options *options = worker->run->options;
    struct rg_copy copy = {
        .source_bucket = item->from_bucket,
        .source_object = item->from_name,
        .source_generation = item->generation,
        .bucket = item->bucket,
        .object = item->name,
        .conditions = {.if_generation_match = options->no_clobber ? RG_GENERATION_ABSENT
                                                                  : options->if_generation_match},
        .storage_class = options->storage_class,
    };
    if (copy.conditions.if_generation_match == 0 && item->there.is_known && !item->is_unguarded) {
        /* A condition of ours lets the library try again when an answer was lost. */
        copy.conditions.if_generation_match =
            item->there.exists ? item->there.generation : RG_GENERATION_ABSENT;
    }
    struct cp_job *job = cp_job_open(worker, item, CP_WHOLE_ITEM, 0, &copy.user_data);
    int rc = rg_submit_copy(worker->run->session->client, worker->cq, &copy);
    if (rc < 0) {
        cp_job_cancel(worker, job);
        cp_item_fail(worker, item, "gs://%s/%s to gs://%s/%s: %s", item->from_bucket,
                     item->from_name, item->bucket, item->name, cli_submit_text(rc));
    }
}

void cp_copy_start(struct cp_worker *worker, struct cp_item *item)
{
    if (item->is_same) {
        cp_retype_start(worker, item);
    } else {
        submit(worker, item);
    }
}

void cp_copy_take(struct cp_worker *worker, const struct cp_job *job,
                  const struct rg_completion *completion)
{
    struct cp_item *item = job->item;
    const struct cp_options *options = worker->run->options;
    bool is_guarded = item->there.is_known && !item->is_unguarded;
    if (completion->status == RG_STATUS_OK) {
        item->size = completion->object_size;
        if (cp_retypes(options)) {
            cp_retype_info(worker, item, completion->data);
        } else {
            cp_item_done(worker, item, CP_COPIED);
        }
    } else if (completion->status == RG_STATUS_PRECONDITION && options->no_clobber) {
        cp_item_end(worker, item, CP_SKIPPED);
    } else if (completion->status == RG_STATUS_PRECONDITION && is_guarded &&
               options->if_generation_match == 0) {
        /* Another writer came between. The last one wins, as asked. */
        item->is_unguarded = true;
        submit(worker, item);
    } else {
        cp_item_refused(worker, item, completion);
    }
}
