/* A file that is there as a whole or not at all: it is written beside its place, under a name of
 * its own, and renamed.
 *
 *   open -> written by its descriptor -> publish, or abandon
 *
 * Whoever is killed before leaves "PATH.PID-N.tmp". What it holds may be private, so its mode is
 * what the umask leaves of 0666, as of any file that a program makes, or that of the file whose
 * place it takes. A link is replaced, and not what it leads to; one to a standard stream, such as
 * /dev/stdout, is left. */
#ifndef RG_RUNTIME_NEW_FILE_H
#define RG_RUNTIME_NEW_FILE_H

#include "runtime/base.h"

#include <sys/stat.h>

struct rg_new_file {
    char *path, *temporary; /* owned */
    int fd;
};

/* Gives a new file the owner, group and mode of the file that it replaces: who may read the old one
 * may read the new one, and nobody else. Where the group cannot be kept, the group that the new
 * file has gets what all others have. Nothing is done on a file system that cannot change them. */
void rg_new_file_keep_mode(int fd, const struct stat *replaced);

/* 0 where a file may be put into the place of what is there, or of nothing; -EISDIR, -EEXIST: the
 * path is that of a folder, or of something else that is no file and would be lost. What it would
 * replace has no mode where that is no file. */
int rg_new_file_check(const char *path, struct stat *out_replaced);
/* 0, -ENOMEM, what making a file gives, or what the check does. */
int rg_new_file_open(struct rg_new_file *out_file, const char *path);
/* Makes it last, and appear in the place of what is there. Ends the file in any case: after a
 * failure, what was there before is. */
int rg_new_file_publish(struct rg_new_file *file);
/* Removes it. */
void rg_new_file_abandon(struct rg_new_file *file);

#endif
