/* Reads a manifest entry by entry. An entry behind the last one, in the same block, is decoded from
 * there and not from the block's beginning. */
#include "gcs/listing/manifest.h"

#include <errno.h>
#include <stdlib.h>

struct rg_manifest_cursor {
    const struct rg_manifest *manifest;
    uint64_t next, end; /* the decoder's next entry, and the end of its block */
    struct rg_manifest_decoder decoder;
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
};

int rg_manifest_cursor_open(struct rg_manifest_cursor **out_cursor,
                            const struct rg_manifest *manifest)
{
    struct rg_manifest_cursor *cursor = calloc(1, sizeof(*cursor));
    if (cursor == NULL) {
        return -ENOMEM;
    }
    cursor->manifest = manifest;
    *out_cursor = cursor;
    return 0;
}

int rg_manifest_cursor_get(struct rg_manifest_cursor *cursor, uint64_t index,
                           struct rg_object *out_object)
{
    if (index >= rg_manifest_count(cursor->manifest)) {
        return -ERANGE;
    }
    /* The decoder goes on if the entry is behind it in the same block. */
    if (index < cursor->next || index >= cursor->end) {
        int rc = rg_manifest_block(cursor->manifest, index, &cursor->decoder, &cursor->next,
                                   &cursor->end);
        if (rc < 0) {
            return rc;
        }
        cursor->decoder.name = cursor->name;
    }
    for (; cursor->next <= index; cursor->next++) {
        if (!rg_manifest_decode(&cursor->decoder)) {
            cursor->end = 0;
            return -EBADMSG;
        }
    }
    *out_object = cursor->decoder.object;
    out_object->name = cursor->name;
    return 0;
}

void rg_manifest_cursor_close(struct rg_manifest_cursor *cursor)
{
    free(cursor);
}
