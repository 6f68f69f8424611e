/* See bucket_settings.h. */
#include "emulator/store/model/bucket_settings.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct rg_bucket_settings {
    _Atomic uint32_t refs;
    uint32_t size;
    char json[];
};

int rg_bucket_settings_create(struct rg_bucket_settings **out_settings, struct rg_h1_slice json)
{
    if (json.size == 0) {
        *out_settings = NULL;
        return 0;
    }
    if (json.size > RG_BUCKET_SETTINGS_SIZE_MAX) {
        return -EMSGSIZE;
    }
    struct rg_bucket_settings *settings = malloc(sizeof(*settings) + json.size);
    if (settings == NULL) {
        return -ENOMEM;
    }
    atomic_init(&settings->refs, 1);
    settings->size = json.size;
    memcpy(settings->json, json.data, json.size);
    *out_settings = settings;
    return 0;
}

struct rg_bucket_settings *rg_bucket_settings_ref(struct rg_bucket_settings *settings)
{
    if (settings != NULL) {
        atomic_fetch_add_explicit(&settings->refs, 1, memory_order_relaxed);
    }
    return settings;
}

void rg_bucket_settings_unref(struct rg_bucket_settings *settings)
{
    if (settings != NULL &&
        atomic_fetch_sub_explicit(&settings->refs, 1, memory_order_acq_rel) == 1) {
        free(settings);
    }
}

struct rg_h1_slice rg_bucket_settings_json(const struct rg_bucket_settings *settings)
{
    return settings != NULL ? (struct rg_h1_slice){settings->json, settings->size}
                            : (struct rg_h1_slice){"{}", 2};
}
