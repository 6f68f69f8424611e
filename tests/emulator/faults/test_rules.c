/* Fault rules over real sockets: which requests are counted, which are struck, what of them happens
 * and what their clients get to see. */
#include "emulator/faults/rules.h"
#include "tests/emulator/faults/rule_case.h"
#include "tests/support/server.h"

#include <unistd.h>

static void test_which_requests_are_counted(void)
{
    static const struct {
        const char *json;
        unsigned seen;
    } rows[] = {
        {"\"nth\":0", 7},
        {"\"nth\":0,\"writes\":true", 4},
        {"\"nth\":0,\"writes\":false", 7},
        {"\"nth\":0,\"bucket\":\"rules\"", 6},
        {"\"nth\":0,\"bucket\":\"rules\",\"writes\":true", 4},
        {"\"nth\":0,\"method\":\"storage.objects.insert\"", 2},
        {"\"nth\":0,\"target\":\"name=y\"", 1},
        {"\"nth\":0,\"field\":\"X-Who: a\"", 1},
        {"\"nth\":0,\"field\":\"x-who: b\"", 0},
    };
    fresh_bucket();
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        begin(rows[i].json);
        ask_with("PUT", "/rules/x", "x-who: a\r\n", "1");
        ask("POST", "/upload/storage/v1/b/rules/o?uploadType=media&name=y", "2");
        RG_CHECK_EQ(status_of("GET", "/rules/x"), 200);
        RG_CHECK_EQ(status_of("HEAD", "/rules/y"), 200);
        RG_CHECK_EQ(status_of("GET", "/other/y"), 404);
        RG_CHECK_EQ(status_of("DELETE", "/rules/x"), 204);
        /* Nobody knows which buckets a batch is about. */
        RG_CHECK_EQ(status_of("POST", "/batch/storage/v1"), 400);
        RG_CHECK_EQ(status_of("GET", "/retry_tests"), 200);
        rg_talk_rule_end(port, &rule);
        if (rule.seen != rows[i].seen) {
            rg_test_fail(__FILE__, __LINE__, "%s: %llu", rows[i].json, rule.seen);
        }
        RG_CHECK_EQ(rule.struck, 0);
    }
}

static void test_which_of_them_are_struck(void)
{
    fresh_bucket();
    begin("\"nth\":3,\"times\":2,\"effect\":\"none\",\"answer\":\"failed\",\"status\":418");
    static const unsigned want[] = {404, 404, 418, 418, 404, 404};
    for (size_t i = 0; i < RG_ARRAY_LEN(want); i++) {
        RG_CHECK_EQ(status_of("GET", "/rules/x"), want[i]);
        rg_talk_rule_ask(port, &rule);
        RG_CHECK_EQ(rule.seen, i + 1);
    }
    RG_CHECK_STR(rule.last, "GET /rules/x");
    end(6, 2);
    begin("\"times\":1000,\"one_in\":3,\"effect\":\"none\",\"answer\":\"failed\"");
    for (int i = 0; i < 60; i++) {
        status_of("GET", "/rules/x");
    }
    rg_talk_rule_end(port, &rule);
    RG_CHECK(rule.struck > 5 && rule.struck < 40);
}

static void test_nothing_happens_and_nothing_comes(void)
{
    fresh_bucket();
    begin("\"effect\":\"none\",\"answer\":\"dropped\"");
    struct rg_talk talk = ask("PUT", "/rules/x", "data");
    RG_CHECK_EQ(talk.status, 0);
    RG_CHECK_EQ(talk.error, ECONNRESET);
    RG_CHECK_EQ(status_of("GET", "/rules/x"), 404);
    end(2, 1);
}

static void test_it_happens_and_nothing_comes(void)
{
    fresh_bucket();
    begin("\"answer\":\"dropped\",\"writes\":true");
    struct rg_talk talk = ask("PUT", "/rules/x", "data");
    RG_CHECK_EQ(talk.status, 0);
    RG_CHECK_EQ(talk.error, ECONNRESET);
    RG_CHECK_STR(ask("GET", "/rules/x", "").text, "data");
    end(1, 1);
}

