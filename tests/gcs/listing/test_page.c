/* Pages of a listing: what is asked for, and answers right and wrong. */
#include "tests/support/client.h"
#include "tests/support/test.h"

static void list_submit(struct rg_test_client *c, const struct rg_list_request *list)
{
    struct rg_list_request own = *list;
    own.bucket = own.bucket != NULL ? own.bucket : "bucket";
    RG_CHECK_EQ(rg_submit_list(c->client, c->cq, &own), 0);
}

static char *answer_make(const char *body)
{
    char *answer = NULL;
    RG_CHECK(asprintf(&answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body),
                      body) > 0);
    return answer;
}

static void test_pages(void)
{
    char *first = answer_make(
        "{\"kind\":\"storage#objects\",\"nextPageToken\":\"t/1\",\"prefixes\":[\"a/\"],"
        "\"items\":[{\"name\":\"x\",\"size\":\"5\",\"generation\":\"7\",\"crc32c\":\"xFDWlw==\","
        "\"updated\":\"2026-01-02T03:04:05Z\"}]}");
    char *second = answer_make("{}");
    const struct rg_step script[] = {RG_READ, RG_SEND(first), RG_READ, RG_SEND(second), RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    list_submit(&c, &(struct rg_list_request){.prefix = "p q", .delimiter = "/", .user_data = 3});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.user_data, 3);
    const struct rg_list_page *page = done.data;
    RG_CHECK_EQ(page->object_count, 1);
    RG_CHECK_STR(page->objects[0].name, "x");
    RG_CHECK_EQ(page->objects[0].size, 5);
    RG_CHECK_EQ(page->objects[0].generation, 7);
    RG_CHECK(page->objects[0].has_crc32c);
    RG_CHECK_EQ(page->objects[0].crc32c, 0xc450d697);
    RG_CHECK_STR(page->objects[0].updated, "2026-01-02T03:04:05Z");
    RG_CHECK_EQ(page->prefix_count, 1);
    RG_CHECK_STR(page->prefixes[0], "a/");
    RG_CHECK_STR(page->next_page_token, "t/1");
    list_submit(&c, &(struct rg_list_request){.prefix = "p q",
                                              .delimiter = "/",
                                              .page_token = page->next_page_token,
                                              .results_max = 10,
                                              .start_offset = "a",
                                              .end_offset = "z"});
    rg_lease_release(done.lease);
    done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    page = done.data;
    RG_CHECK_EQ(page->object_count, 0);
    RG_CHECK_EQ(page->prefix_count, 0);
    RG_CHECK(page->next_page_token == NULL);
    rg_lease_release(done.lease);
    const char *head = rg_scripted_server_head(c.server, 0);
    RG_CHECK_CONTAINS(head, "GET /storage/v1/b/bucket/o?");
    RG_CHECK_CONTAINS(head, "&maxResults=1000&prefix=p%20q&delimiter=%2F HTTP/1.1\r\n");
    head = rg_scripted_server_head(c.server, 1);
    RG_CHECK_CONTAINS(head, "&maxResults=10&");
    RG_CHECK_CONTAINS(head, "&startOffset=a&endOffset=z&pageToken=t%2F1 ");
    rg_test_client_close(&c);
    free(first);
    free(second);
}

static void test_answers_that_are_no_page(void)
{
    static const char *const bodies[] = {"",
                                         "hello",
                                         "[]",
                                         "{\"items\":[{\"name\":\"x\"}",
                                         "{\"items\":5}",
                                         "{\"items\":[{\"size\":\"-1\"}]}"};
    for (size_t i = 0; i < RG_ARRAY_LEN(bodies); i++) {
        char *answer = answer_make(bodies[i]);
        const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        rg_test_client_open(&c);
        list_submit(&c, &(struct rg_list_request){.prefix = "p/"});
        struct rg_completion done = rg_test_take(&c);
        RG_CHECK_STATUS(&done, BAD_RESPONSE);
        RG_CHECK_CONTAINS(done.detail, "list gs://bucket/p/ at ");
        RG_CHECK(done.data == NULL);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
        free(answer);
    }
}

