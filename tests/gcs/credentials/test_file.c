/* Credential files: the search order, and every field that may be wrong, each with one line that
 * names it. */
#include "gcs/credentials/file.h"
#include "gcs/wire/digest.h"
#include "tests/support/certificates.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_case {
    struct rg_secret_arena arena;
    struct rg_credentials_reader reader;
    const char *origin;
    uint8_t hash[RG_SHA256_SIZE];
};

static void case_open(struct file_case *c)
{
    *c = (struct file_case){0};
    RG_CHECK_EQ(rg_secret_arena_init(&c->arena, RG_MIB(2)), 0);
    c->reader = (struct rg_credentials_reader){.arena = &c->arena, .path = "F"};
}

static struct rg_credentials_config *parse(struct file_case *c, const char *text)
{
    return rg_credentials_parse(&c->reader, text, strlen(text));
}

static void check_refused(const char *text, const char *part)
{
    struct file_case c;
    case_open(&c);
    RG_CHECK(parse(&c, text) == NULL);
    RG_CHECK_EQ(c.reader.rc, -EINVAL);
    RG_CHECK_CONTAINS(c.reader.text, "F: ");
    RG_CHECK_CONTAINS(c.reader.text, part);
    RG_CHECK(strchr(c.reader.text, '\n') == NULL && strstr(c.reader.text, "SECRET") == NULL);
    rg_secret_arena_fini(&c.arena);
}

#define USER(id, secret, refresh, more)                                                            \
    "{\"type\":\"authorized_user\",\"client_id\":" id ",\"client_secret\":" secret                 \
    ",\"refresh_token\":" refresh more "}"

static void test_files_that_are_no_credentials(void)
{
    check_refused("", "not a JSON object");
    check_refused("SECRET", "not a JSON object");
    check_refused("[]", "not a JSON object");
    check_refused("{\"type\":\"authorized_user\"", "not a JSON object");
    check_refused("{}", "field \"type\" is missing");
    check_refused("{\"type\":7}", "field \"type\" is not a string");
    check_refused("{\"type\":\"\"}", "field \"type\" is empty");
    check_refused("{\"type\":\"two\\nlines\\u001b\"}", "two lines ");
    check_refused("{\"type\":\"gdch_service_account\"}", "gdch_service_account");
}

static void test_users(void)
{
    check_refused(USER("null", "\"s\"", "\"r\"", ""), "\"client_id\" is missing");
    check_refused(USER("7", "\"s\"", "\"r\"", ""), "\"client_id\" is not a string");
    check_refused(USER("\"a\\u0000b\"", "\"s\"", "\"r\"", ""), "\"client_id\" is not a string");
    check_refused(USER("\"i\"", "\"\"", "\"r\"", ""), "\"client_secret\" is empty");
    check_refused(USER("\"i\"", "\"SECRET\"", "[]", ""), "\"refresh_token\" is not a string");
    check_refused(USER("\"i\"", "\"s\"", "\"r\"", ",\"token_uri\":\"http://x.example/t\""),
                  "\"token_uri\" is not an https URL");
    check_refused(USER("\"i\"", "\"s\"", "\"r\"", ",\"token_uri\":\"nonsense\""),
                  "\"token_uri\" is not a URL");
    check_refused(USER("\"i\"", "\"s\"", "\"r\"", ",\"universe_domain\":\"a/b\""),
                  "\"universe_domain\"");
    check_refused(USER("\"i\"", "\"s\"", "\"r\"", ",\"quota_project_id\":\"a\\r\\nb: c\""),
                  "\"quota_project_id\"");
    struct file_case c;
    case_open(&c);
    struct rg_credentials_config *config =
        parse(&c, USER("\"i\"", "\"s\"", "\"r\"", ",\"quota_project_id\":\"example.com:p-1\""));
    RG_CHECK(config != NULL && config->kind == &rg_credentials_authorized_user);
    RG_CHECK_STR(config->token_url, "https://oauth2.googleapis.com/token");
    RG_CHECK_STR(config->quota_project, "example.com:p-1");
    RG_CHECK_STR(config->universe, "googleapis.com");
    rg_secret_arena_fini(&c.arena);
}

