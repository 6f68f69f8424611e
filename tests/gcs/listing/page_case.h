/* Answers to requests for pages, for the tests of whatever asks for them. */
#ifndef RG_TESTS_GCS_LISTING_PAGE_CASE_H
#define RG_TESTS_GCS_LISTING_PAGE_CASE_H

#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>

/* A page of `count` names, from n<first> on; `token` leads to the next, NULL: it is the last. The
 * caller frees it. */
static inline char *page_answer_make(unsigned first, unsigned count, const char *token)
{
    char *body = NULL;
    size_t size;
    FILE *file = open_memstream(&body, &size);
    fprintf(file, "{%s%s%s\"items\":[", token != NULL ? "\"nextPageToken\":\"" : "",
            token != NULL ? token : "", token != NULL ? "\"," : "");
    for (unsigned i = 0; i < count; i++) {
        fprintf(file, "%s{\"name\":\"n%04u\",\"size\":\"3\",\"generation\":\"9\"}",
                i > 0 ? "," : "", first + i);
    }
    fputs("]}", file);
    fclose(file);
    char *answer = malloc(size + 128);
    RG_CHECK(answer != NULL);
    snprintf(answer, size + 128, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", size, body);
    free(body);
    return answer;
}

#endif
