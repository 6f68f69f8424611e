/* The segment that a cache writes: one at a time, by its one thread.
 *
 *   none -> open (begin; append) -> sealed, or abandoned -> none
 */
#ifndef RG_CACHE_WRITER_H
#define RG_CACHE_WRITER_H

#include "cache/files.h"

struct rg_cache_writer {
    int folder;
    struct rg_cache_nonce host;
    int fd; /* -1: none */
    struct rg_cache_nonce nonce;
    uint64_t offset; /* where the next batch goes */
    struct rg_cache_content *contents;
    uint32_t count, capacity;
};

void rg_cache_writer_init(struct rg_cache_writer *writer, int folder);
/* Abandons. */
void rg_cache_writer_fini(struct rg_cache_writer *writer);

static inline bool rg_cache_writer_is_open(const struct rg_cache_writer *writer)
{
    return writer->fd >= 0;
}

/* Makes a segment with disk space for `size` bytes. 0 or a negative errno, and nothing is left. */
int rg_cache_writer_begin(struct rg_cache_writer *writer, uint64_t size);
/* Writes a batch, aligned as RG_CACHE_ALIGNMENT says. 0, and *out_contents are its records with
 * their places in the file, until the next call; or a negative errno. */
int rg_cache_writer_append(struct rg_cache_writer *writer, const uint8_t *data, size_t size,
                           const struct rg_cache_content *contents, uint32_t count,
                           const struct rg_cache_content **out_contents);
/* 0 or a negative errno; then it was abandoned. */
int rg_cache_writer_seal(struct rg_cache_writer *writer);
/* Removes it. */
void rg_cache_writer_abandon(struct rg_cache_writer *writer);

#endif
