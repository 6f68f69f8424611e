/* The one thread of a cache: it writes what waits, looks after the folder, and keeps the index.
 *
 *   started -> writes batches as they are full; looks at the folder now and then -> stopped
 *
 * A look reads the folder, since its files are the truth: it gives numbers to segments that are new
 * (of other hosts, or from before the index), takes them from those that are gone, adopts what dead
 * writers left, and decides whether anything is admitted. What goes wrong is said once for each
 * cause, and counted. */
#ifndef RG_CACHE_KEEPER_H
#define RG_CACHE_KEEPER_H

#include "cache/batch.h"
#include "cache/index.h"
#include "cache/segments.h"
#include "cache/writer.h"

/* How long a record may wait for others to be written with. */
#define RG_CACHE_WAIT_NS (200 * RG_NS_PER_MS)
/* Between two looks at the folder, and two moments at which uses are noted. */
#define RG_CACHE_LOOK_NS (10 * RG_NS_PER_S)
#define RG_CACHE_NOTE_NS RG_NS_PER_S

enum rg_cache_trouble {
    RG_CACHE_TROUBLE_FOLDER,  /* it cannot be read */
    RG_CACHE_TROUBLE_WRITE,   /* a segment cannot be made or written */
    RG_CACHE_TROUBLE_READ,    /* a segment cannot be opened or read */
    RG_CACHE_TROUBLE_DAMAGE,  /* a record is not what was written */
    RG_CACHE_TROUBLE_VERSION, /* a segment of another version, or something else of such a name */
    RG_CACHE_TROUBLE_COUNT,
};

/* Written by any thread. */
struct rg_cache_counters {
    _Atomic uint64_t hits, hit_bytes, misses, written, written_bytes, not_admitted, dropped,
        bad_records, evicted, errors, size, segments, objects;
    _Atomic bool said[RG_CACHE_TROUBLE_COUNT];
};

struct rg_cache_keeper {
    const char *path; /* of the folder, for messages; borrowed */
    int folder;
    uint64_t size_max, segment_size;
    struct rg_cache_counters *counters;
    struct rg_cache_index *index;
    struct rg_cache_segments *segments;
    struct rg_cache_batches *batches; /* its lock is that of the five below */
    pthread_t thread;
    pthread_cond_t flushed;
    uint64_t flushes_wanted, flushes_done;
    bool stopping;
    _Atomic bool admits;
    _Atomic uint64_t looked_up; /* bytes since the clock was told */
    _Atomic uint64_t clock;     /* as it was then */
    /* The thread's. */
    struct rg_cache_writer writer;
    uint32_t writer_number;
    struct rg_cache_files files;
    uint64_t looked_ns, noted_ns, failed_ns;
};

/* All but the thread's own has been set. 0 or a negative errno. */
int rg_cache_keeper_start(struct rg_cache_keeper *keeper);
/* Writes what waits, seals, and joins the thread. */
void rg_cache_keeper_stop(struct rg_cache_keeper *keeper);
/* Waits until what was put before is written, and the folder was looked at. */
void rg_cache_keeper_flush(struct rg_cache_keeper *keeper);

/* Counts an error and says it the first time. Any thread. */
void rg_cache_keeper_trouble(struct rg_cache_keeper *keeper, enum rg_cache_trouble trouble,
                             int error);

#endif
