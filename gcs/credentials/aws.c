/* AWS as a source of identity: see aws.h. Where the environment has no keys, the
 * machine's metadata service (IMDS, version 2 where the file names its session URL) has. */
#include "gcs/credentials/aws.h"

#include "gcs/credentials/exchange.h"
#include "gcs/wire/digest.h"
#include "gcs/wire/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ENVIRONMENT_ID "aws1"
#define SESSION_SECONDS "300"
#define IMDS_TIMEOUT_NS (5 * RG_NS_PER_S)
#define REGION_MARK "{region}"
#define TIME_SIZE 17 /* "20150830T123600Z" */

/* The fields one a line, and their names; for the canonical request. */
static bool fields_write(const struct rg_sigv4 *request, char *lines, char *names, size_t capacity)
{
    size_t lines_size = 0, names_size = 0;
    for (size_t i = 0; i < request->field_count; i++) {
        const struct rg_fetch_field *field = &request->fields[i];
        RG_ASSERT(i == 0 || strcmp(request->fields[i - 1].name, field->name) < 0);
        lines_size += (size_t)snprintf(lines + lines_size, capacity - lines_size, "%s:%s\n",
                                       field->name, field->value);
        if (lines_size >= capacity) {
            return false;
        }
        names_size += (size_t)snprintf(names + names_size, capacity - names_size, "%s%s",
                                       i > 0 ? ";" : "", field->name);
    }
    return names_size < capacity;
}

static void hash_hex(const void *data, size_t size, char out[2 * RG_SHA256_SIZE + 1])
{
    uint8_t hash[RG_SHA256_SIZE];
    rg_sha256(data, size, hash);
    rg_hex_encode(hash, sizeof(hash), out);
}

static void mac_text(uint8_t key[RG_SHA256_SIZE], const char *text)
{
    uint8_t out[RG_SHA256_SIZE];
    rg_hmac_sha256(key, RG_SHA256_SIZE, text, strlen(text), out);
    memcpy(key, out, sizeof(out));
    explicit_bzero(out, sizeof(out));
}

/* The key of one day, region and service, and with it the signature. */
static bool signature_make(struct rg_secret_arena *arena, const struct rg_sigv4 *request,
                           const char *text, char out[2 * RG_SHA256_SIZE + 1])
{
    char date[9];
    snprintf(date, sizeof(date), "%.8s", request->time);
    const char *first = rg_secret_printf(arena, "AWS4%s", request->secret_key);
    uint8_t *key = rg_secret_alloc(arena, RG_SHA256_SIZE);
    if (first == NULL || key == NULL) {
        return false;
    }
    rg_hmac_sha256(first, strlen(first), date, strlen(date), key);
    mac_text(key, request->region);
    mac_text(key, request->service);
    mac_text(key, "aws4_request");
    mac_text(key, text);
    rg_hex_encode(key, RG_SHA256_SIZE, out);
    return true;
}

char *rg_sigv4_authorization(struct rg_secret_arena *arena, const struct rg_sigv4 *request)
{
    char body_hash[2 * RG_SHA256_SIZE + 1], canonical_hash[2 * RG_SHA256_SIZE + 1];
    char signature[2 * RG_SHA256_SIZE + 1];
    char *lines = rg_secret_alloc(arena, RG_SIGV4_SIZE_MAX);
    char *names = rg_secret_alloc(arena, RG_SIGV4_SIZE_MAX);
    if (lines == NULL || names == NULL || !fields_write(request, lines, names, RG_SIGV4_SIZE_MAX)) {
        return NULL;
    }
    hash_hex("", 0, body_hash);
    char *canonical = rg_secret_printf(arena, "%s\n%s\n%s\n%s\n%s\n%s", request->method,
                                       request->path, request->query, lines, names, body_hash);
    if (canonical == NULL) {
        return NULL;
    }
    hash_hex(canonical, strlen(canonical), canonical_hash);
    char *scope = rg_secret_printf(arena, "%.8s/%s/%s/aws4_request", request->time, request->region,
                                   request->service);
    char *text = scope != NULL ? rg_secret_printf(arena, "AWS4-HMAC-SHA256\n%s\n%s\n%s",
                                                  request->time, scope, canonical_hash)
                               : NULL;
    if (text == NULL || !signature_make(arena, request, text, signature)) {
        return NULL;
    }
    return rg_secret_printf(arena,
                            "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
                            request->access_key, scope, names, signature);
}

/* The machine's metadata service, at its two fixed addresses, or a stand-in on this machine. */
static void check_metadata_url(struct rg_credentials_reader *reader, const char *name,
                               const char *url)
{
    static const char *const starts[] = {"http://169.254.169.254/", "http://[fd00:ec2::254]/"};
    for (size_t i = 0; i < RG_ARRAY_LEN(starts); i++) {
        if (url == NULL || strncmp(url, starts[i], strlen(starts[i])) == 0) {
            return;
        }
    }
    /* This universe has no host, so only a loopback address passes. */
    rg_credentials_check_url(reader, name, url, NULL, true);
}

