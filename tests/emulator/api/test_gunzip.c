/* What is stored with gzip and who gets it how. */
#include "emulator/api/gunzip.h"

#include "tests/emulator/driver.h"

#include <isa-l/igzip_lib.h>

static uint8_t packed[4096];
static size_t packed_size;

static void pack(const void *data, size_t size)
{
    struct isal_zstream stream;
    isal_deflate_stateless_init(&stream);
    stream.gzip_flag = IGZIP_GZIP;
    stream.end_of_stream = 1;
    stream.next_in = (uint8_t *)(uintptr_t)data;
    stream.avail_in = (uint32_t)size;
    stream.next_out = packed;
    stream.avail_out = sizeof(packed);
    RG_CHECK_EQ(isal_deflate_stateless(&stream), COMP_OK);
    packed_size = stream.total_out;
}

static void put_packed(const char *path, const char *headers)
{
    char request[8192];
    int size = snprintf(request, sizeof(request),
                        "PUT %s HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\n%s"
                        "Content-Length: %zu\r\n\r\n",
                        path, headers, packed_size);
    memcpy(request + size, packed, packed_size);
    rg_driver_reply_fini(&reply);
    rg_driver_exchange(api, request, (size_t)size + packed_size, RG_DRIVER_PIECE_WHOLE, &reply);
    RG_CHECK_EQ(reply.status, 200);
}

static void test_gzip_is_unpacked_for_who_does_not_accept_it(void)
{
    open_api(NULL, 0);
    pack("hello world hello world", 23);
    put_packed("/bucket/o", "");
    rg_driver_send(api, &reply, "GET /bucket/o HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\n\r\n");
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_STR(reply.body.data, "17\r\nhello world hello world\r\n0\r\n\r\n");
    check_field("transfer-encoding", "chunked");
    check_field("content-encoding", "(none)");
    check_field("x-goog-stored-content-encoding", "gzip");
    check_field("x-guploader-response-body-transformations", "gunzipped");
    rg_driver_send(api, &reply,
                   "GET /bucket/o HTTP/1.1\r\nHost: h\r\nAccept-Encoding: deflate, gzip\r\n\r\n");
    RG_CHECK_MEM(reply.body.data, reply.body.size, packed, packed_size);
    check_field("content-encoding", "gzip");
    rg_driver_send(api, &reply,
                   "GET /storage/v1/b/bucket/o/o?alt=media HTTP/1.1\r\nHost: h\r\n"
                   "Accept-Encoding: gzip\r\nRange: bytes=1-2\r\n\r\n");
    RG_CHECK_EQ(reply.status, 206);
    RG_CHECK_MEM(reply.body.data, reply.body.size, packed + 1, (size_t)2);
    rg_driver_send(api, &reply, "HEAD /bucket/o HTTP/1.1\r\nHost: h\r\n\r\n");
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_EQ(reply.body.size, 0);
    close_api();
}

static void test_what_is_left_alone(void)
{
    open_api(NULL, 0);
    pack("hello", 5);
    put_packed("/bucket/o", "Cache-Control: public, no-transform\r\n");
    get("/bucket/o");
    RG_CHECK_MEM(reply.body.data, reply.body.size, packed, packed_size);
    check_field("content-encoding", "gzip");
    pack("", 0);
    put_packed("/bucket/empty", "");
    get("/bucket/empty");
    RG_CHECK_STR(reply.body.data, "0\r\n\r\n");
    packed_size -= 4; /* Cut off: not gzip. */
    put_packed("/bucket/cut", "");
    get("/bucket/cut");
    RG_CHECK_MEM(reply.body.data, reply.body.size, packed, packed_size);
    close_api();
}

static void test_large_objects_are_unpacked_piece_by_piece(void)
{
    open_api(NULL, 0);
    char *data = calloc(1, 300000);
    RG_CHECK(data != NULL);
    pack(data, 300000);
    put_packed("/bucket/o", "");
    get("/bucket/o");
    RG_CHECK_EQ(reply.body.size, strlen("493e0\r\n") + 300000 + strlen("\r\n0\r\n\r\n"));
    free(data);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_gzip_is_unpacked_for_who_does_not_accept_it),
        RG_TEST(test_what_is_left_alone),
        RG_TEST(test_large_objects_are_unpacked_piece_by_piece),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
