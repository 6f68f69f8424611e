/* See bucket.h. */
#include "emulator/store/bucket.h"

#include "emulator/store/bucket_state.h"
#include "emulator/store/model/clock.h"
#include "emulator/store/model/protection.h"

#include <errno.h>
#include <stdlib.h>

struct rg_h1_slice rg_bucket_name(const struct rg_bucket *bucket)
{
    return (struct rg_h1_slice){bucket->name, bucket->name_size};
}

void rg_bucket_get_info(struct rg_bucket *bucket, struct rg_bucket_info *out_info)
{
    pthread_mutex_lock(&bucket->lock);
    *out_info = bucket->info;
    pthread_mutex_unlock(&bucket->lock);
    out_info->settings = NULL;
}

struct rg_bucket_settings *rg_bucket_get_settings(struct rg_bucket *bucket)
{
    pthread_mutex_lock(&bucket->lock);
    struct rg_bucket_settings *settings = rg_bucket_settings_ref(bucket->info.settings);
    pthread_mutex_unlock(&bucket->lock);
    return settings;
}

bool rg_bucket_requester_pays(struct rg_bucket *bucket)
{
    return atomic_load_explicit(&bucket->requester_pays, memory_order_relaxed);
}

bool rg_bucket_is_hierarchical(struct rg_bucket *bucket)
{
    return rg_bucket_folders(bucket) != NULL;
}

static int open_folders(struct rg_bucket *bucket)
{
    struct rg_folders *folders;
    int rc = rg_folders_open(&folders, bucket->backend, bucket->written);
    if (rc == 0) {
        atomic_store_explicit(&bucket->folders, folders, memory_order_release);
    }
    return rc;
}

/* A bucket has folders if it is hierarchical, and then no synthetic objects; what is kept beside
 * its description agrees with it. */
static bool invariants_locked(struct rg_bucket *bucket)
{
    return bucket->info.hierarchical == rg_bucket_is_hierarchical(bucket) &&
           !(bucket->info.hierarchical && bucket->sets.count > 0) &&
           bucket->info.requester_pays == rg_bucket_requester_pays(bucket) &&
           rg_store_bucket_name_valid(rg_bucket_name(bucket));
}

int rg_bucket_create(struct rg_bucket **out_bucket, struct rg_h1_slice name,
                     const struct rg_store_backend *backend, void *written,
                     const struct rg_bucket_info *info, _Atomic int64_t *last_generation)
{
    struct rg_bucket *bucket = calloc(1, sizeof(*bucket));
    if (bucket == NULL) {
        backend->close(written);
        rg_bucket_settings_unref(info->settings);
        return -ENOMEM;
    }
    bucket->backend = backend;
    bucket->written = written;
    bucket->last_generation = last_generation;
    bucket->info = *info;
    bucket->name_size = name.size;
    memcpy(bucket->name, name.data, name.size);
    pthread_mutex_init(&bucket->lock, NULL);
    atomic_init(&bucket->requester_pays, info->requester_pays);
    int rc = info->hierarchical ? open_folders(bucket) : 0;
    if (rc < 0) {
        rg_bucket_destroy(bucket);
        return rc;
    }
    RG_VERIFY(invariants_locked(bucket));
    *out_bucket = bucket;
    return 0;
}

void rg_bucket_destroy(struct rg_bucket *bucket)
{
    rg_folders_close(rg_bucket_folders(bucket));
    bucket->backend->close(bucket->written);
    rg_synthetic_sets_fini(&bucket->sets);
    rg_bucket_settings_unref(bucket->info.settings);
    pthread_mutex_destroy(&bucket->lock);
    free(bucket);
}

