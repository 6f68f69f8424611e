/* Written objects in memory: for each bucket a skip list of names, and behind each name immutable
 * versions with a reference count. An open object holds a reference, so that overwriting or
 * deleting only takes the version out of the list.
 *
 * The bytes of a version are a row of segments, which have reference counts, too: an object that is
 * composed or copied shares them with its sources, and parts of an upload become an object without
 * being copied. */
#include "emulator/store/memory/memory.h"

#include "emulator/store/model/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Enough for 4^12 names, beyond which a search merely grows longer. */
#define LEVEL_MAX 12
#define SEGMENT_CAPACITY_MIN RG_KIB(64)
/* A writer that does not know how much will come doubles its segment up to this. */
#define SEGMENT_CAPACITY_MAX RG_MIB(64)

struct segment {
    _Atomic uint32_t refs;
    struct rg_memory_budget *budget;
    uint64_t size, capacity; /* The capacity is what is charged to the budget. */
    uint8_t *data;
};

/* Bytes of an object up to `end`; they start where the piece before ends. */
struct piece {
    struct segment *segment;
    uint64_t end;
};

struct version {
    _Atomic uint32_t refs;
    struct rg_store_object_info info;
    struct rg_attributes *attributes; /* Owned; what `info` points at. */
    struct version *older;            /* Noncurrent ones of the name, the newest first. */
    size_t piece_count;
    struct piece pieces[];
};

