/* Which operation may be sent twice, under which condition. */
#include "gcs/request/idempotency.h"

#include "tests/support/test.h"

static bool check(enum rg_operation_kind operation, struct rg_conditions conditions,
                  int64_t generation)
{
    return rg_operation_idempotent(operation, &conditions, generation);
}

static void test_reads_and_steps_of_uploads_may_always(void)
{
    static const enum rg_operation_kind operations[] = {RG_OPERATION_GET, RG_OPERATION_LIST,
                                                        RG_OPERATION_STAT, RG_OPERATION_SESSION,
                                                        RG_OPERATION_PART};
    for (size_t i = 0; i < RG_ARRAY_LEN(operations); i++) {
        RG_CHECK(rg_operation_idempotent(operations[i], NULL, 0));
    }
}

static void test_writes_need_the_generation_of_what_they_replace(void)
{
    static const enum rg_operation_kind operations[] = {RG_OPERATION_INSERT, RG_OPERATION_COPY,
                                                        RG_OPERATION_COMPOSE};
    for (size_t i = 0; i < RG_ARRAY_LEN(operations); i++) {
        RG_CHECK(!rg_operation_idempotent(operations[i], NULL, 0));
        RG_CHECK(check(operations[i], (struct rg_conditions){.if_generation_match = 7}, 0));
        RG_CHECK(check(operations[i],
                       (struct rg_conditions){.if_generation_match = RG_GENERATION_ABSENT}, 0));
        RG_CHECK(!check(operations[i], (struct rg_conditions){.if_metageneration_match = 7}, 0));
        RG_CHECK(!check(operations[i], (struct rg_conditions){.if_generation_not_match = 7}, 0));
        RG_CHECK(!check(operations[i], (struct rg_conditions){0}, 7));
    }
}

static void test_removing_needs_a_generation(void)
{
    RG_CHECK(!check(RG_OPERATION_DELETE, (struct rg_conditions){0}, 0));
    RG_CHECK(check(RG_OPERATION_DELETE, (struct rg_conditions){0}, 7));
    RG_CHECK(check(RG_OPERATION_DELETE, (struct rg_conditions){.if_generation_match = 7}, 0));
    RG_CHECK(!check(RG_OPERATION_DELETE, (struct rg_conditions){.if_metageneration_match = 7}, 0));
}

static void test_changing_needs_the_metageneration(void)
{
    RG_CHECK(!check(RG_OPERATION_UPDATE, (struct rg_conditions){.if_generation_match = 7}, 7));
    RG_CHECK(check(RG_OPERATION_UPDATE, (struct rg_conditions){.if_metageneration_match = 7}, 0));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_reads_and_steps_of_uploads_may_always),
        RG_TEST(test_writes_need_the_generation_of_what_they_replace),
        RG_TEST(test_removing_needs_a_generation),
        RG_TEST(test_changing_needs_the_metageneration),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