static void test_it_happens_and_is_said_to_have_failed(void)
{
    fresh_bucket();
    begin("\"answer\":\"failed\"");
    RG_CHECK_EQ(ask("PUT", "/rules/x", "data").status, 503);
    RG_CHECK_STR(ask("GET", "/rules/x", "").text, "data");
    end(2, 1);
    begin("\"answer\":\"failed\",\"status\":429");
    RG_CHECK_EQ(ask("GET", "/rules/x", "").status, 429);
    end(1, 1);
}

static void test_held_before_it_happens(void)
{
    fresh_bucket();
    struct client client = {"PUT", "/rules/x", "data", {0}, 0};
    begin("\"effect\":\"none\",\"answer\":\"held\",\"writes\":true");
    client_start(&client);
    rg_talk_rule_wait(port, &rule);
    RG_CHECK_STR(rule.last, "PUT /rules/x");
    RG_CHECK_EQ(status_of("GET", "/rules/x"), 404);
    end(1, 1);
    client_join(&client);
    RG_CHECK_EQ(client.talk.status, 0);
    RG_CHECK_EQ(client.talk.error, ECONNRESET);
    RG_CHECK_EQ(status_of("GET", "/rules/x"), 404);
}

static void test_held_after_it_happened(void)
{
    fresh_bucket();
    struct client client = {"PUT", "/rules/x", "data", {0}, 0};
    begin("\"answer\":\"held\",\"writes\":true");
    client_start(&client);
    rg_talk_rule_wait(port, &rule);
    RG_AWAIT(status_of("GET", "/rules/x") == 200);
    end(1, 1);
    client_join(&client);
    RG_CHECK_EQ(client.talk.status, 200);
    RG_CHECK(strstr(client.talk.head, "x-goog-generation: ") != NULL);
}

static void test_held_and_lost_after_it_happened(void)
{
    fresh_bucket();
    struct client client = {"PUT", "/rules/x", "data", {0}, 0};
    begin("\"answer\":\"lost\",\"writes\":true");
    client_start(&client);
    rg_talk_rule_wait(port, &rule);
    RG_AWAIT(status_of("GET", "/rules/x") == 200);
    end(1, 1);
    client_join(&client);
    RG_CHECK_EQ(client.talk.status, 0);
    RG_CHECK_EQ(client.talk.error, ECONNRESET);
    RG_CHECK_EQ(status_of("GET", "/rules/x"), 200);
}

static void test_an_answer_is_late(void)
{
    fresh_bucket();
    begin("\"delay_ms\":300");
    uint64_t start_ns = rg_now_ns();
    RG_CHECK_EQ(ask("PUT", "/rules/x", "data").status, 200);
    RG_CHECK(rg_now_ns() - start_ns >= 300 * RG_NS_PER_MS);
    end(1, 1);
}

static void test_pages_are_empty(void)
{
    static const char *const lists[] = {
        "/storage/v1/b/rules/o",
        "/storage/v1/b/rules/o?versions=true",
        "/rules?list-type=2",
        "/rules?uploads",
    };
    static const char *const tokens[] = {"nextPageToken", "nextPageToken", "NextContinuationToken",
                                         "NextKeyMarker"};
    fresh_bucket();
    for (size_t i = 0; i < RG_ARRAY_LEN(lists); i++) {
        begin("\"effect\":\"empty\"");
        RG_CHECK(strstr(ask("GET", lists[i], "").text, tokens[i]) == NULL);
        end(1, 1);
    }
    ask("PUT", "/rules/x", "data");
    RG_CHECK_EQ(status_of("POST", "/rules/xy?uploads"), 200);
    for (size_t i = 0; i < RG_ARRAY_LEN(lists); i++) {
        begin("\"effect\":\"empty\"");
        struct rg_talk talk = ask("GET", lists[i], "");
        RG_CHECK(strstr(talk.text, tokens[i]) != NULL);
        RG_CHECK(strstr(talk.text, "items") == NULL && strstr(talk.text, "<Contents>") == NULL);
        RG_CHECK(strstr(talk.text, "<Upload>") == NULL);
        RG_CHECK(strstr(ask("GET", lists[i], "").text, tokens[i]) == NULL);
        end(2, 1);
    }
    /* From there it goes on with what was not on the page. */
    begin("\"effect\":\"empty\"");
    struct rg_talk talk = ask("GET", "/storage/v1/b/rules/o", "");
    char target[256];
    const char *token = strstr(strstr(talk.text, "nextPageToken"), ":\"") + 2;
    snprintf(target, sizeof(target), "/storage/v1/b/rules/o?pageToken=%.*s",
             (int)strcspn(token, "\""), token);
    RG_CHECK(strstr(ask("GET", target, "").text, "\"name\":\"x\"") != NULL);
    end(2, 1);
}