static int configure_locked(struct rg_bucket *bucket, const struct rg_bucket_info *wanted,
                            int64_t metageneration)
{
    struct rg_bucket_info info = *wanted;
    bool is_new = metageneration == RG_BUCKET_IS_NEW;
    if (metageneration != 0 && !is_new && metageneration != bucket->info.metageneration) {
        return -ESTALE;
    }
    if (info.hierarchical != bucket->info.hierarchical &&
        (bucket->info.metageneration != 1 || bucket->sets.count > 0)) {
        return -EPERM;
    }
    info.created_us = bucket->info.created_us;
    info.updated_us = rg_store_now_us();
    info.metageneration = bucket->info.metageneration + !is_new;
    int rc =
        bucket->backend->save_info != NULL ? bucket->backend->save_info(bucket->written, &info) : 0;
    if (rc == 0 && info.hierarchical && !rg_bucket_is_hierarchical(bucket)) {
        rc = open_folders(bucket);
    }
    if (rc == 0) {
        info.settings = rg_bucket_settings_ref(info.settings);
        rg_bucket_settings_unref(bucket->info.settings);
        bucket->info = info;
        atomic_store_explicit(&bucket->requester_pays, info.requester_pays, memory_order_relaxed);
    }
    return rc;
}

int rg_bucket_configure(struct rg_bucket *bucket, const struct rg_bucket_info *info,
                        int64_t metageneration)
{
    pthread_mutex_lock(&bucket->lock);
    int rc = configure_locked(bucket, info, metageneration);
    RG_VERIFY(rc < 0 || invariants_locked(bucket));
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

int rg_bucket_open_object(struct rg_bucket *bucket, struct rg_h1_slice name,
                          struct rg_store_object *out_object)
{
    int rc = bucket->backend->open(bucket->written, name, 0, false, out_object);
    return rc == -ENOENT ? rg_synthetic_sets_open(&bucket->sets, name, out_object) : rc;
}

int rg_bucket_open_version(struct rg_bucket *bucket, struct rg_h1_slice name, int64_t generation,
                           struct rg_store_object *out_object)
{
    int rc = -ENOENT;
    if (generation != 0) {
        rc = bucket->backend->open(bucket->written, name, generation, false, out_object);
    }
    if (rc != -ENOENT) {
        return rc;
    }
    rc = rg_bucket_open_object(bucket, name, out_object);
    if (rc == 0 && generation != 0 && out_object->info.generation != generation) {
        rg_store_object_close(out_object);
        rc = -ENOENT;
    }
    return rc;
}

/* What becomes of a version that is replaced or removed. One that was asked for by its
 * generation does not become noncurrent. The bucket is locked. */
static struct rg_store_fate fate_of(struct rg_bucket *bucket, bool by_generation)
{
    struct rg_store_fate fate = {0};
    int64_t soft_delete_us = bucket->info.soft_delete_us;
    if (bucket->info.versioning && !by_generation) {
        fate.kept = true;
    } else if (soft_delete_us > 0) {
        fate.kept = true;
        fate.soft_delete_us = soft_delete_us;
    }
    return fate;
}

/* Conditions against the object as it is now. The bucket is locked, so that it stays so. */
static int check_conditions_locked(struct rg_bucket *bucket, struct rg_h1_slice name,
                                   const struct rg_store_conditions *conditions)
{
    if (!conditions->generation.set && !conditions->generation_match.set &&
        !conditions->generation_not_match.set && !conditions->metageneration_match.set &&
        !conditions->metageneration_not_match.set) {
        return 0;
    }
    struct rg_store_object object;
    int rc = rg_bucket_open_version(
        bucket, name, conditions->generation.set ? conditions->generation.value : 0, &object);
    if (rc < 0) {
        return rc == -ENOENT ? rg_store_conditions_check(conditions, NULL) : rc;
    }
    rc = rg_store_conditions_check(conditions, &object.info);
    rg_store_object_close(&object);
    return rc;
}

int rg_bucket_check_conditions(struct rg_bucket *bucket, struct rg_h1_slice name,
                               const struct rg_store_conditions *conditions)
{
    pthread_mutex_lock(&bucket->lock);
    int rc = check_conditions_locked(bucket, name, conditions);
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

/* Whether what is there may be removed or replaced. */
static int check_protection_locked(struct rg_bucket *bucket, struct rg_h1_slice name,
                                   int64_t generation)
{
    struct rg_store_object object;
    int rc = rg_bucket_open_version(bucket, name, generation, &object);
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    rc = rg_protection_check(bucket->info.retention_us, &object.info, rg_store_now_us());
    rg_store_object_close(&object);
    return rc;
}

/* Removes the written object, or one version of it, and hides synthetic objects of the name. */
static int remove_object_locked(struct rg_bucket *bucket, struct rg_h1_slice name,
                                int64_t generation, const struct rg_store_fate *fate)
{
    int rc = bucket->backend->remove(bucket->written, name, generation, fate);
    if ((rc < 0 && rc != -ENOENT) || (rc == 0 && generation != 0)) {
        return rc;
    }
    int hidden = rg_synthetic_sets_hide(&bucket->sets, name);
    return hidden != -ENOENT ? hidden : rc;
}

int rg_bucket_remove_object(struct rg_bucket *bucket, struct rg_h1_slice name,
                            const struct rg_store_conditions *conditions)
{
    pthread_mutex_lock(&bucket->lock);
    int rc = check_conditions_locked(bucket, name, conditions);
    int64_t generation = conditions->generation.set ? conditions->generation.value : 0;
    struct rg_store_fate fate = fate_of(bucket, generation != 0);
    rc = rc == 0 ? check_protection_locked(bucket, name, generation) : rc;
    rc = rc == 0 ? remove_object_locked(bucket, name, generation, &fate) : rc;
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

int rg_bucket_move_away(struct rg_bucket *bucket, struct rg_h1_slice name, int64_t generation)
{
    struct rg_store_conditions conditions = {.generation_match = {true, generation}};
    pthread_mutex_lock(&bucket->lock);
    int rc = check_conditions_locked(bucket, name, &conditions);
    struct rg_store_fate fate = {.kept = bucket->info.versioning};
    rc = rc == 0 ? check_protection_locked(bucket, name, 0) : rc;
    rc = rc == 0 ? remove_object_locked(bucket, name, 0, &fate) : rc;
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

int rg_bucket_open_soft_deleted(struct rg_bucket *bucket, struct rg_h1_slice name,
                                int64_t generation, struct rg_store_object *out_object)
{
    return bucket->backend->open(bucket->written, name, generation, true, out_object);
}

int rg_bucket_seek_soft_deleted(struct rg_bucket *bucket, struct rg_h1_slice from, int64_t after,
                                struct rg_store_entry *out_entry)
{
    return bucket->backend->seek_version(bucket->written, from, after, true, out_entry);
}

int rg_bucket_seek_object(struct rg_bucket *bucket, struct rg_h1_slice from,
                          struct rg_store_entry *out_entry)
{
    struct rg_store_entry found;
    int rc = bucket->backend->seek(bucket->written, from, out_entry);
    if (rc == -ENOENT) {
        return rg_synthetic_sets_seek(&bucket->sets, from, out_entry);
    }
    /* A written object comes before a synthetic one of its name, which it shadows. */
    if (rc == 0 && rg_synthetic_sets_seek(&bucket->sets, from, &found) == 0 &&
        rg_text_compare(rg_store_entry_name(&found), rg_store_entry_name(out_entry)) < 0) {
        *out_entry = found;
    }
    return rc;
}

/* The first synthetic object at or behind `from` that no written one shadows. An object of
 * exactly that name has to have a generation behind `after`. */
static int seek_synthetic_version(struct rg_bucket *bucket, struct rg_h1_slice from, int64_t after,
                                  struct rg_store_entry *out_entry)
{
    char next[RG_STORE_NAME_SIZE_MAX + 1];
    for (;;) {
        struct rg_store_object written;
        int rc = rg_synthetic_sets_seek(&bucket->sets, from, out_entry);
        if (rc < 0) {
            return rc;
        }
        struct rg_h1_slice name = rg_store_entry_name(out_entry);
        bool passed = rg_text_compare(name, from) == 0 && out_entry->info.generation <= after;
        if (!passed) {
            rc = bucket->backend->open(bucket->written, name, 0, false, &written);
            if (rc == -ENOENT) {
                return 0;
            }
            if (rc < 0) {
                return rc;
            }
            rg_store_object_close(&written);
        }
        memcpy(next, name.data, name.size);
        next[name.size] = '\0';
        from = (struct rg_h1_slice){next, name.size + 1};
    }
}

int rg_bucket_seek_version(struct rg_bucket *bucket, struct rg_h1_slice from, int64_t after,
                           struct rg_store_entry *out_entry)
{
    struct rg_store_entry found;
    int rc = bucket->backend->seek_version(bucket->written, from, after, false, out_entry);
    if ((rc < 0 && rc != -ENOENT) || seek_synthetic_version(bucket, from, after, &found) < 0) {
        return rc;
    }
    int order =
        rc == 0 ? rg_text_compare(rg_store_entry_name(&found), rg_store_entry_name(out_entry)) : -1;
    if (order < 0 || (order == 0 && found.info.generation < out_entry->info.generation)) {
        *out_entry = found;
    }
    return 0;
}

static int update_locked(struct rg_bucket *bucket, struct rg_h1_slice name,
                         struct rg_store_object_info *info)
{
    struct rg_store_object object;
    int rc = bucket->backend->open(bucket->written, name, info->generation, false, &object);
    if (rc < 0) {
        return rc;
    }
    struct rg_store_object_info updated = object.info;
    rg_store_object_close(&object);
    if (updated.metageneration != info->metageneration) {
        return -EAGAIN;
    }
    updated.metageneration++;
    updated.updated_us = rg_store_now_us();
    memcpy(updated.content_type, info->content_type, sizeof(updated.content_type));
    memcpy(updated.content_encoding, info->content_encoding, sizeof(updated.content_encoding));
    updated.attributes = info->attributes;
    updated.has_attributes = info->attributes != NULL;
    rc = bucket->backend->update(bucket->written, name, &updated);
    if (rc == 0) {
        *info = updated;
    }
    return rc;
}

int rg_bucket_update_object(struct rg_bucket *bucket, struct rg_h1_slice name,
                            struct rg_store_object_info *info)
{
    pthread_mutex_lock(&bucket->lock);
    int rc = update_locked(bucket, name, info);
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

static int commit_locked(struct rg_bucket *bucket, struct rg_h1_slice name, void *writer,
                         struct rg_store_object_info *info)
{
    int rc = check_protection_locked(bucket, name, 0);
    if (rc == 0 && rg_bucket_is_hierarchical(bucket)) {
        rc = rg_folders_add_path(rg_bucket_folders(bucket), name);
    }
    if (rc < 0) {
        bucket->backend->abort(writer);
        return rc;
    }
    info->generation = rg_store_next_generation(bucket->last_generation);
    info->updated_us = info->generation;
    struct rg_store_fate fate = fate_of(bucket, false);
    return bucket->backend->commit(writer, name, info, &fate);
}

int rg_bucket_commit(struct rg_bucket *bucket, struct rg_h1_slice name, void *writer,
                     const struct rg_store_conditions *conditions,
                     struct rg_store_object_info *info)
{
    pthread_mutex_lock(&bucket->lock);
    int rc =
        atomic_load(&bucket->removed) ? -ENOENT : check_conditions_locked(bucket, name, conditions);
    if (rc == 0) {
        rc = commit_locked(bucket, name, writer, info);
    } else {
        bucket->backend->abort(writer);
    }
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

int rg_bucket_add_set(struct rg_bucket *bucket, struct rg_synthetic *set)
{
    RG_ASSERT(!rg_bucket_is_hierarchical(bucket));
    int rc = rg_synthetic_sets_add(&bucket->sets, set);
    RG_VERIFY(invariants_locked(bucket));
    return rc;
}
