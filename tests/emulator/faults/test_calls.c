/* Whose fault it is, stalls and corruption. Without sockets: what comes of it on
 * them is in test_faults.c. */
#include "emulator/faults/faults.h"
#include "tests/emulator/faults/retry_case.h"

static bool is_complete(void)
{
    char target[128];
    snprintf(target, sizeof(target), "/retry_test/%s", id);
    get(target);
    RG_CHECK_EQ(reply.status, 200);
    bool complete = strstr(reply.body.data, "\"completed\":true") != NULL;
    RG_CHECK(complete != (strstr(reply.body.data, "\"completed\":false") != NULL));
    return complete;
}

static void send_as_test(const char *method, const char *target, const char *fields)
{
    rg_driver_send(api, &reply, "%s %s HTTP/1.1\r\nHost: h\r\nx-retry-test-id: %s\r\n%s\r\n",
                   method, target, id, fields);
}

/* One instruction is met by requests of its own method alone; which that is stands in
 * test_method.c. */
static void test_an_instruction_is_of_its_method(void)
{
    open_api(NULL, 0);
    make_test("storage.objects.list", "return-418");
    send_as_test("GET", "/bucket/x", "");
    RG_CHECK(reply.status != 418);
    RG_CHECK(!is_complete());
    send_as_test("GET", "/bucket", "");
    RG_CHECK_EQ(reply.status, 418);
    RG_CHECK(is_complete());
    close_api();
}

/* Through the driver, because ten seconds are long. */
static void test_stalls_by_header(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/x", "abcdef");
    rg_driver_send(api, &reply,
                   "GET /bucket/x HTTP/1.1\r\nHost: h\r\n"
                   "x-goog-emulator-instructions: stall-always\r\n\r\n");
    RG_CHECK_EQ(reply.response.stall_after, 0);
    RG_CHECK_EQ(reply.response.stall_ns, 10 * RG_NS_PER_S);
    rg_driver_send(api, &reply,
                   "GET /bucket/x HTTP/1.1\r\nHost: h\r\n"
                   "x-goog-emulator-instructions: stall-at-256KiB\r\n\r\n");
    RG_CHECK_EQ(reply.response.stall_after, UINT64_MAX);
    char *data = calloc(1, RG_KIB(300));
    memset(data, 'x', RG_KIB(300) - 1);
    put_xml("/bucket/y", data);
    free(data);
    rg_driver_send(api, &reply,
                   "GET /bucket/y HTTP/1.1\r\nHost: h\r\n"
                   "x-goog-emulator-instructions: stall-at-256KiB\r\n\r\n");
    RG_CHECK_EQ(reply.response.stall_after, RG_KIB(256));
    RG_CHECK_EQ(reply.response.stall_ns, 10 * RG_NS_PER_S);
    close_api();
}

static void test_corruption_by_header(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/x", "abcdef");
    rg_driver_send(api, &reply,
                   "GET /bucket/x HTTP/1.1\r\nHost: h\r\n"
                   "x-goog-emulator-instructions: return-corrupted-data\r\n\r\n");
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_EQ(reply.body.size, 6);
    RG_CHECK_EQ((uint8_t)reply.body.data[0], (uint8_t) ~'a');
    RG_CHECK_STR(reply.body.data + 1, "bcdef");
    get("/bucket/x");
    RG_CHECK_STR(reply.body.data, "abcdef");
    rg_driver_send(api, &reply,
                   "PUT /bucket/z HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
                   "x-goog-emulator-instructions: inject-upload-data-error\r\n\r\nabc");
    RG_CHECK_EQ(reply.status, 200);
    get("/bucket/z");
    RG_CHECK_EQ((uint8_t)reply.body.data[0], (uint8_t) ~'a');
    RG_CHECK_STR(reply.body.data + 1, "bc");
    rg_driver_send(api, &reply,
                   "PUT /bucket/z HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"
                   "x-goog-hash: crc32c=xFDWlw==\r\n"
                   "x-goog-emulator-instructions: inject-upload-data-error\r\n\r\nabcde");
    RG_CHECK_EQ(reply.status, 400);
    check_body_has("CRC32C");
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_instruction_is_of_its_method),
        RG_TEST(test_stalls_by_header),
        RG_TEST(test_corruption_by_header),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
