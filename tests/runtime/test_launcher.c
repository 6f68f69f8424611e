/* Who started a rank, in made-up /proc trees, and in the one at hand. */
#include "runtime/launcher.h"

#include "tests/support/root.h"
#include "tests/support/test.h"

#include <unistd.h>

static char cpus[64];

/* `environment` has '|' between its entries; NULL: it cannot be read. */
static void process_write(int pid, int parent, const char *allowed, const char *environment)
{
    char name[64], text[256];
    snprintf(name, sizeof(name), "/proc/%d/status", pid);
    snprintf(text, sizeof(text),
             "Name:\tpython\nPPid:\t%d\nCpus_allowed:\tff\n"
             "Cpus_allowed_list:\t%s\n",
             parent, allowed);
    rg_root_write(name, text);
    if (environment == NULL) {
        return;
    }
    size_t size = (size_t)snprintf(text, sizeof(text), "%s|", environment);
    for (size_t i = 0; i < size; i++) {
        text[i] = text[i] == '|' ? '\0' : text[i];
    }
    snprintf(name, sizeof(name), "/proc/%d/environ", pid);
    rg_root_write_bytes(name, text, size);
}

static bool launcher_of(const char *root, pid_t pid)
{
    return rg_launcher_cpus(root, pid, "LOCAL_RANK", cpus, sizeof(cpus));
}

static void test_what_lies_between_has_the_same_rank(void)
{
    const char *root = rg_root_make();
    setenv("LOCAL_RANK", "3", 1);
    process_write(1, 0, "0-207", "PATH=/bin");
    process_write(10, 1, "0-103", "PATH=/bin");
    process_write(20, 10, "0-25", "PATH=/bin|LOCAL_RANK=3"); /* a shell around the rank */
    process_write(30, 20, "0-25", "LOCAL_RANK=3|PATH=/bin"); /* the rank */
    process_write(40, 30, "0-25", "LOCAL_RANK=3|PATH=/bin"); /* its worker */
    RG_CHECK(launcher_of(root, 30));
    RG_CHECK_STR(cpus, "0-103");
    RG_CHECK(launcher_of(root, 40));
    RG_CHECK_STR(cpus, "0-103");
    rg_root_remove();
}

static void test_another_rank_or_a_stranger_is_a_launcher(void)
{
    const char *root = rg_root_make();
    setenv("LOCAL_RANK", "3", 1);
    process_write(10, 1, "0-7", "LOCAL_RANK=33|XLOCAL_RANK=3");
    process_write(20, 10, "0-3", "LOCAL_RANK=3");
    RG_CHECK(launcher_of(root, 20));
    RG_CHECK_STR(cpus, "0-7");
    process_write(11, 1, "8-9", NULL);
    process_write(21, 11, "8", "LOCAL_RANK=3");
    RG_CHECK(launcher_of(root, 21));
    RG_CHECK_STR(cpus, "8-9");
    rg_root_remove();
}

/* sudo, a setuid program, or one that made itself private, with the rank's own CPUs. */
static void test_who_is_hidden_below_a_launcher_is_passed_over(void)
{
    const char *root = rg_root_make();
    setenv("LOCAL_RANK", "3", 1);
    process_write(1, 0, "0-255", NULL);
    process_write(10, 1, "0-207", "PATH=/bin");
    process_write(20, 10, "78-103", NULL);
    process_write(30, 20, "78-103", "LOCAL_RANK=3");
    RG_CHECK(launcher_of(root, 30));
    RG_CHECK_STR(cpus, "0-207");
    rg_root_remove();
}

/* Where all that is above is root's: what started the rank's first process is its launcher. */
static void test_who_is_hidden_and_started_the_rank_is_its_launcher(void)
{
    const char *root = rg_root_make();
    setenv("LOCAL_RANK", "3", 1);
    process_write(1, 0, "0-255", NULL);
    process_write(10, 1, "0-103", NULL);            /* slurmstepd */
    process_write(20, 10, "0-103", "LOCAL_RANK=3"); /* a shell */
    process_write(25, 20, "0-25", NULL);            /* sudo */
    process_write(30, 25, "0-25", "LOCAL_RANK=3");
    RG_CHECK(launcher_of(root, 30));
    RG_CHECK_STR(cpus, "0-103");
    rg_root_remove();
}

static void test_there_may_be_no_launcher_to_be_seen(void)
{
    const char *root = rg_root_make();
    setenv("LOCAL_RANK", "0", 1);
    process_write(1, 0, "0-7", "LOCAL_RANK=0");
    process_write(2, 1, "0-7", "LOCAL_RANK=0");
    RG_CHECK(!launcher_of(root, 2));
    RG_CHECK(!launcher_of(root, 99));
    process_write(5, 5, "0-7", "LOCAL_RANK=0"); /* goes round */
    RG_CHECK(!launcher_of(root, 5));
    unsetenv("LOCAL_RANK");
    RG_CHECK(!launcher_of(root, 2));
    rg_root_remove();
}

static void test_this_process_has_a_launcher(void)
{
    setenv("LOCAL_RANK", "a value that nobody else was started with", 1);
    RG_CHECK(launcher_of("", getpid()));
    RG_CHECK(cpus[0] >= '0' && cpus[0] <= '9');
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_lies_between_has_the_same_rank),
        RG_TEST(test_another_rank_or_a_stranger_is_a_launcher),
        RG_TEST(test_who_is_hidden_below_a_launcher_is_passed_over),
        RG_TEST(test_who_is_hidden_and_started_the_rank_is_its_launcher),
        RG_TEST(test_there_may_be_no_launcher_to_be_seen),
        RG_TEST(test_this_process_has_a_launcher),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
