/* Buckets by name, and in each the overlay of written objects over synthetic sets; see store.h. */
#include "emulator/store.h"

#include "emulator/backend.h"
#include "emulator/checksum.h"
#include "emulator/folders.h"
#include "emulator/protection.h"
#include "emulator/synthetic.h"
#include "emulator/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUCKET_SLOTS 256
#define BUCKET_NAME_SIZE_MIN 3

struct rg_bucket {
    struct rg_bucket *next; /* In its slot. */
    char name[RG_STORE_BUCKET_NAME_SIZE_MAX];
    uint32_t name_size;
    struct rg_bucket_info info;  /* Under the lock. Its settings are owned. */
    _Atomic bool requester_pays; /* As the info says. */
    _Atomic bool removed;        /* It is in its slot for those who hold a pointer. */
    void *written;               /* The backend's. */
    /* NULL: a flat namespace. Set once. */
    struct rg_folders *_Atomic folders;
    struct rg_store *store;
    struct rg_synthetic **sets; /* Fixed once the store is open. */
    size_t set_count;
    pthread_mutex_t lock; /* One commit or removal at a time, conditions included. */
};

struct rg_store {
    const struct rg_store_backend *backend;
    int root_fd; /* -1 in memory. */
    struct rg_memory_budget budget;
    _Atomic int64_t generation; /* The last one given. */
    pthread_mutex_t lock; /* Adding buckets; finding them takes none, as none is ever removed. */
    struct rg_bucket *_Atomic slots[BUCKET_SLOTS];
};

struct rg_store_writer {
    struct rg_bucket *bucket;
    void *written;
    uint64_t size;
    uint32_t crc32c;
    uint32_t name_size;
    char name[RG_STORE_NAME_SIZE_MAX];
};

size_t rg_store_object_read(struct rg_store_object *object, uint64_t offset,
                            const uint8_t **out_data)
{
    RG_ASSERT(offset < object->info.size);
    return object->type->read(object, offset, out_data);
}

void rg_store_object_close(struct rg_store_object *object)
{
    if (object->type != NULL && object->type->close != NULL) {
        object->type->close(object);
    }
    object->type = NULL;
}

int rg_store_conditions_check(const struct rg_store_conditions *conditions,
                              const struct rg_store_object_info *info)
{
    int64_t generation = info != NULL ? info->generation : 0;
    int64_t metageneration = info != NULL ? info->metageneration : 0;
    if (conditions->generation.set && conditions->generation.value != generation) {
        return -ENOENT;
    }
    if ((conditions->generation_match.set && conditions->generation_match.value != generation) ||
        (conditions->metageneration_match.set &&
         conditions->metageneration_match.value != metageneration)) {
        return -ESTALE;
    }
    if ((conditions->generation_not_match.set &&
         conditions->generation_not_match.value == generation) ||
        (conditions->metageneration_not_match.set &&
         conditions->metageneration_not_match.value == metageneration)) {
        return -EALREADY;
    }
    return 0;
}

bool rg_store_bucket_name_valid(struct rg_h1_slice name)
{
    if (name.size < BUCKET_NAME_SIZE_MIN || name.size > RG_STORE_BUCKET_NAME_SIZE_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        bool inside = i > 0 && i + 1 < name.size;
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') &&
            !(inside && (c == '-' || c == '_' || c == '.'))) {
            return false;
        }
    }
    return true;
}

bool rg_store_attribute_valid(struct rg_h1_slice value, size_t size_max)
{
    return value.size > 0 && value.size <= size_max &&
           rg_h1_value_span(value.data, value.size) == value.size &&
           strchr(" \t", value.data[0]) == NULL &&
           strchr(" \t", value.data[value.size - 1]) == NULL;
}

bool rg_store_object_name_valid(struct rg_h1_slice name)
{
    return name.size > 0 && name.size <= RG_STORE_NAME_SIZE_MAX &&
           memchr(name.data, '\r', name.size) == NULL &&
           memchr(name.data, '\n', name.size) == NULL && !rg_text_equals(name, ".") &&
           !rg_text_equals(name, "..") && rg_text_is_utf8(name);
}

bool rg_store_folder_name_valid(struct rg_h1_slice name)
{
    return name.size <= RG_STORE_FOLDER_SIZE_MAX && rg_store_object_name_valid(name) &&
           name.data[name.size - 1] == '/';
}

