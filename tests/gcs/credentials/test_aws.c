/* AWS identities: the signature against AWS's own published examples, and where keys and region
 * come from. */
#include "gcs/credentials/aws.h"
#include "http/url.h"
#include "tests/gcs/credentials/token_case.h"

#define AUDIENCE                                                                                   \
    "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/a"
#define AWS_FILE(source)                                                                           \
    "{\"type\":\"external_account\",\"audience\":\"" AUDIENCE "\",\"subject_token_type\":"         \
    "\"urn:ietf:params:aws:token-type:aws4_request\",\"token_url\":\"$/sts\","                     \
    "\"credential_source\":{\"environment_id\":\"aws1\",\"regional_cred_verification_url\":"       \
    "\"https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15\"" source    \
    "}}"
#define IMDS                                                                                       \
    ",\"region_url\":\"$/zone\",\"url\":\"$/roles\",\"imdsv2_session_token_url\":\"$/session\""

static void check_signature(const struct rg_sigv4 *request, const char *want)
{
    struct rg_secret_arena arena;
    RG_CHECK_EQ(rg_secret_arena_init(&arena, RG_KIB(64)), 0);
    RG_CHECK_STR(rg_sigv4_authorization(&arena, request), want);
    rg_secret_arena_fini(&arena);
}

/* "get-vanilla" and "post-vanilla" of AWS's test suite, and the example of its general reference.
 */
static void test_signatures_that_aws_published(void)
{
    static const struct rg_fetch_field vanilla[] = {{"host", "example.amazonaws.com"},
                                                    {"x-amz-date", "20150830T123600Z"}};
    static const struct rg_fetch_field iam[] = {
        {"content-type", "application/x-www-form-urlencoded; charset=utf-8"},
        {"host", "iam.amazonaws.com"},
        {"x-amz-date", "20150830T123600Z"}};
    struct rg_sigv4 request = {
        .access_key = "AKIDEXAMPLE",
        .secret_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        .region = "us-east-1",
        .service = "service",
        .method = "GET",
        .path = "/",
        .query = "",
        .time = "20150830T123600Z",
        .fields = vanilla,
        .field_count = 2,
    };
    check_signature(&request, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/"
                              "aws4_request, SignedHeaders=host;x-amz-date, Signature="
                              "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    request.method = "POST";
    check_signature(&request, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/"
                              "aws4_request, SignedHeaders=host;x-amz-date, Signature="
                              "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    request.method = "GET";
    request.service = "iam";
    request.query = "Action=ListUsers&Version=2010-05-08";
    request.fields = iam;
    request.field_count = 3;
    check_signature(&request,
                    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
                    "SignedHeaders=content-type;host;x-amz-date, Signature="
                    "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
}

static void environment_clear(void)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        unsetenv(names[i]);
    }
}

/* The subject token in the last form, decoded twice: of the form, and of itself. */
static const char *subject_token(struct token_case *c)
{
    static char once[8192], twice[8192];
    const char *at = strstr(token_case_asked(c, 0), "&subject_token=");
    RG_CHECK(at != NULL);
    at += strlen("&subject_token=");
    struct rg_h1_slice slice = {at, (uint32_t)strcspn(at, "&")};
    int size = rg_url_percent_decode(slice, RG_URL_QUERY, once, sizeof(once));
    RG_CHECK(size > 0);
    slice = (struct rg_h1_slice){once, (uint32_t)size};
    size = rg_url_percent_decode(slice, RG_URL_QUERY, twice, sizeof(twice) - 1);
    RG_CHECK(size > 0);
    twice[size] = '\0';
    return twice;
}

static void test_keys_and_region_of_the_environment(void)
{
    const struct rg_token_route routes[] = {{.path = "/sts", .body = TOKEN_ANSWER("g")}};
    struct token_case c;
    environment_clear();
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "hidden", 1);
    setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
    token_case_open(&c, routes, 1);
    token_case_file(&c, AWS_FILE(""));
    token_case_expect(&c, NULL, "g");
    const char *asked = token_case_asked(&c, 0);
    RG_CHECK_CONTAINS(asked, "&subject_token_type=urn%3Aietf%3Aparams%3Aaws%3Atoken-type%3Aaws4_"
                             "request");
    const char *subject = subject_token(&c);
    RG_CHECK_CONTAINS(subject, "{\"headers\":[{\"key\":\"host\",\"value\":"
                               "\"sts.eu-west-1.amazonaws.com\"},{\"key\":\"x-amz-date\"");
    RG_CHECK_CONTAINS(subject, "{\"key\":\"x-goog-cloud-target-resource\",\"value\":\"" AUDIENCE
                               "\"},{\"key\":\"Authorization\",\"value\":\"AWS4-HMAC-SHA256 "
                               "Credential=AKIDEXAMPLE/");
    RG_CHECK_CONTAINS(subject, "/eu-west-1/sts/aws4_request, SignedHeaders=host;x-amz-date;"
                               "x-goog-cloud-target-resource, Signature=");
    RG_CHECK_CONTAINS(subject, "],\"method\":\"POST\",\"url\":\"https://sts.eu-west-1.amazonaws.com"
                               "?Action=GetCallerIdentity&Version=2011-06-15\"}");
    RG_CHECK(strstr(subject, "security-token") == NULL && strstr(asked, "hidden") == NULL);
    token_case_close(&c);
    environment_clear();
}

