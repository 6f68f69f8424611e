/* Resources of objects, answers to steps of a copy, and permissions. What is accepted lies in the
 * block, and its texts end there; a block of the bound's size is always enough. */
#include "gcs/wire/object_resource.h"

#include <stdlib.h>
#include <string.h>

#define NAMES "storage.objects.get\0storage.objects.list"
#define NAME_COUNT 2

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct block {
    char *data;
    size_t size;
};

static void check_text(const struct block *block, const char *text)
{
    if (text != NULL) {
        RG_ASSERT(text >= block->data && text < block->data + block->size);
        size_t room = (size_t)(block->data + block->size - text);
        RG_ASSERT(strnlen(text, room) < room);
    }
}

static void check_info(const struct block *block, const struct rg_object_info *info)
{
    const char *const texts[] = {info->bucket,
                                 info->object.updated,
                                 info->content_type,
                                 info->content_encoding,
                                 info->cache_control,
                                 info->storage_class,
                                 info->etag,
                                 info->time_created,
                                 info->md5};
    RG_ASSERT(info->object.name != NULL && info->object.name[0] != '\0');
    RG_ASSERT(info->object.generation >= 0 && info->metageneration >= 0);
    check_text(block, info->object.name);
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        check_text(block, texts[i]);
    }
    for (size_t i = 0; i < info->metadata_count; i++) {
        check_text(block, info->metadata[i].key);
        check_text(block, info->metadata[i].value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > RG_RESOURCE_BODY_SIZE_MAX) {
        return 0;
    }
    const char *body = (const char *)data, *problem = NULL;
    struct block block = {.size = rg_object_info_size_bound(size)};
    block.data = malloc(block.size);
    RG_ASSERT(block.data != NULL);
    struct rg_object_info *info;
    int rc = rg_object_info_parse(body, size, block.data, block.size, &info, &problem);
    RG_ASSERT(rc == 0 || (rc == -EBADMSG && problem != NULL));
    if (rc == 0) {
        check_info(&block, info);
    }
    struct rg_rewrite_answer answer;
    rc = rg_rewrite_answer_parse(body, size, block.data, block.size, &answer, &problem);
    RG_ASSERT(rc == 0 || (rc == -EBADMSG && problem != NULL));
    if (rc == 0) {
        RG_ASSERT(answer.done == (answer.info != NULL) && answer.done == (answer.token == NULL));
        check_text(&block, answer.token);
    }
    if (rc == 0 && answer.done) {
        check_info(&block, answer.info);
    }
    bool granted[NAME_COUNT];
    rc = rg_permissions_parse(body, size, block.data, block.size, NAMES, NAME_COUNT, granted,
                              &problem);
    RG_ASSERT(rc == 0 || (rc == -EBADMSG && problem != NULL));
    struct rg_rewrite_said said = {0};
    if (rg_rewrite_say(body, size, "NEARLINE", true, &said) == 0) {
        RG_ASSERT(said.body_size == strlen(said.body));
        RG_ASSERT(said.kms_key == NULL || strstr(said.kms_key, "/cryptoKeyVersions/") == NULL);
    }
    rg_rewrite_said_fini(&said);
    free(block.data);
    return 0;
}
