/* Limits, time-outs that adapt, and second requests, end to end against servers of which a part is
 * slow, busy or silent: that the right thing is done, and that each request still completes once.
 */
#include "gcs/host/account.h"
#include "gcs/host/region.h"
#include "gcs/request/hedge.h"
#include "gcs/request/limiter.h"
#include "gcs/request/stall.h"
#include "tests/support/client.h"
#include "tests/support/clock.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <unistd.h>

#define SIZE 3000
/* Longer than any case may take: who waits for it fails, but for those that set the clock ahead. */
#define AGES_MS 100000
/* Good answers after which it is known when another is late. Second requests may be sent for so
 * small a share of all that the one after these is the first that may have one: a busy machine that
 * is slow with one of these does not. */
#define KNOWN RG_HEDGE_SAMPLES_MIN
#define HEDGES_PER_1000 (1000 / KNOWN)
/* And how many until a request can be given up by experience. */
#define FAST RG_STALL_SAMPLES_MIN
#define STEPS_MAX 256
#define BUSY "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nbusy"

/* Another object than all others. */
#define OTHER                                                                                      \
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-goog-generation: 8\r\n"                             \
    "x-goog-stored-content-length: 5\r\n\r\nother"

/* Steps of a connection: so many good answers, and what comes then. */
struct script {
    struct rg_step steps[STEPS_MAX];
};

static struct script script_make(unsigned fast, const struct rg_step *then, size_t then_count)
{
    const struct rg_step read = RG_READ;
    const struct rg_step send = {
        .kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, 7)};
    struct script script = {0};
    RG_ASSERT(2 * fast + then_count < STEPS_MAX);
    for (unsigned i = 0; i < fast; i++) {
        script.steps[2 * i] = read;
        script.steps[2 * i + 1] = send;
    }
    if (then_count > 0) {
        memcpy(&script.steps[2 * fast], then, then_count * sizeof(*then));
    }
    return script;
}

static struct script script_good(void)
{
    const struct rg_step again[] = {RG_AGAIN};
    return script_make(1, again, 1);
}

/* So many good answers; the next request is read and never answered. */
static struct script script_silent(unsigned fast)
{
    const struct rg_step silent[] = {RG_READ, RG_HOLD, RG_END};
    return script_make(fast, silent, 3);
}

/* The client's loops see that time has gone by: a cancellation of nothing wakes them. */
static void skip(struct rg_test_client *c, uint64_t ns)
{
    rg_test_clock_skip(NULL, ns);
    RG_CHECK_EQ(rg_cancel(c->client, c->cq, UINT64_MAX), 0);
}

static void check_good(struct rg_completion *done)
{
    RG_CHECK_STATUS(done, OK);
    RG_CHECK_BYTES(done, 0, SIZE);
    rg_lease_release(done->lease);
}

/* One after the other, on one connection. */
static void get_fast(struct rg_test_client *c, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        rg_test_get(c, &(struct rg_get){0});
        struct rg_completion done = rg_test_take(c);
        check_good(&done);
    }
}

/* So many in all, so many at once. */
static void get_many(struct rg_test_client *c, unsigned count, unsigned at_once)
{
    unsigned submitted = 0, completed = 0;
    while (completed < count) {
        while (submitted < count && submitted - completed < at_once) {
            rg_test_get(c, &(struct rg_get){0});
            submitted++;
        }
        struct rg_completion done = rg_test_take(c);
        check_good(&done);
        completed++;
    }
}

static void await_hedges(struct rg_test_client *c, uint64_t count)
{
    RG_AWAIT(rg_test_stats(c).hedges == count);
}

