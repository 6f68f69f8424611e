/* The life of a request over its attempts: what is tried again and what is not, and that a request
 * completes exactly once in whatever state a deadline, a cancellation or the end of its client
 * finds it. */
#include "runtime/loop.h"
#include "runtime/runtime.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-goog-generation: 7\r\n\r\nok"

static struct rg_completion get_one(struct rg_test_client *c)
{
    rg_test_get(c, &(struct rg_get){.user_data = 1});
    return rg_test_take(c);
}

/* One get over the scripts; the completion without its lease. */
static struct rg_completion try_scripts(const struct rg_step *const *scripts, uint32_t script_count,
                                        const struct rg_client_options *options,
                                        enum rg_status want)
{
    struct rg_test_client c = {.scripts = scripts, .script_count = script_count};
    if (options != NULL) {
        c.options = *options;
    }
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return done;
}

static void test_error_answers(void)
{
    static const struct {
        const char *status_line;
        uint16_t http_status;
        enum rg_status want;
    } rows[] = {
        {"400 Bad Request", 400, RG_STATUS_BAD_REQUEST},
        {"401 Unauthorized", 401, RG_STATUS_UNAUTHENTICATED},
        {"403 Forbidden", 403, RG_STATUS_PERMISSION},
        {"404 Not Found", 404, RG_STATUS_NOT_FOUND},
        {"412 Precondition Failed", 412, RG_STATUS_PRECONDITION},
        {"416 Range Not Satisfiable", 416, RG_STATUS_RANGE},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        char answer[512];
        static const char message[] = "{\"error\":{\"code\":1,\"message\":\"the moon is full\"}}";
        snprintf(answer, sizeof(answer),
                 "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                 rows[i].status_line, sizeof(message) - 1, message);
        const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        rg_test_client_open(&c);
        struct rg_completion done = get_one(&c);
        rg_test_check_status(__FILE__, __LINE__, &done, rows[i].want);
        RG_CHECK_EQ(done.http_status, rows[i].http_status);
        RG_CHECK_EQ(done.attempts, 1);
        RG_CHECK_CONTAINS(done.detail, "the moon is full");
        RG_CHECK_CONTAINS(done.detail, "gs://bucket/object");
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

static void test_answers_that_ask_for_another_attempt(void)
{
    static const struct {
        const char *status_line;
        enum rg_status want;
    } rows[] = {
        {"408 Request Timeout", RG_STATUS_SERVER},
        {"429 Too Many Requests", RG_STATUS_THROTTLED},
        {"500 Internal Server Error", RG_STATUS_SERVER},
        {"502 Bad Gateway", RG_STATUS_SERVER},
        {"503 Service Unavailable", RG_STATUS_SERVER},
        {"504 Gateway Timeout", RG_STATUS_SERVER},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        char answer[128];
        snprintf(answer, sizeof(answer), "HTTP/1.1 %s\r\nContent-Length: 4\r\n\r\nbusy",
                 rows[i].status_line);
        const struct rg_step script[] = {RG_READ, RG_SEND(answer),    RG_READ, RG_SEND(answer),
                                         RG_READ, RG_SEND(OK_ANSWER), RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct rg_completion done = try_scripts(scripts, 1, NULL, RG_STATUS_OK);
        RG_CHECK_EQ(done.attempts, 3);
        struct rg_client_options few = {.attempts_max = 2};
        done = try_scripts(scripts, 1, &few, rows[i].want);
        RG_CHECK_EQ(done.attempts, 2);
        struct rg_client_options one = {.attempts_max = 1};
        done = try_scripts(scripts, 1, &one, rows[i].want);
        RG_CHECK_EQ(done.attempts, 1);
    }
}

/* What explains an error may be too long to keep, or break off: the error stays what it is. */
static void test_error_answers_with_broken_bodies(void)
{
    const struct rg_step longish[] = {
        RG_READ,
        RG_SEND("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100000\r\n\r\n"),
        {.kind = RG_STEP_SEND_BYTES, .size = 100000},
        RG_END};
    const struct rg_step endless[] = {RG_READ,
                                      RG_SEND("HTTP/1.1 503 Service Unavailable\r\n\r\n"),
                                      {.kind = RG_STEP_FLOOD, .text = "<html>"}};
    const struct rg_step good[] = {RG_READ, RG_SEND(OK_ANSWER), RG_AGAIN};
    const struct rg_step *const scripts[] = {longish, endless, good};
    struct rg_completion done = try_scripts(scripts, 3, NULL, RG_STATUS_OK);
    RG_CHECK_EQ(done.attempts, 3);
    const struct rg_step cut[] = {
        RG_READ, RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nno such"), RG_CUT};
    const struct rg_step *const cuts[] = {cut};
    done = try_scripts(cuts, 1, NULL, RG_STATUS_NOT_FOUND);
    RG_CHECK_EQ(done.attempts, 1);
    RG_CHECK_EQ(done.http_status, 404);
}

static void test_retry_after_is_honoured(void)
{
    const struct rg_step script[] = {
        RG_READ, RG_SEND("HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"),
        RG_READ, RG_SEND(OK_ANSWER), RG_END};
    const struct rg_step *const scripts[] = {script};
    uint64_t begin_ns = rg_now_ns();
    struct rg_completion done = try_scripts(scripts, 1, NULL, RG_STATUS_OK);
    RG_CHECK(done.finished_ns - begin_ns >= RG_NS_PER_S);
    RG_CHECK_EQ(done.attempts, 2);
}

/* A connection that ends in every state before the answer. */
static void test_lost_connections_are_replaced(void)
{
    const struct rg_step at_once[] = {RG_CUT};
    const struct rg_step reset_at_once[] = {RG_RESET};
    const struct rg_step after_request[] = {RG_READ, RG_CUT};
    const struct rg_step reset_after_request[] = {RG_READ, RG_RESET};
    const struct rg_step in_head[] = {RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nConte"), RG_CUT};
    const struct rg_step reset_in_head[] = {RG_READ, RG_SEND("HTTP/1.1 20"), RG_SLEEP(10),
                                            RG_RESET};
    const struct rg_step good[] = {RG_READ, RG_SEND(OK_ANSWER), RG_AGAIN};
    const struct rg_step *const scripts[] = {
        at_once, reset_at_once, after_request, reset_after_request, in_head, reset_in_head, good};
    for (unsigned tls = 0; tls < 2; tls++) {
        struct rg_test_client c = {.scripts = scripts,
                                   .script_count = RG_ARRAY_LEN(scripts),
                                   .tls = tls == 1,
                                   .options = {.attempts_max = 20}};
        rg_test_client_open(&c);
        struct rg_completion done = get_one(&c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_MEM(done.data, done.size, "ok", 2);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
        struct rg_client_options one = {.attempts_max = 1};
        done = try_scripts(&scripts[2], 1, &one, RG_STATUS_CONNECTION_LOST);
        RG_CHECK_EQ(done.attempts, 1);
    }
}

static void test_stalls_are_noticed_and_tried_again(void)
{
    const struct rg_step before[] = {RG_READ, RG_HOLD};
    const struct rg_step in_head[] = {RG_READ, RG_SEND("HTTP/1.1 200 OK\r\n"), RG_HOLD};
    const struct rg_step in_body[] = {
        RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-goog-generation: 7\r\n\r\no"),
        RG_HOLD};
    const struct rg_step rest[] = {
        RG_READ,
        RG_SEND("HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n"
                "Content-Range: bytes 1-1/2\r\nx-goog-generation: 7\r\n\r\nk"),
        RG_END};
    const struct rg_step *const scripts[] = {before, in_head, in_body, rest};
    struct rg_client_options options = {.first_byte_timeout_ns = 1500 * RG_NS_PER_MS,
                                        .stall_timeout_ns = 1500 * RG_NS_PER_MS};
    struct rg_completion done = try_scripts(scripts, 4, &options, RG_STATUS_OK);
    RG_CHECK(done.attempts >= 4); /* The good answer may be late, too. */
    options.attempts_max = 1;
    for (size_t i = 0; i < 3; i++) {
        done = try_scripts(&scripts[i], 1, &options, RG_STATUS_STALLED);
        RG_CHECK_EQ(done.attempts, 1);
    }
}

/* A server that sends a byte now and then is slow, not stalled. */
static void test_slow_answers_are_waited_for(void)
{
    const struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_SEND, .text = OK_ANSWER, .piece = 4, .ms = 300}, RG_END};
    const struct rg_step *const scripts[] = {script};
    /* Longer than a busy machine's pauses, and less than all of it takes. */
    struct rg_client_options options = {.stall_timeout_ns = 4 * RG_NS_PER_S,
                                        .first_byte_timeout_ns = 4 * RG_NS_PER_S};
    struct rg_completion done = try_scripts(scripts, 1, &options, RG_STATUS_OK);
    RG_CHECK_EQ(done.attempts, 1);
}

/* The server ends an idle connection just before it is used again. */
static void test_stale_connections_cost_no_back_off(void)
{
    const struct rg_step once[] = {RG_READ, RG_SEND(OK_ANSWER), RG_READ, RG_CUT};
    const struct rg_step reset[] = {RG_READ, RG_SEND(OK_ANSWER), RG_READ, RG_RESET};
    const struct rg_step good[] = {RG_READ, RG_SEND(OK_ANSWER), RG_AGAIN};
    const struct rg_step *const scripts[] = {once, reset, good};
    struct rg_test_client c = {
        .scripts = scripts,
        .script_count = 3,
        .options = {.backoff_min_ns = 3600 * RG_NS_PER_S, .backoff_max_ns = 3600 * RG_NS_PER_S},
    };
    rg_test_client_open(&c);
    for (unsigned i = 0; i < 4; i++) {
        struct rg_completion done = get_one(&c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_EQ(done.attempts, i == 1 || i == 2 ? 2 : 1);
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(rg_test_stats(&c).retries, 2);
    rg_test_client_close(&c);
    /* Never means never. */
    const struct rg_step *const stale[] = {once, good};
    struct rg_test_client one = {
        .scripts = stale, .script_count = 2, .options = {.attempts_max = 1}};
    rg_test_client_open(&one);
    struct rg_completion first = get_one(&one), second = get_one(&one);
    RG_CHECK_STATUS(&first, OK);
    RG_CHECK_STATUS(&second, CONNECTION_LOST);
    RG_CHECK_EQ(second.attempts, 1);
    rg_lease_release(first.lease);
    rg_lease_release(second.lease);
    rg_test_client_close(&one);
}

/* Where a request can be when something ends it. */
enum place {
    QUEUED,
    CONNECTING,
    SHAKING_HANDS,
    WAITING,
    IN_HEAD,
    IN_BODY,
    IN_DIRECT_BODY,
    IN_ERROR,
    BACKING_OFF,
    PLACE_COUNT
};

/* A listener whose queue is full: whoever connects waits. */
struct black_hole {
    int listener, fillers[8];
    uint16_t port;
};

static void black_hole_open(struct black_hole *hole)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    hole->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK_EQ(bind(hole->listener, (struct sockaddr *)&address, size), 0);
    RG_CHECK_EQ(listen(hole->listener, 0), 0);
    RG_CHECK_EQ(getsockname(hole->listener, (struct sockaddr *)&address, &size), 0);
    hole->port = ntohs(address.sin_port);
    for (size_t i = 0; i < RG_ARRAY_LEN(hole->fillers); i++) {
        hole->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(hole->fillers[i], (struct sockaddr *)&address, size);
    }
}

static void black_hole_close(struct black_hole *hole)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(hole->fillers); i++) {
        close(hole->fillers[i]);
    }
    close(hole->listener);
}

struct scene {
    struct rg_test_client c;
    struct black_hole hole;
    char endpoint[64];
    uint8_t *buf;
    const struct rg_step *scripts[1];
};

#define USER_DATA 42
#define BODY_SIZE 100000

/* Waits until the request is where it should be. One with a deadline may be over before. */
static void scene_await(struct scene *scene, enum place place)
{
    struct rg_test_client *c = &scene->c;
    if (place == CONNECTING) {
        return;
    }
    RG_AWAIT(rg_scripted_server_connections(c->server) == 1);
    if (place == SHAKING_HANDS) {
        return;
    }
    RG_AWAIT(rg_scripted_server_requests(c->server) > 0);
    uint64_t size = 0;
    for (const struct rg_step *step = scene->scripts[0]; step->kind != RG_STEP_HOLD; step++) {
        size += step->kind == RG_STEP_SEND ? strlen(step->text) : step->size;
        if (step->kind == RG_STEP_AGAIN) {
            break;
        }
    }
    RG_AWAIT(rg_test_stats(c).recv_bytes >= size);
}

/* Brings a request into a place. */
static void scene_open(struct scene *scene, enum place place, uint64_t deadline_ns)
{
    static const struct rg_step hold[] = {RG_READ, RG_HOLD};
    static const struct rg_step in_head[] = {RG_READ, RG_SEND("HTTP/1.1 200 OK\r\nCont"), RG_HOLD};
    static const struct rg_step in_body[] = {
        RG_READ,
        RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nx-goog-generation: 7\r\n\r\nabc"),
        RG_HOLD};
    static const struct rg_step in_direct_body[] = {
        RG_READ,
        RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nx-goog-generation: 7\r\n\r\n"),
        {.kind = RG_STEP_SEND_BYTES, .size = 50000},
        RG_HOLD};
    static const struct rg_step in_error[] = {
        RG_READ, RG_SEND("HTTP/1.1 503 Busy\r\nContent-Length: 10\r\n\r\nabc"), RG_HOLD};
    static const struct rg_step backing_off[] = {
        RG_READ, RG_SEND("HTTP/1.1 503 Busy\r\nRetry-After: 100\r\nContent-Length: 0\r\n\r\n"),
        RG_AGAIN};
    static const struct rg_step *const by_place[PLACE_COUNT] = {
        hold, hold, hold, hold, in_head, in_body, in_direct_body, in_error, backing_off};
    *scene = (struct scene){.buf = malloc(BODY_SIZE), .scripts = {by_place[place]}};
    struct rg_test_client *c = &scene->c;
    c->scripts = scene->scripts;
    c->script_count = 1;
    c->options.connections_max = 1;
    if (place == SHAKING_HANDS) {
        c->shake_never = true;
    }
    if (place == CONNECTING) {
        black_hole_open(&scene->hole);
        snprintf(scene->endpoint, sizeof(scene->endpoint), "http://127.0.0.1:%u", scene->hole.port);
        c->options.endpoint = scene->endpoint;
        c->no_server = true;
    }
    rg_test_client_open(c);
    if (place == QUEUED) {
        rg_test_get(c, &(struct rg_get){.user_data = 1});
        scene_await(scene, place);
    }
    rg_test_get(c, &(struct rg_get){.user_data = USER_DATA,
                                    .deadline_ns = deadline_ns,
                                    .buf = scene->buf,
                                    .buf_size = BODY_SIZE});
    if (deadline_ns == 0) {
        scene_await(scene, place);
    }
}

/* After its completion the caller's memory is the caller's alone. */
static void scene_free_buffer(struct scene *scene)
{
    free(scene->buf);
    scene->buf = NULL;
}

static void scene_close(struct scene *scene, enum place place)
{
    if (place == QUEUED) {
        RG_CHECK_EQ(rg_cancel(scene->c.client, scene->c.cq, 1), 0);
        struct rg_completion first = rg_test_take(&scene->c);
        RG_CHECK_EQ(first.user_data, 1);
        RG_CHECK_STATUS(&first, CANCELLED);
        rg_lease_release(first.lease);
    }
    rg_test_client_close(&scene->c);
    if (place == CONNECTING) {
        black_hole_close(&scene->hole);
    }
    free(scene->buf);
}

static void test_cancel_in_every_state(void)
{
    for (unsigned place = 0; place < PLACE_COUNT; place++) {
        struct scene scene;
        scene_open(&scene, place, 0);
        /* A cancellation of another queue's requests, or of none, completes nothing. */
        RG_CHECK_EQ(rg_cancel(scene.c.client, scene.c.cq, USER_DATA + 1), 0);
        RG_CHECK(rg_test_is_quiet(&scene.c, 20));
        /* More than one cancellation is one. */
        RG_CHECK_EQ(rg_cancel(scene.c.client, scene.c.cq, USER_DATA), 0);
        RG_CHECK_EQ(rg_cancel(scene.c.client, scene.c.cq, USER_DATA), 0);
        struct rg_completion done = rg_test_take(&scene.c);
        scene_free_buffer(&scene);
        RG_CHECK_EQ(done.user_data, USER_DATA);
        RG_CHECK_STATUS(&done, CANCELLED);
        RG_CHECK_EQ(done.size, place == IN_BODY ? 3 : place == IN_DIRECT_BODY ? 50000 : 0);
        rg_lease_release(done.lease);
        RG_CHECK(rg_test_is_quiet(&scene.c, 20));
        scene_close(&scene, place);
    }
}

static void test_deadline_in_every_state(void)
{
    for (unsigned place = 0; place < PLACE_COUNT; place++) {
        struct scene scene;
        /* The pause that the answer asks for is longer than either. */
        uint64_t wait_ns = place == BACKING_OFF ? 60 * RG_NS_PER_S : 150 * RG_NS_PER_MS;
        uint64_t deadline_ns = rg_now_ns() + wait_ns;
        scene_open(&scene, place, deadline_ns);
        struct rg_completion done = rg_test_take(&scene.c);
        scene_free_buffer(&scene);
        RG_CHECK_EQ(done.user_data, USER_DATA);
        if (place == BACKING_OFF) {
            /* The next attempt would come too late, which is known at once. */
            RG_CHECK_STATUS(&done, SERVER);
            RG_CHECK(done.finished_ns < deadline_ns);
        } else {
            RG_CHECK_STATUS(&done, DEADLINE);
            RG_CHECK(done.finished_ns >= deadline_ns);
            RG_CHECK(done.finished_ns < deadline_ns + RG_TEST_PATIENCE_NS / 2);
        }
        rg_lease_release(done.lease);
        RG_CHECK(rg_test_is_quiet(&scene.c, 20));
        scene_close(&scene, place);
    }
}

static void test_deadline_that_has_passed_already(void)
{
    struct scene scene;
    scene_open(&scene, WAITING, 1);
    struct rg_completion done = rg_test_take(&scene.c);
    RG_CHECK_STATUS(&done, DEADLINE);
    rg_lease_release(done.lease);
    scene_close(&scene, WAITING);
}

static void test_close_in_every_state(void)
{
    for (unsigned place = 0; place < PLACE_COUNT; place++) {
        struct scene scene;
        scene_open(&scene, place, 0);
        rg_client_close(scene.c.client);
        scene.c.client = NULL;
        scene_free_buffer(&scene);
        /* They are there when it returns; nothing has to be waited for. */
        struct rg_completion done[3];
        int count = rg_cq_poll(scene.c.cq, done, 3);
        RG_CHECK_EQ(count, place == QUEUED ? 2 : 1);
        bool seen = false;
        for (int i = 0; i < count; i++) {
            RG_CHECK_STATUS(&done[i], CLOSED);
            seen |= done[i].user_data == USER_DATA;
            rg_lease_release(done[i].lease);
        }
        RG_CHECK(seen);
        rg_test_client_close(&scene.c);
        if (place == CONNECTING) {
            black_hole_close(&scene.hole);
        }
    }
}

static void test_black_hole_gives_up_after_the_connect_timeout(void)
{
    struct black_hole hole;
    black_hole_open(&hole);
    char endpoint[64];
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", hole.port);
    struct rg_test_client c = {
        .no_server = true,
        .options = {.endpoint = endpoint,
                    .attempts_max = 2,
                    .connect_timeout_ns = 400 * RG_NS_PER_MS},
    };
    rg_test_client_open(&c);
    uint64_t begin_ns = rg_now_ns();
    struct rg_completion done = get_one(&c);
    RG_CHECK_STATUS(&done, CONNECT);
    RG_CHECK_EQ(done.os_error, ETIMEDOUT);
    RG_CHECK_EQ(done.attempts, 0); /* no request was sent */
    RG_CHECK(rg_now_ns() - begin_ns >= 800 * RG_NS_PER_MS);
    RG_CHECK_CONTAINS(done.detail, endpoint);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    black_hole_close(&hole);
}

/* A loop that has read the clock for its pass, and has not looked into its mailbox yet. */
struct held_pass {
    struct rg_loop *loop;
    struct rg_alarm alarm;
    sem_t held, go_on;
};

static void held_pass_fire(struct rg_alarm *alarm)
{
    struct held_pass *pass = RG_CONTAINER_OF(alarm, struct held_pass, alarm);
    sem_post(&pass->held);
    while (sem_wait(&pass->go_on) < 0) {
    }
}

static void held_pass_begin(void *context)
{
    struct held_pass *pass = context;
    rg_alarm_init(&pass->alarm, held_pass_fire);
    rg_loop_set_alarm(pass->loop, &pass->alarm, pass->loop->now_ns);
}

/* What is submitted and ends within one pass is submitted after the time that the pass goes by. */
static void test_no_duration_is_below_zero(void)
{
    static const struct rg_step silent[] = {RG_READ, RG_HOLD};
    static const struct rg_step *const scripts[] = {silent};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct held_pass pass = {.loop = c.runtime->loops[0]};
    sem_init(&pass.held, 0, 0);
    sem_init(&pass.go_on, 0, 0);
    rg_loop_call(pass.loop, held_pass_begin, &pass);
    while (sem_wait(&pass.held) < 0) {
    }
    rg_test_get(&c, &(struct rg_get){.user_data = 1});
    RG_CHECK_EQ(rg_cancel(c.client, c.cq, 1), 0);
    sem_post(&pass.go_on);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    struct rg_stats stats = rg_test_stats(&c);
    RG_CHECK_EQ(stats.total.count, 1);
    RG_CHECK(stats.total.max_ns < 3600 * RG_NS_PER_S);
    rg_test_client_close(&c);
    sem_destroy(&pass.held);
    sem_destroy(&pass.go_on);
}

static void test_closed_port(void)
{
    struct black_hole hole;
    black_hole_open(&hole);
    uint16_t port = hole.port;
    black_hole_close(&hole);
    char endpoint[64];
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", port);
    struct rg_test_client c = {.no_server = true,
                               .options = {.endpoint = endpoint, .attempts_max = 3}};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c);
    RG_CHECK_STATUS(&done, CONNECT);
    RG_CHECK_EQ(done.os_error, ECONNREFUSED);
    RG_CHECK_CONTAINS(done.detail, endpoint);
    RG_CHECK_CONTAINS(done.detail, "Connection refused");
    RG_CHECK_EQ(rg_test_stats(&c).connections_failed, 3);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_error_answers),
        RG_TEST(test_answers_that_ask_for_another_attempt),
        RG_TEST(test_error_answers_with_broken_bodies),
        RG_TEST(test_retry_after_is_honoured),
        RG_TEST(test_lost_connections_are_replaced),
        RG_TEST(test_stalls_are_noticed_and_tried_again),
        RG_TEST(test_slow_answers_are_waited_for),
        RG_TEST(test_stale_connections_cost_no_back_off),
        RG_TEST(test_cancel_in_every_state),
        RG_TEST(test_deadline_in_every_state),
        RG_TEST(test_deadline_that_has_passed_already),
        RG_TEST(test_close_in_every_state),
        RG_TEST(test_black_hole_gives_up_after_the_connect_timeout),
        RG_TEST(test_no_duration_is_below_zero),
        RG_TEST(test_closed_port),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