static void test_service_accounts(void)
{
    check_refused("{\"type\":\"service_account\",\"private_key\":\"SECRET\"}",
                  "\"client_email\" is missing");
    check_refused("{\"type\":\"service_account\",\"client_email\":\"a@b\"}",
                  "\"private_key\" is missing");
    check_refused("{\"type\":\"service_account\",\"client_email\":\"a@b\",\"private_key\":"
                  "\"-----BEGIN PRIVATE KEY-----\\nSECRET\\n-----END PRIVATE KEY-----\\n\"}",
                  "\"private_key\" is not an RSA private key");
}

#define EXTERNAL(more)                                                                             \
    "{\"type\":\"external_account\",\"audience\":\"a\",\"subject_token_type\":\"t\"" more "}"
#define SOURCE ",\"credential_source\":{\"file\":\"/f\"}"
#define TOKEN_URL(url) EXTERNAL(SOURCE ",\"token_url\":\"" url "\"")

static void test_external_accounts(void)
{
    check_refused("{\"type\":\"external_account\",\"subject_token_type\":\"t\"" SOURCE "}",
                  "\"audience\" is missing");
    check_refused("{\"type\":\"external_account\",\"audience\":\"t\"" SOURCE "}",
                  "\"subject_token_type\" is missing");
    check_refused(EXTERNAL(""), "\"credential_source\" is missing");
    check_refused(EXTERNAL(",\"credential_source\":{}"), "none of file, url");
    check_refused(EXTERNAL(",\"credential_source\":{\"certificate\":{}}"),
                  "use_default_certificate_config");
    check_refused(EXTERNAL(",\"credential_source\":{\"file\":7}"), "\"file\" is not a string");
    check_refused(EXTERNAL(",\"credential_source\":{\"executable\":{}}"), "\"command\" is missing");
    check_refused(EXTERNAL(",\"credential_source\":{\"executable\":{\"command\":\"x\","
                           "\"timeout_millis\":100}}"),
                  "\"timeout_millis\" is not between 5000 and 120000");
    check_refused(EXTERNAL(",\"credential_source\":{\"file\":\"f\",\"format\":{\"type\":\"xml\"}}"),
                  "\"format.type\"");
    check_refused(
        EXTERNAL(",\"credential_source\":{\"file\":\"f\",\"format\":{\"type\":\"json\"}}"),
        "\"subject_token_field_name\" is missing");
    check_refused(EXTERNAL(",\"credential_source\":{\"url\":\"http://x/\",\"headers\":{\"a\":1}}"),
                  "\"headers\"");
    check_refused(EXTERNAL(",\"credential_source\":{\"environment_id\":\"aws2\"}"),
                  "\"environment_id\" is not aws1");
    check_refused(EXTERNAL(",\"credential_source\":{\"environment_id\":\"aws1\"}"),
                  "\"regional_cred_verification_url\" is missing");
    check_refused(EXTERNAL(",\"credential_source\":{\"environment_id\":\"aws1\","
                           "\"regional_cred_verification_url\":\"https://x/\",\"url\":"
                           "\"http://evil.example/\"}"),
                  "\"url\" names a host");
    check_refused(EXTERNAL(SOURCE ",\"service_account_impersonation_url\":\"https://x/\""),
                  "\"service_account_impersonation_url\" names a host");
    check_refused(EXTERNAL(SOURCE ",\"service_account_impersonation_url\":"
                                  "\"https://iam.googleapis.com/a@b:generateAccessToken\","
                                  "\"service_account_impersonation\":{\"token_lifetime_seconds\":"
                                  "60}"),
                  "\"token_lifetime_seconds\" is not between");
}

static void test_hosts_that_may_see_a_token(void)
{
    static const char *const good[] = {
        TOKEN_URL("https://sts.googleapis.com/v1/token"),
        TOKEN_URL("https://sts.us-east1.rep.googleapis.com/v1/token"),
        TOKEN_URL("http://localhost:7/x"),
        TOKEN_URL("http://127.0.0.1:7/x"),
        EXTERNAL(SOURCE ",\"universe_domain\":\"cloud.example\",\"token_url\":"
                        "\"https://sts.cloud.example/x\""),
        EXTERNAL(SOURCE),
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(good); i++) {
        struct file_case c;
        case_open(&c);
        if (parse(&c, good[i]) == NULL) {
            rg_test_fail(__FILE__, __LINE__, "%s: %s", good[i], c.reader.text);
        }
        rg_secret_arena_fini(&c.arena);
    }
    check_refused(TOKEN_URL("https://googleapis.com/"), "\"token_url\" names a host");
    check_refused(TOKEN_URL("https://evilgoogleapis.com/"), "\"token_url\" names a host");
    check_refused(TOKEN_URL("https://sts.googleapis.com.evil.example/"),
                  "\"token_url\" names a host");
    check_refused(TOKEN_URL("https://localhost.evil.example/"), "\"token_url\" names a host");
    check_refused(TOKEN_URL("https://sts.googleapis.com@evil.example/"), "\"token_url\" is not");
    check_refused(TOKEN_URL("http://sts.googleapis.com/"), "\"token_url\" is not an https URL");
}