static void test_a_silent_connection_is_overtaken(void)
{
    struct script silent = script_silent(KNOWN), good = script_good();
    const struct rg_step *scripts[] = {silent.steps, good.steps};
    uint8_t buffer[SIZE];
    for (unsigned own = 0; own < 2; own++) {
        struct rg_test_client c = {.hedges = true, .scripts = scripts, .script_count = 2};
        c.options.first_byte_timeout_ns = AGES_MS * RG_NS_PER_MS;
        c.options.adapting = RG_SWITCH_OFF;
        c.options.hedges_per_1000 = HEDGES_PER_1000;
        rg_test_client_open(&c);
        get_fast(&c, KNOWN);
        RG_CHECK_EQ(rg_scripted_server_connections(c.server), 1);
        RG_CHECK_EQ(rg_test_stats(&c).hedges, 0);
        memset(buffer, 0xff, sizeof(buffer));
        rg_test_get(&c, &(struct rg_get){.buf = own ? buffer : NULL, .buf_size = own ? SIZE : 0});
        struct rg_completion done = rg_test_take(&c);
        RG_CHECK_EQ(done.attempts, 2);
        RG_CHECK(own == 0 || done.data == buffer);
        check_good(&done);
        struct rg_stats stats = rg_test_stats(&c);
        RG_CHECK_EQ(stats.hedges, 1);
        RG_CHECK_EQ(stats.hedge_wins, 1);
        RG_CHECK_EQ(stats.retries, 0);
        RG_CHECK_EQ(stats.in_flight, 0);
        get_fast(&c, 50);
        rg_test_client_close(&c);
    }
}

static void test_one_slow_connection_of_many(void)
{
    /* Again and again, as a machine that is slow with all of them does not let it be overtaken. */
    const struct rg_step slow[] = {
        RG_READ,
        RG_SLEEP(2000),
        {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, 7)},
        RG_AGAIN};
    struct script bad = script_make(50, slow, RG_ARRAY_LEN(slow)), good = script_good();
    const struct rg_step *scripts[] = {bad.steps,  good.steps, good.steps, good.steps,
                                       good.steps, good.steps, good.steps, good.steps};
    struct rg_test_client c = {.hedges = true, .scripts = scripts, .script_count = 8};
    c.options.first_byte_timeout_ns = AGES_MS * RG_NS_PER_MS;
    c.options.adapting = RG_SWITCH_OFF;
    c.options.connections_max = 8;
    rg_test_client_open(&c);
    struct rg_stats stats;
    uint64_t requests = 0, begun_ns = 0;
    do {
        get_many(&c, 2000, 8);
        requests += 2000;
        stats = rg_test_stats(&c);
    } while (stats.hedge_wins == 0 && rg_test_go_on_waiting(&begun_ns));
    RG_CHECK(stats.hedge_wins >= 1);
    RG_CHECK(stats.hedges * 1000 <= requests * RG_HEDGE_PER_1000_DEFAULT);
    rg_test_client_close(&c);
}

static void test_hedging_can_be_switched_off(void)
{
    struct script silent = script_silent(KNOWN), good = script_good();
    const struct rg_step *scripts[] = {silent.steps, good.steps};
    struct rg_test_client clients[] = {
        {.options = {.hedging = RG_SWITCH_OFF}},
        /* The bodies are as large as they were. */
        {.hedges = true, .options = {.hedge_size_max = SIZE / 2}},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(clients); i++) {
        struct rg_test_client *c = &clients[i];
        c->scripts = scripts;
        c->script_count = 2;
        c->options.first_byte_timeout_ns = AGES_MS * RG_NS_PER_MS;
        rg_test_client_open(c);
        get_fast(c, KNOWN);
        rg_test_get(c, &(struct rg_get){0});
        RG_AWAIT(rg_scripted_server_requests(c->server) == KNOWN + 1);
        skip(c, AGES_MS * RG_NS_PER_MS);
        struct rg_completion done = rg_test_take(c);
        check_good(&done);
        struct rg_stats stats = rg_test_stats(c);
        RG_CHECK_EQ(stats.hedges, 0);
        RG_CHECK_EQ(stats.retries, 1);
        rg_test_client_close(c);
    }
}

static void test_large_ranges_are_not_asked_for_twice(void)
{
    struct script silent = script_silent(KNOWN), good = script_good();
    const struct rg_step *scripts[] = {silent.steps, good.steps};
    struct rg_test_client c = {.hedges = true, .scripts = scripts, .script_count = 2};
    c.options.first_byte_timeout_ns = AGES_MS * RG_NS_PER_MS;
    c.options.hedges_per_1000 = HEDGES_PER_1000;
    rg_test_client_open(&c);
    get_fast(&c, KNOWN);
    rg_test_get(&c, &(struct rg_get){.length = RG_HEDGE_SIZE_MAX_DEFAULT + 1});
    RG_AWAIT(rg_scripted_server_requests(c.server) == KNOWN + 1);
    skip(&c, AGES_MS * RG_NS_PER_MS);
    struct rg_completion done = rg_test_take(&c);
    check_good(&done);
    RG_CHECK_EQ(rg_test_stats(&c).hedges, 0);
    rg_test_client_close(&c);
}

