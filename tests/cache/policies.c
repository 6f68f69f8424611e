/* See policies.h. SIEVE is that of Zhang et al. (NSDI 2024), S3-FIFO that of Yang et al. (SOSP
 * 2023), with a tenth for its small queue and as many ghosts as objects. */
#include "tests/cache/policies.h"

#include "cache/policy.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENT_OBJECTS 16
#define SEGMENTS_MAX 65536
#define QUEUE_MAX 65536
#define FREQUENCY_MAX 3

const char *const policy_names[POLICY_COUNT] = {
    [POLICY_OURS] = "ours",
    [POLICY_LRU] = "LRU",
    [POLICY_SIEVE] = "SIEVE",
    [POLICY_S3_FIFO] = "S3-FIFO",
};

struct segment {
    uint32_t count;
    bool live;
    uint64_t last_use;
};

/* First in, first out. */
struct queue {
    uint32_t items[QUEUE_MAX];
    uint32_t head, tail;
};

enum place { OUT, IN, SMALL, MAIN };

struct policy {
    enum policy_kind kind;
    uint32_t capacity, count;
    uint64_t clock;
    uint8_t place[POLICY_OBJECTS_MAX], frequency[POLICY_OBJECTS_MAX];
    uint64_t used[POLICY_OBJECTS_MAX]; /* LRU: when; SIEVE: when it came */
    /* Ours. */
    uint32_t segment_of[POLICY_OBJECTS_MAX], segment_count, objects;
    struct segment segments[SEGMENTS_MAX];
    /* SIEVE: the oldest that the hand has not passed. */
    uint64_t hand;
    /* S3-FIFO. */
    struct queue small, main, ghosts;
    bool ghost[POLICY_OBJECTS_MAX];
};

struct policy *policy_make(enum policy_kind kind, uint32_t capacity)
{
    struct policy *policy = calloc(1, sizeof(*policy));
    RG_ASSERT(policy != NULL);
    policy->kind = kind;
    policy->capacity = capacity;
    return policy;
}

void policy_free(struct policy *policy)
{
    free(policy);
}

static uint32_t queue_size(const struct queue *queue)
{
    return queue->tail - queue->head;
}

static void queue_push(struct queue *queue, uint32_t item)
{
    queue->items[queue->tail++ % QUEUE_MAX] = item;
}

static uint32_t queue_pop(struct queue *queue)
{
    return queue->items[queue->head++ % QUEUE_MAX];
}

/* False: there is none to put an object into. */
static bool ours_open(struct policy *policy)
{
    for (;;) {
        struct segment *oldest = NULL;
        uint64_t used = 0;
        for (uint32_t i = 0; i < policy->segment_count; i++) {
            struct segment *segment = &policy->segments[i];
            used += segment->live ? SEGMENT_OBJECTS : 0;
            if (segment->live && (oldest == NULL || segment->last_use < oldest->last_use)) {
                oldest = segment;
            }
        }
        struct rg_cache_look look = {
            .size_max = policy->capacity,
            .segment_size = SEGMENT_OBJECTS,
            .used = used,
            .free = UINT64_MAX,
            .clock = policy->clock,
            .has_oldest = oldest != NULL,
            .oldest_use = oldest != NULL ? oldest->last_use : 0,
        };
        enum rg_cache_verdict verdict = rg_cache_decide(&look);
        if (verdict != RG_CACHE_REPLACE) {
            return verdict == RG_CACHE_ROOM;
        }
        oldest->live = false;
    }
}

static bool ours_access(struct policy *policy, uint32_t object)
{
    struct segment *segment = &policy->segments[policy->segment_of[object]];
    if (policy->place[object] == IN && segment->live) {
        segment->last_use = policy->clock;
        return true;
    }
    struct segment *last =
        policy->segment_count > 0 ? &policy->segments[policy->segment_count - 1] : NULL;
    if (last == NULL || !last->live || last->count == SEGMENT_OBJECTS) {
        if (!ours_open(policy)) {
            return false;
        }
        RG_ASSERT(policy->segment_count < SEGMENTS_MAX);
        last = &policy->segments[policy->segment_count++];
        *last = (struct segment){.live = true};
    }
    last->count++;
    last->last_use = policy->clock;
    policy->place[object] = IN;
    policy->segment_of[object] = policy->segment_count - 1;
    return false;
}

