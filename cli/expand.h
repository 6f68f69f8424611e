/* What the wildcards of an argument stand for in a bucket.
 *
 * Up to the first wildcard a pattern is a prefix of the listing. A part between slashes that has
 * wildcards, but no double star, is listed alone: what lies in folders that do not match is not
 * read, and each folder that matches costs a request of its own. From a double star on everything
 * is listed. Names are compared here, not by the service. */
#ifndef RG_CLI_EXPAND_H
#define RG_CLI_EXPAND_H

#include "cli/session.h"

/* One that matches: an object, borrowed for the call, or a folder, whose name ends in "/", and
 * object is NULL. Anything but CLI_DONE ends the listing. */
typedef int (*expand_take)(void *context, const char *name, const struct rg_object *object);

struct expand {
    struct cli_session *session;
    const char *bucket;
    bool folders;  /* those, too; none behind a double star, where objects are all that matches */
    bool ordered;  /* each listing in the order of names */
    bool versions; /* old ones of objects, too */
    void *context;
    expand_take take;
    uint64_t count; /* taken so far */
};

/* CLI_DONE, or an exit status after printing why not. Nothing that matches is CLI_DONE, too. */
int expand_pattern(struct expand *expand, const char *pattern);

/* Whether the argument of a command has wildcards; with `literal` none has. */
bool expand_is_pattern(const char *argument, bool literal);

/* Places of objects, as gs://BUCKET/NAME. */
struct expanded {
    char **places; /* owned */
    int count;
};
/* The arguments, with the objects that match in the place of each pattern. An error if none does.
 * CLI_DONE, or an exit status after printing why not; what was found is to be freed in any case. */
int expand_places(struct cli_session *session, char *const *arguments, int count, bool literal,
                  struct expanded *out_expanded);
void expanded_free(struct expanded *expanded);
/* "Nothing matches" as an error. CLI_FAILED. */
int expand_none(const struct cli_uri *uri);

#endif
