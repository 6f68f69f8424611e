/* Which names of a tree are meant, by --include and --exclude. Patterns are those of wildcard.h.
 *
 * One without "/" is compared with the last part of a name, one with a "/" in it with all of the
 * name below the source; a "/" at its start only says that. What is excluded stays so with
 * everything below it, if it is a folder; "/" at the end of a pattern means folders only. If there
 * are includes, only names that one of them matches are meant. */
#ifndef RG_CLI_FILTER_H
#define RG_CLI_FILTER_H

#include <stdbool.h>
#include <stddef.h>

enum filter_kind { FILTER_INCLUDE, FILTER_EXCLUDE };

/* All zero: everything is meant. One thread at a time. */
struct filter {
    struct filter_rule *rules; /* owned */
    size_t count, include_count;
};

/* Copies the pattern. 0, -EINVAL (nothing is in it), or -ENOMEM. */
int filter_add(struct filter *filter, enum filter_kind kind, const char *pattern);
/* Whether a file or an object is meant; a "/" at the end of its name is of a folder. */
bool filter_takes(const struct filter *filter, const char *name);
/* Whether anything below a folder can be meant. */
bool filter_enters(const struct filter *filter, const char *folder);
void filter_fini(struct filter *filter);

#endif
