/* ISA-L's inflate over the pieces of an object; see gunzip.h. */
#include "emulator/api/gunzip.h"

#include <errno.h>
#include <isa-l/igzip_lib.h>
#include <stdlib.h>

#define OUTPUT_SIZE RG_KIB(64)

struct inflater {
    struct inflate_state state;
    uint8_t output[OUTPUT_SIZE];
};

/* Takes in one piece. */
static int inflate_piece(struct inflater *inflater, const uint8_t *data, size_t size,
                         struct rg_text *out)
{
    inflater->state.next_in = (uint8_t *)(uintptr_t)data;
    inflater->state.avail_in = (uint32_t)size;
    do {
        inflater->state.next_out = inflater->output;
        inflater->state.avail_out = sizeof(inflater->output);
        if (isal_inflate(&inflater->state) != ISAL_DECOMP_OK) {
            return -EBADMSG;
        }
        size_t count = sizeof(inflater->output) - inflater->state.avail_out;
        if (count > RG_GUNZIP_SIZE_MAX - out->size) {
            return -EMSGSIZE;
        }
        rg_text_append(out, inflater->output, count);
        if (out->failed) {
            return -ENOMEM;
        }
    } while (inflater->state.avail_out == 0 ||
             (inflater->state.avail_in > 0 && inflater->state.block_state != ISAL_BLOCK_FINISH));
    return 0;
}

int rg_gunzip(struct rg_store_object *object, struct rg_text *out)
{
    struct inflater *inflater = malloc(sizeof(*inflater));
    if (inflater == NULL) {
        return -ENOMEM;
    }
    isal_inflate_init(&inflater->state);
    inflater->state.crc_flag = ISAL_GZIP;
    int rc = 0;
    for (uint64_t offset = 0; rc == 0 && offset < object->info.size;) {
        const uint8_t *data;
        size_t size = rg_store_object_read(object, offset, &data);
        size = RG_MIN(size, RG_MIB(1)); /* Its sizes have 32 bits. */
        rc = inflate_piece(inflater, data, size, out);
        offset += size;
    }
    if (rc == 0 && inflater->state.block_state != ISAL_BLOCK_FINISH) {
        rc = -EBADMSG;
    }
    free(inflater);
    return rc;
}
