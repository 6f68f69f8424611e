/* Samples of a tar index, to bytes and back. Pure. docs/TAR_INDEX.md describes them.
 *
 * A sample is encoded against the one before it in its block: the beginning of its key that both
 * have, its extensions if they are others, and its place counted from the end of the last one, in
 * blocks of the archive. */
#ifndef RG_DATASET_TAR_CODE_H
#define RG_DATASET_TAR_CODE_H

#include "runtime/base.h"

#include <ringest/tar.h>

/* Samples that are found by decoding all before them in their block. */
#define RG_TAR_BLOCK_SAMPLES 64

/* The end of the block of an archive that the last byte of a member is in. */
uint64_t rg_tar_blocks_end(uint64_t offset, uint64_t size);

/* Both coders begin a block zeroed. The parts' offsets are from the sample's beginning. */
struct rg_tar_encoder {
    uint64_t end; /* of the sample before, in the archive */
    uint32_t key_size, extensions_size, part_count;
    char key[RG_TAR_KEY_SIZE_MAX];
    /* Those of the sample before, each behind its size. */
    uint8_t extensions[RG_TAR_MEMBERS_MAX * (RG_TAR_EXTENSION_SIZE_MAX + 1)];
};
/* At most. */
#define RG_TAR_CODE_SIZE_MAX                                                                       \
    (RG_TAR_KEY_SIZE_MAX + 3 * 10 + RG_TAR_MEMBERS_MAX * (RG_TAR_EXTENSION_SIZE_MAX + 1 + 2 * 10))
/* Writes at most RG_TAR_CODE_SIZE_MAX bytes and returns how many. */
size_t rg_tar_encode(struct rg_tar_encoder *encoder, const struct rg_tar_sample *sample,
                     uint8_t *out);

struct rg_tar_decoder {
    const uint8_t *at, *limit;
    uint64_t end;
};
/* Turns *sample, which is zeroed or the one before in the block, into the next one, but for its
 * shard. Extensions point into the bytes. False: there is none that is whole and right. */
bool rg_tar_decode(struct rg_tar_decoder *decoder, struct rg_tar_sample *sample);

#endif
