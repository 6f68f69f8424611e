/* The requests for pages of a listing, by an operation that takes its pages when the test says so:
 * how far they go ahead, and how they end. */
#include "gcs/listing/walk.h"
#include "tests/gcs/listing/page_case.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <errno.h>
#include <semaphore.h>

static struct {
    struct rg_test_client client;
    struct rg_request request;
    struct rg_operation operation;
    struct rg_list_question question;
    struct rg_walk walk;
    struct rg_completion page;
    bool has_page;
    sem_t ended;
    enum rg_status status;
} world;

static void advance(struct rg_operation *operation)
{
    RG_CHECK(operation == &world.operation);
    rg_walk_advance(&world.walk);
}

static void stop(struct rg_operation *operation, bool hurry)
{
    RG_CHECK(operation == &world.operation && !hurry);
    rg_walk_cancel(&world.walk, RG_STATUS_CANCELLED);
}

static void release(struct rg_operation *operation)
{
    RG_CHECK(operation == &world.operation);
    rg_walk_drop_pages(&world.walk);
}

static void done(struct rg_request *request, struct rg_completion *completion)
{
    RG_CHECK(request == &world.request);
    world.status = completion->status;
    sem_post(&world.ended);
}

static void on_loop(void (*function)(void *context), void *context)
{
    rg_loop_call(world.request.client_loop->loop, function, context);
}

static void start(void *context)
{
    (void)context;
    RG_CHECK(rg_request_start(&world.request));
}

/* With one or two slots none is idle when a page comes, so that nothing is cut, however long pages
 * take, and the server is asked for one page after the other. */
static void world_open(const struct rg_step *const *scripts, uint32_t requests_max)
{
    static const struct rg_operation_ops operation_ops = {
        .advance = advance, .stop = stop, .free = release};
    static const struct rg_request_ops request_ops = {
        .verb = "list",
        .start = rg_operation_start,
        .cancel = rg_operation_cancel,
        .release = rg_operation_release,
    };
    const struct rg_listing_options options = {.bucket = "bucket", .requests_max = requests_max};
    memset(&world, 0, sizeof(world));
    world.client = (struct rg_test_client){.scripts = scripts, .script_count = 1};
    rg_test_client_open(&world.client);
    sem_init(&world.ended, 0, 0);
    rg_request_init_inner(&world.request, rg_client_next_loop(world.client.client, 1), done);
    rg_request_prepare(&world.request, &request_ops, 0, 0);
    rg_operation_init(&world.operation, &operation_ops, &world.request);
    RG_CHECK_EQ(rg_list_question_copy(&world.question, &options), 0);
    RG_CHECK_EQ(rg_walk_init(&world.walk, &world.operation, &world.question, &options), 0);
    on_loop(start, NULL);
}

static void cancel(void *context)
{
    (void)context;
    rg_operation_stop(&world.operation, RG_STATUS_CANCELLED);
}

/* Waits until the operation has ended, and closes everything. */
static void world_close(enum rg_status status)
{
    while (sem_wait(&world.ended) < 0) {
        RG_CHECK_EQ(errno, EINTR);
    }
    RG_CHECK_EQ(world.status, status);
    rg_test_client_close(&world.client);
    RG_CHECK_EQ(world.walk.free_count, world.walk.slot_count);
    rg_walk_fini(&world.walk);
    rg_list_question_free(&world.question);
    sem_destroy(&world.ended);
}

static void look_for_rest(void *context)
{
    bool *rests = context;
    *rests = world.operation.out == 0 && world.walk.free_count == 0;
}

/* All slots hold pages, and nothing is out. */
static bool rests(void)
{
    bool rests;
    on_loop(look_for_rest, &rests);
    return rests;
}

static void take(void *context)
{
    (void)context;
    world.has_page = rg_walk_take(&world.walk, &world.page);
    if (world.has_page) {
        rg_operation_wake(&world.operation);
    }
}

static bool page_came(void)
{
    on_loop(take, NULL);
    return world.has_page;
}

static void page_take(size_t count)
{
    RG_AWAIT(page_came());
    RG_CHECK_EQ(((const struct rg_list_page *)world.page.data)->object_count, count);
    rg_lease_release(world.page.lease);
}

/* Pages are requested until all slots are full. A page that is taken lets one more be requested. */
static void test_no_more_is_requested_than_slots_hold(void)
{
    char *answers[] = {page_answer_make(0, 5, "t1"), page_answer_make(5, 4, "t2"),
                       page_answer_make(9, 3, "t3"), page_answer_make(12, 2, NULL)};
    const struct rg_step script[] = {RG_READ, RG_SEND(answers[0]), RG_READ, RG_SEND(answers[1]),
                                     RG_READ, RG_SEND(answers[2]), RG_READ, RG_SEND(answers[3]),
                                     RG_END};
    const struct rg_step *const scripts[] = {script};
    world_open(scripts, 2);
    RG_AWAIT(rests());
    RG_CHECK_EQ(rg_test_stats(&world.client).requests, 2);
    page_take(5);
    RG_AWAIT(rests());
    RG_CHECK_EQ(rg_test_stats(&world.client).requests, 3);
    page_take(4);
    page_take(3);
    page_take(2);
    RG_CHECK_EQ(rg_test_stats(&world.client).requests, 4);
    /* It stays at its end. */
    page_take(0);
    page_take(0);
    on_loop(cancel, NULL);
    world_close(RG_STATUS_CANCELLED);
    for (size_t i = 0; i < RG_ARRAY_LEN(answers); i++) {
        free(answers[i]);
    }
}

/* Pages that nobody took are released with it: closing the client checks that. */
static void test_it_ends_with_pages_that_wait(void)
{
    char *answer = page_answer_make(0, 5, "t1");
    const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_HOLD};
    const struct rg_step *const scripts[] = {script};
    world_open(scripts, 1);
    RG_AWAIT(rests());
    on_loop(cancel, NULL);
    world_close(RG_STATUS_CANCELLED);
    RG_CHECK_EQ(world.operation.state, RG_OPERATION_ENDED);
    free(answer);
}

static void test_it_ends_while_a_request_is_out(void)
{
    char *answer = page_answer_make(0, 5, "t1");
    const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_READ, RG_HOLD};
    const struct rg_step *const scripts[] = {script};
    world_open(scripts, 2);
    page_take(5);
    RG_AWAIT(rg_test_stats(&world.client).requests == 2);
    on_loop(cancel, NULL);
    world_close(RG_STATUS_CANCELLED);
    free(answer);
}

/* Also the pages that came before are released at once. */
static void test_a_page_that_fails_ends_it(void)
{
    char *answer = page_answer_make(0, 5, "t1");
    const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_READ,
                                     RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
                                     RG_END};
    const struct rg_step *const scripts[] = {script};
    world_open(scripts, 2);
    world_close(RG_STATUS_NOT_FOUND);
    RG_CHECK_EQ(world.request.failure.http_status, 404);
    free(answer);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_no_more_is_requested_than_slots_hold),
        RG_TEST(test_it_ends_with_pages_that_wait),
        RG_TEST(test_it_ends_while_a_request_is_out),
        RG_TEST(test_a_page_that_fails_ends_it),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
