/* Finds the members of a tar archive from its headers, without what they hold.
 *
 * Formats: POSIX.1-2001 (pax: path and size; section "pax Interchange Format"), ustar, GNU (long
 * names, sizes in base 256) and the old one of Unix V7. Members that are no regular files are
 * passed over, as are undefined types; sparse files are an error, since their bytes do
 * not lie in the archive as they are.
 *
 * The parser says by `offset` which byte of the archive it wants next, and skips what members hold
 * by moving it on; the caller reads there, in pieces of any size:
 *
 *      HEADER --> (a member is given) --> HEADER ... --> END, at the first block of zeros
 *        |  ^
 *        v  |
 *      EXTENDED: a long name or a pax header, for the member behind it
 *
 * Invariant: what was taken of a header or an extended header began at a block, is less than all of
 * it between two calls, and ends at `offset`; names end with a NUL.
 *
 * Pure: no memory of its own, no clock, no I/O. */
#ifndef RG_DATASET_TAR_PARSER_H
#define RG_DATASET_TAR_PARSER_H

#include "runtime/base.h"

#include <stddef.h>
#include <stdint.h>

#define RG_TAR_BLOCK_SIZE 512
/* The longest name of a member, with its folders: Linux's limit for paths. */
#define RG_TAR_NAME_SIZE_MAX 4096
/* The longest pax header or long name. */
#define RG_TAR_EXTENDED_SIZE_MAX RG_KIB(64)
/* The largest member: far above what the service stores, and sizes up to it are safe to add. */
#define RG_TAR_SIZE_MAX (UINT64_C(1) << 56)
#define RG_TAR_ERROR_SIZE 192

enum rg_tar_phase { RG_TAR_HEADER = 0, RG_TAR_EXTENDED, RG_TAR_ENDED };

/* A regular file of the archive. */
struct rg_tar_member {
    const char *name; /* valid until the next call */
    uint64_t offset;  /* of its first byte, a multiple of RG_TAR_BLOCK_SIZE */
    uint64_t size;
};

struct rg_tar_parser {
    uint64_t offset; /* of the next byte that is wanted */
    enum rg_tar_phase phase;
    uint32_t block_used;
    uint8_t block[RG_TAR_BLOCK_SIZE];
    /* What is collected for the next member. */
    char extended_type;
    uint32_t extended_size, extended_used;
    bool has_name, has_size;
    uint64_t size;
    char next_name[RG_TAR_NAME_SIZE_MAX + 1];
    char name[RG_TAR_NAME_SIZE_MAX + 1]; /* of the last header, of whatever type */
    char error[RG_TAR_ERROR_SIZE];       /* one line, after a failure */
    uint8_t extended[RG_TAR_EXTENDED_SIZE_MAX];
};

void rg_tar_parser_init(struct rg_tar_parser *parser);

enum rg_tar_result {
    RG_TAR_RESULT_MORE = 0, /* wants bytes at `offset` */
    RG_TAR_RESULT_MEMBER,   /* *out_member is filled; call again, there may be more */
    RG_TAR_RESULT_END       /* the archive is complete */
};
/* Looks at `size` bytes, of which the first is the one at parser->offset. Returns one of enum
 * rg_tar_result, or -EBADMSG with parser->error, for good. */
int rg_tar_parser_feed(struct rg_tar_parser *parser, const uint8_t *data, size_t size,
                       struct rg_tar_member *out_member);
/* The archive has `size` bytes. 0: all of its members were given; -EBADMSG: it was cut off. */
int rg_tar_parser_finish(struct rg_tar_parser *parser, uint64_t size);

#endif
