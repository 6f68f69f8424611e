/* `ringest signurl`: URLs that let whoever has them do one thing with an object for a time. They
 * are made here, by the key of a service account; no server is asked. */
#include "cli/cli.h"
#include "cli/rm_unfinished.h"
#include "cli/session.h"
#include "gcs/credentials/sign_url.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <yyjson.h>

#define PATH_SIZE 4096
#define PAYER_OPTION "user_project="
#define REMEDY                                                                                     \
    "needs the key file of a service account: --credentials FILE, or "                             \
    "GOOGLE_APPLICATION_CREDENTIALS"

struct sign {
    const char *endpoint, *credentials, *method, *content_type, *user_project;
    double seconds;
    char scheme[8], host[512];
};

/* Where the client would look, too. False: nowhere. */
static bool file_find(const struct sign *sign, char out_path[PATH_SIZE])
{
    const char *given = getenv("GOOGLE_APPLICATION_CREDENTIALS");
    const char *folder = getenv("CLOUDSDK_CONFIG"), *home = getenv("HOME");
    if (sign->credentials != NULL && strcmp(sign->credentials, "default") != 0) {
        given = sign->credentials;
    }
    int size =
        given != NULL && *given != '\0' ? snprintf(out_path, PATH_SIZE, "%s", given)
        : folder != NULL && *folder != '\0'
            ? snprintf(out_path, PATH_SIZE, "%s/application_default_credentials.json", folder)
        : home != NULL ? snprintf(out_path, PATH_SIZE,
                                  "%s/.config/gcloud/application_default_credentials.json", home)
                       : -1;
    return size >= 0 && size < PATH_SIZE;
}

/* The document, whose texts the key borrows; NULL after saying why there is none. */
static yyjson_doc *key_read(const struct sign *sign, const char **out_email, const char **out_pem)
{
    char path[PATH_SIZE];
    yyjson_read_err error = {0};
    if (sign->credentials != NULL && strcmp(sign->credentials, "anonymous") == 0) {
        cli_fail("--credentials is anonymous; signing " REMEDY);
        return NULL;
    }
    if (!file_find(sign, path)) {
        cli_fail("signing " REMEDY);
        return NULL;
    }
    yyjson_doc *doc = yyjson_read_file(path, 0, NULL, &error);
    if (doc == NULL) {
        bool is_missing = error.code == YYJSON_READ_ERROR_FILE_OPEN;
        cli_fail("%s: %s; signing " REMEDY, path, is_missing ? strerror(errno) : error.msg);
        return NULL;
    }
    yyjson_val *root = yyjson_doc_get_root(doc);
    const char *type = yyjson_get_str(yyjson_obj_get(root, "type"));
    *out_email = yyjson_get_str(yyjson_obj_get(root, "client_email"));
    *out_pem = yyjson_get_str(yyjson_obj_get(root, "private_key"));
    if (type == NULL || strcmp(type, "service_account") != 0 || *out_email == NULL ||
        *out_pem == NULL) {
        cli_fail("%s has credentials of type %s; signing " REMEDY, path,
                 type != NULL ? type : "none");
        yyjson_doc_free(doc);
        return NULL;
    }
    return doc;
}

/* As clients send them: the host is signed, and they leave a scheme's own port out of it. */
static int endpoint_split(struct sign *sign)
{
    const char *emulator = getenv("STORAGE_EMULATOR_HOST");
    const char *text = sign->endpoint != NULL                  ? sign->endpoint
                       : emulator != NULL && *emulator != '\0' ? emulator
                                                               : "https://storage.googleapis.com";
    bool is_tls = strncasecmp(text, "https://", 8) == 0;
    const char *host = is_tls ? text + 8 : strncasecmp(text, "http://", 7) == 0 ? text + 7 : text;
    size_t size = strcspn(host, "/");
    snprintf(sign->scheme, sizeof(sign->scheme), "%s", is_tls ? "https" : "http");
    if (size == 0 || size >= sizeof(sign->host) || strstr(host, "://") != NULL ||
        memchr(host, '@', size) != NULL) {
        return cli_usage("--endpoint must be https://HOST[:PORT] or http://HOST[:PORT]");
    }
    for (size_t i = 0; i < size; i++) {
        sign->host[i] = (char)tolower((unsigned char)host[i]);
    }
    sign->host[size] = '\0';
    const char *port = is_tls ? ":443" : ":80";
    size_t port_size = strlen(port);
    if (size > port_size && strcmp(sign->host + size - port_size, port) == 0) {
        sign->host[size - port_size] = '\0';
    }
    return CLI_DONE;
}

static int sign_one(const struct sign *sign, const char *email, const char *pem, const char *place)
{
    struct cli_uri uri;
    char *text;
    RG_ASSERT(cli_parse_uri(place, &uri));
    struct rg_signed_url url = {
        .email = email,
        .pem = pem,
        .scheme = sign->scheme,
        .host = sign->host,
        .bucket = uri.bucket,
        .object = uri.name,
        .method = sign->method,
        .content_type = sign->content_type,
        .user_project = sign->user_project,
        .seconds = (uint32_t)sign->seconds,
        .now = time(NULL),
    };
    int rc = rg_sign_url(&url, &text);
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", uri.bucket, uri.name,
                        rc == -EINVAL ? "the private key of the service account cannot be read"
                                      : strerror(-rc));
    }
    puts(text);
    free(text);
    return CLI_DONE;
}

