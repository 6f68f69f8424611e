/* Finding the two parts; see multipart.h. */
#include "emulator/wire/multipart.h"

#include <errno.h>
#include <strings.h>

static bool starts_with_ignoring_case(struct rg_h1_slice text, const char *prefix)
{
    size_t size = strlen(prefix);
    return text.size >= size && strncasecmp(text.data, prefix, size) == 0;
}

static struct rg_h1_slice trim(struct rg_h1_slice text)
{
    while (text.size > 0 && strchr(" \t\r", text.data[0]) != NULL) {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && strchr(" \t\r", text.data[text.size - 1]) != NULL) {
        text.size--;
    }
    return text;
}

struct rg_h1_slice rg_multipart_boundary(struct rg_h1_slice content_type)
{
    const char *end = content_type.data + content_type.size;
    const char *at = content_type.data;
    while ((at = memchr(at, ';', (size_t)(end - at))) != NULL) {
        at++;
        struct rg_h1_slice rest = trim((struct rg_h1_slice){at, (uint32_t)(end - at)});
        if (!starts_with_ignoring_case(rest, "boundary=")) {
            continue;
        }
        rest.data += strlen("boundary=");
        rest.size -= (uint32_t)strlen("boundary=");
        bool quoted = rest.size > 0 && rest.data[0] == '"';
        rest.data += quoted;
        rest.size -= quoted;
        const char *stop = memchr(rest.data, quoted ? '"' : ';', rest.size);
        rest.size = stop != NULL ? (uint32_t)(stop - rest.data) : rest.size;
        return quoted ? rest : trim(rest);
    }
    return (struct rg_h1_slice){NULL, 0};
}

int rg_multipart_init(struct rg_multipart *multipart, struct rg_h1_slice content_type)
{
    struct rg_h1_slice boundary = rg_multipart_boundary(content_type);
    if (boundary.size == 0 || boundary.size > RG_MULTIPART_BOUNDARY_SIZE_MAX) {
        return -EINVAL;
    }
    *multipart = (struct rg_multipart){.delimiter_size = boundary.size + 3};
    memcpy(multipart->delimiter, "\n--", 3);
    memcpy(multipart->delimiter + 3, boundary.data, boundary.size);
    return 0;
}

void rg_multipart_fini(struct rg_multipart *multipart)
{
    rg_text_fini(&multipart->preface);
}

/* Takes a line off the front, without its end. False when the end is not there yet. */
static bool take_line(struct rg_h1_slice *text, struct rg_h1_slice *out_line)
{
    const char *end = memchr(text->data, '\n', text->size);
    if (end == NULL) {
        return false;
    }
    uint32_t size = (uint32_t)(end - text->data);
    *out_line = (struct rg_h1_slice){text->data, size};
    if (size > 0 && text->data[size - 1] == '\r') {
        out_line->size--;
    }
    text->data += size + 1;
    text->size -= size + 1;
    return true;
}

/* Takes the fields of a part and the blank line behind them. */
static bool take_part_head(struct rg_h1_slice *text, struct rg_h1_slice *out_content_type)
{
    struct rg_h1_slice line;
    *out_content_type = (struct rg_h1_slice){"", 0};
    while (take_line(text, &line)) {
        if (line.size == 0) {
            return true;
        }
        if (starts_with_ignoring_case(line, "content-type:")) {
            uint32_t name_size = (uint32_t)strlen("content-type:");
            *out_content_type =
                trim((struct rg_h1_slice){line.data + name_size, line.size - name_size});
        }
    }
    return false;
}

/* Takes everything up to the line of the first boundary, and that line. */
static bool take_opening(const struct rg_multipart *multipart, struct rg_h1_slice *text)
{
    struct rg_h1_slice opening = {multipart->delimiter + 1, multipart->delimiter_size - 1};
    struct rg_h1_slice line;
    while (take_line(text, &line)) {
        if (rg_text_compare(trim(line), opening) == 0) {
            return true;
        }
    }
    return false;
}

struct preface {
    struct rg_h1_slice json, content_type;
    size_t size;
    bool crlf; /* The line end that belongs to the delimiter is CRLF. */
};

