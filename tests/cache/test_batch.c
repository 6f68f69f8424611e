/* Batches: records lie where they say, and what waits is bounded. */
#include "cache/batch.h"

#include "runtime/thread.h"
#include "tests/cache/cache_case.h"

#include <stdatomic.h>

static bool put(struct rg_cache_batches *batches, uint64_t number, const uint8_t *body, size_t size)
{
    struct case_key k;
    struct rg_cache_key_sizes sizes;
    struct rg_cache_record record = {.object_size = size};
    case_key_make(&k, number);
    RG_CHECK(rg_cache_key_measure(&k.key, &sizes));
    return rg_cache_batches_put(batches, &k.key, &sizes, number + 1, &record, body, size);
}

/* Checks each record of a batch, and returns their count. */
static uint32_t batch_check(const struct rg_cache_batch *batch)
{
    RG_CHECK_EQ(batch->size % RG_CACHE_ALIGNMENT, 0);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct rg_cache_key key;
        struct rg_cache_record record;
        uint64_t hash;
        const struct rg_cache_content *content = &batch->contents[i];
        const uint8_t *at = batch->data + (size_t)content->place * RG_CACHE_UNIT;
        RG_CHECK_EQ(rg_cache_header_read(at, content->size, &key, &record, &hash), 0);
        RG_CHECK_EQ(hash, content->hash);
        RG_CHECK_EQ(rg_cache_body_check(&record, 0, at + record.header_size, record.body_size), 0);
    }
    return batch->count;
}

static void test_what_waits_is_bounded(void)
{
    static uint8_t body[RG_CACHE_BLOCK_SIZE];
    struct rg_cache_batches batches;
    uint32_t taken = 0, checked = 0;
    rg_cache_batches_init(&batches, RG_MIB(32));
    while (put(&batches, taken, body, 100000 + taken)) {
        taken++;
        RG_CHECK(taken < 1000);
    }
    RG_CHECK_EQ(batches.batch_size, RG_MIB(4));
    RG_CHECK(taken >= RG_CACHE_BATCH_COUNT * 36);
    RG_CHECK(taken < RG_CACHE_BATCH_COUNT * 42);
    pthread_mutex_lock(&batches.lock);
    struct rg_cache_batch *batch;
    rg_cache_batches_close_locked(&batches, UINT64_MAX);
    while ((batch = rg_cache_batches_take_locked(&batches)) != NULL) {
        checked += batch_check(batch);
        RG_CHECK(!rg_cache_batches_are_empty_locked(&batches));
        rg_cache_batches_give_locked(&batches, batch);
    }
    RG_CHECK(rg_cache_batches_are_empty_locked(&batches));
    pthread_mutex_unlock(&batches.lock);
    RG_CHECK_EQ(checked, taken);
    RG_CHECK(put(&batches, 1, body, sizeof(body)));
    pthread_mutex_lock(&batches.lock);
    rg_cache_batches_close_locked(&batches, 0);
    RG_CHECK(rg_cache_batches_take_locked(&batches) == NULL);
    pthread_mutex_unlock(&batches.lock);
    rg_cache_batches_fini(&batches);
}

/* The next batch has its memory before it is wanted. */
static void test_the_next_one_is_prepared(void)
{
    static uint8_t body[1000];
    struct rg_cache_batches batches;
    rg_cache_batches_init(&batches, RG_MIB(2));
    pthread_mutex_lock(&batches.lock);
    RG_CHECK(!rg_cache_batches_prepare_locked(&batches));
    pthread_mutex_unlock(&batches.lock);
    RG_CHECK(put(&batches, 1, body, sizeof(body)));
    pthread_mutex_lock(&batches.lock);
    RG_CHECK(rg_cache_batches_prepare_locked(&batches));
    RG_CHECK(!rg_cache_batches_prepare_locked(&batches));
    const struct rg_cache_batch *next =
        RG_CONTAINER_OF(batches.free.next, struct rg_cache_batch, node);
    RG_CHECK(next->data != NULL);
    pthread_mutex_unlock(&batches.lock);
    rg_cache_batches_fini(&batches);
}

static void *preparer(void *context)
{
    struct rg_cache_batches *batches = context;
    pthread_mutex_lock(&batches->lock);
    while (rg_cache_batches_prepare_locked(batches)) {
    }
    pthread_mutex_unlock(&batches->lock);
    return NULL;
}

/* What is being prepared is taken all the same, if there is no other. */
static void test_nothing_is_dropped_while_the_next_one_is_prepared(void)
{
    static uint8_t body[RG_CACHE_BLOCK_SIZE];
    struct rg_cache_batches batches;
    for (unsigned round = 0; round < 50; round++) {
        pthread_t thread;
        rg_cache_batches_init(&batches, RG_MIB(16));
        RG_CHECK_EQ(batches.batch_size, RG_MIB(2));
        for (uint32_t i = 1; i < RG_CACHE_BATCH_COUNT; i++) {
            RG_CHECK(put(&batches, i, body, sizeof(body)));
        }
        RG_CHECK_EQ(rg_thread_start(&thread, 0, preparer, &batches), 0);
        for (bool begun = false; !begun;) {
            pthread_mutex_lock(&batches.lock);
            begun = rg_list_empty(&batches.free) ||
                    RG_CONTAINER_OF(batches.free.next, struct rg_cache_batch, node)->data != NULL;
            pthread_mutex_unlock(&batches.lock);
        }
        RG_CHECK(put(&batches, RG_CACHE_BATCH_COUNT, body, sizeof(body)));
        pthread_join(thread, NULL);
        rg_cache_batches_fini(&batches);
    }
}

static struct rg_cache_batches shared;
static _Atomic uint32_t shared_taken, shared_ended;

static void *putter(void *context)
{
    uint8_t *body = malloc(50000);
    uint64_t first = (uint64_t)(uintptr_t)context;
    memset(body, (int)first, 50000);
    for (uint32_t i = 0; i < 300; i++) {
        shared_taken += put(&shared, first * 1000 + i, body, 100 * (i % 500));
    }
    free(body);
    shared_ended++;
    return NULL;
}

static void test_many_threads_put(void)
{
    pthread_t threads[4];
    uint32_t checked = 0;
    rg_cache_batches_init(&shared, RG_MIB(16));
    shared_taken = 0;
    shared_ended = 0;
    for (uintptr_t i = 0; i < RG_ARRAY_LEN(threads); i++) {
        RG_CHECK_EQ(rg_thread_start(&threads[i], 0, putter, (void *)(i + 1)), 0);
    }
    for (bool ended = false; !ended;) {
        ended = shared_ended == RG_ARRAY_LEN(threads);
        pthread_mutex_lock(&shared.lock);
        rg_cache_batches_close_locked(&shared, UINT64_MAX);
        struct rg_cache_batch *batch;
        while ((batch = rg_cache_batches_take_locked(&shared)) != NULL) {
            checked += batch_check(batch);
            rg_cache_batches_give_locked(&shared, batch);
        }
        pthread_mutex_unlock(&shared.lock);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    RG_CHECK_EQ(checked, shared_taken);
    rg_cache_batches_fini(&shared);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_waits_is_bounded),
        RG_TEST(test_the_next_one_is_prepared),
        RG_TEST(test_nothing_is_dropped_while_the_next_one_is_prepared),
        RG_TEST(test_many_threads_put),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