#define IMPERSONATED(more)                                                                         \
    "{\"type\":\"impersonated_service_account\",\"service_account_impersonation_url\":"            \
    "\"https://iamcredentials.googleapis.com/v1/a@b:generateAccessToken\"" more "}"
#define NESTED ",\"source_credentials\":" USER("\"i\"", "\"s\"", "\"r\"", "")

static void test_impersonated_accounts(void)
{
    check_refused("{\"type\":\"impersonated_service_account\"" NESTED "}",
                  "\"service_account_impersonation_url\" is missing");
    check_refused("{\"type\":\"impersonated_service_account\","
                  "\"service_account_impersonation_url\":\"https://iam.googleapis.com/x\"" NESTED
                  "}",
                  "does not end in");
    check_refused(IMPERSONATED(""), "\"source_credentials\" is missing");
    check_refused(IMPERSONATED(",\"source_credentials\":{}"), "field \"type\" is missing");
    check_refused(IMPERSONATED(",\"source_credentials\":" IMPERSONATED(NESTED)),
                  "not supported as source_credentials");
    check_refused(IMPERSONATED(NESTED ",\"delegates\":\"x\""), "\"delegates\"");
    check_refused(IMPERSONATED(NESTED ",\"delegates\":[1]"), "\"delegates\"");
    check_refused(IMPERSONATED(NESTED ",\"scopes\":[1]"), "\"scopes\"");
    struct file_case c;
    case_open(&c);
    struct rg_credentials_config *config = parse(&c, IMPERSONATED(NESTED));
    RG_CHECK(config != NULL && config->source != NULL);
    RG_CHECK_STR(config->account, "a@b");
    rg_secret_arena_fini(&c.arena);
}

/* A folder of the environment's, with gcloud's file in it. */
struct folder {
    char path[64], file[128];
};

static void folder_make(struct folder *folder, const char *text)
{
    strcpy(folder->path, "/tmp/ringest-test-XXXXXX");
    RG_CHECK(mkdtemp(folder->path) != NULL);
    snprintf(folder->file, sizeof(folder->file), "%s/application_default_credentials.json",
             folder->path);
    if (text != NULL) {
        FILE *file = fopen(folder->file, "we");
        fputs(text, file);
        fclose(file);
    }
}

static void folder_free(const struct folder *folder)
{
    unlink(folder->file);
    rmdir(folder->path);
}

static void check_found(const char *path, const struct rg_credentials_kind *kind,
                        const char *origin)
{
    struct file_case c;
    case_open(&c);
    struct rg_credentials_config *config = rg_credentials_find(&c.reader, path, &c.origin, c.hash);
    if (config == NULL) {
        rg_test_fail(__FILE__, __LINE__, "%s", c.reader.text);
    }
    RG_CHECK(config->kind == kind);
    RG_CHECK_STR(c.origin, origin);
    rg_secret_arena_fini(&c.arena);
}

static void check_not_found(const char *path, int want, const char *part)
{
    struct file_case c;
    case_open(&c);
    RG_CHECK(rg_credentials_find(&c.reader, path, &c.origin, c.hash) == NULL);
    RG_CHECK_EQ(c.reader.rc, want);
    RG_CHECK_CONTAINS(c.reader.text, part);
    rg_secret_arena_fini(&c.arena);
}

static void environment_clear(void)
{
    static const char *const names[] = {"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG",
                                        "NO_GCE_CHECK", "GCE_METADATA_HOST"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        unsetenv(names[i]);
    }
}

