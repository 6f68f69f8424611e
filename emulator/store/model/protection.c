/* See protection.h. */
#include "emulator/store/model/protection.h"

#include <errno.h>

static bool is_held(const struct rg_attributes *attributes, const char *hold)
{
    return rg_text_equals(rg_attributes_get(attributes, hold), "true");
}

int64_t rg_protection_expires_us(int64_t retention_us, const struct rg_store_object_info *object)
{
    if (retention_us == 0 || is_held(object->attributes, RG_PROTECTION_EVENT_BASED_HOLD)) {
        return 0;
    }
    return object->generation + retention_us; /* A generation is the time of its creation. */
}

int rg_protection_check(int64_t retention_us, const struct rg_store_object_info *object,
                        int64_t now_us)
{
    if (is_held(object->attributes, RG_PROTECTION_TEMPORARY_HOLD) ||
        is_held(object->attributes, RG_PROTECTION_EVENT_BASED_HOLD)) {
        return -EBUSY;
    }
    return now_us < rg_protection_expires_us(retention_us, object) ? -EPERM : 0;
}
