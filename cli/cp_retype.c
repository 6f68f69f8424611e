/* Type, metadata and storage class of an object that has its bytes: it was there already, or the
 * server has just copied it.
 *
 *   stat -> copy to its own place, if the class is another -> update, if anything else is
 *
 * The copy and the update are conditional on the generation whose bytes were compared and on the
 * metageneration that was seen, so that they change nothing that somebody else has written
 * meanwhile, and can be sent again when an answer was lost. */
#include "cli/cp.h"

#include <string.h>

bool cp_retypes(const struct cp_options *options)
{
    return (options->content_type != NULL && options->content_type[0] != '\0') ||
           options->cache_control != NULL || options->content_encoding != NULL ||
           options->metadata_count > 0 || options->storage_class != NULL;
}

/* Where "" was given there is to be nothing. */
static bool is_said(const char *wanted, const char *found)
{
    return wanted == NULL || strcmp(wanted, found != NULL ? found : "") == 0;
}

static bool has_metadata(const struct rg_object_info *info, const struct rg_metadata *wanted)
{
    for (size_t i = 0; i < info->metadata_count; i++) {
        if (strcmp(info->metadata[i].key, wanted->key) == 0) {
            return info->metadata[i].value != NULL &&
                   strcmp(info->metadata[i].value, wanted->value) == 0;
        }
    }
    return false;
}

static const char *type_wanted(const struct cp_options *options)
{
    bool is_any = options->content_type != NULL && options->content_type[0] != '\0';
    return is_any ? options->content_type : NULL;
}

static bool has_all(const struct cp_options *options, const struct rg_object_info *info)
{
    bool all = is_said(type_wanted(options), info->content_type) &&
               is_said(options->cache_control, info->cache_control) &&
               is_said(options->content_encoding, info->content_encoding);
    for (size_t i = 0; i < options->metadata_count && all; i++) {
        all = has_metadata(info, &options->metadata[i]);
    }
    return all;
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
    const struct cp_options *options = worker->run->options;
    struct rg_update update = {
        .bucket = item->bucket,
        .object = item->name,
        .content_type = type_wanted(options),
        .content_encoding = options->content_encoding,
        .cache_control = options->cache_control,
        .metadata = options->metadata,
        .metadata_count = options->metadata_count,
        .conditions = {.if_generation_match = generation,
                       .if_metageneration_match = metageneration},
    };
    item->step = CP_STEP_UPDATE;
    struct cp_job *job = cp_job_open(worker, item, CP_WHOLE_ITEM, 0, &update.user_data);
    submitted(worker, item, job,
              rg_submit_update(worker->run->session->client, worker->cq, &update));
}

/* Only the copy of an object gets another class. */
static void class_submit(struct cp_worker *worker, struct cp_item *item, int64_t generation)
{
    struct rg_copy copy = {
        .source_bucket = item->bucket,
        .source_object = item->name,
        .source_generation = generation,
        .bucket = item->bucket,
        .object = item->name,
        .storage_class = worker->run->options->storage_class,
    };
    item->step = CP_STEP_CLASS;
    struct cp_job *job = cp_job_open(worker, item, CP_WHOLE_ITEM, 0, &copy.user_data);
    submitted(worker, item, job, rg_submit_copy(worker->run->session->client, worker->cq, &copy));
}

void cp_retype_info(struct cp_worker *worker, struct cp_item *item,
                    const struct rg_object_info *info)
{
    const char *class = worker->run->options->storage_class;
    bool has_class = is_said(class, info->storage_class);
    if (!has_class && item->step == CP_STEP_STAT) {
        class_submit(worker, item, info->object.generation);
    } else if (!has_class && info->storage_class != NULL) {
        /* Each other object would be copied for nothing, too. */
        cp_item_stop(worker, item,
                     "gs://%s/%s: the server gave it the storage class %s instead of %s; with "
                     "Autoclass, the bucket chooses classes itself: leave --storage-class out",
                     item->bucket, item->name, info->storage_class, class);
    } else if (has_all(worker->run->options, info)) {
        enum cp_end same = item->step == CP_STEP_CLASS ? CP_UPDATED : CP_SKIPPED;
        cp_item_done(worker, item, item->is_same ? same : CP_COPIED);
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
    if (completion->status == RG_STATUS_OK && item->step != CP_STEP_UPDATE) {
        cp_retype_info(worker, item, completion->data);
    } else if (completion->status == RG_STATUS_OK) {
        cp_item_done(worker, item, item->is_same ? CP_UPDATED : CP_COPIED);
    } else if (changed) {
        cp_item_fail(worker, item,
                     "gs://%s/%s: changed by somebody else before its metadata or class were set; "
                     "run it again",
                     item->bucket, item->name);
    } else {
        cp_item_refused(worker, item, completion);
    }
}
