/* Memory that CUDA knows, with a driver that stands in: which device is used, what is registered
 * and when, and what is said where nothing can be. */
#include "runtime/cuda.h"
#include "runtime/runtime.h"
#include "runtime/slab.h"
#include "tests/support/cuda_stand_in.h"
#include "tests/support/test.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK RG_MIB(2)

static char error[256];

static struct rg_cuda *open_cuda(uint32_t local_rank)
{
    struct rg_cuda *cuda = NULL;
    RG_CHECK_EQ(rg_cuda_open(&cuda, local_rank, error, sizeof(error)), 0);
    RG_CHECK_EQ(stand_in_contexts(), 1);
    return cuda;
}

static void close_cuda(struct rg_cuda *cuda)
{
    rg_cuda_close(cuda);
    RG_CHECK_EQ(stand_in_bytes(), 0);
    RG_CHECK_EQ(stand_in_contexts(), 0);
    RG_CHECK_EQ(stand_in_mistakes(), 0);
}

static void check_device(int current, int active, uint32_t local_rank, int wanted)
{
    stand_in_reset();
    stand_in_set_used(current, active);
    struct rg_cuda *cuda = open_cuda(local_rank);
    RG_CHECK_EQ(rg_cuda_device(cuda), wanted);
    RG_CHECK_EQ(stand_in_last_used(), wanted);
    close_cuda(cuda);
}

static void test_the_device_in_use_is_used_else_the_ranks(void)
{
    check_device(1, 0, 0, 1);
    check_device(-1, 1, 0, 1);
    check_device(-1, -1, 1, 1);
    check_device(-1, -1, 2, 0);
    rg_cuda_close(NULL);
}

static void test_what_is_missing_is_said(void)
{
    struct rg_cuda *cuda = NULL;
    stand_in_reset();
    stand_in_set_init(3, 2);
    RG_CHECK_EQ(rg_cuda_open(&cuda, 0, error, sizeof(error)), -ENODEV);
    RG_CHECK(strstr(error, "forked") != NULL);
    stand_in_set_init(0, 0);
    RG_CHECK_EQ(rg_cuda_open(&cuda, 0, error, sizeof(error)), -ENODEV);
    RG_CHECK(strstr(error, "no device") != NULL);
    RG_CHECK(cuda == NULL);
    RG_CHECK_EQ(stand_in_contexts(), 0);
}

static int pin(void *context, void *address, size_t size)
{
    return rg_cuda_register(context, address, size);
}

static void unpin(void *context, void *address)
{
    rg_cuda_unregister(context, address);
}

static struct rg_slab_arena *make_arena(struct rg_cuda *cuda, uint64_t chunks, uint64_t pinned)
{
    struct rg_slab_options options = {.budget = chunks * CHUNK,
                                      .pin = pin,
                                      .unpin = unpin,
                                      .pin_context = cuda,
                                      .pinned_max = pinned * CHUNK};
    struct rg_slab_arena *arena;
    RG_CHECK_EQ(rg_slab_arena_create(&arena, &options), 0);
    return arena;
}

/* What a lease says is what the driver knows: all of it in one piece, or nothing. */
static struct rg_lease *take(struct rg_slab_arena *arena, size_t size, bool is_pinned)
{
    struct rg_lease *lease = rg_slab_take(arena, size);
    RG_CHECK(lease != NULL);
    RG_CHECK_EQ(rg_lease_is_pinned(lease), is_pinned);
    RG_CHECK_EQ(stand_in_has(lease->data, lease->capacity), is_pinned);
    RG_CHECK_EQ(stand_in_has(lease->data, 1), is_pinned);
    RG_CHECK(rg_slab_arena_is_sound(arena));
    return lease;
}

static void test_memory_is_registered_when_it_is_first_taken(void)
{
    stand_in_reset();
    struct rg_cuda *cuda = open_cuda(0);
    struct rg_slab_arena *arena = make_arena(cuda, 16, 16);
    RG_CHECK_EQ(stand_in_calls(), 0);
    for (int i = 0; i < 3; i++) {
        rg_lease_release(take(arena, RG_KIB(100), true));
        RG_CHECK_EQ(stand_in_bytes(), CHUNK);
    }
    rg_lease_release(take(arena, 3 * CHUNK, true));
    rg_lease_release(take(arena, 3 * CHUNK, true));
    RG_CHECK_EQ(stand_in_bytes(), 4 * CHUNK);
    RG_CHECK_EQ(stand_in_calls(), 2);
    rg_slab_arena_destroy(arena);
    close_cuda(cuda);
}

static void test_no_body_lies_in_two_registrations(void)
{
    stand_in_reset();
    struct rg_cuda *cuda = open_cuda(0);
    struct rg_slab_arena *arena = make_arena(cuda, 6, 6);
    rg_lease_release(take(arena, 6 * CHUNK, true));
    struct rg_lease *front = take(arena, 2 * CHUNK, true);
    struct rg_lease *back = take(arena, 4 * CHUNK, true);
    rg_lease_release(front);
    rg_lease_release(back);
    rg_lease_release(take(arena, 6 * CHUNK, true));
    rg_slab_arena_destroy(arena);
    close_cuda(cuda);
}

