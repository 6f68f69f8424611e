/* `ringest rm --unfinished`: what uploads left that ended without cleaning up. */
#ifndef RG_CLI_RM_UNFINISHED_H
#define RG_CLI_RM_UNFINISHED_H

#include "cli/cli.h"

struct unfinished_options {
    double older_than_s; /* nothing younger is touched: somebody may be at it */
    bool dry_run;
};

struct unfinished_counts {
    uint64_t found, removed, failed; /* uploads */
};

/* Where uploads keep temporary objects: they are of all the bucket's uploads by "compose". */
#define UNFINISHED_PARTS_PREFIX ".ringest-parts/"

/* "90", "15m", "12h" or "7d": seconds without a letter. False after saying why not. */
bool unfinished_parse_age(const char *option, const char *text, double *out_seconds);

/* Whether a time (RFC 3339) is longer ago than that, by this machine's clock. One that cannot be
 * read is not. */
bool unfinished_is_old(const char *time, double older_than_s);

/* Aborts multipart uploads of objects whose names begin with that of the place. Nothing else of
 * the session's queue may be out. CLI_DONE, or an exit status after printing why. */
int unfinished_abort(struct cli_session *session, const struct cli_uri *place,
                     const struct unfinished_options *options, struct unfinished_counts *counts);

#endif
