/* Pages of listings and resources of objects. A body that is accepted gives strings that lie in the
 * block, end there, and are UTF-8; a block of the bound's size is as good as a larger one, and a
 * smaller one gives the same page or says that it is too small. */
#include "gcs/wire/list_parser.h"
#include "gcs/wire/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_string(const char *string, const char *block, size_t block_size)
{
    RG_ASSERT(string >= block && string < block + block_size);
    size_t left = strnlen(string, (size_t)(block + block_size - string));
    RG_ASSERT(string + left < block + block_size);
    while (left > 0) {
        uint32_t code;
        int used = rg_utf8_decode(string, left, &code);
        RG_ASSERT(used > 0);
        string += used;
        left -= (size_t)used;
    }
}

static void check_page(const struct rg_list_page *page, const char *block, size_t block_size)
{
    for (size_t i = 0; i < page->object_count; i++) {
        const struct rg_object *object = &page->objects[i];
        check_string(object->name, block, block_size);
        RG_ASSERT(object->name[0] != '\0' && object->generation >= 0);
        if (object->updated != NULL) {
            check_string(object->updated, block, block_size);
        }
    }
    for (size_t i = 0; i < page->prefix_count; i++) {
        check_string(page->prefixes[i], block, block_size);
    }
    if (page->next_page_token != NULL) {
        check_string(page->next_page_token, block, block_size);
    }
}

static int parse_in(const char *body, size_t body_size, size_t block_size)
{
    char *block = malloc(block_size);
    RG_ASSERT(block != NULL);
    struct rg_list_page *page;
    const char *problem;
    int status = rg_list_page_parse(body, body_size, block, block_size, &page, &problem);
    if (status == 0) {
        check_page(page, block, block_size);
    } else {
        RG_ASSERT(status == -ENOSPC || (status == -EBADMSG && problem[0] != '\0'));
    }
    free(block);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *body = (const char *)data;
    size_t bound = rg_list_page_size_bound(size);
    int plenty = parse_in(body, size, 3 * bound);
    int enough = parse_in(body, size, bound);
    int little = parse_in(body, size, bound / 3);
    RG_ASSERT(plenty != -ENOSPC && enough == plenty);
    RG_ASSERT(little == plenty || little == -ENOSPC);
    struct rg_object_resource resource;
    const char *problem;
    (void)rg_object_resource_parse(body, size, &resource, &problem);
    return 0;
}
