/* The completion queue in a crowd: publishers reserve and publish numbered records, takers take
 * them in various ways. Each record comes once, and nobody sleeps for ever. */
#include "tests/runtime/cq_case.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define LOST_MS 20000
#define PUBLISHERS 2
#define TAKERS_MAX 4
#define RECORDS_EACH 40000
#define STOP_NUMBER (PUBLISHERS * RECORDS_EACH)

struct crowd {
    struct rg_cq *cq;
    uint32_t capacity;
    int fd;                /* -1: takers wait instead */
    bool is_even;          /* all wait for one record at least */
    _Atomic uint64_t left; /* records that nobody has taken yet */
    _Atomic uint32_t failures;
    _Atomic uint8_t seen[STOP_NUMBER];
};

struct member {
    pthread_t thread;
    struct crowd *crowd;
    uint64_t index, random;
};

static uint32_t dice(struct member *member, uint32_t bound)
{
    member->random = member->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(member->random >> 40) % bound;
}

static void *publish_numbers(void *context)
{
    struct member *member = context;
    struct rg_cq *cq = member->crowd->cq;
    uint64_t next = member->index * RECORDS_EACH, end = next + RECORDS_EACH;
    while (next < end) {
        uint32_t want = 1 + dice(member, 16);
        int reserved = rg_cq_reserve(cq, (uint32_t)RG_MIN(want, end - next));
        if (reserved == 0) {
            sched_yield();
            continue;
        }
        uint32_t spare = dice(member, (uint32_t)reserved);
        rg_cq_unreserve(cq, spare);
        publish(cq, next, (uint32_t)reserved - spare);
        next += (uint32_t)reserved - spare;
        if (dice(member, 64) == 0) {
            for (uint32_t i = dice(member, 60); i > 0; i--) {
                sched_yield(); /* lets takers fall asleep */
            }
        }
    }
    return NULL;
}

/* When all is taken, as many records as fit end the waits of the other takers, whatever their
 * minimum. */
static void stop_takers(struct crowd *crowd)
{
    uint32_t count = (uint32_t)rg_cq_reserve(crowd->cq, crowd->capacity);
    for (uint32_t i = 0; i < count; i++) {
        publish(crowd->cq, STOP_NUMBER, 1);
    }
}

/* Each record once, whole, and those of a publisher in order. */
static void note_taken(struct crowd *crowd, const struct rg_completion *records, int count,
                       uint64_t *next_number)
{
    uint64_t taken = 0;
    for (int i = 0; i < count; i++) {
        uint64_t number = records[i].user_data;
        if (number == STOP_NUMBER) {
            continue;
        }
        taken++;
        bool good = number < STOP_NUMBER && is_record(&records[i], number) &&
                    number >= next_number[number / RECORDS_EACH] &&
                    atomic_fetch_add(&crowd->seen[number], 1) == 0;
        if (!good) {
            atomic_fetch_add(&crowd->failures, 1);
            continue;
        }
        next_number[number / RECORDS_EACH] = number + 1;
    }
    if (taken > 0 && atomic_fetch_sub(&crowd->left, taken) == taken) {
        stop_takers(crowd);
    }
}

static int take_by_fd(struct member *member, struct rg_completion *out, uint32_t max)
{
    struct crowd *crowd = member->crowd;
    rg_cq_expect(crowd->cq, 1);
    int count = rg_cq_poll(crowd->cq, out, max);
    if (count == 0) {
        struct pollfd entry = {.fd = crowd->fd, .events = POLLIN};
        if (poll(&entry, 1, LOST_MS) == 1) {
            reset_fd(crowd->fd);
        } else {
            count = -ETIME;
        }
    }
    return count;
}

/* The first taker may ask for many at a time, the others for one. */
static int take_by_wait(struct member *member, struct rg_completion *out, uint32_t max)
{
    struct crowd *crowd = member->crowd;
    bool is_modest = member->index > 0 || crowd->is_even;
    uint32_t min = is_modest ? 1 : 1 + dice(member, RG_MIN(max, crowd->capacity));
    return rg_cq_wait(crowd->cq, out, max, min, rg_now_ns() + LOST_NS);
}

static void *take_numbers(void *context)
{
    struct member *member = context;
    struct crowd *crowd = member->crowd;
    uint64_t next_number[PUBLISHERS] = {0};
    struct rg_completion out[24];
    while (atomic_load(&crowd->left) > 0) {
        uint32_t max = 1 + dice(member, 24);
        int count = crowd->fd >= 0 ? take_by_fd(member, out, max) : take_by_wait(member, out, max);
        if (count < 0) {
            atomic_fetch_add(&crowd->failures, 1);
            return NULL;
        }
        note_taken(crowd, out, count, next_number);
    }
    stop_takers(crowd); /* it may have taken what was for others */
    return NULL;
}

static void run_crowd(uint32_t capacity, unsigned taker_count, bool by_fd, bool is_even)
{
    static struct crowd crowd;
    memset(&crowd, 0, sizeof(crowd));
    crowd.is_even = is_even;
    crowd.cq = open_queue(capacity);
    crowd.capacity = capacity;
    crowd.fd = by_fd ? rg_cq_fd(crowd.cq) : -1;
    crowd.left = STOP_NUMBER;
    struct member members[PUBLISHERS + TAKERS_MAX];
    for (unsigned i = 0; i < PUBLISHERS + taker_count; i++) {
        bool publishes = i < PUBLISHERS;
        members[i] = (struct member){
            .crowd = &crowd, .index = publishes ? i : i - PUBLISHERS, .random = rg_test_random()};
        RG_CHECK_EQ(pthread_create(&members[i].thread, NULL,
                                   publishes ? publish_numbers : take_numbers, &members[i]),
                    0);
    }
    for (unsigned i = 0; i < PUBLISHERS + taker_count; i++) {
        pthread_join(members[i].thread, NULL);
    }
    RG_CHECK_EQ(crowd.failures, 0);
    RG_CHECK_EQ(crowd.left, 0);
    struct rg_completion out[64];
    while (rg_cq_poll(crowd.cq, out, RG_ARRAY_LEN(out)) > 0) {
    }
    rg_cq_close(crowd.cq);
}

static void test_each_record_is_taken_once_by_one_of_many(void)
{
    run_crowd(64, 2, false, false);
    run_crowd(2, 2, false, false);
}

static void test_one_of_those_that_wait_for_the_same_is_woken(void)
{
    run_crowd(64, 4, false, true);
    run_crowd(4, 4, false, true);
}

static void test_no_wake_up_of_the_fd_is_lost(void)
{
    run_crowd(256, 1, true, false);
    run_crowd(4, 1, true, false);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_record_is_taken_once_by_one_of_many),
        RG_TEST(test_one_of_those_that_wait_for_the_same_is_woken),
        RG_TEST(test_no_wake_up_of_the_fd_is_lost),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