struct node {
    struct version *live, *noncurrent; /* At least one. */
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
    uint64_t size;
    bool growing; /* The last segment is ours alone and takes more. */
    size_t piece_count, piece_capacity;
    struct piece *pieces;
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

static struct segment *segment_ref(struct segment *segment)
{
    atomic_fetch_add_explicit(&segment->refs, 1, memory_order_relaxed);
    return segment;
}

static void segment_unref(struct segment *segment)
{
    if (atomic_fetch_sub_explicit(&segment->refs, 1, memory_order_acq_rel) == 1) {
        budget_give(segment->budget, segment->capacity);
        free(segment->data);
        free(segment);
    }
}

/* Gives it another capacity, which is charged. It is ours alone. */
static int segment_resize(struct segment *segment, uint64_t capacity)
{
    if (capacity > segment->capacity) {
        int rc = budget_take(segment->budget, capacity - segment->capacity);
        if (rc < 0) {
            return rc;
        }
    }
    uint8_t *data = realloc(segment->data, RG_MAX(capacity, UINT64_C(1)));
    if (data == NULL) {
        if (capacity > segment->capacity) {
            budget_give(segment->budget, capacity - segment->capacity);
        }
        return -ENOMEM;
    }
    if (capacity < segment->capacity) {
        budget_give(segment->budget, segment->capacity - capacity);
    }
    segment->data = data;
    segment->capacity = capacity;
    return 0;
}

/* Takes a reference to each segment. NULL: out of memory. */
static struct version *version_create(const struct rg_store_object_info *info,
                                      const struct piece *pieces, size_t piece_count)
{
    struct version *version = malloc(sizeof(*version) + piece_count * sizeof(*pieces));
    if (version == NULL) {
        return NULL;
    }
    *version = (struct version){
        .refs = 1,
        .info = *info,
        .attributes = rg_attributes_ref(info->attributes),
        .piece_count = piece_count,
    };
    version->info.has_attributes = info->attributes != NULL;
    for (size_t i = 0; i < piece_count; i++) {
        version->pieces[i] = pieces[i];
        segment_ref(pieces[i].segment);
    }
    return version;
}

static void version_unref(struct version *version)
{
    if (atomic_fetch_sub_explicit(&version->refs, 1, memory_order_acq_rel) == 1) {
        for (size_t i = 0; i < version->piece_count; i++) {
            segment_unref(version->pieces[i].segment);
        }
        rg_attributes_unref(version->attributes);
        free(version);
    }
}

static size_t version_read(struct rg_store_object *object, uint64_t offset,
                           const uint8_t **out_data)
{
    const struct version *version = object->owner;
    size_t low = 0, high = version->piece_count - 1;
    while (low < high) { /* The first piece that ends behind the offset. */
        size_t middle = low + (high - low) / 2;
        if (version->pieces[middle].end <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const struct piece *piece = &version->pieces[low];
    uint64_t start = low > 0 ? piece[-1].end : 0;
    RG_ASSERT(offset >= start && offset < piece->end);
    *out_data = piece->segment->data + (offset - start);
    return (size_t)(piece->end - offset);
}

static void version_close(struct rg_store_object *object)
{
    version_unref(object->owner);
}

static const struct rg_store_object_type version_type = {.read = version_read,
                                                         .close = version_close};

/* Takes the reference. */
static void version_open(struct version *version, struct rg_store_object *out_object)
{
    *out_object =
        (struct rg_store_object){.info = version->info, .type = &version_type, .owner = version};
}

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

/* The node of exactly this name, NULL when there is none; `links` as above. */
static struct node *list_get(struct memory_bucket *bucket, struct rg_h1_slice name,
                             struct node **links[LEVEL_MAX])
{
    struct node *node = list_find(bucket, name, links);
    return node != NULL && rg_text_compare(node_name(node), name) == 0 ? node : NULL;
}

static void soften(struct version *version, int64_t now_us, const struct rg_store_fate *fate)
{
    version->info.soft_deleted_us = now_us;
    version->info.hard_delete_us = now_us + fate->soft_delete_us;
}

/* The live version stays behind as a noncurrent or as a soft-deleted one. */
static void retire(struct node *node, int64_t now_us, const struct rg_store_fate *fate)
{
    struct version *version = node->live;
    if (fate->soft_delete_us != 0) {
        soften(version, now_us, fate);
    } else {
        version->info.deleted_us = now_us;
    }
    version->older = node->noncurrent;
    node->noncurrent = version;
    node->live = NULL;
}

/* Lets go of soft-deleted versions whose time is over. */
static void purge(struct node *node)
{
    int64_t now_us = rg_store_now_us();
    struct version **link = &node->noncurrent;
    while (*link != NULL) {
        struct version *version = *link;
        if (version->info.hard_delete_us != 0 && version->info.hard_delete_us <= now_us) {
            *link = version->older;
            version_unref(version);
        } else {
            link = &version->older;
        }
    }
}

/* Links a new node in, or gives an existing one another version. Takes the reference on success. */
static int list_put(struct memory_bucket *bucket, struct rg_h1_slice name, struct version *version,
                    const struct rg_store_fate *fate)
{
    struct node **links[LEVEL_MAX];
    struct node *node = list_get(bucket, name, links);
    if (node != NULL) {
        purge(node);
        if (node->live != NULL && fate->kept) {
            retire(node, version->info.updated_us, fate);
        } else if (node->live != NULL) {
            version_unref(node->live);
        }
        node->live = version;
        return 0;
    }
    uint32_t level_count = random_level_count(bucket);
    size_t links_size = level_count * sizeof(struct node *);
    node = malloc(sizeof(*node) + links_size + name.size);
    if (node == NULL) {
        return -ENOMEM;
    }
    node->live = version;
    node->noncurrent = NULL;
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

static bool is_of_kind(const struct version *version, bool soft)
{
    int64_t until = version->info.hard_delete_us;
    return soft ? until > rg_store_now_us() : until == 0;
}

/* The link to the version of that generation, or to the NULL where it would be. */
static struct version **version_link(struct node *node, int64_t generation, bool soft)
{
    if (!soft && node->live != NULL &&
        (generation == 0 || node->live->info.generation == generation)) {
        return &node->live;
    }
    struct version **link = &node->noncurrent;
    while (*link != NULL && (generation == 0 || (*link)->info.generation != generation ||
                             !is_of_kind(*link, soft))) {
        link = &(*link)->older;
    }
    return link;
}

static int memory_open(void *self, struct rg_h1_slice name, int64_t generation, bool soft,
                       struct rg_store_object *out_object)
{
    struct memory_bucket *bucket = self;
    if (atomic_load(&bucket->count) == 0) {
        return -ENOENT;
    }
    pthread_rwlock_rdlock(&bucket->lock);
    struct node *node = list_get(bucket, name, NULL);
    struct version *version = node != NULL ? *version_link(node, generation, soft) : NULL;
    if (version != NULL) {
        atomic_fetch_add_explicit(&version->refs, 1, memory_order_relaxed);
        version_open(version, out_object);
    }
    pthread_rwlock_unlock(&bucket->lock);
    return version != NULL ? 0 : -ENOENT;
}

static void fill_entry(const struct node *node, const struct version *version,
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
    struct node *node = list_find(bucket, from, NULL);
    while (node != NULL && node->live == NULL) {
        node = node->next[0];
    }
    if (node != NULL) {
        fill_entry(node, node->live, out_entry);
    }
    pthread_rwlock_unlock(&bucket->lock);
    return node != NULL ? 0 : -ENOENT;
}

/* The oldest version behind a generation. */
static const struct version *next_version(const struct node *node, int64_t after, bool soft)
{
    const struct version *found = NULL;
    if (!soft && node->live != NULL && node->live->info.generation > after) {
        found = node->live;
    }
    for (const struct version *old = node->noncurrent; old != NULL; old = old->older) {
        if (old->info.generation > after && is_of_kind(old, soft) &&
            (found == NULL || old->info.generation < found->info.generation)) {
            found = old;
        }
    }
    return found;
}

static int memory_seek_version(void *self, struct rg_h1_slice from, int64_t after, bool soft,
                               struct rg_store_entry *out_entry)
{
    struct memory_bucket *bucket = self;
    const struct version *version = NULL;
    pthread_rwlock_rdlock(&bucket->lock);
    struct node *node = list_find(bucket, from, NULL);
    for (; node != NULL; node = node->next[0]) {
        bool same = rg_text_compare(node_name(node), from) == 0;
        version = next_version(node, same ? after : 0, soft);
        if (version != NULL) {
            fill_entry(node, version, out_entry);
            break;
        }
    }
    pthread_rwlock_unlock(&bucket->lock);
    return version != NULL ? 0 : -ENOENT;
}

static void memory_abort(void *self)
{
    struct memory_writer *writer = self;
    for (size_t i = 0; i < writer->piece_count; i++) {
        segment_unref(writer->pieces[i].segment);
    }
    free(writer->pieces);
    free(writer);
}

/* Takes the reference to the segment on success. */
static int add_piece(struct memory_writer *writer, struct segment *segment, uint64_t end)
{
    if (writer->piece_count == writer->piece_capacity) {
        size_t capacity = RG_MAX(writer->piece_capacity * 2, (size_t)4);
        struct piece *pieces = reallocarray(writer->pieces, capacity, sizeof(*pieces));
        if (pieces == NULL) {
            return -ENOMEM;
        }
        writer->pieces = pieces;
        writer->piece_capacity = capacity;
    }
    writer->pieces[writer->piece_count++] = (struct piece){segment, end};
    return 0;
}

/* A new last segment. */
static int add_segment(struct memory_writer *writer, uint64_t capacity)
{
    struct segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL) {
        return -ENOMEM;
    }
    segment->refs = 1;
    segment->budget = writer->bucket->budget;
    int rc = segment_resize(segment, capacity);
    rc = rc == 0 ? add_piece(writer, segment, writer->size) : rc;
    if (rc < 0) {
        segment_unref(segment);
        return rc;
    }
    writer->growing = true;
    return 0;
}

static struct segment *last_segment(const struct memory_writer *writer)
{
    return writer->pieces[writer->piece_count - 1].segment;
}

static int memory_begin(void *self, uint64_t size_hint, void **out_writer)
{
    struct memory_writer *writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->bucket = self;
    int rc = size_hint > 0 ? add_segment(writer, size_hint) : 0;
    if (rc < 0) {
        memory_abort(writer);
        return rc;
    }
    *out_writer = writer;
    return 0;
}

/* Makes room for some of `size` more bytes at the end of the last segment. */
static int make_room(struct memory_writer *writer, uint64_t size)
{
    if (!writer->growing) {
        int rc = add_segment(writer, RG_MAX(size, (uint64_t)SEGMENT_CAPACITY_MIN));
        return rc == -ENOSPC ? add_segment(writer, size) : rc;
    }
    struct segment *segment = last_segment(writer);
    uint64_t needed = segment->size + size;
    if (needed <= segment->capacity) {
        return 0;
    }
    if (segment->capacity >= SEGMENT_CAPACITY_MAX) {
        if (segment->size < segment->capacity) {
            return 0;
        }
        int rc = add_segment(writer, SEGMENT_CAPACITY_MAX);
        return rc == -ENOSPC ? add_segment(writer, size) : rc;
    }
    int rc = segment_resize(
        segment, RG_MAX(needed, RG_MAX(segment->capacity * 2, (uint64_t)SEGMENT_CAPACITY_MIN)));
    return rc == -ENOSPC ? segment_resize(segment, needed) : rc;
}

static int memory_append(void *self, const void *data, size_t size)
{
    struct memory_writer *writer = self;
    const uint8_t *bytes = data;
    while (size > 0) {
        int rc = make_room(writer, size);
        if (rc < 0) {
            return rc;
        }
        struct segment *segment = last_segment(writer);
        size_t count = (size_t)RG_MIN(segment->capacity - segment->size, (uint64_t)size);
        memcpy(segment->data + segment->size, bytes, count);
        segment->size += count;
        writer->size += count;
        writer->pieces[writer->piece_count - 1].end = writer->size;
        bytes += count;
        size -= count;
    }
    return 0;
}

/* Gives back what growing by doubling took too much. A failure to shrink changes nothing. */
static void stop_growing(struct memory_writer *writer)
{
    if (!writer->growing) {
        return;
    }
    struct segment *segment = last_segment(writer);
    writer->growing = false;
    if (segment->size == 0) {
        segment_unref(segment);
        writer->piece_count--;
    } else if (segment->size < segment->capacity) {
        (void)segment_resize(segment, segment->size);
    }
}

static int memory_append_object(void *self, struct rg_store_object *object)
{
    struct memory_writer *writer = self;
    if (object->type != &version_type) {
        return -ENOTSUP;
    }
    const struct version *version = object->owner;
    uint64_t base = writer->size;
    stop_growing(writer);
    for (size_t i = 0; i < version->piece_count; i++) {
        int rc = add_piece(writer, version->pieces[i].segment, base + version->pieces[i].end);
        if (rc < 0) {
            return rc;
        }
        segment_ref(version->pieces[i].segment);
        writer->size = base + version->pieces[i].end;
    }
    return 0;
}

/* Takes the writer. NULL: out of memory. */
static struct version *make_version(struct memory_writer *writer,
                                    const struct rg_store_object_info *info)
{
    stop_growing(writer);
    RG_ASSERT(info->size == writer->size);
    struct version *version = version_create(info, writer->pieces, writer->piece_count);
    memory_abort(writer); /* Its references; the version has its own. */
    return version;
}

static int memory_commit(void *self, struct rg_h1_slice name, struct rg_store_object_info *info,
                         const struct rg_store_fate *fate)
{
    struct memory_writer *writer = self;
    struct memory_bucket *bucket = writer->bucket;
    struct version *version = make_version(writer, info);
    if (version == NULL) {
        return -ENOMEM;
    }
    pthread_rwlock_wrlock(&bucket->lock);
    int rc = list_put(bucket, name, version, fate);
    pthread_rwlock_unlock(&bucket->lock);
    if (rc < 0) {
        version_unref(version);
    }
    return rc;
}

static int memory_seal(void *self, const struct rg_store_object_info *info,
                       struct rg_store_object *out_object)
{
    struct version *version = make_version(self, info);
    if (version == NULL) {
        return -ENOMEM;
    }
    version_open(version, out_object);
    return 0;
}

static int memory_update(void *self, struct rg_h1_slice name,
                         const struct rg_store_object_info *info)
{
    struct memory_bucket *bucket = self;
    int rc = -ENOENT;
    pthread_rwlock_wrlock(&bucket->lock);
    struct node *node = list_get(bucket, name, NULL);
    struct version **link = node != NULL ? version_link(node, info->generation, false) : NULL;
    if (link != NULL && *link != NULL) {
        struct version *old = *link;
        struct version *version = version_create(info, old->pieces, old->piece_count);
        rc = version != NULL ? 0 : -ENOMEM;
        if (version != NULL) {
            version->older = old->older;
            *link = version;
            version_unref(old);
        }
    }
    pthread_rwlock_unlock(&bucket->lock);
    return rc;
}

static void list_remove(struct memory_bucket *bucket, struct node *node,
                        struct node **links[LEVEL_MAX])
{
    for (uint32_t level = 0; level < node->level_count; level++) {
        RG_ASSERT(*links[level] == node);
        *links[level] = node->next[level];
    }
    atomic_fetch_sub(&bucket->count, 1);
    free(node);
}

static int memory_remove(void *self, struct rg_h1_slice name, int64_t generation,
                         const struct rg_store_fate *fate)
{
    struct memory_bucket *bucket = self;
    struct node **links[LEVEL_MAX];
    int rc = -ENOENT;
    pthread_rwlock_wrlock(&bucket->lock);
    struct node *node = list_get(bucket, name, links);
    struct version **link = node != NULL ? version_link(node, generation, false) : NULL;
    struct version *version = link != NULL ? *link : NULL;
    if (version != NULL) {
        rc = 0;
        if (fate->kept && link == &node->live) {
            retire(node, rg_store_now_us(), fate);
        } else if (fate->kept) {
            soften(version, rg_store_now_us(), fate);
        } else {
            *link = link == &node->live ? NULL : version->older;
            version_unref(version);
        }
        purge(node);
        if (node->live == NULL && node->noncurrent == NULL) {
            list_remove(bucket, node, links);
        }
    }
    pthread_rwlock_unlock(&bucket->lock);
    return rc;
}

static int memory_move(void *self, struct rg_h1_slice from, struct rg_h1_slice to)
{
    struct memory_bucket *bucket = self;
    struct node **links[LEVEL_MAX];
    int rc = -ENOENT;
    pthread_rwlock_wrlock(&bucket->lock);
    struct node *node = list_get(bucket, from, NULL);
    if (node != NULL && node->live != NULL) {
        rc = list_put(bucket, to, node->live, &(struct rg_store_fate){0});
    }
    if (rc == 0) {
        node->live = NULL;
        if (node->noncurrent == NULL) {
            /* The links may be others now. */
            (void)list_get(bucket, from, links);
            list_remove(bucket, node, links);
        }
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
    bucket->random = UINT64_C(0x9e3779b97f4a7c15);
    *out_bucket = bucket;
    return 0;
}

/* Memory goes with the store. */
static int memory_erase(void *self)
{
    (void)self;
    return 0;
}

static void memory_close(void *self)
{
    struct memory_bucket *bucket = self;
    for (struct node *node = bucket->first[0]; node != NULL;) {
        struct node *next = node->next[0];
        while (node->noncurrent != NULL) {
            struct version *older = node->noncurrent->older;
            version_unref(node->noncurrent);
            node->noncurrent = older;
        }
        if (node->live != NULL) {
            version_unref(node->live);
        }
        free(node);
        node = next;
    }
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
