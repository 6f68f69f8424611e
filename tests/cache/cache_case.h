/* A cache of a test's own: folders that nobody else has, keys and bodies that follow from numbers,
 * and reads as a request makes them. */
#ifndef RG_TESTS_CACHE_CASE_H
#define RG_TESTS_CACHE_CASE_H

#include "cache/cache.h"
#include "cache/files.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

struct cache_case {
    char root[64], folder[96], share[64];
    char why[512];
    uint8_t *body, *record;
};

static inline void cache_case_open(struct cache_case *c)
{
    *c = (struct cache_case){.root = "/tmp/ringest-test-XXXXXX",
                             .share = "/dev/shm/ringest-test-XXXXXX"};
    RG_CHECK(mkdtemp(c->root) != NULL);
    if (mkdtemp(c->share) == NULL) {
        rmdir(c->root);
        rg_test_skip("there is no /dev/shm to write to");
    }
    snprintf(c->folder, sizeof(c->folder), "%s/cache", c->root);
    c->body = malloc(RG_CACHE_BLOCK_SIZE);
    c->record = aligned_alloc(RG_CACHE_ALIGNMENT, 2 * RG_CACHE_BLOCK_SIZE);
    RG_CHECK(c->body != NULL && c->record != NULL);
}

/* Also while somebody has a segment attached that was removed, it is none. */
static inline bool memory_is_there(int id)
{
    struct shmid_ds status;
    return shmctl(id, IPC_STAT, &status) == 0 && (status.shm_perm.mode & SHM_DEST) == 0;
}

static inline void folder_empty(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            RG_CHECK_EQ(unlinkat(dirfd(dir), entry->d_name, 0), 0);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static inline void cache_case_close(struct cache_case *c)
{
    folder_empty(c->folder);
    rmdir(c->folder);
    RG_CHECK_EQ(rmdir(c->root), 0);
    folder_empty(c->share);
    RG_CHECK_EQ(rmdir(c->share), 0);
    free(c->body);
    free(c->record);
}

static inline int cache_case_try(struct cache_case *c, uint64_t size, const char *share,
                                 struct rg_cache **out_cache)
{
    struct rg_cache_options options = {.folder = c->folder, .size = size, .share = share};
    return rg_cache_open(out_cache, &options, c->why, sizeof(c->why));
}

static inline struct rg_cache *cache_case_start(struct cache_case *c, uint64_t size)
{
    struct rg_cache *cache = NULL;
    if (cache_case_try(c, size, c->share, &cache) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", c->why);
    }
    return cache;
}

/* Object `number` of a data set, in its only block. */
struct case_key {
    char object[32];
    struct rg_cache_key key;
};

static inline void case_key_make(struct case_key *k, uint64_t number)
{
    snprintf(k->object, sizeof(k->object), "shard/%08llu", (unsigned long long)number);
    k->key = (struct rg_cache_key){
        .origin = "storage.example.com",
        .bucket = "bucket",
        .object = k->object,
        .generation = (int64_t)(1700000000000000 + number),
    };
}

/* Bytes that are another object's at no offset. */
static inline void body_fill(uint8_t *body, size_t size, uint64_t number)
{
    uint64_t word = number * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < size; i++) {
        word += (word << 5) ^ (word >> 17) ^ i;
        body[i] = (uint8_t)(word >> 24);
    }
}

static inline bool case_write(struct cache_case *c, struct rg_cache *cache, uint64_t number,
                              size_t size)
{
    struct case_key k;
    struct rg_cache_record record = {.object_size = size};
    case_key_make(&k, number);
    body_fill(c->body, size, number);
    return rg_cache_write(cache, &k.key, &record, c->body, size);
}

enum case_outcome { CASE_MISS, CASE_HIT, CASE_BAD, CASE_OTHER, CASE_WRONG };

/* Reads one object as a request does. CASE_WRONG: bytes were handed out that are not its own. */
static inline enum case_outcome case_read(struct cache_case *c, struct rg_cache *cache,
                                          uint64_t number, size_t size)
{
    struct case_key k;
    struct rg_cache_place place;
    struct rg_cache_record record;
    enum case_outcome outcome = CASE_MISS;
    case_key_make(&k, number);
    if (!rg_cache_find(cache, &k.key, &place)) {
        return CASE_MISS;
    }
    ssize_t got = pread(place.fd, c->record, place.size, (off_t)place.offset);
    if (got != (ssize_t)place.size) {
        rg_cache_place_failed(cache, &place, -EIO);
    } else {
        int rc = rg_cache_record_open(cache, &place, &k.key, c->record, place.size, &record);
        const uint8_t *body = c->record + (rc == 0 ? record.header_size : 0);
        rc =
            rc == 0 ? rg_cache_record_check(cache, &place, &record, 0, body, record.body_size) : rc;
        outcome = rc == 0 ? CASE_HIT : rc == -EBADMSG ? CASE_BAD : CASE_OTHER;
        body_fill(c->body, size, number);
        if (rc == 0 && (record.body_size != size || memcmp(body, c->body, size) != 0)) {
            outcome = CASE_WRONG;
        }
    }
    rg_cache_place_drop(cache, &place);
    return outcome;
}

static inline struct rg_cache_stats case_stats(const struct rg_cache *cache)
{
    struct rg_cache_stats stats;
    rg_cache_stats(cache, &stats);
    return stats;
}

#endif
