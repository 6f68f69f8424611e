/* Files below a bucket's folder: opened, replaced in one step, and moved out of each other's way.
 *
 * An object's file has the path that file_name.h gives it. Where a folder of that name has to be,
 * the file lies "aside", with RG_FILE_NAME_ASIDE behind its name. */
#ifndef RG_EMULATOR_STORE_DISK_FILES_H
#define RG_EMULATOR_STORE_DISK_FILES_H

#include "emulator/store/disk/file_name.h"
#include "emulator/wire/text.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* ".ringest/", a path, two letters that say what it is, and a generation. */
#define RG_DISK_PATH_MAX (RG_FILE_PATH_MAX + 40)

/* All that lies below a bucket's folder. */
struct rg_disk_tree {
    int fd;                        /* The folder. */
    _Atomic uint64_t change_count; /* Our own writes and removals. */
    _Atomic uint64_t temporary_count;
};

/* A file that has no name yet but one of ours. */
struct rg_disk_temporary {
    char path[64];
    int fd;
};

/* Opens the file at exactly this path for reading. -ENOENT also for what is not a regular file. */
int rg_disk_open_regular(const struct rg_disk_tree *tree, const char *path,
                         struct stat *out_status);
/* The same, or else the one that lies aside. */
int rg_disk_open_file(const struct rg_disk_tree *tree, const char *path, struct stat *out_status);
/* Where a file lies while a folder has its name. */
void rg_disk_aside_path(char out[RG_DISK_PATH_MAX], const char *path, size_t path_size);
/* Reads a small file whole, up to 64 KiB, and puts a NUL behind it. Returns owned, NULL when there
 * is none. */
char *rg_disk_read_text(const struct rg_disk_tree *tree, const char *path);
/* Replaces the file at `path` in one step, with the folders above it. */
int rg_disk_write_text(struct rg_disk_tree *tree, const char *path, const struct rg_text *text);

/* Makes the folders above `path`. A file that has the name of one is moved aside. */
int rg_disk_make_parents(const struct rg_disk_tree *tree, const char *path);
/* Removes the folders above `path` that are empty now, but not .ringest: writers that hold no lock
 * make their temporary files there. */
void rg_disk_remove_parents(const struct rg_disk_tree *tree, const char *path);

/* The caller closes out->fd. */
int rg_disk_make_temporary(struct rg_disk_tree *tree, struct rg_disk_temporary *out);
/* Closes and removes it. */
void rg_disk_drop_temporary(struct rg_disk_tree *tree, struct rg_disk_temporary *file);
/* Gives the file its name: the plain one, unless a folder is there. */
int rg_disk_rename_into_place(struct rg_disk_tree *tree, const char *temporary, const char *path);
/* Opens a folder to read what is in it; closedir ends that. `flags`: more of openat's, such as
 * O_NOFOLLOW. NULL: it cannot be read, and errno says why. */
DIR *rg_disk_open_folder(int parent_fd, const char *name, int flags);
/* Removes what a process left behind that died while it wrote. */
void rg_disk_remove_temporaries(const struct rg_disk_tree *tree);
/* Removes a folder with everything in it. `depth` bounds the recursion: paths are no longer. */
void rg_disk_remove_folder(int parent_fd, const char *folder, unsigned depth);

#endif
