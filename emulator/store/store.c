/* Buckets by name; see store.h. */
#include "emulator/store/store.h"

#include "emulator/store/bucket_folders.h"
#include "emulator/store/bucket_state.h"
#include "emulator/store/disk/disk.h"
#include "emulator/store/disk/files.h"
#include "emulator/store/memory/memory.h"
#include "emulator/store/model/backend.h"
#include "emulator/store/model/clock.h"
#include "emulator/store/synthetic.h"
#include "emulator/wire/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUCKET_SLOTS 256

struct rg_store {
    const struct rg_store_backend *backend;
    int root_fd; /* -1 in memory. */
    bool strict_buckets;
    struct rg_memory_budget budget;
    _Atomic int64_t generation; /* The last one given. */
    pthread_mutex_t
        lock; /* Held to add a bucket. Finding one takes no lock, because none is ever taken out. */
    struct rg_bucket *_Atomic slots[BUCKET_SLOTS];
};

static size_t bucket_slot(struct rg_h1_slice name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (uint32_t i = 0; i < name.size; i++) {
        hash = (hash ^ (uint8_t)name.data[i]) * 16777619u;
    }
    return hash % BUCKET_SLOTS;
}

static struct rg_bucket *find_known(struct rg_store *store, struct rg_h1_slice name)
{
    struct rg_bucket *bucket = atomic_load(&store->slots[bucket_slot(name)]);
    while (bucket != NULL && (atomic_load_explicit(&bucket->removed, memory_order_relaxed) ||
                              rg_text_compare(rg_bucket_name(bucket), name) != 0)) {
        bucket = bucket->next;
    }
    return bucket;
}

/* Each bucket is in the slot of its name, and only one of a name is not removed. */
static bool invariants_locked(struct rg_store *store)
{
    for (size_t slot = 0; slot < BUCKET_SLOTS; slot++) {
        const struct rg_bucket *bucket = atomic_load(&store->slots[slot]);
        for (; bucket != NULL; bucket = bucket->next) {
            const struct rg_bucket *found = find_known(store, rg_bucket_name(bucket));
            /* A bucket may be removed at any time, so this is asked last. */
            if (bucket_slot(rg_bucket_name(bucket)) != slot ||
                (found != bucket && !atomic_load(&bucket->removed))) {
                return false;
            }
        }
    }
    return true;
}

static void info_init(struct rg_bucket_info *out)
{
    int64_t now = rg_store_now_us();
    *out = (struct rg_bucket_info){.created_us = now,
                                   .updated_us = now,
                                   .metageneration = 1,
                                   .location = "US",
                                   .storage_class = RG_STORE_CLASS_DEFAULT};
}

/* Makes the bucket known. With `create` it may be new to the backend, too. */
static int add_bucket_locked(struct rg_store *store, struct rg_h1_slice name, bool create,
                             struct rg_bucket **out_bucket)
{
    struct rg_bucket *bucket;
    struct rg_bucket_info info;
    void *written;
    info_init(&info);
    int rc = store->root_fd >= 0
                 ? rg_disk_bucket_open(&written, store->root_fd, name, create, &info)
             : create ? rg_memory_bucket_open(&written, &store->budget)
                      : -ENOENT;
    if (rc < 0) {
        return rc;
    }
    rc = rg_bucket_create(&bucket, name, store->backend, written, &info, &store->generation);
    if (rc < 0) {
        return rc;
    }
    rc = rg_bucket_recover_folders(bucket);
    if (rc < 0) {
        rg_bucket_destroy(bucket);
        return rc;
    }
    size_t slot = bucket_slot(name);
    bucket->next = atomic_load(&store->slots[slot]);
    atomic_store(&store->slots[slot], bucket);
    RG_VERIFY(invariants_locked(store));
    *out_bucket = bucket;
    return 0;
}

