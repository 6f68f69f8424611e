/* What a refusal of a write means, by what is known of its attempts. */
#include "gcs/request/verify.h"
#include "tests/support/test.h"

#define NONCE_TEXT "0123456789abcdef0123456789abcdef0123456789abcdef"

static const char *nonce(void)
{
    static char text[RG_NONCE_SIZE + 1];
    for (size_t i = 0; i < RG_NONCE_SIZE; i++) {
        text[i] = NONCE_TEXT[i % (sizeof(NONCE_TEXT) - 1)];
    }
    return text;
}

static void test_only_a_lost_answer_is_asked_about(void)
{
    static const struct {
        enum rg_verify_kind kind;
        bool sent;
        enum rg_status status; /* of the attempt before */
        uint16_t refusal;
        enum rg_verify_verdict verdict;
    } rows[] = {
        {RG_VERIFY_NONE, true, RG_STATUS_CONNECTION_LOST, 412, RG_VERIFY_REFUSED},
        {RG_VERIFY_WRITTEN, true, RG_STATUS_CONNECTION_LOST, 412, RG_VERIFY_ASK},
        {RG_VERIFY_WRITTEN, true, RG_STATUS_SERVER, 412, RG_VERIFY_ASK},
        {RG_VERIFY_WRITTEN, false, RG_STATUS_CONNECTION_LOST, 412, RG_VERIFY_REFUSED},
        {RG_VERIFY_WRITTEN, true, RG_STATUS_THROTTLED, 412, RG_VERIFY_REFUSED},
        {RG_VERIFY_WRITTEN, true, RG_STATUS_CONNECTION_LOST, 404, RG_VERIFY_REFUSED},
        {RG_VERIFY_CHANGED, true, RG_STATUS_CONNECTION_LOST, 412, RG_VERIFY_ASK},
        {RG_VERIFY_REMOVED, true, RG_STATUS_CONNECTION_LOST, 412, RG_VERIFY_ASK},
        {RG_VERIFY_REMOVED, true, RG_STATUS_CONNECTION_LOST, 404, RG_VERIFY_DONE},
        {RG_VERIFY_REMOVED, false, RG_STATUS_CONNECTION_LOST, 404, RG_VERIFY_REFUSED},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_verify verify = {.kind = rows[i].kind};
        rg_verify_note_attempt(&verify, rows[i].sent, rows[i].status);
        RG_CHECK_EQ(rg_verify_refused(&verify, rows[i].refusal, true), rows[i].verdict);
        RG_CHECK_EQ(verify.asking, rows[i].verdict == RG_VERIFY_ASK);
    }
}

static void test_a_question_is_asked_once_and_only_where_there_is_time(void)
{
    struct rg_verify verify = {0};
    rg_verify_expect_written(&verify, 5, 1);
    rg_verify_suspect(&verify);
    RG_CHECK_EQ(rg_verify_refused(&verify, 412, false), RG_VERIFY_REFUSED);
    RG_CHECK_EQ(rg_verify_refused(&verify, 412, true), RG_VERIFY_ASK);
    RG_CHECK_EQ(rg_verify_refused(&verify, 412, true), RG_VERIFY_REFUSED);
}

static void test_a_write_with_a_nonce_asks_without_a_lost_answer(void)
{
    struct rg_verify verify = {0};
    rg_verify_expect_nonce(&verify, nonce());
    RG_CHECK_EQ(verify.kind, RG_VERIFY_WRITTEN);
    RG_CHECK_EQ(rg_verify_refused(&verify, 412, true), RG_VERIFY_ASK);
    RG_CHECK(!rg_verify_is_guess(&verify));
    RG_CHECK(rg_verify_matches(&verify, nonce(), 0, false, 0));
    RG_CHECK(!rg_verify_matches(&verify, "", 0, true, 0));
    /* What changes an object keeps its kind. */
    rg_verify_expect_changed(&verify);
    rg_verify_expect_nonce(&verify, nonce());
    RG_CHECK_EQ(verify.kind, RG_VERIFY_CHANGED);
}

static void test_what_was_sent_is_known_by_size_and_crc(void)
{
    struct rg_verify verify = {0};
    rg_verify_expect_written(&verify, 5, 17);
    rg_verify_suspect(&verify);
    RG_CHECK_EQ(rg_verify_refused(&verify, 412, true), RG_VERIFY_ASK);
    RG_CHECK(rg_verify_is_guess(&verify));
    RG_CHECK(rg_verify_matches(&verify, "", 5, true, 17));
    RG_CHECK(!rg_verify_matches(&verify, "", 6, true, 17));
    RG_CHECK(!rg_verify_matches(&verify, "", 5, true, 18));
    RG_CHECK(!rg_verify_matches(&verify, "", 5, false, 17));
    verify.size = RG_VERIFY_ANY_SIZE;
    RG_CHECK(rg_verify_matches(&verify, "", 6, true, 17));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_only_a_lost_answer_is_asked_about),
        RG_TEST(test_a_question_is_asked_once_and_only_where_there_is_time),
        RG_TEST(test_a_write_with_a_nonce_asks_without_a_lost_answer),
        RG_TEST(test_what_was_sent_is_known_by_size_and_crc),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
