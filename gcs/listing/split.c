/* Names as numbers, and keys between them; see split.h. */
#include "gcs/listing/split.h"

#include "gcs/wire/utf8.h"

#include <string.h>

#define COLUMNS RG_OBJECT_NAME_SIZE_MAX
/* Differences below this are noise in a double. */
#define UNIT_MIN 1e-14
/* A density that predicts more pages than this is not believed. */
#define EVEN_PAGES_MAX 4096
/* A key is as exact as this part of a piece's width, so that it is no longer than necessary. */
#define FINENESS 16
/* Near pieces are a little less than a page, so that most fit one. */
#define NEAR_SHARE 0.9
/* One key out of so many goes to where nothing was seen yet. */
#define UNSEEN_SHARE 4
/* Near pieces are computed from this many positions before the first at which the names of a page
 * differ. */
#define NEAR_COLUMNS 5

void rg_split_learn(struct rg_split_model *model, const char *name)
{
    for (size_t i = 0; i < COLUMNS && name[i] != '\0'; i++) {
        uint8_t byte = (uint8_t)name[i];
        model->seen[i][byte / 64] |= UINT64_C(1) << byte % 64;
    }
}

struct alphabet {
    uint64_t bits[4];
    uint32_t count;
};

static bool alphabet_has(const struct alphabet *alphabet, uint8_t byte)
{
    return alphabet->bits[byte / 64] >> byte % 64 & 1;
}

/* How many members of the alphabet lie below the byte. */
static uint32_t alphabet_rank(const struct alphabet *alphabet, uint8_t byte)
{
    uint32_t rank = 0;
    for (unsigned i = 0; i < byte / 64u; i++) {
        rank += (uint32_t)__builtin_popcountll(alphabet->bits[i]);
    }
    uint64_t below = (UINT64_C(1) << byte % 64) - 1;
    return rank + (uint32_t)__builtin_popcountll(alphabet->bits[byte / 64] & below);
}

static uint8_t alphabet_member(const struct alphabet *alphabet, uint32_t rank)
{
    RG_ASSERT(rank < alphabet->count);
    for (unsigned byte = 0; byte < 256; byte++) {
        if (alphabet_has(alphabet, (uint8_t)byte) && rank-- == 0) {
            return (uint8_t)byte;
        }
    }
    RG_ASSERT(false);
    return 0;
}

static uint32_t alphabet_count(const struct alphabet *alphabet, uint8_t from, uint8_t to)
{
    return alphabet_rank(alphabet, to) + alphabet_has(alphabet, to) - alphabet_rank(alphabet, from);
}

static void alphabet_fill(struct alphabet *alphabet, uint8_t from, uint8_t to)
{
    for (unsigned byte = from; byte <= to; byte++) {
        alphabet->bits[byte / 64] |= UINT64_C(1) << byte % 64;
    }
}

/* A single letter is taken as part of a word that all names contain. */
static void alphabet_fill_letters(struct alphabet *alphabet, uint8_t a, bool has_digits)
{
    uint8_t f = (uint8_t)(a + 5), z = (uint8_t)(a + 25);
    if (has_digits && alphabet_count(alphabet, a, f) > 0 &&
        alphabet_count(alphabet, (uint8_t)(f + 1), z) == 0) {
        alphabet_fill(alphabet, a, f);
    } else if (alphabet_count(alphabet, a, z) > 1) {
        alphabet_fill(alphabet, a, z);
    }
}

/* The bytes that may occur at a position, given those that were seen there. */
static struct alphabet alphabet_at(const struct rg_split_model *model, size_t column)
{
    struct alphabet alphabet = {.count = 0};
    memcpy(alphabet.bits, model->seen[column], sizeof(alphabet.bits));
    bool has_digits = alphabet_count(&alphabet, '0', '9') > 0;
    if (has_digits) {
        alphabet_fill(&alphabet, '0', '9');
    }
    alphabet_fill_letters(&alphabet, 'a', has_digits);
    alphabet_fill_letters(&alphabet, 'A', has_digits);
    /* Characters of several bytes: first the bytes that continue one, then those that begin one. */
    if (alphabet_count(&alphabet, 0x80, 0xbf) > 1) {
        alphabet_fill(&alphabet, 0x80, 0xbf);
    }
    uint32_t first = alphabet_rank(&alphabet, 0xc2);
    uint32_t leads = alphabet_count(&alphabet, 0xc2, 0xf4);
    for (unsigned i = 0; i < 4; i++) {
        alphabet.count += (uint32_t)__builtin_popcountll(alphabet.bits[i]);
    }
    if (leads > 1) {
        uint8_t lowest = alphabet_member(&alphabet, first);
        uint8_t highest = alphabet_member(&alphabet, first + leads - 1);
        alphabet_fill(&alphabet, lowest, highest);
        alphabet.count += highest - lowest + 1u - leads;
    }
    return alphabet;
}

