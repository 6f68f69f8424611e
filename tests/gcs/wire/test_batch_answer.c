/* Answers to batch requests: in any order, with any line ends, cut anywhere, and malformed. */
#include "gcs/wire/batch_answer.h"

#include "tests/support/test.h"

#define COUNT 4

static const char whole[] =
    "preamble\r\n--b_1\r\nContent-Type: application/http\r\nContent-ID: <response-ringest+2>\r\n"
    "\r\nHTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n\r\n"
    "--b_1  \r\ncontent-id:response-ringest+0\r\n\r\nHTTP/1.1 404 Not Found\r\n"
    "Content-Type: application/json\r\n\r\n{\"error\":{\"code\":404}}\r\n--b_1x\r\n"
    "--b_1\r\nContent-ID: <ringest+3>\r\n\r\nHTTP/2 503\r\n\r\n"
    "--b_1--\r\nepilogue";
static const uint16_t whole_statuses[COUNT] = {404, 0, 204, 503};

static int parse(const char *body, size_t size, uint16_t statuses[static COUNT])
{
    const char *problem = "";
    struct rg_batch_part parts[COUNT];
    int rc = rg_batch_answer_parse(body, size, "b_1", parts, COUNT, &problem);
    for (size_t i = 0; i < COUNT; i++) {
        statuses[i] = parts[i].http_status;
    }
    RG_CHECK((rc == 0) == (*problem == '\0'));
    return rc;
}

static void test_any_order(void)
{
    uint16_t statuses[COUNT];
    RG_CHECK_EQ(parse(whole, sizeof(whole) - 1, statuses), 0);
    RG_CHECK_MEM(statuses, sizeof(statuses), whole_statuses, sizeof(whole_statuses));
}

static void test_what_refusals_say(void)
{
    struct rg_batch_part parts[COUNT];
    const char *problem;
    RG_CHECK_EQ(rg_batch_answer_parse(whole, sizeof(whole) - 1, "b_1", parts, COUNT, &problem), 0);
    /* A line that only begins as a boundary does is a part of it. */
    static const char message[] = "{\"error\":{\"code\":404}}\r\n--b_1x\r";
    RG_CHECK_MEM(parts[0].message.data, parts[0].message.size, message, sizeof(message) - 1);
    RG_CHECK_EQ(parts[1].message.size, 0);
    RG_CHECK_EQ(parts[3].message.size, 0);
}

static void test_bare_line_feeds(void)
{
    char body[sizeof(whole)];
    size_t size = 0;
    for (size_t i = 0; i < sizeof(whole) - 1; i++) {
        if (whole[i] != '\r') {
            body[size++] = whole[i];
        }
    }
    uint16_t statuses[COUNT];
    RG_CHECK_EQ(parse(body, size, statuses), 0);
    RG_CHECK_MEM(statuses, sizeof(statuses), whole_statuses, sizeof(whole_statuses));
}

/* Only behind the last boundary is an answer complete. */
static void test_cut_anywhere(void)
{
    size_t end = (size_t)(strstr(whole, "--b_1--") - whole) + strlen("--b_1--");
    for (size_t size = 0; size < sizeof(whole) - 1; size++) {
        char *body = malloc(size + 1);
        memcpy(body, whole, size);
        uint16_t statuses[COUNT];
        RG_CHECK_EQ(parse(body, size, statuses), size >= end ? 0 : -EBADMSG);
        free(body);
    }
}

static void test_malformed(void)
{
    static const char *const bodies[] = {
        "",
        "--b_1\r\n",
        "--b_2--\r\n",
        "--b_1\r\n\r\nHTTP/1.1 204 No Content\r\n--b_1--\r\n",
        "--b_1\r\nContent-ID: <response-ringest+4>\r\n\r\nHTTP/1.1 204 OK\r\n--b_1--\r\n",
        "--b_1\r\nContent-ID: <response-ringest+>\r\n\r\nHTTP/1.1 204 OK\r\n--b_1--\r\n",
        "--b_1\r\nContent-ID: <response-ringest+0x>\r\n\r\nHTTP/1.1 204 OK\r\n--b_1--\r\n",
        "--b_1\r\nContent-ID: <response-ringest+99999999999999999999>\r\n\r\nHTTP/1.1 204 OK\r\n"
        "--b_1--\r\n",
        "--b_1\r\nContent-ID: <other+0>\r\n\r\nHTTP/1.1 204 OK\r\n--b_1--\r\n",
        "--b_1\r\nContent-ID: <ringest+0>\r\n\r\nHTTP/1.1 20 OK\r\n--b_1--\r\n",
        "--b_1\r\nContent-ID: <ringest+0>\r\n\r\nHTTP/1.1 2044 OK\r\n--b_1--\r\n",
        "--b_1\r\nContent-ID: <ringest+0>\r\n\r\nHTTP/1.1 099 OK\r\n--b_1--\r\n",
        "--b_1\r\nContent-ID: <ringest+0>\r\n\r\n204\r\n--b_1--\r\n",
        "--b_1\r\nContent-ID: <ringest+0>\r\n\r\n--b_1--\r\n",
        "--b_1\r\nContent-ID: <ringest+0>\r\n\r\nHTTP/1.1 204 OK\r\n"
        "--b_1\r\nContent-ID: <ringest+0>\r\n\r\nHTTP/1.1 404 OK\r\n--b_1--\r\n",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bodies); i++) {
        uint16_t statuses[COUNT];
        RG_CHECK_EQ(parse(bodies[i], strlen(bodies[i]), statuses), -EBADMSG);
    }
}

static int boundary(const char *type, char out[static RG_BOUNDARY_SIZE_MAX + 1])
{
    return rg_batch_boundary_parse((struct rg_h1_slice){type, (uint32_t)strlen(type)}, out);
}

static void test_boundaries(void)
{
    char text[RG_BOUNDARY_SIZE_MAX + 1];
    RG_CHECK_EQ(boundary("multipart/mixed; boundary=batch_x-1", text), 9);
    RG_CHECK_STR(text, "batch_x-1");
    RG_CHECK_EQ(boundary("Multipart/Mixed;charset=utf-8 ; BOUNDARY=\"a b\"", text), 3);
    RG_CHECK_STR(text, "a b");
    static const char *const bad[] = {"",
                                      "application/json",
                                      "multipart/mixed",
                                      "multipart/mixed; boundary=",
                                      "multipart/mixed; boundary=\"\"",
                                      "multipart/mixed; boundary="
                                      "12345678901234567890123456789012345678901234567890"
                                      "123456789012345678901"};
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(boundary(bad[i], text), -EBADMSG);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_any_order),    RG_TEST(test_what_refusals_say), RG_TEST(test_bare_line_feeds),
        RG_TEST(test_cut_anywhere), RG_TEST(test_malformed),         RG_TEST(test_boundaries),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
