/* Includes and excludes: see filter.h. */
#include "cli/filter.h"

#include "cli/wildcard.h"
#include "runtime/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct filter_rule {
    enum filter_kind kind;
    bool is_whole; /* compared with the whole name */
    bool is_folder;
    struct wildcard *wildcard; /* owned */
};

int filter_add(struct filter *filter, enum filter_kind kind, const char *pattern)
{
    bool is_rooted = *pattern == '/';
    size_t size = strlen(pattern);
    bool is_folder = size > 1 && pattern[size - 1] == '/';
    char *text = strndup(pattern + is_rooted, size - is_rooted - is_folder);
    struct filter_rule *grown =
        reallocarray(filter->rules, filter->count + 1, sizeof(*filter->rules));
    filter->rules = grown != NULL ? grown : filter->rules;
    if (text == NULL || grown == NULL || *text == '\0') {
        bool is_empty = text != NULL && *text == '\0';
        free(text);
        return is_empty ? -EINVAL : -ENOMEM;
    }
    struct filter_rule *rule = &grown[filter->count];
    *rule = (struct filter_rule){.kind = kind,
                                 .is_whole = is_rooted || strchr(text, '/') != NULL,
                                 .is_folder = is_folder,
                                 .wildcard = wildcard_make(text)};
    free(text);
    if (rule->wildcard == NULL) {
        return -ENOMEM;
    }
    filter->count++;
    filter->include_count += kind == FILTER_INCLUDE;
    return 0;
}

void filter_fini(struct filter *filter)
{
    for (size_t i = 0; i < filter->count; i++) {
        wildcard_free(filter->rules[i].wildcard);
    }
    free(filter->rules);
    *filter = (struct filter){0};
}

/* Whether a rule of the kind matches the name itself, which has no "/" at its end. */
static bool matches(const struct filter *filter, enum filter_kind kind, const char *name,
                    bool is_folder)
{
    const char *slash = strrchr(name, '/'), *last = slash != NULL ? slash + 1 : name;
    for (size_t i = 0; i < filter->count; i++) {
        const struct filter_rule *rule = &filter->rules[i];
        if (rule->kind == kind && (is_folder || !rule->is_folder) &&
            wildcard_matches(rule->wildcard, rule->is_whole ? name : last)) {
            return true;
        }
    }
    return false;
}

/* The name, or a folder that it lies in. */
static bool is_excluded(const struct filter *filter, char *name, bool is_folder)
{
    for (char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool above = matches(filter, FILTER_EXCLUDE, name, true);
        *slash = '/';
        if (above) {
            return true;
        }
    }
    return matches(filter, FILTER_EXCLUDE, name, is_folder);
}

static bool decide(const struct filter *filter, const char *name, bool is_folder, bool includes)
{
    if (filter->count == 0) {
        return true;
    }
    size_t size = strlen(name);
    bool ends = size > 0 && name[size - 1] == '/';
    char *copy = strndup(name, size - ends);
    /* Nothing that may be excluded is copied or removed. */
    if (copy == NULL) {
        return false;
    }
    bool meant = !is_excluded(filter, copy, is_folder || ends) &&
                 (!includes || filter->include_count == 0 ||
                  matches(filter, FILTER_INCLUDE, copy, is_folder || ends));
    free(copy);
    return meant;
}

bool filter_takes(const struct filter *filter, const char *name)
{
    return decide(filter, name, false, true);
}

bool filter_enters(const struct filter *filter, const char *folder)
{
    return decide(filter, folder, true, false);
}