/* The place of a name, from 0 to 1, among all names that are equal to it before `column`. */
static double place_of(const struct rg_split_model *model, const char *name, size_t column)
{
    double place = 0, unit = 1;
    for (; column < COLUMNS && name[column] != '\0' && unit > UNIT_MIN; column++) {
        struct alphabet alphabet = alphabet_at(model, column);
        uint8_t byte = (uint8_t)name[column];
        if (alphabet.count == 0) {
            break;
        }
        unit /= alphabet.count;
        place += unit * alphabet_rank(&alphabet, byte);
        if (!alphabet_has(&alphabet, byte)) {
            break;
        }
    }
    return place;
}

/* Writes the name at a place, to that precision, behind the `column` bytes that `out` begins with.
 * Returns the name's size. */
static size_t name_at(const struct rg_split_model *model, double place, double precision,
                      size_t column, char *out)
{
    double unit = 1;
    while (column < COLUMNS && unit > precision) {
        struct alphabet alphabet = alphabet_at(model, column);
        if (alphabet.count == 0) {
            break;
        }
        place *= alphabet.count;
        uint32_t digit = RG_MIN((uint32_t)place, alphabet.count - 1);
        place -= digit;
        unit /= alphabet.count;
        out[column++] = (char)alphabet_member(&alphabet, digit);
    }
    return column;
}

static size_t common_size(const char *a, const char *b)
{
    size_t size = 0;
    while (a[size] != '\0' && a[size] == b[size]) {
        size++;
    }
    return size;
}

/* Where the rest of a range lies. All its names are equal to `last` before `column`. */
struct span {
    size_t column;
    bool bounded; /* so is the end */
    double first, last, end;
};

static struct span span_from(const struct rg_split_model *model, const struct rg_split_range *range,
                             size_t column)
{
    struct span span = {.column = column, .end = 1};
    span.bounded = range->end[0] != '\0' && common_size(range->last, range->end) >= column;
    span.last = place_of(model, range->last, column);
    if (common_size(range->first, range->last) >= column) {
        span.first = place_of(model, range->first, column);
    }
    if (span.bounded) {
        span.end = place_of(model, range->end, column);
    }
    span.end = RG_MAX(span.end, span.last);
    return span;
}

static struct span span_of(const struct rg_split_model *model, const struct rg_split_range *range)
{
    size_t column = strlen(range->prefix);
    size_t common = range->end[0] != '\0' ? common_size(range->last, range->end) : 0;
    return span_from(model, range, RG_MAX(column, common));
}

/* The width of a full page; 0: unknown. */
static double page_width(const struct rg_split_range *range, const struct span *span)
{
    double width = span->last - span->first;
    if (range->count < 2 || width <= UNIT_MIN) {
        return 0;
    }
    return width * range->page_size / range->count;
}

static double pages_of(const struct rg_split_range *range, const struct span *span)
{
    double width = page_width(range, span);
    return width > 0 ? (span->end - span->last) / width : RG_SPLIT_PAGES_UNKNOWN;
}

double rg_split_pages(const struct rg_split_model *model, const struct rg_split_range *range)
{
    struct span span = span_of(model, range);
    double pages = pages_of(range, &span);
    return pages > EVEN_PAGES_MAX ? RG_SPLIT_PAGES_UNKNOWN : pages;
}

/* Makes the key UTF-8. An incomplete character at its end becomes the lowest one that begins with
 * these bytes; bytes that begin none are cut off. Returns the key's size. */
static size_t utf8_settle(char *key, size_t size)
{
    size_t at = 0;
    uint32_t code;
    int length;
    while (at < size && (length = rg_utf8_decode(key + at, size - at, &code)) > 0) {
        at += (size_t)length;
    }
    if (at == size) {
        return size;
    }
    uint8_t lead = (uint8_t)key[at];
    size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || size - at >= wanted || at + wanted > COLUMNS) {
        return at;
    }
    static const uint8_t seconds[] = {[0xe0 - 0xc0] = 0xa0, [0xf0 - 0xc0] = 0x90};
    uint8_t second = lead == 0xe0 || lead == 0xf0 ? seconds[lead - 0xc0] : 0x80;
    for (size_t i = size - at; i < wanted; i++) {
        key[at + i] = (char)(i == 1 ? second : 0x80);
    }
    return rg_utf8_decode(key + at, wanted, &code) > 0 ? at + wanted : at;
}

