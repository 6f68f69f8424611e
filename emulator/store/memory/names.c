/* See names.h. */
#include "emulator/store/memory/names.h"

#include "emulator/store/model/clock.h"
#include "emulator/wire/text.h"

#include <errno.h>
#include <stdlib.h>

/* Lists up to this length are checked as a whole, longer ones around what has changed. */
#define CHECK_COUNT_MAX 64

/* A node has a version, lies before its successors at each level, and has no two versions of one
 * generation. */
static bool node_valid(const struct rg_node *node)
{
    for (uint32_t level = 0; level < node->level_count; level++) {
        const struct rg_node *next = node->next[level];
        if (next != NULL && (level >= next->level_count ||
                             rg_text_compare(rg_node_name(node), rg_node_name(next)) >= 0)) {
            return false;
        }
    }
    for (const struct rg_version *old = node->noncurrent; old != NULL; old = old->older) {
        if ((node->live != NULL && old->info.generation == node->live->info.generation) ||
            (old->older != NULL && old->info.generation == old->older->info.generation)) {
            return false;
        }
    }
    return node->live != NULL || node->noncurrent != NULL;
}

static bool invariants(const struct rg_names *names, const struct rg_node *changed)
{
    uint64_t want = atomic_load(&names->count), count = 0;
    if (want > CHECK_COUNT_MAX) {
        return changed == NULL || node_valid(changed);
    }
    for (const struct rg_node *node = names->first[0]; node != NULL; node = node->next[0]) {
        if (!node_valid(node)) {
            return false;
        }
        count++;
    }
    return count == want;
}

struct rg_node *rg_names_find(struct rg_names *names, struct rg_h1_slice name,
                              struct rg_node ***links)
{
    struct rg_node **links_here = names->first;
    struct rg_node *found = NULL;
    for (int level = RG_NAMES_LEVEL_MAX - 1; level >= 0; level--) {
        struct rg_node *next = links_here[level];
        /* `found` was compared a level above. */
        while (next != NULL && next != found && rg_text_compare(rg_node_name(next), name) < 0) {
            links_here = next->next;
            next = links_here[level];
        }
        found = next;
        if (links != NULL) {
            links[level] = &links_here[level];
        }
    }
    return found;
}

static uint32_t random_level_count(struct rg_names *names)
{
    uint64_t x = names->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    names->random = x;
    uint32_t count = 1;
    while (count < RG_NAMES_LEVEL_MAX &&
           (x & 3) == 0) { /* Each level has a quarter of the one below. */
        count++;
        x >>= 2;
    }
    return count;
}

struct rg_node *rg_names_get(struct rg_names *names, struct rg_h1_slice name,
                             struct rg_node ***links)
{
    struct rg_node *node = rg_names_find(names, name, links);
    return node != NULL && rg_text_compare(rg_node_name(node), name) == 0 ? node : NULL;
}

void rg_node_retire(struct rg_node *node, int64_t now_us, const struct rg_store_fate *fate)
{
    struct rg_version *version = node->live;
    if (fate->soft_delete_us != 0) {
        rg_version_soften(version, now_us, fate);
    } else {
        version->info.deleted_us = now_us;
    }
    version->older = node->noncurrent;
    node->noncurrent = version;
    node->live = NULL;
}

void rg_node_purge(struct rg_node *node)
{
    int64_t now_us = rg_store_now_us();
    struct rg_version **link = &node->noncurrent;
    while (*link != NULL) {
        struct rg_version *version = *link;
        if (version->info.hard_delete_us != 0 && version->info.hard_delete_us <= now_us) {
            *link = version->older;
            rg_version_unref(version);
        } else {
            link = &version->older;
        }
    }
}

/* Links a new node in. */
static int add(struct rg_names *names, struct rg_h1_slice name, struct rg_version *version,
               struct rg_node ***links)
{
    uint32_t level_count = random_level_count(names);
    size_t links_size = level_count * sizeof(struct rg_node *);
    struct rg_node *node = malloc(sizeof(*node) + links_size + name.size);
    if (node == NULL) {
        return -ENOMEM;
    }
    node->live = version;
    node->noncurrent = NULL;
    node->level_count = level_count;
    node->name_size = name.size;
    node->name = (char *)node + sizeof(*node) + links_size;
    memcpy(node->name, name.data, name.size);
    for (uint32_t level = 0; level < level_count; level++) {
        node->next[level] = *links[level];
        *links[level] = node;
    }
    atomic_fetch_add(&names->count, 1);
    RG_VERIFY(invariants(names, node));
    return 0;
}

int rg_names_put(struct rg_names *names, struct rg_h1_slice name, struct rg_version *version,
                 const struct rg_store_fate *fate)
{
    struct rg_node **links[RG_NAMES_LEVEL_MAX];
    struct rg_node *node = rg_names_get(names, name, links);
    if (node != NULL) {
        rg_node_purge(node);
        if (node->live != NULL && fate->kept) {
            rg_node_retire(node, version->info.updated_us, fate);
        } else if (node->live != NULL) {
            rg_version_unref(node->live);
        }
        node->live = version;
        return 0;
    }
    return add(names, name, version, links);
}

static void remove_node(struct rg_names *names, struct rg_node *node, struct rg_node ***links)
{
    for (uint32_t level = 0; level < node->level_count; level++) {
        RG_ASSERT(*links[level] == node);
        *links[level] = node->next[level];
    }
    uint64_t before = atomic_fetch_sub(&names->count, 1);
    RG_ASSERT(before > 0);
    free(node);
}

void rg_names_drop_empty(struct rg_names *names, struct rg_node *node)
{
    struct rg_node **links[RG_NAMES_LEVEL_MAX];
    if (node->live == NULL && node->noncurrent == NULL) {
        (void)rg_names_get(names, rg_node_name(node), links);
        remove_node(names, node, links);
        node = NULL;
    }
    RG_VERIFY(invariants(names, node));
}

static void node_destroy(struct rg_node *node)
{
    while (node->noncurrent != NULL) {
        struct rg_version *older = node->noncurrent->older;
        rg_version_unref(node->noncurrent);
        node->noncurrent = older;
    }
    if (node->live != NULL) {
        rg_version_unref(node->live);
    }
    free(node);
}

void rg_names_fini(struct rg_names *names)
{
    for (struct rg_node *node = names->first[0]; node != NULL;) {
        struct rg_node *next = node->next[0];
        node_destroy(node);
        node = next;
    }
}

static bool is_of_kind(const struct rg_version *version, bool soft)
{
    int64_t until = version->info.hard_delete_us;
    return soft ? until > rg_store_now_us() : until == 0;
}

struct rg_version **rg_node_version(struct rg_node *node, int64_t generation, bool soft)
{
    if (!soft && node->live != NULL &&
        (generation == 0 || node->live->info.generation == generation)) {
        return &node->live;
    }
    struct rg_version **link = &node->noncurrent;
    while (*link != NULL && (generation == 0 || (*link)->info.generation != generation ||
                             !is_of_kind(*link, soft))) {
        link = &(*link)->older;
    }
    return link;
}

const struct rg_version *rg_node_next_version(const struct rg_node *node, int64_t after, bool soft)
{
    const struct rg_version *found = NULL;
    if (!soft && node->live != NULL && node->live->info.generation > after) {
        found = node->live;
    }
    for (const struct rg_version *old = node->noncurrent; old != NULL; old = old->older) {
        if (old->info.generation > after && is_of_kind(old, soft) &&
            (found == NULL || old->info.generation < found->info.generation)) {
            found = old;
        }
    }
    return found;
}
