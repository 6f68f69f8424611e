/* Whole listings in the simulation, against a bucket that is an array: whatever the names, the
 * server and the network do, each name comes once, and in order where that is asked for.
 *
 * A run: a world is built from a seed -> the listing is read to its end, or given up somewhere ->
 * it is closed, and the client -> nothing is left. */
#include "gcs/listing/listing.h"
#include "gcs/request/client.h"
#include "http/pool.h"
#include "http/url.h"
#include "tests/support/listing_model.h"
#include "tests/support/sim_gcs.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <inttypes.h>

#define RUNS 1000
#define NAMES_MAX 250
/* A run that lasts longer hangs. */
#define RUN_NS_MAX (24 * 3600 * RG_NS_PER_S)
#define SLACK_NS (20 * RG_NS_PER_MS)
/* One way: enough for the listing to find many requests at once worth while. */
#define LATENCY_NS (10 * RG_NS_PER_MS)
#define MEMORY_MAX RG_MIB(16)

/* The course of a run. */
struct plan {
    enum rg_test_name_kind kind;
    bool calm;   /* nothing goes wrong */
    bool swift;  /* and the server sends at once */
    bool prompt; /* so does the caller ask */
    uint64_t latency_ns, pages_wanted;
    bool ordered;
    uint32_t requests_max, page_max;
    uint64_t memory_max;
};

struct world {
    struct plan plan;
    struct rg_listing_model model;
    struct rg_sim *sim;
    struct rg_sim_gcs *gcs;
    struct rg_runtime runtime;
    struct rg_loop *loop;
    struct rg_client *client;
    struct rg_cq *cq;
    struct rg_listing *listing;
    struct rg_listing_found found;
    bool has_completion;
    struct rg_completion completion;
    uint32_t page_count;
    uint64_t leased_max;
};

static struct world *world;

/* Takes the place of rg_now_ns in all that is linked: a submission is dated by virtual time. */
uint64_t __wrap_rg_now_ns(void);
uint64_t __wrap_rg_now_ns(void)
{
    return rg_sim_now_ns(world->sim);
}

static void write_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if ((uint8_t)*text < 0x20 || *text == '"' || *text == '\\') {
            fprintf(out, "\\u%04x", (unsigned)(uint8_t)*text);
        } else {
            fputc(*text, out);
        }
    }
    fputc('"', out);
}

static void write_page(FILE *out, const struct rg_list_page *page)
{
    fputs("{\"kind\":\"storage#objects\"", out);
    if (page->next_page_token != NULL) {
        fputs(",\"nextPageToken\":", out);
        write_text(out, page->next_page_token);
    }
    for (size_t i = 0; i < page->object_count; i++) {
        fputs(i == 0 ? ",\"items\":[{\"name\":" : ",{\"name\":", out);
        write_text(out, page->objects[i].name);
        fprintf(out, ",\"size\":\"5\",\"generation\":\"%" PRId64 "\"}",
                page->objects[i].generation);
    }
    fputs(page->object_count > 0 ? "]" : "", out);
    for (size_t i = 0; i < page->prefix_count; i++) {
        fputs(i == 0 ? ",\"prefixes\":[" : ",", out);
        write_text(out, page->prefixes[i]);
    }
    fputs(page->prefix_count > 0 ? "]}" : "}", out);
}

struct question {
    char start[RG_OBJECT_NAME_SIZE_MAX + 1], end[RG_OBJECT_NAME_SIZE_MAX + 1];
    char token[RG_LISTING_MODEL_TOKEN_SIZE];
    char count[16];
};

