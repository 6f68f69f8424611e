/* The whole client in the simulation: event loops without threads, a scripted Cloud Storage, and
 * virtual time, so that hours of trouble pass in seconds and every run can be repeated to the byte.
 *
 * A *scenario* is a data file in tests/sim/scenarios; each is one case, of some runs with a seed
 * each. A run: a world is built -> its jobs (requests) are planned -> they are submitted, cancelled
 * and taken off as their times come -> the client is closed -> what must hold of any run is
 * checked. A run that fails says its seed; `--seed` of it and the name of the case repeat it as the
 * first. */
#include "gcs/request/client.h"
#include "gcs/request/hedge.h"
#include "gcs/wire/checksum.h"
#include "http/pool.h"
#include "tests/support/sim_resolver.h"
#include "tests/support/sim_scenario.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <inttypes.h>

/* XX(file, case) */
#define SCENARIOS(XX)                                                                              \
    XX(calm, test_all_is_read_and_written_where_nothing_goes_wrong)                                \
    XX(short_io, test_transfers_in_pieces_lose_nothing)                                            \
    XX(resets, test_connections_that_break_are_made_up_for)                                        \
    XX(stalls, test_silence_ends_by_time_out)                                                      \
    XX(slow_server, test_a_slow_server_is_waited_for)                                              \
    XX(slow_connect, test_a_slow_connection_is_overtaken)                                          \
    XX(refused, test_refused_connections_are_tried_again)                                          \
    XX(dead_address, test_dead_addresses_are_passed_over)                                          \
    XX(no_server, test_without_a_server_all_fail_without_haste)                                    \
    XX(throttling, test_retry_after_is_waited_for)                                                 \
    XX(corrupt, test_no_damaged_object_gets_through)                                               \
    XX(truncated, test_bodies_that_end_early_are_continued)                                        \
    XX(replaced, test_no_object_is_made_of_two_generations)                                        \
    XX(lost_answers, test_an_upload_takes_effect_at_most_once)                                     \
    XX(hang_up, test_stale_connections_are_replaced)                                               \
    XX(no_memory, test_connections_wait_for_memory)                                                \
    XX(kernel_memory, test_a_kernel_short_of_memory_is_survived)                                   \
    XX(no_descriptors, test_missing_descriptors_are_survived)                                      \
    XX(cancel_storm, test_cancelled_requests_end_at_once)                                          \
    XX(deadlines, test_deadlines_are_kept)                                                         \
    XX(close_early, test_closing_ends_everything_at_once)                                          \
    XX(garbage, test_garbage_is_survived)                                                          \
    XX(hedged, test_second_requests_overtake_silent_ones)                                          \
    XX(hedged_ends, test_second_requests_end_with_their_first)                                     \
    XX(everything, test_everything_at_once)

#define LOOPS_MAX 8
/* Fewer than most runs have requests, so that submitting meets -EAGAIN. */
#define REQUESTS_AT_ONCE 32
#define BATCH_MAX 8
#define LISTED_COUNT 250
#define USER_DATA_FIRST 1000
/* A run that lasts longer hangs. */
#define RUN_NS_MAX (4 * 3600 * RG_NS_PER_S)
/* How late a cancellation, a deadline or closing may be: a tick of the timer wheel, and what a late
 * cancellation of an op takes. */
#define SLACK_NS (20 * RG_NS_PER_MS)
/* Passes of a loop that an attempt of a request may cost; more are a loop that does not rest. The
 * pieces into which the network cuts things cost one each. */
#define PASSES_PER_ATTEMPT_MAX 50
#define PASSES_BASE 500

enum job_kind { JOB_GET, JOB_RANGE, JOB_PUT, JOB_LIST };

/* A request, from its plan to what became of it. */
struct job {
    enum job_kind kind;
    uint32_t index;     /* of the object */
    bool missing;       /* a read of an object that is not there */
    bool by_generation; /* a read of the first version, whichever is the newest */
    uint64_t offset, length;
    uint8_t *memory; /* the reader's own, or what is uploaded; NULL: none */
    uint64_t memory_size;
    bool conditional;
    uint32_t first, count; /* of a page */
    /* When it is to be done; 0: never, or done. */
    uint64_t submit_ns, cancel_ns, deadline_ns, release_ns;
    bool accepted, cancelled, completed;
    uint64_t accepted_ns, cancelled_ns, completed_ns;
    struct rg_completion completion;
};

