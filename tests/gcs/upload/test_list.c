/* Multipart uploads that nobody finished: their list by pages, and ending them, also when an answer
 * is lost. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/upload.h>

#define PAGE                                                                                       \
    "<ListMultipartUploadsResult><Upload><Key>a b</Key><UploadId>id</UploadId></Upload>"           \
    "</ListMultipartUploadsResult>"

static const struct rg_step page[] = {
    RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 111\r\n\r\n" PAGE), RG_END};
static const struct rg_step odd[] = {
    RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n<ListBucketResult/>"), RG_END};
static const struct rg_step gone[] = {
    RG_READ, RG_SEND("HTTP/1.1 204 No Content\r\nx-goog-x: y\r\n\r\n"), RG_END};
static const struct rg_step lost[] = {RG_READ, RG_CUT};
static const struct rg_step missing[] = {
    RG_READ, RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\n<Error/>"), RG_END};

static struct rg_completion try_list(const struct rg_step *const *scripts, uint32_t script_count,
                                     const struct rg_list_uploads *list, enum rg_status want,
                                     const char *head, struct rg_test_client *c)
{
    struct rg_list_uploads own = *list;
    own.bucket = "bucket";
    *c = (struct rg_test_client){.scripts = scripts, .script_count = script_count};
    rg_test_client_open(c);
    RG_CHECK_EQ(rg_submit_list_uploads(c->client, c->cq, &own), 0);
    struct rg_completion done = rg_test_take(c);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c->server, 0), head);
    return done;
}

static void test_a_list(void)
{
    static const struct rg_step *const scripts[] = {lost, page};
    struct rg_test_client c;
    struct rg_completion done = try_list(scripts, 2, &(struct rg_list_uploads){0}, RG_STATUS_OK,
                                         "GET /bucket?uploads HTTP/1.1\r\n", &c);
    const struct rg_uploads_page *found = done.data;
    RG_CHECK_EQ(found->count, 1);
    RG_CHECK_STR(found->uploads[0].object, "a b");
    RG_CHECK_STR(found->uploads[0].id, "id");
    RG_CHECK(found->next_key_marker == NULL);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_what_is_asked_for(void)
{
    static const struct rg_step *const scripts[] = {odd};
    struct rg_test_client c;
    struct rg_completion done =
        try_list(scripts, 1,
                 &(struct rg_list_uploads){
                     .prefix = "p/?", .key_marker = "k&", .id_marker = "i=", .results_max = 7},
                 RG_STATUS_BAD_RESPONSE,
                 "GET /bucket?uploads&prefix=p%2F%3F&key-marker=k%26&upload-id-marker=i%3D"
                 "&max-uploads=7 HTTP/1.1\r\n",
                 &c);
    RG_CHECK_CONTAINS(done.detail, "is no list of multipart uploads");
    rg_lease_release(done.lease);
    const struct rg_list_uploads bad[] = {{.bucket = NULL},
                                          {.bucket = "bucket", .results_max = 1001}};
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(rg_submit_list_uploads(c.client, c.cq, &bad[i]), -EINVAL);
    }
    const struct rg_abort_upload worse[] = {{.bucket = "bucket", .object = "o"},
                                            {.bucket = "bucket", .object = "o", .id = ""},
                                            {.bucket = "bucket", .id = "i"}};
    for (size_t i = 0; i < RG_ARRAY_LEN(worse); i++) {
        RG_CHECK_EQ(rg_submit_abort_upload(c.client, c.cq, &worse[i]), -EINVAL);
    }
    rg_test_client_close(&c);
}

static void try_abort(const struct rg_step *const *scripts, uint32_t script_count,
                      enum rg_status want)
{
    struct rg_test_client c = {.scripts = scripts, .script_count = script_count};
    rg_test_client_open(&c);
    const struct rg_abort_upload abort = {.bucket = "bucket", .object = "a b", .id = "i/d"};
    RG_CHECK_EQ(rg_submit_abort_upload(c.client, c.cq, &abort), 0);
    struct rg_completion done = rg_test_take(&c);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    RG_CHECK_EQ(done.attempts, script_count);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 0), "DELETE /bucket/a%20b?uploadId=i");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_an_abort(void)
{
    static const struct rg_step *const at_once[] = {gone};
    static const struct rg_step *const again[] = {lost, gone};
    static const struct rg_step *const done_before[] = {lost, missing};
    static const struct rg_step *const unknown[] = {missing};
    try_abort(at_once, 1, RG_STATUS_OK);
    try_abort(again, 2, RG_STATUS_OK);
    try_abort(done_before, 2, RG_STATUS_OK);
    try_abort(unknown, 1, RG_STATUS_NOT_FOUND);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_list),
        RG_TEST(test_what_is_asked_for),
        RG_TEST(test_an_abort),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
