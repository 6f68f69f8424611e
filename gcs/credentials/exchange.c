/* Token servers: see exchange.h. */
#include "gcs/credentials/exchange.h"

#include "gcs/wire/digest.h"
#include "gcs/wire/error_body.h"
#include "gcs/wire/names.h"
#include "gcs/wire/utf8.h"
#include "http/answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FORM_SIZE_MAX RG_KIB(128)
#define FORM_TYPE "application/x-www-form-urlencoded"
/* A token that is said to live longer is asked for again after this all the same. */
#define LIFETIME_S_MAX (12 * 3600)

void rg_credentials_clean(char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        uint32_t code;
        int used = rg_utf8_decode(text, left, &code);
        if (used < 0) {
            *text = '?';
            used = 1;
        } else if (code < ' ' || (code >= 0x7f && code < 0xa0)) {
            memset(text, ' ', (size_t)used);
        }
        text += used;
        left -= (size_t)used;
    }
}

int rg_credentials_fail(struct rg_credentials_run *run, int rc, bool fatal, const char *format, ...)
{
    RG_ASSERT(rc < 0);
    if (run->text[0] == '\0') {
        va_list args;
        va_start(args, format);
        vsnprintf(run->text, sizeof(run->text), format, args);
        va_end(args);
        rg_credentials_clean(run->text);
        run->fatal = fatal;
        run->rc = rc;
    }
    return run->rc;
}

static void *arena_malloc(void *context, size_t size)
{
    return rg_secret_alloc(context, size);
}

static void *arena_realloc(void *context, void *old, size_t old_size, size_t size)
{
    void *place = rg_secret_alloc(context, size);
    if (place != NULL) {
        memcpy(place, old, RG_MIN(old_size, size));
    }
    return place;
}

static void arena_free(void *context, void *place)
{
    (void)context;
    (void)place;
}

yyjson_alc rg_json_allocator(struct rg_secret_arena *arena)
{
    return (yyjson_alc){arena_malloc, arena_realloc, arena_free, arena};
}

yyjson_val *rg_json_parse(struct rg_secret_arena *arena, const char *text, size_t size)
{
    yyjson_alc allocator = rg_json_allocator(arena);
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)text, size, 0, &allocator, NULL);
    yyjson_val *root = yyjson_doc_get_root(doc);
    return yyjson_is_obj(root) ? root : NULL;
}

const char *rg_json_text(yyjson_val *object, const char *name)
{
    yyjson_val *value = yyjson_obj_get(object, name);
    const char *text = yyjson_get_str(value);
    bool whole = text != NULL && *text != '\0' && strlen(text) == yyjson_get_len(value);
    return whole ? text : NULL;
}

int64_t rg_json_seconds(yyjson_val *object, const char *name)
{
    yyjson_val *value = yyjson_obj_get(object, name);
    if (yyjson_is_num(value)) {
        double seconds = yyjson_get_num(value);
        return seconds >= 0 && seconds < 1e15 ? (int64_t)seconds : -1;
    }
    const char *text = rg_json_text(object, name);
    size_t digits = text != NULL ? strspn(text, "0123456789") : 0;
    return digits > 0 && digits <= 15 && text[digits] == '\0' ? strtoll(text, NULL, 10) : -1;
}

int64_t rg_rfc3339_parse(const char *text)
{
    struct tm tm = {0};
    int end = 0, hours = 0, minutes = 0;
    char sign = 'Z';
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &end) != 6) {
        return -1;
    }
    text += end;
    if (*text == '.') {
        text += 1 + strspn(text + 1, "0123456789");
    }
    sign = *text;
    bool utc = (sign == 'Z' || sign == 'z') && text[1] == '\0';
    bool offset =
        (sign == '+' || sign == '-') && sscanf(text + 1, "%2d:%2d", &hours, &minutes) == 2;
    bool fits = tm.tm_year >= 1970 && tm.tm_mon >= 1 && tm.tm_mon <= 12 && tm.tm_mday >= 1 &&
                tm.tm_mday <= 31 && tm.tm_hour >= 0 && tm.tm_hour <= 23 && tm.tm_min >= 0 &&
                tm.tm_min <= 59 && tm.tm_sec >= 0 && tm.tm_sec <= 60;
    if (!fits || (!utc && !offset)) {
        return -1;
    }
    tm.tm_year -= 1900;
    tm.tm_mon--;
    int64_t shift = hours * 3600 + minutes * 60;
    return (int64_t)timegm(&tm) - (sign == '-' ? -shift : shift);
}

