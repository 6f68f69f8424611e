/* What the tests of the completion queue share: queues of no runtime, and records that are known by
 * their numbers. */
#ifndef RG_TESTS_RUNTIME_CQ_CASE_H
#define RG_TESTS_RUNTIME_CQ_CASE_H

#include "runtime/clock.h"
#include "runtime/cq.h"
#include "tests/support/test.h"

#include <sys/eventfd.h>

/* Far beyond what a loaded machine takes; only a lost wake-up lasts as long. */
#define LOST_NS RG_TEST_PATIENCE_NS

/* Queues ask nothing of their runtime but which process it belongs to. */
struct rg_runtime {
    int check_result;
};

static struct rg_runtime runtime;
static _Atomic uint64_t waits; /* for which a thread slept */

int rg_runtime_check(const struct rg_runtime *asked)
{
    return asked->check_result;
}

void rg_runtime_waited(struct rg_runtime *told, uint64_t ns)
{
    RG_CHECK(told == &runtime && ns <= INT64_MAX);
    waits++;
}

static inline struct rg_cq *open_queue(uint32_t capacity)
{
    struct rg_cq *cq;
    RG_CHECK_EQ(rg_cq_open(&cq, &runtime, capacity), 0);
    return cq;
}

/* Every field differs from the others and follows from the number. */
static inline struct rg_completion make_record(uint64_t number)
{
    return (struct rg_completion){
        .user_data = number,
        .status = (enum rg_status)(number % RG_STATUS_COUNT),
        .http_status = (uint16_t)(number + 1),
        .crc32c = (uint32_t)(number * 3),
        .data = (const void *)(uintptr_t)(number * 5),
        .size = number * 7,
        .finished_ns = number * 11,
        .sample_index = number * 13,
        .sample_number = number * 17,
    };
}

/* Field by field, because the padding between them is not copied everywhere. */
static inline bool is_record(const struct rg_completion *record, uint64_t number)
{
    struct rg_completion want = make_record(number);
    return record->user_data == want.user_data && record->status == want.status &&
           record->http_status == want.http_status && record->crc32c == want.crc32c &&
           record->data == want.data && record->size == want.size &&
           record->finished_ns == want.finished_ns && record->sample_index == want.sample_index &&
           record->sample_number == want.sample_number;
}

static inline void publish(struct rg_cq *cq, uint64_t first, uint32_t count)
{
    struct rg_completion records[64];
    RG_ASSERT(count <= RG_ARRAY_LEN(records));
    for (uint32_t i = 0; i < count; i++) {
        records[i] = make_record(first + i);
    }
    rg_cq_publish(cq, records, count);
}

static inline uint64_t reset_fd(int fd)
{
    eventfd_t value = 0;
    RG_CHECK_EQ(eventfd_read(fd, &value), 0);
    return value;
}

#endif