/* Moves a key inside a group to where the group begins. Returns its size. */
static size_t delimiter_settle(const struct rg_split_range *range, const char *key, size_t size)
{
    size_t from = strlen(range->prefix), width = strlen(range->delimiter);
    if (width == 0 || size < from) {
        return size;
    }
    const char *found = memmem(key + from, size - from, range->delimiter, width);
    return found != NULL ? (size_t)(found - key) + width : size;
}

/* Keys ascend between the last name and the end. They are UTF-8, and none lies inside a group of
 * names that the delimiter makes one. */
static bool invariants(const struct rg_split_range *range, uint32_t count,
                       char (*keys)[RG_SPLIT_KEY_SIZE])
{
    for (uint32_t i = 0; i < count; i++) {
        size_t size = strlen(keys[i]);
        bool ascends = strcmp(i > 0 ? keys[i - 1] : range->last, keys[i]) < 0;
        bool is_below = range->end[0] == '\0' || strcmp(keys[i], range->end) < 0;
        if (!ascends || !is_below || !rg_utf8_valid(keys[i], size) ||
            delimiter_settle(range, keys[i], size) != size) {
            return false;
        }
    }
    return true;
}

/* Completes a key of `size` bytes that was written to out_keys[count]. Returns the new count: one
 * more if the key lies between the one before and the end. */
static uint32_t key_add(const struct rg_split_range *range, char (*out_keys)[RG_SPLIT_KEY_SIZE],
                        uint32_t count, size_t size)
{
    char *key = out_keys[count];
    RG_ASSERT(size < RG_SPLIT_KEY_SIZE);
    size = utf8_settle(key, size);
    size = delimiter_settle(range, key, size);
    key[size] = '\0';
    const char *below = count > 0 ? out_keys[count - 1] : range->last;
    bool good = strcmp(key, below) > 0 && (range->end[0] == '\0' || strcmp(key, range->end) < 0);
    return good ? count + 1 : count;
}

/* Keys at span->last + i * step. */
static uint32_t choose_steps(const struct rg_split_model *model, const struct rg_split_range *range,
                             const struct span *span, double step, uint32_t count,
                             char (*out_keys)[RG_SPLIT_KEY_SIZE])
{
    uint32_t made = 0;
    for (uint32_t i = 1; i <= count; i++) {
        double place = span->last + i * step;
        if (place >= span->end) {
            break;
        }
        memcpy(out_keys[made], range->last, span->column);
        size_t size = name_at(model, place, step / FINENESS, span->column, out_keys[made]);
        made = key_add(range, out_keys, made, size);
    }
    return made;
}

/* How many higher bytes of the alphabet could replace the byte of `last` at this position to make a
 * key. */
static uint32_t column_options(const struct rg_split_model *model,
                               const struct rg_split_range *range, const struct span *span,
                               size_t column, struct alphabet *out_alphabet)
{
    uint8_t byte = (uint8_t)range->last[column];
    *out_alphabet = alphabet_at(model, column);
    uint8_t highest = span->bounded && column == span->column ? (uint8_t)range->end[column] : 0xff;
    uint32_t options = 0;
    if (byte < highest) {
        options = alphabet_count(out_alphabet, (uint8_t)(byte + 1), highest);
    }
    /* Even if no higher byte was seen, there may be names behind a folder or behind all others. */
    if (options == 0 && (byte == '/' || column == span->column) && byte < 0x7f && byte < highest) {
        alphabet_fill(out_alphabet, (uint8_t)(byte + 1), (uint8_t)(byte + 1));
        out_alphabet->count++;
        options = 1;
    }
    return options;
}

/* Each key is a beginning of `last` with a higher last byte. Where that byte is one of the last
 * positions, the piece is about a page wide; where it is the first, it is as wide as everything.
 * Takes more of the near keys: that as much follows as was seen is likelier than a hundred times as
 * much. */
