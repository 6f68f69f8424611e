/* The metadata server: where it is looked for, what it is asked, and machines that have none. */
#include "tests/gcs/credentials/token_case.h"

#define TOKEN_PATH "/computeMetadata/v1/instance/service-accounts/default/token"
#define FLAVOR "Metadata-Flavor: Google\r\n"

struct metadata_case {
    struct rg_token_server *server;
    struct token_case c; /* config, run and token of it */
    char host[64];
};

static void case_open(struct metadata_case *m, const struct rg_token_route *routes, size_t count,
                      const char *variable)
{
    *m = (struct metadata_case){0};
    struct rg_token_server_options options = {.routes = routes, .route_count = count};
    m->server = rg_token_server_start(&options);
    snprintf(m->host, sizeof(m->host), "127.0.0.1:%u", rg_token_server_port(m->server));
    setenv(variable, m->host, 1);
    RG_CHECK_EQ(rg_secret_arena_init(&m->c.arena, RG_MIB(1)), 0);
    m->c.reader = (struct rg_credentials_reader){.arena = &m->c.arena, .path = "environment"};
    m->c.config = rg_credentials_from_metadata(&m->c.reader);
    RG_CHECK(m->c.config != NULL);
    unsetenv(variable);
}

static void case_close(struct metadata_case *m)
{
    token_case_run_end(&m->c);
    rg_secret_arena_fini(&m->c.arena);
    rg_token_server_stop(m->server);
}

static void test_a_token_of_the_machine(void)
{
    const struct rg_token_route routes[] = {
        {.path = TOKEN_PATH, .method = "GET", .fields = FLAVOR, .body = TOKEN_ANSWER("m#")}};
    static const char *const variables[] = {"GCE_METADATA_HOST", "GCE_METADATA_ROOT"};
    /* The way to it is never a proxy's: this one would be an error if it were looked at. */
    setenv("HTTPS_PROXY", "x://none", 1);
    for (size_t i = 0; i < RG_ARRAY_LEN(variables); i++) {
        struct metadata_case m;
        case_open(&m, routes, 1, variables[i]);
        token_case_expect(&m.c, NULL, "m1");
        RG_CHECK(token_case_life(&m.c) > 3590);
        const char *asked = rg_token_server_request(m.server, 0);
        RG_CHECK_CONTAINS(asked, "GET " TOKEN_PATH " HTTP/1.1\r\n");
        RG_CHECK_CONTAINS(asked, "\r\nMetadata-Flavor: Google\r\n");
        token_case_expect(&m.c, "a b", "m2");
        RG_CHECK_CONTAINS(rg_token_server_request(m.server, 1), TOKEN_PATH "?scopes=a,b HTTP");
        case_close(&m);
    }
    unsetenv("HTTPS_PROXY");
}

static void test_a_server_that_is_not_ready_yet(void)
{
    const struct rg_token_route routes[] = {{.path = TOKEN_PATH,
                                             .fields = FLAVOR,
                                             .body = "{\"access_token\":\"late\"}",
                                             .fail_first = 5,
                                             .fail_status = 503}};
    struct metadata_case m;
    case_open(&m, routes, 1, "GCE_METADATA_HOST");
    token_case_expect(&m.c, NULL, "late");
    RG_CHECK_EQ(rg_token_server_count(m.server), 6);
    case_close(&m);
}

static void test_something_else_that_answers_there(void)
{
    const struct rg_token_route routes[] = {{.path = TOKEN_PATH, .body = TOKEN_ANSWER("evil")}};
    struct metadata_case m;
    case_open(&m, routes, 1, "GCE_METADATA_HOST");
    RG_CHECK_EQ(token_case_obtain(&m.c, NULL), -EBADMSG);
    RG_CHECK_CONTAINS(m.c.run.text, "Metadata-Flavor");
    case_close(&m);
}

static void test_a_machine_without_an_account(void)
{
    const struct rg_token_route routes[] = {
        {.path = TOKEN_PATH, .status = 404, .fields = FLAVOR, .body = "no service account"}};
    struct metadata_case m;
    case_open(&m, routes, 1, "GCE_METADATA_HOST");
    RG_CHECK_EQ(token_case_obtain(&m.c, NULL), -EACCES);
    RG_CHECK(m.c.run.fatal);
    RG_CHECK_CONTAINS(m.c.run.text, "404: no service account");
    case_close(&m);
}

static void test_a_machine_that_is_not_googles(void)
{
    /* Somebody answers at the address, but is no metadata server. */
    const struct rg_token_route routes[] = {{.path = "/", .body = "hello"}};
    struct metadata_case m;
    case_open(&m, routes, 1, "GCE_METADATA_IP");
    if (m.c.config->metadata_is_certain) {
        case_close(&m);
        rg_test_skip("this machine is one of Google's");
    }
    RG_CHECK_EQ(token_case_obtain(&m.c, NULL), -ENOENT);
    RG_CHECK_CONTAINS(m.c.run.text, "GOOGLE_APPLICATION_CREDENTIALS is not set");
    RG_CHECK_CONTAINS(m.c.run.text, "anonymous");
    RG_CHECK_CONTAINS(rg_token_server_request(m.server, 0), "GET / HTTP/1.1\r\n");
    case_close(&m);
}

static void test_detection_comes_before_the_token(void)
{
    const struct rg_token_route routes[] = {
        {.path = "/", .fields = FLAVOR},
        {.path = TOKEN_PATH, .fields = FLAVOR, .body = TOKEN_ANSWER("found")}};
    struct metadata_case m;
    case_open(&m, routes, 2, "GCE_METADATA_IP");
    m.c.config->metadata_is_certain = false;
    /* Found there; the token comes from the host with the name, which the test has as the same. */
    m.c.config->metadata_host = m.host;
    token_case_expect(&m.c, NULL, "found");
    RG_CHECK_EQ(rg_token_server_count(m.server), 2);
    RG_CHECK_CONTAINS(rg_token_server_request(m.server, 1), TOKEN_PATH);
    case_close(&m);
}

static void test_settings_of_the_environment(void)
{
    struct rg_secret_arena arena;
    RG_CHECK_EQ(rg_secret_arena_init(&arena, RG_MIB(1)), 0);
    struct rg_credentials_reader reader = {.arena = &arena, .path = "x"};
    setenv("GCE_METADATA_TIMEOUT", "7", 1);
    setenv("GCE_METADATA_DETECT_RETRIES", "nonsense", 1);
    setenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "cloud.example", 1);
    struct rg_credentials_config *config = rg_credentials_from_metadata(&reader);
    RG_CHECK_EQ(config->metadata_timeout_ns, 7 * RG_NS_PER_S);
    RG_CHECK_EQ(config->metadata_detect_tries, 3);
    RG_CHECK_STR(config->universe, "cloud.example");
    RG_CHECK_STR(config->metadata_ip, "169.254.169.254");
    RG_CHECK_STR(config->metadata_host, "metadata.google.internal");
    unsetenv("GCE_METADATA_TIMEOUT");
    unsetenv("GCE_METADATA_DETECT_RETRIES");
    unsetenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN");
    rg_secret_arena_fini(&arena);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_token_of_the_machine),
        RG_TEST(test_a_server_that_is_not_ready_yet),
        RG_TEST(test_something_else_that_answers_there),
        RG_TEST(test_a_machine_without_an_account),
        RG_TEST(test_a_machine_that_is_not_googles),
        RG_TEST(test_detection_comes_before_the_token),
        RG_TEST(test_settings_of_the_environment),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
