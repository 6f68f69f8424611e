/* What status codes mean: each that stands in the table, and one of each class. */
#include "http/answer.h"

#include "tests/support/test.h"

static void test_http_status_codes(void)
{
    static const struct {
        unsigned code;
        enum rg_status status;
        bool retryable;
    } codes[] = {
        {200, RG_STATUS_OK, false},
        {201, RG_STATUS_OK, false},
        {204, RG_STATUS_OK, false},
        {206, RG_STATUS_OK, false},
        {100, RG_STATUS_BAD_RESPONSE, false},
        {301, RG_STATUS_BAD_RESPONSE, false},
        {304, RG_STATUS_PRECONDITION, false},
        {307, RG_STATUS_BAD_RESPONSE, false},
        {308, RG_STATUS_BAD_RESPONSE, false},
        {400, RG_STATUS_BAD_REQUEST, false},
        {401, RG_STATUS_UNAUTHENTICATED, false},
        {403, RG_STATUS_PERMISSION, false},
        {404, RG_STATUS_NOT_FOUND, false},
        {405, RG_STATUS_BAD_REQUEST, false},
        {408, RG_STATUS_SERVER, true},
        {409, RG_STATUS_BAD_REQUEST, false},
        {410, RG_STATUS_NOT_FOUND, false},
        {411, RG_STATUS_BAD_REQUEST, false},
        {412, RG_STATUS_PRECONDITION, false},
        {413, RG_STATUS_BAD_REQUEST, false},
        {416, RG_STATUS_RANGE, false},
        {429, RG_STATUS_THROTTLED, true},
        {499, RG_STATUS_BAD_REQUEST, false},
        {500, RG_STATUS_SERVER, true},
        {501, RG_STATUS_SERVER, true},
        {502, RG_STATUS_SERVER, true},
        {503, RG_STATUS_SERVER, true},
        {504, RG_STATUS_SERVER, true},
        {599, RG_STATUS_SERVER, true},
        {0, RG_STATUS_BAD_RESPONSE, false},
        {999, RG_STATUS_BAD_RESPONSE, false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(codes); i++) {
        RG_CHECK_EQ(rg_answer_status(codes[i].code), codes[i].status);
        RG_CHECK_EQ(rg_answer_may_mend(codes[i].code), codes[i].retryable);
        bool is_4xx = codes[i].code / 100 == 4;
        RG_CHECK_EQ(rg_answer_refuses(codes[i].code), is_4xx && !codes[i].retryable);
    }
}

static void test_servers_ask_for_fewer_requests_by_429_and_503(void)
{
    for (unsigned code = 0; code < 1000; code++) {
        RG_CHECK_EQ(rg_answer_throttles(code), code == 429 || code == 503);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_http_status_codes),
        RG_TEST(test_servers_ask_for_fewer_requests_by_429_and_503),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
