/* Uniting states: what is missing, doubled or of something else is said. That what is united is
 * right is test_resume's. */
#include "dataset/base.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 100
#define SAVED_MAX 8

static const struct rg_state usual = {
    .of = {.count = COUNT, .fingerprint = 5, .seed = 3, .epoch = 2},
    .world_size = 2,
    .worker_count = 1,
    .batch_size = 4,
    .taken = 8,
};

/* Two ranks with a worker each, and a case's changes to that. */
static struct rg_state states[SAVED_MAX];
static uint8_t data[SAVED_MAX][RG_STATE_SIZE_MIN];
static struct rg_saved saved[SAVED_MAX];

static void states_reset(void)
{
    memset(saved, 0, sizeof(saved));
    for (size_t i = 0; i < SAVED_MAX; i++) {
        states[i] = usual;
        states[i].rank = (uint32_t)i % 2;
    }
}

static void states_save(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        saved[i].state = data[i];
        saved[i].state_size = rg_state_encode(&states[i], data[i], sizeof(data[i]));
    }
}

static void check_refused(size_t count, bool all_ranks, const char *text)
{
    struct rg_base *base;
    char error[512] = "";
    RG_CHECK_EQ(rg_base_open(&base, saved, count, all_ranks, error, sizeof(error)), -EINVAL);
    if (strstr(error, text) == NULL) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    RG_CHECK_EQ(rg_base_open(&base, saved, count, all_ranks, NULL, 0), -EINVAL);
}