/* All connections become slow, which says nothing against one of them. */
static void test_no_second_requests_where_all_are_slow(void)
{
    /* In milliseconds: more than a busy machine takes for what is quick. */
    enum { CONNECTIONS = 8, QUICK = 60, SLOW = 36, SLOW_MS = 1000 };
    struct script script = script_make(QUICK, NULL, 0);
    struct rg_step *slow = &script.steps[2 * QUICK];
    static_assert(2 * QUICK + 3 * SLOW < RG_ARRAY_LEN(script.steps), "there is room for the end");
    for (unsigned i = 0; i < SLOW; i++) {
        slow[3 * i] = script.steps[0];
        slow[3 * i + 1] = (struct rg_step)RG_SLEEP(SLOW_MS);
        slow[3 * i + 2] = script.steps[1];
    }
    /* Those that replace a loser are slow from the first. */
    const struct rg_step *scripts[CONNECTIONS + 1];
    const struct rg_step always[] = {slow[0], slow[1], slow[2], RG_AGAIN};
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        scripts[i] = script.steps;
    }
    scripts[CONNECTIONS] = always;
    struct rg_test_client c = {.hedges = true, .scripts = scripts, .script_count = CONNECTIONS + 1};
    c.options.connections_max = CONNECTIONS;
    c.options.adapting = RG_SWITCH_OFF;
    /* So that it is not the budget that keeps them back. */
    c.options.hedges_per_1000 = 1000;
    rg_test_client_open(&c);
    /* Until the last connection has become slow, a second request may well be right. */
    get_many(&c, CONNECTIONS * QUICK + 4 * CONNECTIONS, CONNECTIONS);
    uint64_t before = rg_test_stats(&c).hedges;
    get_many(&c, 3 * CONNECTIONS, CONNECTIONS);
    RG_CHECK_EQ(rg_test_stats(&c).hedges, before);
    rg_test_client_close(&c);
}

/* A request and its second one are both out when something ends them. */
static void both_out(struct rg_test_client *c, const struct rg_step *const scripts[2],
                     uint64_t deadline_ns)
{
    c->hedges = true;
    c->scripts = scripts;
    c->script_count = 2;
    c->options.first_byte_timeout_ns = AGES_MS * RG_NS_PER_MS;
    c->options.adapting = RG_SWITCH_OFF;
    c->options.hedges_per_1000 = HEDGES_PER_1000;
    rg_test_client_open(c);
    get_fast(c, KNOWN);
    rg_test_get(c, &(struct rg_get){.user_data = 7,
                                    .deadline_ns = deadline_ns ? rg_now_ns() + deadline_ns : 0});
    await_hedges(c, 1);
    RG_AWAIT(rg_scripted_server_requests(c->server) == KNOWN + 2);
}

static void test_ends_while_both_are_out(void)
{
    const struct rg_step hold[] = {RG_READ, RG_HOLD, RG_END};
    struct script silent = script_silent(KNOWN);
    const struct rg_step *const scripts[] = {silent.steps, hold};
    struct rg_test_client cancelled = {0};
    both_out(&cancelled, scripts, 0);
    RG_CHECK_EQ(rg_cancel(cancelled.client, cancelled.cq, 7), 0);
    struct rg_completion done = rg_test_take(&cancelled);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_test_stats(&cancelled).in_flight, 0);
    rg_test_client_close(&cancelled);

    struct rg_test_client late = {0};
    both_out(&late, scripts, AGES_MS / 2 * RG_NS_PER_MS);
    skip(&late, AGES_MS / 2 * RG_NS_PER_MS);
    done = rg_test_take(&late);
    RG_CHECK_STATUS(&done, DEADLINE);
    rg_lease_release(done.lease);
    rg_test_client_close(&late);

    struct rg_test_client closed = {0};
    both_out(&closed, scripts, 0);
    rg_client_close(closed.client);
    closed.client = NULL;
    done = rg_test_take(&closed);
    RG_CHECK_STATUS(&done, CLOSED);
    RG_CHECK_EQ(done.attempts, 2);
    rg_lease_release(done.lease);
    rg_test_client_close(&closed);
}

