/* The smallest test harness that does what these tests need: named cases, checks that print both
 * values, a seed that a failure prints and `--seed N` replays, and a last line that the test runner
 * adds up.
 *
 *     static void test_a_thing_holds(void) { RG_CHECK_EQ(1 + 1, 2); }
 *     int main(int argc, char **argv)
 *     {
 *         static const struct rg_test tests[] = {RG_TEST(test_a_thing_holds)};
 *         return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
 *     }
 *
 * A failed check ends its case, and the cases after it run in a new image of the program: nothing
 * of the failed one, its threads least of all, goes on beside them. Exit status: 0 all passed, 1
 * some failed, 77 when every case was skipped. Arguments: names of cases to run, `--seed N`,
 * `--list`.
 */
#ifndef RG_TESTS_SUPPORT_TEST_H
#define RG_TESTS_SUPPORT_TEST_H

#include "runtime/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

struct rg_test {
    const char *name;
    void (*run)(void);
};
#define RG_TEST(function)                                                                          \
    {                                                                                              \
#function, function                                                                        \
    }

int rg_test_main(int argc, char **argv, const struct rg_test *tests, size_t count);

/* Which of the tests is running, from 0. */
size_t rg_test_index(void);

/* Ends the running case. `rg_test_skip` says why on standard output. */
__attribute__((noreturn)) void rg_test_fail(const char *file, int line, const char *format, ...)
    RG_PRINTF(3, 4);
__attribute__((noreturn)) void rg_test_skip(const char *format, ...) RG_PRINTF(1, 2);

/* The same in every run, so that the tests come to the same each time: `--seed N`, or else the
 * environment's RINGEST_TEST_SEED, tries another. script/soak does so, over and over. */
#define RG_TEST_SEED_DEFAULT 1
/* The seed of this run, and a pseudo-random sequence that it determines (SplitMix64). */
uint64_t rg_test_seed(void);
uint64_t rg_test_random(void);
/* Uniform in [0, bound). */
uint64_t rg_test_random_below(uint64_t bound);

/* How often a test repeats what it draws from that sequence: so often, but a quarter with a
 * sanitizer, under which it takes several times as long, unless the environment names a seed, as
 * script/soak does. */
uint32_t rg_test_rounds(uint32_t rounds);
/* Whether a test that goes through combinations, which differ little, takes the one of this number:
 * all of them, but only every third with the address sanitizer, and every fifth with that of
 * threads, unless the environment names a seed. */
bool rg_test_takes(uint64_t number);

/* How long a test waits for what has to come: more than a busy machine can hold it up. */
#define RG_TEST_PATIENCE_NS (90 * RG_NS_PER_S)
/* Sleeps for a millisecond. False when all of that has passed since *begun_ns, which is 0 at first.
 */
bool rg_test_go_on_waiting(uint64_t *begun_ns);

/* Whether that thread of this process (gettid) waits in the kernel, and a wait until it does. */
bool rg_test_is_asleep(pid_t thread);
void rg_test_await_asleep(pid_t thread);

/* Compares memory and prints the first difference. */
void rg_test_check_mem(const char *file, int line, const void *got, size_t got_size,
                       const void *want, size_t want_size);
void rg_test_check_str(const char *file, int line, const char *got, const char *want);

#define RG_CHECK(condition)                                                                        \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            rg_test_fail(__FILE__, __LINE__, "%s", #condition);                                    \
        }                                                                                          \
    } while (0)
#define RG_CHECK_EQ(got, want)                                                                     \
    do {                                                                                           \
        long long rg_got = (long long)(got), rg_want = (long long)(want);                          \
        if (rg_got != rg_want) {                                                                   \
            rg_test_fail(__FILE__, __LINE__, "%s is %lld, wanted %s = %lld", #got, rg_got, #want,  \
                         rg_want);                                                                 \
        }                                                                                          \
    } while (0)
/* Waits until the condition holds; the case fails when it does not for RG_TEST_PATIENCE_NS. */
#define RG_AWAIT(condition)                                                                        \
    do {                                                                                           \
        for (uint64_t rg_begun_ns = 0; !(condition);) {                                            \
            if (!rg_test_go_on_waiting(&rg_begun_ns)) {                                            \
                rg_test_fail(__FILE__, __LINE__, "waited in vain for %s", #condition);             \
            }                                                                                      \
        }                                                                                          \
    } while (0)
#define RG_CHECK_MEM(got, got_size, want, want_size)                                               \
    rg_test_check_mem(__FILE__, __LINE__, got, got_size, want, want_size)
#define RG_CHECK_STR(got, want) rg_test_check_str(__FILE__, __LINE__, got, want)

#endif
