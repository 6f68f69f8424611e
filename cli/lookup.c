/* What stands under names in a bucket: see lookup.h. */
#include "cli/lookup.h"

#include <stdlib.h>
#include <string.h>

/* Empty pages in a row that lead to themselves. */
#define REPEATS_MAX 50
/* Generations are microseconds since 1970. */
#define GENERATION_DIGITS_MIN 10

/* Asks for one page, the first one of names from page_start on or the one that the token leads to.
 */
static int page_ask(struct lookup *lookup, const char *token)
{
    struct rg_list_request request = {.bucket = lookup->bucket,
                                      .start_offset = lookup->page_start,
                                      .page_token = token,
                                      .results_max = lookup->page_size};
    int rc = rg_submit_list(lookup->session->client, lookup->cq, &request);
    rg_lease_release(lookup->completion.lease);
    lookup->completion.lease = NULL;
    lookup->page = NULL;
    if (rc < 0) {
        /* A name that the service allows nowhere is refused when it is to be written. */
        return CLI_DONE;
    }
    while (rg_cq_wait(lookup->cq, &lookup->completion, 1, 1, RG_FOREVER) != 1) {
        if (cli_interrupted()) {
            rg_cancel(lookup->session->client, lookup->cq, 0);
        }
    }
    enum rg_status status = lookup->completion.status;
    lookup->is_forbidden = status == RG_STATUS_PERMISSION || status == RG_STATUS_UNAUTHENTICATED;
    if (status == RG_STATUS_NOT_FOUND) {
        /* No bucket. Writing tells what is to be done about that; emulators make one then. */
        static const struct rg_list_page nothing;
        lookup->has_no_bucket = true;
        lookup->page = &nothing;
        lookup->page_start[0] = '\0';
        return CLI_DONE;
    }
    if (status != RG_STATUS_OK && !lookup->is_forbidden) {
        return cli_interrupted() ? CLI_FAILED
                                 : cli_fail("%s", cli_completion_text(&lookup->completion));
    }
    lookup->page = lookup->is_forbidden ? NULL : lookup->completion.data;
    return CLI_DONE;
}

/* A page may be empty and still lead to another: only one that has a name, or leads nowhere, tells
 * what is there. */
static int lookup_page(struct lookup *lookup, const char *name)
{
    char *token = NULL;
    unsigned repeats = 0;
    free(lookup->page_start);
    lookup->page_start = strdup(name);
    lookup->index = 0;
    int status = lookup->page_start != NULL ? CLI_DONE : cli_fail("no memory");
    for (bool more = status == CLI_DONE; more;) {
        status = page_ask(lookup, token);
        const char *next = lookup->page != NULL && lookup->page->object_count == 0
                               ? lookup->page->next_page_token
                               : NULL;
        more = status == CLI_DONE && next != NULL;
        repeats = more && token != NULL && strcmp(token, next) == 0 ? repeats + 1 : 0;
        free(token);
        token = more ? strdup(next) : NULL;
        if (more && (token == NULL || repeats > REPEATS_MAX)) {
            status =
                cli_fail("%s", token == NULL ? "no memory"
                                             : "the server repeats pages of the bucket's listing");
            more = false;
        }
    }
    free(token);
    return status;
}

static bool page_covers(const struct lookup *lookup, const char *name)
{
    const struct rg_list_page *page = lookup->page;
    if (page == NULL || strcmp(name, lookup->page_start) < 0) {
        return false;
    }
    return page->next_page_token == NULL ||
           (page->object_count > 0 &&
            strcmp(name, page->objects[page->object_count - 1].name) <= 0);
}

int lookup_find(struct lookup *lookup, const char *name, struct there *out_there)
{
    *out_there = (struct there){0};
    if (lookup->session == NULL || lookup->is_forbidden || *name == '\0') {
        return CLI_DONE;
    }
    if (!page_covers(lookup, name)) {
        int status = lookup_page(lookup, name);
        if (status != CLI_DONE || lookup->page == NULL) {
            return status;
        }
    }
    const struct rg_list_page *page = lookup->page;
    if (lookup->index > 0 && strcmp(page->objects[lookup->index - 1].name, name) >= 0) {
        lookup->index = 0;
    }
    while (lookup->index < page->object_count &&
           strcmp(page->objects[lookup->index].name, name) < 0) {
        lookup->index++;
    }
    out_there->is_known = true;
    if (lookup->index < page->object_count &&
        strcmp(page->objects[lookup->index].name, name) == 0) {
        const struct rg_object *object = &page->objects[lookup->index];
        out_there->exists = true;
        out_there->size = object->size;
        out_there->generation = object->generation;
        out_there->crc32c = object->crc32c;
        out_there->has_crc32c = object->has_crc32c;
    }
    return CLI_DONE;
}

