/* JSON of the service: a page of a listing, and the resource of one object.
 *
 * All that parsing a page needs and yields lies in one block of the caller's, such as a lease;
 * nothing is allocated, and nothing must be freed but the block. The body is not changed and may go
 * when the function returns.
 *
 * The service sends 64-bit numbers as strings; numbers are taken as well. Members that are not
 * known are passed over, those that are missing or null are empty or 0, and of two of a name the
 * last one counts. Names may hold any character but NUL. */
#ifndef RG_GCS_WIRE_LIST_PARSER_H
#define RG_GCS_WIRE_LIST_PARSER_H

#include "gcs/wire/nonce.h"
#include "runtime/base.h"

#include <errno.h>
#include <ringest/gcs.h>

/* A service's page of 1,000 objects has at most about 1 MiB, with all their fields. */
#define RG_LIST_BODY_SIZE_MAX RG_MIB(64)

/* A block of this size, some 13 times the body's, is enough for any body of at most
 * RG_LIST_BODY_SIZE_MAX, garbage included. Of a real page's block a third is ever touched. */
size_t rg_list_page_size_bound(size_t body_size);

/* Parses a page. *out_page and all it points to lie in `memory`.
 *
 * -EBADMSG: the body is not a page of a listing, and *out_problem says what is wrong with it, in
 * words that follow "the answer" (static storage). -ENOSPC: the block is too small; not with one of
 * rg_list_page_size_bound. */
int rg_list_page_parse(const char *body, size_t body_size, void *memory, size_t memory_size,
                       struct rg_list_page **out_page, const char **out_problem);

/* What an upload answers with. */
struct rg_object_resource {
    uint64_t size;
    int64_t generation;
    uint32_t crc32c;
    bool has_crc32c;
    char nonce[RG_NONCE_SIZE + 1]; /* of its metadata; "": none, or none of ours */
    char created[32];              /* when it was written, as the service says; "": it does not */
};

/* Allocates while it runs. -EBADMSG as above, or -ENOMEM, also with *out_problem. */
int rg_object_resource_parse(const char *body, size_t body_size,
                             struct rg_object_resource *out_resource, const char **out_problem);

#endif
