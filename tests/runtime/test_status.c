/* The public texts of statuses, and the version. */
#include "tests/support/test.h"

#include <ringest/error.h>

static void test_every_status_has_a_name_and_a_text_of_its_own(void)
{
    for (int a = 0; a < RG_STATUS_COUNT; a++) {
        RG_CHECK(rg_status_name((enum rg_status)a)[0] != '\0');
        RG_CHECK(strcmp(rg_status_name((enum rg_status)a), "UNKNOWN") != 0);
        RG_CHECK(strcmp(rg_status_text((enum rg_status)a), "unknown status") != 0);
        for (int b = 0; b < a; b++) {
            RG_CHECK(strcmp(rg_status_name((enum rg_status)a), rg_status_name((enum rg_status)b)));
            RG_CHECK(strcmp(rg_status_text((enum rg_status)a), rg_status_text((enum rg_status)b)));
        }
    }
}

static void test_values_are_the_documented_ones(void)
{
    RG_CHECK_EQ(RG_STATUS_OK, 0);
    RG_CHECK_EQ(RG_STATUS_NOT_FOUND, 13);
    RG_CHECK_EQ(RG_STATUS_UNEXPECTED, 24);
    RG_CHECK_EQ(RG_STATUS_CREDENTIALS, 26);
    RG_CHECK_EQ(RG_STATUS_COUNT, 28);
    RG_CHECK_STR(rg_status_name(RG_STATUS_NOT_FOUND), "NOT_FOUND");
    RG_CHECK_STR(rg_status_text(RG_STATUS_NOT_FOUND), "no such object or bucket");
}

static void test_unknown_statuses_are_named_as_such(void)
{
    static const int unknown[] = {-1, RG_STATUS_COUNT, 1000};
    for (size_t i = 0; i < RG_ARRAY_LEN(unknown); i++) {
        RG_CHECK_STR(rg_status_name((enum rg_status)unknown[i]), "UNKNOWN");
        RG_CHECK_STR(rg_status_text((enum rg_status)unknown[i]), "unknown status");
        RG_CHECK(!rg_status_retryable((enum rg_status)unknown[i]));
    }
}

static void test_what_another_attempt_may_mend_is_retryable(void)
{
    static const enum rg_status retryable[] = {RG_STATUS_RESOLVE,         RG_STATUS_CONNECT,
                                               RG_STATUS_CONNECTION_LOST, RG_STATUS_STALLED,
                                               RG_STATUS_HTTP_PROTOCOL,   RG_STATUS_TRUNCATED,
                                               RG_STATUS_CHECKSUM,        RG_STATUS_THROTTLED,
                                               RG_STATUS_SERVER,          RG_STATUS_NO_RESOURCES};
    int count = 0;
    for (int status = 0; status < RG_STATUS_COUNT; status++) {
        count += rg_status_retryable((enum rg_status)status);
    }
    RG_CHECK_EQ(count, RG_ARRAY_LEN(retryable));
    for (size_t i = 0; i < RG_ARRAY_LEN(retryable); i++) {
        RG_CHECK(rg_status_retryable(retryable[i]));
    }
}

static void test_version_is_that_of_the_headers(void)
{
    char version[32];
    snprintf(version, sizeof(version), "%d.%d.%d", RG_VERSION_MAJOR, RG_VERSION_MINOR,
             RG_VERSION_PATCH);
    RG_CHECK_STR(rg_version(), version);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_every_status_has_a_name_and_a_text_of_its_own),
        RG_TEST(test_values_are_the_documented_ones),
        RG_TEST(test_unknown_statuses_are_named_as_such),
        RG_TEST(test_what_another_attempt_may_mend_is_retryable),
        RG_TEST(test_version_is_that_of_the_headers),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
