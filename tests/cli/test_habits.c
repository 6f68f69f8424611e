/* What users of gsutil and gcloud storage type. */
#include "cli/habits.h"
#include "tests/support/test.h"

static void test_commands_of_other_names(void)
{
    RG_CHECK_STR(habit_command("copy"), "cp");
    RG_CHECK(habit_command("cp") == NULL);
    RG_CHECK(habit_is_front("storage"));
    RG_CHECK(!habit_is_front("stor"));
}

static void test_options_of_other_names(void)
{
    RG_CHECK_STR(habit_option("rsync", "-d"), "; did you mean --delete?");
    RG_CHECK(habit_option("cp", "-d") == NULL);
    RG_CHECK(habit_option("ls", "--ful") == NULL);
    RG_CHECK(habit_option("ls", "--full") != NULL);
    RG_CHECK(habit_option("du", "--billing-project") != NULL);
    RG_CHECK(habit_option("rsync", "") == NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {RG_TEST(test_commands_of_other_names),
                                           RG_TEST(test_options_of_other_names)};
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
