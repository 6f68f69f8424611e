/* Kinds of failures of TLS: see tls_failure.h. */
#include "http/tls_failure.h"

#include <openssl/ssl.h>

static const struct {
    const char *name;
    const char *text;
} failures[] = {
#define XX(name, text) [RG_TLS_FAILURE_##name] = {#name, text},
    RG_TLS_FAILURES(XX)
#undef XX
};
static_assert(RG_ARRAY_LEN(failures) == RG_TLS_FAILURE_COUNT, "every failure has a text");

const char *rg_tls_failure_name(enum rg_tls_failure failure)
{
    RG_ASSERT(failure < RG_TLS_FAILURE_COUNT);
    return failures[failure].name;
}

const char *rg_tls_failure_summary(enum rg_tls_failure failure)
{
    RG_ASSERT(failure < RG_TLS_FAILURE_COUNT);
    return failures[failure].text;
}

enum rg_status rg_tls_failure_status(enum rg_tls_failure failure)
{
    RG_ASSERT(failure < RG_TLS_FAILURE_COUNT);
    switch (failure) {
    case RG_TLS_FAILURE_EXPIRED:
    case RG_TLS_FAILURE_NOT_YET_VALID:
    case RG_TLS_FAILURE_UNKNOWN_ISSUER:
    case RG_TLS_FAILURE_SELF_SIGNED:
    case RG_TLS_FAILURE_HOST_MISMATCH:
    case RG_TLS_FAILURE_BAD_CERTIFICATE:
        return RG_STATUS_TLS_CERTIFICATE;
    case RG_TLS_FAILURE_MEMORY:
        return RG_STATUS_NO_RESOURCES;
    case RG_TLS_FAILURE_ALERT:
        return RG_STATUS_CONNECT;
    case RG_TLS_FAILURE_RECORD_MAC:
        /* Bytes were damaged on the way; another connection may fare better. */
        return RG_STATUS_CONNECTION_LOST;
    default:
        return RG_STATUS_TLS_PROTOCOL;
    }
}

enum rg_tls_failure rg_tls_failure_of_reason(int reason)
{
    switch (reason) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
        return RG_TLS_FAILURE_NOT_TLS;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
        return RG_TLS_FAILURE_VERSION;
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_UNKNOWN_CIPHER_RETURNED:
    case SSL_R_WRONG_CIPHER_RETURNED:
        return RG_TLS_FAILURE_NO_COMMON_CIPHER;
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
        return RG_TLS_FAILURE_RECORD_MAC;
    default:
        return RG_TLS_FAILURE_PROTOCOL;
    }
}

enum rg_tls_failure rg_tls_failure_of_alert(int alert)
{
    switch (alert) {
    case SSL_AD_HANDSHAKE_FAILURE:
    case SSL_AD_NO_CERTIFICATE:
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_PROTOCOL_VERSION:
    case SSL_AD_INSUFFICIENT_SECURITY:
    case SSL_AD_CERTIFICATE_REQUIRED:
        return RG_TLS_FAILURE_REFUSED;
    default:
        return RG_TLS_FAILURE_ALERT;
    }
}
