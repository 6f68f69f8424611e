/* See cache.h. */
#include "cache/cache.h"

#include "cache/extent.h"
#include "cache/keeper.h"
#include "cache/policy.h"
#include "runtime/descriptor.h"
#include "runtime/fork.h"
#include "runtime/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

struct rg_cache {
    char *path;
    int folder;
    uint32_t fork_generation;
    struct rg_cache_counters counters;
    struct rg_cache_index *index;
    struct rg_cache_segments segments;
    struct rg_cache_batches batches;
    struct rg_cache_keeper keeper;
};

/* File systems whose calls may wait for another host (statfs(2)). */
static bool is_remote(int folder)
{
    static const uint32_t magics[] = {
        0x6969,     /* NFS */
        0xff534d42, /* CIFS */
        0xfe534d42, /* SMB2 */
        0x65735546, /* FUSE */
        0x0bd00bd0, /* Lustre */
        0x00c36400, /* Ceph */
        0x01021997, /* 9P */
        0x47504653, /* GPFS */
    };
    struct statfs system;
    if (fstatfs(folder, &system) < 0) {
        return true;
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(magics); i++) {
        if ((uint32_t)system.f_type == magics[i]) {
            return true;
        }
    }
    return false;
}

/* The same for all processes of a host that have the folder. */
static uint64_t folder_id(int folder)
{
    struct stat status = {.st_ino = 0};
    (void)fstat(folder, &status);
    return (uint64_t)status.st_dev * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)status.st_ino;
}

static uint64_t size_default(int folder)
{
    struct statvfs system;
    struct rg_cache_files files = {.count = 0};
    uint64_t size = 0;
    if (fstatvfs(folder, &system) == 0 && rg_cache_files_list(folder, &files) == 0) {
        size = ((uint64_t)system.f_bavail * system.f_frsize + files.size) / 10 * 9;
    }
    rg_cache_files_fini(&files);
    return size;
}

/* Shared where that can be had, else of this process alone. */
static int index_open(struct rg_cache *cache, const char *share, char *why, size_t why_size)
{
    uint64_t id = folder_id(cache->folder);
    int rc = share == NULL ? -ENOENT : rg_cache_index_open(&cache->index, share, id, why, why_size);
    if (rc < 0 && share != NULL) {
        rg_log(RG_LOG_WARN, "cache %s: its index is this process's alone: %s", cache->path, why);
    }
    return rc == 0 ? 0 : rg_cache_index_open(&cache->index, NULL, id, why, why_size);
}

static int size_check(struct rg_cache *cache, uint64_t size, char *why, size_t why_size)
{
    cache->keeper.size_max = size != 0 ? size : size_default(cache->folder);
    if (cache->keeper.size_max < RG_CACHE_SIZE_MIN) {
        snprintf(why, why_size, "%s: a cache has at least 16 MiB, and this one would have %llu",
                 cache->path, (unsigned long long)cache->keeper.size_max);
        return size != 0 ? -EINVAL : -ENOSPC;
    }
    cache->keeper.segment_size = rg_cache_segment_size(cache->keeper.size_max);
    return 0;
}

static int parts_open(struct rg_cache *cache, const struct rg_cache_options *options, char *why,
                      size_t why_size)
{
    int rc = rg_cache_folder_open(cache->path, true, why, why_size);
    if (rc < 0) {
        return rc;
    }
    cache->folder = rc;
    rc = size_check(cache, options->size, why, why_size);
    rc = rc == 0 ? index_open(cache, options->share, why, why_size) : rc;
    if (rc < 0) {
        return rc;
    }
    bool remote = is_remote(cache->folder);
    rc = rg_cache_segments_init(&cache->segments, cache->folder, !remote, remote);
    if (rc < 0) {
        snprintf(why, why_size, "there is no memory");
        return rc;
    }
    rg_cache_batches_init(&cache->batches, cache->keeper.segment_size);
    return 0;
}

static int keeper_start(struct rg_cache *cache, char *why, size_t why_size)
{
    cache->keeper.path = cache->path;
    cache->keeper.folder = cache->folder;
    cache->keeper.counters = &cache->counters;
    cache->keeper.index = cache->index;
    cache->keeper.segments = &cache->segments;
    cache->keeper.batches = &cache->batches;
    int rc = rg_cache_keeper_start(&cache->keeper);
    if (rc < 0) {
        snprintf(why, why_size, "its thread cannot be started: %s", rg_error_text(-rc));
    }
    return rc;
}

