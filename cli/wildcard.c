/* Patterns of names: see wildcard.h.
 *
 * A pattern is a row of tokens. Matching keeps the set of tokens that may take the next character,
 * and never goes back: no pattern takes long, whatever the name.
 *
 * Invariant: the set has a token only if all tokens before it match what was read of the name. */
#include "cli/wildcard.h"

#include "runtime/base.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    KIND_CHARACTER,
    KIND_ANY,     /* ? */
    KIND_SET,     /* [...] */
    KIND_WITHIN,  /* * */
    KIND_ACROSS,  /* ** */
    KIND_FOLDERS, /* the double star with the "/" behind it: left behind a "/", or at once */
};

struct token {
    enum kind kind;
    uint32_t character;
    const char *set; /* behind the "[", in the pattern; up to set_end, where the "]" is */
    const char *set_end;
};

struct wildcard {
    char *pattern; /* owned */
    bool *sets;    /* owned; two, each of a token's count and one for the end */
    size_t count;
    struct token tokens[];
};

/* The character that the text begins with; its bytes one by one where they are not UTF-8. */
static uint32_t character_take(const char **text)
{
    const uint8_t *c = (const uint8_t *)*text;
    size_t size = c[0] < 0xc2 ? 1 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 1;
    uint32_t character = size == 1 ? c[0] : c[0] & (0x7f >> size);
    for (size_t i = 1; i < size; i++) {
        if ((c[i] & 0xc0) != 0x80) {
            (*text)++;
            return c[0];
        }
        character = character << 6 | (c[i] & 0x3f);
    }
    *text += size;
    return character;
}

/* Where the set ends that begins at the "[": at its "]"; NULL: it does not. A "]" that comes first
 * is one of the set, and no set goes beyond a "/". */
static const char *set_end(const char *open)
{
    const char *c = open + 1;
    c += *c == '!' || *c == '^';
    c += *c == ']';
    c += strcspn(c, "]/");
    return *c == ']' ? c : NULL;
}

static bool set_holds(const struct token *token, uint32_t character)
{
    const char *c = token->set;
    bool is_negated = *c == '!' || *c == '^', found = false;
    c += is_negated;
    while (c < token->set_end) {
        uint32_t first = character_take(&c), last = first;
        if (*c == '-' && c + 1 < token->set_end) {
            c++;
            last = character_take(&c);
        }
        found = found || (character >= first && character <= last);
    }
    return found != is_negated;
}

size_t wildcard_literal_size(const char *text)
{
    size_t size = 0;
    while (text[size] != '\0' && text[size] != '*' && text[size] != '?' &&
           (text[size] != '[' || set_end(text + size) == NULL)) {
        size++;
    }
    return size;
}

bool wildcard_is(const char *text)
{
    return text[wildcard_literal_size(text)] != '\0';
}

/* The token at `*at`, which moves behind it. */
static struct token token_take(const char *pattern, const char **at)
{
    const char *c = *at, *end = *c == '[' ? set_end(c) : NULL;
    if (*c == '*') {
        size_t stars = strspn(c, "*");
        bool is_folders = stars > 1 && c[stars] == '/' && (c == pattern || c[-1] == '/');
        *at = c + stars + is_folders;
        return (struct token){.kind = is_folders  ? KIND_FOLDERS
                                      : stars > 1 ? KIND_ACROSS
                                                  : KIND_WITHIN};
    }
    if (*c == '?' || end != NULL) {
        *at = end != NULL ? end + 1 : c + 1;
        return (struct token){
            .kind = end != NULL ? KIND_SET : KIND_ANY, .set = c + 1, .set_end = end};
    }
    return (struct token){.kind = KIND_CHARACTER, .character = character_take(at)};
}

void wildcard_free(struct wildcard *wildcard)
{
    if (wildcard != NULL) {
        free(wildcard->pattern);
        free(wildcard->sets);
        free(wildcard);
    }
}

struct wildcard *wildcard_make(const char *pattern)
{
    struct wildcard *wildcard =
        calloc(1, sizeof(*wildcard) + strlen(pattern) * sizeof(wildcard->tokens[0]));
    if (wildcard == NULL) {
        return NULL;
    }
    wildcard->pattern = strdup(pattern);
    wildcard->sets = calloc(2, strlen(pattern) + 1);
    if (wildcard->pattern == NULL || wildcard->sets == NULL) {
        wildcard_free(wildcard);
        return NULL;
    }
    for (const char *at = wildcard->pattern; *at != '\0';) {
        struct token token = token_take(wildcard->pattern, &at);
        wildcard->tokens[wildcard->count++] = token;
    }
    RG_ASSERT(wildcard->count <= strlen(pattern));
    return wildcard;
}

/* The token, and those behind it that are reached without a character. Behind the last one is the
 * end. */
static void token_enter(const struct wildcard *wildcard, bool *set, size_t index)
{
    set[index] = true;
    while (index < wildcard->count && wildcard->tokens[index].kind >= KIND_WITHIN) {
        set[++index] = true;
    }
}

/* What may take the character behind this one, which the token takes or does not. */
static void token_step(const struct wildcard *wildcard, bool *next, size_t index,
                       uint32_t character)
{
    const struct token *token = &wildcard->tokens[index];
    bool taken = false;
    switch (token->kind) {
    case KIND_CHARACTER:
        taken = character == token->character;
        break;
    case KIND_ANY:
        taken = character != '/';
        break;
    case KIND_SET:
        taken = character != '/' && set_holds(token, character);
        break;
    case KIND_FOLDERS:
        /* Within a folder's name nothing comes behind it. */
        next[index] = true;
        taken = character == '/';
        break;
    case KIND_ACROSS:
    case KIND_WITHIN:
        if (token->kind == KIND_ACROSS || character != '/') {
            token_enter(wildcard, next, index);
        }
        break;
    }
    if (taken) {
        token_enter(wildcard, next, index + 1);
    }
}

bool wildcard_matches(struct wildcard *wildcard, const char *name)
{
    size_t count = wildcard->count, size = (count + 1) * sizeof(bool);
    bool *now = wildcard->sets, *next = now + count + 1, is_alive = true;
    memset(now, 0, size);
    token_enter(wildcard, now, 0);
    while (*name != '\0' && is_alive) {
        uint32_t character = character_take(&name);
        memset(next, 0, size);
        for (size_t i = 0; i < count; i++) {
            if (now[i]) {
                token_step(wildcard, next, i, character);
            }
        }
        is_alive = memchr(next, true, size) != NULL;
        bool *last = now;
        now = next;
        next = last;
    }
    return is_alive && now[count];
}
