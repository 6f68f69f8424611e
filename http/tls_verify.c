/* Certificate verification: see tls_verify.h. */
#include "http/tls_verify.h"

#include "http/tls.h"
#include "http/tls_context_private.h"

#include <arpa/inet.h>
#include <openssl/asn1.h>
#include <openssl/err.h>
#include <openssl/pool.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NAME_SIZE 64
#define DATE_SIZE 32
#define NAMES_SIZE 112

/* Text of a certificate reaches terminals and logs, so only printable ASCII is kept. */
static void make_printable(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text < ' ' || *text > '~') {
            *text = '?';
        }
    }
}

static void describe_name(const X509_NAME *name, char *out, size_t out_size)
{
    char text[NAME_SIZE];
    RG_ASSERT(out_size >= NAME_SIZE + 4);
    if (X509_NAME_get_text_by_NID(name, NID_commonName, text, sizeof(text)) > 0) {
        make_printable(text);
        snprintf(out, out_size, "CN=%s", text);
    } else if (X509_NAME_get_text_by_NID(name, NID_organizationName, text, sizeof(text)) > 0) {
        make_printable(text);
        snprintf(out, out_size, "O=%s", text);
    } else {
        snprintf(out, out_size, "without a name");
    }
}

static void describe_date(const ASN1_TIME *when, char *out, size_t out_size)
{
    int64_t seconds = 0;
    struct tm parts = {0};
    RG_ASSERT(out_size >= DATE_SIZE);
    if (ASN1_TIME_to_posix(when, &seconds) != 1) {
        snprintf(out, out_size, "an unreadable date");
        return;
    }
    time_t posix = (time_t)seconds;
    gmtime_r(&posix, &parts);
    strftime(out, out_size, "%Y-%m-%d %H:%M UTC", &parts);
}

/* One name of a certificate: a DNS name or an address. False for other kinds. */
static bool describe_alt_name(const GENERAL_NAME *name, char *out, size_t out_size)
{
    RG_ASSERT(out_size >= INET6_ADDRSTRLEN);
    if (name->type == GEN_DNS) {
        snprintf(out, out_size, "%.*s", (int)ASN1_STRING_length(name->d.dNSName),
                 (const char *)ASN1_STRING_get0_data(name->d.dNSName));
        make_printable(out);
        return true;
    }
    if (name->type == GEN_IPADD) {
        int size = (int)ASN1_STRING_length(name->d.iPAddress);
        int family = size == 4 ? AF_INET : AF_INET6;
        return (size == 4 || size == 16) &&
               inet_ntop(family, ASN1_STRING_get0_data(name->d.iPAddress), out,
                         (socklen_t)out_size) != NULL;
    }
    return false;
}

/* Writes as many names as fit, as in "a.example, b.example and others". */
static void describe_alt_names(const X509 *leaf, char *out, size_t out_size)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(leaf, NID_subject_alt_name, NULL, NULL);
    static const char more[] = " and others";
    size_t used = 0;
    snprintf(out, out_size, "no host at all");
    for (size_t i = 0; names != NULL && i < sk_GENERAL_NAME_num(names); i++) {
        char text[NAME_SIZE];
        if (!describe_alt_name(sk_GENERAL_NAME_value(names, i), text, sizeof(text))) {
            continue;
        }
        if (used + strlen(text) + 2 + sizeof(more) > out_size) {
            snprintf(out + used, out_size - used, "%s", more);
            break;
        }
        used += (size_t)snprintf(out + used, out_size - used, "%s%s", used == 0 ? "" : ", ", text);
    }
    GENERAL_NAMES_free(names);
}

