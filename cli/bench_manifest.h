/* The objects that a benchmark reads or lists, and what was listed of each before. */
#ifndef RG_CLI_BENCH_MANIFEST_H
#define RG_CLI_BENCH_MANIFEST_H

#include "cli/bench_options.h"

struct bench_manifest_entry {
    char *name;
    uint64_t size;
    int64_t generation;
    uint32_t crc32c;
    bool has_crc32c;
    uint64_t listing; /* the last one that was compared and had it; 0: none */
};

struct bench_manifest {
    struct bench_manifest_entry *entries; /* owned, with the names */
    size_t count, capacity;
};

/* Lists what there is, one page after the other: for get, of the options' count at most. CLI_DONE,
 * or an exit status after printing why not; also if there is nothing. */
int bench_manifest_load(struct bench_manifest *manifest, const struct bench_options *options,
                        struct cli_session *session);
void bench_manifest_free(struct bench_manifest *manifest);

/* Of the largest object, in bytes. */
uint64_t bench_manifest_largest(const struct bench_manifest *manifest);
/* Where what was read is not what was listed, says what differs. False: nothing does. */
bool bench_manifest_differs(const struct bench_manifest_entry *entry, const char *bucket,
                            const struct rg_completion *completion, char *text, size_t text_size);
/* Where a page of a listing, numbered from 1, is not what was listed before, says what differs
 * first: each name has to come once, with its size and generation. False: nothing does. */
bool bench_manifest_page_differs(struct bench_manifest *manifest, const char *bucket,
                                 uint64_t listing, const struct rg_list_page *page, char *text,
                                 size_t text_size);
/* The same at the end of the listing: each name has to have come. */
bool bench_manifest_lacks(const struct bench_manifest *manifest, const char *bucket,
                          uint64_t listing, char *text, size_t text_size);

#endif