static void test_the_second_goes_on_where_the_first_breaks(void)
{
    const struct rg_step breaks[] = {RG_READ, RG_GATE(0), RG_RESET};
    const struct rg_step slow[] = {
        RG_READ,
        RG_GATE(1),
        {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, 7)},
        RG_AGAIN};
    struct script first = script_make(KNOWN, breaks, 3);
    const struct rg_step *const scripts[] = {first.steps, slow};
    struct rg_test_client c = {0};
    both_out(&c, scripts, 0);
    rg_scripted_server_open(c.server, 0);
    RG_AWAIT(rg_test_stats(&c).connections == 1);
    rg_scripted_server_open(c.server, 1);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_EQ(done.attempts, 2);
    check_good(&done);
    RG_CHECK_EQ(rg_test_stats(&c).retries, 0);
    RG_CHECK_EQ(rg_scripted_server_connections(c.server), 2);
    rg_test_client_close(&c);
}

static void test_the_first_goes_on_where_the_second_fails(void)
{
    const struct rg_step late[] = {
        RG_READ,
        RG_GATE(0),
        {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, 7)},
        RG_READ,
        RG_HOLD,
        RG_END};
    const struct rg_step refuses[] = {RG_READ, RG_GATE(1), RG_SEND(BUSY), RG_READ, RG_HOLD, RG_END};
    const struct rg_step breaks[] = {RG_READ, RG_GATE(1), RG_RESET};
    struct script first = script_make(KNOWN, late, RG_ARRAY_LEN(late));
    const struct rg_step *const bad[] = {refuses, breaks};
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        const struct rg_step *const scripts[] = {first.steps, bad[i]};
        struct rg_test_client c = {0};
        both_out(&c, scripts, 0);
        uint64_t before = rg_test_stats(&c).recv_bytes;
        rg_scripted_server_open(c.server, 1);
        RG_AWAIT(rg_test_stats(&c).connections == 1 ||
                 rg_test_stats(&c).recv_bytes == before + strlen(BUSY));
        rg_scripted_server_open(c.server, 0);
        struct rg_completion done = rg_test_take(&c);
        check_good(&done);
        struct rg_stats stats = rg_test_stats(&c);
        RG_CHECK_EQ(stats.hedge_wins, 0);
        RG_CHECK_EQ(stats.retries, 0);
        rg_test_client_close(&c);
    }
}

/* Both answer, one after the other and while a body is on its way: only that of the first head may
 * reach the caller's memory. */
static void test_a_head_that_comes_second_is_not_heard(void)
{
    const struct rg_step late[] = {RG_READ, RG_GATE(0), RG_SEND(BUSY), RG_HOLD, RG_END};
    const struct rg_step other[] = {RG_READ, RG_GATE(0), RG_SEND(OTHER), RG_HOLD, RG_END};
    const struct rg_step slow[] = {
        RG_READ,
        {.kind = RG_STEP_SEND_OBJECT,
         .size = SIZE,
         .text = rg_test_object_fields(SIZE, 7),
         .body_max = SIZE / 2 + 1},
        RG_GATE(1),
        {.kind = RG_STEP_SEND_BYTES, .offset = SIZE / 2, .size = SIZE - SIZE / 2},
        RG_AGAIN};
    const struct rg_step *const seconds[] = {late, other};
    for (size_t i = 0; i < RG_ARRAY_LEN(seconds); i++) {
        struct script first = script_make(KNOWN, seconds[i], 5);
        const struct rg_step *const scripts[] = {first.steps, slow};
        uint8_t buffer[SIZE];
        struct rg_test_client c = {.hedges = true, .scripts = scripts, .script_count = 2};
        c.options.adapting = RG_SWITCH_OFF;
        c.options.hedges_per_1000 = HEDGES_PER_1000;
        rg_test_client_open(&c);
        get_fast(&c, KNOWN);
        rg_test_get(&c, &(struct rg_get){.buf = buffer, .buf_size = SIZE});
        RG_AWAIT(rg_test_stats(&c).hedge_wins == 1);
        rg_scripted_server_open(c.server, 0);
        rg_scripted_server_open(c.server, 1);
        struct rg_completion done = rg_test_take(&c);
        check_good(&done);
        RG_CHECK_EQ(done.attempts, 2);
        RG_CHECK_EQ(rg_test_stats(&c).hedge_wins, 1);
        /* The connection of the loser is gone. */
        RG_CHECK_EQ(rg_test_stats(&c).connections, 1);
        rg_test_client_close(&c);
    }
}

