/* The plan of a copy while it is made: what cp_plan.c and cp_walk.c share. */
#ifndef RG_CLI_CP_PLAN_H
#define RG_CLI_CP_PLAN_H

#include "cli/cp.h"
#include "cli/lookup.h"

#include <sys/stat.h>

struct plan {
    struct cp_run *run;
    const struct cp_options *options;
    bool to_bucket, into; /* the destination is a place to put things into */
    struct cli_uri uri;   /* to_bucket */
    const char *folder;   /* otherwise */
    struct lookup lookup;
    uint64_t links; /* symbolic links left out */
    /* Several sources that have one name, or whose contents are meant. */
    bool may_meet;
    const char *tree; /* borrowed; what the names of a tree begin with that is listed; or NULL */
    bool stopped;     /* nothing more is to be planned */
    bool merge_is_told;
};

/* All of it stops. Returns CLI_FAILED. */
int cp_plan_no_memory(struct plan *plan);
/* The last part of a path or a name: "c" of "a/b/c" and of "a/b/c/". Empty for ".", "..", and what
 * ends in them: the contents are meant. Owned. */
char *cp_base_name(const char *place);
/* a, a/b, or b where the other is empty. Owned. */
char *cp_join(const char *a, const char *b);
/* Where something goes that is called `relative` below the source, whose own name is `base`.
 * Owned. */
char *cp_target(const struct plan *plan, const char *base, const char *relative);
/* Tells, once, of a destination that exists and gets the contents of the source. */
void cp_merge_tell(struct plan *plan, const char *base);
/* A file to be an object. Takes `name`. */
void cp_upload_plan(struct plan *plan, const char *path, char *name, const struct stat *stat);

/* cp_walk.c: a source of this machine, a file or a tree. */
void cp_plan_local(struct plan *plan, const char *source);

#endif
