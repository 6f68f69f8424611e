/* See object.h. */
#include "checkpoint/object.h"

#include "gcs/request/client.h"
#include "gcs/wire/checksum.h"
#include "gcs/wire/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* With the lock held, like all that is called between `lock` and `unlock`. */
static bool invariants(const struct rg_checkpoint_object *object)
{
    bool is_known = object->state != RG_CHECKPOINT_OBJECT_UNKNOWN;
    return (!is_known || (object->wanted == object->facts.generation &&
                          object->facts.size <= object->size_max)) &&
           (is_known || object->coverage.count == 0);
}

static void lock(struct rg_checkpoint_object *object)
{
    pthread_mutex_lock(&object->lock);
}

static void unlock(struct rg_checkpoint_object *object)
{
    RG_VERIFY(invariants(object));
    pthread_mutex_unlock(&object->lock);
}

/* The only place that changes the state. */
static void become(struct rg_checkpoint_object *object, enum rg_checkpoint_object_state state)
{
    RG_ASSERT(state == object->state + 1);
    object->state = state;
}

int rg_checkpoint_object_init(struct rg_checkpoint_object *object, struct rg_client *client,
                              const char *bucket, const char *name, int64_t generation)
{
    const char *problem;
    if (bucket == NULL || name == NULL || generation < 0 ||
        rg_bucket_name_check(bucket, strlen(bucket), &problem) < 0 ||
        rg_object_name_check(name, strlen(name), &problem) < 0) {
        return -EINVAL;
    }
    *object = (struct rg_checkpoint_object){.client = client,
                                            .checks = client->options.checksum != RG_SWITCH_OFF,
                                            .wanted = generation,
                                            .size_max = UINT64_MAX};
    strcpy(object->bucket, bucket);
    strcpy(object->object, name);
    pthread_mutex_init(&object->lock, NULL);
    pthread_cond_init(&object->idle, NULL);
    return 0;
}

void rg_checkpoint_object_fini(struct rg_checkpoint_object *object)
{
    RG_ASSERT(object->out == 0);
    rg_coverage_fini(&object->coverage);
    pthread_cond_destroy(&object->idle);
    pthread_mutex_destroy(&object->lock);
}

int64_t rg_checkpoint_object_wanted(struct rg_checkpoint_object *object)
{
    lock(object);
    int64_t wanted = object->wanted;
    unlock(object);
    return wanted;
}

bool rg_checkpoint_object_facts(struct rg_checkpoint_object *object,
                                struct rg_checkpoint_facts *out_facts)
{
    lock(object);
    bool is_known = object->state != RG_CHECKPOINT_OBJECT_UNKNOWN;
    if (is_known) {
        *out_facts = object->facts;
    }
    unlock(object);
    return is_known;
}

uint64_t rg_checkpoint_object_end(struct rg_checkpoint_object *object)
{
    lock(object);
    bool is_known = object->state != RG_CHECKPOINT_OBJECT_UNKNOWN;
    uint64_t end = is_known ? object->facts.size : object->size_max;
    unlock(object);
    return end;
}

static enum rg_checkpoint_answer fix(struct rg_checkpoint_object *object, int64_t generation,
                                     const struct rg_completion *answer)
{
    if (answer->object_size > object->size_max) {
        return RG_CHECKPOINT_REPLACED;
    }
    object->facts = (struct rg_checkpoint_facts){.generation = generation,
                                                 .size = answer->object_size,
                                                 .crc32c = answer->object_crc32c,
                                                 .has_crc32c = answer->has_object_crc32c};
    object->wanted = generation;
    become(object, RG_CHECKPOINT_OBJECT_FIXED);
    return RG_CHECKPOINT_SAME;
}

enum rg_checkpoint_answer rg_checkpoint_object_answered(struct rg_checkpoint_object *object,
                                                        int64_t asked,
                                                        const struct rg_completion *answer)
{
    /* Who was asked for a generation and does not say that it is another gives that one. */
    int64_t generation = answer->generation != 0 ? answer->generation : asked;
    if (generation == 0 || answer->object_size < answer->size) {
        return RG_CHECKPOINT_UNTOLD;
    }
    lock(object);
    enum rg_checkpoint_answer result = RG_CHECKPOINT_SAME;
    if (object->state == RG_CHECKPOINT_OBJECT_UNKNOWN) {
        result = fix(object, generation, answer);
    } else if (generation != object->facts.generation) {
        result = RG_CHECKPOINT_OTHER;
    } else if (answer->object_size != object->facts.size) {
        result = RG_CHECKPOINT_WRONG;
    }
    unlock(object);
    return result;
}

