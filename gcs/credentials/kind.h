/* The kinds of credentials, each in a file of its own: what a credential file says, checked when it
 * is read, and how an access token is had with it.
 *
 * Vocabulary. A *config* is one JSON object of a credential file, or what the environment says in
 * the place of one; impersonation has a second one inside. A *run* is one refresh: straight-line
 * code on a thread of its own (gcs/credentials/credentials.c) that fetches, signs, reads files and
 * runs programs, and so may block. What a run makes lies in its arena and is wiped with it. */
#ifndef RG_GCS_CREDENTIALS_KIND_H
#define RG_GCS_CREDENTIALS_KIND_H

#include "gcs/credentials/fetch.h"

#include <yyjson.h>

/* A credential file, and a subject token's. */
#define RG_CREDENTIALS_FILE_SIZE_MAX RG_KIB(64)
/* An access token, so that a request's head still has room for all else. */
#define RG_TOKEN_SIZE_MAX RG_KIB(12)
/* A line of explanation, its NUL included. */
#define RG_CREDENTIALS_TEXT_SIZE 256
#define RG_SCOPES_MAX 8
#define RG_DELEGATES_MAX 16
/* What Google issues by default, and what is asked for where a lifetime can be. */
#define RG_TOKEN_LIFETIME_S 3600
/* How long before its end a token is renewed. */
#define RG_TOKEN_STALE_NS (225 * RG_NS_PER_S)
/* No refresh follows a successful one sooner, however short its token lives, while that is valid.
 */
#define RG_REFRESH_INTERVAL_NS (10 * RG_NS_PER_S)
#define RG_UNIVERSE_DEFAULT "googleapis.com"

struct rg_credentials_config;

struct rg_token_out {
    const char *text; /* in the run's arena */
    uint64_t expires_ns;
    uint64_t stale_ns; /* when it is to be renewed; set by gcs/credentials/sharing.c */
};

/* One refresh. */
struct rg_credentials_run {
    struct rg_fetcher fetcher;
    struct rg_secret_arena arena;
    const char *scope; /* NULL: what the kind does by default */
    int rc;            /* of the first failure */
    bool fatal;        /* trying again soon would fail alike */
    char text[RG_CREDENTIALS_TEXT_SIZE];
};

/* Reads fields of one JSON object. Errors are sticky: `text` says which file and field. */
struct rg_credentials_reader {
    struct rg_secret_arena *arena;
    const char *path; /* for messages */
    int rc;
    char text[RG_CREDENTIALS_TEXT_SIZE];
};

struct rg_credentials_kind {
    const char *type;  /* as in the file's "type" */
    const char *label; /* for people */
    /* May use "source_credentials" of an impersonated account. */
    bool may_be_source;
    void (*read)(struct rg_credentials_reader *reader, yyjson_val *object,
                 struct rg_credentials_config *config);
    /* 0 and a token; or a negative errno, with run->text and run->fatal. */
    int (*obtain)(struct rg_credentials_run *run, struct rg_credentials_config *config,
                  struct rg_token_out *out_token);
};

extern const struct rg_credentials_kind rg_credentials_authorized_user,
    rg_credentials_external_user, rg_credentials_service_account, rg_credentials_metadata,
    rg_credentials_external_account, rg_credentials_impersonated, rg_credentials_none;

struct rg_external_format {
    bool is_json;
    const char *field; /* of a JSON document */
};

struct rg_aws_source {
    const char *region_url, *url, *verification_url, *session_token_url;
    /* Taken from the environment; NULL: not set. */
    const char *access_key, *secret_key, *session_token, *region;
};

struct rg_executable_source {
    const char *command, *output_file;
    uint64_t timeout_ms;
    bool allowed; /* GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES was 1 */
};

struct rg_certificate_source {
    const char *location;    /* of the configuration that names the files */
    const char *trust_chain; /* PEM; NULL: the leaf alone */
};