int64_t rg_store_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t next_generation(struct rg_store *store)
{
    int64_t now = rg_store_now_us();
    int64_t last = atomic_load(&store->generation), next;
    do {
        next = RG_MAX(now, last + 1);
    } while (!atomic_compare_exchange_weak(&store->generation, &last, next));
    return next;
}

static size_t bucket_slot(struct rg_h1_slice name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (uint32_t i = 0; i < name.size; i++) {
        hash = (hash ^ (uint8_t)name.data[i]) * 16777619u;
    }
    return hash % BUCKET_SLOTS;
}

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

static struct rg_folders *folders_of(struct rg_bucket *bucket)
{
    return atomic_load_explicit(&bucket->folders, memory_order_acquire);
}

bool rg_bucket_is_hierarchical(struct rg_bucket *bucket)
{
    return folders_of(bucket) != NULL;
}

static int open_folders(struct rg_bucket *bucket)
{
    struct rg_folders *folders;
    int rc = rg_folders_open(&folders, bucket->store->backend, bucket->written);
    if (rc == 0) {
        atomic_store_explicit(&bucket->folders, folders, memory_order_release);
    }
    return rc;
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
        (bucket->info.metageneration != 1 || bucket->set_count > 0)) {
        return -EPERM;
    }
    info.created_us = bucket->info.created_us;
    info.updated_us = rg_store_now_us();
    info.metageneration = bucket->info.metageneration + !is_new;
    int rc = bucket->store->backend->save_info != NULL
                 ? bucket->store->backend->save_info(bucket->written, &info)
                 : 0;
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
    pthread_mutex_unlock(&bucket->lock);
    return rc;
}

/* What becomes of a version that is replaced, or removed with or without its generation. The bucket
 * is locked. */
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

static struct rg_bucket *find_known(struct rg_store *store, struct rg_h1_slice name)
{
    struct rg_bucket *bucket = atomic_load(&store->slots[bucket_slot(name)]);
    while (bucket != NULL && (atomic_load_explicit(&bucket->removed, memory_order_relaxed) ||
                              rg_text_compare(rg_bucket_name(bucket), name) != 0)) {
        bucket = bucket->next;
    }
    return bucket;
}

static void bucket_destroy(struct rg_bucket *bucket)
{
    rg_folders_close(folders_of(bucket));
    if (bucket->written != NULL) {
        bucket->store->backend->close(bucket->written);
    }
    for (size_t i = 0; i < bucket->set_count; i++) {
        rg_synthetic_destroy(bucket->sets[i]);
    }
    free(bucket->sets);
    rg_bucket_settings_unref(bucket->info.settings);
    pthread_mutex_destroy(&bucket->lock);
    free(bucket);
}

