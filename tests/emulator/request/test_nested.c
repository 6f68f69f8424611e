/* A request that comes by no connection does what it would have done, and answers in memory. */
#include "emulator/request/nested.h"
#include "tests/emulator/driver.h"

static struct rg_nested nested;
static struct rg_server_call outer;

static void run(const char *head, const char *body)
{
    struct rg_text text = {0};
    outer = (struct rg_server_call){.context = api, .now_ns = 1};
    rg_text_append_str(&text, head);
    rg_nested_start(&nested, &outer);
    RG_CHECK(rg_nested_parse(&nested, &text));
    rg_nested_run(&nested, rg_text_slice(body));
    rg_text_fini(&text);
}

static bool answer_starts_with(const char *text)
{
    return nested.encoder.size > strlen(text) &&
           memcmp(nested.encoder.data, text, strlen(text)) == 0;
}

static void test_an_upload_and_its_answer(void)
{
    open_api(NULL, 0);
    run("PUT /bucket/x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n", "hello");
    RG_CHECK(answer_starts_with("HTTP/1.1 200 OK\r\n"));
    rg_call_release(&nested.call);
    get("/bucket/x");
    RG_CHECK_STR(reply.body.data, "hello");
    run("GET /storage/v1/b/bucket/o/y HTTP/1.1\r\nHost: h\r\n\r\n", "");
    RG_CHECK(answer_starts_with("HTTP/1.1 404 "));
    RG_CHECK(rg_call_of(&nested.call)->text.data[0] == '{');
    rg_call_release(&nested.call);
    run("GET /bucket/y HTTP/1.1\r\nHost: h\r\n\r\n", "");
    RG_CHECK(rg_call_of(&nested.call)->text.data[0] == '<');
    rg_call_release(&nested.call);
    close_api();
}

static void test_heads_that_are_malformed(void)
{
    static const char *const heads[] = {
        "PUT /bucket/x HTTP/1.1\r\nHost: h\r\n",
        "PUT /bucket/%zz HTTP/1.1\r\nHost: h\r\n\r\n",
        "PUT\r\n\r\n",
    };
    open_api(NULL, 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(heads); i++) {
        struct rg_text text = {0};
        outer = (struct rg_server_call){.context = api};
        rg_text_append_str(&text, heads[i]);
        rg_nested_start(&nested, &outer);
        RG_CHECK(!rg_nested_parse(&nested, &text));
        rg_call_release(&nested.call);
        rg_text_fini(&text);
    }
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_upload_and_its_answer),
        RG_TEST(test_heads_that_are_malformed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
