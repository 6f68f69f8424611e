/* A simulated job keeps its books, does the same again, and stays within the bounds that the
 * client's limits promise. RINGEST_FLEET=N has N hosts instead of a few. */
#include "tests/sim/fleet/fleet.h"
#include "tests/support/test.h"

#include <stdlib.h>

static struct rg_fleet_wheel wheel;

static struct event {
    struct rg_fleet_event event;
    uint64_t fired_ns;
    unsigned order;
} events[4];

static unsigned fired_count;

static void event_fire(struct rg_fleet_event *event)
{
    struct event *own = RG_CONTAINER_OF(event, struct event, event);
    own->fired_ns = wheel.now_ns;
    own->order = ++fired_count;
}

static void event_set(unsigned index, uint64_t at_ns)
{
    events[index].event.fire = event_fire;
    rg_fleet_set(&wheel, &events[index].event, at_ns);
}

static void test_events_fire_in_order(void)
{
    const uint64_t tick_ns = UINT64_C(1) << RG_FLEET_TICK_BITS;
    const uint64_t turn_ns = tick_ns << RG_FLEET_SLOT_BITS;
    memset(events, 0, sizeof(events));
    fired_count = 0;
    rg_fleet_wheel_init(&wheel);
    event_set(0, 2 * turn_ns + 5 * tick_ns);
    event_set(1, 5 * tick_ns);
    event_set(2, 5 * tick_ns);
    event_set(3, 5 * tick_ns);
    rg_fleet_cancel(&wheel, &events[2].event);
    rg_fleet_run_until(&wheel, turn_ns);
    RG_CHECK_EQ(fired_count, 2);
    RG_CHECK_EQ(events[1].order, 1);
    RG_CHECK_EQ(events[3].order, 2);
    RG_CHECK_EQ(events[1].fired_ns, 5 * tick_ns);
    RG_CHECK_EQ(wheel.count, 1);
    rg_fleet_run_until(&wheel, 3 * turn_ns);
    RG_CHECK_EQ(events[0].order, 3);
    RG_CHECK_EQ(events[0].fired_ns, 2 * turn_ns + 5 * tick_ns);
    RG_CHECK_EQ(wheel.count, 0);
}

/* Asks so many times a second, for so long. Those that are not refused. */
static uint64_t ask_for(struct rg_fleet_service *service, uint64_t from_s, uint64_t seconds,
                        uint64_t per_s)
{
    uint64_t served = 0, nic_ns = 0;
    for (uint64_t i = 0; i < seconds * per_s; i++) {
        uint64_t now_ns = from_s * RG_NS_PER_S + i * RG_NS_PER_S / per_s;
        served += rg_fleet_ask(service, &nic_ns, now_ns).answer == RG_FLEET_OK;
    }
    return served;
}

static void test_the_service_keeps_its_rate_and_grows(void)
{
    static struct rg_fleet_service service;
    static struct rg_fleet_second seconds[200];
    rg_fleet_service_init(&service, rg_test_seed(), false, seconds, RG_ARRAY_LEN(seconds));
    uint64_t served = ask_for(&service, 0, 10, 10000);
    /* Some meet a front end that fails, and as many as wait are above it. */
    RG_CHECK(served <= 10 * 5000 + 5000 / 10);
    RG_CHECK(served >= 9 * 5000);
    RG_CHECK_EQ(seconds[5].rate, 5000);
    (void)ask_for(&service, 10, 112, 6000);
    RG_CHECK_EQ(seconds[100].rate, 5000);
    (void)ask_for(&service, 122, 3, 1000);
    RG_CHECK_EQ(seconds[123].rate, 10000);
    service.outage_ns = 125 * RG_NS_PER_S;
    service.outage_end_ns = 126 * RG_NS_PER_S;
    RG_CHECK_EQ(ask_for(&service, 125, 1, 1000), 0);
    RG_CHECK(ask_for(&service, 126, 1, 1000) > 500);
}

static uint32_t host_count(void)
{
    const char *text = getenv("RINGEST_FLEET");
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : 4;
}

/* More than the cold bucket can do, and an outage. */
static struct rg_fleet_options life(enum rg_fleet_control control)
{
    return (struct rg_fleet_options){
        .hosts = host_count(),
        .control = control,
        .seed = rg_test_seed(),
        .seconds = 40,
        .measure_from = 5,
        .measure_to = 15,
        .outage_from = 15,
        .outage_to = 25,
    };
}

