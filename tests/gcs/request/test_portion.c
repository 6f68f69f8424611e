/* Portions: equal parts whatever rates began with, sums that stay, newcomers and those that go,
 * and others that lie. */
#include "gcs/request/portion.h"
#include "tests/support/test.h"

#include <math.h>

#define LOOPS_MAX 64
#define LIMIT_MAX 256

/* Loops of a host, and what each tells. */
struct host {
    unsigned count;
    uint64_t now_ns;
    uint64_t process[LOOPS_MAX];
    uint32_t loops[LOOPS_MAX]; /* of its process */
    struct rg_limiter limiters[LOOPS_MAX];
    bool gone[LOOPS_MAX];
};

static void host_open(struct host *host, unsigned processes, unsigned loops)
{
    *host = (struct host){.now_ns = 1000 * RG_NS_PER_S, .count = processes * loops};
    for (unsigned i = 0; i < host->count; i++) {
        const struct rg_limiter_options options = {.limit_max = LIMIT_MAX, .seed = i};
        rg_limiter_init(&host->limiters[i], &options, host->now_ns);
        host->process[i] = 1 + i / loops;
        host->loops[i] = loops;
    }
}

static void fill(struct host *host, unsigned i, uint32_t count)
{
    while (host->limiters[i].in_flight < count) {
        rg_limiter_enter_always(&host->limiters[i], host->now_ns);
    }
}

/* So many are out, for 10 ms each, and one is refused: a fifth less a second. */
static void refuse(struct host *host, unsigned i, uint32_t count)
{
    struct rg_limiter *limiter = &host->limiters[i];
    fill(host, i, count);
    host->now_ns += 10 * RG_NS_PER_MS;
    rg_limiter_leave(limiter, RG_LIMITER_ANSWERED, host->now_ns - 10 * RG_NS_PER_MS, host->now_ns);
    fill(host, i, count);
    limiter->answer_count = RG_MAX(limiter->answer_count, 100u);
    host->now_ns += RG_NS_PER_MS;
    rg_limiter_leave(limiter, RG_LIMITER_THROTTLED, host->now_ns - 1, host->now_ns);
}

static struct rg_peer_side told(const struct rg_limiter *limiter)
{
    bool is_free = limiter->state == RG_LIMITER_FREE;
    return (struct rg_peer_side){
        .gap_ns = (uint64_t)rg_limiter_gap_ns(limiter),
        .refused_ns = limiter->cut_ns,
        .in_flight = RG_MAX(limiter->in_flight, 1u),
        .restraint = is_free            ? RG_PEER_FREE
                     : limiter->follows ? RG_PEER_FOLLOWS
                                        : RG_PEER_REFUSED,
    };
}

/* One interval, in which each learns from all others. */
static void turn(struct host *host)
{
    host->now_ns += RG_PEERS_INTERVAL_NS;
    for (unsigned i = 0; i < host->count; i++) {
        struct rg_portion portion;
        rg_portion_begin(&portion, host->process[i]);
        for (unsigned n = 0; n < host->count; n++) {
            struct rg_peer peer = {.process = host->process[n], .told_ns = host->now_ns};
            peer.sides[RG_PEER_READS] = told(&host->limiters[n]);
            peer.sides[RG_PEER_READS].loops = host->loops[n];
            if (n != i && !host->gone[n]) {
                rg_portion_add(&portion, &peer);
            }
        }
        const struct rg_peer_side own = told(&host->limiters[i]);
        struct rg_limiter_lesson lesson = rg_portion_lesson(&portion, RG_PEER_READS, &own);
        if (!host->gone[i]) {
            (void)rg_limiter_learn(&host->limiters[i], &lesson, host->now_ns);
        }
    }
}

static void turns(struct host *host, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        turn(host);
    }
}

/* Requests in 10 ms. */
static double rate_of(const struct rg_limiter *limiter)
{
    return (double)(10 * RG_NS_PER_MS) / rg_limiter_gap_ns(limiter);
}

static double sum_of(const struct host *host)
{
    double sum = 0;
    for (unsigned i = 0; i < host->count; i++) {
        sum += host->gone[i] ? 0 : rate_of(&host->limiters[i]);
    }
    return sum;
}

