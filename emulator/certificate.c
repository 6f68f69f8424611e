/* Making, storing and finding the emulator's certificates with BoringSSL; see certificate.h. */
#include "emulator/certificate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/ec_key.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/nid.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PEM_SIZE_MAX RG_KIB(64)
#define NAMES_SIZE_MAX 512
#define SECONDS_PER_DAY 86400

struct rg_certificate {
    char *chain_pem, *key_pem;
    bool temporary; /* The folder goes with us. */
    char folder[PATH_MAX];
    char ca_path[PATH_MAX + 16];
};

/* A key pair and the certificate that it belongs to. */
struct identity {
    EVP_PKEY *key;
    X509 *certificate;
};

static void identity_fini(struct identity *identity)
{
    X509_free(identity->certificate);
    EVP_PKEY_free(identity->key);
}

static EVP_PKEY *make_key(void)
{
    EVP_PKEY *key = EVP_PKEY_new();
    EC_KEY *ec = EC_KEY_new_by_curve_name(NID_X9_62_prime256v1);
    if (key == NULL || ec == NULL || !EC_KEY_generate_key(ec) || !EVP_PKEY_set1_EC_KEY(key, ec)) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    EC_KEY_free(ec);
    return key;
}

/* Extensions refer to the issuer, which for the authority is itself. */
static bool add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_nconf_nid(NULL, &context, nid, value);
    bool added = extension != NULL && X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    return added;
}

/* 127 random bits, so that the number is positive and never the same twice. */
static bool set_serial(X509 *certificate)
{
    uint8_t bytes[16];
    RAND_bytes(bytes, sizeof(bytes));
    bytes[0] &= 0x7f;
    BIGNUM *number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    bool set =
        number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL;
    BN_free(number);
    return set;
}

static bool set_name(X509 *certificate, const char *common_name)
{
    X509_NAME *name = X509_get_subject_name(certificate);
    return X509_NAME_add_entry_by_NID(name, NID_organizationName, MBSTRING_UTF8,
                                      (const uint8_t *)"ringest emulator", -1, -1, 0) &&
           X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8,
                                      (const uint8_t *)common_name, -1, -1, 0);
}

/* Fills in all but the extensions and the signature. `issuer` is NULL for an authority. */
static bool identity_init(struct identity *identity, const char *common_name,
                          const struct identity *issuer)
{
    identity->key = make_key();
    identity->certificate = X509_new();
    X509 *certificate = identity->certificate;
    time_t now = time(NULL);
    return identity->key != NULL && certificate != NULL &&
           X509_set_version(certificate, X509_VERSION_3) && set_serial(certificate) &&
           set_name(certificate, common_name) &&
           X509_set_issuer_name(
               certificate,
               X509_get_subject_name(issuer != NULL ? issuer->certificate : certificate)) &&
           ASN1_TIME_set(X509_getm_notBefore(certificate),
                         now - RG_CERTIFICATE_DAYS_BACK * SECONDS_PER_DAY) != NULL &&
           ASN1_TIME_set(X509_getm_notAfter(certificate),
                         now + RG_CERTIFICATE_DAYS * SECONDS_PER_DAY) != NULL &&
           X509_set_pubkey(certificate, identity->key);
}

static bool make_authority(struct identity *authority)
{
    /* Each authority has a name of its own, so that a client that trusts several finds the right
     * one. */
    uint8_t random[4];
    char name[64];
    RAND_bytes(random, sizeof(random));
    snprintf(name, sizeof(name), "ringest emulator CA %02x%02x%02x%02x", random[0], random[1],
             random[2], random[3]);
    if (!identity_init(authority, name, NULL)) {
        return false;
    }
    X509 *certificate = authority->certificate;
    return add_extension(certificate, certificate, NID_basic_constraints,
                         "critical,CA:TRUE,pathlen:0") &&
           add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           add_extension(certificate, certificate, NID_subject_key_identifier, "hash") &&
           X509_sign(certificate, authority->key, EVP_sha256());
}

static bool make_leaf(struct identity *leaf, const struct identity *authority, const char *names)
{
    if (!identity_init(leaf, "localhost", authority)) {
        return false;
    }
    X509 *certificate = leaf->certificate, *issuer = authority->certificate;
    return add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(certificate, issuer, NID_key_usage, "critical,digitalSignature") &&
           add_extension(certificate, issuer, NID_ext_key_usage, "serverAuth") &&
           add_extension(certificate, issuer, NID_subject_key_identifier, "hash") &&
           add_extension(certificate, issuer, NID_authority_key_identifier, "keyid:always") &&
           add_extension(certificate, issuer, NID_subject_alt_name, names) &&
           X509_sign(certificate, authority->key, EVP_sha256());
}