static void question_read(struct rg_h1_slice target, struct question *question)
{
    struct rg_h1_slice path, query, name, value;
    const struct {
        const char *name;
        char *out;
        size_t size;
    } fields[] = {{"startOffset", question->start, sizeof(question->start)},
                  {"endOffset", question->end, sizeof(question->end)},
                  {"pageToken", question->token, sizeof(question->token)},
                  {"maxResults", question->count, sizeof(question->count)}};
    rg_url_target_split(target, &path, &query);
    while (rg_url_query_next(&query, &name, &value)) {
        for (size_t i = 0; i < RG_ARRAY_LEN(fields); i++) {
            if (strlen(fields[i].name) == name.size &&
                memcmp(name.data, fields[i].name, name.size) == 0) {
                int size =
                    rg_url_percent_decode(value, RG_URL_QUERY, fields[i].out, fields[i].size - 1);
                RG_CHECK(size >= 0);
                fields[i].out[size] = '\0';
            }
        }
    }
}

/* The server: pages may be short, and even empty, and go on. */
static void list_write(void *context, struct rg_h1_slice target, FILE *out)
{
    RG_ASSERT(context == world);
    struct question question = {.start = "", .end = "", .token = "", .count = ""};
    question_read(target, &question);
    uint32_t count = (uint32_t)atoi(question.count);
    RG_CHECK_EQ(count, world->plan.page_max);
    uint64_t chance = world->plan.calm ? 100 : rg_sim_random_below(world->sim, 100);
    if (chance < 20) {
        count = (uint32_t)rg_sim_random_below(world->sim, count + 1);
    }
    struct rg_listing_model_page page = {.token = ""};
    rg_listing_model_serve(&world->model, question.start, question.end,
                           question.token[0] != '\0' ? question.token : NULL, count, &page);
    write_page(out, &page.page);
    rg_listing_model_page_free(&page);
}

static void server_open(void)
{
    struct rg_sim_gcs_options options = {
        .object_count = 1,
        .pause_ns_max = 300 * RG_NS_PER_MS,
        .list = list_write,
        .list_context = world,
    };
    static const enum rg_sim_gcs_trouble troubles[] = {
        RG_SIM_GCS_ERROR, RG_SIM_GCS_THROTTLE, RG_SIM_GCS_LOSE_ANSWER, RG_SIM_GCS_TRUNCATE,
        RG_SIM_GCS_STALL, RG_SIM_GCS_INTERIM,  RG_SIM_GCS_CLOSE,       RG_SIM_GCS_HANG_UP,
    };
    options.troubles[RG_SIM_GCS_SLOW] = world->plan.swift ? 0 : RG_SIM_ALWAYS / 2;
    for (size_t i = 0; i < RG_ARRAY_LEN(troubles) && !world->plan.calm; i++) {
        options.troubles[troubles[i]] = RG_SIM_ALWAYS / 50;
    }
    world->gcs = rg_sim_gcs_create(world->sim, &options);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr.s_addr = htonl(0x0a000001)};
    rg_sim_gcs_listen(world->gcs, (struct sockaddr *)&address);
}

static void client_open(void)
{
    world->runtime = (struct rg_runtime){
        .fork_generation = rg_fork_generation(),
        .backend = &rg_sim_backend,
        .backend_reason = "",
        .loop_count = 1,
        .loops = &world->loop,
    };
    const struct rg_loop_options loop_options = {
        .backend = &rg_sim_backend,
        .backend_context = world->sim,
        .placement = {.cpu = -1, .node = -1},
        .memory_max = world->plan.memory_max,
    };
    RG_CHECK_EQ(rg_loop_create(&world->loop, &loop_options), 0);
    RG_CHECK_EQ(rg_loop_attach(world->loop), 0);
    struct rg_client_options options;
    rg_client_options_init(&options);
    options.endpoint = "http://10.0.0.1";
    options.headers = "";
    options.attempts_max = 100;
    RG_CHECK_EQ(rg_client_open(&world->client, &world->runtime, &options), 0);
    RG_CHECK_EQ(rg_cq_open(&world->cq, &world->runtime, 4), 0);
}