const char *rg_checkpoint_answer_text(enum rg_checkpoint_answer answer)
{
    static const char *const texts[] = {
        [RG_CHECKPOINT_SAME] = "",
        [RG_CHECKPOINT_OTHER] = "the object was replaced while it was read",
        [RG_CHECKPOINT_REPLACED] =
            "the object is longer than an earlier read has found: it was replaced",
        [RG_CHECKPOINT_UNTOLD] = "the answer tells neither generation nor size of the object",
        [RG_CHECKPOINT_WRONG] = "the answer tells another size of the object than the first did",
    };
    return texts[answer];
}

bool rg_checkpoint_object_ends(struct rg_checkpoint_object *object, uint64_t offset)
{
    lock(object);
    bool ends = true;
    if (object->state == RG_CHECKPOINT_OBJECT_UNKNOWN) {
        object->size_max = RG_MIN(object->size_max, offset);
    } else {
        ends = offset >= object->facts.size;
    }
    unlock(object);
    return ends;
}

/* These bytes came, and are known to have another CRC32C, or the same. */
static void compare(struct rg_checkpoint_object *object, const struct rg_coverage_span *came,
                    uint32_t expected)
{
    if (object->state == RG_CHECKPOINT_OBJECT_FIXED && came->crc != expected) {
        object->damaged = *came;
        object->damaged_expected = expected;
        become(object, RG_CHECKPOINT_OBJECT_DAMAGED);
    }
}

static void cover(struct rg_checkpoint_object *object, const struct rg_coverage_span *came,
                  const void *data)
{
    struct rg_coverage *coverage = &object->coverage;
    uint64_t size = came->end - came->begin, before = coverage->covered;
    struct rg_coverage_span all = {.end = object->facts.size};
    uint32_t known;
    if (rg_coverage_has(coverage, came->begin, size, &known)) {
        compare(object, came, known);
        return;
    }
    rg_coverage_add(coverage, came->begin, data, size, came->crc);
    if (coverage->covered != before && rg_coverage_is_whole(coverage, all.end, &all.crc)) {
        compare(object, &all, object->facts.crc32c);
    }
}

void rg_checkpoint_object_cover(struct rg_checkpoint_object *object, uint64_t offset,
                                const void *data, uint64_t size, uint32_t crc)
{
    const struct rg_coverage_span came = {.begin = offset, .end = offset + size, .crc = crc};
    lock(object);
    RG_ASSERT(object->state != RG_CHECKPOINT_OBJECT_UNKNOWN);
    if (object->checks && object->facts.has_crc32c) {
        cover(object, &came, data);
    }
    unlock(object);
}

void rg_checkpoint_object_compare(struct rg_checkpoint_object *object, uint32_t crc)
{
    lock(object);
    RG_ASSERT(object->state != RG_CHECKPOINT_OBJECT_UNKNOWN);
    const struct rg_coverage_span all = {.end = object->facts.size, .crc = crc};
    if (object->checks && object->facts.has_crc32c) {
        compare(object, &all, object->facts.crc32c);
    }
    unlock(object);
}

bool rg_checkpoint_object_is_damaged(struct rg_checkpoint_object *object, char *text, size_t size)
{
    lock(object);
    bool is_damaged = object->state == RG_CHECKPOINT_OBJECT_DAMAGED;
    const struct rg_coverage_span *damaged = &object->damaged;
    if (is_damaged) {
        bool is_all = damaged->begin == 0 && damaged->end == object->facts.size &&
                      object->damaged_expected == object->facts.crc32c;
        snprintf(text, size,
                 "bytes %" PRIu64 " to %" PRIu64 " of generation %" PRId64
                 " have the CRC32C %s instead of %s%s",
                 damaged->begin, damaged->end - 1, object->facts.generation,
                 rg_crc32c_text(damaged->crc).text, rg_crc32c_text(object->damaged_expected).text,
                 is_all ? "" : ", which they had when they were read before");
    }
    unlock(object);
    return is_damaged;
}

void rg_checkpoint_object_read_begun(struct rg_checkpoint_object *object)
{
    lock(object);
    object->out++;
    unlock(object);
}

void rg_checkpoint_object_read_ended(struct rg_checkpoint_object *object)
{
    lock(object);
    RG_ASSERT(object->out > 0);
    if (--object->out == 0) {
        pthread_cond_broadcast(&object->idle);
    }
    unlock(object);
}

bool rg_checkpoint_object_is_read(struct rg_checkpoint_object *object)
{
    lock(object);
    bool is_read = object->out > 0;
    unlock(object);
    return is_read;
}

void rg_checkpoint_object_await(struct rg_checkpoint_object *object)
{
    lock(object);
    while (object->out > 0) {
        pthread_cond_wait(&object->idle, &object->lock);
    }
    unlock(object);
}