/* A page that breaks off is read again as a whole. */
static void test_page_cut_is_read_again(void)
{
    char *page = answer_make("{\"items\":[{\"name\":\"x\",\"size\":\"5\",\"generation\":\"7\"}]}");
    const struct rg_step cut[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{\"items\":["), RG_CUT};
    const struct rg_step chunked[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"ite\r\n"),
        RG_CUT};
    const struct rg_step busy[] = {RG_READ,
                                   RG_SEND("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
                                   RG_READ, RG_SEND(page), RG_END};
    const struct rg_step *const scripts[] = {cut, chunked, busy};
    struct rg_test_client c = {.scripts = scripts, .script_count = 3};
    rg_test_client_open(&c);
    list_submit(&c, &(struct rg_list_request){0});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.attempts, 4);
    RG_CHECK_EQ(((const struct rg_list_page *)done.data)->object_count, 1);
    RG_CHECK(strcasestr(rg_scripted_server_head(c.server, 1), "Range:") == NULL);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    free(page);
}

/* An answer of a thousand objects, in chunks. `padding`: bytes more of each, which nobody reads. */
static char *thousand_make(int padding)
{
    char *body = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&body, &size);
    fputs("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", file);
    fputs("a\r\n{\"items\":[\r\n", file);
    for (unsigned i = 0; i < 1000; i++) {
        char item[1024];
        int item_size = snprintf(item, sizeof(item),
                                 "%s{\"name\":\"train/%08u\",\"size\":\"%u\",\"generation\":\"%u\","
                                 "\"selfLink\":\"%*s\"}",
                                 i > 0 ? "," : "", i, i * 3, i + 1, padding, "");
        fprintf(file, "%x\r\n%s\r\n", item_size, item);
    }
    fputs("2\r\n]}\r\n0\r\n\r\n", file);
    fclose(file);
    return body;
}

