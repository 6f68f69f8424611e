/* See tar_parser.h. */
#include "dataset/tar_parser.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Fields of a header (POSIX.1-2001, "ustar Interchange Format"). */
enum {
    AT_NAME = 0,
    NAME_SIZE = 100,
    AT_SIZE = 124,
    SIZE_SIZE = 12,
    AT_CHECKSUM = 148,
    CHECKSUM_SIZE = 8,
    AT_TYPE = 156,
    AT_MAGIC = 257,
    AT_PREFIX = 345,
    PREFIX_SIZE = 155,
};

/* With its NUL: old GNU archives have spaces there, and other things in place of the prefix. */
#define USTAR_MAGIC "ustar"

void rg_tar_parser_init(struct rg_tar_parser *parser)
{
    memset(parser, 0, offsetof(struct rg_tar_parser, extended));
}

static int fail(struct rg_tar_parser *parser, uint64_t at, const char *format, ...) RG_PRINTF(3, 4);

static int fail(struct rg_tar_parser *parser, uint64_t at, const char *format, ...)
{
    int used = snprintf(parser->error, sizeof(parser->error), "at byte %" PRIu64 ": ", at);
    va_list args;
    va_start(args, format);
    vsnprintf(parser->error + used, sizeof(parser->error) - (size_t)used, format, args);
    va_end(args);
    return -EBADMSG;
}

/* Octal digits between spaces or zeros and a NUL or space. False: something else. */
static bool octal_read(const uint8_t *field, size_t size, uint64_t *out_number)
{
    uint64_t number = 0;
    size_t i = 0;
    while (i < size && field[i] == ' ') {
        i++;
    }
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) {
        number = number << 3 | (uint64_t)(field[i] - '0');
    }
    for (; i < size; i++) {
        if (field[i] != '\0' && field[i] != ' ') {
            return false;
        }
    }
    *out_number = number;
    return true;
}

/* GNU tar's form for large numbers: the highest bit set, and the rest a big-endian number. */
static bool base_256_read(const uint8_t *field, size_t size, uint64_t *out_number)
{
    uint64_t number = field[0] & 0x7f;
    for (size_t i = 1; i < size; i++) {
        if (number > RG_TAR_SIZE_MAX >> 8) {
            return false;
        }
        number = number << 8 | field[i];
    }
    *out_number = number;
    return true;
}

static bool size_read(const uint8_t *block, uint64_t *out_size)
{
    const uint8_t *field = block + AT_SIZE;
    bool is_good = (field[0] & 0x80) != 0 ? base_256_read(field, SIZE_SIZE, out_size)
                                          : octal_read(field, SIZE_SIZE, out_size);
    return is_good && *out_size <= RG_TAR_SIZE_MAX;
}

/* The checksum counts itself as spaces. Some old programs added signed bytes. */
static bool checksum_is_right(const uint8_t *block)
{
    uint64_t stated;
    if (!octal_read(block + AT_CHECKSUM, CHECKSUM_SIZE, &stated)) {
        return false;
    }
    uint32_t sum = 0, high = 0;
    for (uint32_t i = 0; i < RG_TAR_BLOCK_SIZE; i++) {
        sum += block[i];
        high += block[i] >> 7;
    }
    for (uint32_t i = AT_CHECKSUM; i < AT_CHECKSUM + CHECKSUM_SIZE; i++) {
        sum += (uint32_t)' ' - block[i];
        high -= block[i] >> 7;
    }
    return stated == sum || (int64_t)stated == (int64_t)sum - 256 * (int64_t)high;
}

static bool block_is_zero(const uint8_t *block)
{
    return block[0] == 0 && memcmp(block, block + 1, RG_TAR_BLOCK_SIZE - 1) == 0;
}

static size_t field_copy(char *out, const uint8_t *field, size_t size)
{
    size_t used = strnlen((const char *)field, size);
    memcpy(out, field, used);
    out[used] = '\0';
    return used;
}

