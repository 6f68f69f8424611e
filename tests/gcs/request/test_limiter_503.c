/* 503: of servers that are ill, of overload, and of what a host was refused altogether. */
#include "gcs/host/peers.h"
#include "tests/gcs/request/limiter_case.h"

/* Two servers of sixteen that are ill say nothing about the bucket, and many that are ill do. */
static void test_few_503_cost_nothing(void)
{
    begin(64);
    for (unsigned i = 0; i < 1000; i++) {
        answer(7);
        (void)refuse(RG_LIMITER_UNAVAILABLE);
        RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
    }
    for (unsigned i = 0; i < 11; i++) {
        (void)refuse(RG_LIMITER_UNAVAILABLE);
    }
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
    /* A 429 always does. */
    begin(64);
    answer(1000);
    (void)refuse(RG_LIMITER_THROTTLED);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
}

/* Sixteen connections that are always in use, for five minutes. The first so many refuse again and
 * again, in a fifth of the time of an answer, and of the others' answers so many in 1000. */
static bool is_slowed_down(unsigned ill, unsigned per_1000)
{
    enum { CONNECTIONS = 16 };
    struct {
        uint64_t sent_ns, done_ns;
        uint32_t good;
        bool is_refused;
    } all[CONNECTIONS] = {0};
    begin(CONNECTIONS);
    for (uint64_t end_ns = now_ns + 300 * RG_NS_PER_S; now_ns < end_ns; now_ns += RG_NS_PER_MS) {
        for (unsigned i = 0; i < CONNECTIONS && limiter.state == RG_LIMITER_FREE; i++) {
            if (all[i].sent_ns != 0 && all[i].done_ns <= now_ns) {
                leave(all[i].is_refused ? rg_limiter_unavailable(all[i].good) : RG_LIMITER_ANSWERED,
                      all[i].sent_ns);
                all[i].good = all[i].is_refused ? 0 : all[i].good + 1;
                all[i].sent_ns = 0;
            }
            if (all[i].sent_ns == 0 && enter(1) == 1) {
                all[i].is_refused = i < ill || rg_test_random_below(1000) < per_1000;
                all[i].sent_ns = now_ns;
                all[i].done_ns = now_ns + (all[i].is_refused ? 15 : 75) * RG_NS_PER_MS;
            }
        }
    }
    return limiter.state != RG_LIMITER_FREE;
}

/* An ill server takes requests away from those that are well, because it is quick. */
static void test_servers_that_refuse_quickly_count_by_their_time(void)
{
    RG_CHECK(!is_slowed_down(1, 0));
    RG_CHECK(!is_slowed_down(2, 0));
    RG_CHECK(is_slowed_down(8, 0));
    /* All of them refuse some: whatever their share is. */
    static const unsigned shares[] = {30, 100, 200, 300, 400, 500, 600, 700, 800, 900, 970, 1000};
    for (unsigned i = 0; i < RG_ARRAY_LEN(shares); i++) {
        RG_CHECK(is_slowed_down(0, shares[i]));
    }
}

/* One of so many is refused by a server that is well. True: that cut the rate. */
static bool is_cut_by_one_of(unsigned each, unsigned count)
{
    begin(64);
    for (unsigned i = 0; i < count && limiter.state == RG_LIMITER_FREE; i++) {
        answer(each - 1);
        (void)refuse(RG_LIMITER_SUDDEN);
    }
    return limiter.state == RG_LIMITER_PACED;
}

/* Servers that are well refuse because there is too much to do, but for a few of them. */
static void test_sudden_503_tell_of_a_rate(void)
{
    RG_CHECK(!is_cut_by_one_of(100, 1000));
    RG_CHECK(is_cut_by_one_of(20, 10));
    /* An outage begins with a few of them. */
    begin(64);
    answer(100);
    for (unsigned i = 0; i < RG_LIMITER_SUDDEN_EXCESS; i++) {
        (void)refuse(RG_LIMITER_SUDDEN);
    }
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
    (void)refuse(RG_LIMITER_SUDDEN);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
}

