/* A pool of connections by virtual time: what happens when penalties and time-outs have passed,
 * which would take too long by a clock. */
#include "http/pool.h"
#include "tests/support/sim.h"
#include "tests/support/test.h"

#include <arpa/inet.h>

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define EXCHANGES_MAX 64
#define TIMEOUT_NS (20 * RG_NS_PER_S)

static struct rg_sim *sim;
static struct rg_loop *loop;
static struct rg_transport_loop *transports;
static struct rg_resolver *resolver;
static struct rg_pool *pool;
static bool pool_closed;

static struct exchange {
    struct rg_exchange x;
    bool is_done;
    enum rg_status status;
    char text[64];
    uint64_t done_ns;
} exchanges[EXCHANGES_MAX];

static int exchange_encode(struct rg_exchange *x, struct rg_h1_encoder *encoder)
{
    rg_h1_encode_request(encoder, x->upload_size > 0 ? "PUT" : "GET", "/");
    rg_h1_encode_header_u64(encoder, "Content-Length", x->upload_size);
    return rg_h1_encode_end(encoder);
}

static enum rg_body_action exchange_head(struct rg_exchange *x, const struct rg_h1_head *head)
{
    (void)x, (void)head;
    return RG_BODY_DISCARD;
}

static void exchange_done(struct rg_exchange *x)
{
    struct exchange *exchange = RG_CONTAINER_OF(x, struct exchange, x);
    RG_CHECK(!exchange->is_done);
    exchange->is_done = true;
    exchange->status = x->status;
    snprintf(exchange->text, sizeof(exchange->text), "%s", x->text != NULL ? x->text : "");
    exchange->done_ns = rg_sim_now_ns(sim);
}

static const struct rg_exchange_ops exchange_ops = {
    .encode = exchange_encode,
    .head = exchange_head,
    .done = exchange_done,
};

static struct sockaddr_in address = {.sin_family = AF_INET};