/* -EEXIST with the bucket when it was known already. */
static int add_bucket(struct rg_store *store, struct rg_h1_slice name, bool create,
                      struct rg_bucket **out_bucket)
{
    pthread_mutex_lock(&store->lock);
    struct rg_bucket *known = find_known(store, name);
    int rc = -EEXIST;
    if (known != NULL) {
        *out_bucket = known;
    } else {
        rc = add_bucket_locked(store, name, create, out_bucket);
    }
    pthread_mutex_unlock(&store->lock);
    return rc;
}

struct rg_bucket *rg_store_find_bucket(struct rg_store *store, struct rg_h1_slice name)
{
    struct rg_bucket *bucket = find_known(store, name);
    /* On disk, a folder may have been made by hand. */
    if (bucket == NULL && store->root_fd >= 0 && rg_store_bucket_name_valid(name)) {
        (void)add_bucket(store, name, false, &bucket);
    }
    return bucket;
}

int rg_store_create_bucket(struct rg_store *store, struct rg_h1_slice name,
                           struct rg_bucket **out_bucket)
{
    RG_ASSERT(rg_store_bucket_name_valid(name));
    struct rg_bucket *known = rg_store_find_bucket(store, name);
    if (known != NULL) {
        *out_bucket = known;
        return -EEXIST;
    }
    return add_bucket(store, name, true, out_bucket);
}

/* Makes the folders in the root known that are named like buckets. */
static void scan_root(struct rg_store *store)
{
    DIR *dir = rg_disk_open_folder(store->root_fd, ".", 0);
    if (dir == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        (void)rg_store_find_bucket(store, rg_text_slice(entry->d_name));
    }
    closedir(dir);
}

struct rg_bucket *rg_store_seek_bucket(struct rg_store *store, struct rg_h1_slice from)
{
    if (store->root_fd >= 0) {
        scan_root(store);
    }
    struct rg_bucket *first = NULL;
    for (size_t slot = 0; slot < BUCKET_SLOTS; slot++) {
        struct rg_bucket *bucket = atomic_load(&store->slots[slot]);
        for (; bucket != NULL; bucket = bucket->next) {
            struct rg_h1_slice name = rg_bucket_name(bucket);
            if (!atomic_load(&bucket->removed) && rg_text_compare(name, from) >= 0 &&
                (first == NULL || rg_text_compare(name, rg_bucket_name(first)) < 0)) {
                first = bucket;
            }
        }
    }
    return first;
}

static int remove_bucket_locked(struct rg_bucket *bucket)
{
    struct rg_store_entry entry;
    int rc = rg_bucket_seek_version(bucket, (struct rg_h1_slice){"", 0}, 0, &entry);
    if (rc != -ENOENT) {
        return rc == 0 ? -ENOTEMPTY : rc;
    }
    struct rg_folder_entry folder;
    if (rg_bucket_seek_folder(bucket, (struct rg_h1_slice){"", 0}, &folder) == 0) {
        return -ENOTEMPTY;
    }
    rc = bucket->backend->erase(bucket->written);
    if (rc == 0) {
        atomic_store(&bucket->removed, true);
    }
    return rc;
}

