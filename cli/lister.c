/* The names of a bucket, page by page: see lister.h. */
#include "cli/lister.h"

#include <errno.h>
#include <string.h>

int lister_open(struct lister *lister, struct cli_session *session,
                const struct rg_listing_options *options)
{
    *lister = (struct lister){.session = session};
    int rc = rg_cq_open(&lister->cq, session->runtime, 1);
    if (rc < 0) {
        return cli_fail("no completion queue: %s", strerror(-rc));
    }
    rc = rg_listing_open(&lister->listing, session->client, options);
    if (rc < 0) {
        return cli_fail(
            "gs://%s/%s: %s", options->bucket, options->prefix != NULL ? options->prefix : "",
            rc == -EINVAL ? "the service allows no such bucket or prefix" : strerror(-rc));
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
        return cli_fail("the next names cannot be asked for: %s", strerror(-rc));
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
