/* The files of a cache's folder: their names, which of them are ours, and what dead writers left.
 *
 *   NONCE.open -> NONCE.segment -> removed        NONCE: 32 hexadecimal digits
 *
 * The writer of an open segment holds a lock on it (F_OFD_SETLK in fcntl(2)), which the kernel
 * gives up with the process. The lock is only asked about by processes of the same run of a kernel:
 * its number stands in the file. What another host left open is out of use when it has not been
 * written for RG_CACHE_ORPHAN_NS. Nothing is removed but files of that name that begin as a segment
 * does. */
#ifndef RG_CACHE_FILES_H
#define RG_CACHE_FILES_H

#include "cache/format.h"

#define RG_CACHE_NAME_SIZE 41 /* with its NUL */
/* A day: hosts' clocks differ, and a writer may have nothing to write. */
#define RG_CACHE_ORPHAN_NS (24 * 3600 * RG_NS_PER_S)

struct rg_cache_file {
    struct rg_cache_nonce nonce;
    bool is_open; /* not sealed */
    uint64_t size;
    int64_t used_s, written_s; /* seconds since 1970, of the file system's clock */
};

struct rg_cache_files {
    struct rg_cache_file *files;
    size_t count, capacity;
    uint64_t size; /* bytes of all of them */
};

void rg_cache_name_write(const struct rg_cache_nonce *nonce, bool is_open,
                         char out[RG_CACHE_NAME_SIZE]);
/* False: it is no name of a segment. */
bool rg_cache_name_read(const char *name, struct rg_cache_nonce *out_nonce, bool *out_is_open);

void rg_cache_nonce_draw(struct rg_cache_nonce *out_nonce);
/* Names this run of the kernel; all zero where the system does not say. */
void rg_cache_host(struct rg_cache_nonce *out_host);

/* Opens the folder, making its last part where it is missing. The descriptor; or a negative errno
 * and `why`: it is not a folder, not ours, or others may write to it. */
int rg_cache_folder_open(const char *path, bool make, char *why, size_t why_size);

/* Lists what has a segment's name, in the order of nonces. 0; or a negative errno, and the list is
 * as it was. Starts zeroed, and can be used again. */
int rg_cache_files_list(int folder, struct rg_cache_files *files);
/* The same, but of sealed segments that are listed already the system is not asked again: a look
 * at each of a thousand files costs a millisecond, and on NFS a request. */
int rg_cache_files_update(int folder, struct rg_cache_files *files);
/* NULL: it is not listed. The order is that of a list. */
struct rg_cache_file *rg_cache_files_find(const struct rg_cache_files *files,
                                          const struct rg_cache_nonce *nonce);
void rg_cache_files_fini(struct rg_cache_files *files);

/* Opens a segment for reading and checks its head. The descriptor; or a negative errno: -ENOENT:
 * it is gone; as rg_cache_head_read. `flags`: 0 or O_DIRECT, without the check. */
int rg_cache_file_open(int folder, const struct rg_cache_nonce *nonce, int flags);

/* The records of a segment, sealed or not. 0 and *out_contents, to be freed; or a negative errno.
 * What is damaged is left out. `fd` is not direct. */
int rg_cache_file_contents(int fd, const struct rg_cache_nonce *nonce,
                           struct rg_cache_content **out_contents, uint32_t *out_count);

/* Removes a segment if it is one. 0; -ENOENT; -EPERM: it is none of ours; or the system's. */
int rg_cache_file_remove(int folder, const struct rg_cache_file *file);
/* Seals an open segment: writes the table behind `end` if there is room, cuts what follows, and
 * gives it its name. 0 or a negative errno. */
int rg_cache_file_seal(int folder, int fd, const struct rg_cache_nonce *nonce, uint64_t end,
                       const struct rg_cache_content *contents, uint32_t count);
/* Looks whether an open file's writer is gone, and then seals it or removes it. True if so. */
bool rg_cache_file_adopt(int folder, const struct rg_cache_file *file,
                         const struct rg_cache_nonce *host);
/* Takes the writer's lock; without effect where the file system has none. */
bool rg_cache_file_lock(int fd);

#endif
