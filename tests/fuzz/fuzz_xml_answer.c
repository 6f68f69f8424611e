/* Answers in XML: whatever they are, texts end and fit; and what is appended as text is read back
 * as it was. The same bytes as a list of uploads: its texts lie in the block. */
#include "gcs/wire/uploads_parser.h"
#include "gcs/wire/xml_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, const char *begin, size_t size)
{
    RG_ASSERT(text >= begin && text < begin + size && *text != '\0');
    RG_ASSERT(memchr(text, '\0', (size_t)(begin + size - text)) != NULL);
}

static void read_uploads(const uint8_t *data, size_t size)
{
    struct rg_uploads_page *page;
    const char *problem = NULL;
    size_t memory_size = rg_uploads_page_size_bound(size);
    char *memory = malloc(memory_size);
    RG_ASSERT(memory != NULL);
    if (rg_uploads_page_parse((const char *)data, size, memory, memory_size, &page, &problem) < 0) {
        RG_ASSERT(problem != NULL);
    } else {
        for (size_t i = 0; i < page->count; i++) {
            check_text(page->uploads[i].object, memory, memory_size);
            check_text(page->uploads[i].id, memory, memory_size);
        }
    }
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size <= RG_UPLOADS_BODY_SIZE_MAX) {
        read_uploads(data, size);
    }
    struct rg_xml_answer answer;
    if (rg_xml_answer_parse((const char *)data, size, &answer) != 0) {
        return 0;
    }
    RG_ASSERT(strlen(answer.root) < sizeof(answer.root) && answer.root[0] != '\0');
    RG_ASSERT(strlen(answer.upload_id) < sizeof(answer.upload_id));
    RG_ASSERT(strlen(answer.code) < sizeof(answer.code));
    RG_ASSERT(strlen(answer.message) < sizeof(answer.message));
    char again[6 * RG_XML_TEXT_SIZE_MAX] = "<a><UploadId>";
    size_t used = strlen(again);
    RG_ASSERT(rg_xml_append_text(again, sizeof(again), &used, answer.upload_id));
    used += (size_t)snprintf(again + used, sizeof(again) - used, "</UploadId></a>");
    struct rg_xml_answer second;
    RG_ASSERT(rg_xml_answer_parse(again, used, &second) == 0);
    /* White space apart, which XML normalizes at line ends. */
    RG_ASSERT(strchr(answer.upload_id, '\r') != NULL ||
              strcmp(second.upload_id, answer.upload_id) == 0);
    return 0;
}
