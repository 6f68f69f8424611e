/* What is said about failures that somebody can do something about, and that nothing is about
 * others. */
#include "gcs/request/remedy.h"

#include "tests/support/client.h"
#include "tests/support/test.h"

static const char *remedy(enum rg_status status, bool is_tls, const char *verb, const char *cause)
{
    static char out[RG_REMEDY_SIZE];
    const struct rg_remedy_facts facts = {.status = status,
                                          .cause = cause,
                                          .verb = verb,
                                          .principal = "service account a@b",
                                          .is_tls = is_tls};
    return rg_remedy(&facts, out);
}

static void test_a_refusal_names_permission_and_principal(void)
{
    RG_CHECK_STR(remedy(RG_STATUS_PERMISSION, true, "get", "Access denied."),
                 "; it needs storage.objects.get; sent as service account a@b");
    RG_CHECK_STR(remedy(RG_STATUS_PERMISSION, true, "list",
                        "c@d does not have storage.objects.list access to the bucket"),
                 "");
    RG_CHECK_STR(remedy(RG_STATUS_UNAUTHENTICATED, true, "get",
                        "Anonymous caller does not have storage.objects.get access"),
                 "");
    RG_CHECK_STR(remedy(RG_STATUS_PERMISSION, true, "test permissions on", ""),
                 "; sent as service account a@b");
}

static void test_what_no_permission_changes(void)
{
    RG_CHECK_STR(remedy(RG_STATUS_PERMISSION, true, "delete",
                        "Object 'b/o' is under active Temporary hold and cannot be deleted, "
                        "overwritten or archived until hold is removed."),
                 "");
    RG_CHECK_STR(remedy(RG_STATUS_PERMISSION, true, "put",
                        "Object 'b/o' is subject to bucket's retention policy and cannot be "
                        "deleted or overwritten until 2027"),
                 "");
}

static void test_what_the_service_wants_to_be_told(void)
{
    RG_CHECK_CONTAINS(remedy(RG_STATUS_BAD_REQUEST, true, "get",
                             "Bucket is a requester pays bucket but no user project provided."),
                      "--option user_project=PROJECT");
    RG_CHECK_CONTAINS(
        remedy(RG_STATUS_BAD_REQUEST, true, "get",
               "The target object is encrypted by a customer-supplied encryption key."),
        "RINGEST_HEADERS");
    RG_CHECK_STR(remedy(RG_STATUS_BAD_REQUEST, true, "get", "Invalid argument."), "");
}

static void test_an_unknown_authority_names_the_option(void)
{
    RG_CHECK_CONTAINS(remedy(RG_STATUS_TLS_CERTIFICATE, true, "get", "unknown issuer CN=x"),
                      "ca_file (--ca, Client(ca=...)) or SSL_CERT_FILE");
    RG_CHECK_CONTAINS(remedy(RG_STATUS_TLS_CERTIFICATE, true, "get", "self-signed certificate"),
                      "ca_file");
    RG_CHECK_STR(remedy(RG_STATUS_TLS_CERTIFICATE, true, "get", "certificate expired"), "");
}

static void test_a_wrong_scheme_names_the_right_one(void)
{
    RG_CHECK_CONTAINS(
        remedy(RG_STATUS_TLS_PROTOCOL, true, "get", "peer does not speak TLS (a port ...?)"),
        "use http:// in the endpoint");
    RG_CHECK_STR(remedy(RG_STATUS_TLS_PROTOCOL, false, "get", "the server speaks TLS here"),
                 "; use https:// in the endpoint");
    RG_CHECK_STR(remedy(RG_STATUS_BAD_REQUEST, false, "get",
                        "400 The plain HTTP request was sent to HTTPS port"),
                 "; use https:// in the endpoint");
    RG_CHECK_STR(remedy(RG_STATUS_CONNECTION_LOST, false, "get",
                        "the server closed the connection before any answer"),
                 "; if this port expects TLS, use https:// in the endpoint");
    RG_CHECK_STR(remedy(RG_STATUS_CONNECTION_LOST, true, "get",
                        "the server closed the connection before any answer"),
                 "");
}

static void test_nothing_is_said_of_others(void)
{
    for (int status = RG_STATUS_OK; status <= RG_STATUS_UNEXPECTED; status++) {
        if (status != RG_STATUS_PERMISSION && status != RG_STATUS_UNAUTHENTICATED) {
            RG_CHECK_STR(remedy((enum rg_status)status, false, "get", ""), "");
        }
    }
}

/* From a port that speaks the other protocol, the first answer is enough. */
static void test_tls_in_answer_to_plain_http_is_known_at_once(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND("\x15\x03\x01\x00\x02\x02\x46"), RG_CUT};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    rg_test_get(&c, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, TLS_PROTOCOL);
    RG_CHECK_EQ(done.attempts, 1);
    RG_CHECK_CONTAINS(done.detail, "speaks TLS");
    RG_CHECK_CONTAINS(done.detail, "use https:// in the endpoint");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_a_port_that_hangs_up_is_suspected(void)
{
    const struct rg_step script[] = {RG_READ, RG_CUT};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .options = {.attempts_max = 2}};
    rg_test_client_open(&c);
    rg_test_get(&c, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, CONNECTION_LOST);
    RG_CHECK_CONTAINS(done.detail, "if this port expects TLS, use https:// in the endpoint");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_a_refusal_tells_in_whose_name(void)
{
    static const char body[] = "<?xml version='1.0'?><Error><Code>AccessDenied</Code>"
                               "<Message>Access denied.</Message></Error>";
    const struct rg_step script[] = {RG_READ, RG_SEND(rg_test_answer("403 Forbidden", body)),
                                     RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    rg_test_get(&c, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, PERMISSION);
    RG_CHECK_CONTAINS(done.detail, "it needs storage.objects.get; sent as anonymous");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_refusal_names_permission_and_principal),
        RG_TEST(test_what_no_permission_changes),
        RG_TEST(test_what_the_service_wants_to_be_told),
        RG_TEST(test_an_unknown_authority_names_the_option),
        RG_TEST(test_a_wrong_scheme_names_the_right_one),
        RG_TEST(test_nothing_is_said_of_others),
        RG_TEST(test_tls_in_answer_to_plain_http_is_known_at_once),
        RG_TEST(test_a_port_that_hangs_up_is_suspected),
        RG_TEST(test_a_refusal_tells_in_whose_name),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