static void world_open(const struct plan *plan, uint64_t seed)
{
    world = calloc(1, sizeof(*world));
    RG_CHECK(world != NULL);
    world->plan = *plan;
    if (plan->pages_wanted == 0) {
        rg_listing_model_make(&world->model, plan->kind, NAMES_MAX);
    } else {
        world->model.set = rg_test_names_make(plan->kind, plan->pages_wanted * plan->page_max);
        world->model.prefix = world->model.delimiter = "";
    }
    struct rg_sim_options options = {.seed = seed, .latency_ns = plan->latency_ns};
    if (!plan->calm) {
        options.faults[RG_SIM_FAULT_SHORT_RECV] = RG_SIM_ALWAYS / 10;
        options.faults[RG_SIM_FAULT_SHUFFLE] = RG_SIM_ALWAYS / 5;
        options.faults[RG_SIM_FAULT_RESET] = RG_SIM_ALWAYS / 200;
        options.faults[RG_SIM_FAULT_LATE] = RG_SIM_ALWAYS / 100;
    }
    world->sim = rg_sim_create(&options);
    server_open();
    client_open();
    const struct rg_listing_options listing_options = {
        .bucket = RG_SIM_GCS_BUCKET,
        .prefix = world->model.prefix,
        .delimiter = world->model.delimiter,
        .start_offset = world->model.start,
        .end_offset = world->model.end,
        .versions = world->model.versions > 0,
        .ordered = plan->ordered,
        .requests_max = plan->requests_max,
        .results_max = plan->page_max,
    };
    RG_CHECK_EQ(rg_listing_open(&world->listing, world->client, &listing_options), 0);
}

static bool completion_came(void *context)
{
    RG_ASSERT(context == world);
    if (!world->has_completion) {
        world->has_completion = rg_cq_poll(world->cq, &world->completion, 1) == 1;
    }
    struct rg_slab_stats slabs;
    rg_slab_arena_stats(world->loop->slabs, &slabs);
    world->leased_max = slabs.leased_bytes_max;
    return world->has_completion;
}

/* The next page; false at the end. */
static bool page_take(void)
{
    world->has_completion = false;
    RG_CHECK_EQ(rg_listing_next(world->listing, world->cq, 7), 0);
    RG_CHECK_EQ(rg_listing_next(world->listing, world->cq, 7), -EBUSY);
    /* Sometimes the caller is slow. */
    if (!world->plan.prompt && rg_test_random_below(8) == 0) {
        (void)rg_sim_run(world->sim, rg_sim_now_ns(world->sim) + RG_NS_PER_S, NULL, NULL);
    }
    uint64_t limit_ns = rg_sim_now_ns(world->sim) + RUN_NS_MAX;
    if (!completion_came(world) && !rg_sim_run(world->sim, limit_ns, completion_came, world)) {
        rg_test_fail(__FILE__, __LINE__, "page %u never comes", world->page_count);
    }
    RG_CHECK_EQ(world->completion.user_data, 7);
    if (world->completion.status != RG_STATUS_OK) {
        rg_test_fail(__FILE__, __LINE__, "page %u: %s", world->page_count,
                     world->completion.detail != NULL ? world->completion.detail : "no detail");
    }
    const struct rg_list_page *page = world->completion.data;
    RG_CHECK(page->next_page_token == NULL);
    bool is_end = page->object_count + page->prefix_count == 0;
    world->page_count += !is_end;
    rg_listing_found_add(&world->found, page);
    rg_lease_release(world->completion.lease);
    return !is_end;
}

static bool listing_is_closed(void *context)
{
    (void)completion_came(context);
    return rg_listing_is_closed(world->listing);
}

static bool client_is_closed(void *context)
{
    (void)completion_came(context);
    return world->client->loops[0].pool == NULL;
}

