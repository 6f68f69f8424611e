/* Which rank of the host the environment says this is. */
#include "runtime/local_rank.h"

#include "runtime/log.h"
#include "tests/support/test.h"

static const char *const variables[] = {
    "RINGEST_LOCAL_RANK",
    "RINGEST_LOCAL_WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
};

static int line_count;
static char last_line[256];

static void line_take(enum rg_log_level level, const char *place, const char *text)
{
    (void)level;
    (void)place;
    line_count++;
    snprintf(last_line, sizeof(last_line), "%s", text);
}

/* Nothing but these, "NAME=VALUE NAME=VALUE". */
static void environment(const char *settings)
{
    char text[512], *rest = text;
    for (size_t i = 0; i < RG_ARRAY_LEN(variables); i++) {
        unsetenv(variables[i]);
    }
    snprintf(text, sizeof(text), "%s", settings);
    for (char *one; (one = strsep(&rest, " ")) != NULL && *one != '\0';) {
        char *value = strchr(one, '=');
        RG_CHECK(value != NULL);
        *value = '\0';
        setenv(one, value + 1, 1);
    }
    line_count = 0;
}

static void check_rank(const char *settings, uint32_t rank, uint32_t size, const char *variable)
{
    struct rg_local_rank found;
    environment(settings);
    RG_CHECK_EQ(rg_local_rank_find(&found), 0);
    RG_CHECK_EQ(found.rank, rank);
    RG_CHECK_EQ(found.size, size);
    RG_CHECK_STR(found.variable, variable);
    RG_CHECK_EQ(found.workers, 0);
}

static void test_without_variables_a_process_is_alone(void)
{
    check_rank("", 0, 1, "");
    check_rank("LOCAL_RANK=3", 0, 1, "");
    check_rank("LOCAL_WORLD_SIZE=3 SLURM_LOCALID=1", 0, 1, "");
    RG_CHECK_EQ(line_count, 0);
}

static void test_each_launcher_is_understood(void)
{
    check_rank("LOCAL_RANK=3 LOCAL_WORLD_SIZE=8", 3, 8, "LOCAL_RANK");
    check_rank("OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2", 1, 2,
               "OMPI_COMM_WORLD_LOCAL_RANK");
    check_rank("MPI_LOCALRANKID=0 MPI_LOCALNRANKS=4", 0, 4, "MPI_LOCALRANKID");
    check_rank("SLURM_LOCALID=7 SLURM_STEP_NUM_TASKS=16 SLURM_STEP_TASKS_PER_NODE=8(x2)", 7, 8,
               "SLURM_LOCALID");
    check_rank("SLURM_LOCALID=1 SLURM_STEP_NUM_TASKS=10 SLURM_STEP_TASKS_PER_NODE=4(x2),2 "
               "SLURM_NODEID=2",
               1, 2, "SLURM_LOCALID");
    check_rank("SLURM_LOCALID=5 SLURM_STEP_NUM_TASKS=32 SLURM_NTASKS_PER_NODE=8 SLURM_NODEID=3", 5,
               8, "SLURM_LOCALID");
}

static void test_a_batch_script_of_slurm_is_no_rank(void)
{
    check_rank("SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=8 SLURM_NTASKS_PER_NODE=8", 0, 1, "");
}

static void test_the_user_and_then_the_innermost_launcher_comes_first(void)
{
    check_rank("RINGEST_LOCAL_RANK=0 RINGEST_LOCAL_WORLD_SIZE=2 LOCAL_RANK=3 LOCAL_WORLD_SIZE=8", 0,
               2, "RINGEST_LOCAL_RANK");
    check_rank("LOCAL_RANK=3 LOCAL_WORLD_SIZE=8 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=1 "
               "SLURM_STEP_TASKS_PER_NODE=1",
               3, 8, "LOCAL_RANK");
}

