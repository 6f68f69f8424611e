/* How fast bodies may be sent, by times that the test makes up. */
#include "http/send_pace.h"

#include "tests/support/test.h"

#define PIECE RG_SEND_PACE_PIECE
#define RECORD RG_KIB(16)

static uint64_t room_at(struct rg_send_pace *pace, uint64_t now_ns, uint64_t *out_look_ns)
{
    *out_look_ns = 0;
    uint64_t room = rg_send_pace_room(pace, now_ns, out_look_ns);
    RG_CHECK((room == 0) == (*out_look_ns != 0));
    RG_CHECK(room > 0 || (*out_look_ns > now_ns && *out_look_ns <= now_ns + RG_SEND_PACE_LOOK_NS));
    return room;
}

/* Sends what may be sent in records, as a timer that is late by up to late_ns wakes it, until
 * `end_ns`. The bytes; *out_most is what went at one time. */
static uint64_t send_until(struct rg_send_pace *pace, uint64_t *now_ns, uint64_t end_ns,
                           uint64_t late_ns, uint64_t *out_most)
{
    uint64_t sent = 0, look_ns;
    *out_most = 0;
    while (*now_ns < end_ns) {
        uint64_t at_once = 0;
        while (room_at(pace, *now_ns, &look_ns) > 0) {
            rg_send_pace_sent(pace, RECORD);
            at_once += RECORD;
        }
        sent += at_once;
        *out_most = RG_MAX(*out_most, at_once);
        *now_ns = look_ns + rg_test_random_below(late_ns + 1);
    }
    return sent;
}

static void test_nothing_is_held_back_at_first(void)
{
    struct rg_send_pace pace = {0};
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t look_ns;
        RG_CHECK_EQ(room_at(&pace, i, &look_ns), UINT64_MAX);
        rg_send_pace_sent(&pace, UINT64_MAX);
    }
}

static void test_the_rate_holds_with_a_timer_that_is_late(void)
{
    static const uint64_t rates[] = {RG_MIB(1), RG_MIB(32), RG_MIB(200), RG_MIB(2048)};
    for (size_t i = 0; i < RG_ARRAY_LEN(rates); i++) {
        struct rg_send_pace pace = {.bytes_per_s = rates[i]};
        uint64_t now_ns = 5 * RG_NS_PER_S, most;
        uint64_t sent =
            send_until(&pace, &now_ns, now_ns + 10 * RG_NS_PER_S, 2 * RG_NS_PER_MS, &most);
        uint64_t want = 10 * rates[i];
        RG_CHECK(sent >= want - want / 50 - PIECE && sent <= want + want / 1000 + 3 * PIECE);
        /* A piece, or what was missed. */
        uint64_t missed = rates[i] * RG_SEND_PACE_BURST_NS / RG_NS_PER_S;
        RG_CHECK(most <= missed + 2 * PIECE);
    }
}

static void test_what_was_not_sent_for_long_is_not_made_up_for(void)
{
    struct rg_send_pace pace = {.bytes_per_s = RG_MIB(1)};
    uint64_t now_ns = 1, most;
    send_until(&pace, &now_ns, RG_NS_PER_S, 0, &most);
    now_ns += 1000 * RG_NS_PER_S;
    uint64_t sent = send_until(&pace, &now_ns, now_ns + RG_NS_PER_S, 0, &most);
    RG_CHECK(sent <= RG_MIB(1) + 2 * PIECE);
}

static void test_a_record_beyond_a_piece_is_taken_off_the_next_one(void)
{
    struct rg_send_pace pace = {.bytes_per_s = RG_MIB(1)};
    uint64_t look_ns, now_ns = RG_NS_PER_S;
    RG_CHECK_EQ(room_at(&pace, now_ns, &look_ns), PIECE);
    rg_send_pace_sent(&pace, PIECE - 1);
    RG_CHECK_EQ(room_at(&pace, now_ns, &look_ns), 1);
    rg_send_pace_sent(&pace, RECORD);
    while (room_at(&pace, now_ns, &look_ns) == 0) {
        now_ns = look_ns;
    }
    RG_CHECK_EQ(room_at(&pace, now_ns, &look_ns), PIECE - (RECORD - 1));
}

static void test_a_rate_that_changes_counts_from_the_next_look_on(void)
{
    struct rg_send_pace pace = {.bytes_per_s = 1};
    uint64_t look_ns, now_ns = RG_NS_PER_S;
    RG_CHECK_EQ(room_at(&pace, now_ns, &look_ns), 0);
    pace.bytes_per_s = RG_MIB(1024);
    RG_CHECK_EQ(room_at(&pace, look_ns, &look_ns), PIECE);
    pace.bytes_per_s = 0;
    RG_CHECK_EQ(room_at(&pace, now_ns, &look_ns), UINT64_MAX);
    rg_send_pace_sent(&pace, RG_MIB(4096));
    /* What went without a limit holds up nothing for long. */
    pace.bytes_per_s = RG_MIB(1);
    uint64_t until_ns = now_ns + RG_NS_PER_S;
    while (room_at(&pace, now_ns, &look_ns) == 0) {
        now_ns = look_ns;
        RG_CHECK(now_ns < until_ns);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_nothing_is_held_back_at_first),
        RG_TEST(test_the_rate_holds_with_a_timer_that_is_late),
        RG_TEST(test_what_was_not_sent_for_long_is_not_made_up_for),
        RG_TEST(test_a_record_beyond_a_piece_is_taken_off_the_next_one),
        RG_TEST(test_a_rate_that_changes_counts_from_the_next_look_on),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
