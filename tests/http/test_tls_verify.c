/* Certificates that must be refused, each with its cause, and those that must not. */
#include "http/tls.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <unistd.h>

static struct rg_test_pki pki;
static struct rg_tls_context *client_context;
static struct rg_test_end client, server;

/* Connects to `host` at a server that shows `leaf`. The client's failure. */
static enum rg_tls_failure connect_as(const char *host, const struct rg_test_certificate *leaf)
{
    struct rg_tls_peer peer;
    struct rg_tls_context *server_context = rg_test_server_context(leaf);
    rg_test_end_reset(&client);
    rg_test_end_reset(&server);
    RG_CHECK_EQ(rg_tls_peer_init(&peer, client_context, host), 0);
    RG_CHECK_EQ(rg_tls_init_client(&client.tls, &client.loop, &peer), 0);
    RG_CHECK_EQ(rg_tls_init_server(&server.tls, &server.loop, server_context), 0);
    int ret = rg_test_shake_ours(&client, &server);
    enum rg_tls_failure failure = client.tls.failure;
    RG_CHECK_EQ(ret, failure == RG_TLS_FAILURE_NONE ? 0 : -EPROTO);
    if (failure != RG_TLS_FAILURE_NONE) {
        printf("  %s: %s\n", rg_tls_failure_name(failure), rg_tls_failure_text(&client.tls));
        /* The server is told by an alert, and names it. */
        struct rg_tls_in in = {client.out.data, client.out.size};
        RG_CHECK_EQ(rg_tls_handshake(&server.tls, &in, &server.out), -EPROTO);
        RG_CHECK(server.tls.failure == RG_TLS_FAILURE_REFUSED ||
                 server.tls.failure == RG_TLS_FAILURE_ALERT);
    }
    rg_tls_fini(&server.tls);
    rg_tls_context_close(server_context);
    rg_tls_peer_fini(&peer);
    return failure;
}

/* The same with a leaf that is made for it. The client's text is in client.tls.failure_text. */
static enum rg_tls_failure connect_with(const char *host,
                                        const struct rg_test_certificate_spec *spec)
{
    struct rg_test_certificate leaf;
    rg_test_certificate_make(&leaf, spec);
    enum rg_tls_failure failure = connect_as(host, &leaf);
    rg_test_certificate_free(&leaf);
    return failure;
}

/* Returns owned. */
static char *join(const char *first, const char *second)
{
    size_t size = strlen(first) + strlen(second) + 1;
    char *text = malloc(size);
    RG_ASSERT(text != NULL);
    snprintf(text, size, "%s%s", first, second);
    return text;
}

static void check_text(const char *part)
{
    if (strstr(client.tls.failure_text, part) == NULL) {
        rg_test_fail(__FILE__, __LINE__, "\"%s\" is not in \"%s\"", part, client.tls.failure_text);
    }
}

static void test_names_and_addresses_that_match(void)
{
    static const char *const hosts[] = {"localhost", "LOCALHOST", "a.example",      "a.example.",
                                        "127.0.0.1", "::1",       "0:0:0:0:0:0:0:1"};
    for (size_t i = 0; i < RG_ARRAY_LEN(hosts); i++) {
        RG_CHECK_EQ(connect_as(hosts[i], &pki.leaf), RG_TLS_FAILURE_NONE);
    }
}

static void test_a_wildcard_matches_one_label(void)
{
    struct rg_test_certificate_spec spec = {
        .common_name = "leaf", .alt_names = "DNS:*.storage.example", .issuer = &pki.ca};
    RG_CHECK_EQ(connect_with("b.storage.example", &spec), RG_TLS_FAILURE_NONE);
    RG_CHECK_EQ(connect_with("storage.example", &spec), RG_TLS_FAILURE_HOST_MISMATCH);
    RG_CHECK_EQ(connect_with("a.b.storage.example", &spec), RG_TLS_FAILURE_HOST_MISMATCH);
}

static void test_another_host(void)
{
    RG_CHECK_EQ(connect_as("b.example", &pki.leaf), RG_TLS_FAILURE_HOST_MISMATCH);
    check_text("certificate is for localhost, a.example");
    check_text("not for b.example");
    RG_CHECK_EQ(connect_as("127.0.0.2", &pki.leaf), RG_TLS_FAILURE_HOST_MISMATCH);
    check_text("not for 127.0.0.2");
}

