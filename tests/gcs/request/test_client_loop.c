/* The requests of a client: taken and given back by many threads, and reserved with a slot of a
 * queue. */
#include "gcs/request/client.h"
#include "gcs/request/request.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <pthread.h>

#define REQUESTS 64

static void client_open(struct rg_test_client *c)
{
    *c = (struct rg_test_client){
        .no_server = true, .options = {.endpoint = "http://127.0.0.1:1", .requests_max = REQUESTS}};
    rg_test_client_open(c);
}

static void test_each_request_is_taken_once(void)
{
    struct rg_test_client c;
    client_open(&c);
    struct rg_request *first, *none;
    bool seen[REQUESTS] = {false};
    RG_CHECK_EQ(rg_client_take_requests(c.client, 2 * REQUESTS, &first), REQUESTS);
    RG_CHECK_EQ(rg_client_take_requests(c.client, 1, &none), 0);
    struct rg_request *requests = c.client->requests;
    uint32_t count = 0;
    for (uint32_t at = (uint32_t)(first - requests) + 1; at != 0; count++) {
        RG_CHECK(at <= REQUESTS && !seen[at - 1]);
        seen[at - 1] = true;
        at = requests[at - 1].free_next;
    }
    RG_CHECK_EQ(count, REQUESTS);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        rg_client_give_request(c.client, &requests[i]);
    }
    RG_CHECK_EQ(rg_client_take_requests(c.client, 1, &first), 1);
    rg_client_give_request(c.client, first);
    rg_test_client_close(&c);
}

static _Atomic uint32_t owners[REQUESTS];

/* Nobody else has a request that was taken. */
static void *take_and_give(void *context)
{
    struct rg_client *client = context;
    for (int i = 0; i < 20000; i++) {
        struct rg_request *request;
        if (rg_client_take_requests(client, 1, &request) == 1) {
            _Atomic uint32_t *owner = &owners[request - client->requests];
            RG_ASSERT(atomic_fetch_add(owner, 1) == 0);
            RG_ASSERT(atomic_fetch_sub(owner, 1) == 1);
            rg_client_give_request(client, request);
        }
    }
    return NULL;
}

static void test_threads_never_share_one(void)
{
    struct rg_test_client c;
    client_open(&c);
    pthread_t threads[4];
    for (size_t i = 0; i < RG_ARRAY_LEN(threads); i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, take_and_give, c.client), 0);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    struct rg_request *first;
    RG_CHECK_EQ(rg_client_take_requests(c.client, REQUESTS + 1, &first), REQUESTS);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        rg_client_give_request(c.client, &c.client->requests[i]);
    }
    rg_test_client_close(&c);
}

static void test_a_reservation_is_given_back_whole(void)
{
    struct rg_test_client c;
    client_open(&c);
    struct rg_request *out[REQUESTS], *none;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < REQUESTS; i++) {
            RG_CHECK_EQ(rg_client_reserve(c.client, c.cq, &out[i]), 0);
            RG_CHECK(out[i]->cq == c.cq);
        }
        RG_CHECK_EQ(rg_client_reserve(c.client, c.cq, &none), -EAGAIN);
        for (uint32_t i = 0; i < REQUESTS; i++) {
            rg_client_unreserve(out[i]);
        }
    }
    rg_test_client_close(&c);
}

/* As on a machine of two nodes with a loop each, where every CPU is on the second one. */
static void near_make(struct rg_client *client)
{
    struct rg_near *near = calloc(1, sizeof(*near));
    RG_CHECK(near != NULL && client->runtime->near == NULL);
    near->all = (struct rg_loop_range){.first = 1, .count = 1};
    client->runtime->near = near; /* which frees it */
}

static uint32_t count_near(struct rg_client *client, uint32_t submitted)
{
    uint32_t count = 0;
    for (int i = 0; i < 8; i++) {
        count += rg_client_next_loop(client, submitted) == &client->loops[1];
    }
    return count;
}

static void test_a_loop_near_the_caller_is_taken_while_it_has_connections(void)
{
    struct rg_test_client c = {.no_server = true,
                               .threads = 2,
                               .options = {.endpoint = "http://127.0.0.1:1", .connections_max = 8}};
    rg_test_client_open(&c);
    RG_CHECK_EQ(count_near(c.client, 1), 4);
    near_make(c.client);
    RG_CHECK_EQ(count_near(c.client, 1), 8);
    RG_CHECK_EQ(count_near(c.client, 4), 8);
    RG_CHECK_EQ(count_near(c.client, 5), 4);
    struct rg_metrics *metrics = &c.client->loops[1].loop->metrics;
    rg_metric_add(&metrics->in_flight, 4);
    RG_CHECK_EQ(count_near(c.client, 1), 4);
    rg_metric_add(&metrics->in_flight, (uint64_t)-1);
    RG_CHECK_EQ(count_near(c.client, 1), 8);
    rg_metric_add(&metrics->in_flight, (uint64_t)-3);
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_request_is_taken_once),
        RG_TEST(test_threads_never_share_one),
        RG_TEST(test_a_reservation_is_given_back_whole),
        RG_TEST(test_a_loop_near_the_caller_is_taken_while_it_has_connections),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
