/* Objects to objects, by the server. What is the same already was found by the plan. */
#include "cli/cp.h"

#include <string.h>

/* Times that a move copies again, because an answer was lost and the copy that is there may be
 * another's. */
#define COPIES_MAX 3

static bool is_own_place(const struct cp_item *item)
{
    return strcmp(item->bucket, item->from_bucket) == 0 && strcmp(item->name, item->from_name) == 0;
}

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
    bool is_guarded = item->there.is_known && !item->is_unguarded && !is_own_place(item);
    if (copy.conditions.if_generation_match == 0 && is_guarded) {
        /* A condition of ours lets the library try again when an answer was lost. To its own place
         * the library has one: what was seen there later than the source would be undone. */
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

/* Of what is there nobody knows whether we have written it. */
static void found_take(struct cp_worker *worker, struct cp_item *item, int64_t generation)
{
    const struct cp_options *options = worker->run->options;
    if (options->if_generation_match != 0 || options->no_clobber || ++item->copies > COPIES_MAX) {
        cp_item_fail(worker, item,
                     "gs://%s/%s to gs://%s/%s: an answer was lost, and somebody else may have "
                     "written what is there, which has the same bytes%s",
                     item->from_bucket, item->from_name, item->bucket, item->name,
                     options->moves ? "; the source is kept" : "");
        return;
    }
    item->there = (struct there){.is_known = true, .exists = true, .generation = generation};
    item->is_unguarded = false;
    submit(worker, item);
}

void cp_copy_take(struct cp_worker *worker, const struct cp_job *job,
                  const struct rg_completion *completion)
{
    struct cp_item *item = job->item;
    const struct cp_options *options = worker->run->options;
    bool is_guarded = item->there.is_known && !item->is_unguarded;
    bool must_be_ours = options->moves || options->if_generation_match != 0;
    if (completion->status == RG_STATUS_OK && completion->found_done && must_be_ours) {
        found_take(worker, item, completion->generation);
    } else if (completion->status == RG_STATUS_OK) {
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