#define CHUNK RG_KIB(256)

/* Starts a session for "rules/x" and gives its path. */
static void session_start(char target[static 256])
{
    static const char start[] = "/upload/storage/v1/b/rules/o?uploadType=resumable&name=x";
    struct rg_talk talk = ask("POST", start, "");
    RG_CHECK_EQ(talk.status, 200);
    const char *at = strstr(talk.head, "/upload/storage");
    snprintf(target, 256, "%.*s", (int)strcspn(at, "\r"), at);
}

/* Bytes from `first` on, as many as are said, of an object of three units. */
static struct rg_talk chunk_put(const char *target, uint64_t first, size_t size)
{
    struct rg_talk talk;
    char fields[128];
    snprintf(fields, sizeof(fields), "Content-Range: bytes %llu-%llu/%llu\r\n",
             (unsigned long long)first, (unsigned long long)(first + size - 1),
             (unsigned long long)(3 * CHUNK));
    rg_talk(&talk, port,
            &(struct rg_talk_request){
                .method = "PUT", .target = target, .fields = fields, .body_size = size});
    return talk;
}

static void test_a_chunk_is_kept_in_part(void)
{
    static const struct {
        const char *json;
        unsigned status;
        const char *range; /* NULL: nothing is there. */
        uint64_t kept;
    } rows[] = {
        {"\"kept_bytes\":300000", 308, "Range: bytes=0-262143\r\n", CHUNK},
        {"\"kept_bytes\":524288", 308, "Range: bytes=0-524287\r\n", 2 * CHUNK},
        {"\"kept_bytes\":0", 308, NULL, 0},
        {"\"times\":1", 308, NULL, 0},
        {"\"kept_bytes\":9999999,\"answer\":\"failed\"", 503, NULL, 3 * CHUNK},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        char target[256], json[256];
        snprintf(json, sizeof(json), "\"upload\":\"chunk\",\"effect\":\"partial\",%s",
                 rows[i].json);
        fresh_bucket();
        session_start(target);
        begin(json);
        struct rg_talk talk = chunk_put(target, 0, 3 * CHUNK);
        RG_CHECK_EQ(talk.status, rows[i].status);
        RG_CHECK(rows[i].range != NULL ? strstr(talk.head, rows[i].range) != NULL
                                       : strstr(talk.head, "Range: ") == NULL);
        RG_CHECK_EQ(status_of("GET", "/rules/x"), 404);
        end(1, 1);
        /* The session goes on from there; all that is there is passed over. */
        RG_CHECK_EQ(chunk_put(target, 0, 3 * CHUNK).status, 200);
        RG_CHECK_EQ(ask("GET", "/rules/x", "").body_size, 3 * CHUNK);
    }
}

static void test_an_upload_is_forgotten(void)
{
    char target[256];
    fresh_bucket();
    session_start(target);
    begin("\"upload\":\"chunk\",\"effect\":\"forgotten\"");
    RG_CHECK_EQ(chunk_put(target, 0, 3 * CHUNK).status, 404);
    end(1, 1);
    RG_CHECK_EQ(chunk_put(target, 0, 3 * CHUNK).status, 404);
    struct rg_talk talk = ask("POST", "/rules/x?uploads", "");
    const char *id = strstr(talk.text, "<UploadId>") + strlen("<UploadId>");
    snprintf(target, sizeof(target), "/rules/x?partNumber=1&uploadId=%.*s", (int)strcspn(id, "<"),
             id);
    RG_CHECK_EQ(ask("PUT", target, "data").status, 200);
    begin("\"upload\":\"part\",\"effect\":\"forgotten\"");
    RG_CHECK_EQ(ask("PUT", target, "data").status, 404);
    end(1, 1);
    RG_CHECK_EQ(ask("PUT", target, "data").status, 404);
    RG_CHECK(strstr(ask("GET", "/rules?uploads", "").text, "<Key>x</Key>") == NULL);
}

