/* Opens TLS contexts: which versions and ciphers are offered, which certificates are trusted, and
 * how PEM is read.
 *
 * Certificates are kept as BoringSSL's CRYPTO_BUFFERs (TLS_with_buffers_method), shared through one
 * pool: ten thousand connections to one host then hold its chain once, and none of them a parsed
 * copy. */
#include "http/tls_context.h"

#include "http/tls.h"
#include "http/tls_context_private.h"
#include "http/tls_verify.h"

#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/mem.h>
#include <openssl/pem.h>
#include <openssl/pool.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHAIN_MAX 16
#define PEM_FILE_MAX RG_MIB(1)

/* AES-128-GCM first: the fastest with AES instructions. Without them BoringSSL itself prefers
 * ChaCha20 under TLS 1.3, whose suites cannot be ordered. */
static const char ciphers_tls12[] = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
                                    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
                                    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";

/* The post-quantum hybrid X25519MLKEM768 is not offered: it doubles the CPU of a handshake, its
 * share does not fit into one segment, and where it is offered without a share, servers that put it
 * first spend a round trip on asking for one. */
static const uint16_t groups[] = {SSL_GROUP_X25519, SSL_GROUP_SECP256R1, SSL_GROUP_SECP384R1};

static const uint8_t alpn_http11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

/* Debian and Ubuntu; Red Hat and Fedora; SUSE; Alpine; the directories of Debian and Red Hat. */
static const char *const platform_bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
};

static const char *not_empty(const char *text)
{
    return text == NULL || text[0] == '\0' ? NULL : text;
}

/* Says why BoringSSL's last call failed, and clears its error queue. */
static const char *queue_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return reason == NULL ? "unknown reason" : reason;
}

/* True if a list that is divided by colons, as SSL_CERT_DIR may be, names a directory that exists.
 */
static bool has_directory(const char *list)
{
    while (*list != '\0') {
        char path[PATH_MAX];
        struct stat info;
        int size = (int)strcspn(list, ":");
        snprintf(path, sizeof(path), "%.*s", size, list);
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
            return true;
        }
        list += size + (list[size] == ':' ? 1 : 0);
    }
    return false;
}

struct trust {
    const char *file;
    const char *directory;
};

static struct trust trust_find(const struct rg_tls_client_options *options)
{
    struct trust trust = {not_empty(options->ca_file), not_empty(options->ca_dir)};
    if (trust.file == NULL && trust.directory == NULL) {
        trust =
            (struct trust){not_empty(getenv("SSL_CERT_FILE")), not_empty(getenv("SSL_CERT_DIR"))};
    }
    if (trust.file != NULL || trust.directory != NULL) {
        return trust;
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(platform_bundles); i++) {
        if (access(platform_bundles[i], R_OK) == 0) {
            return (struct trust){platform_bundles[i], NULL};
        }
    }
    return trust;
}

static int trust_load(struct rg_tls_context *context, struct trust trust, char *error,
                      size_t error_size)
{
    if (trust.file == NULL && trust.directory == NULL) {
        snprintf(error, error_size,
                 "no CA certificates on this system: install the package ca-certificates, or name "
                 "a PEM bundle in SSL_CERT_FILE");
        return -ENOENT;
    }
    if (trust.file != NULL && access(trust.file, R_OK) != 0) {
        int cause = errno;
        snprintf(error, error_size, "CA bundle %s: %s", trust.file, strerror(cause));
        return -ENOENT;
    }
    if (trust.file != NULL && has_directory(trust.file)) {
        snprintf(error, error_size,
                 "CA bundle %s: a folder; name it in SSL_CERT_DIR, or a file of it", trust.file);
        return -EINVAL;
    }
    if (trust.directory != NULL && !has_directory(trust.directory)) {
        snprintf(error, error_size, "CA directory %s is not a directory", trust.directory);
        return -ENOENT;
    }
    int ret = rg_tls_roots_open(&context->roots, trust.file, trust.directory);
    if (ret == -ENOMEM) {
        snprintf(error, error_size, "cannot set up TLS: out of memory");
        return ret;
    }
    if (ret != 0) {
        snprintf(error, error_size, "CA bundle %s holds no certificates in PEM: %s",
                 trust.file != NULL ? trust.file : trust.directory, queue_reason());
        return -EINVAL;
    }
    snprintf(context->trust, sizeof(context->trust), "%s",
             trust.file != NULL ? trust.file : trust.directory);
    return 0;
}

