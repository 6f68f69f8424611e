/* Names of every kind: see names.h. */
#include "tests/support/names.h"

#include "gcs/wire/utf8.h"
#include "tests/support/test.h"

#include <ringest/gcs.h>

struct name {
    char text[RG_OBJECT_NAME_SIZE_MAX + 1];
    size_t size;
};

static void add_text(struct name *name, const char *text)
{
    size_t size = RG_MIN(strlen(text), sizeof(name->text) - 1 - name->size);
    memcpy(name->text + name->size, text, size);
    name->size += size;
    name->text[name->size] = '\0';
}

static void add_number(struct name *name, const char *format, uint64_t number)
{
    char text[64];
    snprintf(text, sizeof(text), format, (unsigned long long)number);
    add_text(name, text);
}

static void add_code(struct name *name, uint32_t code)
{
    char text[RG_UTF8_SIZE_MAX + 1] = "";
    if (code == 0 || !rg_utf8_code_valid(code)) {
        code = 'x';
    }
    int size = rg_utf8_encode(code, text);
    if (name->size + (size_t)size < sizeof(name->text)) {
        add_text(name, text);
    }
}

static void add_of(struct name *name, const char *alphabet, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        add_code(name, (uint8_t)alphabet[rg_test_random_below(strlen(alphabet))]);
    }
}

static void make_unicode(struct name *name)
{
    static const uint32_t tops[] = {0x7f, 0x7ff, 0xffff, 0x10ffff};
    for (uint64_t left = 1 + rg_test_random_below(6); left > 0; left--) {
        add_code(name, 1 + (uint32_t)rg_test_random_below(tops[rg_test_random_below(4)]));
    }
}

static void make_extreme(struct name *name)
{
    static const uint32_t codes[] = {1,     ' ',    '~',    0x7f,   0x80,    0x7ff,
                                     0x800, 0xd7ff, 0xe000, 0xfffd, 0x10000, 0x10ffff};
    for (uint64_t left = 1 + rg_test_random_below(5); left > 0; left--) {
        add_code(name, codes[rg_test_random_below(RG_ARRAY_LEN(codes))]);
    }
}

static void make_ending(struct name *name, uint64_t index)
{
    static const char *const endings[] = {"",   "/",   "#",  "?",  "%", "+", "&", "\n",  "\r\n",
                                          "//", "%2F", "..", "\t", "=", " ", "0", "\x01"};
    add_number(name, "data/%llu", index / 7);
    add_text(name, endings[rg_test_random_below(RG_ARRAY_LEN(endings))]);
    add_text(name, endings[rg_test_random_below(RG_ARRAY_LEN(endings))]);
}

static void make_long(struct name *name, uint64_t index)
{
    static const char *const fills[] = {"a", "/", "\xc3\xbf", "0"};
    const char *fill = fills[index % RG_ARRAY_LEN(fills)];
    while (name->size < RG_OBJECT_NAME_SIZE_MAX - 12) {
        add_text(name, fill);
    }
    add_number(name, "%llu", index);
    while (name->size < RG_OBJECT_NAME_SIZE_MAX) {
        add_text(name, "z");
    }
}

static void make_deep(struct name *name, uint64_t index)
{
    if (rg_test_random_below(50) == 0) {
        add_number(name, "side/%llu", index);
        return;
    }
    for (unsigned i = 0; i < 12; i++) {
        add_number(name, "level-%llu/of/many/", i);
    }
    add_number(name, "%08llu.jpg", index);
}

static void name_make(struct name *name, enum rg_test_name_kind kind, uint64_t index)
{
    switch (kind) {
    case RG_TEST_NAMES_COUNTER:
        add_number(name, "train-%08llu", index);
        break;
    case RG_TEST_NAMES_NUMBER:
        add_number(name, "%llu.tar", index);
        break;
    case RG_TEST_NAMES_HEX:
        add_number(name, "%016llx", rg_test_random());
        break;
    case RG_TEST_NAMES_UUID:
        add_number(name, "img/%08llx-", rg_test_random() >> 32);
        add_number(name, "%04llx-4abc", rg_test_random() >> 48);
        break;
    case RG_TEST_NAMES_BASE64:
        add_of(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", 12);
        break;
    case RG_TEST_NAMES_DEEP:
        make_deep(name, index);
        break;
    case RG_TEST_NAMES_FOLDERS:
        add_number(name, "folder%llu/", index / 20);
        add_number(name, "file--%llu", index % 20);
        break;
    case RG_TEST_NAMES_ONE_EACH:
        add_number(name, "d%06llu/data.bin", index);
        break;
    case RG_TEST_NAMES_ENDINGS:
        make_ending(name, index);
        break;
    case RG_TEST_NAMES_UNICODE:
        make_unicode(name);
        break;
    case RG_TEST_NAMES_CJK:
        for (unsigned i = 0; i < 4; i++) {
            add_code(name, 0x4e00 + (uint32_t)rg_test_random_below(0x5000));
        }
        break;
    case RG_TEST_NAMES_EXTREMES:
        make_extreme(name);
        break;
    case RG_TEST_NAMES_LONG:
        make_long(name, index);
        break;
    case RG_TEST_NAMES_CHAIN:
        for (uint64_t i = 0; i <= index % RG_OBJECT_NAME_SIZE_MAX; i++) {
            add_text(name, i % 3 == 2 ? "/" : "a");
        }
        break;
    case RG_TEST_NAMES_WORDS:
        add_of(name, "etaoinshr.-_/ ETA'~!", 1 + rg_test_random_below(10));
        break;
    default:
        name_make(name, (enum rg_test_name_kind)rg_test_random_below(RG_TEST_NAMES_MIXED), index);
        break;
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct rg_test_names rg_test_names_make(enum rg_test_name_kind kind, size_t count)
{
    struct rg_test_names set = {.names = calloc(count + 1, sizeof(char *))};
    RG_CHECK(set.names != NULL);
    for (size_t i = 0; i < count; i++) {
        struct name name = {.size = 0};
        name_make(&name, kind, i);
        set.names[i] = strdup(name.text);
        RG_CHECK(set.names[i] != NULL && name.size > 0);
    }
    qsort(set.names, count, sizeof(char *), compare_names);
    for (size_t i = 0; i < count; i++) {
        if (set.count > 0 && strcmp(set.names[set.count - 1], set.names[i]) == 0) {
            free(set.names[i]);
        } else {
            set.names[set.count++] = set.names[i];
        }
    }
    return set;
}

void rg_test_names_free(struct rg_test_names *set)
{
    for (size_t i = 0; i < set->count; i++) {
        free(set->names[i]);
    }
    free(set->names);
    *set = (struct rg_test_names){0};
}
