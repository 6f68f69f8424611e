/* The batch request by itself: what is sent, what an answer of each kind means, and which removals
 * are tried again. tests/gcs/object/test_delete_many.c sends it. */
#include "gcs/object/batch.h"

#include "tests/support/test.h"

static struct rg_client client = {
    .options = {.attempts_max = 3, .backoff_min_ns = 1, .backoff_max_ns = 1}};
static struct rg_client_loop client_loop = {.client = &client};
static struct rg_request parent = {.client = &client, .client_loop = &client_loop};

/* The first may not be tried again: it names no generation. */
static const struct rg_delete deletes[] = {
    {.bucket = "bucket", .object = "a b"},
    {.bucket = "other", .object = "b", .generation = 7},
    {.bucket = "other", .object = "c", .generation = 8, .exclusive = true},
};

static void batch_done(struct rg_request *request, struct rg_completion *completion)
{
    (void)request;
    (void)completion;
}

static void test_each_removal_is_a_part(void)
{
    static struct rg_batch batch;
    RG_CHECK_EQ(rg_batch_prepare(&batch, &parent, deletes, 2, batch_done), 0);
    const struct rg_object_request_state *sent = &batch.request.object_request;
    RG_CHECK_STR(sent->method, "POST");
    RG_CHECK_STR(sent->target, "/batch/storage/v1");
    RG_CHECK_STR(sent->content_type, "multipart/mixed; boundary=ringest_part");
    const char *body = "--ringest_part\r\nContent-Type: application/http\r\n"
                       "Content-ID: <ringest+0>\r\n\r\n"
                       "DELETE /storage/v1/b/bucket/o/a%20b HTTP/1.1\r\n\r\n\r\n"
                       "--ringest_part\r\nContent-Type: application/http\r\n"
                       "Content-ID: <ringest+1>\r\n\r\n"
                       "DELETE /storage/v1/b/other/o/b?generation=7 HTTP/1.1\r\n\r\n\r\n"
                       "--ringest_part--\r\n";
    RG_CHECK_MEM(sent->body, sent->body_size, body, strlen(body));
    RG_CHECK(!batch.request.idempotent);
    batch.request.ops->release(&batch.request);
}

static void test_it_is_idempotent_when_every_part_is(void)
{
    static struct rg_batch batch;
    RG_CHECK_EQ(rg_batch_prepare(&batch, &parent, &deletes[1], 2, batch_done), 0);
    RG_CHECK(batch.request.idempotent);
    batch.request.ops->release(&batch.request);
}

static void test_what_an_answer_says_of_the_whole(void)
{
    static const struct {
        enum rg_status status;
        uint16_t http_status;
        enum rg_batch_outcome outcome;
    } cases[] = {
        {RG_STATUS_OK, 200, RG_BATCH_ANSWERED},
        {RG_STATUS_BAD_RESPONSE, 200, RG_BATCH_UNREADABLE},
        {RG_STATUS_BAD_REQUEST, 404, RG_BATCH_UNKNOWN},
        {RG_STATUS_BAD_REQUEST, 405, RG_BATCH_UNKNOWN},
        {RG_STATUS_BAD_REQUEST, 501, RG_BATCH_UNKNOWN},
        {RG_STATUS_BAD_REQUEST, 400, RG_BATCH_FAILED},
        {RG_STATUS_PERMISSION, 403, RG_BATCH_FAILED},
        {RG_STATUS_CONNECTION_LOST, 0, RG_BATCH_FAILED},
        {RG_STATUS_CANCELLED, 0, RG_BATCH_FAILED},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_completion completion = {.status = cases[i].status,
                                           .http_status = cases[i].http_status};
        RG_CHECK_EQ(rg_batch_outcome(&completion), cases[i].outcome);
    }
}

/* What one removal comes to, by the status of its part; 0: it had none. */
static struct rg_delete_result take(uint32_t index, uint16_t http_status, bool maybe_done,
                                    bool *out_again)
{
    struct rg_batch batch = {.deletes = deletes, .count = RG_ARRAY_LEN(deletes)};
    struct rg_delete_result result = {0};
    batch.request.client = &client;
    batch.request.verify.maybe_done = maybe_done;
    batch.http_statuses[index] = http_status;
    *out_again = rg_batch_take(&batch, index, &result);
    RG_CHECK_EQ(result.http_status, http_status);
    return result;
}

static void test_only_what_may_be_sent_twice_is_tried_again(void)
{
    static const uint16_t transient[] = {0, 429, 500, 503};
    bool again;
    for (size_t i = 0; i < RG_ARRAY_LEN(transient); i++) {
        take(0, transient[i], false, &again);
        RG_CHECK(!again);
        RG_CHECK(take(1, transient[i], false, &again).status != RG_STATUS_OK);
        RG_CHECK(again);
    }
    RG_CHECK_EQ(take(1, 204, false, &again).status, RG_STATUS_OK);
    RG_CHECK(!again);
    RG_CHECK_EQ(take(1, 403, false, &again).status, RG_STATUS_PERMISSION);
    RG_CHECK(!again);
    client.options.attempts_max = 1;
    take(1, 503, false, &again);
    RG_CHECK(!again);
    client.options.attempts_max = 3;
}

static void test_what_an_earlier_try_may_have_removed(void)
{
    bool again;
    RG_CHECK_EQ(take(1, 404, false, &again).status, RG_STATUS_NOT_FOUND);
    struct rg_delete_result gone = take(1, 404, true, &again);
    RG_CHECK_EQ(gone.status, RG_STATUS_OK);
    RG_CHECK(gone.found_done && !again);
    /* Whoever wants to be the one who removed it is not told that it is done. */
    RG_CHECK_EQ(take(2, 404, true, &again).status, RG_STATUS_NOT_FOUND);
    RG_CHECK_EQ(take(1, 412, false, &again).status, RG_STATUS_PRECONDITION);
    RG_CHECK(!again);
    take(1, 412, true, &again);
    RG_CHECK(again);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_removal_is_a_part),
        RG_TEST(test_it_is_idempotent_when_every_part_is),
        RG_TEST(test_what_an_answer_says_of_the_whole),
        RG_TEST(test_only_what_may_be_sent_twice_is_tried_again),
        RG_TEST(test_what_an_earlier_try_may_have_removed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
