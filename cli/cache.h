/* What the parts of `ringest cache` share. */
#ifndef RG_CLI_CACHE_H
#define RG_CLI_CACHE_H

#include "cli/session.h"

struct cache_warming {
    struct cli_connection connection;
    struct cli_uri uri;   /* without a manifest: what is listed */
    const char *manifest; /* a file; NULL: none */
    uint64_t concurrency;
    bool json;
};

/* Reads objects until the cache has them. Returns an exit status, after printing what was done. */
int cache_warm(struct cache_warming *warming);

#endif
