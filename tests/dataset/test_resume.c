/* Going on: an epoch's whole life, over ranks that stop anywhere, workers that change and ranks
 * that never begin, gives each position once. */
#include "dataset/resume.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX 400
#define WORLD_MAX 6
#define WORKERS_MAX 3
#define SAVED_MAX (WORLD_MAX * WORKERS_MAX)
/* Lives; RINGEST_EXAMPLES says another number. */
#define LIVES 400

static const struct rg_state_epoch epoch = {.fingerprint = 5, .seed = 3, .epoch = 2};

/* Bytes that were saved. */
struct saved {
    uint8_t state[RG_STATE_SIZE_MAX];
    size_t state_size;
    struct rg_base *base; /* owned */
};

/* One epoch. */
struct life {
    struct rg_state_epoch of;
    struct rg_base *base;     /* of the present assignment; owned */
    bool consumed[COUNT_MAX]; /* by position */
    bool before[COUNT_MAX];   /* the same, when the assignment began */
    bool own[COUNT_MAX];      /* consumed in this assignment, but for padding */
};

/* How a rank reads in this assignment. */
struct rank {
    struct rg_sampler_options assignment;
    struct saved saved[WORKERS_MAX];
    struct rg_base *base; /* what it goes on from; owned */
    bool has_begun;
};

static struct rg_base *base_copy(const struct rg_base *base)
{
    struct rg_base *copy = NULL;
    if (base != NULL) {
        size_t size = sizeof(*base) + base->size;
        copy = malloc(size);
        RG_CHECK(copy != NULL);
        memcpy(copy, base, size);
    }
    return copy;
}

static struct rg_saved saved_view(const struct saved *saved)
{
    struct rg_saved view = {0};
    if (saved->state_size > 0) {
        view.state = saved->state;
        view.state_size = saved->state_size;
    }
    if (saved->base != NULL) {
        view.base = rg_base_data(saved->base, &view.base_size);
    }
    return view;
}

