/* The synthetic sets of a bucket, in the order of their prefixes, so that a name is looked for in
 * those sets alone that could have it, however many there are. Of a name that several sets have, it
 * is that of the one with the shortest prefix, and of those the one that was added first.
 * Sets are added before others know the bucket; then any thread may ask. */
#ifndef RG_EMULATOR_STORE_SYNTHETIC_SETS_H
#define RG_EMULATOR_STORE_SYNTHETIC_SETS_H

#include "emulator/store/synthetic.h"

struct rg_synthetic_sets {
    struct rg_synthetic **sets;
    size_t count;
    uint64_t sizes[RG_STORE_NAME_SIZE_MAX / 64 + 1]; /* A bit for each size that a prefix has. */
};

void rg_synthetic_sets_fini(struct rg_synthetic_sets *sets);
/* Takes the set on success. -ENOMEM. */
int rg_synthetic_sets_add(struct rg_synthetic_sets *sets, struct rg_synthetic *set);
/* As those of one set: 0 or -ENOENT, and -ENOMEM of hide. A name to seek from is not the entry's.
 */
int rg_synthetic_sets_open(const struct rg_synthetic_sets *sets, struct rg_h1_slice name,
                           struct rg_store_object *out_object);
int rg_synthetic_sets_seek(const struct rg_synthetic_sets *sets, struct rg_h1_slice from,
                           struct rg_store_entry *out_entry);
/* In all sets that have it. */
int rg_synthetic_sets_hide(const struct rg_synthetic_sets *sets, struct rg_h1_slice name);

#endif
