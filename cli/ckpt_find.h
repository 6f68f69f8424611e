/* The checkpoints below a prefix, for `ringest ckpt`: what a listing and the metadata in it tell.
 * The Python module ringest.retention finds the same, by the same names (cli/ckpt_names.h). */
#ifndef RG_CLI_CKPT_FIND_H
#define RG_CLI_CKPT_FIND_H

#include "cli/ckpt_names.h"
#include "cli/lister.h"
#include "cli/session.h"

struct ckpt_strings {
    char **items; /* owned, as are the strings; sorted, each once, when the search is done */
    size_t count, capacity;
};

struct ckpt {
    char *name; /* owned: of the folder, without a slash at its end, or of the file */
    enum ckpt_kind kind;
    bool is_folder, has_name, has_metadata, is_complete;
    bool is_listed;              /* all of it was */
    struct ckpt_name what;       /* if has_name: its step, and those it is counted with */
    size_t first, end;           /* its objects, and others, are among these */
    struct ckpt_strings named;   /* data that its metadata names, as the next two below it */
    struct ckpt_strings missing; /* of what it must have */
    struct ckpt_strings foreign; /* what its kind is not known to have */
    size_t rank_count, stray_count, object_count; /* strays are no objects of it */
    size_t ranks_alone; /* of a distributed one without metadata of all ranks: how many have some */
    uint64_t size, stray_size;
    uint64_t parts;      /* bits of ckpt_part_of */
    const char *updated; /* borrowed: when it was changed last */
};

struct ckpt_search {
    struct cli_session *session;
    struct cli_uri uri;
    struct listed *objects; /* sorted by name */
    size_t object_count;
    size_t *owners; /* of each object: the checkpoint that it belongs to, or SIZE_MAX */
    struct ckpt *ckpts;
    size_t ckpt_count, ckpt_capacity;
    size_t *order; /* of checkpoints, by the folders that they lie in, and their steps */
    struct ckpt_strings dcp_folders;
};

/* CLI_DONE, or an exit status after printing why not. To be freed in any case; a zeroed one with a
 * session and a place is fine. */
int ckpt_search_run(struct ckpt_search *search);
void ckpt_search_free(struct ckpt_search *search);

/* Whether an object is data of a save of ringest.dcp that was not finished, or is replaced. */
bool ckpt_is_stray(const struct ckpt *ckpt, const struct listed *object);
/* An object's name below its checkpoint. */
const char *ckpt_relative(const struct ckpt *ckpt, const struct listed *object);
/* How much of a name is the folder that it lies in, without the slash. */
size_t ckpt_folder_size(const char *name);
/* The last part of a name. */
const char *ckpt_last(const char *name);

int ckpt_strings_add(struct ckpt_strings *strings, const char *format, ...) RG_PRINTF(2, 3);
void ckpt_strings_free(struct ckpt_strings *strings);

/* All bytes of an object, with a 0 behind them, or NULL where there is none. The caller frees it.
 * generation 0: the newest; another that is gone is read as it is now. */
int ckpt_read(struct cli_session *session, const char *bucket, const char *name, int64_t generation,
              char **out_text, size_t *out_size);

#endif