int lookup_prefix(struct lookup *lookup, const char *prefix, bool *out_any)
{
    struct there there;
    *out_any = false;
    int status = lookup_find(lookup, prefix, &there);
    const struct rg_list_page *page = lookup->page;
    if (status == CLI_DONE && there.is_known && lookup->index < page->object_count) {
        const char *name = page->objects[lookup->index].name;
        *out_any = strncmp(name, prefix, strlen(prefix)) == 0;
    }
    return status;
}

int lookup_open(struct lookup *lookup, struct cli_session *session, const char *bucket,
                uint32_t page_size)
{
    *lookup = (struct lookup){.session = session, .bucket = bucket, .page_size = page_size};
    int rc = rg_cq_open(&lookup->cq, session->runtime, 1);
    return rc < 0 ? cli_fail("requests cannot be prepared: %s", strerror(-rc)) : CLI_DONE;
}

void lookup_close(struct lookup *lookup)
{
    rg_lease_release(lookup->completion.lease);
    rg_cq_close(lookup->cq);
    free(lookup->page_start);
}

int lookup_one(struct cli_session *session, const struct cli_uri *uri, struct there *out_there)
{
    struct lookup lookup = {0};
    int status = lookup_open(&lookup, session, uri->bucket, 1);
    if (status == CLI_DONE) {
        status = lookup_find(&lookup, uri->name, out_there);
    }
    lookup_close(&lookup);
    return status;
}

int lookup_folder(struct cli_session *session, const char *bucket, const char *name, bool *out_any)
{
    char prefix[RG_OBJECT_NAME_SIZE_MAX + 2];
    size_t size = strlen(name);
    bool has_slash = size > 0 && name[size - 1] == '/';
    snprintf(prefix, sizeof(prefix), "%s%s", name, has_slash ? "" : "/");
    struct lookup lookup = {0};
    *out_any = false;
    int status = lookup_open(&lookup, session, bucket, 1);
    if (status == CLI_DONE) {
        status = lookup_prefix(&lookup, prefix, out_any);
    }
    lookup_close(&lookup);
    return status;
}

const char *lookup_version_hint(const char *name)
{
    const char *mark = strrchr(name, '#');
    size_t digits = mark != NULL ? strspn(mark + 1, "0123456789") : 0;
    return digits >= GENERATION_DIGITS_MIN && mark[1 + digits] == '\0'
               ? "; \"#\" and what follows is taken for a part of the name; an old version is read "
                 "by "
                 "Client.get(uri, generation=...) in Python"
               : "";
}

int lookup_fail(struct cli_session *session, const struct cli_uri *uri,
                const struct rg_completion *done)
{
    bool is_folder = false;
    if (done->status == RG_STATUS_NOT_FOUND) {
        (void)lookup_folder(session, uri->bucket, uri->name, &is_folder);
    }
    if (!is_folder) {
        return cli_fail("%s%s", cli_completion_text(done),
                        done->status == RG_STATUS_NOT_FOUND ? lookup_version_hint(uri->name) : "");
    }
    const char *slash = uri->name[strlen(uri->name) - 1] == '/' ? "" : "/";
    return cli_fail("gs://%s/%s: no such object, but a folder; `ringest ls gs://%s/%s%s` lists it",
                    uri->bucket, uri->name, uri->bucket, uri->name, slash);
}

int lookup_crc32c(struct cli_session *session, const struct cli_uri *uri, int64_t generation,
                  uint64_t size, uint32_t *out_crc32c)
{
    struct there there = {0};
    int status = lookup_one(session, uri, &there);
    if (status != CLI_DONE) {
        return status;
    }
    bool is_same =
        there.exists && there.size == size && (generation == 0 || there.generation == generation);
    if (!is_same || !there.has_crc32c) {
        return cli_fail(
            "gs://%s/%s: the server sends no CRC32C, so what was read cannot be checked",
            uri->bucket, uri->name);
    }
    *out_crc32c = there.crc32c;
    return CLI_DONE;
}
