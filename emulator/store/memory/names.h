/* The names in a bucket, as a skip list in the order of their bytes, and behind each name its
 * versions. Whoever uses it holds the bucket's lock: for reading, or alone for what changes it. */
#ifndef RG_EMULATOR_STORE_MEMORY_NAMES_H
#define RG_EMULATOR_STORE_MEMORY_NAMES_H

#include "emulator/store/memory/version.h"

/* Enough for 4^12 names, beyond which a search merely grows longer. */
#define RG_NAMES_LEVEL_MAX 12

struct rg_node {
    struct rg_version *live, *noncurrent; /* At least one. */
    uint32_t name_size, level_count;
    char *name; /* Behind the links. */
    struct rg_node *next[];
};

/* Zeroed but for `random`, which is not 0, it is empty. */
struct rg_names {
    struct rg_node *first[RG_NAMES_LEVEL_MAX];
    _Atomic uint64_t count; /* Read without a lock by those who only ask whether there is any. */
    uint64_t random;
};

static inline struct rg_h1_slice rg_node_name(const struct rg_node *node)
{
    return (struct rg_h1_slice){node->name, node->name_size};
}

/* The first node at or behind `name`, NULL when there is none. Fills in `links` unless it is NULL.
 */
struct rg_node *rg_names_find(struct rg_names *names, struct rg_h1_slice name,
                              struct rg_node ***links);
/* The same for the node of exactly this name. */
struct rg_node *rg_names_get(struct rg_names *names, struct rg_h1_slice name,
                             struct rg_node ***links);
/* Gives a name, which may be new, another live version. Takes the reference on success. -ENOMEM. */
int rg_names_put(struct rg_names *names, struct rg_h1_slice name, struct rg_version *version,
                 const struct rg_store_fate *fate);
/* Removes the node if it has no version any more. */
void rg_names_drop_empty(struct rg_names *names, struct rg_node *node);
/* Frees all that is in it. */
void rg_names_fini(struct rg_names *names);

/* The link to the version of that generation, or to the NULL where it would be. */
struct rg_version **rg_node_version(struct rg_node *node, int64_t generation, bool soft);
/* The oldest version behind a generation; NULL: there is none. */
const struct rg_version *rg_node_next_version(const struct rg_node *node, int64_t after, bool soft);
/* The live version stays behind as a noncurrent or as a soft-deleted one. */
void rg_node_retire(struct rg_node *node, int64_t now_us, const struct rg_store_fate *fate);
/* Lets go of soft-deleted versions whose time is over. */
void rg_node_purge(struct rg_node *node);

#endif
