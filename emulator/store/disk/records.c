/* See records.h. */
#include "emulator/store/disk/records.h"

#include "emulator/store/disk/lines.h"
#include "http/url.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void rg_disk_record_path(char out[RG_DISK_PATH_MAX], const char *path, int64_t generation)
{
    int size =
        snprintf(out, RG_DISK_PATH_MAX, RG_FILE_NAME_PRIVATE "/%s%%g%" PRId64, path, generation);
    RG_ASSERT(size > 0 && size < RG_DISK_PATH_MAX);
}

/* A record in the making: what is there, and the list of attributes. */
struct record {
    struct rg_store_object_info *info;
    struct rg_text list;
    uint64_t size;
};

/* "NAME VALUE", both percent-encoded. Decoding is done in place. */
static bool take_attribute(struct record *record, char *text)
{
    char *space = strchr(text, ' ');
    if (space == NULL) {
        return false;
    }
    struct rg_h1_slice name = {text, (uint32_t)(space - text)};
    struct rg_h1_slice value = rg_text_slice(space + 1);
    int name_size = rg_url_percent_decode(name, RG_URL_PATH, text, name.size);
    int value_size = rg_url_percent_decode(value, RG_URL_PATH, space + 1, value.size);
    return name_size > 0 && value_size >= 0 &&
           rg_attributes_set(&record->list, (struct rg_h1_slice){text, (uint32_t)name_size},
                             (struct rg_h1_slice){space + 1, (uint32_t)value_size}) == 0;
}

static bool take_number(struct record *record, const char *key, const char *value, bool *out_known)
{
    struct rg_store_object_info *info = record->info;
    struct {
        const char *key;
        int64_t *number;
    } numbers[] = {{"metageneration", &info->metageneration},
                   {"updated", &info->updated_us},
                   {"deleted", &info->deleted_us},
                   {"soft-deleted", &info->soft_deleted_us},
                   {"hard-delete", &info->hard_delete_us}};
    *out_known = true;
    for (size_t i = 0; i < RG_ARRAY_LEN(numbers); i++) {
        if (strcmp(key, numbers[i].key) == 0) {
            return sscanf(value, "%" SCNd64, numbers[i].number) == 1;
        }
    }
    if (strcmp(key, "size") == 0) {
        return sscanf(value, "%" SCNu64, &record->size) == 1;
    }
    if (strcmp(key, "crc32c") == 0) {
        info->has_crc32c = sscanf(value, "%" SCNx32, &info->crc32c) == 1;
        return info->has_crc32c;
    }
    *out_known = false;
    return false;
}

static bool take_line(struct record *record, const char *key, char *value)
{
    struct rg_store_object_info *info = record->info;
    bool known, good = take_number(record, key, value, &known);
    if (known) {
        return good;
    }
    if (strcmp(key, "content-type") == 0) {
        info->content_type[0] = '\0';
        return value[0] == '\0' ||
               rg_disk_line_take_text(info->content_type, RG_STORE_CONTENT_TYPE_SIZE_MAX, value);
    }
    if (strcmp(key, "content-encoding") == 0) {
        return value[0] == '\0' ||
               rg_disk_line_take_text(info->content_encoding, RG_STORE_CONTENT_ENCODING_SIZE_MAX,
                                      value);
    }
    if (strcmp(key, "md5") == 0) {
        return strlen(value) == RG_STORE_MD5_SIZE &&
               rg_disk_line_take_text(info->md5, RG_STORE_MD5_SIZE, value);
    }
    return strcmp(key, "attribute") == 0 && take_attribute(record, value);
}

static int parse_record(char *text, struct record *record)
{
    const char *key;
    char *value;
    int rc;
    while ((rc = rg_disk_line_next(&text, &key, &value)) > 0) {
        if (!take_line(record, key, value)) {
            return -ENOENT;
        }
    }
    return rc < 0 ? -ENOENT : 0;
}

int rg_disk_record_read(const struct rg_disk_tree *tree, const char *path,
                        struct rg_store_object_info *info)
{
    char name[RG_DISK_PATH_MAX];
    rg_disk_record_path(name, path, info->generation);
    char *text = rg_disk_read_text(tree, name);
    if (text == NULL) {
        return -ENOENT;
    }
    struct rg_store_object_info found = *info;
    struct rg_attributes *attributes = NULL;
    struct record record = {.info = &found, .size = UINT64_MAX};
    int rc = parse_record(text, &record);
    rc = rc == 0 && (record.size != info->size || !found.has_crc32c) ? -ENOENT : rc;
    rc = rc == 0 ? rg_attributes_create(&attributes, &record.list) : rc;
    rg_text_fini(&record.list);
    free(text);
    if (rc < 0) {
        return -ENOENT;
    }
    *info = found;
    info->attributes = attributes;
    info->has_attributes = attributes != NULL;
    return 0;
}

static void format_record(struct rg_text *text, const struct rg_store_object_info *info)
{
    struct rg_h1_slice name, value;
    rg_text_printf(text,
                   "crc32c %08" PRIx32 "\nsize %" PRIu64 "\nmetageneration %" PRId64
                   "\ncontent-type %s\ncontent-encoding %s\nupdated %" PRId64 "\ndeleted %" PRId64
                   "\n",
                   info->crc32c, info->size, info->metageneration, info->content_type,
                   info->content_encoding, info->updated_us, info->deleted_us);
    if (info->hard_delete_us != 0) {
        rg_text_printf(text, "soft-deleted %" PRId64 "\nhard-delete %" PRId64 "\n",
                       info->soft_deleted_us, info->hard_delete_us);
    }
    if (info->md5[0] != '\0') {
        rg_text_printf(text, "md5 %s\n", info->md5);
    }
    for (size_t at = 0; rg_attributes_next(info->attributes, &at, &name, &value);) {
        rg_text_append_str(text, "attribute ");
        rg_text_append_percent(text, name.data, name.size);
        rg_text_append_str(text, " ");
        rg_text_append_percent(text, value.data, value.size);
        rg_text_append_str(text, "\n");
    }
}

int rg_disk_record_write(struct rg_disk_tree *tree, const char *path,
                         const struct rg_store_object_info *info)
{
    char name[RG_DISK_PATH_MAX];
    struct rg_text text = {0};
    rg_disk_record_path(name, path, info->generation);
    format_record(&text, info);
    int rc = rg_disk_write_text(tree, name, &text);
    rg_text_fini(&text);
    return rc;
}

void rg_disk_record_remove(struct rg_disk_tree *tree, const char *path, int64_t generation)
{
    char name[RG_DISK_PATH_MAX];
    rg_disk_record_path(name, path, generation);
    unlinkat(tree->fd, name, 0);
    rg_disk_remove_parents(tree, name);
}