static void test_other_bytes_are_stored(void)
{
    static const char hash[] = "x-goog-hash: crc32c=rth90Q==\r\n";
    fresh_bucket();
    RG_CHECK_EQ(ask_with("PUT", "/rules/x", hash, "data").status, 200);
    RG_CHECK_EQ(ask_with("PUT", "/rules/x", hash, "atad").status, 400);
    begin("\"upload\":\"single\",\"effect\":\"corrupt\"");
    /* What the client says of its bytes is not compared, and what is stored is told. */
    struct rg_talk talk = ask_with("PUT", "/rules/x", hash, "data");
    RG_CHECK_EQ(talk.status, 200);
    RG_CHECK(strstr(talk.head, "crc32c=") != NULL);
    RG_CHECK(strstr(talk.head, "crc32c=rth90Q==") == NULL);
    end(1, 1);
    talk = ask("GET", "/rules/x", "");
    RG_CHECK_EQ(talk.body_size, 4);
    RG_CHECK_EQ((uint8_t)talk.text[0], (uint8_t) ~'d');
    RG_CHECK_STR(talk.text + 1, "ata");
}

static void test_other_bytes_are_sent(void)
{
    fresh_bucket();
    ask("PUT", "/rules/x", "data");
    begin("\"effect\":\"corrupt\"");
    RG_CHECK_EQ((uint8_t)ask("GET", "/rules/x", "").text[0], (uint8_t) ~'d');
    RG_CHECK_STR(ask("GET", "/rules/x", "").text, "data");
    end(2, 1);
}

static void test_an_error_in_a_200(void)
{
    fresh_bucket();
    begin("\"effect\":\"none\",\"answer\":\"failed\",\"status\":200");
    struct rg_talk talk = ask("PUT", "/rules/x", "data");
    RG_CHECK_EQ(talk.status, 200);
    RG_CHECK(strstr(talk.text, "<Error><Code>InternalError</Code>") != NULL);
    RG_CHECK_EQ(status_of("GET", "/rules/x"), 404);
    end(2, 1);
}

/* The head alone is sent. */
static int head_send(void)
{
    int fd = rg_test_peer_open_at(port);
    rg_test_peer_say(fd, "PUT /rules/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
    return fd;
}

static void test_answered_before_the_body(void)
{
    begin("\"effect\":\"none\",\"answer\":\"failed\",\"early\":true");
    int fd = head_send();
    RG_CHECK_EQ(rg_test_peer_expect_status(fd), 503);
    close(fd);
    end(1, 1);
    begin("\"effect\":\"none\",\"answer\":\"dropped\",\"early\":true");
    fd = head_send();
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), ECONNRESET);
    close(fd);
    end(1, 1);
}

static void test_the_head_is_told(void)
{
    begin("\"target\":\"/rules/x\"");
    ask_with("GET", "/rules/x", "x-who: \"a\"\r\n", "");
    char target[96];
    snprintf(target, sizeof(target), "/fault_rule/%s", rule.id);
    RG_CHECK(strstr(ask("GET", target, "").text,
                    "\"head\":\"GET /rules/x HTTP/1.1\\r\\nHost: h\\r\\n") != NULL);
    RG_CHECK(strstr(ask("GET", target, "").text, "x-who: \\\"a\\\"\\r\\n\"}") != NULL);
    end(1, 1);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_which_requests_are_counted),
        RG_TEST(test_which_of_them_are_struck),
        RG_TEST(test_nothing_happens_and_nothing_comes),
        RG_TEST(test_it_happens_and_nothing_comes),
        RG_TEST(test_it_happens_and_is_said_to_have_failed),
        RG_TEST(test_held_before_it_happens),
        RG_TEST(test_held_after_it_happened),
        RG_TEST(test_held_and_lost_after_it_happened),
        RG_TEST(test_an_answer_is_late),
        RG_TEST(test_pages_are_empty),
        RG_TEST(test_a_chunk_is_kept_in_part),
        RG_TEST(test_an_upload_is_forgotten),
        RG_TEST(test_other_bytes_are_stored),
        RG_TEST(test_other_bytes_are_sent),
        RG_TEST(test_an_error_in_a_200),
        RG_TEST(test_answered_before_the_body),
        RG_TEST(test_the_head_is_told),
    };
    return rule_case_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
