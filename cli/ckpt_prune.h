/* `ringest ckpt prune`: removes complete checkpoints but the last ones, and what unfinished saves
 * left, by the rules of ringest.retention. */
#ifndef RG_CLI_CKPT_PRUNE_H
#define RG_CLI_CKPT_PRUNE_H

#include "cli/ckpt_find.h"

struct prune_options {
    uint64_t keep_last, keep_every; /* keep_every 0: none */
    double older_than_s;            /* of what is unfinished */
    bool dry_run, all_uploads, json;
};

/* Whether checkpoints may be removed below a place. False after saying why not. */
bool prune_place(const struct cli_uri *uri);

/* Runs the search, and removes. CLI_DONE, or an exit status after printing why not. */
int ckpt_prune(struct ckpt_search *search, const struct prune_options *options);

#endif