static void explain_dates(struct rg_tls *tls, X509_STORE_CTX *verification, bool expired)
{
    const X509 *cert = X509_STORE_CTX_get_current_cert(verification);
    RG_ASSERT(cert != NULL);
    char date[DATE_SIZE], name[NAME_SIZE + 4] = "", who[NAME_SIZE + 32] = "certificate";
    describe_date(expired ? X509_get0_notAfter(cert) : X509_get0_notBefore(cert), date,
                  sizeof(date));
    if (X509_STORE_CTX_get_error_depth(verification) > 0) {
        describe_name(X509_get_subject_name(cert), name, sizeof(name));
        snprintf(who, sizeof(who), "certificate of the issuer %s", name);
    }
    if (expired) {
        rg_tls_fail(tls, RG_TLS_FAILURE_EXPIRED, "%s expired on %s", who, date);
    } else {
        rg_tls_fail(tls, RG_TLS_FAILURE_NOT_YET_VALID,
                    "%s is not valid before %s (is the clock right?)", who, date);
    }
}

static void explain_host(struct rg_tls *tls, X509_STORE_CTX *verification)
{
    char names[NAMES_SIZE];
    describe_alt_names(X509_STORE_CTX_get0_cert(verification), names, sizeof(names));
    rg_tls_fail(tls, RG_TLS_FAILURE_HOST_MISMATCH, "certificate is for %s, not for %.64s", names,
                tls->peer->host);
}

static void explain_issuer(struct rg_tls *tls, X509_STORE_CTX *verification)
{
    const X509 *cert = X509_STORE_CTX_get_current_cert(verification);
    char issuer[NAME_SIZE + 4] = "without a name";
    bool self_signed = false;
    if (cert != NULL) {
        describe_name(X509_get_issuer_name(cert), issuer, sizeof(issuer));
        self_signed = X509_STORE_CTX_get_error_depth(verification) == 0 &&
                      X509_NAME_cmp(X509_get_issuer_name(cert), X509_get_subject_name(cert)) == 0;
    }
    if (self_signed) {
        rg_tls_fail(tls, RG_TLS_FAILURE_SELF_SIGNED, "self-signed certificate %s is not trusted",
                    issuer);
    } else {
        size_t broken = rg_tls_roots_broken(tls->peer->context->roots);
        char but[64] = "";
        if (broken > 0) {
            snprintf(but, sizeof(but), ", of which %zu cannot be parsed", broken);
        }
        rg_tls_fail(tls, RG_TLS_FAILURE_UNKNOWN_ISSUER,
                    "unknown issuer %s (trusted are those in %s%s)", issuer,
                    tls->peer->context->trust, but);
    }
}

/* Records why verification failed as the failure of the connection. */
static void explain(struct rg_tls *tls, X509_STORE_CTX *verification)
{
    int verdict = X509_STORE_CTX_get_error(verification);
    RG_ASSERT(verdict != X509_V_OK);
    switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        explain_dates(tls, verification, true);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        explain_dates(tls, verification, false);
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        explain_host(tls, verification);
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_UNTRUSTED:
        explain_issuer(tls, verification);
        break;
    case X509_V_ERR_OUT_OF_MEM:
        rg_tls_fail(tls, RG_TLS_FAILURE_MEMORY, "out of memory");
        break;
    default:
        rg_tls_fail(tls, RG_TLS_FAILURE_BAD_CERTIFICATE, "certificate not acceptable: %s",
                    X509_verify_cert_error_string(verdict));
        break;
    }
}

/* Parses what the peer sent: its own certificate, and those that may lead to a trusted one. */
static bool chain_parse(const STACK_OF(CRYPTO_BUFFER) * sent, X509 **out_leaf,
                        STACK_OF(X509) * untrusted)
{
    for (size_t i = 0; sent != NULL && i < sk_CRYPTO_BUFFER_num(sent); i++) {
        X509 *cert = X509_parse_from_buffer(sk_CRYPTO_BUFFER_value(sent, i));
        if (cert == NULL) {
            return false;
        }
        if (i == 0) {
            *out_leaf = cert;
        } else if (sk_X509_push(untrusted, cert) == 0) {
            X509_free(cert);
            return false;
        }
    }
    return *out_leaf != NULL;
}