struct world {
    struct rg_sim_scenario scenario;
    struct rg_sim *sim;
    struct rg_sim_gcs *gcs;
    struct rg_runtime runtime;
    struct rg_loop *loops[LOOPS_MAX];
    struct rg_resolver *resolver; /* NULL: the client's own */
    struct rg_client *client;
    struct rg_cq *cq;
    struct job *jobs;
    uint32_t job_count, completed_count;
    uint64_t close_ns; /* 0: when all is done */
    bool full;         /* no more can be submitted before something completes */
    bool closing, closed;
};

static struct world *world;
static uint64_t fault_totals[RG_SIM_FAULT_COUNT], trouble_totals[RG_SIM_GCS_TROUBLE_COUNT];
static uint64_t hedge_total, hedge_win_total;
static uint32_t scenarios_run;

/* Takes the place of rg_now_ns in all that is linked: a submission is dated by virtual time. */
uint64_t __wrap_rg_now_ns(void);
uint64_t __wrap_rg_now_ns(void)
{
    return rg_sim_now_ns(world->sim);
}

static uint64_t now(void)
{
    return rg_sim_now_ns(world->sim);
}

static uint64_t below(uint64_t bound)
{
    return rg_sim_random_below(world->sim, bound);
}

static bool percent(uint64_t share)
{
    return below(100) < share;
}

static struct sockaddr_in server_address(uint32_t index)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons(80),
        .sin_addr.s_addr = htonl(0x0a000001 + index),
    };
}

static void servers_open(void)
{
    const struct rg_sim_scenario *scenario = &world->scenario;
    for (uint32_t i = 0; i < scenario->addresses; i++) {
        struct sockaddr_in address = server_address(i);
        if (i >= scenario->refusing_addresses) {
            rg_sim_gcs_listen(world->gcs, (struct sockaddr *)&address);
        }
        if (i >= scenario->refusing_addresses &&
            i < scenario->refusing_addresses + scenario->silent_addresses) {
            rg_sim_delay_connections(world->sim, (struct sockaddr *)&address, RG_FOREVER);
        }
    }
}

static void loops_open(void)
{
    const struct rg_sim_scenario *scenario = &world->scenario;
    RG_CHECK(scenario->loops > 0 && scenario->loops <= LOOPS_MAX);
    world->runtime = (struct rg_runtime){
        .fork_generation = rg_fork_generation(),
        .backend = &rg_sim_backend,
        .backend_reason = "",
        .loop_count = (uint32_t)scenario->loops,
        .loops = world->loops,
    };
    for (uint32_t i = 0; i < scenario->loops; i++) {
        const struct rg_loop_options options = {
            .index = i,
            .backend = &rg_sim_backend,
            .backend_context = world->sim,
            .placement = {.cpu = -1, .node = -1},
            .memory_max = scenario->memory_mib << 20,
        };
        RG_CHECK_EQ(rg_loop_create(&world->loops[i], &options), 0);
        RG_CHECK_EQ(rg_loop_attach(world->loops[i]), 0);
    }
}

static void resolver_open(void)
{
    struct sockaddr_in addresses[RG_RESOLVER_ADDRESSES_MAX];
    uint32_t count = (uint32_t)world->scenario.addresses;
    RG_CHECK(count <= RG_RESOLVER_ADDRESSES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        addresses[i] = server_address(i);
    }
    world->resolver =
        rg_sim_resolver_create(world->sim, world->loops[0], "storage.test", addresses, count);
}

static void client_open(void)
{
    const struct rg_sim_scenario *scenario = &world->scenario;
    struct rg_client_options options;
    rg_client_options_init(&options);
    options.endpoint = scenario->addresses > 1 ? "http://storage.test" : "http://10.0.0.1";
    options.headers = "";
    options.connections_max = (uint32_t)scenario->connections;
    options.requests_max = REQUESTS_AT_ONCE;
    options.attempts_max = (uint32_t)scenario->attempts;
    options.prewarm = (uint32_t)scenario->prewarm;
    if (scenario->addresses > 1) {
        resolver_open();
    }
    RG_CHECK_EQ(rg_client_open(&world->client, &world->runtime, &options), 0);
    for (uint32_t i = 0; i < world->client->loop_count && world->resolver != NULL; i++) {
        world->client->loops[i].pool->addresses.resolver = world->resolver;
    }
    RG_CHECK_EQ(rg_cq_open(&world->cq, &world->runtime, REQUESTS_AT_ONCE), 0);
}

