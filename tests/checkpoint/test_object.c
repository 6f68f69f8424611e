/* What answers tell of an object, in every order. */
#include "checkpoint/object.h"
#include "gcs/request/client.h"
#include "tests/support/test.h"

static struct rg_checkpoint_object object;

static void open_object(int64_t generation)
{
    static struct rg_client client;
    RG_CHECK_EQ(rg_checkpoint_object_init(&object, &client, "bucket", "object", generation), 0);
}

static enum rg_checkpoint_answer answered(int64_t asked, int64_t generation, uint64_t size)
{
    const struct rg_completion answer = {.generation = generation,
                                         .object_size = size,
                                         .size = 1,
                                         .object_crc32c = 5,
                                         .has_object_crc32c = true};
    return rg_checkpoint_object_answered(&object, asked, &answer);
}

static void test_the_first_answer_fixes_it(void)
{
    struct rg_checkpoint_facts facts;
    open_object(0);
    RG_CHECK(!rg_checkpoint_object_facts(&object, &facts));
    RG_CHECK_EQ(rg_checkpoint_object_wanted(&object), 0);
    RG_CHECK_EQ(rg_checkpoint_object_end(&object), UINT64_MAX);
    RG_CHECK_EQ(answered(0, 7, 100), RG_CHECKPOINT_SAME);
    RG_CHECK(rg_checkpoint_object_facts(&object, &facts));
    RG_CHECK_EQ(facts.generation, 7);
    RG_CHECK_EQ(facts.size, 100);
    RG_CHECK_EQ(rg_checkpoint_object_wanted(&object), 7);
    RG_CHECK_EQ(rg_checkpoint_object_end(&object), 100);
    RG_CHECK_EQ(answered(0, 7, 100), RG_CHECKPOINT_SAME);
    RG_CHECK_EQ(answered(7, 0, 100), RG_CHECKPOINT_SAME);
    RG_CHECK_EQ(answered(0, 8, 100), RG_CHECKPOINT_OTHER);
    RG_CHECK_EQ(answered(0, 7, 101), RG_CHECKPOINT_WRONG);
    RG_CHECK_EQ(answered(0, 0, 100), RG_CHECKPOINT_UNTOLD);
    RG_CHECK_EQ(answered(0, 7, 0), RG_CHECKPOINT_UNTOLD);
    RG_CHECK(rg_checkpoint_object_ends(&object, 100));
    RG_CHECK(!rg_checkpoint_object_ends(&object, 99));
    rg_checkpoint_object_fini(&object);
}

static void test_what_was_told_of_its_end_holds(void)
{
    open_object(0);
    RG_CHECK(rg_checkpoint_object_ends(&object, 50));
    RG_CHECK(rg_checkpoint_object_ends(&object, 60));
    RG_CHECK_EQ(rg_checkpoint_object_end(&object), 50);
    RG_CHECK_EQ(answered(0, 7, 51), RG_CHECKPOINT_REPLACED);
    RG_CHECK_EQ(answered(0, 7, 50), RG_CHECKPOINT_SAME);
    rg_checkpoint_object_fini(&object);
}

static void test_damage(void)
{
    char text[160];
    uint8_t bytes[4] = {1, 2, 3, 4};
    open_object(9);
    RG_CHECK_EQ(rg_checkpoint_object_wanted(&object), 9);
    RG_CHECK_EQ(answered(9, 9, 4), RG_CHECKPOINT_SAME);
    rg_checkpoint_object_compare(&object, 5);
    rg_checkpoint_object_cover(&object, 2, bytes + 2, 2, rg_crc32c(0, bytes + 2, 2));
    RG_CHECK(!rg_checkpoint_object_is_damaged(&object, text, sizeof(text)));
    rg_checkpoint_object_cover(&object, 0, bytes, 2, rg_crc32c(0, bytes, 2));
    RG_CHECK(rg_checkpoint_object_is_damaged(&object, text, sizeof(text)));
    RG_CHECK(strstr(text, "bytes 0 to 3 of generation 9 have the CRC32C ") != NULL);
    rg_checkpoint_object_compare(&object, 5);
    RG_CHECK(rg_checkpoint_object_is_damaged(&object, text, sizeof(text)));
    rg_checkpoint_object_fini(&object);
}

/* Before all bytes were read, and after. */
static void test_bytes_that_are_read_again(void)
{
    static const uint8_t bytes[] = {1, 2, 3, 4}, wrong[] = {9, 9};
    const struct rg_completion answer = {.generation = 7,
                                         .object_size = 4,
                                         .size = 1,
                                         .object_crc32c = rg_crc32c(0, bytes, 4),
                                         .has_object_crc32c = true};
    char text[224];
    for (unsigned is_whole = 0; is_whole < 2; is_whole++) {
        open_object(0);
        object.checks = true;
        RG_CHECK_EQ(rg_checkpoint_object_answered(&object, 0, &answer), RG_CHECKPOINT_SAME);
        rg_checkpoint_object_cover(&object, 2, bytes + 2, 2, rg_crc32c(0, bytes + 2, 2));
        if (is_whole == 1) {
            rg_checkpoint_object_cover(&object, 0, bytes, 2, rg_crc32c(0, bytes, 2));
            rg_checkpoint_object_cover(&object, 0, bytes, 4, rg_crc32c(0, bytes, 4));
        }
        rg_checkpoint_object_cover(&object, 2, bytes + 2, 2, rg_crc32c(0, bytes + 2, 2));
        RG_CHECK(!rg_checkpoint_object_is_damaged(&object, text, sizeof(text)));
        rg_checkpoint_object_cover(&object, 2, wrong, 2, rg_crc32c(0, wrong, 2));
        RG_CHECK(rg_checkpoint_object_is_damaged(&object, text, sizeof(text)));
        RG_CHECK(strstr(text, "bytes 2 to 3 of generation 7") != NULL);
        RG_CHECK(strstr(text, "read before") != NULL);
        rg_checkpoint_object_fini(&object);
    }
}

static void test_names(void)
{
    static struct rg_client client;
    RG_CHECK_EQ(rg_checkpoint_object_init(&object, &client, NULL, "o", 0), -EINVAL);
    RG_CHECK_EQ(rg_checkpoint_object_init(&object, &client, "b", "o", 0), -EINVAL);
    RG_CHECK_EQ(rg_checkpoint_object_init(&object, &client, "bucket", NULL, 0), -EINVAL);
    RG_CHECK_EQ(rg_checkpoint_object_init(&object, &client, "bucket", "a\r", 0), -EINVAL);
    RG_CHECK_EQ(rg_checkpoint_object_init(&object, &client, "bucket", "o", -1), -EINVAL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_first_answer_fixes_it),
        RG_TEST(test_what_was_told_of_its_end_holds),
        RG_TEST(test_damage),
        RG_TEST(test_bytes_that_are_read_again),
        RG_TEST(test_names),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