static void lru_evict(struct policy *policy)
{
    uint32_t oldest = POLICY_OBJECTS_MAX;
    for (uint32_t i = 0; i < POLICY_OBJECTS_MAX; i++) {
        if (policy->place[i] == IN &&
            (oldest == POLICY_OBJECTS_MAX || policy->used[i] < policy->used[oldest])) {
            oldest = i;
        }
    }
    policy->place[oldest] = OUT;
}

/* The next behind the hand in the order in which they came, or the first of all. */
static uint32_t sieve_next(const struct policy *policy)
{
    uint32_t next = POLICY_OBJECTS_MAX, first = POLICY_OBJECTS_MAX;
    for (uint32_t i = 0; i < POLICY_OBJECTS_MAX; i++) {
        if (policy->place[i] != IN) {
            continue;
        }
        if (first == POLICY_OBJECTS_MAX || policy->used[i] < policy->used[first]) {
            first = i;
        }
        if (policy->used[i] > policy->hand &&
            (next == POLICY_OBJECTS_MAX || policy->used[i] < policy->used[next])) {
            next = i;
        }
    }
    return next == POLICY_OBJECTS_MAX ? first : next;
}

static void sieve_evict(struct policy *policy)
{
    for (;;) {
        uint32_t object = sieve_next(policy);
        policy->hand = policy->used[object];
        if (policy->frequency[object] == 0) {
            policy->place[object] = OUT;
            return;
        }
        policy->frequency[object] = 0;
    }
}

static void ghost_add(struct policy *policy, uint32_t object)
{
    queue_push(&policy->ghosts, object);
    policy->ghost[object] = true;
    if (queue_size(&policy->ghosts) > policy->capacity) {
        policy->ghost[queue_pop(&policy->ghosts)] = false;
    }
}

static void s3_evict_main(struct policy *policy)
{
    for (;;) {
        uint32_t object = queue_pop(&policy->main);
        if (policy->frequency[object] == 0) {
            policy->place[object] = OUT;
            return;
        }
        policy->frequency[object]--;
        queue_push(&policy->main, object);
    }
}

static void s3_evict(struct policy *policy)
{
    while (queue_size(&policy->small) > policy->capacity / 10 || queue_size(&policy->main) == 0) {
        uint32_t object = queue_pop(&policy->small);
        if (policy->frequency[object] <= 1) {
            policy->place[object] = OUT;
            ghost_add(policy, object);
            return;
        }
        policy->frequency[object] = 0;
        policy->place[object] = MAIN;
        queue_push(&policy->main, object);
    }
    s3_evict_main(policy);
}

static void admit(struct policy *policy, uint32_t object)
{
    if (policy->kind == POLICY_S3_FIFO) {
        bool known = policy->ghost[object];
        policy->place[object] = known ? MAIN : SMALL;
        queue_push(known ? &policy->main : &policy->small, object);
    } else {
        policy->place[object] = IN;
    }
    policy->frequency[object] = 0;
    policy->used[object] = policy->clock;
}

bool policy_access(struct policy *policy, uint32_t object)
{
    static void (*const evict[POLICY_COUNT])(struct policy *) = {
        [POLICY_LRU] = lru_evict,
        [POLICY_SIEVE] = sieve_evict,
        [POLICY_S3_FIFO] = s3_evict,
    };
    policy->clock++;
    if (policy->kind == POLICY_OURS) {
        return ours_access(policy, object);
    }
    if (policy->place[object] != OUT) {
        policy->frequency[object] += policy->frequency[object] < FREQUENCY_MAX;
        policy->used[object] = policy->kind == POLICY_LRU ? policy->clock : policy->used[object];
        return true;
    }
    if (policy->count == policy->capacity) {
        evict[policy->kind](policy);
        policy->count--;
    }
    policy->count++;
    admit(policy, object);
    return false;
}
