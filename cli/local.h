/* Local files for `cp`: which object names can be files, folders on the way, checksums, and files
 * that appear under their name only when they are complete. */
#ifndef RG_CLI_LOCAL_H
#define RG_CLI_LOCAL_H

#include "runtime/base.h"

#include <ringest/ringest.h>

#include <sys/stat.h>

#define LOCAL_NAME_SIZE_MAX 255 /* NAME_MAX of Linux's file systems */
/* Bytes read at a time. */
#define LOCAL_BLOCK_SIZE RG_KIB(256)

/* Why an object's name, or what is left of it below a folder, cannot be a path below that folder;
 * NULL: it can. */
const char *local_name_problem(const char *name);

/* True for the names under which parts of files are kept: ".NAME.ringest-part". */
bool local_name_is_part(const char *name);

/* Makes the folders that `path` lies in. 0 or a negative errno. */
int local_make_parents(const char *path);

/* Reads up to `size` bytes at `offset`; fewer only at the end of the file. Returns how many, or a
 * negative errno. */
int64_t local_read(int fd, void *out, uint64_t size, uint64_t offset);

/* The CRC32C of `size` bytes from `offset` on. -ENODATA when the file ends before; a negative errno
 * otherwise. */
int local_crc32c(int fd, uint64_t offset, uint64_t size, uint32_t *out_crc);

/* Has the disk keep a file and its name, also if the machine stops now. 0 or a negative errno. */
int local_persist(const char *path);

/* Whether the path still leads to the same file, and nobody has written to it. */
bool local_is_unchanged(const char *path, const struct stat *then);

/* What a negative errno of a local file means, with what to do about it. */
const char *local_error_text(int error);

/* A file of which nobody sees anything under its name before it is complete. Bytes go to
 * ".NAME.ringest-part" beside it.
 *
 *   open_small -> write_small -> publish (or discard)
 *   open_parts -> put_part in any order, from any thread -> publish, or discard, or leave
 *
 * Behind the bytes of a file in parts lies a table of which parts are there, with their checksums;
 * the next run that opens the same generation of the same object goes on from it, after it has read
 * those parts again. One process at a time has the file, by a lock on it. */
struct local_file {
    char *path, *temporary; /* owned */
    int fd;
    uint64_t size, part_size;
    uint64_t left_size; /* of what an earlier run had left under the temporary name */
    uint32_t part_count;
    struct local_mark *marks; /* owned; NULL: not in parts */
    uint32_t present_at_open; /* parts that an earlier run had left */
};

/* -EBUSY: another process has it. Other errors: what the system calls give. */
int local_open_small(struct local_file *file, const char *path);
int local_write_small(struct local_file *file, const void *data, uint64_t size);
int local_open_parts(struct local_file *file, const char *path, int64_t generation, uint64_t size,
                     uint64_t part_size);
bool local_part_is_present(const struct local_file *file, uint32_t index);
uint64_t local_part_size(const struct local_file *file, uint32_t index);
int local_put_part(struct local_file *file, uint32_t index, const void *data, uint32_t crc32c);
/* The CRC32C of the whole file, of which every part is present. */
uint32_t local_parts_crc32c(const struct local_file *file);
/* Gives the file its name. `keep_existing`: -EEXIST if there is one already. Files in parts are on
 * the disk before. What is left of a failure is removed. */
int local_publish(struct local_file *file, bool keep_existing);
/* Removes what was written. */
void local_discard(struct local_file *file);
/* Closes it so that a later run can go on; removes it where there is nothing to go on from. True:
 * it is kept. */
bool local_leave(struct local_file *file);

#endif