static void test_a_late_head_is_given_up_by_experience(void)
{
    struct script silent = script_silent(FAST), good = script_good();
    const struct rg_step *scripts[] = {silent.steps, good.steps};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    c.options.first_byte_timeout_ns = AGES_MS * RG_NS_PER_MS;
    rg_test_client_open(&c);
    get_fast(&c, FAST);
    rg_test_get(&c, &(struct rg_get){0});
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK(done.attempts >= 2);
    check_good(&done);
    RG_CHECK(rg_test_stats(&c).timeouts >= 1);
    rg_test_client_close(&c);
}

static void test_a_silent_body_is_continued_by_range(void)
{
    /* Many more pieces than make experience: on a busy machine several come as one. */
    enum { LARGE = 300000, PIECES = 10 * RG_STALL_SAMPLES_MIN };
    const char *fields = rg_test_object_fields(LARGE, 7);
    const struct rg_step stops[] = {
        RG_READ,
        {.kind = RG_STEP_SEND_OBJECT,
         .size = LARGE,
         .text = fields,
         .piece = LARGE / PIECES,
         .ms = 1},
        RG_READ,
        {.kind = RG_STEP_SEND_OBJECT, .size = LARGE, .text = fields, .body_max = LARGE / 2},
        RG_HOLD,
        RG_END};
    const struct rg_step good[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = LARGE, .text = fields}, RG_AGAIN};
    const struct rg_step *scripts[] = {stops, good};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    unsigned attempts = 0, ranges = 0;
    c.options.stall_timeout_ns = AGES_MS * RG_NS_PER_MS;
    rg_test_client_open(&c);
    for (unsigned i = 0; i < 2; i++) {
        rg_test_get(&c, &(struct rg_get){0});
        struct rg_completion done = rg_test_take(&c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_BYTES(&done, 0, LARGE);
        attempts += done.attempts;
        rg_lease_release(done.lease);
    }
    /* The server of a busy machine may be silent in the first body, too. */
    RG_CHECK(attempts >= 3);
    for (unsigned i = 0; i < attempts; i++) {
        ranges += strstr(rg_scripted_server_head(c.server, i), "Range: bytes=") != NULL;
    }
    RG_CHECK_EQ(ranges, attempts - 2);
    rg_test_client_close(&c);
}

static void test_a_busy_bucket_gets_fewer_requests(void)
{
    const struct rg_step good = {
        .kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, 7)};
    const struct rg_step refuses[] = {RG_READ, RG_SEND(BUSY), RG_READ, RG_GATE(0), good, RG_AGAIN};
    const struct rg_step *scripts[] = {refuses};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    c.options.connections_max = 1;
    c.options.attempts_max = 1000;
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_test_stats(&c).concurrency_limit, 0);
    rg_test_get(&c, &(struct rg_get){0});
    RG_AWAIT(rg_scripted_server_requests(c.server) == 2);
    /* One may be out, and is. */
    rg_test_get(&c, &(struct rg_get){0});
    RG_AWAIT(rg_test_stats(&c).limited >= 1);
    struct rg_stats stats = rg_test_stats(&c);
    RG_CHECK_EQ(stats.backoffs, 1);
    RG_CHECK_EQ(stats.concurrency_limit, 1);
    RG_CHECK_EQ(stats.in_flight, 1);
    rg_scripted_server_open(c.server, 0);
    for (unsigned i = 0; i < 2; i++) {
        struct rg_completion done = rg_test_take(&c);
        check_good(&done);
    }
    get_many(&c, 20, 8);
    stats = rg_test_stats(&c);
    RG_CHECK_EQ(stats.in_flight, 0);
    rg_test_client_close(&c);
    struct rg_test_client fixed = {.scripts = scripts, .script_count = 1};
    fixed.options.attempts_max = 1000;
    fixed.options.adapting = RG_SWITCH_OFF;
    rg_test_client_open(&fixed);
    rg_scripted_server_open(fixed.server, 0);
    get_many(&fixed, 100, 64);
    RG_CHECK_EQ(rg_test_stats(&fixed).backoffs, 0);
    rg_test_client_close(&fixed);
}

