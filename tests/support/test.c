/* The test harness: see test.h. */
#include "tests/support/test.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

enum outcome { OUTCOME_PASSED = 0, OUTCOME_FAILED = 1, OUTCOME_SKIPPED = 2 };

static jmp_buf case_end;
static uint64_t seed, random_state;

static void print_reason(const char *prefix, const char *format, va_list args)
{
    fputs(prefix, stdout);
    vprintf(format, args);
    putchar('\n');
}

void rg_test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("  %s:%d: ", file, line);
    print_reason("", format, args);
    va_end(args);
    longjmp(case_end, OUTCOME_FAILED);
}

void rg_test_skip(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_reason("  skipped: ", format, args);
    va_end(args);
    longjmp(case_end, OUTCOME_SKIPPED);
}

uint64_t rg_test_seed(void)
{
    return seed;
}

uint64_t rg_test_random(void)
{
    /* SplitMix64 (Steele, Lea, Flood 2014): any seed will do, and the sequence is the same
     * anywhere. */
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t rg_test_random_below(uint64_t bound)
{
    RG_ASSERT(bound > 0);
    return rg_test_random() % bound;
}

void rg_test_check_mem(const char *file, int line, const void *got, size_t got_size,
                       const void *want, size_t want_size)
{
    if (got_size != want_size) {
        rg_test_fail(file, line, "got %zu bytes, wanted %zu", got_size, want_size);
    }
    const uint8_t *g = got, *w = want;
    for (size_t i = 0; i < got_size; i++) {
        if (g[i] != w[i]) {
            rg_test_fail(file, line, "byte %zu of %zu is 0x%02x, wanted 0x%02x", i, got_size, g[i],
                         w[i]);
        }
    }
}

void rg_test_check_str(const char *file, int line, const char *got, const char *want)
{
    if (got == NULL || want == NULL ? got != want : strcmp(got, want) != 0) {
        rg_test_fail(file, line, "got \"%s\", wanted \"%s\"", got ? got : "(null)",
                     want ? want : "(null)");
    }
}

static enum outcome run_case(const struct rg_test *test)
{
    random_state = seed;
    int outcome = setjmp(case_end);
    if (outcome == OUTCOME_PASSED) {
        test->run();
    }
    return (enum outcome)outcome;
}

static bool is_wanted(const char *name, int name_count, char **names)
{
    for (int i = 0; i < name_count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return name_count == 0;
}

int rg_test_main(int argc, char **argv, const struct rg_test *tests, size_t count)
{
    static const char *const labels[] = {"ok", "FAILED", "skipped"};
    unsigned totals[3] = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = (uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 20);

    int name_count = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--list") == 0) {
            for (size_t t = 0; t < count; t++) {
                puts(tests[t].name);
            }
            return 0;
        } else {
            argv[1 + name_count++] = argv[i];
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t t = 0; t < count; t++) {
        if (!is_wanted(tests[t].name, name_count, argv + 1)) {
            continue;
        }
        enum outcome outcome = run_case(&tests[t]);
        totals[outcome]++;
        printf("%s %s\n", labels[outcome], tests[t].name);
    }
    if (totals[OUTCOME_FAILED] > 0) {
        printf("replay with --seed %" PRIu64 "\n", seed);
    }
    printf("%u passed, %u failed, %u skipped\n", totals[0], totals[1], totals[2]);
    if (totals[OUTCOME_FAILED] > 0) {
        return 1;
    }
    return totals[OUTCOME_PASSED] == 0 && totals[OUTCOME_SKIPPED] > 0 ? 77 : 0;
}
