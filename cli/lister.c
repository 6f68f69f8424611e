/* The names of a bucket, page by page: see lister.h. */
#include "cli/lister.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int lister_open(struct lister *lister, struct cli_session *session,
                const struct rg_listing_options *options)
{
    *lister = (struct lister){.session = session};
    int rc = rg_cq_open(&lister->cq, session->runtime, 1);
    if (rc < 0) {
        return cli_fail("requests cannot be prepared: %s", strerror(-rc));
    }
    rc = rg_listing_open(&lister->listing, session->client, options);
    if (rc < 0) {
        return cli_fail(
            "gs://%s/%s: %s", options->bucket, options->prefix != NULL ? options->prefix : "",
            rc == -EINVAL ? "Cloud Storage would refuse the name: buckets have lower-case letters, "
                            "digits, - _ "
                            "and ., prefixes at most 1,024 bytes of UTF-8 without line breaks"
                          : strerror(-rc));
    }
    return CLI_DONE;
}

int lister_next(struct lister *lister, const struct rg_list_page **out_page)
{
    rg_lease_release(lister->completion.lease);
    lister->completion.lease = NULL;
    *out_page = NULL;
    int rc = rg_listing_next(lister->listing, lister->cq, 0);
    if (rc < 0) {
        return cli_fail("the listing cannot go on: %s", strerror(-rc));
    }
    while (rg_cq_wait(lister->cq, &lister->completion, 1, 1, RG_FOREVER) != 1) {
        if (cli_interrupted()) {
            rg_cancel(lister->session->client, lister->cq, 0);
        }
    }
    if (lister->completion.status != RG_STATUS_OK) {
        return cli_interrupted() ? cli_fail("interrupted")
                                 : cli_fail("%s", cli_completion_text(&lister->completion));
    }
    const struct rg_list_page *page = lister->completion.data;
    *out_page = page->object_count + page->prefix_count > 0 ? page : NULL;
    return CLI_DONE;
}

void lister_close(struct lister *lister)
{
    rg_lease_release(lister->completion.lease);
    rg_listing_close(lister->listing);
    struct rg_completion rest;
    if (lister->cq != NULL && rg_cq_poll(lister->cq, &rest, 1) == 1) {
        rg_lease_release(rest.lease);
    }
    rg_cq_close(lister->cq);
    *lister = (struct lister){0};
}

static int listed_compare(const void *left, const void *right)
{
    const struct listed *a = left, *b = right;
    return strcmp(a->name, b->name);
}

struct list {
    struct listed *objects;
    size_t count, capacity;
};

static int list_add(struct list *list, const struct rg_object *object)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity * 2 + 64;
        struct listed *grown = realloc(list->objects, capacity * sizeof(*grown));
        if (grown == NULL) {
            return cli_fail("out of memory after %zu names: give a longer prefix", list->count);
        }
        list->objects = grown;
        list->capacity = capacity;
    }
    struct listed *added = &list->objects[list->count];
    *added = (struct listed){
        .name = strdup(object->name), .size = object->size, .generation = object->generation};
    if (added->name == NULL) {
        return cli_fail("out of memory after %zu names: give a longer prefix", list->count);
    }
    snprintf(added->updated, sizeof(added->updated), "%s",
             object->updated != NULL ? object->updated : "");
    list->count++;
    return CLI_DONE;
}

int lister_all(struct cli_session *session, const char *bucket, const char *prefix,
               struct listed **out_objects, size_t *out_count)
{
    struct rg_listing_options options = {.bucket = bucket, .prefix = prefix};
    struct lister lister;
    struct list list = {0};
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, session, &options);
    while (status == CLI_DONE && (status = lister_next(&lister, &page)) == CLI_DONE &&
           page != NULL) {
        for (size_t i = 0; status == CLI_DONE && i < page->object_count; i++) {
            status = list_add(&list, &page->objects[i]);
        }
    }
    lister_close(&lister);
    if (list.count > 0) {
        qsort(list.objects, list.count, sizeof(*list.objects), listed_compare);
    }
    *out_objects = list.objects;
    *out_count = list.count;
    return status;
}

void listed_free(struct listed *objects, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(objects[i].name);
    }
    free(objects);
}
