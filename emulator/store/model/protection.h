/* What keeps an object from being removed or replaced: holds of its own, and the retention policy
 * of its bucket. */
#ifndef RG_EMULATOR_STORE_MODEL_PROTECTION_H
#define RG_EMULATOR_STORE_MODEL_PROTECTION_H

#include "emulator/store/model/object.h"

/* Holds, as attributes with the value "true"; an object that is under none has none. */
#define RG_PROTECTION_TEMPORARY_HOLD "temporaryHold"
#define RG_PROTECTION_EVENT_BASED_HOLD "eventBasedHold"

/* When an object of a bucket with a retention of `retention_us` may be removed. 0: the bucket has
 * no retention, or the object is under an event-based hold. */
int64_t rg_protection_expires_us(int64_t retention_us, const struct rg_store_object_info *object);
/* 0; -EBUSY: the object is held; -EPERM: it is not old enough. */
int rg_protection_check(int64_t retention_us, const struct rg_store_object_info *object,
                        int64_t now_us);

#endif