int rg_store_remove_bucket(struct rg_store *store, struct rg_h1_slice name)
{
    struct rg_bucket *bucket = rg_store_find_bucket(store, name);
    if (bucket == NULL) {
        return -ENOENT;
    }
    pthread_mutex_lock(&bucket->lock);
    int rc = atomic_load(&bucket->removed) ? -ENOENT : remove_bucket_locked(bucket);
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

int rg_store_bucket_to_write(struct rg_store *store, struct rg_h1_slice name,
                             struct rg_bucket **out_bucket)
{
    if (store->strict_buckets) {
        *out_bucket = rg_store_find_bucket(store, name);
        return *out_bucket != NULL ? 0 : -ENOENT;
    }
    int rc = rg_store_create_bucket(store, name, out_bucket);
    return rc == -EEXIST ? 0 : rc;
}

bool rg_store_is_strict(const struct rg_store *store)
{
    return store->strict_buckets;
}

static int add_wanted(struct rg_store *store, const char *name, char *error, size_t error_size)
{
    struct rg_bucket *bucket;
    if (!rg_store_bucket_name_valid(rg_text_slice(name))) {
        snprintf(error, error_size,
                 "--bucket '%s': must be 3 to 63 lowercase letters, digits, '-', '_' and '.'",
                 name);
        return -EINVAL;
    }
    int rc = rg_store_create_bucket(store, rg_text_slice(name), &bucket);
    if (rc < 0 && rc != -EEXIST) {
        snprintf(error, error_size, "--bucket '%s': cannot make it: %s", name, strerror(-rc));
        return rc;
    }
    return 0;
}

static int add_synthetic(struct rg_store *store, const char *spec, char *error, size_t error_size)
{
    struct rg_synthetic *set;
    struct rg_h1_slice name;
    int rc = rg_synthetic_create(&set, spec, &name, error, error_size);
    if (rc < 0) {
        return rc;
    }
    struct rg_bucket *bucket;
    rc = rg_store_create_bucket(store, name, &bucket);
    if (rc == -EEXIST && rg_bucket_is_hierarchical(bucket)) {
        snprintf(error, error_size,
                 "--synthetic '%s': the bucket has folders, which synthetic objects cannot lie in",
                 spec);
        rg_synthetic_destroy(set);
        return -EINVAL;
    }
    rc = rc == 0 || rc == -EEXIST ? rg_bucket_add_set(bucket, set) : rc;
    if (rc < 0) {
        snprintf(error, error_size, "--synthetic '%s': cannot make the bucket: %s", spec,
                 strerror(-rc));
        rg_synthetic_destroy(set);
        return rc;
    }
    return 0;
}

/* Opens the root, which is made if only its last folder is missing. */
static int open_root(const char *root)
{
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && mkdir(root, 0777) == 0) {
        fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    return fd < 0 ? -errno : fd;
}

int rg_store_open(struct rg_store **out_store, const struct rg_store_options *options, char *error,
                  size_t error_size)
{
    struct rg_store *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        snprintf(error, error_size, "out of memory");
        return -ENOMEM;
    }
    pthread_mutex_init(&store->lock, NULL);
    store->backend = options->root != NULL ? &rg_disk_backend : &rg_memory_backend;
    store->root_fd = -1;
    store->strict_buckets = options->strict_buckets;
    store->budget.max =
        options->memory_max != 0 ? options->memory_max : RG_STORE_MEMORY_MAX_DEFAULT;
    int rc = 0;
    if (options->root != NULL) {
        store->root_fd = open_root(options->root);
        if (store->root_fd < 0) {
            rc = store->root_fd;
            snprintf(error, error_size,
                     "--root '%s': %s; it has to be a folder, or a new one's name", options->root,
                     strerror(-rc));
        }
    }
    for (size_t i = 0; rc == 0 && i < options->synthetic_count; i++) {
        rc = add_synthetic(store, options->synthetic[i], error, error_size);
    }
    for (size_t i = 0; rc == 0 && i < options->bucket_count; i++) {
        rc = add_wanted(store, options->buckets[i], error, error_size);
    }
    if (rc < 0) {
        rg_store_close(store);
        return rc;
    }
    *out_store = store;
    return 0;
}

void rg_store_close(struct rg_store *store)
{
    if (store == NULL) {
        return;
    }
    for (size_t slot = 0; slot < BUCKET_SLOTS; slot++) {
        struct rg_bucket *bucket = atomic_load(&store->slots[slot]);
        while (bucket != NULL) {
            struct rg_bucket *next = bucket->next;
            rg_bucket_destroy(bucket);
            bucket = next;
        }
    }
    if (store->root_fd >= 0) {
        close(store->root_fd);
    }
    pthread_mutex_destroy(&store->lock);
    free(store);
}
