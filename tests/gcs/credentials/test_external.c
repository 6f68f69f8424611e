/* External accounts: subject tokens from files, URLs and programs, their exchange, and what follows
 * it. */
#include "gcs/credentials/external.h"
#include "tests/gcs/credentials/token_case.h"

#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#define EXTERNAL(more, source)                                                                     \
    "{\"type\":\"external_account\",\"audience\":\"//iam/pool\",\"subject_token_type\":"           \
    "\"urn:ietf:params:oauth:token-type:jwt\",\"token_url\":\"$/sts\"" more                        \
    ",\"credential_source\":" source "}"
#define SWITCH "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES"
#define JWT_TYPE "urn:ietf:params:oauth:token-type:jwt"

static const struct rg_token_route sts = {.path = "/sts", .body = TOKEN_ANSWER("g#")};

/* A file whose name takes the place of "@" in a credential file. */
static void case_with_file(struct token_case *c, const struct rg_token_route *routes, size_t count,
                           const char *text, const char *path)
{
    char file[4096];
    size_t size = 0;
    for (; *text != '\0'; text++) {
        RG_CHECK(size + RG_TEST_PATH_SIZE < sizeof(file));
        if (*text == '@') {
            strcpy(file + size, path);
            size += strlen(path);
        } else {
            file[size++] = *text;
        }
    }
    file[size] = '\0';
    token_case_open(c, routes, count);
    token_case_file(c, file);
}

static void test_a_file_is_read_at_each_refresh(void)
{
    char path[RG_TEST_PATH_SIZE];
    rg_test_file_make("first\n", path);
    struct token_case c;
    case_with_file(&c, &sts, 1, EXTERNAL("", "{\"file\":\"@\"}"), path);
    token_case_expect(&c, NULL, "g1");
    RG_CHECK_CONTAINS(token_case_asked(&c, 0),
                      "\r\n\r\ngrant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange"
                      "&audience=%2F%2Fiam%2Fpool&scope=https%3A%2F%2Fwww.googleapis.com%2Fauth%2F"
                      "devstorage.full_control&requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3A"
                      "token-type%3Aaccess_token&subject_token=first&subject_token_type=urn%3Aietf"
                      "%3Aparams%3Aoauth%3Atoken-type%3Ajwt");
    FILE *file = fopen(path, "we");
    fputs("second", file);
    fclose(file);
    token_case_expect(&c, "scope-x", "g2");
    RG_CHECK_CONTAINS(token_case_asked(&c, 0), "&scope=scope-x&");
    RG_CHECK_CONTAINS(token_case_asked(&c, 0), "&subject_token=second&");
    unlink(path);
    RG_CHECK_EQ(token_case_obtain(&c, NULL), -ENOENT);
    RG_CHECK_CONTAINS(c.run.text, path);
    token_case_close(&c);
}

static void check_file(const char *contents, const char *source, const char *want)
{
    char path[RG_TEST_PATH_SIZE], file[512];
    rg_test_file_make(contents, path);
    snprintf(file, sizeof(file), EXTERNAL("", "%s"), source);
    struct token_case c;
    case_with_file(&c, &sts, 1, file, path);
    int rc = token_case_obtain(&c, NULL);
    if (want != NULL) {
        RG_CHECK_EQ(rc, 0);
        RG_CHECK_CONTAINS(token_case_asked(&c, 0), want);
    } else {
        RG_CHECK(rc < 0);
        RG_CHECK_CONTAINS(c.run.text, path);
        RG_CHECK_EQ(rg_token_server_count(c.server), 0);
    }
    unlink(path);
    token_case_close(&c);
}

static void test_formats_of_files(void)
{
    static const char json[] =
        "{\"file\":\"@\",\"format\":{\"type\":\"json\",\"subject_token_field_name\":\"tok\"}}";
    check_file("{\"tok\":\"inside\"}", json, "&subject_token=inside&");
    check_file("{\"other\":\"inside\"}", json, NULL);
    check_file("{\"tok\":7}", json, NULL);
    check_file("not json", json, NULL);
    check_file(" \n", "{\"file\":\"@\"}", NULL);
}

