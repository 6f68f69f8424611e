/* The answer to a batch request: a multipart/mixed body (RFC 2046 section 5.1) with the status line
 * of one inner answer in each part (Cloud Storage, "Batch requests"). A protocol core: no memory of
 * its own. */
#ifndef RG_GCS_WIRE_BATCH_ANSWER_H
#define RG_GCS_WIRE_BATCH_ANSWER_H

#include "http/h1_decoder.h"

/* The longest boundary (RFC 2046 section 5.1.1). */
#define RG_BOUNDARY_SIZE_MAX 70
/* Part n of a request has this Content-ID, and its answer the same behind "response-". */
#define RG_BATCH_ID_PREFIX "ringest+"

/* Copies the boundary that a Content-Type of multipart/mixed names, with a NUL: its size, or
 * -EBADMSG. */
int rg_batch_boundary_parse(struct rg_h1_slice content_type,
                            char out_boundary[static RG_BOUNDARY_SIZE_MAX + 1]);

/* What came for one part of a request. */
struct rg_batch_part {
    uint16_t http_status;       /* 0: it did not come */
    struct rg_h1_slice message; /* the body of the inner answer, in the body of the whole */
};

/* Reads the answers to the parts 0 to count - 1, which come in any order. Line ends may be bare LF.
 * -EBADMSG: the body is not such an answer, and *out_problem says why, in words that follow "the
 * answer" (static storage). */
int rg_batch_answer_parse(const char *body, size_t body_size, const char *boundary,
                          struct rg_batch_part *parts, uint32_t count, const char **out_problem);

#endif
