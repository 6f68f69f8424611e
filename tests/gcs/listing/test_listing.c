/* A listing as its caller sees it: what is asked for, how it ends, and what is refused. That every
 * name comes once is shown by sim/listing. */
#include "gcs/listing/listing.h"
#include "gcs/listing/question.h"
#include "tests/gcs/listing/page_case.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

static struct rg_listing *listing_open(struct rg_test_client *c,
                                       const struct rg_listing_options *options)
{
    struct rg_listing_options own = *options;
    struct rg_listing *listing;
    own.bucket = own.bucket != NULL ? own.bucket : "bucket";
    RG_CHECK_EQ(rg_listing_open(&listing, c->client, &own), 0);
    return listing;
}

static struct rg_completion next_take(struct rg_test_client *c, struct rg_listing *listing)
{
    RG_CHECK_EQ(rg_listing_next(listing, c->cq, 5), 0);
    struct rg_completion done = rg_test_take(c);
    RG_CHECK_EQ(done.user_data, 5);
    return done;
}

/* Takes a page of so many names; of none is the end. */
static void page_take(struct rg_test_client *c, struct rg_listing *listing, size_t count)
{
    struct rg_completion done = next_take(c, listing);
    RG_CHECK_STATUS(&done, OK);
    const struct rg_list_page *page = done.data;
    RG_CHECK_EQ(page->object_count, count);
    RG_CHECK_EQ(page->prefix_count, 0);
    RG_CHECK(page->next_page_token == NULL);
    rg_lease_release(done.lease);
}

/* What fits one page costs one request, and a plain one. */
static void test_a_hundred_names_are_one_request(void)
{
    char *answer = page_answer_make(0, 100, NULL);
    const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_listing *listing = listing_open(&c, &(struct rg_listing_options){.prefix = "n"});
    page_take(&c, listing, 100);
    page_take(&c, listing, 0);
    page_take(&c, listing, 0);
    RG_CHECK_EQ(rg_test_stats(&c).requests, 1);
    const char *head = rg_scripted_server_head(c.server, 0);
    RG_CHECK_CONTAINS(head, "&maxResults=1000&prefix=n HTTP/1.1\r\n");
    rg_listing_close(listing);
    rg_test_client_close(&c);
    free(answer);
}

static void test_one_page_after_the_other(void)
{
    char *first = page_answer_make(0, 3, "t1"), *second = page_answer_make(3, 2, NULL);
    const struct rg_step script[] = {RG_READ, RG_SEND(first), RG_READ, RG_SEND(second), RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_listing *listing =
        listing_open(&c, &(struct rg_listing_options){.requests_max = 1, .results_max = 3});
    page_take(&c, listing, 3);
    page_take(&c, listing, 2);
    page_take(&c, listing, 0);
    RG_CHECK_EQ(rg_test_stats(&c).requests, 2);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 1), "&maxResults=3&pageToken=t1 HTTP/1.1");
    rg_listing_close(listing);
    rg_test_client_close(&c);
    free(first);
    free(second);
}

