/* The test harness: see test.h.
 *
 * What a failed case leaves behind, servers and clients with threads of their own, would go on to
 * use the memory of its stack while the next case writes there. So the program begins anew
 * (execv) for the cases that are left, and is told by an argument what the earlier ones came to. */
#include "tests/support/test.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

enum outcome { OUTCOME_PASSED = 0, OUTCOME_FAILED = 1, OUTCOME_SKIPPED = 2, OUTCOME_COUNT = 3 };

#define ARGUMENTS_MAX 512
#define NUMBER_SIZE 24

/* What the program runs: how to begin anew, and where it is. */
static struct {
    char *program;
    const struct rg_test *tests;
    size_t count, running;
    int name_count;
    char **names; /* of the cases that were asked for; none: all */
    unsigned totals[OUTCOME_COUNT];
} run;
static jmp_buf case_end;
static uint64_t seed, random_state;
static bool is_seed_given;

static void print_reason(const char *prefix, const char *format, va_list args)
{
    fputs(prefix, stdout);
    vprintf(format, args);
    putchar('\n');
}

static void case_report(enum outcome outcome)
{
    static const char *const labels[] = {"ok", "FAILED", "skipped"};
    run.totals[outcome]++;
    printf("%s %s\n", labels[outcome], run.tests[run.running].name);
}

/* Runs the cases that come after this one in a new image of the program, without this one's
 * threads. Returns where that cannot be done, as in a case that has forbidden system calls. */
static void begin_anew(void)
{
    char numbers[2 + OUTCOME_COUNT][NUMBER_SIZE];
    const char *arguments[ARGUMENTS_MAX] = {run.program, "--seed", numbers[0], "--after",
                                            numbers[1]};
    size_t count = 5;
    snprintf(numbers[0], NUMBER_SIZE, "%" PRIu64, seed);
    snprintf(numbers[1], NUMBER_SIZE, "%zu", run.running);
    for (size_t i = 0; i < OUTCOME_COUNT; i++) {
        snprintf(numbers[2 + i], NUMBER_SIZE, "%u", run.totals[i]);
        arguments[count++] = numbers[2 + i];
    }
    if (count + (size_t)run.name_count < ARGUMENTS_MAX) {
        memcpy(&arguments[count], run.names, (size_t)run.name_count * sizeof(*arguments));
        execv("/proc/self/exe", (char *const *)arguments);
    }
}

void rg_test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("  %s:%d: ", file, line);
    print_reason("", format, args);
    va_end(args);
    case_report(OUTCOME_FAILED);
    fflush(stdout);
    begin_anew();
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

size_t rg_test_index(void)
{
    return run.running;
}

uint64_t rg_test_seed(void)
{
    return seed;
}

uint32_t rg_test_rounds(uint32_t rounds)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (!is_seed_given) {
        return (rounds + 3) / 4;
    }
#endif
    return rounds;
}

bool rg_test_takes(uint64_t number)
{
#if defined(__SANITIZE_ADDRESS__)
    return is_seed_given || number % 3 == 0;
#elif defined(__SANITIZE_THREAD__)
    return is_seed_given || number % 5 == 0;
#else
    (void)number;
    return true;
#endif
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

bool rg_test_go_on_waiting(uint64_t *begun_ns)
{
    /* The system's clock: tests may have put a clock of their own in the place of rg_now_ns. */
    struct timespec now, pause = {0, 1000000};
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * RG_NS_PER_S + (uint64_t)now.tv_nsec;
    *begun_ns = *begun_ns != 0 ? *begun_ns : now_ns;
    nanosleep(&pause, NULL);
    return now_ns - *begun_ns < RG_TEST_PATIENCE_NS;
}

bool rg_test_is_asleep(pid_t thread)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size] = '\0';
    /* The state is behind the name, which may have blanks and parentheses (proc(5)). */
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && name_end[1] == ' ' && name_end[2] == 'S';
}

void rg_test_await_asleep(pid_t thread)
{
    RG_AWAIT(rg_test_is_asleep(thread));
}

void rg_test_check_mem(const char *file, int line, const void *got, size_t got_size,
                       const void *want, size_t want_size)
{
    if (got_size != want_size) {
        rg_test_fail(file, line, "got %zu bytes, wanted %zu", got_size, want_size);
    }
    const uint8_t *g = got, *w = want;
    /* At once where nothing differs: sanitizers look at each byte of a loop. */
    size_t same = got_size > 0 && memcmp(g, w, got_size) == 0 ? got_size : 0;
    for (size_t i = same; i < got_size; i++) {
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

static void run_case(const struct rg_test *test)
{
    random_state = seed;
    int outcome = setjmp(case_end);
    if (outcome == OUTCOME_PASSED) {
        test->run();
    }
    if (outcome != OUTCOME_FAILED) {
        case_report((enum outcome)outcome);
    }
}

static bool is_wanted(const char *name)
{
    for (int i = 0; i < run.name_count; i++) {
        if (strcmp(name, run.names[i]) == 0) {
            return true;
        }
    }
    return run.name_count == 0;
}

/* Leaves the names in run.names, and returns the first case that may run. */
static size_t arguments_parse(int argc, char **argv)
{
    size_t first = 0;
    run.program = argv[0];
    run.names = argv + 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--after") == 0 && i + 1 + OUTCOME_COUNT < argc) {
            first = (size_t)strtoull(argv[++i], NULL, 10) + 1;
            for (size_t t = 0; t < OUTCOME_COUNT; t++) {
                run.totals[t] = (unsigned)strtoul(argv[++i], NULL, 10);
            }
        } else {
            run.names[run.name_count++] = argv[i];
        }
    }
    return first;
}

static int list_cases(void)
{
    for (size_t t = 0; t < run.count; t++) {
        puts(run.tests[t].name);
    }
    return 0;
}

int rg_test_main(int argc, char **argv, const struct rg_test *tests, size_t count)
{
    const char *wanted = getenv("RINGEST_TEST_SEED");
    is_seed_given = wanted != NULL && *wanted != '\0';
    seed = is_seed_given ? strtoull(wanted, NULL, 0) : RG_TEST_SEED_DEFAULT;
    run.tests = tests;
    run.count = count;
    size_t first = arguments_parse(argc, argv);
    if (run.name_count == 1 && strcmp(run.names[0], "--list") == 0) {
        return list_cases();
    }
    /* Nobody's tokens but the test's own; those that share name a folder. */
    setenv("RINGEST_SHARING", "0", 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t t = first; t < count; t++) {
        if (is_wanted(tests[t].name)) {
            run.running = t;
            run_case(&tests[t]);
        }
    }
    const unsigned *totals = run.totals;
    if (totals[OUTCOME_FAILED] > 0) {
        printf("replay with --seed %" PRIu64 "\n", seed);
    }
    printf("%u passed, %u failed, %u skipped\n", totals[0], totals[1], totals[2]);
    if (totals[OUTCOME_FAILED] > 0) {
        return 1;
    }
    return totals[OUTCOME_PASSED] == 0 && totals[OUTCOME_SKIPPED] > 0 ? 77 : 0;
}