void rg_aws_source_read(struct rg_credentials_reader *reader, yyjson_val *source,
                        struct rg_credentials_config *config)
{
    struct rg_aws_source *aws = &config->aws;
    const char *id = rg_credentials_text(reader, source, "environment_id", true);
    if (id != NULL && strcmp(id, ENVIRONMENT_ID) != 0) {
        rg_credentials_refuse(reader, "field \"environment_id\" is not " ENVIRONMENT_ID);
    }
    aws->region_url = rg_credentials_text(reader, source, "region_url", false);
    aws->url = rg_credentials_text(reader, source, "url", false);
    aws->session_token_url = rg_credentials_text(reader, source, "imdsv2_session_token_url", false);
    aws->verification_url =
        rg_credentials_text(reader, source, "regional_cred_verification_url", true);
    if (aws->verification_url != NULL && strncmp(aws->verification_url, "https://", 8) != 0) {
        rg_credentials_refuse(reader, "field \"regional_cred_verification_url\" is no https URL");
    }
    check_metadata_url(reader, "region_url", aws->region_url);
    check_metadata_url(reader, "url", aws->url);
    check_metadata_url(reader, "imdsv2_session_token_url", aws->session_token_url);
    aws->access_key = rg_credentials_environment(reader, "AWS_ACCESS_KEY_ID");
    aws->secret_key = rg_credentials_environment(reader, "AWS_SECRET_ACCESS_KEY");
    aws->session_token = rg_credentials_environment(reader, "AWS_SESSION_TOKEN");
    aws->region = rg_credentials_environment(reader, "AWS_REGION");
    if (aws->region == NULL) {
        aws->region = rg_credentials_environment(reader, "AWS_DEFAULT_REGION");
    }
    config->source_kind = RG_SOURCE_AWS;
}

/* The keys and the region of one run. */
struct identity {
    const char *access_key, *secret_key, *session_token, *region;
    const char *imds_session; /* NULL: version 1 of the service, or not asked yet */
};

static char *imds_fetch(struct rg_credentials_run *run, const struct identity *identity,
                        const char *url, const char *what)
{
    const struct rg_fetch_field field = {"X-aws-ec2-metadata-token", identity->imds_session};
    struct rg_fetch_request request = {
        .method = "GET",
        .url = url,
        .fields = &field,
        .field_count = identity->imds_session != NULL ? 1 : 0,
        .timeout_ns = IMDS_TIMEOUT_NS,
    };
    return rg_fetch_document(run, &request, what);
}

static int imds_session_open(struct rg_credentials_run *run, const struct rg_aws_source *aws,
                             struct identity *identity)
{
    if (aws->session_token_url == NULL || identity->imds_session != NULL) {
        return 0;
    }
    const struct rg_fetch_field field = {"X-aws-ec2-metadata-token-ttl-seconds", SESSION_SECONDS};
    struct rg_fetch_request request = {
        .method = "PUT",
        .url = aws->session_token_url,
        .fields = &field,
        .field_count = 1,
        .timeout_ns = IMDS_TIMEOUT_NS,
    };
    identity->imds_session = rg_fetch_document(run, &request, "AWS's metadata session");
    return identity->imds_session != NULL ? 0 : -EIO;
}

static int fail_missing(struct rg_credentials_run *run, const char *what, const char *variable)
{
    return rg_credentials_fail(run, -ENOENT, true,
                               "no AWS %s: %s is not set, and the credential file names no URL for "
                               "it",
                               what, variable);
}

static int keys_find(struct rg_credentials_run *run, const struct rg_aws_source *aws,
                     struct identity *identity)
{
    if (aws->access_key != NULL && aws->secret_key != NULL) {
        identity->access_key = aws->access_key;
        identity->secret_key = aws->secret_key;
        identity->session_token = aws->session_token;
        return 0;
    }
    if (aws->url == NULL) {
        return fail_missing(run, "keys", "AWS_ACCESS_KEY_ID");
    }
    if (imds_session_open(run, aws, identity) < 0) {
        return -EIO;
    }
    char *role = imds_fetch(run, identity, aws->url, "the machine's AWS role");
    if (role == NULL) {
        return -EIO;
    }
    role[strcspn(role, "\r\n")] = '\0';
    size_t url_size = strlen(aws->url);
    const char *slash = aws->url[url_size - 1] == '/' ? "" : "/";
    char *url = rg_secret_printf(&run->arena, "%s%s%s", aws->url, slash, role);
    char *document = url != NULL ? imds_fetch(run, identity, url, "the AWS role's keys") : NULL;
    yyjson_val *root =
        document != NULL ? rg_json_parse(&run->arena, document, strlen(document)) : NULL;
    identity->access_key = rg_json_text(root, "AccessKeyId");
    identity->secret_key = rg_json_text(root, "SecretAccessKey");
    identity->session_token = rg_json_text(root, "Token");
    if (identity->access_key == NULL || identity->secret_key == NULL) {
        return rg_credentials_fail(run, -EBADMSG, false,
                                   "AWS's metadata service sent no keys for the machine's role");
    }
    return 0;
}