/* Parses the certificates of a PEM text, at most CHAIN_MAX. Returns how many; the caller frees
 * them. */
static size_t chain_parse(const char *pem, size_t size, CRYPTO_BUFFER **out_chain)
{
    RG_ASSERT(pem != NULL);
    size_t count = 0;
    BIO *bio = BIO_new_mem_buf(pem, (ossl_ssize_t)size);
    char *name = NULL, *header = NULL;
    uint8_t *data = NULL;
    long data_size = 0;
    while (bio != NULL && count < CHAIN_MAX &&
           PEM_read_bio(bio, &name, &header, &data, &data_size) == 1) {
        if (strcmp(name, PEM_STRING_X509) == 0 || strcmp(name, PEM_STRING_X509_OLD) == 0) {
            CRYPTO_BUFFER *buffer = CRYPTO_BUFFER_new(data, (size_t)data_size, NULL);
            if (buffer != NULL) {
                out_chain[count++] = buffer;
            }
        }
        OPENSSL_free(name);
        OPENSSL_free(header);
        OPENSSL_free(data);
    }
    BIO_free(bio);
    ERR_clear_error();
    return count;
}

static EVP_PKEY *key_parse(const char *pem, size_t size)
{
    RG_ASSERT(pem != NULL);
    BIO *bio = BIO_new_mem_buf(pem, (ossl_ssize_t)size);
    EVP_PKEY *key = bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    BIO_free(bio);
    ERR_clear_error();
    return key;
}

static int certificate_use(SSL_CTX *ssl, const struct rg_tls_server_options *pem, char *error,
                           size_t error_size)
{
    CRYPTO_BUFFER *chain[CHAIN_MAX];
    int ret = -EINVAL;
    size_t count = chain_parse(pem->cert_pem, pem->cert_size, chain);
    EVP_PKEY *key = key_parse(pem->key_pem, pem->key_size);
    if (count == 0) {
        snprintf(error, error_size, "no certificate in PEM found");
    } else if (key == NULL) {
        snprintf(error, error_size, "no private key in PEM found (or it has a password)");
    } else if (SSL_CTX_set_chain_and_key(ssl, chain, count, key, NULL) != 1) {
        snprintf(error, error_size, "certificate and private key do not work together: %s",
                 queue_reason());
    } else {
        ret = 0;
    }
    EVP_PKEY_free(key);
    for (size_t i = 0; i < count; i++) {
        CRYPTO_BUFFER_free(chain[i]);
    }
    return ret;
}

/* Reads a whole small file. The caller frees it with OPENSSL_free, which wipes it: it may be a key.
 */
static int file_read(const char *path, char **out_data, size_t *out_size, char *error,
                     size_t error_size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        int cause = errno;
        snprintf(error, error_size, "%s: %s", path, strerror(cause));
        return -ENOENT;
    }
    setvbuf(file, NULL, _IONBF, 0);
    int ret = -ENOMEM;
    char *data = OPENSSL_malloc(PEM_FILE_MAX);
    if (data != NULL) {
        *out_size = fread(data, 1, PEM_FILE_MAX, file);
        *out_data = data;
        ret = 0;
    }
    fclose(file);
    return ret;
}

static int client_certificate(struct rg_tls_context *context,
                              const struct rg_tls_client_options *options, char *error,
                              size_t error_size)
{
    if (options->cert_file == NULL && options->key_file == NULL) {
        return 0;
    }
    if (options->cert_file == NULL || options->key_file == NULL) {
        snprintf(error, error_size, "a client certificate needs both a certificate and a key");
        return -EINVAL;
    }
    RG_ASSERT(context->ssl != NULL);
    struct rg_tls_server_options pem = {0};
    char *cert = NULL, *key = NULL;
    int ret = file_read(options->cert_file, &cert, &pem.cert_size, error, error_size);
    if (ret == 0) {
        ret = file_read(options->key_file, &key, &pem.key_size, error, error_size);
    }
    if (ret == 0) {
        pem.cert_pem = cert;
        pem.key_pem = key;
        ret = certificate_use(context->ssl, &pem, error, error_size);
    }
    OPENSSL_free(cert);
    OPENSSL_free(key);
    return ret;
}

