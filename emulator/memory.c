/* Written objects in memory: for each bucket a skip list of names, and behind each name an
 * immutable version with a reference count. An open object holds a reference, so that overwriting
 * or deleting only takes the version out of the list. */
#include "emulator/backend.h"
#include "emulator/text.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Enough for 4^12 names, beyond which a search merely grows longer. */
#define LEVEL_MAX 12
#define WRITER_CAPACITY_MIN RG_KIB(64)

struct version {
    _Atomic uint32_t refs;
    struct rg_store_object_info info;
    struct rg_memory_budget *budget;
    uint64_t charged; /* What it took from the budget. */
    uint8_t *data;
};

struct node {
    struct version *version;
    uint32_t name_size, level_count;
    char *name; /* Behind the links. */
    struct node *next[];
};

struct memory_bucket {
    pthread_rwlock_t lock; /* Of the list; versions need none. */
    struct rg_memory_budget *budget;
    _Atomic uint64_t count; /* So that a read of a bucket without written objects takes no lock. */
    uint64_t random;
    struct node *first[LEVEL_MAX];
};

struct memory_writer {
    struct memory_bucket *bucket;
    uint8_t *data;
    uint64_t size, capacity; /* The capacity is what is charged to the budget. */
};

static int budget_take(struct rg_memory_budget *budget, uint64_t size)
{
    uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    do {
        if (size > budget->max - used) {
            return -ENOSPC;
        }
    } while (!atomic_compare_exchange_weak(&budget->used, &used, used + size));
    return 0;
}

static void budget_give(struct rg_memory_budget *budget, uint64_t size)
{
    uint64_t before = atomic_fetch_sub(&budget->used, size);
    RG_ASSERT(before >= size);
}

static void version_unref(struct version *version)
{
    if (atomic_fetch_sub_explicit(&version->refs, 1, memory_order_acq_rel) == 1) {
        budget_give(version->budget, version->charged);
        free(version->data);
        free(version);
    }
}

static size_t version_read(struct rg_store_object *object, uint64_t offset,
                           const uint8_t **out_data)
{
    const struct version *version = object->owner;
    *out_data = version->data + offset;
    return (size_t)(object->info.size - offset);
}

static void version_close(struct rg_store_object *object)
{
    version_unref(object->owner);
}

static const struct rg_store_object_type version_type = {.read = version_read,
                                                         .close = version_close};

static struct rg_h1_slice node_name(const struct node *node)
{
    return (struct rg_h1_slice){node->name, node->name_size};
}

/* The first node at or behind `name`. `links`, where wanted, becomes the link at each level that
 * leads there. */
static struct node *list_find(struct memory_bucket *bucket, struct rg_h1_slice name,
                              struct node **links[LEVEL_MAX])
{
    struct node **links_here = bucket->first;
    struct node *found = NULL;
    for (int level = LEVEL_MAX - 1; level >= 0; level--) {
        struct node *next = links_here[level];
        /* `found` was compared a level above. */
        while (next != NULL && next != found && rg_text_compare(node_name(next), name) < 0) {
            links_here = next->next;
            next = links_here[level];
        }
        found = next;
        if (links != NULL) {
            links[level] = &links_here[level];
        }
    }
    return found;
}

static uint32_t random_level_count(struct memory_bucket *bucket)
{
    uint64_t x = bucket->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    bucket->random = x;
    uint32_t count = 1;
    while (count < LEVEL_MAX && (x & 3) == 0) { /* Each level has a quarter of the one below. */
        count++;
        x >>= 2;
    }
    return count;
}

/* Links a new node in, or gives an existing one another version. Takes a reference on success. */
static int list_put(struct memory_bucket *bucket, struct rg_h1_slice name, struct version *version)
{
    struct node **links[LEVEL_MAX];
    struct node *node = list_find(bucket, name, links);
    if (node != NULL && rg_text_compare(node_name(node), name) == 0) {
        version_unref(node->version);
        node->version = version;
        return 0;
    }
    uint32_t level_count = random_level_count(bucket);
    size_t links_size = level_count * sizeof(struct node *);
    node = malloc(sizeof(*node) + links_size + name.size);
    if (node == NULL) {
        return -ENOMEM;
    }
    node->version = version;
    node->level_count = level_count;
    node->name_size = name.size;
    node->name = (char *)node + sizeof(*node) + links_size;
    memcpy(node->name, name.data, name.size);
    for (uint32_t level = 0; level < level_count; level++) {
        node->next[level] = *links[level];
        *links[level] = node;
    }
    atomic_fetch_add(&bucket->count, 1);
    return 0;
}

static int memory_open(void *self, struct rg_h1_slice name, struct rg_store_object *out_object)
{
    struct memory_bucket *bucket = self;
    if (atomic_load(&bucket->count) == 0) {
        return -ENOENT;
    }
    pthread_rwlock_rdlock(&bucket->lock);
    struct node *node = list_find(bucket, name, NULL);
    bool found = node != NULL && rg_text_compare(node_name(node), name) == 0;
    struct version *version = found ? node->version : NULL;
    if (found) {
        atomic_fetch_add_explicit(&version->refs, 1, memory_order_relaxed);
    }
    pthread_rwlock_unlock(&bucket->lock);
    if (!found) {
        return -ENOENT;
    }
    *out_object =
        (struct rg_store_object){.info = version->info, .type = &version_type, .owner = version};
    return 0;
}

