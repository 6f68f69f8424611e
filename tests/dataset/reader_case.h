/* What the tests of readers share: an emulator with 500 small objects and a few large ones, a
 * client of it, and a reader of the small ones.
 *
 *   reader_world_open -> reader_open, ... -> reader_world_close, which finds no leased memory */
#ifndef RG_TESTS_DATASET_READER_CASE_H
#define RG_TESTS_DATASET_READER_CASE_H

#include "emulator/emulator.h"
#include "tests/support/test.h"

#include <ringest/dataset.h>

#define COUNT 500
#define WINDOW 32

/* One object of "big-" is more than a chunk of leased memory; each of "large-" fills one. */
static const char *const synthetic[] = {"data/x-:500:2000", "data/big-:1:2500000",
                                        "data/large-:3:1600000"};

static struct rg_emulator *emulator;
static struct rg_runtime *runtime;
static struct rg_client *client;
static char names[COUNT][32];
static struct rg_object objects[COUNT];
static const char *latency_ms; /* of the next emulator */

static inline void reader_world_open(uint32_t threads, uint64_t memory_max)
{
    char error[512] = "";
    struct rg_emulator_options options = {
        .synthetic = synthetic,
        .synthetic_count = RG_ARRAY_LEN(synthetic),
        .strict_buckets = true,
        .plain = true,
        .threads = 1,
        .latency_ms = latency_ms,
    };
    if (rg_emulator_open(&emulator, &options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    struct rg_runtime_options runtime_options;
    rg_runtime_options_init(&runtime_options);
    runtime_options.threads = threads;
    runtime_options.memory_max = memory_max;
    RG_CHECK_EQ(rg_runtime_open(&runtime, &runtime_options), 0);
    struct rg_client_options client_options;
    rg_client_options_init(&client_options);
    client_options.endpoint = rg_emulator_endpoint(emulator);
    client_options.connections_max = 16;
    client_options.hedging =
        RG_SWITCH_OFF; /* requests are counted, and a slow machine's are hedged */
    RG_CHECK_EQ(rg_client_open(&client, runtime, &client_options), 0);
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "x-%08d", i);
        objects[i] = (struct rg_object){.name = names[i], .size = 2000};
    }
}

static inline void reader_world_close(void)
{
    struct rg_stats stats;
    RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
    RG_CHECK_EQ(stats.leased_bytes, 0);
    rg_client_close(client);
    rg_runtime_close(runtime);
    rg_emulator_close(emulator);
}

static inline struct rg_reader_options reader_options(void)
{
    struct rg_reader_options options;
    rg_reader_options_init(&options);
    options.bucket = "data";
    options.objects = objects;
    options.object_count = COUNT;
    options.shuffle = true;
    options.seed = 11;
    options.window_requests = WINDOW;
    return options;
}

static inline struct rg_reader *reader_open(const struct rg_reader_options *options)
{
    struct rg_reader *reader;
    char error[512] = "";
    if (rg_reader_open(&reader, client, options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    return reader;
}

#endif
