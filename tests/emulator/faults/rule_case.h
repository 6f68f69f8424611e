/* An emulator over real sockets, a rule at it, and short names for what its clients do. */
#ifndef RG_TESTS_EMULATOR_FAULTS_RULE_CASE_H
#define RG_TESTS_EMULATOR_FAULTS_RULE_CASE_H

#include "emulator/emulator.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#include <ringest/runtime.h>

#include <pthread.h>

static struct rg_emulator *emulator;
static uint16_t port;
static struct rg_talk_rule rule;

static inline struct rg_talk ask_with(const char *method, const char *target, const char *fields,
                                      const char *body)
{
    struct rg_talk talk;
    rg_talk(&talk, port,
            &(struct rg_talk_request){.method = method,
                                      .target = target,
                                      .fields = fields,
                                      .body = body,
                                      .body_size = strlen(body)});
    return talk;
}

static inline struct rg_talk ask(const char *method, const char *target, const char *body)
{
    return ask_with(method, target, NULL, body);
}

static inline unsigned status_of(const char *method, const char *target)
{
    return ask(method, target, "").status;
}

static inline void begin(const char *json)
{
    rg_talk_rule_begin(port, json, &rule);
}

static inline void end(unsigned long long seen, unsigned long long struck)
{
    rg_talk_rule_end(port, &rule);
    RG_CHECK_EQ(rule.seen, seen);
    RG_CHECK_EQ(rule.struck, struck);
}

/* A client that waits for its answer meanwhile. */
struct client {
    const char *method, *target, *body;
    struct rg_talk talk;
    pthread_t thread;
};

static inline void *client_run(void *context)
{
    struct client *client = context;
    client->talk = ask(client->method, client->target, client->body);
    return NULL;
}

static inline void client_start(struct client *client)
{
    RG_CHECK_EQ(pthread_create(&client->thread, NULL, client_run, client), 0);
}

static inline void client_join(struct client *client)
{
    pthread_join(client->thread, NULL);
}

static inline void fresh_bucket(void)
{
    static const char *const names[] = {"x", "y", "z"};
    char target[32];
    status_of("PUT", "/rules");
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        snprintf(target, sizeof(target), "/rules/%s", names[i]);
        status_of("DELETE", target);
    }
}

/* Runs the cases against one emulator; what main returns. */
static inline int rule_case_main(int argc, char **argv, const struct rg_test *tests, size_t count)
{
    char error[256] = "";
    static const char *const buckets[] = {"rules"};
    struct rg_emulator_options options = {
        .threads = 2, .plain = true, .buckets = buckets, .bucket_count = 1, .strict_buckets = true};
    if (rg_emulator_open(&emulator, &options, error, sizeof(error)) < 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    port = rg_talk_port(rg_emulator_endpoint(emulator));
    int rc = rg_test_main(argc, argv, tests, count);
    rg_emulator_close(emulator);
    return rc;
}

#endif