static void books_check(const struct rg_fleet_result *result,
                        const struct rg_fleet_options *options)
{
    const struct rg_fleet_counts *all = &result->all;
    RG_CHECK_EQ(all->attempts, all->ok + all->refused + all->expired + all->lost + result->out);
    RG_CHECK_EQ(all->requests, all->completed + all->given_up + result->open);
    RG_CHECK_EQ(all->ok, all->completed);
    RG_CHECK_EQ(result->open, (uint64_t)options->hosts * FLEET_RANKS_PER_HOST * FLEET_WINDOW);
    RG_CHECK(all->lost <= all->hedges);
    RG_CHECK(result->out <= result->open + all->hedges);
}

/* What holds whoever controls. */
static void bounds_check(const struct rg_fleet_result *result,
                         const struct rg_fleet_options *options)
{
    uint64_t ranks = (uint64_t)options->hosts * FLEET_RANKS_PER_HOST;
    uint64_t earned = result->all.attempts * RG_HEDGE_PER_1000_DEFAULT / 1000;
    RG_CHECK(result->all.hedges <= earned + ranks * RG_HEDGE_BURST);
    RG_CHECK(result->served_per_s <= result->asked_per_s);
    RG_CHECK(result->served_per_s <= FLEET_COLD_PER_S * 1.05);
    RG_CHECK(result->jain > 0 && result->jain <= 1.000001);
    RG_CHECK(result->waste >= 0 && result->waste < 1);
}

static void test_requests_are_conserved(void)
{
    for (unsigned control = 0; control < RG_FLEET_CONTROL_COUNT; control++) {
        struct rg_fleet_options options = life((enum rg_fleet_control)control);
        struct rg_fleet_result result;
        rg_fleet_run(&result, &options);
        RG_CHECK(result.all.completed > 0 && result.all.refused > 0);
        books_check(&result, &options);
        bounds_check(&result, &options);
    }
}

static void test_the_same_seed_does_the_same(void)
{
    struct rg_fleet_options options = life(RG_FLEET_OWN);
    struct rg_fleet_result first, again, other;
    rg_fleet_run(&first, &options);
    rg_fleet_run(&again, &options);
    options.seed++;
    rg_fleet_run(&other, &options);
    RG_CHECK_EQ(first.fingerprint, again.fingerprint);
    RG_CHECK_EQ(first.all.attempts, again.all.attempts);
    RG_CHECK(first.fingerprint != other.fingerprint);
}

static void test_the_series_is_all_that_was_asked(void)
{
    static struct rg_fleet_second series[40];
    struct rg_fleet_options options = life(RG_FLEET_OWN);
    struct rg_fleet_result result;
    options.series = series;
    RG_CHECK_EQ(options.seconds, RG_ARRAY_LEN(series));
    rg_fleet_run(&result, &options);
    uint64_t asked = 0, refused = 0;
    for (uint32_t i = 0; i < options.seconds; i++) {
        bool is_outage = i >= options.outage_from && i < options.outage_to;
        RG_CHECK(series[i].served + series[i].refused <= series[i].asked);
        RG_CHECK(series[i].rate >= FLEET_COLD_PER_S);
        RG_CHECK_EQ(is_outage ? series[i].served : 0, 0);
        asked += series[i].asked;
        refused += series[i].refused;
    }
    RG_CHECK_EQ(asked, result.all.attempts);
    RG_CHECK(refused >= result.all.refused);
}

static void test_the_ramp_is_kept_by_the_job(void)
{
    struct rg_fleet_options options = life(RG_FLEET_RAMP);
    struct rg_fleet_result result;
    rg_fleet_run(&result, &options);
    /* Hedges are no part of it. */
    RG_CHECK(result.asked_per_s <= RG_RATE_RAMP_READS_PER_S * 1.03);
}

static void test_limits_leave_most_of_the_rate(void)
{
    struct rg_fleet_options options = life(RG_FLEET_OWN);
    struct rg_fleet_result own, none;
    rg_fleet_run(&own, &options);
    options.control = RG_FLEET_NONE;
    rg_fleet_run(&none, &options);
    RG_CHECK(own.served_per_s >= 0.8 * none.served_per_s);
    RG_CHECK(own.all.given_up <= none.all.given_up);
}

