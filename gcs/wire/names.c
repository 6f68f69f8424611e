/* See names.h. */
#include "gcs/wire/names.h"

#include "gcs/wire/utf8.h"

#include <string.h>

#define ACME_PREFIX ".well-known/acme-challenge/"

static_assert(RG_NAME_ENCODED_SIZE_MAX(RG_OBJECT_NAME_SIZE_MAX) <= INT32_MAX, "sizes fit an int");

/* Every byte with what it becomes, so that encoding is one load and one store a byte, without a
 * branch that depends on the name. */
struct encoded_byte {
    char text[3];
    uint8_t size;
};

/* clang-format off */
#define DIGIT(n) ((n) < 10 ? '0' + (n) : 'A' + (n) - 10)
#define IS_UNRESERVED(c)                                                                           \
    (((c) >= '0' && (c) <= '9') || ((c) >= 'A' && (c) <= 'Z') || ((c) >= 'a' && (c) <= 'z') ||     \
     (c) == '-' || (c) == '.' || (c) == '_' || (c) == '~')
#define BYTE(c)                                                                                    \
    {{IS_UNRESERVED(c) ? (char)(c) : '%', DIGIT((c) >> 4), DIGIT((c) & 15)},                       \
     IS_UNRESERVED(c) ? 1 : 3}
#define BYTES_4(c) BYTE(c), BYTE((c) + 1), BYTE((c) + 2), BYTE((c) + 3)
#define BYTES_16(c) BYTES_4(c), BYTES_4((c) + 4), BYTES_4((c) + 8), BYTES_4((c) + 12)
#define BYTES_64(c) BYTES_16(c), BYTES_16((c) + 16), BYTES_16((c) + 32), BYTES_16((c) + 48)
/* clang-format on */

static const struct encoded_byte encoded_bytes[] = {BYTES_64(0), BYTES_64(64), BYTES_64(128),
                                                    BYTES_64(192)};
static_assert(RG_ARRAY_LEN(encoded_bytes) == 256, "every byte has its text");
static_assert(sizeof(struct encoded_byte) == 4, "one load, one store");

int rg_name_encode(const char *name, size_t size, char *out, size_t capacity)
{
    RG_ASSERT(size <= INT32_MAX / 3);
    size_t used = 0, i = 0;
    for (; i < size && capacity - used >= sizeof(struct encoded_byte); i++) {
        const struct encoded_byte *encoded = &encoded_bytes[(uint8_t)name[i]];
        memcpy(out + used, encoded, sizeof(*encoded));
        used += encoded->size;
    }
    for (; i < size; i++) {
        const struct encoded_byte *encoded = &encoded_bytes[(uint8_t)name[i]];
        if (capacity - used < encoded->size) {
            return -ENOSPC;
        }
        memcpy(out + used, encoded->text, encoded->size);
        used += encoded->size;
    }
    RG_ASSERT(used <= capacity);
    return (int)used;
}

/* True when all of eight bytes are ASCII and none is a control character but DEL. */
static bool are_plain(const char *eight)
{
    const uint64_t low_bits = UINT64_C(0x0101010101010101), high_bits = low_bits * 0x80;
    uint64_t word;
    memcpy(&word, eight, sizeof(word));
    uint64_t controls = (word - low_bits * ' ') & ~word;
    return ((controls | word) & high_bits) == 0;
}

static const char *characters_problem(const char *name, size_t size)
{
    size_t at = 0;
    while (at < size) {
        if (size - at >= 8 && are_plain(name + at)) {
            at += 8;
            continue;
        }
        if ((signed char)name[at] >= ' ') { /* at the end of a name, or beside others */
            at++;
            continue;
        }
        uint32_t code;
        int length = rg_utf8_decode(name + at, size - at, &code);
        if (length < 0) {
            return "is not valid UTF-8";
        }
        if (code == '\r' || code == '\n') {
            return "contains a carriage return or line feed";
        }
        if (code == '\0') {
            return "contains a NUL character";
        }
        at += (size_t)length;
    }
    return NULL;
}

static const char *object_name_problem(const char *name, size_t size)
{
    if (size == 0) {
        return "is empty";
    }
    if (size > RG_OBJECT_NAME_SIZE_MAX) {
        return "is longer than 1024 bytes";
    }
    if (name[0] == '.') {
        if (size == 1 || (size == 2 && name[1] == '.')) {
            return "is \".\" or \"..\"";
        }
        if (size >= strlen(ACME_PREFIX) && memcmp(name, ACME_PREFIX, strlen(ACME_PREFIX)) == 0) {
            return "begins with \"" ACME_PREFIX "\", which the service reserves";
        }
    }
    return characters_problem(name, size);
}

static bool is_lower_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static const char *bucket_name_problem(const char *name, size_t size)
{
    if (size < RG_BUCKET_NAME_SIZE_MIN) {
        return "is shorter than 3 characters";
    }
    if (size > RG_BUCKET_NAME_SIZE_MAX) {
        return "is longer than 222 characters";
    }
    if (!is_lower_alphanumeric(name[0]) || !is_lower_alphanumeric(name[size - 1])) {
        return "does not begin and end with a lower-case letter or digit";
    }
    size_t label_size = 0;
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        if (c == '.') {
            if (label_size == 0) {
                return "contains two dots in a row";
            }
            label_size = 0;
            continue;
        }
        if (!is_lower_alphanumeric(c) && c != '-' && c != '_') {
            return "contains something other than lower-case letters, digits, '-', '_' and '.'";
        }
        if (++label_size > RG_BUCKET_LABEL_SIZE_MAX) {
            return "has more than 63 characters without a dot";
        }
    }
    return NULL;
}

int rg_object_name_check(const char *name, size_t size, const char **out_problem)
{
    const char *problem = object_name_problem(name, size);
    if (problem != NULL) {
        *out_problem = problem;
    }
    return problem == NULL ? 0 : -EINVAL;
}

int rg_bucket_name_check(const char *name, size_t size, const char **out_problem)
{
    const char *problem = bucket_name_problem(name, size);
    if (problem != NULL) {
        *out_problem = problem;
    }
    return problem == NULL ? 0 : -EINVAL;
}
