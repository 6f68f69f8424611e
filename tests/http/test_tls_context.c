/* Opening contexts: where trust comes from, and what is said about files that are no good. */
#include "http/tls_context.h"
#include "tests/support/certificates.h"
#include "tests/support/test.h"

#include <unistd.h>

static struct rg_test_certificate ca, leaf;
static char ca_path[RG_TEST_PATH_SIZE], key_path[RG_TEST_PATH_SIZE], junk_path[RG_TEST_PATH_SIZE];
static char message[512];

static int open_client(const struct rg_tls_client_options *options,
                       struct rg_tls_context **out_context)
{
    message[0] = '\0';
    return rg_tls_context_open_client(out_context, options, message, sizeof(message));
}

static int open_server(const char *cert, const char *key)
{
    struct rg_tls_context *context = NULL;
    struct rg_tls_server_options options = {cert, strlen(cert), key, strlen(key), false};
    message[0] = '\0';
    int ret = rg_tls_context_open_server(&context, &options, message, sizeof(message));
    RG_CHECK((ret == 0) == (context != NULL));
    rg_tls_context_close(context);
    return ret;
}

static void test_trust_from_a_named_file(void)
{
    struct rg_tls_context *context = NULL;
    struct rg_tls_client_options options = {.ca_file = ca_path};
    RG_CHECK_EQ(open_client(&options, &context), 0);
    RG_CHECK_STR(rg_tls_context_trust(context), ca_path);
    rg_tls_context_close(context);
}

static void test_trust_from_the_environment(void)
{
    struct rg_tls_context *context = NULL;
    struct rg_tls_client_options options = {0};
    setenv("SSL_CERT_FILE", ca_path, 1);
    RG_CHECK_EQ(open_client(&options, &context), 0);
    RG_CHECK_STR(rg_tls_context_trust(context), ca_path);
    rg_tls_context_close(context);

    setenv("SSL_CERT_FILE", "/nonexistent/ca.pem", 1);
    context = NULL;
    RG_CHECK_EQ(open_client(&options, &context), -ENOENT);
    RG_CHECK(context == NULL);
    RG_CHECK(strstr(message, "/nonexistent/ca.pem") != NULL);

    setenv("SSL_CERT_FILE", "", 1);
    setenv("SSL_CERT_DIR", "/tmp", 1);
    RG_CHECK_EQ(open_client(&options, &context), 0);
    RG_CHECK_STR(rg_tls_context_trust(context), "/tmp");
    rg_tls_context_close(context);
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
}

static void test_trust_from_the_platform_or_a_hint(void)
{
    struct rg_tls_context *context = NULL;
    struct rg_tls_client_options options = {0};
    int ret = open_client(&options, &context);
    if (ret == -ENOENT) {
        RG_CHECK(strstr(message, "ca-certificates") != NULL);
        RG_CHECK(strstr(message, "SSL_CERT_FILE") != NULL);
        return;
    }
    RG_CHECK_EQ(ret, 0);
    RG_CHECK(rg_tls_context_trust(context)[0] == '/');
    rg_tls_context_close(context);
}

static void test_trust_that_is_no_pem_is_refused(void)
{
    struct rg_tls_context *context = NULL;
    struct rg_tls_client_options options = {.ca_file = junk_path};
    RG_CHECK_EQ(open_client(&options, &context), -EINVAL);
    RG_CHECK(strstr(message, junk_path) != NULL);
    options = (struct rg_tls_client_options){.ca_dir = junk_path};
    RG_CHECK_EQ(open_client(&options, &context), -ENOENT);
    RG_CHECK(strstr(message, "not a directory") != NULL);
    RG_CHECK(context == NULL);
}

static void test_client_certificates_need_a_matching_key(void)
{
    struct rg_tls_context *context = NULL;
    struct rg_tls_client_options options = {.ca_file = ca_path, .cert_file = ca_path};
    RG_CHECK_EQ(open_client(&options, &context), -EINVAL);
    RG_CHECK(strstr(message, "both") != NULL);
    options.key_file = "/nonexistent/key.pem";
    RG_CHECK_EQ(open_client(&options, &context), -ENOENT);
    RG_CHECK(strstr(message, "/nonexistent/key.pem") != NULL);
    options.key_file = key_path; /* the leaf's key with the authority's certificate */
    RG_CHECK_EQ(open_client(&options, &context), -EINVAL);
    RG_CHECK(strstr(message, "do not work together") != NULL);
    RG_CHECK(context == NULL);
}

static void test_server_pem_is_checked(void)
{
    RG_CHECK_EQ(open_server(leaf.cert_pem, leaf.key_pem), 0);
    RG_CHECK_EQ(open_server("nothing", leaf.key_pem), -EINVAL);
    RG_CHECK(strstr(message, "no certificate") != NULL);
    RG_CHECK_EQ(open_server(leaf.cert_pem, "nothing"), -EINVAL);
    RG_CHECK(strstr(message, "no private key") != NULL);
    RG_CHECK_EQ(open_server(leaf.cert_pem, ca.key_pem), -EINVAL);
    RG_CHECK(strstr(message, "do not work together") != NULL);
    RG_CHECK_EQ(open_server("", ""), -EINVAL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_trust_from_a_named_file),
        RG_TEST(test_trust_from_the_environment),
        RG_TEST(test_trust_from_the_platform_or_a_hint),
        RG_TEST(test_trust_that_is_no_pem_is_refused),
        RG_TEST(test_client_certificates_need_a_matching_key),
        RG_TEST(test_server_pem_is_checked),
    };
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
    rg_test_certificate_make(
        &ca, &(struct rg_test_certificate_spec){.common_name = "Test CA", .authority = true});
    rg_test_certificate_make(
        &leaf, &(struct rg_test_certificate_spec){.common_name = "leaf", .issuer = &ca});
    rg_test_file_make(ca.cert_pem, ca_path);
    rg_test_file_make(leaf.key_pem, key_path);
    rg_test_file_make("not a certificate\n", junk_path);
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    unlink(ca_path);
    unlink(key_path);
    unlink(junk_path);
    rg_test_certificate_free(&leaf);
    rg_test_certificate_free(&ca);
    return ret;
}