static void check_near(double got, double wanted, double part)
{
    if (fabs(got - wanted) > wanted * part) {
        rg_test_fail(__FILE__, __LINE__, "%g is not near %g", got, wanted);
    }
}

static void test_without_refusals_all_are_free(void)
{
    struct host host;
    host_open(&host, 8, 2);
    for (unsigned i = 0; i < host.count; i++) {
        fill(&host, i, i);
    }
    turns(&host, 100);
    for (unsigned i = 0; i < host.count; i++) {
        RG_CHECK_EQ(host.limiters[i].state, RG_LIMITER_FREE);
    }
}

static void test_a_refusal_of_one_holds_the_others_to_what_they_have(void)
{
    struct host host;
    host_open(&host, 4, 1);
    for (unsigned i = 0; i < 4; i++) {
        fill(&host, i, 40);
        host.limiters[i].answer_ns = (double)(10 * RG_NS_PER_MS);
    }
    refuse(&host, 0, 40);
    turn(&host);
    for (unsigned i = 0; i < 4; i++) {
        RG_CHECK_EQ(host.limiters[i].state, RG_LIMITER_PACED);
        RG_CHECK_EQ(host.limiters[i].follows, i != 0);
    }
    check_near(sum_of(&host), 35 + 3 * 40, 0.05);
    turns(&host, 30);
    check_near(sum_of(&host), 35 + 3 * 40, 0.05);
    for (unsigned i = 0; i < 4; i++) {
        check_near(rate_of(&host.limiters[i]), 155.0 / 4, 0.05);
    }
}

/* And what one has that ends falls to the others as their answers raise their limits. */
static void test_a_new_process_begins_with_its_part(void)
{
    struct host host;
    host_open(&host, 4, 1);
    for (unsigned i = 0; i < 3; i++) {
        refuse(&host, i, 100);
    }
    host.gone[3] = true;
    turns(&host, 10);
    check_near(sum_of(&host), 240.0, 0.01);
    host.gone[3] = false;
    turn(&host);
    RG_CHECK_EQ(host.limiters[3].state, RG_LIMITER_PACED);
    RG_CHECK(rate_of(&host.limiters[3]) <= 1.01 * 240.0 / 4);
    turns(&host, 10);
    for (unsigned i = 0; i < 4; i++) {
        check_near(rate_of(&host.limiters[i]), sum_of(&host) / 4, 0.05);
    }
    check_near(sum_of(&host), 240.0 + 60.0, 0.15);
}

static void test_parts_are_those_of_processes_not_of_loops(void)
{
    struct host host;
    host_open(&host, 3, 1);
    /* The first two loops are of one process. */
    host.process[1] = host.process[0];
    host.loops[0] = host.loops[1] = 2;
    for (unsigned i = 0; i < 3; i++) {
        refuse(&host, i, 100);
    }
    turns(&host, 40);
    check_near(rate_of(&host.limiters[0]) + rate_of(&host.limiters[1]), rate_of(&host.limiters[2]),
               0.02);
    check_near(sum_of(&host), 240.0, 0.05);
}

/* Two processes of four loops read, and one loop of each writes: a writer has half of all. */
static void test_loops_that_only_read_have_no_part_of_the_writes(void)
{
    for (unsigned is_own = 0; is_own < 2; is_own++) {
        struct rg_portion portion;
        const struct rg_peer_side used = {
            .gap_ns = RG_NS_PER_MS, .in_flight = 1, .restraint = RG_PEER_REFUSED, .loops = 1};
        rg_portion_begin(&portion, 1);
        for (unsigned i = 0; i < 7; i++) {
            struct rg_peer peer = {.process = i < 3 ? 1 : 2, .told_ns = RG_NS_PER_S};
            peer.sides[RG_PEER_READS] = used;
            peer.sides[RG_PEER_READS].loops = 4;
            if (is_own ? i == 0 : i == 3) {
                peer.sides[RG_PEER_WRITES] = used;
                peer.sides[RG_PEER_WRITES].loops = is_own ? 2 : 1;
            }
            rg_portion_add(&portion, &peer);
        }
        struct rg_limiter_lesson lesson = rg_portion_lesson(&portion, RG_PEER_WRITES, &used);
        check_near(lesson.gap_ns, RG_NS_PER_MS, 0.001);
        RG_CHECK_EQ(rg_portion_loops(&portion, RG_PEER_WRITES), is_own ? 2 : 1);
        RG_CHECK_EQ(rg_portion_loops(&portion, RG_PEER_READS), 4);
        RG_CHECK_EQ(rg_portion_processes(&portion), 2);
    }
}

