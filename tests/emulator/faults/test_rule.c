/* What a rule counts and strikes, without requests on the way. */
#include "emulator/faults/rule.h"

#include "tests/support/test.h"

static struct rg_rule rule;
static char error[256];

static bool parse(const char *json)
{
    yyjson_doc *document = yyjson_read(json, strlen(json), 0);
    error[0] = '\0';
    bool good = rg_rule_parse(&rule, yyjson_doc_get_root(document), error, sizeof(error));
    yyjson_doc_free(document);
    RG_CHECK(good == (error[0] == '\0'));
    return good;
}

/* Whether it strikes a request of this head. */
static bool strikes(const char *text)
{
    struct rg_h1_head head;
    static struct rg_api_request request;
    char bytes[256];
    int size = snprintf(bytes, sizeof(bytes), "%s HTTP/1.1\r\nHost: h\r\nx-a: 1\r\n\r\n", text);
    RG_CHECK(rg_h1_parse_request(&head, bytes, (size_t)size, 0) > 0);
    RG_CHECK_EQ(rg_api_request_parse(&request, &head), 0);
    return rg_rule_count(&rule, &request);
}

static void test_the_nth_and_those_after_it(void)
{
    RG_CHECK(parse("{\"nth\":2,\"times\":2,\"answer\":\"dropped\"}"));
    static const bool want[] = {false, true, true, false, false};
    for (size_t i = 0; i < RG_ARRAY_LEN(want); i++) {
        RG_CHECK(strikes("GET /bucket/o") == want[i]);
    }
    RG_CHECK_EQ(rule.seen, 5);
    RG_CHECK_EQ(rule.struck, 2);
    RG_CHECK_STR(rule.last, "GET /bucket/o");
}

static void test_the_head_without_tokens(void)
{
    RG_CHECK(parse("{}"));
    RG_CHECK(strikes("GET /o HTTP/1.1\r\nAuthorization: Bearer secret\r\nX-B: 2\r\nX-C:"));
    RG_CHECK_STR(rule.head, "GET /o HTTP/1.1\r\nX-B: 2\r\nX-C: HTTP/1.1\r\nHost: h\r\nx-a: 1\r\n");
}

static void test_a_rule_that_only_counts(void)
{
    RG_CHECK(parse("{\"nth\":0}"));
    RG_CHECK(!strikes("GET /bucket/o"));
    RG_CHECK_EQ(rule.seen, 1);
    RG_CHECK_EQ(rule.struck, 0);
}

static void test_what_does_not_match_does_not_count(void)
{
    static const struct {
        const char *json, *match, *other;
    } rows[] = {
        {"{\"bucket\":\"bucket\"}", "GET /bucket/o", "GET /other/o"},
        {"{\"writes\":true}", "PUT /bucket/o", "HEAD /bucket/o"},
        {"{\"target\":\"et/o\"}", "GET /bucket/o", "GET /bucket/a"},
        {"{\"method\":\"storage.objects.delete\"}", "DELETE /bucket/o", "GET /bucket/o"},
        {"{\"upload\":\"single\"}", "PUT /bucket/o", "PUT /bucket/o?uploadId=1&partNumber=1"},
        {"{\"field\":\"X-A: 1\",\"target\":\"o\"}", "GET /bucket/o", "GET /bucket/a"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK(parse(rows[i].json));
        RG_CHECK(!strikes(rows[i].other));
        RG_CHECK_EQ(rule.seen, 0);
        RG_CHECK(strikes(rows[i].match));
        RG_CHECK_EQ(rule.seen, 1);
    }
    RG_CHECK(parse("{\"field\":\"x-a: 2\"}"));
    RG_CHECK(!strikes("GET /bucket/o"));
}

static void test_a_seed_decides_which_are_struck(void)
{
    uint64_t first = 0;
    for (int again = 0; again < 2; again++) {
        uint64_t bits = 0;
        RG_CHECK(parse("{\"one_in\":4,\"times\":64,\"seed\":7}"));
        for (int i = 0; i < 64; i++) {
            bits = bits << 1 | strikes("GET /bucket/o");
        }
        RG_CHECK(bits != 0 && bits != UINT64_MAX);
        RG_CHECK(again == 0 || bits == first);
        first = bits;
    }
}

static void test_what_is_no_rule(void)
{
    static const char *const texts[] = {
        "[]",
        "{\"nth\":-1}",
        "{\"times\":0}",
        "{\"status\":201}",
        "{\"upload\":\"all\"}",
        "{\"early\":1}",
        "{\"early\":true}",
        "{\"kept_bytes\":1}",
        "{\"method\":\"storage.nothing\"}",
        "{\"field\":\"x-a\"}",
        "{\"effect\":\"thrice\"}",
        "{\"effect\":\"none\"}",
        "{\"effect\":\"later\",\"answer\":\"given\"}",
        "{\"surprise\":1}",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        RG_CHECK(!parse(texts[i]));
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_nth_and_those_after_it),
        RG_TEST(test_the_head_without_tokens),
        RG_TEST(test_a_rule_that_only_counts),
        RG_TEST(test_what_does_not_match_does_not_count),
        RG_TEST(test_a_seed_decides_which_are_struck),
        RG_TEST(test_what_is_no_rule),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
