/* All options of a runtime and a client by name: the one table of what they are called outside of
 * C, of what they may be, and of what is said of a wrong value. Each is a row, with its place in
 * its struct. */
#include "runtime/option.h"

#include "runtime/runtime.h"

#include <ringest/gcs.h>

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define VARIABLE_PREFIX "RINGEST_"
#define NAME_SIZE_MAX 32
#define SECONDS_MAX UINT64_C(1000000000)
#define DIGITS_OF_NS 9

enum owner { RUNTIME, CLIENT };

/* What RINGEST_<NAME> is to an option. */
enum variable {
    VARIABLE_READ = 0,
    VARIABLE_REFUSED,   /* an error: see below */
    VARIABLE_ELSEWHERE, /* read where the option is used */
};

struct row {
    const char *name;
    enum rg_option_kind kind;
    enum owner owner;
    enum variable variable;
    size_t place; /* in its struct */
    uint64_t min, max;
    const char *choices[5]; /* of a choice; the first is 0 */
};

#define IN_RUNTIME(field) RUNTIME, .place = offsetof(struct rg_runtime_options, field)
#define IN_CLIENT(field) CLIENT, .place = offsetof(struct rg_client_options, field)
#define TEXT(name, field)                                                                          \
    {                                                                                              \
        name, RG_OPTION_TEXT, IN_CLIENT(field)                                                     \
    }
#define SECONDS(name, field)                                                                       \
    {                                                                                              \
        name, RG_OPTION_SECONDS, IN_CLIENT(field)                                                  \
    }
/* Which server is trusted with what, and whether bytes are checked, no such variable decides. */
#define REFUSED .variable = VARIABLE_REFUSED
#define ELSEWHERE .variable = VARIABLE_ELSEWHERE

static const struct row rows[] = {
    {"endpoint", RG_OPTION_TEXT, IN_CLIENT(endpoint), REFUSED},
    {"token", RG_OPTION_TEXT, IN_CLIENT(token), REFUSED},
    {"credentials", RG_OPTION_TEXT, IN_CLIENT(credentials), REFUSED},
    {"headers", RG_OPTION_TEXT, IN_CLIENT(headers), ELSEWHERE},
    {"checksum", RG_OPTION_SWITCH, IN_CLIENT(checksum), REFUSED},
    TEXT("connect_to", connect_to),
    TEXT("ca", ca_file),
    TEXT("user_project", user_project),
    TEXT("user_agent", user_agent),
    TEXT("scope", scope),
    TEXT("proxy", proxy),
    TEXT("client_cert", client_cert_file),
    TEXT("client_key", client_key_file),
    TEXT("local_address", local_address),
    TEXT("local_device", local_device),
    {"connections", RG_OPTION_COUNT, IN_CLIENT(connections_max), .min = 1, .max = 65536},
    {"requests", RG_OPTION_COUNT, IN_CLIENT(requests_max), .min = 1, .max = 1 << 20},
    {"attempts", RG_OPTION_COUNT, IN_CLIENT(attempts_max), .min = 1, .max = 1000},
    {"prewarm", RG_OPTION_COUNT, IN_CLIENT(prewarm), .min = 0, .max = 65536},
    SECONDS("connect_timeout", connect_timeout_ns),
    SECONDS("first_byte_timeout", first_byte_timeout_ns),
    SECONDS("stall_timeout", stall_timeout_ns),
    SECONDS("idle_timeout", idle_timeout_ns),
    SECONDS("backoff_min", backoff_min_ns),
    SECONDS("backoff_max", backoff_max_ns),
    {"adapting", RG_OPTION_SWITCH, IN_CLIENT(adapting)},
    {"hedging", RG_OPTION_SWITCH, IN_CLIENT(hedging)},
    {"sharing", RG_OPTION_SWITCH_OR_FOLDER, IN_CLIENT(sharing)},
    {"hedges_per_1000", RG_OPTION_COUNT, IN_CLIENT(hedges_per_1000), .min = 1, .max = 1000},
    {"hedge_size", RG_OPTION_SIZE, IN_CLIENT(hedge_size_max), .min = 1, .max = INT64_MAX},
    {"reads_per_s", RG_OPTION_COUNT, IN_CLIENT(reads_per_s), .min = 1, .max = UINT32_MAX},
    {"writes_per_s", RG_OPTION_COUNT, IN_CLIENT(writes_per_s), .min = 1, .max = UINT32_MAX},
    {"ramp", RG_OPTION_CHOICE, IN_CLIENT(ramp), .choices = {"", "none", "gcs"}},
    {"job_processes", RG_OPTION_COUNT, IN_CLIENT(job_processes), .min = 1, .max = UINT32_MAX},
    TEXT("cache", cache),
    {"cache_size", RG_OPTION_SIZE, IN_CLIENT(cache_size), .min = 1, .max = INT64_MAX},
    {"cache_memory", RG_OPTION_SIZE, IN_CLIENT(cache_memory), .min = 1, .max = INT64_MAX},
    {"threads", RG_OPTION_COUNT, IN_RUNTIME(threads), .min = 1, .max = 256},
    {"memory", RG_OPTION_SIZE, IN_RUNTIME(memory_max), .min = RG_LOOP_MEMORY_MIN, .max = INT64_MAX},
    {"pinned", RG_OPTION_SIZE, IN_RUNTIME(pinned_max), .min = 1, .max = INT64_MAX},
    {"backend", RG_OPTION_CHOICE, IN_RUNTIME(backend), .choices = {"auto", "uring", "epoll"}},
    {"local_rank", RG_OPTION_COUNT, IN_RUNTIME(local_rank), ELSEWHERE, .min = 0, .max = 1023},
    {"local_world_size", RG_OPTION_COUNT, IN_RUNTIME(local_world_size), ELSEWHERE, .min = 1,
     .max = 1024},
    {"numa", RG_OPTION_CHOICE, IN_RUNTIME(numa_policy),
     .choices = {"auto", "compact", "spread", "none"}},
};
static_assert(sizeof(enum rg_ramp) == sizeof(uint32_t) &&
                  sizeof(enum rg_switch) == sizeof(uint32_t) &&
                  sizeof(enum rg_backend) == sizeof(uint32_t),
              "choices are stored as numbers");