static void name_take(struct rg_tar_parser *parser)
{
    if (parser->has_name) {
        memcpy(parser->name, parser->next_name, strlen(parser->next_name) + 1);
        return;
    }
    size_t used = 0;
    if (memcmp(parser->block + AT_MAGIC, USTAR_MAGIC, sizeof(USTAR_MAGIC)) == 0) {
        used = field_copy(parser->name, parser->block + AT_PREFIX, PREFIX_SIZE);
    }
    if (used > 0) {
        parser->name[used++] = '/';
    }
    (void)field_copy(parser->name + used, parser->block + AT_NAME, NAME_SIZE);
}

/* Reads a number of a pax header: decimal digits and nothing else. */
static bool decimal_read(const uint8_t *text, size_t size, uint64_t *out_number)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9' || number > RG_TAR_SIZE_MAX) {
            return false;
        }
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    *out_number = number;
    return size > 0 && number <= RG_TAR_SIZE_MAX;
}

static int name_set(struct rg_tar_parser *parser, uint64_t at, const uint8_t *text, size_t size)
{
    if (size > RG_TAR_NAME_SIZE_MAX) {
        return fail(parser, at, "a name of %zu bytes, above the limit of %d", size,
                    RG_TAR_NAME_SIZE_MAX);
    }
    if (memchr(text, '\0', size) != NULL) {
        return fail(parser, at, "a name with a NUL in it");
    }
    memcpy(parser->next_name, text, size);
    parser->next_name[size] = '\0';
    parser->has_name = true;
    return 0;
}

static bool key_is(const uint8_t *key, size_t key_size, const char *wanted)
{
    return key_size == strlen(wanted) && memcmp(key, wanted, key_size) == 0;
}

/* One "KEY=VALUE" of a pax header. Others than these say nothing about where bytes are. */
static int record_take(struct rg_tar_parser *parser, uint64_t at, const uint8_t *text, size_t size)
{
    static const char sparse[] = "GNU.sparse.";
    const uint8_t *equals = memchr(text, '=', size);
    if (equals == NULL) {
        return fail(parser, at, "a pax record without \"=\"");
    }
    size_t key_size = (size_t)(equals - text);
    const uint8_t *value = equals + 1;
    size_t value_size = size - key_size - 1;
    if (key_size >= sizeof(sparse) - 1 && memcmp(text, sparse, sizeof(sparse) - 1) == 0) {
        return fail(parser, at, "a sparse file; make the archive without --sparse");
    }
    bool is_name = key_is(text, key_size, "path"), is_size = key_is(text, key_size, "size");
    if ((is_name || is_size) && parser->extended_type == 'g') {
        return fail(parser, at, "a global pax header that sets the %.*s of all members",
                    (int)key_size, (const char *)text);
    }
    if (is_name) {
        return name_set(parser, at, value, value_size);
    }
    if (is_size) {
        if (!decimal_read(value, value_size, &parser->size)) {
            return fail(parser, at, "a pax record whose size is not a number");
        }
        parser->has_size = true;
    }
    return 0;
}

/* Records "LENGTH KEY=VALUE\n", LENGTH being that of the whole record in decimal. */
static int pax_take(struct rg_tar_parser *parser, uint64_t at)
{
    const uint8_t *text = parser->extended;
    size_t left = parser->extended_size;
    while (left > 0) {
        const uint8_t *space = memchr(text, ' ', left);
        uint64_t length = 0;
        if (space == NULL || !decimal_read(text, (size_t)(space - text), &length) ||
            length > left || length < (size_t)(space - text) + 2 || text[length - 1] != '\n') {
            return fail(parser, at, "a pax header whose records do not fit together");
        }
        size_t before = (size_t)(space - text) + 1;
        int rc = record_take(parser, at, text + before, (size_t)length - before - 1);
        if (rc < 0) {
            return rc;
        }
        text += length;
        left -= (size_t)length;
    }
    return 0;
}

