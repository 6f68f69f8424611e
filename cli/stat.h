/* Asking for the metadata of many objects, for commands that print some of it. */
#ifndef RG_CLI_STAT_H
#define RG_CLI_STAT_H

#include "cli/session.h"

/* Requests that are out at once; the session's queue must have room for them. */
#define STAT_REQUESTS 16

typedef void (*stat_print)(const struct rg_object_info *info, bool json, bool hex);

/* Asks for several at a time, and prints them in the order of their places. CLI_DONE, or the status
 * of the last that failed, after a line for each. */
int stat_objects(struct cli_session *session, char *const *places, int count, bool json, bool hex,
                 stat_print print);

#endif