static void test_the_common_name_is_no_host_name(void)
{
    struct rg_test_certificate_spec spec = {.common_name = "localhost", .issuer = &pki.ca};
    RG_CHECK_EQ(connect_with("localhost", &spec), RG_TLS_FAILURE_HOST_MISMATCH);
    check_text("no host at all");
}

static void test_expired(void)
{
    struct rg_test_certificate_spec spec = {.common_name = "leaf",
                                            .alt_names = "DNS:localhost",
                                            .issuer = &pki.ca,
                                            .not_before = -7200,
                                            .not_after = -3600};
    RG_CHECK_EQ(connect_with("localhost", &spec), RG_TLS_FAILURE_EXPIRED);
    check_text("certificate expired on 20");
}

static void test_not_yet_valid(void)
{
    struct rg_test_certificate_spec spec = {.common_name = "leaf",
                                            .alt_names = "DNS:localhost",
                                            .issuer = &pki.ca,
                                            .not_before = 3600,
                                            .not_after = 7200};
    RG_CHECK_EQ(connect_with("localhost", &spec), RG_TLS_FAILURE_NOT_YET_VALID);
    check_text("clock");
}

static void test_self_signed(void)
{
    struct rg_test_certificate_spec spec = {.common_name = "leaf", .alt_names = "DNS:localhost"};
    RG_CHECK_EQ(connect_with("localhost", &spec), RG_TLS_FAILURE_SELF_SIGNED);
    check_text("self-signed");
}

static void test_unknown_issuer(void)
{
    struct rg_test_certificate other;
    rg_test_certificate_make(
        &other, &(struct rg_test_certificate_spec){.common_name = "Other CA", .authority = true});
    struct rg_test_certificate_spec spec = {
        .common_name = "leaf", .alt_names = "DNS:localhost", .issuer = &other};
    RG_CHECK_EQ(connect_with("localhost", &spec), RG_TLS_FAILURE_UNKNOWN_ISSUER);
    check_text("unknown issuer CN=Other CA");
    check_text(pki.ca_path);

    /* The same with the unknown root in the chain. */
    struct rg_test_certificate leaf;
    rg_test_certificate_make(&leaf, &spec);
    char *chain = join(leaf.cert_pem, other.cert_pem), *alone = leaf.cert_pem;
    leaf.cert_pem = chain;
    RG_CHECK_EQ(connect_as("localhost", &leaf), RG_TLS_FAILURE_UNKNOWN_ISSUER);
    check_text("unknown issuer CN=Other CA");
    leaf.cert_pem = alone;
    free(chain);
    rg_test_certificate_free(&leaf);
    rg_test_certificate_free(&other);
}

static void test_an_issuer_with_a_trusted_name_and_another_key(void)
{
    struct rg_test_certificate twin;
    rg_test_certificate_make(
        &twin, &(struct rg_test_certificate_spec){.common_name = "Test CA", .authority = true});
    struct rg_test_certificate_spec spec = {
        .common_name = "leaf", .alt_names = "DNS:localhost", .issuer = &twin};
    RG_CHECK(connect_with("localhost", &spec) != RG_TLS_FAILURE_NONE);
    rg_test_certificate_free(&twin);
}

/* RFC 5280 section 7.1: letters of either case and any spaces are the same name. */
static void test_an_issuer_whose_name_is_in_other_bytes(void)
{
    struct rg_test_certificate twin, leaf;
    rg_test_certificate_make(
        &twin, &(struct rg_test_certificate_spec){.common_name = "TEST  ca", .authority = true});
    struct rg_test_certificate issuer = {.x509 = twin.x509, .key = pki.ca.key};
    rg_test_certificate_make(&leaf, &(struct rg_test_certificate_spec){.common_name = "leaf",
                                                                       .alt_names = "DNS:localhost",
                                                                       .issuer = &issuer});
    rg_tls_context_close(client_context); /* one that has no root in its store yet */
    client_context = rg_test_client_context(&pki, false);
    RG_CHECK_EQ(connect_as("localhost", &leaf), RG_TLS_FAILURE_NONE);
    rg_test_certificate_free(&leaf);
    rg_test_certificate_free(&twin);
}

/* Connects twice to one that shows `leaf`, trusting what is in `text` alone. */
static enum rg_tls_failure connect_trusting(const char *text,
                                            const struct rg_test_certificate *leaf)
{
    char path[RG_TEST_PATH_SIZE], error[256] = "";
    struct rg_tls_context *before = client_context;
    struct rg_tls_client_options options = {.ca_file = path};
    rg_test_file_make(text, path);
    RG_CHECK_EQ(rg_tls_context_open_client(&client_context, &options, error, sizeof(error)), 0);
    unlink(path);
    enum rg_tls_failure failure = connect_as("localhost", leaf);
    RG_CHECK_EQ(connect_as("localhost", leaf), failure);
    rg_tls_context_close(client_context);
    client_context = before;
    return failure;
}

