/* Retry tests without requests: instructions in their order, each used up once. */
#include "emulator/faults/retry_tests.h"

#include "tests/support/test.h"

static struct rg_retry_tests *tests;

/* Keeps a test of two instructions for uploads and one for reads, and returns its id. */
static struct rg_h1_slice keep_test(char id[64])
{
    struct rg_text text = {0};
    struct rg_retry_test *test = rg_retry_test_create();
    RG_CHECK(test != NULL);
    RG_CHECK_EQ(rg_retry_test_add(test, RG_METHOD_OBJECTS_INSERT, "return-503"), 0);
    RG_CHECK_EQ(rg_retry_test_add(test, RG_METHOD_OBJECTS_GET, "return-504"), 0);
    RG_CHECK_EQ(rg_retry_test_add(test, RG_METHOD_OBJECTS_INSERT, "return-502"), 0);
    RG_CHECK_EQ(rg_retry_test_add(test, RG_METHOD_OBJECTS_GET, "no such"), -EINVAL);
    RG_CHECK_EQ(rg_retry_tests_keep(tests, test, &text), 0);
    RG_CHECK_EQ(sscanf(text.data, "{\"id\":\"%63[^\"]", id), 1);
    rg_text_fini(&text);
    return rg_text_slice(id);
}

static unsigned next_status(struct rg_h1_slice id, enum rg_method method, struct rg_fault *fault)
{
    *fault = (struct rg_fault){0};
    RG_CHECK_EQ(rg_retry_tests_find(tests, id, method, fault), 0);
    return fault->action.kind == RG_FAULT_NONE ? 0 : fault->action.status;
}

static void test_instructions_are_used_up_in_their_order(void)
{
    char text[64];
    struct rg_fault first, second, read;
    RG_CHECK_EQ(rg_retry_tests_create(&tests), 0);
    struct rg_h1_slice id = keep_test(text);
    RG_CHECK_EQ(next_status(id, RG_METHOD_OBJECTS_INSERT, &first), 503);
    RG_CHECK_EQ(next_status(id, RG_METHOD_OBJECTS_INSERT, &second), 503);
    RG_CHECK(rg_retry_tests_use(tests, &second));
    RG_CHECK(!rg_retry_tests_use(tests, &first));
    RG_CHECK_EQ(next_status(id, RG_METHOD_OBJECTS_GET, &read), 504);
    RG_CHECK_EQ(next_status(id, RG_METHOD_OBJECTS_INSERT, &first), 502);
    RG_CHECK(rg_retry_tests_use(tests, &first));
    RG_CHECK_EQ(next_status(id, RG_METHOD_OBJECTS_INSERT, &first), 0);
    RG_CHECK_EQ(next_status(id, RG_METHOD_BUCKETS_GET, &first), 0);
    rg_retry_tests_destroy(tests);
}

static void test_a_fault_of_a_request_is_its_own(void)
{
    struct rg_fault fault = {.action.kind = RG_FAULT_STATUS};
    RG_CHECK_EQ(rg_retry_tests_create(&tests), 0);
    RG_CHECK(rg_retry_tests_use(tests, &fault));
    RG_CHECK(rg_retry_tests_use(tests, &fault));
    rg_retry_tests_destroy(tests);
}

static void test_a_test_that_is_gone(void)
{
    char first_text[64], second_text[64];
    struct rg_fault fault;
    struct rg_text text = {0};
    RG_CHECK_EQ(rg_retry_tests_create(&tests), 0);
    struct rg_h1_slice first = keep_test(first_text), second = keep_test(second_text);
    RG_CHECK(strcmp(first_text, second_text) != 0);
    RG_CHECK_EQ(next_status(first, RG_METHOD_OBJECTS_GET, &fault), 504);
    RG_CHECK_EQ(rg_retry_tests_remove(tests, first), 0);
    RG_CHECK_EQ(rg_retry_tests_remove(tests, first), -ENOENT);
    RG_CHECK_EQ(rg_retry_tests_append(tests, first, &text), -ENOENT);
    RG_CHECK_EQ(rg_retry_tests_find(tests, first, RG_METHOD_OBJECTS_GET, &fault), -ENOENT);
    RG_CHECK(!rg_retry_tests_use(tests, &fault));
    rg_retry_tests_append_all(tests, &text);
    rg_text_append(&text, "", 1);
    RG_CHECK(strstr(text.data, first_text) == NULL && strstr(text.data, second_text) != NULL);
    RG_CHECK(strstr(text.data, "\"completed\":false") != NULL);
    rg_text_fini(&text);
    RG_CHECK_EQ(next_status(second, RG_METHOD_OBJECTS_GET, &fault), 504);
    rg_retry_tests_destroy(tests);
    rg_retry_tests_destroy(NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test cases[] = {
        RG_TEST(test_instructions_are_used_up_in_their_order),
        RG_TEST(test_a_fault_of_a_request_is_its_own),
        RG_TEST(test_a_test_that_is_gone),
    };
    return rg_test_main(argc, argv, cases, RG_ARRAY_LEN(cases));
}