/* What was sent before a cut says nothing about the rate since. */
static void test_sudden_503_from_before_a_cut_are_no_news(void)
{
    begin(64);
    answer(100);
    uint64_t sent_ns = now_ns;
    RG_CHECK_EQ(enter(32), 32);
    now_ns += RG_NS_PER_MS;
    for (unsigned i = 0; i < 32; i++) {
        leave(RG_LIMITER_SUDDEN, sent_ns);
    }
    RG_CHECK_EQ(limiter.backoffs, 1);
    RG_CHECK_EQ(limiter.excess, 0);
}

/* Others of the host answer so often, and are refused so often by servers that are well. */
static bool learn(uint64_t others, uint32_t answers, uint32_t sudden)
{
    static struct rg_limiter_count count;
    count.answers += answers;
    count.sudden += sudden;
    return rg_limiter_learn(&limiter, &(struct rg_limiter_lesson){.others = others, .count = count},
                            now_ns);
}

/* It asks seldom, and is refused once: too few to tell by itself. */
static void begin_and_be_refused(void)
{
    begin(64);
    answer(40);
    (void)refuse(RG_LIMITER_SUDDEN);
    RG_CHECK_EQ(enter(1), 1);
    RG_CHECK(!learn(7, 0, 0));
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
}

static void test_what_all_of_a_host_were_refused_cuts_the_rate(void)
{
    begin_and_be_refused();
    RG_CHECK(!learn(7, 280, RG_LIMITER_HOST_EXCESS));
    RG_CHECK(learn(7, 10, 3));
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
    RG_CHECK_EQ(limiter.backoffs, 1);
    /* What others sent before their cuts is no news. */
    RG_CHECK_EQ(enter(1), 0);
    now_ns += RG_LIMITER_HOST_LATE_NS / 2;
    (void)refuse(RG_LIMITER_SUDDEN);
    RG_CHECK(!learn(7, 100, 100));
    now_ns += RG_LIMITER_HOST_LATE_NS;
    RG_CHECK(learn(7, 100, 100));
    /* One in a hundred is usual, however many there are. */
    begin_and_be_refused();
    for (unsigned i = 0; i < 1000; i++) {
        now_ns += RG_PEERS_INTERVAL_NS;
        RG_CHECK(!learn(7, 100, 1));
    }
}

static void test_the_last_refusal_of_a_host_may_be_its_own(void)
{
    begin_and_be_refused();
    RG_CHECK(!learn(7, 280, RG_LIMITER_HOST_EXCESS + 2));
    (void)refuse(RG_LIMITER_SUDDEN);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
}

/* Who was not refused itself goes on, and what was counted at another time, or by others, says
 * nothing. */
static void test_what_others_of_a_host_tell_is_not_believed_blindly(void)
{
    begin(64);
    answer(40);
    RG_CHECK_EQ(enter(1), 1);
    for (unsigned i = 0; i < 100; i++) {
        RG_CHECK(!learn(7, 100, 100));
    }
    leave(RG_LIMITER_ANSWERED, now_ns);
    begin_and_be_refused();
    RG_CHECK(!learn(8, 100, 100));
    now_ns += RG_LIMITER_HOST_OLD_NS + 1;
    RG_CHECK(!learn(8, 100, 100));
    RG_CHECK(!learn(8, 100, 101));
    RG_CHECK(!learn(0, 100, 100));
    RG_CHECK(!learn(0, 100, 100));
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
    RG_CHECK(!learn(8, 0, 0));
    RG_CHECK(learn(8, 100, 100));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_few_503_cost_nothing),
        RG_TEST(test_servers_that_refuse_quickly_count_by_their_time),
        RG_TEST(test_sudden_503_tell_of_a_rate),
        RG_TEST(test_sudden_503_from_before_a_cut_are_no_news),
        RG_TEST(test_what_all_of_a_host_were_refused_cuts_the_rate),
        RG_TEST(test_the_last_refusal_of_a_host_may_be_its_own),
        RG_TEST(test_what_others_of_a_host_tell_is_not_believed_blindly),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