static enum job_kind job_kind_choose(void)
{
    const struct rg_sim_scenario *scenario = &world->scenario;
    const uint64_t shares[] = {
        [JOB_GET] = scenario->gets,
        [JOB_RANGE] = scenario->ranges,
        [JOB_PUT] = scenario->puts,
        [JOB_LIST] = scenario->lists,
    };
    uint64_t total = scenario->gets + scenario->ranges + scenario->puts + scenario->lists;
    uint64_t at = below(total);
    uint32_t kind = 0;
    while (at >= shares[kind]) {
        at -= shares[kind++];
    }
    return (enum job_kind)kind;
}

static bool job_reads(const struct job *job)
{
    return job->kind == JOB_GET || job->kind == JOB_RANGE;
}

static bool is_replacing(void)
{
    return world->scenario.server[RG_SIM_GCS_REPLACE] > 0;
}

/* What only can be planned when the sizes of objects are known. */
static void job_plan_memory(struct job *job)
{
    uint64_t size = rg_sim_gcs_size(world->gcs, job->index, 1);
    job->length = RG_WHOLE;
    if (job->kind == JOB_RANGE) {
        job->offset = below(size + size / 16 + 2);
        job->length = percent(30) ? RG_WHOLE : 1 + below(size + 1);
    }
    if (job_reads(job) && percent(world->scenario.buffers_percent)) {
        uint64_t left = job->offset < size ? size - job->offset : 0;
        uint64_t largest = world->scenario.object_kib << 10;
        job->memory_size = is_replacing() ? largest : RG_MIN(left, job->length);
        job->memory = malloc(job->memory_size + 1);
    } else if (job->kind == JOB_PUT) {
        job->memory_size = size;
        job->memory = malloc(size + 1);
        rg_sim_gcs_fill(job->index, 1, 0, job->memory, size);
    }
}

static void job_plan(struct job *job)
{
    const struct rg_sim_scenario *scenario = &world->scenario;
    job->kind = job_kind_choose();
    job->submit_ns = now() + below(scenario->spread_ms * RG_NS_PER_MS + 1);
    if (percent(scenario->cancel_percent)) {
        job->cancel_ns = job->submit_ns + below(scenario->cancel_ms * RG_NS_PER_MS + 1);
    }
    if (percent(scenario->deadline_percent)) {
        job->deadline_ns = job->submit_ns + below(scenario->deadline_ms * RG_NS_PER_MS + 1);
    }
    job->missing = job_reads(job) && percent(5);
    job->conditional = percent(50);
    job->by_generation = percent(20) && !is_replacing();
    job->first = (uint32_t)below(LISTED_COUNT);
    job->count = 1 + (uint32_t)below(100);
}

/* Each job has an object of its own; those that are stored come first. */
static void jobs_plan(void)
{
    const struct rg_sim_scenario *scenario = &world->scenario;
    world->job_count = (uint32_t)scenario->requests;
    world->jobs = calloc(world->job_count, sizeof(*world->jobs));
    uint32_t stored_count = 0;
    for (uint32_t i = 0; i < world->job_count; i++) {
        job_plan(&world->jobs[i]);
        stored_count += job_reads(&world->jobs[i]) && !world->jobs[i].missing;
    }
    struct rg_sim_gcs_options options = {
        .object_count = world->job_count,
        .stored_count = stored_count,
        .listed_count = LISTED_COUNT,
        .object_size_max = scenario->object_kib << 10,
        .pause_ns_max = scenario->pause_ms * RG_NS_PER_MS,
    };
    memcpy(options.troubles, scenario->server, sizeof(options.troubles));
    world->gcs = rg_sim_gcs_create(world->sim, &options);
    uint32_t stored = 0, others = stored_count;
    for (uint32_t i = 0; i < world->job_count; i++) {
        struct job *job = &world->jobs[i];
        job->index = job_reads(job) && !job->missing ? stored++ : others++;
        job_plan_memory(job);
    }
    if (scenario->close_ms > 0) {
        world->close_ns = now() + below(scenario->close_ms * RG_NS_PER_MS);
    }
}

static void world_open(const struct rg_sim_scenario *scenario, uint64_t seed)
{
    world = calloc(1, sizeof(*world));
    RG_CHECK(world != NULL);
    world->scenario = *scenario;
    struct rg_sim_options options = {
        .seed = seed,
        .latency_ns = scenario->latency_us * RG_NS_PER_US,
        .window = scenario->window_kib << 10,
    };
    memcpy(options.faults, scenario->network, sizeof(options.faults));
    world->sim = rg_sim_create(&options);
    jobs_plan();
    servers_open();
    loops_open();
    client_open();
}

