/* What `cp` shares with `cat`. */
#ifndef RG_CLI_CAT_H
#define RG_CLI_CAT_H

#include "cli/session.h"

/* Writes a whole object to standard output. CLI_DONE, or an exit status after printing why not. */
int cat_whole(struct cli_session *session, const struct cli_uri *uri, uint64_t *out_size);

#endif
