/* Certificates for tests: see certificates.h. */
#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec_key.h>
#include <openssl/evp.h>
#include <openssl/nid.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HOUR 3600
#define DAY 86400

static EVP_PKEY *key_make(void)
{
    EC_KEY *ec = EC_KEY_new_by_curve_name(NID_X9_62_prime256v1);
    EVP_PKEY *key = EVP_PKEY_new();
    RG_ASSERT(ec != NULL);
    RG_ASSERT(key != NULL);
    RG_ASSERT(EC_KEY_generate_key(ec) == 1);
    RG_ASSERT(EVP_PKEY_assign_EC_KEY(key, ec) == 1);
    return key;
}

static void extension_add(X509 *cert, const X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_nconf_nid(NULL, &context, nid, value);
    RG_ASSERT(extension != NULL);
    RG_ASSERT(X509_add_ext(cert, extension, -1) == 1);
    X509_EXTENSION_free(extension);
}

static void extensions_add(X509 *cert, const X509 *issuer,
                           const struct rg_test_certificate_spec *spec)
{
    extension_add(cert, issuer, NID_subject_key_identifier, "hash");
    if (spec->authority) {
        extension_add(cert, issuer, NID_basic_constraints, "critical,CA:TRUE");
        extension_add(cert, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
    } else {
        extension_add(cert, issuer, NID_basic_constraints, "critical,CA:FALSE");
        extension_add(cert, issuer, NID_key_usage, "critical,digitalSignature");
        extension_add(cert, issuer, NID_ext_key_usage,
                      spec->for_clients ? "clientAuth" : "serverAuth");
    }
    if (spec->names_key) {
        extension_add(cert, issuer, NID_authority_key_identifier, "keyid:always");
    }
    if (spec->alt_names != NULL) {
        extension_add(cert, issuer, NID_subject_alt_name, spec->alt_names);
    }
}

static void names_and_dates_set(X509 *cert, const X509 *issuer,
                                const struct rg_test_certificate_spec *spec)
{
    int64_t now = (int64_t)time(NULL);
    bool usual = spec->not_before == 0 && spec->not_after == 0;
    X509_NAME *name = X509_get_subject_name(cert);
    RG_ASSERT(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                         (const uint8_t *)spec->common_name, -1, -1, 0) == 1);
    RG_ASSERT(X509_set_issuer_name(cert, X509_get_subject_name(issuer)) == 1);
    RG_ASSERT(ASN1_TIME_set_posix(X509_getm_notBefore(cert),
                                  now + (usual ? -HOUR : spec->not_before)) != NULL);
    RG_ASSERT(ASN1_TIME_set_posix(X509_getm_notAfter(cert),
                                  now + (usual ? DAY : spec->not_after)) != NULL);
}

/* The contents of a memory BIO as a string, and frees the BIO. */
static char *bio_take(BIO *bio)
{
    const uint8_t *data = NULL;
    size_t size = 0;
    RG_ASSERT(BIO_mem_contents(bio, &data, &size) == 1);
    char *text = calloc(1, size + 1);
    RG_ASSERT(text != NULL);
    memcpy(text, data, size);
    BIO_free(bio);
    return text;
}

void rg_test_certificate_make(struct rg_test_certificate *out_certificate,
                              const struct rg_test_certificate_spec *spec)
{
    uint32_t serial = 0;
    X509 *cert = X509_new();
    EVP_PKEY *key = spec->key == NULL ? key_make() : spec->key;
    RG_ASSERT(cert != NULL);
    RG_ASSERT(spec->key == NULL || EVP_PKEY_up_ref(key) == 1);
    const X509 *issuer = spec->issuer == NULL ? cert : spec->issuer->x509;
    EVP_PKEY *issuer_key = spec->issuer == NULL ? key : spec->issuer->key;
    RAND_bytes((uint8_t *)&serial, sizeof(serial));
    RG_ASSERT(X509_set_version(cert, X509_VERSION_3) == 1);
    RG_ASSERT(ASN1_INTEGER_set_uint64(X509_get_serialNumber(cert), serial) == 1);
    RG_ASSERT(X509_set_pubkey(cert, key) == 1);
    names_and_dates_set(cert, issuer, spec);
    extensions_add(cert, issuer, spec);
    RG_ASSERT(X509_sign(cert, issuer_key, EVP_sha256()) > 0);

    BIO *cert_bio = BIO_new(BIO_s_mem()), *key_bio = BIO_new(BIO_s_mem());
    RG_ASSERT(PEM_write_bio_X509(cert_bio, cert) == 1);
    RG_ASSERT(PEM_write_bio_PrivateKey(key_bio, key, NULL, NULL, 0, NULL, NULL) == 1);
    *out_certificate = (struct rg_test_certificate){
        .x509 = cert,
        .key = key,
        .cert_pem = bio_take(cert_bio),
        .key_pem = bio_take(key_bio),
    };
}

void rg_test_certificate_free(struct rg_test_certificate *certificate)
{
    X509_free(certificate->x509);
    EVP_PKEY_free(certificate->key);
    free(certificate->cert_pem);
    free(certificate->key_pem);
    *certificate = (struct rg_test_certificate){0};
}

void rg_test_file_make(const char *text, char *out_path)
{
    snprintf(out_path, RG_TEST_PATH_SIZE, "/tmp/ringest-test-XXXXXX");
    int fd = mkstemp(out_path);
    RG_ASSERT(fd >= 0);
    RG_ASSERT(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}