enum rg_external_source {
    RG_SOURCE_FILE,
    RG_SOURCE_URL,
    RG_SOURCE_EXECUTABLE,
    RG_SOURCE_AWS,
    RG_SOURCE_CERTIFICATE,
};

/* Strings live in the arena of who read it; NULL: the file does not say. */
struct rg_credentials_config {
    const struct rg_credentials_kind *kind;
    const char *account;  /* for people */
    const char *universe; /* never NULL */
    const char *quota_project;
    const char *project;
    /* OAuth clients. */
    const char *client_id, *client_secret, *token_url;
    char *refresh_token; /* in a place of RG_TOKEN_SIZE_MAX: the server may send a new one */
    /* Service accounts. */
    const char *client_email, *private_key, *private_key_id;
    /* Impersonation. */
    const char *impersonation_url, *scopes;
    const char *delegates[RG_DELEGATES_MAX];
    uint32_t delegate_count;
    uint32_t lifetime_s;
    struct rg_credentials_config *source;
    /* External accounts. */
    const char *audience, *subject_token_type, *workforce_project;
    enum rg_external_source source_kind;
    struct rg_external_format format;
    const char *file, *url;
    struct rg_fetch_field headers[RG_DELEGATES_MAX];
    uint32_t header_count;
    struct rg_executable_source executable;
    struct rg_aws_source aws;
    struct rg_certificate_source certificate;
    /* Metadata server. */
    const char *metadata_host, *metadata_ip;
    uint64_t metadata_timeout_ns;
    uint32_t metadata_detect_tries;
    bool metadata_is_certain; /* the environment or the machine's firmware says that there is one */
};

/* The credentials that a token is asked for with: those inside, if there are some. */
static inline const struct rg_credentials_config *
rg_credentials_source(const struct rg_credentials_config *config)
{
    return config->source != NULL ? config->source : config;
}

/* Notes the first failure of a run, and returns the first one's rc. One line without secrets. */
int rg_credentials_fail(struct rg_credentials_run *run, int rc, bool fatal, const char *format, ...)
    RG_PRINTF(4, 5);

/* Makes text that holds words of others one line of UTF-8 without controls, in place. */
void rg_credentials_clean(char *text);

/* Whether a text can be sent as a token: it goes into a header field as it is. */
bool rg_token_is_sound(const char *text);

/* For readers: a string field, NULL when there is none; whether that is an error, and whether it
 * must not be empty, is `required`. */
const char *rg_credentials_text(struct rg_credentials_reader *reader, yyjson_val *object,
                                const char *name, bool required);
void rg_credentials_refuse(struct rg_credentials_reader *reader, const char *format, ...)
    RG_PRINTF(2, 3);
/* A copy of a variable of the environment; NULL: it is not set, or empty. */
const char *rg_credentials_environment(struct rg_credentials_reader *reader, const char *name);
/* A URL of a token server: https, or http to this machine itself. With `google`, its host is one of
 * Google's in this universe: a file from somebody else could otherwise send tokens anywhere. */
void rg_credentials_check_url(struct rg_credentials_reader *reader, const char *name,
                              const char *url, const char *universe, bool google);

/* Reads one object, by its "type". With `nested`, it must be of a kind that may be impersonated
 * from. */
struct rg_credentials_config *rg_credentials_read_object(struct rg_credentials_reader *reader,
                                                         yyjson_val *object, bool nested);
/* A file's text: returned config lives in the arena. NULL: reader->rc and reader->text. */
struct rg_credentials_config *rg_credentials_parse(struct rg_credentials_reader *reader,
                                                   const char *json, size_t size);
/* A whole file with a NUL behind it, or -errno; -EFBIG above `max`. */
int rg_credentials_read_file(struct rg_secret_arena *arena, const char *path, size_t max,
                             char **out_text, size_t *out_size);
/* The configuration of the metadata server, out of the environment. */
struct rg_credentials_config *rg_credentials_from_metadata(struct rg_credentials_reader *reader);
/* The one that has no token and says why. */
struct rg_credentials_config *rg_credentials_from_nothing(struct rg_credentials_reader *reader);

#endif