static void setup_with(const struct rg_sim_options *sim_options)
{
    sim = rg_sim_create(sim_options);
    const struct rg_loop_options loop_options = {
        .backend = &rg_sim_backend,
        .backend_context = sim,
        .placement = {.cpu = -1, .node = -1},
        .memory_max = RG_MIB(8),
    };
    RG_CHECK_EQ(rg_loop_create(&loop, &loop_options), 0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
    RG_CHECK_EQ(rg_transport_loop_create(&transports, loop, EXCHANGES_MAX), 0);
    RG_CHECK_EQ(rg_resolver_create(&resolver, NULL), 0);
    const struct rg_pool_options options = {
        .host = "10.0.0.1",
        .port = 80,
        .resolver = resolver,
        .transports = transports,
        .connections_max = EXCHANGES_MAX,
        .connect_timeout_ns = TIMEOUT_NS,
        .first_byte_timeout_ns = TIMEOUT_NS,
        .stall_timeout_ns = TIMEOUT_NS,
        .idle_timeout_ns = TIMEOUT_NS,
    };
    RG_CHECK_EQ(rg_pool_create(&pool, loop, &options), 0);
    address.sin_port = htons(80);
    RG_CHECK_EQ(inet_pton(AF_INET, "10.0.0.1", &address.sin_addr), 1);
    memset(exchanges, 0, sizeof(exchanges));
    pool_closed = false;
}

static void setup(void)
{
    setup_with(&(struct rg_sim_options){.seed = rg_test_seed()});
}

static void note_closed(void *context)
{
    (void)context;
    pool_closed = true;
}

static bool is_closed(void *context)
{
    (void)context;
    return pool_closed;
}

static void teardown(void)
{
    rg_pool_close(pool, note_closed, NULL);
    RG_CHECK(rg_sim_run(sim, rg_sim_now_ns(sim) + TIMEOUT_NS, is_closed, NULL));
    RG_CHECK_EQ(rg_sim_socket_count(sim), 0);
    rg_resolver_destroy(resolver);
    rg_transport_loop_destroy(transports);
    rg_loop_destroy(loop);
    rg_sim_destroy(sim);
    sim = NULL;
}

static void listen_with(const struct rg_sim_service *service)
{
    rg_sim_listen(sim, (const struct sockaddr *)&address, service, NULL);
}

static void submit(size_t index)
{
    exchanges[index].x.ops = &exchange_ops;
    rg_pool_submit(pool, &exchanges[index].x);
}

static bool is_done(void *context)
{
    const struct exchange *exchange = context;
    return exchange->is_done;
}

/* Until it is done, or for so long. */
static bool run_until_done(size_t index, uint64_t ns)
{
    return rg_sim_run(sim, rg_sim_now_ns(sim) + ns, is_done, &exchanges[index]);
}

static unsigned connected_count;

static void count_connected(struct rg_sim_end *end)
{
    (void)end;
    connected_count++;
}

/* Takes 15 s for the first answer, and none for the others. */
static void answer_first_late(struct rg_sim_end *end, const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    uint64_t delay_ns = connected_count == 1 ? 15 * RG_NS_PER_S : 0;
    rg_sim_write_after(end, delay_ns, ANSWER, strlen(ANSWER));
}

static const struct rg_sim_service late_service = {.connected = count_connected,
                                                   .received = answer_first_late};

static void listen_again(void *context)
{
    (void)context;
    listen_with(&late_service);
}

/* One connection is busy for long, and others were refused: what waits is not left to wait for that
 * one when the address is no longer passed over, though nobody asks for anything meanwhile. */
static void test_connecting_is_tried_again_when_the_penalty_is_over(void)
{
    setup();
    connected_count = 0;
    listen_with(&late_service);
    submit(0);
    RG_CHECK(!run_until_done(0, RG_NS_PER_S));
    RG_CHECK_EQ(connected_count, 1);
    listen_with(NULL);
    submit(1);
    submit(2);
    rg_sim_after(sim, 2 * RG_NS_PER_S, listen_again, NULL);
    RG_CHECK(run_until_done(2, 10 * RG_NS_PER_S));
    RG_CHECK(run_until_done(1, RG_NS_PER_S));
    RG_CHECK_EQ(exchanges[1].status, RG_STATUS_OK);
    RG_CHECK_EQ(exchanges[2].status, RG_STATUS_OK);
    RG_CHECK(!exchanges[0].is_done);
    RG_CHECK(run_until_done(0, TIMEOUT_NS));
    RG_CHECK_EQ(exchanges[0].status, RG_STATUS_OK);
    teardown();
}

/* A server that reads at a pace, a little at a time, as a slow line does. */
static struct {
    uint64_t bytes_per_s;
    uint64_t stop_after; /* bytes, after which nothing is read any more; 0: never */
    uint64_t think_ns;   /* from the last byte to the answer */
    uint64_t size;       /* of a request's body */
    const char *interim; /* sent when the first bytes have come; NULL: nothing */
} pace;

struct reader {
    uint64_t got, head_size;
};

/* How much came in each such time of the first 20 s. */
#define SLOT_NS (20 * RG_NS_PER_MS)
static uint64_t slots[1000];

static void reader_connected(struct rg_sim_end *end)
{
    *rg_sim_end_state(end) = calloc(1, sizeof(struct reader));
}

static void read_on(void *context)
{
    rg_sim_resume(context);
}

static void reader_received(struct rg_sim_end *end, const uint8_t *data, size_t size)
{
    struct reader *reader = *rg_sim_end_state(end);
    if (reader->got == 0) {
        const uint8_t *behind = memmem(data, size, "\r\n\r\n", 4);
        RG_CHECK(behind != NULL);
        reader->head_size = (uint64_t)(behind + 4 - data);
        rg_sim_write(end, pace.interim != NULL ? pace.interim : "",
                     pace.interim != NULL ? strlen(pace.interim) : 0);
    }
    reader->got += size;
    slots[RG_MIN(rg_sim_now_ns(sim) / SLOT_NS, RG_ARRAY_LEN(slots) - 1)] += size;
    if (reader->got == reader->head_size + pace.size) {
        rg_sim_write_after(end, pace.think_ns, ANSWER, strlen(ANSWER));
        reader->got = 0;
        return;
    }
    rg_sim_pause(end);
    if (pace.stop_after == 0 || reader->got < pace.stop_after) {
        rg_sim_after(sim, size * RG_NS_PER_S / pace.bytes_per_s, read_on, end);
    }
}

static void reader_gone(struct rg_sim_end *end)
{
    free(*rg_sim_end_state(end));
}

static const struct rg_sim_service reader_service = {
    .connected = reader_connected, .received = reader_received, .gone = reader_gone};

/* Bytes in the kernels' hands, in the pieces in which a slow line carries them. */
static void setup_slow(size_t window)
{
    setup_with(&(struct rg_sim_options){.seed = rg_test_seed(), .window = window, .segment = 1000});
    listen_with(&reader_service);
}

static const uint8_t upload[3 << 20];

static void submit_upload(size_t index, uint64_t size)
{
    pace.size = size;
    exchanges[index].x.upload = upload;
    exchanges[index].x.upload_size = size;
    submit(index);
}

static void test_uploads_that_make_steady_progress_are_not_given_up(void)
{
    static const uint64_t rates[] = {1000, 10000, 50000};
    for (size_t i = 0; i < RG_ARRAY_LEN(rates); i++) {
        for (size_t window = 1000; window <= 64000; window *= 8) {
            memset(&pace, 0, sizeof(pace));
            pace.bytes_per_s = rates[i];
            setup_slow(window);
            for (size_t n = 0; n < EXCHANGES_MAX; n++) {
                submit_upload(n, 300000);
            }
            for (size_t n = 0; n < EXCHANGES_MAX; n++) {
                RG_CHECK(run_until_done(n, 3600 * RG_NS_PER_S * 2));
                RG_CHECK_EQ(exchanges[n].status, RG_STATUS_OK);
            }
            teardown();
        }
    }
}

/* What counts is when the last byte was taken, whenever that was. */
static void test_a_server_that_reads_no_more_is_given_up_at_the_limit(void)
{
    static const uint64_t stops[] = {1, 100000, 1000000, 2000000};
    for (size_t i = 0; i < RG_ARRAY_LEN(stops); i++) {
        memset(&pace, 0, sizeof(pace));
        pace.bytes_per_s = 20000;
        pace.stop_after = stops[i];
        setup_slow(16000);
        uint64_t begin_ns = rg_sim_now_ns(sim);
        submit_upload(0, sizeof(upload));
        RG_CHECK(run_until_done(0, 3600 * RG_NS_PER_S));
        RG_CHECK_EQ(exchanges[0].status, RG_STATUS_STALLED);
        RG_CHECK_STR(exchanges[0].text, "no byte of the upload was taken for the stall timeout");
        uint64_t read_ns = stops[i] * RG_NS_PER_S / pace.bytes_per_s;
        uint64_t took_ns = exchanges[0].done_ns - begin_ns;
        RG_CHECK(took_ns >= TIMEOUT_NS + read_ns - RG_MIN(read_ns, RG_NS_PER_S));
        RG_CHECK(took_ns <= TIMEOUT_NS + read_ns + TIMEOUT_NS / 8 + 2 * RG_NS_PER_S);
        teardown();
    }
}

/* All of it lies in the systems' buffers at once, and takes longer to get through than an answer
 * may take. */
static void test_the_wait_for_an_answer_begins_when_the_upload_has_left(void)
{
    for (uint64_t late = 0; late < 2; late++) {
        memset(&pace, 0, sizeof(pace));
        pace.bytes_per_s = 1000;
        pace.think_ns = late ? TIMEOUT_NS + TIMEOUT_NS / 4 : TIMEOUT_NS - RG_NS_PER_S;
        setup_slow(RG_MIB(1));
        submit_upload(0, 100000);
        RG_CHECK(run_until_done(0, 600 * RG_NS_PER_S));
        if (late) {
            RG_CHECK_EQ(exchanges[0].status, RG_STATUS_STALLED);
            RG_CHECK_STR(exchanges[0].text, "no answer came within the first-byte timeout");
        } else {
            RG_CHECK_EQ(exchanges[0].status, RG_STATUS_OK);
        }
        teardown();
    }
}

static void test_an_interim_answer_does_not_end_the_upload(void)
{
    memset(&pace, 0, sizeof(pace));
    pace.bytes_per_s = 5000;
    pace.interim = "HTTP/1.1 100 Continue\r\n\r\n";
    setup_slow(8000);
    submit_upload(0, 1000000);
    RG_CHECK(run_until_done(0, 600 * RG_NS_PER_S));
    RG_CHECK_EQ(exchanges[0].status, RG_STATUS_OK);
    teardown();
}

/* One connection, one upload after the other: what was taken of the last one says nothing. */
static void test_a_reused_connection_is_looked_at_afresh(void)
{
    memset(&pace, 0, sizeof(pace));
    pace.bytes_per_s = 5000;
    setup_slow(8000);
    for (size_t i = 0; i < 3; i++) {
        submit_upload(i, 200000);
        RG_CHECK(run_until_done(i, 600 * RG_NS_PER_S));
        RG_CHECK_EQ(exchanges[i].status, RG_STATUS_OK);
    }
    RG_CHECK_EQ(rg_sim_socket_count(sim), 1);
    pace.stop_after = 1;
    submit_upload(3, 200000);
    uint64_t begin_ns = rg_sim_now_ns(sim);
    RG_CHECK(run_until_done(3, 600 * RG_NS_PER_S));
    RG_CHECK_EQ(exchanges[3].status, RG_STATUS_STALLED);
    RG_CHECK(exchanges[3].done_ns - begin_ns < 2 * TIMEOUT_NS);
    teardown();
}

/* At this rate a server that stands still would be given up twice before the upload has ended. */
static void test_uploads_that_are_held_back_on_purpose_are_not_given_up(void)
{
    memset(&pace, 0, sizeof(pace));
    pace.bytes_per_s = RG_MIB(1024);
    setup_slow(RG_KIB(256));
    struct rg_send_pace send_pace = {.bytes_per_s =
                                         sizeof(upload) / (5 * TIMEOUT_NS / 2 / RG_NS_PER_S)};
    exchanges[0].x.pace = &send_pace;
    uint64_t begin_ns = rg_sim_now_ns(sim);
    submit_upload(0, sizeof(upload));
    RG_CHECK(run_until_done(0, 3600 * RG_NS_PER_S));
    RG_CHECK_EQ(exchanges[0].status, RG_STATUS_OK);
    RG_CHECK(exchanges[0].done_ns - begin_ns >= 2 * TIMEOUT_NS);
    RG_CHECK(exchanges[0].done_ns - begin_ns <= 3 * TIMEOUT_NS);
    teardown();
}

/* Two of them have one rate together. In no short time comes more than that allows. */
static void test_uploads_that_are_held_back_go_evenly(void)
{
    memset(&pace, 0, sizeof(pace));
    memset(slots, 0, sizeof(slots));
    pace.bytes_per_s = RG_MIB(1024);
    setup_slow(RG_MIB(8));
    struct rg_send_pace send_pace = {.bytes_per_s = RG_MIB(4)};
    uint64_t begin_ns = rg_sim_now_ns(sim);
    for (size_t i = 0; i < 2; i++) {
        exchanges[i].x.pace = &send_pace;
        submit_upload(i, sizeof(upload));
    }
    for (size_t i = 0; i < 2; i++) {
        RG_CHECK(run_until_done(i, 60 * RG_NS_PER_S));
        RG_CHECK_EQ(exchanges[i].status, RG_STATUS_OK);
    }
    uint64_t took_ns = rg_sim_now_ns(sim) - begin_ns;
    uint64_t want_ns = 2 * sizeof(upload) * RG_NS_PER_S / RG_MIB(4);
    RG_CHECK(took_ns >= want_ns - want_ns / 10 && took_ns <= want_ns + want_ns / 5);
    for (size_t i = 0; i < RG_ARRAY_LEN(slots); i++) {
        RG_CHECK(slots[i] <= RG_MIB(4) * SLOT_NS / RG_NS_PER_S + 3 * RG_SEND_PACE_PIECE);
    }
    teardown();
}

/* A part in small pieces goes through the send buffer, as all of them do with TLS. */
static void submit_in_pieces(size_t index)
{
    static struct rg_body_piece pieces[sizeof(upload) / 8192];
    for (size_t i = 0; i < RG_ARRAY_LEN(pieces); i++) {
        pieces[i] = (struct rg_body_piece){.data = upload + i * 8192, .end = (i + 1) * 8192};
    }
    exchanges[index].x.pieces = pieces;
    exchanges[index].x.piece_count = RG_ARRAY_LEN(pieces);
    submit_upload(index, sizeof(upload));
}

/* Whoever waits for its turn for too long is given up by the server. */
static void test_uploads_that_are_held_back_take_turns(void)
{
    static const uint64_t rates[] = {RG_MIB(1), RG_MIB(4), RG_MIB(16)};
    for (size_t r = 0; r < RG_ARRAY_LEN(rates); r++) {
        memset(&pace, 0, sizeof(pace));
        pace.bytes_per_s = RG_MIB(1024);
        setup_slow(RG_MIB(8));
        struct rg_send_pace send_pace = {.bytes_per_s = rates[r]};
        uint64_t begin_ns = rg_sim_now_ns(sim), first_ns = UINT64_MAX, last_ns = 0;
        for (size_t i = 0; i < 4; i++) {
            exchanges[i].x.pace = &send_pace;
            submit_in_pieces(i);
        }
        for (size_t i = 0; i < 4; i++) {
            RG_CHECK(run_until_done(i, 60 * RG_NS_PER_S));
            RG_CHECK_EQ(exchanges[i].status, RG_STATUS_OK);
            first_ns = RG_MIN(first_ns, exchanges[i].done_ns);
            last_ns = RG_MAX(last_ns, exchanges[i].done_ns);
        }
        RG_CHECK(first_ns - begin_ns >= (last_ns - begin_ns) * 3 / 4);
        teardown();
    }
}

static void test_who_is_held_back_goes_on_when_the_rate_ends(void)
{
    memset(&pace, 0, sizeof(pace));
    pace.bytes_per_s = RG_MIB(1024);
    setup_slow(RG_KIB(256));
    struct rg_send_pace send_pace = {.bytes_per_s = 1};
    exchanges[0].x.pace = &send_pace;
    submit_upload(0, sizeof(upload));
    RG_CHECK(!run_until_done(0, 100 * RG_NS_PER_S));
    send_pace.bytes_per_s = 0;
    RG_CHECK(run_until_done(0, RG_NS_PER_S));
    RG_CHECK_EQ(exchanges[0].status, RG_STATUS_OK);
    RG_CHECK(exchanges[0].x.was_held);
    submit_upload(1, sizeof(upload));
    RG_CHECK(run_until_done(1, RG_NS_PER_S));
    RG_CHECK(!exchanges[1].x.was_held);
    teardown();
}

/* Also one that is held back is given up if the server takes nothing. */
static void test_a_server_that_reads_no_more_is_given_up_whatever_the_rate(void)
{
    memset(&pace, 0, sizeof(pace));
    pace.bytes_per_s = RG_MIB(1024);
    pace.stop_after = 1000000;
    setup_slow(16000);
    struct rg_send_pace send_pace = {.bytes_per_s = RG_MIB(1)};
    exchanges[0].x.pace = &send_pace;
    uint64_t begin_ns = rg_sim_now_ns(sim);
    submit_upload(0, sizeof(upload));
    RG_CHECK(run_until_done(0, 3600 * RG_NS_PER_S));
    RG_CHECK_EQ(exchanges[0].status, RG_STATUS_STALLED);
    RG_CHECK(exchanges[0].done_ns - begin_ns <= TIMEOUT_NS + TIMEOUT_NS / 4);
    teardown();
}

/* An answer comes a few bytes at a time: each of them is progress, also before there is a record or
 * a head of them. */
static void drip(struct rg_sim_end *end, const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    for (size_t i = 0; i < strlen(ANSWER); i++) {
        rg_sim_write_after(end, (i + 1) * (TIMEOUT_NS - RG_NS_PER_S), &ANSWER[i], 1);
    }
}

static void test_an_answer_of_a_byte_at_a_time_is_progress(void)
{
    static const struct rg_sim_service service = {.received = drip};
    setup();
    listen_with(&service);
    submit(0);
    RG_CHECK(run_until_done(0, 3600 * RG_NS_PER_S));
    RG_CHECK_EQ(exchanges[0].status, RG_STATUS_OK);
    teardown();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_connecting_is_tried_again_when_the_penalty_is_over),
        RG_TEST(test_uploads_that_make_steady_progress_are_not_given_up),
        RG_TEST(test_a_server_that_reads_no_more_is_given_up_at_the_limit),
        RG_TEST(test_the_wait_for_an_answer_begins_when_the_upload_has_left),
        RG_TEST(test_an_interim_answer_does_not_end_the_upload),
        RG_TEST(test_a_reused_connection_is_looked_at_afresh),
        RG_TEST(test_uploads_that_are_held_back_on_purpose_are_not_given_up),
        RG_TEST(test_uploads_that_are_held_back_go_evenly),
        RG_TEST(test_uploads_that_are_held_back_take_turns),
        RG_TEST(test_who_is_held_back_goes_on_when_the_rate_ends),
        RG_TEST(test_a_server_that_reads_no_more_is_given_up_whatever_the_rate),
        RG_TEST(test_an_answer_of_a_byte_at_a_time_is_progress),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