static const struct row *row_find(const char *name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

enum rg_option_kind rg_option_kind(const char *name)
{
    const struct row *row = row_find(name);
    return row != NULL ? row->kind : RG_OPTION_NONE;
}

const char *rg_option_name(size_t index)
{
    return index < RG_ARRAY_LEN(rows) ? rows[index].name : NULL;
}

/* Text that begins with digits: stores their value and what is behind them. */
static bool digits_parse(const char *text, uint64_t *out_value, const char **out_rest)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *out_value = value;
    *out_rest = end;
    return isdigit((unsigned char)*text) && errno == 0;
}

static bool size_parse(const char *text, uint64_t *out_value)
{
    static const char units[] = "KMGT";
    const char *rest;
    if (!digits_parse(text, out_value, &rest)) {
        return false;
    }
    const char *unit = *rest != '\0' ? strchr(units, toupper((unsigned char)*rest)) : NULL;
    if (unit != NULL) {
        unsigned shift = 10 * (unsigned)(unit - units + 1);
        if (*out_value > UINT64_MAX >> shift) {
            return false;
        }
        *out_value <<= shift;
        rest++;
        rest += *rest == 'i' && rest[1] == 'B' ? 1 : 0;
    }
    return *rest == '\0' || strcmp(rest, "B") == 0;
}

/* Without a locale's opinion of the point. Digits behind nanoseconds are dropped. */
static bool seconds_parse(const char *text, uint64_t *out_ns)
{
    const char *rest;
    uint64_t seconds, part = 0;
    if (strcmp(text, "inf") == 0) {
        *out_ns = RG_FOREVER;
        return true;
    }
    if (!digits_parse(text, &seconds, &rest) || seconds > SECONDS_MAX) {
        return false;
    }
    if (*rest == '.') {
        unsigned digits = 0;
        for (rest++; isdigit((unsigned char)*rest); rest++) {
            part = digits < DIGITS_OF_NS ? part * 10 + (uint64_t)(*rest - '0') : part;
            digits += digits < DIGITS_OF_NS;
        }
        for (; digits < DIGITS_OF_NS; digits++) {
            part *= 10;
        }
    }
    *out_ns = seconds * RG_NS_PER_S + part;
    return *rest == '\0' && *out_ns > 0;
}

static bool switch_parse(const char *text, uint32_t *out)
{
    static const char *const words[][4] = {{"1", "true", "on", "yes"}, {"0", "false", "off", "no"}};
    for (size_t i = 0; i < RG_ARRAY_LEN(words); i++) {
        for (size_t n = 0; n < RG_ARRAY_LEN(words[i]); n++) {
            if (strcasecmp(text, words[i][n]) == 0) {
                *out = i == 0 ? RG_SWITCH_ON : RG_SWITCH_OFF;
                return true;
            }
        }
    }
    return false;
}

