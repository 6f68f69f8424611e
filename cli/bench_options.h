/* What `ringest bench get|put|list` was asked for. */
#ifndef RG_CLI_BENCH_OPTIONS_H
#define RG_CLI_BENCH_OPTIONS_H

#include "cli/session.h"

enum bench_op { BENCH_GET, BENCH_PUT, BENCH_LIST };

struct bench_options {
    enum bench_op op;
    struct cli_uri uri;
    struct cli_connection connection;
    uint64_t concurrency; /* of each process */
    uint64_t count;       /* of all processes; 0: by time, or as many as there are */
    uint64_t object_size;
    bool has_object_size; /* it was given */
    double seconds;       /* 0: by count */
    double warm_up_s, ramp_s, interval_s;
    double rate_per_s; /* of all processes; 0: as fast as they are answered */
    bool is_poisson;
    uint64_t processes, rounds;
    bool verify, json, keep, shows_progress, per_connection;
    bool is_cached;     /* the client has a cache, which answers what names a generation */
    const char *result; /* a file; NULL: none */
    char folder[RG_OBJECT_NAME_SIZE_MAX + 1]; /* that put writes into; ends in "/" */
};

/* "get", "put", "list" */
extern const char *const bench_op_names[3];

#endif
