/* Requests that happen again or later, over real sockets. */
#include "emulator/faults/strike.h"
#include "tests/emulator/faults/rule_case.h"

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
    return rule_case_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
