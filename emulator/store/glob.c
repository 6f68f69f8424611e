/* Backtracking over the pattern, with a limit; see glob.h. */
#include "emulator/store/glob.h"

#include <string.h>

/* The rest of the pattern, behind a brace that is being tried. */
struct rest {
    struct rg_h1_slice pattern;
    const struct rest *next;
};

struct matcher {
    uint32_t steps_left;
    const char *name; /* All of it. */
};

static struct rg_h1_slice skip(struct rg_h1_slice text, uint32_t count)
{
    return (struct rg_h1_slice){text.data + count, text.size - count};
}

/* The size of the "[…]" that the pattern starts with; 0 when it is not closed. A "]" that comes
 * first is one of the set. */
static uint32_t set_size(struct rg_h1_slice pattern)
{
    uint32_t at = 1;
    at += at < pattern.size && (pattern.data[at] == '!' || pattern.data[at] == '^');
    at += at < pattern.size && pattern.data[at] == ']';
    while (at < pattern.size && pattern.data[at] != ']') {
        at++;
    }
    return at < pattern.size ? at + 1 : 0;
}

static bool set_holds(struct rg_h1_slice set, char c)
{
    bool negated = set.data[1] == '!' || set.data[1] == '^';
    bool found = false;
    uint8_t wanted = (uint8_t)c;
    for (uint32_t at = 1 + negated; at < set.size - 1; at++) {
        uint8_t first = (uint8_t)set.data[at], last = first;
        if (at + 2 < set.size - 1 && set.data[at + 1] == '-') {
            last = (uint8_t)set.data[at + 2];
            at += 2;
        }
        found = found || (wanted >= first && wanted <= last);
    }
    return found != negated && c != '/';
}

/* The size of what the next step of the pattern takes up, up to the end of a brace. */
static uint32_t item_size(struct rg_h1_slice pattern);

/* The size of the "{…}" that the pattern starts with; 0 when it is not closed. */
static uint32_t brace_size(struct rg_h1_slice pattern)
{
    uint32_t at = 1;
    while (at < pattern.size && pattern.data[at] != '}') {
        uint32_t size = item_size(skip(pattern, at));
        if (size == 0) {
            return 0;
        }
        at += size;
    }
    return at < pattern.size ? at + 1 : 0;
}

static uint32_t item_size(struct rg_h1_slice pattern)
{
    switch (pattern.data[0]) {
    case '[':
        return set_size(pattern);
    case '{':
        return brace_size(pattern);
    case '\\':
        return pattern.size > 1 ? 2 : 0;
    default:
        return 1;
    }
}

bool rg_glob_valid(struct rg_h1_slice pattern)
{
    while (pattern.size > 0) {
        uint32_t size = item_size(pattern);
        if (size == 0) {
            return false;
        }
        pattern = skip(pattern, size);
    }
    return true;
}

struct rg_h1_slice rg_glob_prefix(struct rg_h1_slice pattern)
{
    uint32_t size = 0;
    while (size < pattern.size && strchr("*?[{\\", pattern.data[size]) == NULL) {
        size++;
    }
    return (struct rg_h1_slice){pattern.data, size};
}

static bool match(struct matcher *matcher, struct rg_h1_slice pattern, const struct rest *rest,
                  struct rg_h1_slice name);

static bool match_star(struct matcher *matcher, struct rg_h1_slice pattern, const struct rest *rest,
                       struct rg_h1_slice name)
{
    bool crosses = pattern.size > 1 && pattern.data[1] == '*';
    struct rg_h1_slice behind = skip(pattern, 1 + crosses);
    /* At the start of a component, two stars and a slash also match no folder at all. */
    bool begins = name.data == matcher->name || name.data[-1] == '/';
    if (crosses && begins && behind.size > 0 && behind.data[0] == '/' &&
        match(matcher, skip(behind, 1), rest, name)) {
        return true;
    }
    for (;;) {
        if (match(matcher, behind, rest, name)) {
            return true;
        }
        if (name.size == 0 || (name.data[0] == '/' && !crosses) || matcher->steps_left == 0) {
            return false;
        }
        name = skip(name, 1);
    }
}

/* Each of the alternatives in turn. */
static bool match_brace(struct matcher *matcher, struct rg_h1_slice pattern,
                        const struct rest *rest, struct rg_h1_slice name)
{
    uint32_t size = brace_size(pattern), start = 1;
    struct rest behind = {skip(pattern, size), rest};
    for (uint32_t at = 1; at < size;) {
        bool ends = at + 1 == size || pattern.data[at] == ',';
        if (!ends) {
            at += item_size(skip(pattern, at));
            continue;
        }
        struct rg_h1_slice alternative = {pattern.data + start, at - start};
        if (match(matcher, alternative, &behind, name)) {
            return true;
        }
        start = ++at;
    }
    return false;
}

static bool match(struct matcher *matcher, struct rg_h1_slice pattern, const struct rest *rest,
                  struct rg_h1_slice name)
{
    for (;;) {
        if (matcher->steps_left == 0) {
            return false;
        }
        matcher->steps_left--;
        if (pattern.size == 0) {
            if (rest == NULL) {
                return name.size == 0;
            }
            pattern = rest->pattern;
            rest = rest->next;
            continue;
        }
        char c = pattern.data[0];
        if (c == '*') {
            return match_star(matcher, pattern, rest, name);
        }
        if (c == '{') {
            return match_brace(matcher, pattern, rest, name);
        }
        uint32_t size = item_size(pattern);
        bool takes = name.size > 0 &&
                     (c == '?'   ? name.data[0] != '/'
                      : c == '[' ? set_holds((struct rg_h1_slice){pattern.data, size}, name.data[0])
                      : c == '\\' ? pattern.data[1] == name.data[0]
                                  : c == name.data[0]);
        if (!takes) {
            return false;
        }
        pattern = skip(pattern, size);
        name = skip(name, 1);
    }
}

bool rg_glob_match(struct rg_h1_slice pattern, struct rg_h1_slice name)
{
    struct matcher matcher = {RG_GLOB_STEPS_MAX, name.data};
    return match(&matcher, pattern, NULL, name);
}
