/* See bucket_folders.h. */
#include "emulator/store/bucket_folders.h"

#include "emulator/store/bucket_state.h"

#include <errno.h>

/* Collects the names of the objects in a folder, each behind its size. */
static int collect_names(struct rg_bucket *bucket, struct rg_h1_slice folder, struct rg_text *out)
{
    struct rg_store_entry entry;
    char next[RG_STORE_NAME_SIZE_MAX + 1];
    struct rg_h1_slice from = folder;
    int rc;
    while ((rc = bucket->backend->seek(bucket->written, from, &entry)) == 0) {
        struct rg_h1_slice name = {entry.name, entry.name_size};
        if (!rg_text_starts_with(name, folder)) {
            break;
        }
        rg_text_append(out, &name.size, sizeof(name.size));
        rg_text_append(out, name.data, name.size);
        memcpy(next, name.data, name.size);
        next[name.size] = '\0';
        from = (struct rg_h1_slice){next, name.size + 1};
    }
    rc = rc == -ENOENT ? 0 : rc;
    return rc == 0 && out->failed ? -ENOMEM : rc;
}

static int move_object(struct rg_bucket *bucket, struct rg_h1_slice name, struct rg_h1_slice from,
                       struct rg_h1_slice to)
{
    char moved[RG_STORE_NAME_SIZE_MAX];
    uint32_t rest = name.size - from.size;
    if (rest > RG_STORE_NAME_SIZE_MAX - to.size) {
        return 0; /* Only a file that was put there by hand has so long a name. It stays where it
                     is. */
    }
    memcpy(moved, to.data, to.size);
    memcpy(moved + to.size, name.data + from.size, rest);
    return bucket->backend->move(bucket->written, name,
                                 (struct rg_h1_slice){moved, to.size + rest});
}

/* Gives the objects of a renamed folder their new names. They are collected first, because every
 * change makes a search begin anew. */
static int move_objects(struct rg_bucket *bucket, struct rg_h1_slice from, struct rg_h1_slice to)
{
    struct rg_text names = {0};
    int rc = collect_names(bucket, from, &names);
    for (size_t at = 0; at < names.size && rc == 0;) {
        struct rg_h1_slice name;
        memcpy(&name.size, names.data + at, sizeof(name.size));
        name.data = names.data + at + sizeof(name.size);
        rc = move_object(bucket, name, from, to);
        at += sizeof(name.size) + name.size;
    }
    rg_text_fini(&names);
    return rc;
}

/* Completes a rename that has begun, in this process or in the last one. */
static int finish_rename(struct rg_bucket *bucket)
{
    struct rg_h1_slice from, to;
    if (!rg_folders_unfinished(rg_bucket_folders(bucket), &from, &to)) {
        return 0;
    }
    int rc = move_objects(bucket, from, to);
    return rc == 0 ? rg_folders_end_rename(rg_bucket_folders(bucket)) : rc;
}

int rg_bucket_get_folder(struct rg_bucket *bucket, struct rg_h1_slice name,
                         struct rg_folder_info *out_info)
{
    return rg_folders_get(rg_bucket_folders(bucket), name, out_info);
}

int rg_bucket_seek_folder(struct rg_bucket *bucket, struct rg_h1_slice from,
                          struct rg_folder_entry *out_entry)
{
    struct rg_folders *folders = rg_bucket_folders(bucket);
    return folders != NULL ? rg_folders_seek(folders, from, out_entry) : -ENOENT;
}

static int create_folder_locked(struct rg_bucket *bucket, struct rg_h1_slice name, bool recursive,
                                struct rg_folder_info *out_info)
{
    struct rg_folders *folders = rg_bucket_folders(bucket);
    struct rg_h1_slice above = {name.data, name.size - 1};
    int rc = recursive ? rg_folders_add_path(folders, above) : 0;
    rc = rc == 0 ? rg_folders_add(folders, name) : rc;
    return rc == 0 ? rg_folders_get(folders, name, out_info) : rc;
}

int rg_bucket_create_folder(struct rg_bucket *bucket, struct rg_h1_slice name, bool recursive,
                            struct rg_folder_info *out_info)
{
    pthread_mutex_lock(&bucket->lock);
    int rc = atomic_load(&bucket->removed)
                 ? -ENOENT
                 : create_folder_locked(bucket, name, recursive, out_info);
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

static int check_folder_locked(struct rg_bucket *bucket, struct rg_h1_slice name,
                               const struct rg_store_conditions *conditions)
{
    struct rg_folder_info folder;
    int rc = rg_bucket_get_folder(bucket, name, &folder);
    struct rg_store_object_info info = {.metageneration = folder.metageneration};
    return rc == 0 ? rg_store_conditions_check(conditions, &info) : rc;
}

/* Whether there is an object in the folder: 1, 0, or what the store says. */
static int holds_object(struct rg_bucket *bucket, struct rg_h1_slice folder)
{
    struct rg_store_entry entry;
    int rc = rg_bucket_seek_object(bucket, folder, &entry);
    return rc == 0         ? rg_text_starts_with(rg_store_entry_name(&entry), folder)
           : rc == -ENOENT ? 0
                           : rc;
}

static int remove_folder_locked(struct rg_bucket *bucket, struct rg_h1_slice name,
                                const struct rg_store_conditions *conditions)
{
    int rc = check_folder_locked(bucket, name, conditions);
    rc = rc == 0 ? holds_object(bucket, name) : rc;
    if (rc != 0) {
        return rc > 0 ? -ENOTEMPTY : rc;
    }
    return rg_folders_remove(rg_bucket_folders(bucket), name);
}

int rg_bucket_remove_folder(struct rg_bucket *bucket, struct rg_h1_slice name,
                            const struct rg_store_conditions *conditions)
{
    pthread_mutex_lock(&bucket->lock);
    int rc = remove_folder_locked(bucket, name, conditions);
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

static int rename_folder_locked(struct rg_bucket *bucket, struct rg_h1_slice from,
                                struct rg_h1_slice to, const struct rg_store_conditions *conditions,
                                struct rg_folder_info *out_info)
{
    int rc = check_folder_locked(bucket, from, conditions);
    /* A file that was put there by hand may lie where no folder is known. */
    rc = rc == 0 && !rg_text_starts_with(to, from) ? holds_object(bucket, to) : rc;
    if (rc != 0) {
        return rc > 0 ? -EEXIST : rc;
    }
    rc = rg_folders_begin_rename(rg_bucket_folders(bucket), from, to);
    rc = rc == 0 ? finish_rename(bucket) : rc;
    return rc == 0 ? rg_bucket_get_folder(bucket, to, out_info) : rc;
}

int rg_bucket_rename_folder(struct rg_bucket *bucket, struct rg_h1_slice from,
                            struct rg_h1_slice to, const struct rg_store_conditions *conditions,
                            struct rg_folder_info *out_info)
{
    pthread_mutex_lock(&bucket->lock);
    int rc = rename_folder_locked(bucket, from, to, conditions, out_info);
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

int rg_bucket_recover_folders(struct rg_bucket *bucket)
{
    return rg_bucket_is_hierarchical(bucket) ? finish_rename(bucket) : 0;
}