static void test_keys_and_region_of_the_machine(void)
{
    const struct rg_token_route routes[] = {
        {.path = "/session", .method = "PUT", .body = "imds-session"},
        {.path = "/zone", .method = "GET", .body = "us-east-2b"},
        {.path = "/roles", .method = "GET", .body = "my-role\n"},
        {.path = "/roles/my-role",
         .method = "GET",
         .body =
             "{\"AccessKeyId\":\"ASIA\",\"SecretAccessKey\":\"hidden\",\"Token\":\"sess/ion\"}"},
        {.path = "/sts", .body = TOKEN_ANSWER("g")}};
    struct token_case c;
    environment_clear();
    token_case_open(&c, routes, RG_ARRAY_LEN(routes));
    token_case_file(&c, AWS_FILE(IMDS));
    token_case_expect(&c, NULL, "g");
    RG_CHECK_EQ(rg_token_server_count(c.server), 5);
    RG_CHECK_CONTAINS(token_case_asked(&c, 4), "\r\nX-aws-ec2-metadata-token-ttl-seconds: 300\r\n");
    for (unsigned i = 1; i < 4; i++) {
        RG_CHECK_CONTAINS(token_case_asked(&c, i),
                          "\r\nX-aws-ec2-metadata-token: imds-session\r\n");
    }
    const char *subject = subject_token(&c);
    RG_CHECK_CONTAINS(subject, "\"sts.us-east-2.amazonaws.com\"");
    RG_CHECK_CONTAINS(subject, "{\"key\":\"x-amz-security-token\",\"value\":\"sess/ion\"}");
    RG_CHECK_CONTAINS(subject, "SignedHeaders=host;x-amz-date;x-amz-security-token;x-goog-");
    token_case_close(&c);
}

static void test_what_is_missing_is_named(void)
{
    static const struct {
        const char *file, *part;
    } rows[] = {
        {AWS_FILE(""), "AWS_REGION"},
        {AWS_FILE(",\"region_url\":\"$/zone\""), "AWS_ACCESS_KEY_ID"},
        {AWS_FILE(",\"region_url\":\"$/absent\""), "AWS zone"},
        {AWS_FILE(",\"region_url\":\"$/zone\",\"url\":\"$/garbage\""), "no keys"},
        {AWS_FILE(",\"region_url\":\"$/garbage\""), "no zone"},
    };
    const struct rg_token_route routes[] = {{.path = "/zone", .body = "us-east-2b"},
                                            {.path = "/garbage", .body = "A&B"},
                                            {.path = "/garbage/A&B", .body = "[]"}};
    environment_clear();
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct token_case c;
        token_case_open(&c, routes, RG_ARRAY_LEN(routes));
        token_case_file(&c, rows[i].file);
        RG_CHECK(token_case_obtain(&c, NULL) < 0);
        RG_CHECK_CONTAINS(c.run.text, rows[i].part);
        token_case_close(&c);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_signatures_that_aws_published),
        RG_TEST(test_keys_and_region_of_the_environment),
        RG_TEST(test_keys_and_region_of_the_machine),
        RG_TEST(test_what_is_missing_is_named),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