void rg_form_init(struct rg_form *form, struct rg_credentials_run *run)
{
    *form = (struct rg_form){.run = run, .capacity = FORM_SIZE_MAX};
    form->data = rg_secret_alloc(&run->arena, form->capacity);
    form->full = form->data == NULL;
}

static void form_put(struct rg_form *form, const char *text, size_t size, bool encoded)
{
    if (form->full) {
        return;
    }
    size_t room = form->capacity - form->size;
    int taken = -ENOSPC;
    if (encoded) {
        taken = rg_name_encode(text, size, form->data + form->size, room);
    } else if (size <= room) {
        memcpy(form->data + form->size, text, size);
        taken = (int)size;
    }
    form->full = taken < 0;
    form->size += taken > 0 ? (size_t)taken : 0;
}

void rg_form_add(struct rg_form *form, const char *name, const char *value)
{
    if (value == NULL) {
        return;
    }
    form_put(form, "&", form->size > 0 ? 1 : 0, false);
    form_put(form, name, strlen(name), false);
    form_put(form, "=", 1, false);
    form_put(form, value, strlen(value), true);
}

char *rg_basic_authorization(struct rg_credentials_run *run, const char *user, const char *password)
{
    /* Each half is encoded as in a form before they are joined. */
    struct rg_form pair;
    rg_form_init(&pair, run);
    form_put(&pair, user, strlen(user), true);
    form_put(&pair, ":", 1, false);
    form_put(&pair, password, strlen(password), true);
    char *base64 = rg_secret_alloc(&run->arena, RG_BASE64URL_SIZE(pair.size));
    if (pair.full || base64 == NULL) {
        return NULL;
    }
    rg_base64_encode(pair.data, pair.size, base64);
    return rg_secret_printf(&run->arena, "Basic %s", base64);
}

static int fail_memory(struct rg_credentials_run *run)
{
    return rg_credentials_fail(run, -ENOMEM, false, "no memory for a token request");
}

/* The part of a URL that may be shown: without its query, which may hold a secret. */
static int shown_size(const char *url)
{
    return (int)RG_MIN(strcspn(url, "?"), (size_t)100);
}

static int fetch(struct rg_credentials_run *run, const struct rg_fetch_request *request,
                 struct rg_fetch_response *response)
{
    char error[RG_CREDENTIALS_TEXT_SIZE] = "";
    int rc = rg_fetch(&run->fetcher, &run->arena, request, response, error, sizeof(error));
    if (rc < 0) {
        return rg_credentials_fail(run, rc, rc == -EINVAL || rc == -ENOENT, "%s", error);
    }
    return 0;
}

/* A server said no. OAuth's errors are a word and a description (RFC 6749 section 5.2). */
static int answer_refused(struct rg_credentials_run *run, const char *url,
                          const struct rg_fetch_response *response, const char *hint)
{
    yyjson_val *root = rg_json_parse(&run->arena, response->body, response->body_size);
    const char *word = rg_json_text(root, "error");
    const char *description = rg_json_text(root, "error_description");
    bool granted_no_more = word != NULL && strcmp(word, "invalid_grant") == 0;
    char line[128] = "";
    if (word == NULL) {
        rg_error_message(response->body, response->body_size, line, sizeof(line));
    } else if (description != NULL) {
        rg_error_message(description, strlen(description), line, sizeof(line));
    }
    return rg_credentials_fail(
        run, -EACCES, rg_answer_refuses(response->status), "%.*s answered %u: %.40s%s%s%s%s",
        shown_size(url), url, response->status, word != NULL ? word : "",
        word != NULL && *line != '\0' ? ": " : "", line,
        granted_no_more && hint != NULL ? "; " : "", granted_no_more && hint != NULL ? hint : "");
}

static int answer_garbage(struct rg_credentials_run *run, const char *url, const char *problem)
{
    return rg_credentials_fail(run, -EBADMSG, false, "%.*s sent an answer %s", shown_size(url), url,
                               problem);
}

/* Printable ASCII without spaces (RFC 6750 section 2.1). */
bool rg_token_is_sound(const char *text)
{
    size_t size = text != NULL ? strlen(text) : 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] <= ' ' || text[i] > '~') {
            return false;
        }
    }
    return size > 0 && size <= RG_TOKEN_SIZE_MAX;
}

static uint64_t expiry(uint64_t started_ns, int64_t lifetime_s)
{
    return started_ns + (uint64_t)RG_MIN(lifetime_s, (int64_t)LIFETIME_S_MAX) * RG_NS_PER_S;
}

