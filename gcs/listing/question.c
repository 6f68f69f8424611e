/* Checking and copying the options of a listing; see question.h. */
#include "gcs/listing/question.h"

#include "gcs/wire/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_given(const char *text)
{
    return text != NULL && *text != '\0';
}

static bool text_valid(const char *text)
{
    size_t size = is_given(text) ? strlen(text) : 0;
    return size <= RG_OBJECT_NAME_SIZE_MAX && rg_utf8_valid(text, size);
}

static bool options_valid(const struct rg_listing_options *options)
{
    bool cuts_folders = options->delimiter != NULL && strcmp(options->delimiter, "/") == 0;
    if (options->bucket == NULL || strlen(options->bucket) > RG_BUCKET_NAME_SIZE_MAX ||
        options->results_max > RG_LIST_RESULTS_MAX ||
        options->requests_max > RG_LISTING_REQUESTS_LIMIT ||
        (options->folders_as_prefixes && !cuts_folders)) {
        return false;
    }
    const char *const texts[] = {options->bucket, options->prefix,       options->delimiter,
                                 options->glob,   options->start_offset, options->end_offset};
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        if (!text_valid(texts[i])) {
            return false;
        }
    }
    return true;
}

static int text_copy(const char *text, const char **out_copy)
{
    if (!is_given(text)) {
        return 0;
    }
    *out_copy = strdup(text);
    return *out_copy != NULL ? 0 : -ENOMEM;
}

int rg_list_question_copy(struct rg_list_question *question,
                          const struct rg_listing_options *options)
{
    if (!options_valid(options)) {
        return -EINVAL;
    }
    *question = (struct rg_list_question){
        .list.results_max = options->results_max,
        .versions = options->versions,
        .folders_as_prefixes = options->folders_as_prefixes,
    };
    int rc = text_copy(options->bucket, &question->list.bucket);
    rc = rc == 0 ? text_copy(options->prefix, &question->list.prefix) : rc;
    rc = rc == 0 ? text_copy(options->delimiter, &question->list.delimiter) : rc;
    return rc == 0 ? text_copy(options->glob, &question->glob) : rc;
}

void rg_list_question_free(struct rg_list_question *question)
{
    const char *const texts[] = {question->list.bucket, question->list.prefix,
                                 question->list.delimiter, question->glob};
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        free((char *)(uintptr_t)texts[i]);
    }
    *question = (struct rg_list_question){.glob = NULL};
}
