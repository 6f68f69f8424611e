/* The folders of a bucket with a hierarchical namespace: their names, each with a "/" at its end,
 * in the order of their bytes, and what is known of each. Objects are no concern of this table.
 * The folders above one that is in it are in it, too.
 *
 * What is changed is written to the backend first, as lines at the end of a log: a process that is
 * killed leaves a log without its last line, or with it. A rename says that it begins and that it
 * has ended, because objects have to follow in between.
 *
 * Any thread may look things up; changes come one at a time, as the bucket's lock sees to. */
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
/* Adds what is missing of the folders that an object of this name lies in; of a folder's name that
 * is itself and all above it. */
int rg_folders_add_path(struct rg_folders *folders, struct rg_h1_slice name);
/* -ENOENT; -ENOTEMPTY: another folder is in it. */
int rg_folders_remove(struct rg_folders *folders, struct rg_h1_slice name);

/* Renames a folder and all that are in it. -ENOENT; -EEXIST; -EINVAL: it would lie in itself;
 * -ENOTDIR as above; -ENAMETOOLONG. */
int rg_folders_begin_rename(struct rg_folders *folders, struct rg_h1_slice from,
                            struct rg_h1_slice to);
int rg_folders_end_rename(struct rg_folders *folders);
/* True while a rename has begun and not ended, which after opening is one that a process died in.
 * The names are valid until it ends. */
bool rg_folders_unfinished(const struct rg_folders *folders, struct rg_h1_slice *out_from,
                           struct rg_h1_slice *out_to);

#endif
