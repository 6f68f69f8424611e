/* What the environment tells of a job. */
#include "runtime/job.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>

static const char *const names[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                    "SLURM_STEP_NUM_TASKS"};

static void none(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        unsetenv(names[i]);
    }
}

static uint32_t processes(void)
{
    uint32_t count = 77;
    const char *name = NULL;
    RG_CHECK_EQ(rg_job_processes(&count, &name), 0);
    return count;
}

static void test_the_innermost_launcher_is_heard(void)
{
    none();
    RG_CHECK_EQ(processes(), 1);
    setenv("SLURM_NTASKS", "5", 1); /* of a batch script, which is no task */
    RG_CHECK_EQ(processes(), 1);
    for (size_t i = RG_ARRAY_LEN(names); i-- > 0;) {
        char text[16];
        snprintf(text, sizeof(text), "%zu", 100 + i);
        setenv(names[i], text, 1);
        RG_CHECK_EQ(processes(), 100 + i);
    }
    none();
}

static void test_what_is_no_number_is_named(void)
{
    static const char *const wrong[] = {"", "0", "-1", "8x", " 8", "4294967296"};
    none();
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        uint32_t count = 77;
        const char *name = NULL;
        setenv("PMI_SIZE", wrong[i], 1);
        RG_CHECK_EQ(rg_job_processes(&count, &name), -EINVAL);
        RG_CHECK_STR(name, "PMI_SIZE");
        RG_CHECK_EQ(count, 77);
    }
    none();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_innermost_launcher_is_heard),
        RG_TEST(test_what_is_no_number_is_named),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
