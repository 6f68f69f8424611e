/* The handler: what is refused, what becomes of lost calls, and what reaches the server. */
#include "tests/emulator/driver.h"

static void test_what_is_not_there(void)
{
    static const struct {
        const char *method, *target, *body;
        unsigned status;
    } rows[] = {
        {"GET", "/bucket/nothing", "<Code>NoSuchKey</Code>", 404},
        {"GET", "/absent-bucket/o", "<Code>NoSuchBucket</Code>", 404},
        {"GET", "/absent-bucket/o", "The specified bucket does not exist.", 404},
        {"GET", "/storage/v1/b/bucket/o/nothing", "\"reason\":\"notFound\"", 404},
        {"GET", "/storage/v1/b/bucket/o/nothing?alt=media", "No such object: bucket/nothing", 404},
        {"GET", "/storage/v1/b/absent-bucket/o", "The specified bucket does not exist.", 404},
        {"GET", "/absent-bucket?list-type=2", "<Code>NoSuchBucket</Code>", 404},
        {"GET", "/storage/v1/b/absent-bucket", "notFound", 404},
        {"DELETE", "/storage/v1/b/bucket/o/nothing", "notFound", 404},
        {"DELETE", "/bucket/nothing", "NoSuchKey", 404},
        {"GET", "/bucket/%zz", "InvalidArgument", 400},
        {"GET", "/storage/v1/b/bucket/o/x?prefix=%f", "invalid", 400},
        {"GET", "/storage/v1/b/bucket/o/o?generation=x", "generation is not a number", 400},
        {"GET", "/storage/v1/b/bucket/o/%FF", "notFound", 404},
        {"PUT", "/bucket/%FF", "InvalidArgument", 400},
        {"PUT", "/bucket/..", "InvalidArgument", 400},
        {"PUT", "/Bad_Bucket/o", "InvalidBucketName", 400},
        {"POST", "/upload/storage/v1/b/bucket/o?uploadType=media", "name", 400},
        {"POST", "/upload/storage/v1/b/bucket/o?uploadType=other&name=x", "uploadType", 400},
        {"PUT", "/upload/storage/v1/b/bucket/o?upload_id=x", "no upload session", 404},
        {"POST", "/storage/v1/b/bucket/o/o", "methodNotAllowed", 405},
        {"GET", "/batch/storage/v1", "methodNotAllowed", 405},
        {"DELETE", "/storage/v1/b/bucket", "conflict", 409},
        {"DELETE", "/bucket", "<Code>BucketNotEmpty</Code>", 409},
        {"DELETE", "/absent-bucket", "NoSuchBucket", 404},
        {"PUT", "/storage/v1/b", "methodNotAllowed", 405},
        {"GET", "/upload/storage/v1/b", "NotFound", 404},
    };
    open_api(NULL, 0);
    put_xml("/bucket/o", "x");
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        rg_driver_send(api, &reply, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
                       rows[i].method, rows[i].target);
        if (reply.status != rows[i].status) {
            rg_test_fail(__FILE__, __LINE__, "%s %s: %u, %s", rows[i].method, rows[i].target,
                         reply.status, reply.body.data);
        }
        check_body_has(rows[i].body);
    }
    close_api();
}

static void test_a_call_that_is_lost_leaves_nothing(void)
{
    static const char request[] =
        "PUT /bucket/o HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf";
    open_api(NULL, 0);
    rg_driver_cut(api, request, strlen(request));
    get("/bucket/o");
    RG_CHECK_EQ(reply.status, 404);
    close_api();
}

static void test_the_rate_limit_answers_429(void)
{
    open_api(NULL, 0);
    struct rg_handler *limited;
    struct rg_handler_options options = {
        .store = store, .loop_count = 1, .requests_per_second = 20};
    RG_CHECK_EQ(rg_handler_create(&limited, &options), 0);
    unsigned refused = 0;
    for (int i = 0; i < 10; i++) { /* A tenth of a second's: two. */
        rg_driver_send(limited, &reply, "GET /storage/v1/b HTTP/1.1\r\nHost: h\r\n\r\n");
        if (reply.status == 429) {
            check_field("retry-after", "1");
            check_body_has("rateLimitExceeded");
            refused++;
        }
    }
    RG_CHECK_EQ(refused, 8);
    rg_handler_destroy(limited);
    close_api();
}

static void test_latency_bandwidth_and_connection_close_reach_the_server(void)
{
    open_api(NULL, 0);
    struct rg_handler *slow;
    struct rg_handler_options options = {.store = store, .loop_count = 1, .bytes_per_second = 1000};
    RG_CHECK_EQ(rg_latency_parse("7", &options.latency), 0);
    RG_CHECK_EQ(rg_handler_create(&slow, &options), 0);
    rg_driver_send(slow, &reply,
                   "GET /storage/v1/b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    RG_CHECK_EQ(reply.response.delay_ns, 7 * RG_NS_PER_MS);
    RG_CHECK_EQ(reply.response.bytes_per_second, 1000);
    RG_CHECK(reply.response.close);
    check_field("connection", "close");
    rg_handler_destroy(slow);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_is_not_there),
        RG_TEST(test_a_call_that_is_lost_leaves_nothing),
        RG_TEST(test_the_rate_limit_answers_429),
        RG_TEST(test_latency_bandwidth_and_connection_close_reach_the_server),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
