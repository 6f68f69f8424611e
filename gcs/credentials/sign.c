/* RS256: see sign.h. A private key is parsed for each signature and freed at once, which wipes
 * it: one an hour is cheap, and no key lies on the heap meanwhile. */
#include "gcs/credentials/sign.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <string.h>

#define KEY_BITS_MIN 1024

/* A key in PEM may ask for a password; there is none. */
static int password_none(char *buf, int size, int write, void *context)
{
    (void)buf;
    (void)size;
    (void)write;
    (void)context;
    return 0;
}

static EVP_PKEY *key_read(const char *pem)
{
    ERR_clear_error();
    BIO *bio = BIO_new_mem_buf(pem, (ossl_ssize_t)strlen(pem));
    if (bio == NULL) {
        return NULL;
    }
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, password_none, NULL);
    BIO_free(bio);
    ERR_clear_error();
    bool fits = key != NULL && EVP_PKEY_id(key) == EVP_PKEY_RSA &&
                EVP_PKEY_bits(key) >= KEY_BITS_MIN &&
                EVP_PKEY_size(key) <= RG_RSA_SIGNATURE_SIZE_MAX;
    if (!fits) {
        EVP_PKEY_free(key);
        return NULL;
    }
    return key;
}

int rg_rsa_key_check(const char *pem)
{
    EVP_PKEY *key = key_read(pem);
    EVP_PKEY_free(key);
    return key != NULL ? 0 : -EINVAL;
}

int rg_rsa_sha256_sign(const char *pem, const void *data, size_t size,
                       uint8_t out[RG_RSA_SIGNATURE_SIZE_MAX])
{
    EVP_PKEY *key = key_read(pem);
    if (key == NULL) {
        return -EINVAL;
    }
    size_t out_size = RG_RSA_SIGNATURE_SIZE_MAX;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool ok = context != NULL && EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
              EVP_DigestSign(context, out, &out_size, data, size) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return ok ? (int)out_size : -EINVAL;
}