static void parts_close(struct rg_cache *cache)
{
    if (cache->segments.by_number != NULL) {
        rg_cache_batches_fini(&cache->batches);
        rg_cache_segments_fini(&cache->segments);
    }
    rg_cache_index_close(cache->index);
    rg_fd_drop(cache->folder);
    free(cache->path);
    free(cache);
}

int rg_cache_open(struct rg_cache **out_cache, const struct rg_cache_options *options, char *why,
                  size_t why_size)
{
    struct rg_cache *cache = calloc(1, sizeof(*cache));
    char *path = strdup(options->folder);
    uint32_t generation = rg_fork_generation();
    if (cache == NULL || path == NULL || generation == 0) {
        free(path);
        free(cache);
        snprintf(why, why_size, "there is no memory");
        return -ENOMEM;
    }
    cache->path = path;
    cache->folder = -1;
    cache->fork_generation = generation;
    int rc = parts_open(cache, options, why, why_size);
    rc = rc == 0 ? keeper_start(cache, why, why_size) : rc;
    if (rc < 0) {
        parts_close(cache);
        return rc;
    }
    *out_cache = cache;
    return 0;
}

void rg_cache_close(struct rg_cache *cache)
{
    /* A child has neither the thread nor the descriptors; its memory stays as it is. */
    if (cache == NULL || cache->fork_generation != rg_fork_generation()) {
        return;
    }
    rg_cache_keeper_stop(&cache->keeper);
    parts_close(cache);
}

static void count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

static bool place_pin(struct rg_cache *cache, uint64_t hash, const struct rg_cache_found *found,
                      struct rg_cache_place *out_place)
{
    struct rg_cache_segment *segment =
        rg_cache_segments_pin(&cache->segments, found->number, &found->nonce, false);
    if (segment == NULL) {
        return false;
    }
    uint64_t now = atomic_load_explicit(&cache->keeper.clock, memory_order_relaxed);
    atomic_store_explicit(&segment->last_use, now, memory_order_relaxed);
    *out_place = (struct rg_cache_place){
        .fd = segment->fd,
        .fd_direct = segment->fd_direct,
        .size = found->size * RG_CACHE_UNIT,
        .offset = (uint64_t)found->place * RG_CACHE_UNIT,
        .segment = segment,
        .hash = hash,
    };
    return true;
}

bool rg_cache_find(struct rg_cache *cache, const struct rg_cache_key *key,
                   struct rg_cache_place *out_place)
{
    struct rg_cache_key_sizes sizes;
    struct rg_cache_found found;
    if (rg_cache_key_measure(key, &sizes)) {
        uint64_t hash = rg_cache_key_hash(key, &sizes);
        if (rg_cache_index_find(cache->index, hash, &found) &&
            place_pin(cache, hash, &found, out_place)) {
            return true;
        }
    }
    count(&cache->counters.misses, 1);
    return false;
}

bool rg_cache_find_byte(struct rg_cache *cache, struct rg_cache_key *key, uint64_t at,
                        unsigned ways, struct rg_cache_place *out_place)
{
    struct rg_cache_key_sizes sizes;
    struct rg_cache_extent extent;
    if (rg_cache_key_measure(key, &sizes) &&
        rg_cache_extent_find(cache->index, key, &sizes, at, ways, &extent)) {
        key->block = extent.block;
        if (place_pin(cache, rg_cache_key_hash(key, &sizes), &extent.found, out_place)) {
            return true;
        }
    }
    count(&cache->counters.misses, 1);
    return false;
}

bool rg_cache_look(struct rg_cache *cache, const struct rg_cache_key *key, uint64_t at,
                   unsigned ways, struct rg_cache_extent *out_extent)
{
    struct rg_cache_key_sizes sizes;
    return rg_cache_key_measure(key, &sizes) &&
           rg_cache_extent_find(cache->index, key, &sizes, at, ways, out_extent);
}

void rg_cache_place_drop(struct rg_cache *cache, struct rg_cache_place *place)
{
    rg_cache_segments_unpin(&cache->segments, place->segment);
    *place = (struct rg_cache_place){.fd = -1, .fd_direct = -1};
}

static int record_bad(struct rg_cache *cache, const struct rg_cache_place *place)
{
    count(&cache->counters.bad_records, 1);
    count(&cache->counters.misses, 1);
    rg_cache_index_forget(cache->index, place->hash);
    rg_cache_keeper_trouble(&cache->keeper, RG_CACHE_TROUBLE_DAMAGE, -EBADMSG);
    return -EBADMSG;
}

