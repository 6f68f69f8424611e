/* Which endpoint the options and the environment name. */
#include "gcs/network/endpoint.h"

#include "tests/support/test.h"

static struct rg_endpoint endpoint;
static char error[256];

static int resolve(const char *option, const char *environment, const char *connect_to)
{
    if (environment == NULL) {
        unsetenv("STORAGE_EMULATOR_HOST");
    } else {
        setenv("STORAGE_EMULATOR_HOST", environment, 1);
    }
    memset(&endpoint, '#', sizeof(endpoint));
    memset(error, 0, sizeof(error));
    return rg_endpoint_resolve(&endpoint, option, connect_to, error, sizeof(error));
}

static void test_without_anything_the_service_itself(void)
{
    static const char *const unset[] = {NULL, ""};
    for (size_t i = 0; i < RG_ARRAY_LEN(unset); i++) {
        RG_CHECK_EQ(resolve(NULL, unset[i], NULL), 0);
        RG_CHECK(endpoint.is_tls);
        RG_CHECK(!endpoint.is_emulator);
        RG_CHECK_EQ(endpoint.port, 443);
        RG_CHECK_EQ(endpoint.connect_port, 443);
        RG_CHECK_STR(endpoint.host, "storage.googleapis.com");
        RG_CHECK_STR(endpoint.connect_host, "storage.googleapis.com");
        RG_CHECK_STR(endpoint.authority, "storage.googleapis.com");
        RG_CHECK_STR(endpoint.text, "https://storage.googleapis.com");
    }
}

static void test_the_environment_names_an_emulator(void)
{
    RG_CHECK_EQ(resolve(NULL, "127.0.0.1:9000", NULL), 0);
    RG_CHECK(!endpoint.is_tls);
    RG_CHECK(endpoint.is_emulator);
    RG_CHECK_EQ(endpoint.port, 9000);
    RG_CHECK_STR(endpoint.host, "127.0.0.1");
    RG_CHECK_STR(endpoint.authority, "127.0.0.1:9000");

    RG_CHECK_EQ(resolve(NULL, "https://localhost:4443/", NULL), 0);
    RG_CHECK(endpoint.is_tls);
    RG_CHECK(endpoint.is_emulator);
}

static void test_the_option_wins(void)
{
    RG_CHECK_EQ(resolve("http://[::1]:8080/", "127.0.0.1:9000", NULL), 0);
    RG_CHECK(!endpoint.is_tls);
    RG_CHECK(!endpoint.is_emulator);
    RG_CHECK_EQ(endpoint.port, 8080);
    RG_CHECK_STR(endpoint.host, "::1");
    RG_CHECK_STR(endpoint.authority, "[::1]:8080");
    RG_CHECK_EQ(resolve("https://storage.example", "not an endpoint", NULL), 0);
}

static void test_connecting_elsewhere(void)
{
    static const struct {
        const char *connect_to, *host;
        uint16_t port;
    } cases[] = {
        {"199.36.153.8", "199.36.153.8", 443},         {"199.36.153.8:8443", "199.36.153.8", 8443},
        {"private.example:80", "private.example", 80}, {"[2001:db8::1]", "2001:db8::1", 443},
        {"[2001:db8::1]:444", "2001:db8::1", 444},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        RG_CHECK_EQ(resolve("https://storage.googleapis.com", NULL, cases[i].connect_to), 0);
        RG_CHECK_STR(endpoint.host, "storage.googleapis.com");
        RG_CHECK_STR(endpoint.authority, "storage.googleapis.com");
        RG_CHECK_EQ(endpoint.port, 443);
        RG_CHECK_STR(endpoint.connect_host, cases[i].host);
        RG_CHECK_EQ(endpoint.connect_port, cases[i].port);
    }
}

