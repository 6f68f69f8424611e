/* What the processes of one user on one host have in common: a small file in memory.
 *
 *   opened: found and checked, or made -> read, written, locked -> closed
 *
 * The file is FOLDER/ringest-UID-vVERSION with mode 0600, made under no name and given its name
 * when it is whole. So nobody sees half of one, and nothing is left behind by whoever is killed
 * before. Its memory is taken then, but for that of gcs/host/told.h. It is read and written by
 * system calls, not mapped: what is wrong with it is an error of a call and never a signal.
 *
 * Locks are the kernel's, for an open file (F_OFD_SETLK in fcntl(2)), and nothing of them lies in
 * the file. The kernel gives them up when a process ends in whatever way, and it takes no process
 * for another: numbers of processes do not matter. Each opening has locks of its own, so that they
 * also keep two threads of one process apart. One opening is one thread's at a time.
 *
 * If somebody removes the file, those who have it open end with it, and the next ones make another.
 * Opening removes the files of earlier versions that nobody has a lock of, or has written to for
 * RG_HOST_FORMER_UNUSED_S. */
#ifndef RG_GCS_HOST_REGION_H
#define RG_GCS_HOST_REGION_H

#include "runtime/base.h"

/* Of the layout: with it, the name of the file changes. */
#define RG_HOST_VERSION 5
#define RG_HOST_FORMER_UNUSED_S (24 * 3600)
#define RG_HOST_FOLDER_DEFAULT "/dev/shm"
/* The first page says what the file is. Then come the parts of gcs/host/note.h, gcs/host/peers.h,
 * gcs/host/account.h and gcs/host/told.h. */
#define RG_HOST_HEADER_SIZE RG_KIB(4)
#define RG_HOST_NOTES_SIZE RG_KIB(128)
#define RG_HOST_PEERS_SIZE RG_KIB(128)
#define RG_HOST_ACCOUNTS_SIZE RG_KIB(256)
#define RG_HOST_TOLD_SIZE RG_MIB(4)
#define RG_HOST_TAKEN_SIZE                                                                         \
    (RG_HOST_HEADER_SIZE + RG_HOST_NOTES_SIZE + RG_HOST_PEERS_SIZE + RG_HOST_ACCOUNTS_SIZE)
#define RG_HOST_REGION_SIZE (RG_HOST_TAKEN_SIZE + RG_HOST_TOLD_SIZE)
#define RG_HOST_PATH_SIZE_MAX 256
/* Of peers, and of accounts: an event loop has the same place in both, for each of its buckets. */
#define RG_HOST_PLACES 512
/* Of loops over datasets. */
#define RG_HOST_TOLD_PLACES 256
/* The locks of places 0; behind those of notes. */
#define RG_HOST_PLACE_LOCKS (UINT64_C(1) << 40)
#define RG_HOST_TOLD_LOCKS (UINT64_C(1) << 41)

struct rg_host_region {
    int fd; /* -1: closed */
};

/* The folder that the option `sharing` chooses: `text` is its value or NULL, and what is returned
 * lives as long. NULL: nothing is shared. */
const char *rg_host_folder(const char *text);
/* Like snprintf. */
int rg_host_path_write(const char *folder, char *out, size_t size);

/* 0, or a negative errno, and `why` is a line with the file, the cause and what can be done. The
 * folder must be one of memory (tmpfs). Any thread. */
int rg_host_region_open(struct rg_host_region *out_region, const char *folder, char *why,
                        size_t why_size);
/* The same, but makes none: -ENOENT if there is none. */
int rg_host_region_find(struct rg_host_region *out_region, const char *folder, char *why,
                        size_t why_size);
/* Says so in the log, once in a process for all that is shared: `what` each process does then. */
void rg_host_say_alone(const char *what, const char *why);
/* Whether others still find it: its file was not removed. */
bool rg_host_region_is_named(const struct rg_host_region *region);
/* Gives up its locks. Harmless when closed. */
void rg_host_region_close(struct rg_host_region *region);

/* All of it, or a negative errno; behind the header. */
int rg_host_region_read(const struct rg_host_region *region, uint64_t offset, void *data,
                        size_t size);
int rg_host_region_write(const struct rg_host_region *region, uint64_t offset, const void *data,
                         size_t size);

/* Zeroes it and gives its memory back, as far as that can be done. */
void rg_host_region_empty(const struct rg_host_region *region, uint64_t offset, size_t size);

/* Takes the lock of that number, below 2^48, without waiting. 0; -EAGAIN: another has it; or why
 * locks cannot be had. */
int rg_host_region_lock(const struct rg_host_region *region, uint64_t number);
void rg_host_region_unlock(const struct rg_host_region *region, uint64_t number);
/* Whether another opening has it. */
bool rg_host_region_is_locked(const struct rg_host_region *region, uint64_t number);

/* The version of other builds of ringest by which processes of this user share now, of which this
 * one sees nothing; 0: there are none. */
uint32_t rg_host_other_version(const char *folder);

#endif