static void test_everything_that_can_be_asked_for(void)
{
    char *answer = page_answer_make(0, 1, NULL);
    const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_listing *listing = listing_open(&c, &(struct rg_listing_options){
                                                      .prefix = "n",
                                                      .delimiter = "/",
                                                      .glob = "n*[0-9]",
                                                      .start_offset = "a#",
                                                      .end_offset = "z\n",
                                                      .versions = true,
                                                      .folders_as_prefixes = true,
                                                  });
    page_take(&c, listing, 1);
    const char *head = rg_scripted_server_head(c.server, 0);
    RG_CHECK_CONTAINS(head, "&matchGlob=n%2A%5B0-9%5D&versions=true&includeFoldersAsPrefixes=true"
                            "&startOffset=a%23&endOffset=z%0A HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(head, "&delimiter=%2F&");
    rg_listing_close(listing);
    rg_test_client_close(&c);
    free(answer);
}

/* The first failure ends it, and every call from then on says so. */
static void test_a_failure_is_told_every_time(void)
{
    const struct rg_step script[] = {
        RG_READ, RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_listing *listing = listing_open(&c, &(struct rg_listing_options){.prefix = "p/"});
    for (unsigned i = 0; i < 3; i++) {
        struct rg_completion done = next_take(&c, listing);
        RG_CHECK_STATUS(&done, NOT_FOUND);
        RG_CHECK_EQ(done.http_status, 404);
        RG_CHECK_CONTAINS(done.detail, "list gs://bucket/p/ at ");
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(rg_test_stats(&c).requests, 1);
    rg_listing_close(listing);
    rg_test_client_close(&c);
}

static void test_answers_that_do_not_belong_to_the_question(void)
{
    char *answer = page_answer_make(0, 3, NULL);
    memcpy(strstr(answer, "n0001"), "n9001", 5);
    const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_listing *listing = listing_open(&c, &(struct rg_listing_options){.ordered = true});
    struct rg_completion done = next_take(&c, listing);
    RG_CHECK_STATUS(&done, BAD_RESPONSE);
    RG_CHECK_CONTAINS(done.detail, "the answer has names that are not in order");
    rg_lease_release(done.lease);
    rg_listing_close(listing);
    rg_test_client_close(&c);
    free(answer);
}

static void test_closing_ends_the_page_that_is_out(void)
{
    const struct rg_step script[] = {RG_READ, RG_HOLD};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_listing *listing = listing_open(&c, &(struct rg_listing_options){0});
    RG_CHECK_EQ(rg_listing_next(listing, c.cq, 5), 0);
    RG_CHECK_EQ(rg_listing_next(listing, c.cq, 6), -EBUSY);
    RG_CHECK(rg_test_is_quiet(&c, 20));
    rg_listing_close(listing);
    struct rg_completion done;
    RG_CHECK_EQ(rg_cq_poll(c.cq, &done, 1), 1);
    RG_CHECK_EQ(done.user_data, 5);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

/* A page that is not waited for any more is there for the next call. */
static void test_a_cancelled_call_loses_no_page(void)
{
    char *answer = page_answer_make(0, 4, NULL);
    const struct rg_step script[] = {RG_READ, RG_SLEEP(100), RG_SEND(answer), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_listing *listing = listing_open(&c, &(struct rg_listing_options){0});
    RG_CHECK_EQ(rg_listing_next(listing, c.cq, 5), 0);
    RG_CHECK_EQ(rg_cancel(c.client, c.cq, 5), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    page_take(&c, listing, 4);
    page_take(&c, listing, 0);
    rg_listing_close(listing);
    rg_test_client_close(&c);
    free(answer);
}

static void test_listings_that_are_refused_at_once(void)
{
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    const struct rg_listing_options bad[] = {
        {.bucket = NULL},
        {.bucket = ""},
        {.bucket = "B!"},
        {.bucket = "bucket", .results_max = RG_LIST_RESULTS_MAX + 1},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        struct rg_listing *listing;
        RG_CHECK_EQ(rg_listing_open(&listing, c.client, &bad[i]), -EINVAL);
    }
    rg_listing_close(NULL);
    struct rg_listing *unused = listing_open(&c, &(struct rg_listing_options){0});
    rg_listing_close(unused);
    rg_test_client_close(&c);
}

static void test_folder_markers_are_empty_and_end_in_a_slash(void)
{
    static const struct {
        const char *name;
        uint64_t size;
        bool is_marker;
    } cases[] = {
        {"a/", 0, true}, {"a/b/", 0, true}, {"/", 0, true}, {"a", 0, false}, {"a/", 1, false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_object object = {.name = cases[i].name, .size = cases[i].size};
        RG_CHECK_EQ(rg_object_is_folder_marker(&object), cases[i].is_marker);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_hundred_names_are_one_request),
        RG_TEST(test_one_page_after_the_other),
        RG_TEST(test_everything_that_can_be_asked_for),
        RG_TEST(test_a_failure_is_told_every_time),
        RG_TEST(test_answers_that_do_not_belong_to_the_question),
        RG_TEST(test_closing_ends_the_page_that_is_out),
        RG_TEST(test_a_cancelled_call_loses_no_page),
        RG_TEST(test_listings_that_are_refused_at_once),
        RG_TEST(test_folder_markers_are_empty_and_end_in_a_slash),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
