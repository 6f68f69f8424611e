/* Requests about objects when memory runs out, at each allocation of a submit in turn. Either
 * the submit says so and leaves nothing behind, or the request completes. */
#include "tests/support/allocation.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/objects.h>

#include <stdatomic.h>
#include <string.h>

/* How many allocations this thread has left, plus 1. Below 0: any number. */
static _Thread_local int countdown = -1;

/* On all other threads: one allocation of such a size fails, which the operation's is. */
#define LONG_NAME_SIZE 777
static _Atomic bool long_target_fails;
static _Thread_local bool is_submitter;

static bool fails(void)
{
    size_t size = rg_test_allocation_size;
    if (!is_submitter && size > LONG_NAME_SIZE + 20 && size < LONG_NAME_SIZE + 60) {
        return atomic_exchange(&long_target_fails, false);
    }
    if (countdown > 0) {
        countdown--;
    }
    return countdown == 0;
}

static int submit(struct rg_test_client *c, unsigned kind)
{
    static const struct rg_metadata metadata[] = {{"k", "v"}};
    static const struct rg_compose_source sources[] = {{"a", 1}, {"b", 0}};
    static const struct rg_delete deletes[] = {{.bucket = "bucket", .object = "a"},
                                               {.bucket = "bucket", .object = "b"}};
    static const struct rg_range ranges[] = {{0, 10, NULL}, {20, 10, NULL}};
    static const char *const permissions[] = {"storage.objects.get"};
    switch (kind) {
    case 0:
        return rg_submit_stat(c->client, c->cq,
                              &(struct rg_stat){.bucket = "bucket", .object = "object"});
    case 1:
        return rg_submit_delete(c->client, c->cq,
                                &(struct rg_delete){.bucket = "bucket", .object = "object"});
    case 2:
        return rg_submit_delete_many(c->client, c->cq,
                                     &(struct rg_delete_many){.deletes = deletes, .count = 2});
    case 3:
        return rg_submit_copy(c->client, c->cq,
                              &(struct rg_copy){.source_bucket = "bucket",
                                                .source_object = "a",
                                                .bucket = "bucket",
                                                .object = "b"});
    case 4:
        return rg_submit_compose(c->client, c->cq,
                                 &(struct rg_compose){.bucket = "bucket",
                                                      .object = "object",
                                                      .sources = sources,
                                                      .source_count = 2,
                                                      .metadata = metadata,
                                                      .metadata_count = 1});
    case 5:
        return rg_submit_update(c->client, c->cq,
                                &(struct rg_update){.bucket = "bucket",
                                                    .object = "object",
                                                    .content_type = "text/plain",
                                                    .metadata = metadata,
                                                    .metadata_count = 1});
    case 6:
        return rg_submit_get_ranges(
            c->client, c->cq,
            &(struct rg_get_ranges){
                .bucket = "bucket", .object = "object", .ranges = ranges, .count = 2});
    default:
        return rg_submit_test_permissions(c->client, c->cq,
                                          &(struct rg_test_permissions){.bucket = "bucket",
                                                                        .permissions = permissions,
                                                                        .count = 1});
    }
}

static void test_each_allocation_of_each_submit(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(rg_test_answer("403 Forbidden", "no")),
                                     RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1, .capacity = 1};
    rg_test_client_open(&c);
    for (unsigned kind = 0; kind < 8; kind++) {
        int failures = 0, rc;
        do {
            countdown = failures + 1;
            rc = submit(&c, kind);
            countdown = -1;
            RG_CHECK(rc == 0 || rc == -ENOMEM);
            failures += rc < 0;
        } while (rc < 0);
        /* Its slot of the queue is the only one. */
        RG_CHECK(failures > 0);
        struct rg_completion done = rg_test_take(&c);
        RG_CHECK_STATUS(&done, PERMISSION);
        rg_lease_release(done.lease);
    }
    rg_test_client_close(&c);
}

/* An object for which there was no memory to ask must not count as asked for, although the answer
 * for the other one comes after that. */
static void test_no_memory_for_the_last_of_many_deletions(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(rg_test_answer("404 Not Found", "")),
                                     RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    char name[LONG_NAME_SIZE + 1];
    memset(name, 'n', LONG_NAME_SIZE);
    name[LONG_NAME_SIZE] = '\0';
    const struct rg_delete deletes[] = {{.bucket = "bucket", .object = "a"},
                                        {.bucket = "bucket", .object = name}};
    is_submitter = true;
    rg_test_client_open(&c);
    atomic_store(&long_target_fails, true);
    RG_CHECK_EQ(rg_submit_delete_many(c.client, c.cq,
                                      &(struct rg_delete_many){.deletes = deletes, .count = 2}),
                0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK(!atomic_load(&long_target_fails));
    RG_CHECK_STATUS(&done, NO_RESOURCES);
    rg_lease_release(done.lease);
    /* The batch, which the server does not know, and the first object. */
    RG_CHECK_EQ(rg_test_stats(&c).requests, 2);
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_allocation_of_each_submit),
        RG_TEST(test_no_memory_for_the_last_of_many_deletions),
    };
    rg_test_allocation_fails = fails;
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