/* The other's clock was looked at a little later. */
static void test_a_refusal_counts_from_the_first_moment(void)
{
    struct rg_portion portion;
    const struct rg_peer_side own = {.gap_ns = RG_NS_PER_MS, .in_flight = 1};
    struct rg_peer peer = {.process = 2, .told_ns = RG_NS_PER_S + 2};
    peer.sides[RG_PEER_READS] =
        (struct rg_peer_side){.gap_ns = RG_NS_PER_MS, .in_flight = 1, .restraint = RG_PEER_REFUSED};
    peer.sides[RG_PEER_READS].refused_ns = RG_NS_PER_S + 1;
    rg_portion_begin(&portion, 1);
    rg_portion_add(&portion, &peer);
    RG_CHECK(rg_portion_lesson(&portion, RG_PEER_READS, &own).is_held);
    RG_CHECK(rg_portion_lesson(&portion, RG_PEER_READS, &own).is_news);
    /* Who tells of a refusal after he told lies. */
    peer.sides[RG_PEER_READS].refused_ns = peer.told_ns + 1;
    rg_portion_begin(&portion, 1);
    rg_portion_add(&portion, &peer);
    RG_CHECK(!rg_portion_lesson(&portion, RG_PEER_READS, &own).is_held);
}

/* A free one that follows is free again, though all who follow see each other. */
static void test_who_follows_is_free_when_nobody_is_refused(void)
{
    struct host host;
    host_open(&host, 4, 1);
    for (unsigned i = 0; i < 4; i++) {
        fill(&host, i, 10);
    }
    refuse(&host, 0, 100);
    turns(&host, 5);
    RG_CHECK_EQ(host.limiters[3].state, RG_LIMITER_PACED);
    host.gone[0] = true;
    turn(&host);
    for (unsigned i = 1; i < 4; i++) {
        RG_CHECK_EQ(host.limiters[i].state, RG_LIMITER_FREE);
    }
}

static void test_old_refusals_hold_only_those_who_begin(void)
{
    struct host host;
    host_open(&host, 3, 1);
    refuse(&host, 0, 100);
    fill(&host, 1, 50);
    host.gone[1] = host.gone[2] = true;
    turns(&host, (RG_PORTION_NEWS_NS + RG_NS_PER_S) / RG_PEERS_INTERVAL_NS);
    host.gone[1] = host.gone[2] = false;
    turn(&host);
    RG_CHECK_EQ(host.limiters[1].state, RG_LIMITER_FREE);
    RG_CHECK_EQ(host.limiters[2].state, RG_LIMITER_PACED);
    /* And not for ever. */
    turns(&host, RG_PORTION_HELD_NS / RG_PEERS_INTERVAL_NS);
    RG_CHECK_EQ(host.limiters[2].state, RG_LIMITER_FREE);
}

/* One request at a time was too much for the first. */
static void outage(struct host *host, unsigned i)
{
    for (unsigned n = 0; n < 20; n++) {
        refuse(host, i, 1);
    }
    RG_CHECK_EQ(host->limiters[i].state, RG_LIMITER_PACED);
}

static void test_who_begins_among_paced_ones_is_paced(void)
{
    struct host host;
    host_open(&host, 3, 1);
    outage(&host, 0);
    outage(&host, 1);
    turn(&host);
    RG_CHECK_EQ(host.limiters[2].state, RG_LIMITER_PACED);
    RG_CHECK(host.limiters[2].gap_ns <= (double)RG_LIMITER_LESSON_GAP_NS_MAX);
    /* It asks at once, and later after its gap. */
    RG_CHECK(rg_limiter_enter(&host.limiters[2], host.now_ns + RG_NS_PER_S));
    rg_limiter_leave(&host.limiters[2], RG_LIMITER_BROKEN, 0, host.now_ns);
    RG_CHECK(!rg_limiter_enter(&host.limiters[2], host.now_ns + RG_NS_PER_S));
    RG_CHECK(rg_limiter_enter(&host.limiters[2], host.now_ns + 3 * RG_NS_PER_S));
}

