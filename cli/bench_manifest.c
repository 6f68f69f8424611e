/* The objects that a benchmark reads or lists: see bench_manifest.h. */
#include "cli/bench_manifest.h"

#include "cli/hash_text.h"
#include "cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int manifest_add(struct bench_manifest *manifest, const struct rg_object *object)
{
    if (manifest->count == manifest->capacity) {
        size_t capacity = RG_MAX(2 * manifest->capacity, (size_t)1024);
        struct bench_manifest_entry *grown =
            realloc(manifest->entries, capacity * sizeof(*manifest->entries));
        if (grown == NULL) {
            return cli_fail("no memory for %zu names", capacity);
        }
        manifest->entries = grown;
        manifest->capacity = capacity;
    }
    char *name = strdup(object->name);
    if (name == NULL) {
        return cli_fail("no memory for %zu names", manifest->count + 1);
    }
    manifest->entries[manifest->count++] = (struct bench_manifest_entry){
        .name = name,
        .size = object->size,
        .generation = object->generation,
        .crc32c = object->crc32c,
        .has_crc32c = object->has_crc32c,
    };
    return CLI_DONE;
}

static int manifest_page(struct bench_manifest *manifest, const struct cli_uri *uri,
                         struct cli_session *session, char **token)
{
    struct rg_list_request request = {
        .bucket = uri->bucket,
        .prefix = uri->name,
        .page_token = *token,
    };
    int rc = rg_submit_list(session->client, session->cq, &request);
    free(*token);
    *token = NULL;
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", uri->bucket, uri->name, strerror(-rc));
    }
    struct rg_completion completion;
    if (!cli_wait_one(session, &completion)) {
        return CLI_FAILED; /* interrupted, as the command says */
    }
    int status = CLI_DONE;
    if (completion.status != RG_STATUS_OK) {
        status = cli_fail("%s", cli_completion_text(&completion));
    } else {
        const struct rg_list_page *page = completion.data;
        for (size_t i = 0; i < page->object_count && status == CLI_DONE; i++) {
            status = manifest_add(manifest, &page->objects[i]);
        }
        *token = page->next_page_token != NULL ? strdup(page->next_page_token) : NULL;
    }
    rg_lease_release(completion.lease);
    return status;
}

static int entries_compare(const void *a, const void *b)
{
    const struct bench_manifest_entry *first = a, *second = b;
    return strcmp(first->name, second->name);
}

int bench_manifest_load(struct bench_manifest *manifest, const struct bench_options *options,
                        struct cli_session *session)
{
    /* Of list, the count is one of pages. */
    uint64_t most = options->op == BENCH_LIST ? 0 : options->count;
    char *token = NULL;
    int status;
    struct progress progress;
    progress_open(&progress, "objects listed", !options->shows_progress);
    do {
        status = manifest_page(manifest, &options->uri, session, &token);
        progress_draw(&progress, &(struct progress_state){.done = manifest->count});
    } while (status == CLI_DONE && token != NULL && (most == 0 || manifest->count < most));
    free(token);
    progress_close(&progress);
    if (status == CLI_DONE && manifest->count == 0) {
        status = cli_fail("nothing in gs://%s begins with \"%s\"; put objects there, or start "
                          "`ringest emulate --synthetic %s/%s:COUNT:SIZE`",
                          options->uri.bucket, options->uri.name, options->uri.bucket,
                          options->uri.name);
    }
    if (options->op == BENCH_LIST && manifest->count > 0) {
        qsort(manifest->entries, manifest->count, sizeof(*manifest->entries), entries_compare);
    }
    return status;
}

void bench_manifest_free(struct bench_manifest *manifest)
{
    for (size_t i = 0; i < manifest->count; i++) {
        free(manifest->entries[i].name);
    }
    free(manifest->entries);
}

uint64_t bench_manifest_largest(const struct bench_manifest *manifest)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < manifest->count; i++) {
        largest = RG_MAX(largest, manifest->entries[i].size);
    }
    return largest;
}

bool bench_manifest_differs(const struct bench_manifest_entry *entry, const char *bucket,
                            const struct rg_completion *completion, char *text, size_t text_size)
{
    int at = snprintf(text, text_size, "gs://%s/%s: ", bucket, entry->name);
    RG_ASSERT(at > 0 && (size_t)at < text_size);
    text += at;
    text_size -= (size_t)at;
    if (completion->generation != entry->generation) {
        snprintf(text, text_size,
                 "replaced since it was listed: generation %" PRId64 ", now %" PRId64,
                 entry->generation, completion->generation);
    } else if (completion->size != entry->size) {
        snprintf(text, text_size, "%" PRIu64 " bytes, listed with %" PRIu64, completion->size,
                 entry->size);
    } else if (!entry->has_crc32c) {
        snprintf(text, text_size, "the listing has no CRC32C to compare with");
    } else if (completion->crc32c != entry->crc32c) {
        snprintf(text, text_size, "CRC32C %s, listed with %s", CRC32C_TEXT(completion->crc32c),
                 CRC32C_TEXT(entry->crc32c));
    } else {
        return false;
    }
    return true;
}

static bool object_differs(struct bench_manifest *manifest, uint64_t listing,
                           const struct rg_object *object, char *text, size_t text_size)
{
    /* Only compared: nobody writes to it. */
    struct bench_manifest_entry wanted = {.name = (char *)(uintptr_t)object->name};
    struct bench_manifest_entry *entry = bsearch(&wanted, manifest->entries, manifest->count,
                                                 sizeof(*manifest->entries), entries_compare);
    if (entry == NULL) {
        snprintf(text, text_size, "is listed, and was not before");
        return true;
    }
    bool came = entry->listing == listing;
    entry->listing = listing;
    if (came) {
        snprintf(text, text_size, "came twice in one listing");
    } else if (object->generation != entry->generation) {
        snprintf(text, text_size,
                 "replaced since it was listed before: generation %" PRId64 ", now %" PRId64,
                 entry->generation, object->generation);
    } else if (object->size != entry->size) {
        snprintf(text, text_size, "is listed with %" PRIu64 " bytes, and was with %" PRIu64,
                 object->size, entry->size);
    } else {
        return false;
    }
    return true;
}

bool bench_manifest_page_differs(struct bench_manifest *manifest, const char *bucket,
                                 uint64_t listing, const struct rg_list_page *page, char *text,
                                 size_t text_size)
{
    char what[160];
    bool any = false;
    for (size_t i = 0; i < page->object_count; i++) {
        bool differs = object_differs(manifest, listing, &page->objects[i], what, sizeof(what));
        if (differs && !any) {
            snprintf(text, text_size, "gs://%s/%s: %s", bucket, page->objects[i].name, what);
        }
        any = any || differs;
    }
    return any;
}

bool bench_manifest_lacks(const struct bench_manifest *manifest, const char *bucket,
                          uint64_t listing, char *text, size_t text_size)
{
    size_t lacking = 0, first = 0;
    for (size_t i = manifest->count; i-- > 0;) {
        if (manifest->entries[i].listing != listing) {
            lacking++;
            first = i;
        }
    }
    if (lacking > 0) {
        snprintf(text, text_size,
                 "gs://%s/%s: was listed before and is not now; %zu of %zu names are missing",
                 bucket, manifest->entries[first].name, lacking, manifest->count);
    }
    return lacking > 0;
}
