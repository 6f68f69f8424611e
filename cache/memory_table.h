/* Which segments of memory the processes of one user on a host have in common: a small file in
 * memory, with a line for each segment.
 *
 *   free -> open (one process fills it) -> sealed (all may map it) -> evicted (all let it go) ->
 * free
 *
 * The memory itself has no name and lies in no folder (cache/memory_segment.h). Who has a segment
 * holds the line, and one of them owns it: the others open the memory by the descriptor of the
 * owner (/proc/PID/fd). Both are locks of the kernel (F_OFD_SETLK in fcntl(2)), which it gives up
 * when a process ends in whatever way. So a line that nobody holds is free, whatever it says, and
 * one that nobody owns goes to the next who holds it. What the file says is a hint: what is opened
 * by it is checked.
 *
 * The file is FOLDER/ringest-UID-memory-vVERSION with mode 0600, made whole like that of an index.
 * Without a folder it is memory of this process, and nothing is shared. One thread at a time
 * changes it, with the lock. */
#ifndef RG_CACHE_MEMORY_TABLE_H
#define RG_CACHE_MEMORY_TABLE_H

#include "cache/format.h"

#define RG_MEMORY_LINES 1024
#define RG_MEMORY_PATH_SIZE_MAX 256

enum rg_memory_state {
    RG_MEMORY_FREE = 0,
    RG_MEMORY_OPEN,
    RG_MEMORY_SEALED,
    RG_MEMORY_EVICTED,
};

/* As it lies in the file. */
struct rg_memory_line {
    struct rg_cache_nonce nonce;
    uint64_t size;     /* bytes of memory */
    uint64_t last_use; /* the clock, in bytes looked up */
    uint32_t state;
    int32_t pid, fd; /* the owner's */
    uint32_t zeros[5];
};

struct rg_memory_table {
    int fd;         /* -1: closed */
    bool is_shared; /* others may find it */
    char path[RG_MEMORY_PATH_SIZE_MAX];
};

/* Opens what is there, or makes one. `share` is the folder, or NULL. 0, or a negative errno and
 * `why`, a line with the file, the cause and the remedy. */
int rg_memory_table_open(struct rg_memory_table *out_table, const char *share, char *why,
                         size_t why_size);
/* Adds up what somebody holds, from the outside: segments and their bytes; none where there is no
 * table. 0, or a negative errno and `why`. */
int rg_memory_table_measure(const char *share, uint64_t *out_segments, uint64_t *out_bytes,
                            char *why, size_t why_size);
/* Gives up its locks. */
void rg_memory_table_close(struct rg_memory_table *table);

/* Takes the lock without waiting. 0; -EAGAIN: another process has it. */
int rg_memory_table_lock(struct rg_memory_table *table);
void rg_memory_table_unlock(struct rg_memory_table *table);

/* All lines, or some. 0 or a negative errno. */
int rg_memory_table_read(const struct rg_memory_table *table, uint32_t first, uint32_t count,
                         struct rg_memory_line *out_lines);
int rg_memory_table_write(const struct rg_memory_table *table, uint32_t number,
                          const struct rg_memory_line *line);
/* When it was used. Without the lock. */
void rg_memory_table_note(const struct rg_memory_table *table, uint32_t number, uint64_t last_use);
/* Adds to the clock, and returns what it says. With the lock. */
uint64_t rg_memory_table_tick(const struct rg_memory_table *table, uint64_t bytes);

/* Locks of this opening. 0 or a negative errno. Any number of processes hold a line. */
int rg_memory_table_hold(const struct rg_memory_table *table, uint32_t number);
int rg_memory_table_own(const struct rg_memory_table *table, uint32_t number);
/* Gives up both. */
void rg_memory_table_let_go(const struct rg_memory_table *table, uint32_t number);
/* Whether another opening does. */
bool rg_memory_table_is_held(const struct rg_memory_table *table, uint32_t number);
bool rg_memory_table_is_owned(const struct rg_memory_table *table, uint32_t number);

#endif