/* The zone "us-east-1d" lies in the region "us-east-1". */
static int region_find(struct rg_credentials_run *run, const struct rg_aws_source *aws,
                       struct identity *identity)
{
    identity->region = aws->region;
    if (identity->region != NULL) {
        return 0;
    }
    if (aws->region_url == NULL) {
        return fail_missing(run, "region", "AWS_REGION");
    }
    if (imds_session_open(run, aws, identity) < 0) {
        return -EIO;
    }
    char *zone = imds_fetch(run, identity, aws->region_url, "the machine's AWS zone");
    if (zone == NULL) {
        return -EIO;
    }
    zone[strcspn(zone, "\r\n")] = '\0';
    size_t size = strlen(zone);
    if (size < 2 || strspn(zone, "abcdefghijklmnopqrstuvwxyz0123456789-") != size) {
        return rg_credentials_fail(run, -EBADMSG, false, "AWS's metadata service sent no zone");
    }
    zone[size - 1] = '\0';
    identity->region = zone;
    return 0;
}

/* The verification URL with the region in its place. */
static char *verification_url(struct rg_credentials_run *run, const struct rg_aws_source *aws,
                              const char *region)
{
    const char *url = aws->verification_url, *mark = strstr(url, REGION_MARK);
    if (mark == NULL) {
        return rg_secret_copy(&run->arena, url, strlen(url));
    }
    return rg_secret_printf(&run->arena, "%.*s%s%s", (int)(mark - url), url, region,
                            mark + strlen(REGION_MARK));
}

/* The signed request as Google's server wants to see it. */
static char *request_write(struct rg_credentials_run *run, const char *url,
                           const struct rg_fetch_field *fields, size_t field_count,
                           const char *authorization)
{
    yyjson_alc allocator = rg_json_allocator(&run->arena);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&allocator);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "headers");
    for (size_t i = 0; i <= field_count; i++) {
        yyjson_mut_val *one = yyjson_mut_arr_add_obj(doc, list);
        bool last = i == field_count;
        yyjson_mut_obj_add_str(doc, one, "key", last ? "Authorization" : fields[i].name);
        yyjson_mut_obj_add_str(doc, one, "value", last ? authorization : fields[i].value);
    }
    yyjson_mut_obj_add_str(doc, root, "method", "POST");
    yyjson_mut_obj_add_str(doc, root, "url", url);
    size_t size;
    char *json = doc != NULL ? yyjson_mut_write_opts(doc, 0, &allocator, &size, NULL) : NULL;
    char *encoded = json != NULL ? rg_secret_alloc(&run->arena, 3 * size + 1) : NULL;
    if (encoded == NULL || rg_name_encode(json, size, encoded, 3 * size) < 0) {
        return NULL;
    }
    return encoded;
}

static char *subject_sign(struct rg_credentials_run *run,
                          const struct rg_credentials_config *config,
                          const struct identity *identity, const char *url)
{
    const char *host = url + strlen("https://");
    size_t host_size = strcspn(host, "/?");
    const char *path = host + host_size, *query = strchr(path, '?');
    size_t path_size = query != NULL ? (size_t)(query - path) : strlen(path);
    char time_text[TIME_SIZE];
    time_t now_s = time(NULL);
    struct tm tm;
    strftime(time_text, sizeof(time_text), "%Y%m%dT%H%M%SZ", gmtime_r(&now_s, &tm));
    char *host_text = rg_secret_copy(&run->arena, host, host_size);
    char *path_text =
        rg_secret_copy(&run->arena, path_size > 0 ? path : "/", RG_MAX(path_size, 1u));
    struct rg_fetch_field fields[RG_SIGV4_FIELDS_MAX] = {{"host", host_text},
                                                         {"x-amz-date", time_text}};
    size_t count = 2;
    if (identity->session_token != NULL) {
        fields[count++] = (struct rg_fetch_field){"x-amz-security-token", identity->session_token};
    }
    fields[count++] = (struct rg_fetch_field){"x-goog-cloud-target-resource", config->audience};
    struct rg_sigv4 request = {
        .access_key = identity->access_key,
        .secret_key = identity->secret_key,
        .region = identity->region,
        .service = "sts",
        .method = "POST",
        .path = path_text,
        .query = query != NULL ? query + 1 : "",
        .time = time_text,
        .fields = fields,
        .field_count = count,
    };
    if (host_text == NULL || path_text == NULL) {
        return NULL;
    }
    char *authorization = rg_sigv4_authorization(&run->arena, &request);
    return authorization != NULL ? request_write(run, url, fields, count, authorization) : NULL;
}

char *rg_aws_subject_token(struct rg_credentials_run *run,
                           const struct rg_credentials_config *config)
{
    struct identity identity = {0};
    if (region_find(run, &config->aws, &identity) < 0 ||
        keys_find(run, &config->aws, &identity) < 0) {
        return NULL;
    }
    char *url = verification_url(run, &config->aws, identity.region);
    char *token = url != NULL ? subject_sign(run, config, &identity, url) : NULL;
    if (token == NULL) {
        rg_credentials_fail(run, -ENOMEM, false, "the AWS identity does not fit a request");
    }
    return token;
}
