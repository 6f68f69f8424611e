/* Answers to batch requests: the first line is a Content-Type and the rest the body. What is
 * accepted has a status for some of the parts and 0 for the others, and says the same when all its
 * line ends are bare. */
#include "gcs/wire/batch_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int parse(const char *body, size_t size, const char *boundary, uint16_t *statuses)
{
    const char *problem = NULL;
    struct rg_batch_part parts[COUNT];
    int rc = rg_batch_answer_parse(body, size, boundary, parts, COUNT, &problem);
    RG_ASSERT(rc == 0 || (rc == -EBADMSG && problem != NULL));
    for (unsigned i = 0; i < COUNT; i++) {
        const struct rg_h1_slice *message = &parts[i].message;
        statuses[i] = parts[i].http_status;
        RG_ASSERT(message->size == 0 ||
                  (message->data >= body && message->data + message->size <= body + size));
    }
    for (unsigned i = 0; rc == 0 && i < COUNT; i++) {
        RG_ASSERT(statuses[i] == 0 || (statuses[i] >= 100 && statuses[i] <= 999));
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *end = size > 0 ? memchr(text, '\n', size) : NULL;
    if (end == NULL) {
        return 0;
    }
    char boundary[RG_BOUNDARY_SIZE_MAX + 1];
    struct rg_h1_slice type = {text, (uint32_t)(end - text)};
    int boundary_size = rg_batch_boundary_parse(type, boundary);
    if (boundary_size < 0) {
        return 0;
    }
    RG_ASSERT(strlen(boundary) == (size_t)boundary_size);
    /* In memory of its own, so that a read behind its end is seen. */
    size_t body_size = size - (size_t)(end + 1 - text), bare_size = 0;
    char *body = malloc(body_size + 1), *bare = malloc(body_size + 1);
    RG_ASSERT(body != NULL && bare != NULL);
    memcpy(body, end + 1, body_size);
    for (size_t i = 0; i < body_size; i++) {
        if (body[i] != '\r') {
            bare[bare_size++] = body[i];
        }
    }
    uint16_t statuses[COUNT], bare_statuses[COUNT];
    int rc = parse(body, body_size, boundary, statuses);
    int bare_rc = parse(bare, bare_size, boundary, bare_statuses);
    bool has_lone_cr = bare_size < body_size && memmem(body, body_size, "\r\r", 2) != NULL;
    for (size_t i = 0; i + 1 < body_size; i++) {
        has_lone_cr |= body[i] == '\r' && body[i + 1] != '\n';
    }
    if (!has_lone_cr && body_size > 0 && body[body_size - 1] != '\r') {
        RG_ASSERT(rc == bare_rc);
        RG_ASSERT(rc < 0 || memcmp(statuses, bare_statuses, sizeof(statuses)) == 0);
    }
    free(body);
    free(bare);
    return 0;
}