/* A bucket that answers so many requests at once, and refuses what is above. Each round of 10 ms
 * every loop begins what it may, and all of it comes back, in an order that begins elsewhere each
 * time. */
struct model {
    struct host host;
    uint32_t room;
    double out_sum;
    unsigned rounds;
    uint64_t answers[LOOPS_MAX];
};

static void model_round(struct model *model)
{
    struct host *host = &model->host;
    uint64_t sent_ns = host->now_ns += 10 * RG_NS_PER_MS;
    uint32_t sent[LOOPS_MAX] = {0}, out = 0, taken = 0;
    for (unsigned i = 0; i < host->count; i++) {
        while (sent[i] < 64 && rg_limiter_enter(&host->limiters[i], sent_ns)) {
            sent[i]++;
            out++;
        }
    }
    uint64_t now_ns = host->now_ns += RG_NS_PER_MS;
    for (uint32_t left = out, i = (uint32_t)rg_test_random_below(host->count); left > 0; i++) {
        unsigned n = i % host->count;
        if (sent[n] > 0) {
            bool is_taken = taken < model->room;
            taken += is_taken;
            model->answers[n] += is_taken;
            rg_limiter_leave(&host->limiters[n],
                             is_taken ? RG_LIMITER_ANSWERED : RG_LIMITER_THROTTLED, sent_ns,
                             now_ns);
            sent[n]--;
            left--;
        }
    }
    model->out_sum += out;
    model->rounds++;
}

static void model_run(struct model *model, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        model_round(model);
        if (i % 9 == 8) {
            turn(&model->host);
        }
    }
}

/* Eight processes, of which four come later: what all have out follows what the bucket allows, and
 * their parts are the same. */
static void test_all_together_follow_the_bucket(void)
{
    static struct model model;
    model = (struct model){.room = 100};
    host_open(&model.host, 8, 1);
    model.host.count = 4;
    model_run(&model, 3000);
    model.host.count = 8;
    model_run(&model, 1000);
    model.out_sum = model.rounds = 0;
    memset(model.answers, 0, sizeof(model.answers));
    model_run(&model, 6000);
    check_near(model.out_sum / model.rounds, model.room, 0.3);
    double sum = 0, squares = 0;
    for (unsigned i = 0; i < 8; i++) {
        sum += (double)model.answers[i];
        squares += (double)model.answers[i] * (double)model.answers[i];
    }
    RG_CHECK(sum * sum / (8 * squares) >= 0.95);
    RG_CHECK(sum >= 0.7 * model.room * model.rounds);
}

static uint64_t random_number(void)
{
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     UINT32_MAX,
                                     UINT64_MAX,
                                     UINT64_C(0x7ff0) << 48,
                                     UINT64_C(0x7ff8) << 48,
                                     UINT64_C(0xfff0) << 48,
                                     UINT64_C(0x40f0) << 48};
    uint64_t pick = rg_test_random_below(2 * RG_ARRAY_LEN(edges));
    return pick < RG_ARRAY_LEN(edges) ? edges[pick] : rg_test_random();
}

/* Sums that wrap around, of all, whether they use the side now or not. */
static void test_what_others_counted_is_added_up(void)
{
    struct rg_portion portion;
    rg_portion_begin(&portion, 1);
    const struct rg_peer_side own = {.answers = 1000, .sudden = 1000};
    struct rg_peer peer = {.process = 5};
    RG_CHECK_EQ(rg_portion_lesson(&portion, RG_PEER_READS, &own).others, 0);
    peer.sides[RG_PEER_READS] = (struct rg_peer_side){.answers = UINT32_MAX, .sudden = 20};
    rg_portion_add(&portion, &peer);
    peer.process = 6;
    peer.sides[RG_PEER_READS] = (struct rg_peer_side){.answers = 3, .sudden = 4, .in_flight = 1};
    rg_portion_add(&portion, &peer);
    struct rg_limiter_lesson lesson = rg_portion_lesson(&portion, RG_PEER_READS, &own);
    RG_CHECK_EQ(lesson.others, 11);
    RG_CHECK_EQ(lesson.count.answers, 2);
    RG_CHECK_EQ(lesson.count.sudden, 24);
    RG_CHECK_EQ(rg_portion_lesson(&portion, RG_PEER_WRITES, &own).count.answers, 0);
}

