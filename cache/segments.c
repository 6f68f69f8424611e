/* See segments.h. */
#include "cache/segments.h"

#include "cache/index_file.h"
#include "runtime/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* A quarter of the descriptors that the process may have, two for each segment. */
#define LIMIT_PART 8
#define OPEN_MIN 8
#define OPEN_MAX 4096

static uint32_t open_max(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return OPEN_MIN;
    }
    uint64_t count = RG_MIN((uint64_t)limit.rlim_cur / LIMIT_PART, (uint64_t)OPEN_MAX);
    return (uint32_t)RG_MAX(count, (uint64_t)OPEN_MIN);
}

int rg_cache_segments_init(struct rg_cache_segments *segments, int folder, bool direct,
                           bool is_remote)
{
    *segments = (struct rg_cache_segments){
        .folder = folder,
        .direct = direct,
        .is_remote = is_remote,
        .open_max = open_max(),
        .by_number = calloc(RG_CACHE_SEGMENTS_MAX + 1, sizeof(struct rg_cache_segment *)),
    };
    if (segments->by_number == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_init(&segments->lock, NULL);
    return 0;
}

static void segment_free(struct rg_cache_segments *segments, struct rg_cache_segment *segment)
{
    RG_ASSERT(segment->pins == 0 && !segment->listed);
    segments->open_count -= segment->fd >= 0;
    rg_fd_drop(segment->fd);
    rg_fd_drop(segment->fd_direct);
    free(segment);
}

static void let_go_locked(struct rg_cache_segments *segments, struct rg_cache_segment *segment)
{
    segments->by_number[segment->number] = NULL;
    segment->listed = false;
    if (segment->pins == 0) {
        segment_free(segments, segment);
    }
}

void rg_cache_segments_fini(struct rg_cache_segments *segments)
{
    for (uint32_t i = 0; segments->by_number != NULL && i <= RG_CACHE_SEGMENTS_MAX; i++) {
        if (segments->by_number[i] != NULL) {
            RG_ASSERT(segments->by_number[i]->pins == 0);
            let_go_locked(segments, segments->by_number[i]);
        }
    }
    free(segments->by_number);
    pthread_mutex_destroy(&segments->lock);
}

/* Closes one that nobody has, and that was not used since the sweep was there last. */
static void sweep_locked(struct rg_cache_segments *segments)
{
    for (uint32_t i = 0; i < 2 * (RG_CACHE_SEGMENTS_MAX + 1); i++) {
        segments->sweep = segments->sweep == RG_CACHE_SEGMENTS_MAX ? 0 : segments->sweep + 1;
        struct rg_cache_segment *segment = segments->by_number[segments->sweep];
        if (segment == NULL || segment->pins > 0 || segment->fd < 0) {
            continue;
        }
        if (!segment->used) {
            let_go_locked(segments, segment);
            return;
        }
        segment->used = false;
    }
}

/* NULL: it is not known. What failed is known. */
static struct rg_cache_segment *known_locked(struct rg_cache_segments *segments, uint32_t number,
                                             const struct rg_cache_nonce *nonce)
{
    struct rg_cache_segment *segment = segments->by_number[number];
    if (segment != NULL && memcmp(&segment->nonce, nonce, sizeof(*nonce)) != 0) {
        let_go_locked(segments, segment);
        return NULL;
    }
    return segment;
}

static struct rg_cache_segment *segment_open(const struct rg_cache_segments *segments,
                                             uint32_t number, const struct rg_cache_nonce *nonce)
{
    struct rg_cache_segment *segment = malloc(sizeof(*segment));
    if (segment == NULL) {
        return NULL;
    }
    int fd = rg_cache_file_open(segments->folder, nonce, 0);
    int fd_direct =
        fd >= 0 && segments->direct ? rg_cache_file_open(segments->folder, nonce, O_DIRECT) : -1;
    *segment = (struct rg_cache_segment){
        .nonce = *nonce,
        .fd = RG_MAX(fd, -1),
        .fd_direct = RG_MAX(fd_direct, -1),
        .number = number,
        .failed = fd < 0,
    };
    return segment;
}

/* Another thread may have opened it meanwhile: then there is one too many. */
static struct rg_cache_segment *add_locked(struct rg_cache_segments *segments,
                                           struct rg_cache_segment *opened)
{
    struct rg_cache_segment *known = known_locked(segments, opened->number, &opened->nonce);
    segments->open_count += opened->fd >= 0;
    if (known != NULL) {
        segment_free(segments, opened);
        return known;
    }
    segments->by_number[opened->number] = opened;
    opened->listed = true;
    return opened;
}

struct rg_cache_segment *rg_cache_segments_pin(struct rg_cache_segments *segments, uint32_t number,
                                               const struct rg_cache_nonce *nonce, bool may_open)
{
    RG_ASSERT(number > 0 && number <= RG_CACHE_SEGMENTS_MAX);
    pthread_mutex_lock(&segments->lock);
    struct rg_cache_segment *segment = known_locked(segments, number, nonce);
    if (segment == NULL && (may_open || !segments->is_remote)) {
        if (segments->open_count >= segments->open_max) {
            sweep_locked(segments);
        }
        pthread_mutex_unlock(&segments->lock);
        struct rg_cache_segment *opened = segment_open(segments, number, nonce);
        pthread_mutex_lock(&segments->lock);
        segment = opened != NULL ? add_locked(segments, opened) : NULL;
    }
    bool usable = segment != NULL && !segment->failed;
    if (usable) {
        segment->pins++;
        segment->used = true;
    }
    pthread_mutex_unlock(&segments->lock);
    return usable ? segment : NULL;
}

void rg_cache_segments_open_ahead(struct rg_cache_segments *segments, uint32_t number,
                                  const struct rg_cache_nonce *nonce)
{
    pthread_mutex_lock(&segments->lock);
    bool wanted =
        known_locked(segments, number, nonce) == NULL && segments->open_count < segments->open_max;
    pthread_mutex_unlock(&segments->lock);
    struct rg_cache_segment *segment =
        wanted ? rg_cache_segments_pin(segments, number, nonce, true) : NULL;
    if (segment != NULL) {
        rg_cache_segments_unpin(segments, segment);
    }
}

void rg_cache_segments_unpin(struct rg_cache_segments *segments, struct rg_cache_segment *segment)
{
    pthread_mutex_lock(&segments->lock);
    RG_ASSERT(segment->pins > 0);
    segment->pins--;
    if (segment->pins == 0 && !segment->listed) {
        segment_free(segments, segment);
    }
    pthread_mutex_unlock(&segments->lock);
}

void rg_cache_segments_fail(struct rg_cache_segments *segments, struct rg_cache_segment *segment)
{
    pthread_mutex_lock(&segments->lock);
    segment->failed = true;
    pthread_mutex_unlock(&segments->lock);
}

uint64_t rg_cache_segments_use(struct rg_cache_segments *segments, uint32_t number,
                               const struct rg_cache_nonce *nonce)
{
    pthread_mutex_lock(&segments->lock);
    const struct rg_cache_segment *segment = segments->by_number[number];
    bool known = segment != NULL && memcmp(&segment->nonce, nonce, sizeof(*nonce)) == 0;
    uint64_t last_use = known ? atomic_load_explicit(&segment->last_use, memory_order_relaxed) : 0;
    pthread_mutex_unlock(&segments->lock);
    return last_use;
}

void rg_cache_segments_let_go(struct rg_cache_segments *segments, uint32_t number)
{
    pthread_mutex_lock(&segments->lock);
    if (segments->by_number[number] != NULL) {
        let_go_locked(segments, segments->by_number[number]);
    }
    pthread_mutex_unlock(&segments->lock);
}

void rg_cache_segments_retry(struct rg_cache_segments *segments)
{
    pthread_mutex_lock(&segments->lock);
    for (uint32_t i = 0; i <= RG_CACHE_SEGMENTS_MAX; i++) {
        struct rg_cache_segment *segment = segments->by_number[i];
        if (segment != NULL && segment->failed) {
            let_go_locked(segments, segment);
        }
    }
    pthread_mutex_unlock(&segments->lock);
}
