/* Impersonation: the source's token, the chain of delegates, scopes, and how long the answer is
 * believed. */
#include "tests/gcs/credentials/token_case.h"

#define IMPERSONATED(more)                                                                         \
    "{\"type\":\"impersonated_service_account\",\"service_account_impersonation_url\":"            \
    "\"$/v1/projects/-/serviceAccounts/target@p.example:generateAccessToken\"" more                \
    ",\"source_credentials\":{\"type\":\"authorized_user\",\"client_id\":\"i\","                   \
    "\"client_secret\":\"s\",\"refresh_token\":\"r\",\"token_uri\":\"$/token\"}}"
#define TARGET "/v1/projects/-/serviceAccounts/target@p.example:generateAccessToken"
#define DATE "Date: Sun, 09 Sep 2001 01:46:40 GMT\r\n"

static const struct rg_token_route source = {.path = "/token", .body = TOKEN_ANSWER("src")};

static void test_the_source_asks_for_the_target(void)
{
    const struct rg_token_route routes[] = {
        source,
        {.path = TARGET,
         .method = "POST",
         .fields = DATE,
         .body = "{\"accessToken\":\"imp#\",\"expireTime\":\"2001-09-09T02:16:40Z\"}"}};
    struct token_case c;
    token_case_open(&c, routes, 2);
    token_case_file(&c, IMPERSONATED(",\"delegates\":[\"d1\",\"d2\"],\"scopes\":[\"a\",\"b\"]"));
    RG_CHECK_STR(c.config->account, "target@p.example");
    token_case_expect(&c, NULL, "imp1");
    /* Half an hour by the server's clock, whatever ours says. */
    RG_CHECK(token_case_life(&c) > 1790 && token_case_life(&c) <= 1800);
    const char *asked = token_case_asked(&c, 0);
    RG_CHECK_CONTAINS(asked, "\r\nAuthorization: Bearer src\r\n");
    RG_CHECK_CONTAINS(asked, "\r\n\r\n{\"delegates\":[\"d1\",\"d2\"],\"scope\":[\"a\",\"b\"],"
                             "\"lifetime\":\"3600s\"}");
    token_case_expect(&c, "one two", "imp2");
    RG_CHECK_CONTAINS(token_case_asked(&c, 0), "\"scope\":[\"one\",\"two\"]");
    /* The user's own token is asked for without the scopes of the target. */
    RG_CHECK(strstr(token_case_asked(&c, 1), "scope=") == NULL);
    token_case_close(&c);
}

static void test_without_a_date_the_lifetime_asked_for_counts(void)
{
    const struct rg_token_route routes[] = {
        source,
        {.path = TARGET,
         .body = "{\"accessToken\":\"t\",\"expireTime\":\"2001-09-09T02:16:40Z\"}"}};
    struct token_case c;
    token_case_open(&c, routes, 2);
    token_case_file(&c, IMPERSONATED(""));
    token_case_expect(&c, NULL, "t");
    RG_CHECK(token_case_life(&c) > 3590 && token_case_life(&c) <= 3600);
    token_case_close(&c);
}

static void check_fails(const struct rg_token_route *target, int want, const char *part)
{
    const struct rg_token_route routes[] = {source, *target};
    struct token_case c;
    token_case_open(&c, routes, 2);
    token_case_file(&c, IMPERSONATED(""));
    RG_CHECK_EQ(token_case_obtain(&c, NULL), want);
    RG_CHECK_CONTAINS(c.run.text, part);
    token_case_close(&c);
}

static void test_answers_that_are_of_no_use(void)
{
    check_fails(&(struct rg_token_route){.path = TARGET,
                                         .status = 403,
                                         .body =
                                             "{\"error\":{\"code\":403,\"message\":\"Permission "
                                             "iam.serviceAccounts.getAccessToken denied\"}}"},
                -EACCES, "getAccessToken denied");
    check_fails(&(struct rg_token_route){.path = TARGET, .body = "[]"}, -EBADMSG, "accessToken");
    check_fails(&(struct rg_token_route){.path = TARGET,
                                         .body = "{\"accessToken\":\"t\",\"expireTime\":\"soon\"}"},
                -EBADMSG, "expireTime");
    check_fails(&(struct rg_token_route){.path = TARGET,
                                         .fields = DATE,
                                         .body = "{\"accessToken\":\"t\",\"expireTime\":"
                                                 "\"2001-09-09T01:46:40Z\"}"},
                -EBADMSG, "no time ahead");
}

static void test_a_source_that_fails_is_the_cause(void)
{
    const struct rg_token_route routes[] = {
        {.path = "/token", .status = 400, .body = "{\"error\":\"invalid_grant\"}"}};
    struct token_case c;
    token_case_open(&c, routes, 1);
    token_case_file(&c, IMPERSONATED(""));
    RG_CHECK_EQ(token_case_obtain(&c, NULL), -EACCES);
    RG_CHECK_CONTAINS(c.run.text, "invalid_grant");
    RG_CHECK_EQ(rg_token_server_count(c.server), 1);
    token_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_source_asks_for_the_target),
        RG_TEST(test_without_a_date_the_lifetime_asked_for_counts),
        RG_TEST(test_answers_that_are_of_no_use),
        RG_TEST(test_a_source_that_fails_is_the_cause),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
