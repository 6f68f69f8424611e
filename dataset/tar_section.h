/* The samples of one shard, made of its members as they are found, and encoded as the index has
 * them: in blocks of RG_TAR_BLOCK_SAMPLES, of which each begins anew.
 *
 *      init -> add (a member) ... -> end -> its bytes are put into an index -> fini
 *
 * Invariant: the blocks follow each other in the bytes without a gap. */
#ifndef RG_DATASET_TAR_SECTION_H
#define RG_DATASET_TAR_SECTION_H

#include "dataset/tar_code.h"
#include "dataset/tar_parser.h"

struct rg_tar_section_block {
    uint64_t offset; /* in the section */
    uint32_t size, crc;
};

struct rg_tar_section {
    uint8_t *data; /* owned */
    size_t size, room;
    struct rg_tar_section_block *blocks; /* owned */
    uint32_t block_count, block_room;
    uint64_t sample_count;
    size_t block_begin;
    struct rg_tar_encoder *encoder; /* owned while samples are added */
    struct rg_tar_sample *sample;   /* the same; part_count 0: none has started */
    char *extensions;               /* the same; of the sample, RG_TAR_MEMBERS_MAX of full size */
    char error[RG_TAR_ERROR_SIZE];  /* one line, after -EBADMSG */
};

/* 0 or -ENOMEM. */
int rg_tar_section_init(struct rg_tar_section *section);
/* A member that is no part of a sample is passed over. 0, -ENOMEM, -EFBIG, or -EBADMSG with a line
 * in section->error: a sample twice has the same extension, or too many. */
int rg_tar_section_add(struct rg_tar_section *section, const struct rg_tar_member *member);
/* There are no more members. Errors as above. */
int rg_tar_section_end(struct rg_tar_section *section);
/* Zeroed, or half made, is fine. */
void rg_tar_section_fini(struct rg_tar_section *section);

/* Where WebDataset cuts a name: the sizes of the key, and of the extension behind the dot. False:
 * the member is no part of a sample. */
bool rg_tar_name_split(const char *name, size_t *out_key_size, size_t *out_extension_size);

#endif
