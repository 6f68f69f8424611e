/* The requests of a reader against an emulator: what has room is asked for, what comes is noted. */
#include "dataset/intake.h"
#include "emulator/emulator.h"
#include "gcs/request/client.h"
#include "tests/support/test.h"

#include <string.h>

#define COUNT 40
#define WINDOW 8

static const char *const synthetic[] = {"data/x-:40:2000"};

static struct rg_emulator *emulator;
static struct rg_runtime *runtime;
static struct rg_client *client;
static char names[COUNT][32];
static struct rg_object objects[COUNT];
static struct rg_source source;
static struct rg_sampler sampler;
static struct rg_intake intake;

static void world_open(enum rg_changed changed)
{
    struct rg_emulator_options emulator_options = {
        .synthetic = synthetic, .synthetic_count = 1, .plain = true, .threads = 1};
    RG_CHECK_EQ(rg_emulator_open(&emulator, &emulator_options, NULL, 0), 0);
    RG_CHECK_EQ(rg_runtime_open(&runtime, NULL), 0);
    struct rg_client_options client_options;
    rg_client_options_init(&client_options);
    client_options.endpoint = rg_emulator_endpoint(emulator);
    RG_CHECK_EQ(rg_client_open(&client, runtime, &client_options), 0);
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "x-%08d", i);
        objects[i] = (struct rg_object){.name = names[i], .size = 2000};
    }
    struct rg_reader_options options;
    rg_reader_options_init(&options);
    options.bucket = "data";
    options.objects = objects;
    options.object_count = COUNT;
    RG_CHECK_EQ(rg_source_open(&source, &options, NULL, 0), 0);
    struct rg_sampler_options assignment = {
        .count = COUNT, .world_size = 1, .worker_count = 1, .block_size = 1};
    RG_CHECK_EQ(rg_sampler_init(&sampler, &assignment), 0);
    struct rg_window_options window = {
        .total = COUNT, .requests_max = WINDOW, .bytes_max = RG_MIB(1)};
    struct rg_state state = {0};
    memset(&intake, 0, sizeof(intake));
    intake.changed = changed;
    RG_CHECK_EQ(rg_intake_open(&intake, client, &window, &state), 0);
    intake.plan =
        (struct rg_plan){.window = &intake.window, .source = &source, .sampler = &sampler};
    rg_plan_limit(&intake.plan, 1);
}

static void world_close(void)
{
    rg_intake_close(&intake, true);
    rg_source_close(&source);
    struct rg_stats stats;
    RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
    RG_CHECK_EQ(stats.leased_bytes, 0);
    rg_client_close(client);
    rg_runtime_close(runtime);
    rg_emulator_close(emulator);
}

static bool all_has_come(void)
{
    rg_intake_poll(&intake);
    return rg_intake_out(&intake) == 0;
}

static void test_the_window_is_filled_and_no_more(void)
{
    world_open(RG_CHANGED_ERROR);
    for (uint64_t number = 0; number < COUNT;) {
        rg_intake_refill(&intake);
        RG_CHECK(!intake.is_refused);
        RG_AWAIT(all_has_come());
        RG_CHECK_EQ(intake.noted, RG_MIN(number + WINDOW, COUNT));
        struct rg_sample sample;
        while (rg_window_take(&intake.window, &sample)) {
            RG_CHECK_EQ(sample.number, number++);
            RG_CHECK_EQ(sample.completion.status, RG_STATUS_OK);
            rg_lease_release(sample.completion.lease);
        }
    }
    world_close();
}

static void test_what_was_replaced_is_skipped(void)
{
    world_open(RG_CHANGED_SKIP);
    for (int i = 0; i < COUNT; i += 4) {
        objects[i].generation = 1;
    }
    uint64_t count = 0;
    while (!rg_window_is_done(&intake.window)) {
        rg_intake_refill(&intake);
        RG_AWAIT(all_has_come());
        struct rg_sample sample;
        for (; rg_window_take(&intake.window, &sample); count++) {
            rg_lease_release(sample.completion.lease);
        }
    }
    RG_CHECK_EQ(count, COUNT - COUNT / 4);
    RG_CHECK_EQ(intake.skipped, COUNT / 4);
    world_close();
}

static void test_what_came_early_is_let_go_for_the_first(void)
{
    world_open(RG_CHANGED_ERROR);
    RG_CHECK(!rg_intake_relieve(&intake));
    rg_intake_refill(&intake);
    RG_AWAIT(all_has_come());
    RG_CHECK(!rg_intake_relieve(&intake)); /* the first is here */
    world_close();
}

static void test_nothing_is_asked_of_a_client_that_is_gone(void)
{
    world_open(RG_CHANGED_ERROR);
    intake.client = NULL;
    rg_intake_refill(&intake);
    RG_CHECK_EQ(rg_intake_out(&intake), 0);
    world_close();
}

static void test_closing_waits_for_what_is_out(void)
{
    world_open(RG_CHANGED_ERROR);
    rg_intake_refill(&intake);
    world_close();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_window_is_filled_and_no_more),
        RG_TEST(test_what_was_replaced_is_skipped),
        RG_TEST(test_what_came_early_is_let_go_for_the_first),
        RG_TEST(test_nothing_is_asked_of_a_client_that_is_gone),
        RG_TEST(test_closing_waits_for_what_is_out),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
