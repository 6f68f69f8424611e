/* What is told of uploads that were begun, over real sockets. */
#include "emulator/unfinished.h"
#include "tests/emulator/faults/rule_case.h"

#define SESSION "/upload/storage/v1/b/unfinished/o?uploadType=resumable&name=x"

static void check(const char *want)
{
    RG_CHECK_STR(ask("GET", "/unfinished_uploads", "").text, want);
}

/* The path that a session's Location names. */
static void session_start(char target[static 256])
{
    struct rg_talk talk = ask("POST", SESSION, "");
    RG_CHECK_EQ(talk.status, 200);
    const char *at = strstr(talk.head, "/upload/storage");
    snprintf(target, 256, "%.*s", (int)strcspn(at, "\r"), at);
}

static void test_resumable_uploads(void)
{
    char stored[256], cancelled[256], left[256];
    status_of("PUT", "/unfinished");
    check("{\"resumable\":0,\"multipart\":0}");
    session_start(stored);
    session_start(cancelled);
    session_start(left);
    check("{\"resumable\":3,\"multipart\":0}");
    RG_CHECK_EQ(ask("PUT", stored, "data").status, 200);
    check("{\"resumable\":2,\"multipart\":0}");
    RG_CHECK_EQ(status_of("DELETE", cancelled), 499);
    check("{\"resumable\":1,\"multipart\":0}");
    RG_CHECK_EQ(status_of("DELETE", left), 499);
}

static void test_multipart_uploads(void)
{
    char target[256];
    status_of("PUT", "/unfinished");
    struct rg_talk talk = ask("POST", "/unfinished/x?uploads", "");
    const char *id = strstr(talk.text, "<UploadId>") + strlen("<UploadId>");
    snprintf(target, sizeof(target), "/unfinished/x?uploadId=%.*s", (int)strcspn(id, "<"), id);
    check("{\"resumable\":0,\"multipart\":1}");
    RG_CHECK_EQ(status_of("DELETE", target), 204);
    check("{\"resumable\":0,\"multipart\":0}");
}

static void test_other_requests(void)
{
    RG_CHECK_EQ(status_of("DELETE", "/unfinished_uploads"), 405);
    RG_CHECK_EQ(status_of("GET", "/unfinished_uploads/x"), 404);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_resumable_uploads),
        RG_TEST(test_multipart_uploads),
        RG_TEST(test_other_requests),
    };
    return rule_case_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