/* A connection that has brought good answers shows that its server is well. */
static void test_503_between_good_answers_slow_down(void)
{
    enum { ROUNDS = 6, GOOD = RG_LIMITER_WELL_ANSWERS };
    const struct rg_step read = RG_READ, again = RG_AGAIN;
    const struct rg_step refuse = RG_SEND("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    struct script script = script_make(ROUNDS * (GOOD + 1), &again, 1);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        unsigned last = i * (GOOD + 1) - 1;
        script.steps[2 * last] = read;
        script.steps[2 * last + 1] = refuse;
    }
    const struct rg_step *scripts[] = {script.steps};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    c.options.connections_max = 1;
    rg_test_client_open(&c);
    get_many(&c, ROUNDS * GOOD, 1);
    /* One in nine, which is not enough of them if servers were ill. */
    RG_CHECK(rg_test_stats(&c).backoffs > 0);
    rg_test_client_close(&c);
}

/* What waits for a connection is not in the pool already, from which it would go out without a gap
 * when the bucket refuses. It waits for no rate either. */
static void test_no_more_are_out_than_there_are_connections(void)
{
    enum { CONNECTIONS = 2, COUNT = 40 };
    const struct rg_step good = {
        .kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, 7)};
    const struct rg_step waits[] = {RG_READ, RG_GATE(0), good, RG_AGAIN};
    const struct rg_step *scripts[] = {waits};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    struct rg_bucket_stats bucket;
    c.options.connections_max = CONNECTIONS;
    rg_test_client_open(&c);
    for (unsigned i = 0; i < COUNT; i++) {
        rg_test_get(&c, &(struct rg_get){0});
    }
    RG_AWAIT(rg_scripted_server_requests(c.server) == CONNECTIONS);
    /* The loop is asked, and has taken its mail before. */
    RG_CHECK_EQ(rg_client_buckets(c.client, &bucket, 1), 1);
    RG_CHECK_EQ(bucket.reads.in_flight, CONNECTIONS);
    RG_CHECK_EQ(bucket.reads.waiting, 0);
    RG_CHECK_EQ(rg_test_stats(&c).limited, 0);
    rg_scripted_server_open(c.server, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        struct rg_completion done = rg_test_take(&c);
        check_good(&done);
    }
    rg_test_client_close(&c);
}

/* Until the client's reads have a limit: it looks at what others of the host tell. */
static void get_until_limited(struct rg_test_client *c)
{
    struct rg_bucket_stats bucket = {.reads.limit = 0};
    while (bucket.reads.limit == 0) {
        rg_test_get(c, &(struct rg_get){0});
        struct rg_completion done = rg_test_take(c);
        check_good(&done);
        RG_CHECK_EQ(rg_client_buckets(c->client, &bucket, 1), 1);
    }
    RG_CHECK(bucket.reads.rate_per_s > 0);
    RG_CHECK_EQ(bucket.reads.backoffs, 0);
}

