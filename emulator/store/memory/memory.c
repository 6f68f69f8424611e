/* A bucket in memory: names with their versions behind a lock; see memory.h. */
#include "emulator/store/memory/memory.h"

#include "emulator/store/memory/names.h"
#include "emulator/store/memory/writer.h"
#include "emulator/store/model/clock.h"
#include "emulator/wire/text.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct memory_bucket {
    pthread_rwlock_t lock; /* For the names; versions need none. */
    struct rg_memory_budget *budget;
    struct rg_names names;
};

struct bucket_writer {
    struct memory_bucket *bucket;
    struct rg_memory_writer *bytes;
};

static int memory_open(void *self, struct rg_h1_slice name, int64_t generation, bool soft,
                       struct rg_store_object *out_object)
{
    struct memory_bucket *bucket = self;
    if (atomic_load(&bucket->names.count) == 0) {
        return -ENOENT;
    }
    pthread_rwlock_rdlock(&bucket->lock);
    struct rg_node *node = rg_names_get(&bucket->names, name, NULL);
    struct rg_version *version = node != NULL ? *rg_node_version(node, generation, soft) : NULL;
    if (version != NULL) {
        rg_version_open(rg_version_ref(version), out_object);
    }
    pthread_rwlock_unlock(&bucket->lock);
    return version != NULL ? 0 : -ENOENT;
}

static void fill_entry(const struct rg_node *node, const struct rg_version *version,
                       struct rg_store_entry *entry)
{
    memcpy(entry->name, node->name, node->name_size);
    entry->name_size = node->name_size;
    entry->info = version->info;
    entry->info.attributes = NULL;
}

static int memory_seek(void *self, struct rg_h1_slice from, struct rg_store_entry *out_entry)
{
    struct memory_bucket *bucket = self;
    pthread_rwlock_rdlock(&bucket->lock);
    struct rg_node *node = rg_names_find(&bucket->names, from, NULL);
    while (node != NULL && node->live == NULL) {
        node = node->next[0];
    }
    if (node != NULL) {
        fill_entry(node, node->live, out_entry);
    }
    pthread_rwlock_unlock(&bucket->lock);
    return node != NULL ? 0 : -ENOENT;
}

static int memory_seek_version(void *self, struct rg_h1_slice from, int64_t after, bool soft,
                               struct rg_store_entry *out_entry)
{
    struct memory_bucket *bucket = self;
    const struct rg_version *version = NULL;
    pthread_rwlock_rdlock(&bucket->lock);
    struct rg_node *node = rg_names_find(&bucket->names, from, NULL);
    for (; node != NULL; node = node->next[0]) {
        bool same = rg_text_compare(rg_node_name(node), from) == 0;
        version = rg_node_next_version(node, same ? after : 0, soft);
        if (version != NULL) {
            fill_entry(node, version, out_entry);
            break;
        }
    }
    pthread_rwlock_unlock(&bucket->lock);
    return version != NULL ? 0 : -ENOENT;
}

static int memory_begin(void *self, uint64_t size_hint, void **out_writer)
{
    struct memory_bucket *bucket = self;
    struct bucket_writer *writer = malloc(sizeof(*writer));
    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->bucket = bucket;
    int rc = rg_memory_writer_create(&writer->bytes, bucket->budget, size_hint);
    if (rc < 0) {
        free(writer);
        return rc;
    }
    *out_writer = writer;
    return 0;
}

static int memory_append(void *self, const void *data, size_t size)
{
    struct bucket_writer *writer = self;
    return rg_memory_writer_append(writer->bytes, data, size);
}

static int memory_append_object(void *self, struct rg_store_object *object)
{
    struct bucket_writer *writer = self;
    if (object->type != &rg_memory_version_type) {
        return -ENOTSUP;
    }
    return rg_memory_writer_append_version(writer->bytes, object->owner);
}

static void memory_abort(void *self)
{
    struct bucket_writer *writer = self;
    rg_memory_writer_destroy(writer->bytes);
    free(writer);
}

/* Takes the writer. NULL: out of memory. */
static struct rg_version *finish(struct bucket_writer *writer,
                                 const struct rg_store_object_info *info)
{
    struct rg_version *version = rg_memory_writer_finish(writer->bytes, info);
    free(writer);
    return version;
}

