/* Memory runs out at every point of an upload: the Nth allocation of the loop's thread fails, for
 * all N. Whatever N: one completion, and a failure publishes nothing.
 *
 * Only on threads that say so. */
#include "gcs/request/client.h"
#include "tests/support/allocation.h"
#include "tests/support/test.h"
#include "tests/support/uploads.h"

#define PART RG_MIB(5)
#define SIZE (2 * PART + 99)

static _Thread_local bool counts;
static _Atomic uint64_t allocation_count;
static _Atomic uint64_t fail_at;

static bool allocation_fails(void)
{
    return counts && allocation_count++ == fail_at;
}

static void count_set(void *context)
{
    counts = *(const bool *)context;
}

/* False: there were fewer allocations than it takes to fail. */
static bool upload_once(enum rg_upload_method method, bool from_file, uint64_t number)
{
    struct rg_upload_scene scene = {.size = SIZE};
    rg_upload_scene_open(&scene);
    struct rg_loop *loop = scene.c.client->loops[0].loop;
    bool on = true, off = false;
    allocation_count = 0;
    fail_at = number;
    const struct rg_upload upload = {.method = method, .part_size = PART};
    rg_loop_call(loop, count_set, &on);
    rg_upload_scene_submit(&scene, &upload, from_file);
    struct rg_completion done = rg_test_take(&scene.c);
    rg_loop_call(loop, count_set, &off);
    bool failed = allocation_count > number;
    RG_CHECK(failed || done.status == RG_STATUS_OK);
    uint64_t size = 0;
    const uint8_t *content = rg_emulated_content(scene.emulated, "object", &size);
    if (done.status == RG_STATUS_OK) {
        RG_CHECK_MEM(content, size, scene.data, scene.size);
    } else if (done.status != RG_STATUS_NO_RESOURCES && done.status != RG_STATUS_BAD_RESPONSE &&
               done.status != RG_STATUS_BAD_REQUEST) {
        RG_CHECK_STATUS(&done, NO_RESOURCES);
    }
    rg_lease_release(done.lease);
    rg_upload_scene_close(&scene);
    return failed;
}

static void sweep(enum rg_upload_method method)
{
    for (unsigned from_file = 0; from_file < 2; from_file++) {
        uint64_t number = 0;
        while (upload_once(method, from_file == 1, number)) {
            number++;
        }
        RG_CHECK(number > 3);
    }
}

static void test_single(void)
{
    sweep(RG_UPLOAD_SINGLE);
}

static void test_resumable(void)
{
    sweep(RG_UPLOAD_RESUMABLE);
}

static void test_multipart(void)
{
    sweep(RG_UPLOAD_MULTIPART);
}

static void test_compose(void)
{
    sweep(RG_UPLOAD_COMPOSE);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_single),
        RG_TEST(test_resumable),
        RG_TEST(test_multipart),
        RG_TEST(test_compose),
    };
    rg_test_allocation_fails = allocation_fails;
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
