/* Credential files: see file.h, and credentials_kind.h for what is shared by the kinds.
 * Everything that is read lies in the reader's arena, the parsed document included, so that the
 * strings of a config need no copies. */
#include "gcs/credentials/file.h"

#include "gcs/credentials/exchange.h"
#include "gcs/wire/digest.h"
#include "http/url.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define GCLOUD_FILE "application_default_credentials.json"
#define PIPE_PATIENCE_MS 5000

static const struct rg_credentials_kind *const kinds[] = {
    &rg_credentials_authorized_user, &rg_credentials_external_user,
    &rg_credentials_service_account, &rg_credentials_external_account,
    &rg_credentials_impersonated,
};

static void refuse(struct rg_credentials_reader *reader, int rc, const char *format, va_list args)
{
    if (reader->rc == 0) {
        int size = snprintf(reader->text, sizeof(reader->text), "%.120s: ", reader->path);
        vsnprintf(reader->text + size, sizeof(reader->text) - (size_t)size, format, args);
        rg_credentials_clean(reader->text);
        reader->rc = rc;
    }
}

void rg_credentials_refuse(struct rg_credentials_reader *reader, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    refuse(reader, -EINVAL, format, args);
    va_end(args);
}

static void refuse_rc(struct rg_credentials_reader *reader, int rc, const char *format, ...)
    RG_PRINTF(3, 4);

static void refuse_rc(struct rg_credentials_reader *reader, int rc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    refuse(reader, rc, format, args);
    va_end(args);
}

const char *rg_credentials_environment(struct rg_credentials_reader *reader, const char *name)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? rg_secret_copy(reader->arena, text, strlen(text)) : NULL;
}

const char *rg_credentials_text(struct rg_credentials_reader *reader, yyjson_val *object,
                                const char *name, bool required)
{
    yyjson_val *value = yyjson_obj_get(object, name);
    if (value == NULL || yyjson_is_null(value)) {
        if (required) {
            rg_credentials_refuse(reader, "field \"%s\" is missing", name);
        }
        return NULL;
    }
    const char *text = yyjson_get_str(value);
    if (text == NULL || strlen(text) != yyjson_get_len(value)) {
        rg_credentials_refuse(reader, "field \"%s\" is not a string", name);
        return NULL;
    }
    if (*text == '\0') {
        if (required) {
            rg_credentials_refuse(reader, "field \"%s\" is empty", name);
        }
        return NULL;
    }
    return text;
}

/* "x.universe"; not "universe" itself, and not "xuniverse". */
static bool host_is_below(struct rg_h1_slice host, const char *universe)
{
    size_t size = strlen(universe);
    return host.size > size + 1 && host.data[host.size - size - 1] == '.' &&
           strncasecmp(host.data + host.size - size, universe, size) == 0;
}

static bool host_is_loopback(struct rg_h1_slice host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "::1"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        if (host.size == strlen(names[i]) && strncasecmp(host.data, names[i], host.size) == 0) {
            return true;
        }
    }
    return false;
}

void rg_credentials_check_url(struct rg_credentials_reader *reader, const char *name,
                              const char *text, const char *universe, bool google)
{
    if (text == NULL) {
        return;
    }
    struct rg_url url;
    bool has_scheme = strncasecmp(text, "http", 4) == 0 && strstr(text, "://") != NULL;
    if (!has_scheme || rg_url_parse(text, strcspn(text, "?"), &url) < 0) {
        rg_credentials_refuse(reader, "field \"%s\" is not a URL", name);
        return;
    }
    if (host_is_loopback(url.host)) {
        return;
    }
    if (!url.is_tls && universe != NULL) {
        rg_credentials_refuse(reader, "field \"%s\" is not an https URL", name);
    } else if (google && (universe == NULL || (!host_is_below(url.host, universe) &&
                                               !host_is_below(url.host, RG_UNIVERSE_DEFAULT)))) {
        rg_credentials_refuse(reader, "field \"%s\" names a host that is not the service's", name);
    }
}

static const struct rg_credentials_kind *kind_find(const char *type)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(kinds); i++) {
        if (strcmp(kinds[i]->type, type) == 0) {
            return kinds[i];
        }
    }
    return NULL;
}

/* A name that can be a part of a host name and of a URL. */
static bool is_domain(const char *text)
{
    struct rg_url url;
    size_t size = strlen(text);
    return strpbrk(text, ":/[]") == NULL && strchr(text, '.') != NULL &&
           rg_url_parse(text, size, &url) == 0;
}

static void common_read(struct rg_credentials_reader *reader, yyjson_val *object,
                        struct rg_credentials_config *config)
{
    config->universe = rg_credentials_text(reader, object, "universe_domain", false);
    if (config->universe == NULL) {
        config->universe = RG_UNIVERSE_DEFAULT;
    } else if (!is_domain(config->universe)) {
        rg_credentials_refuse(reader, "field \"universe_domain\" is not a domain");
    }
    config->quota_project = rg_credentials_text(reader, object, "quota_project_id", false);
    size_t size = config->quota_project != NULL ? strlen(config->quota_project) : 0;
    if (size > 0 && (rg_h1_value_span(config->quota_project, size) != size ||
                     strchr(config->quota_project, ' ') != NULL)) {
        rg_credentials_refuse(reader, "field \"quota_project_id\" is not a project");
    }
}

