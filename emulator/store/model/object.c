/* Reading and closing, and what requests demand of a version; see object.h. */
#include "emulator/store/model/object.h"

#include <errno.h>

size_t rg_store_object_read(struct rg_store_object *object, uint64_t offset,
                            const uint8_t **out_data)
{
    RG_ASSERT(offset < object->info.size);
    return object->type->read(object, offset, out_data);
}

void rg_store_object_close(struct rg_store_object *object)
{
    if (object->type != NULL && object->type->close != NULL) {
        object->type->close(object);
    }
    object->type = NULL;
}

int rg_store_conditions_check(const struct rg_store_conditions *conditions,
                              const struct rg_store_object_info *info)
{
    int64_t generation = info != NULL ? info->generation : 0;
    int64_t metageneration = info != NULL ? info->metageneration : 0;
    if (conditions->generation.set && conditions->generation.value != generation) {
        return -ENOENT;
    }
    if ((conditions->generation_match.set && conditions->generation_match.value != generation) ||
        (conditions->metageneration_match.set &&
         conditions->metageneration_match.value != metageneration)) {
        return -ESTALE;
    }
    if ((conditions->generation_not_match.set &&
         conditions->generation_not_match.value == generation) ||
        (conditions->metageneration_not_match.set &&
         conditions->metageneration_not_match.value == metageneration)) {
        return -EALREADY;
    }
    return 0;
}