static void test_front_ends_for_private_networks(void)
{
    RG_CHECK_EQ(resolve("https://private.googleapis.com", NULL, NULL), 0);
    RG_CHECK_STR(endpoint.host, "storage.googleapis.com");
    RG_CHECK_STR(endpoint.authority, "storage.googleapis.com");
    RG_CHECK_STR(endpoint.connect_host, "private.googleapis.com");
    RG_CHECK_EQ(endpoint.connect_port, 443);
    RG_CHECK_EQ(resolve("https://Restricted.googleapis.com:8443", NULL, NULL), 0);
    RG_CHECK_STR(endpoint.host, "storage.googleapis.com");
    RG_CHECK_STR(endpoint.authority, "storage.googleapis.com:8443");
    RG_CHECK_STR(endpoint.connect_host, "Restricted.googleapis.com");
    RG_CHECK_EQ(endpoint.connect_port, 8443);
    RG_CHECK_EQ(resolve("https://private.googleapis.com", NULL, "10.0.0.1:444"), 0);
    RG_CHECK_STR(endpoint.host, "storage.googleapis.com");
    RG_CHECK_STR(endpoint.connect_host, "10.0.0.1");
    RG_CHECK_EQ(resolve("https://private.googleapis.com.example", NULL, NULL), 0);
    RG_CHECK_STR(endpoint.host, "private.googleapis.com.example");
}

static void test_what_is_no_endpoint_is_refused_by_its_source(void)
{
    static const char *const wrong[] = {
        "",    "host:0",       "host:port", "ho st",      "http://",
        "a@b", "https://h/?q", "[::1",      "host:99999", "https://u:secret@host"};
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        RG_CHECK_EQ(resolve(wrong[i], NULL, NULL), -EINVAL);
        RG_CHECK_EQ(endpoint.host[0], '#');
        RG_CHECK(strstr(error, "the endpoint is not valid") == error);
        RG_CHECK(strstr(error, "secret") == NULL);
    }
    RG_CHECK_EQ(resolve(NULL, "no endpoint", NULL), -EINVAL);
    RG_CHECK(strstr(error, "STORAGE_EMULATOR_HOST is not valid") == error);
}

static void test_an_error_names_what_is_wrong(void)
{
    RG_CHECK_EQ(resolve("ftp://host", NULL, NULL), -EINVAL);
    RG_CHECK_STR(error, "the endpoint has a scheme other than http and https: expected "
                        "https://HOST[:PORT], http://HOST[:PORT] or HOST:PORT");
    RG_CHECK_EQ(resolve("https://host/storage/v1/", NULL, NULL), -EINVAL);
    RG_CHECK(strstr(error, "the endpoint has a path, where Cloud Storage has none") == error);
    RG_CHECK_EQ(resolve(NULL, "localhost:4443/storage", NULL), -EINVAL);
    RG_CHECK(strstr(error, "STORAGE_EMULATOR_HOST has a path") == error);
}

static void test_what_cannot_be_connected_to_is_refused(void)
{
    static const char *const wrong[] = {"", "https://host", "host/path", "host/", "a b", "host:0"};
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        RG_CHECK_EQ(resolve(NULL, NULL, wrong[i]), -EINVAL);
        RG_CHECK(strstr(error, "connect_to is not valid") == error);
        RG_CHECK_EQ(endpoint.host[0], '#');
    }
}

static void test_long_texts_are_refused(void)
{
    char text[2 * RG_ENDPOINT_SIZE_MAX];
    for (size_t size = 200; size < sizeof(text); size += 7) {
        memset(text, 'a', size);
        text[size] = '\0';
        RG_CHECK_EQ(resolve(text, NULL, NULL), -EINVAL);
        memcpy(text, "host/", 5);
        RG_CHECK_EQ(resolve(text, NULL, NULL), -EINVAL);
        RG_CHECK_EQ(resolve("host", NULL, text), -EINVAL);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_without_anything_the_service_itself),
        RG_TEST(test_the_environment_names_an_emulator),
        RG_TEST(test_the_option_wins),
        RG_TEST(test_connecting_elsewhere),
        RG_TEST(test_front_ends_for_private_networks),
        RG_TEST(test_what_is_no_endpoint_is_refused_by_its_source),
        RG_TEST(test_an_error_names_what_is_wrong),
        RG_TEST(test_what_cannot_be_connected_to_is_refused),
        RG_TEST(test_long_texts_are_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
