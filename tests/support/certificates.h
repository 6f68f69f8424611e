/* Certificates for tests, made on the spot: authorities, leaves, and every kind of wrong leaf. All
 * keys are ECDSA P-256. A failure to make one ends the test program: nothing can be tested then. */
#ifndef RG_TESTS_SUPPORT_CERTIFICATES_H
#define RG_TESTS_SUPPORT_CERTIFICATES_H

#include "runtime/base.h"

struct rg_test_certificate {
    struct x509_st *x509;
    struct evp_pkey_st *key;
    char *cert_pem; /* the certificate alone, NUL-terminated */
    char *key_pem;
};

struct rg_test_certificate_spec {
    const char *common_name;
    /* Subject alternative names as in OpenSSL's configuration: "DNS:a.example,IP:127.0.0.1". NULL:
     * none. */
    const char *alt_names;
    /* Seconds from now; both 0: from an hour ago to a day ahead. */
    int64_t not_before;
    int64_t not_after;
    const struct rg_test_certificate *issuer; /* NULL: self-signed */
    struct evp_pkey_st *key;                  /* borrowed; NULL: a new one */
    bool authority;                           /* may sign others */
    bool for_clients;                         /* extended key usage: client, not server */
    bool names_key;                           /* says by which of its keys the issuer signed */
};

void rg_test_certificate_make(struct rg_test_certificate *out_certificate,
                              const struct rg_test_certificate_spec *spec);
void rg_test_certificate_free(struct rg_test_certificate *certificate);

/* Writes `text` to a new file below /tmp and its name to path[0..64). The caller unlinks it. */
void rg_test_file_make(const char *text, char *out_path);
#define RG_TEST_PATH_SIZE 64

#endif
