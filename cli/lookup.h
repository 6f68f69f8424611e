/* What stands under names in a bucket, asked for in ascending order: one page of a listing is kept,
 * and the next begins at the name that is looked for, so that what lies between is not read. */
#ifndef RG_CLI_LOOKUP_H
#define RG_CLI_LOOKUP_H

#include "cli/session.h"

/* What a name stands for now. */
struct there {
    bool is_known, exists, has_crc32c;
    uint64_t size;
    int64_t generation;
    uint32_t crc32c;
};

struct lookup {
    struct cli_session *session;
    struct rg_cq *cq;
    const char *bucket;
    uint32_t page_size;
    bool is_forbidden; /* to list; then nothing is known */
    bool has_no_bucket;
    struct rg_completion completion;
    const struct rg_list_page *page;
    char *page_start; /* owned; the page has every name from here to its last one, or to the end */
    size_t index;
};

/* page_size 0: as many names as the service gives; 1 for a single name. `bucket` is borrowed.
 * CLI_DONE, or an exit status after printing why not. */
int lookup_open(struct lookup *lookup, struct cli_session *session, const char *bucket,
                uint32_t page_size);
/* Names may come in any order; ascending ones cost the least. Where listing is forbidden, nothing
 * is known. CLI_DONE, or an exit status after printing why not. */
int lookup_find(struct lookup *lookup, const char *name, struct there *out_there);
/* Whether any name begins with the prefix; not where listing is forbidden. The page that was read
 * is kept for what follows. CLI_DONE, or an exit status after printing why not. */
int lookup_prefix(struct lookup *lookup, const char *prefix, bool *out_any);
/* Whether any name begins with this one and a "/". */
int lookup_folder(struct cli_session *session, const char *bucket, const char *name, bool *out_any);
/* Says why an object was not read; and if a folder has its name, that it does. CLI_FAILED. */
int lookup_fail(struct cli_session *session, const struct cli_uri *uri,
                const struct rg_completion *done);
/* What to say behind an error about a name that ends as gsutil and `ringest ls -a` write a version,
 * "#GENERATION", which is a part of names here; "" for others. */
const char *lookup_version_hint(const char *name);
/* What stands under one name, alone. */
int lookup_one(struct cli_session *session, const struct cli_uri *uri, struct there *out_there);
/* A zeroed one is fine. */
void lookup_close(struct lookup *lookup);

/* The CRC32C of an object that was read, from a server that did not tell it with the bytes: as it
 * is listed, if it still is what was read. generation 0: not known. CLI_DONE, or an exit status
 * after printing why not. */
int lookup_crc32c(struct cli_session *session, const struct cli_uri *uri, int64_t generation,
                  uint64_t size, uint32_t *out_crc32c);

#endif