static int answer_read(struct rg_credentials_run *run, const char *url,
                       const struct rg_fetch_response *response, struct rg_token_answer *answer)
{
    yyjson_val *root = rg_json_parse(&run->arena, response->body, response->body_size);
    if (root == NULL) {
        return answer_garbage(run, url, "that is no JSON object");
    }
    const char *text = rg_json_text(root, "access_token");
    if (!rg_token_is_sound(text)) {
        return answer_garbage(run, url, "without a usable access_token");
    }
    bool says_when = yyjson_obj_get(root, "expires_in") != NULL;
    int64_t lifetime_s = says_when ? rg_json_seconds(root, "expires_in") : RG_TOKEN_LIFETIME_S;
    if (lifetime_s < 1) {
        return answer_garbage(run, url, "whose expires_in is no time ahead");
    }
    answer->token = (struct rg_token_out){
        .text = text,
        .expires_ns = expiry(response->started_ns, lifetime_s),
    };
    answer->refresh_token = rg_json_text(root, "refresh_token");
    return 0;
}

static int token_ask(struct rg_credentials_run *run, const struct rg_fetch_request *request,
                     const char *hint, bool metadata, struct rg_token_answer *out_answer)
{
    struct rg_fetch_response response;
    *out_answer = (struct rg_token_answer){0};
    int rc = fetch(run, request, &response);
    if (rc < 0) {
        return rc;
    }
    out_answer->date_s = response.date_s;
    if (metadata && response.status == 200 && !response.is_metadata) {
        return answer_garbage(run, request->url, "without Metadata-Flavor: Google");
    }
    if (response.status != 200) {
        out_answer->clock_refused =
            response.status == 400 && strstr(response.body, "\"invalid_grant\"") != NULL;
        return answer_refused(run, request->url, &response, hint);
    }
    return answer_read(run, request->url, &response, out_answer);
}

int rg_token_request(struct rg_credentials_run *run, const char *url, const struct rg_form *form,
                     const char *authorization, const char *hint,
                     struct rg_token_answer *out_answer)
{
    if (form->full) {
        return fail_memory(run);
    }
    const struct rg_fetch_field fields[] = {{"Content-Type", FORM_TYPE},
                                            {"Authorization", authorization}};
    struct rg_fetch_request request = {
        .method = "POST",
        .url = url,
        .fields = fields,
        .field_count = authorization != NULL ? 2 : 1,
        .body = form->data,
        .body_size = form->size,
    };
    return token_ask(run, &request, hint, false, out_answer);
}

int rg_token_fetch(struct rg_credentials_run *run, const struct rg_fetch_request *request,
                   bool metadata, struct rg_token_answer *out_answer)
{
    return token_ask(run, request, NULL, metadata, out_answer);
}

/* "options" of a workforce pool: who pays for the exchange. */
static const char *workforce_options(struct rg_credentials_run *run,
                                     const struct rg_credentials_config *config)
{
    bool wanted = config->workforce_project != NULL && config->client_id == NULL;
    return wanted ? rg_secret_printf(&run->arena, "{\"userProject\":\"%s\"}",
                                     config->workforce_project)
                  : NULL;
}

int rg_sts_exchange(struct rg_credentials_run *run, const struct rg_credentials_config *config,
                    const char *subject_token, const char *subject_token_type, const char *scope,
                    struct rg_token_out *out_token)
{
    struct rg_form form;
    rg_form_init(&form, run);
    rg_form_add(&form, "grant_type", "urn:ietf:params:oauth:grant-type:token-exchange");
    rg_form_add(&form, "audience", config->audience);
    rg_form_add(&form, "scope", scope);
    rg_form_add(&form, "requested_token_type", "urn:ietf:params:oauth:token-type:access_token");
    rg_form_add(&form, "subject_token", subject_token);
    rg_form_add(&form, "subject_token_type", subject_token_type);
    rg_form_add(&form, "options", workforce_options(run, config));
    const char *basic = NULL;
    if (config->client_id != NULL) {
        const char *secret = config->client_secret != NULL ? config->client_secret : "";
        basic = rg_basic_authorization(run, config->client_id, secret);
        if (basic == NULL) {
            return fail_memory(run);
        }
    }
    struct rg_token_answer answer;
    int rc = rg_token_request(run, config->token_url, &form, basic,
                              "check the workload identity pool and its provider", &answer);
    if (rc == 0) {
        *out_token = answer.token;
    }
    return rc;
}

