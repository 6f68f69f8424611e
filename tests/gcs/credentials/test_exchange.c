/* Answers of token servers, good and bad, and the small parsers beside them. */
#include "tests/gcs/credentials/token_case.h"

#define USER                                                                                       \
    "{\"type\":\"authorized_user\",\"client_id\":\"i\",\"client_secret\":\"s\","                   \
    "\"refresh_token\":\"r\",\"token_uri\":\"$/token?key=hidden\"}"

static void check_answer(const struct rg_token_route *route, int want, bool fatal, const char *part)
{
    struct token_case c;
    token_case_open(&c, route, 1);
    token_case_file(&c, USER);
    RG_CHECK_EQ(token_case_obtain(&c, NULL), want);
    RG_CHECK_EQ(c.run.fatal, fatal);
    RG_CHECK_CONTAINS(c.run.text, part);
    RG_CHECK(strchr(c.run.text, '\n') == NULL && strstr(c.run.text, "hidden") == NULL);
    token_case_close(&c);
}

static void test_answers_without_a_usable_token(void)
{
    static const struct {
        const char *body, *part;
    } rows[] = {
        {"", "no JSON object"},
        {"<html>hello</html>", "no JSON object"},
        {"[1]", "no JSON object"},
        {"{\"access_token\":1,\"expires_in\":60}", "access_token"},
        {"{\"access_token\":\"\",\"expires_in\":60}", "access_token"},
        {"{\"access_token\":\"a b\",\"expires_in\":60}", "access_token"},
        {"{\"access_token\":\"a\\r\\nX: y\",\"expires_in\":60}", "access_token"},
        {"{\"access_token\":\"a\\u0000b\",\"expires_in\":60}", "access_token"},
        {"{\"access_token\":\"\xc3\xa9\",\"expires_in\":60}", "access_token"},
        {"{\"access_token\":\"a\",\"expires_in\":0}", "expires_in"},
        {"{\"access_token\":\"a\",\"expires_in\":-5}", "expires_in"},
        {"{\"access_token\":\"a\",\"expires_in\":\"soon\"}", "expires_in"},
        {"{\"access_token\":\"a\",\"expires_in\":{}}", "expires_in"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        const struct rg_token_route route = {.path = "/token", .body = rows[i].body};
        check_answer(&route, -EBADMSG, false, rows[i].part);
    }
}

static void test_a_token_that_is_too_large(void)
{
    char *body = malloc(RG_TOKEN_SIZE_MAX + 100);
    RG_CHECK(body != NULL);
    int size = sprintf(body, "{\"access_token\":\"");
    memset(body + size, 'x', RG_TOKEN_SIZE_MAX + 1);
    strcpy(body + size + RG_TOKEN_SIZE_MAX + 1, "\"}");
    check_answer(&(struct rg_token_route){.path = "/token", .body = body}, -EBADMSG, false,
                 "access_token");
    free(body);
}

static void test_refusals_are_told_by_status_and_word(void)
{
    check_answer(&(struct rg_token_route){.path = "/token", .status = 401, .body = "no"}, -EACCES,
                 true, "answered 401: no");
    check_answer(&(struct rg_token_route){.path = "/token",
                                          .status = 400,
                                          .body = "{\"error\":\"invalid_client\"}"},
                 -EACCES, true, "answered 400: invalid_client");
    check_answer(&(struct rg_token_route){.path = "/token", .status = 503}, -EACCES, false,
                 "answered 503");
    check_answer(&(struct rg_token_route){.path = "/token",
                                          .status = 302,
                                          .fields = "Location: /elsewhere\r\n"},
                 -EACCES, false, "answered 302");
    check_answer(
        &(struct rg_token_route){
            .path = "/token",
            .status = 400,
            .body = "{\"error\":\"e\",\"error_description\":\"two\\nlines\\u001b[2J\"}"},
        -EACCES, true, "two lines");
}

static void test_a_lifetime_that_is_missing_or_absurd(void)
{
    static const struct {
        const char *body;
        int64_t life_s;
    } rows[] = {{"{\"access_token\":\"t\"}", 3600},
                {"{\"access_token\":\"t\",\"expires_in\":999999999999}", 12 * 3600},
                {"{\"access_token\":\"t\",\"expires_in\":59.9}", 59}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        const struct rg_token_route route = {.path = "/token", .body = rows[i].body};
        struct token_case c;
        token_case_open(&c, &route, 1);
        token_case_file(&c, USER);
        token_case_expect(&c, NULL, "t");
        RG_CHECK(token_case_life(&c) <= rows[i].life_s &&
                 token_case_life(&c) > rows[i].life_s - 10);
        token_case_close(&c);
    }
}

static void test_a_certificate_that_is_not_trusted(void)
{
    const struct rg_token_route route = {.path = "/token", .body = TOKEN_ANSWER("t")};
    struct token_case c;
    token_case_open(&c, &route, 1);
    token_case_file(&c, USER);
    static const struct rg_test_certificate_spec stranger = {.common_name = "other",
                                                             .authority = true};
    struct rg_test_certificate other;
    char path[RG_TEST_PATH_SIZE];
    rg_test_certificate_make(&other, &stranger);
    rg_test_file_make(other.cert_pem, path);
    setenv("SSL_CERT_FILE", path, 1);
    RG_CHECK_EQ(token_case_obtain(&c, NULL), -EIO);
    RG_CHECK_CONTAINS(c.run.text, "certificate");
    RG_CHECK_EQ(rg_token_server_count(c.server), 0);
    rg_test_certificate_free(&other);
    unlink(path);
    token_case_close(&c);
}

static void test_times_of_rfc_3339(void)
{
    static const struct {
        const char *text;
        int64_t want;
    } rows[] = {
        {"2001-09-09T01:46:40Z", 1000000000},
        {"2001-09-09T01:46:40.123456789Z", 1000000000},
        {"2001-09-09T03:46:40+02:00", 1000000000},
        {"2001-09-08T20:46:40-05:00", 1000000000},
        {"", -1},
        {"2001-09-09", -1},
        {"2001-13-09T01:46:40Z", -1},
        {"2001-09-09T01:46:40", -1},
        {"2001-09-09T01:46:40Zx", -1},
        {"1969-12-31T23:59:59Z", -1},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(rg_rfc3339_parse(rows[i].text), rows[i].want);
    }
}

static void test_accounts_in_impersonation_urls(void)
{
    struct rg_secret_arena arena;
    RG_CHECK_EQ(rg_secret_arena_init(&arena, 4096), 0);
    RG_CHECK_STR(rg_impersonated_account(&arena, "https://x/y/a@b:generateAccessToken"), "a@b");
    RG_CHECK(rg_impersonated_account(&arena, "https://x/y/:generateAccessToken") == NULL);
    RG_CHECK(rg_impersonated_account(&arena, "https://x/y/a@b") == NULL);
    RG_CHECK(rg_impersonated_account(&arena, NULL) == NULL);
    rg_secret_arena_fini(&arena);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_answers_without_a_usable_token),
        RG_TEST(test_a_token_that_is_too_large),
        RG_TEST(test_refusals_are_told_by_status_and_word),
        RG_TEST(test_a_lifetime_that_is_missing_or_absurd),
        RG_TEST(test_a_certificate_that_is_not_trusted),
        RG_TEST(test_times_of_rfc_3339),
        RG_TEST(test_accounts_in_impersonation_urls),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