static bool verification_set_host(X509_STORE_CTX *verification, const struct rg_tls_peer *peer)
{
    X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(verification);
    RG_ASSERT(peer->host[0] != '\0');
    /* A host name in the subject's common name does not count any more (RFC 9525). */
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    if (peer->host_is_address) {
        return X509_VERIFY_PARAM_set1_ip_asc(param, peer->host) == 1;
    }
    return X509_VERIFY_PARAM_set1_host(param, peer->host, strlen(peer->host)) == 1;
}

/* Judges a chain by a store. If `final`, a verdict against it is the connection's failure. */
static bool chain_judge(struct rg_tls *tls, X509_STORE *store, X509 *leaf,
                        STACK_OF(X509) * untrusted, bool final, uint8_t *out_alert)
{
    X509_STORE_CTX *verification = X509_STORE_CTX_new();
    bool good = false;
    if (verification == NULL || X509_STORE_CTX_init(verification, store, leaf, untrusted) != 1 ||
        X509_STORE_CTX_set_default(verification, "ssl_server") != 1 ||
        !verification_set_host(verification, tls->peer)) {
        if (final) {
            rg_tls_fail(tls, RG_TLS_FAILURE_MEMORY, "verification cannot be set up");
        }
    } else if (X509_verify_cert(verification) == 1) {
        good = true;
    } else if (final) {
        *out_alert = (uint8_t)SSL_alert_from_verify_result(X509_STORE_CTX_get_error(verification));
        explain(tls, verification);
    }
    X509_STORE_CTX_free(verification);
    return good;
}

static bool chain_verify(struct rg_tls *tls, X509 *leaf, STACK_OF(X509) * untrusted,
                         uint8_t *out_alert)
{
    struct rg_tls_roots *roots = tls->peer->context->roots;
    X509_STORE *some = rg_tls_roots_some(roots, leaf, untrusted);
    if (some != NULL && chain_judge(tls, some, leaf, untrusted, false, out_alert)) {
        return true;
    }
    X509_STORE *all = rg_tls_roots_all(roots);
    if (all == NULL) {
        rg_tls_fail(tls, RG_TLS_FAILURE_MEMORY, "out of memory");
        return false;
    }
    return chain_judge(tls, all, leaf, untrusted, true, out_alert);
}

enum ssl_verify_result_t rg_tls_verify_peer(SSL *ssl, uint8_t *out_alert)
{
    struct rg_tls *tls = SSL_get_app_data(ssl);
    RG_ASSERT(tls != NULL);
    RG_ASSERT(tls->peer != NULL);
    X509 *leaf = NULL;
    STACK_OF(X509) *untrusted = sk_X509_new_null();
    enum ssl_verify_result_t result = ssl_verify_invalid;
    *out_alert = SSL_AD_INTERNAL_ERROR;
    if (untrusted == NULL) {
        rg_tls_fail(tls, RG_TLS_FAILURE_MEMORY, "out of memory");
    } else if (!chain_parse(SSL_get0_peer_certificates(ssl), &leaf, untrusted)) {
        bool memory = ERR_GET_REASON(ERR_peek_last_error()) == ERR_R_MALLOC_FAILURE;
        *out_alert = memory ? SSL_AD_INTERNAL_ERROR : SSL_AD_BAD_CERTIFICATE;
        rg_tls_fail(tls, memory ? RG_TLS_FAILURE_MEMORY : RG_TLS_FAILURE_BAD_CERTIFICATE,
                    memory ? "out of memory" : "the certificate cannot be parsed");
    } else if (chain_verify(tls, leaf, untrusted, out_alert)) {
        result = ssl_verify_ok;
    }
    sk_X509_pop_free(untrusted, X509_free);
    X509_free(leaf);
    ERR_clear_error();
    return result;
}
