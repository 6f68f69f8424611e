/* See batch_answer.h. */
#include "gcs/wire/batch_answer.h"

#include <errno.h>
#include <string.h>

#define LITERAL_SIZE(literal) (sizeof(literal) - 1)
#define STATUS_DIGITS 3

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct rg_h1_slice trim(struct rg_h1_slice text)
{
    while (text.size > 0 && is_space(text.data[0])) {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && is_space(text.data[text.size - 1])) {
        text.size--;
    }
    return text;
}

/* Takes `prefix`, in any case, off the front. */
static bool take_prefix(struct rg_h1_slice *text, const char *prefix)
{
    size_t size = strlen(prefix);
    if (text->size < size || strncasecmp(text->data, prefix, size) != 0) {
        return false;
    }
    text->data += size;
    text->size -= (uint32_t)size;
    return true;
}

/* Takes what is in front of the next `separator` off, or everything; without the separator. */
static struct rg_h1_slice take_until(struct rg_h1_slice *text, char separator)
{
    const char *end = text->size > 0 ? memchr(text->data, separator, text->size) : NULL;
    struct rg_h1_slice taken = *text;
    if (end != NULL) {
        taken.size = (uint32_t)(end - text->data);
    }
    uint32_t used = taken.size + (end != NULL ? 1 : 0);
    text->data += used;
    text->size -= used;
    return taken;
}

int rg_batch_boundary_parse(struct rg_h1_slice content_type,
                            char out_boundary[static RG_BOUNDARY_SIZE_MAX + 1])
{
    if (!take_prefix(&content_type, "multipart/mixed")) {
        return -EBADMSG;
    }
    while (content_type.size > 0) {
        struct rg_h1_slice parameter = trim(take_until(&content_type, ';'));
        if (!take_prefix(&parameter, "boundary=")) {
            continue;
        }
        if (parameter.size >= 2 && parameter.data[0] == '"' &&
            parameter.data[parameter.size - 1] == '"') {
            parameter.data++;
            parameter.size -= 2;
        }
        if (parameter.size == 0 || parameter.size > RG_BOUNDARY_SIZE_MAX ||
            memchr(parameter.data, '\0', parameter.size) != NULL) {
            return -EBADMSG;
        }
        memcpy(out_boundary, parameter.data, parameter.size);
        out_boundary[parameter.size] = '\0';
        return (int)parameter.size;
    }
    return -EBADMSG;
}

enum line_kind { LINE_OTHER, LINE_PART, LINE_END };

/* Whether a line begins a part or ends the last one. */
static enum line_kind line_kind(struct rg_h1_slice line, const char *boundary)
{
    size_t size = strlen(boundary);
    if (line.size < 2 + size || memcmp(line.data, "--", 2) != 0 ||
        memcmp(line.data + 2, boundary, size) != 0) {
        return LINE_OTHER;
    }
    line.data += 2 + size;
    line.size -= (uint32_t)(2 + size);
    line = trim(line);
    if (line.size == 0) {
        return LINE_PART;
    }
    return line.size == 2 && memcmp(line.data, "--", 2) == 0 ? LINE_END : LINE_OTHER;
}

/* The number that a Content-ID of ours has, below `count`. */
static bool id_parse(struct rg_h1_slice id, uint32_t count, uint32_t *out_number)
{
    id = trim(id);
    if (id.size >= 2 && id.data[0] == '<' && id.data[id.size - 1] == '>') {
        id.data++;
        id.size -= 2;
    }
    (void)take_prefix(&id, "response-");
    if (!take_prefix(&id, RG_BATCH_ID_PREFIX) || id.size == 0) {
        return false;
    }
    uint64_t number = 0;
    for (uint32_t i = 0; i < id.size; i++) {
        if (id.data[i] < '0' || id.data[i] > '9' || number >= count) {
            return false;
        }
        number = number * 10 + (uint64_t)(id.data[i] - '0');
    }
    *out_number = (uint32_t)number;
    return number < count;
}

/* "HTTP/1.1 204 No Content" */
static bool status_parse(struct rg_h1_slice line, uint16_t *out_status)
{
    if (!take_prefix(&line, "HTTP/")) {
        return false;
    }
    (void)take_until(&line, ' ');
    line = trim(line);
    uint16_t status = 0;
    for (uint32_t i = 0; i < STATUS_DIGITS; i++) {
        if (i >= line.size || line.data[i] < '0' || line.data[i] > '9') {
            return false;
        }
        status = (uint16_t)(status * 10 + (line.data[i] - '0'));
    }
    *out_status = status;
    return status >= 100 && (line.size == STATUS_DIGITS || is_space(line.data[STATUS_DIGITS]));
}

/* Reads a part up to its inner status line; the caller takes what follows. NULL, or what is wrong.
 */
static const char *part_parse(struct rg_h1_slice *rest, struct rg_batch_part *parts, uint32_t count,
                              struct rg_batch_part **out_part)
{
    bool has_id = false;
    uint32_t number = 0;
    for (;;) {
        if (rest->size == 0) {
            return "ends within a part";
        }
        struct rg_h1_slice line = trim(take_until(rest, '\n'));
        if (line.size == 0) {
            break;
        }
        if (take_prefix(&line, "Content-ID:")) {
            has_id = id_parse(line, count, &number);
        }
    }
    if (!has_id) {
        return "has a part that belongs to none of the request's";
    }
    if (parts[number].http_status != 0) {
        return "has two parts for one of the request's";
    }
    struct rg_h1_slice line = trim(take_until(rest, '\n'));
    *out_part = &parts[number];
    return status_parse(line, &parts[number].http_status) ? NULL : "has a part without a status";
}

static const char *answer_parse(struct rg_h1_slice rest, const char *boundary,
                                struct rg_batch_part *parts, uint32_t count)
{
    struct rg_batch_part *part = NULL; /* whose inner answer is being passed over */
    while (rest.size > 0) {
        struct rg_h1_slice line = take_until(&rest, '\n');
        enum line_kind kind = line_kind(line, boundary);
        if (kind == LINE_END) {
            return NULL;
        }
        if (kind == LINE_PART) {
            const char *problem = part_parse(&rest, parts, count, &part);
            if (problem != NULL) {
                return problem;
            }
        } else if (part != NULL && part->message.data != NULL) {
            part->message.size = (uint32_t)(line.data + line.size - part->message.data);
        } else if (part != NULL && trim(line).size == 0) {
            part->message = (struct rg_h1_slice){rest.data, 0};
        }
    }
    return "ends without its last boundary";
}

int rg_batch_answer_parse(const char *body, size_t body_size, const char *boundary,
                          struct rg_batch_part *parts, uint32_t count, const char **out_problem)
{
    RG_ASSERT(body_size <= UINT32_MAX);
    memset(parts, 0, count * sizeof(*parts));
    struct rg_h1_slice rest = {body, (uint32_t)body_size};
    const char *problem = answer_parse(rest, boundary, parts, count);
    if (problem == NULL) {
        return 0;
    }
    *out_problem = problem;
    return -EBADMSG;
}
