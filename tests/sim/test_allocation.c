/* Memory runs out at every point: the Nth allocation of the library fails, for all N, alone or with
 * all that come after it, over opening a client, a read, an upload, a page of a listing, and
 * closing; and over opening a runtime. Whatever N: an error or success, one completion for each
 * accepted request, and nothing left behind.
 *
 * Only in code of the library: the simulation allocates, too, and is left out. */
#include "gcs/request/client.h"
#include "gcs/wire/checksum.h"
#include "tests/support/allocation.h"
#include "tests/support/sim_gcs.h"
#include "tests/support/test.h"

#include <arpa/inet.h>

#define OBJECT_SIZE_MAX RG_KIB(100)
#define CAPACITY 8
#define LISTED_COUNT 5
#define INDEX_READ 0
#define INDEX_PUT 1
/* Retries of a run in which memory never comes back end long before. */
#define RUN_NS_MAX (3600 * RG_NS_PER_S)

/* What fails: the allocation `fail_at`, and with `fail_on` all after it. */
static uint64_t allocation_count, fail_at;
static bool fail_on;
static _Thread_local int in_library; /* above 0: allocations count */

static struct rg_sim *sim;
static struct rg_sim_gcs *gcs;
static struct rg_loop *loop;
static struct rg_client *client;
static struct rg_cq *cq;
static struct rg_completion completions[CAPACITY];
static uint32_t completion_count, accepted_count;
static uint8_t upload[OBJECT_SIZE_MAX + 1];

static bool allocation_fails(void)
{
    if (in_library <= 0) {
        return false;
    }
    uint64_t number = allocation_count++;
    return fail_on ? number >= fail_at : number == fail_at;
}

/* A pass of the loop is the library's, but for what it asks of the simulation. */
void __real_rg_loop_pass(struct rg_loop *passed, uint64_t deadline_ns);
void __wrap_rg_loop_pass(struct rg_loop *passed, uint64_t deadline_ns);
void __wrap_rg_loop_pass(struct rg_loop *passed, uint64_t deadline_ns)
{
    in_library++;
    __real_rg_loop_pass(passed, deadline_ns);
    in_library--;
}

uint64_t __real_rg_now_ns(void);
uint64_t __wrap_rg_now_ns(void);
uint64_t __wrap_rg_now_ns(void)
{
    return sim != NULL ? rg_sim_now_ns(sim) : __real_rg_now_ns();
}

#define AS_SIMULATION(call)                                                                        \
    do {                                                                                           \
        int outside = in_library;                                                                  \
        in_library = 0;                                                                            \
        call;                                                                                      \
        in_library = outside;                                                                      \
    } while (0)

static int backend_create(struct rg_loop *of_loop, void **out_self)
{
    int rc;
    AS_SIMULATION(rc = rg_sim_backend.create(of_loop, out_self));
    return rc;
}

static int backend_socket_open(void *self, struct rg_socket *socket, int family)
{
    int rc;
    AS_SIMULATION(rc = rg_sim_backend.socket_open(self, socket, family));
    return rc;
}

static void backend_socket_shutdown(void *self, struct rg_socket *socket)
{
    AS_SIMULATION(rg_sim_backend.socket_shutdown(self, socket));
}

static void backend_socket_close(void *self, struct rg_socket *socket, bool reset)
{
    AS_SIMULATION(rg_sim_backend.socket_close(self, socket, reset));
}

static void backend_start(void *self, struct rg_op *op)
{
    AS_SIMULATION(rg_sim_backend.start(self, op));
}

static void backend_cancel(void *self, struct rg_op *op)
{
    AS_SIMULATION(rg_sim_backend.cancel(self, op));
}

static struct rg_backend_ops backend_make(void)
{
    struct rg_backend_ops backend = rg_sim_backend;
    backend.create = backend_create;
    backend.socket_open = backend_socket_open;
    backend.socket_shutdown = backend_socket_shutdown;
    backend.socket_close = backend_socket_close;
    backend.start = backend_start;
    backend.cancel = backend_cancel;
    return backend;
}

