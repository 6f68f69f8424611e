/* The objects that a benchmark reads, and what was listed of each. */
#ifndef RG_CLI_BENCH_MANIFEST_H
#define RG_CLI_BENCH_MANIFEST_H

#include "cli/bench_options.h"

struct bench_manifest_entry {
    char *name;
    uint64_t size;
    int64_t generation;
    uint32_t crc32c;
    bool has_crc32c;
};

struct bench_manifest {
    struct bench_manifest_entry *entries; /* owned, with the names */
    size_t count, capacity;
};

/* Lists what there is to get: of the options' count at most. CLI_DONE, or an exit status after
 * printing why not; also if there is nothing. */
int bench_manifest_load(struct bench_manifest *manifest, const struct bench_options *options,
                        struct cli_session *session);
void bench_manifest_free(struct bench_manifest *manifest);

/* Of the largest object, in bytes. */
uint64_t bench_manifest_largest(const struct bench_manifest *manifest);
/* Where what was read is not what was listed, says what differs. False: nothing does. */
bool bench_manifest_differs(const struct bench_manifest_entry *entry, const char *bucket,
                            const struct rg_completion *completion, char *text, size_t text_size);

#endif