static uint64_t blocks_end(uint64_t offset, uint64_t size)
{
    return offset + (size + RG_TAR_BLOCK_SIZE - 1) / RG_TAR_BLOCK_SIZE * RG_TAR_BLOCK_SIZE;
}

static int extended_take(struct rg_tar_parser *parser)
{
    uint64_t at = parser->offset - parser->extended_size;
    parser->phase = RG_TAR_HEADER;
    parser->offset = blocks_end(at, parser->extended_size);
    switch (parser->extended_type) {
    case 'L':
        return name_set(parser, at, parser->extended,
                        strnlen((const char *)parser->extended, parser->extended_size));
    case 'K': /* what a link points to */
        return 0;
    default:
        return pax_take(parser, at);
    }
}

static int extended_begin(struct rg_tar_parser *parser, char type, uint64_t size)
{
    if (size > RG_TAR_EXTENDED_SIZE_MAX) {
        return fail(parser, parser->offset,
                    "an extended header of %" PRIu64 " bytes, above the limit of %zu", size,
                    RG_TAR_EXTENDED_SIZE_MAX);
    }
    parser->phase = RG_TAR_EXTENDED;
    parser->extended_type = type;
    parser->extended_size = (uint32_t)size;
    parser->extended_used = 0;
    return RG_TAR_RESULT_MORE;
}

static bool type_is_file(const struct rg_tar_parser *parser, char type)
{
    size_t length = strlen(parser->name);
    /* In the old format a folder is a file whose name ends so. */
    bool is_folder = type == '\0' && length > 0 && parser->name[length - 1] == '/';
    return (type == '0' || type == '\0' || type == '7') && !is_folder;
}

/* Links, devices, folders and FIFOs hold nothing, whatever their size field says. */
static bool type_has_data(char type)
{
    return type < '1' || type > '6';
}

static int member_take(struct rg_tar_parser *parser, char type, uint64_t size,
                       struct rg_tar_member *out_member)
{
    size = parser->has_size ? parser->size : size;
    name_take(parser);
    parser->has_name = parser->has_size = false;
    if (type == 'S' || type == 'M') {
        return fail(parser, parser->offset - RG_TAR_BLOCK_SIZE, "\"%.80s\" is a %s", parser->name,
                    type == 'S' ? "sparse file; make the archive without --sparse"
                                : "part of a file in several archives, which is not read");
    }
    bool is_file = type_is_file(parser, type);
    if (is_file) {
        *out_member = (struct rg_tar_member){
            .name = parser->name,
            .offset = parser->offset,
            .size = size,
        };
    }
    if (type_has_data(type)) {
        parser->offset = blocks_end(parser->offset, size);
    }
    return is_file ? RG_TAR_RESULT_MEMBER : RG_TAR_RESULT_MORE;
}

static int checksum_fail(struct rg_tar_parser *parser, uint64_t at)
{
    if (at == 0 && parser->block[0] == 0x1f && parser->block[1] == 0x8b) {
        return fail(parser, at, "it is compressed with gzip; only plain tar can be read by index");
    }
    return fail(parser, at,
                at == 0 ? "it is not a tar archive: the header's checksum is wrong"
                        : "the header's checksum is wrong");
}

/* The block is complete, and the offset behind it. */
static int header_take(struct rg_tar_parser *parser, struct rg_tar_member *out_member)
{
    const uint8_t *block = parser->block;
    uint64_t at = parser->offset - RG_TAR_BLOCK_SIZE, size;
    parser->block_used = 0;
    if (block_is_zero(block)) {
        parser->phase = RG_TAR_ENDED;
        return RG_TAR_RESULT_END;
    }
    if (!checksum_is_right(block)) {
        return checksum_fail(parser, at);
    }
    if (!size_read(block, &size)) {
        return fail(parser, at, "a member whose size is negative, too large or not a number");
    }
    if (at > RG_TAR_SIZE_MAX) {
        return fail(parser, at, "the archive is too large");
    }
    char type = (char)block[AT_TYPE];
    if (type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g') {
        return extended_begin(parser, type, size);
    }
    return member_take(parser, type, size, out_member);
}