struct rg_credentials_config *rg_credentials_read_object(struct rg_credentials_reader *reader,
                                                         yyjson_val *object, bool nested)
{
    const char *type = rg_credentials_text(reader, object, "type", true);
    if (type == NULL) {
        return NULL;
    }
    const struct rg_credentials_kind *kind = kind_find(type);
    if (kind == NULL || (nested && !kind->may_be_source)) {
        bool is_gdch = strcmp(type, "gdch_service_account") == 0;
        rg_credentials_refuse(reader, "field \"type\" is \"%.40s\", which is not supported%s", type,
                              nested ? " as source_credentials"
                              : is_gdch
                                  ? ": it is for Google Distributed Cloud, not for Cloud Storage"
                                  : "");
        return NULL;
    }
    struct rg_credentials_config *config = rg_secret_alloc(reader->arena, sizeof(*config));
    if (config == NULL) {
        rg_credentials_refuse(reader, "no memory");
        return NULL;
    }
    config->kind = kind;
    common_read(reader, object, config);
    if (reader->rc == 0) {
        kind->read(reader, object, config);
    }
    return reader->rc == 0 ? config : NULL;
}

struct rg_credentials_config *rg_credentials_parse(struct rg_credentials_reader *reader,
                                                   const char *json, size_t size)
{
    yyjson_val *root = rg_json_parse(reader->arena, json, size);
    if (root == NULL) {
        rg_credentials_refuse(reader, "is not a JSON object");
        return NULL;
    }
    return rg_credentials_read_object(reader, root, false);
}

static int descriptor_read(int fd, char *out, size_t capacity, size_t *out_size)
{
    size_t size = 0;
    for (;;) {
        if (size == capacity) {
            return -EFBIG;
        }
        ssize_t got = read(fd, out + size, capacity - size);
        if (got < 0 && errno == EAGAIN) {
            struct pollfd pipe = {.fd = fd, .events = POLLIN};
            if (poll(&pipe, 1, PIPE_PATIENCE_MS) == 0) {
                return -ETIMEDOUT;
            }
        } else if (got < 0 && errno != EINTR) {
            return -errno;
        }
        if (got == 0) {
            *out_size = size;
            return 0;
        }
        size += got > 0 ? (size_t)got : 0;
    }
}

int rg_credentials_read_file(struct rg_secret_arena *arena, const char *path, size_t max,
                             char **out_text, size_t *out_size)
{
    /* Does not block on a pipe whose writer has nothing to say: a shell's <(...) is one. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    struct stat stat;
    int rc = fstat(fd, &stat) < 0 ? -errno : 0;
    if (rc == 0 && !S_ISREG(stat.st_mode) && !S_ISFIFO(stat.st_mode)) {
        rc = S_ISDIR(stat.st_mode) ? -EISDIR : -EINVAL;
    }
    /* One byte more than it may have, to see that there is no more. */
    char *text = rc == 0 ? rg_secret_alloc(arena, max + 2) : NULL;
    if (rc == 0) {
        rc = text != NULL ? descriptor_read(fd, text, max + 1, out_size) : -ENOMEM;
    }
    close(fd);
    if (rc == 0) {
        *out_text = text;
    }
    return rc;
}

/* gcloud's own file; false where there is no place for one. */
static bool gcloud_path(char *out, size_t capacity)
{
    const char *folder = getenv("CLOUDSDK_CONFIG"), *home = getenv("HOME");
    int size = -1;
    if (folder != NULL && *folder != '\0') {
        size = snprintf(out, capacity, "%s/" GCLOUD_FILE, folder);
    } else if (home != NULL && *home != '\0') {
        size = snprintf(out, capacity, "%s/.config/gcloud/" GCLOUD_FILE, home);
    }
    return size > 0 && (size_t)size < capacity;
}

static struct rg_credentials_config *file_find(struct rg_credentials_reader *reader,
                                               const char *path, uint8_t *out_hash)
{
    char *text;
    size_t size;
    reader->path = path;
    int rc =
        rg_credentials_read_file(reader->arena, path, RG_CREDENTIALS_FILE_SIZE_MAX, &text, &size);
    if (rc < 0) {
        refuse_rc(reader, rc, "the credential file cannot be read: %s", rg_error_text(-rc));
        return NULL;
    }
    rg_sha256(text, size, out_hash);
    return rg_credentials_parse(reader, text, size);
}

static struct rg_credentials_config *environment_find(struct rg_credentials_reader *reader,
                                                      uint8_t *out_hash)
{
    const char *unchecked = getenv("NO_GCE_CHECK");
    bool no_check = unchecked != NULL && strcasecmp(unchecked, "true") == 0;
    struct rg_credentials_config *config =
        no_check ? rg_credentials_from_nothing(reader) : rg_credentials_from_metadata(reader);
    const char *host = config != NULL ? config->metadata_host : NULL;
    rg_sha256(host != NULL ? host : "", host != NULL ? strlen(host) : 0, out_hash);
    return config;
}

struct rg_credentials_config *rg_credentials_find(struct rg_credentials_reader *reader,
                                                  const char *path, const char **out_origin,
                                                  uint8_t *out_hash)
{
    char gcloud[RG_CREDENTIALS_PATH_SIZE_MAX];
    const char *named = getenv("GOOGLE_APPLICATION_CREDENTIALS");
    bool is_named = named != NULL && *named != '\0';
    if (path == NULL && is_named) {
        path = named;
    } else if (path == NULL && gcloud_path(gcloud, sizeof(gcloud)) && access(gcloud, F_OK) == 0) {
        path = gcloud;
    }
    if (path == NULL) {
        reader->path = "environment";
        *out_origin = "the environment";
        return environment_find(reader, out_hash);
    }
    *out_origin = rg_secret_copy(reader->arena, path, strlen(path));
    if (*out_origin == NULL) {
        refuse_rc(reader, -ENOMEM, "no memory");
        return NULL;
    }
    return file_find(reader, *out_origin, out_hash);
}