static void test_the_issuer_is_one_of_many(void)
{
    struct rg_test_certificate others[3], leaf;
    rg_test_certificate_make(&leaf, &(struct rg_test_certificate_spec){.common_name = "leaf",
                                                                       .alt_names = "DNS:localhost",
                                                                       .issuer = &pki.ca,
                                                                       .names_key = true});
    static const char *const names[] = {"Test CA", "Other CA", "Test CA"};
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        rg_test_certificate_make(&others[i], &(struct rg_test_certificate_spec){
                                                 .common_name = names[i], .authority = true});
    }
    char *some = join(others[0].cert_pem, others[1].cert_pem);
    char *without = join(some, others[2].cert_pem), *with = join(some, pki.ca.cert_pem);
    RG_CHECK_EQ(connect_trusting(with, &leaf), RG_TLS_FAILURE_NONE);
    RG_CHECK_EQ(connect_trusting(without, &leaf), RG_TLS_FAILURE_UNKNOWN_ISSUER);
    RG_CHECK_EQ(connect_trusting(others[1].cert_pem, &leaf), RG_TLS_FAILURE_UNKNOWN_ISSUER);
    free(with);
    free(without);
    free(some);
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        rg_test_certificate_free(&others[i]);
    }
    rg_test_certificate_free(&leaf);
}

/* Two authorities whose names are the same in other bytes: which of them a chain is built over is
 * BoringSSL's choice, by the order of the whole bundle, whichever was needed before. */
static void test_two_issuers_of_one_name_in_other_bytes(void)
{
    struct rg_test_certificate twin, leaf;
    rg_test_certificate_make(
        &twin, &(struct rg_test_certificate_spec){.common_name = "TEST  ca", .authority = true});
    struct rg_test_certificate issuer = {.x509 = pki.ca.x509, .key = twin.key};
    rg_test_certificate_make(&leaf, &(struct rg_test_certificate_spec){.common_name = "leaf",
                                                                       .alt_names = "DNS:localhost",
                                                                       .issuer = &issuer});
    char *good_first = join(twin.cert_pem, pki.ca.cert_pem);
    char *good_last = join(pki.ca.cert_pem, twin.cert_pem);
    RG_CHECK_EQ(connect_trusting(good_first, &leaf), RG_TLS_FAILURE_NONE);
    RG_CHECK_EQ(connect_trusting(good_last, &pki.leaf), RG_TLS_FAILURE_NONE);
    RG_CHECK_EQ(connect_trusting(good_last, &leaf), RG_TLS_FAILURE_BAD_CERTIFICATE);
    RG_CHECK_EQ(connect_trusting(good_first, &pki.leaf), RG_TLS_FAILURE_BAD_CERTIFICATE);
    free(good_first);
    free(good_last);
    rg_test_certificate_free(&leaf);
    rg_test_certificate_free(&twin);
}

/* Its outline is a certificate's, but there is no version 10. */
static void test_a_root_that_cannot_be_parsed(void)
{
    static const uint8_t version[] = {0xa0, 3, 2, 1, 2};
    uint8_t *der = NULL;
    int size = i2d_X509(pki.ca.x509, &der);
    RG_ASSERT(size > 0);
    uint8_t *at = memmem(der, (size_t)size, version, sizeof(version));
    RG_ASSERT(at != NULL);
    at[4] = 9;
    BIO *bio = BIO_new(BIO_s_mem());
    const uint8_t *pem = NULL;
    size_t pem_size = 0;
    RG_ASSERT(PEM_write_bio(bio, "CERTIFICATE", "", der, size) > 0);
    RG_ASSERT(BIO_write(bio, "", 1) == 1 && BIO_mem_contents(bio, &pem, &pem_size) == 1);
    char *text = strdup((const char *)pem);
    RG_CHECK_EQ(connect_trusting(text, &pki.leaf), RG_TLS_FAILURE_UNKNOWN_ISSUER);
    check_text("of which 1 cannot be parsed");
    char *both = join(text, pki.ca.cert_pem);
    RG_CHECK_EQ(connect_trusting(both, &pki.leaf), RG_TLS_FAILURE_NONE);
    free(both);
    free(text);
    BIO_free(bio);
    OPENSSL_free(der);
}