/* Takes http/1.1 where the client offers it, and refuses a client that only speaks others. */
static int alpn_select(SSL *ssl, const uint8_t **out, uint8_t *out_len, const uint8_t *in,
                       unsigned in_len, void *arg)
{
    (void)ssl;
    (void)arg;
    for (unsigned i = 0; i < in_len; i += 1u + in[i]) {
        if (in_len - i >= sizeof(alpn_http11) &&
            memcmp(in + i, alpn_http11, sizeof(alpn_http11)) == 0) {
            *out = in + i + 1;
            *out_len = in[i];
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* Opens what a client's and a server's context have in common. */
static struct rg_tls_context *context_new(char *error, size_t error_size)
{
    struct rg_tls_context *context = calloc(1, sizeof(*context));
    CRYPTO_BUFFER_POOL *pool = CRYPTO_BUFFER_POOL_new();
    ERR_clear_error();
    bool ok = context != NULL && pool != NULL &&
              (context->ssl = SSL_CTX_new(TLS_with_buffers_method())) != NULL &&
              SSL_CTX_set_min_proto_version(context->ssl, TLS1_2_VERSION) == 1 &&
              SSL_CTX_set_max_proto_version(context->ssl, TLS1_3_VERSION) == 1 &&
              SSL_CTX_set_strict_cipher_list(context->ssl, ciphers_tls12) == 1 &&
              SSL_CTX_set1_group_ids(context->ssl, groups, RG_ARRAY_LEN(groups)) == 1;
    if (!ok) {
        snprintf(error, error_size, "cannot set up TLS: %s", queue_reason());
        rg_tls_context_close(context);
        CRYPTO_BUFFER_POOL_free(pool);
        return NULL;
    }
    SSL_CTX_set1_buffer_pool(context->ssl, pool);
    CRYPTO_BUFFER_POOL_free(pool);
    /* A write that did not fit may be continued from another buffer. */
    SSL_CTX_set_mode(context->ssl,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return context;
}

int rg_tls_context_open_client(struct rg_tls_context **out_context,
                               const struct rg_tls_client_options *options, char *error,
                               size_t error_size)
{
    RG_ASSERT(options != NULL);
    RG_ASSERT(error_size > 0);
    struct rg_tls_context *context = context_new(error, error_size);
    if (context == NULL) {
        return -ENOMEM;
    }
    int ret = -ENOMEM;
    context->boringssl_records = options->boringssl_records;
    if (SSL_CTX_set_alpn_protos(context->ssl, alpn_http11, sizeof(alpn_http11)) != 0) {
        snprintf(error, error_size, "cannot set up TLS: %s", queue_reason());
        goto fail;
    }
    ret = trust_load(context, trust_find(options), error, error_size);
    if (ret != 0) {
        goto fail;
    }
    ret = client_certificate(context, options, error, error_size);
    if (ret != 0) {
        goto fail;
    }
    SSL_CTX_set_custom_verify(context->ssl, SSL_VERIFY_PEER, rg_tls_verify_peer);
    SSL_CTX_set_session_cache_mode(context->ssl,
                                   SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context->ssl, rg_tls_session_new);
    *out_context = context;
    return 0;

fail:
    rg_tls_context_close(context);
    return ret;
}

int rg_tls_context_open_server(struct rg_tls_context **out_context,
                               const struct rg_tls_server_options *options, char *error,
                               size_t error_size)
{
    RG_ASSERT(options != NULL);
    RG_ASSERT(error_size > 0);
    struct rg_tls_context *context = context_new(error, error_size);
    if (context == NULL) {
        return -ENOMEM;
    }
    int ret = certificate_use(context->ssl, options, error, error_size);
    if (ret != 0) {
        rg_tls_context_close(context);
        return ret;
    }
    context->boringssl_records = options->boringssl_records;
    SSL_CTX_set_options(context->ssl, SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_alpn_select_cb(context->ssl, alpn_select, NULL);
    /* Clients keep the tickets that resume their sessions, so the server needs no cache. */
    SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_OFF);
    *out_context = context;
    return 0;
}

void rg_tls_context_close(struct rg_tls_context *context)
{
    if (context == NULL) {
        return;
    }
    SSL_CTX_free(context->ssl);
    rg_tls_roots_close(context->roots);
    free(context);
}

const char *rg_tls_context_trust(const struct rg_tls_context *context)
{
    RG_ASSERT(context->roots != NULL);
    return context->trust;
}
