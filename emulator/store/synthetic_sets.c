/* See synthetic_sets.h. Names of a set lie between its prefix and the next prefix that does not
 * begin with it. So what is at or behind a name is in a set whose prefix the name begins with, or
 * in one whose prefix lies behind the name; of the latter those count whose prefix lies before the
 * best name that was found. */
#include "emulator/store/synthetic_sets.h"

#include "emulator/wire/text.h"

#include <errno.h>
#include <stdlib.h>

void rg_synthetic_sets_fini(struct rg_synthetic_sets *sets)
{
    for (size_t i = 0; i < sets->count; i++) {
        rg_synthetic_destroy(sets->sets[i]);
    }
    free(sets->sets);
    *sets = (struct rg_synthetic_sets){0};
}

/* The index of the first set whose prefix is not before `text`, or if `behind`, is behind it. */
static size_t find_prefix(const struct rg_synthetic_sets *sets, struct rg_h1_slice text,
                          bool behind)
{
    size_t low = 0, high = sets->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = rg_text_compare(rg_synthetic_prefix(sets->sets[middle]), text);
        if (order < 0 || (behind && order == 0)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int rg_synthetic_sets_add(struct rg_synthetic_sets *sets, struct rg_synthetic *set)
{
    struct rg_synthetic **grown =
        reallocarray(sets->sets, sets->count + 1, sizeof(struct rg_synthetic *));
    if (grown == NULL) {
        return -ENOMEM;
    }
    struct rg_h1_slice prefix = rg_synthetic_prefix(set);
    sets->sets = grown;
    size_t at = find_prefix(sets, prefix, true);
    memmove(grown + at + 1, grown + at, (sets->count - at) * sizeof(*grown));
    grown[at] = set;
    sets->count++;
    sets->sizes[prefix.size / 64] |= UINT64_C(1) << prefix.size % 64;
    return 0;
}

/* Sets whose prefix a name begins with, the shortest first. Begins with all zero. */
struct outer {
    uint32_t size; /* of prefixes that are looked for */
    size_t index;  /* of the next set, if there was one of that size; else 0 */
};

/* The next size of a prefix from `size` on; UINT32_MAX when there is none. */
static uint32_t next_size(const struct rg_synthetic_sets *sets, uint32_t size)
{
    uint32_t word = size / 64;
    uint64_t bits = 0;
    if (word < RG_ARRAY_LEN(sets->sizes)) {
        bits = sets->sizes[word] & UINT64_MAX << size % 64;
    }
    while (bits == 0 && ++word < RG_ARRAY_LEN(sets->sizes)) {
        bits = sets->sizes[word];
    }
    return bits == 0 ? UINT32_MAX : word * 64 + (uint32_t)__builtin_ctzll(bits);
}

static struct rg_synthetic *next_outer(const struct rg_synthetic_sets *sets,
                                       struct rg_h1_slice name, struct outer *outer)
{
    for (;;) {
        uint32_t size = next_size(sets, outer->size);
        if (size > name.size) {
            return NULL;
        }
        struct rg_h1_slice prefix = {name.data, size};
        bool has_index = size == outer->size && outer->index > 0;
        size_t index = has_index ? outer->index : find_prefix(sets, prefix, false);
        if (index < sets->count &&
            rg_text_compare(rg_synthetic_prefix(sets->sets[index]), prefix) == 0) {
            *outer = (struct outer){size, index + 1};
            return sets->sets[index];
        }
        *outer = (struct outer){size + 1, 0};
    }
}

int rg_synthetic_sets_open(const struct rg_synthetic_sets *sets, struct rg_h1_slice name,
                           struct rg_store_object *out_object)
{
    struct outer outer = {0};
    struct rg_synthetic *set;
    int rc = -ENOENT;
    while (rc == -ENOENT && (set = next_outer(sets, name, &outer)) != NULL) {
        rc = rg_synthetic_open(set, name, out_object);
    }
    return rc;
}

int rg_synthetic_sets_hide(const struct rg_synthetic_sets *sets, struct rg_h1_slice name)
{
    struct outer outer = {0};
    struct rg_synthetic *set;
    int rc = -ENOENT;
    while ((set = next_outer(sets, name, &outer)) != NULL) {
        int hidden = rg_synthetic_hide(set, name);
        rc = hidden != -ENOENT ? hidden : rc;
    }
    return rc;
}

/* Puts the first name of the set into the entry if it comes before the one that is there, which is
 * that of *best. */
static void consider(struct rg_synthetic **best, struct rg_synthetic *set, struct rg_h1_slice from,
                     struct rg_store_entry *entry)
{
    char name[RG_STORE_NAME_SIZE_MAX];
    uint32_t name_size;
    if (*best == NULL) {
        int rc = rg_synthetic_seek(set, from, entry->name, &entry->name_size);
        *best = rc == 0 ? set : NULL;
    } else if (rg_synthetic_seek(set, from, name, &name_size) == 0 &&
               rg_text_compare((struct rg_h1_slice){name, name_size}, rg_store_entry_name(entry)) <
                   0) {
        *best = set;
        entry->name_size = name_size;
        memcpy(entry->name, name, name_size);
    }
}

int rg_synthetic_sets_seek(const struct rg_synthetic_sets *sets, struct rg_h1_slice from,
                           struct rg_store_entry *out_entry)
{
    struct rg_synthetic *best = NULL, *set;
    struct outer outer = {0};
    while ((set = next_outer(sets, from, &outer)) != NULL) {
        consider(&best, set, from, out_entry);
    }
    for (size_t i = find_prefix(sets, from, true); i < sets->count; i++) {
        if (best != NULL && rg_text_compare(rg_synthetic_prefix(sets->sets[i]),
                                            rg_store_entry_name(out_entry)) > 0) {
            break;
        }
        consider(&best, sets->sets[i], from, out_entry);
    }
    if (best == NULL) {
        return -ENOENT;
    }
    rg_synthetic_describe(best, rg_store_entry_name(out_entry), &out_entry->info);
    return 0;
}
