/* Request fields that the user adds to every request, for audit, tracing and tests. */
#ifndef RG_GCS_NETWORK_EXTRA_HEADERS_H
#define RG_GCS_NETWORK_EXTRA_HEADERS_H

#include "http/h1_decoder.h"

#define RG_EXTRA_HEADERS_MAX 32
#define RG_EXTRA_HEADERS_SIZE_MAX 8192 /* of the text that names them */

/* Names and values point into `text`. */
struct rg_extra_headers {
    uint32_t count;
    const char *names[RG_EXTRA_HEADERS_MAX];
    struct rg_h1_slice values[RG_EXTRA_HEADERS_MAX];
    char text[RG_EXTRA_HEADERS_SIZE_MAX + 1];
};

/* One "Name: value" a line, from `option` where it is not NULL, else from RINGEST_HEADERS. Empty
 * lines are passed over. Returns owned. -ENOMEM, or -EINVAL: a line is malformed, or names a field
 * that the library itself sets. `error`, of error_size bytes, at least 1, then holds a line that
 * says which one and why. */
int rg_extra_headers_parse(struct rg_extra_headers **out_headers, const char *option, char *error,
                           size_t error_size);

/* Wipes it, since values may be secrets. NULL is fine. */
void rg_extra_headers_free(struct rg_extra_headers *headers);

#endif
