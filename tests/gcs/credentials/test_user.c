/* Users' credentials: what is sent to the token server, and what is made of its answers. */
#include "tests/gcs/credentials/token_case.h"

#define USER                                                                                       \
    "{\"type\":\"authorized_user\",\"client_id\":\"id &1\",\"client_secret\":\"sec+ret\","         \
    "\"refresh_token\":\"1//refresh\",\"token_uri\":\"$/token\",\"account\":\"a@b.example\"}"
#define WORKFORCE                                                                                  \
    "{\"type\":\"external_account_authorized_user\",\"client_id\":\"id\",\"client_secret\":\"s:\"" \
    ",\"refresh_token\":\"r1\",\"token_url\":\"$/token\"}"

static void test_a_refresh_token_becomes_an_access_token(void)
{
    const struct rg_token_route routes[] = {
        {.path = "/token", .method = "POST", .body = TOKEN_ANSWER("ya29.#")}};
    struct token_case c;
    token_case_open(&c, routes, 1);
    token_case_file(&c, USER);
    token_case_expect(&c, NULL, "ya29.1");
    RG_CHECK(token_case_life(&c) > 3590 && token_case_life(&c) <= 3599);
    const char *asked = token_case_asked(&c, 0);
    RG_CHECK_CONTAINS(asked, "\r\nContent-Type: application/x-www-form-urlencoded\r\n");
    RG_CHECK_CONTAINS(asked, "\r\n\r\ngrant_type=refresh_token&client_id=id%20%261&client_secret="
                             "sec%2Bret&refresh_token=1%2F%2Frefresh");
    RG_CHECK(strstr(asked, "scope=") == NULL);
    token_case_expect(&c, "https://x/scope a", "ya29.2");
    RG_CHECK_CONTAINS(token_case_asked(&c, 0), "&scope=https%3A%2F%2Fx%2Fscope%20a");
    token_case_close(&c);
}

static void test_expires_in_may_be_a_string(void)
{
    const struct rg_token_route routes[] = {
        {.path = "/token", .body = "{\"access_token\":\"t\",\"expires_in\":\"120\"}"}};
    struct token_case c;
    token_case_open(&c, routes, 1);
    token_case_file(&c, USER);
    token_case_expect(&c, NULL, "t");
    RG_CHECK(token_case_life(&c) > 110 && token_case_life(&c) <= 120);
    token_case_close(&c);
}

static void test_a_new_refresh_token_replaces_the_old_one(void)
{
    const struct rg_token_route routes[] = {
        {.path = "/token",
         .body = "{\"access_token\":\"t\",\"expires_in\":60,\"refresh_token\":\"new#\"}"}};
    const char *const files[] = {USER, WORKFORCE};
    for (size_t i = 0; i < RG_ARRAY_LEN(files); i++) {
        struct token_case c;
        token_case_open(&c, routes, 1);
        token_case_file(&c, files[i]);
        token_case_expect(&c, NULL, "t");
        token_case_expect(&c, NULL, "t");
        RG_CHECK_CONTAINS(token_case_asked(&c, 0), "&refresh_token=new1");
        token_case_close(&c);
    }
}

static void test_a_revoked_grant_says_what_to_do(void)
{
    const struct rg_token_route routes[] = {
        {.path = "/token",
         .status = 400,
         .body = "{\"error\":\"invalid_grant\",\"error_description\":\"Token has been expired or "
                 "revoked.\"}"}};
    struct token_case c;
    token_case_open(&c, routes, 1);
    token_case_file(&c, USER);
    RG_CHECK_EQ(token_case_obtain(&c, NULL), -EACCES);
    RG_CHECK(c.run.fatal);
    RG_CHECK_CONTAINS(c.run.text, "invalid_grant: Token has been expired or revoked.");
    RG_CHECK_CONTAINS(c.run.text, "gcloud auth application-default login");
    RG_CHECK(strstr(c.run.text, "1//refresh") == NULL && strstr(c.run.text, "sec+ret") == NULL);
    /* It was not asked again: it would answer alike. */
    RG_CHECK_EQ(rg_token_server_count(c.server), 1);
    token_case_close(&c);
}

static void test_workforce_users_show_their_client_in_a_header(void)
{
    const struct rg_token_route routes[] = {{.path = "/token", .body = TOKEN_ANSWER("w")}};
    struct token_case c;
    token_case_open(&c, routes, 1);
    token_case_file(&c, WORKFORCE);
    token_case_expect(&c, NULL, "w");
    /* "id:s%3A" in base64. */
    RG_CHECK_CONTAINS(token_case_asked(&c, 0), "\r\nAuthorization: Basic aWQ6cyUzQQ==\r\n");
    RG_CHECK_CONTAINS(token_case_asked(&c, 0), "\r\n\r\ngrant_type=refresh_token&refresh_token=r1");
    token_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_refresh_token_becomes_an_access_token),
        RG_TEST(test_expires_in_may_be_a_string),
        RG_TEST(test_a_new_refresh_token_replaces_the_old_one),
        RG_TEST(test_a_revoked_grant_says_what_to_do),
        RG_TEST(test_workforce_users_show_their_client_in_a_header),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