/* Collects the names of the objects in a folder, each behind its size. */
static int collect_names(struct rg_bucket *bucket, struct rg_h1_slice folder, struct rg_text *out)
{
    struct rg_store_entry entry;
    char next[RG_STORE_NAME_SIZE_MAX + 1];
    struct rg_h1_slice from = folder;
    int rc;
    while ((rc = bucket->store->backend->seek(bucket->written, from, &entry)) == 0) {
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
        return 0; /* A file that was put there by hand, which stays where it is. */
    }
    memcpy(moved, to.data, to.size);
    memcpy(moved + to.size, name.data + from.size, rest);
    return bucket->store->backend->move(bucket->written, name,
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

/* What is left of a rename, be it one that the last process died in. */
static int finish_rename(struct rg_bucket *bucket)
{
    struct rg_h1_slice from, to;
    if (!rg_folders_unfinished(folders_of(bucket), &from, &to)) {
        return 0;
    }
    int rc = move_objects(bucket, from, to);
    return rc == 0 ? rg_folders_end_rename(folders_of(bucket)) : rc;
}

/* Makes the bucket known. With `create` it may be new to the backend, too. */
static int add_bucket_locked(struct rg_store *store, struct rg_h1_slice name, bool create,
                             struct rg_bucket **out_bucket)
{
    struct rg_bucket *bucket = calloc(1, sizeof(*bucket));
    if (bucket == NULL) {
        return -ENOMEM;
    }
    bucket->store = store;
    int64_t now = rg_store_now_us();
    bucket->info = (struct rg_bucket_info){.created_us = now,
                                           .updated_us = now,
                                           .metageneration = 1,
                                           .location = "US",
                                           .storage_class = "STANDARD"};
    bucket->name_size = name.size;
    memcpy(bucket->name, name.data, name.size);
    pthread_mutex_init(&bucket->lock, NULL);
    int rc = store->root_fd >= 0 ? rg_disk_bucket_open(&bucket->written, store->root_fd, name,
                                                       create, &bucket->info)
             : create            ? rg_memory_bucket_open(&bucket->written, &store->budget)
                                 : -ENOENT;
    atomic_init(&bucket->requester_pays, bucket->info.requester_pays);
    if (rc == 0 && bucket->info.hierarchical) {
        rc = open_folders(bucket);
        rc = rc == 0 ? finish_rename(bucket) : rc;
    }
    if (rc < 0) {
        bucket_destroy(bucket);
        return rc;
    }
    size_t slot = bucket_slot(name);
    bucket->next = atomic_load(&store->slots[slot]);
    atomic_store(&store->slots[slot], bucket);
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
    /* On disk the folder may have come by hand. */
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

/* Folders in the root that are named like buckets become known. */
static void scan_root(struct rg_store *store)
{
    int fd = openat(store->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
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

int rg_bucket_open_object(struct rg_bucket *bucket, struct rg_h1_slice name,
                          struct rg_store_object *out_object)
{
    int rc = bucket->store->backend->open(bucket->written, name, 0, false, out_object);
    for (size_t i = 0; rc == -ENOENT && i < bucket->set_count; i++) {
        rc = rg_synthetic_open(bucket->sets[i], name, out_object);
    }
    return rc;
}

int rg_bucket_open_version(struct rg_bucket *bucket, struct rg_h1_slice name, int64_t generation,
                           struct rg_store_object *out_object)
{
    int rc = -ENOENT;
    if (generation != 0) {
        rc = bucket->store->backend->open(bucket->written, name, generation, false, out_object);
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

/* What is asked for by its generation goes for good. */
static int remove_object_locked(struct rg_bucket *bucket, struct rg_h1_slice name,
                                int64_t generation, const struct rg_store_fate *fate)
{
    int rc = bucket->store->backend->remove(bucket->written, name, generation, fate);
    if ((rc < 0 && rc != -ENOENT) || (rc == 0 && generation != 0)) {
        return rc;
    }
    for (size_t i = 0; i < bucket->set_count; i++) {
        int hidden = rg_synthetic_hide(bucket->sets[i], name);
        rc = hidden != -ENOENT ? hidden : rc;
    }
    return rc;
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
    return bucket->store->backend->open(bucket->written, name, generation, true, out_object);
}

int rg_bucket_seek_soft_deleted(struct rg_bucket *bucket, struct rg_h1_slice from, int64_t after,
                                struct rg_store_entry *out_entry)
{
    return bucket->store->backend->seek_version(bucket->written, from, after, true, out_entry);
}

int rg_bucket_seek_object(struct rg_bucket *bucket, struct rg_h1_slice from,
                          struct rg_store_entry *out_entry)
{
    int rc = bucket->store->backend->seek(bucket->written, from, out_entry);
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    for (size_t i = 0; i < bucket->set_count; i++) {
        struct rg_store_entry entry;
        if (rg_synthetic_seek(bucket->sets[i], from, &entry) < 0) {
            continue;
        }
        /* Of two objects of one name, the written one counts: it came first. */
        if (rc == -ENOENT ||
            rg_text_compare((struct rg_h1_slice){entry.name, entry.name_size},
                            (struct rg_h1_slice){out_entry->name, out_entry->name_size}) < 0) {
            *out_entry = entry;
            rc = 0;
        }
    }
    return rc;
}

static struct rg_h1_slice entry_name(const struct rg_store_entry *entry)
{
    return (struct rg_h1_slice){entry->name, entry->name_size};
}

/* The first object of a set that no written one shadows, of version `after` and behind. */
static int seek_synthetic_version(struct rg_bucket *bucket, size_t set, struct rg_h1_slice from,
                                  int64_t after, struct rg_store_entry *out_entry)
{
    char next[RG_STORE_NAME_SIZE_MAX + 1];
    for (;;) {
        struct rg_store_object written;
        int rc = rg_synthetic_seek(bucket->sets[set], from, out_entry);
        if (rc < 0) {
            return rc;
        }
        struct rg_h1_slice name = entry_name(out_entry);
        bool passed = rg_text_compare(name, from) == 0 && out_entry->info.generation <= after;
        if (!passed) {
            rc = bucket->store->backend->open(bucket->written, name, 0, false, &written);
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
    int rc = bucket->store->backend->seek_version(bucket->written, from, after, false, out_entry);
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    for (size_t i = 0; i < bucket->set_count; i++) {
        struct rg_store_entry entry;
        if (seek_synthetic_version(bucket, i, from, after, &entry) < 0) {
            continue;
        }
        int order = rc == 0 ? rg_text_compare(entry_name(&entry), entry_name(out_entry)) : -1;
        if (order < 0 || (order == 0 && entry.info.generation < out_entry->info.generation)) {
            *out_entry = entry;
            rc = 0;
        }
    }
    return rc;
}

static int update_locked(struct rg_bucket *bucket, struct rg_h1_slice name,
                         struct rg_store_object_info *info)
{
    struct rg_store_object object;
    int rc = bucket->store->backend->open(bucket->written, name, info->generation, false, &object);
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
    rc = bucket->store->backend->update(bucket->written, name, &updated);
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
    rc = bucket->store->backend->erase(bucket->written);
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

int rg_bucket_get_folder(struct rg_bucket *bucket, struct rg_h1_slice name,
                         struct rg_folder_info *out_info)
{
    return rg_folders_get(folders_of(bucket), name, out_info);
}

int rg_bucket_seek_folder(struct rg_bucket *bucket, struct rg_h1_slice from,
                          struct rg_folder_entry *out_entry)
{
    struct rg_folders *folders = folders_of(bucket);
    return folders != NULL ? rg_folders_seek(folders, from, out_entry) : -ENOENT;
}

static int create_folder_locked(struct rg_bucket *bucket, struct rg_h1_slice name, bool recursive,
                                struct rg_folder_info *out_info)
{
    struct rg_folders *folders = folders_of(bucket);
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

/* Whether an object's name starts so. */
static int holds_object(struct rg_bucket *bucket, struct rg_h1_slice folder)
{
    struct rg_store_entry entry;
    int rc = rg_bucket_seek_object(bucket, folder, &entry);
    return rc == 0 ? rg_text_starts_with(entry_name(&entry), folder) : rc == -ENOENT ? 0 : rc;
}

static int remove_folder_locked(struct rg_bucket *bucket, struct rg_h1_slice name,
                                const struct rg_store_conditions *conditions)
{
    int rc = check_folder_locked(bucket, name, conditions);
    rc = rc == 0 ? holds_object(bucket, name) : rc;
    if (rc != 0) {
        return rc > 0 ? -ENOTEMPTY : rc;
    }
    return rg_folders_remove(folders_of(bucket), name);
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
    /* A file that was put there by hand has no folder. */
    rc = rc == 0 && !rg_text_starts_with(to, from) ? holds_object(bucket, to) : rc;
    if (rc != 0) {
        return rc > 0 ? -EEXIST : rc;
    }
    rc = rg_folders_begin_rename(folders_of(bucket), from, to);
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

/* A folder's name and the rest each have their own limit. */
static bool fits_folders(struct rg_h1_slice name)
{
    const char *last = memrchr(name.data, '/', name.size);
    size_t folder_size = last != NULL ? (size_t)(last - name.data) + 1 : 0;
    return folder_size <= RG_STORE_FOLDER_SIZE_MAX &&
           name.size - folder_size <= RG_STORE_FOLDER_SIZE_MAX;
}

int rg_store_writer_create(struct rg_store_writer **out_writer, struct rg_store *store,
                           struct rg_h1_slice bucket_name, struct rg_h1_slice name,
                           uint64_t size_hint)
{
    RG_ASSERT(rg_store_object_name_valid(name));
    struct rg_bucket *bucket;
    int rc = rg_store_create_bucket(store, bucket_name, &bucket);
    if (rc < 0 && rc != -EEXIST) {
        return rc;
    }
    if (rg_bucket_is_hierarchical(bucket) && !fits_folders(name)) {
        return -ENAMETOOLONG;
    }
    struct rg_store_writer *writer = malloc(sizeof(*writer));
    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->bucket = bucket;
    writer->size = 0;
    writer->crc32c = 0;
    writer->name_size = name.size;
    memcpy(writer->name, name.data, name.size);
    rc = store->backend->begin(bucket->written, size_hint, &writer->written);
    if (rc < 0) {
        free(writer);
        return rc;
    }
    *out_writer = writer;
    return 0;
}

int rg_store_writer_append(struct rg_store_writer *writer, const void *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    int rc = writer->bucket->store->backend->append(writer->written, data, size);
    if (rc < 0) {
        return rc;
    }
    writer->size += size;
    writer->crc32c = rg_checksum_extend(writer->crc32c, data, size);
    return 0;
}

static int append_by_reading(struct rg_store_writer *writer, struct rg_store_object *object)
{
    const uint8_t *data;
    for (uint64_t offset = 0; offset < object->info.size;) {
        size_t size = rg_store_object_read(object, offset, &data);
        int rc = rg_store_writer_append(writer, data, size);
        if (rc < 0) {
            return rc;
        }
        offset += size;
    }
    return 0;
}

int rg_store_writer_append_object(struct rg_store_writer *writer, struct rg_store_object *object)
{
    RG_ASSERT(object->info.has_crc32c);
    int rc = writer->bucket->store->backend->append_object(writer->written, object);
    if (rc == -ENOTSUP) {
        return append_by_reading(writer, object);
    }
    if (rc == 0) {
        writer->crc32c =
            rg_checksum_combine(writer->crc32c, object->info.crc32c, object->info.size);
        writer->size += object->info.size;
    }
    return rc;
}

int rg_store_writer_seal(struct rg_store_writer *writer, struct rg_store_object *out_object)
{
    struct rg_store_object_info info = {
        .size = writer->size, .crc32c = writer->crc32c, .has_crc32c = true};
    int rc = writer->bucket->store->backend->seal(writer->written, &info, out_object);
    free(writer);
    return rc;
}

uint32_t rg_store_writer_crc32c(const struct rg_store_writer *writer)
{
    return writer->crc32c;
}

uint64_t rg_store_writer_size(const struct rg_store_writer *writer)
{
    return writer->size;
}

void rg_store_writer_abort(struct rg_store_writer *writer)
{
    if (writer != NULL) {
        writer->bucket->store->backend->abort(writer->written);
        free(writer);
    }
}

int rg_store_writer_commit(struct rg_store_writer *writer,
                           const struct rg_store_conditions *conditions,
                           const struct rg_store_object_info *attributes,
                           struct rg_store_object_info *out_info)
{
    struct rg_bucket *bucket = writer->bucket;
    struct rg_h1_slice name = {writer->name, writer->name_size};
    struct rg_store_object_info info = *attributes;
    info.size = writer->size;
    info.crc32c = writer->crc32c;
    info.has_crc32c = true;
    info.has_attributes = info.attributes != NULL;
    info.metageneration = 1;
    info.deleted_us = info.soft_deleted_us = info.hard_delete_us = 0;
    pthread_mutex_lock(&bucket->lock);
    int rc =
        atomic_load(&bucket->removed) ? -ENOENT : check_conditions_locked(bucket, name, conditions);
    rc = rc == 0 ? check_protection_locked(bucket, name, 0) : rc;
    if (rc == 0 && rg_bucket_is_hierarchical(bucket)) {
        rc = rg_folders_add_path(folders_of(bucket), name);
    }
    if (rc == 0) {
        info.generation = next_generation(bucket->store);
        info.updated_us = info.generation;
        struct rg_store_fate fate = fate_of(bucket, false);
        rc = bucket->store->backend->commit(writer->written, name, &info, &fate);
    } else {
        bucket->store->backend->abort(writer->written);
    }
    pthread_mutex_unlock(&bucket->lock);
    free(writer);
    if (rc == 0) {
        *out_info = info;
    }
    return rc;
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
    struct rg_synthetic **sets = NULL;
    if (rc == 0 || rc == -EEXIST) {
        sets = reallocarray(bucket->sets, bucket->set_count + 1, sizeof(*sets));
        rc = sets != NULL ? 0 : -ENOMEM;
    }
    if (rc < 0) {
        snprintf(error, error_size, "--synthetic '%s': cannot make the bucket: %s", spec,
                 strerror(-rc));
        rg_synthetic_destroy(set);
        return rc;
    }
    bucket->sets = sets;
    bucket->sets[bucket->set_count++] = set;
    return 0;
}

/* Makes the folder where there is none; those above it have to be there. */
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
            bucket_destroy(bucket);
            bucket = next;
        }
    }
    if (store->root_fd >= 0) {
        close(store->root_fd);
    }
    pthread_mutex_destroy(&store->lock);
    free(store);
}