/* True if these are the bytes of that version of the object. */
static bool bytes_are(const struct job *job, uint32_t version, const void *data, uint64_t size)
{
    uint8_t *expected = malloc(size + 1);
    rg_sim_gcs_fill(job->index, version, job->offset, expected, size);
    bool same = size == 0 || memcmp(data, expected, size) == 0;
    free(expected);
    return same;
}

static void check_read(const struct job *job)
{
    const struct rg_completion *completion = &job->completion;
    uint32_t version = rg_sim_gcs_version(world->gcs, job->index, completion->generation);
    RG_CHECK(version > 0);
    uint64_t size = rg_sim_gcs_size(world->gcs, job->index, version);
    RG_CHECK(job->offset <= size);
    RG_CHECK_EQ(completion->size, RG_MIN(size - job->offset, job->length));
    RG_CHECK_EQ(completion->object_size, size);
    RG_CHECK(bytes_are(job, version, completion->data, completion->size));
    RG_CHECK_EQ(completion->crc32c, rg_crc32c(0, completion->data, completion->size));
    RG_CHECK(completion->has_object_crc32c);
    RG_CHECK(job->memory == NULL || completion->data == job->memory);
    RG_CHECK((job->memory == NULL) == (completion->lease != NULL));
}

static void check_page(const struct job *job)
{
    const struct rg_list_page *page = job->completion.data;
    uint32_t end = RG_MIN(job->first + job->count, (uint32_t)LISTED_COUNT);
    RG_CHECK_EQ(page->object_count, end - job->first);
    RG_CHECK_EQ(page->prefix_count, 0);
    char text[RG_SIM_GCS_NAME_SIZE_MAX];
    for (uint32_t i = job->first; i < end; i++) {
        const struct rg_object *object = &page->objects[i - job->first];
        rg_sim_gcs_listed_name(i, text);
        RG_CHECK_STR(object->name, text);
        RG_CHECK_EQ(object->size, RG_SIM_GCS_LISTED_SIZE);
        RG_CHECK(object->has_crc32c);
    }
    RG_CHECK((page->next_page_token != NULL) == (end < LISTED_COUNT));
}

/* What the reader's own memory holds of a read that failed is good as far as it goes. */
static void check_broken_read(const struct job *job)
{
    const struct rg_completion *completion = &job->completion;
    if (job->memory == NULL || world->scenario.server[RG_SIM_GCS_CORRUPT] > 0) {
        return;
    }
    const struct rg_sim_gcs_object *object = rg_sim_gcs_object(world->gcs, job->index);
    bool good = completion->size == 0;
    for (uint32_t i = 1; i <= object->version_count && !good; i++) {
        good = bytes_are(job, i, completion->data, completion->size);
    }
    RG_CHECK(good);
}

static void check_contents(const struct job *job)
{
    if (job->completion.status != RG_STATUS_OK) {
        if (job_reads(job)) {
            check_broken_read(job);
        }
        return;
    }
    if (job->kind == JOB_LIST) {
        check_page(job);
    } else if (job->kind == JOB_PUT) {
        RG_CHECK_EQ(rg_sim_gcs_version(world->gcs, job->index, job->completion.generation), 1);
        RG_CHECK_EQ(job->completion.object_size, job->memory_size);
    } else {
        check_read(job);
    }
}

static bool offset_is_outside(const struct job *job)
{
    const struct rg_sim_gcs_object *object = rg_sim_gcs_object(world->gcs, job->index);
    for (uint32_t i = 1; i <= object->version_count; i++) {
        if (job->kind == JOB_RANGE && job->offset >= rg_sim_gcs_size(world->gcs, job->index, i)) {
            return true;
        }
    }
    return false;
}

