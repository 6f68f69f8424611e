/* Kinds of failures: what a reason and an alert mean, and what a request makes of them. */
#include "http/tls_failure.h"

#include "tests/support/test.h"

#include <openssl/ssl.h>

static void test_every_failure_has_a_name_a_text_and_a_status(void)
{
    RG_CHECK_STR(rg_tls_failure_name(RG_TLS_FAILURE_EXPIRED), "EXPIRED");
    RG_CHECK_STR(rg_tls_failure_summary(RG_TLS_FAILURE_NONE), "no failure");
    for (enum rg_tls_failure failure = RG_TLS_FAILURE_EXPIRED; failure < RG_TLS_FAILURE_COUNT;
         failure++) {
        RG_CHECK(rg_tls_failure_name(failure)[0] != '\0');
        RG_CHECK(rg_tls_failure_summary(failure)[0] != '\0');
        RG_CHECK(rg_tls_failure_status(failure) != RG_STATUS_OK);
    }
}

static void test_certificates_are_final_and_damage_is_not(void)
{
    static const struct {
        enum rg_tls_failure failure;
        enum rg_status status;
    } cases[] = {
        {RG_TLS_FAILURE_EXPIRED, RG_STATUS_TLS_CERTIFICATE},
        {RG_TLS_FAILURE_BAD_CERTIFICATE, RG_STATUS_TLS_CERTIFICATE},
        {RG_TLS_FAILURE_MEMORY, RG_STATUS_NO_RESOURCES},
        {RG_TLS_FAILURE_ALERT, RG_STATUS_CONNECT},
        {RG_TLS_FAILURE_RECORD_MAC, RG_STATUS_CONNECTION_LOST},
        {RG_TLS_FAILURE_REFUSED, RG_STATUS_TLS_PROTOCOL},
        {RG_TLS_FAILURE_NOT_TLS, RG_STATUS_TLS_PROTOCOL},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        RG_CHECK_EQ(rg_tls_failure_status(cases[i].failure), cases[i].status);
    }
    RG_CHECK(rg_status_retryable(RG_STATUS_CONNECTION_LOST));
    RG_CHECK(!rg_status_retryable(RG_STATUS_TLS_CERTIFICATE));
}

static void test_reasons_of_boringssl(void)
{
    RG_CHECK_EQ(rg_tls_failure_of_reason(SSL_R_HTTP_REQUEST), RG_TLS_FAILURE_NOT_TLS);
    RG_CHECK_EQ(rg_tls_failure_of_reason(SSL_R_UNSUPPORTED_PROTOCOL), RG_TLS_FAILURE_VERSION);
    RG_CHECK_EQ(rg_tls_failure_of_reason(SSL_R_NO_SHARED_CIPHER), RG_TLS_FAILURE_NO_COMMON_CIPHER);
    RG_CHECK_EQ(rg_tls_failure_of_reason(SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC),
                RG_TLS_FAILURE_RECORD_MAC);
    RG_CHECK_EQ(rg_tls_failure_of_reason(SSL_R_PARSE_TLSEXT), RG_TLS_FAILURE_PROTOCOL);
}

static void test_alerts_that_every_attempt_would_meet_are_refusals(void)
{
    RG_CHECK_EQ(rg_tls_failure_of_alert(SSL_AD_HANDSHAKE_FAILURE), RG_TLS_FAILURE_REFUSED);
    RG_CHECK_EQ(rg_tls_failure_of_alert(SSL_AD_CERTIFICATE_REQUIRED), RG_TLS_FAILURE_REFUSED);
    RG_CHECK_EQ(rg_tls_failure_of_alert(SSL_AD_INTERNAL_ERROR), RG_TLS_FAILURE_ALERT);
    RG_CHECK_EQ(rg_tls_failure_of_alert(255), RG_TLS_FAILURE_ALERT);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_every_failure_has_a_name_a_text_and_a_status),
        RG_TEST(test_certificates_are_final_and_damage_is_not),
        RG_TEST(test_reasons_of_boringssl),
        RG_TEST(test_alerts_that_every_attempt_would_meet_are_refusals),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