/* Copies what is there of what the phase needs. True: it has all of it. */
static bool bytes_take(struct rg_tar_parser *parser, const uint8_t *data, size_t size)
{
    bool is_header = parser->phase == RG_TAR_HEADER;
    uint8_t *to = is_header ? parser->block : parser->extended;
    uint32_t *used = is_header ? &parser->block_used : &parser->extended_used;
    uint32_t wanted = is_header ? RG_TAR_BLOCK_SIZE : parser->extended_size;
    size_t count = RG_MIN((size_t)(wanted - *used), size);
    if (count > 0) {
        memcpy(to + *used, data, count);
    }
    *used += (uint32_t)count;
    parser->offset += count;
    return *used == wanted;
}

static bool invariants(const struct rg_tar_parser *parser)
{
    bool is_extended = parser->phase == RG_TAR_EXTENDED;
    uint32_t used = is_extended ? parser->extended_used : parser->block_used;
    uint32_t wanted = is_extended ? parser->extended_size : RG_TAR_BLOCK_SIZE;
    return (used < wanted || (is_extended && wanted == 0)) && wanted <= RG_TAR_EXTENDED_SIZE_MAX &&
           parser->offset >= used && (parser->offset - used) % RG_TAR_BLOCK_SIZE == 0 &&
           (!parser->has_name || memchr(parser->next_name, '\0', sizeof(parser->next_name))) &&
           memchr(parser->name, '\0', sizeof(parser->name)) != NULL;
}

/* Goes on until a member is complete, the archive ends, or more bytes are wanted. */
static int bytes_parse(struct rg_tar_parser *parser, const uint8_t *data, size_t size,
                       struct rg_tar_member *out_member)
{
    uint64_t start = parser->offset;
    int rc = RG_TAR_RESULT_MORE;
    while (rc == RG_TAR_RESULT_MORE) {
        if (parser->phase == RG_TAR_ENDED) {
            return RG_TAR_RESULT_END;
        }
        uint64_t skipped = parser->offset - start;
        bool is_empty = parser->phase == RG_TAR_EXTENDED && parser->extended_size == 0;
        if (skipped >= size && !is_empty) {
            return RG_TAR_RESULT_MORE;
        }
        size_t at = (size_t)RG_MIN(skipped, (uint64_t)size);
        if (bytes_take(parser, data + at, size - at)) {
            rc = parser->phase == RG_TAR_HEADER ? header_take(parser, out_member)
                                                : extended_take(parser);
        }
    }
    return rc;
}

int rg_tar_parser_feed(struct rg_tar_parser *parser, const uint8_t *data, size_t size,
                       struct rg_tar_member *out_member)
{
    if (parser->error[0] != '\0') {
        return -EBADMSG;
    }
    int rc = bytes_parse(parser, data, size, out_member);
    RG_VERIFY(rc < 0 || invariants(parser));
    return rc;
}

int rg_tar_parser_finish(struct rg_tar_parser *parser, uint64_t size)
{
    if (parser->error[0] != '\0') {
        return -EBADMSG;
    }
    if (parser->phase == RG_TAR_ENDED) {
        return 0;
    }
    if (size == 0) {
        return fail(parser, 0, "it is empty; a tar archive has at least its end mark");
    }
    if (parser->offset > size && parser->phase == RG_TAR_HEADER) {
        return fail(parser, size, "it is cut off: \"%.80s\" would end at byte %" PRIu64,
                    parser->name, parser->offset);
    }
    return fail(parser, size, "it is cut off: %s",
                parser->phase == RG_TAR_EXTENDED || parser->block_used > 0
                    ? "a header is incomplete"
                    : "the end mark of the archive is missing");
}