static void test_what_does_not_fit_the_budget_is_not_registered_in_part(void)
{
    stand_in_reset();
    struct rg_cuda *cuda = open_cuda(0);
    struct rg_slab_arena *arena = make_arena(cuda, 8, 3);
    struct rg_lease *first = take(arena, 2 * CHUNK, true);
    struct rg_lease *large = take(arena, 2 * CHUNK, false);
    struct rg_lease *small = take(arena, 1, true);
    RG_CHECK_EQ(stand_in_bytes(), 3 * CHUNK);
    rg_lease_release(first);
    rg_lease_release(large);
    rg_lease_release(small);
    rg_slab_arena_destroy(arena);
    close_cuda(cuda);
}

static void test_a_refusal_is_the_last_try(void)
{
    stand_in_reset();
    stand_in_set_room(1);
    struct rg_cuda *cuda = open_cuda(0);
    struct rg_slab_arena *arena = make_arena(cuda, 8, 8);
    struct rg_lease *first = take(arena, CHUNK, true);
    struct rg_lease *second = take(arena, CHUNK, false);
    struct rg_lease *third = take(arena, CHUNK, false);
    RG_CHECK_EQ(stand_in_calls(), 2);
    rg_lease_release(first);
    rg_lease_release(second);
    rg_lease_release(third);
    rg_slab_arena_destroy(arena);
    close_cuda(cuda);
}

static void test_random_sizes_are_whole_or_not_at_all(void)
{
    stand_in_reset();
    struct rg_cuda *cuda = open_cuda(0);
    struct rg_slab_arena *arena = make_arena(cuda, 12, 8);
    struct rg_lease *held[6] = {0};
    for (int i = 0; i < 2000; i++) {
        struct rg_lease **place = &held[rg_test_random_below(RG_ARRAY_LEN(held))];
        rg_lease_release(*place);
        *place = rg_slab_take(arena, 1 + rg_test_random_below(4 * CHUNK));
        if (*place != NULL) {
            bool is_pinned = rg_lease_is_pinned(*place);
            RG_CHECK_EQ(stand_in_has((*place)->data, (*place)->capacity), is_pinned);
            RG_CHECK_EQ(stand_in_has((*place)->data + (*place)->capacity - 1, 1), is_pinned);
        }
        RG_CHECK(stand_in_bytes() <= 8 * CHUNK);
        RG_CHECK(rg_slab_arena_is_sound(arena));
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(held); i++) {
        rg_lease_release(held[i]);
    }
    rg_slab_arena_destroy(arena);
    close_cuda(cuda);
}

/* The registrations are the parent's. */
static void test_a_child_unregisters_nothing(void)
{
    stand_in_reset();
    struct rg_cuda *cuda = open_cuda(0);
    struct rg_slab_arena *arena = make_arena(cuda, 4, 4);
    rg_lease_release(take(arena, 1, true));
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        rg_slab_arena_destroy(arena);
        _exit(stand_in_bytes() == CHUNK && stand_in_mistakes() == 0 ? 0 : 1);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    rg_slab_arena_destroy(arena);
    close_cuda(cuda);
}

static void check_runtime(uint64_t pinned_max, int contexts, const char *told)
{
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = 1;
    options.pinned_max = pinned_max;
    struct rg_runtime *runtime;
    char text[4096];
    RG_CHECK_EQ(rg_runtime_open(&runtime, &options), 0);
    RG_CHECK_EQ(stand_in_contexts(), contexts);
    int size = rg_runtime_describe(runtime, text, sizeof(text));
    RG_CHECK_EQ(size, strlen(text));
    RG_CHECK_EQ(rg_runtime_describe(runtime, NULL, 0), size);
    const char *line = strstr(text, "pinned memory\t");
    RG_CHECK(told != NULL ? line != NULL && strstr(line, told) != NULL : line == NULL);
    rg_runtime_close(runtime);
    RG_CHECK_EQ(stand_in_contexts(), 0);
}

static void test_a_runtime_opens_cuda_only_if_asked(void)
{
    stand_in_reset();
    check_runtime(0, 0, NULL);
    check_runtime(1, 0, NULL);
    check_runtime(RG_MIB(64), 1, "up to 67108864 bytes, by CUDA device 0\n");
    stand_in_set_init(100, 2);
    check_runtime(RG_MIB(64), 0, "none: cuInit");
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_device_in_use_is_used_else_the_ranks),
        RG_TEST(test_what_is_missing_is_said),
        RG_TEST(test_memory_is_registered_when_it_is_first_taken),
        RG_TEST(test_no_body_lies_in_two_registrations),
        RG_TEST(test_what_does_not_fit_the_budget_is_not_registered_in_part),
        RG_TEST(test_a_refusal_is_the_last_try),
        RG_TEST(test_random_sizes_are_whole_or_not_at_all),
        RG_TEST(test_a_child_unregisters_nothing),
        RG_TEST(test_a_runtime_opens_cuda_only_if_asked),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
