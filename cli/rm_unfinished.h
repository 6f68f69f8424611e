/* `ringest rm --unfinished`: what uploads left that ended without cleaning up. */
#ifndef RG_CLI_RM_UNFINISHED_H
#define RG_CLI_RM_UNFINISHED_H

#include "cli/lister.h"
#include "cli/session.h"

struct unfinished_options {
    double older_than_s; /* nothing younger is touched: somebody may be at it */
    bool dry_run;
    /* Which of the old ones are meant, of whatever is said by whoever asks; NULL: all, and dry_run
     * prints them. */
    bool (*is_meant)(void *context, const char *object);
    void *context;
};

struct unfinished_counts {
    uint64_t found, removed, failed; /* uploads */
};

/* "90", "15m", "12h" or "7d": seconds without a letter. False after saying why not. */
bool unfinished_parse_age(const char *option, const char *text, double *out_seconds);

/* Whether a time (RFC 3339) that the server has told is longer ago than that, by its own clock;
 * only where it tells none, by this machine's. One that cannot be read is not. */
bool unfinished_is_old(const struct cli_session *session, const char *time, double older_than_s);

/* The temporary objects in a bucket of uploads by "compose" that have written nothing for so long,
 * sorted by name; to be freed in any case. CLI_DONE, or an exit status after printing why not. */
int unfinished_parts(struct cli_session *session, const char *bucket, double older_than_s,
                     struct listed **out_objects, size_t *out_count);

/* Aborts multipart uploads of objects whose names begin with that of the place. Nothing else of
 * the session's queue may be out. CLI_DONE, or an exit status after printing why. */
int unfinished_abort(struct cli_session *session, const struct cli_uri *place,
                     const struct unfinished_options *options, struct unfinished_counts *counts);

#endif