static int memory_seek(void *self, struct rg_h1_slice from, struct rg_store_entry *out_entry)
{
    struct memory_bucket *bucket = self;
    pthread_rwlock_rdlock(&bucket->lock);
    struct node *node = list_find(bucket, from, NULL);
    if (node != NULL) {
        memcpy(out_entry->name, node->name, node->name_size);
        out_entry->name_size = node->name_size;
        out_entry->info = node->version->info;
    }
    pthread_rwlock_unlock(&bucket->lock);
    return node != NULL ? 0 : -ENOENT;
}

static void memory_abort(void *self)
{
    struct memory_writer *writer = self;
    budget_give(writer->bucket->budget, writer->capacity);
    free(writer->data);
    free(writer);
}

static int writer_reserve(struct memory_writer *writer, uint64_t capacity)
{
    struct rg_memory_budget *budget = writer->bucket->budget;
    int rc = budget_take(budget, capacity - writer->capacity);
    if (rc < 0) {
        return rc;
    }
    uint8_t *data = realloc(writer->data, capacity);
    if (data == NULL) {
        budget_give(budget, capacity - writer->capacity);
        return -ENOMEM;
    }
    writer->data = data;
    writer->capacity = capacity;
    return 0;
}

static int memory_begin(void *self, uint64_t size_hint, void **out_writer)
{
    struct memory_writer *writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->bucket = self;
    int rc = size_hint > 0 ? writer_reserve(writer, size_hint) : 0;
    if (rc < 0) {
        free(writer);
        return rc;
    }
    *out_writer = writer;
    return 0;
}

static int memory_append(void *self, const void *data, size_t size)
{
    struct memory_writer *writer = self;
    if (size > writer->capacity - writer->size) {
        uint64_t needed = writer->size + size;
        uint64_t capacity = RG_MAX(RG_MAX(needed, writer->capacity * 2), WRITER_CAPACITY_MIN);
        int rc = writer_reserve(writer, capacity);
        rc = rc == -ENOSPC ? writer_reserve(writer, needed) : rc;
        if (rc < 0) {
            return rc;
        }
    }
    memcpy(writer->data + writer->size, data, size);
    writer->size += size;
    return 0;
}

/* Gives back what growing by doubling took too much. A failure to shrink changes nothing. */
static void writer_trim(struct memory_writer *writer)
{
    if (writer->size == 0) {
        free(writer->data);
        writer->data = NULL;
    } else if (writer->size < writer->capacity) {
        uint8_t *data = realloc(writer->data, writer->size);
        writer->data = data != NULL ? data : writer->data;
    }
    budget_give(writer->bucket->budget, writer->capacity - writer->size);
    writer->capacity = writer->size;
}

static int memory_commit(void *self, struct rg_h1_slice name, struct rg_store_object_info *info)
{
    struct memory_writer *writer = self;
    struct memory_bucket *bucket = writer->bucket;
    struct version *version = malloc(sizeof(*version));
    if (version == NULL) {
        memory_abort(writer);
        return -ENOMEM;
    }
    writer_trim(writer);
    RG_ASSERT(info->size == writer->size);
    *version = (struct version){.refs = 1,
                                .info = *info,
                                .budget = bucket->budget,
                                .charged = writer->capacity,
                                .data = writer->data};
    free(writer);
    pthread_rwlock_wrlock(&bucket->lock);
    int rc = list_put(bucket, name, version);
    pthread_rwlock_unlock(&bucket->lock);
    if (rc < 0) {
        version_unref(version);
    }
    return rc;
}

static int memory_remove(void *self, struct rg_h1_slice name)
{
    struct memory_bucket *bucket = self;
    struct node **links[LEVEL_MAX];
    pthread_rwlock_wrlock(&bucket->lock);
    struct node *node = list_find(bucket, name, links);
    bool found = node != NULL && rg_text_compare(node_name(node), name) == 0;
    for (uint32_t level = 0; found && level < node->level_count; level++) {
        RG_ASSERT(*links[level] == node);
        *links[level] = node->next[level];
    }
    if (found) {
        atomic_fetch_sub(&bucket->count, 1);
    }
    pthread_rwlock_unlock(&bucket->lock);
    if (!found) {
        return -ENOENT;
    }
    version_unref(node->version);
    free(node);
    return 0;
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
    bucket->random = UINT64_C(0x9e3779b97f4a7c15);
    *out_bucket = bucket;
    return 0;
}

static void memory_close(void *self)
{
    struct memory_bucket *bucket = self;
    for (struct node *node = bucket->first[0]; node != NULL;) {
        struct node *next = node->next[0];
        version_unref(node->version);
        free(node);
        node = next;
    }
    pthread_rwlock_destroy(&bucket->lock);
    free(bucket);
}

const struct rg_store_backend rg_memory_backend = {
    .open = memory_open,
    .seek = memory_seek,
    .begin = memory_begin,
    .append = memory_append,
    .commit = memory_commit,
    .abort = memory_abort,
    .remove = memory_remove,
    .close = memory_close,
};
