/* The emulator's certificates, checked by BoringSSL's own verification. */
#include "emulator/certificate.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/ringest-test-XXXXXX");
    RG_CHECK(mkdtemp(folder) != NULL);
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void remove_folder(void)
{
    static const char *const names[] = {"ca.pem", "cert.pem", "key.pem"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        unlink(path_of(names[i]));
    }
    RG_CHECK_EQ(rmdir(folder), 0);
}

static struct rg_certificate *open_certificate(const char *where, const char *host)
{
    struct rg_certificate *certificate;
    char error[256] = "";
    if (rg_certificate_open(&certificate, where, host, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    return certificate;
}

static X509 *read_x509(BIO *bio)
{
    X509 *x509 = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    RG_CHECK(x509 != NULL);
    return x509;
}

static X509 *leaf_of(const struct rg_certificate *certificate)
{
    return read_x509(BIO_new_mem_buf(rg_certificate_chain_pem(certificate), -1));
}

static X509 *authority_of(const struct rg_certificate *certificate)
{
    return read_x509(BIO_new_file(rg_certificate_ca_path(certificate), "r"));
}

/* As a client verifies a server that it knows by `name`, at `when` (0: now). */
static bool verifies(X509 *leaf, X509 *authority, const char *name, bool is_ip, time_t when)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    RG_CHECK(X509_STORE_add_cert(store, authority));
    RG_CHECK(X509_STORE_CTX_init(context, store, leaf, NULL));
    X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(context);
    RG_CHECK(X509_STORE_CTX_set_default(context, "ssl_server"));
    X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
    if (is_ip) {
        RG_CHECK(X509_VERIFY_PARAM_set1_ip_asc(param, name));
    } else {
        RG_CHECK(X509_VERIFY_PARAM_set1_host(param, name, strlen(name)));
    }
    if (when != 0) {
        X509_VERIFY_PARAM_set_time_posix(param, when);
    }
    bool good = X509_verify_cert(context) == 1;
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    return good;
}

static void test_the_leaf_verifies_for_its_names_only(void)
{
    make_folder();
    struct rg_certificate *certificate = open_certificate(folder, "10.1.2.3");
    X509 *leaf = leaf_of(certificate), *authority = authority_of(certificate);
    RG_CHECK(verifies(leaf, authority, "localhost", false, 0));
    RG_CHECK(verifies(leaf, authority, "127.0.0.1", true, 0));
    RG_CHECK(verifies(leaf, authority, "::1", true, 0));
    RG_CHECK(verifies(leaf, authority, "10.1.2.3", true, 0));
    RG_CHECK(!verifies(leaf, authority, "10.1.2.4", true, 0));
    RG_CHECK(!verifies(leaf, authority, "example.com", false, 0));
    RG_CHECK(!verifies(leaf, leaf, "localhost", false, 0));
    X509_free(leaf);
    X509_free(authority);
    rg_certificate_close(certificate);
    remove_folder();
}

static void test_the_validity_is_a_year_from_yesterday(void)
{
    make_folder();
    struct rg_certificate *certificate = open_certificate(folder, NULL);
    X509 *leaf = leaf_of(certificate), *authority = authority_of(certificate);
    time_t now = time(NULL), day = 86400;
    RG_CHECK(verifies(leaf, authority, "localhost", false, now - day / 2));
    RG_CHECK(!verifies(leaf, authority, "localhost", false, now - 2 * day));
    RG_CHECK(verifies(leaf, authority, "localhost", false, now + 364 * day));
    RG_CHECK(!verifies(leaf, authority, "localhost", false, now + 366 * day));
    X509_free(leaf);
    X509_free(authority);
    rg_certificate_close(certificate);
    remove_folder();
}

static void test_only_the_authority_is_one(void)
{
    make_folder();
    struct rg_certificate *certificate = open_certificate(folder, NULL);
    X509 *leaf = leaf_of(certificate), *authority = authority_of(certificate);
    RG_CHECK_EQ(X509_check_ca(authority), 1);
    RG_CHECK_EQ(X509_check_ca(leaf), 0);
    RG_CHECK_EQ(X509_get_extension_flags(leaf) & (EXFLAG_CA | EXFLAG_BCONS), EXFLAG_BCONS);
    RG_CHECK_EQ(X509_get_key_usage(authority), X509v3_KU_KEY_CERT_SIGN | X509v3_KU_CRL_SIGN);
    RG_CHECK_EQ(X509_get_key_usage(leaf), X509v3_KU_DIGITAL_SIGNATURE);
    RG_CHECK_EQ(X509_get_extended_key_usage(leaf), XKU_SSL_SERVER);
    const ASN1_OCTET_STRING *authority_id = X509_get0_subject_key_id(authority);
    RG_CHECK(X509_get0_subject_key_id(leaf) != NULL);
    RG_CHECK_EQ(ASN1_STRING_cmp(X509_get0_authority_key_id(leaf), authority_id), 0);
    X509_free(leaf);
    X509_free(authority);
    rg_certificate_close(certificate);
    remove_folder();
}

static void test_the_key_is_private_and_belongs_to_the_leaf(void)
{
    struct stat status;
    make_folder();
    struct rg_certificate *certificate = open_certificate(folder, NULL);
    RG_CHECK_EQ(stat(path_of("key.pem"), &status), 0);
    RG_CHECK_EQ(status.st_mode & 0777, 0600);
    BIO *bio = BIO_new_mem_buf(rg_certificate_key_pem(certificate), -1);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    X509 *leaf = leaf_of(certificate);
    RG_CHECK(key != NULL);
    RG_CHECK_EQ(X509_check_private_key(leaf, key), 1);
    X509_free(leaf);
    EVP_PKEY_free(key);
    BIO_free(bio);
    rg_certificate_close(certificate);
    remove_folder();
}

static void test_what_is_there_is_used_again_while_it_will_do(void)
{
    make_folder();
    struct rg_certificate *first = open_certificate(folder, NULL);
    struct rg_certificate *second = open_certificate(folder, "127.0.0.1");
    RG_CHECK_STR(rg_certificate_chain_pem(second), rg_certificate_chain_pem(first));
    RG_CHECK_STR(rg_certificate_key_pem(second), rg_certificate_key_pem(first));
    rg_certificate_close(second);
    /* Another host: made anew, and good for both then. */
    second = open_certificate(folder, "my-host.example");
    RG_CHECK(strcmp(rg_certificate_chain_pem(second), rg_certificate_chain_pem(first)) != 0);
    X509 *leaf = leaf_of(second), *authority = authority_of(second);
    RG_CHECK(verifies(leaf, authority, "my-host.example", false, 0));
    RG_CHECK(verifies(leaf, authority, "localhost", false, 0));
    X509_free(leaf);
    X509_free(authority);
    rg_certificate_close(first);
    rg_certificate_close(second);
    remove_folder();
}

static void test_what_is_broken_is_made_anew(void)
{
    static const char *const names[] = {"ca.pem", "cert.pem", "key.pem"};
    make_folder();
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        struct rg_certificate *first = open_certificate(folder, NULL);
        int fd = open(path_of(names[i]), O_WRONLY | O_TRUNC);
        RG_CHECK(fd >= 0);
        RG_CHECK_EQ(write(fd, "junk\n", 5), 5);
        close(fd);
        struct rg_certificate *second = open_certificate(folder, NULL);
        RG_CHECK(strcmp(rg_certificate_chain_pem(second), rg_certificate_chain_pem(first)) != 0);
        X509 *leaf = leaf_of(second), *authority = authority_of(second);
        RG_CHECK(verifies(leaf, authority, "localhost", false, 0));
        X509_free(leaf);
        X509_free(authority);
        rg_certificate_close(first);
        rg_certificate_close(second);
    }
    remove_folder();
}

