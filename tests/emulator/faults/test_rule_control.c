/* Rules are made, waited for and ended; what is none is refused. */
#include "emulator/emulator.h"
#include "emulator/faults/rule_control.h"
#include "emulator/faults/rules.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#include <ringest/runtime.h>

#include <pthread.h>

static struct rg_emulator *emulator;
static uint16_t port;
static struct rg_talk_rule rule;

static struct rg_talk ask_with(const char *method, const char *target, const char *fields,
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

static struct rg_talk ask(const char *method, const char *target, const char *body)
{
    return ask_with(method, target, NULL, body);
}

static unsigned status_of(const char *method, const char *target)
{
    return ask(method, target, "").status;
}

static void begin(const char *json)
{
    rg_talk_rule_begin(port, json, &rule);
}

static void end(unsigned long long seen, unsigned long long struck)
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

static void *client_run(void *context)
{
    struct client *client = context;
    client->talk = ask(client->method, client->target, client->body);
    return NULL;
}

static void client_start(struct client *client)
{
    RG_CHECK_EQ(pthread_create(&client->thread, NULL, client_run, client), 0);
}

static void client_join(struct client *client)
{
    pthread_join(client->thread, NULL);
}

static void test_a_client_that_waits_for_a_rule_that_ends(void)
{
    char target[128];
    begin("\"nth\":0");
    snprintf(target, sizeof(target), "/fault_rule/%s?wait", rule.id);
    struct client client = {"GET", target, "", {0}, 0};
    client_start(&client);
    end(0, 0);
    client_join(&client);
    RG_CHECK_EQ(client.talk.status, 404);
}

static void test_what_is_no_rule(void)
{
    static const char *const bodies[] = {
        "",
        "[]",
        "{\"nth\":-1}",
        "{\"nth\":\"1\"}",
        "{\"times\":0}",
        "{\"effect\":\"thrice\"}",
        "{\"effect\":\"none\"}",
        "{\"effect\":\"later\",\"answer\":\"given\"}",
        "{\"answer\":3}",
        "{\"status\":200}",
        "{\"method\":\"storage.objects.eat\"}",
        "{\"field\":\"x\"}",
        "{\"writes\":1}",
        "{\"delay_ms\":3600001}",
        "{\"bukket\":\"x\"}",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bodies); i++) {
        unsigned status = ask("POST", "/fault_rule", bodies[i]).status;
        if (status != 400) {
            rg_test_fail(__FILE__, __LINE__, "%s: %u", bodies[i], status);
        }
    }
    RG_CHECK_EQ(status_of("GET", "/fault_rule/77777"), 404);
    RG_CHECK_EQ(status_of("DELETE", "/fault_rule/77777"), 404);
    RG_CHECK_EQ(status_of("GET", "/fault_rule/x"), 405);
    RG_CHECK_EQ(status_of("PUT", "/fault_rule"), 405);
    static struct rg_talk_rule rules[RG_RULES_MAX];
    for (size_t i = 0; i < RG_ARRAY_LEN(rules); i++) {
        rg_talk_rule_begin(port, "\"nth\":0", &rules[i]);
    }
    RG_CHECK_EQ(ask("POST", "/fault_rule", "{\"nth\":0}").status, 413);
    for (size_t i = 0; i < RG_ARRAY_LEN(rules); i++) {
        rg_talk_rule_end(port, &rules[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_client_that_waits_for_a_rule_that_ends),
        RG_TEST(test_what_is_no_rule),
    };
    char error[256] = "";
    struct rg_emulator_options options = {.threads = 2, .plain = true};
    if (rg_emulator_open(&emulator, &options, error, sizeof(error)) < 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    port = rg_talk_port(rg_emulator_endpoint(emulator));
    int rc = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_emulator_close(emulator);
    return rc;
}