/* Whether a request may have ended so, after all that there was. */
static bool status_is_plausible(const struct job *job)
{
    const struct rg_completion *completion = &job->completion;
    const struct rg_sim_gcs_object *object = rg_sim_gcs_object(world->gcs, job->index);
    switch (completion->status) {
    case RG_STATUS_OK:
        return !job->missing;
    case RG_STATUS_CANCELLED:
        return job->cancelled;
    case RG_STATUS_DEADLINE:
        return job->deadline_ns != 0 && job->completed_ns >= job->deadline_ns;
    case RG_STATUS_CLOSED:
        return world->closing;
    case RG_STATUS_NOT_FOUND:
        return job->missing;
    case RG_STATUS_RANGE:
        return offset_is_outside(job);
    case RG_STATUS_PRECONDITION:
        /* It was a lost answer that told of success. */
        return job->conditional && object->put_count == 1 && completion->attempts > 1;
    case RG_STATUS_CHECKSUM:
        return job_reads(job);
    default:
        return rg_status_retryable(completion->status) &&
               completion->status != RG_STATUS_HTTP_PROTOCOL;
    }
}

/* What would have been to be expected, had nobody disturbed it. */
static bool status_is_final(const struct job *job)
{
    enum rg_status status = job->completion.status;
    bool disturbed = job->cancelled || job->deadline_ns != 0 || world->close_ns != 0;
    bool once = job->kind == JOB_PUT && !job->conditional;
    return disturbed || once || status == RG_STATUS_OK || status == RG_STATUS_NOT_FOUND ||
           status == RG_STATUS_RANGE || status == RG_STATUS_PRECONDITION;
}

static void check_completion(const struct job *job)
{
    const struct rg_sim_scenario *scenario = &world->scenario;
    const struct rg_completion *completion = &job->completion;
    RG_CHECK(completion->status < RG_STATUS_COUNT);
    /* Who asks what became of a write has as many attempts again. */
    uint32_t rounds = job->kind == JOB_PUT && job->conditional ? 2 : 1;
    RG_CHECK(completion->attempts <= rounds * scenario->attempts);
    RG_CHECK(completion->finished_ns <= job->completed_ns);
    RG_CHECK(completion->started_ns <= completion->finished_ns);
    if (completion->status != RG_STATUS_OK && completion->lease != NULL) {
        RG_CHECK(strstr(completion->detail, RG_SIM_GCS_BUCKET) != NULL);
    }
    if (scenario->garbled) {
        return;
    }
    if (!status_is_plausible(job) || (scenario->all_ok && !status_is_final(job))) {
        rg_test_fail(__FILE__, __LINE__,
                     "job %td (kind %d, offset %" PRIu64 ", length %" PRIu64 ", own memory %" PRIu64
                     ") ended %s: %s",
                     job - world->jobs, (int)job->kind, job->offset, job->length, job->memory_size,
                     rg_status_name(completion->status),
                     completion->detail != NULL ? completion->detail : "no detail");
    }
    RG_CHECK(!scenario->none_ok || completion->status == RG_STATUS_CONNECT);
    check_contents(job);
}

static void job_complete(const struct rg_completion *completion)
{
    uint64_t number = completion->user_data - USER_DATA_FIRST;
    RG_CHECK(number < world->job_count && !world->closed);
    struct job *job = &world->jobs[number];
    RG_CHECK(job->accepted && !job->completed);
    job->completed = true;
    job->completed_ns = now();
    job->completion = *completion;
    world->completed_count++;
    world->full = false;
    check_completion(job);
    if (job->cancelled) {
        RG_CHECK(now() <= job->cancelled_ns + SLACK_NS);
    }
    if (job->deadline_ns != 0) {
        RG_CHECK(now() <= RG_MAX(job->deadline_ns, job->accepted_ns) + SLACK_NS);
    }
    job->release_ns = now() + below(world->scenario.hold_ms * RG_NS_PER_MS + 1);
}

/* Takes completions off; true if there were any. */
static bool collect(void *context)
{
    struct rg_completion completions[REQUESTS_AT_ONCE];
    RG_ASSERT(context == world);
    int count = rg_cq_poll(world->cq, completions, RG_ARRAY_LEN(completions));
    RG_CHECK(count >= 0);
    for (int i = 0; i < count; i++) {
        job_complete(&completions[i]);
    }
    return count > 0;
}

static void get_make(const struct job *job, const char *name, struct rg_get *out_get)
{
    *out_get = (struct rg_get){
        .bucket = RG_SIM_GCS_BUCKET,
        .object = name,
        .generation = job->by_generation ? rg_sim_gcs_first(world->gcs, job->index) : 0,
        .offset = job->offset,
        .length = job->length,
        .buf = job->memory,
        .buf_size = job->memory_size,
        .user_data = USER_DATA_FIRST + (uint64_t)(job - world->jobs),
        .deadline_ns = job->deadline_ns,
    };
}

