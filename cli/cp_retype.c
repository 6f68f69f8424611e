/* Type, metadata and storage class of an object that has its bytes: it was there already, or the
 * server has just copied it.
 *
 *   stat -> copy to its own place, if the class is another -> update, if anything else is
 *
 * The copy and the update are conditional on the generation whose bytes were compared and on the
 * metageneration that was seen, so that they change nothing that somebody else has written
 * meanwhile, and can be sent again when an answer was lost.
 *
 * Then the copy that is there may have another class than was asked for, because a bucket with
 * Autoclass chooses it, and nobody can tell it from somebody else's object of the same bytes. So
 * one of the same bytes is looked at once more, and copied from its new generation.
 *
 * The answer to an upload does not tell the class. So the first object of a run that is written
 * with one is looked at, where that is allowed. */
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

static void changed_fail(struct cp_worker *worker, struct cp_item *item)
{
    cp_item_fail(worker, item,
                 "gs://%s/%s: changed by somebody else before its metadata or class were set; "
                 "run it again",
                 item->bucket, item->name);
}

/* Ends an item of a dry run. */
static void would_end(struct cp_worker *worker, struct cp_item *item, bool is_as_wanted)
{
    if (!is_as_wanted) {
        pthread_mutex_lock(&worker->run->lock);
        printf("would update gs://%s/%s\n", item->bucket, cli_shown(item->name));
        pthread_mutex_unlock(&worker->run->lock);
    }
    cp_item_end(worker, item, is_as_wanted ? CP_SKIPPED : CP_UPDATED);
}

/* Only another generation of the same bytes may be our own copy. */
static bool may_be_ours(const struct there *seen, const struct rg_object *object)
{
    return object->generation != seen->generation && object->size == seen->size &&
           seen->has_crc32c && object->has_crc32c && object->crc32c == seen->crc32c;
}

static void seen_set(struct there *seen, const struct rg_object *object)
{
    *seen = (struct there){.is_known = true,
                           .exists = true,
                           .has_crc32c = object->has_crc32c,
                           .size = object->size,
                           .generation = object->generation,
                           .crc32c = object->crc32c};
}

/* Each other object would be written for nothing, too. */
static void class_stop(struct cp_worker *worker, struct cp_item *item, const char *class)
{
    cp_item_stop(worker, item, CP_CLASS_FORMAT, item->bucket, item->name, class,
                 worker->run->options->storage_class);
}

void cp_retype_info(struct cp_worker *worker, struct cp_item *item,
                    const struct rg_object_info *info)
{
    const char *class = worker->run->options->storage_class;
    bool has_class = is_said(class, info->storage_class);
    if (worker->run->options->dry_run) {
        would_end(worker, item, has_class && has_all(worker->run->options, info));
        return;
    }
    if (item->asks_class) {
        if (has_class || info->storage_class == NULL) {
            cp_item_done(worker, item, CP_COPIED);
        } else {
            class_stop(worker, item, info->storage_class);
        }
        return;
    }
    if (item->step == CP_STEP_STAT) {
        if (item->looks_again && !may_be_ours(&item->there, &info->object)) {
            changed_fail(worker, item);
            return;
        }
        seen_set(&item->there, &info->object);
    }
    if (!has_class && item->step == CP_STEP_STAT) {
        class_submit(worker, item, info->object.generation);
    } else if (!has_class && info->storage_class != NULL) {
        class_stop(worker, item, info->storage_class);
    } else if (has_all(worker->run->options, info)) {
        enum cp_end same = item->step == CP_STEP_CLASS ? CP_UPDATED : CP_SKIPPED;
        cp_item_done(worker, item, item->is_same ? same : CP_COPIED);
    } else {
        update_submit(worker, item, info->object.generation, info->metageneration);
    }
}

/* generation 0: of any. */
static void stat_submit(struct cp_worker *worker, struct cp_item *item, int64_t generation)
{
    struct rg_stat stat = {.bucket = item->bucket,
                           .object = item->name,
                           .conditions = {.if_generation_match = generation}};
    item->step = CP_STEP_STAT;
    struct cp_job *job = cp_job_open(worker, item, CP_WHOLE_ITEM, 0, &stat.user_data);
    submitted(worker, item, job, rg_submit_stat(worker->run->session->client, worker->cq, &stat));
}

void cp_retype_start(struct cp_worker *worker, struct cp_item *item)
{
    item->is_same = true;
    stat_submit(worker, item, item->there.generation);
}

void cp_retype_ask_class(struct cp_worker *worker, struct cp_item *item, int64_t generation)
{
    item->asks_class = true;
    stat_submit(worker, item, generation);
}

void cp_retype_take(struct cp_worker *worker, const struct cp_job *job,
                    const struct rg_completion *completion)
{
    struct cp_item *item = job->item;
    bool changed =
        completion->status == RG_STATUS_PRECONDITION || completion->status == RG_STATUS_NOT_FOUND;
    if (item->asks_class && completion->status != RG_STATUS_OK) {
        cp_item_done(worker, item, CP_COPIED); /* It was written; more is not known. */
    } else if (completion->status == RG_STATUS_OK && item->step != CP_STEP_UPDATE) {
        cp_retype_info(worker, item, completion->data);
    } else if (completion->status == RG_STATUS_OK) {
        cp_item_done(worker, item, item->is_same ? CP_UPDATED : CP_COPIED);
    } else if (changed && item->step == CP_STEP_CLASS && !item->looks_again) {
        item->looks_again = true;
        stat_submit(worker, item, 0);
    } else if (changed) {
        changed_fail(worker, item);
    } else {
        cp_item_refused(worker, item, completion);
    }
}