/* Ends the listing: soon, whatever is out. */
static void listing_shut(void)
{
    rg_listing_close_begin(world->listing);
    uint64_t limit_ns = rg_sim_now_ns(world->sim) + SLACK_NS;
    RG_CHECK(listing_is_closed(world) ||
             rg_sim_run(world->sim, limit_ns, listing_is_closed, world));
    rg_listing_close_finish(world->listing);
    (void)rg_sim_run(world->sim, rg_sim_now_ns(world->sim) + 1, NULL, NULL);
    (void)completion_came(world);
}

static void world_close(void)
{
    rg_client_close_begin(world->client);
    RG_CHECK(rg_sim_run(world->sim, rg_sim_now_ns(world->sim) + SLACK_NS, client_is_closed, world));
    rg_client_close_finish(world->client);
    (void)rg_sim_run(world->sim, rg_sim_now_ns(world->sim) + 3600 * RG_NS_PER_S, NULL, NULL);
    RG_CHECK_EQ(rg_sim_socket_count(world->sim), 0);
    struct rg_slab_stats slabs;
    rg_slab_arena_stats(world->loop->slabs, &slabs);
    RG_CHECK_EQ(slabs.leased_bytes, 0);
    RG_CHECK_EQ(world->loop->timers.armed_count, 0);
    RG_CHECK(rg_list_empty(&world->loop->slab_waiters));
    rg_cq_close(world->cq);
    rg_loop_destroy(world->loop);
    rg_sim_destroy(world->sim);
    rg_sim_gcs_destroy(world->gcs);
    rg_listing_found_free(&world->found);
    rg_listing_model_free(&world->model);
    free(world);
    world = NULL;
}

static struct plan plan_make(uint32_t run)
{
    static const uint32_t page_sizes[] = {1, 3, 10, 40, 1000};
    struct plan plan = {
        .kind = (enum rg_test_name_kind)(run % RG_TEST_NAMES_KIND_COUNT),
        .ordered = rg_test_random_below(2) == 0,
        .requests_max = 1 + (uint32_t)rg_test_random_below(20),
        .page_max = page_sizes[rg_test_random_below(RG_ARRAY_LEN(page_sizes))],
        .memory_max = MEMORY_MAX,
        .latency_ns = LATENCY_NS,
    };
    return plan;
}

static void run_all(const struct plan *plan, uint64_t seed)
{
    world_open(plan, seed);
    while (page_take()) {
    }
    /* And it stays at its end. */
    RG_CHECK(!page_take());
    rg_listing_found_check(&world->found, &world->model, plan->ordered);
    listing_shut();
    world_close();
}

static void test_every_name_comes_once_whatever_happens(void)
{
    for (uint32_t run = 0; run < rg_test_rounds(RUNS); run++) {
        struct plan plan = plan_make(run);
        run_all(&plan, rg_test_seed() + run);
    }
}

static void test_every_name_comes_once_where_nothing_goes_wrong(void)
{
    for (uint32_t run = 0; run < rg_test_rounds(RUNS / 10); run++) {
        struct plan plan = plan_make(run);
        plan.calm = true;
        run_all(&plan, rg_test_seed() + run);
    }
}

/* What a listing took. */
struct cost {
    uint64_t ns, requests, connections;
};

static struct cost run_timed(const struct plan *plan)
{
    world_open(plan, 1);
    uint64_t started_ns = rg_sim_now_ns(world->sim);
    while (page_take()) {
    }
    struct cost cost = {
        .ns = rg_sim_now_ns(world->sim) - started_ns,
        .requests = rg_metric_load(&world->loop->metrics.attempts),
        .connections = rg_metric_load(&world->loop->metrics.connections_opened),
    };
    rg_listing_found_check(&world->found, &world->model, plan->ordered);
    listing_shut();
    world_close();
    return cost;
}

static struct cost cost_of(enum rg_test_name_kind kind, uint64_t latency_ns, uint64_t pages,
                           uint32_t requests_max, bool ordered)
{
    const struct plan plan = {
        .kind = kind,
        .calm = true,
        .swift = true,
        .prompt = true,
        .latency_ns = latency_ns,
        .pages_wanted = pages,
        .ordered = ordered,
        .requests_max = requests_max,
        .page_max = 40,
        .memory_max = MEMORY_MAX,
    };
    return run_timed(&plan);
}

