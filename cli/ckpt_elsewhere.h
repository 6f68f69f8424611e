/* Checkpoints whose parts lie in several folders, for `ringest ckpt prune`. */
#ifndef RG_CLI_CKPT_ELSEWHERE_H
#define RG_CLI_CKPT_ELSEWHERE_H

#include "cli/ckpt_find.h"

/* Folders such as mp_rank_00 and mp_rank_01, whose names differ in numbers, may each have one
 * process's part of every checkpoint. A run that was killed has saved the last ones of some, and
 * nothing can be done with these alone: so what is one of the last of one folder is kept in the
 * others, and the last that all of them have.
 *
 * is_last: of each checkpoint. Sets the reasons of those that are to be kept for others' sake,
 * which the caller frees, in an array that is all NULL. CLI_DONE, or an exit status after printing
 * why not. */
int ckpt_elsewhere(const struct ckpt_search *search, const bool *is_last, uint64_t keep_last,
                   char **reasons);

#endif