static void test_a_leaf_cannot_issue(void)
{
    struct rg_test_certificate_spec spec = {
        .common_name = "leaf of a leaf", .alt_names = "DNS:localhost", .issuer = &pki.leaf};
    RG_CHECK(connect_with("localhost", &spec) != RG_TLS_FAILURE_NONE);
}

static void test_a_client_certificate_is_no_server_certificate(void)
{
    struct rg_test_certificate_spec spec = {.common_name = "leaf",
                                            .alt_names = "DNS:localhost",
                                            .issuer = &pki.ca,
                                            .for_clients = true};
    RG_CHECK_EQ(connect_with("localhost", &spec), RG_TLS_FAILURE_BAD_CERTIFICATE);
    check_text("purpose");
}

/* The server sends leaf and intermediate; with the leaf alone the issuer is unknown. */
static void test_a_chain_over_an_intermediate(void)
{
    struct rg_test_certificate middle, leaf;
    rg_test_certificate_make(&middle, &(struct rg_test_certificate_spec){.common_name = "Middle",
                                                                         .authority = true,
                                                                         .issuer = &pki.ca});
    rg_test_certificate_make(&leaf, &(struct rg_test_certificate_spec){.common_name = "leaf",
                                                                       .alt_names = "DNS:localhost",
                                                                       .issuer = &middle});
    RG_CHECK_EQ(connect_as("localhost", &leaf), RG_TLS_FAILURE_UNKNOWN_ISSUER);
    check_text("CN=Middle");
    char *chain = join(leaf.cert_pem, middle.cert_pem), *alone = leaf.cert_pem;
    leaf.cert_pem = chain;
    RG_CHECK_EQ(connect_as("localhost", &leaf), RG_TLS_FAILURE_NONE);
    leaf.cert_pem = alone;
    free(chain);
    rg_test_certificate_free(&leaf);
    rg_test_certificate_free(&middle);
}

static void test_names_that_are_no_text_are_made_printable(void)
{
    struct rg_test_certificate other;
    rg_test_certificate_make(&other, &(struct rg_test_certificate_spec){
                                         .common_name = "\x1b[31mred\n", .authority = true});
    struct rg_test_certificate_spec spec = {
        .common_name = "leaf", .alt_names = "DNS:localhost", .issuer = &other};
    RG_CHECK_EQ(connect_with("localhost", &spec), RG_TLS_FAILURE_UNKNOWN_ISSUER);
    check_text("CN=?[31mred?");
    rg_test_certificate_free(&other);
}

static void test_a_host_must_be_named(void)
{
    struct rg_tls_peer peer;
    char long_name[RG_TLS_HOST_SIZE + 1];
    memset(long_name, 'a', sizeof(long_name));
    long_name[RG_TLS_HOST_SIZE] = '\0';
    RG_CHECK_EQ(rg_tls_peer_init(&peer, client_context, ""), -EINVAL);
    RG_CHECK_EQ(rg_tls_peer_init(&peer, client_context, long_name), -EINVAL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_names_and_addresses_that_match),
        RG_TEST(test_a_wildcard_matches_one_label),
        RG_TEST(test_another_host),
        RG_TEST(test_the_common_name_is_no_host_name),
        RG_TEST(test_expired),
        RG_TEST(test_not_yet_valid),
        RG_TEST(test_self_signed),
        RG_TEST(test_unknown_issuer),
        RG_TEST(test_an_issuer_with_a_trusted_name_and_another_key),
        RG_TEST(test_an_issuer_whose_name_is_in_other_bytes),
        RG_TEST(test_the_issuer_is_one_of_many),
        RG_TEST(test_two_issuers_of_one_name_in_other_bytes),
        RG_TEST(test_a_root_that_cannot_be_parsed),
        RG_TEST(test_a_leaf_cannot_issue),
        RG_TEST(test_a_client_certificate_is_no_server_certificate),
        RG_TEST(test_a_chain_over_an_intermediate),
        RG_TEST(test_names_that_are_no_text_are_made_printable),
        RG_TEST(test_a_host_must_be_named),
    };
    rg_test_pki_init(&pki);
    client_context = rg_test_client_context(&pki, false);
    rg_test_end_init(&client);
    rg_test_end_init(&server);
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_test_end_fini(&client);
    rg_test_end_fini(&server);
    rg_tls_context_close(client_context);
    rg_test_pki_fini(&pki);
    return ret;
}