/* Submits reads that are due in one go, from this job on. Returns how many were accepted. */
static int submit_reads(struct job *job)
{
    struct rg_get gets[BATCH_MAX];
    char names[BATCH_MAX][RG_SIM_GCS_NAME_SIZE_MAX];
    uint32_t count = 0;
    const struct job *end = world->jobs + world->job_count;
    for (const struct job *next = job; next < end && count < BATCH_MAX; next++, count++) {
        if (!job_reads(next) || next->accepted || next->submit_ns > now()) {
            break;
        }
        rg_sim_gcs_name(next->index, names[count]);
        get_make(next, names[count], &gets[count]);
    }
    return rg_submit_gets(world->client, world->cq, gets, count);
}

static int submit_other(struct job *job)
{
    uint64_t user_data = USER_DATA_FIRST + (uint64_t)(job - world->jobs);
    char text[RG_SIM_GCS_NAME_SIZE_MAX];
    int rc;
    if (job->kind == JOB_LIST) {
        rg_sim_gcs_listed_name(job->first, text);
        rc = rg_submit_list(world->client, world->cq,
                            &(struct rg_list_request){
                                .bucket = RG_SIM_GCS_BUCKET,
                                .prefix = RG_SIM_GCS_LISTED,
                                .start_offset = text,
                                .results_max = job->count,
                                .user_data = user_data,
                                .deadline_ns = job->deadline_ns,
                            });
    } else {
        rg_sim_gcs_name(job->index, text);
        rc = rg_submit_put(world->client, world->cq,
                           &(struct rg_put){
                               .bucket = RG_SIM_GCS_BUCKET,
                               .object = text,
                               .data = job->memory,
                               .size = job->memory_size,
                               .if_generation_match = job->conditional ? RG_GENERATION_ABSENT : 0,
                               .user_data = user_data,
                               .deadline_ns = job->deadline_ns,
                           });
    }
    return rc == 0 ? 1 : rc;
}

static void job_submit(struct job *job)
{
    int count = job_reads(job) ? submit_reads(job) : submit_other(job);
    if (count == -EAGAIN) {
        world->full = true;
        return;
    }
    RG_CHECK(count > 0);
    for (int i = 0; i < count; i++) {
        job[i].accepted = true;
        job[i].accepted_ns = now();
    }
}

static void job_release(struct job *job)
{
    job->release_ns = 0;
    if (world->scenario.hold_ms > 0 && !world->scenario.garbled) {
        /* Nobody may have touched it meanwhile. */
        check_contents(job);
    }
    rg_lease_release(job->completion.lease);
    if (job->completion.lease == NULL && job->memory == NULL) {
        return;
    }
    job->completion.lease = NULL;
    job->completion.data = job->completion.detail = NULL;
}

/* Does for the job what is due, and returns when there will be more. */
static uint64_t job_act(struct job *job)
{
    uint64_t next_ns = UINT64_MAX;
    if (!job->accepted && !world->closing && !world->full) {
        if (job->submit_ns <= now()) {
            job_submit(job);
        }
        next_ns = job->accepted || world->full ? next_ns : job->submit_ns;
    }
    if (job->cancel_ns != 0 && job->accepted && !job->completed && !world->closing) {
        if (job->cancel_ns <= now()) {
            uint64_t user_data = USER_DATA_FIRST + (uint64_t)(job - world->jobs);
            RG_CHECK_EQ(rg_cancel(world->client, world->cq, user_data), 0);
            job->cancelled = true;
            job->cancelled_ns = now();
            job->cancel_ns = 0;
        } else {
            next_ns = RG_MIN(next_ns, job->cancel_ns);
        }
    }
    if (job->release_ns != 0) {
        if (job->release_ns <= now()) {
            job_release(job);
        } else {
            next_ns = RG_MIN(next_ns, job->release_ns);
        }
    }
    return next_ns;
}

static uint64_t jobs_act(void)
{
    uint64_t next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < world->job_count; i++) {
        uint64_t job_ns = job_act(&world->jobs[i]);
        next_ns = RG_MIN(next_ns, job_ns);
    }
    return next_ns;
}