/* A client of its own, which was never refused, begins with what the other knows. */
static void test_a_busy_bucket_is_known_on_the_host(void)
{
    struct script good = script_good();
    const struct rg_step busy[] = {RG_READ, RG_SEND(BUSY), RG_READ, RG_HOLD, RG_END};
    const struct rg_step *scripts[] = {busy, good.steps};
    char folder[] = "/dev/shm/ringest-test-XXXXXX", path[80];
    if (mkdtemp(folder) == NULL) {
        rg_test_skip("there is no /dev/shm to write to");
    }
    setenv("RINGEST_SHARING", folder, 1);
    struct rg_test_client first = {.scripts = scripts, .script_count = 2};
    first.options.connections_max = 100;
    rg_test_client_open(&first);
    rg_test_get(&first, &(struct rg_get){0});
    RG_AWAIT(rg_test_stats(&first).backoffs == 1);
    RG_AWAIT(rg_scripted_server_requests(first.server) == 2);
    struct rg_test_client second = {.no_server = true};
    second.options = first.options;
    rg_test_client_open(&second);
    get_until_limited(&second);
    rg_test_client_close(&second);
    RG_CHECK_EQ(rg_cancel(first.client, first.cq, 0), 0);
    struct rg_completion done = rg_test_take(&first);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    rg_test_client_close(&first);
    setenv("RINGEST_SHARING", "0", 1);
    rg_host_path_write(folder, path, sizeof(path));
    RG_CHECK_EQ(unlink(path), 0);
    RG_CHECK_EQ(rmdir(folder), 0);
}

static void note_account(void *context, const struct rg_account *account)
{
    *(struct rg_account *)context = *account;
}

/* That nothing is out any more is told, too, though nothing begins after it. */
static void test_a_client_that_has_become_idle_tells_so(void)
{
    const struct rg_step good = {
        .kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, 7)};
    const struct rg_step waits[] = {RG_READ, RG_GATE(0), good, RG_AGAIN};
    const struct rg_step *scripts[] = {waits};
    char folder[] = "/dev/shm/ringest-test-XXXXXX", path[80], why[200];
    struct rg_host_region region;
    struct rg_account account = {0};
    if (mkdtemp(folder) == NULL) {
        rg_test_skip("there is no /dev/shm to write to");
    }
    setenv("RINGEST_SHARING", folder, 1);
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    rg_test_get(&c, &(struct rg_get){0});
    RG_AWAIT(rg_scripted_server_requests(c.server) == 1);
    RG_CHECK_EQ(rg_host_region_find(&region, folder, why, sizeof(why)), 0);
    RG_AWAIT(rg_accounts_read(&region, note_account, &account) == 0 && account.in_flight == 1);
    rg_scripted_server_open(c.server, 0);
    struct rg_completion done = rg_test_take(&c);
    check_good(&done);
    RG_AWAIT(rg_accounts_read(&region, note_account, &account) == 0 && account.in_flight == 0);
    RG_CHECK_EQ(account.requests, 1);
    RG_CHECK_EQ(account.bytes, SIZE);
    rg_host_region_close(&region);
    rg_test_client_close(&c);
    setenv("RINGEST_SHARING", "0", 1);
    rg_host_path_write(folder, path, sizeof(path));
    RG_CHECK_EQ(unlink(path), 0);
    RG_CHECK_EQ(rmdir(folder), 0);
}

static void rate_is_kept(const struct rg_client_options *options, uint32_t workers, unsigned rate)
{
    enum { AT_ONCE = 60 };
    struct script good = script_good();
    const struct rg_step *scripts[] = {good.steps};
    struct rg_test_client c = {.hedges = true,
                               .scripts = scripts,
                               .script_count = 1,
                               .threads = 4,
                               .workers = workers,
                               .options = *options};
    rg_test_client_open(&c);
    uint64_t begun_ns = rg_now_ns();
    unsigned count = 0;
    do {
        get_many(&c, AT_ONCE, AT_ONCE);
        count += AT_ONCE;
        /* A quarter of a second's tokens are there at first, the others come one by one. */
        uint64_t least_ns = (count - rate / 4 - 1) * RG_NS_PER_S / rate;
        RG_CHECK(rg_now_ns() - begun_ns >= least_ns);
        /* A machine that was too slow for the rate did not have to wait: it tries again. */
    } while (rg_test_stats(&c).limited == 0 && rg_now_ns() - begun_ns < RG_TEST_PATIENCE_NS);
    RG_CHECK(rg_test_stats(&c).limited > 0);
    rg_test_client_close(&c);
}

static void test_a_rate_is_kept_where_it_is_asked_for(void)
{
    rate_is_kept(&(struct rg_client_options){.reads_per_s = 100}, 0, 100);
}