/* False while it is not complete. */
static bool parse_preface(const struct rg_multipart *multipart, struct preface *out)
{
    struct rg_h1_slice text = {multipart->preface.data, (uint32_t)multipart->preface.size};
    struct rg_h1_slice json_type, line;
    if (!take_opening(multipart, &text) || !take_part_head(&text, &json_type)) {
        return false;
    }
    /* The search starts at the LF of the blank line: when the part is empty, the delimiter
     * begins with it. */
    const char *end =
        memmem(text.data - 1, text.size + 1, multipart->delimiter, multipart->delimiter_size);
    if (end == NULL) {
        return false;
    }
    out->crlf = end[-1] == '\r';
    ptrdiff_t json_size = end - text.data - out->crlf;
    out->json = (struct rg_h1_slice){text.data, json_size > 0 ? (uint32_t)json_size : 0};
    text.size -= (uint32_t)(end + 1 - text.data);
    text.data = end + 1;
    if (!take_line(&text, &line) || !take_part_head(&text, &out->content_type)) {
        return false;
    }
    out->size = (size_t)(text.data - multipart->preface.data);
    return true;
}

/* Hands on the data before the delimiter at `found`, without the CR of the delimiter's line end.
 * A CR before a bare LF is data. */
static int end_data(struct rg_multipart *multipart, const uint8_t *data, const uint8_t *found,
                    const struct rg_multipart_sink *sink)
{
    size_t size = (size_t)(found - data);
    size -= multipart->crlf && size > 0 && data[size - 1] == '\r';
    multipart->stage = RG_MULTIPART_END;
    return size > 0 ? sink->data(sink->context, data, size) : 0;
}

/* Hands on all but the last bytes, which are held back. */
static int hold_tail(struct rg_multipart *multipart, const uint8_t *data, size_t size,
                     const struct rg_multipart_sink *sink)
{
    size_t held_size = RG_MIN(size, (size_t)multipart->delimiter_size);
    int rc = size > held_size ? sink->data(sink->context, data, size - held_size) : 0;
    memmove(multipart->held, data + (size - held_size), held_size);
    multipart->held_size = (uint32_t)held_size;
    return rc;
}

static int feed_data(struct rg_multipart *multipart, const uint8_t *data, size_t size,
                     const struct rg_multipart_sink *sink)
{
    size_t delimiter_size = multipart->delimiter_size;
    if (multipart->held_size > 0) {
        /* A delimiter that starts in the held bytes ends within `delimiter_size` new ones. */
        uint8_t joint[2 * RG_MULTIPART_DELIMITER_SIZE_MAX];
        size_t held_size = multipart->held_size;
        size_t added = RG_MIN(size, delimiter_size);
        memcpy(joint, multipart->held, held_size);
        memcpy(joint + held_size, data, added);
        const uint8_t *found =
            memmem(joint, held_size + added, multipart->delimiter, delimiter_size);
        if (found != NULL) {
            return end_data(multipart, joint, found, sink);
        }
        if (added == size) {
            return hold_tail(multipart, joint, held_size + added, sink);
        }
        multipart->held_size = 0;
        int rc = sink->data(sink->context, joint, held_size);
        if (rc != 0) {
            return rc;
        }
    }
    const uint8_t *found = memmem(data, size, multipart->delimiter, delimiter_size);
    return found != NULL ? end_data(multipart, data, found, sink)
                         : hold_tail(multipart, data, size, sink);
}

int rg_multipart_feed(struct rg_multipart *multipart, const uint8_t *data, size_t size,
                      const struct rg_multipart_sink *sink)
{
    if (multipart->stage == RG_MULTIPART_PREFACE) {
        struct rg_text *text = &multipart->preface;
        size_t taken = RG_MIN(size, RG_MULTIPART_PREFACE_SIZE_MAX - text->size);
        struct preface preface;
        rg_text_append(text, data, taken);
        if (text->failed) {
            return -ENOMEM;
        }
        if (!parse_preface(multipart, &preface)) {
            return text->size == RG_MULTIPART_PREFACE_SIZE_MAX ? -EMSGSIZE : 0;
        }
        multipart->stage = RG_MULTIPART_DATA;
        multipart->crlf = preface.crlf;
        int rc = sink->metadata(sink->context, preface.json, preface.content_type);
        if (rc == 0) {
            rc = feed_data(multipart, (const uint8_t *)text->data + preface.size,
                           text->size - preface.size, sink);
        }
        rg_text_fini(text);
        if (rc != 0) {
            return rc;
        }
        data += taken;
        size -= taken;
    }
    return multipart->stage == RG_MULTIPART_DATA && size > 0
               ? feed_data(multipart, data, size, sink)
               : 0;
}