/* Until all is done, or it is time to close. */
static void jobs_drive(void)
{
    uint64_t limit_ns = now() + RUN_NS_MAX;
    while (world->completed_count < world->job_count) {
        if (world->close_ns != 0 && now() >= world->close_ns) {
            return;
        }
        if (now() >= limit_ns) {
            rg_test_fail(__FILE__, __LINE__, "%" PRIu32 " of %" PRIu32 " requests never complete",
                         world->job_count - world->completed_count, world->job_count);
        }
        uint64_t until_ns = RG_MIN(jobs_act(), limit_ns);
        if (world->close_ns != 0) {
            until_ns = RG_MIN(until_ns, world->close_ns);
        }
        (void)rg_sim_run(world->sim, until_ns, collect, world);
    }
}

static bool client_is_closed(void *context)
{
    (void)collect(context);
    for (uint32_t i = 0; i < world->client->loop_count; i++) {
        if (world->client->loops[i].pool != NULL) {
            return false;
        }
    }
    return true;
}

static void client_shut(void)
{
    /* Mail must not arrive at a client that is being closed. */
    while (rg_sim_run(world->sim, now(), collect, world)) {
    }
    world->closing = true;
    rg_client_close_begin(world->client);
    RG_CHECK(rg_sim_run(world->sim, now() + SLACK_NS, client_is_closed, world));
    rg_client_close_finish(world->client);
    world->closed = true;
    (void)rg_sim_run(world->sim, now() + 3600 * RG_NS_PER_S, collect, world);
    rg_resolver_destroy(world->resolver);
    for (uint32_t i = 0; i < world->job_count; i++) {
        struct job *job = &world->jobs[i];
        RG_CHECK_EQ(job->completed, job->accepted);
        if (job->release_ns != 0) {
            job_release(job);
        }
    }
}

/* Uploads take effect as often as their conditions and completions say. */
static void check_books(void)
{
    for (uint32_t i = 0; i < world->job_count; i++) {
        const struct job *job = &world->jobs[i];
        const struct rg_sim_gcs_object *object = rg_sim_gcs_object(world->gcs, job->index);
        enum rg_status status = job->completion.status;
        RG_CHECK_EQ(object->bad_put_count, 0);
        RG_CHECK(object->put_count <= (job->kind == JOB_PUT));
        RG_CHECK(!world->scenario.patient || object->early_count == 0);
        RG_CHECK(object->request_count <= (job->accepted ? job->completion.attempts : 0u));
        if (job->kind == JOB_PUT && job->accepted && status == RG_STATUS_OK) {
            RG_CHECK_EQ(object->put_count, 1);
        }
    }
}

static void check_loop(const struct rg_loop *loop)
{
    struct rg_slab_stats slabs;
    rg_slab_arena_stats(loop->slabs, &slabs);
    RG_CHECK_EQ(slabs.leased_bytes, 0);
    RG_CHECK(rg_slab_arena_is_sound(loop->slabs));
    RG_CHECK_EQ(loop->timers.armed_count, 0);
    RG_CHECK(loop->ready_head == NULL);
    RG_CHECK(rg_list_empty(&loop->tasks));
    RG_CHECK(rg_list_empty(&loop->slab_waiters));
    RG_CHECK_EQ(loop->completion_count, 0);
}

/* No loop was busy without getting anywhere. */
static void check_passes(void)
{
    uint64_t attempts = 0, passes = 0;
    for (uint32_t i = 0; i < world->job_count; i++) {
        attempts += 1 + world->jobs[i].completion.attempts;
    }
    for (uint32_t i = 0; i < world->scenario.loops; i++) {
        attempts += rg_metric_load(&world->loops[i]->metrics.connections_opened);
        attempts += rg_metric_load(&world->loops[i]->metrics.connections_failed);
        passes = RG_MAX(passes, rg_metric_load(&world->loops[i]->metrics.wakeups));
    }
    if (passes > PASSES_BASE + PASSES_PER_ATTEMPT_MAX * attempts) {
        rg_test_fail(__FILE__, __LINE__, "%" PRIu64 " passes for %" PRIu64 " attempts", passes,
                     attempts);
    }
}

/* Second requests are few, however bad it was. */
static void check_hedges(void)
{
    for (uint32_t i = 0; i < world->scenario.loops; i++) {
        const struct rg_metrics *metrics = &world->loops[i]->metrics;
        uint64_t hedges = rg_metric_load(&metrics->hedges);
        RG_CHECK(hedges * 1000 <= RG_HEDGE_PER_1000_DEFAULT * rg_metric_load(&metrics->attempts));
        RG_CHECK_EQ(rg_metric_load(&metrics->in_flight), 0);
        hedge_total += hedges;
        hedge_win_total += rg_metric_load(&metrics->hedge_wins);
    }
}