/* Where pages come at once, connections are not worth their while. */
static void test_a_near_server_is_asked_on_one_connection(void)
{
    for (int kind = 0; kind < RG_TEST_NAMES_KIND_COUNT; kind++) {
        struct cost cost =
            cost_of((enum rg_test_name_kind)kind, 100 * RG_NS_PER_US, 10, 16, kind % 2 == 0);
        RG_CHECK_EQ(cost.connections, 1);
        RG_CHECK(cost.requests <= 11);
    }
}

/* Where they are waited for, a few at a time are, and it is never worse by more than it takes to
 * learn that there was no need; nor in order, where pieces of a stretch that has hardly any names
 * are asked for while all other slots hold pages of later names. */
static void test_a_far_server_is_asked_for_many_pages_at_once(void)
{
    for (int kind = 0; kind < RG_TEST_NAMES_KIND_COUNT; kind++) {
        for (uint64_t pages = 1; pages <= 64; pages *= 2) {
            enum rg_test_name_kind set = (enum rg_test_name_kind)kind;
            struct cost one = cost_of(set, 50 * RG_NS_PER_MS, pages, 1, false);
            struct cost many = cost_of(set, 50 * RG_NS_PER_MS, pages, 16, false);
            struct cost ordered = cost_of(set, 50 * RG_NS_PER_MS, pages, 16, true);
            uint64_t grace_ns = pages <= 2 ? 0 : 200 * RG_NS_PER_MS;
            RG_CHECK(many.ns <= one.ns + grace_ns);
            RG_CHECK(ordered.ns <= one.ns + grace_ns);
            if (one.requests >= 50) {
                RG_CHECK(many.ns < one.ns / 2);
            }
        }
    }
}

/* Pages wait for memory and for the caller, and neither keeps the other waiting. */
static void test_little_memory_is_enough(void)
{
    for (uint32_t run = 0; run < rg_test_rounds(RUNS / 10); run++) {
        struct plan plan = plan_make(run);
        plan.memory_max = RG_MIB(2);
        plan.requests_max = 20;
        run_all(&plan, rg_test_seed() + run);
    }
}

static void test_a_listing_can_be_given_up_anywhere(void)
{
    for (uint32_t run = 0; run < rg_test_rounds(RUNS / 10); run++) {
        struct plan plan = plan_make(run);
        world_open(&plan, rg_test_seed() + run);
        for (uint64_t pages = rg_test_random_below(20); pages > 0 && page_take(); pages--) {
        }
        bool is_out = rg_test_random_below(2) == 0;
        world->has_completion = false;
        if (is_out) {
            RG_CHECK_EQ(rg_listing_next(world->listing, world->cq, 9), 0);
            uint64_t wait_ns = rg_test_random_below(20 * RG_NS_PER_MS);
            (void)rg_sim_run(world->sim, rg_sim_now_ns(world->sim) + wait_ns, NULL, NULL);
        }
        listing_shut();
        RG_CHECK_EQ(world->has_completion, is_out);
        if (is_out) {
            RG_CHECK(world->completion.status == RG_STATUS_OK ||
                     world->completion.status == RG_STATUS_CANCELLED);
            rg_lease_release(world->completion.lease);
        }
        world_close();
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_every_name_comes_once_whatever_happens),
        RG_TEST(test_every_name_comes_once_where_nothing_goes_wrong),
        RG_TEST(test_a_near_server_is_asked_on_one_connection),
        RG_TEST(test_a_far_server_is_asked_for_many_pages_at_once),
        RG_TEST(test_little_memory_is_enough),
        RG_TEST(test_a_listing_can_be_given_up_anywhere),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