/* Those that no object can have: some would be taken for another path by whoever follows the URL.
 */
static int names_check(char *const *places, int count)
{
    int status = cli_objects_check(places, count);
    for (int i = 0; i < count && status == CLI_DONE; i++) {
        struct cli_uri uri;
        RG_ASSERT(cli_parse_uri(places[i], &uri));
        if (strcmp(uri.name, ".") == 0 || strcmp(uri.name, "..") == 0 ||
            strpbrk(uri.name, "\r\n") != NULL) {
            status = cli_usage("no object has the name of \"%s\"", places[i]);
        }
    }
    return status;
}

static bool method_check(const char *method)
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};
    for (size_t i = 0; i < RG_ARRAY_LEN(methods); i++) {
        if (strcmp(method, methods[i]) == 0) {
            return true;
        }
    }
    cli_usage("--method must be GET, HEAD, PUT, POST or DELETE, got \"%s\"", method);
    return false;
}

enum { OPTION_DURATION = CLI_OPTION_FIRST, OPTION_METHOD, OPTION_CONTENT_TYPE };

static bool type_check(const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (iscntrl((unsigned char)*c)) {
            cli_usage("--content-type must not have control characters, got \"%s\"", text);
            return false;
        }
    }
    return true;
}

/* Of the client's options, the one that a URL can have. */
static bool payer_read(struct sign *sign, const char *text)
{
    size_t size = strlen(PAYER_OPTION);
    if (strncmp(text, PAYER_OPTION, size) != 0 || text[size] == '\0') {
        cli_usage("--option must be " PAYER_OPTION "PROJECT here, got \"%s\"", text);
        return false;
    }
    sign->user_project = text + size;
    return true;
}

static bool sign_option(struct sign *sign, int option)
{
    switch (option) {
    case CLI_OPTION_ENDPOINT:
        sign->endpoint = optarg;
        return true;
    case CLI_OPTION_CREDENTIALS:
        sign->credentials = optarg;
        return true;
    case CLI_OPTION_OPTION:
        return payer_read(sign, optarg);
    case OPTION_METHOD:
        sign->method = optarg;
        return method_check(optarg);
    case OPTION_CONTENT_TYPE:
        sign->content_type = optarg;
        return type_check(optarg);
    case OPTION_DURATION:
        if (!unfinished_parse_age("--duration", optarg, &sign->seconds)) {
            return false;
        }
        if (sign->seconds < 1 || sign->seconds > RG_SIGNED_URL_SECONDS_MAX) {
            cli_usage("--duration must be 1s to 7d, got \"%s\"", optarg);
            return false;
        }
        return true;
    default:
        return false;
    }
}

static int signurl_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"endpoint", required_argument, NULL, CLI_OPTION_ENDPOINT},
        {"credentials", required_argument, NULL, CLI_OPTION_CREDENTIALS},
        {"option", required_argument, NULL, CLI_OPTION_OPTION},
        {"duration", required_argument, NULL, OPTION_DURATION},
        {"method", required_argument, NULL, OPTION_METHOD},
        {"content-type", required_argument, NULL, OPTION_CONTENT_TYPE},
        {"help", no_argument, NULL, CLI_OPTION_HELP},
        {0}};
    struct sign sign = {.method = "GET", .seconds = 3600};
    int option;
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (!sign_option(&sign, option)) {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    int status = names_check(&argv[optind], argc - optind);
    status = status == CLI_DONE ? endpoint_split(&sign) : status;
    if (status != CLI_DONE) {
        return status;
    }
    const char *email, *pem;
    yyjson_doc *doc = key_read(&sign, &email, &pem);
    if (doc == NULL) {
        return CLI_FAILED;
    }
    for (int i = optind; i < argc && status == CLI_DONE; i++) {
        status = sign_one(&sign, email, pem, argv[i]);
    }
    yyjson_doc_free(doc);
    return cli_output_end(status);
}

const struct cli_command cli_signurl = {
    .name = "signurl",
    .arguments = "gs://BUCKET/OBJECT... [OPTIONS]",
    .summary = "make URLs that give access to objects for a time",
    .help =
        "Options:\n"
        "  --duration TIME    how long it is valid, at most 7d: a number with s, m, h or d;\n"
        "                     default: 1h\n"
        "  --method METHOD    what may be done: GET, HEAD, PUT, POST or DELETE; default: GET\n"
        "  --content-type TYPE\n"
        "                     that the request must have; default: none is asked for\n"
        "  --option user_project=PROJECT\n"
        "                     the project that pays, as a bucket with requester pays wants it\n"
        "  --credentials FILE key of a service account; default: Application Default Credentials\n"
        "  --endpoint URL     server to use; default: STORAGE_EMULATOR_HOST, else Cloud Storage\n"
        "\nWhoever has the URL has the access: treat it like a password. Names have no wildcards\n"
        "here, and no server is asked whether the objects exist.\n"
        "\nExamples:\n"
        "  ringest signurl gs://bucket/model.pt --duration 10m\n"
        "  curl -T model.pt \"$(ringest signurl gs://bucket/model.pt --method PUT)\"\n",
    .run = signurl_run,
};