static void test_the_order_of_the_search(void)
{
    struct folder gcloud, home;
    char named[RG_TEST_PATH_SIZE];
    folder_make(&gcloud, EXTERNAL(SOURCE));
    folder_make(&home, NULL);
    rg_test_file_make(USER("\"i\"", "\"s\"", "\"r\"", ""), named);
    environment_clear();
    setenv("HOME", home.path, 1);
    check_found(NULL, &rg_credentials_metadata, "the environment");
    setenv("NO_GCE_CHECK", "True", 1);
    check_found(NULL, &rg_credentials_none, "the environment");
    setenv("CLOUDSDK_CONFIG", gcloud.path, 1);
    check_found(NULL, &rg_credentials_external_account, gcloud.file);
    setenv("GOOGLE_APPLICATION_CREDENTIALS", named, 1);
    check_found(NULL, &rg_credentials_authorized_user, named);
    check_found(gcloud.file, &rg_credentials_external_account, gcloud.file);
    /* A file that is named and is not there is an error, not a reason to look on. */
    unlink(named);
    check_not_found(NULL, -ENOENT, named);
    environment_clear();
    folder_free(&gcloud);
    folder_free(&home);
}

static void test_gclouds_file_below_home(void)
{
    struct folder home;
    char folder[256], file[300];
    folder_make(&home, NULL);
    environment_clear();
    snprintf(folder, sizeof(folder), "%s/.config", home.path);
    RG_CHECK_EQ(mkdir(folder, 0700), 0);
    strcat(folder, "/gcloud");
    RG_CHECK_EQ(mkdir(folder, 0700), 0);
    snprintf(file, sizeof(file), "%s/application_default_credentials.json", folder);
    FILE *out = fopen(file, "we");
    fputs(EXTERNAL(SOURCE), out);
    fclose(out);
    setenv("HOME", home.path, 1);
    check_found(NULL, &rg_credentials_external_account, file);
    unlink(file);
    rmdir(folder);
    *strrchr(folder, '/') = '\0';
    rmdir(folder);
    folder_free(&home);
}

/* The thread that reads the pipe. */
static pid_t reader;

static void *pipe_main(void *context)
{
    static const char text[] = USER("\"i\"", "\"s\"", "\"r\"", "");
    int fd = *(const int *)context;
    rg_test_await_asleep(reader);
    RG_ASSERT(write(fd, text, 10) == 10);
    rg_test_await_asleep(reader);
    RG_ASSERT(write(fd, text + 10, strlen(text) - 10) == (ssize_t)strlen(text) - 10);
    close(fd);
    return NULL;
}

/* As a shell's <(command) gives one. */
static void test_a_pipe_with_a_slow_writer(void)
{
    int ends[2];
    char path[64];
    pthread_t thread;
    RG_CHECK_EQ(pipe(ends), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
    reader = gettid();
    RG_CHECK_EQ(pthread_create(&thread, NULL, pipe_main, &ends[1]), 0);
    check_found(path, &rg_credentials_authorized_user, path);
    pthread_join(thread, NULL);
    close(ends[0]);
}

static void test_files_that_cannot_be_read(void)
{
    char path[RG_TEST_PATH_SIZE];
    char *large = malloc(RG_CREDENTIALS_FILE_SIZE_MAX + 2);
    RG_CHECK(large != NULL);
    memset(large, ' ', RG_CREDENTIALS_FILE_SIZE_MAX + 1);
    large[RG_CREDENTIALS_FILE_SIZE_MAX + 1] = '\0';
    rg_test_file_make(large, path);
    check_not_found(path, -EFBIG, path);
    unlink(path);
    check_not_found("/tmp", -EISDIR, "/tmp: the credential file cannot be read");
    check_not_found("/dev/zero", -EINVAL, "/dev/zero");
    check_not_found("/nowhere/at/all", -ENOENT, "No such file");
    free(large);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_files_that_are_no_credentials),
        RG_TEST(test_users),
        RG_TEST(test_service_accounts),
        RG_TEST(test_external_accounts),
        RG_TEST(test_hosts_that_may_see_a_token),
        RG_TEST(test_impersonated_accounts),
        RG_TEST(test_the_order_of_the_search),
        RG_TEST(test_gclouds_file_below_home),
        RG_TEST(test_a_pipe_with_a_slow_writer),
        RG_TEST(test_files_that_cannot_be_read),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
