/* See extra_headers.h. */
#include "gcs/network/extra_headers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_SHOWN_MAX 64 /* of a name, in an error */

/* These decide where a message ends, what the connection does next, or which bytes an answer has.
 */
static const char *const reserved_names[] = {
    "Accept-Encoding",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "Expect",
    "Host",
    "Keep-Alive",
    "Range",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
};

static bool is_reserved(const char *name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(reserved_names); i++) {
        if (strcasecmp(name, reserved_names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Divides a line, which ends with a NUL, in place. Returns what is wrong with it, or NULL; *name
 * then is the name, as far as there is one. */
static const char *divide(char *line, const char **out_name, struct rg_h1_slice *out_value)
{
    char *colon = strchr(line, ':');
    if (colon == NULL) {
        return "has no colon";
    }
    size_t name_size = (size_t)(colon - line);
    if (name_size == 0 || rg_h1_token_span(line, name_size) != name_size) {
        return "does not begin with the name of a field";
    }
    *colon = '\0';
    *out_name = line;
    if (is_reserved(line)) {
        return "names a field that the library sets itself";
    }
    char *value = colon + 1;
    while (is_blank(*value)) {
        value++;
    }
    size_t size = strlen(value);
    while (size > 0 && is_blank(value[size - 1])) {
        size--;
    }
    if (rg_h1_value_span(value, size) != size) {
        return "has a control character in its value";
    }
    *out_value = (struct rg_h1_slice){value, (uint32_t)size};
    return NULL;
}

static const char *add_line(struct rg_extra_headers *headers, char *line, const char **out_name)
{
    struct rg_h1_slice value;
    if (line[strspn(line, " \t\r")] == '\0') {
        return NULL;
    }
    if (headers->count == RG_EXTRA_HEADERS_MAX) {
        return "is one too many: 32 are allowed";
    }
    const char *problem = divide(line, out_name, &value);
    if (problem == NULL) {
        headers->names[headers->count] = *out_name;
        headers->values[headers->count++] = value;
    }
    return problem;
}

/* The text has been copied; it is divided where it lies. */
static int add_lines(struct rg_extra_headers *headers, const char *source, char *error,
                     size_t error_size)
{
    char *rest = headers->text;
    for (unsigned number = 1; rest != NULL; number++) {
        const char *name = NULL;
        const char *problem = add_line(headers, strsep(&rest, "\n"), &name);
        if (problem != NULL) {
            /* Only the name is repeated, since a value may be a secret. */
            snprintf(error, error_size, "line %u of %s%s%.*s%s %s", number, source,
                     name != NULL ? " (" : "", NAME_SHOWN_MAX, name != NULL ? name : "",
                     name != NULL ? ")" : "", problem);
            return -EINVAL;
        }
    }
    return 0;
}

int rg_extra_headers_parse(struct rg_extra_headers **out_headers, const char *option, char *error,
                           size_t error_size)
{
    RG_ASSERT(error_size > 0);
    const char *source = option != NULL ? "the headers option" : "RINGEST_HEADERS";
    const char *text = option != NULL ? option : getenv(source);
    size_t size = text == NULL ? 0 : strlen(text);
    if (size > RG_EXTRA_HEADERS_SIZE_MAX) {
        snprintf(error, error_size, "%s is longer than %d bytes", source,
                 RG_EXTRA_HEADERS_SIZE_MAX);
        return -EINVAL;
    }
    struct rg_extra_headers *headers = calloc(1, sizeof(*headers));
    if (headers == NULL) {
        snprintf(error, error_size, "no memory for %s", source);
        return -ENOMEM;
    }
    if (size > 0) {
        memcpy(headers->text, text, size);
    }
    int status = add_lines(headers, source, error, error_size);
    if (status < 0) {
        rg_extra_headers_free(headers);
        return status;
    }
    *out_headers = headers;
    return 0;
}

void rg_extra_headers_free(struct rg_extra_headers *headers)
{
    if (headers != NULL) {
        explicit_bzero(headers, sizeof(*headers));
        free(headers);
    }
}
