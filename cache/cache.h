/* A cache of objects' bytes in a folder: on a local disk, which the processes of a host share, or
 * on NFS, which hosts share.
 *
 *   closed -> open (a thread writes, looks after the folder, and keeps the index) -> closed
 *
 * An object is cut into blocks of RG_CACHE_BLOCK_SIZE, and each block lies in a *record* of a
 * *segment*, a file of many records. Two things keep it right. The bytes that are handed out are
 * checked: a record carries its whole key, generation included, and CRC32Cs of its header and of
 * its body. And all else is a hint: a lost, torn or outdated index, a segment that another process
 * has removed, a full disk cost a miss and nothing more.
 *
 * Reading a block is a talk with its owner, who does the reading itself, as it likes:
 *
 *   rg_cache_find -> reads the place's file -> rg_cache_record_open, rg_cache_record_check
 *                 -> rg_cache_place_drop
 *
 * Nothing waits for the cache: find looks at some slots in memory (and costs an open(2) where a
 * segment on a local file system is touched for the first time), write costs a copy of the body,
 * and what cannot be taken at once is not cached. docs/internals/cache.md has the design and the
 * formats.
 *
 * Any thread calls what has no other rule. In a forked child only rg_cache_close may be called. */
#ifndef RG_CACHE_CACHE_H
#define RG_CACHE_CACHE_H

#include "cache/extent.h"

/* The smallest cache. */
#define RG_CACHE_SIZE_MIN RG_MIB(16)

struct rg_cache;
struct rg_cache_segment;

struct rg_cache_options {
    const char *folder; /* made where only its last part is missing; ours alone to write to */
    uint64_t size;      /* bytes of files at most; 0: nine tenths of what is free or cached there */
    const char *share;  /* the folder in memory where the index lies; NULL: in this process only */
};

/* 0, or a negative errno and `why`, a line with the object, the cause and the remedy. */
int rg_cache_open(struct rg_cache **out_cache, const struct rg_cache_options *options, char *why,
                  size_t why_size);
/* Writes what waits to be written, and waits for that. All places have been dropped. NULL is fine.
 */
void rg_cache_close(struct rg_cache *cache);

/* Where a record may be. All of it is at file offsets [offset, offset + size) of `fd`. For a direct
 * read, take offset down and its end up to RG_CACHE_ALIGNMENT: the file has that much, or ends. */
struct rg_cache_place {
    int fd;        /* reads through the page cache */
    int fd_direct; /* opened with O_DIRECT; -1: not on this file system */
    uint32_t size;
    uint64_t offset;
    /* The cache's own. */
    struct rg_cache_segment *segment;
    uint64_t hash;
};

/* Looks in the index. True: *out_place keeps its files open until it is dropped. False is a miss;
 * when its bytes have come, hand them to rg_cache_write. */
bool rg_cache_find(struct rg_cache *cache, const struct rg_cache_key *key,
                   struct rg_cache_place *out_place);
/* The same of what has the byte `at` of the object (RG_CACHE_BY_ANY); key->block is set to that of
 * the record. */
bool rg_cache_find_byte(struct rg_cache *cache, struct rg_cache_key *key, uint64_t at,
                        unsigned ways, struct rg_cache_place *out_place);
/* Only looks, and counts nothing. */
bool rg_cache_look(struct rg_cache *cache, const struct rg_cache_key *key, uint64_t at,
                   unsigned ways, struct rg_cache_extent *out_extent);
void rg_cache_place_drop(struct rg_cache *cache, struct rg_cache_place *place);

/* Reads a record's header. `bytes` begins at the record's offset and has at least
 * RG_CACHE_HEADER_SIZE_MAX bytes, or all of a smaller record. 0; -EBADMSG: it is damaged, counted,
 * and not found again; -ENOENT: it is another key's, which is an ordinary miss. *out_record points
 * into `bytes`. */
int rg_cache_record_open(struct rg_cache *cache, const struct rg_cache_place *place,
                         const struct rg_cache_key *key, const uint8_t *bytes, size_t size,
                         struct rg_cache_record *out_record);
/* Checks bytes [first, first + size) of the body: whole pieces, up to the body's end. Nothing may
 * be handed out before. 0, counted as a hit; or -EBADMSG as above. */
int rg_cache_record_check(struct rg_cache *cache, const struct rg_cache_place *place,
                          const struct rg_cache_record *record, uint32_t first, const uint8_t *data,
                          size_t size);
/* The read of a place failed, was short (error: a negative errno; -EIO), or takes too long: a miss;
 * the segment is not asked for a while. */
void rg_cache_place_failed(struct rg_cache *cache, const struct rg_cache_place *place, int error);

/* Takes a copy of a block that missed, of body_size bytes that were checked, to be written behind.
 * record: object_size, and object_crc32c where it is known. False: it is not admitted, or too much
 * waits. It is called for every block that missed, since that is how the cache knows what is read.
 */
bool rg_cache_write(struct rg_cache *cache, const struct rg_cache_key *key,
                    const struct rg_cache_record *record, const uint8_t *body, size_t body_size);
/* The generation that anybody who has this index saw last to be the newest one of the key's object,
 * roughly: for those who ask the service, too. 0: it is not known. */
int64_t rg_cache_newest(struct rg_cache *cache, const struct rg_cache_key *key);
/* Notes that it is the key's, of which something was written just now. */
void rg_cache_note_newest(struct rg_cache *cache, const struct rg_cache_key *key);
/* What is there of a key passed its own check, and is not the object all the same. */
void rg_cache_forget(struct rg_cache *cache, const struct rg_cache_key *key);
/* Waits until what was written before is in its file and in the index. For tests and warm-up. */
void rg_cache_flush(struct rg_cache *cache);

struct rg_cache_stats {
    uint64_t hits, hit_bytes;
    uint64_t misses;
    uint64_t written, written_bytes; /* records */
    uint64_t not_admitted;           /* the cache is full of what is in use */
    uint64_t dropped;                /* the disk is slower than the network */
    uint64_t bad_records;            /* found damaged */
    uint64_t evicted;                /* segments, by this process */
    uint64_t errors;                 /* of files and folders */
    /* Of all processes, at the last look: */
    uint64_t size, size_max;    /* bytes of files */
    uint64_t segments, objects; /* objects: records in the index, roughly */
};
void rg_cache_stats(const struct rg_cache *cache, struct rg_cache_stats *out_stats);

#endif