static struct rg_base *check_opens(size_t count, bool all_ranks)
{
    struct rg_base *base = NULL;
    char error[512] = "";
    if (rg_base_open(&base, saved, count, all_ranks, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    return base;
}

static void test_each_worker_of_each_rank_is_there_once(void)
{
    states_reset();
    states_save(1);
    check_refused(1, true, "the states of 1 of the 2 ranks are missing, for instance of rank 1");
    states_save(3);
    check_refused(3, true, "two states of rank 0 of 2, worker 0");
    states[0].worker_count = states[2].worker_count = 3;
    states[2].worker = 1;
    states_save(3);
    check_refused(3, true, "the state of rank 0 of 2, worker 2 of 3 is missing");
    states[2].worker = 2;
    states_save(3);
    check_refused(3, true, "the state of rank 0 of 2, worker 1 of 3 is missing");
    states[2].worker_count = 4;
    states[2].worker = 1;
    states_save(3);
    check_refused(3, true, "of rank 0 have different numbers of workers");
    states_reset();
    states[0].rank = 1;
    states[0].worker_count = 2;
    states[1].worker_count = 2;
    states[1].worker = 1;
    states_save(2);
    check_refused(2, true, "for instance of rank 0");
}

static void test_states_are_of_one_epoch(void)
{
    static const char *const texts[] = {
        "99 objects",        "with other objects", "with other objects", "seed 4 in epoch 2",
        "seed 3 in epoch 9", "shuffled",           "world sizes",        "`remainder`"};
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        states_reset();
        states[0].of.digest[0] = i == 2;
        states[1].of.digest[0] = i == 2 ? 2 : 0;
        states[1].of.count -= i == 0;
        states[1].of.fingerprint += i == 1;
        states[1].of.seed += i == 3;
        states[1].of.epoch += i == 4 ? 7 : 0;
        states[1].of.shuffle = i == 5;
        states[1].world_size += i == 6;
        states[1].remainder = i == 7;
        states_save(2);
        struct rg_base *base;
        char error[512] = "";
        RG_CHECK_EQ(rg_base_open(&base, saved, 2, true, error, sizeof(error)), -EINVAL);
        if (i != 0 && i != 3 && i != 4 && strstr(error, texts[i]) == NULL) {
            rg_test_fail(__FILE__, __LINE__, "%s", error);
        }
    }
    states_reset();
    states[0].of.digest[5] = 1; /* one alone says nothing */
    states_save(2);
    rg_base_close(check_opens(2, true));
}

static void test_what_has_not_begun_stands_for_a_rank(void)
{
    states_reset();
    states_save(1);
    struct rg_base *base = check_opens(2, true);
    struct rg_base_content content;
    uint32_t crc;
    RG_CHECK_EQ(rg_base_decode(base->data, base->size, &content, &crc), 0);
    RG_CHECK_EQ(content.positions.low, 1);
    RG_CHECK_EQ(content.positions.bit_count, 16);
    RG_CHECK_EQ(content.positions.bits[0], 0xaa);
    rg_base_close(base);
    check_refused(3, true, "2 states are of ranks that had not started, but only 1 of 2");
    memset(saved, 0, sizeof(saved));
    check_refused(2, true, "no state in the list");
    check_refused(0, true, "there are 0 states");
}

static void test_one_ranks_states_are_not_all(void)
{
    states_reset();
    states_save(2);
    check_refused(2, false, "of the states of all ranks");
    struct rg_base *base = check_opens(1, false);
    struct rg_base_content content;
    uint32_t crc;
    RG_CHECK_EQ(rg_base_decode(base->data, base->size, &content, &crc), 0);
    RG_CHECK(content.has_own);
    RG_CHECK_EQ(content.own.low, 8);
    RG_CHECK_EQ(content.positions.low, 0);
    rg_base_close(base);
    states[0].world_size = 1;
    states_save(1);
    base = check_opens(1, false);
    RG_CHECK_EQ(rg_base_decode(base->data, base->size, &content, &crc), 0);
    RG_CHECK(!content.has_own);
    RG_CHECK_EQ(content.positions.low, 8);
    rg_base_close(base);
}

static void test_states_and_bases_belong_together(void)
{
    states_reset();
    states_save(2);
    struct rg_base *first = check_opens(2, true);
    states[0].taken = states[1].taken = 12;
    states_save(2);
    struct rg_base *second = check_opens(2, true);
    for (size_t i = 0; i < 2; i++) {
        states[i].has_base = true;
        states[i].base_crc = first->crc;
        states[i].taken = 3;
    }
    states_save(2);
    check_refused(2, true, "needs the base");
    saved[0].base = rg_base_data(first, &saved[0].base_size);
    saved[1].base = rg_base_data(second, &saved[1].base_size);
    check_refused(2, true, "do not belong together");
    states[1].base_crc = second->crc;
    states_save(2);
    check_refused(2, true, "not of one run");
    states[1].base_crc = first->crc;
    states_save(2);
    saved[1] = (struct rg_saved){0};
    check_refused(2, true, "at the start of the epoch, and the others had resumed");
    saved[1].base = saved[0].base;
    saved[1].base_size = saved[0].base_size;
    struct rg_base *third = check_opens(2, true);
    struct rg_base_content content;
    uint32_t crc;
    RG_CHECK_EQ(rg_base_decode(third->data, third->size, &content, &crc), 0);
    RG_CHECK_EQ(content.positions.low, 17);
    RG_CHECK_EQ(content.positions.bit_count, 8);
    RG_CHECK_EQ(content.positions.bits[0], 0x0a);
    rg_base_close(third);
    /* Nobody has begun since. */
    saved[0].state = NULL;
    third = check_opens(2, true);
    RG_CHECK_EQ(third->crc, first->crc);
    rg_base_close(third);
    rg_base_close(second);
    rg_base_close(first);
}

static void test_damage_is_said(void)
{
    states_reset();
    states_save(2);
    struct rg_base *base = check_opens(2, true);
    data[1][20] ^= 1;
    check_refused(2, true, "the state is damaged");
    states_save(2);
    saved[0] = saved[1] = (struct rg_saved){0};
    base->data[30] ^= 1;
    saved[0].base = saved[1].base = rg_base_data(base, &saved[0].base_size);
    saved[1].base_size = saved[0].base_size;
    check_refused(2, true, "the base of a state is damaged");
    rg_base_close(base);
    rg_base_close(NULL);
}

static void test_numbers_that_cannot_be_are_refused(void)
{
    states_reset();
    states[0].taken = 51;
    states_save(2);
    check_refused(2, true, "beyond the end");
    states_reset();
    states[0].worker_count = UINT32_MAX;
    states[0].batch_size = UINT32_MAX;
    states[0].taken = COUNT;
    states_save(2);
    check_refused(2, true, "the state of rank 0 of 2, worker 1");
    states[0].world_size = UINT32_MAX;
    states_save(1);
    check_refused(1, true, "world size of 4294967295, above the limit of");
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_worker_of_each_rank_is_there_once),
        RG_TEST(test_states_are_of_one_epoch),
        RG_TEST(test_what_has_not_begun_stands_for_a_rank),
        RG_TEST(test_one_ranks_states_are_not_all),
        RG_TEST(test_states_and_bases_belong_together),
        RG_TEST(test_damage_is_said),
        RG_TEST(test_numbers_that_cannot_be_are_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
