/* The objects that a benchmark writes, and their removal.
 *
 * They lie in a folder of their own (bench_folder.h), are only ever created, and are removed by
 * generation: an object of somebody else is neither replaced nor removed, and no old version of
 * ours stays.
 *
 *   folder -> open -> add, take for each object -> remove -> free
 *
 * An object whose request failed without an answer may have been made: the removal lists the folder
 * for these names. What somebody else has put there stays. */
#ifndef RG_CLI_BENCH_OBJECTS_H
#define RG_CLI_BENCH_OBJECTS_H

#include "cli/session.h"

struct bench_objects {
    const char *bucket;                       /* borrowed */
    char folder[RG_OBJECT_NAME_SIZE_MAX + 1]; /* ends in "/" */
    /* By index: a generation, 0 where nobody knows, or OBJECT_NONE (-1): not made. */
    int64_t *generations; /* owned */
    size_t count, capacity;
    uint64_t removed, left; /* after the removal */
};

/* Makes the name of a folder below the prefix. CLI_DONE, or an exit status after printing why not.
 */
int bench_objects_folder(const struct cli_uri *prefix,
                         char out_folder[RG_OBJECT_NAME_SIZE_MAX + 1]);
/* In that folder, or in one below it for one of several processes. Borrows the bucket's name. */
#define BENCH_OBJECTS_WHOLE (-1)
void bench_objects_open(struct bench_objects *objects, const struct cli_uri *prefix,
                        const char *folder, int process);
/* Names folders of benchmarks below the prefix whose processes are gone, or are not of this
 * machine. CLI_DONE, or an exit status after printing why nobody knows. */
int bench_objects_tell_left(const struct cli_uri *prefix, struct cli_session *session);
/* Writes the name of the next object to `out_name`. 0, or -ENOMEM. */
int bench_objects_add(struct bench_objects *objects, char out_name[RG_OBJECT_NAME_SIZE_MAX + 1]);
/* The request of the last one was refused: there is no such object. */
void bench_objects_drop(struct bench_objects *objects);
/* What became of the object with this index. */
void bench_objects_take(struct bench_objects *objects, uint64_t index,
                        const struct rg_completion *completion);
/* Removes all of them. CLI_DONE; CLI_FAILED after naming the folder in which some are left. */
int bench_objects_remove(struct bench_objects *objects, struct cli_session *session);
void bench_objects_free(struct bench_objects *objects);

#endif
