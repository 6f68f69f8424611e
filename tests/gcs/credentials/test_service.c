/* Service accounts: tokens signed by ourselves and tokens traded for them, checked as the server
 * would check them. */
#include "gcs/credentials/sign.h"
#include "tests/gcs/credentials/rfc7515_key.h"
#include "tests/gcs/credentials/token_case.h"

#include <openssl/base64.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <time.h>

#define SCOPE "https://www.googleapis.com/auth/devstorage.read_only"

/* With line ends written as JSON wants them. */
static const char *account_file(const char *more)
{
    static char file[4096];
    char key[2500];
    size_t size = 0;
    for (const char *at = RFC7515_KEY; *at != '\0'; at++) {
        if (*at == '\n') {
            key[size++] = '\\';
        }
        key[size++] = *at == '\n' ? 'n' : *at;
    }
    key[size] = '\0';
    snprintf(file, sizeof(file),
             "{\"type\":\"service_account\",\"client_email\":\"s@p.example\",\"private_key_id\":"
             "\"k1\",\"token_uri\":\"$/token\",\"project_id\":\"p\"%s,\"private_key\":\"%s\"}",
             more, key);
    return file;
}

static size_t base64url_decode(const char *text, size_t size, uint8_t *out, size_t capacity)
{
    char padded[4096];
    RG_CHECK(size + 4 < sizeof(padded));
    for (size_t i = 0; i < size; i++) {
        padded[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
    }
    while (size % 4 != 0) {
        padded[size++] = '=';
    }
    size_t out_size = 0;
    RG_CHECK_EQ(EVP_DecodeBase64(out, &out_size, capacity, (const uint8_t *)padded, size), 1);
    return out_size;
}

/* Verifies the signature and writes header and claims, as JSON text. */
static void jwt_open(const char *jwt, size_t jwt_size, char *header, char *claims, size_t capacity)
{
    const char *first = memchr(jwt, '.', jwt_size);
    RG_CHECK(first != NULL);
    const char *second = memchr(first + 1, '.', jwt_size - (size_t)(first + 1 - jwt));
    RG_CHECK(second != NULL);
    uint8_t signature[RG_RSA_SIGNATURE_SIZE_MAX];
    size_t signature_size = base64url_decode(second + 1, jwt_size - (size_t)(second + 1 - jwt),
                                             signature, sizeof(signature));
    BIO *bio = BIO_new_mem_buf(RFC7515_KEY, -1);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    RG_CHECK_EQ(EVP_DigestVerifyInit(context, NULL, EVP_sha256(), NULL, key), 1);
    RG_CHECK_EQ(EVP_DigestVerify(context, signature, signature_size, (const uint8_t *)jwt,
                                 (size_t)(second - jwt)),
                1);
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    BIO_free(bio);
    header[base64url_decode(jwt, (size_t)(first - jwt), (uint8_t *)header, capacity - 1)] = '\0';
    claims[base64url_decode(first + 1, (size_t)(second - first - 1), (uint8_t *)claims,
                            capacity - 1)] = '\0';
}

static int64_t claim(const char *claims, const char *name)
{
    char key[32];
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(claims, key);
    RG_CHECK(at != NULL);
    return strtoll(at + strlen(key), NULL, 10);
}

static void check_times(const char *claims, int64_t now_s)
{
    RG_CHECK_EQ(claim(claims, "exp") - claim(claims, "iat"), 3600);
    RG_CHECK(claim(claims, "iat") < now_s && claim(claims, "iat") > now_s - 30);
}

static void test_without_a_scope_the_token_is_our_own(void)
{
    const struct rg_token_route routes[] = {{.path = "/token", .body = TOKEN_ANSWER("x")}};
    char header[512], claims[1024];
    struct token_case c;
    token_case_open(&c, routes, 1);
    token_case_file(&c, account_file(""));
    RG_CHECK_EQ(token_case_obtain(&c, NULL), 0);
    jwt_open(c.token.text, strlen(c.token.text), header, claims, sizeof(header));
    RG_CHECK_STR(header, "{\"alg\":\"RS256\",\"typ\":\"JWT\",\"kid\":\"k1\"}");
    RG_CHECK_CONTAINS(claims, "\"iss\":\"s@p.example\",\"sub\":\"s@p.example\","
                              "\"aud\":\"https://storage.googleapis.com/\"");
    RG_CHECK(strstr(claims, "scope") == NULL);
    check_times(claims, time(NULL));
    RG_CHECK(token_case_life(&c) > 3500 && token_case_life(&c) < 3600);
    RG_CHECK_EQ(rg_token_server_count(c.server), 0);
    token_case_close(&c);
}

static void test_another_universe_knows_our_own_tokens_only(void)
{
    const struct rg_token_route routes[] = {{.path = "/token", .body = TOKEN_ANSWER("x")}};
    char header[512], claims[1024];
    struct token_case c;
    token_case_open(&c, routes, 1);
    token_case_file(&c, account_file(",\"universe_domain\":\"cloud.example\""));
    RG_CHECK_EQ(token_case_obtain(&c, NULL), 0);
    jwt_open(c.token.text, strlen(c.token.text), header, claims, sizeof(header));
    RG_CHECK_CONTAINS(claims, "\"aud\":\"https://storage.cloud.example/\"");
    RG_CHECK_EQ(token_case_obtain(&c, SCOPE), 0);
    jwt_open(c.token.text, strlen(c.token.text), header, claims, sizeof(header));
    RG_CHECK_CONTAINS(claims, "\"scope\":\"" SCOPE "\"");
    RG_CHECK(strstr(claims, "\"aud\"") == NULL);
    RG_CHECK_EQ(rg_token_server_count(c.server), 0);
    token_case_close(&c);
}

/* The claims of the assertion in a form. */
static void assertion_open(const char *request, char *claims, size_t capacity)
{
    const char *assertion = strstr(request, "&assertion=");
    RG_CHECK(assertion != NULL);
    assertion += strlen("&assertion=");
    char header[512];
    jwt_open(assertion, strcspn(assertion, "&"), header, claims, RG_MIN(capacity, sizeof(header)));
}

static void test_with_a_scope_an_assertion_is_traded(void)
{
    const struct rg_token_route routes[] = {{.path = "/token", .body = TOKEN_ANSWER("ya#")}};
    char claims[512], want[256];
    struct token_case c;
    token_case_open(&c, routes, 1);
    token_case_file(&c, account_file(""));
    token_case_expect(&c, SCOPE, "ya1");
    const char *asked = token_case_asked(&c, 0);
    RG_CHECK_CONTAINS(asked,
                      "\r\n\r\ngrant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&");
    assertion_open(asked, claims, sizeof(claims));
    snprintf(want, sizeof(want), "{\"iss\":\"s@p.example\",\"aud\":\"%s/token\",\"scope\":\"" SCOPE,
             rg_token_server_url(c.server));
    RG_CHECK_CONTAINS(claims, want);
    check_times(claims, time(NULL));
    token_case_close(&c);
}

static void test_a_clock_that_is_wrong_is_told_by_the_server(void)
{
    /* The server lives on 2001-09-09 and refuses what was signed in its future. */
    const struct rg_token_route routes[] = {
        {.path = "/token",
         .status = 400,
         .fields = "Date: Sun, 09 Sep 2001 01:46:40 GMT\r\n",
         .body = "{\"error\":\"invalid_grant\",\"error_description\":\"Invalid JWT: Token must be "
                 "a short-lived token\"}"}};
    char claims[512];
    struct token_case c;
    token_case_open(&c, routes, 1);
    token_case_file(&c, account_file(""));
    RG_CHECK_EQ(token_case_obtain(&c, SCOPE), -EACCES);
    RG_CHECK_CONTAINS(c.run.text, "Invalid JWT");
    RG_CHECK_EQ(rg_token_server_count(c.server), 2);
    assertion_open(token_case_asked(&c, 1), claims, sizeof(claims));
    check_times(claims, time(NULL));
    assertion_open(token_case_asked(&c, 0), claims, sizeof(claims));
    check_times(claims, 1000000000);
    token_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_without_a_scope_the_token_is_our_own),
        RG_TEST(test_another_universe_knows_our_own_tokens_only),
        RG_TEST(test_with_a_scope_an_assertion_is_traded),
        RG_TEST(test_a_clock_that_is_wrong_is_told_by_the_server),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