static void resume_init(struct rg_resume *resume, const struct rg_saved *saved,
                        const struct rg_state_epoch *of,
                        const struct rg_sampler_options *assignment)
{
    char error[256] = "";
    if (rg_resume_init(resume, saved, of, assignment, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
}

static void sampler_init(struct rg_sampler *sampler, const struct rg_resume *resume,
                         const struct rg_sampler_options *assignment)
{
    struct rg_sampler_options own = *assignment;
    own.left = resume->base != NULL ? &resume->left : NULL;
    own.own_left = resume->has_own_left ? &resume->own_left : NULL;
    RG_CHECK_EQ(rg_sampler_init(sampler, &own), 0);
}

/* A worker has consumed a sample. */
static void sample_consume(struct life *life, const struct rg_sampler *sampler, uint64_t sample)
{
    const struct rg_sampler_options *assignment = &sampler->options;
    uint64_t place = rg_sampler_place(assignment, sample),
             position = rg_sampler_at(sampler, sample);
    if (assignment->own_left != NULL) {
        place = rg_remaining_at(assignment->own_left, place);
    }
    if (place * assignment->world_size + assignment->rank < sampler->left_total) {
        RG_CHECK(!life->before[position]);
        RG_CHECK(!life->own[position]);
        life->own[position] = true;
    } else {
        RG_CHECK_EQ(assignment->remainder, RG_REMAINDER_PAD);
    }
    life->consumed[position] = true;
}

/* A worker reads: some samples from the beginning, and a few behind those. */
static void worker_read(struct life *life, struct rank *rank, uint32_t worker, bool to_the_end)
{
    struct saved *saved = &rank->saved[worker], from = {.base = rank->base};
    struct rg_saved view = saved_view(&from);
    struct rg_resume resume;
    struct rg_sampler sampler;
    rank->assignment.worker = worker;
    resume_init(&resume, &view, &life->of, &rank->assignment);
    RG_CHECK_EQ(resume.state.taken, 0);
    sampler_init(&sampler, &resume, &rank->assignment);
    uint64_t taken = to_the_end ? sampler.total : rg_test_random_below(sampler.total + 1);
    uint8_t bits[3] = {0};
    for (uint64_t i = 0; i < taken; i++) {
        sample_consume(life, &sampler, i);
    }
    for (uint64_t i = taken + 1; i < RG_MIN(sampler.total, taken + 24); i++) {
        if (rg_test_random_below(4) == 0) {
            bits[(i - taken) / 8] |= (uint8_t)(1 << ((i - taken) % 8));
            sample_consume(life, &sampler, i);
        }
    }
    struct rg_state state = {
        .of = life->of,
        .has_base = resume.base != NULL,
        .base_crc = resume.base != NULL ? resume.base->crc : 0,
        .rank = rank->assignment.rank,
        .world_size = rank->assignment.world_size,
        .worker = worker,
        .worker_count = rank->assignment.worker_count,
        .batch_size = rank->assignment.block_size,
        .remainder = rank->assignment.remainder,
        .taken = taken,
        .bit_count = bits[2] != 0   ? 24
                     : bits[1] != 0 ? 16
                     : bits[0] != 0 ? 8
                                    : 0,
        .bits = bits,
    };
    saved->state_size = rg_state_encode(&state, saved->state, sizeof(saved->state));
    saved->base = base_copy(resume.base);
    rg_resume_fini(&resume);
}

/* The same reader goes on within its assignment. */
static void check_same_reader(struct life *life, const struct rank *rank, uint32_t worker)
{
    struct rg_saved view = saved_view(&rank->saved[worker]);
    struct rg_sampler_options assignment = rank->assignment;
    struct rg_resume resume;
    struct rg_state state;
    assignment.worker = worker;
    resume_init(&resume, &view, &life->of, &assignment);
    RG_CHECK_EQ(rg_state_decode(view.state, view.state_size, &state), 0);
    RG_CHECK_EQ(resume.state.taken, state.taken);
    RG_CHECK_EQ(resume.state.bit_count, state.bit_count);
    RG_CHECK_EQ(resume.base != NULL, view.base != NULL);
    RG_CHECK(resume.base == NULL || (resume.base->size == view.base_size &&
                                     memcmp(resume.base->data, view.base, view.base_size) == 0));
    rg_resume_fini(&resume);
}

static void saved_drop(struct rank *rank)
{
    for (uint32_t i = 0; i < WORKERS_MAX; i++) {
        rg_base_close(rank->saved[i].base);
        rank->saved[i] = (struct saved){0};
    }
}

static struct rg_base *base_open(const struct rg_saved *views, size_t count, bool all_ranks)
{
    struct rg_base *base;
    char error[256] = "";
    if (rg_base_open(&base, views, count, all_ranks, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    return base;
}

/* Reads with some workers, perhaps again with others. */
static void rank_read(struct life *life, struct rank *rank, bool to_the_end)
{
    for (bool goes_on = true; goes_on;) {
        rank->has_begun = true;
        rank->assignment.worker_count = 1 + (uint32_t)rg_test_random_below(WORKERS_MAX);
        rank->assignment.block_size = 1 + (uint32_t)rg_test_random_below(5);
        struct rg_saved views[WORKERS_MAX];
        goes_on = rg_test_random_below(3) == 0;
        for (uint32_t i = 0; i < rank->assignment.worker_count; i++) {
            worker_read(life, rank, i, to_the_end && !goes_on);
            check_same_reader(life, rank, i);
            views[i] = saved_view(&rank->saved[i]);
        }
        if (goes_on) {
            struct rg_base *base = base_open(views, rank->assignment.worker_count, false);
            rg_base_close(rank->base);
            rank->base = base;
            saved_drop(rank);
        }
    }
}

/* The states of a rank; or, if it never began, what says so. */
static size_t rank_views(const struct rank *rank, struct rg_saved *views)
{
    if (!rank->has_begun) {
        struct saved saved = {.base = rank->base};
        views[0] = saved_view(&saved);
        return 1;
    }
    for (uint32_t i = 0; i < rank->assignment.worker_count; i++) {
        views[i] = saved_view(&rank->saved[i]);
    }
    return rank->assignment.worker_count;
}

static void views_shuffle(struct rg_saved *views, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = rg_test_random_below(i);
        struct rg_saved view = views[i - 1];
        views[i - 1] = views[other];
        views[other] = view;
    }
}

/* Where all ranks have ended, what was to be dropped does not come any more. */
static void drop_note(struct life *life, uint32_t world)
{
    uint64_t assigned = 0, own = 0;
    for (uint64_t i = 0; i < life->of.count; i++) {
        assigned += !life->before[i];
        own += life->own[i];
    }
    if (own == assigned / world * world) {
        memset(life->consumed, true, sizeof(life->consumed));
    }
}

/* One assignment: all ranks read, each as far as it comes. Returns how many positions are then
 * left. */
static uint64_t life_assign(struct life *life, bool to_the_end, enum rg_remainder remainder)
{
    static struct rank ranks[WORLD_MAX];
    struct rg_saved views[SAVED_MAX];
    uint32_t world = 1 + (uint32_t)rg_test_random_below(WORLD_MAX), begun = 0;
    size_t count = 0;
    memcpy(life->before, life->consumed, sizeof(life->before));
    memset(life->own, 0, sizeof(life->own));
    for (uint32_t i = 0; i < world; i++) {
        ranks[i] = (struct rank){.assignment = {.count = life->of.count,
                                                .rank = i,
                                                .world_size = world,
                                                .remainder = remainder},
                                 .base = base_copy(life->base)};
        if (to_the_end || rg_test_random_below(4) != 0) {
            rank_read(life, &ranks[i], to_the_end);
        }
        begun += ranks[i].has_begun;
        count += rank_views(&ranks[i], views + count);
    }
    views_shuffle(views, count);
    if (begun > 0 || life->base != NULL) {
        struct rg_base *base = base_open(views, count, true);
        rg_base_close(life->base);
        life->base = base;
    }
    for (uint32_t i = 0; i < world; i++) {
        saved_drop(&ranks[i]);
        rg_base_close(ranks[i].base);
    }
    uint64_t left = 0;
    for (uint64_t i = 0; i < life->of.count; i++) {
        left += !life->consumed[i];
    }
    if (begun > 0 && remainder == RG_REMAINDER_DROP) {
        drop_note(life, world);
    }
    return left;
}

/* That the base says what was consumed, and nothing else. */
static void check_base(const struct life *life)
{
    if (life->base == NULL) {
        return;
    }
    struct rg_saved view = {0};
    view.base = rg_base_data(life->base, &view.base_size);
    struct rg_sampler_options assignment = {
        .count = life->of.count, .world_size = 1, .worker_count = 1, .block_size = 1};
    struct rg_resume resume;
    resume_init(&resume, &view, &life->of, &assignment);
    RG_CHECK(!resume.has_own_left);
    for (uint64_t i = 0; i < life->of.count; i++) {
        RG_CHECK_EQ(rg_remaining_is_done(&resume.left, i), life->consumed[i]);
    }
    rg_resume_fini(&resume);
}

static void life_run(enum rg_remainder last)
{
    static struct life life;
    memset(&life, 0, sizeof(life));
    life.of = epoch;
    life.of.count = rg_test_random_below(COUNT_MAX) + 1;
    for (uint64_t assignments = rg_test_random_below(5); assignments > 0; assignments--) {
        (void)life_assign(&life, false, (enum rg_remainder)rg_test_random_below(3));
        check_base(&life);
    }
    uint64_t left = life_assign(&life, true, last);
    RG_CHECK(last == RG_REMAINDER_DROP ? left < WORLD_MAX : left == 0);
    rg_base_close(life.base);
}

static void test_each_position_comes_once_in_a_life(void)
{
    const char *examples = getenv("RINGEST_EXAMPLES");
    long lives = examples != NULL ? atol(examples) : LIVES;
    for (long i = 0; i < lives; i++) {
        life_run((enum rg_remainder)(i % 3));
    }
}

/* An epoch of a world, of which each rank has one worker and took so many samples. */
static struct rg_base *base_of_ranks(const uint64_t *taken, uint32_t world,
                                     enum rg_remainder remainder)
{
    static uint8_t data[WORLD_MAX][RG_STATE_SIZE_MIN];
    struct rg_saved views[WORLD_MAX] = {0};
    struct rg_state_epoch of = epoch;
    of.count = 100;
    for (uint32_t i = 0; i < world; i++) {
        struct rg_state state = {.of = of,
                                 .rank = i,
                                 .world_size = world,
                                 .worker_count = 1,
                                 .batch_size = 1,
                                 .remainder = remainder,
                                 .taken = taken[i]};
        views[i].state = data[i];
        views[i].state_size = rg_state_encode(&state, data[i], sizeof(data[i]));
    }
    return base_open(views, world, true);
}

/* Ranks that took alike leave a beginning of the order behind, which costs no bits. */
static void test_ranks_that_took_alike_leave_a_beginning(void)
{
    static const uint64_t taken[] = {7, 7, 7};
    struct rg_base *base = base_of_ranks(taken, 3, RG_REMAINDER_UNEVEN);
    struct rg_base_content content;
    uint32_t crc;
    RG_CHECK_EQ(rg_base_decode(base->data, base->size, &content, &crc), 0);
    RG_CHECK_EQ(content.positions.low, 21);
    RG_CHECK_EQ(content.positions.bit_count, 0);
    RG_CHECK_EQ(base->size, 116);
    rg_base_close(base);
}

/* Three ranks drop the last of 100; that does not come when all have ended, but does before. */
static void test_what_was_to_be_dropped_stays_out_of_an_epoch_that_is_over(void)
{
    static const uint64_t over[] = {33, 33, 33}, nearly[] = {33, 33, 32};
    static const uint64_t lows[] = {100, 98};
    for (int i = 0; i < 2; i++) {
        struct rg_base *base = base_of_ranks(i == 0 ? over : nearly, 3, RG_REMAINDER_DROP);
        struct rg_base_content content;
        uint32_t crc;
        RG_CHECK_EQ(rg_base_decode(base->data, base->size, &content, &crc), 0);
        RG_CHECK_EQ(content.positions.low, lows[i]);
        rg_base_close(base);
    }
}

static void check_refused(const struct rg_saved *saved, const struct rg_sampler_options *assignment,
                          const char *text)
{
    struct rg_state_epoch of = epoch;
    struct rg_resume resume;
    char error[512] = "";
    of.count = 100;
    RG_CHECK_EQ(rg_resume_init(&resume, saved, &of, assignment, error, sizeof(error)), -EINVAL);
    if (strstr(error, text) == NULL) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
}

static void test_a_state_that_does_not_say_enough_is_refused(void)
{
    struct rg_state state = {
        .of = epoch, .rank = 1, .world_size = 2, .worker_count = 1, .batch_size = 4, .taken = 9};
    state.of.count = 100;
    uint8_t data[RG_STATE_SIZE_MIN];
    struct rg_saved saved = {.state = data,
                             .state_size = rg_state_encode(&state, data, sizeof(data))};
    struct rg_sampler_options assignment = {
        .count = 100, .rank = 1, .world_size = 3, .worker_count = 1, .block_size = 4};
    check_refused(&saved, &assignment, "rank 1 of 2, and this is rank 1 of 3");
    assignment.world_size = 2;
    assignment.rank = 0;
    check_refused(&saved, &assignment, "list of the states of all ranks");
    assignment.rank = 1;
    assignment.remainder = RG_REMAINDER_PAD;
    check_refused(&saved, &assignment, "another `remainder`");
    assignment.remainder = RG_REMAINDER_UNEVEN;
    state.taken = 51;
    saved.state_size = rg_state_encode(&state, data, sizeof(data));
    assignment.worker_count = 2;
    check_refused(&saved, &assignment, "beyond the end");
    state.taken = 9;
    state.worker_count = 3;
    saved.state_size = rg_state_encode(&state, data, sizeof(data));
    check_refused(&saved, &assignment, "worker 0 of 3 on rank 1 of 2");
    state.has_base = true;
    saved.state_size = rg_state_encode(&state, data, sizeof(data));
    check_refused(&saved, &assignment, "needs the base");
}

/* The base of one rank is for that rank alone. */
static void test_the_base_of_a_rank_is_that_ranks(void)
{
    struct rg_state state = {
        .of = epoch, .rank = 1, .world_size = 2, .worker_count = 1, .batch_size = 4, .taken = 9};
    state.of.count = 100;
    uint8_t data[RG_STATE_SIZE_MIN];
    struct rg_saved saved = {.state = data,
                             .state_size = rg_state_encode(&state, data, sizeof(data))};
    struct rg_base *base = base_open(&saved, 1, false);
    struct rg_saved view = {0};
    view.base = rg_base_data(base, &view.base_size);
    struct rg_sampler_options assignment = {
        .count = 100, .rank = 0, .world_size = 2, .worker_count = 1, .block_size = 4};
    check_refused(&view, &assignment, "rank 1 of 2, and this is rank 0 of 2");
    assignment.rank = 1;
    struct rg_resume resume;
    resume_init(&resume, &view, &state.of, &assignment);
    struct rg_sampler sampler;
    sampler_init(&sampler, &resume, &assignment);
    RG_CHECK_EQ(sampler.total, 41);
    RG_CHECK_EQ(rg_sampler_at(&sampler, 0), 19);
    rg_resume_fini(&resume);
    rg_base_close(base);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_position_comes_once_in_a_life),
        RG_TEST(test_ranks_that_took_alike_leave_a_beginning),
        RG_TEST(test_what_was_to_be_dropped_stays_out_of_an_epoch_that_is_over),
        RG_TEST(test_a_state_that_does_not_say_enough_is_refused),
        RG_TEST(test_the_base_of_a_rank_is_that_ranks),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