static uint32_t choose_widening(const struct rg_split_model *model,
                                const struct rg_split_range *range, const struct span *span,
                                uint32_t count, char (*out_keys)[RG_SPLIT_KEY_SIZE])
{
    uint16_t options[COLUMNS + 1];
    struct alphabet alphabet;
    size_t last_size = strlen(range->last);
    size_t deepest = RG_MIN(common_size(range->first, range->last), last_size - 1);
    deepest = RG_MIN(RG_MAX(deepest, span->column), (size_t)COLUMNS - 1);
    uint32_t total = 0;
    for (size_t column = span->column; column <= deepest; column++) {
        options[column] = (uint16_t)column_options(model, range, span, column, &alphabet);
        total += options[column];
    }
    /* Index 0 is not used if there is a choice: it lies directly behind `last`, so that the first
     * piece would be empty. */
    uint32_t made = 0, passed = 0, next = 1;
    size_t column = deepest;
    for (uint32_t i = 1; i <= count; i++) {
        uint64_t share = (uint64_t)total * i * i / ((uint64_t)(count + 1) * (count + 1));
        uint32_t index = total > count ? RG_MAX(next, (uint32_t)share) : i - 1;
        if (index >= total) {
            break;
        }
        next = index + 1;
        while (index - passed >= options[column]) {
            passed += options[column--];
        }
        (void)column_options(model, range, span, column, &alphabet);
        uint32_t rank = alphabet_rank(&alphabet, (uint8_t)range->last[column]) +
                        alphabet_has(&alphabet, (uint8_t)range->last[column]);
        memcpy(out_keys[made], range->last, column);
        out_keys[made][column] = (char)alphabet_member(&alphabet, rank + index - passed);
        made = key_add(range, out_keys, made, column + 1);
    }
    return made;
}

/* Adds keys above everything that was seen, at the first position where names may differ: one for
 * each kind of character, because a page of digits says nothing about letters. */
static uint32_t choose_unseen(const struct rg_split_model *model,
                              const struct rg_split_range *range, const struct span *span,
                              uint32_t made, uint32_t count, char (*out_keys)[RG_SPLIT_KEY_SIZE])
{
    static const uint8_t firsts[] = {'0', 'A', 'a', 0xc3, 0xe0, 0xe5, 0xf0};
    size_t column = span->column;
    if (span->bounded || column >= COLUMNS) {
        return made;
    }
    struct alphabet alphabet = alphabet_at(model, column);
    for (size_t i = 0; i < RG_ARRAY_LEN(firsts) && made < count; i++) {
        if (alphabet_rank(&alphabet, firsts[i]) == alphabet.count &&
            !alphabet_has(&alphabet, firsts[i])) {
            memcpy(out_keys[made], range->last, column);
            out_keys[made][column] = (char)firsts[i];
            made = key_add(range, out_keys, made, column + 1);
        }
    }
    return made;
}

uint32_t rg_split_choose(const struct rg_split_model *model, const struct rg_split_range *range,
                         uint32_t count, char (*out_keys)[RG_SPLIT_KEY_SIZE])
{
    RG_ASSERT(count <= RG_SPLIT_KEYS_MAX && range->last[0] != '\0');
    RG_ASSERT(strncmp(range->last, range->prefix, strlen(range->prefix)) == 0);
    struct span span = span_of(model, range);
    uint32_t seen = count - count / UNSEEN_SHARE;
    uint32_t made;
    if (pages_of(range, &span) > EVEN_PAGES_MAX) {
        made = choose_widening(model, range, &span, seen, out_keys);
    } else {
        double step = (span.end - span.last) / (seen + 1);
        made = choose_steps(model, range, &span, step, seen, out_keys);
    }
    made = choose_unseen(model, range, &span, made, count, out_keys);
    RG_VERIFY(invariants(range, made, out_keys));
    return made;
}

uint32_t rg_split_choose_near(const struct rg_split_model *model,
                              const struct rg_split_range *range, uint32_t count,
                              char (*out_keys)[RG_SPLIT_KEY_SIZE])
{
    RG_ASSERT(count <= RG_SPLIT_KEYS_MAX && range->last[0] != '\0');
    struct span span = span_of(model, range);
    size_t common = common_size(range->first, range->last);
    if (common > span.column + NEAR_COLUMNS) {
        span = span_from(model, range, common - NEAR_COLUMNS);
    }
    double step = page_width(range, &span) * NEAR_SHARE;
    uint32_t made = step > 0 ? choose_steps(model, range, &span, step, count, out_keys) : 0;
    RG_VERIFY(invariants(range, made, out_keys));
    return made;
}
