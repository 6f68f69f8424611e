/* See description.h. */
#include "emulator/store/disk/description.h"

#include "emulator/store/disk/lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define INFO_PATH RG_FILE_NAME_PRIVATE "/%bucket"

static bool take_info_line(struct rg_bucket_info *info, const char *key, char *value)
{
    struct {
        const char *key;
        int64_t *number;
    } numbers[] = {{"created", &info->created_us},
                   {"updated", &info->updated_us},
                   {"metageneration", &info->metageneration},
                   {"retention", &info->retention_us},
                   {"soft-delete", &info->soft_delete_us},
                   {"soft-delete-since", &info->soft_delete_since_us}};
    for (size_t i = 0; i < RG_ARRAY_LEN(numbers); i++) {
        if (strcmp(key, numbers[i].key) == 0) {
            return sscanf(value, "%" SCNd64, numbers[i].number) == 1;
        }
    }
    struct {
        const char *key;
        bool *flag;
    } flags[] = {{"versioning", &info->versioning},
                 {"uniform-access", &info->uniform_access},
                 {"hierarchical", &info->hierarchical},
                 {"requester-pays", &info->requester_pays},
                 {"no-public-access", &info->no_public_access},
                 {"holds-by-default", &info->holds_by_default},
                 {"autoclass", &info->autoclass},
                 {"retention-locked", &info->retention_locked}};
    for (size_t i = 0; i < RG_ARRAY_LEN(flags); i++) {
        if (strcmp(key, flags[i].key) == 0) {
            *flags[i].flag = strcmp(value, "1") == 0;
            return true;
        }
    }
    if (strcmp(key, "settings") == 0) {
        rg_bucket_settings_unref(info->settings);
        info->settings = NULL;
        return rg_bucket_settings_create(&info->settings, rg_text_slice(value)) == 0;
    }
    return (strcmp(key, "location") == 0 &&
            rg_disk_line_take_text(info->location, RG_STORE_LOCATION_SIZE_MAX, value)) ||
           (strcmp(key, "storage-class") == 0 &&
            rg_disk_line_take_text(info->storage_class, RG_STORE_LOCATION_SIZE_MAX, value));
}

void rg_disk_description_load(const struct rg_disk_tree *tree, struct rg_bucket_info *info)
{
    char *text = rg_disk_read_text(tree, INFO_PATH), *at = text, *value;
    const char *key;
    while (at != NULL && rg_disk_line_next(&at, &key, &value) > 0) {
        (void)take_info_line(info, key, value);
    }
    free(text);
}

int rg_disk_description_save(struct rg_disk_tree *tree, const struct rg_bucket_info *info)
{
    struct rg_text text = {0};
    rg_text_printf(&text,
                   "created %" PRId64 "\nupdated %" PRId64 "\nmetageneration %" PRId64
                   "\nsoft-delete %" PRId64 "\nsoft-delete-since %" PRId64
                   "\nversioning %d\nuniform-access %d\nhierarchical %d\nlocation %s"
                   "\nstorage-class %s\nretention %" PRId64
                   "\nretention-locked %d\nrequester-pays %d\nno-public-access %d"
                   "\nholds-by-default %d\nautoclass %d\nsettings ",
                   info->created_us, info->updated_us, info->metageneration, info->soft_delete_us,
                   info->soft_delete_since_us, info->versioning, info->uniform_access,
                   info->hierarchical, info->location, info->storage_class, info->retention_us,
                   info->retention_locked, info->requester_pays, info->no_public_access,
                   info->holds_by_default, info->autoclass);
    struct rg_h1_slice settings = rg_bucket_settings_json(info->settings); /* On one line. */
    rg_text_append(&text, settings.data, settings.size);
    rg_text_append_str(&text, "\n");
    int rc = rg_disk_write_text(tree, INFO_PATH, &text);
    rg_text_fini(&text);
    return rc;
}