static bool is_address(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* Whether a host can be written into the list of names, which has a syntax of its own. */
static bool is_host_name(const char *host)
{
    size_t size = strlen(host);
    return size > 0 && size <= 253 &&
           strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") == size;
}

/* The host that the certificate names beside localhost; NULL: none. */
static const char *extra_host(const char *host)
{
    static const char *const known[] = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::", ""};
    for (size_t i = 0; host != NULL && i < RG_ARRAY_LEN(known); i++) {
        if (strcmp(host, known[i]) == 0) {
            return NULL;
        }
    }
    return host;
}

static void format_names(char names[NAMES_SIZE_MAX], const char *host)
{
    int size = snprintf(names, NAMES_SIZE_MAX, "DNS:localhost,IP:127.0.0.1,IP:::1");
    if (host != NULL) {
        snprintf(names + size, (size_t)(NAMES_SIZE_MAX - size), ",%s:%s",
                 is_address(host) ? "IP" : "DNS", host);
    }
}

static void format_path(char out[PATH_MAX + 16], const struct rg_certificate *certificate,
                        const char *name)
{
    snprintf(out, PATH_MAX + 16, "%s/%s", certificate->folder, name);
}

/* Writes a file and renames it into place, so that a reader never sees half of it. */
static int write_file(const struct rg_certificate *certificate, const char *name, BIO *pem,
                      mode_t mode)
{
    char path[PATH_MAX + 16], temporary[PATH_MAX + 16];
    const uint8_t *data;
    size_t size;
    format_path(path, certificate, name);
    snprintf(temporary, sizeof(temporary), "%s/.%s", certificate->folder, name);
    if (!BIO_mem_contents(pem, &data, &size)) {
        return -ENOMEM;
    }
    unlink(temporary);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) {
        return -errno;
    }
    ssize_t written = write(fd, data, size);
    int rc = written == (ssize_t)size ? 0 : written < 0 ? -errno : -ENOSPC;
    close(fd);
    if (rc == 0 && rename(temporary, path) < 0) {
        rc = -errno;
    }
    if (rc < 0) {
        unlink(temporary);
    }
    return rc;
}

static int store_identities(const struct rg_certificate *certificate,
                            const struct identity *authority, const struct identity *leaf)
{
    BIO *ca = BIO_new(BIO_s_mem()), *chain = BIO_new(BIO_s_mem()), *key = BIO_new(BIO_s_mem());
    int rc = -ENOMEM;
    if (ca != NULL && chain != NULL && key != NULL &&
        PEM_write_bio_X509(ca, authority->certificate) &&
        PEM_write_bio_X509(chain, leaf->certificate) &&
        PEM_write_bio_PrivateKey(key, leaf->key, NULL, NULL, 0, NULL, NULL)) {
        rc = write_file(certificate, "key.pem", key, 0600);
        rc = rc == 0 ? write_file(certificate, "cert.pem", chain, 0644) : rc;
        rc = rc == 0 ? write_file(certificate, "ca.pem", ca, 0644) : rc;
    }
    BIO_free(ca);
    BIO_free(chain);
    BIO_free(key);
    return rc;
}

static int make_identities(const struct rg_certificate *certificate, const char *host)
{
    struct identity authority = {0}, leaf = {0};
    char names[NAMES_SIZE_MAX];
    format_names(names, host);
    int rc = -ENOMEM;
    ERR_clear_error();
    if (make_authority(&authority) && make_leaf(&leaf, &authority, names)) {
        rc = store_identities(certificate, &authority, &leaf);
    }
    identity_fini(&authority);
    identity_fini(&leaf);
    ERR_clear_error();
    return rc;
}

/* The content of one of our files, with a NUL behind it. The caller frees it. */
static int read_file(const struct rg_certificate *certificate, const char *name, char **out_text)
{
    char path[PATH_MAX + 16];
    format_path(path, certificate, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -errno;
    }
    char *text = malloc(PEM_SIZE_MAX + 1);
    size_t size = text != NULL ? fread(text, 1, PEM_SIZE_MAX, file) : 0;
    int rc = text == NULL ? -ENOMEM : ferror(file) ? -EIO : 0;
    fclose(file);
    if (rc < 0) {
        free(text);
        return rc;
    }
    text[size] = '\0';
    *out_text = text;
    return 0;
}

static X509 *parse_certificate(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *certificate = bio != NULL ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    return certificate;
}

static bool key_belongs(X509 *leaf, const char *key_pem)
{
    BIO *bio = BIO_new_mem_buf(key_pem, -1);
    EVP_PKEY *key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    bool belongs = key != NULL && X509_check_private_key(leaf, key) == 1;
    EVP_PKEY_free(key);
    BIO_free(bio);
    return belongs;
}

static bool chain_verifies(X509 *leaf, X509 *authority)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    bool verifies = store != NULL && context != NULL && X509_STORE_add_cert(store, authority) &&
                    X509_STORE_CTX_init(context, store, leaf, NULL) &&
                    X509_STORE_CTX_set_default(context, "ssl_server") &&
                    X509_verify_cert(context) == 1;
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    return verifies;
}

