/* Removing objects that a listing showed, for other commands. */
#ifndef RG_CLI_RM_H
#define RG_CLI_RM_H

#include "cli/lister.h"

/* Removes each of them that still has its generation; with `dry_run` prints them. Uses the
 * session's queue. *out_removed: how many are gone, or would be. CLI_DONE, or CLI_FAILED after a
 * line for each that is not. */
int rm_listed(struct cli_session *session, const char *bucket, const struct listed *objects,
              size_t count, bool dry_run, uint64_t *out_removed);

#endif
