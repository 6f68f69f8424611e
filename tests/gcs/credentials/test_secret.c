/* The arena of secrets: what it hands out, that it ends, that core dumps leave it out. */
#include "gcs/credentials/secret.h"
#include "tests/support/test.h"

#include <inttypes.h>

static void test_pieces_are_zero_and_apart(void)
{
    struct rg_secret_arena arena;
    RG_CHECK_EQ(rg_secret_arena_init(&arena, 4096), 0);
    uint8_t *one = rg_secret_alloc(&arena, 5), *two = rg_secret_alloc(&arena, 100);
    RG_CHECK(one != NULL && two != NULL && two >= one + 5 && (uintptr_t)two % 16 == 0);
    for (unsigned i = 0; i < 100; i++) {
        RG_CHECK_EQ(two[i], 0);
    }
    RG_CHECK_STR(rg_secret_copy(&arena, "abcdef", 3), "abc");
    RG_CHECK_STR(rg_secret_printf(&arena, "%s-%d", "x", 7), "x-7");
    rg_secret_arena_fini(&arena);
    RG_CHECK(arena.data == NULL);
    rg_secret_arena_fini(&arena);
}

static void test_a_full_arena_says_no(void)
{
    struct rg_secret_arena arena;
    RG_CHECK_EQ(rg_secret_arena_init(&arena, 4096), 0);
    RG_CHECK(rg_secret_alloc(&arena, 4097) == NULL);
    RG_CHECK(rg_secret_alloc(&arena, SIZE_MAX) == NULL);
    RG_CHECK(rg_secret_alloc(&arena, 4090) != NULL);
    RG_CHECK(rg_secret_printf(&arena, "%s", "longer than what is left") == NULL);
    RG_CHECK(rg_secret_copy(&arena, "x", 1) == NULL);
    RG_CHECK(rg_secret_alloc(&arena, 1) == NULL);
    rg_secret_arena_fini(&arena);
    /* Exactly full is not too much. */
    RG_CHECK_EQ(rg_secret_arena_init(&arena, 4096), 0);
    RG_CHECK(rg_secret_alloc(&arena, 4096) != NULL);
    rg_secret_arena_fini(&arena);
}

/* The flags of the mapping at an address, as the kernel reports them. */
static bool mapping_has_flag(const void *address, const char *flag)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[1024];
    bool inside = false, found = false;
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        uintptr_t first, last;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &first, &last) == 2) {
            inside = first <= (uintptr_t)address && (uintptr_t)address < last;
        } else if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            found = strstr(line, flag) != NULL;
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static void test_core_dumps_leave_it_out(void)
{
    struct rg_secret_arena arena;
    RG_CHECK_EQ(rg_secret_arena_init(&arena, 4096), 0);
    void *secret = rg_secret_alloc(&arena, 10);
    void *usual = malloc(10);
    if (!mapping_has_flag(usual, " rd")) {
        free(usual);
        rg_test_skip("no smaps here");
    }
    RG_CHECK(!mapping_has_flag(usual, " dd"));
    RG_CHECK(mapping_has_flag(secret, " dd"));
    free(usual);
    rg_secret_arena_fini(&arena);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_pieces_are_zero_and_apart),
        RG_TEST(test_a_full_arena_says_no),
        RG_TEST(test_core_dumps_leave_it_out),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