static void test_a_url_with_its_headers(void)
{
    const struct rg_token_route routes[] = {
        {.path = "/identity", .method = "GET", .body = "{\"access_token\":\"azure\"}"}, sts};
    struct token_case c;
    token_case_open(&c, routes, 2);
    token_case_file(&c,
                    EXTERNAL("", "{\"url\":\"$/identity?v=1\",\"headers\":{\"Metadata\":\"True\"},"
                                 "\"format\":{\"type\":\"json\",\"subject_token_field_name\":"
                                 "\"access_token\"}}"));
    token_case_expect(&c, NULL, "g1");
    RG_CHECK_CONTAINS(token_case_asked(&c, 1), "GET /identity?v=1 HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(token_case_asked(&c, 1), "\r\nMetadata: True\r\n");
    RG_CHECK_CONTAINS(token_case_asked(&c, 0), "&subject_token=azure&");
    token_case_close(&c);
}

static void test_impersonation_follows_the_exchange(void)
{
    const struct rg_token_route routes[] = {
        {.path = "/subject", .body = "s"},
        sts,
        {.path = "/v1/sa@p:generateAccessToken",
         .fields = "Date: Sun, 09 Sep 2001 01:46:40 GMT\r\n",
         .body = "{\"accessToken\":\"imp\",\"expireTime\":\"2001-09-09T01:56:40Z\"}"}};
    struct token_case c;
    token_case_open(&c, routes, 3);
    token_case_file(
        &c, EXTERNAL(",\"service_account_impersonation_url\":\"$/v1/sa@p:generateAccessToken\","
                     "\"service_account_impersonation\":{\"token_lifetime_seconds\":1200}",
                     "{\"url\":\"$/subject\"}"));
    token_case_expect(&c, NULL, "imp");
    RG_CHECK(token_case_life(&c) > 590 && token_case_life(&c) <= 600);
    RG_CHECK_CONTAINS(token_case_asked(&c, 1),
                      "&scope=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fiam&");
    RG_CHECK_CONTAINS(token_case_asked(&c, 0), "\r\nAuthorization: Bearer g1\r\n");
    RG_CHECK_CONTAINS(token_case_asked(&c, 0), "\"lifetime\":\"1200s\"");
    token_case_close(&c);
}

static void test_workforce_pools_name_who_pays(void)
{
    const struct rg_token_route routes[] = {{.path = "/subject", .body = "s"}, sts};
    struct token_case c;
    token_case_open(&c, routes, 2);
    token_case_file(
        &c, EXTERNAL(",\"workforce_pool_user_project\":\"payer\"", "{\"url\":\"$/subject\"}"));
    token_case_expect(&c, NULL, "g1");
    RG_CHECK_CONTAINS(token_case_asked(&c, 0), "&options=%7B%22userProject%22%3A%22payer%22%7D");
    token_case_close(&c);
}

/* A program, of which "@" is the name. */
static void script_make(const char *text, char *path)
{
    rg_test_file_make(text, path);
    RG_CHECK_EQ(chmod(path, 0700), 0);
}

static void check_program(const char *script, const char *source, int want, const char *part)
{
    char path[RG_TEST_PATH_SIZE], file[1024];
    script_make(script, path);
    snprintf(file, sizeof(file), EXTERNAL("", "%s"), source);
    struct token_case c;
    case_with_file(&c, &sts, 1, file, path);
    RG_CHECK_EQ(token_case_obtain(&c, NULL), want);
    RG_CHECK_CONTAINS(want == 0 ? token_case_asked(&c, 0) : c.run.text, part);
    unlink(path);
    token_case_close(&c);
}

#define SHELL "#!/bin/sh\n"

static void test_programs_run_without_a_shell(void)
{
    setenv(SWITCH, "1", 1);
    check_program(
        SHELL "[ \"$1\" = 'one word' ] && [ \"$GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE\" = "
              "//iam/pool ] && [ \"$GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE\" = 0 ] || exit 1\n"
              "printf '{\"version\":1,\"success\":true,\"token_type\":\"" JWT_TYPE
              "\",\"id_token\":\"of-program\"}'\n",
        "{\"executable\":{\"command\":\"@ 'one word' ;x\"}}", 0, "&subject_token=of-program&");
    unsetenv(SWITCH);
}

static void test_programs_need_permission(void)
{
    char path[RG_TEST_PATH_SIZE], mark[RG_TEST_PATH_SIZE + 8], script[256];
    rg_test_file_make("", path);
    snprintf(mark, sizeof(mark), "%s.ran", path);
    snprintf(script, sizeof(script), SHELL "touch %s\n", mark);
    static const char *const values[] = {NULL, "", "0", "true"};
    for (size_t i = 0; i < RG_ARRAY_LEN(values); i++) {
        unsetenv(SWITCH);
        if (values[i] != NULL) {
            setenv(SWITCH, values[i], 1);
        }
        check_program(script, "{\"executable\":{\"command\":\"@\"}}", -EPERM, SWITCH "=1");
        RG_CHECK(access(mark, F_OK) < 0);
    }
    unsetenv(SWITCH);
    unlink(path);
}

static void test_programs_that_fail(void)
{
    static const char source[] = "{\"executable\":{\"command\":\"@\"}}";
    setenv(SWITCH, "1", 1);
    check_program(SHELL "exit 3\n", source, -ECHILD, "failed");
    check_program(SHELL "echo nonsense\n", source, -EBADMSG, "version 1");
    check_program(SHELL "printf '{\"version\":1,\"success\":false,\"code\":\"401\",\"message\":"
                        "\"not logged in\"}'\n",
                  source, -EACCES, "401: not logged in");
    check_program(SHELL "printf '{\"version\":2,\"success\":true,\"token_type\":\"" JWT_TYPE
                        "\",\"id_token\":\"t\"}'\n",
                  source, -EBADMSG, "version 1");
    check_program(SHELL "printf '{\"version\":1,\"success\":true,\"token_type\":\"" JWT_TYPE
                        "\",\"id_token\":\"t\",\"expiration_time\":1000}'\n",
                  source, -EBADMSG, "expired");
    check_program(SHELL "exec head -c 100000 /dev/zero\n", source, -ECHILD, "too much");
    check_program("", "{\"executable\":{\"command\":\"/nowhere/at/all\"}}", -ENOENT, "/nowhere");
    unsetenv(SWITCH);
}

/* The time limit that a file may name is at least 5 s, so the config is changed here. */
static void test_programs_that_hang_are_ended(void)
{
    char path[RG_TEST_PATH_SIZE], pid_path[RG_TEST_PATH_SIZE + 8], script[256];
    setenv(SWITCH, "1", 1);
    rg_test_file_make("", path);
    snprintf(pid_path, sizeof(pid_path), "%s.pid", path);
    unlink(path);
    snprintf(script, sizeof(script), SHELL "echo $$ > %s\nsleep 1000\n", pid_path);
    script_make(script, path);
    struct token_case c;
    case_with_file(&c, &sts, 1, EXTERNAL("", "{\"executable\":{\"command\":\"@\"}}"), path);
    c.config->executable.timeout_ms = 500;
    RG_CHECK_EQ(token_case_obtain(&c, NULL), -ECHILD);
    RG_CHECK_CONTAINS(c.run.text, "in time");
    FILE *file = fopen(pid_path, "re");
    int pid = 0;
    if (file != NULL) { /* It may have been ended before it wrote this. */
        RG_CHECK(fscanf(file, "%d", &pid) < 1 || kill(pid, 0) < 0);
        fclose(file);
    }
    unlink(path);
    unlink(pid_path);
    token_case_close(&c);
    unsetenv(SWITCH);
}

static void test_an_output_file_that_is_still_good_saves_the_run(void)
{
    char cached[RG_TEST_PATH_SIZE], text[256], source[512];
    setenv(SWITCH, "1", 1);
    static const struct {
        int64_t ahead_s;
        bool used;
    } rows[] = {{600, true}, {-600, false}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        snprintf(text, sizeof(text),
                 "{\"version\":1,\"success\":true,\"token_type\":\"" JWT_TYPE
                 "\",\"id_token\":\"cached\",\"expiration_time\":%lld}",
                 (long long)(time(NULL) + rows[i].ahead_s));
        rg_test_file_make(text, cached);
        snprintf(source, sizeof(source),
                 "{\"executable\":{\"command\":\"@\",\"output_file\":\"%s\"}}", cached);
        check_program(SHELL "printf '{\"version\":1,\"success\":true,\"token_type\":\"" JWT_TYPE
                            "\",\"id_token\":\"run\"}'\n",
                      source, 0, rows[i].used ? "&subject_token=cached&" : "&subject_token=run&");
        unlink(cached);
    }
    unsetenv(SWITCH);
}

static void test_words_of_commands(void)
{
    static const struct {
        const char *text;
        int count;
        const char *last;
    } rows[] = {
        {"one", 1, "one"},         {"  a  b\tc ", 3, "c"}, {"a 'b c'", 2, "b c"},
        {"a \"b 'c\"", 2, "b 'c"}, {"a b\\ c", 2, "b c"},  {"a \"\\\"\\\\\"", 2, "\"\\"},
        {"a ''", 2, ""},           {"a b'c'd", 2, "bcd"},  {"a $(x) `y`", 3, "`y`"},
        {"", -EINVAL, NULL},       {"  ", -EINVAL, NULL},  {"a 'b", -EINVAL, NULL},
        {"a \"b", -EINVAL, NULL},  {"a \\", 2, "\\"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        char text[64], *words[RG_COMMAND_WORDS_MAX + 1];
        strcpy(text, rows[i].text);
        int count = rg_command_split(text, words);
        RG_CHECK_EQ(count, rows[i].count);
        if (count > 0) {
            RG_CHECK_STR(words[count - 1], rows[i].last);
            RG_CHECK(words[count] == NULL);
        }
    }
    char many[256] = "", *words[RG_COMMAND_WORDS_MAX + 1];
    for (unsigned i = 0; i <= RG_COMMAND_WORDS_MAX; i++) {
        strcat(many, "x ");
    }
    RG_CHECK_EQ(rg_command_split(many, words), -EINVAL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_file_is_read_at_each_refresh),
        RG_TEST(test_formats_of_files),
        RG_TEST(test_a_url_with_its_headers),
        RG_TEST(test_impersonation_follows_the_exchange),
        RG_TEST(test_workforce_pools_name_who_pays),
        RG_TEST(test_programs_run_without_a_shell),
        RG_TEST(test_programs_need_permission),
        RG_TEST(test_programs_that_fail),
        RG_TEST(test_programs_that_hang_are_ended),
        RG_TEST(test_an_output_file_that_is_still_good_saves_the_run),
        RG_TEST(test_words_of_commands),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