/* People are told what a launcher has set where it makes no rank. */
static void test_what_is_left_aside_is_known(void)
{
    static const struct {
        const char *settings, *aside, *from;
        bool lacks;
    } cases[] = {
        {"LOCAL_RANK=3", "LOCAL_RANK", "LOCAL_WORLD_SIZE", true},
        {"LOCAL_WORLD_SIZE=3", "LOCAL_WORLD_SIZE", "LOCAL_RANK", true},
        {"LOCAL_RANK=8 LOCAL_WORLD_SIZE=8", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false},
        {"SLURM_LOCALID=0 SLURM_NTASKS_PER_NODE=8", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", true},
        {"SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=8", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
         true},
        {"SLURM_LOCALID=9 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS_PER_NODE=8", "SLURM_LOCALID",
         "SLURM_NTASKS_PER_NODE", false},
        {"OMPI_COMM_WORLD_LOCAL_RANK=1 SLURM_LOCALID=0", "OMPI_COMM_WORLD_LOCAL_RANK",
         "OMPI_COMM_WORLD_LOCAL_SIZE", true},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_local_rank found;
        environment(cases[i].settings);
        RG_CHECK_EQ(rg_local_rank_find(&found), 0);
        RG_CHECK_EQ(found.size, 1);
        RG_CHECK(found.aside != NULL);
        RG_CHECK_STR(found.aside, cases[i].aside);
        RG_CHECK_STR(found.aside_from, cases[i].from);
        RG_CHECK_EQ(found.lacks, cases[i].lacks);
    }
    static const char *const others[] = {"", "LOCAL_RANK=3 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=4"};
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        struct rg_local_rank found;
        environment(others[i]);
        RG_CHECK_EQ(rg_local_rank_find(&found), 0);
        RG_CHECK(found.aside == NULL);
    }
}

static void test_nonsense_is_left_aside_with_one_line(void)
{
    static const char *const cases[] = {
        "LOCAL_RANK=8 LOCAL_WORLD_SIZE=8",
        "LOCAL_RANK=x LOCAL_WORLD_SIZE=8",
        "LOCAL_RANK=-1 LOCAL_WORLD_SIZE=8",
        "LOCAL_RANK=0 LOCAL_WORLD_SIZE=0",
        "LOCAL_RANK=0 LOCAL_WORLD_SIZE=99999999",
        "MPI_LOCALRANKID=2 MPI_LOCALNRANKS=1",
        "LOCAL_RANK=0 LOCAL_WORLD_SIZE=8x",
        "SLURM_LOCALID=4 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_TASKS_PER_NODE=4(x2)",
        "SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_TASKS_PER_NODE=(x2)",
    };
    RG_CHECK_EQ(rg_log_to(RG_LOG_WARN, line_take), 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        check_rank(cases[i], 0, 1, "");
        RG_CHECK_EQ(line_count, 1);
        RG_CHECK(strstr(last_line, "no rank of this host") != NULL);
    }
    check_rank("LOCAL_RANK=9 LOCAL_WORLD_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", 1, 2,
               "MPI_LOCALRANKID");
    RG_CHECK_EQ(line_count, 1);
    rg_log_to(RG_LOG_OFF, line_take);
}

static void test_what_the_user_says_must_be_right(void)
{
    static const char *const cases[] = {
        "RINGEST_LOCAL_RANK=2 RINGEST_LOCAL_WORLD_SIZE=2",
        "RINGEST_LOCAL_RANK=2",
        "RINGEST_LOCAL_WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
        "RINGEST_LOCAL_RANK=one RINGEST_LOCAL_WORLD_SIZE=2",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_local_rank found;
        environment(cases[i]);
        RG_CHECK_EQ(rg_local_rank_find(&found), -EINVAL);
    }
}

/* Of a list with one entry for all nodes, that is taken for each. */
static void test_slurm_s_lists(void)
{
    static const struct {
        const char *list;
        uint32_t node, tasks;
    } cases[] = {
        {"8", 0, 8},       {"8", 1, 8},
        {"8(x3),4", 2, 8}, {"8(x3),4", 3, 4},
        {"2,3,1", 1, 3},   {"x", 0, 1},
        {"8(x3", 0, 1},    {"99999999999", 0, 1},
        {"1(x0),2", 0, 2}, {"3(x99999999999999999999),2", 7, 3},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        char settings[256];
        snprintf(settings, sizeof(settings),
                 "SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=9 SLURM_NODEID=%u "
                 "SLURM_STEP_TASKS_PER_NODE=%s",
                 cases[i].node, cases[i].list);
        check_rank(settings, 0, cases[i].tasks, cases[i].tasks > 1 ? "SLURM_LOCALID" : "");
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_without_variables_a_process_is_alone),
        RG_TEST(test_each_launcher_is_understood),
        RG_TEST(test_a_batch_script_of_slurm_is_no_rank),
        RG_TEST(test_the_user_and_then_the_innermost_launcher_comes_first),
        RG_TEST(test_what_is_left_aside_is_known),
        RG_TEST(test_nonsense_is_left_aside_with_one_line),
        RG_TEST(test_what_the_user_says_must_be_right),
        RG_TEST(test_slurm_s_lists),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