static void test_page_of_a_thousand_objects_in_chunks(void)
{
    char *body = thousand_make(0);
    const struct rg_step script[] = {RG_READ, RG_SEND(body), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    for (unsigned tls = 0; tls < 2; tls++) {
        struct rg_test_client c = {.scripts = scripts, .script_count = 1, .tls = tls == 1};
        rg_test_client_open(&c);
        list_submit(&c, &(struct rg_list_request){0});
        struct rg_completion done = rg_test_take(&c);
        RG_CHECK_STATUS(&done, OK);
        const struct rg_list_page *page = done.data;
        RG_CHECK_EQ(page->object_count, 1000);
        RG_CHECK_STR(page->objects[999].name, "train/00000999");
        RG_CHECK_EQ(page->objects[999].size, 2997);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
    free(body);
}

#define CROWD 100

/* A client whose memory few pages fill, and pages that the caller has not released. */
struct crowd {
    struct rg_test_client c;
    char *body;
    struct rg_step script[3];
    const struct rg_step *scripts[1];
    struct rg_completion kept[CROWD];
    unsigned kept_count;
    uint64_t waits; /* for memory, before those that are looked for */
};

static void crowd_open(struct crowd *crowd, int padding)
{
    *crowd = (struct crowd){.body = thousand_make(padding)};
    const struct rg_step script[] = {RG_READ, RG_SEND(crowd->body), RG_AGAIN};
    memcpy(crowd->script, script, sizeof(script));
    crowd->scripts[0] = crowd->script;
    crowd->c = (struct rg_test_client){
        .scripts = crowd->scripts, .script_count = 1, .memory_max = RG_MIB(4)};
    crowd->c.options.connections_max = 1;
    rg_test_client_open(&crowd->c);
}

/* Keeps the next page. False: it waits for memory, or what was released has not led to it yet. */
static bool crowd_take(struct crowd *crowd)
{
    struct rg_completion *next = &crowd->kept[crowd->kept_count];
    uint64_t begun_ns = 0;
    RG_CHECK(crowd->kept_count < CROWD);
    while (rg_cq_poll(crowd->c.cq, next, 1) == 0) {
        if (rg_test_stats(&crowd->c).lease_waits > crowd->waits) {
            return false;
        }
        RG_CHECK(rg_test_go_on_waiting(&begun_ns));
    }
    RG_CHECK_STATUS(next, OK);
    RG_CHECK_EQ(((const struct rg_list_page *)next->data)->object_count, 1000);
    crowd->kept_count++;
    return true;
}

static void crowd_release(struct crowd *crowd)
{
    while (crowd->kept_count > 0) {
        rg_lease_release(crowd->kept[--crowd->kept_count].lease);
    }
}

static void crowd_close(struct crowd *crowd)
{
    crowd_release(crowd);
    rg_test_client_close(&crowd->c);
    free(crowd->body);
}

/* Pages that the caller has not released fill the memory: the next one waits for it. */
static void check_pages_wait(int padding)
{
    struct crowd crowd;
    crowd_open(&crowd, padding);
    for (unsigned i = 0; i < CROWD; i++) {
        list_submit(&crowd.c, &(struct rg_list_request){.user_data = i});
    }
    unsigned taken = 0;
    uint64_t begun_ns = 0;
    while (taken < CROWD) {
        if (crowd_take(&crowd)) {
            taken++;
            begun_ns = 0;
        } else {
            crowd_release(&crowd);
            RG_CHECK(rg_test_go_on_waiting(&begun_ns));
        }
    }
    RG_CHECK(rg_test_stats(&crowd.c).lease_waits > 0);
    RG_CHECK_EQ(rg_test_stats(&crowd.c).requests, CROWD);
    crowd_close(&crowd);
}

static void test_a_page_waits_for_memory(void)
{
    check_pages_wait(0);
}

/* A body whose length is not told grows, and it cannot wait for memory then: it begins with room
 * for what the last one was. */
static void test_a_page_that_grows_waits_for_memory(void)
{
    check_pages_wait(500);
}

/* Requests that wait for memory end like others. */
static void test_a_page_that_waits_for_memory_is_cancelled(void)
{
    struct crowd crowd;
    crowd_open(&crowd, 0);
    /* A body that stays keeps room for bodies, so that it is the page that there is none for. */
    rg_test_get(&crowd.c, &(struct rg_get){.object = "o"});
    struct rg_completion body = rg_test_take(&crowd.c);
    RG_CHECK_STATUS(&body, OK);
    struct rg_completion cancelled = {.status = RG_STATUS_OK};
    while (cancelled.status == RG_STATUS_OK) {
        crowd.waits = rg_test_stats(&crowd.c).lease_waits;
        list_submit(&crowd.c, &(struct rg_list_request){.user_data = 3});
        if (crowd_take(&crowd)) {
            continue;
        }
        RG_CHECK_EQ(rg_cancel(crowd.c.client, crowd.c.cq, 3), 0);
        cancelled = rg_test_take(&crowd.c);
        if (cancelled.status == RG_STATUS_OK) {
            /* Memory came after all: a connection gave back what it had read into. */
            crowd.kept[crowd.kept_count++] = cancelled;
        }
    }
    RG_CHECK_STATUS(&cancelled, CANCELLED);
    rg_lease_release(cancelled.lease);
    rg_lease_release(body.lease);
    crowd_close(&crowd);
}

static void test_page_that_never_ends(void)
{
    const struct rg_step script[] = {
        RG_READ,
        RG_SEND("HTTP/1.1 200 OK\r\n\r\n{\"items\":["),
        {.kind = RG_STEP_FLOOD,
         .text = "                                                        "}};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .options = {.attempts_max = 2}};
    rg_test_client_open(&c);
    list_submit(&c, &(struct rg_list_request){0});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, TOO_LARGE);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_listings_that_are_refused_at_once(void)
{
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    char *longish = malloc(10000);
    memset(longish, 'a', 9999);
    longish[9999] = '\0';
    const struct rg_list_request bad[] = {
        {.bucket = NULL},
        {.bucket = "B!"},
        {.bucket = "bucket", .results_max = 1001},
        {.bucket = "bucket", .page_token = longish},
        {.bucket = "bucket", .prefix = longish},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(rg_submit_list(c.client, c.cq, &bad[i]), -EINVAL);
    }
    RG_CHECK(rg_test_is_quiet(&c, 20));
    rg_test_client_close(&c);
    free(longish);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_pages),
        RG_TEST(test_answers_that_are_no_page),
        RG_TEST(test_page_cut_is_read_again),
        RG_TEST(test_page_of_a_thousand_objects_in_chunks),
        RG_TEST(test_a_page_waits_for_memory),
        RG_TEST(test_a_page_that_grows_waits_for_memory),
        RG_TEST(test_a_page_that_waits_for_memory_is_cancelled),
        RG_TEST(test_page_that_never_ends),
        RG_TEST(test_listings_that_are_refused_at_once),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