static char *impersonation_body(struct rg_credentials_run *run,
                                const struct rg_credentials_config *config, const char *scope)
{
    yyjson_alc allocator = rg_json_allocator(&run->arena);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&allocator);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_val *delegates = yyjson_mut_obj_add_arr(doc, root, "delegates");
    for (uint32_t i = 0; i < config->delegate_count; i++) {
        yyjson_mut_arr_add_str(doc, delegates, config->delegates[i]);
    }
    yyjson_mut_val *scopes = yyjson_mut_obj_add_arr(doc, root, "scope");
    for (const char *at = scope + strspn(scope, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        yyjson_mut_arr_add_strncpy(doc, scopes, at, size);
        at += size;
    }
    char lifetime[24];
    snprintf(lifetime, sizeof(lifetime), "%us", config->lifetime_s);
    yyjson_mut_obj_add_str(doc, root, "lifetime", lifetime);
    return doc != NULL ? yyjson_mut_write_opts(doc, 0, &allocator, NULL, NULL) : NULL;
}

/* expireTime is by the server's clock, so it is compared with the answer's own date. Without that,
 * what was asked for counts. */
static int64_t impersonated_lifetime(const char *expire_time, int64_t date_s, int64_t asked_s)
{
    int64_t expires_s = rg_rfc3339_parse(expire_time);
    if (expires_s < 0) {
        return -1;
    }
    return date_s > 0 ? RG_MIN(expires_s - date_s, (int64_t)LIFETIME_S_MAX) : asked_s;
}

static int impersonation_read(struct rg_credentials_run *run,
                              const struct rg_credentials_config *config,
                              const struct rg_fetch_response *response,
                              struct rg_token_out *out_token)
{
    const char *url = config->impersonation_url;
    yyjson_val *root = rg_json_parse(&run->arena, response->body, response->body_size);
    const char *text = rg_json_text(root, "accessToken");
    const char *expire_time = rg_json_text(root, "expireTime");
    if (!rg_token_is_sound(text) || expire_time == NULL) {
        return answer_garbage(run, url, "without accessToken and expireTime");
    }
    int64_t lifetime_s = impersonated_lifetime(expire_time, response->date_s, config->lifetime_s);
    if (lifetime_s < 1) {
        return answer_garbage(run, url, "whose expireTime is no time ahead");
    }
    *out_token = (struct rg_token_out){
        .text = text,
        .expires_ns = expiry(response->started_ns, lifetime_s),
    };
    return 0;
}

int rg_impersonate(struct rg_credentials_run *run, const struct rg_credentials_config *config,
                   const char *source_token, struct rg_token_out *out_token)
{
    const char *scope = run->scope != NULL       ? run->scope
                        : config->scopes != NULL ? config->scopes
                                                 : RG_SCOPE_DEFAULT;
    char *body = impersonation_body(run, config, scope);
    char *authorization = rg_secret_printf(&run->arena, "Bearer %s", source_token);
    if (body == NULL || authorization == NULL) {
        return fail_memory(run);
    }
    const struct rg_fetch_field fields[] = {{"Content-Type", "application/json"},
                                            {"Authorization", authorization}};
    struct rg_fetch_request request = {
        .method = "POST",
        .url = config->impersonation_url,
        .fields = fields,
        .field_count = RG_ARRAY_LEN(fields),
        .body = body,
        .body_size = strlen(body),
    };
    struct rg_fetch_response response;
    int rc = fetch(run, &request, &response);
    if (rc < 0) {
        return rc;
    }
    if (response.status != 200) {
        return answer_refused(run, config->impersonation_url, &response, NULL);
    }
    return impersonation_read(run, config, &response, out_token);
}

const char *rg_impersonated_account(struct rg_secret_arena *arena, const char *url)
{
    const char *end = url != NULL ? strstr(url, ":generateAccessToken") : NULL;
    if (end == NULL) {
        return NULL;
    }
    const char *start = end;
    while (start > url && start[-1] != '/') {
        start--;
    }
    return start < end ? rg_secret_copy(arena, start, (size_t)(end - start)) : NULL;
}

char *rg_fetch_document(struct rg_credentials_run *run, const struct rg_fetch_request *request,
                        const char *what)
{
    struct rg_fetch_response response;
    if (fetch(run, request, &response) < 0) {
        return NULL;
    }
    if (response.status != 200) {
        rg_credentials_fail(run, -EACCES, rg_answer_refuses(response.status),
                            "%s: %.*s answered %u", what, shown_size(request->url), request->url,
                            response.status);
        return NULL;
    }
    if (strlen(response.body) != response.body_size || response.body_size == 0) {
        rg_credentials_fail(run, -EBADMSG, false, "%s: %.*s sent nothing usable", what,
                            shown_size(request->url), request->url);
        return NULL;
    }
    return response.body;
}
