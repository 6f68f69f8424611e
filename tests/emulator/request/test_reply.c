/* What all answers have in common, and how errors read in both dialects. */
#include "emulator/request/reply.h"
#include "tests/emulator/driver.h"

#include <yyjson.h>

static void test_errors_are_json_for_the_json_api(void)
{
    open_api(NULL, 0);
    rg_driver_send(api, &reply, "PUT /bucket/o HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    get("/storage/v1/b/bucket/o/a-\x7e\x22");
    RG_CHECK_EQ(reply.status, 404);
    check_field("content-type", "application/json; charset=UTF-8");
    yyjson_doc *document = yyjson_read(reply.body.data, reply.body.size, 0);
    yyjson_val *error = yyjson_obj_get(yyjson_doc_get_root(document), "error");
    RG_CHECK_EQ(yyjson_get_int(yyjson_obj_get(error, "code")), 404);
    const char *message = yyjson_get_str(yyjson_obj_get(error, "message"));
    RG_CHECK(message != NULL && strstr(message, "bucket/a-~\"") != NULL);
    yyjson_val *first = yyjson_arr_get_first(yyjson_obj_get(error, "errors"));
    RG_CHECK_STR(yyjson_get_str(yyjson_obj_get(first, "domain")), "global");
    RG_CHECK_STR(yyjson_get_str(yyjson_obj_get(first, "reason")), "notFound");
    RG_CHECK_STR(yyjson_get_str(yyjson_obj_get(first, "message")), message);
    yyjson_doc_free(document);
    close_api();
}

static void test_errors_are_xml_for_the_xml_api(void)
{
    open_api(NULL, 0);
    get("/absent%26bucket/o");
    RG_CHECK_EQ(reply.status, 404);
    check_field("content-type", "application/xml; charset=UTF-8");
    RG_CHECK_STR(reply.body.data,
                 "<?xml version='1.0' encoding='UTF-8'?><Error><Code>NoSuchBucket</Code><Message>"
                 "The specified bucket does not exist.</Message></Error>");
    rg_driver_send(api, &reply, "PUT /a%%26b HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    RG_CHECK_EQ(reply.status, 400);
    RG_CHECK(strstr(reply.body.data, "&#39;a&amp;b&#39;</Message></Error>") != NULL);
    rg_driver_send(api, &reply, "HEAD /absent/o HTTP/1.1\r\nHost: h\r\n\r\n");
    RG_CHECK_EQ(reply.status, 404);
    RG_CHECK_EQ(reply.response.body_size, 0);
    close_api();
}

static void test_every_answer_has_an_id_of_its_own(void)
{
    char first[1024];
    open_api(NULL, 0);
    get("/");
    snprintf(first, sizeof(first), "%s", rg_driver_field(&reply, "x-guploader-uploadid"));
    get("/");
    RG_CHECK(strcmp(first, rg_driver_field(&reply, "x-guploader-uploadid")) != 0);
    close_api();
}

static void test_etags_and_checksums_are_in_the_services_form(void)
{
    static const struct {
        int64_t generation, metageneration;
        const char *etag;
    } rows[] = {
        {1360887759327000, 1, "\"CJie5fuFt7UCEAE=\""},
        {1, 1, "\"CAEQAQ==\""},
        {INT64_MAX, INT64_MAX, "\"CP//////////fxD//////////38=\""},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        char etag[RG_REPLY_ETAG_SIZE_MAX + 3];
        struct rg_store_object_info info = {.generation = rows[i].generation,
                                            .metageneration = rows[i].metageneration};
        rg_reply_format_etag(etag, &info);
        RG_CHECK_STR(etag, rows[i].etag);
    }
    char crc[RG_REPLY_CRC32C_SIZE + 1] = "";
    rg_reply_format_crc32c(crc, 0xc99465aa);
    RG_CHECK_STR(crc, "yZRlqg==");
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_errors_are_json_for_the_json_api),
        RG_TEST(test_errors_are_xml_for_the_xml_api),
        RG_TEST(test_every_answer_has_an_id_of_its_own),
        RG_TEST(test_etags_and_checksums_are_in_the_services_form),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