/* Whatever is told, the limiter is sound (its invariants check that) and goes on. */
static void test_lies_make_slow_and_stop_nobody(void)
{
    for (unsigned round = 0; round < 300; round++) {
        struct rg_limiter limiter;
        const struct rg_limiter_options options = {.limit_max = 16, .seed = round};
        uint64_t now_ns = 1000 * RG_NS_PER_S, begun_ns = now_ns;
        unsigned answers = 0;
        rg_limiter_init(&limiter, &options, now_ns);
        for (unsigned n = 0; n < 200; n++) {
            struct rg_portion portion;
            rg_portion_begin(&portion, 1);
            for (uint64_t liars = rg_test_random_below(9); liars > 0; liars--) {
                uint64_t words[sizeof(struct rg_peer) / sizeof(uint64_t)];
                struct rg_peer peer;
                for (unsigned w = 0; w < RG_ARRAY_LEN(words); w++) {
                    words[w] = random_number();
                }
                memcpy(&peer, words, sizeof(peer));
                rg_portion_add(&portion, &peer);
            }
            const struct rg_peer_side own = told(&limiter);
            struct rg_limiter_lesson lesson = rg_portion_lesson(&portion, RG_PEER_READS, &own);
            (void)rg_limiter_learn(&limiter, &lesson, now_ns);
            RG_CHECK(rg_portion_processes(&portion) >= 1);
            for (unsigned i = 0; i < 10; i++) {
                now_ns += 10 * RG_NS_PER_MS;
                if (rg_limiter_enter(&limiter, now_ns)) {
                    rg_limiter_leave(&limiter, RG_LIMITER_ANSWERED, now_ns - 1, now_ns);
                    answers++;
                }
            }
        }
        /* At worst, one in each of the longest gaps. */
        RG_CHECK(answers >= (now_ns - begun_ns) / (2 * RG_LIMITER_LESSON_GAP_NS_MAX));
    }
}

static void test_latency_is_a_mean_of_those_who_know(void)
{
    struct rg_portion portion;
    uint64_t median_ns, late_ns, silence_ns;
    rg_portion_begin(&portion, 1);
    RG_CHECK(!rg_portion_latency(&portion, 1, &median_ns, &late_ns, &silence_ns));
    const struct rg_peer_kind kinds[] = {
        {.count = 100, .median_us = 1000, .late_us = 4000},
        {.count = 300, .median_us = 2000, .late_us = 8000, .silence_us = 50},
        {.count = 99, .median_us = 9, .late_us = 9},
        {.count = 4000, .median_us = 9, .late_us = 8},
        {.count = 4000, .median_us = 9, .late_us = UINT32_MAX},
    };
    for (unsigned i = 0; i < RG_ARRAY_LEN(kinds); i++) {
        struct rg_peer peer = {.process = 2};
        peer.kinds[1] = kinds[i];
        rg_portion_add(&portion, &peer);
    }
    RG_CHECK(rg_portion_latency(&portion, 1, &median_ns, &late_ns, &silence_ns));
    RG_CHECK_EQ(median_ns, 1750 * RG_NS_PER_US);
    RG_CHECK_EQ(late_ns, 7000 * RG_NS_PER_US);
    RG_CHECK_EQ(silence_ns, 50 * RG_NS_PER_US);
    RG_CHECK(!rg_portion_latency(&portion, 0, &median_ns, &late_ns, &silence_ns));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_without_refusals_all_are_free),
        RG_TEST(test_a_refusal_of_one_holds_the_others_to_what_they_have),
        RG_TEST(test_a_new_process_begins_with_its_part),
        RG_TEST(test_parts_are_those_of_processes_not_of_loops),
        RG_TEST(test_loops_that_only_read_have_no_part_of_the_writes),
        RG_TEST(test_a_refusal_counts_from_the_first_moment),
        RG_TEST(test_who_follows_is_free_when_nobody_is_refused),
        RG_TEST(test_old_refusals_hold_only_those_who_begin),
        RG_TEST(test_who_begins_among_paced_ones_is_paced),
        RG_TEST(test_all_together_follow_the_bucket),
        RG_TEST(test_what_others_counted_is_added_up),
        RG_TEST(test_lies_make_slow_and_stop_nobody),
        RG_TEST(test_latency_is_a_mean_of_those_who_know),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