static void test_each_process_has_its_part_of_a_jobs_ramp(void)
{
    const struct rg_client_options given = {.ramp = RG_RAMP_GCS, .job_processes = 50};
    const struct rg_client_options by_environment = {.ramp = RG_RAMP_GCS};
    const struct rg_client_options lower = {.ramp = RG_RAMP_GCS, .reads_per_s = 100};
    setenv("WORLD_SIZE", "50", 1);
    rate_is_kept(&by_environment, 0, 100);
    setenv("WORLD_SIZE", "5", 1);
    rate_is_kept(&by_environment, 10, 100); /* each rank has ten workers */
    setenv("WORLD_SIZE", "2", 1);
    rate_is_kept(&given, 10, 100);
    rate_is_kept(&lower, 0, 100);
    unsetenv("WORLD_SIZE");
}

static void test_ends_while_waiting_for_the_rate(void)
{
    struct script good = script_good();
    const struct rg_step *scripts[] = {good.steps};
    struct rg_test_client c = {.hedges = true, .scripts = scripts, .script_count = 1};
    c.options.reads_per_s = 1;
    rg_test_client_open(&c);
    for (uint64_t i = 0; i < 10; i++) {
        uint64_t deadline_ns = i == 8 ? rg_now_ns() + 50 * RG_NS_PER_MS : 0;
        rg_test_get(&c, &(struct rg_get){.user_data = i, .deadline_ns = deadline_ns});
    }
    RG_CHECK_EQ(rg_cancel(c.client, c.cq, 9), 0);
    unsigned cancelled = 0, late = 0;
    while (cancelled + late < 2) {
        struct rg_completion done = rg_test_take(&c);
        cancelled += done.status == RG_STATUS_CANCELLED && done.user_data == 9;
        late += done.status == RG_STATUS_DEADLINE && done.user_data == 8;
        rg_lease_release(done.lease);
    }
    rg_client_close(c.client);
    c.client = NULL;
    struct rg_completion done;
    while (rg_cq_poll(c.cq, &done, 1) == 1) {
        RG_CHECK(done.status == RG_STATUS_CLOSED || done.status == RG_STATUS_OK);
        rg_lease_release(done.lease);
    }
    rg_test_client_close(&c);
}

static void test_more_buckets_than_are_remembered(void)
{
    struct script good = script_good();
    const struct rg_step *scripts[] = {good.steps};
    struct rg_test_client c = {.hedges = true, .scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    for (unsigned round = 0; round < 3; round++) {
        unsigned count = round == 1 ? 1 : 50;
        for (unsigned i = 0; i < count; i++) {
            char bucket[32];
            snprintf(bucket, sizeof(bucket), "bucket-%u", i);
            rg_test_get(&c, &(struct rg_get){.bucket = bucket});
        }
        for (unsigned i = 0; i < count; i++) {
            struct rg_completion done = rg_test_take(&c);
            check_good(&done);
        }
    }
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_silent_connection_is_overtaken),
        RG_TEST(test_one_slow_connection_of_many),
        RG_TEST(test_hedging_can_be_switched_off),
        RG_TEST(test_large_ranges_are_not_asked_for_twice),
        RG_TEST(test_no_second_requests_where_all_are_slow),
        RG_TEST(test_ends_while_both_are_out),
        RG_TEST(test_the_second_goes_on_where_the_first_breaks),
        RG_TEST(test_the_first_goes_on_where_the_second_fails),
        RG_TEST(test_a_head_that_comes_second_is_not_heard),
        RG_TEST(test_a_late_head_is_given_up_by_experience),
        RG_TEST(test_a_silent_body_is_continued_by_range),
        RG_TEST(test_a_busy_bucket_gets_fewer_requests),
        RG_TEST(test_503_between_good_answers_slow_down),
        RG_TEST(test_no_more_are_out_than_there_are_connections),
        RG_TEST(test_a_busy_bucket_is_known_on_the_host),
        RG_TEST(test_a_client_that_has_become_idle_tells_so),
        RG_TEST(test_a_rate_is_kept_where_it_is_asked_for),
        RG_TEST(test_each_process_has_its_part_of_a_jobs_ramp),
        RG_TEST(test_ends_while_waiting_for_the_rate),
        RG_TEST(test_more_buckets_than_are_remembered),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