/* So many share one range of names that each has less than one request in 250 ms. */
static void test_what_is_told_makes_nobody_ask_for_more(void)
{
    struct rg_fleet_options options = {
        .hosts = 32,
        .control = RG_FLEET_TOLD,
        .seed = rg_test_seed(),
        .is_one_prefix = true,
        .seconds = 60,
        .measure_from = 30,
        .measure_to = 60,
    };
    struct rg_fleet_result result;
    rg_fleet_run(&result, &options);
    RG_CHECK(result.waste < 0.1);
    RG_CHECK(result.jain > 0.9);
}

/* A bucket that has grown, and somewhat more asked of it than it can do, or less. */
static struct rg_fleet_options grown(uint32_t hosts)
{
    return (struct rg_fleet_options){
        .hosts = hosts,
        .control = RG_FLEET_TOLD,
        .seed = rg_test_seed(),
        .is_warm = true,
        .seconds = 40,
        .measure_from = 20,
        .measure_to = 40,
    };
}

static void test_overload_by_503_alone_wastes_little(void)
{
    struct rg_fleet_options options = grown(64);
    struct rg_fleet_result result;
    options.percent_503 = 100;
    rg_fleet_run(&result, &options);
    RG_CHECK(result.measured.refused > 0);
    RG_CHECK(result.waste < 0.03);
    RG_CHECK(result.served_per_s > 0.9 * result.ideal_per_s);
    RG_CHECK(result.jain > 0.95);
}

/* Each process has 20 answers a second, as with 512 hosts and sixteen times as much to be had: by
 * itself it learns late, and with the others of its host in time. Who is told each time why it was
 * refused wastes least. */
static void test_the_processes_of_a_host_find_overload_by_503_together(void)
{
    struct rg_fleet_options options = grown(32);
    struct rg_fleet_result own, told, informed;
    options.percent_503 = 100;
    options.is_one_prefix = true;
    options.seconds = options.measure_to = 90;
    options.measure_from = 30;
    rg_fleet_run(&told, &options);
    options.control = RG_FLEET_OWN;
    rg_fleet_run(&own, &options);
    options.control = RG_FLEET_INFORMED;
    rg_fleet_run(&informed, &options);
    RG_CHECK(told.waste < 0.8 * own.waste);
    RG_CHECK(informed.waste < 0.5 * told.waste);
    RG_CHECK(told.served_per_s > 0.95 * told.ideal_per_s);
    RG_CHECK(told.jain > 0.93);
}

/* It refuses one in six, and the others are well. */
static void test_a_front_end_that_refuses_some_slows_nobody_down(void)
{
    struct rg_fleet_options options = grown(2);
    struct rg_fleet_result well, flaky;
    rg_fleet_run(&well, &options);
    options.flaky_per_1000 = 160;
    options.flaky_front_ends = 1;
    rg_fleet_run(&flaky, &options);
    RG_CHECK(flaky.measured.refused * 150 > flaky.measured.ok);
    RG_CHECK(flaky.served_per_s > 0.9 * well.served_per_s);
    /* All of them now and then, as services do that are well. */
    options.flaky_per_1000 = 10;
    options.flaky_front_ends = FLEET_FRONT_END_COUNT;
    rg_fleet_run(&flaky, &options);
    RG_CHECK(flaky.served_per_s > 0.9 * well.served_per_s);
}

/* One in sixteen requests is refused, and nearly all of the rest is to be had. */
static void test_a_front_end_that_is_ill_for_good_slows_nobody_down(void)
{
    struct rg_fleet_options options = grown(2);
    struct rg_fleet_result result;
    options.flaky_per_1000 = 1000;
    options.flaky_front_ends = 1;
    options.seconds = options.measure_to = 90;
    rg_fleet_run(&result, &options);
    RG_CHECK(result.measured.refused * 20 > result.measured.ok);
    RG_CHECK(result.served_per_s > 0.88 * result.ideal_per_s);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_events_fire_in_order),
        RG_TEST(test_the_service_keeps_its_rate_and_grows),
        RG_TEST(test_requests_are_conserved),
        RG_TEST(test_the_same_seed_does_the_same),
        RG_TEST(test_the_series_is_all_that_was_asked),
        RG_TEST(test_the_ramp_is_kept_by_the_job),
        RG_TEST(test_limits_leave_most_of_the_rate),
        RG_TEST(test_what_is_told_makes_nobody_ask_for_more),
        RG_TEST(test_overload_by_503_alone_wastes_little),
        RG_TEST(test_the_processes_of_a_host_find_overload_by_503_together),
        RG_TEST(test_a_front_end_that_refuses_some_slows_nobody_down),
        RG_TEST(test_a_front_end_that_is_ill_for_good_slows_nobody_down),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