static bool names_host(X509 *leaf, const char *host)
{
    return host == NULL ||
           (is_address(host) ? X509_check_ip_asc(leaf, host, 0) == 1
                             : X509_check_host(leaf, host, strlen(host), 0, NULL) == 1);
}

static bool lasts(X509 *certificate)
{
    int days = 0, seconds = 0;
    return ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate)) &&
           days >= RG_CERTIFICATE_DAYS_LEFT_MIN;
}

/* Whether the certificate in the folder can be used: it is valid, for this host, and fits its
 * key. */
static bool usable(const struct rg_certificate *certificate, const char *host)
{
    char *ca_pem = NULL;
    if (certificate->chain_pem == NULL || certificate->key_pem == NULL ||
        read_file(certificate, "ca.pem", &ca_pem) < 0) {
        return false;
    }
    ERR_clear_error();
    X509 *leaf = parse_certificate(certificate->chain_pem);
    X509 *authority = parse_certificate(ca_pem);
    bool good = leaf != NULL && authority != NULL && lasts(leaf) && lasts(authority) &&
                chain_verifies(leaf, authority) && names_host(leaf, "localhost") &&
                names_host(leaf, host) && key_belongs(leaf, certificate->key_pem);
    X509_free(leaf);
    X509_free(authority);
    free(ca_pem);
    ERR_clear_error();
    return good;
}

static int load(struct rg_certificate *certificate)
{
    free(certificate->chain_pem);
    free(certificate->key_pem);
    certificate->chain_pem = certificate->key_pem = NULL;
    int rc = read_file(certificate, "cert.pem", &certificate->chain_pem);
    return rc < 0 ? rc : read_file(certificate, "key.pem", &certificate->key_pem);
}

static int open_folder(struct rg_certificate *certificate, const char *folder)
{
    char template[PATH_MAX];
    if (folder == NULL) {
        const char *parent = getenv("TMPDIR");
        int size = snprintf(template, sizeof(template), "%s/ringest-emulator-XXXXXX",
                            parent != NULL && parent[0] == '/' ? parent : "/tmp");
        if ((size_t)size >= sizeof(template)) {
            return -ENAMETOOLONG;
        }
        if (mkdtemp(template) == NULL) {
            return -errno;
        }
        certificate->temporary = true;
        folder = template;
    } else if (mkdir(folder, 0755) < 0 && errno != EEXIST) {
        return -errno;
    }
    return realpath(folder, certificate->folder) != NULL ? 0 : -errno;
}

int rg_certificate_open(struct rg_certificate **out_certificate, const char *folder,
                        const char *host, char *error, size_t error_size)
{
    host = extra_host(host);
    if (host != NULL && !is_address(host) && !is_host_name(host)) {
        snprintf(error, error_size, "'%s' is neither a host name nor an address", host);
        return -EINVAL;
    }
    struct rg_certificate *certificate = calloc(1, sizeof(*certificate));
    if (certificate == NULL) {
        snprintf(error, error_size, "out of memory");
        return -ENOMEM;
    }
    int rc = open_folder(certificate, folder);
    if (rc == 0 && (load(certificate) < 0 || !usable(certificate, host))) {
        rc = make_identities(certificate, host);
        rc = rc == 0 ? load(certificate) : rc;
    }
    if (rc < 0) {
        snprintf(error, error_size, "cannot make certificates in '%s': %s",
                 folder != NULL ? folder : "the temporary folder", strerror(-rc));
        rg_certificate_close(certificate);
        return rc;
    }
    format_path(certificate->ca_path, certificate, "ca.pem");
    *out_certificate = certificate;
    return 0;
}

void rg_certificate_close(struct rg_certificate *certificate)
{
    static const char *const names[] = {"ca.pem", "cert.pem", "key.pem"};
    if (certificate == NULL) {
        return;
    }
    for (size_t i = 0; certificate->temporary && i < RG_ARRAY_LEN(names); i++) {
        char path[PATH_MAX + 16];
        format_path(path, certificate, names[i]);
        unlink(path);
    }
    if (certificate->temporary) {
        rmdir(certificate->folder);
    }
    if (certificate->key_pem != NULL) {
        OPENSSL_cleanse(certificate->key_pem, strlen(certificate->key_pem));
    }
    free(certificate->chain_pem);
    free(certificate->key_pem);
    free(certificate);
}

const char *rg_certificate_ca_path(const struct rg_certificate *certificate)
{
    return certificate->ca_path;
}

const char *rg_certificate_chain_pem(const struct rg_certificate *certificate)
{
    return certificate->chain_pem;
}

const char *rg_certificate_key_pem(const struct rg_certificate *certificate)
{
    return certificate->key_pem;
}