static bool choice_parse(const struct row *row, const char *text, uint32_t *out)
{
    for (uint32_t i = 0; i < RG_ARRAY_LEN(row->choices) && row->choices[i] != NULL; i++) {
        if (*text != '\0' && strcmp(text, row->choices[i]) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* What it may be, for people. */
static void row_describe(const struct row *row, char *out, size_t out_size)
{
    size_t used = 0;
    switch (row->kind) {
    case RG_OPTION_COUNT:
        snprintf(out, out_size, "%" PRIu64 " to %" PRIu64, row->min, row->max);
        return;
    case RG_OPTION_SIZE:
        snprintf(out, out_size,
                 row->min == 1 ? "a number of bytes above 0, such as 100000 or 64MiB"
                               : "at least %" PRIu64 " MiB, such as 100000000 or 64MiB",
                 row->min >> 20);
        return;
    case RG_OPTION_SECONDS:
        snprintf(out, out_size, "a number of seconds above 0, such as 2.5, or inf for no limit");
        return;
    case RG_OPTION_SWITCH:
        snprintf(out, out_size, "true or false");
        return;
    case RG_OPTION_SWITCH_OR_FOLDER:
        snprintf(out, out_size, "true or false, or the absolute path of a folder in memory");
        return;
    default:
        snprintf(out, out_size, "one of ");
        used = strlen(out);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(row->choices) && row->choices[i] != NULL; i++) {
        if (*row->choices[i] != '\0' && used < out_size) {
            bool is_first = out[used - 2] == 'f' && out[used - 1] == ' ';
            used += (size_t)snprintf(out + used, out_size - used, "%s%s", is_first ? "" : ", ",
                                     row->choices[i]);
        }
    }
}

static bool row_store(const struct row *row, const char *text, void *options)
{
    void *place = (char *)options + row->place;
    uint64_t value;
    const char *rest;
    uint32_t ignored;
    switch (row->kind) {
    case RG_OPTION_SWITCH_OR_FOLDER:
        if (*text != '/' && !switch_parse(text, &ignored)) {
            return false;
        }
        *(const char **)place = text;
        return true;
    case RG_OPTION_TEXT:
        *(const char **)place = text;
        return true;
    case RG_OPTION_COUNT:
        if (!digits_parse(text, &value, &rest) || *rest != '\0' || value < row->min ||
            value > row->max) {
            return false;
        }
        *(uint32_t *)place = (uint32_t)value;
        return true;
    case RG_OPTION_SIZE:
        if (!size_parse(text, &value) || value < row->min || value > row->max) {
            return false;
        }
        *(uint64_t *)place = value;
        return true;
    case RG_OPTION_SECONDS:
        return seconds_parse(text, place);
    case RG_OPTION_SWITCH:
        return switch_parse(text, place);
    case RG_OPTION_CHOICE:
        return choice_parse(row, text, place);
    case RG_OPTION_NONE:
        break;
    }
    return false;
}

/* Whether the program that made the struct was compiled with the option in it. Both structs begin
 * with their size. */
static bool row_is_known(const struct row *row, const void *options)
{
    bool is_wide = row->kind == RG_OPTION_TEXT || row->kind == RG_OPTION_SWITCH_OR_FOLDER ||
                   row->kind == RG_OPTION_SIZE || row->kind == RG_OPTION_SECONDS;
    size_t size = is_wide ? sizeof(uint64_t) : sizeof(uint32_t);
    return row->place + size <= *(const size_t *)options;
}

static bool row_is_set(const struct row *row, const void *options)
{
    const char *place = (const char *)options + row->place;
    switch (row->kind) {
    case RG_OPTION_TEXT:
    case RG_OPTION_SWITCH_OR_FOLDER:
        return *(const char *const *)(const void *)place != NULL;
    case RG_OPTION_SIZE:
    case RG_OPTION_SECONDS:
        return *(const uint64_t *)(const void *)place != 0;
    default:
        return *(const uint32_t *)(const void *)place != 0;
    }
}

static int explain(char *error, size_t error_size, const char *format, ...) RG_PRINTF(3, 4);
static int explain(char *error, size_t error_size, const char *format, ...)
{
    if (error != NULL && error_size > 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(error, error_size, format, args);
        va_end(args);
    }
    return -EINVAL;
}

/* `called` is what the caller calls it. */
static int row_set(const struct row *row, const char *called, const char *text, void *options,
                   char *error, size_t error_size)
{
    if (row_store(row, text, options)) {
        return 0;
    }
    char described[128];
    row_describe(row, described, sizeof(described));
    const char *quote = isdigit((unsigned char)*text) ? "" : "\"";
    return explain(error, error_size, "%s must be %s, got %s%s%s", called, described, quote, text,
                   quote);
}

int rg_option_set(struct rg_runtime_options *runtime, struct rg_client_options *client,
                  const char *name, const char *text, char *error, size_t error_size)
{
    const struct row *row = row_find(name);
    if (row == NULL) {
        return explain(error, error_size, "there is no option \"%s\"", name);
    }
    void *options = row->owner == RUNTIME ? (void *)runtime : client;
    if (!row_is_known(row, options)) {
        return explain(error, error_size, "the program was built before there was the option %s",
                       name);
    }
    return row_set(row, name, text, options, error, error_size);
}

static void variable_name(const struct row *row, char out[NAME_SIZE_MAX])
{
    int size = snprintf(out, NAME_SIZE_MAX, VARIABLE_PREFIX "%s", row->name);
    RG_ASSERT(size < NAME_SIZE_MAX);
    for (char *c = out; *c != '\0'; c++) {
        *c = (char)toupper((unsigned char)*c);
    }
}

static int row_read(const struct row *row, void *options, char *error, size_t error_size)
{
    char name[NAME_SIZE_MAX];
    variable_name(row, name);
    const char *text = getenv(name);
    if (text == NULL || *text == '\0') {
        return 0;
    }
    if (row->variable == VARIABLE_REFUSED) {
        return explain(
            error, error_size,
            "%s is set, but no such variable decides that; unset it, and give %s as an option",
            name, row->name);
    }
    bool is_taken = row_is_known(row, options) && !row_is_set(row, options);
    return is_taken ? row_set(row, name, text, options, error, error_size) : 0;
}

static double seconds_of(uint64_t ns)
{
    return ns == RG_FOREVER ? INFINITY : (double)ns / (double)RG_NS_PER_S;
}

/* Two options that belong together, with what was given of them before the environment was read. It
 * is called by the variable what a variable said, and that is forgotten where it is wrong. */
static int backoffs_check(struct rg_client_options *client, uint64_t given_min_ns,
                          uint64_t given_max_ns, char *error, size_t error_size)
{
    uint64_t min_ns = client->backoff_min_ns, max_ns = client->backoff_max_ns;
    bool is_min_default = min_ns == 0, is_max_default = max_ns == 0;
    const char *min_name = min_ns != given_min_ns ? "RINGEST_BACKOFF_MIN" : "backoff_min";
    const char *max_name = max_ns != given_max_ns ? "RINGEST_BACKOFF_MAX" : "backoff_max";
    min_ns = is_min_default ? RG_BACKOFF_MIN_DEFAULT_NS : min_ns;
    max_ns = is_max_default ? RG_BACKOFF_MAX_DEFAULT_NS : max_ns;
    if (min_ns <= max_ns) {
        return 0;
    }
    client->backoff_min_ns = given_min_ns;
    client->backoff_max_ns = given_max_ns;
    if (is_min_default) {
        return explain(error, error_size, "%s is %g s, below %s, which is %g s by default",
                       max_name, seconds_of(max_ns), min_name, seconds_of(min_ns));
    }
    return explain(error, error_size, "%s is %g s, above %s, which is %g s%s", min_name,
                   seconds_of(min_ns), max_name, seconds_of(max_ns),
                   is_max_default ? " by default" : "");
}

int rg_options_from_environment(struct rg_runtime_options *runtime,
                                struct rg_client_options *client, char *error, size_t error_size)
{
    uint64_t backoff_min_ns = client != NULL ? client->backoff_min_ns : 0;
    uint64_t backoff_max_ns = client != NULL ? client->backoff_max_ns : 0;
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        void *options = rows[i].owner == RUNTIME ? (void *)runtime : client;
        if (rows[i].variable == VARIABLE_ELSEWHERE || options == NULL) {
            continue;
        }
        int rc = row_read(&rows[i], options, error, error_size);
        if (rc < 0) {
            return rc;
        }
    }
    if (client == NULL) {
        return 0;
    }
    return backoffs_check(client, backoff_min_ns, backoff_max_ns, error, error_size);
}
