/* Where the bytes of samples are: see rg_tar_cursor in <ringest/tar.h>.
 *
 * A sample is read in *pieces*, ranges of its shard that are further apart than RG_TAR_GAP_MAX. It
 * is one piece unless large members are left out.
 *
 * Invariant: the next sample to be decoded lies in the block, or right behind it; pieces ascend in
 * the shard, further apart than RG_TAR_GAP_MAX, and each begins at the first cache line behind the
 * one before it in what is read. */
#ifndef RG_DATASET_TAR_CURSOR_H
#define RG_DATASET_TAR_CURSOR_H

#include "dataset/tar_index.h"

/* Pieces lie one behind the other in what is read, each at the beginning of a cache line, as
 * rg_submit_get_ranges puts ranges of which none has a neighbour. */
struct rg_tar_piece {
    uint64_t offset, size; /* in the shard */
    uint64_t place;        /* in what is read */
};

struct rg_tar_cursor {
    const struct rg_tar_index *index; /* borrowed */
    char *members;                    /* owned: texts, each with its NUL, one behind the other */
    uint32_t member_count;
    uint64_t next;             /* the number of the sample behind `whole`, in the block */
    struct rg_tar_block block; /* end 0: there is none yet */
    struct rg_tar_sample whole, chosen;
    struct rg_tar_piece pieces[RG_TAR_MEMBERS_MAX]; /* of the sample that was got last */
    uint32_t piece_count;
};

#endif