static bool collect(void *context)
{
    RG_ASSERT(context == NULL);
    int count = rg_cq_poll(cq, completions + completion_count, CAPACITY - completion_count);
    RG_CHECK(count >= 0);
    completion_count += (uint32_t)count;
    return completion_count == accepted_count;
}

static void submit_note(int rc)
{
    RG_CHECK(rc == 0 || rc == -ENOMEM);
    accepted_count += rc == 0;
}

static void requests_submit(void)
{
    char read_name[RG_SIM_GCS_NAME_SIZE_MAX], put_name[RG_SIM_GCS_NAME_SIZE_MAX];
    rg_sim_gcs_name(INDEX_READ, read_name);
    rg_sim_gcs_name(INDEX_PUT, put_name);
    const struct rg_get get = {
        .bucket = RG_SIM_GCS_BUCKET,
        .object = read_name,
        .user_data = 1,
    };
    const struct rg_put put = {
        .bucket = RG_SIM_GCS_BUCKET,
        .object = put_name,
        .data = upload,
        .size = rg_sim_gcs_size(gcs, INDEX_PUT, 1),
        .content_type = "text/plain",
        .if_generation_match = RG_GENERATION_ABSENT,
        .user_data = 2,
    };
    const struct rg_list_request list = {
        .bucket = RG_SIM_GCS_BUCKET,
        .prefix = "listed/",
        .user_data = 3,
    };
    in_library++;
    submit_note(rg_submit_get(client, cq, &get));
    submit_note(rg_submit_put(client, cq, &put));
    submit_note(rg_submit_list(client, cq, &list));
    /* One that is cancelled, if there is memory to say so. */
    struct rg_get cancelled = get;
    cancelled.user_data = 4;
    submit_note(rg_submit_get(client, cq, &cancelled));
    int rc = rg_cancel(client, cq, 4);
    RG_CHECK(rc == 0 || rc == -ENOMEM);
    in_library--;
}

static void completion_check(const struct rg_completion *completion)
{
    bool failed = completion->status == RG_STATUS_NO_RESOURCES ||
                  completion->status == RG_STATUS_RESOLVE ||
                  (completion->user_data == 4 && completion->status == RG_STATUS_CANCELLED) ||
                  /* It is stored, and its answer could not be parsed. */
                  (completion->user_data == 2 && completion->status == RG_STATUS_BAD_RESPONSE);
    if (completion->status != RG_STATUS_OK && !failed) {
        rg_test_fail(__FILE__, __LINE__, "request %d ended %s: %s", (int)completion->user_data,
                     rg_status_name(completion->status),
                     completion->detail != NULL ? completion->detail : "no detail");
    }
    if (completion->status == RG_STATUS_OK && completion->user_data == 1) {
        RG_CHECK_EQ(completion->crc32c, rg_crc32c(0, completion->data, completion->size));
        RG_CHECK(completion->crc32c == completion->object_crc32c);
    }
}

static bool client_is_closed(void *context)
{
    (void)collect(context);
    return client->loops[0].pool == NULL;
}

static void client_use(void)
{
    requests_submit();
    RG_CHECK(rg_sim_run(sim, rg_sim_now_ns(sim) + RUN_NS_MAX, collect, NULL));
    for (uint32_t i = 0; i < completion_count; i++) {
        completion_check(&completions[i]);
        rg_lease_release(completions[i].lease);
    }
    in_library++;
    rg_client_close_begin(client);
    in_library--;
    RG_CHECK(rg_sim_run(sim, rg_sim_now_ns(sim) + RG_NS_PER_S, client_is_closed, NULL));
    rg_client_close_finish(client);
    client = NULL;
    RG_CHECK_EQ(completion_count, accepted_count);
    RG_CHECK_EQ(loop->timers.armed_count, 0);
}

