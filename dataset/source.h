/* What a reader reads: objects of a manifest or of an array, or samples of tar archives, each by
 * its index. A source belongs to one thread at a time. */
#ifndef RG_DATASET_SOURCE_H
#define RG_DATASET_SOURCE_H

#include "dataset/tar_cursor.h"

#include <ringest/dataset.h>

struct rg_source {
    struct rg_manifest_cursor *manifest; /* owned; NULL: the next, or the cursor */
    const struct rg_object *objects;     /* borrowed */
    struct rg_tar_cursor *cursor;        /* owned; NULL: samples are objects */
    char *bucket;                        /* owned */
    uint64_t count;                      /* of objects, or of samples */
};

/* What one sample is: an object, or ranges of one. */
struct rg_source_item {
    const char *name;
    int64_t generation;
    uint64_t size;                     /* 0: unknown, but for ranges */
    const struct rg_tar_piece *pieces; /* of ranges; valid until the next item is looked up */
    uint32_t piece_count;              /* 0: of ranges without bytes, and of objects */
    bool is_range;
};

/* Takes what a reader's options say of objects. 0, or -EINVAL or -ENOMEM with a line in `error`. */
int rg_source_open(struct rg_source *source, const struct rg_reader_options *options, char *error,
                   size_t error_size);
/* The item at an index below the count. Its name is in a manifest's case copied to `name`, which
 * has RG_OBJECT_NAME_SIZE_MAX + 1 bytes. 0, or negative: the manifest or index is damaged. */
int rg_source_at(const struct rg_source *source, uint64_t index, struct rg_source_item *out_item,
                 char *name);
/* Tells one set of objects from another, without reading all of them. Errors: those of
 * rg_source_at. */
int rg_source_fingerprint(const struct rg_source *source, uint32_t *out_fingerprint);
/* Also one that was never opened and is zero. */
void rg_source_close(struct rg_source *source);

#endif
