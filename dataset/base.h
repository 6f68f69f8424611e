/* Uniting what readers have consumed: see rg_base in <ringest/dataset.h>.
 *
 * Each saved reader says which samples of its own it has consumed. Through the assignment that it
 * was a part of, those are places of its rank's stream; through all ranks' streams, positions of
 * the epoch's order. */
#ifndef RG_DATASET_BASE_H
#define RG_DATASET_BASE_H

#include "dataset/remaining.h"
#include "dataset/state.h"

/* So many saved readers can be united by one call. */
#define RG_SAVED_MAX (1u << 20)

struct rg_base {
    uint32_t crc; /* that states name it by */
    size_t size;
    uint8_t data[]; /* as rg_base_encode makes it */
};

/* One thing that was saved, decoded; borrows its bytes. */
struct rg_base_entry {
    bool has_state, has_base;
    struct rg_state state;
    struct rg_base_content base; /* zero without one; of version 1 what the state says */
    uint32_t base_crc;
};
/* 0, or -EINVAL with a line in `error` (may be NULL). */
int rg_base_entry_read(struct rg_base_entry *entry, const struct rg_saved *saved, char *error,
                       size_t error_size);

/* A base of such content. 0 or -ENOMEM. */
int rg_base_make(struct rg_base **out_base, const struct rg_base_content *content);
/* What is left where a set of numbers below a count was consumed. Errors: -EINVAL, -ENOMEM,
 * -EFBIG. */
int rg_base_left(struct rg_remaining *left, uint64_t count, const struct rg_state_set *consumed);

/* 0; or -EINVAL with a line that says in what two epochs differ, the first being the saved one. */
int rg_base_compare(const struct rg_state_epoch *saved, const struct rg_state_epoch *other,
                    char *error, size_t error_size);

#endif
