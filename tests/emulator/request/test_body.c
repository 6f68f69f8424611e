/* Documents that are collected before they are read. */
#include "emulator/request/body.h"

#include "tests/emulator/driver.h"

static void test_a_document_may_come_in_any_pieces(void)
{
    static const char request[] =
        "POST /storage/v1/b?project=p HTTP/1.1\r\nHost: h\r\nContent-Length: 31\r\n\r\n"
        "{\"name\":\"some-bucket\",\"cors\":[]}";
    for (size_t piece = 1; piece < 33; piece++) {
        open_api(NULL, 0);
        rg_driver_exchange(api, request, sizeof(request) - 1, piece, &reply);
        RG_CHECK_EQ(reply.status, 200);
        check_body_has("\"name\":\"some-bucket\"");
        check_body_has("https://h/storage/v1/b/some-bucket"); /* The head was kept. */
        close_api();
    }
}

static void test_a_document_beyond_its_limit_is_413(void)
{
    open_api(NULL, 0);
    char *body = malloc(RG_BODY_SIZE_MAX + 2);
    RG_CHECK(body != NULL);
    memset(body, ' ', RG_BODY_SIZE_MAX + 1);
    body[RG_BODY_SIZE_MAX + 1] = '\0';
    rg_driver_send(api, &reply, "POST /storage/v1/b HTTP/1.1\r\nHost: h\r\n\r\n%s", body);
    RG_CHECK_EQ(reply.status, 413);
    body[RG_BODY_SIZE_MAX] = '\0';
    rg_driver_send(api, &reply, "POST /storage/v1/b HTTP/1.1\r\nHost: h\r\n\r\n%s", body);
    RG_CHECK_EQ(reply.status, 400);
    free(body);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_document_may_come_in_any_pieces),
        RG_TEST(test_a_document_beyond_its_limit_is_413),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