static int memory_commit(void *self, struct rg_h1_slice name, struct rg_store_object_info *info,
                         const struct rg_store_fate *fate)
{
    struct bucket_writer *writer = self;
    struct memory_bucket *bucket = writer->bucket;
    struct rg_version *version = finish(writer, info);
    if (version == NULL) {
        return -ENOMEM;
    }
    pthread_rwlock_wrlock(&bucket->lock);
    int rc = rg_names_put(&bucket->names, name, version, fate);
    pthread_rwlock_unlock(&bucket->lock);
    if (rc < 0) {
        rg_version_unref(version);
    }
    return rc;
}

static int memory_seal(void *self, const struct rg_store_object_info *info,
                       struct rg_store_object *out_object)
{
    struct rg_version *version = finish(self, info);
    if (version == NULL) {
        return -ENOMEM;
    }
    rg_version_open(version, out_object);
    return 0;
}

static int memory_update(void *self, struct rg_h1_slice name,
                         const struct rg_store_object_info *info)
{
    struct memory_bucket *bucket = self;
    int rc = -ENOENT;
    pthread_rwlock_wrlock(&bucket->lock);
    struct rg_node *node = rg_names_get(&bucket->names, name, NULL);
    struct rg_version **link = node != NULL ? rg_node_version(node, info->generation, false) : NULL;
    if (link != NULL && *link != NULL) {
        struct rg_version *old = *link;
        struct rg_version *version = rg_version_create(info, old->pieces, old->piece_count);
        rc = version != NULL ? 0 : -ENOMEM;
        if (version != NULL) {
            version->older = old->older;
            *link = version;
            rg_version_unref(old);
        }
    }
    pthread_rwlock_unlock(&bucket->lock);
    return rc;
}

static int memory_remove(void *self, struct rg_h1_slice name, int64_t generation,
                         const struct rg_store_fate *fate)
{
    struct memory_bucket *bucket = self;
    int rc = -ENOENT;
    pthread_rwlock_wrlock(&bucket->lock);
    struct rg_node *node = rg_names_get(&bucket->names, name, NULL);
    struct rg_version **link = node != NULL ? rg_node_version(node, generation, false) : NULL;
    struct rg_version *version = link != NULL ? *link : NULL;
    if (version != NULL) {
        rc = 0;
        if (fate->kept && link == &node->live) {
            rg_node_retire(node, rg_store_now_us(), fate);
        } else if (fate->kept) {
            rg_version_soften(version, rg_store_now_us(), fate);
        } else {
            *link = link == &node->live ? NULL : version->older;
            rg_version_unref(version);
        }
        rg_node_purge(node);
        rg_names_drop_empty(&bucket->names, node);
    }
    pthread_rwlock_unlock(&bucket->lock);
    return rc;
}

static int memory_move(void *self, struct rg_h1_slice from, struct rg_h1_slice to)
{
    struct memory_bucket *bucket = self;
    int rc = -ENOENT;
    pthread_rwlock_wrlock(&bucket->lock);
    struct rg_node *node = rg_names_get(&bucket->names, from, NULL);
    if (node != NULL && node->live != NULL) {
        rc = rg_names_put(&bucket->names, to, node->live, &(struct rg_store_fate){0});
    }
    if (rc == 0) {
        node->live = NULL;
        rg_names_drop_empty(&bucket->names, node);
    }
    pthread_rwlock_unlock(&bucket->lock);
    return rc;
}

int rg_memory_bucket_open(void **out_bucket, struct rg_memory_budget *budget)
{
    struct memory_bucket *bucket = calloc(1, sizeof(*bucket));
    if (bucket == NULL) {
        return -ENOMEM;
    }
    int rc = -pthread_rwlock_init(&bucket->lock, NULL);
    if (rc < 0) {
        free(bucket);
        return rc;
    }
    bucket->budget = budget;
    bucket->names.random = UINT64_C(0x9e3779b97f4a7c15);
    *out_bucket = bucket;
    return 0;
}

/* There is nothing to erase: the bucket's memory is freed with the store. */
static int memory_erase(void *self)
{
    (void)self;
    return 0;
}

static void memory_close(void *self)
{
    struct memory_bucket *bucket = self;
    rg_names_fini(&bucket->names);
    pthread_rwlock_destroy(&bucket->lock);
    free(bucket);
}

const struct rg_store_backend rg_memory_backend = {
    .open = memory_open,
    .seek = memory_seek,
    .seek_version = memory_seek_version,
    .begin = memory_begin,
    .append = memory_append,
    .append_object = memory_append_object,
    .commit = memory_commit,
    .seal = memory_seal,
    .abort = memory_abort,
    .update = memory_update,
    .remove = memory_remove,
    .move = memory_move,
    .erase = memory_erase,
    .close = memory_close,
};