static void world_close(void)
{
    RG_CHECK_EQ(rg_sim_socket_count(world->sim), 0);
    if (!world->scenario.garbled) {
        check_books();
    }
    for (uint32_t i = 0; i < world->scenario.loops; i++) {
        check_loop(world->loops[i]);
    }
    check_passes();
    check_hedges();
    rg_cq_close(world->cq);
    for (uint32_t i = 0; i < world->scenario.loops; i++) {
        rg_loop_destroy(world->loops[i]);
    }
    for (int i = 0; i < RG_SIM_FAULT_COUNT; i++) {
        fault_totals[i] += rg_sim_fault_count(world->sim, (enum rg_sim_fault)i);
    }
    for (int i = 0; i < RG_SIM_GCS_TROUBLE_COUNT; i++) {
        trouble_totals[i] += rg_sim_gcs_trouble_count(world->gcs, (enum rg_sim_gcs_trouble)i);
    }
    rg_sim_destroy(world->sim);
    rg_sim_gcs_destroy(world->gcs);
    for (uint32_t i = 0; i < world->job_count; i++) {
        free(world->jobs[i].memory);
    }
    free(world->jobs);
    free(world);
    world = NULL;
}

/* One run; returns the hash of all that happened in it. */
static uint64_t run_once(const struct rg_sim_scenario *scenario, uint64_t seed)
{
    world_open(scenario, seed);
    jobs_drive();
    client_shut();
    uint64_t hash = rg_sim_hash(world->sim);
    world_close();
    return hash;
}

static const char *scenarios_folder(void)
{
    static char folder[512];
    const char *tests = getenv("RINGEST_TESTS");
    snprintf(folder, sizeof(folder), "%s/sim/scenarios", tests != NULL ? tests : "tests");
    return folder;
}

static struct rg_sim_scenario scenario_load(const char *name)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s.txt", scenarios_folder(), name);
    struct rg_sim_scenario scenario;
    int rc = rg_sim_scenario_read(&scenario, path);
    if (rc != 0) {
        rg_test_fail(__FILE__, __LINE__, "%s: %s %d", path, rc < 0 ? "error" : "wrong line", rc);
    }
    return scenario;
}

static void scenario_run(const char *name)
{
    struct rg_sim_scenario scenario = scenario_load(name);
    for (uint64_t i = 0; i < rg_test_rounds((uint32_t)scenario.runs); i++) {
        (void)run_once(&scenario, rg_test_seed() + i);
    }
    scenarios_run++;
}

#define XX(file, test)                                                                             \
    static void test(void)                                                                         \
    {                                                                                              \
        scenario_run(#file);                                                                       \
    }
SCENARIOS(XX)
#undef XX

enum {
    SCENARIO_COUNT = 0
#define XX(file, test) +1
    SCENARIOS(XX)
#undef XX
};

static void test_a_seed_repeats_its_run(void)
{
    struct rg_sim_scenario scenario = scenario_load("everything");
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t hash = run_once(&scenario, rg_test_seed() + i);
        RG_CHECK(run_once(&scenario, rg_test_seed() + i) == hash);
        RG_CHECK(run_once(&scenario, rg_test_seed() + i + 1) != hash);
    }
}

static void test_every_fault_has_struck(void)
{
    if (scenarios_run < SCENARIO_COUNT) {
        rg_test_skip("not all scenarios were run");
    }
    for (size_t i = 0; i < RG_SIM_FAULT_COUNT; i++) {
        RG_CHECK(fault_totals[i] > 0);
    }
    for (size_t i = 0; i < RG_SIM_GCS_TROUBLE_COUNT; i++) {
        RG_CHECK(trouble_totals[i] > 0);
    }
    /* Some win and some do not. */
    RG_CHECK(hedge_win_total > 0 && hedge_win_total < hedge_total);
}

static void test_every_scenario_file_is_run(void)
{
    DIR *folder = opendir(scenarios_folder());
    RG_CHECK(folder != NULL);
    size_t count = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        count += strstr(entry->d_name, ".txt") != NULL;
    }
    closedir(folder);
    RG_CHECK_EQ(count, SCENARIO_COUNT);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
#define XX(file, test) RG_TEST(test),
        SCENARIOS(XX)
#undef XX
            RG_TEST(test_a_seed_repeats_its_run),
        RG_TEST(test_every_fault_has_struck),
        RG_TEST(test_every_scenario_file_is_run),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
