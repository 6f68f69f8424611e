/* URLs of proxies, lists of exceptions, the environment, and the request for a tunnel. */
#include "http/proxy.h"
#include "tests/support/test.h"

static void test_urls(void)
{
    static const struct {
        const char *text, *name, *authorization;
        bool is_tls;
    } rows[] = {
        {"http://proxy.example:3128", "http://proxy.example:3128", "", false},
        {"proxy.example:3128", "http://proxy.example:3128", "", false},
        {"proxy.example", "http://proxy.example:80", "", false},
        {"https://proxy.example/", "https://proxy.example:443", "", true},
        {"HTTPS://proxy.example:1", "https://proxy.example:1", "", true},
        {"http://[::1]:3128", "http://[::1]:3128", "", false},
        /* RFC 7617 section 2. */
        {"http://Aladdin:open%20sesame@p:1", "http://p:1",
         "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", false},
        {"http://user@p:1", "http://p:1", "Basic dXNlcjo=", false},
        {"http://a:b%40c%3Ad@p:1", "http://p:1", "Basic YTpiQGM6ZA==", false},
        {"http://a:b@c@p:1", "http://p:1", "Basic YTpiQGM=", false},
        {"a:b@p:1", "http://p:1", "Basic YTpi", false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_proxy proxy;
        RG_CHECK_EQ(rg_proxy_parse(&proxy, rows[i].text), 0);
        RG_CHECK_STR(proxy.name, rows[i].name);
        RG_CHECK_STR(proxy.authorization, rows[i].authorization);
        RG_CHECK_EQ(proxy.is_tls, rows[i].is_tls);
        rg_proxy_fini(&proxy);
        RG_CHECK_STR(proxy.authorization, "");
    }
}

static void test_urls_that_are_refused(void)
{
    char long_user[RG_PROXY_CREDENTIALS_SIZE_MAX + 32];
    memset(long_user, 'u', sizeof(long_user));
    strcpy(long_user + sizeof(long_user) - 10, "@p:1");
    const char *const texts[] = {
        "",        "socks5://p:1", "http://", "http://p:0", "http://p:1/path", "http://a:b%4@p:1",
        "ftp://p", "http://p q:1", long_user,
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        struct rg_proxy proxy = {.port = 7};
        RG_CHECK_EQ(rg_proxy_parse(&proxy, texts[i]), -EINVAL);
        RG_CHECK_EQ(proxy.port, 7);
    }
}

static void test_lists_of_exceptions(void)
{
    static const struct {
        const char *list, *host;
        bool named;
    } rows[] = {
        {"", "storage.googleapis.com", false},
        {"*", "storage.googleapis.com", true},
        {"googleapis.com", "storage.googleapis.com", true},
        {".googleapis.com", "storage.googleapis.com", true},
        {"*.googleapis.com", "storage.googleapis.com", true},
        {"GoogleAPIs.com", "storage.googleapis.com", true},
        {"oogleapis.com", "storage.googleapis.com", false},
        {"storage.googleapis.com.evil", "storage.googleapis.com", false},
        {"a, b ,storage.googleapis.com", "storage.googleapis.com", true},
        {"storage.googleapis.com:443", "storage.googleapis.com", true},
        {"storage.googleapis.com:80", "storage.googleapis.com", false},
        {"10.0.0.0/8", "10.1.2.3", true},
        {"10.0.0.0/8", "11.1.2.3", false},
        {"10.0.0.128/25", "10.0.0.127", false},
        {"10.0.0.128/25", "10.0.0.128", true},
        {"10.0.0.1", "10.0.0.1", true},
        {"10.0.0.1", "10.0.0.10", false},
        {"0.1", "10.0.0.1", false},
        {"10.0.0.0/40", "10.0.0.0", false},
        {"10.0.0.0/x", "10.0.0.0", false},
        {"fd00::/8", "fd12::1", true},
        {"fd00::/8", "fe12::1", false},
        {"::1", "::1", true},
        {"[::1]:443", "::1", true},
        {"[::1]:80", "::1", false},
        {"0.0.0.0/0", "10.0.0.1", true},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        if (rg_proxy_list_names(rows[i].list, rows[i].host, 443) != rows[i].named) {
            rg_test_fail(__FILE__, __LINE__, "\"%s\" and %s", rows[i].list, rows[i].host);
        }
    }
    static const char *const local[] = {"localhost", "a.localhost", "127.0.0.1", "127.9.9.9",
                                        "::1"};
    static const char *const remote[] = {"localhost.example", "128.0.0.1", "::2", "xlocalhost"};
    for (size_t i = 0; i < RG_ARRAY_LEN(local); i++) {
        RG_CHECK(rg_proxy_host_is_local(local[i]));
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(remote); i++) {
        RG_CHECK(!rg_proxy_host_is_local(remote[i]));
    }
}

static void test_the_environment(void)
{
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"};
    const char *name;
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        unsetenv(names[i]);
    }
    RG_CHECK(rg_proxy_environment("h.example", 443, &name) == NULL);
    setenv("HTTPS_PROXY", "upper:1", 1);
    RG_CHECK_STR(rg_proxy_environment("h.example", 443, &name), "upper:1");
    RG_CHECK_STR(name, "HTTPS_PROXY");
    RG_CHECK(rg_proxy_environment("localhost", 443, &name) == NULL);
    setenv("https_proxy", "lower:1", 1);
    RG_CHECK_STR(rg_proxy_environment("h.example", 443, &name), "lower:1");
    RG_CHECK_STR(name, "https_proxy");
    setenv("NO_PROXY", "h.example", 1);
    RG_CHECK(rg_proxy_environment("h.example", 443, &name) == NULL);
    setenv("no_proxy", "other", 1);
    RG_CHECK(rg_proxy_environment("h.example", 443, &name) != NULL);
    setenv("https_proxy", "", 1);
    RG_CHECK(rg_proxy_environment("h.example", 443, &name) == NULL);
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        unsetenv(names[i]);
    }
}

static void test_the_request_for_a_tunnel(void)
{
    struct rg_proxy proxy;
    char target[RG_PROXY_TARGET_SIZE_MAX], request[RG_PROXY_REQUEST_SIZE_MAX + 1];
    RG_CHECK_EQ(rg_proxy_parse(&proxy, "http://a:b@p:1"), 0);
    rg_proxy_target_format(target, "fd00::1", 443);
    RG_CHECK_STR(target, "[fd00::1]:443");
    int size = rg_proxy_encode(&proxy, target, request, sizeof(request) - 1);
    RG_CHECK(size > 0);
    request[size] = '\0';
    RG_CHECK_STR(request, "CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\n"
                          "Proxy-Authorization: Basic YTpi\r\n\r\n");
    RG_CHECK_EQ(rg_proxy_encode(&proxy, target, request, 20), -ENOSPC);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_urls),
        RG_TEST(test_urls_that_are_refused),
        RG_TEST(test_lists_of_exceptions),
        RG_TEST(test_the_environment),
        RG_TEST(test_the_request_for_a_tunnel),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
