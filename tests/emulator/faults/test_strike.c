/* Requests that happen again or later, over real sockets. */
#include "emulator/emulator.h"
#include "emulator/faults/strike.h"
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

static void fresh_bucket(void)
{
    static const char *const names[] = {"x", "y", "z"};
    char target[32];
    status_of("PUT", "/rules");
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        snprintf(target, sizeof(target), "/rules/%s", names[i]);
        status_of("DELETE", target);
    }
}

static void test_it_happens_later_and_is_answered_then(void)
{
    fresh_bucket();
    struct client client = {"PUT", "/rules/x", "first", {0}, 0};
    begin("\"effect\":\"later\",\"answer\":\"held\",\"method\":\"storage.objects.insert\","
          "\"target\":\"/x\"");
    client_start(&client);
    rg_talk_rule_wait(port, &rule);
    RG_CHECK_EQ(status_of("GET", "/rules/x"), 404);
    ask("PUT", "/rules/x", "second");
    RG_CHECK_STR(ask("GET", "/rules/x", "").text, "second");
    end(2, 1);
    client_join(&client);
    RG_CHECK_EQ(client.talk.status, 200);
    RG_CHECK(strstr(client.talk.head, "x-goog-generation: ") != NULL);
    RG_CHECK_STR(ask("GET", "/rules/x", "").text, "first");
}

static void test_it_happens_later_although_nobody_waits(void)
{
    fresh_bucket();
    ask("PUT", "/rules/x", "data");
    begin("\"effect\":\"later\",\"answer\":\"dropped\",\"writes\":true");
    RG_CHECK_EQ(status_of("DELETE", "/rules/x"), 0);
    RG_CHECK_STR(ask("GET", "/rules/x", "").text, "data");
    end(1, 1);
    RG_CHECK_EQ(status_of("GET", "/rules/x"), 404);
    begin("\"effect\":\"later\",\"answer\":\"failed\",\"writes\":true");
    RG_CHECK_EQ(ask("PUT", "/rules/y", "data").status, 503);
    RG_CHECK_EQ(status_of("GET", "/rules/y"), 404);
    end(1, 1);
    RG_CHECK_STR(ask("GET", "/rules/y", "").text, "data");
}

/* Reads cannot be: they happen as ever. */
static void test_it_happens_twice(void)
{
    static const char guarded[] =
        "/upload/storage/v1/b/rules/o?uploadType=media&name=x&ifGenerationMatch=0";
    fresh_bucket();
    begin("\"effect\":\"twice\"");
    RG_CHECK_EQ(ask("POST", guarded, "data").status, 412);
    RG_CHECK_STR(ask("GET", "/rules/x", "").text, "data");
    end(2, 1);
    begin("\"effect\":\"twice\"");
    RG_CHECK_EQ(ask("POST", guarded, "data").status, 412);
    end(1, 1);
    begin("\"effect\":\"twice\"");
    RG_CHECK_EQ(status_of("DELETE", "/rules/x"), 404);
    end(1, 1);
    begin("\"effect\":\"twice\",\"answer\":\"dropped\"");
    RG_CHECK_EQ(ask("PUT", "/rules/x", "new").status, 0);
    end(1, 1);
    begin("\"effect\":\"twice\"");
    RG_CHECK_STR(ask("GET", "/rules/x", "").text, "new");
    end(1, 1);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_it_happens_later_and_is_answered_then),
        RG_TEST(test_it_happens_later_although_nobody_waits),
        RG_TEST(test_it_happens_twice),
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