static void test_a_temporary_folder_is_private_and_goes_away(void)
{
    char path[256];
    struct stat status;
    struct rg_certificate *certificate = open_certificate(NULL, NULL);
    snprintf(path, sizeof(path), "%s", rg_certificate_ca_path(certificate));
    RG_CHECK(path[0] == '/');
    *strrchr(path, '/') = '\0';
    RG_CHECK_EQ(stat(path, &status), 0);
    RG_CHECK_EQ(status.st_mode & 0777, 0700);
    rg_certificate_close(certificate);
    RG_CHECK_EQ(stat(path, &status), -1);
}

static void test_what_cannot_be_is_an_error_that_names_it(void)
{
    struct rg_certificate *certificate;
    char error[256];
    RG_CHECK_EQ(rg_certificate_open(&certificate, NULL, "a,b", error, sizeof(error)), -EINVAL);
    RG_CHECK(strstr(error, "a,b") != NULL);
    RG_CHECK_EQ(rg_certificate_open(&certificate, "/nowhere/at/all", NULL, error, sizeof(error)),
                -ENOENT);
    RG_CHECK(strstr(error, "/nowhere/at/all") != NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_leaf_verifies_for_its_names_only),
        RG_TEST(test_the_validity_is_a_year_from_yesterday),
        RG_TEST(test_only_the_authority_is_one),
        RG_TEST(test_the_key_is_private_and_belongs_to_the_leaf),
        RG_TEST(test_what_is_there_is_used_again_while_it_will_do),
        RG_TEST(test_what_is_broken_is_made_anew),
        RG_TEST(test_a_temporary_folder_is_private_and_goes_away),
        RG_TEST(test_what_cannot_be_is_an_error_that_names_it),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
