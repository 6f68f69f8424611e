/* External accounts by certificate: what the token server is sent, and shown, and what is wrong
 * with the files. */
#include "gcs/credentials/certificate.h"
#include "tests/gcs/credentials/token_case.h"

/* The files of a workload, and a token server that lets in only who shows its certificate. */
struct workload {
    struct token_case tokens;
    struct rg_test_certificate leaf;
    char cert[RG_TEST_PATH_SIZE], key[RG_TEST_PATH_SIZE], chain[RG_TEST_PATH_SIZE];
    char config[RG_TEST_PATH_SIZE];
};

static void workload_open(struct workload *workload, const char *chain_of)
{
    static const struct rg_token_route sts = {.path = "/sts", .body = TOKEN_ANSWER("m#")};
    struct token_case *c = &workload->tokens;
    token_case_open(c, &sts, 1);
    rg_token_server_stop(c->server);
    c->server = rg_token_server_start(&(struct rg_token_server_options){
        .routes = &sts, .route_count = 1, .certificate = &c->leaf, .client_authority = &c->ca});
    struct rg_test_certificate_spec spec = {
        .common_name = "workload", .issuer = &c->ca, .for_clients = true};
    rg_test_certificate_make(&workload->leaf, &spec);
    rg_test_file_make(workload->leaf.cert_pem, workload->cert);
    rg_test_file_make(workload->leaf.key_pem, workload->key);
    char text[8192] = "";
    for (; *chain_of != '\0'; chain_of++) {
        strcat(text, *chain_of == 'l' ? workload->leaf.cert_pem : c->ca.cert_pem);
    }
    rg_test_file_make(text, workload->chain);
    snprintf(text, sizeof(text),
             "{\"cert_configs\":{\"workload\":{\"cert_path\":\"%s\",\"key_path\":\"%s\"}}}",
             workload->cert, workload->key);
    rg_test_file_make(text, workload->config);
}

static void workload_close(struct workload *workload)
{
    unlink(workload->cert);
    unlink(workload->key);
    unlink(workload->chain);
    unlink(workload->config);
    rg_test_certificate_free(&workload->leaf);
    token_case_close(&workload->tokens);
}

static void workload_file(struct workload *workload, const char *certificate)
{
    char file[1024];
    snprintf(file, sizeof(file),
             "{\"type\":\"external_account\",\"audience\":\"//iam/pool\",\"subject_token_type\":"
             "\"urn:ietf:params:oauth:token-type:mtls\",\"token_url\":\"$/sts\","
             "\"credential_source\":{\"certificate\":{%s}}}",
             certificate);
    token_case_file(&workload->tokens, file);
}

/* The base64 of a certificate as a form has it, in its place. */
static void form_text(const char *pem, char out[4096])
{
    size_t size = 0;
    for (const char *at = strchr(pem, '\n'); *at != '-'; at++) {
        const char *escape = *at == '+' ? "%2B" : *at == '/' ? "%2F" : *at == '=' ? "%3D" : NULL;
        if (escape != NULL) {
            memcpy(out + size, escape, 3);
            size += 3;
        } else if (*at != '\n') {
            out[size++] = *at;
        }
    }
    out[size] = '\0';
}

static void test_the_chain_is_shown_and_sent(void)
{
    static const char *const chains[] = {"a", "la", ""};
    for (size_t i = 0; i < RG_ARRAY_LEN(chains); i++) {
        struct workload workload;
        workload_open(&workload, chains[i]);
        char certificate[256], leaf[4096], ca[4096], want[8400];
        snprintf(certificate, sizeof(certificate),
                 "\"certificate_config_location\":\"%s\",\"trust_chain_path\":\"%s\"",
                 workload.config, workload.chain);
        workload_file(&workload, certificate);
        token_case_expect(&workload.tokens, NULL, "m1");
        form_text(workload.leaf.cert_pem, leaf);
        form_text(workload.tokens.ca.cert_pem, ca);
        snprintf(want, sizeof(want),
                 "&subject_token=%%5B%%22%s%%22%s%s%s%%5D&subject_token_type=", leaf,
                 *chains[i] != '\0' ? "%2C%22" : "", *chains[i] != '\0' ? ca : "",
                 *chains[i] != '\0' ? "%22" : "");
        RG_CHECK_CONTAINS(token_case_asked(&workload.tokens, 0), want);
        RG_CHECK(workload.tokens.run.fetcher.cert_file == NULL);
        workload_close(&workload);
    }
}

static void test_the_default_configuration(void)
{
    struct workload workload;
    workload_open(&workload, "");
    setenv("GOOGLE_API_CERTIFICATE_CONFIG", workload.config, 1);
    workload_file(&workload, "\"use_default_certificate_config\":true");
    unsetenv("GOOGLE_API_CERTIFICATE_CONFIG");
    token_case_expect(&workload.tokens, NULL, "m1");
    workload_close(&workload);
}

/* One file is broken: a line that names it, and nobody is asked. */
static void check_broken(const char *chain_of, const char *contents, size_t which)
{
    struct workload workload;
    workload_open(&workload, chain_of);
    const char *const paths[] = {workload.config, workload.cert, workload.chain};
    FILE *file = contents != NULL ? fopen(paths[which], "we") : NULL;
    if (file != NULL) {
        fputs(contents, file);
        fclose(file);
    }
    char certificate[256];
    snprintf(certificate, sizeof(certificate),
             "\"certificate_config_location\":\"%s\",\"trust_chain_path\":\"%s\"", workload.config,
             workload.chain);
    workload_file(&workload, certificate);
    RG_CHECK(token_case_obtain(&workload.tokens, NULL) < 0);
    RG_CHECK_CONTAINS(workload.tokens.run.text, paths[which]);
    RG_CHECK_EQ(rg_token_server_count(workload.tokens.server), 0);
    workload_close(&workload);
}

static void test_files_that_are_broken(void)
{
    check_broken("", "no JSON", 0);
    check_broken("", "{\"cert_configs\":{\"workload\":{\"cert_path\":\"/x\"}}}", 0);
    check_broken("", "no PEM", 1);
    check_broken("", "-----BEGIN CERTIFICATE-----\n\"\n-----END CERTIFICATE-----", 1);
    check_broken("al", NULL, 2);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_chain_is_shown_and_sent),
        RG_TEST(test_the_default_configuration),
        RG_TEST(test_files_that_are_broken),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
