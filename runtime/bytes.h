/* Bytes that are written once and then only read, by this process and by others that map them: a
 * file, memory with a descriptor (memfd_create), or memory of this process's own.
 *
 *      map (a file) | copy | own (memory)  ->  read, from any thread  ->  close
 *
 * Small ones have no descriptor: there may be many, and a copy of them costs less than a
 * descriptor that is kept. */
#ifndef RG_RUNTIME_BYTES_H
#define RG_RUNTIME_BYTES_H

#include "runtime/base.h"

/* From this size on copies lie in a memory file. */
#define RG_BYTES_SHARED_SIZE_MIN RG_KIB(256)

struct rg_bytes {
    const uint8_t *data;
    size_t size;
    int fd;         /* owned; -1: memory of this process's own */
    bool is_mapped; /* else of malloc */
};

/* A file in memory that has no name, can be sealed, and is closed by exec. A descriptor, or
 * negative where the kernel or a filter of system calls has none to give. */
int rg_memory_file_open(const char *name);
/* From now on no holder of a descriptor can change it. 0 or negative. */
int rg_memory_file_seal(int fd);

/* Writes all of it, however little the kernel takes at a time. 0 or negative. */
int rg_write_all(int fd, const void *data, size_t size);

/* Maps all of a file. Takes the descriptor, but not where it fails: -EBADMSG (no regular file, or
 * an empty one), or what mapping gives. */
int rg_bytes_map(struct rg_bytes *out_bytes, int fd);
/* Copies. Where there is no memory file for much, it is memory of this process's own. 0, -ENOMEM
 * or -ENOSPC. */
int rg_bytes_copy(struct rg_bytes *out_bytes, const void *data, size_t size);
/* Takes memory of malloc. */
void rg_bytes_own(struct rg_bytes *out_bytes, void *data, size_t size);
/* Also one that is zero. */
void rg_bytes_close(struct rg_bytes *bytes);

#endif
