/* The table of folders of a bucket with a hierarchical namespace: their names, each with a "/"
 * at its end, in the order of their bytes, and what is known of each. The folders above one that
 * is in the table are in it, too. Objects are not.
 *
 * A change is first written to the backend, as a line at the end of a log. A process that is
 * killed leaves a log with or without its last line. A rename has a line where it begins and one
 * where it ends, because objects are moved in between.
 *
 * Any thread may look things up. Changes come one at a time, under the bucket's lock. */
#ifndef RG_EMULATOR_STORE_FOLDERS_H
#define RG_EMULATOR_STORE_FOLDERS_H

#include "emulator/store/model/backend.h"

/* All are in memory, and listed in the order of a sorted array. */
#define RG_FOLDERS_MAX 1000000

struct rg_folder_info {
    int64_t created_us, updated_us, metageneration;
};

struct rg_folder_entry {
    char name[RG_STORE_FOLDER_SIZE_MAX];
    uint32_t name_size;
    struct rg_folder_info info;
};

struct rg_folders;

/* Reads what the backend has kept. Returns owned. */
int rg_folders_open(struct rg_folders **out_folders, const struct rg_store_backend *backend,
                    void *written);
/* NULL does nothing. */
void rg_folders_close(struct rg_folders *folders);

/* 0 or -ENOENT. */
int rg_folders_get(struct rg_folders *folders, struct rg_h1_slice name,
                   struct rg_folder_info *out_info);
/* The first folder at or behind `from`. 0, or -ENOENT: no more. */
int rg_folders_seek(struct rg_folders *folders, struct rg_h1_slice from,
                    struct rg_folder_entry *out_entry);

/* -EEXIST; -ENOTDIR: the one above it is not there; -ENOSPC: too many. The name is valid. */
int rg_folders_add(struct rg_folders *folders, struct rg_h1_slice name);
/* Adds the folders that are missing above an object of this name. For the name of a folder, that
 * is the folder itself and those above it. */
int rg_folders_add_path(struct rg_folders *folders, struct rg_h1_slice name);
/* -ENOENT; -ENOTEMPTY: another folder is in it. */
int rg_folders_remove(struct rg_folders *folders, struct rg_h1_slice name);

/* Renames a folder and all that are in it. -ENOENT; -EEXIST; -EINVAL: it would lie in itself;
 * -ENOTDIR as above; -ENAMETOOLONG. */
int rg_folders_begin_rename(struct rg_folders *folders, struct rg_h1_slice from,
                            struct rg_h1_slice to);
int rg_folders_end_rename(struct rg_folders *folders);
/* Whether a rename has begun and not ended. Right after opening, that is one that the last
 * process died in. The names are valid until it ends. */
bool rg_folders_unfinished(const struct rg_folders *folders, struct rg_h1_slice *out_from,
                           struct rg_h1_slice *out_to);

#endif