int rg_cache_record_open(struct rg_cache *cache, const struct rg_cache_place *place,
                         const struct rg_cache_key *key, const uint8_t *bytes, size_t size,
                         struct rg_cache_record *out_record)
{
    struct rg_cache_key found;
    struct rg_cache_record record;
    uint64_t hash;
    if (rg_cache_header_read(bytes, size, &found, &record, &hash) < 0 ||
        record.header_size + record.body_size > place->size) {
        return record_bad(cache, place);
    }
    if (!rg_cache_key_is_same(&found, key)) {
        count(&cache->counters.misses, 1);
        return -ENOENT;
    }
    *out_record = record;
    return 0;
}

int rg_cache_record_check(struct rg_cache *cache, const struct rg_cache_place *place,
                          const struct rg_cache_record *record, uint32_t first, const uint8_t *data,
                          size_t size)
{
    if (rg_cache_body_check(record, first, data, size) < 0) {
        return record_bad(cache, place);
    }
    count(&cache->counters.hits, 1);
    count(&cache->counters.hit_bytes, size);
    count(&cache->keeper.looked_up, record->body_size);
    return 0;
}

void rg_cache_place_failed(struct rg_cache *cache, const struct rg_cache_place *place, int error)
{
    count(&cache->counters.misses, 1);
    rg_cache_segments_fail(&cache->segments, place->segment);
    rg_cache_keeper_trouble(&cache->keeper, RG_CACHE_TROUBLE_READ, error);
}

bool rg_cache_write(struct rg_cache *cache, const struct rg_cache_key *key,
                    const struct rg_cache_record *record, const uint8_t *body, size_t body_size)
{
    struct rg_cache_key_sizes sizes;
    RG_ASSERT(body_size <= RG_CACHE_BLOCK_SIZE);
    count(&cache->keeper.looked_up, body_size);
    if (!rg_cache_key_measure(key, &sizes) ||
        !atomic_load_explicit(&cache->keeper.admits, memory_order_relaxed)) {
        count(&cache->counters.not_admitted, 1);
        return false;
    }
    uint64_t hash = rg_cache_key_hash(key, &sizes);
    if (!rg_cache_batches_put(&cache->batches, key, &sizes, hash, record, body, body_size)) {
        count(&cache->counters.dropped, 1);
        return false;
    }
    struct rg_cache_content notes[RG_CACHE_GRANULES];
    uint32_t note_count = rg_cache_extent_notes(key, &sizes, body_size, notes);
    if (note_count > 0) {
        rg_cache_batches_note(&cache->batches, notes, note_count);
    }
    return true;
}

int64_t rg_cache_newest(struct rg_cache *cache, const struct rg_cache_key *key)
{
    struct rg_cache_key any = *key;
    struct rg_cache_key_sizes sizes;
    any.generation = 1; /* as good as any */
    return rg_cache_key_measure(&any, &sizes) ? rg_cache_newest_find(cache->index, &any, &sizes)
                                              : 0;
}

void rg_cache_note_newest(struct rg_cache *cache, const struct rg_cache_key *key)
{
    struct rg_cache_content notes[2];
    struct rg_cache_key_sizes sizes;
    if (rg_cache_key_measure(key, &sizes)) {
        rg_cache_newest_notes(key, &sizes, notes);
        rg_cache_batches_note(&cache->batches, notes, RG_ARRAY_LEN(notes));
    }
}

void rg_cache_forget(struct rg_cache *cache, const struct rg_cache_key *key)
{
    struct rg_cache_key_sizes sizes;
    if (rg_cache_key_measure(key, &sizes)) {
        rg_cache_index_forget(cache->index, rg_cache_key_hash(key, &sizes));
    }
}

void rg_cache_flush(struct rg_cache *cache)
{
    rg_cache_keeper_flush(&cache->keeper);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void rg_cache_stats(const struct rg_cache *cache, struct rg_cache_stats *out_stats)
{
    const struct rg_cache_counters *counters = &cache->counters;
    *out_stats = (struct rg_cache_stats){
        .hits = get(&counters->hits),
        .hit_bytes = get(&counters->hit_bytes),
        .misses = get(&counters->misses),
        .written = get(&counters->written),
        .written_bytes = get(&counters->written_bytes),
        .not_admitted = get(&counters->not_admitted),
        .dropped = get(&counters->dropped),
        .bad_records = get(&counters->bad_records),
        .evicted = get(&counters->evicted),
        .errors = get(&counters->errors),
        .size = get(&counters->size),
        .size_max = cache->keeper.size_max,
        .segments = get(&counters->segments),
        .objects = get(&counters->objects),
    };
}
