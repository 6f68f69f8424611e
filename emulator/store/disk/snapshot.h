/* The names in a bucket, sorted, so that listing page after page reads the folders once. One
 * snapshot has the live objects, another one the versions that are not live.
 *
 * Life: init -> rg_disk_snapshot_seek, which reads the folders again when we have changed something
 * or the snapshot is older than a second -> fini. Any thread may search. */
#ifndef RG_EMULATOR_STORE_DISK_SNAPSHOT_H
#define RG_EMULATOR_STORE_DISK_SNAPSHOT_H

#include "emulator/store/disk/files.h"
#include "emulator/store/model/object.h"

#include <pthread.h>

/* Files that were put there by hand are seen after this long at the latest. */
#define RG_DISK_SNAPSHOT_AGE_MAX_NS RG_NS_PER_S

/* Where one name is, and the generation of a version that is not live. */
struct rg_disk_place {
    size_t offset;
    uint32_t size;
    int64_t generation;
};

struct rg_disk_snapshot {
    pthread_mutex_t lock;
    bool noncurrent;              /* It has the versions that are not live. */
    bool taken;                   /* There is one. */
    struct rg_text names;         /* One after the other. */
    struct rg_disk_place *sorted; /* In `names`; by generation where names are the same. */
    size_t count, capacity;
    uint64_t change_count, taken_ns; /* Which state of the bucket it shows. */
};

void rg_disk_snapshot_init(struct rg_disk_snapshot *snapshot, bool noncurrent);
void rg_disk_snapshot_fini(struct rg_disk_snapshot *snapshot);
/* Copies the first name at or behind `from` into `entry`, with its generation; of the versions of
 * `from` itself, the first behind `after`. The rest of `entry` is left. -ENOENT: no more. */
int rg_disk_snapshot_seek(struct rg_disk_snapshot *snapshot, struct rg_disk_tree *tree,
                          struct rg_h1_slice from, int64_t after, struct rg_store_entry *entry);

#endif