static void loop_use(void)
{
    struct rg_runtime runtime = {
        .fork_generation = rg_fork_generation(),
        .backend = &rg_sim_backend,
        .backend_reason = "",
        .loop_count = 1,
        .loops = &loop,
    };
    struct rg_client_options options;
    rg_client_options_init(&options);
    options.endpoint = "http://10.0.0.1";
    options.headers = "x-test: 1";
    options.requests_max = CAPACITY;
    options.connections_max = 2;
    char error[256];
    in_library++;
    int cq_rc = rg_cq_open(&cq, &runtime, CAPACITY);
    int rc = rg_client_open_explained(&client, &runtime, &options, error, sizeof(error));
    in_library--;
    RG_CHECK(rc == 0 || (rc == -ENOMEM && strlen(error) > 0));
    RG_CHECK(cq_rc == 0 || cq_rc == -ENOMEM);
    if (rc == 0 && cq_rc == 0) {
        client_use();
    } else if (rc == 0) {
        rg_client_close_begin(client);
        RG_CHECK(client->loops[0].pool == NULL);
        rg_client_close_finish(client);
    }
    if (cq_rc == 0) {
        rg_cq_close(cq);
    }
}

static void loop_open_and_use(void)
{
    const struct rg_backend_ops backend = backend_make();
    const struct rg_loop_options options = {
        .backend = &backend,
        .backend_context = sim,
        .placement = {.cpu = -1, .node = -1},
        .memory_max = RG_MIB(16),
    };
    in_library++;
    int rc = rg_loop_create(&loop, &options);
    in_library--;
    RG_CHECK(rc == 0 || rc == -ENOMEM);
    if (rc < 0) {
        return;
    }
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
    loop_use();
    struct rg_slab_stats slabs;
    rg_slab_arena_stats(loop->slabs, &slabs);
    RG_CHECK_EQ(slabs.leased_bytes, 0);
    RG_CHECK_EQ(rg_sim_socket_count(sim), 0);
    rg_loop_destroy(loop);
}

/* One life of everything; false: it had fewer allocations than it takes to fail. */
static bool life_run(uint64_t number, bool and_all_after_it)
{
    allocation_count = 0;
    fail_at = number;
    fail_on = and_all_after_it;
    completion_count = accepted_count = 0;
    sim = rg_sim_create(&(struct rg_sim_options){.seed = rg_test_seed()});
    const struct rg_sim_gcs_options options = {
        .object_count = 2,
        .stored_count = 1,
        .listed_count = LISTED_COUNT,
        .object_size_max = OBJECT_SIZE_MAX,
    };
    gcs = rg_sim_gcs_create(sim, &options);
    rg_sim_gcs_fill(INDEX_PUT, 1, 0, upload, sizeof(upload));
    const struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(80),
        .sin_addr.s_addr = htonl(0x0a000001),
    };
    rg_sim_gcs_listen(gcs, (const struct sockaddr *)&address);
    loop_open_and_use();
    rg_sim_destroy(sim);
    sim = NULL;
    RG_CHECK(rg_sim_gcs_object(gcs, INDEX_PUT)->put_count <= 1);
    rg_sim_gcs_destroy(gcs);
    return allocation_count > number;
}

static void sweep(bool and_all_after_it)
{
    uint64_t number = 0;
    while (life_run(number, and_all_after_it)) {
        number++;
    }
    /* The last run had no failure at all. */
    RG_CHECK_EQ(accepted_count, 4);
    for (uint32_t i = 0; i < completion_count; i++) {
        RG_CHECK(completions[i].status == RG_STATUS_OK || completions[i].user_data == 4);
    }
    RG_CHECK(number > 10);
}

static void test_any_one_allocation_may_fail(void)
{
    sweep(false);
}

static void test_memory_may_run_out_for_good(void)
{
    sweep(true);
}

/* With threads and the kernel: here no simulation is involved. */
static void test_opening_a_runtime_may_fail(void)
{
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = 2;
    options.backend = RG_BACKEND_EPOLL;
    options.memory_max = RG_MIB(16);
    fail_on = false;
    fail_at = 0;
    do {
        struct rg_runtime *runtime = NULL;
        allocation_count = 0;
        in_library++;
        int rc = rg_runtime_open(&runtime, &options);
        in_library--;
        RG_CHECK(rc == 0 || (rc == -ENOMEM && runtime == NULL));
        rg_runtime_close(runtime);
    } while (allocation_count > fail_at++);
    RG_CHECK(fail_at > 3);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_any_one_allocation_may_fail),
        RG_TEST(test_memory_may_run_out_for_good),
        RG_TEST(test_opening_a_runtime_may_fail),
    };
    rg_test_allocation_fails = allocation_fails;
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
