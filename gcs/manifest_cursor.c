/* Walks through a manifest: an entry that follows the last one in its block is decoded from there.
 */
#include "gcs/manifest.h"

#include <errno.h>
#include <stdlib.h>

struct rg_manifest_cursor {
    const struct rg_manifest *manifest;
    uint64_t next;                      /* the entry that the decoder is at */
    struct rg_manifest_decoder decoder; /* of the block with the one before */
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

/* The decoder is in the block of the entry, and not behind it. */
static bool is_near(const struct rg_manifest_cursor *cursor, uint64_t index)
{
    uint64_t block = index - index % RG_MANIFEST_BLOCK_ENTRIES;
    return cursor->next > block && cursor->next <= index;
}

int rg_manifest_cursor_get(struct rg_manifest_cursor *cursor, uint64_t index,
                           struct rg_object *out_object)
{
    if (index >= rg_manifest_count(cursor->manifest)) {
        return -ERANGE;
    }
    if (!is_near(cursor, index)) {
        int rc = rg_manifest_block(cursor->manifest, index, &cursor->decoder);
        if (rc < 0) {
            return rc;
        }
        cursor->decoder.name = cursor->name;
        cursor->next = index - index % RG_MANIFEST_BLOCK_ENTRIES;
    }
    for (; cursor->next <= index; cursor->next++) {
        if (!rg_manifest_decode(&cursor->decoder)) {
            cursor->next = 0;
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
